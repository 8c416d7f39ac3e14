"""The PyTorch front: values, gradients, types, strides, modules, transforms. CUDA rows run where there is a GPU.
SPDX-License-Identifier: Apache-2.0
"""
import threading

import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def reference(x, weight=None, bias=None, residual=None, eps=1e-6, weight_offset=0.0):
    """The formula in double, differentiable by PyTorch."""
    s = x if residual is None else x + residual
    w = 1.0 if weight is None else weight
    y = s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + eps) * (w + weight_offset)
    return y if bias is None else y + bias


def close(found, expected, scale=1.0):
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    assert found.shape == expected.shape
    if not found.numel():
        return True
    return (found - expected).abs().max().item() <= scale * max(1.0, expected.abs().max().item())


def near(found, expected, factor=4.0):
    """Within a few roundings of found's type, relative to the largest value."""
    assert close(found, expected, factor * max(ROUNDING[found.dtype], 2.0**-20)), (found, expected)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def tensors(device, dtype, *shapes, grad=True):
    return [torch.randn(s, device=device).to(dtype).requires_grad_(grad) for s in shapes]


def doubles(*ts):
    return [None if t is None else t.detach().double().requires_grad_() for t in ts]


def forward_and_gradients(norm, formula, device, dtype, shape):
    """norm(x, w, b) against the formula in double, with gradients and without."""
    x, w, b = tensors(device, dtype, shape, shape[-1:], shape[-1:])
    if shape[-1] == 1:  # near 0 the gradient of a row of one element is the rounding of two large terms that cancel
        x = (x + x.sign()).detach().requires_grad_()
    y = norm(x, w, b)
    assert y.dtype == dtype and y.shape == x.shape and y.requires_grad
    x2, w2, b2 = doubles(x, w, b)
    y2 = formula(x2, w2, b2)
    near(y, y2)
    dy = torch.randn_like(y)
    want = torch.autograd.grad(y2, (x2, w2, b2), dy.double())
    for found, expected in zip(torch.autograd.grad(y, (x, w, b), dy), want):
        assert found.dtype == dtype
        near(found, expected)
    with torch.no_grad():
        plain = norm(x, w, b)
    assert not plain.requires_grad and torch.equal(plain, y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 64), (5, 96), (2, 3, 257), (64,), (300, 1)])
