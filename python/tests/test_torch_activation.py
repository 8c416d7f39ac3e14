"""Activations and quantisers for PyTorch: values, gradients, operators, torch.compile. CUDA rows run where there is a
GPU.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import torch.nn.functional as F  # noqa: E402

import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 2.0**-20, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
PLAIN = {
    "none": lambda x: x,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


def swiglu_oai(gate, up, alpha=1.702, limit=7.0):
    """As gpt-oss has it."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def near(found, expected):
    assert found.shape == expected.shape
    bound = ROUNDING[found.dtype] * max(1.0, expected.abs().max().item())
    assert (found.double() - expected).abs().max().item() <= bound


def compare(run, reference, inputs):
    """Value and gradients of run(*inputs) against reference in double."""
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    y, want = run(*inputs), reference(*doubles)
    near(y, want)
    dy = torch.randn_like(y)
    wanted = torch.autograd.grad(want, doubles, dy.double())
    for t, found, expected in zip(inputs, torch.autograd.grad(y, inputs, dy), wanted):
        assert found.dtype == t.dtype
        near(found, expected)


def draw(device, dtype, *shapes):
    torch.manual_seed(5)
    return [(2 * torch.randn(s, device=device)).to(dtype).requires_grad_() for s in shapes]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("act", PLAIN)
def test_functions(device, dtype, act):
    x, bias = draw(device, dtype, (3, 5, 72), (72,))
    compare(lambda x: st.activation(x, act), PLAIN[act], [x])
    compare(lambda x, b: st.activation(x, act, bias=b), lambda x, b: PLAIN[act](x + b), [x, bias])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("act", [*PLAIN, "swiglu_oai"])
def test_gated(device, dtype, act):
    reference = swiglu_oai if act == "swiglu_oai" else lambda g, u: PLAIN[act](g) * u
    gate, up, both, bias = draw(device, dtype, (4, 40), (4, 40), (4, 80), (80,))
    compare(lambda g, u: st.activation(g, act, up=u), reference, [gate, up])
    compare(lambda x, b: st.activation(x, act, bias=b, gated="halves"),
            lambda x, b: reference(*(x + b).chunk(2, -1)), [both, bias])
    compare(lambda x: st.activation(x, act, gated="interleaved"),
            lambda x: reference(x[..., ::2], x[..., 1::2]), [both])


@pytest.mark.parametrize("device", DEVICES)
def test_names_modules_and_strides(device):
    x, gate, up = draw(device, torch.float32, (6, 64), (6, 32), (6, 32))
    near(st.silu(x), F.silu(x.double()))
    near(st.gelu(x), F.gelu(x.double()))
    near(st.gelu(x, approximate="tanh"), F.gelu(x.double(), approximate="tanh"))
    near(st.relu2(x), F.relu(x.double()).square())
    near(st.swiglu(gate, up), F.silu(gate.double()) * up.double())
    near(st.SwiGLU()(x), F.silu(x.double()[:, :32]) * x.double()[:, 32:])
    near(st.SwiGLU(interleaved=True)(x), F.silu(x.double()[:, ::2]) * x.double()[:, 1::2])
    near(st.silu(x.t()), F.silu(x.t().double()))
    (dx,) = torch.autograd.grad(st.silu(x).sum(), x)  # an expanded gradient
    assert torch.isfinite(dx).all()
    with pytest.raises(ValueError):
        st.activation(x, "swish")
    with pytest.raises(ValueError):
        st.activation(x, "silu", up=x, gated="halves")
    for name in ("alpha", "limit"):  # the library would take 0 as its default
        with pytest.raises(ValueError, match=f"activation: {name} is 0, expected another number"):
            st.activation(x, "swiglu_oai", gated="halves", **{name: 0.0})
        with pytest.raises(ValueError, match=f"activation: {name} is 0, expected another number"):
            st.activation_quant(x, "swiglu_oai", gated="halves", **{name: 0.0})
    with pytest.raises(NotImplementedError):
        torch.autograd.grad(torch.autograd.grad(st.silu(x).sum(), x, create_graph=True)[0].sum(), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("quant", ["row", "block"])
def test_activation_quant(device, quant):
    (x,) = draw(device, torch.bfloat16, (5, 512))
    q, scale = st.activation_quant(x, "silu", gated="halves", quant=quant)
    y = F.silu(x[:, :256].double()) * x[:, 256:].double()
    spread = scale[:, None] if quant == "row" else scale.repeat_interleave(128, -1)
    assert ((q.double() * spread.double() - y).abs() <= 0.0626 * y.abs() + 2.0**-10 * spread.double()).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, "i4"])
