"""AdamW and gradient clipping for PyTorch.
SPDX-License-Identifier: Apache-2.0
"""
import math

import torch

from .. import _ops
from ._front import ops, register, straight

_call = _ops["adamw"].call
_call_squares = _ops["sum_squares"].call
_TINY = 1e-300  # stands for 0 where the library takes 0 as "the default"
_STATES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")


def _sum_squares(x, out, accumulate):
    (x,), _ = straight(x)
    _call_squares(x=x.reshape(-1), out=out, accumulate=accumulate)


register("sum_squares_", "(Tensor x, Tensor(a!) out, bool accumulate) -> ()", _sum_squares, lambda *_: None)


def _flat(*tensors):
    """The same memory in one dimension, where all tensors lie alike and without gaps; else as they are, where the
    library takes that; else contiguous tensors, some of them copies."""
    first = tensors[0]
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    if first.permute(order).is_contiguous() and all(t.stride() == first.stride() for t in tensors):
        return [t.permute(order).reshape(-1) for t in tensors]
    if first.dim() <= 5 and all(t.stride(-1) == 1 for t in tensors):
        return tensors
    return [t.contiguous() for t in tensors]


def _adamw(param, grad, exp_avg, exp_avg_sq, top, scale, squares, lr, b1, b2, eps, decay, max_norm, step, maximize):
    if grad.stride() != param.stride():
        grad = torch.empty_like(param, dtype=grad.dtype).copy_(grad)
    written = [param, exp_avg, exp_avg_sq] + ([] if top is None else [top])
    used_grad, *used = _flat(grad.resolve_neg(), *written)
    betas_eps = (b1 or _TINY, b2 or _TINY, eps or _TINY)
    tensors = (used[0], used_grad, *used[1:], *([None] if top is None else []))
    _call(*tensors, scale, squares, lr, *betas_eps, decay, max_norm, step, maximize)
    for tensor, result in zip(written, used):
        if result.data_ptr() != tensor.data_ptr():
            tensor.copy_(result)


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
    ops.sum_squares_(x, out, accumulate)
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
    ops.adamw_(
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
    of the states (the parameter's without it), also of those that load_state_dict takes over.
    """

    def __init__(self, params, *args, max_norm=None, state_dtype=None, **kwargs):
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"AdamW: max_norm is {max_norm}, expected a number above 0, or None for no clipping")
        self._max_norm = None if max_norm == math.inf else max_norm
        self._state_dtype = state_dtype
        kwargs.setdefault("foreach", False)
        super().__init__(params, *args, **kwargs)
        self._step_supports_amp_scaling = False  # fused=True sets it; a GradScaler unscales and skips by itself here

    def __getstate__(self):  # what copies and pickles are made of; PyTorch's has its own attributes only
        return {**super().__getstate__(), "_max_norm": self._max_norm, "_state_dtype": self._state_dtype}

    def load_state_dict(self, state_dict):
        """As PyTorch's, but states keep state_dtype: PyTorch casts them to their parameter's type."""
        if self._state_dtype is None:
            return super().load_state_dict(state_dict)
        saved = {}  # what is loaded after all other hooks have seen it
        hooks = (
            self.register_load_state_dict_pre_hook(lambda _, loaded: saved.update(loaded)),
            self.register_load_state_dict_post_hook(lambda _: self._take_over(saved), prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _take_over(self, saved):
        places = [i for group in saved["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(places, params):
            for name, value in saved["state"].get(i, {}).items():
                if name in _STATES:
                    self.state[p][name] = value.to(p.device, self._state_dtype)

    def _states(self, p, amsgrad):
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in _STATES if amsgrad else _STATES[:2]:
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
                ops.sum_squares_(p.grad, out, not first)
        if len(sums) > 1:
            total = sum(s.to(next(iter(sums))) for s in sums.values())
            sums = {device: total.to(device) for device in sums}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self._states(p, group["amsgrad"])
                adamw_(
                    p,
                    p.grad,
                    state["exp_avg"],
                    state["exp_avg_sq"],
                    step=int(state["step"]) + 1,
                    lr=float(group["lr"]),
                    betas=tuple(map(float, group["betas"])),
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                    max_exp_avg_sq=state["max_exp_avg_sq"] if group["amsgrad"] else None,
                    grad_sum_squares=sums.get(p.device),
                    max_norm=self._max_norm or 0.0,
                )
                state["step"] += 1  # only now: a call that fails is no step
        return loss

    def _with_gradient(self):
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]
