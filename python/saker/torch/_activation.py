"""Activations for PyTorch: plain and gated, with autograd, and with a quantised result.

Gate and up are two tensors, or lie in one tensor [..., 2N] as halves or interleaved.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import no_second_order, ops, or_empty, QUANT, register, straight

_call_forward = _ops["activation"].call
_call_backward = _ops["activation_backward"].call
_rows = torch.contiguous_format
ACTS = ("none", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "relu", "relu2", "swiglu_oai")
GATED = {None: 0, "halves": 1, "interleaved": 2}

_INPUTS = "Tensor x, Tensor? up, Tensor? bias"
_OPTIONS = "int act, int gated, float alpha, float limit"


def _result(x, gated, dtype=None):
    shape = x.shape if not gated else (*x.shape[:-1], x.shape[-1] // 2)
    return x.new_empty(shape, dtype=dtype or x.dtype)


def _forward(x, up, bias, act, gated, alpha, limit):
    y = _result(x, gated)
    (x, up, bias), _ = straight(x, up, bias)
    _call_forward(x=x, up=up, bias=bias, y=y, act=act, gated=gated, alpha=alpha, limit=limit)
    return y


def _fake_forward(x, up, bias, act, gated, alpha, limit):
    return _result(x, gated)


def _gradients(x, up, bias, wants):
    like = lambda t: torch.empty_like(t, memory_format=_rows)
    return tuple(like(t) if want else None for t, want in zip((x, up, bias), wants))


def _backward(dy, x, up, bias, act, gated, alpha, limit, want_dx, want_dup, want_dbias):
    outputs = _gradients(x, up, bias, (want_dx, want_dup, want_dbias))
    (dy, x, up, bias), _ = straight(dy, x, up, bias)
    dx, dup, dbias = outputs
    _call_backward(
        dy=dy, x=x, up=up, bias=bias, dx=dx, dup=dup, dbias=dbias, act=act, gated=gated, alpha=alpha, limit=limit
    )
    return or_empty(x, *outputs)


def _fake_backward(dy, x, up, bias, act, gated, alpha, limit, want_dx, want_dup, want_dbias):
    return or_empty(x, *_gradients(x, up, bias, (want_dx, want_dup, want_dbias)))


def _setup(ctx, inputs, output):
    x, up, bias, *options = inputs
    ctx.save_for_backward(x, up, bias)
    ctx.options = tuple(options)


def _chain(ctx, dy):
    x, up, bias = ctx.saved_tensors
    wants = ctx.needs_input_grad[:3]
    found = ops.activation_backward(dy, x, up, bias, *ctx.options, *wants)
    return (*(d if want else None for d, want in zip(found, wants)), None, None, None, None)


def _quant_outputs(x, gated, scale, quant, dtype):
    q = _result(x, gated, dtype)
    shape = q.shape[:-1] if quant == QUANT["row"] else (*q.shape[:-1], (q.shape[-1] + 127) // 128)
    return q, q.new_empty(shape, dtype=torch.float32) if scale is None else None


def _quant(x, up, bias, act, gated, alpha, limit, scale, quant, dtype):
    q, y_scale = _quant_outputs(x, gated, scale, quant, dtype)
    (x, up, bias), _ = straight(x, up, bias)
    used = scale if y_scale is None else y_scale
    _call_forward(
        x=x, up=up, bias=bias, y_quant=q, y_scale=used, act=act, gated=gated, quant=quant, alpha=alpha, limit=limit
    )
    return or_empty(x, q, y_scale)


def _fake_quant(x, up, bias, act, gated, alpha, limit, scale, quant, dtype):
    return or_empty(x, *_quant_outputs(x, gated, scale, quant, dtype))


register("activation", f"({_INPUTS}, {_OPTIONS}) -> Tensor", _forward, _fake_forward, _chain, _setup)
register(
    "activation_backward",
    f"(Tensor dy, {_INPUTS}, {_OPTIONS}, bool want_dx, bool want_dup, bool want_dbias) -> (Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
    no_second_order("activation_backward"),
)
register(
    "activation_quant",
    f"({_INPUTS}, {_OPTIONS}, Tensor? scale, int quant, ScalarType dtype) -> (Tensor, Tensor)",
    _quant,
    _fake_quant,
)


# ---------------------------------------------------------------- the interface


def _options(act, up, gated, alpha, limit):
    if act not in ACTS:
        raise ValueError(f"activation: act is {act!r}, expected one of {', '.join(ACTS)}")
    if gated not in GATED or (gated and up is not None):
        raise ValueError(f"activation: gated is {gated!r}, expected 'halves' or 'interleaved', or None with up")
    if act == "swiglu_oai":
        for name, value in (("alpha", alpha), ("limit", limit)):
            if value == 0:
                raise ValueError(f"activation: {name} is 0, expected another number (0 would mean the default)")
    return ACTS.index(act), GATED[gated], alpha, limit


def activation(x, act, *, up=None, bias=None, gated=None, alpha=1.702, limit=7.0):
    """act(x + bias), or gated act(gate + bias) * (up + bias of up).

    act: "none", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "relu", "relu2"; gated also "swiglu_oai" (gpt-oss; alpha
    and limit are its). Gated: x is the gate and up what it multiplies, or x is [..., 2N] with gated="halves" or
    "interleaved". bias is [N], gated [2N] in x's layout. Every tensor may have its own float type; the result has x's.
    """
    return ops.activation(x, up, bias, *_options(act, up, gated, alpha, limit))


def activation_quant(
    x, act, *, up=None, bias=None, gated=None, dtype=torch.float8_e4m3fn, quant="row", scale=None, alpha=1.702, limit=7.0
):
    """activation with a quantised result: (q, scale). There is no gradient. dtype, quant and scale as in
    rms_norm_quant."""
    if quant not in QUANT or (scale is None) == (quant == "tensor"):
        raise ValueError(f"activation_quant: quant is {quant!r}, expected 'row' or 'block', or 'tensor' with a scale")
    tensors = (None if t is None else t.detach() for t in (x, up, bias))
    options = _options(act, up, gated, alpha, limit)
    q, y_scale = ops.activation_quant(*tensors, *options, scale, QUANT[quant], dtype)
    return q, y_scale if scale is None else scale


def silu(x):
    return activation(x, "silu")


def gelu(x, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate is {approximate!r}, expected 'none' or 'tanh'")
    return activation(x, "gelu" if approximate == "none" else "gelu_tanh")


def relu2(x):
    """max(x, 0) squared."""
    return activation(x, "relu2")


def swiglu(gate, up=None, *, interleaved=False):
    """silu(gate) * up; with one tensor [..., 2N] that holds both, as halves or interleaved."""
    if up is not None:
        return activation(gate, "silu", up=up)
    return activation(gate, "silu", gated="interleaved" if interleaved else "halves")


class SwiGLU(torch.nn.Module):
    """silu(gate) * up of a packed [..., 2N] tensor, or of two: put it after the projection that makes both."""

    def __init__(self, interleaved=False):
        super().__init__()
        self.interleaved = interleaved

    def forward(self, gate, up=None):
        return swiglu(gate, up, interleaved=self.interleaved)

    def extra_repr(self):
        return f"interleaved={self.interleaved}"
