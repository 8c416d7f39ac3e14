"""Attention for PyTorch: one function with every option, its gradients, and the merge of partial results.

Masks, positions, ids and scales are constants here: gradients go to q, k, v, bias, slopes and sinks.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops, Error
from ._front import no_second_order, ops, or_empty, refuse, register, straight

_call_forward = _ops["attention"].call
_call_backward = _ops["attention_backward"].call
_call_merge = _ops["attention_merge"].call
_LAYOUTS = {"bshd": 0, "bhsd": 1, "thd": 2}
_ID_RULES = {"same": 0, "up_to": 1}


def _like(x, dtype=None):
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _run(call, inputs, rest):
    """One call of the library; with contiguous tensors where it cannot take them as they are."""
    try:
        call(*inputs, *rest)
    except Error:
        inputs, changed = straight(*inputs)
        if not changed:
            raise
        call(*inputs, *rest)


# ---------------------------------------------------------------- operators

# Tensors and options in the order of the library's fields.
_NAMES = (
    "bias mask key_mask slopes sinks cu_seqlens_q cu_seqlens_k q_positions k_positions q_ids k_ids".split()
)
_TENSORS = ", ".join(f"Tensor? {name}" for name in _NAMES)
_DESCALES = "Tensor? q_descale, Tensor? k_descale, Tensor? v_descale"
_OPTIONS = "int[] whole, float[] numbers, int[] choices"


def _results(q, v, layout, dtype):
    for name, x in (("q", q), ("v", v)):  # of k the library says so
        if x.dim() != (3 if layout == 2 else 4):
            wanted = ("[B, S, H, D]", "[B, H, S, D]", "[T, H, D]")[layout]
            refuse(f"attention: {name} has shape {list(x.shape)}, expected {wanted}")
    o = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=dtype)
    b, h, s = (q.shape[0], q.shape[1], q.shape[2]) if layout == 1 else (q.shape[0], q.shape[2], q.shape[1])
    shape = (q.shape[1], q.shape[0]) if layout == 2 else (b, h, s)
    return o, q.new_empty(shape, dtype=torch.float32)


def _forward(q, k, v, *rest):
    *others, whole, numbers, choices, descale_block, p_scale, dtype = rest
    shared, descales = others[: len(_NAMES)], others[len(_NAMES) :]
    o, lse = _results(q, v, choices[0], dtype)
    options = (*whole, *numbers, *choices, descale_block, p_scale)
    try:
        _call_forward(q, k, v, o, lse, *shared, *descales, *options)
    except Error:
        found, changed = straight(q, k, v, *shared, *descales)
        if not changed:
            raise
        _call_forward(*found[:3], o, lse, *found[3:], *options)
    return o, lse


def _fake_forward(q, k, v, *rest):
    return _results(q, v, rest[-4][0], rest[-1])


def _gradient_outputs(q, k, v, bias, slopes, sinks, wants):
    return tuple(_like(t) if want else None for t, want in zip((q, k, v, bias, slopes, sinks), wants))


def _backward(d_o, q, k, v, o, lse, dlse, *rest):
    *shared, whole, numbers, choices, wants = rest
    outputs = _gradient_outputs(q, k, v, shared[0], shared[3], shared[4], wants)
    inputs = (d_o.to(o.dtype), q, k, v, o, lse, dlse, *shared)
    _run(_call_backward, inputs, (*outputs, *whole, *numbers, *choices, False))
    return or_empty(q, *outputs)


def _fake_backward(d_o, q, k, v, o, lse, dlse, *rest):
    *shared, whole, numbers, choices, wants = rest
    return or_empty(q, *_gradient_outputs(q, k, v, shared[0], shared[3], shared[4], wants))


def _setup(ctx, inputs, output):
    q, k, v, *rest = inputs
    shared, ctx.options = rest[: len(_NAMES)], rest[-6:-3]
    ctx.count = len(inputs)
    ctx.quantised = not (q.is_floating_point() and k.is_floating_point()) or k.dtype.itemsize == 1
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output, *shared)


def _gradients(ctx, d_o, dlse):
    q, k, v, o, lse, *shared = ctx.saved_tensors
    needs = ctx.needs_input_grad
    wants = [needs[0], needs[1], needs[2], needs[3], needs[6], needs[7]]
    found = [None] * ctx.count
    if (d_o is None and dlse is None) or not any(wants):
        return tuple(found)
    if ctx.quantised:
        raise NotImplementedError("saker: attention of quantised tensors has no gradient: dequantise them first")
    d_o = torch.zeros_like(o) if d_o is None else d_o
    dlse = None if dlse is None else dlse.float()
    grads = ops.attention_backward(d_o, q, k, v, o, lse, dlse, *shared, *ctx.options, wants)
    for place, want, grad in zip((0, 1, 2, 3, 6, 7), wants, grads):
        found[place] = grad if want else None
    return tuple(found)


register(
    "attention",
    f"(Tensor q, Tensor k, Tensor v, {_TENSORS}, {_DESCALES}, {_OPTIONS}, int descale_block, float p_scale, "
    "ScalarType dtype) -> (Tensor, Tensor)",
    _forward,
    _fake_forward,
    _gradients,
    _setup,
)
register(
    "attention_backward",
    f"(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dlse, {_TENSORS}, {_OPTIONS}, "
    "bool[] wants) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
    no_second_order("attention_backward"),
)


def _merge(o_a, lse_a, o_b, lse_b, layout, dtype):
    o, lse = _like(o_a, dtype), _like(lse_a)
    _run(_call_merge, (o_a, lse_a, o_b, lse_b), (o, lse, layout))
    return o, lse


def _fake_merge(o_a, lse_a, o_b, lse_b, layout, dtype):
    return _like(o_a, dtype), _like(lse_a)


def _setup_merge(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4], *output)
    ctx.layout = inputs[4]


def _weight(part, lse, layout):
    """e^(part - lse) as it multiplies o, 0 for a part that saw nothing."""
    weight = torch.where(part == -torch.inf, 0.0, torch.exp(part - lse))
    return weight, (weight if layout == 1 else weight.transpose(-1, -2)).unsqueeze(-1)


def _merge_gradients(ctx, d_o, dlse):
    """o = wa o_a + wb o_b with wa + wb = 1: what arrives at a part's lse is its weight times (d_o . (its o - o) +
    dlse)."""
    o_a, lse_a, o_b, lse_b, o, lse = ctx.saved_tensors
    found = []
    for part, stat in ((o_a, lse_a), (o_b, lse_b)):
        weight, wide = _weight(stat, lse, ctx.layout)
        apart = (d_o.float() * (part.float() - o.float())).sum(-1)
        apart = apart if ctx.layout == 1 else apart.transpose(-1, -2)
        found += [(d_o.float() * wide).to(part.dtype), torch.where(weight == 0, 0.0, weight * (apart + dlse))]
    return (*found, None, None)


register(
    "attention_merge",
    "(Tensor o_a, Tensor lse_a, Tensor o_b, Tensor lse_b, int layout, ScalarType dtype) -> (Tensor, Tensor)",
    _merge,
    _fake_merge,
    _merge_gradients,
    _setup_merge,
)

# ---------------------------------------------------------------- the interface


def _layout(function, layout):
    if layout not in _LAYOUTS:
        raise ValueError(f"{function}: layout is {layout!r}, expected one of {', '.join(_LAYOUTS)}")
    return _LAYOUTS[layout]


def _seed(dropout, seed):
    if dropout == 0 or seed is not None:
        return seed or 0
    if torch.compiler.is_compiling():
        raise ValueError("attention: dropout needs seed under torch.compile, or all calls would drop the same")
    return int(torch.randint(2**62, ()))


def attention(
    q,
    k,
    v,
    *,
    layout="bshd",
    causal=False,
    top_left=False,
    window=None,
    scale=None,
    softcap=0.0,
    bias=None,
    mask=None,
    key_mask=None,
    slopes=None,
    sinks=None,
    dropout=0.0,
    seed=None,
    offset=0,
    cu_seqlens=None,
    max_seqlens=(0, 0),
    q_positions=None,
    k_positions=None,
    q_ids=None,
    k_ids=None,
    id_rule="same",
    q_descale=None,
    k_descale=None,
    v_descale=None,
    descale_block=0,
    p_scale=0.0,
    dtype=None,
    return_lse=False,
):
    """softmax(scale q k + bias, masked) v, in q's type or in dtype; with return_lse also the logarithm of the sums.

    layout is "bshd" ([B, S, H, D]), "bhsd" or "thd" ([T, H, D], with cu_seqlens=(of q, of k) or one for both). Heads of
    q may be a multiple of those of k and v. causal ends at the last key (top_left: at the first's diagonal); window is
    (left, right), None or -1 for no bound. bias (added) and mask (True: seen) are broadcast to [B, Hq, Sq, Sk];
    key_mask is [B, Sk]. slopes: ALiBi; sinks: one more score in each sum; ids: documents ("same") or a prefix
    ("up_to"). dropout draws its seed from PyTorch unless seed is given. int8 and float8 tensors take descales. The C
    header's text on saker_attention says all of it. Gradients: q, k, v, bias, slopes, sinks, and through lse.
    """
    layout = _layout("attention", layout)
    if id_rule not in _ID_RULES:
        raise ValueError(f"attention: id_rule is {id_rule!r}, expected one of {', '.join(_ID_RULES)}")
    if scale == 0:
        raise ValueError("attention: scale is 0, expected another number, or None for 1 / sqrt(D)")
    left, right = (0, 0) if window is None else (-1 if side is None else side for side in window)
    of_q, of_k = (cu_seqlens, cu_seqlens) if cu_seqlens is None or isinstance(cu_seqlens, torch.Tensor) else cu_seqlens
    floats = q.is_floating_point() and q.dtype.itemsize > 1
    o, lse = ops.attention(
        q,
        k,
        v,
        bias,
        mask,
        key_mask,
        slopes,
        sinks,
        of_q,
        of_k,
        q_positions,
        k_positions,
        q_ids,
        k_ids,
        q_descale,
        k_descale,
        v_descale,
        [_seed(dropout, seed), offset, left, right, *max_seqlens],
        [scale or 0.0, softcap, dropout],
        [layout, causal, top_left, window is not None, _ID_RULES[id_rule]],
        descale_block,
        p_scale,
        dtype or (q.dtype if floats else torch.bfloat16),
    )
    return (o, lse) if return_lse else o


def attention_merge(o_a, lse_a, o_b, lse_b, *, layout="bshd", dtype=None):
    """(o, lse) of attention over two sets of keys, from the (o, lse) of each."""
    layout = _layout("attention_merge", layout)
    return ops.attention_merge(o_a, lse_a, o_b, lse_b, layout, dtype or o_a.dtype)
