"""Decoding for PyTorch: new queries against a cache of keys and values, and flash-attn's function for it.

SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops, Error
from ._front import no_second_order, ops, refuse, register, straight

_call = _ops["attention_decode"].call

# ---------------------------------------------------------------- operators

# Tensors in the order of the library's fields; lse stands beside o.
_WRITTEN = {"o": "a", "lse": "b", "k_cache": "c", "v_cache": "d", "k_scale": "e", "v_scale": "f"}
_INPUTS = (
    "q k_cache v_cache? lengths block_table? k_new? v_new? cos? sin? k_scale? v_scale? slopes? sinks?".split()
)
_OPTIONS = "int[] whole, float[] numbers, int[] choices"


def _schema(names, written):
    found = []
    for name in names:
        plain = name.rstrip("?")
        alias = f"({_WRITTEN[plain]}!)" if written and plain in _WRITTEN else ""
        found.append(f"Tensor{alias}{'?' if plain != name else ''} {plain}")
    return ", ".join(found)


def _run(o, lse, inputs, whole, numbers, choices):
    """One call; what is only read may be brought to contiguous tensors."""
    q, k_cache, v_cache, lengths, table, k_new, v_new, cos, sin, *rest = inputs
    options = (*whole, *numbers, *choices)
    try:
        _call(q, k_cache, v_cache, lengths, o, lse, table, k_new, v_new, cos, sin, *rest, *options)
    except Error:
        found, changed = straight(q, lengths, table, k_new, v_new, cos, sin)
        if not changed:
            raise
        q, lengths, table, *news = found
        _call(q, k_cache, v_cache, lengths, o, lse, table, *news, *rest, *options)


def _results(q, width, dtype):
    if q.dim() != 4:
        refuse(f"attention_decode: q has shape {list(q.shape)}, expected [B, S, H, D]")
    b, s, h, _ = q.shape
    return q.new_empty((b, s, h, width), dtype=dtype), q.new_empty((b, h, s), dtype=torch.float32)


def _read(*args):
    *inputs, whole, numbers, choices, width, dtype = args
    o, lse = _results(inputs[0], width, dtype)
    _run(o, lse, inputs, whole, numbers, choices)
    return o, lse


def _fake_read(q, *rest):
    return _results(q, rest[-2], rest[-1])


def _append(o, lse, *args):
    *inputs, whole, numbers, choices = args
    _run(o, lse, inputs, whole, numbers, choices)


register(
    "attention_decode",
    f"({_schema(_INPUTS, False)}, {_OPTIONS}, int width, ScalarType dtype) -> (Tensor, Tensor)",
    _read,
    _fake_read,
    no_second_order("attention_decode"),
)
register(
    "attention_decode_",
    f"({_schema(['o', 'lse', *_INPUTS], True)}, {_OPTIONS}) -> ()",
    _append,
    lambda *_: None,
)

# ---------------------------------------------------------------- the interface


def attention_decode(
    q,
    k_cache,
    v_cache,
    lengths,
    *,
    block_table=None,
    k_new=None,
    v_new=None,
    cos=None,
    sin=None,
    interleaved=False,
    rotary_offset=0,
    k_scale=None,
    v_scale=None,
    slopes=None,
    sinks=None,
    causal=False,
    window=None,
    scale=None,
    softcap=0.0,
    split=0,
    value_width=None,
    dtype=None,
    return_lse=False,
):
    """Attention of q [B, Sq, Hq, D], up to 16 queries of a sequence, to its first lengths[b] tokens in the caches.

    The caches are [B, Smax, Hk, D] or, with block_table [B, pages of a sequence], [pages, page_size, Hk, D]; v_cache
    None: values are the first value_width columns of the keys. k_new and v_new [B, Sn, Hk, D] are written behind
    lengths first and attended, too; lengths stays as it is. cos and sin [positions, R/2] rotate k_new and q. int8,
    float8_e4m3fn and packed int4 (uint8) caches take k_scale and v_scale. The last query sits at the last key, for
    causal and window. split: keys of a part, which makes results independent of the batch. The C header's text on
    saker_attention_decode says all of it. There are no gradients.
    """
    if torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (q, k_cache, v_cache, k_new, v_new, k_scale, v_scale, slopes, sinks)
    ):
        raise NotImplementedError("saker: attention_decode has no gradient: use attention(), or torch.no_grad()")
    if scale == 0:
        raise ValueError("attention_decode: scale is 0, expected another number, or None for 1 / sqrt(D)")
    if value_width is None:
        if v_cache is None:
            raise ValueError("attention_decode: value_width is None, expected the columns of values: v_cache is None")
        value_width = v_cache.shape[-1] * (2 if v_cache.dtype == torch.uint8 else 1)
    left, right = (0, 0) if window is None else (-1 if side is None else side for side in window)
    inputs = (q, k_cache, v_cache, lengths, block_table, k_new, v_new, cos, sin, k_scale, v_scale, slopes, sinks)
    options = (
        [left, right, split, rotary_offset],
        [scale or 0.0, softcap],
        [causal, window is not None, interleaved],
    )
    dtype = dtype or q.dtype
    if k_new is None:
        o, lse = ops.attention_decode(*inputs, *options, value_width, dtype)
    else:
        o, lse = _results(q, value_width, dtype)
        ops.attention_decode_(o, lse, *inputs, *options)
    return (o, lse) if return_lse else o


def _refuse(argument, why):
    raise NotImplementedError(f"flash_attn_with_kvcache: {argument} is not supported: {why}")


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    """flash_attn.flash_attn_with_kvcache, for up to 16 queries. lse of a query that sees nothing is -infinity."""
    if cache_leftpad is not None:
        _refuse("cache_leftpad", "sequences begin at token 0 of their cache")
    if cache_batch_idx is not None and block_table is not None:
        _refuse("cache_batch_idx with block_table", "expected one of them, as flash-attn does")
    if rotary_cos is not None:
        if k is None:
            _refuse("rotary_cos without k", "flash-attn does not take it")
        if k.shape[1] != q.shape[1]:
            _refuse(f"rotary_cos with {k.shape[1]} new keys for {q.shape[1]} queries", "expected as many")
        if q.shape[1] > 1 and not causal and tuple(window_size) == (-1, -1):
            _refuse("rotary_cos without causal", "all queries would sit at one position")
    if softmax_scale == 0:
        raise ValueError("flash_attn_with_kvcache: the scale is 0, expected another number")
    paged = block_table is not None
    capacity = k_cache.shape[1] * (block_table.shape[1] if paged else 1)
    if cache_seqlens is None:
        if k is not None:
            raise ValueError("flash_attn_with_kvcache: cache_seqlens is None, expected where k is written")
        cache_seqlens = capacity
    if not isinstance(cache_seqlens, torch.Tensor):
        cache_seqlens = torch.full((q.shape[0],), cache_seqlens, dtype=torch.int32, device=q.device)
    if cache_batch_idx is not None:  # a sequence is one page
        block_table = cache_batch_idx.to(torch.int32)[:, None]
    window = tuple(-1 if side is None or side < 0 else side for side in window_size)
    return attention_decode(
        q,
        k_cache,
        v_cache,
        cache_seqlens.to(torch.int32),
        block_table=block_table,
        k_new=k,
        v_new=v,
        cos=rotary_cos,
        sin=rotary_sin,
        interleaved=rotary_cos is not None and rotary_interleaved,
        slopes=alibi_slopes,
        causal=causal,
        window=None if window == (-1, -1) else window,
        scale=softmax_scale,
        softcap=softcap,
        split=-(-capacity // num_splits) if num_splits > 0 else 0,
        return_lse=return_softmax_lse,
    )
