"""embedding and its gradient beside torch.nn.functional.embedding.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, Op, TYPES, without_gradient

VOCABULARY = {"cuda": 128256, "cpu": 32000}


class Embedding(Op):
    name = "embedding"
    widths = (128, 1024, 4096)

    def shapes(self, kind, device, types, widths):
        size = 2**27 if device == "cuda" else 2**24
        return [(t, size // n, n) for t in types for n in widths or self.widths] if kind == "sweep" else []

    def traffic(self, dtype, m, n):
        return 2 * m * n * TYPES[dtype].itemsize, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        v = VOCABULARY[device]
        ids = torch.randint(0, v, (m,), generator=generator, device=device)
        table = draw(generator, dtype, device, v, n)
        return {"table": table, "ids": ids, "out": table.new_empty(m, n)}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        if compiled is None:
            return without_gradient(F.embedding, t["ids"], t["table"])
        return without_gradient(compiled(lambda i, w, y: y.copy_(F.embedding(i, w))), t["ids"], t["table"], t["out"])

    def error(self, t):
        return 0.0 if torch.equal(t["out"][:99], t["table"][t["ids"][:99]]) else float("inf")


class Backward(Embedding):
    name = "embedding_backward"
    widths = (1024, 4096)

    def traffic(self, dtype, m, n):
        """Read dout, write dtable; how many rows of it there are is not known here: as many as on CUDA or a quarter."""
        v = VOCABULARY["cuda" if m * n == 2**27 else "cpu"]
        return m * n * TYPES[dtype].itemsize + v * n * TYPES[dtype].itemsize, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        t = Embedding.tensors(self, dtype, m, n, device, generator)
        return {"dtable": t["table"], "ids": t["ids"], "dout": draw(generator, dtype, device, m, n)}

    def torch(self, t, compiled):
        run = lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, t["dtable"].shape[0], -1, False)
        return without_gradient(run if compiled is None else compiled(run), t["dout"], t["ids"])

    def error(self, t):
        v = t["ids"][0]
        want = t["dout"][t["ids"] == v].double().sum(0)
        return ((t["dtable"][v] - want).abs().max() / want.abs().max()).item()


OPS = [Embedding(), Backward()]
