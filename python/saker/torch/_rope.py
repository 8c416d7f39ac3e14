"""Rotary position embedding for PyTorch: q and k in one call, with their RMSNorm where a model has one.

cos and sin, positions and offsets are constants here: gradients go to q, k and the weights of the norms.
SPDX-License-Identifier: Apache-2.0
"""
import math

import torch

from .. import _ops, Error
from ._front import no_second_order, ops, or_empty, register, straight, TINY

_call_forward = _ops["rope"].call
_call_backward = _ops["rope_backward"].call
_LAYOUTS = {"bshd": 0, "bhsd": 1, "thd": 2}
_SCALINGS = {"none": 0, "linear": 1, "ntk": 2, "yarn": 3, "llama3": 4}


def _like(x, dtype=None):
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _run(call, tensors, outputs, options):
    """One call of the library; with contiguous tensors where it cannot take them as they are."""
    try:
        call(*tensors, *outputs, *options)
    except Error:
        tensors, changed = straight(*tensors)
        if not changed:
            raise
        call(*tensors, *outputs, *options)


# ---------------------------------------------------------------- operators

# The options in the order of the library's fields: whole numbers, then fractions, then choices and switches.
_PLACES = "Tensor? cos, Tensor? sin, Tensor? offsets, Tensor? positions, Tensor? cu_seqlens"
_TENSORS = _PLACES + ", Tensor? q_weight, Tensor? k_weight"
_OPTIONS = "int[] whole, float[] numbers, int[] choices"


def _forward(q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight, whole, numbers, choices):
    outputs = (_like(q), None if k is None else _like(k))
    tensors = (q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight)
    _run(_call_forward, tensors, outputs, (*whole, *numbers, *choices))
    return or_empty(q, *outputs)


def _fake_forward(q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight, whole, numbers, choices):
    return or_empty(q, _like(q), None if k is None else _like(k))


def _in_place(q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight, whole, numbers, choices):
    tensors = (q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight)
    _call_forward(*tensors, q, k, *whole, *numbers, *choices)


def _fake_in_place(*_):
    return None


def _gradient_outputs(dq_out, dk_out, q_weight, k_weight, wants):
    return (
        _like(dq_out) if wants[0] else None,
        _like(dk_out) if wants[1] else None,
        _like(q_weight) if wants[2] else None,
        _like(k_weight) if wants[3] else None,
    )


def _backward(
    dq_out, dk_out, q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight, whole, numbers, choices, wants
):
    outputs = _gradient_outputs(dq_out, dk_out, q_weight, k_weight, wants)
    tensors = (dq_out, dk_out, q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight)
    _run(_call_backward, tensors, outputs, (*whole, *numbers, *choices))
    return or_empty(dq_out, *outputs)


def _fake_backward(
    dq_out, dk_out, q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight, whole, numbers, choices, wants
):
    return or_empty(dq_out, *_gradient_outputs(dq_out, dk_out, q_weight, k_weight, wants))


def _setup(ctx, inputs, output):
    q, k, *places, q_weight, k_weight, whole, numbers, choices = inputs
    norm = bool(choices[4])
    ctx.save_for_backward(q if norm else None, k if norm else None, *places, q_weight, k_weight)
    ctx.options = (whole, numbers, choices)
    ctx.has_k = k is not None
    ctx.types = (q.dtype, None if k is None else k.dtype)


def _gradients(ctx, dq_out, dk_out):
    q, k, *places, q_weight, k_weight = ctx.saved_tensors
    needs = ctx.needs_input_grad
    wants = [needs[0], ctx.has_k and needs[1], q_weight is not None and needs[7], k_weight is not None and needs[8]]
    if not any(wants):
        return (None,) * 12
    dk_out = dk_out if ctx.has_k and (wants[1] or wants[3]) else None
    if dk_out is None:
        k = k_weight = None
    found = ops.rope_backward(dq_out, dk_out, q, k, *places, q_weight, k_weight, *ctx.options, wants)
    dq, dk, dq_weight, dk_weight = (g if want else None for g, want in zip(found, wants))
    return dq, dk, None, None, None, None, None, dq_weight, dk_weight, None, None, None


