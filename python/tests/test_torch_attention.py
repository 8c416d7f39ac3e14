"""Attention in the PyTorch front: values, gradients, options, drop-ins, operators.
SPDX-License-Identifier: Apache-2.0
"""
import math
import types

import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
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


def test_merge_names_a_wrong_layout():
    with pytest.raises(ValueError, match="attention_merge: layout is 'x', expected one of bshd"):
        st.attention_merge(*[torch.zeros(1)] * 4, layout="x")


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


def same_as_sdpa(q, k, v, attn_mask=None, **options):
    """Values, types and gradients of PyTorch's function."""
    leaves = [x for x in (q, k, v, attn_mask) if x is not None and x.is_floating_point()]
    found, want = (
        f(*(x.requires_grad_() for x in (q, k, v)), attn_mask=attn_mask, **options)
        for f in (st.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention)
    )
    assert found.dtype == want.dtype
    near(found, want, want.dtype)
    d_o = torch.randn_like(want)
    for a, b in zip(torch.autograd.grad(found, leaves, d_o), torch.autograd.grad(want, leaves, d_o)):
        assert a.dtype == b.dtype
        near(a, b, want.dtype, 16.0)


BROADCAST = {
    "batch": ((2, 4, 5, 8), (1, 4, 9, 8), (1, 4, 9, 8)),
    "batch of value": ((2, 4, 5, 8), (2, 4, 9, 8), (1, 4, 9, 8)),
    "batch of query": ((1, 4, 5, 8), (2, 4, 9, 8), (2, 4, 9, 8)),
    "heads": ((2, 4, 5, 8), (2, 1, 9, 8), (2, 1, 9, 8)),
    "heads of key": ((2, 4, 5, 8), (2, 1, 9, 8), (2, 4, 9, 8)),
    "heads of query": ((2, 1, 5, 8), (2, 4, 9, 8), (2, 4, 9, 8)),
    "key of 3": ((2, 4, 5, 8), (4, 9, 8), (4, 9, 8)),
    "query of 3": ((4, 5, 8), (1, 4, 9, 8), (1, 4, 9, 8)),
    "5 and 4": ((2, 3, 4, 5, 8), (3, 1, 9, 8), (1, 1, 4, 9, 8)),
}


@pytest.mark.parametrize("mask", [None, (5, 9), (4, 1, 9)])
@pytest.mark.parametrize("name", list(BROADCAST))
def test_as_sdpa_broadcasts(name, mask):
    attn_mask = None if mask is None else torch.randn(mask, requires_grad=True)
    same_as_sdpa(*(torch.randn(shape) for shape in BROADCAST[name]), attn_mask=attn_mask)


@pytest.mark.parametrize("shapes", [((12, 5, 8), (1, 2, 9, 8)), ((2, 12, 5, 8), (1, 4, 9, 8))])
def test_as_sdpa_groups(shapes):
    q, k = (torch.randn(shape) for shape in shapes)
    same_as_sdpa(q, k, torch.randn(k.shape[0], 3, 9, 16), enable_gqa=True)
    same_as_sdpa(q, k, torch.randn(k.shape), enable_gqa=True)


def test_as_sdpa_drops_all():
    q, k, v = (torch.randn(2, 4, 5, 8, requires_grad=True) for _ in range(3))
    o = st.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
    assert o.shape == q.shape and not o.any()
    o.sum().backward()
    assert not any(x.grad.any() for x in (q, k, v))


def test_as_sdpa_of_no_query():
    q, k = torch.randn(2, 3, 4, 0, 8), torch.randn(2, 3, 4, 9, 8)
    assert st.scaled_dot_product_attention(q, k, k).shape == q.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_as_sdpa_under_autocast(dtype):
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 9, 8).bfloat16(), torch.randn(2, 4, 9, 8).half()
    with torch.autocast("cpu", dtype):
        same_as_sdpa(q, k, v)
        mask = 4 * torch.randn(5, 9)
        same_as_sdpa(q, k, v, attn_mask=mask.requires_grad_())
        found = st.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert torch.equal(found, st.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(dtype)))
        module = types.SimpleNamespace(is_causal=False)
        o, _ = st.transformers_attention(module, q, k, v, torch.zeros(5, 9))
        assert o.dtype == dtype
        compiled = torch.compile(st.scaled_dot_product_attention, fullgraph=True, backend="eager")(q, k, v)
        assert compiled.dtype == dtype
    with torch.autocast("cpu", dtype, enabled=False):
        assert st.scaled_dot_product_attention(q, q, q).dtype == torch.float32


def test_as_sdpa_refuses_by_name():
    q = torch.randn(2, 3, 4, 5, 8)
    of = st.scaled_dot_product_attention
    with pytest.raises(ValueError, match=r"query \[2, 3\], key \[3, 2\], value \[3, 2\]: they do not broadcast"):
        of(q, q.transpose(0, 1), q.transpose(0, 1))
    with pytest.raises(ValueError, match="query has 4 heads, key 3, value 4: expected a multiple"):
        of(q, q[:, :, :3], q, enable_gqa=True)
    with pytest.raises(NotImplementedError, match="value of 2 dimensions"):
        of(q, q, q[0, 0, 0])
    with pytest.raises(NotImplementedError, match="query of type torch.float64 .* expected torch.float32"):
        of(q.double(), q.double(), q.double())
    with pytest.raises(ValueError, match="key has type torch.bfloat16, query torch.float32"):
        of(q, q.bfloat16(), q)
    for dtype in (torch.int32, torch.float64):
        with pytest.raises(NotImplementedError, match=f"attn_mask of type {dtype} .* expected torch.bool"):
            of(q, q, q, attn_mask=torch.ones(5, 5, dtype=dtype))
    for shape in ((5, 4), (2, 1, 5, 5), (1, 1, 1, 1, 5, 5)):
        with pytest.raises(ValueError, match=r"attn_mask has shape .* broadcasts to \[2, 3, 4, 5, 5\]"):
            of(q, q, q, attn_mask=torch.ones(shape))


