"""rope and its gradient beside the formula of Hugging Face's apply_rotary_pos_emb, alone and after F.rms_norm.

rows are tokens with 32 heads of q and 8 of k, width is the head size. PyTorch sees heads as its models do: [B, H, S, D]
views of [B, S, H, D] memory.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, Op, rows_error, TYPES, without_gradient

EPS = 1e-6
HEADS = 32, 8


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def apply_norm(q, k, cos, sin, q_weight, k_weight):
    q, k = F.rms_norm(q, q.shape[-1:], q_weight, EPS), F.rms_norm(k, k.shape[-1:], k_weight, EPS)
    return apply(q, k, cos, sin)


def into(function):
    def run(q_out, k_out, *inputs):
        q, k = function(*inputs)
        q_out.copy_(q)
        k_out.copy_(k)

    return run


def heads_first(t):
    return t.transpose(1, 2)


class Forward(Op):
    name = "rope"
    norm = False
    cpu_widths = (64, 128)
    cuda_widths = (64, 128, 256)

    def shapes(self, kind, device, types, widths):
        if kind == "quack":
            return []
        bytes_of_q_and_k = 2**28 if device == "cpu" else 2**28 + 2**26
        heads = sum(HEADS)
        return [
            (t, bytes_of_q_and_k // TYPES[t].itemsize // heads // n // 512 * 512, n)
            for t in types
            for n in widths or (self.cpu_widths if device == "cpu" else self.cuda_widths)
        ]

    def traffic(self, dtype, m, n):
        return 2 * m * n * sum(HEADS) * TYPES[dtype].itemsize, 1, 1

    def tensors(self, dtype, m, n, device, generator):
        batch = 4
        t = {name: draw(generator, dtype, device, batch, m // batch, h, n) for name, h in zip("qk", HEADS)}
        angle = torch.arange(m // batch, device=device)[:, None] * 10000.0 ** (
            -torch.arange(0, n, 2, device=device, dtype=torch.float64) / n
        )
        t["cos"], t["sin"] = (torch.cat((f, f), -1).to(TYPES[dtype]) for f in (angle.cos(), angle.sin()))
        t["q_out"], t["k_out"] = torch.empty_like(t["q"]), torch.empty_like(t["k"])
        if self.norm:
            t["q_weight"], t["k_weight"] = (draw(generator, dtype, device, n) for _ in range(2))
        return t

    def arguments(self, t):
        half = t["q"].shape[-1] // 2
        found = {**t, "cos": t["cos"][:, :half], "sin": t["sin"][:, :half]}
        return {**found, "norm": 1, "eps": EPS} if self.norm else found

    def torch(self, t, compiled):
        function = apply_norm if self.norm else apply
        inputs = [heads_first(t["q"]), heads_first(t["k"]), t["cos"][None], t["sin"][None]]
        inputs += [t["q_weight"], t["k_weight"]] if self.norm else []
        if compiled is None:
            return without_gradient(function, *inputs)
        return without_gradient(compiled(into(function)), heads_first(t["q_out"]), heads_first(t["k_out"]), *inputs)

    def error(self, t):
        q = t["q"][:1, -3:].double()
        if self.norm:
            q = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + EPS) * t["q_weight"].double()
        cos, sin = (t[name][-3:, None].double() for name in ("cos", "sin"))
        return rows_error(t["q_out"][:1, -3:], q * cos + rotate_half(q) * sin)


class ForwardNorm(Forward):
    label = "rope norm"
    norm = True
    cpu_widths = cuda_widths = (128,)


class Backward(Forward):
    name = "rope_backward"

    def traffic(self, dtype, m, n):
        size, reads, writes = super().traffic(dtype, m, n)
        return (size * 3 // 2, 2, 1) if self.norm else (size, reads, writes)

    def tensors(self, dtype, m, n, device, generator):
        t = super().tensors(dtype, m, n, device, generator)
        t["dq_out"], t["dk_out"] = t.pop("q_out").normal_(generator=generator), t.pop("k_out").normal_(generator=generator)
        t["dq"], t["dk"] = torch.empty_like(t["q"]), torch.empty_like(t["k"])
        if self.norm:
            t["dq_weight"], t["dk_weight"] = torch.empty_like(t["q_weight"]), torch.empty_like(t["k_weight"])
        return t

    def arguments(self, t):
        found = super().arguments(t)
        return found if self.norm else {name: v for name, v in found.items() if name not in ("q", "k")}

    def torch(self, t, compiled):
        function = apply_norm if self.norm else apply
        function = function if compiled is None else compiled(function)
        leaves = [heads_first(t[name]).detach().requires_grad_() for name in "qk"]
        if self.norm:
            leaves += [t[name].detach().requires_grad_() for name in ("q_weight", "k_weight")]
        out = function(*leaves[:2], t["cos"][None], t["sin"][None], *leaves[2:])
        grads = heads_first(t["dq_out"]), heads_first(t["dk_out"])
        return lambda: torch.autograd.grad(out, leaves, grads, retain_graph=True)

    def error(self, t):
        cos, sin = (t[name][-3:, None].double() for name in ("cos", "sin"))
        g = t["dq_out"][:1, -3:].double()
        g = g * cos - rotate_half(g) * sin
        if self.norm:
            q, g = t["q"][:1, -3:].double(), g * t["q_weight"].double()
            rstd = torch.rsqrt(q.square().mean(-1, keepdim=True) + EPS)
            g = rstd * (g - q * rstd * (g * q * rstd).mean(-1, keepdim=True))
        return rows_error(t["dq"][:1, -3:], g)


class BackwardNorm(Backward):
    label = "rope_backward norm"
    norm = True
    cpu_widths = cuda_widths = (128,)


OPS = [Forward(), ForwardNorm(), Backward(), BackwardNorm()]