def test_forward_and_gradients(device, dtype, shape):
    forward_and_gradients(st.rms_norm, reference, device, dtype, shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("types", [(2, 0, 0), (0, 2, 1), (2, 2, 2)])
def test_residual_and_mixed_types(device, types):
    x_type, r_type, w_type = (TYPES[i] for i in types)
    (x,), (r,), (w,) = (tensors(device, t, s) for t, s in ((x_type, (6, 128)), (r_type, (6, 128)), (w_type, (128,))))
    y, s = st.rms_norm(x, w, residual=r, weight_offset=1.0, eps=1e-5)
    assert y.dtype == x_type and s.dtype == r_type
    x2, r2, w2 = doubles(x, r, w)
    s2 = x2 + r2
    near(s, s2)
    y2 = reference(s.detach().double(), w2, eps=1e-5, weight_offset=1.0)  # what is normalised is the rounded sum
    near(y, y2)
    dy, ds = torch.randn_like(y), torch.randn_like(s)
    found = torch.autograd.grad((y, s), (x, r, w), (dy, ds))
    sum2 = s.detach().double().requires_grad_()
    gs, gw = torch.autograd.grad(reference(sum2, w2, eps=1e-5, weight_offset=1.0), (sum2, w2), dy.double())
    for f, e, t in zip(found, (gs + ds.double(), gs + ds.double(), gw), (x_type, r_type, w_type)):
        assert f.dtype == t
        near(f, e)


@pytest.mark.parametrize("device", DEVICES)
def test_only_some_gradients(device):
    x, r, w, b = tensors(device, torch.float32, (4, 32), (4, 32), (32,), (32,))
    everything = {"x": x, "weight": w, "bias": b, "residual": r}
    full = torch.autograd.grad(sum(t.sum() for t in st.rms_norm(x, w, b, residual=r)), list(everything.values()))
    for i, (name, t) in enumerate(everything.items()):
        args = {k: v if k == name else v.detach() for k, v in everything.items()}
        y, s = st.rms_norm(**args)
        (one,) = torch.autograd.grad(y.sum() + s.sum(), t) if s.requires_grad else torch.autograd.grad(y.sum(), t)
        if device == "cpu":
            assert torch.equal(one, full[i])
        else:  # fewer outputs may mean another kernel
            near(one, full[i])
    # Only the sum is used, or only y.
    y, s = st.rms_norm(x, w, b, residual=r)
    dx, dw, dr = torch.autograd.grad(s.sum(), (x, w, r), allow_unused=True)
    assert torch.equal(dx, torch.ones_like(x)) and torch.equal(dr, dx) and (dw is None or not dw.any())
    dx, dr = torch.autograd.grad(st.rms_norm(x, w, b, residual=r)[0].sum(), (x, r))
    assert torch.equal(dx, dr)


def test_gradients_of_x_and_residual_do_not_share_memory():
    x, r = tensors("cpu", torch.float32, (4, 32), (4, 32))
    y, s = st.rms_norm(x, residual=r)
    (y.sum() + s.sum()).backward()
    held = r.grad.clone()
    x.grad.zero_()
    assert torch.equal(r.grad, held)


def test_finite_differences():
    x, w, b, r = tensors("cpu", torch.float32, (2, 8), (8,), (8,), (2, 8), grad=False)
    inputs = [t.requires_grad_() for t in (x, w, b, r)]
    dy, ds = torch.randn(2, 8), torch.randn(2, 8)

    def loss(*values):
        s = values[0] + values[3]
        return (reference(s, values[1], values[2]) * dy.double()).sum() + (s * ds.double()).sum()

    y, s = st.rms_norm(x, w, b, residual=r)
    found = torch.autograd.grad((y, s), inputs, (dy, ds))
    h = 1e-6
    values = [t.detach().double() for t in inputs]
    for i, gradient in enumerate(found):
        for k in range(gradient.numel()):
            up, down = ([v.clone() for v in values] for _ in range(2))
            up[i].view(-1)[k] += h
            down[i].view(-1)[k] -= h
            expected = (loss(*up) - loss(*down)).item() / (2 * h)
            assert gradient.view(-1)[k].item() == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_weight_per_head(device):
    x, w, b = tensors(device, torch.float32, (4, 6, 32), (6, 32), (6, 32))
    y = st.rms_norm(x, w, b)
    x2, w2, b2 = doubles(x, w, b)
    near(y, reference(x2, w2, b2))
    dy = torch.randn_like(y)
    want = torch.autograd.grad(reference(x2, w2, b2), (x2, w2, b2), dy.double())
    for f, e in zip(torch.autograd.grad(y, (x, w, b), dy), want):
        near(f, e)


@pytest.mark.parametrize("device", DEVICES)
def test_strides(device):
    base = torch.randn(8, 6, 64, device=device)
    w = torch.randn(64, device=device)
    for x in (base[:, 2], base.transpose(0, 1), base[::2, ::3], base.expand(2, 8, 6, 64), base[0, 0].expand(5, 64)):
        near(st.rms_norm(x, w), reference(x.double(), w.double()))
    turned = torch.randn(64, 8, device=device).t()  # the last dimension is not contiguous: copied
    assert st.rms_norm(turned, w).is_contiguous()
    near(st.rms_norm(turned, w), reference(turned.double(), w.double()))
    near(st.rms_norm(base, torch.randn(64, 2, device=device)[:, 0].copy_(w)), reference(base.double(), w.double()))
    imaginary = torch.randn(8, 64, dtype=torch.complex64, device=device).conj().imag
    assert imaginary.is_neg()
    near(st.rms_norm(imaginary, w), reference(imaginary.double(), w.double()))


def test_negated_views_of_any_stride():
    x, w = torch.randn(8, 64), torch.randn(64)
    pairs = torch.randn(8, 32, dtype=torch.complex64).conj().imag.as_strided((8, 64), (64, 1), 0)  # real parts as well
    for view in (torch._neg_view(x), pairs):
        assert view.is_neg() and view.is_contiguous()
        plain = view.resolve_neg()
        for call in (
            lambda t: st.rms_norm(t, w),
            lambda t: st.rms_norm(x, t[0]),
            lambda t: st.rms_norm(t.detach().requires_grad_(), w),
            st.softmax,
            lambda t: st.softmax(x, mask=t),
            st.layer_norm,
            lambda t: st.rope(t.view(1, 8, 1, 64)),
            lambda t: st.rope(torch.ones(1, 8, 1, 64), t.clone().view(1, 8, 1, 64), inplace=True)[1],
        ):
            assert torch.equal(call(view), call(plain))
        with pytest.raises(saker.Error, match="x is a lazily negated view"):
            saker.rms_norm(view, y=torch.empty_like(x))


@pytest.mark.parametrize("device", DEVICES)
def test_strided_gradients(device):
    x, w = tensors(device, torch.float32, (6, 64), (64,))
    want = torch.autograd.grad(st.rms_norm(x, w), (x, w), torch.ones(6, 64, device=device))
    one = torch.ones((), device=device)
    turned = torch.ones(64, 6, device=device).t()
    for dy in (one.expand(6, 64), turned, torch.ones(6, 128, device=device)[:, ::2]):
        for f, e in zip(torch.autograd.grad(st.rms_norm(x, w), (x, w), dy), want):
            assert torch.equal(f, e)
    y, s = st.rms_norm(x, w, residual=x.detach())
    found = torch.autograd.grad((y, s), (x, w), (turned, one.expand(6, 64)))
    y, s = st.rms_norm(x, w, residual=x.detach())
    for f, e in zip(found, torch.autograd.grad((y, s), (x, w), (turned.contiguous(), turned.contiguous()))):
        assert torch.equal(f, e)
    (dx,) = torch.autograd.grad(st.rms_norm(x.t().contiguous().t(), w).sum(), x)
    assert torch.equal(dx, want[0])


def test_empty():
    for shape in ((0, 16), (4, 0, 16)):
        x, w = tensors("cpu", torch.float32, shape, (16,))
        y = st.rms_norm(x, w)
        dx, dw = torch.autograd.grad(y, (x, w), torch.ones_like(y))
        assert dx.shape == shape and not dw.any()
    assert st.rms_norm(torch.zeros(3, 0)).shape == (3, 0)
    assert st.rms_norm(torch.zeros(3, 0, requires_grad=True)).shape == (3, 0)


def test_eps_none_and_zero_are_as_in_torch():
    for dtype in TYPES:
        x = (torch.randn(4, 32) * 1e-3).to(dtype)
        near(st.rms_norm(x, eps=None), torch.nn.functional.rms_norm(x, (32,)).double())
    x = torch.randn(4, 32) * 1e-6
    near(st.rms_norm(x, eps=0), torch.nn.functional.rms_norm(x, (32,), eps=0.0).double())
    assert not st.rms_norm(torch.zeros(2, 8), eps=0.0).any()


def test_round_before_weight():
    x, w = tensors("cpu", torch.bfloat16, (32, 128), (128,), grad=False)
    h = (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(torch.bfloat16)
    assert close(st.rms_norm(x, w, round_before_weight=True), (h.float() * w.float()).to(torch.bfloat16), 2.0**-7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_quantised(device, dtype):
    x, w, r = tensors(device, torch.bfloat16, (7, 300), (300,), (7, 300), grad=False)
    expected = reference(x.double(), w.double())
    step = {torch.int8: 0.51, torch.float8_e4m3fn: 448 * 2.0**-4, torch.float8_e5m2: 57344 * 2.0**-3}[dtype]
    q, scale = st.rms_norm_quant(x, w, dtype=dtype)
    assert q.dtype == dtype and scale.shape == (7,)
    assert ((q.double() * scale.double()[:, None] - expected).abs() <= step * scale.double()[:, None] + 1e-6).all()
    q, scale, s = st.rms_norm_quant(x, w, dtype=dtype, quant="block", residual=r)
    assert scale.shape == (7, 3) and s.dtype == r.dtype
    wide = scale.double().repeat_interleave(128, -1)[:, :300]
    assert ((q.double() * wide - reference(s.double(), w.double())).abs() <= step * wide + 1e-6).all()
    given = torch.full((1,), 0.05, device=device)
    q, scale = st.rms_norm_quant(x, w, dtype=dtype, quant="tensor", scale=given)
    assert scale is given
    with pytest.raises(ValueError, match="quant"):
        st.rms_norm_quant(x, w, quant="tensor")
    with pytest.raises(ValueError, match="quant"):
        st.rms_norm_quant(x, w, scale=given)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("affine", [True, False])
def test_module_is_a_drop_in(device, affine):
    ours = st.RMSNorm(48, eps=1e-5, elementwise_affine=affine, device=device, dtype=torch.float32)
    theirs = torch.nn.RMSNorm(48, eps=1e-5, elementwise_affine=affine, device=device, dtype=torch.float32)
    ours.load_state_dict(theirs.state_dict())
    assert isinstance(ours, torch.nn.RMSNorm) and repr(ours) == repr(theirs)
    if affine:
        with torch.no_grad():
            for m in (ours, theirs):
                m.weight.copy_(torch.linspace(-1, 1, 48))
    x = torch.randn(5, 48, device=device)
    near(ours(x), theirs(x))
    if affine:
        ours(x).sum().backward()
        theirs(x).sum().backward()
        near(ours.weight.grad, theirs.weight.grad)
    with pytest.raises((saker.Error, ValueError)):
        ours(torch.randn(5, 47, device=device))
    with pytest.raises(ValueError, match="normalized_shape"):
        st.RMSNorm((3, 48))


def test_autocast():
    x, w = tensors("cpu", torch.float32, (4, 32), (32,))
    with torch.autocast("cpu", torch.bfloat16):
        h = torch.nn.functional.linear(x, torch.eye(32))
        y = st.rms_norm(h, w)
        assert h.dtype == y.dtype == torch.bfloat16
        y.float().sum().backward()
    assert x.grad.dtype == w.grad.dtype == torch.float32


def test_training_step_lowers_the_loss():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), st.RMSNorm(32), torch.nn.Linear(32, 4))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    x, target = torch.randn(64, 16), torch.randn(64, 4)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.mse_loss(model(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_second_order_is_refused_clearly():
    x, w = tensors("cpu", torch.float32, (3, 16), (16,))
    dx, dw = torch.autograd.grad(st.rms_norm(x, w).pow(2).sum(), (x, w), create_graph=True)
    near(dx, torch.autograd.grad(reference(x.double(), w.double()).pow(2).sum(), x)[0])
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        torch.autograd.grad(dx.sum(), x)


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:.*torch.jit.script")
def test_forward_mode_and_transforms_are_never_silently_wrong():
    x, w = torch.randn(3, 16), torch.randn(16)
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="jvp|forward"):
            st.rms_norm(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)), w)
    with pytest.raises(RuntimeError):
        torch.func.jvp(lambda t: st.rms_norm(t, w), (x,), (torch.ones_like(x),))
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        torch.func.grad(lambda u: torch.func.grad(lambda t: st.rms_norm(t, w).pow(3).sum())(u).sum())(x)
    grad, vmap = torch.func.grad, torch.func.vmap
    assert torch.equal(vmap(lambda t: st.rms_norm(t, w))(x), st.rms_norm(x, w))
    for argument in (0, 1):
        def ours(a, b):
            return st.rms_norm(a, b).pow(3).sum()

        def theirs(a, b):
            return reference(a, b).pow(3).sum()

        near(grad(ours, argument)(x, w), grad(theirs, argument)(x.double(), w.double()))
        each = vmap(grad(ours, argument), (0, None))(x, w)
        near(each, vmap(grad(theirs, argument), (0, None))(x.double(), w.double()))


