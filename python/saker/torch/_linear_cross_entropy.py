"""linear_cross_entropy for PyTorch: the loss of a linear layer's output, which is never there as a whole.

Forward makes the gradients in the same pass, for a reduced loss whose own gradient is 1; backward multiplies them by what
arrives. With reduction "none" each row's gradient counts before the rows are summed, so there backward runs the pass
again, with them.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._cross_entropy import _REDUCTIONS, _names
from ._front import autocast, may_need_gradient, no_second_order, ops, or_empty, register, straight

_call = _ops["linear_cross_entropy"].call
_OPTIONS = "int reduction, int ignore_index, float label_smoothing, float z_loss, float softcap, int chunk_rows"
_WANTS = "bool want_dx, bool want_dweight, bool want_dbias"
_TENSORS = "Tensor x, Tensor weight, Tensor target, Tensor? bias, Tensor? class_weight"


def _plain(t):
    return t.resolve_neg() if isinstance(t, torch.Tensor) and t.is_neg() else t


def _losses(x, target, reduction):
    shape = target.shape if reduction == 0 else ()
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(target.shape, dtype=torch.float32)


def _gradients(x, weight, bias, wants):
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wants[0] else None
    dweight = torch.empty_like(weight, memory_format=torch.contiguous_format) if wants[1] else None
    return dx, dweight, weight.new_empty(weight.shape[0], dtype=bias.dtype) if wants[2] else None


def _run(x, weight, target, bias, class_weight, options, grad, outputs):
    (class_weight,), _ = straight(class_weight)
    names = _names(*options[:-1])
    _call(
        x=_plain(x), weight=_plain(weight), target=target, bias=_plain(bias), class_weight=class_weight, grad=grad,
        chunk_rows=options[-1], **names, **outputs,
    )  # fmt: skip


def _outputs(x, weight, target, bias, options, wants):
    return *_losses(x, target, options[0]), *_gradients(x, weight, bias, wants)


def _op(x, weight, target, bias, class_weight, *more):
    options, wants = more[:6], more[6:]
    found = _outputs(x, weight, target, bias, options, wants)
    names = ("loss", "lse", "dx", "dweight", "dbias")
    _run(x, weight, target, bias, class_weight, options, None, dict(zip(names, found)))
    return or_empty(x, *found)


def _fake(x, weight, target, bias, class_weight, *more):
    return or_empty(x, *_outputs(x, weight, target, bias, more[:6], more[6:]))


def _setup(ctx, inputs, output):
    x, weight, target, bias, class_weight, *more = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, target, bias, class_weight, *output[2:])
    ctx.options = more[:6]


def _chain(ctx, dloss, *_):
    if dloss is None:
        return (None,) * 14
    wants = [ctx.needs_input_grad[i] for i in (0, 1, 3)]
    dx, dweight, dbias = ops.linear_cross_entropy_backward(dloss, *ctx.saved_tensors, *ctx.options, *wants)
    found = (dx if wants[0] else None, dweight if wants[1] else None, None, dbias if wants[2] else None)
    return (*found, *(None,) * 10)


def _op_backward(dloss, x, weight, target, bias, class_weight, dx, dweight, dbias, *more):
    options, wants = more[:6], more[6:]
    if options[0]:  # no rounding but that of the product: a factor of 1 changes nothing
        scaled = (torch.mul(d, dloss) if want else None for d, want in zip((dx, dweight, dbias), wants))
        return or_empty(x, *scaled)
    found = _gradients(x, weight, bias, wants)
    if any(wants):
        _run(x, weight, target, bias, class_weight, options, dloss, dict(zip(("dx", "dweight", "dbias"), found)))
    return or_empty(x, *found)


def _fake_backward(dloss, x, weight, target, bias, class_weight, dx, dweight, dbias, *more):
    return or_empty(x, *_gradients(x, weight, bias, more[6:]))


register(
    "linear_cross_entropy",
    f"({_TENSORS}, {_OPTIONS}, {_WANTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _op,
    _fake,
    _chain,
    _setup,
)
register(
    "linear_cross_entropy_backward",
    f"(Tensor dloss, {_TENSORS}, Tensor dx, Tensor dweight, Tensor dbias, {_OPTIONS}, {_WANTS}) -> (Tensor, Tensor, Tensor)",
    _op_backward,
    _fake_backward,
    no_second_order("linear_cross_entropy_backward"),
    lambda ctx, inputs, output: None,
)


def linear_cross_entropy(
    x, weight, target, bias=None, *, class_weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0,
    z_loss=0.0, softcap=0.0, chunk_rows=0, return_lse=False,
):  # fmt: skip
    """cross_entropy(x @ weight.T + bias, target) without the logits of all rows: the loss, or (loss, lse) with return_lse.

    x is [..., H] (float32, float16, bfloat16), weight [V, H] of its type, bias [V], target x's shape without H (int32 or
    int64). Options are those of saker.torch.cross_entropy, class_weight is its weight. Logits are rounded to x's type, as
    a linear layer's are; the loss is float32. chunk_rows: how many rows' logits are held at once, 0: the library chooses.

    x, weight and bias have gradients, made in forward where they may be wanted and kept for backward; with reduction
    "none" backward computes the logits again. lse and class_weight have none. Under torch.autocast x, weight and bias are
    of its type, as in torch.nn.functional.linear.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"linear_cross_entropy: reduction is {reduction!r}, expected 'none', 'mean' or 'sum'")
    if target.is_floating_point():
        raise TypeError("linear_cross_entropy: target holds probabilities, expected the index of one class for each row")
    if target.shape != x.shape[:-1]:
        raise ValueError(f"linear_cross_entropy: target has shape {tuple(target.shape)}, expected {tuple(x.shape[:-1])}")
    x, weight, bias = autocast(x, weight, bias)
    wants = (False,) * 3
    if reduction != "none":
        wants = (may_need_gradient(x), may_need_gradient(weight), bias is not None and may_need_gradient(bias))
    options = (_REDUCTIONS[reduction], ignore_index, label_smoothing, z_loss, softcap, chunk_rows)
    loss, lse, *_ = ops.linear_cross_entropy(x, weight, target, bias, class_weight, *options, *wants)
    return (loss, lse) if return_lse else loss


__all__ = ["linear_cross_entropy"]
