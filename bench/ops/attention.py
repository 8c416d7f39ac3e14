"""attention and its gradients beside PyTorch's scaled_dot_product_attention: head sizes, causal and not, with options.

Rows are the sequence length, the width is the head size; as many heads as make 8192 tokens of 128 columns (GPU:
16384 of 2048). On a GPU each of PyTorch's backends is a peer of its own, and FlexAttention where there is an option.
SPDX-License-Identifier: Apache-2.0
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend

from . import draw, gradient, Op, rows_error, TYPES, without_gradient

BHSD, THD = 1, 2
BACKENDS = {
    "math": SDPBackend.MATH,
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}


def by_backend(backend, **options):
    def run(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, **options)

    return run


def same_bits(run):
    """As PyTorch runs it where a program asks for the same bits in every run."""

    def again():
        torch.use_deterministic_algorithms(True)
        run()
        torch.use_deterministic_algorithms(False)

    return again


# ---------------------------------------------------------------- options


class Plain:
    """No option. t: the case's tensors; q may have its first heads only."""

    name = ""
    causal = False
    cpu_lengths = (512, 1024, 2048, 4096)
    cuda_lengths = (512, 1024, 2048, 4096, 8192, 16384)
    cuda_widths = (64, 128, 256)
    layout = BHSD

    def tensors(self, heads, length, dtype, device, generator):
        return {}

    def pairs(self, length):
        """Of a query and a key that it sees."""
        return length * length // (2 if self.causal else 1)

    def view(self, x):
        """A tensor [1, H, S, ...] as the layout wants it."""
        return x

    def arguments(self, t):
        return {"causal": int(self.causal)}

    def formula(self, t, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

    def peers(self, t):
        """{name: f(q, k, v)}, on a GPU. The formula as it stands keeps all scores: it has the short sequences only."""
        names = [name for name in BACKENDS if name != "math" or t["q"].shape[2] <= 4096]
        return {name: by_backend(BACKENDS[name], is_causal=self.causal) for name in names}


class Causal(Plain):
    name = "causal"
    causal = True


class Option(Plain):
    """score and seen are FlexAttention's functions."""

    cpu_lengths = (1024, 2048, 4096)
    cuda_lengths, cuda_widths = (4096,), (64, 128)

    def score(self, t):
        return None

    def seen(self, t):
        return None

    def peers(self, t):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        length, seen = t["q"].shape[2], self.seen(t)
        mask = create_block_mask(seen, None, None, length, length, device=t["q"].device) if seen else None
        torch._dynamo.reset()  # every case is a graph of its own: there is a limit on how many one function may have
        flex, score = torch.compile(flex_attention, dynamic=False), self.score(t)
        return {"FlexAttention": lambda q, k, v: flex(q, k, v, score_mod=score, block_mask=mask)}


def distance(length, device):
    place = torch.arange(length, device=device)
    return place[:, None] - place[None, :]


class Window(Option):
    """The last 1024 keys and the query's own."""

    name, left = "window", 1024

    def pairs(self, length):
        before = min(length, self.left)  # queries that see fewer keys
        return before * (before + 1) // 2 + (length - before) * (self.left + 1)

    def arguments(self, t):
        return {"has_window": 1, "window_left": self.left, "window_right": 0}

    def formula(self, t, q, k, v):
        back = distance(q.shape[2], q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(back >= 0) & (back <= self.left))

    def seen(self, t):
        return lambda b, h, i, j: (j <= i) & (i - j <= self.left)


class Packed(Option):
    """Sequences of a half, a quarter and two eighths of the tokens."""

    name, layout, shares = "packed", THD, (2, 4, 8, 8)

    def tensors(self, heads, length, dtype, device, generator):
        lengths = torch.tensor([0] + [length // share for share in self.shares], device=device)
        sequence = torch.repeat_interleave(torch.arange(len(self.shares), device=device), lengths[1:])
        return {"cu": lengths.cumsum(0).int(), "sequence": sequence}

    def pairs(self, length):
        return sum((length // share) ** 2 for share in self.shares)

    def view(self, x):
        return x[0].transpose(0, 1) if x.dim() == 4 else x[0]

    def arguments(self, t):
        return {"cu_seqlens_q": t["cu"], "cu_seqlens_k": t["cu"]}

    def formula(self, t, q, k, v):
        same = t["sequence"][:, None] == t["sequence"][None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=same)

    def seen(self, t):
        sequence = t["sequence"]
        return lambda b, h, i, j: sequence[i] == sequence[j]


class Alibi(Option):
    name = "alibi"

    def tensors(self, heads, length, dtype, device, generator):
        return {"slopes": 2.0 ** -torch.linspace(1, 8, heads, device=device)}

    def arguments(self, t):
        return {"slopes": t["slopes"]}

    def formula(self, t, q, k, v):
        slopes = t["slopes"][: q.shape[1], None, None].to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=-slopes * distance(q.shape[2], q.device).abs())

    def score(self, t):
        slopes = t["slopes"]
        return lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()


class Softcap(Option):
    name, cap = "softcap", 30.0

    def arguments(self, t):
        return {"softcap": self.cap}

    def formula(self, t, q, k, v):
        s = (q @ k.mT) / math.sqrt(q.shape[-1])
        return torch.softmax(self.cap * torch.tanh(s / self.cap), -1) @ v

    def score(self, t):
        return lambda s, b, h, i, j: self.cap * torch.tanh(s / self.cap)


class Bias(Option):
    """A number for each pair and head."""

    name = "bias"

    def tensors(self, heads, length, dtype, device, generator):
        return {"bias": draw(generator, dtype, device, 1, heads, length, length)}

    def arguments(self, t):
        return {"bias": t["bias"]}

    def formula(self, t, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=t["bias"][:, : q.shape[1]].to(q.dtype))

    def score(self, t):
        bias = t["bias"]
        return lambda s, b, h, i, j: s + bias[0, h, i, j]

    def peers(self, t):
        also = ("efficient", "cuDNN")
        return {**super().peers(t), **{name: by_backend(BACKENDS[name], attn_mask=t["bias"]) for name in also}}


# ---------------------------------------------------------------- both directions


class Forward(Op):
    name, way = "attention", ""
    cpu_widths = (64, 128)

    def __init__(self, option):
        self.option, self.cuda = option, False
        self.label = "_".join(part for part in ("attention", option.name, self.way) if part)

    def shapes(self, kind, device, types, widths):
        if kind == "quack":
            return []
        self.cuda = device == "cuda"
        option = self.option
        lengths, sizes = (option.cuda_lengths, option.cuda_widths) if self.cuda else (option.cpu_lengths, self.cpu_widths)
        types = [t for t in types if not (self.cuda and t == "f32")]
        return [(t, s, n) for t in types for n in sizes if not widths or n in widths for s in lengths]

    def heads(self, m, n):
        return max(1, 16384 // m) * 2048 // n if self.cuda else max(1, 8192 // m) * 128 // n

    def traffic(self, dtype, m, n):
        return 4 * m * n * self.heads(m, n) * TYPES[dtype].itemsize, 3, 1

    def operations(self, dtype, m, n):
        return 4 * self.heads(m, n) * self.option.pairs(m) * n

    def tensors(self, dtype, m, n, device, generator):
        shape = (1, self.heads(m, n), m, n)
        t = {name: draw(generator, dtype, device, *shape) for name in ("q", "k", "v")}
        t["o"] = torch.empty_like(t["q"])
        return {**t, **self.option.tensors(shape[1], m, dtype, device, generator)}

    def arguments(self, t):
        return self.call(t, "q", "k", "v", "o")

    def call(self, t, *names):
        tensors = {name: self.option.view(t[name]) for name in names}
        return {**tensors, "layout": self.option.layout, **self.option.arguments(t)}

    def inputs(self, t):
        return [t[name] for name in ("q", "k", "v")]

    def function(self, t):
        return lambda q, k, v: self.option.formula(t, q, k, v)

    def torch(self, t, compiled):
        function = self.function(t)
        if compiled is None:
            return without_gradient(function, *self.inputs(t))

        def into(o, *inputs):
            o.copy_(function(*inputs))

        return without_gradient(compiled(into), t["o"], *self.inputs(t))

    def run_of(self, function, t):
        return without_gradient(function, *self.inputs(t))

    def others(self, t, threads):
        found = {}
        for name, function in self.option.peers(t).items() if self.cuda else ():
            try:
                found[name] = self.run_of(function, t)
                found[name]()
            except Exception as why:  # a backend that does not take these sizes
                found.pop(name, None)
                print(f"{name} leaves {self.label} out: {str(why).splitlines()[0]}", file=sys.stderr)
        return found

    def error(self, t):
        first = [x[:, :1].double() for x in self.inputs(t)]
        return rows_error(t["o"][:, :1], self.function(t)(*first))


class Backward(Forward):
    name, way = "attention_backward", "backward"

    def operations(self, dtype, m, n):
        return super().operations(dtype, m, n) * 5 // 2

    def traffic(self, dtype, m, n):
        return 8 * m * n * self.heads(m, n) * TYPES[dtype].itemsize, 5, 3

    def tensors(self, dtype, m, n, device, generator):
        t = super().tensors(dtype, m, n, device, generator)
        t["d_o"] = draw(generator, dtype, device, *t["q"].shape)
        t["lse"] = torch.empty(t["q"].shape[:3], device=device)
        for name in ("q", "k", "v"):
            t["d" + name] = torch.empty_like(t[name])
        return t

    def prepare(self, t, library):
        library.prepare("attention", **self.call(t, "q", "k", "v", "o", "lse"))()

    def arguments(self, t):
        return self.call(t, "d_o", "q", "k", "v", "o", "lse", "dq", "dk", "dv")

    def torch(self, t, compiled):
        function = self.function(t) if compiled is None else compiled(self.function(t))
        return gradient(function, self.inputs(t), t["d_o"])

    def run_of(self, function, t):
        return gradient(function, self.inputs(t), t["d_o"])

    def others(self, t, threads):
        found = super().others(t, threads)
        if "FlashAttention-2" in found:
            found["FlashAttention-2, same bits"] = same_bits(found["FlashAttention-2"])
        return found

    def error(self, t):
        first = [x[:, :1].double() for x in self.inputs(t)]
        want = gradient(self.function(t), first, t["d_o"][:, :1].double())()
        one_key = isinstance(self.option, (Causal, Window))  # a query that sees one key has no gradient to compare with
        start = {"q": int(one_key), "k": 0, "v": 0}
        return max(rows_error(t["d" + x][:, :1, start[x] :], g[:, :, start[x] :]) for x, g in zip("qkv", want))


OPTIONS = (Plain, Causal, Window, Packed, Alibi, Softcap, Bias)
OPS = [way(option()) for way in (Forward, Backward) for option in OPTIONS]
