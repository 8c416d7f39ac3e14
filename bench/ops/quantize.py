"""quantize and dequantize beside the same formulas in PyTorch.
SPDX-License-Identifier: Apache-2.0
"""

import torch

from . import draw, Op, rows_error, some_rows, TYPES, without_gradient

CODES = {"e4m3": (torch.float8_e4m3fn, 448.0), "i8": (torch.int8, 127.0)}
MODES = {"tensor": 1, "row": 2, "block": 3, "block2d": 4}


def blocks_of(x, mode):
    """x with the elements of a scale in its last dimension, or its last and third last."""
    if mode == "block":
        return x.unflatten(-1, (-1, 128))
    if mode == "block2d":
        return x.unflatten(0, (-1, 128)).unflatten(-1, (-1, 128))
    return x


def amax_of(x, mode):
    dims = {"tensor": None, "row": (-1,), "block": (-1,), "block2d": (1, 3)}[mode]
    return x.abs().amax() if dims is None else x.abs().amax(dims, keepdim=True)


class Quantize(Op):
    name = "quantize"
    cpu_widths = (4096,)
    cuda_widths = (8192,)

    def __init__(self, code, mode):
        self.code, self.mode, self.label = code, mode, f"quantize_{code}_{mode}"

    def shapes(self, kind, device, types, widths):
        found = super().shapes(kind, device, types, widths)
        return [(t, 2 * m, n) for t, m, n in found] if device == "cuda" else found

    def scales(self, m, n):
        return {"tensor": (1,), "row": (m,), "block": (m, n // 128), "block2d": (m // 128, n // 128)}[self.mode]

    def traffic(self, dtype, m, n):
        scales = 1
        for d in self.scales(m, n):
            scales *= d
        return m * n * (TYPES[dtype].itemsize + 1) + 4 * scales, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        return {
            "x": draw(generator, dtype, device, m, n),
            "q": torch.empty(m, n, dtype=CODES[self.code][0], device=device),
            "scale": torch.full(self.scales(m, n), 0.01, dtype=torch.float32, device=device),
        }

    def arguments(self, t):
        return {**t, "quant": MODES[self.mode]}

    def torch(self, t, compiled):
        dtype, largest = CODES[self.code]
        given = t["scale"] if self.mode == "tensor" else None

        def run(x):
            f = blocks_of(x.float(), self.mode)
            scale = amax_of(f, self.mode) / largest if given is None else given
            q = f / scale
            q = q.round().clamp(-127, 127) if dtype == torch.int8 else q.clamp(-largest, largest)
            return q.to(dtype).view(x.shape), scale

        return without_gradient(compiled(run) if compiled else run, t["x"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        return rows_error(self.values(t, rows), t["x"][rows].double())

    def values(self, t, rows):
        q, scale = t["q"][rows].double(), t["scale"].double()
        if self.mode == "tensor":
            return q * scale
        scale = scale[[r // 128 for r in rows] if self.mode == "block2d" else rows]
        return q * (scale[:, None] if self.mode == "row" else scale.repeat_interleave(128, -1))


class Dequantize(Quantize):
    name = "dequantize"

    def __init__(self, code, mode):
        self.code, self.mode, self.label = code, mode, f"dequantize_{code}_{mode}"

    def tensors(self, dtype, m, n, device, generator):
        t = super().tensors(dtype, m, n, device, generator)
        x = t.pop("x")
        t["q"].copy_(x if self.code != "i8" else x * 40)
        return {**t, "y": x}

    def torch(self, t, compiled):
        def run(q, scale, y):
            f = blocks_of(q.to(torch.float32), self.mode)
            if self.mode == "block":
                f = f * scale[..., None]
            else:
                f = f * (scale[:, None] if self.mode == "row" else scale)
            return f.view(y.shape).to(y.dtype)

        def into(q, scale, y):
            y.copy_(run(q, scale, y))

        return without_gradient(compiled(into) if compiled else run, t["q"], t["scale"], t["y"])

    def error(self, t):
        rows = some_rows(len(t["y"]))
        return rows_error(t["y"][rows], self.values(t, rows))


OPS = [Quantize("e4m3", "row"), Quantize("e4m3", "block"), Quantize("i8", "row"), Quantize("e4m3", "tensor")]
OPS += [Quantize("e4m3", "block2d"), Dequantize("e4m3", "row"), Dequantize("e4m3", "block"), Dequantize("i8", "row")]