def test_errors_carry_code_and_sentence():
    x = torch.randn(3, 16)
    for call, name, word in (
        (lambda: st.rms_norm(x, torch.ones(15)), "INVALID_ARG", "weight"),
        (lambda: st.rms_norm(x, residual=torch.ones(3, 15)), "INVALID_ARG", "residual"),
        (lambda: st.rms_norm(x.double()), "UNSUPPORTED", "x"),
        (lambda: st.rms_norm(x, eps=-1.0), "INVALID_ARG", "eps"),
        (lambda: st.rms_norm(torch.ones(())), "INVALID_ARG", "x"),
        (lambda: st.rms_norm(torch.ones((), requires_grad=True)), "INVALID_ARG", "x"),
        (lambda: st.rms_norm(x.requires_grad_(), torch.ones(15)), "INVALID_ARG", "weight"),
    ):
        with pytest.raises(saker.Error, match=word) as caught:
            call()
        assert caught.value.name == name and "\n" not in caught.value.sentence


def test_odd_tensors_give_exceptions_only():
    odd = [
        torch.eye(16)[:3].to_sparse(),
        torch.ones(3, 16, dtype=torch.complex64),
        torch.ones(3, 16, dtype=torch.int64),
        torch.ones(3, 16).to_mkldnn() if torch.backends.mkldnn.is_available() else None,
        torch._efficientzerotensor(3, 16),
        "text", 3, None, [1.0], object(),
    ]  # fmt: skip
    y = torch.zeros(3, 16)
    for x in odd:
        calls = [lambda: st.rms_norm(x), lambda: saker.rms_norm(x, y=y)]
        for call in calls if x is None else calls + [lambda: st.rms_norm(y, x)]:
            with pytest.raises(Exception) as caught:
                call()
            assert isinstance(caught.value, (saker.Error, TypeError, RuntimeError, AttributeError, NotImplementedError))
    assert not y.any()
    freed = torch.ones(3, 16)
    freed.untyped_storage().resize_(0)
    with pytest.raises(saker.Error, match="x"):
        st.rms_norm(freed)
    meta = st.rms_norm(torch.ones(3, 16, device="meta"))  # shapes only
    assert meta.device.type == "meta" and meta.shape == (3, 16)
    x = torch.ones(3, 16, device="meta", requires_grad=True)
    st.rms_norm(x, torch.ones(16, device="meta")).sum().backward()
    assert x.grad.shape == x.shape


