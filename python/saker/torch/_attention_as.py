"""attention() under the names and signatures of others: PyTorch's, flash-attn's, and an implementation for
transformers. What one of them cannot do is refused by the argument's name.

SPDX-License-Identifier: Apache-2.0
"""
import torch

from ._attention import attention


def _refuse(function, argument, why):
    raise NotImplementedError(f"{function}: {argument} is not supported: {why}")


def _scale(function, scale):
    if scale == 0:
        raise ValueError(f"{function}: the scale is 0, expected another number")
    return scale


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """torch.nn.functional.scaled_dot_product_attention: [..., H, S, D]. A row that sees nothing gives 0."""
    name = "scaled_dot_product_attention"
    if query.dim() < 3:
        _refuse(name, f"query of {query.dim()} dimensions", "expected [..., H, S, D] or [H, S, D]")
    if query.is_nested or key.is_nested or value.is_nested:
        _refuse(name, "a nested tensor", "use attention() with layout thd and cu_seqlens")
    if attn_mask is not None and is_causal:
        _refuse(name, "attn_mask with is_causal", "expected one of them, as PyTorch does")
    if not enable_gqa and query.shape[-3] != key.shape[-3]:
        raise ValueError(f"{name}: query has {query.shape[-3]} heads, key {key.shape[-3]}: set enable_gqa")
    lead = query.shape[:-3]

    def heads(x):
        return x.reshape(-1, *x.shape[-3:]) if len(lead) != 1 else x

    mask = bias = None
    if attn_mask is not None:
        full = attn_mask.expand(*lead, *attn_mask.shape[-3:]) if len(lead) > 1 and attn_mask.dim() > 3 else attn_mask
        full = heads(full) if len(lead) > 1 and full.dim() > 3 else full
        mask, bias = (full, None) if full.dtype == torch.bool else (None, full)
    o = attention(
        heads(query),
        heads(key),
        heads(value),
        layout="bhsd",
        causal=is_causal,
        top_left=is_causal,
        scale=_scale(name, scale),
        bias=bias,
        mask=mask,
        dropout=dropout_p,
    )
    return o if len(lead) == 1 else o.reshape(*lead, *o.shape[-3:])


def _flash_options(name, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs):
    if return_attn_probs:
        _refuse(name, "return_attn_probs", "the matrix is never made; attention(..., return_lse=True) gives lse")
    window = None if tuple(window_size) == (-1, -1) else tuple(window_size)
    return {
        "dropout": dropout_p,
        "scale": _scale(name, softmax_scale),
        "causal": causal,
        "window": window,
        "softcap": softcap,
        "slopes": alibi_slopes,
    }


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
    """flash_attn.flash_attn_func: [B, S, H, D]. Always deterministic."""
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
    """flash_attn.flash_attn_varlen_func: [T, H, D]. Always deterministic; the lengths are hints."""
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
        max_seqlens=(int(max_seqlen_q), int(max_seqlen_k)),
        **options,
    )


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
    if others.get("head_mask") is not None:
        _refuse(name, "head_mask", "probabilities are never made")
    if others.get("output_attentions"):
        _refuse(name, "output_attentions", "probabilities are never made")
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    mask = bias = window = None
    if attention_mask is None:
        causal = causal and query.shape[2] > 1
        window = (sliding_window - 1, -1) if sliding_window else None
    else:  # it says everything, the window too
        causal = False
        attention_mask = attention_mask[..., : key.shape[2]]
        mask, bias = (attention_mask, None) if attention_mask.dtype == torch.bool else (None, attention_mask)
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
        dropout=dropout,
    )
    return o.transpose(1, 2).contiguous(), None


def register_transformers(name="saker"):
    """Makes attn_implementation=name known to transformers, with the masks that its SDPA function gets."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(name, transformers_attention)
    AttentionMaskInterface.register(name, sdpa_mask)
