"""topk for PyTorch.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import no_second_order, ops, register, straight

_call = _ops["topk"].call
_call_backward = _ops["topk_backward"].call


def _outputs(x, k):
    shape = (*x.shape[:-1], k)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def _forward(x, k, softmax):
    values, indices = _outputs(x, k)
    if x.stride(-1) != 1 or x.is_neg():
        (x,), _ = straight(x)
    _call(x, values, indices, softmax)
    return values, indices


def _backward(dvalues, indices, values, n):
    dx = dvalues.new_empty((*dvalues.shape[:-1], n))
    _call_backward(dvalues.resolve_neg(), indices, values, dx)
    return dx


def _setup(ctx, inputs, output):
    x, _, softmax = inputs
    values, indices = output
    ctx.mark_non_differentiable(indices)
    ctx.n = x.shape[-1]
    ctx.save_for_backward(indices, *((values,) if softmax else ()))


def _gradient(ctx, dvalues, _):
    indices, *values = ctx.saved_tensors
    dx = ops.topk_backward(dvalues, indices, values[0] if values else None, ctx.n)
    return dx, None, None


register(
    "topk",
    "(Tensor x, SymInt k, bool softmax) -> (Tensor, Tensor)",
    _forward,
    lambda x, k, softmax: _outputs(x, k),
    _gradient,
    _setup,
)
register(
    "topk_backward",
    "(Tensor dvalues, Tensor indices, Tensor? values, SymInt n) -> Tensor",
    _backward,
    lambda dvalues, indices, values, n: dvalues.new_empty((*dvalues.shape[:-1], n)),
    no_second_order("topk_backward"),
)


def topk(x, k, *, softmax=False):
    """(values, indices) of the k largest of each row, descending; equal values by lower index, NaN first. indices are
    int32. With softmax, values are softmax over the k."""
    return ops.topk(x, k, softmax)