def test_subclass_goes_through_the_operator():
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return super().__torch_function__(function, types, args, kwargs or {})

    y = st.rms_norm(torch.ones(3, 16).as_subclass(Watched))
    assert isinstance(y, Watched) and any("saker" in name for name in seen)


def test_dispatch_modes_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Watch():
        st.rms_norm(torch.ones(3, 16, requires_grad=True)).sum().backward()
    assert any("saker.rms_norm.default" in name for name in seen) and any("rms_norm_backward" in name for name in seen)


def test_generic_call_takes_tensors_of_torch():
    x = torch.randn(3, 16, requires_grad=True)
    y = torch.empty(3, 16)
    assert saker.rms_norm(x, y=y) is y
    near(y, reference(x.double()))
    import numpy

    mixed = numpy.empty((3, 16), numpy.float32)
    saker.rms_norm(x, y=mixed)
    assert torch.equal(torch.from_numpy(mixed), y)


def test_threads_use_their_own_contexts():
    x, w = tensors("cpu", torch.float32, (64, 256), (256,))
    expected = torch.autograd.grad(st.rms_norm(x, w).sum(), (x, w))
    wrong = []

    def work():
        for _ in range(20):
            found = torch.autograd.grad(st.rms_norm(x, w).sum(), (x, w))
            wrong.extend(not torch.equal(f, e) for f, e in zip(found, expected))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not any(wrong)