def test_flash_window_of_any_negative():
    q, k, v = (x.detach() for x in heads())
    assert torch.equal(st.flash_attn_func(q, k, v, window_size=(-2, -2)), st.flash_attn_func(q, k, v))
    assert torch.equal(st.flash_attn_func(q, k, v, window_size=(3, -7)), st.attention(q, k, v, window=(3, -1)))
    assert torch.equal(st.flash_attn_func(q, k, v, window_size=(None, 2)), st.attention(q, k, v, window=(-1, 2)))


def test_flash_lengths_are_hints():
    q = torch.randn(7, 2, 8)
    cu = torch.tensor([0, 3, 7], dtype=torch.int32)
    want = st.flash_attn_varlen_func(q, q, q, cu, cu, 4, 4)
    assert torch.equal(st.flash_attn_varlen_func(q, q, q, cu, cu, None, None), want)

    def run(q, cu):
        longest = cu.diff().max()
        return st.flash_attn_varlen_func(q, q, q, cu, cu, longest, longest)

    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(q, cu), want)


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
    both_ways = types.SimpleNamespace(is_causal=False)
    o, _ = st.transformers_attention(both_ways, q, k, v, None, sliding_window=4)
    near(o.transpose(1, 2), reference(q, k, v, layout="bhsd", window=(3, 3))[0], torch.float32)
    o, _ = st.transformers_attention(module, q[:, :, -1:], k, v, None, sliding_window=4)  # the next token
    near(o.transpose(1, 2), reference(q[:, :, -1:], k, v, layout="bhsd", window=(3, -1))[0], torch.float32)
    mask = torch.rand(2, 1, 12, 12) < 0.7
    o, _ = st.transformers_attention(module, q, k, v, mask)
    near(o.transpose(1, 2), reference(q, k, v, layout="bhsd", mask=mask)[0], torch.float32)


def test_as_transformers_refuses_by_name():
    q, k, v = (x.detach().transpose(1, 2) for x in heads(s=12, sk=12, dv=16))
    module = types.SimpleNamespace(is_causal=True)
    some = torch.zeros(1)
    for name in ("head_mask", "position_bias", "cu_seq_lens_q", "cu_seq_lens_k"):
        st.transformers_attention(module, q, k, v, None, **{name: None})
        with pytest.raises(NotImplementedError, match=f"transformers_attention: {name} is not supported"):
            st.transformers_attention(module, q, k, v, None, **{name: some})
    with pytest.raises(NotImplementedError, match="output_attentions"):
        st.transformers_attention(module, q, k, v, None, output_attentions=True)
    with pytest.raises(NotImplementedError, match="attention_mask of type torch.int64"):
        st.transformers_attention(module, q, k, v, torch.ones(2, 1, 12, 12, dtype=torch.int64))
    always = {"position_ids": some, "use_cache": True, "cache_position": some, "output_attentions": False}
    always.update(is_causal=True, sliding_window=None, softcap=None, max_length_q=12, num_items_in_batch=some)
    o, _ = st.transformers_attention(module, q, k, v, None, **always)
    near(o.transpose(1, 2), reference(q, k, v, layout="bhsd", causal=True)[0], torch.float32)


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


def test_drop_ins_say_what_to_do_about_dropout_under_compile():
    q, k, v = (x.detach() for x in heads(s=9, sk=9))
    lengths = torch.tensor([0, 9], dtype=torch.int32)
    module = types.SimpleNamespace(is_causal=True)
    calls = {
        "scaled_dot_product_attention: dropout_p": lambda q: st.scaled_dot_product_attention(q, q, q, dropout_p=0.1),
        "flash_attn_func: dropout_p": lambda q: st.flash_attn_func(q, k, v, dropout_p=0.1),
        "flash_attn_varlen_func: dropout_p": lambda q: st.flash_attn_varlen_func(
            q[0], k[0], v[0], lengths, lengths, 9, 9, dropout_p=0.1
        ),
        "transformers_attention: dropout": lambda q: st.transformers_attention(module, q, q, q, None, dropout=0.1)[0],
    }
    for name, call in calls.items():
        torch._dynamo.reset()
        with pytest.raises(Exception, match=f"{name} under torch.compile is not supported: .*attention.. takes a seed"):
            torch.compile(call, fullgraph=True, backend="eager")(q)
        assert torch.compile(call, backend="eager")(q).isfinite().all()  # outside of the graph


def test_wrong_number_of_dimensions():
    q, k, v = (x.detach() for x in heads(s=9, sk=11))
    for layout, letters in (("bshd", "[B, S, H, D]"), ("bhsd", "[B, H, S, D]"), ("thd", "[T, H, D]")):
        wrong = q[0, 0] if layout != "thd" else q
        for given in ((wrong, k, v), (wrong.to("meta"), k.to("meta"), v.to("meta"))):
            with pytest.raises(saker.Error) as caught:
                st.attention(*given, layout=layout)
            assert caught.value.sentence == f"attention: q has shape {list(wrong.shape)}, expected {letters}"
    with pytest.raises(saker.Error, match=r"attention: v has shape \[\], expected \[B, S, H, D\]"):
        st.attention(q, k, v[0, 0, 0, 0])
    with pytest.raises(saker.Error, match="attention: k has shape"):
        st.attention(q, k[0, 0], v)
