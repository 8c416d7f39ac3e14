"""Decoding in the PyTorch front: values, pages, what is appended, codes, flash-attn's function, operators.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
import saker.torch as st  # noqa: E402

ROUNDING = {torch.float32: 2.0**-18, torch.float16: 2.0**-8, torch.bfloat16: 2.0**-5}
LENGTHS = (7, 20, 0)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def tensors(b=3, sq=2, hq=4, hk=2, d=16, dv=24, smax=24, dtype=torch.float32):
    q = torch.randn(b, sq, hq, d, dtype=dtype)
    k, v = torch.randn(b, smax, hk, d, dtype=dtype), torch.randn(b, smax, hk, dv, dtype=dtype)
    return q, k, v, torch.tensor(LENGTHS[:b], dtype=torch.int32)


def expected(q, k, v, lengths, **options):
    """attention() for each sequence by itself."""
    parts = [
        st.attention(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], return_lse=True, **options)
        for b, n in enumerate(lengths.tolist())
    ]
    return torch.cat([o for o, _ in parts]), torch.cat([lse for _, lse in parts])


def near(found, wanted, dtype, factor=4.0):
    found, wanted = found.double(), wanted.double()
    assert found.shape == wanted.shape
    size = max(1.0, wanted.nan_to_num(0, 0, 0).abs().max().item())
    assert ((found == wanted) | ((found - wanted).abs() <= factor * ROUNDING[dtype] * size)).all()


def paged(cache, size=4):
    """The same tokens in pages that lie in another order, and where they lie."""
    b, smax, *rest = cache.shape
    order = torch.randperm(b * smax // size, generator=torch.Generator().manual_seed(3))
    pages = torch.empty(order.numel(), size, *rest, dtype=cache.dtype)
    pages[order] = cache.reshape(-1, size, *rest)
    return pages, order.reshape(b, -1).to(torch.int32)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (5, 0)}, {"softcap": 2.0}, {"scale": -0.3}, {"slopes": 4}, {"sinks": 4}],
    ids=str,
)
def test_values(dtype, options):
    options = {name: torch.rand(value) if name in ("slopes", "sinks") else value for name, value in options.items()}
    q, k, v, lengths = tensors(dtype=dtype)
    o, lse = expected(q, k, v, lengths, **options)
    for split in (0, 8):
        found = st.attention_decode(q, k, v, lengths, split=split, return_lse=True, **options)
        near(found[0], o, dtype)
        near(found[1], lse, dtype)
    (pages_k, table), (pages_v, _) = paged(k), paged(v)
    near(st.attention_decode(q, pages_k, pages_v, lengths, block_table=table, **options), o, dtype)


@pytest.mark.parametrize("interleaved", [False, True])
def test_appends(interleaved):
    q, k, v, lengths = tensors()
    new_k, new_v = torch.randn(3, 2, 2, 16), torch.randn(3, 2, 2, 24)
    angles = torch.rand(24, 6)
    cos, sin = angles.cos(), angles.sin()
    turned_q, turned_k = st.rope(q, new_k, cos=cos, sin=sin, offsets=lengths, interleaved=interleaved)
    full_k, full_v = k.clone(), v.clone()
    for b, n in enumerate(lengths.tolist()):
        full_k[b, n : n + 2], full_v[b, n : n + 2] = turned_k[b], new_v[b]
    wanted, _ = expected(turned_q, full_k, full_v, lengths + 2, causal=True)
    version = k._version
    found = st.attention_decode(
        q, k, v, lengths, k_new=new_k, v_new=new_v, cos=cos, sin=sin, interleaved=interleaved, causal=True
    )
    assert k._version > version and lengths.tolist() == list(LENGTHS)
    near(k, full_k, torch.float32)
    assert torch.equal(v, full_v)
    near(found, wanted, torch.float32)


def wide(scale, value):
    """Scales of tokens or of groups of columns, one for each value."""
    scale = scale if scale.dim() == 4 else scale[..., None]
    return scale.repeat_interleave(value.shape[-1] // scale.shape[-1], -1)


def values_of(name, cache, scale):
    if name == "int4":
        nibbles = torch.stack((cache & 15, cache >> 4), -1).flatten(-2).float()
        cache = torch.where(nibbles > 7, nibbles - 16, nibbles)
    return cache.float() * wide(scale, cache)


@pytest.mark.parametrize("name", ["int8", "float8_e4m3fn", "int4"])
def test_codes(name):
    q, k, v, lengths = tensors(d=32, dv=64, dtype=torch.bfloat16)
    shape = (3, 24, 2)
    if name == "int4":
        caches = [torch.zeros(*shape, n // 2, dtype=torch.uint8) for n in (32, 64)]
        scales = [torch.ones(*shape, n // 32) for n in (32, 64)]
    else:
        caches = [torch.zeros(*shape, n, dtype=getattr(torch, name)) for n in (32, 64)]
        scales = [torch.ones(shape), torch.ones(shape)]
    more = {"k_scale": scales[0], "v_scale": scales[1]}
    for n in range(3):  # a token at a time
        at = torch.full((3,), n, dtype=torch.int32)
        news = {"k_new": k[:, n : n + 1].contiguous(), "v_new": v[:, n : n + 1].contiguous()}
        o = st.attention_decode(q, *caches, at, **news, **more)
    held = [values_of(name, *both) for both in zip(caches, scales)]
    for value, given, scale in zip(held, (k, v), scales):
        apart, by = (value - given.float())[:, :3].abs(), wide(scale, value)[:, :3]
        assert (apart <= torch.where(given[:, :3].abs() > by, given[:, :3].abs() / 16, by / 2) * 1.001).all() if (
            name == "float8_e4m3fn"
        ) else (apart <= by * 0.501).all()
        assert (value[:, 3:] == 0).all()
    wanted, _ = expected(q.float(), *held, torch.tensor([3, 3, 3]))
    near(o, wanted, torch.bfloat16)
    assert torch.equal(st.attention_decode(q, *caches, at + 1, **more), o)


def test_latent():
    q, k, _, lengths = tensors(hk=1, d=40)
    wanted, _ = expected(q, k, k[..., :24].contiguous(), lengths)
    near(st.attention_decode(q, k, None, lengths, value_width=24), wanted, torch.float32)
    with pytest.raises(ValueError, match="value_width is None"):
        st.attention_decode(q, k, None, lengths)


def test_flash_attn_with_kvcache():
    q, k, v, lengths = tensors(dv=16)
    wanted, lse = expected(q, k, v, lengths, causal=True)
    o, found = st.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True)
    near(o, wanted, torch.float32)
    near(found, lse, torch.float32)
    near(st.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, causal=True, num_splits=5), wanted, torch.float32)
    whole = st.flash_attn_with_kvcache(q, k, v)
    near(whole, st.attention(q, k, v), torch.float32)
    near(st.flash_attn_with_kvcache(q, k, v, cache_seqlens=24), whole, torch.float32)
    order = torch.tensor([2, 0, 1])
    near(st.flash_attn_with_kvcache(q, k[order.argsort()], v[order.argsort()], cache_batch_idx=order), whole,
         torch.float32)
    (pages_k, table), (pages_v, _) = paged(k), paged(v)
    near(st.flash_attn_with_kvcache(q, pages_k, pages_v, block_table=table), whole, torch.float32)
    news = torch.randn(3, 2, 2, 16)
    angles = torch.rand(24, 8)
    rotary = {"rotary_cos": angles.cos(), "rotary_sin": angles.sin()}
    turned, _ = st.rope(news, news, cos=angles.cos(), sin=angles.sin(), offsets=lengths, interleaved=True)
    st.flash_attn_with_kvcache(q, k, v, news, news, cache_seqlens=lengths, causal=True, **rotary)
    near(k[1, 20:22], turned[1], torch.float32)
    for more, text in (
        ({"cache_leftpad": lengths}, "cache_leftpad"),
        (rotary, "rotary_cos without k"),
        ({"k": news, "v": news, "cache_seqlens": lengths, **rotary}, "rotary_cos without causal"),
        ({"k": news[:, :1], "v": news[:, :1], "cache_seqlens": lengths, "causal": True, **rotary}, "1 new keys"),
        ({"cache_batch_idx": order, "block_table": table}, "cache_batch_idx with block_table"),
    ):
        with pytest.raises(NotImplementedError, match=text):
            st.flash_attn_with_kvcache(q, k, v, **more)
    with pytest.raises(ValueError, match="cache_seqlens is None"):
        st.flash_attn_with_kvcache(q, k, v, news, news)
    with pytest.raises(saker.Error, match="q has 17 queries, expected 1 to 16"):
        st.flash_attn_with_kvcache(torch.randn(3, 17, 4, 16), k, v)


def test_gradients_are_refused():
    q, k, v, lengths = tensors()
    with pytest.raises(NotImplementedError, match="attention_decode has no gradient"):
        st.attention_decode(q.requires_grad_(), k, v, lengths)
    with torch.no_grad():
        st.attention_decode(q, k, v, lengths)


def test_operators():
    q, k, v, lengths = tensors()
    news = [torch.randn(3, 1, 2, 16), torch.randn(3, 1, 2, 24)]
    absent = [None] * 5
    options = ([0, 0, 0, 0], [0.0, 0.0], [False, False, False])
    torch.library.opcheck(
        torch.ops.saker.attention_decode,
        (q, k, v, lengths, None, None, None, None, None, *absent[:4], *options, 24, torch.float32),
    )
    o, lse = torch.empty(3, 2, 4, 24), torch.empty(3, 4, 2)
    torch.library.opcheck(
        torch.ops.saker.attention_decode_,
        (o, lse, q, k, v, lengths, None, *news, None, None, *absent[:4], *options),
    )


def test_compiled():
    q, k, v, lengths = tensors()
    news = [torch.randn(3, 1, 2, 16), torch.randn(3, 1, 2, 24)]

    def step(q, k, v, lengths, k_new, v_new):
        return st.attention_decode(q, k, v, lengths, k_new=k_new, v_new=v_new, causal=True)

    other = k.clone(), v.clone()
    wanted = step(q, k, v, lengths, *news)
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(q, *other, lengths, *news)
    assert torch.equal(found, wanted) and torch.equal(other[0], k) and torch.equal(other[1], v)
