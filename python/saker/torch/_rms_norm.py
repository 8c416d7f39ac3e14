"""rms_norm for PyTorch.

There are two ways through this file. Plain tensors outside of any tracing go straight to the extension, under a small
torch.autograd.Function when a gradient is wanted: that costs less than one dispatcher call. Everything else
(torch.compile, fake tensors, tensor subclasses, dispatch modes, function transforms) goes through torch.ops.saker.*,
which have fakes and gradients of their own. Both end in the same two functions, _forward and _backward.
SPDX-License-Identifier: Apache-2.0
"""
import torch
from torch.autograd import forward_ad as _forward_ad

from .. import _ops, Error
from ._front import (
    all_meta,
    no_second_order,
    ops,
    or_empty,
    QUANT,
    register,
    shared_dx,
    shared_type,
    straight,
    TINY,
)

_call_forward = _ops["rms_norm"].call
_call_backward = _ops["rms_norm_backward"].call
_empty = torch.empty
_empty_like = torch.empty_like
_rows = torch.contiguous_format
_float32 = torch.float32
_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_tracing = getattr(torch._C, "_is_tracing", lambda: False)
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None)))
_SMALL = 32768  # elements


def _eps(eps, x):
    if eps is None:
        return torch.finfo(_float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype).eps
    return eps or TINY


# ---------------------------------------------------------------- the two calls


def _forward(x, weight, bias, residual, rstd, eps, weight_offset, round_before_weight):
    """(y, residual_out or None); rstd is written when it is given."""
    y = _empty_like(x, memory_format=_rows)
    s = None if residual is None else _empty_like(residual, memory_format=_rows)
    try:
        _call_forward(x, weight, bias, residual, y, s, rstd, None, None, eps, weight_offset, round_before_weight)
    except Error:
        if all_meta(x, weight, bias, residual):
            return y, s
        (x, weight, bias, residual), changed = straight(x, weight, bias, residual)
        if not changed:
            raise
        _call_forward(x, weight, bias, residual, y, s, rstd, None, None, eps, weight_offset, round_before_weight)
    return y, s


def _backward(dy, x, weight, bias, rstd, ds, eps, weight_offset, round_before_weight, wants, dx_type):
    """(dx, dweight, dbias), None where wants says no. x is what forward normalised; of bias only the shape matters."""
    dx = _empty_like(x, dtype=dx_type, memory_format=_rows) if wants[0] else None
    dweight = _empty_like(weight, memory_format=_rows) if wants[1] else None
    dbias = _empty_like(bias, memory_format=_rows) if wants[2] else None
    ds = ds if wants[0] else None  # it only adds to dx
    if dy.stride(-1) != 1:  # the gradient of a sum is an expanded scalar
        dy = dy.contiguous()
    try:
        _call_backward(dy, x, weight, rstd, ds, dx, dweight, dbias, eps, weight_offset, round_before_weight)
    except Error:
        if all_meta(dy, x, weight, ds):
            return dx, dweight, dbias
        (dy, x, weight, ds), changed = straight(dy, x, weight, ds)
        if not changed:
            raise
        _call_backward(dy, x, weight, rstd, ds, dx, dweight, dbias, eps, weight_offset, round_before_weight)
    return dx, dweight, dbias


