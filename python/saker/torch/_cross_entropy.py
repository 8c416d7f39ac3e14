"""cross_entropy for PyTorch.

With a gradient wanted, forward saves lse, one number a row, and backward makes dlogits from logits and lse: two reads
and one write of the logits in all. Computing dlogits already in forward would save one read only where the gradient
that arrives at the loss is known to be 1, which is not known on a GPU without waiting for it; otherwise dlogits had to
be read and written again. cross_entropy_and_gradient() is for loops that do know it.
SPDX-License-Identifier: Apache-2.0
"""
import torch
from torch.autograd.graph import increment_version

from .. import _ops
from ._front import no_second_order, ops, register, straight

_call = _ops["cross_entropy"].call
_call_backward = _ops["cross_entropy_backward"].call
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_OPTIONS = "int reduction, int ignore_index, float label_smoothing, float z_loss, float softcap"


def _rows(x):
    """Rows as the library takes them: the last dimension has stride 1."""
    return x if x.stride(-1) == 1 or x.shape[-1] < 2 else x.contiguous()


def _names(reduction, ignore_index, label_smoothing, z_loss, softcap):
    return {
        "reduction": reduction,
        "has_ignore_index": True,
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "softcap": softcap,
    }


def _outputs(logits, target, reduction):
    shape = target.shape if reduction == 0 else ()
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(target.shape, dtype=torch.float32)


def _op_forward(logits, target, weight, *options):
    loss, lse = _outputs(logits, target, options[0])
    (weight,), _ = straight(weight)
    _call(logits=_rows(logits), target=target, weight=weight, loss=loss, lse=lse, **_names(*options))
    return loss, lse


def _fake_forward(logits, target, weight, *options):
    return _outputs(logits, target, options[0])


def _op_backward(dloss, dlse, logits, target, weight, lse, *options):
    dlogits = torch.empty_like(logits, memory_format=torch.contiguous_format)
    (weight,), _ = straight(weight)
    _call_backward(
        logits=_rows(logits), target=target, lse=lse, weight=weight, grad=dloss, dlse=dlse, dlogits=dlogits,
        **_names(*options),
    )  # fmt: skip
    return dlogits


def _fake_backward(dloss, dlse, logits, target, weight, lse, *options):
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _setup(ctx, inputs, output):
    logits, target, weight, *options = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(logits, target, weight, output[1])
    ctx.options = options


def _gradient(ctx, dloss, dlse):
    nothing = (None,) * 7
    if dloss is None and dlse is None:
        return (None, *nothing)
    logits, target, weight, lse = ctx.saved_tensors
    if dloss is None:
        dloss = lse.new_zeros(())
    dlogits = ops.cross_entropy_backward(dloss, dlse, logits, target, weight, lse, *ctx.options)
    return (dlogits, *nothing)


register(
    "cross_entropy",
    f"(Tensor logits, Tensor target, Tensor? weight, {_OPTIONS}) -> (Tensor, Tensor)",
    _op_forward,
    _fake_forward,
    _gradient,
    _setup,
)
register(
    "cross_entropy_backward",
    f"(Tensor dloss, Tensor? dlse, Tensor logits, Tensor target, Tensor? weight, Tensor lse, {_OPTIONS}) -> Tensor",
    _op_backward,
    _fake_backward,
    no_second_order("cross_entropy_backward"),
    lambda ctx, inputs, output: None,
)


def _options(reduction, ignore_index, label_smoothing, z_loss, softcap):
    if reduction not in _REDUCTIONS:
        raise ValueError(f"cross_entropy: reduction is {reduction!r}, expected 'none', 'mean' or 'sum'")
    return _REDUCTIONS[reduction], ignore_index, label_smoothing, z_loss, softcap


def _classes_last(input, target):
    if target.is_floating_point():
        raise TypeError("cross_entropy: target holds probabilities, expected the index of one class for each row")
    if input.dim() > 2:  # as PyTorch: [N, C, d1, ...] with target [N, d1, ...]
        input = input.movedim(1, -1)
    if input.shape[:-1] != target.shape:
        raise ValueError(f"cross_entropy: target has shape {tuple(target.shape)}, expected {tuple(input.shape[:-1])}")
    return input


def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0, *, z_loss=0.0, softcap=0.0, return_lse=False,
):  # fmt: skip
    """torch.nn.functional.cross_entropy with class indices, and more: the loss, or (loss, lse) with return_lse.

    input is [C], [N, C] or [N, C, d1, ...] (float32, float16, bfloat16), target has its shape without C (int32 or
    int64). A target outside of [0, C) that is not ignore_index counts as ignored; saker.check() reports it. The loss is
    float32 whatever input is. z_loss adds z_loss * lse^2 to the loss of each row (its mean is over the rows, not over
    their weights), softcap makes the logits softcap * tanh(input / softcap) first. lse has a gradient, too; weight has
    none.
    """
    if size_average is not None or reduce is not None:
        reduction = torch.nn._reduction.legacy_get_string(size_average, reduce)
    options = _options(reduction, ignore_index, label_smoothing, z_loss, softcap)
    loss, lse = ops.cross_entropy(_classes_last(input, target), target, weight, *options)
    return (loss, lse) if return_lse else loss


def cross_entropy_and_gradient(
    input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0, z_loss=0.0, softcap=0.0,
    grad=None, inplace=False,
):  # fmt: skip
    """(loss, dinput) in one read and one write of input, without autograd: for loops that call backward by hand.

    dinput is the gradient of the loss times grad (float32: one number, or one for each row with reduction "none"). With
    inplace it takes input's place. input is [C], [N, C] or [N, C, d1, ...] as in cross_entropy; inplace needs classes
    last and contiguous.
    """
    rows = _classes_last(input.detach(), target)
    options = _options(reduction, ignore_index, label_smoothing, z_loss, softcap)
    if inplace and _rows(rows) is not rows:
        raise ValueError("cross_entropy_and_gradient: inplace needs the classes in a last dimension of stride 1")
    rows = _rows(rows)
    (weight,), _ = straight(weight)
    loss, _ = _outputs(rows, target, options[0])
    dlogits = rows if inplace else torch.empty_like(rows, memory_format=torch.contiguous_format)
    _call(logits=rows, target=target, weight=weight, grad=grad, loss=loss, dlogits=dlogits, **_names(*options))
    if inplace:
        increment_version(input)  # autograd has not seen the call
    return loss, dlogits.movedim(-1, 1) if input.dim() > 2 else dlogits


__all__ = ["cross_entropy", "cross_entropy_and_gradient"]