register(
    "rope",
    f"(Tensor q, Tensor? k, {_TENSORS}, {_OPTIONS}) -> (Tensor, Tensor)",
    _forward,
    _fake_forward,
    _gradients,
    _setup,
)
register("rope_", f"(Tensor(a!) q, Tensor(b!)? k, {_TENSORS}, {_OPTIONS}) -> ()", _in_place, _fake_in_place)
register(
    "rope_backward",
    f"(Tensor dq_out, Tensor? dk_out, Tensor? q, Tensor? k, {_TENSORS}, {_OPTIONS}, bool[] wants)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
    no_second_order("rope_backward"),
)


# ---------------------------------------------------------------- the interface


def _choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"rope: {name} is {value!r}, expected one of {', '.join(choices)}")
    return choices[value]


def rope(
    q, k=None, *, cos=None, sin=None, offsets=None, positions=None, cu_seqlens=None, layout="bshd", rotary_dim=0,
    interleaved=False, base=10000.0, scaling="none", factor=1.0, original_length=0, attention_factor=0.0,
    beta_fast=32.0, beta_slow=1.0, low_freq_factor=1.0, high_freq_factor=4.0, truncate=True, norm=False,
    q_weight=None, k_weight=None, eps=1e-6, weight_offset=0.0, inplace=False,
):  # fmt: skip
    """q rotated by its positions, or (q, k) with k.

    layout: "bshd" [B, S, H, D], "bhsd" [B, H, S, D] or "thd" [T, H, D]. Positions: the place in the sequence, plus
    offsets i32 [B]; or positions [B, S] ([T]); or, packed, the place in the sequence that cu_seqlens i32 [B + 1] says.
    cos and sin: tables [positions, R/2]; without them angles come from base and scaling ("none", "linear", "ntk",
    "yarn", "llama3") with its numbers. norm, or a weight, normalises each head first (RMSNorm with q_weight and
    k_weight [D]). inplace writes into q and k, where no gradient is wanted.
    """
    if norm is False and (q_weight is not None or k_weight is not None):
        norm = True
    whole = [rotary_dim, original_length]
    numbers = [float(n) for n in (base, factor, attention_factor, beta_fast, beta_slow, low_freq_factor)]
    numbers += [float(n) for n in (high_freq_factor, (eps or TINY) if norm else 0.0, weight_offset)]
    choices = [_choice("layout", layout, _LAYOUTS), int(interleaved), _choice("scaling", scaling, _SCALINGS)]
    choices += [int(not truncate), int(norm)]
    tensors = (q, k, cos, sin, offsets, positions, cu_seqlens, q_weight, k_weight)
    if inplace:
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, q_weight, k_weight)):
            raise ValueError("rope: inplace is for tensors that want no gradient")
        ops.rope_(*tensors, whole, numbers, choices)
        return q if k is None else (q, k)
    q_out, k_out = ops.rope(*tensors, whole, numbers, choices)
    return q_out if k is None else (q_out, k_out)


def apply_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    """Hugging Face's function of this name: cos and sin are [B, S, R] (or [S, R]) with their two halves alike.

    position_ids choose rows of [S, R]; [B, S, R] is in its places already, and they are left aside, as there."""
    half = cos.shape[-1] // 2
    layout = "bhsd" if unsqueeze_dim == 1 else "bshd"
    positions = None
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    elif cos.dim() == 3:
        positions = torch.arange(cos.shape[0] * cos.shape[1], device=q.device).view(cos.shape[0], cos.shape[1])
        cos, sin = cos.reshape(-1, 2 * half), sin.reshape(-1, 2 * half)
    elif position_ids is not None:
        positions = position_ids.expand(q.shape[0], -1)
    return rope(q, k, cos=cos[:, :half], sin=sin[:, :half], positions=positions, layout=layout)


def _mscale(factor, mscale=1.0):
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _of_layer(name, given, layer_type):
    """The rope_scaling of one type of layers, out of one that may hold a dictionary for each type."""
    given = dict(given or {})
    kinds = [key for key, value in given.items() if isinstance(value, dict)]
    if not kinds:
        return given
    if layer_type not in kinds:
        raise ValueError(f"{name}: layer_type is {layer_type!r}, expected one of {', '.join(kinds)}")
    return dict(given[layer_type])