# ---------------------------------------------------------------- eager autograd


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, residual, options):
        count = x.numel()
        if count < _SMALL and x.dim():  # making a tensor takes longer than backward's second look at x
            rstd = None
        elif count and x.dim():  # a flat rstd, because making a tensor from a torch.Size takes twice as long
            rstd = _empty(count // x.shape[-1], dtype=_float32, device=x.device)
        else:
            rstd = _empty(x.shape[:-1], dtype=_float32, device=x.device)
        y, s = _forward(x, weight, bias, residual, rstd, *options)
        ctx.options = options
        if s is None:
            ctx.x_type = None
            ctx.save_for_backward(x, weight, bias, rstd)
            return y
        ctx.x_type = x.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(s, weight, bias, rstd)
        return y, s

    @staticmethod
    def backward(ctx, dy, ds=None):
        return (*_gradients(ctx, dy, ds), None)


# The same as _RMSNorm.apply without its search for function transforms, which rms_norm() has done already.
_apply = super(torch.autograd.Function, _RMSNorm).apply


def _gradients(ctx, dy, ds):
    """Gradients of x, weight, bias and residual. ctx.x_type is None without a residual."""
    x, weight, bias, rstd = ctx.saved_tensors
    residual_type = x.dtype
    x_type = ctx.x_type or residual_type
    needs = ctx.needs_input_grad
    if dy is None:  # y was not used: only the sum passes its gradient on
        dx = ds
        dweight = dbias = None
    else:
        dx_type = x_type if residual_type == x_type else shared_type(x_type, residual_type, needs[0], needs[3])
        wants = (needs[0] or needs[3], needs[1], needs[2])
        # create_graph=True goes through the operator, which says that there is no second order.
        if _grad_enabled() or type(dy) not in _PLAIN or type(ds) not in _PLAIN or _modes() or _transforms():
            dx, dweight, dbias = ops.rms_norm_backward(dy, x, weight, bias, rstd, ds, *ctx.options, *wants, dx_type)
        else:
            dx, dweight, dbias = _backward(dy, x, weight, bias, rstd, ds, *ctx.options, wants, dx_type)
    dx, dresidual = shared_dx(dx, x_type, residual_type, needs[0], needs[3])
    return dx, dweight if needs[1] else None, dbias if needs[2] else None, dresidual


# ---------------------------------------------------------------- operators: fixed arity, absent outputs are empty

_TENSORS = "Tensor x, Tensor? weight, Tensor? bias, Tensor? residual"
_OPTIONS = "float eps, float weight_offset, bool round_before_weight"


def _op_forward(x, weight, bias, residual, eps, weight_offset, round_before_weight, save_rstd):
    rstd = x.new_empty(x.shape[:-1], dtype=_float32) if save_rstd else None
    y, s = _forward(x, weight, bias, residual, rstd, eps, weight_offset, round_before_weight)
    return or_empty(x, y, s, rstd)


def _fake_forward(x, weight, bias, residual, eps, weight_offset, round_before_weight, save_rstd):
    return or_empty(
        x,
        _empty_like(x, memory_format=_rows),
        None if residual is None else _empty_like(residual, memory_format=_rows),
        x.new_empty(x.shape[:-1], dtype=_float32) if save_rstd else None,
    )


def _op_backward(dy, x, weight, bias, rstd, ds, eps, offset, rounded, want_dx, want_dweight, want_dbias, dx_dtype):
    wants = (want_dx, want_dweight, want_dbias)
    return or_empty(x, *_backward(dy, x, weight, bias, rstd, ds, eps, offset, rounded, wants, dx_dtype))


def _fake_backward(dy, x, weight, bias, rstd, ds, eps, offset, rounded, want_dx, want_dweight, want_dbias, dx_dtype):
    return or_empty(
        x,
        _empty_like(x, dtype=dx_dtype, memory_format=_rows) if want_dx else None,
        _empty_like(weight, memory_format=_rows) if want_dweight else None,
        _empty_like(bias, memory_format=_rows) if want_dbias else None,
    )


def _quant_outputs(x, residual, scale, quant, dtype):
    shape = x.shape[:-1] if quant == 2 else x.shape[:-1] + ((x.shape[-1] + 127) // 128,)
    return (
        _empty_like(x, dtype=dtype, memory_format=_rows),
        x.new_empty(shape, dtype=_float32) if scale is None else None,
        None if residual is None else _empty_like(residual, memory_format=_rows),
    )


def _op_quant(x, weight, bias, residual, eps, weight_offset, round_before_weight, scale, quant, dtype):
    q, y_scale, s = _quant_outputs(x, residual, scale, quant, dtype)
    (x, weight, bias, residual), _ = straight(x, weight, bias, residual)
    used = scale if y_scale is None else y_scale
    _call_forward(x, weight, bias, residual, None, s, None, q, used, eps, weight_offset, round_before_weight, quant)
    return or_empty(x, q, y_scale, s)


def _fake_quant(x, weight, bias, residual, eps, weight_offset, round_before_weight, scale, quant, dtype):
    return or_empty(x, *_quant_outputs(x, residual, scale, quant, dtype))


def _setup(ctx, inputs, output):
    x, weight, bias, residual, *options, _ = inputs
    _, s, rstd = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(rstd)
    ctx.save_for_backward(x if residual is None else s, weight, bias, rstd if inputs[-1] else None)
    ctx.options = tuple(options)
    ctx.x_type = None if residual is None else x.dtype


def _op_gradients(ctx, dy, ds, _):
    if ctx.x_type is None:  # there was no residual: that output is empty
        ds = None
    if dy is None and ds is None:
        return (None,) * 8
    return (*_gradients(ctx, dy, ds), None, None, None, None)


_THREE = " -> (Tensor, Tensor, Tensor)"
register(
    "rms_norm", f"({_TENSORS}, {_OPTIONS}, bool save_rstd)" + _THREE, _op_forward, _fake_forward, _op_gradients, _setup
)
register(
    "rms_norm_quant", f"({_TENSORS}, {_OPTIONS}, Tensor? scale, int quant, ScalarType dtype)" + _THREE,
    _op_quant, _fake_quant,
)  # fmt: skip
register(
    "rms_norm_backward",
    "(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor? rstd, Tensor? dresidual_out, "
    f"{_OPTIONS}, bool want_dx, bool want_dweight, bool want_dbias, ScalarType dx_dtype)" + _THREE,
    _op_backward, _fake_backward, no_second_order("rms_norm_backward"),
)  # fmt: skip


# ---------------------------------------------------------------- the interface


def rms_norm(x, weight=None, bias=None, *, eps=1e-6, residual=None, weight_offset=0.0, round_before_weight=False):
    """y = s * rstd * (weight + weight_offset) + bias with s = x + residual; returns y, or (y, s) with a residual.

    weight and bias are [N], or [H, N] for x [..., H, N]. y has x's type and s the residual's; every tensor may have its
    own float type. eps=None is PyTorch's default. round_before_weight rounds s * rstd to x's type before the weight, as
    Hugging Face's Llama does.
    """
    eps = eps or _eps(eps, x)
    if (
        _compiling()
        or type(x) not in _PLAIN
        or type(weight) not in _PLAIN
        or type(bias) not in _PLAIN
        or type(residual) not in _PLAIN
        or _modes()
        or _transforms()
        or _tracing()
    ):
        save = _grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias, residual))
        y, s, _ = ops.rms_norm(x, weight, bias, residual, eps, weight_offset, round_before_weight, save)
        return y if residual is None else (y, s)
    if (
        _grad_enabled()
        and (
            x.requires_grad
            or (weight is not None and weight.requires_grad)
            or (residual is not None and residual.requires_grad)
            or (bias is not None and bias.requires_grad)
        )
        or _forward_ad._current_level >= 0  # dual tensors: the Function says that it has no forward derivative
    ):
        return _apply(x, weight, bias, residual, (eps, weight_offset, round_before_weight))
    y, s = _forward(x, weight, bias, residual, None, eps, weight_offset, round_before_weight)
    return y if residual is None else (y, s)


