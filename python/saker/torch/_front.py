"""What the PyTorch fronts of the operations share.

An operation's file registers torch.ops.saker.<op> with register(): a schema of fixed arity (absent outputs are empty
tensors), an implementation that calls the library, a fake for tracing, and its gradient. Its public function calls that
operator as ops.<op>.
SPDX-License-Identifier: Apache-2.0
"""
import types

import torch
from torch.autograd.graph import increment_version

from .. import Error

QUANT = {"tensor": 1, "row": 2, "block": 3}
TINY = torch.finfo(torch.float32).tiny  # stands for eps=0, which the library takes as "the default"

_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_tracing = getattr(torch._C, "_is_tracing", lambda: False)
_autocasting = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
ops = types.SimpleNamespace()  # ops.<op> calls torch.ops.saker.<op>, under function transforms as well
_functorch = torch._C._functorch
_forward_ad = torch.autograd.forward_ad
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None)))


def refuse(sentence):
    """Raises what the library raises, for what it does not get to see."""
    error = Error(sentence)
    error.code, error.name, error.sentence = 1, "INVALID_ARG", sentence
    raise error


def is_plain(*tensors):
    """Whether these are ordinary tensors (or None) outside of any tracing: they may go straight to the extension."""
    if _compiling() or _modes() or _transforms() or _tracing() or _forward_ad._current_level >= 0:
        return False
    return all(type(t) in _PLAIN for t in tensors)


def straight(*tensors):
    """Contiguous tensors in place of those that the library cannot take as they are, and whether there was one."""
    changed = False
    found = []
    for t in tensors:
        if isinstance(t, torch.Tensor) and (t.is_neg() or not t.is_contiguous()):
            t = t.resolve_neg().contiguous()
            changed = True
        found.append(t)
    return found, changed


def all_meta(*tensors):
    """Whether these (or None) have shapes only. Among others a meta tensor is a mistake."""
    return all(t is None or t.is_meta for t in tensors)


def autocast(*tensors):
    """The tensors as PyTorch's own function gets them: in autocast's type where it is on for their device."""
    if not _autocasting():
        return tensors
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)

    def cast(x):
        return x.to(dtype) if x is not None and x.is_floating_point() and x.dtype != torch.float64 else x

    return tuple(cast(x) for x in tensors)


def or_empty(x, *tensors):
    """Operators have fixed arity: an absent output is an empty tensor."""
    return tuple(x.new_empty(0) if t is None else t for t in tensors)


def may_need_gradient(*tensors):
    """Whether backward may come for these (or None). Function transforms hide it: there the answer is yes."""
    if not torch.is_grad_enabled():
        return False
    return any(t is not None and t.requires_grad for t in tensors) or (not _compiling() and _transforms())


def no_second_order(name):
    def gradient(ctx, *grads):
        raise NotImplementedError(f"saker: {name} has no derivative: gradients of gradients are not supported")

    return gradient


def shared_type(x_type, residual_type, needs_x, needs_residual):
    """The type of the one dx that serves x and residual: one that holds what is wanted."""
    if not needs_residual or residual_type == x_type:
        return x_type
    return torch.promote_types(x_type, residual_type) if needs_x else residual_type


def shared_dx(dx, x_type, residual_type, needs_x, needs_residual):
    """(dx, dresidual) out of that one, each in its tensor's type, None where it is not wanted."""

    def typed(dtype):
        return dx if dx is None or dx.dtype == dtype else dx.to(dtype)

    return typed(x_type) if needs_x else None, typed(residual_type) if needs_residual else None


def _functionalizing():
    """Whether the innermost transform is torch.func.functionalize, which takes operators but no autograd.Function."""
    return _transforms() and _functorch.peek_interpreter_stack().key() == _functorch.TransformType.Functionalize


def differentiable(op, gradient, setup):
    """op under a torch.autograd.Function where a function transform or forward-mode AD is at work.

    What register_autograd makes knows neither: torch.func.grad would fail, and tangents would be dropped without a
    word. The Function has no jvp, which PyTorch says when a tangent arrives. It is far slower, so only there.
    """

    class Function(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args):
            return op(*args)

        @staticmethod
        def setup_context(ctx, inputs, output):
            if setup:
                setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx, *grads):
            return gradient(ctx, *grads)

    def call(*args):
        if _compiling() or not (_forward_ad._current_level >= 0 or _transforms()) or _functionalizing():
            return op(*args)
        return Function.apply(*args)

    return call


def _of_one_place(name, fake, names):
    """fake for tensors that are all meta, or none of them.

    PyTorch calls it as soon as one of them is: it would make results on the device of another, and nobody wrote them.
    """

    def checked(*args, **more):
        args += tuple(more[key] for key in names[len(args) :])
        tensors = [(key, t.device) for key, t in zip(names, args) if isinstance(t, torch.Tensor)]
        places = {device.type == "meta": f"{key} is on {device}" for key, device in tensors}
        if len(places) > 1:
            refuse(f"{name}: {places[True]} and {places[False]}, expected one device")
        return fake(*args)

    return checked


def _counted(run, written):
    """run, and autograd learns by their versions of the arguments that are written, those at these places.

    Here and not in a kernel for ADInplaceOrView: that way through Python would take longer than many a run.
    """

    def counted(*args):
        run(*args)
        increment_version([args[i] for i in written if args[i] is not None])

    return counted


def _without_tangents(name, op):
    """op, refused where forward-mode AD is at work on an argument: it would leave the tangent as it is."""

    def has_tangent(value):
        return isinstance(value, torch.Tensor) and _forward_ad.unpack_dual(value).tangent is not None

    def call(*args):
        if not _compiling() and _forward_ad._current_level >= 0 and any(map(has_tangent, args)):
            raise NotImplementedError(f"saker: {name} has no forward derivative (jvp)")
        return op(*args)

    return call


def register(name, schema, run, fake, gradient=None, setup=None):
    """Defines torch.ops.saker.<name> and ops.<name>. gradient(ctx, *grads) and setup(ctx, inputs, output) as
    register_autograd takes them. An operator that writes to its arguments returns nothing and has no gradient."""
    full = f"saker::{name}"
    torch.library.define(full, schema)
    op = getattr(torch.ops.saker, name)
    arguments = op.default._schema.arguments
    written = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    if written:
        run, fake, op = _counted(run, written), _counted(fake, written), _without_tangents(name, op)
    torch.library.impl(full, ("cpu", "cuda"))(run)
    torch.library.register_fake(full)(_of_one_place(name, fake, [a.name for a in arguments]))
    if gradient:
        torch.library.register_autograd(full, gradient, setup_context=setup)
        op = differentiable(op, gradient, setup)
    setattr(ops, name, op)
