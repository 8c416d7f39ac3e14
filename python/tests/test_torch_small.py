"""adamw, topk, embedding and hadamard on PyTorch tensors: values, gradients, opcheck, torch.compile.
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


def both_gradients(function, reference, inputs):
    """Values and gradients of two functions of the same inputs."""
    ours, theirs = function(*inputs), reference(*inputs)
    torch.testing.assert_close(ours, theirs)
    wanted = [x for x in inputs if x.requires_grad]
    g = torch.randn_like(ours)
    for found, expected in zip(torch.autograd.grad(ours, wanted, g), torch.autograd.grad(theirs, wanted, g)):
        torch.testing.assert_close(found, expected)


# ---------------------------------------------------------------- adamw


def two_models(device, **options):
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Linear(20, 4)).to(device) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    return models


def train(model, optimizer, device, clip=None):
    torch.manual_seed(1)
    for _ in range(5):
        optimizer.zero_grad()
        (model(torch.randn(8, 12, device=device)) ** 2).sum().backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True, "maximize": True}, {"weight_decay": 0.0, "betas": (0.0, 0.9)}]
)
def test_adamw_is_pytorchs(device, options):
    ours, theirs = two_models(device)
    train(ours, st.AdamW(ours.parameters(), lr=0.01, **options), device)
    train(theirs, torch.optim.AdamW(theirs.parameters(), lr=0.01, **options), device)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_adamw_clips_and_keeps_state(device):
    ours, theirs = two_models(device)
    mine = st.AdamW(ours.parameters(), lr=0.01, max_norm=0.5)
    train(ours, mine, device)
    train(theirs, torch.optim.AdamW(theirs.parameters(), lr=0.01), device, clip=0.5)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    plain.load_state_dict(mine.state_dict())
    assert plain.state_dict()["state"][0]["step"] == 5


@pytest.mark.parametrize("device", DEVICES)
def test_adamw_types_and_strides(device):
    p = torch.randn(6, 8, 3, device=device).to(torch.bfloat16).permute(2, 0, 1)
    m, v = (torch.zeros_like(p, dtype=torch.float32) for _ in range(2))
    g = torch.randn(3, 6, 8, device=device)
    want = p.float()
    st.adamw_(p, g, m, v, step=1, lr=0.1, weight_decay=0.1)
    want = want * (1 - 0.01) - 0.1 * g / (g.abs() + 1e-8)
    torch.testing.assert_close(p.float(), want, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(m, 0.1 * g)
    out = torch.zeros(1, device=device)
    st.sum_squares_(st.sum_squares_(out, g), p)
    torch.testing.assert_close(out[0], g.square().sum() + p.float().square().sum())


def test_adamw_sentences():
    p = torch.zeros(4)
    with pytest.raises(saker.Error, match="step is 0, expected 1 or more"):
        st.adamw_(p, p.clone(), p.clone(), p.clone(), step=0)
    with pytest.raises(saker.Error, match="max_norm is given but grad_sum_squares is NULL"):
        st.adamw_(p, p.clone(), p.clone(), p.clone(), step=1, max_norm=1.0)


def test_opcheck_adamw():
    p, g, m, v = (torch.rand(5, 7) for _ in range(4))
    torch.library.opcheck(
        torch.ops.saker.adamw_, (p, g, m, v, None, None, None, 0.1, 0.9, 0.99, 1e-8, 0.1, 0.0, 3, False)
    )
    torch.library.opcheck(torch.ops.saker.sum_squares_, (g, torch.zeros(1), True))


# ---------------------------------------------------------------- topk


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape, k", [((5, 64), 8), ((2, 3, 1000), 100), ((300,), 300), ((4, 9), 0)])
def test_topk_values(device, dtype, shape, k):
    x = torch.randn(shape, device=device).to(dtype)
    values, indices = st.topk(x, k)
    assert torch.equal(values, torch.topk(x, k).values)
    assert torch.equal(values, x.gather(-1, indices.long()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("softmax", [False, True])
def test_topk_gradient(device, softmax):
    x = torch.randn(6, 50, device=device, requires_grad=True)

    def reference(t):
        v = torch.topk(t, 7).values
        return v.softmax(-1) if softmax else v

    both_gradients(lambda t: st.topk(t, 7, softmax=softmax)[0], reference, [x])
    torch.library.opcheck(torch.ops.saker.topk, (x, 7, softmax))


def test_topk_ties_and_nan():
    x = torch.tensor([[1.0, float("nan"), 2.0, -0.0, 0.0, 2.0, float("nan"), -1.0]])
    assert st.topk(x, 8)[1].tolist() == [[1, 6, 2, 5, 0, 3, 4, 7]]
    with pytest.raises(saker.Error, match="expected a last dimension k of at most 8"):
        st.topk(x, 9)


# ---------------------------------------------------------------- embedding


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_embedding_gradient(device, padding_idx):
    table = torch.randn(20, 16, device=device, requires_grad=True)
    ids = torch.randint(0, 20, (4, 30), device=device)
    both_gradients(lambda t: st.embedding(ids, t, padding_idx), lambda t: F.embedding(ids, t, padding_idx), [table])
    torch.library.opcheck(torch.ops.saker.embedding, (table, ids.int(), None))


@pytest.mark.parametrize("device", DEVICES)
def test_embedding_out_of_range(device):
    table = torch.randn(5, 8, device=device)
    out = st.embedding(torch.tensor([1, 5, -1], device=device), table)
    assert torch.equal(out[0], table[1]) and not out[1:].any()
    with pytest.raises(saker.Error, match="(?i)index"):
        saker.check(device)
    saker.check(device)


# ---------------------------------------------------------------- hadamard


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 8, 256, 4096])
def test_hadamard(device, n):
    h = torch.ones(1, 1, dtype=torch.float64)
    while len(h) < n:
        h = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), h)
    h = (h / n**0.5).float().to(device)
    x = torch.randn(3, n, device=device, requires_grad=True)
    torch.testing.assert_close(st.hadamard(st.hadamard(x)), x)
    both_gradients(st.hadamard, lambda t: t @ h, [x])
    torch.library.opcheck(torch.ops.saker.hadamard, (x,))


@pytest.mark.parametrize("device", DEVICES)
def test_compile_fullgraph(device):
    table = torch.randn(30, 32, device=device, requires_grad=True)
    ids = torch.randint(0, 30, (6,), device=device)

    def function(t):
        y = st.hadamard(st.embedding(ids, t).relu())
        values, indices = st.topk(y, 4, softmax=True)
        return values * indices

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    both_gradients(compiled, function, [table])
