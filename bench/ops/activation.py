"""activation and its gradient beside torch.nn.functional: plain functions, SwiGLU, and SwiGLU quantised.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, gradient, Op, rows_error, some_rows, TYPES, without_gradient

ACTS = {"silu": 3, "gelu": 4, "gelu_tanh": 5, "relu": 6}
HALVES = 1


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


FUNCTIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": gelu_tanh, "relu": F.relu}


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


class Plain(Op):
    name = "activation"
    cpu_widths = (4096,)
    cuda_widths = (8192,)

    def __init__(self, act):
        self.act, self.label = act, act

    def traffic(self, dtype, m, n):
        return 2 * m * n * TYPES[dtype].itemsize, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        return {"x": x, "y": torch.empty_like(x)}

    def arguments(self, t):
        return {**t, "act": ACTS[self.act]}

    def function(self):
        return FUNCTIONS[self.act]

    def torch(self, t, compiled):
        function = self.function()
        if compiled is None:
            return without_gradient(function, t["x"])

        def into(x, y):
            y.copy_(function(x))

        return without_gradient(compiled(into), t["x"], t["y"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        return rows_error(t["y"][rows], self.function()(t["x"][rows].double()))


class PlainBackward(Plain):
    name = "activation_backward"

    def __init__(self, act):
        self.act, self.label = act, act + "_backward"

    def traffic(self, dtype, m, n):
        return 3 * m * n * TYPES[dtype].itemsize, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        x, dy = draw(generator, dtype, device, m, n), draw(generator, dtype, device, m, n)
        return {"x": x, "dy": dy, "dx": torch.empty_like(x)}

    def torch(self, t, compiled):
        function = self.function()
        return gradient(compiled(function) if compiled else function, (t["x"],), t["dy"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        (want,) = gradient(self.function(), (t["x"][rows].double(),), t["dy"][rows].double())()
        return rows_error(t["dx"][rows], want)


class SwiGLU(Plain):
    """x is [m, 2n]: gate and up in halves."""

    label = "swiglu"
    cpu_widths = (4096, 14336)
    cuda_widths = (8192, 14336)

    def __init__(self):
        pass

    def shapes(self, kind, device, types, widths):
        found = super().shapes(kind, device, types, widths)
        return [(t, m // 2, n) for t, m, n in found]

    def traffic(self, dtype, m, n):
        return 3 * m * n * TYPES[dtype].itemsize, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        return {"x": draw(generator, dtype, device, m, 2 * n), "y": torch.empty(m, n, dtype=TYPES[dtype], device=device)}

    def arguments(self, t):
        return {**t, "act": ACTS["silu"], "gated": HALVES}

    def function(self):
        return swiglu


class SwiGLUBackward(SwiGLU):
    name = "activation_backward"
    label = "swiglu_backward"

    def traffic(self, dtype, m, n):
        return 5 * m * n * TYPES[dtype].itemsize, 3, 2

    def tensors(self, dtype, m, n, device, generator):
        x, dy = draw(generator, dtype, device, m, 2 * n), draw(generator, dtype, device, m, n)
        return {"x": x, "dy": dy, "dx": torch.empty_like(x)}

    torch = PlainBackward.torch
    error = PlainBackward.error


class SwiGLUQuant(SwiGLU):
    """e4m3 with one scale a row, or one for 128 columns."""

    def __init__(self, quant):
        self.quant, self.label = quant, "swiglu_e4m3_" + quant

    def traffic(self, dtype, m, n):
        groups = m if self.quant == "row" else m * (n // 128)
        return m * n * (2 * TYPES[dtype].itemsize + 1) + 4 * groups, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        shape = (m,) if self.quant == "row" else (m, n // 128)
        return {
            "x": draw(generator, dtype, device, m, 2 * n),
            "y_quant": torch.empty(m, n, dtype=torch.float8_e4m3fn, device=device),
            "y_scale": torch.empty(shape, dtype=torch.float32, device=device),
        }

    def arguments(self, t):
        return {**super().arguments(t), "quant": {"row": 2, "block": 3}[self.quant]}

    def function(self):
        def run(x):
            y = swiglu(x).float()
            blocks = y if self.quant == "row" else y.unflatten(-1, (-1, 128))
            scale = blocks.abs().amax(-1, keepdim=True) / 448
            return (blocks / scale).to(torch.float8_e4m3fn).view(y.shape), scale

        return run

    def torch(self, t, compiled):
        function = self.function()
        return without_gradient(compiled(function) if compiled else function, t["x"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        want = swiglu(t["x"][rows].double())
        scale = t["y_scale"][rows].double()
        scale = scale[:, None] if self.quant == "row" else scale.repeat_interleave(128, -1)
        return rows_error(t["y_quant"][rows].double() * scale, want)


OPS = [Plain(act) for act in ACTS] + [PlainBackward(act) for act in ACTS]
OPS += [SwiGLU(), SwiGLUBackward(), SwiGLUQuant("row"), SwiGLUQuant("block")]