def rms_norm_quant(
    x, weight=None, bias=None, *, dtype=torch.float8_e4m3fn, quant="row", scale=None,
    eps=1e-6, residual=None, weight_offset=0.0, round_before_weight=False,
):  # fmt: skip
    """rms_norm with a quantised result: (q, scale), or (q, scale, s) with a residual. There is no gradient.

    dtype: int8, float8_e4m3fn or float8_e5m2. quant: "row" and "block" (128 neighbours) compute the scale, f32 of x's
    leading shape (and the blocks); "tensor" uses the one that is given. scale is what multiplies back.
    """
    if quant not in QUANT or (scale is None) == (quant == "tensor"):
        raise ValueError(f"rms_norm_quant: quant is {quant!r}, expected 'row' or 'block', or 'tensor' with a scale")
    tensors = (None if t is None else t.detach() for t in (x, weight, bias, residual))
    options = (eps or _eps(eps, x), weight_offset, round_before_weight)
    q, y_scale, s = ops.rms_norm_quant(*tensors, *options, scale, QUANT[quant], dtype)
    y_scale = scale if scale is not None else y_scale
    return (q, y_scale) if residual is None else (q, y_scale, s)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm with Saker's kernels: the same arguments and state, over the last dimension only."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        if len(self.normalized_shape) != 1:
            raise ValueError(f"RMSNorm: normalized_shape is {self.normalized_shape}, expected one dimension")

    def forward(self, x):
        if self.weight is None and x.shape[-1] != self.normalized_shape[0]:
            raise ValueError(f"RMSNorm: x has {x.shape[-1]} columns, expected {self.normalized_shape[0]}")
        return rms_norm(x, self.weight, eps=self.eps)


__all__ = ["RMSNorm", "rms_norm", "rms_norm_quant"]
