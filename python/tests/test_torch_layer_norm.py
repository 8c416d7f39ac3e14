"""layer_norm in the PyTorch front: values, gradients, types, the module, opcheck and torch.compile.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
import saker.torch as st  # noqa: E402
from test_torch import DEVICES, doubles, forward_and_gradients, near, tensors, TYPES  # noqa: E402


def reference(x, weight=None, bias=None, eps=1e-5, weight_offset=0.0):
    """The formula in double, differentiable by PyTorch."""
    d = x - x.mean(-1, keepdim=True)
    y = d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + eps) * ((1.0 if weight is None else weight) + weight_offset)
    return y if bias is None else y + bias


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 64), (5, 96), (2, 3, 257), (64,), (30, 7)])
def test_forward_and_gradients(device, dtype, shape):
    forward_and_gradients(st.layer_norm, reference, device, dtype, shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("types", [(2, 0, 0), (0, 2, 1), (2, 2, 2)])
def test_residual_and_mixed_types(device, types):
    x_type, r_type, w_type = (TYPES[i] for i in types)
    (x,), (r,), (w,) = (tensors(device, t, s) for t, s in ((x_type, (6, 128)), (r_type, (6, 128)), (w_type, (128,))))
    y, s = st.layer_norm(x, w, residual=r, weight_offset=1.0, eps=1e-3)
    assert y.dtype == x_type and s.dtype == r_type
    near(s, x.double() + r.double())
    sum2, w2 = doubles(s, w)
    y2 = reference(sum2, w2, eps=1e-3, weight_offset=1.0)  # what is normalised is the rounded sum
    near(y, y2)
    dy, ds = torch.randn_like(y), torch.randn_like(s)
    found = torch.autograd.grad((y, s), (x, r, w), (dy, ds))
    gs, gw = torch.autograd.grad(y2, (sum2, w2), dy.double())
    for f, e, t in zip(found, (gs + ds.double(), gs + ds.double(), gw), (x_type, r_type, w_type)):
        assert f.dtype == t
        near(f, e)
    y, s = st.layer_norm(x, w, residual=r)  # only the sum is used
    dx, dr = torch.autograd.grad(s.sum(), (x, r))
    assert torch.equal(dx, torch.ones_like(x)) and torch.equal(dr, torch.ones_like(r))


@pytest.mark.parametrize("device", DEVICES)
def test_weight_per_head_and_strides(device):
    x, w, b = tensors(device, torch.float32, (4, 6, 32), (6, 32), (6, 32), grad=False)
    near(st.layer_norm(x, w, b), reference(x.double(), w.double(), b.double()))
    w = torch.randn(32, device=device)
    turned = torch.randn(32, 8, device=device).t()
    for t in (x[:, 2], x.transpose(0, 1), x[::2, ::3], x[0, 0].expand(5, 32), turned):
        near(st.layer_norm(t, w), reference(t.double(), w.double()))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_far_from_zero_keep_their_accuracy(device):
    x = 1000 + torch.randn(8, 1000, device=device)
    near(st.layer_norm(x), reference(x.double()))
    assert not st.layer_norm(torch.full((3, 77), 3.7, device=device)).abs().max() > 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_quantised(device, dtype):
    x, w, r = tensors(device, torch.bfloat16, (7, 300), (300,), (7, 300), grad=False)
    step = {torch.int8: 0.51, torch.float8_e4m3fn: 448 * 2.0**-4, torch.float8_e5m2: 57344 * 2.0**-3}[dtype]
    q, scale = st.layer_norm_quant(x, w, dtype=dtype)
    assert q.dtype == dtype and scale.shape == (7,)
    wide = scale.double()[:, None]
    assert ((q.double() * wide - reference(x.double(), w.double())).abs() <= step * wide + 1e-6).all()
    q, scale, s = st.layer_norm_quant(x, w, dtype=dtype, quant="block", residual=r)
    wide = scale.double().repeat_interleave(128, -1)[:, :300]
    assert ((q.double() * wide - reference(s.double(), w.double())).abs() <= step * wide + 1e-6).all()
    with pytest.raises(ValueError, match="quant"):
        st.layer_norm_quant(x, w, quant="tensor")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("affine, bias", [(True, True), (True, False), (False, False)])
def test_module_is_a_drop_in(device, affine, bias):
    ours = st.LayerNorm(48, elementwise_affine=affine, bias=bias, device=device)
    theirs = torch.nn.LayerNorm(48, elementwise_affine=affine, bias=bias, device=device)
    ours.load_state_dict(theirs.state_dict())
    assert isinstance(ours, torch.nn.LayerNorm) and repr(ours) == repr(theirs)
    x = torch.randn(5, 48, device=device)
    near(ours(x), theirs(x))
    if affine:
        ours(x).pow(2).sum().backward()
        theirs(x).pow(2).sum().backward()
        near(ours.weight.grad, theirs.weight.grad)
    with pytest.raises((saker.Error, ValueError)):
        ours(torch.randn(5, 47, device=device))
    with pytest.raises(ValueError, match="normalized_shape"):
        st.LayerNorm((3, 48))


def test_empty_and_errors():
    x, w = tensors("cpu", torch.float32, (0, 16), (16,))
    y = st.layer_norm(x, w)
    dx, dw = torch.autograd.grad(y, (x, w), torch.ones_like(y))
    assert dx.shape == (0, 16) and not dw.any()
    with pytest.raises(saker.Error, match="weight"):
        st.layer_norm(torch.randn(3, 16), torch.ones(15))
    x, w = tensors("cpu", torch.float32, (3, 16), (16,))
    (dx,) = torch.autograd.grad(st.layer_norm(x, w).pow(2).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        torch.autograd.grad(dx.sum(), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_opcheck(device, grad, residual):
    x, r = (torch.randn(5, 3, 48, device=device, requires_grad=grad) for _ in range(2))
    w, b = (torch.randn(48, device=device, requires_grad=grad) for _ in range(2))
    for weight, bias in ((w, b), (w, None), (None, None)):
        args = (x, weight, bias, r if residual else None, 1e-5, 0.0, grad)
        torch.library.opcheck(torch.ops.saker.layer_norm, args)
    if grad:
        return
    _, _, mean, rstd = torch.ops.saker.layer_norm(x, w, b, None, 1e-5, 0.0, True)
    for stats in ((mean, rstd), (None, None)):
        args = (x, x, w, b, *stats, r if residual else None, 1e-5, 0.0, True, True, residual, torch.float32)
        torch.library.opcheck(torch.ops.saker.layer_norm_backward, args)
    args = (x, w, None, r if residual else None, 1e-5, 0.0, None, 2, torch.int8)
    torch.library.opcheck(torch.ops.saker.layer_norm_quant, args)


def function(x, w, b, r):
    y, s = st.layer_norm(torch.nn.functional.silu(x), w, b, residual=r)
    return st.layer_norm(y * 2, w) + s


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(device, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (4, 9) if dynamic else (4,):
        inputs = [torch.randn(s, device=device, requires_grad=True) for s in ((rows, 64), (64,), (64,), (rows, 64))]
        y, expected = compiled(*inputs), function(*inputs)
        torch.testing.assert_close(y, expected)
        dy = torch.randn_like(y)
        for f, e in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, inputs, dy)):
            torch.testing.assert_close(f, e)
