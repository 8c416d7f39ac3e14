"""moe_route and moe beside the same made of PyTorch's operations.

Rows are tokens. The width of moe_route is the number of experts, that of moe the width of a token.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

from . import draw, Op, rows_error, some_rows, TYPES, without_gradient

SIGMOID, TOP2, SILU, HALVES = 1, 1, 3, 1


def sorted_by_expert(ids, experts):
    """offsets, order, place and token of moe_route."""
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    ends = torch.bincount(flat, minlength=experts).cumsum(0)
    return F.pad(ends, (1, 0)), order, place, order // ids.shape[1]


class Route(Op):
    """Softmax over the chosen, or (deepseek) sigmoid scores with a bias for choosing, four of eight groups of experts."""

    name = "moe_route"

    def __init__(self, experts, each, deepseek=False):
        self.experts, self.each, self.deepseek = experts, each, deepseek
        self.label = f"moe_route top{each} of {experts}" + (", groups" if deepseek else "")

    def shapes(self, kind, device, types, widths):
        fits = kind != "quack" and (not widths or self.experts in widths)
        return [(t, m, self.experts) for t in types for m in (64, 4096, 65536)] if fits else []

    def traffic(self, dtype, m, n):
        return m * n * TYPES[dtype].itemsize + m * self.each * 20, 1, 0

    def tensors(self, dtype, m, n, device, generator):
        rows = m * self.each
        number = lambda *shape: torch.empty(*shape, dtype=torch.int32, device=device)
        t = {"logits": draw(generator, dtype, device, m, n), "ids": number(m, self.each), "counts": number(n)}
        t.update(offsets=number(n + 1), order=number(rows), place=number(rows), token=number(rows))
        t["weights"] = torch.empty(m, self.each, device=device)
        if self.deepseek:
            t["bias"] = draw(generator, "f32", device, n) / 100
        return t

    def arguments(self, t):
        groups = {"score": SIGMOID, "n_groups": 8, "top_groups": 4, "group_score": TOP2, "scale": 2.5}
        return {**t, "renormalise": 1, **(groups if self.deepseek else {})}

    def choose(self, t):
        if not self.deepseek:
            weights, ids = t["logits"].float().softmax(-1).topk(self.each)
            return weights / weights.sum(-1, keepdim=True), ids
        scores = t["logits"].float().sigmoid()
        choice = (scores + t["bias"]).view(len(scores), 8, -1)
        groups = choice.topk(2).values.sum(-1).topk(4).indices
        kept = torch.zeros(choice.shape[:2], dtype=torch.bool, device=choice.device).scatter_(1, groups, True)
        ids = choice.masked_fill(~kept[..., None], -torch.inf).flatten(1).topk(self.each).indices
        weights = scores.gather(1, ids)
        return 2.5 * weights / weights.sum(-1, keepdim=True), ids

    def torch(self, t, compiled):
        def run():
            weights, ids = self.choose(t)
            return weights, ids, *sorted_by_expert(ids, self.experts)

        return without_gradient(run if compiled is None else compiled(run))

    def error(self, t):
        return rows_error(t["weights"], self.choose(t)[0].double())


class Experts(Op):
    """SwiGLU experts of half the width of a token."""

    name = "moe"

    def __init__(self, experts, each, n, tokens, device):
        self.experts, self.each, self.n, self.tokens, self.device = experts, each, n, tokens, device
        self.label = f"moe top{each} of {experts}"

    def shapes(self, kind, device, types, widths):
        fits = kind != "quack" and device == self.device and (not widths or self.n in widths)
        return [(t, m, self.n) for t in types if device == "cpu" or t != "f32" for m in self.tokens] if fits else []

    def traffic(self, dtype, m, n):
        used = min(self.experts, m * self.each)
        return (used * 3 * n * n // 2 + 2 * m * n) * TYPES[dtype].itemsize, 2, 1

    def operations(self, dtype, m, n):
        return 2 * m * self.each * 3 * n * n // 2

    def tensors(self, dtype, m, n, device, generator):
        ids = torch.rand(m, self.experts, generator=generator, device=device).topk(self.each).indices
        offsets, _, place, token = (x.int() for x in sorted_by_expert(ids, self.experts))
        inner = n // 2
        return {
            "x": draw(generator, dtype, device, m, n),
            "weights": torch.rand(m, self.each, generator=generator, device=device),
            "offsets": offsets,
            "token": token,
            "place": place,
            "gate_up": draw(generator, dtype, device, self.experts, 2 * inner, n) / n**0.5,
            "down": draw(generator, dtype, device, self.experts, n, inner) / inner**0.5,
            "y": torch.empty(m, n, dtype=TYPES[dtype], device=device),
        }

    def arguments(self, t):
        return {**t, "act": SILU, "gated": HALVES}

    def formula(self, t):
        ends = t["offsets"][1:]
        gate, up = torch._grouped_mm(t["x"][t["token"]], t["gate_up"].mT, offs=ends).chunk(2, -1)
        z = torch._grouped_mm(F.silu(gate) * up, t["down"].mT, offs=ends)[t["place"]]
        return (z.view(*t["weights"].shape, -1) * t["weights"][..., None]).sum(1)

    def torch(self, t, compiled):
        function = lambda: self.formula(t)
        return without_gradient(function if compiled is None else compiled(function))

    def error(self, t):
        rows = some_rows(len(t["x"]))
        owner = torch.repeat_interleave(torch.arange(self.experts, device=t["x"].device), t["offsets"].diff())
        want = []
        for row in rows:
            y = 0
            for j in range(self.each):
                e = owner[t["place"][row * self.each + j]]
                gate, up = (t["gate_up"][e].double() @ t["x"][row].double()).chunk(2)
                y = y + t["weights"][row, j].double() * (t["down"][e].double() @ (F.silu(gate) * up))
            want.append(y)
        return rows_error(t["y"][rows], torch.stack(want))


OPS = [Route(8, 2), Route(128, 8), Route(256, 8, deepseek=True)]
OPS += [Experts(16, 4, 1024, (1, 16, 256), "cpu"), Experts(64, 6, 2048, (1, 64, 4096), "cuda")]