def rope_options(rope_scaling, base=10000.0, max_position_embeddings=None, layer_type=None):
    """The arguments of rope() that a Hugging Face rope_scaling (or rope_parameters) dictionary means.

    Where it holds one for each type of layers, layer_type says which ("sliding_attention", "full_attention"). "dynamic"
    depends on the length of the text: RotaryEmbedding has it.
    """
    given = _of_layer("rope_options", rope_scaling, layer_type)
    base = given.pop("rope_theta", base)
    kind = given.pop("rope_type", given.pop("type", "default"))
    if kind == "default":
        return {"base": base}
    factor = given.get("factor", 1.0)
    original = given.get("original_max_position_embeddings") or max_position_embeddings
    if kind == "linear":
        return {"base": base, "scaling": "linear", "factor": factor}
    if kind == "llama3":
        return {
            "base": base,
            "scaling": "llama3",
            "factor": factor,
            "original_length": original,
            "low_freq_factor": given["low_freq_factor"],
            "high_freq_factor": given["high_freq_factor"],
        }
    if kind == "yarn":
        attention = given.get("attention_factor")
        if attention is None:
            mscale, mscale_all = given.get("mscale"), given.get("mscale_all_dim")
            both = mscale and mscale_all
            attention = _mscale(factor, mscale) / _mscale(factor, mscale_all) if both else _mscale(factor)
        return {
            "base": base,
            "scaling": "yarn",
            "factor": factor,
            "original_length": original,
            "attention_factor": attention,
            "beta_fast": given.get("beta_fast") or 32.0,
            "beta_slow": given.get("beta_slow") or 1.0,
            "truncate": given.get("truncate", True),
        }
    known = "default, linear, yarn or llama3; RotaryEmbedding has dynamic, too"
    raise ValueError(f"rope_options: rope_type is {kind!r}, expected {known}")


class RotaryEmbedding(torch.nn.Module):
    """Rotates q and k as a model's configuration says: rotary_dim columns of each head, base, Hugging Face's scaling.

    embed = RotaryEmbedding(128, base=500000.0, rope_scaling={"rope_type": "llama3", "factor": 8.0, ...})
    q, k = embed(q, k, positions=position_ids)
    """

    def __init__(
        self, rotary_dim, *, base=10000.0, rope_scaling=None, max_position_embeddings=None, interleaved=False,
        layout="bshd", layer_type=None,
    ):  # fmt: skip
        super().__init__()
        self.rotary_dim, self.interleaved, self.layout = rotary_dim, interleaved, layout
        self.max_position_embeddings = max_position_embeddings
        scaling = _of_layer("RotaryEmbedding", rope_scaling, layer_type)
        self.dynamic = None
        if scaling.get("rope_type", scaling.get("type")) == "dynamic":
            self.dynamic = float(scaling["factor"])
            self.options = {"base": scaling.get("rope_theta", base), "scaling": "ntk"}
            if not max_position_embeddings:
                raise ValueError("RotaryEmbedding: dynamic scaling needs max_position_embeddings")
        else:
            self.options = rope_options(scaling, base, max_position_embeddings)

    @classmethod
    def from_config(cls, config, layer_type=None, **more):
        """From a Hugging Face configuration object; with layer_type where it has parameters for each type of layers."""
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        scaling = getattr(config, "rope_parameters", None)
        if not scaling:  # before transformers 5, where Gemma 3 has a base of its own for sliding layers
            scaling, local = getattr(config, "rope_scaling", None), getattr(config, "rope_local_base_freq", None)
            if local:
                scaling = {"full_attention": scaling or {}, "sliding_attention": {"rope_theta": local}}
        scaling = _of_layer("RotaryEmbedding", scaling, layer_type)
        part = getattr(config, "partial_rotary_factor", None) or scaling.get("partial_rotary_factor", 1.0)
        return cls(
            int(head * part),
            base=getattr(config, "rope_theta", 10000.0),
            rope_scaling=scaling,
            max_position_embeddings=getattr(config, "max_position_embeddings", None),
            **more,
        )

    def extra_repr(self):
        return f"{self.rotary_dim}, layout={self.layout!r}, interleaved={self.interleaved}, {self.options}"

    def forward(self, q, k=None, *, length=None, **where):
        """where: positions, offsets, cu_seqlens, weights and eps of the norms, inplace, as rope() takes them. length is
        that of the text so far, for dynamic scaling; without it the length of q."""
        options = dict(self.options)
        if self.dynamic is not None:
            length = length or q.shape[{"bshd": 1, "bhsd": 2, "thd": 0}[self.layout]]
            longest = max(length, self.max_position_embeddings)
            options["factor"] = self.dynamic * longest / self.max_position_embeddings - (self.dynamic - 1)
        return rope(
            q, k, layout=self.layout, rotary_dim=self.rotary_dim, interleaved=self.interleaved, **options, **where
        )


__all__ = ["RotaryEmbedding", "apply_rotary_pos_emb", "rope", "rope_options"]