# ---------------------------------------------------------------- CUDA only


@NO_CUDA
def test_streams_and_graphs():
    x, w = tensors("cuda", torch.bfloat16, (512, 1024), (1024,), grad=False)
    expected = st.rms_norm(x, w)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        for _ in range(10):
            y = st.rms_norm(x, w)
    side.synchronize()
    assert torch.equal(y, expected)

    x.requires_grad_()
    w.requires_grad_()
    dy = torch.randn_like(x)
    want = torch.autograd.grad(st.rms_norm(x, w), (x, w), dy)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = st.rms_norm(x, w)
        dx, dw = torch.autograd.grad(y, (x, w), dy)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, expected) and torch.equal(dx, want[0]) and torch.equal(dw, want[1])
    with torch.no_grad():
        x.mul_(-2)
    graph.replay()
    torch.cuda.synchronize()
    near(y, reference(x.double(), w.double()))


@NO_CUDA
def test_devices_must_agree():
    x = torch.randn(3, 16, device="cuda")
    with pytest.raises(saker.Error, match="weight") as caught:
        st.rms_norm(x, torch.ones(16))
    assert caught.value.name == "INVALID_ARG"
    assert saker.info()["cuda"]
    st.rms_norm(x)
    assert saker.kernel("cuda").startswith("rms_norm/")
    saker.check("cuda")


@NO_CUDA
def test_cuda_and_cpu_agree():
    x, w = tensors("cpu", torch.float32, (100, 777), (777,), grad=False)
    near(st.rms_norm(x.cuda(), w.cuda()), reference(x.double(), w.double()))
