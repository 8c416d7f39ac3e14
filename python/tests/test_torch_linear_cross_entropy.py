"""saker.torch.linear_cross_entropy beside PyTorch's linear and cross_entropy: values, gradients, options, torch.compile.
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


def problem(device, dtype, lead=(17,), h=24, v=101, index=torch.int64):
    g = torch.Generator().manual_seed(7)
    x = torch.randn((*lead, h), generator=g).to(dtype).to(device).requires_grad_()
    weight = (torch.randn((v, h), generator=g) / 4).to(dtype).to(device).requires_grad_()
    bias = torch.randn(v, generator=g).to(dtype).to(device).requires_grad_()
    target = torch.randint(0, v, lead, generator=g).to(index)
    if target.dim():
        target.view(-1)[1::3] = -100
    return x, weight, target.to(device), bias


def reference(x, weight, target, bias=None, dloss=None, softcap=0.0, z_loss=0.0, class_weight=None, **options):
    """The loss and its gradients in double."""
    leaves = [t.detach().double().requires_grad_() for t in (x, weight, bias) if t is not None]
    logits = F.linear(*leaves)
    logits = logits.reshape(-1, logits.shape[-1])
    s = softcap * torch.tanh(logits / softcap) if softcap else logits
    flat = target.reshape(-1).long()
    loss = F.cross_entropy(s, flat, None if class_weight is None else class_weight.double(), **options)
    if z_loss:
        z = z_loss * torch.logsumexp(s, -1).square() * (flat != -100)
        loss = loss + (z.sum() / (flat != -100).sum() if options.get("reduction", "mean") == "mean" else z.sum())
    loss = loss.reshape(target.shape) if options.get("reduction") == "none" else loss
    return loss.detach(), torch.autograd.grad(loss, leaves, torch.ones_like(loss) if dloss is None else dloss.double())


def close(found, want, dtype):
    """Relative to the largest: logits and their gradients are rounded to dtype on the way."""
    tolerance = 4e-6 if dtype == torch.float32 else 4e-3 if dtype == torch.float16 else 3e-2
    size = want.abs().max() if want.numel() else 1
    torch.testing.assert_close(found.double() / size, want / size, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("chunk_rows", [0, 6])
def test_as_pytorch(device, dtype, reduction, chunk_rows):
    x, weight, target, bias = problem(device, dtype)
    dloss = torch.randn(target.shape if reduction == "none" else (), device=device)
    for b in (bias, None):
        leaves = [t for t in (x, weight, b) if t is not None]
        want, dwant = reference(x, weight, target, b, dloss, reduction=reduction)
        loss = st.linear_cross_entropy(x, weight, target, b, reduction=reduction, chunk_rows=chunk_rows)
        assert loss.dtype == torch.float32 and loss.shape == want.shape
        close(loss, want, dtype)
        for found, d, leaf in zip(torch.autograd.grad(loss, leaves, dloss), dwant, leaves):
            assert found.dtype == leaf.dtype and found.shape == leaf.shape
            close(found, d, dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_options_and_shapes(device):
    for lead in ((), (1,), (3, 5), (2, 3, 4)):
        x, weight, target, bias = problem(device, torch.float32, lead, index=torch.int32)
        w = torch.rand(101, device=device) + 0.5
        for more in ({}, {"label_smoothing": 0.1}, {"softcap": 3.0, "z_loss": 0.01}):
            want, dwant = reference(x, weight, target, bias, **more)
            loss = st.linear_cross_entropy(x, weight, target, bias, **more)
            close(loss, want, torch.float32)
            for found, d in zip(torch.autograd.grad(loss, (x, weight, bias)), dwant):
                close(found, d, torch.float32)
        want, dwant = reference(x, weight, target, bias, class_weight=w, label_smoothing=0.2)
        loss = st.linear_cross_entropy(x, weight, target, bias, class_weight=w, label_smoothing=0.2)
        close(loss, want, torch.float32)
        close(torch.autograd.grad(loss, weight)[0], dwant[1], torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts(device):
    x, weight, target, bias = problem(device, torch.float32, (4, 9), h=16)
    shifted, next_ = x[:, :-1], target[:, 1:]  # as language models are trained
    want, dwant = reference(shifted, weight, next_, bias)
    turned = weight.detach().t().contiguous().t().requires_grad_()
    for w in (weight, turned):
        loss = st.linear_cross_entropy(shifted, w, next_, bias, chunk_rows=5)
        close(loss, want, torch.float32)
        dx, dw = torch.autograd.grad(loss, (x, w))
        close(dx[:, :-1], dwant[0], torch.float32)
        assert not dx[:, -1].any()
        close(dw, dwant[1], torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_lse_and_what_is_not_wanted(device):
    x, weight, target, bias = problem(device, torch.float32)
    loss, lse = st.linear_cross_entropy(x, weight, target, bias, return_lse=True)
    assert not lse.requires_grad
    close(lse, torch.logsumexp(F.linear(x, weight, bias).detach().double(), -1), torch.float32)
    with torch.no_grad():
        assert torch.equal(st.linear_cross_entropy(x, weight, target, bias), loss)
    loss = st.linear_cross_entropy(x.detach(), weight, target, bias.detach())
    close(torch.autograd.grad(loss, weight)[0], reference(x, weight, target, bias)[1][1], torch.float32)
    loss = st.linear_cross_entropy(x, weight.detach(), target)
    close(torch.autograd.grad(loss, x)[0], reference(x, weight, target)[1][0], torch.float32)


@pytest.mark.parametrize("device", DEVICES)
def test_ignored_and_out_of_range(device):
    x, weight, _, bias = problem(device, torch.float32, (4,), v=5)
    nothing = torch.full((4,), -100, device=device)
    loss = st.linear_cross_entropy(x, weight, nothing, bias)
    assert torch.isnan(loss)
    assert not any(d.any() for d in torch.autograd.grad(loss, (x, weight, bias)))
    zeros = torch.zeros(4, dtype=torch.int64, device=device)
    assert st.linear_cross_entropy(x, weight, zeros, ignore_index=0, reduction="sum") == 0
    saker.check(device)
    loss = st.linear_cross_entropy(x, weight, torch.tensor([0, 5, -3, 2], device=device), reduction="none")
    assert loss[1] == 0 and loss[2] == 0 and loss[0] > 0
    with pytest.raises(saker.Error, match="BAD_INDEX|out of range"):
        saker.check(device)


def test_autocast():
    x, weight, target, bias = problem("cpu", torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = st.linear_cross_entropy(x, weight, target, bias)
    close(loss, reference(x, weight, target, bias)[0], torch.bfloat16)
    assert torch.autograd.grad(loss, weight)[0].dtype == torch.float32


def test_wrong_arguments():
    x, weight, target, _ = problem("cpu", torch.float32, (4,))
    with pytest.raises(ValueError, match="reduction"):
        st.linear_cross_entropy(x, weight, target, reduction="median")
    with pytest.raises(TypeError, match="probabilities"):
        st.linear_cross_entropy(x, weight, torch.rand(4, 101))
    with pytest.raises(ValueError, match="target"):
        st.linear_cross_entropy(x, weight, target[:3])
    with pytest.raises(saker.Error, match="weight and x differ in type"):
        st.linear_cross_entropy(x, weight.half(), target)
    with pytest.raises(saker.Error, match="chunk_rows"):
        st.linear_cross_entropy(x, weight, target, chunk_rows=-1)
    for reduction in ("mean", "none"):
        loss = st.linear_cross_entropy(x, weight, target, reduction=reduction).sum()
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(NotImplementedError, match="gradients of gradients"):
            torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_opcheck(device, reduction):
    x, weight, target, bias = problem(device, torch.float32, (7,), v=24)
    w = torch.rand(24, device=device)
    for cw, b, options in ((None, None, (0.0, 0.0, 0.0, 0)), (w, bias, (0.1, 0.01, 5.0, 3))):
        wants = (reduction > 0, reduction > 0, reduction > 0 and b is not None)
        args = (x, weight, target, b, cw, reduction, -100, *options, *wants)
        torch.library.opcheck(torch.ops.saker.linear_cross_entropy, args)
        loss, _, dx, dweight, dbias = torch.ops.saker.linear_cross_entropy(*args)
        more = (dx, dweight, dbias, reduction, -100, *options, True, True, b is not None)
        given = [t if t is None else t.detach() for t in (x, weight, target, b, cw)]
        torch.library.opcheck(torch.ops.saker.linear_cross_entropy_backward, (torch.randn_like(loss), *given, *more))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compile_fullgraph(device, backend, dynamic, reduction):
    def function(x, weight, target, bias):
        return st.linear_cross_entropy(2 * x, weight, target, bias, label_smoothing=0.1, reduction=reduction).sum()

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (4, 9) if dynamic else (4,):
        x, weight, target, bias = problem(device, torch.float32, (rows,), v=40)
        y, want = compiled(x, weight, target, bias), function(x, weight, target, bias)
        torch.testing.assert_close(y, want)
        for d, dwant in zip(*(torch.autograd.grad(loss, (x, weight, bias)) for loss in (y, want))):
            torch.testing.assert_close(d, dwant)
