"""Every differentiable operation of saker.torch under torch.func and forward-mode AD: right, or refused, never silent.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

from torch.autograd import forward_ad  # noqa: E402
from torch.func import functionalize, grad, jvp, vmap  # noqa: E402

import saker.torch as st  # noqa: E402

torch.manual_seed(3)
COLUMNS = torch.randn(8)
WIDE = torch.randn(16, 8) / 4
IDS = torch.tensor([1, 2, 3])
heads = lambda t: t.reshape(1, 3, 1, 8)
merged = lambda t: st.attention_merge(heads(t), t[:, 0].reshape(1, 1, 3), 2 * heads(t), t[:, 1].reshape(1, 1, 3))[0]
CALLS = {  # of one tensor [3, 8]
    "rms_norm": lambda t: st.rms_norm(t, COLUMNS),
    "rms_norm residual": lambda t: sum(st.rms_norm(t, residual=t)),
    "layer_norm": lambda t: st.layer_norm(t, COLUMNS),
    "layer_norm residual": lambda t: sum(st.layer_norm(t, residual=t)),
    "softmax": lambda t: st.softmax(t, mask=COLUMNS),
    "mask": lambda t: st.softmax(WIDE[:3], mask=t),
    "silu": st.silu,
    "cross_entropy": lambda t: st.cross_entropy(t, IDS),
    "linear_cross_entropy": lambda t: st.linear_cross_entropy(t, WIDE, IDS),
    "linear_cross_entropy rows": lambda t: st.linear_cross_entropy(t, WIDE, IDS, reduction="none"),
    "rope": lambda t: st.rope(heads(t)),
    "rope norm": lambda t: st.rope(heads(t), q_weight=COLUMNS),
    "topk": lambda t: st.topk(t, 2, softmax=True)[0],
    "embedding": lambda t: st.embedding(torch.tensor([0, 2, 1, 0]), t),
    "moe_route": lambda t: st.moe_route(t, 3, score="sigmoid", renormalise=True).weights,
    "hadamard": st.hadamard,
    "matmul": lambda t: st.matmul(t, WIDE.T),
    "linear": lambda t: st.linear(t, WIDE, activation="silu", gated="halves"),
    "grouped_matmul": lambda t: st.grouped_matmul(t, WIDE.view(2, 8, 8), torch.tensor([0, 1, 3])),
    "attention": lambda t: st.attention(heads(t), heads(t), heads(t), causal=True),
    "attention_merge": merged,
}
TWICE = ("hadamard", "matmul", "grouped_matmul", "attention_merge")  # whose gradients are differentiable themselves
quiet = pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:.*torch.jit.script")


def of(name):
    call = CALLS[name]
    return call, lambda t: call(t).pow(3).sum()


@pytest.mark.parametrize("name", CALLS)
def test_forward_mode_is_refused(name):
    call, _ = of(name)
    x = torch.randn(3, 8)
    for wants_gradient in (False, True):
        with forward_ad.dual_level():
            assert torch.equal(call(x), call(x))  # without a tangent there is nothing to refuse
            dual = forward_ad.make_dual(x.clone().requires_grad_(wants_gradient), torch.ones_like(x))
            with pytest.raises(RuntimeError, match="jvp|forward"):
                call(dual)
    with pytest.raises(RuntimeError, match="jvp|forward"):
        jvp(call, (x,), (torch.ones_like(x),))


@quiet
@pytest.mark.parametrize("name", CALLS)
def test_transforms_are_eager_autograd(name):
    call, loss = of(name)
    x = torch.randn(2, 3, 8)
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(loss(leaf[0]) + loss(leaf[1]), leaf)[0]
    assert expected.any()
    torch.testing.assert_close(grad(loss)(x[0]), expected[0])
    torch.testing.assert_close(vmap(grad(loss))(x), expected)
    torch.testing.assert_close(grad(lambda t: vmap(call)(t).pow(3).sum())(x), expected)
    torch.testing.assert_close(vmap(call)(x), torch.stack([call(x[0]), call(x[1])]))
    torch.testing.assert_close(functionalize(call)(x[0]), call(x[0]))


@pytest.mark.parametrize("name", [name for name in CALLS if name not in TWICE])
def test_second_order_is_refused(name):
    _, loss = of(name)
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        grad(lambda u: grad(loss)(u).sum())(torch.randn(3, 8))
