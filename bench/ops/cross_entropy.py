"""cross_entropy, its gradient, and both in one call, beside torch.nn.functional.cross_entropy.

Losses are per row, as QuACK's are. PyTorch has no call that gives loss and gradient: there forward and backward run one
after the other.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, gradient, Op, rows_error, some_rows, TYPES, without_gradient


def losses(x, target):
    return F.cross_entropy(x, target, reduction="none")


def losses_into(x, target, loss):
    loss.copy_(losses(x, target))


def total(x, target):
    return F.cross_entropy(x, target, reduction="sum")


def inputs(dtype, m, n, device, generator):
    target = torch.randint(0, n, (m,), generator=generator, device=device)
    return {"logits": draw(generator, dtype, device, m, n), "target": target}


def dwant(t, rows):
    """Gradient of the sum of the losses of some rows, in double."""
    x, target = t["logits"][rows].double(), t["target"][rows]
    return torch.softmax(x, -1) - F.one_hot(target, x.shape[-1])


class Forward(Op):
    name = "cross_entropy"
    quack = True
    cpu_widths = (1024, 4096, 32000, 131072)

    def traffic(self, dtype, m, n):
        return m * n * TYPES[dtype].itemsize + 16 * m, 1, 0

    def tensors(self, dtype, m, n, device, generator):
        new = {name: torch.empty(m, dtype=torch.float32, device=device) for name in ("loss", "lse")}
        return {**inputs(dtype, m, n, device, generator), **new}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        if compiled is None:
            return without_gradient(losses, t["logits"], t["target"])
        return without_gradient(compiled(losses_into), t["logits"], t["target"], t["loss"])

    def error(self, t):
        rows = some_rows(len(t["loss"]))
        want = losses(t["logits"][rows].double(), t["target"][rows])
        return rows_error(t["loss"][rows][:, None], want[:, None])


class Both(Op):
    name = "cross_entropy"
    quack = True
    label = "cross_entropy with gradient"
    cpu_widths = Forward.cpu_widths

    def traffic(self, dtype, m, n):
        return 2 * m * n * TYPES[dtype].itemsize + 16 * m, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        t = Forward.tensors(self, dtype, m, n, device, generator)
        return {**t, "dlogits": torch.empty_like(t["logits"])}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        function = compiled(total) if compiled else total
        x = t["logits"].detach().requires_grad_()
        return lambda: torch.autograd.grad(function(x, t["target"]), x)

    def error(self, t):
        rows = some_rows(len(t["loss"]))
        return rows_error(t["dlogits"][rows], dwant(t, rows))


class Backward(Op):
    name = "cross_entropy_backward"
    cpu_widths = Forward.cpu_widths

    def traffic(self, dtype, m, n):
        return 2 * m * n * TYPES[dtype].itemsize + 16 * m, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        t = inputs(dtype, m, n, device, generator)
        lse = torch.empty(m, dtype=torch.float32, device=device)
        for k in range(0, m, 4096):  # in pieces: it widens its argument
            lse[k : k + 4096] = torch.logsumexp(t["logits"][k : k + 4096].float(), -1)
        grad = torch.ones(m, dtype=torch.float32, device=device)
        return {**t, "lse": lse, "grad": grad, "dlogits": torch.empty_like(t["logits"])}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        function = compiled(losses) if compiled else losses
        return gradient(function, (t["logits"], t["target"]), t["grad"].to(t["logits"].dtype))

    def error(self, t):
        rows = some_rows(len(t["lse"]))
        return rows_error(t["dlogits"][rows], dwant(t, rows))


OPS = [Forward(), Both(), Backward()]
