"""What the PyTorch fronts share: versions of what is written in place, meta tensors among others, autocast.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

from torch.autograd import forward_ad  # noqa: E402
from torch.func import jvp  # noqa: E402

import saker  # noqa: E402
import saker.torch as st  # noqa: E402


def adamw(p):
    st.adamw_(p, *(torch.rand_like(p) for _ in range(3)), step=1)


def optimizer(p):
    p.grad = torch.ones_like(p)
    st.AdamW([p], max_norm=1.0).step()


def cross_entropy(p):
    st.cross_entropy_and_gradient(p.view(-1, 8), torch.zeros(p.numel() // 8, dtype=torch.long), inplace=True)


WRITERS = {
    "rope": lambda h: st.rope(h, inplace=True),
    "rope k": lambda h: st.rope(torch.randn(1, 3, 2, 8), h, inplace=True),
    "sum_squares_": lambda h: st.sum_squares_(h.view(-1)[:1], torch.ones(4)),
    "adamw_": adamw,
    "AdamW": optimizer,
    "cross_entropy": cross_entropy,
}


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("name", WRITERS)
def test_autograd_sees_what_is_written_in_place(name):
    h = torch.randn(1, 3, 2, 8).requires_grad_()
    y = h.square().sum()
    before = h._version
    with torch.no_grad():
        WRITERS[name](h)
    assert h._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("name", WRITERS)
def test_a_refused_call_writes_nothing_and_counts_nothing(name):
    h = torch.randn(1, 3, 2, 8, dtype=torch.float64)
    with pytest.raises(saker.Error):
        WRITERS[name](h)
    assert h._version == 0


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "AdamW"])
def test_inference_tensors_have_no_version(name):
    with torch.inference_mode():
        h = torch.randn(1, 3, 2, 8)
        before = h.clone()
        WRITERS[name](h)
        assert not torch.equal(h, before)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_versions_under_compile(backend):
    torch._dynamo.reset()
    x = torch.randn(1, 3, 2, 8)
    h, expected = x.clone(), st.rope(x)
    with torch.no_grad():
        torch.compile(lambda t: st.rope(t, inplace=True), fullgraph=True, backend=backend)(h)
    assert h._version > 0 and torch.equal(h, expected)


def test_fake_tensors_have_versions_too():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        h = torch.empty(1, 3, 2, 8)
        st.rope(h, inplace=True)
    assert h._version > 0
    with FakeTensorMode():
        out = torch.empty(1)
        torch.ops.saker.sum_squares_(torch.empty(4), accumulate=True, out=out)  # by name
    assert out._version > 0


def test_opcheck_of_what_writes():
    h = torch.randn(1, 3, 2, 8)
    numbers = [10000.0, 1.0, 0.0, 32.0, 1.0, 1.0, 4.0, 0.0, 0.0]
    torch.library.opcheck(torch.ops.saker.rope_, (h, h.clone(), *[None] * 7, [0, 0], numbers, [0, 0, 0, 0, 0]))
    torch.library.opcheck(torch.ops.saker.sum_squares_, (h, torch.ones(1), True))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_forward_mode_in_place_is_refused():
    x = torch.randn(1, 3, 2, 8)
    with forward_ad.dual_level():
        assert torch.equal(st.rope(x.clone(), inplace=True), st.rope(x))  # without a tangent there is nothing to refuse
        for given in ((x, None), (torch.randn_like(x), x)):
            q, k = (t if t is None or t is not x else forward_ad.make_dual(t.clone(), t) for t in given)
            with pytest.raises(NotImplementedError, match="forward derivative"):
                st.rope(q, k, inplace=True)
            assert torch.equal(forward_ad.unpack_dual(q if k is None else k).primal, x)
    with pytest.raises(RuntimeError, match="jvp|forward"):
        jvp(lambda t: st.rope(t.clone(), inplace=True), (x,), (x,))


# ---------------------------------------------------------------- meta tensors

X = torch.randn(4, 16)
HEADS = torch.randn(1, 3, 2, 8)
META = torch.device("meta")
MIXED = {  # one of the tensors is meta, another is not
    "LayerNorm": lambda: st.LayerNorm(16, device=META)(X),
    "RMSNorm": lambda: st.RMSNorm(16, device=META)(X),
    "rms_norm of meta": lambda: st.rms_norm(X.to(META), torch.ones(16)),
    "rms_norm_quant": lambda: st.rms_norm_quant(X, torch.ones(16, device=META)),
    "Linear": lambda: st.Linear(16, 8, device=META)(X),
    "linear of meta": lambda: st.linear(X.to(META), torch.randn(8, 16)),
    "matmul": lambda: st.matmul(X, X.T.to(META)),
    "attention": lambda: st.attention(HEADS, HEADS.to(META), HEADS),
    "attention bias": lambda: st.attention(HEADS, HEADS, HEADS, bias=torch.zeros(3, 3, device=META)),
    "scaled_dot_product_attention": lambda: st.scaled_dot_product_attention(HEADS, HEADS, HEADS.to(META)),
    "swiglu": lambda: st.swiglu(X, X.to(META)),
    "rope": lambda: st.rope(HEADS, HEADS.to(META)),
    "rope in place": lambda: st.rope(HEADS.clone(), HEADS.to(META), inplace=True),
    "softmax": lambda: st.softmax(X, mask=X.to(META)),
    "softmax of meta": lambda: st.softmax(X.to(META), mask=X),
    "cross_entropy": lambda: st.cross_entropy(X, torch.zeros(4, dtype=torch.long, device=META)),
    "linear_cross_entropy": lambda: st.linear_cross_entropy(X, X.to(META), torch.zeros(4, dtype=torch.long)),
    "embedding": lambda: st.embedding(torch.tensor([1]), X.to(META)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_meta_tensors_among_others_are_refused(name, grad):
    with torch.set_grad_enabled(grad), pytest.raises(saker.Error, match="meta") as caught:
        MIXED[name]()
    assert caught.value.name == "INVALID_ARG" and caught.value.sentence == str(caught.value)


def test_meta_and_fake_tensors_alone_have_shapes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with META:
        assert st.LayerNorm(16)(torch.empty(4, 16)).shape == (4, 16)
        assert st.RMSNorm(16)(torch.empty(4, 16)).is_meta
        assert st.Linear(16, 8)(torch.empty(4, 16)).shape == (4, 8)
    with FakeTensorMode():
        y = st.LayerNorm(16)(torch.empty(4, 16))
        assert y.shape == (4, 16) and y.device.type == "cpu"


# ---------------------------------------------------------------- autocast


@pytest.mark.parametrize("x_type", [torch.float32, torch.bfloat16])
def test_linear_and_matmul_under_autocast(x_type):
    layer = st.Linear(16, 8)
    x = torch.randn(4, 16).to(x_type)
    with torch.autocast("cpu", torch.bfloat16):
        expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
        y = layer(x)
        product = st.matmul(x, layer.weight.T)
        assert st.matmul(X.double().to(torch.int8), X.T.to(torch.int8)).dtype == torch.int32
        compiled = torch.compile(layer, fullgraph=True, backend="eager")(x)
    assert y.dtype == product.dtype == compiled.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(product + layer.bias.bfloat16(), expected, atol=2e-2, rtol=2e-2)
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32 and layer.bias.grad.dtype == torch.float32
