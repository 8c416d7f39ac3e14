"""attention and its gradients beside PyTorch's scaled_dot_product_attention: head sizes, causal and not, with options.

Rows are the sequence length, the width is the head size; as many heads as make 8192 tokens of 128 columns (GPU:
16384 of 2048).
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, gradient, Op, rows_error, TYPES, without_gradient

BHSD = 1


class Forward(Op):
    name = "attention"
    cpu_widths = (64, 128)
    cuda_widths = (64, 128, 256)
    cpu_lengths = (512, 1024, 2048, 4096)
    cuda_lengths = (512, 1024, 2048, 4096, 8192, 16384)

    def __init__(self, label, causal=False, options=None):
        self.label, self.causal, self.options, self.cuda = label, causal, options or {}, False

    def shapes(self, kind, device, types, widths):
        if kind == "quack":
            return []
        self.cuda = device == "cuda"
        lengths = self.cuda_lengths if self.cuda else self.cpu_lengths
        sizes = [n for n in (self.cuda_widths if self.cuda else self.cpu_widths) if not widths or n in widths]
        return [(t, s, n) for t in types for n in sizes for s in lengths if not (self.cuda and t == "f32")]

    def heads(self, m, n):
        return max(1, 16384 // m) * 2048 // n if self.cuda else max(1, 8192 // m) * 128 // n

    def traffic(self, dtype, m, n):
        return 4 * m * n * self.heads(m, n) * TYPES[dtype].itemsize, 3, 1

    def operations(self, dtype, m, n):
        return 4 * self.heads(m, n) * m * m * n // (2 if self.causal else 1)

    def tensors(self, dtype, m, n, device, generator):
        shape = (1, self.heads(m, n), m, n)
        t = {name: draw(generator, dtype, device, *shape) for name in ("q", "k", "v")}
        t["o"] = torch.empty_like(t["q"])
        if "bias" in self.options:
            t["bias"] = draw(generator, dtype, device, 1, shape[1], m, m)
        return t

    def arguments(self, t):
        extra = {"bias": t["bias"]} if "bias" in t else {}
        return {"q": t["q"], "k": t["k"], "v": t["v"], "o": t["o"], **extra, "layout": BHSD, "causal": int(self.causal)}

    def function(self):
        def run(q, k, v, bias=None):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=self.causal)

        return run

    def inputs(self, t):
        return [t[name] for name in ("q", "k", "v", "bias") if name in t]

    def torch(self, t, compiled):
        function = self.function()
        if compiled is None:
            return without_gradient(function, *self.inputs(t))

        def into(o, *inputs):
            o.copy_(function(*inputs))

        return without_gradient(compiled(into), t["o"], *self.inputs(t))

    def error(self, t):
        first = [x[:, :1].double() for x in self.inputs(t)]
        return rows_error(t["o"][:, :1], self.function()(*first))


class Backward(Forward):
    name = "attention_backward"

    def operations(self, dtype, m, n):
        return super().operations(dtype, m, n) * 5 // 2

    def traffic(self, dtype, m, n):
        return 8 * m * n * self.heads(m, n) * TYPES[dtype].itemsize, 5, 3

    def tensors(self, dtype, m, n, device, generator):
        import saker.torch

        t = super().tensors(dtype, m, n, device, generator)
        t["d_o"] = draw(generator, dtype, device, *t["q"].shape)
        t["o"], t["lse"] = saker.torch.attention(
            t["q"], t["k"], t["v"], bias=t.get("bias"), layout="bhsd", causal=self.causal, return_lse=True
        )
        for name in ("q", "k", "v"):
            t["d" + name] = torch.empty_like(t[name])
        return t

    def arguments(self, t):
        extra = {"bias": t["bias"]} if "bias" in t else {}
        names = ("d_o", "q", "k", "v", "o", "lse", "dq", "dk", "dv")
        return {**{name: t[name] for name in names}, **extra, "layout": BHSD, "causal": int(self.causal)}

    def torch(self, t, compiled):
        function = self.function() if compiled is None else compiled(self.function())
        return gradient(function, self.inputs(t), t["d_o"])

    def error(self, t):
        first = [x[:, :1].double() for x in self.inputs(t)]
        want = gradient(self.function(), first, t["d_o"][:, :1].double())()
        start = {"q": int(self.causal), "k": 0, "v": 0}  # a query that sees one key has no gradient to compare with
        return max(rows_error(t["d" + x][:, :1, start[x] :], g[:, :, start[x] :]) for x, g in zip("qkv", want))


OPS = [
    Forward("attention"),
    Forward("attention_causal", causal=True),
    Forward("attention_bias", options={"bias": True}),
    Backward("attention_backward"),
    Backward("attention_causal_backward", causal=True),
]
