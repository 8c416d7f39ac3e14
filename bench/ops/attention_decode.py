"""attention_decode beside PyTorch's scaled_dot_product_attention: one query of each of 32 heads against a cache.

Rows are the tokens of a sequence, the width is the head size; as many sequences as make 32768 tokens of eight key heads
(GPU: 131072). On a GPU each of PyTorch's backends that takes the shape is a peer of its own.
SPDX-License-Identifier: Apache-2.0
"""

import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel

from . import draw, Op, rows_error, TYPES, without_gradient
from .attention import BACKENDS

Q_HEADS = 32


class Decode(Op):
    name = "attention_decode"
    widths = (64, 128)
    lengths = (1024, 4096, 16384)

    def __init__(self, k_heads):
        self.k_heads, self.tokens = k_heads, 0
        self.label = f"attention_decode {Q_HEADS}/{k_heads} heads"

    def shapes(self, kind, device, types, widths):
        if kind == "quack":
            return []
        self.tokens = (131072 if device == "cuda" else 32768) * 8 // self.k_heads
        types = [t for t in types if not (device == "cuda" and t == "f32")]
        return [(t, m, n) for t in types for n in self.widths if not widths or n in widths for m in self.lengths]

    def traffic(self, dtype, m, n):
        return 2 * max(m, self.tokens) * self.k_heads * n * TYPES[dtype].itemsize, 2, 0

    def tensors(self, dtype, m, n, device, generator):
        b = max(1, self.tokens // m)
        t = {"q": draw(generator, dtype, device, b, 1, Q_HEADS, n)}
        for name in ("k_cache", "v_cache"):
            t[name] = draw(generator, dtype, device, b, m, self.k_heads, n)
        t["lengths"] = torch.full((b,), m, dtype=torch.int32, device=device)
        t["o"] = torch.empty_like(t["q"])
        return t

    def arguments(self, t):
        return t

    def inputs(self, t):
        return [t[name].transpose(1, 2) for name in ("q", "k_cache", "v_cache")]

    @staticmethod
    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])

    def torch(self, t, compiled):
        if compiled is None:
            return without_gradient(self.function, *self.inputs(t))

        def into(o, *inputs):
            o.copy_(self.function(*inputs))

        return without_gradient(compiled(into), t["o"].transpose(1, 2), *self.inputs(t))

    def others(self, t, threads):
        def by_backend(backend):
            def run(q, k, v):
                with sdpa_kernel(backend):
                    return self.function(q, k, v)

            return run

        found = {}
        for name, backend in BACKENDS.items() if t["q"].is_cuda else ():
            try:
                found[name] = without_gradient(by_backend(backend), *self.inputs(t))
                found[name]()
            except Exception as why:  # a backend that does not take these sizes
                found.pop(name, None)
                print(f"{name} leaves {self.label} out: {str(why).splitlines()[0]}", file=sys.stderr)
        return found

    def error(self, t):
        first = [x[:1].double() for x in self.inputs(t)]
        return rows_error(t["o"][:1].transpose(1, 2), self.function(*first))


OPS = [Decode(8), Decode(Q_HEADS)]
