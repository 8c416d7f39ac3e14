"""Attention in the PyTorch front: values, gradients, options, drop-ins, operators.
SPDX-License-Identifier: Apache-2.0
"""
import math
import types

import pytest

from conftest import need_torch

torch = need_torch()

import saker.torch as st  # noqa: E402

ROUNDING = {torch.float32: 2.0**-18, torch.float16: 2.0**-8, torch.bfloat16: 2.0**-5}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def reference(q, k, v, *, layout="bshd", causal=False, top_left=False, window=None, scale=None, softcap=0.0, bias=None,
              mask=None, slopes=None, sinks=None):
    """In double, [B, H, S, D] inside; returns o in the layout, and lse."""
    if layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + bias.double()
    shift = 0 if top_left else k.shape[2] - q.shape[2]
    apart = torch.arange(q.shape[2])[:, None] + shift - torch.arange(k.shape[2])[None]
    if slopes is not None:
        s = s - slopes.double().reshape(-1, q.shape[1], 1, 1) * apart.abs()
    seen = torch.ones_like(apart, dtype=torch.bool)
    if causal:
        seen = seen & (apart >= 0)
    if window is not None:
        seen = seen & ((apart <= window[0]) | (window[0] < 0)) & ((-apart <= window[1]) | (window[1] < 0))
    seen = seen if mask is None else seen & mask
    s = s.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        s = torch.cat((s, sinks.double().reshape(1, -1, 1, 1).expand(*s.shape[:3], 1)), -1)
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - torch.where(lse.isinf(), 0.0, lse)[..., None])[..., : k.shape[2]]
    o = p @ v
    return (o.transpose(1, 2) if layout == "bshd" else o), lse


def near(found, expected, dtype, factor=4.0):
    found, expected = found.detach().double(), expected.detach().double()
    assert found.shape == expected.shape
    assert (found - expected).abs().nan_to_num(0).max() <= factor * ROUNDING[dtype] * max(1.0, expected.abs().max().item())


def heads(b=2, s=19, sk=27, h=4, hk=2, d=16, dv=24, dtype=torch.float32, layout="bshd"):
    shapes = [(b, s, h, d), (b, sk, hk, d), (b, sk, hk, dv)]
    found = [torch.randn(shape, dtype=dtype) for shape in shapes]
    if layout == "bhsd":
        found = [x.transpose(1, 2) for x in found]
    return [x.requires_grad_() for x in found]


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "top left": {"causal": True, "top_left": True},
    "window": {"window": (5, 2)},
    "softcap": {"softcap": 2.0},
    "scale": {"scale": -0.3},
    "bias": {"bias": (2, 4, 19, 27)},
    "bias of keys": {"bias": (1, 4, 1, 27)},
    "mask": {"mask": (2, 1, 19, 27)},
    "slopes": {"slopes": (4,)},
    "sinks": {"sinks": (4,)},
    "all": {"causal": True, "softcap": 3.0, "bias": (4, 19, 1), "slopes": (2, 4), "sinks": (4,)},
}


@pytest.mark.parametrize("dtype", list(ROUNDING))
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_values_and_gradients(name, layout, dtype):
    q, k, v = heads(dtype=dtype, layout=layout)
    options = dict(OPTIONS[name])
    leaves = [q, k, v]
    for tensor in ("bias", "slopes", "sinks"):
        if tensor in options:
            options[tensor] = torch.rand(options[tensor]).requires_grad_()
            leaves.append(options[tensor])
    if "mask" in options:
        options["mask"] = torch.rand(options["mask"]) < 0.6
    o, lse = st.attention(q, k, v, layout=layout, return_lse=True, **options)
    want_o, want_lse = reference(q, k, v, layout=layout, **options)
    assert o.dtype == dtype and lse.dtype == torch.float32
    near(o, want_o, dtype)
    seen = want_lse.isfinite()
    near(torch.where(seen, lse, 0), torch.where(seen, want_lse, 0), torch.float32 if dtype == torch.float32 else dtype)
    d_o, dlse = torch.randn_like(o), torch.where(seen, torch.randn_like(lse), 0)
    got = torch.autograd.grad((o, lse), leaves, (d_o, dlse))
    want = torch.autograd.grad((want_o, want_lse), leaves, (d_o.double(), dlse.double()))
    for a, b in zip(got, want):
        near(a, b, dtype, 16.0)


def test_dropout():
    q, k, v = heads(s=64, sk=64)
    first = st.attention(q, k, v, dropout=0.5, seed=7, offset=3)
    assert torch.equal(first, st.attention(q, k, v, dropout=0.5, seed=7, offset=3))
    assert not torch.equal(first, st.attention(q, k, v, dropout=0.5, seed=7, offset=4))
    assert not torch.equal(st.attention(q, k, v, dropout=0.5), st.attention(q, k, v, dropout=0.5))
    many = torch.stack([st.attention(q, k, v, dropout=0.5, seed=i) for i in range(400)]).mean(0)
    assert (many - st.attention(q, k, v)).abs().max() < 0.3
    first.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_packed_equals_apart():
    lengths_q, lengths_k = [5, 0, 17, 1], [9, 3, 20, 4]
    q, k, v = (torch.randn(sum(n), h, 8) for n, h in ((lengths_q, 4), (lengths_k, 2), (lengths_k, 2)))
    cu = [torch.tensor([0, *torch.tensor(n).cumsum(0).tolist()], dtype=torch.int32) for n in (lengths_q, lengths_k)]
    o = st.flash_attn_varlen_func(q, k, v, *cu, max(lengths_q), max(lengths_k), causal=True)
    for b in range(4):
        i, j = slice(cu[0][b], cu[0][b + 1]), slice(cu[1][b], cu[1][b + 1])
        alone = st.flash_attn_func(q[None, i], k[None, j], v[None, j], causal=True)
        assert torch.equal(o[i], alone[0])


