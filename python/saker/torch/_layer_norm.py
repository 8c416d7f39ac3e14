"""layer_norm for PyTorch: torch.ops.saker.layer_norm with its gradient, a quantised form, and the module.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import (
    may_need_gradient,
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

_call_forward = _ops["layer_norm"].call
_call_backward = _ops["layer_norm_backward"].call
_rows = torch.contiguous_format
_float32 = torch.float32
_TENSORS = "Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, float eps, float weight_offset"


def _like(t, wanted=True, dtype=None):
    return torch.empty_like(t, dtype=dtype, memory_format=_rows) if wanted and t is not None else None


# ---------------------------------------------------------------- forward: (y, residual_out, mean, rstd)


def _outputs(x, residual, save):
    stats = [x.new_empty(x.shape[:-1], dtype=_float32) if save else None for _ in range(2)]
    return _like(x), _like(residual), *stats


def _forward(x, weight, bias, residual, eps, weight_offset, save):
    y, s, mean, rstd = _outputs(x, residual, save)
    (x, weight, bias, residual), _ = straight(x, weight, bias, residual)
    _call_forward(x, weight, bias, residual, y, s, mean, rstd, None, None, eps, weight_offset)
    return or_empty(x, y, s, mean, rstd)


def _fake_forward(x, weight, bias, residual, eps, weight_offset, save):
    return or_empty(x, *_outputs(x, residual, save))


def _setup(ctx, inputs, output):
    x, weight, bias, residual, eps, weight_offset, save = inputs
    _, s, mean, rstd = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(x if residual is None else s, weight, bias, *((mean, rstd) if save else (None, None)))
    ctx.options = eps, weight_offset
    ctx.x_type = None if residual is None else x.dtype


def _gradients(ctx, dy, ds, _mean, _rstd):
    x, weight, bias, mean, rstd = ctx.saved_tensors
    needs = ctx.needs_input_grad
    x_type = ctx.x_type or x.dtype
    ds = None if ctx.x_type is None else ds  # there was no residual: that output is empty
    dx, dweight, dbias = ds, None, None
    if dy is not None:
        dx_type = shared_type(x_type, x.dtype, needs[0], needs[3])
        wants = needs[0] or needs[3], needs[1], needs[2]
        dx, dweight, dbias = ops.layer_norm_backward(
            dy, x, weight, bias, mean, rstd, ds, *ctx.options, *wants, dx_type
        )
    dx, dresidual = shared_dx(dx, x_type, x.dtype, needs[0], needs[3])
    return dx, dweight if needs[1] else None, dbias if needs[2] else None, dresidual, None, None, None


# ---------------------------------------------------------------- backward: (dx, dweight, dbias)


def _gradient_outputs(x, weight, bias, want_dx, want_dweight, want_dbias, dx_dtype):
    return _like(x, want_dx, dx_dtype), _like(weight, want_dweight), _like(bias, want_dbias)


def _backward(dy, x, weight, bias, mean, rstd, ds, eps, weight_offset, want_dx, want_dweight, want_dbias, dx_dtype):
    found = _gradient_outputs(x, weight, bias, want_dx, want_dweight, want_dbias, dx_dtype)
    ds = ds if want_dx else None  # it only adds to dx
    (dy, x, weight, ds), _ = straight(dy, x, weight, ds)
    _call_backward(dy, x, weight, mean, rstd, ds, *found, eps, weight_offset)
    return or_empty(x, *found)


def _fake_backward(dy, x, weight, bias, mean, rstd, ds, eps, weight_offset, *wants):
    return or_empty(x, *_gradient_outputs(x, weight, bias, *wants))


# ---------------------------------------------------------------- quantised: (q, y_scale, residual_out)


def _quant_outputs(x, residual, scale, quant, dtype):
    shape = x.shape[:-1] if quant == QUANT["row"] else x.shape[:-1] + ((x.shape[-1] + 127) // 128,)
    return _like(x, dtype=dtype), x.new_empty(shape, dtype=_float32) if scale is None else None, _like(residual)


def _quant(x, weight, bias, residual, eps, weight_offset, scale, quant, dtype):
    q, y_scale, s = _quant_outputs(x, residual, scale, quant, dtype)
    (x, weight, bias, residual), _ = straight(x, weight, bias, residual)
    used = scale if y_scale is None else y_scale
    _call_forward(x, weight, bias, residual, None, s, None, None, q, used, eps, weight_offset, False, quant)
    return or_empty(x, q, y_scale, s)


def _fake_quant(x, weight, bias, residual, eps, weight_offset, scale, quant, dtype):
    return or_empty(x, *_quant_outputs(x, residual, scale, quant, dtype))


register(
    "layer_norm", f"({_TENSORS}, bool save) -> (Tensor, Tensor, Tensor, Tensor)",
    _forward, _fake_forward, _gradients, _setup,
)  # fmt: skip
register(
    "layer_norm_backward",
    "(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? rstd, Tensor? dresidual_out, float eps, "
    "float weight_offset, bool want_dx, bool want_dweight, bool want_dbias, ScalarType dx_dtype) "
    "-> (Tensor, Tensor, Tensor)",
    _backward, _fake_backward, no_second_order("layer_norm_backward"),
)  # fmt: skip
register(
    "layer_norm_quant", f"({_TENSORS}, Tensor? scale, int quant, ScalarType dtype) -> (Tensor, Tensor, Tensor)",
    _quant, _fake_quant,
)  # fmt: skip


# ---------------------------------------------------------------- the interface


def layer_norm(x, weight=None, bias=None, *, eps=1e-5, residual=None, weight_offset=0.0):
    """y = (s - mean) * rstd * (weight + weight_offset) + bias with s = x + residual; y, or (y, s) with a residual.

    weight and bias are [N], or [H, N] for x [..., H, N]. y has x's type and s the residual's; every tensor may have its
    own float type.
    """
    save = may_need_gradient(x, weight, bias, residual)
    y, s, _, _ = ops.layer_norm(x, weight, bias, residual, eps or TINY, weight_offset, save)
    return y if residual is None else (y, s)


def layer_norm_quant(
    x, weight=None, bias=None, *, dtype=torch.float8_e4m3fn, quant="row", scale=None,
    eps=1e-5, residual=None, weight_offset=0.0,
):  # fmt: skip
    """layer_norm with a quantised result: (q, scale), or (q, scale, s) with a residual. There is no gradient.

    dtype, quant and scale are as in rms_norm_quant.
    """
    if quant not in QUANT or (scale is None) == (quant == "tensor"):
        raise ValueError(f"layer_norm_quant: quant is {quant!r}, expected 'row' or 'block', or 'tensor' with a scale")
    tensors = (None if t is None else t.detach() for t in (x, weight, bias, residual))
    q, y_scale, s = ops.layer_norm_quant(*tensors, eps or TINY, weight_offset, scale, QUANT[quant], dtype)
    y_scale = scale if scale is not None else y_scale
    return (q, y_scale) if residual is None else (q, y_scale, s)


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm with Saker's kernels: the same arguments and state, over the last dimension only."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        if len(self.normalized_shape) != 1:
            raise ValueError(f"LayerNorm: normalized_shape is {self.normalized_shape}, expected one dimension")

    def forward(self, x):
        if self.weight is None and x.shape[-1] != self.normalized_shape[0]:
            raise ValueError(f"LayerNorm: x has {x.shape[-1]} columns, expected {self.normalized_shape[0]}")
        return layer_norm(x, self.weight, self.bias, eps=self.eps)


__all__ = ["LayerNorm", "layer_norm", "layer_norm_quant"]
