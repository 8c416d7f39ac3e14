"""Rotary embedding in the PyTorch front: values, gradients, scalings, layouts, operators, the module.
SPDX-License-Identifier: Apache-2.0
"""
import math
import types

import pytest

from conftest import need_torch

torch = need_torch()

import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]
ROUNDING = {torch.float32: 2.0**-20, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def frequencies(dim, base=10000.0):
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def tables(positions, frequency, scale=1.0):
    angle = positions.double().cpu()[..., None] * frequency
    return angle.cos() * scale, angle.sin() * scale


def rotated(x, cos, sin, interleaved=False):
    """x [B, S, H, D] in double; cos and sin [B, S, R/2] or [S, R/2]."""
    half = cos.shape[-1]
    cos, sin = cos.to(x.device).unsqueeze(-2), sin.to(x.device).unsqueeze(-2)
    turn, rest = x[..., : 2 * half], x[..., 2 * half :]
    a, b = (turn[..., ::2], turn[..., 1::2]) if interleaved else (turn[..., :half], turn[..., half:])
    a, b = a * cos - b * sin, b * cos + a * sin
    turn = torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)
    return torch.cat((turn, rest), -1)


def normed(x, weight, eps=1e-6, offset=0.0):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (weight + offset)


def near(found, expected, factor=4.0):
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= factor * RTOL * max(1.0, expected.abs().max().item())


RTOL = 2.0**-20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(ROUNDING))
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_values_and_gradients(device, dtype, layout, norm, interleaved, monkeypatch):
    monkeypatch.setitem(globals(), "RTOL", ROUNDING[dtype])
    q, k = (torch.randn(2, 7, h, 64, device=device).to(dtype) for h in (4, 2))
    w = [torch.rand(64, device=device).to(dtype) + 0.5 for _ in range(2)]
    if layout == "bhsd":
        q, k = (t.transpose(1, 2) for t in (q, k))
    leaves = [t.detach().requires_grad_() for t in (q, k, *w)]
    weights = dict(q_weight=leaves[2], k_weight=leaves[3]) if norm else {}
    found = st.rope(leaves[0], leaves[1], layout=layout, interleaved=interleaved, rotary_dim=48, **weights)
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    swap = (lambda t: t.transpose(1, 2)) if layout == "bhsd" else (lambda t: t)
    cos, sin = tables(torch.arange(7), frequencies(48))
    expected = []
    for x, weight in zip(doubles[:2], doubles[2:]):
        x = swap(x)
        expected.append(swap(rotated(normed(x, weight) if norm else x, cos, sin, interleaved)))
    grads = [torch.randn_like(y) for y in found]
    for y, e in zip(found, expected):
        assert y.dtype == dtype
        near(y, e)
    wanted = 4 if norm else 2
    got = torch.autograd.grad(found, leaves[:wanted], grads)
    want = torch.autograd.grad(expected, doubles[:wanted], [g.double() for g in grads])
    for g, e in zip(got, want):
        near(g, e)


@pytest.mark.parametrize("device", DEVICES)
def test_one_of_two_gradients(device):
    q, k = (torch.randn(1, 5, 2, 32, device=device, requires_grad=True) for _ in range(2))
    for out, leaf in ((0, q), (1, k)):
        y = st.rope(q, k)[out]
        (g,) = torch.autograd.grad(y.sum(), leaf)
        cos, sin = tables(torch.arange(5), frequencies(32))
        near(g, rotated(torch.ones_like(q).double(), cos, -sin))


@pytest.mark.parametrize("device", DEVICES)
def test_where_positions_come_from(device):
    q, k = torch.randn(3, 6, 2, 32, device=device), torch.randn(3, 6, 1, 32, device=device)
    f = frequencies(32)
    offsets = torch.tensor([0, 5, 100], dtype=torch.int32, device=device)
    places = torch.arange(6) + offsets.cpu()[:, None]
    expected = rotated(q.double(), *tables(places, f))
    near(st.rope(q, k, offsets=offsets)[0], expected)
    near(st.rope(q, k, positions=places.to(device))[0], expected)
    near(st.rope(q, k, positions=places.int().to(device))[0], expected)
    cos, sin = (t.float().to(device) for t in tables(torch.arange(128), f))
    near(st.rope(q, k, positions=places.to(device), cos=cos, sin=sin)[0], expected)
    cu = torch.tensor([0, 6, 6, 12, 18], dtype=torch.int32, device=device)
    packed = st.rope(q.flatten(0, 1), layout="thd", cu_seqlens=cu)
    near(packed, rotated(q.double(), *tables(torch.arange(6), f)).flatten(0, 1))
    qkv = torch.randn(3, 6, 5 * 32, device=device)  # views of one tensor, in place
    views = [qkv[..., :96].view(3, 6, 3, 32), qkv[..., 96:128].view(3, 6, 1, 32)]
    before = [v.clone() for v in views]
    st.rope(*views, offsets=offsets, inplace=True)
    near(views[0], rotated(before[0].double(), *tables(places, f)))
    near(views[1], rotated(before[1].double(), *tables(places, f)))
    with pytest.raises(ValueError, match="inplace"):
        st.rope(q.requires_grad_(), inplace=True)


