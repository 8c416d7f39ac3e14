"""AdamW and gradient clipping for PyTorch.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import register, straight

_call = _ops["adamw"].call
_call_squares = _ops["sum_squares"].call
_TINY = 1e-300  # stands for 0 where the library takes 0 as "the default"


def _sum_squares(x, out, accumulate):
    (x,), _ = straight(x)
    _call_squares(x=x.reshape(-1), out=out, accumulate=accumulate)


register("sum_squares_", "(Tensor x, Tensor(a!) out, bool accumulate) -> ()", _sum_squares, lambda *_: None)


def _flat(*tensors):
    """The same memory in one dimension, where all tensors lie alike and without gaps; else as they are."""
    first = tensors[0]
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    if first.permute(order).is_contiguous() and all(t.stride() == first.stride() for t in tensors):
        return [t.permute(order).reshape(-1) for t in tensors]
    return [t.reshape(1) if t.dim() == 0 else t for t in tensors]


def _adamw(param, grad, exp_avg, exp_avg_sq, top, scale, squares, lr, b1, b2, eps, decay, max_norm, step, maximize):
    if grad.stride() != param.stride():
        grad = torch.empty_like(param, dtype=grad.dtype).copy_(grad)
    tensors = [param, grad.resolve_neg(), exp_avg, exp_avg_sq] + ([] if top is None else [top])
    tensors = _flat(*tensors)
    tensors += [None] * (5 - len(tensors))
    betas_eps = (b1 or _TINY, b2 or _TINY, eps or _TINY)
    _call(*tensors, scale, squares, lr, *betas_eps, decay, max_norm, step, maximize)


register(
    "adamw_",
    "(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!)? max_exp_avg_sq, "
    "Tensor? grad_scale, Tensor? grad_sum_squares, float lr, float beta1, float beta2, float eps, float weight_decay, "
    "float max_norm, int step, bool maximize) -> ()",
    _adamw,
    lambda *_: None,
)


def sum_squares_(out, x, accumulate=True):
    """out (f32, one element, on x's device) += the sum of squares of x; = without accumulate. Returns out."""
    torch.ops.saker.sum_squares_(x, out, accumulate)
    return out


@torch.no_grad()
def adamw_(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    *,
    step,
    lr=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=1e-2,
    maximize=False,
    max_exp_avg_sq=None,
    grad_scale=None,
    grad_sum_squares=None,
    max_norm=0.0,
):
    """One step of torch.optim.AdamW for one tensor, in place. step counts from 1. Any mix of f32, f16 and bf16.

    grad_scale multiplies the gradient; with grad_sum_squares (what sum_squares_ collected over all gradients) they are
    clipped to max_norm as torch.nn.utils.clip_grad_norm_ does. Both are one-element f32 tensors on the device and are
    read by the kernel: nothing waits for them.
    """
    torch.ops.saker.adamw_(
        param,
        grad,
        exp_avg,
        exp_avg_sq,
        max_exp_avg_sq,
        grad_scale,
        grad_sum_squares,
        lr,
        *betas,
        eps,
        weight_decay,
        max_norm,
        step,
        maximize,
    )
    return param


class AdamW(torch.optim.AdamW):
    """In place of torch.optim.AdamW, with its arguments, groups and state_dict.

    max_norm clips all gradients of the optimiser to that global norm, within the same kernels. state_dtype is the type
    of the two states (the parameter's without it).
    """

    def __init__(self, params, *args, max_norm=None, state_dtype=None, **kwargs):
        self._max_norm = max_norm
        self._state_dtype = state_dtype
        kwargs.setdefault("foreach", False)
        super().__init__(params, *args, **kwargs)

    def _states(self, p, amsgrad):
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ())):
                state[name] = torch.zeros_like(p, dtype=self._state_dtype, memory_format=torch.preserve_format)
        return state

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        sums = {}
        if self._max_norm:
            for p in self._with_gradient():
                first = p.device not in sums
                out = sums.setdefault(p.device, torch.empty(1, dtype=torch.float32, device=p.device))
                torch.ops.saker.sum_squares_(p.grad, out, not first)
        if len(sums) > 1:
            total = sum(s.to(next(iter(sums))) for s in sums.values())
            sums = {device: total.to(device) for device in sums}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self._states(p, group["amsgrad"])
                state["step"] += 1
                adamw_(
                    p,
                    p.grad,
                    state["exp_avg"],
                    state["exp_avg_sq"],
                    step=int(state["step"]),
                    lr=float(group["lr"]),
                    betas=tuple(map(float, group["betas"])),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                    max_exp_avg_sq=state.get("max_exp_avg_sq"),
                    grad_sum_squares=sums.get(p.device),
                    max_norm=self._max_norm or 0.0,
                )
        return loss

    def _with_gradient(self):
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]
