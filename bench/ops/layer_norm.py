"""layer_norm and its gradient beside torch.nn.functional.layer_norm.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, gradient, Op, rows_error, some_rows, TYPES, without_gradient
from .rms_norm import weight_of

EPS = 1e-5


def norm(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS)


def norm_into(x, weight, bias, y):
    y.copy_(norm(x, weight, bias))


class Forward(Op):
    name = "layer_norm"
    quack = True

    def traffic(self, dtype, m, n):
        e = TYPES[dtype].itemsize
        return 2 * m * n * e + 2 * n * e, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        weight, bias = (weight_of(generator, dtype, device, n) for _ in range(2))
        return {"x": x, "weight": weight, "bias": bias, "y": torch.empty_like(x)}

    def arguments(self, t):
        return {**t, "eps": EPS}

    def torch(self, t, compiled):
        given = t["x"], t["weight"], t["bias"]
        if compiled is None:
            return without_gradient(norm, *given)
        return without_gradient(compiled(norm_into), *given, t["y"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        x = t["x"][rows].double()
        return rows_error(t["y"][rows], norm(x, t["weight"].double(), t["bias"].double()))


class Backward(Op):
    name = "layer_norm_backward"

    def traffic(self, dtype, m, n):
        e = TYPES[dtype].itemsize
        return 3 * m * n * e + 8 * m + 3 * n * e, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        weight, bias = (weight_of(generator, dtype, device, n) for _ in range(2))
        mean = x.mean(1, dtype=torch.float32)
        square = torch.linalg.vector_norm(x, dim=1, dtype=torch.float32).square() / n
        return {
            "x": x,
            "weight": weight,
            "bias": bias,
            "dy": draw(generator, dtype, device, m, n),
            "mean": mean,
            "rstd": torch.rsqrt(square - mean.square() + EPS),
            "dx": torch.empty_like(x),
            "dweight": torch.empty_like(weight),
            "dbias": torch.empty_like(bias),
        }

    def arguments(self, t):
        return {name: value for name, value in t.items() if name != "bias"}

    def torch(self, t, compiled):
        return gradient(compiled(norm) if compiled else norm, (t["x"], t["weight"], t["bias"]), t["dy"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        x = t["x"][rows].double().requires_grad_()
        y = norm(x, t["weight"].double(), t["bias"].double())
        (want,) = torch.autograd.grad(y, x, t["dy"][rows].double())
        return rows_error(t["dx"][rows], want)


OPS = [Forward(), Backward()]
