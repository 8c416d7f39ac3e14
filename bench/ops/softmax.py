"""softmax and its gradient beside torch.softmax.
SPDX-License-Identifier: Apache-2.0
"""

import torch

from . import draw, gradient, Op, rows_error, some_rows, TYPES, without_gradient


def softmax(x):
    return torch.softmax(x, -1)


def softmax_into(x, y):
    y.copy_(torch.softmax(x, -1))


class Forward(Op):
    name = "softmax"
    quack = True

    def traffic(self, dtype, m, n):
        return 2 * m * n * TYPES[dtype].itemsize, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        return {"x": x, "y": torch.empty_like(x)}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        if compiled is None:
            return without_gradient(lambda x, y: torch.softmax(x, -1, out=y), t["x"], t["y"])
        return without_gradient(compiled(softmax_into), t["x"], t["y"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        return rows_error(t["y"][rows], torch.softmax(t["x"][rows].double(), -1))


class Backward(Op):
    name = "softmax_backward"
    quack = True

    def traffic(self, dtype, m, n):
        return 3 * m * n * TYPES[dtype].itemsize, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        y = torch.softmax(draw(generator, dtype, device, m, n), -1)
        return {"dy": draw(generator, dtype, device, m, n), "y": y, "dx": torch.empty_like(y)}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        """Eager: the operator that autograd calls. Compiled: autograd's through log, which softmax(log(y)) undoes."""
        if compiled is None:
            backward = torch._softmax_backward_data
            return without_gradient(backward, t["dy"], t["y"], -1, t["y"].dtype)
        return gradient(compiled(softmax), (t["y"].float().log().to(t["y"].dtype),), t["dy"])

    def error(self, t):
        rows = some_rows(len(t["y"]))
        dy, y = t["dy"][rows].double(), t["y"][rows].double()
        return rows_error(t["dx"][rows], y * (dy - (dy * y).sum(-1, keepdim=True)))


OPS = [Forward(), Backward()]
