"""grouped_gemm beside torch._grouped_mm: the products of a mixture of experts, along rows and along k.

Rows are tokens times the experts of each, the width is N.
SPDX-License-Identifier: Apache-2.0
"""

import torch

from . import draw, Op, rows_error, TYPES, without_gradient


class Grouped(Op):
    """a [tokens * each, k] times b [experts, k, n]; weights lie as a linear layer keeps them (kk) or as b does (kn)."""

    name = "grouped_gemm"

    def __init__(self, experts, each, tokens, k, n, layout, device="cuda"):
        self.experts, self.total, self.k, self.n, self.layout, self.device = experts, tokens * each, k, n, layout, device
        self.label = f"grouped_gemm E{experts} top{each} T{tokens} {k}->{n} {layout}"

    def shapes(self, kind, device, types, widths):
        fits = kind != "quack" and device == self.device and "bf16" in types and (not widths or self.n in widths)
        return [("bf16", self.total, self.n)] if fits else []

    def traffic(self, dtype, m, n):
        return (m * self.k + self.experts * self.k * n + m * n) * TYPES[dtype].itemsize, 2, 1

    def operations(self, dtype, m, n):
        return 2 * m * self.k * n

    def offsets(self, generator, device):
        owner = torch.randint(0, self.experts, (self.total,), generator=generator, device=device)
        ends = torch.bincount(owner, minlength=self.experts).cumsum(0)
        return torch.cat([torch.zeros(1, dtype=ends.dtype, device=device), ends]).int()

    def tensors(self, dtype, m, n, device, generator):
        turned = self.layout == "kk"
        b = draw(generator, dtype, device, self.experts, *((n, self.k) if turned else (self.k, n)))
        return {
            "a": draw(generator, dtype, device, m, self.k),
            "b": b.mT if turned else b,
            "offsets": self.offsets(generator, device),
            "d": torch.empty(m, n, dtype=TYPES[dtype], device=device),
        }

    def arguments(self, t):
        return dict(t)

    def torch(self, t, compiled):
        function = torch._grouped_mm if compiled is None else compiled(torch._grouped_mm)
        ends = t["offsets"][1:]
        return without_gradient(lambda: function(t["a"], t["b"], offs=ends))

    def error(self, t):
        group = int(torch.argmax(t["offsets"].diff()))
        rows = slice(int(t["offsets"][group]), int(t["offsets"][group]) + 3)
        return rows_error(t["d"][rows], t["a"][rows].double() @ t["b"][group].double())


class AlongK(Grouped):
    """The weights' gradients: a^T [k, tokens * each] times dy [tokens * each, n], group by group."""

    def __init__(self, *shape, **options):
        super().__init__(*shape, "along k", **options)

    def tensors(self, dtype, m, n, device, generator):
        return {
            "a": draw(generator, dtype, device, m, self.k).t(),
            "b": draw(generator, dtype, device, m, n),
            "offsets": self.offsets(generator, device),
            "d": torch.empty(self.experts, self.k, n, dtype=TYPES[dtype], device=device),
        }

    def arguments(self, t):
        return {**t, "along_k": 1}

    def error(self, t):
        group = int(torch.argmax(t["offsets"].diff()))
        part = slice(int(t["offsets"][group]), int(t["offsets"][group + 1]))
        return rows_error(t["d"][group, :3], t["a"][:3, part].double() @ t["b"][part].double())


# experts, experts of a token, tokens, K, N
LARGE = [
    (8, 2, 4096, 4096, 14336),
    (64, 6, 4096, 2048, 2816),
    (128, 8, 4096, 2048, 1536),
    (256, 8, 4096, 7168, 4096),
    (128, 8, 64, 2048, 1536),
]
SMALL = (8, 2, 512, 1024, 2048)
OPS = [Grouped(*shape, layout) for shape in LARGE for layout in ("kk", "kn")]
OPS += [AlongK(*shape) for shape in LARGE if shape[0] <= 128]
OPS += [Grouped(*SMALL, "kk", device="cpu"), Grouped(*SMALL, "kn", device="cpu"), AlongK(*SMALL, device="cpu")]
