"""hadamard beside the same stages in PyTorch, which has no such operation.
SPDX-License-Identifier: Apache-2.0
"""

import torch

from . import draw, Op, rows_error, some_rows, TYPES, without_gradient


def stages(x):
    n = x.shape[-1]
    y, h = x if x.dtype == torch.float64 else x.float(), 1
    while h < n:
        y = y.view(-1, n // (2 * h), 2, h)
        y = torch.stack((y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]), 2)
        h *= 2
    return (y.view(x.shape) * n**-0.5).to(x.dtype)


class Hadamard(Op):
    name = "hadamard"
    cpu_widths = (128, 4096, 32768)
    cuda_widths = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)

    def traffic(self, dtype, m, n):
        return 2 * m * n * TYPES[dtype].itemsize, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        return {"x": x, "y": torch.empty_like(x)}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        return without_gradient(stages if compiled is None else compiled(stages), t["x"])

    def error(self, t):
        rows = some_rows(len(t["x"]))
        return rows_error(t["y"][rows], stages(t["x"][rows].double()).double())


OPS = [Hadamard()]
