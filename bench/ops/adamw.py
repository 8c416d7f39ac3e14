"""adamw and sum_squares beside torch's fused AdamW and vector_norm.
SPDX-License-Identifier: Apache-2.0
"""

import torch

from . import draw, Op, TYPES, without_gradient

LR, BETA1, BETA2, EPS, DECAY, STEP = 1e-3, 0.9, 0.999, 1e-8, 1e-2, 10


def update(p, g, m, v):
    p.mul_(1 - LR * DECAY)
    m.lerp_(g, 1 - BETA1)
    v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
    p.addcdiv_(m, (v.sqrt() / (1 - BETA2**STEP) ** 0.5).add_(EPS), value=-LR / (1 - BETA1**STEP))


class Flat(Op):
    """One long tensor: rows is 1."""

    elements = 2**27

    def shapes(self, kind, device, types, widths):
        n = self.elements if device == "cuda" else self.elements // 4
        return [(t, 1, n) for t in types] if kind == "sweep" else []


class AdamW(Flat):
    name = "adamw"

    def traffic(self, dtype, m, n):
        return 7 * m * n * TYPES[dtype].itemsize, 4, 2

    def tensors(self, dtype, m, n, device, generator):
        t = {name: draw(generator, dtype, device, n) for name in ("param", "grad", "exp_avg", "exp_avg_sq")}
        t["exp_avg_sq"].abs_()
        return t

    def arguments(self, t):
        return {**t, "lr": LR, "weight_decay": DECAY, "step": STEP}

    def torch(self, t, compiled):
        tensors = tuple(t.values())
        if compiled is not None:
            return without_gradient(compiled(update), *tensors)
        step = torch.tensor(float(STEP), device=t["param"].device)
        p, g, m, v = ([x] for x in tensors)
        options = dict(lr=LR, beta1=BETA1, beta2=BETA2, weight_decay=DECAY, eps=EPS, amsgrad=False, maximize=False)
        return lambda: torch._fused_adamw_(p, g, m, v, [], [step], **options, grad_scale=None, found_inf=None)


class SumSquares(Flat):
    name = "sum_squares"

    def traffic(self, dtype, m, n):
        return m * n * TYPES[dtype].itemsize, 1, 0

    def tensors(self, dtype, m, n, device, generator):
        return {"x": draw(generator, dtype, device, n), "out": torch.empty(1, device=device)}

    def arguments(self, t):
        return t

    def torch(self, t, compiled):
        norm = lambda x: torch.linalg.vector_norm(x, dtype=torch.float32)
        return without_gradient(norm if compiled is None else compiled(norm), t["x"])

    def error(self, t):
        want = t["x"].double().square().sum().item()
        return abs(t["out"].item() - want) / want


OPS = [AdamW(), SumSquares()]
