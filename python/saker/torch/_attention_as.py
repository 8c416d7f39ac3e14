"""attention() under the names and signatures of others: PyTorch's, flash-attn's, and an implementation for
transformers. What one of them cannot do is refused by the argument's name.

SPDX-License-Identifier: Apache-2.0
"""
import torch

from ._attention import attention
from ._front import autocast


def _refuse(function, argument, why):
    raise NotImplementedError(f"{function}: {argument} is not supported: {why}")


def _scale(function, scale):
    if scale == 0:
        raise ValueError(f"{function}: the scale is 0, expected another number")
    return scale


_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_FLOATS_NAMED = "torch.float32, torch.float16 or torch.bfloat16"


def _dropout(function, argument, p):
    """p, where a seed can be drawn for it: none of these functions takes one."""
    if p and torch.compiler.is_compiling():
        _refuse(function, f"{argument} under torch.compile", "all calls would drop the same; attention() takes a seed")
    return p


def _mask_or_bias(function, argument, mask):
    """(mask, bias) of attention() out of the one argument that others have for both."""
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    if mask.dtype not in _FLOATS:
        _refuse(function, f"{argument} of type {mask.dtype}", f"expected torch.bool, {_FLOATS_NAMED}")
    return None, mask


def _broadcast(name, query, key, value, enable_gqa):
    """query, key and value with the heads and the leading dimensions that PyTorch's matmul would give them."""
    hq, hk, hv = query.shape[-3], key.shape[-3], value.shape[-3]
    if enable_gqa:
        if hk == 0 or hv == 0 or hq % hk != 0 or hq % hv != 0:
            raise ValueError(f"{name}: query has {hq} heads, key {hk}, value {hv}: expected a multiple of both")
        if hk != hv:  # the library has one number for both
            key, value = key.repeat_interleave(hq // hk, -3), value.repeat_interleave(hq // hv, -3)
    elif hq != hk or hq != hv:
        h = hq if hq != 1 else hk if hk != 1 else hv
        if any(n != 1 and n != h for n in (hk, hv)):
            raise ValueError(f"{name}: query has {hq} heads, key {hk}, value {hv}: set enable_gqa")
        query, key, value = (x.expand(*x.shape[:-3], h, -1, -1) for x in (query, key, value))
    leads = [x.shape[:-3] for x in (query, key, value)]
    if leads[0] != leads[1] or leads[0] != leads[2]:
        try:
            lead = torch.broadcast_shapes(*leads)
        except RuntimeError:
            found = "query {}, key {}, value {}".format(*(list(x) for x in leads))
            raise ValueError(f"{name}: before the heads, dimensions are {found}: they do not broadcast") from None
        query, key, value = (x.expand(*lead, *x.shape[-3:]) for x in (query, key, value))
    return query, key, value


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """torch.nn.functional.scaled_dot_product_attention: [..., H, S, D]. A row that sees nothing gives 0."""
    name = "scaled_dot_product_attention"
    if query.is_nested or key.is_nested or value.is_nested:
        _refuse(name, "a nested tensor", "use attention() with layout thd and cu_seqlens")
    if attn_mask is not None and is_causal:
        _refuse(name, "attn_mask with is_causal", "expected one of them, as PyTorch does")
    query, key, value, attn_mask = autocast(query, key, value, attn_mask)
    for argument, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 3:
            _refuse(name, f"{argument} of {x.dim()} dimensions", "expected [..., H, S, D] or [H, S, D]")
        if x.dtype not in _FLOATS:
            _refuse(name, f"{argument} of type {x.dtype}", f"expected {_FLOATS_NAMED}")
        if x.dtype != query.dtype:
            raise ValueError(f"{name}: {argument} has type {x.dtype}, query {query.dtype}: expected one type for both")
    query, key, value = _broadcast(name, query, key, value, enable_gqa)
    lead = query.shape[:-3]

    def flat(x):
        return x if len(lead) == 1 else x.flatten(0, -4) if lead else x[None]

    if attn_mask is not None:
        scores = (*(lead or (1,)), *query.shape[-3:-1], key.shape[-2])
        pairs = zip(reversed(attn_mask.shape), reversed(scores))
        if attn_mask.dim() > len(scores) or any(n != 1 and n != m for n, m in pairs):
            found = f"attn_mask has shape {list(attn_mask.shape)}"
            raise ValueError(f"{name}: {found}, expected one that broadcasts to {list(scores)}")
        if len(lead) > 1 and attn_mask.dim() > 3:
            attn_mask = flat(attn_mask.expand(*lead, *attn_mask.shape[-3:]))
    mask, bias = _mask_or_bias(name, "attn_mask", attn_mask)
    o = attention(
        flat(query),
        flat(key),
        flat(value),
        layout="bhsd",
        causal=is_causal,
        top_left=is_causal,
        scale=_scale(name, scale),
        bias=bias,
        mask=mask,
        dropout=0.0 if dropout_p == 1 else _dropout(name, "dropout_p", dropout_p),
    )
    if dropout_p == 1:  # more than the library takes; o keeps its gradients, which are 0
        o = torch.nn.functional.dropout(o, 1.0)
    return o if len(lead) == 1 else o.reshape(*lead, *o.shape[-3:])


def _flash_options(name, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs):
    if return_attn_probs:
        _refuse(name, "return_attn_probs", "the matrix is never made; attention(..., return_lse=True) gives lse")
    window = tuple(-1 if side is None or side < 0 else side for side in window_size)  # every negative: no bound
    return {
        "dropout": _dropout(name, "dropout_p", dropout_p),
        "scale": _scale(name, softmax_scale),
        "causal": causal,
        "window": None if window == (-1, -1) else window,
        "softcap": softcap,
        "slopes": alibi_slopes,
    }


def _hint(length):
    """A longest length for the library, which need not know it. A tensor is not read: that would wait for the device,
    and break a graph."""
    return 0 if length is None or isinstance(length, torch.Tensor) else int(length)


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn.flash_attn_func: [B, S, H, D]. Deterministic, but for saker.configure(nondeterministic=True)."""
    options = _flash_options(
        "flash_attn_func", dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    return attention(q, k, v, **options)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """flash_attn.flash_attn_varlen_func: [T, H, D]. Deterministic as flash_attn_func; the lengths are hints."""
    name = "flash_attn_varlen_func"
    if block_table is not None:
        _refuse(name, "block_table", "keys and values must be packed, not paged")
    options = _flash_options(
        name, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    return attention(
        q,
        k,
        v,
        layout="thd",
        cu_seqlens=(cu_seqlens_q, cu_seqlens_k),
        max_seqlens=(_hint(max_seqlen_q), _hint(max_seqlen_k)),
        **options,
    )


# What changes the result and is not done here. Other keywords that models pass on are for other functions.
_NO_PROBABILITIES = "probabilities are never made"
_PACKED = "use flash_attn_varlen_func or, in a model, an attention_mask"
_NOT_OF_TRANSFORMERS = {
    "head_mask": _NO_PROBABILITIES,
    "output_attentions": _NO_PROBABILITIES,
    "position_bias": "add it to attention_mask",
    "cu_seq_lens_q": _PACKED,
    "cu_seq_lens_k": _PACKED,
}


def transformers_attention(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    sliding_window=None,
    softcap=None,
    s_aux=None,
    is_causal=None,
    **others,
):
    """An attention function of transformers: query, key and value are [B, H, S, D], the result is [B, S, H, D].

    Register it with register_transformers(), then use attn_implementation="saker".
    """
    name = "transformers_attention"
    for argument, why in _NOT_OF_TRANSFORMERS.items():
        if others.get(argument) is not None and others[argument] is not False:
            _refuse(name, argument, why)
    query, key, value, attention_mask = autocast(query, key, value, attention_mask)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    mask = bias = window = None
    if attention_mask is None:
        causal = causal and query.shape[2] > 1
        window = (sliding_window - 1, -1 if causal else sliding_window - 1) if sliding_window else None
    else:  # it says everything, the window too
        causal = False
        attention_mask = attention_mask[..., : key.shape[2]]
        mask, bias = _mask_or_bias(name, "attention_mask", attention_mask)
    o = attention(
        query,
        key,
        value,
        layout="bhsd",
        causal=causal,
        window=window,
        scale=scaling,
        softcap=softcap or 0.0,
        bias=bias,
        mask=mask,
        sinks=None if s_aux is None else s_aux.float(),
        dropout=_dropout(name, "dropout", dropout),
    )
    return o.transpose(1, 2).contiguous(), None


def register_transformers(name="saker"):
    """Makes attn_implementation=name known to transformers, with the masks that its SDPA function gets."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(name, transformers_attention)
    AttentionMaskInterface.register(name, sdpa_mask)
