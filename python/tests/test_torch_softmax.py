"""saker.torch.softmax and log_softmax against PyTorch in double: results, gradients, masks, opcheck, torch.compile.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]
TYPES = [torch.float32, torch.float16, torch.bfloat16]


def reference(x, dim, scale, mask, causal, log):
    s = scale * x
    if mask is not None:
        s = s + mask
    if causal:
        q, k = x.shape[-2:]
        s = s.masked_fill(~torch.ones(q, k, dtype=torch.bool, device=x.device).tril(k - q), -torch.inf)
    return torch.log_softmax(s, dim) if log else torch.softmax(s, dim)


def function(log):
    return st.log_softmax if log else st.softmax


def check(found, expected, dtype):
    tolerance = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dim", [-1, 1, 0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients(device, dtype, log, dim, masked, causal):
    if causal and dim == 0:
        pytest.skip("whole columns are unseen: PyTorch gives NaN there")
    torch.manual_seed(1)
    x = torch.randn(3, 12, 40, device=device).to(dtype).requires_grad_()
    mask = torch.randn(12, 40, device=device).requires_grad_() if masked else None
    exact = x.detach().double().requires_grad_()
    exact_mask = mask.detach().double().requires_grad_() if masked else None
    y = function(log)(x, dim, scale=0.7, mask=mask, causal=causal)
    want = reference(exact, dim, 0.7, exact_mask, causal, log)
    assert y.dtype == dtype
    check(y, want, dtype)
    dy = torch.randn(y.shape, device=device).to(dtype)
    if causal and log:
        dy = dy.masked_fill(torch.isinf(y), 0)
    inputs, exact_inputs = ([x, mask], [exact, exact_mask]) if masked else ([x], [exact])
    for g, e in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(want, exact_inputs, dy.double())):
        torch.testing.assert_close(g.double(), e, rtol=5e-2, atol=5e-2 if dtype == torch.bfloat16 else 1e-2)
        assert g.dtype in (dtype, torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_see_nothing(device):
    x = torch.full((2, 5), -torch.inf, device=device)
    x[1, 2] = 0
    assert torch.equal(st.softmax(x)[0], torch.zeros(5, device=device))
    assert torch.equal(st.softmax(x)[1], torch.tensor([0.0, 0, 1, 0, 0], device=device))
    assert (st.log_softmax(x)[0] == -torch.inf).all()
    x[0, 0] = torch.nan
    assert st.softmax(x)[0].isnan().all() and not st.softmax(x)[1].isnan().any()
    tall = torch.randn(6, 3, device=device)  # three rows above the diagonal of a causal mask
    assert not st.softmax(tall, causal=True)[:3].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [-1, 2, 0])
@pytest.mark.parametrize("shape", [(2, 1, 2, 1, 2, 5), (1, 3, 1, 3, 1, 5), (2, 1, 2, 1), (2, 3, 2, 1, 1, 5), (5,)])
def test_masks_repeated_in_many_places(device, dim, shape):
    x = torch.randn(2, 3, 2, 3, 2, 5, device=device)
    mask = torch.randn(shape, device=device, requires_grad=True)
    exact = mask.detach().double().requires_grad_()
    y, want = st.softmax(x, dim, mask=mask), torch.softmax(x.double() + exact, dim)
    check(y, want, torch.float32)
    dy = torch.randn_like(y)
    check(torch.autograd.grad(y, mask, dy)[0], torch.autograd.grad(want, exact, dy.double())[0], torch.float32)
    strided = torch.randn(3, 3, 2, 2, 2, 5, device=device).transpose(0, 3)
    check(st.softmax(strided, dim, mask=mask), torch.softmax(strided.double() + exact, dim), torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts_types_and_arguments(device):
    x = torch.randn(4, 6, 10, device=device)
    for view in (x.transpose(0, 2), x[:, ::2], x.expand(2, 4, 6, 10), x[..., 0], torch.randn((), device=device)):
        dim = min(1, max(view.dim() - 1, 0))
        check(st.softmax(view, dim), torch.softmax(view.double(), dim), torch.float32)
    y = st.softmax(x.bfloat16(), dtype=torch.float32)
    assert y.dtype == torch.float32
    check(y, torch.softmax(x.bfloat16().double(), -1), torch.float32)
    assert st.softmax(x[:0]).shape == (0, 6, 10)
    with pytest.raises(IndexError, match="dim is 3"):
        st.softmax(x, 3)
    with pytest.raises(ValueError, match="scale is 0"):
        st.softmax(x, scale=0)
    with pytest.raises(saker.Error, match="mask has shape"):
        st.softmax(x, mask=torch.zeros(7, device=device))
    with pytest.raises(saker.Error, match="causal is 1"):
        st.softmax(x[0, 0], causal=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_opcheck(device, grad, masked, log):
    x = torch.randn(3, 7, 16, device=device, requires_grad=grad)
    mask = torch.randn(16, device=device, requires_grad=grad) if masked else None
    torch.library.opcheck(torch.ops.saker.softmax, (x, mask, 1, 0.5, False, log, torch.float32))
    y = torch.softmax(x.detach(), 1)
    args = (torch.randn(3, 7, 16, device=device), y, 1, 0.5, False, log, torch.float32)
    torch.library.opcheck(torch.ops.saker.softmax_backward, args)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(device, backend, dynamic):
    torch._dynamo.reset()

    def f(x, m):
        return st.softmax(x * 2, 1, scale=0.5, mask=m, causal=True) + st.log_softmax(torch.sin(x))

    compiled = torch.compile(f, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (4, 9) if dynamic else (4,):
        inputs = [torch.randn(s, device=device, requires_grad=True) for s in ((rows, 5, 8), (5, 8))]
        y, expected = compiled(*inputs), f(*inputs)
        torch.testing.assert_close(y, expected)
        dy = torch.randn_like(y)
        for g, e in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, inputs, dy)):
            torch.testing.assert_close(g, e)


def test_no_second_order_and_checkpoint():
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, 32, requires_grad=True)
    (g,) = torch.autograd.grad(st.softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        g.sum().backward()
    weights = torch.randn(3, 32)
    expected = torch.autograd.grad((st.softmax(x) * weights).sum(), x)
    found = torch.autograd.grad((checkpoint(st.softmax, x, use_reentrant=False) * weights).sum(), x)
    assert torch.equal(found[0], expected[0])


def test_numpy_front():
    numpy = pytest.importorskip("numpy")
    x = numpy.random.default_rng(1).standard_normal((4, 9)).astype("float32")
    y = saker.softmax(x, dim_from_last=1)
    expected = torch.softmax(torch.from_numpy(x).double(), 0).numpy()
    numpy.testing.assert_allclose(y, expected, rtol=1e-6)
