"""rms_norm and its gradient beside torch.nn.functional.rms_norm.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, gradient, Op, rows_error, some_rows, TYPES, without_gradient

EPS = 1e-6


def norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def norm_into(x, weight, y):
    y.copy_(norm(x, weight))


def weight_of(generator, dtype, device, n):
    return torch.rand(n, generator=generator, dtype=torch.float32, device=device).to(TYPES[dtype]) + 0.5


class Forward(Op):
    name = "rms_norm"
    quack = True

    def traffic(self, dtype, m, n):
        e = TYPES[dtype].itemsize
        return 2 * m * n * e + n * e, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        return {"x": x, "weight": weight_of(generator, dtype, device, n), "y": torch.empty_like(x)}

    def arguments(self, t):
        return {**t, "eps": EPS}

    def torch(self, t, compiled):
        if compiled is None:
            return without_gradient(norm, t["x"], t["weight"])
        return without_gradient(compiled(norm_into), t["x"], t["weight"], t["y"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        x = t["x"][rows].double()
        want = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * t["weight"].double()
        return rows_error(t["y"][rows], want)


class Backward(Op):
    name = "rms_norm_backward"
    quack = True

    def traffic(self, dtype, m, n):
        e = TYPES[dtype].itemsize
        return 3 * m * n * e + 4 * m + 2 * n * e, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        x, weight = draw(generator, dtype, device, m, n), weight_of(generator, dtype, device, n)
        squares = torch.linalg.vector_norm(x, dim=1, dtype=torch.float32).square()
        return {
            "x": x,
            "weight": weight,
            "dy": draw(generator, dtype, device, m, n),
            "rstd": torch.rsqrt(squares / n + EPS),
            "dx": torch.empty_like(x),
            "dweight": torch.empty_like(weight),
        }

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        return gradient(compiled(norm) if compiled else norm, (t["x"], t["weight"]), t["dy"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        x, g = t["x"][rows].double(), t["dy"][rows].double() * t["weight"].double()
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
        h = x * rstd
        return rows_error(t["dx"][rows], rstd * (g - h * (g * h).mean(-1, keepdim=True)))


OPS = [Forward(), Backward()]
