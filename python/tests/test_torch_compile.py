"""The operators under torch.library.opcheck, torch.compile(fullgraph=True), make_fx and torch.export.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("parameters", [0, 1, 2])
def test_opcheck_forward(device, grad, residual, parameters):
    def make(*shape):
        return torch.randn(shape, device=device, requires_grad=grad)

    weight = make(48) if parameters > 0 else None
    bias = make(48) if parameters > 1 else None
    args = (make(5, 3, 48), weight, bias, make(5, 3, 48) if residual else None, 1e-6, 0.0, False, grad)
    torch.library.opcheck(torch.ops.saker.rms_norm, args)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_backward_and_quant(device, dtype):
    x, dy, ds = (torch.randn(5, 48, device=device).to(dtype) for _ in range(3))
    w = torch.randn(48, device=device)
    _, _, rstd = torch.ops.saker.rms_norm(x, w, w, None, 1e-6, 0.0, False, True)
    for want in ((True, True, True), (True, False, False), (False, True, False)):
        for given in (rstd, None):
            args = (dy, x, w, w, given, ds, 1e-6, 0.0, False, *want, dtype)
            torch.library.opcheck(torch.ops.saker.rms_norm_backward, args)
    args = (x, w, None, ds, 1e-6, 0.0, False, None, 2, torch.int8)
    torch.library.opcheck(torch.ops.saker.rms_norm_quant, args)


def function(x, w, b, r):
    y, s = st.rms_norm(torch.nn.functional.silu(x), w, b, residual=r, weight_offset=1.0)
    return st.rms_norm(y * 2, w) + s


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(device, backend, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (4, 9) if dynamic else (4,):
        inputs = [torch.randn(s, device=device, requires_grad=True) for s in ((rows, 64), (64,), (64,), (rows, 64))]
        y, expected = compiled(*inputs), function(*inputs)
        torch.testing.assert_close(y, expected)
        dy = torch.randn_like(y)
        for f, e in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, inputs, dy)):
            torch.testing.assert_close(f, e)
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), expected)


def test_compile_module_and_quant():
    torch._dynamo.reset()
    norm = st.RMSNorm(32)
    x = torch.randn(3, 32, requires_grad=True)
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), norm(x))
    compiled(x).sum().backward()
    assert norm.weight.grad is not None and x.grad is not None

    quant = torch.compile(lambda t: st.rms_norm_quant(t, dtype=torch.int8), fullgraph=True, backend="aot_eager")
    for found, expected in zip(quant(x), st.rms_norm_quant(x, dtype=torch.int8)):
        assert torch.equal(found, expected)


def test_make_fx_and_export_record_the_operator():
    from torch.fx.experimental.proxy_tensor import make_fx

    x, w = torch.randn(3, 32), torch.randn(32)
    for mode in ("real", "fake", "symbolic"):
        traced = make_fx(lambda a, b: st.rms_norm(a, b), tracing_mode=mode)(x, w)
        assert any("saker" in str(node.target) for node in traced.graph.nodes), mode
        torch.testing.assert_close(traced(2 * x, w), st.rms_norm(2 * x, w))
    exported = torch.export.export(st.RMSNorm(32), (x,))
    assert any("saker" in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x), st.RMSNorm(32)(x))


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint

    x, w = torch.randn(3, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    expected = torch.autograd.grad(st.rms_norm(x, w).sum(), (x, w))
    y = checkpoint(st.rms_norm, x, w, use_reentrant=False)
    for found, e in zip(torch.autograd.grad(y.sum(), (x, w)), expected):
        assert torch.equal(found, e)