def test_merge_is_the_whole():
    q, k, v = heads(dtype=torch.float32)
    parts = [st.attention(q, k[:, s], v[:, s], return_lse=True) for s in (slice(0, 11), slice(11, None))]
    o, lse = st.attention_merge(*parts[0], *parts[1])
    whole, whole_lse = st.attention(q, k, v, return_lse=True)
    near(o, whole, torch.float32)
    near(lse, whole_lse, torch.float32)
    d_o, dlse = torch.randn_like(o), torch.randn_like(lse)
    got = torch.autograd.grad((o, lse), (q, k, v), (d_o, dlse))
    want = torch.autograd.grad((whole, whole_lse), (q, k, v), (d_o, dlse))
    for a, b in zip(got, want):
        near(a, b, torch.float32, 16.0)


# ---------------------------------------------------------------- drop-ins


@pytest.mark.parametrize("shape", [(2, 3, 17, 8), (3, 17, 8), (2, 2, 3, 17, 8)])
@pytest.mark.parametrize("what", ["plain", "causal", "bool", "float"])
def test_as_sdpa(what, shape):
    q, k, v = (torch.randn(shape) for _ in range(3))
    options = {"is_causal": what == "causal"}
    if what == "bool":
        options["attn_mask"] = torch.rand(17, 17) < 0.7
    if what == "float":
        options["attn_mask"] = torch.randn(*shape[:-2], 17, 17)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    near(st.scaled_dot_product_attention(q, k, v, **options), want, torch.float32)


def test_drop_ins_refuse_by_name():
    q, k, v = (x.detach() for x in heads())
    cu = torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="return_attn_probs"):
        st.flash_attn_func(q, k, v, return_attn_probs=True)
    with pytest.raises(NotImplementedError, match="block_table"):
        st.flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 4, 4, block_table=cu)
    with pytest.raises(NotImplementedError, match="is_causal"):
        st.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(1), is_causal=True)
    with pytest.raises(ValueError, match="enable_gqa"):
        st.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    with pytest.raises(ValueError, match="scale"):
        st.flash_attn_func(q, k, v, softmax_scale=0.0)


def test_as_transformers_calls_it():
    q, k, v = (x.transpose(1, 2) for x in heads(s=12, sk=12, dv=16))
    module = types.SimpleNamespace(is_causal=True)
    o, _ = st.transformers_attention(module, q, k, v, None, scaling=0.25, sliding_window=4)
    want, _ = reference(q, k, v, layout="bhsd", causal=True, window=(3, -1), scale=0.25)
    near(o.transpose(1, 2), want, torch.float32)
    mask = torch.rand(2, 1, 12, 12) < 0.7
    o, _ = st.transformers_attention(module, q, k, v, mask)
    near(o.transpose(1, 2), reference(q, k, v, layout="bhsd", mask=mask)[0], torch.float32)


# ---------------------------------------------------------------- quantised


def test_int8_with_the_quantiser():
    q, k, v = (x.detach() for x in heads(dv=16, layout="bhsd"))
    (q8, qs), (k8, ks), (v8, vs) = (st.quantize(x, dtype=torch.int8, per="row") for x in (q, k, v))
    o = st.attention(q8, k8, v8, layout="bhsd", q_descale=qs, k_descale=ks, v_descale=vs, descale_block=1,
                     dtype=torch.float32)
    assert (o - reference(q, k, v, layout="bhsd")[0]).abs().max() < 0.05


# ---------------------------------------------------------------- operators


def test_compile_and_opcheck():
    q, k, v = heads(s=9, sk=11)
    bias = torch.randn(4, 9, 11, requires_grad=True)

    def run(q, k, v, bias):
        return st.attention(q, k, v, bias=bias, causal=True).square().sum()

    want = torch.autograd.grad(run(q, k, v, bias), (q, k, v, bias))
    got = torch.autograd.grad(torch.compile(run, fullgraph=True, backend="aot_eager")(q, k, v, bias), (q, k, v, bias))
    for a, b in zip(got, want):
        assert torch.equal(a, b)
    none = [None] * 13
    options = ([0] * 6, [0.0] * 3, [0] * 5, 0, 0.0, torch.float32)
    torch.library.opcheck(torch.ops.saker.attention.default, (q, k, v, bias, *none, *options))


def test_compile_needs_a_seed():
    q, k, v = (x.detach() for x in heads(s=9, sk=11))
    with pytest.raises(Exception, match="seed"):
        torch.compile(lambda q: st.attention(q, k, v, dropout=0.1), fullgraph=True, backend="eager")(q)