@pytest.mark.parametrize("per", ["tensor", "row", "block", "block2d", "group"])
def test_quantize_and_back(device, dtype, per):
    torch.manual_seed(7)
    x = torch.randn(130, 200, device=device)
    group = 40 if per == "group" else None
    q, scale = st.quantize(x, dtype, per=per, group=group)
    y = st.dequantize(q, scale, per=per, group=group)
    largest = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344, "i4": 7}[dtype]
    step = {torch.int8: 0.5, torch.float8_e4m3fn: 16, torch.float8_e5m2: 4096, "i4": 0.5}[dtype]
    assert y.shape == x.shape and ((y - x).abs() <= 1.001 * step / largest * x.abs().max()).all()
    if per == "tensor":
        again, same = st.quantize(x, dtype, per="tensor", scale=scale)
        assert same is scale and torch.equal(again.view(torch.uint8), q.view(torch.uint8))
        assert scale.item() == pytest.approx(x.abs().max().item() / largest, rel=1e-6)


def test_quantize_wrong():
    x = torch.randn(4, 32)
    for arguments in ({"per": "column"}, {"per": "group"}, {"per": "row", "group": 32}, {"per": "row", "scale": x[0, 0]}):
        with pytest.raises(ValueError):
            st.quantize(x, **arguments)


@pytest.mark.parametrize("device", DEVICES)
def test_operators(device):
    gate, up, both, bias = draw(device, torch.float32, (3, 16), (3, 16), (3, 32), (32,))
    check = torch.library.opcheck
    check(torch.ops.saker.activation, (gate, None, None, 3, 0, 1.702, 7.0))
    check(torch.ops.saker.activation, (gate, up, bias, 3, 0, 1.702, 7.0))
    check(torch.ops.saker.activation, (both, None, bias, 8, 2, 1.702, 7.0))
    g, u, b, dy = (t.detach() for t in (gate, up, bias, gate))
    check(torch.ops.saker.activation_backward, (dy, g, u, b, 3, 0, 1.702, 7.0, True, True, True))
    check(torch.ops.saker.activation_backward, (dy, g, u, None, 3, 0, 1.702, 7.0, True, False, False))
    check(torch.ops.saker.activation_quant, (g, u, b, 3, 0, 1.702, 7.0, None, 2, torch.int8))
    check(torch.ops.saker.quantize, (g, None, 2, 0, torch.int8))
    check(torch.ops.saker.quantize, (g, None, 5, 8, torch.uint8))
    q, scale = torch.ops.saker.quantize(g, None, 2, 0, torch.int8)
    check(torch.ops.saker.dequantize, (q, scale, 2, 0, 16, torch.float32))


def function(gate, up, bias):
    y = st.swiglu(gate * 2, up) + st.gelu(gate) + st.activation(gate, "tanh", bias=bias)
    return y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_fullgraph(device, backend):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    inputs = draw(device, torch.float32, (5, 32), (5, 32), (32,))
    y, expected = compiled(*inputs), function(*inputs)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    for f, e in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, inputs, dy)):
        torch.testing.assert_close(f, e)
    quant = torch.compile(lambda t: st.dequantize(*st.quantize(t, torch.int8)), fullgraph=True, backend="aot_eager")
    x = inputs[0].detach()
    assert torch.equal(quant(x), st.dequantize(*st.quantize(x, torch.int8)))