def yarn(dim, base, factor, original, fast=32.0, slow=1.0, truncate=True):
    def column(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = column(fast), column(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    f = frequencies(dim, base)
    return f / factor * ramp + f * (1 - ramp)


def llama3(dim, base, factor, original, low, high):
    f = frequencies(dim, base)
    wave = 2 * math.pi / f
    smooth = (original / wave - low) / (high - low)
    middle = (1 - smooth) * f / factor + smooth * f
    return torch.where(wave > original / low, f / factor, torch.where(wave < original / high, f, middle))


HF = [
    (None, {}, frequencies(64), 1.0),
    ({"rope_type": "default", "rope_theta": 1e6}, {}, frequencies(64, 1e6), 1.0),
    ({"type": "linear", "factor": 1.3}, {}, frequencies(64) / 1.3, 1.0),
    (
        {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096},
        {},
        yarn(64, 10000.0, 40.0, 4096),
        0.1 * math.log(40.0) + 1,
    ),
    (
        {"rope_type": "yarn", "factor": 32.0, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0},
        {"base": 150000.0, "max_position_embeddings": 4096},
        yarn(64, 150000.0, 32.0, 4096, truncate=False),
        0.1 * math.log(32.0) + 1,
    ),
    (
        {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        {"max_position_embeddings": 4096},
        yarn(64, 10000.0, 40.0, 4096),
        1.0,
    ),
    (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        {"base": 500000.0},
        llama3(64, 500000.0, 8.0, 8192, 1.0, 4.0),
        1.0,
    ),
]


@pytest.mark.parametrize("case", range(len(HF)))
def test_module_reads_hugging_face_scaling(case):
    scaling, more, f, attention = HF[case]
    embed = st.RotaryEmbedding(64, rope_scaling=scaling, **more)
    q, k = torch.randn(1, 4, 2, 64), torch.randn(1, 4, 1, 64)
    positions = torch.tensor([[0, 3, 70000, 1000000]])
    for found, x in zip(embed(q, k, positions=positions), (q, k)):
        near(found, rotated(x.double(), *tables(positions, f, attention)))


def test_module_from_config_and_dynamic():
    config = types.SimpleNamespace(
        hidden_size=256, num_attention_heads=2, rope_theta=10000.0, max_position_embeddings=16,
        rope_scaling={"rope_type": "dynamic", "factor": 2.0}, partial_rotary_factor=0.5,
    )  # fmt: skip
    embed = st.RotaryEmbedding.from_config(config, layout="bhsd")
    assert embed.rotary_dim == 64 and "bhsd" in repr(embed)
    for length in (8, 40):
        q = torch.randn(1, 2, length, 128)
        longest = max(length, 16)
        base = 10000.0 * (2.0 * longest / 16 - 1.0) ** (64 / 62)
        expected = rotated(q.transpose(1, 2).double(), *tables(torch.arange(length), frequencies(64, base)))
        near(embed(q), expected.transpose(1, 2))
    with pytest.raises(ValueError, match="longrope"):
        st.RotaryEmbedding(64, rope_scaling={"rope_type": "longrope"})
    with pytest.raises(ValueError, match="max_position_embeddings"):
        st.RotaryEmbedding(64, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(ValueError, match="is 'dynamic', expected default, linear, yarn or llama3; RotaryEmbedding has"):
        st.rope_options({"rope_type": "dynamic", "factor": 2.0})


def test_parameters_for_each_type_of_layers():
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    each = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": linear}
    sizes = dict(hidden_size=256, num_attention_heads=2, head_dim=64, max_position_embeddings=16)
    new = types.SimpleNamespace(**sizes, rope_parameters=each)
    local = {"base": 1e4}
    for found in (
        st.RotaryEmbedding.from_config(new, "sliding_attention").options,
        st.RotaryEmbedding(64, rope_scaling=each, layer_type="sliding_attention").options,
        st.rope_options(each, layer_type="sliding_attention"),
    ):
        assert found == local
    embed = st.RotaryEmbedding.from_config(new, layer_type="full_attention", layout="bhsd")
    assert embed.rotary_dim == 32 and embed.options == {"base": 1e6, "scaling": "linear", "factor": 8.0}
    for given in (None, "chunked_attention"):
        for call in (
            lambda: st.RotaryEmbedding.from_config(new, given),
            lambda: st.RotaryEmbedding(64, rope_scaling=each, layer_type=given),
            lambda: st.rope_options(each, layer_type=given),
        ):
            with pytest.raises(ValueError, match=f"layer_type is {given!r}, expected one of sliding_.*, full_"):
                call()
    assert st.rope_options(linear, layer_type="full_attention")["base"] == 1e6  # one for all types

    old = types.SimpleNamespace(**sizes, rope_theta=1e6, rope_scaling=None, rope_local_base_freq=1e4)
    assert st.RotaryEmbedding.from_config(old, "sliding_attention").options == local
    assert st.RotaryEmbedding.from_config(old, "full_attention").options == {"base": 1e6}
    old.rope_scaling = {"rope_type": "linear", "factor": 8.0}
    assert st.RotaryEmbedding.from_config(old, "full_attention").options["factor"] == 8.0
    with pytest.raises(ValueError, match="layer_type is None"):
        st.RotaryEmbedding.from_config(old)


def test_hugging_face_function():
    q, k = torch.randn(2, 3, 5, 64), torch.randn(2, 1, 5, 64)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    angle = positions[..., None] * frequencies(64)
    both = torch.cat((angle, angle), -1)

    def reference(x):
        turned = torch.cat((-x[..., 32:], x[..., :32]), -1)
        return x * both.cos().unsqueeze(1) + turned * both.sin().unsqueeze(1)

    found = st.apply_rotary_pos_emb(q, k, both.cos().float(), both.sin().float())
    near(found[0], reference(q.double()))
    near(found[1], reference(k.double()))


@pytest.mark.parametrize("batch", [1, 2])
def test_hugging_face_position_ids(batch):
    q = torch.randn(batch, 3, 5, 64)
    ids = torch.arange(7, 12).expand(batch, -1)
    angle = torch.arange(20)[:, None] * frequencies(64)
    cos, sin = (torch.cat((t, t), -1).float() for t in (angle.cos(), angle.sin()))
    turned = torch.cat((-q[..., 32:], q[..., :32]), -1)
    expected = (q * cos[7:12] + turned * sin[7:12]).double()
    near(st.apply_rotary_pos_emb(q, q, cos, sin, ids)[0], expected)
    near(st.apply_rotary_pos_emb(q, q, cos[ids], sin[ids], ids)[0], expected)  # chosen already, so not once more


@pytest.mark.parametrize("device", DEVICES)
def test_eps_zero_is_zero(device):
    q = torch.full((1, 1, 1, 32), 1e-4, device=device)
    near(st.rope(q, norm=True, eps=0.0), torch.ones_like(q).double())


def arguments(device, grad, norm=True):
    q, k = (torch.randn(2, 5, h, 32, device=device, requires_grad=grad) for h in (3, 1))
    w = [torch.randn(32, device=device, requires_grad=grad) for _ in range(2)] if norm else [None, None]
    positions = torch.randint(0, 50, (2, 5), device=device)
    numbers = [10000.0, 1.0, 0.0, 32.0, 1.0, 1.0, 4.0, 1e-6, 0.0]
    return [q, k, None, None, None, positions, None, *w, [0, 0], numbers, [0, 0, 0, 0, int(norm)]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_opcheck(device, grad, norm):
    args = arguments(device, grad, norm)
    torch.library.opcheck(torch.ops.saker.rope, args)
    if not grad:
        torch.library.opcheck(torch.ops.saker.rope_, args)
        q, k = args[:2]
        back = [torch.randn_like(q), torch.randn_like(k), *(args[:2] if norm else (None, None)), *args[2:]]
        torch.library.opcheck(torch.ops.saker.rope_backward, (*back, [True, True, norm, norm]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_fullgraph(device, backend):
    torch._dynamo.reset()
    embed = st.RotaryEmbedding(32, rope_scaling={"type": "linear", "factor": 2.0})

    def function(x, w):
        q, k = x.split((96, 32), -1)
        q, k = embed(q.unflatten(-1, (3, 32)), k.unflatten(-1, (1, 32)), q_weight=w, k_weight=w)
        return (q * k).tanh()

    x, w = torch.randn(2, 5, 128, device=device, requires_grad=True), torch.rand(32, device=device, requires_grad=True)
    y, expected = torch.compile(function, fullgraph=True, backend=backend)(x, w), function(x, w)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    for f, e in zip(torch.autograd.grad(y, (x, w), dy), torch.autograd.grad(expected, (x, w), dy)):
        torch.testing.assert_close(f, e)
