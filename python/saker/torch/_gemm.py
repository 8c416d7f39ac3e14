"""Matrix products for PyTorch: linear layers with bias and activation, batched products, quantised and grouped ones.

Matrices are taken with the strides they have: a transposed view costs nothing.
SPDX-License-Identifier: Apache-2.0
"""
import math

import torch

from .. import _ops
from ._activation import ACTS, GATED
from ._front import autocast, may_need_gradient, no_second_order, ops, or_empty, register

_gemm = _ops["gemm"].call
_grouped = _ops["grouped_gemm"].call
_activation_backward = _ops["activation_backward"].call
SCALING = {"none": 0, "tensor": 1, "row_column": 2, "block": 3, "group": 4}


def _plain(*tensors):
    return tuple(t.resolve_neg() if isinstance(t, torch.Tensor) and t.is_neg() else t for t in tensors)


def _rows(x):
    """x as a matrix of its last dimension's rows."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


# ---------------------------------------------------------------- linear


def _linear_outputs(x, weight, gated, keep):
    n = weight.shape[0]
    y = x.new_empty((*x.shape[:-1], n // 2 if gated else n))
    return y, x.new_empty((*x.shape[:-1], n)) if keep else None


def _linear(x, weight, bias, act, gated, keep):
    x, weight, bias = _plain(x, weight, bias)
    y, pre = _linear_outputs(x, weight, gated, keep)
    given = None if pre is None else _rows(pre)
    _gemm(a=_rows(x), b=weight.t(), bias=bias, d=_rows(y), pre=given, act=act, gated=gated)
    return or_empty(x, y, pre)


def _fake_linear(x, weight, bias, act, gated, keep):
    return or_empty(x, *_linear_outputs(x, weight, gated, keep))


def _linear_gradients(x, weight, bias_type, wants):
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wants[0] else None
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format) if wants[1] else None
    return dx, dweight, weight.new_empty(weight.shape[0], dtype=bias_type) if wants[2] else None


def _linear_backward(dy, x, weight, pre, act, gated, bias_type, want_dx, want_dweight, want_dbias):
    dy, x, weight = _plain(dy, x, weight)
    dx, dweight, dbias = outputs = _linear_gradients(x, weight, bias_type, (want_dx, want_dweight, want_dbias))
    dy = _rows(dy)
    if pre is not None:  # through the activation, with the bias's sums on the way
        dpre = dy.new_empty((dy.shape[0], weight.shape[0]))
        zero = None if dbias is None else torch.zeros_like(dbias)
        _activation_backward(dy=dy.contiguous(), x=_rows(pre), bias=zero, dx=dpre, dbias=dbias, act=act, gated=gated)
        dy = dpre
    elif dbias is not None:
        dbias.copy_(dy.sum(0, dtype=torch.float32))
    if dx is not None:
        _gemm(a=dy, b=weight, d=_rows(dx))
    if dweight is not None:
        _gemm(a=dy.t(), b=_rows(x), d=dweight)
    return or_empty(x, *outputs)


def _fake_linear_backward(dy, x, weight, pre, act, gated, bias_type, want_dx, want_dweight, want_dbias):
    return or_empty(x, *_linear_gradients(x, weight, bias_type, (want_dx, want_dweight, want_dbias)))


def _linear_setup(ctx, inputs, output):
    x, weight, bias, act, gated, keep = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, weight, output[1] if keep else None)
    ctx.options = act, gated, x.dtype if bias is None else bias.dtype


def _linear_chain(ctx, dy, _):
    x, weight, pre = ctx.saved_tensors
    wants = ctx.needs_input_grad[:3]
    found = ops.linear_backward(dy, x, weight, pre, *ctx.options, *wants)
    return (*(d if want else None for d, want in zip(found, wants)), None, None, None)


register(
    "linear",
    "(Tensor x, Tensor weight, Tensor? bias, int act, int gated, bool keep) -> (Tensor, Tensor)",
    _linear,
    _fake_linear,
    _linear_chain,
    _linear_setup,
)
register(
    "linear_backward",
    "(Tensor dy, Tensor x, Tensor weight, Tensor? pre, int act, int gated, ScalarType bias_type, bool want_dx, "
    "bool want_dweight, bool want_dbias) -> (Tensor, Tensor, Tensor)",
    _linear_backward,
    _fake_linear_backward,
    no_second_order("linear_backward"),
)


# ---------------------------------------------------------------- matmul


def _product_shape(a, b):
    return (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _matmul(a, b, dtype):
    a, b = _plain(a, b)
    d = _fake_matmul(a, b, dtype)
    _gemm(a=a, b=b, d=d)
    return d


def _fake_matmul(a, b, dtype):
    return a.new_empty(_product_shape(a, b), dtype=dtype)


def _matmul_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])


def _matmul_chain(ctx, dd):
    a, b = ctx.saved_tensors
    dd = dd.to(a.dtype)
    da = db = None
    if ctx.needs_input_grad[0]:
        da = ops.matmul(dd, b.mT, a.dtype).sum_to_size(a.shape)
    if ctx.needs_input_grad[1]:
        db = ops.matmul(a.mT, dd, b.dtype).sum_to_size(b.shape)
    return da, db, None


register("matmul", "(Tensor a, Tensor b, ScalarType dtype) -> Tensor", _matmul, _fake_matmul, _matmul_chain, _matmul_setup)


# ---------------------------------------------------------------- scales


def _scaled(a, b, a_scale, b_scale, b_zero, bias, scaling, group, act, gated, fast, dtype):
    d = _fake_scaled(a, b, a_scale, b_scale, b_zero, bias, scaling, group, act, gated, fast, dtype)
    _gemm(
        a=a, b=b, a_scale=a_scale, b_scale=b_scale, b_zero=b_zero, bias=bias, d=d, scaling=scaling, group=group, act=act,
        gated=gated, fast_accum=fast,
    )
    return d


def _fake_scaled(a, b, a_scale, b_scale, b_zero, bias, scaling, group, act, gated, fast, dtype):
    *lead, n = _product_shape(a, b)
    if b.dtype == torch.uint8 and b.shape[-2] == a.shape[-1]:  # two columns in a byte
        n *= 2
    return a.new_empty((*lead, n // 2 if gated else n), dtype=dtype)


register(
    "scaled_matmul",
    "(Tensor a, Tensor b, Tensor? a_scale, Tensor? b_scale, Tensor? b_zero, Tensor? bias, int scaling, int group, int act, "
    "int gated, bool fast, ScalarType dtype) -> Tensor",
    _scaled,
    _fake_scaled,
)


# ---------------------------------------------------------------- groups


def _grouped_rows(a, b, offsets, bias, act, gated):
    a, b, bias = _plain(a, b, bias)
    d = _fake_grouped_rows(a, b, offsets, bias, act, gated)
    _grouped(a=a, b=b, offsets=offsets, bias=bias, d=d, act=act, gated=gated)
    return d


def _fake_grouped_rows(a, b, offsets, bias, act, gated):
    n = b.shape[-1]
    return a.new_empty((a.shape[0], n // 2 if gated else n))


def _grouped_ks(a, b, offsets):
    a, b = _plain(a, b)
    d = _fake_grouped_ks(a, b, offsets)
    _grouped(a=a, b=b, offsets=offsets, d=d, along_k=True)
    return d


def _fake_grouped_ks(a, b, offsets):
    return a.new_empty((offsets.shape[0] - 1, a.shape[0], b.shape[1]))


def _grouped_setup(ctx, inputs, output):
    a, b, offsets, bias, act, gated = inputs
    if act or gated or bias is not None:
        raise NotImplementedError("saker: grouped_matmul has a gradient without bias and activation only")
    ctx.save_for_backward(a, b, offsets)


def _grouped_chain(ctx, dd):
    a, b, offsets = ctx.saved_tensors
    da = db = None
    if ctx.needs_input_grad[0]:
        da = ops.grouped_matmul(dd, b.mT, offsets, None, 0, 0)
    if ctx.needs_input_grad[1]:
        db = ops.grouped_matmul_k(a.t(), dd, offsets)
    return da, db, None, None, None, None


register(
    "grouped_matmul",
    "(Tensor a, Tensor b, Tensor offsets, Tensor? bias, int act, int gated) -> Tensor",
    _grouped_rows,
    _fake_grouped_rows,
    _grouped_chain,
    _grouped_setup,
)
register(
    "grouped_matmul_k",
    "(Tensor a, Tensor b, Tensor offsets) -> Tensor",
    _grouped_ks,
    _fake_grouped_ks,
    no_second_order("grouped_matmul_k"),
)


# ---------------------------------------------------------------- the interface


def _epilogue(name, act, gated):
    if act not in ACTS or gated not in GATED:
        raise ValueError(
            f"{name}: activation is {act!r} and gated {gated!r}, expected one of {', '.join(ACTS)} and one of "
            "'halves', 'interleaved' or None"
        )
    return ACTS.index(act), GATED[gated]


def linear(x, weight, bias=None, *, activation="none", gated=None):
    """act(x @ weight.T + bias): x [..., K], weight [N, K] of the same type, bias [N]; the result is [..., N] of x's type.

    activation: as saker.torch.activation. With gated="halves" or "interleaved" the N columns are gate and up, and the
    result is [..., N/2]: act(gate) * up. Under torch.autocast all are of its type, as in torch.nn.functional.linear.
    """
    act, mode = _epilogue("linear", activation, gated)
    x, weight, bias = autocast(x, weight, bias)
    keep = bool(act or mode) and may_need_gradient(x, weight, bias)
    return ops.linear(x, weight, bias, act, mode, keep)[0]


def matmul(a, b, *, dtype=None):
    """a @ b as torch.matmul: vectors, matrices, and batches that are broadcast. Sums are in f32; f32 is true f32.

    dtype: of the result, a float type (a's; for int8 and int32 inputs int32, which is exact). Under torch.autocast both
    are of its type.
    """
    a, b = autocast(a, b)
    if dtype is None:
        dtype = torch.int32 if not a.dtype.is_floating_point else a.dtype
    left, right = a.dim() == 1, b.dim() == 1
    d = ops.matmul(a[None] if left else a, b[:, None] if right else b, dtype)
    d = d.squeeze(-2) if left else d
    return d.squeeze(-1) if right else d


def _scaling_of(a, b, a_scale, b_scale, group):
    if group:
        return "group"
    given = [(scale, matrix) for scale, matrix in ((a_scale, a), (b_scale, b)) if scale is not None]
    for scale, matrix in given:
        if scale.numel() != 1:  # one element says nothing: it may be the one row's, column's or block's
            return "block" if scale.dim() == matrix.dim() else "row_column"
    return "tensor" if given else "none"


def scaled_matmul(
    a, b, a_scale=None, b_scale=None, *, bias=None, dtype=torch.bfloat16, scaling=None, group=0, b_zero=None,
    activation="none", gated=None, fast_accum=False,
):
    """act(scales * (a @ b) + bias) of quantised matrices, without a gradient: float8 with float8, int8 with int8, or
    float16, bfloat16 and int8 with weights in groups: int8 (beside floats), or int4, two in a byte of uint8, the low one
    first. Those of a linear layer, uint8 [N, K/2], are given as its .t(); [K, N/2] is what has two columns in a byte.

    Scales are what multiplies back, as quantize gives them: one for all; [M] for a's rows and [N] for b's columns;
    [M, K/128] and [K/128, N/128] for blocks; with group=g b_scale (and b_zero) are [K/g, N]. scaling says which where
    shapes do not ("tensor", "row_column", "block"). dtype: of the result; int32 is exact, for int8 without scales.
    fast_accum: a GPU may keep the short sums of its fp8 tensor cores over all of K, as torch._scaled_mm's use_fast_accum
    does; without it they are added in f32 after 128 k's.
    """
    act, mode = _epilogue("scaled_matmul", activation, gated)
    scaling = scaling or _scaling_of(a, b, a_scale, b_scale, group)
    if scaling not in SCALING:
        raise ValueError(f"scaled_matmul: scaling is {scaling!r}, expected one of {', '.join(SCALING)}")
    tensors = [None if t is None else t.detach() for t in (a, b, a_scale, b_scale, b_zero, bias)]
    return ops.scaled_matmul(*tensors, SCALING[scaling], group, act, mode, fast_accum, dtype)


def grouped_matmul(a, b, offsets, *, bias=None, activation="none", gated=None):
    """a[offsets[g]:offsets[g + 1]] @ b[g] for every group g, in one result: a [T, K], b [G, K, N], offsets int32 or int64
    [G + 1] on a's device. bias is [G, N]. Without bias and activation there is a gradient."""
    act, mode = _epilogue("grouped_matmul", activation, gated)
    return ops.grouped_matmul(a, b, offsets, bias, act, mode)


class Linear(torch.nn.Linear):
    """torch.nn.Linear with the activation in the same pass."""

    def __init__(self, in_features, out_features, bias=True, *, activation="none", gated=None, device=None, dtype=None):
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        _epilogue("Linear", activation, gated)
        self.activation, self.gated = activation, gated

    def forward(self, x):
        return linear(x, self.weight, self.bias, activation=self.activation, gated=self.gated)

    def extra_repr(self):
        return f"{super().extra_repr()}, activation={self.activation!r}, gated={self.gated!r}"
