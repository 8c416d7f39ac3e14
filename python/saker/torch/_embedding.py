"""embedding for PyTorch.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import no_second_order, ops, register, straight

_call = _ops["embedding"].call
_call_backward = _ops["embedding_backward"].call


def _forward(table, ids, padding_idx):
    out = table.new_empty((*ids.shape, table.shape[1]))
    if table.stride(-1) != 1 or table.is_neg():
        (table,), _ = straight(table)
    _call(table, ids, out)
    return out


def _backward(dout, ids, v, padding_idx, dtype):
    dtable = dout.new_empty((v, dout.shape[-1]), dtype=dtype)
    if dout.stride(-1) != 1 or dout.is_neg():
        (dout,), _ = straight(dout)
    has = padding_idx is not None
    _call_backward(dout, ids, dtable, padding_idx if has else 0, has)
    return dtable


def _setup(ctx, inputs, output):
    table, ids, padding_idx = inputs
    ctx.save_for_backward(ids)
    ctx.shape, ctx.dtype, ctx.padding_idx = table.shape, table.dtype, padding_idx


def _gradient(ctx, dout):
    (ids,) = ctx.saved_tensors
    dtable = ops.embedding_backward(dout, ids, ctx.shape[0], ctx.padding_idx, ctx.dtype)
    return dtable, None, None


register(
    "embedding",
    "(Tensor table, Tensor ids, int? padding_idx) -> Tensor",
    _forward,
    lambda table, ids, padding_idx: table.new_empty((*ids.shape, table.shape[1])),
    _gradient,
    _setup,
)
register(
    "embedding_backward",
    "(Tensor dout, Tensor ids, SymInt v, int? padding_idx, ScalarType dtype) -> Tensor",
    _backward,
    lambda dout, ids, v, padding_idx, dtype: dout.new_empty((v, dout.shape[-1]), dtype=dtype),
    no_second_order("embedding_backward"),
)


def embedding(ids, table, padding_idx=None):
    """table[ids], as torch.nn.functional.embedding; the gradient of table is deterministic. An id out of range gives
    zeros and is reported by saker.check(). Rows with padding_idx have no gradient."""
    if padding_idx is not None and padding_idx < 0:
        padding_idx += table.shape[0]
    return ops.embedding(table, ids, padding_idx)
