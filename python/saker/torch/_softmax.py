"""softmax and log_softmax for PyTorch.

Plain tensors outside of any tracing go straight to the extension, under a small torch.autograd.Function when a gradient
is wanted; everything else goes through torch.ops.saker.softmax and softmax_backward.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops, Error
from ._front import all_meta, is_plain, no_second_order, ops, register, straight

_call_forward = _ops["softmax"].call
_call_backward = _ops["softmax_backward"].call
_empty_like = torch.empty_like
_rows = torch.contiguous_format
_ROW_DIMS = 4  # groups of leading dimensions that the library tells apart

# ---------------------------------------------------------------- the two calls


def _whole(mask, x, dim_from_last):
    """mask, copied to x's shape where repeating it makes more groups of rows than the library takes."""
    sizes = (1,) * (x.dim() - mask.dim()) + mask.shape
    dim = x.dim() - 1 - dim_from_last
    repeated = [mine == 1 for i, (mine, full) in enumerate(zip(sizes, x.shape)) if full != 1 and i != dim]
    groups = 1 + sum(a != b for a, b in zip(repeated, repeated[1:])) + (dim_from_last > 0)  # dim parts its neighbours
    return mask if groups <= _ROW_DIMS else mask.expand(x.shape).contiguous()


def _forward(x, mask, dim_from_last, scale, causal, log, dtype):
    y = _empty_like(x, dtype=dtype, memory_format=_rows)
    if mask is not None and x.dim() > _ROW_DIMS + 1:
        mask = _whole(mask, x, dim_from_last)
    try:
        _call_forward(x, mask, y, dim_from_last, scale, causal, log)
    except Error:
        if all_meta(x, mask):
            return y
        (x, mask), changed = straight(x, mask)
        if not changed:
            raise
        _call_forward(x, mask, y, dim_from_last, scale, causal, log)
    return y


def _backward(dy, y, dim_from_last, scale, causal, log, dtype):
    dx = _empty_like(y, dtype=dtype, memory_format=_rows)
    try:
        _call_backward(dy, y, dx, dim_from_last, scale, causal, log)
    except Error:
        if all_meta(dy, y):
            return dx
        (dy, y), changed = straight(dy, y)
        if not changed:
            raise
        _call_backward(dy, y, dx, dim_from_last, scale, causal, log)
    return dx


def _gradients(ctx, dy, run):
    """Gradients of x and mask. What arrives at the mask is dx / scale, summed over what was repeated."""
    (y,) = ctx.saved_tensors
    dim, scale, causal, log, _ = ctx.options
    wants_mask = ctx.mask is not None and ctx.needs_input_grad[1]
    if not (ctx.needs_input_grad[0] or wants_mask):
        return None, None
    dx = run(dy, y, dim, scale, causal, log, torch.float32 if wants_mask else ctx.x_type)
    dmask = None
    if wants_mask:
        shape, mask_type = ctx.mask
        dmask = (dx / scale).sum_to_size(shape).to(mask_type)
    return dx.to(ctx.x_type) if ctx.needs_input_grad[0] else None, dmask


def _setup(ctx, inputs, output):
    x, mask, *options = inputs
    ctx.save_for_backward(output)
    ctx.options = options
    ctx.x_type = x.dtype
    ctx.mask = None if mask is None else (mask.shape, mask.dtype)


# ---------------------------------------------------------------- eager autograd


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, *options):
        y = _forward(x, mask, *options)
        _setup(ctx, (x, mask, *options), y)
        return y

    @staticmethod
    def backward(ctx, dy):
        # create_graph=True goes through the operator, which says that there is no second order.
        plain = not torch.is_grad_enabled() and is_plain(dy)
        run = _backward if plain else ops.softmax_backward
        return (*_gradients(ctx, dy, run), None, None, None, None, None)


# ---------------------------------------------------------------- operators

_OPTIONS = "int dim_from_last, float scale, bool causal, bool log, ScalarType dtype"


def _fake(x, mask, dim_from_last, scale, causal, log, dtype):
    return _empty_like(x, dtype=dtype, memory_format=_rows)


def _fake_backward(dy, y, dim_from_last, scale, causal, log, dtype):
    return _empty_like(y, dtype=dtype, memory_format=_rows)


def _op_gradients(ctx, dy):
    return (*_gradients(ctx, dy, ops.softmax_backward), None, None, None, None, None)


register("softmax", f"(Tensor x, Tensor? mask, {_OPTIONS}) -> Tensor", _forward, _fake, _op_gradients, _setup)
register(
    "softmax_backward",
    f"(Tensor dy, Tensor y, {_OPTIONS}) -> Tensor",
    _backward,
    _fake_backward,
    no_second_order("softmax_backward"),
)

# ---------------------------------------------------------------- the interface


def _run(name, x, dim, scale, mask, causal, dtype, log):
    if x.dim() == 0:
        return _run(name, x.reshape(1), dim, scale, mask, causal, dtype, log).reshape(())
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"{name}: dim is {dim}, expected {-x.dim()} to {x.dim() - 1}")
    if scale == 0:
        raise ValueError(f"{name}: scale is 0, expected another number")
    options = ((-1 - dim) % x.dim(), scale, causal, log, dtype or x.dtype)
    if not is_plain(x, mask):
        return ops.softmax(x, mask, *options)
    if torch.is_grad_enabled() and (x.requires_grad or (mask is not None and mask.requires_grad)):
        return _Softmax.apply(x, mask, *options)
    return _forward(x, mask, *options)


def softmax(x, dim=-1, *, scale=1.0, mask=None, causal=False, dtype=None):
    """softmax(scale * x + mask) along dim, in x's type or in dtype.

    mask is added in f32 and broadcast to x's shape. With causal, element [..., i, j] of [..., Q, K] is seen where
    j <= i + K - Q. A row of -inf only gives zeros.
    """
    return _run("softmax", x, dim, scale, mask, causal, dtype, False)


def log_softmax(x, dim=-1, *, scale=1.0, mask=None, causal=False, dtype=None):
    """The logarithm of softmax(), without the loss of small numbers. A row of -inf only gives -inf."""
    return _run("log_softmax", x, dim, scale, mask, causal, dtype, True)
