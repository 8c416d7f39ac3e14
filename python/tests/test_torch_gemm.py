"""Matrix products for PyTorch: values, gradients, operators, torch.compile. CUDA rows run where there is a GPU.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import torch.nn.functional as F  # noqa: E402

import saker  # noqa: E402
import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 2.0**-20, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
ACTS = {"none": lambda x: x, "silu": F.silu, "gelu": F.gelu, "relu2": lambda x: F.relu(x).square()}


def near(found, expected, terms=1.0):
    assert found.shape == expected.shape
    if not expected.numel():
        return
    bound = ROUNDING[found.dtype] * max(1.0, expected.abs().max().item()) * terms
    assert (found.double() - expected).abs().max().item() <= bound


def draw(device, dtype, *shapes):
    torch.manual_seed(5)
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]


def compare(run, reference, inputs, terms=2.0):
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    y, want = run(*inputs), reference(*doubles)
    near(y, want)
    dy = torch.randn_like(y)
    wanted = torch.autograd.grad(want, doubles, dy.double())
    for t, found, expected in zip(inputs, torch.autograd.grad(y, inputs, dy), wanted):
        assert found.dtype == t.dtype
        near(found, expected, terms)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("act", ACTS)
def test_linear(device, dtype, act):
    x, w, b = draw(device, dtype, (3, 5, 24), (40, 24), (40,))
    compare(lambda x, w, b: st.linear(x, w, b, activation=act), lambda x, w, b: ACTS[act](F.linear(x, w, b)), [x, w, b])
    compare(lambda x, w: st.linear(x, w, activation=act), lambda x, w: ACTS[act](F.linear(x, w)), [x, w])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_gated_linear(device, dtype):
    x, w, b = draw(device, dtype, (7, 24), (40, 24), (40,))

    def halves(x, w, b):
        gate, up = F.linear(x, w, b).chunk(2, -1)
        return F.silu(gate) * up

    def pairs(x, w, b):
        v = F.linear(x, w, b)
        return F.silu(v[..., ::2]) * v[..., 1::2]

    compare(lambda *t: st.linear(*t, activation="silu", gated="halves"), halves, [x, w, b], 8.0)
    compare(lambda *t: st.linear(*t, activation="silu", gated="interleaved"), pairs, [x, w, b], 8.0)


@pytest.mark.parametrize("device", DEVICES)
def test_linear_module(device):
    layer = st.Linear(16, 8, activation="gelu", device=device)
    x = torch.randn(4, 16, device=device)
    near(layer(x), F.gelu(F.linear(x.double(), layer.weight.double(), layer.bias.double())))
    layer(x).sum().backward()
    assert layer.weight.grad is not None and layer.bias.grad is not None
    assert "gelu" in repr(layer)
    with pytest.raises(ValueError):
        st.linear(x, layer.weight, activation="swish")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 1, 5, 7), (4, 7, 3)), ((7,), (7, 3)),
                                    ((5, 7), (7,)), ((7,), (7,)), ((2, 5, 0), (0, 3))])
def test_matmul(device, dtype, shapes):
    compare(st.matmul, torch.matmul, draw(device, dtype, *shapes))


@pytest.mark.parametrize("device", DEVICES)
def test_matmul_strides_and_integers(device):
    a, b = draw(device, torch.float32, (6, 20), (9, 6))
    compare(lambda a, b: st.matmul(a.t(), b.t()), lambda a, b: torch.matmul(a.t(), b.t()), [a, b])
    i = torch.randint(-128, 128, (13, 50), dtype=torch.int8, device=device)
    assert torch.equal(st.matmul(i, i.t()), torch.matmul(i.int(), i.t().int()))
    assert torch.equal(st.matmul(i.int(), i.t().int()), torch.matmul(i.int(), i.t().int()))
    ones = torch.ones(20, 2, device=device)
    near(st.matmul(a, ones, dtype=torch.bfloat16), a.double() @ ones.double())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_scaled_matmul(device, dtype):
    torch.manual_seed(3)
    a, b = torch.randn(10, 260, device=device), torch.randn(140, 260, device=device)
    bias = torch.randn(140, device=device)
    (qa, sa), (qb, sb) = st.quantize(a, dtype), st.quantize(b, dtype)
    want = (qa.double() * sa.double()[:, None]) @ (qb.double() * sb.double()[:, None]).t()
    near(st.scaled_matmul(qa, qb.t(), sa, sb), want)
    near(st.scaled_matmul(qa, qb.t(), sa, sb, bias=bias, activation="silu", dtype=torch.float32),
         F.silu(want + bias.double()))
    (qa, sa), (qb, sb) = (st.quantize(t, dtype, per="tensor") for t in (a, b))
    near(st.scaled_matmul(qa, qb.t(), sa, sb), (qa.double() @ qb.double().t()) * sa.double() * sb.double())
    (qa, sa), (qb, sb) = st.quantize(a, dtype, per="block"), st.quantize(b, dtype, per="block2d")
    spread_a = sa.repeat_interleave(128, -1)[:, :260].double()
    spread_b = sb.repeat_interleave(128, -1)[:, :260].repeat_interleave(128, 0)[:140].double()
    near(st.scaled_matmul(qa, qb.t(), sa, sb.t()), (qa.double() * spread_a) @ (qb.double() * spread_b).t())
    if dtype == torch.int8:
        assert torch.equal(st.scaled_matmul(qa, qb.t(), dtype=torch.int32), torch.matmul(qa.int(), qb.t().int()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("m,n", [(1, 8), (5, 1), (1, 1)])
def test_scales_of_one_row_or_column(device, m, n):
    torch.manual_seed(5)
    a, b = torch.randn(m, 64, device=device), torch.randn(n, 64, device=device)
    (qa, sa), (qb, sb) = st.quantize(a, torch.int8), st.quantize(b, torch.int8)
    want = (qa.double() * sa.double()[:, None]) @ (qb.double() * sb.double()[:, None]).t()
    near(st.scaled_matmul(qa, qb.t(), sa, sb, dtype=torch.float32), want)
    near(st.scaled_matmul(qa, qb.t(), sa, dtype=torch.float32), want / sb.double())
    b = b.repeat(200, 1)  # columns of two blocks, or of some; k's of one
    (qa, sa), (qb, sb) = st.quantize(a, torch.int8, per="block"), st.quantize(b, torch.int8, per="block2d")
    spread = sb.repeat_interleave(128, 0)[:200 * n].double()
    near(st.scaled_matmul(qa, qb.t(), sa, sb.t(), dtype=torch.float32), (qa.double() * sa) @ (qb.double() * spread).t())


@pytest.mark.parametrize("device", DEVICES)
def test_weight_only(device):
    torch.manual_seed(4)
    a, w = torch.randn(6, 96, device=device).bfloat16(), torch.randn(50, 96, device=device)
    q, scale = st.quantize(w, torch.int8, per="group", group=32)
    want = a.double() @ (q.double() * scale.repeat_interleave(32, -1).double()).t()
    near(st.scaled_matmul(a, q.t(), b_scale=scale.t(), group=32), want)
    with pytest.raises(ValueError):
        st.scaled_matmul(a, q.t(), b_scale=scale.t(), scaling="rows")


@pytest.mark.parametrize("device", DEVICES)
def test_weights_of_four_bits(device):
    torch.manual_seed(6)
    a, w = torch.randn(3, 2, 96, device=device).half(), torch.randn(50, 96, device=device)
    q, scale = st.quantize(w, "i4", per="group", group=32)
    want = a.double() @ st.dequantize(q, scale, per="group", group=32).t().double()
    near(st.scaled_matmul(a, q.t(), b_scale=scale.t(), group=32, dtype=torch.float32), want)
    codes = torch.randint(-8, 8, (96, 50), device=device)  # two columns in a byte
    q = ((codes[:, ::2] & 15) | (codes[:, 1::2] & 15) << 4).to(torch.uint8)
    zero = torch.randint(-8, 8, (3, 50), dtype=torch.int8, device=device)
    weight = (codes - zero.repeat_interleave(32, 0)) * scale.t().repeat_interleave(32, 0).double()
    got = st.scaled_matmul(a, q, b_scale=scale.t(), b_zero=zero, group=32, activation="silu", gated="halves")
    gate, up = (a.double() @ weight).chunk(2, -1)
    near(got, F.silu(gate) * up)
    with pytest.raises(saker.Error, match="along it a byte holds two i4"):
        st.scaled_matmul(a, q.t().contiguous().t(), b_scale=scale.t(), group=32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quantized_linear(device, bits, dtype):
    torch.manual_seed(7)
    for columns, group, bias in ((192, 64, True), (75, 32, False)):
        layer = torch.nn.Linear(columns, 40, bias=bias, device=device, dtype=dtype)
        made = st.QuantizedLinear.from_linear(layer, bits=bits, group=group)
        weight = st.dequantize(made.weight, made.scale, per="group", group=group, columns=columns).double()
        assert (weight - layer.weight).abs().max() <= made.scale.max() * 0.51
        x = torch.randn(3, 5, columns, device=device, dtype=dtype, requires_grad=True)
        want = F.linear(x.double(), weight, None if not bias else made.bias.double())
        near(made(x), want)
        near(torch.compile(made, backend="aot_eager", fullgraph=True)(x), want)
        dy = torch.randn_like(made(x))
        inputs = (x, made.bias) if bias else (x,)
        for got, expected in zip(torch.autograd.grad(made(x), inputs, dy), torch.autograd.grad(want, inputs, dy.double())):
            near(got, expected)
        other = st.QuantizedLinear(columns, 40, bias, bits=bits, group=group, device=device, dtype=dtype)
        other.load_state_dict(made.state_dict())
        assert torch.equal(other.half().to(dtype)(x), made(x)) and other.scale.dtype == torch.float32
    with pytest.raises(ValueError, match="bits is 3, expected 4 or 8"):
        st.QuantizedLinear(8, 8, bits=3)


def words(codes, dim, order=range(8)):
    """Eight codes along dim in an int32, number order[i] in bits 4i to 4i + 3."""
    eights = codes.long().unflatten(dim, (-1, 8))
    packed = sum(eights.select(dim + 1, which) << 4 * i for i, which in enumerate(order))
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


@pytest.mark.parametrize("device", DEVICES)
def test_quantized_checkpoints(device):
    torch.manual_seed(8)
    codes, zeros = torch.randint(16, (96, 24), device=device), torch.randint(1, 16, (3, 24), device=device)
    scales, bias = torch.rand(3, 24, device=device).half() / 8, torch.randn(24, device=device).half()
    weight = (codes - zeros.repeat_interleave(32, 0)).double() * scales.repeat_interleave(32, 0).double()
    x = torch.randn(5, 96, device=device, dtype=torch.float16, requires_grad=True)
    want = F.linear(x.double(), weight.t(), bias.double())
    g_idx = torch.arange(96, device=device) // 32
    awq = [0, 2, 4, 6, 1, 3, 5, 7]
    made = (
        st.QuantizedLinear.from_gptq(words(codes, 0), words(zeros - 1, 1), scales, bias, g_idx=g_idx),
        st.QuantizedLinear.from_gptq(words(codes, 0), words(zeros, 1), scales, bias, zeros_less_one=False),
        st.QuantizedLinear.from_awq(words(codes, 1, awq), words(zeros, 1, awq), scales, bias),
    )
    dy = torch.randn_like(want).half()
    for layer in made:
        near(layer(x), want)
        for t, u in zip(torch.autograd.grad(layer(x), x, dy), torch.autograd.grad(want, x, dy.double(), retain_graph=True)):
            near(t, u, 2)
    other = st.QuantizedLinear(96, 24, group=32, zero=True, device=device, dtype=torch.float16)
    other.load_state_dict(made[2].state_dict())
    assert torch.equal(other(x), made[2](x))
    with pytest.raises(ValueError, match="g_idx is not in order"):
        st.QuantizedLinear.from_gptq(words(codes, 0), words(zeros, 1), scales, g_idx=g_idx.flip(0))
    with pytest.raises(ValueError, match=r"qzeros \[3, 3\] and scales \[4, 24\], which do not belong together"):
        st.QuantizedLinear.from_awq(words(codes, 1), words(zeros, 1), scales[[0, 1, 2, 2]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_grouped(device, dtype):
    a, b = draw(device, dtype, (20, 12), (4, 12, 10))
    offsets = torch.tensor([0, 7, 7, 15, 20], device=device)

    def reference(a, b):
        return torch.cat([a[s:e] @ b[g] for g, (s, e) in enumerate(zip(offsets[:-1], offsets[1:]))])

    compare(lambda a, b: st.grouped_matmul(a, b, offsets), reference, [a, b])
    compare(lambda a, b: st.grouped_matmul(a, b, offsets.int()), reference, [a, b])
    bias = torch.randn(4, 10, device=device, dtype=dtype)
    want = F.silu(reference(a.double(), b.double()) + bias.double().repeat_interleave(offsets.diff(), 0))
    near(st.grouped_matmul(a.detach(), b.detach(), offsets, bias=bias, activation="silu"), want)
    with pytest.raises(NotImplementedError):
        st.grouped_matmul(a, b, offsets, bias=bias)


@pytest.mark.parametrize("device", DEVICES)
def test_operators(device):
    x, w, b = draw(device, torch.float32, (3, 4, 16), (8, 16), (8,))
    check = torch.library.opcheck
    check(torch.ops.saker.linear, (x, w, b, 3, 0, True))
    check(torch.ops.saker.linear, (x, w, None, 0, 0, False))
    check(torch.ops.saker.linear, (x, w, b, 3, 1, True))
    xd, wd = x.detach(), w.detach()
    dy, pre = torch.randn(3, 4, 8, device=device), torch.randn(3, 4, 8, device=device)
    check(torch.ops.saker.linear_backward, (dy, xd, wd, pre, 3, 0, torch.float32, True, True, True))
    check(torch.ops.saker.linear_backward, (dy, xd, wd, None, 0, 0, torch.float32, True, False, False))
    check(torch.ops.saker.matmul, (x, w.t(), torch.float32))
    i, s = torch.ones(4, 8, dtype=torch.int8, device=device), torch.ones(4, device=device)
    check(torch.ops.saker.scaled_matmul, (i, i.t(), s, s, None, None, 2, 0, 0, 0, False, torch.float32))
    a, e = draw(device, torch.float32, (6, 5), (2, 5, 4))
    offsets = torch.tensor([0, 2, 6], device=device)
    check(torch.ops.saker.grouped_matmul, (a, e, offsets, None, 0, 0))
    check(torch.ops.saker.grouped_matmul_k, (a.detach().t(), a.detach(), offsets))


def function(x, w, b):
    return st.matmul(st.linear(x * 2, w, b, activation="gelu"), w) + x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_fullgraph(device, backend):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    inputs = draw(device, torch.float32, (5, 32), (16, 32), (16,))
    y, expected = compiled(*inputs), function(*inputs)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    for f, e in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, inputs, dy)):
        torch.testing.assert_close(f, e)
