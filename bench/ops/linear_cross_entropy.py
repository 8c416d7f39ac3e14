"""linear_cross_entropy with its gradients, and the loss alone, beside cross_entropy(linear()) in PyTorch.

Rows are tokens, the width is the vocabulary. PyTorch has no call that gives loss and gradients: there forward and
backward run one after the other, with all logits in memory.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, Op, rows_error, some_rows, TYPES, without_gradient

MEAN = 1


def mean(x, weight, target):
    return F.cross_entropy(F.linear(x, weight), target)


def mean_into(x, weight, target, loss):
    loss.copy_(mean(x, weight, target))


class Loss(Op):
    name = "linear_cross_entropy"
    gradients = 0

    def __init__(self, h, rows, device, widths):
        self.h, self.rows, self.device, self.widths = h, rows, device, widths
        self.label = f"linear_cross_entropy H{h}" + (" with gradients" if self.gradients else "")

    def shapes(self, kind, device, types, widths):
        if kind == "quack" or device != self.device:
            return []
        return [(t, self.rows, n) for t in types for n in self.widths if not widths or n in widths]

    def traffic(self, dtype, m, n):
        return (m + n) * self.h * TYPES[dtype].itemsize * (1 + self.gradients // 2), 2, self.gradients

    def operations(self, dtype, m, n):
        return 2 * m * n * self.h * (1 + self.gradients)

    def tensors(self, dtype, m, n, device, generator):
        return {
            "x": draw(generator, dtype, device, m, self.h),
            "weight": draw(generator, dtype, device, n, self.h) / self.h**0.5,
            "target": torch.randint(0, n, (m,), generator=generator, device=device),
            "loss": torch.empty((), dtype=torch.float32, device=device),
        }

    def arguments(self, t):
        return {**t, "reduction": MEAN}

    def torch(self, t, compiled):
        given = t["x"], t["weight"], t["target"]
        if compiled is None:
            return without_gradient(mean, *given)
        return without_gradient(compiled(mean_into), *given, t["loss"])

    def error(self, t):
        weight, want = t["weight"].double(), 0.0
        for x, target in zip(t["x"].split(1024), t["target"].split(1024)):  # f64 logits of all rows take much memory
            want += F.cross_entropy(F.linear(x.double(), weight), target, reduction="sum").item() / len(t["x"])
        return abs(t["loss"].item() - want) / abs(want)


class Gradients(Loss):
    gradients = 2

    def tensors(self, dtype, m, n, device, generator):
        t = super().tensors(dtype, m, n, device, generator)
        return {**t, "dx": torch.empty_like(t["x"]), "dweight": torch.empty_like(t["weight"])}

    def torch(self, t, compiled):
        function = compiled(mean) if compiled else mean
        x, weight = (t[name].detach().requires_grad_() for name in ("x", "weight"))
        return lambda: torch.autograd.grad(function(x, weight, t["target"]), (x, weight))

    def error(self, t):
        rows = some_rows(len(t["x"]))
        x = t["x"][rows].double().requires_grad_()
        loss = F.cross_entropy(F.linear(x, t["weight"].double()), t["target"][rows], reduction="sum") / len(t["x"])
        return rows_error(t["dx"][rows], torch.autograd.grad(loss, x)[0])


OPS = [
    Loss(1024, 1024, "cpu", (32000,)),
    Gradients(1024, 1024, "cpu", (32000,)),
    Loss(4096, 8192, "cuda", (32000, 128256)),
    Gradients(4096, 8192, "cuda", (32000, 128256)),
    Gradients(2048, 16384, "cuda", (50257,)),
]
