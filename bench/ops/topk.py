"""topk beside torch.topk, and its gradient.
SPDX-License-Identifier: Apache-2.0
"""

import torch

from . import draw, Op, TYPES, without_gradient


class TopK(Op):
    name = "topk"
    cpu_widths = (1024, 16384, 131072)
    cuda_widths = (1024, 4096, 16384, 65536, 131072)

    def __init__(self, k):
        self.k = k
        self.label = f"topk k={k}"

    def shapes(self, kind, device, types, widths):
        size = 2**26 if device == "cuda" else 2**23
        found = [(t, size // n, n) for t in types for n in widths or getattr(self, device + "_widths") if n > self.k]
        return found if kind == "sweep" else []

    def traffic(self, dtype, m, n):
        return m * n * TYPES[dtype].itemsize, 1, 0

    def tensors(self, dtype, m, n, device, generator):
        x = draw(generator, dtype, device, m, n)
        return {"x": x, "values": x.new_empty(m, self.k), "indices": x.new_empty(m, self.k, dtype=torch.int32)}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        values, indices = t["values"].clone(), t["indices"].long()
        pick = lambda x: torch.topk(x, self.k, out=(values, indices))
        return without_gradient(pick if compiled is None else compiled(lambda x: torch.topk(x, self.k)), t["x"])

    def error(self, t):
        want = torch.topk(t["x"][:4], self.k).values
        same = torch.equal(t["values"][:4], want) and torch.equal(t["x"][:4].gather(1, t["indices"][:4].long()), want)
        return 0.0 if same else float("inf")


OPS = [TopK(k) for k in (1, 8, 64, 2048)]
