"""saker.torch.cross_entropy beside PyTorch's: values, gradients, options, shapes, opcheck, torch.compile.
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
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def problem(device, dtype, *shape, classes=None, index=torch.int64):
    g = torch.Generator().manual_seed(7)
    x = (3 * torch.randn(shape, generator=g)).to(dtype).to(device)
    classes = classes or (shape[1] if len(shape) > 1 else shape[0])
    lead = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(0, classes, lead, generator=g).to(index)
    if target.dim():
        target.view(-1)[1::3] = -100
    return x, target.to(device)


def reference(x, target, **options):
    x = x.detach().double().requires_grad_()
    weight = options.pop("weight", None)
    loss = F.cross_entropy(x, target.long(), None if weight is None else weight.double(), **options)
    g = torch.ones_like(loss)
    return loss, torch.autograd.grad(loss, x, g)[0]


def close(found, want, dtype):
    tolerance = 2e-6 if dtype == torch.float32 else 2e-3 if dtype == torch.float16 else 1e-2
    torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=tolerance / 10, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_pytorch(device, dtype, reduction, smoothing, weighted):
    x, target = problem(device, dtype, 17, 101)
    options = {"reduction": reduction, "label_smoothing": smoothing}
    if weighted:
        options["weight"] = torch.rand(101, device=device) + 0.5
    want, dwant = reference(x, target, **options)
    x.requires_grad_()
    loss = st.cross_entropy(x, target, **options)
    assert loss.dtype == torch.float32
    close(loss, want, torch.float32)
    loss.backward(torch.ones_like(loss))
    assert x.grad.dtype == dtype
    close(x.grad, dwant, dtype)
    again, dx = st.cross_entropy_and_gradient(x, target, **options)
    torch.testing.assert_close(again, loss.detach())
    close(dx, dwant, dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_shapes(device):
    for shape in ((5,), (4, 9), (2, 6, 3), (2, 6, 3, 5)):
        x, target = problem(device, torch.float32, *shape)
        for reduction in ("none", "mean"):
            want, dwant = reference(x, target, reduction=reduction)
            found = x.clone().requires_grad_()
            loss = st.cross_entropy(found, target, reduction=reduction)
            assert loss.shape == want.shape
            close(loss, want, torch.float32)
            loss.backward(torch.ones_like(loss))
            close(found.grad, dwant, torch.float32)
            close(st.cross_entropy_and_gradient(x, target, reduction=reduction)[1], dwant, torch.float32)
    x, target = problem(device, torch.float32, 6, 8, index=torch.int32)
    close(st.cross_entropy(x, target), reference(x, target)[0], torch.float32)
    wide = torch.randn(6, 20, device=device)[:, 3:11]
    close(st.cross_entropy(wide, target), reference(wide, target)[0], torch.float32)
    close(st.cross_entropy(wide.t().contiguous().t(), target), reference(wide, target)[0], torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts_of_weight(device):
    x, target = problem(device, torch.float32, 6, 8)
    for weight in (torch.rand(16, device=device)[::2], torch.full((1,), 0.5, device=device).expand(8)):
        want, dwant = reference(x, target, weight=weight)
        found = x.clone().requires_grad_()
        loss = st.cross_entropy(found, target, weight)
        close(loss, want, torch.float32)
        close(torch.autograd.grad(loss, found)[0], dwant, torch.float32)
        close(st.cross_entropy_and_gradient(x, target, weight)[1], dwant, torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_options(device):
    x, target = problem(device, torch.float32, 12, 40)
    target = target.clamp(min=0)
    x.requires_grad_()
    cap, z = 5.0, 0.01
    s = cap * torch.tanh(x.double() / cap)
    lse = torch.logsumexp(s, -1)
    want = F.cross_entropy(s, target) + (z * lse.square()).mean() + lse.sum()
    loss, found = st.cross_entropy(x, target, z_loss=z, softcap=cap, return_lse=True)
    close(found, lse, torch.float32)
    (dwant,) = torch.autograd.grad(want, x)
    (dx,) = torch.autograd.grad(loss + found.sum(), x)
    close(loss + found.sum(), want.detach(), torch.float32)
    torch.testing.assert_close(dx, dwant.float(), rtol=1e-5, atol=1e-6)
    _, found = st.cross_entropy(x, target, return_lse=True)  # only lse is used
    (dx,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(dx, torch.softmax(x, -1))


@pytest.mark.parametrize("device", DEVICES)
def test_ignored_and_out_of_range(device):
    x = torch.randn(4, 5, device=device, requires_grad=True)
    nothing = torch.full((4,), -100, device=device)
    loss = st.cross_entropy(x, nothing)
    assert torch.isnan(loss)
    loss.backward()
    assert (x.grad == 0).all()
    zeros = torch.zeros(4, dtype=torch.int64, device=device)
    assert st.cross_entropy(x, zeros, ignore_index=0, reduction="sum") == 0
    saker.check(device)
    bad = torch.tensor([0, 5, -3, 2], device=device)
    loss = st.cross_entropy(x, bad, reduction="none")
    assert loss[1] == 0 and loss[2] == 0 and loss[0] > 0
    with pytest.raises(saker.Error, match="BAD_INDEX|out of range"):
        saker.check(device)
    saker.check(device)


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_and_grad(device):
    x, target = problem(device, torch.float32, 9, 33)
    _, dwant = reference(x, target, reduction="sum")
    y = x.clone()
    loss, dx = st.cross_entropy_and_gradient(y, target, reduction="sum", grad=torch.full((1,), 2.0, device=device), inplace=True)
    assert dx.data_ptr() == y.data_ptr()
    close(dx, 2 * dwant, torch.float32)
    with pytest.raises(ValueError, match="inplace"):
        st.cross_entropy_and_gradient(y.t(), target[:9].repeat(4)[:33] * 0, inplace=True)


def test_wrong_arguments():
    x, target = problem("cpu", torch.float32, 4, 6)
    with pytest.raises(ValueError, match="reduction"):
        st.cross_entropy(x, target, reduction="median")
    with pytest.raises(TypeError, match="probabilities"):
        st.cross_entropy(x, torch.rand(4, 6))
    with pytest.raises(ValueError, match="target"):
        st.cross_entropy(x, target[:3])
    with pytest.raises(saker.Error, match="label_smoothing"):
        st.cross_entropy(x, target, label_smoothing=2.0)
    assert st.cross_entropy(x, target, size_average=False) == st.cross_entropy(x, target, reduction="sum")
    x.requires_grad_()
    (g,) = torch.autograd.grad(st.cross_entropy(x, target), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_opcheck(device, reduction):
    x, target = problem(device, torch.float32, 7, 24)
    weight = torch.rand(24, device=device)
    for w, options in ((None, (0.0, 0.0, 0.0)), (weight, (0.1, 0.01, 5.0))):
        args = (x.clone().requires_grad_(), target, w, reduction, -100, *options)
        torch.library.opcheck(torch.ops.saker.cross_entropy, args)
        loss, lse = torch.ops.saker.cross_entropy(x, *args[1:])
        for dlse in (None, torch.randn_like(lse)):
            torch.library.opcheck(
                torch.ops.saker.cross_entropy_backward, (torch.randn_like(loss), dlse, x, target, w, lse, *args[3:])
            )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(device, backend, dynamic):
    def function(x, target):
        loss, lse = st.cross_entropy(2 * x, target, label_smoothing=0.1, return_lse=True)
        return loss + lse.mean()

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (4, 9) if dynamic else (4,):
        x, target = problem(device, torch.float32, rows, 40)
        x.requires_grad_()
        y, want = compiled(x, target), function(x, target)
        torch.testing.assert_close(y, want)
        torch.testing.assert_close(torch.autograd.grad(y, x)[0], torch.autograd.grad(want, x)[0])
