"""moe_route and moe on PyTorch tensors: beside plain PyTorch, values, gradients, opcheck, torch.compile.
SPDX-License-Identifier: Apache-2.0
"""
import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]


def reference(
    logits, k, *, bias=None, score="softmax", n_groups=0, top_groups=0, group_score="max", renormalise=False, scale=1.0
):
    """As the public models write it."""
    x = logits.float()
    scores = x.softmax(-1) if score == "softmax" else x.sigmoid()
    choice = scores if bias is None else scores + bias
    if n_groups:
        groups = choice.unflatten(-1, (n_groups, -1))
        best = groups.amax(-1) if group_score == "max" else groups.topk(2, -1).values.sum(-1)
        keep = torch.zeros_like(best).scatter(-1, best.topk(top_groups, -1).indices, 1.0).bool()
        choice = groups.masked_fill(~keep.unsqueeze(-1), -torch.inf).flatten(-2)
    ids = choice.topk(k, -1).indices
    weights = scores.gather(-1, ids)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * scale, ids


OPTIONS = {
    "softmax": dict(k=2),
    "mixtral": dict(k=2, renormalise=True),
    "sigmoid": dict(k=3, score="sigmoid"),
    "sigmoid renormalised": dict(k=3, score="sigmoid", renormalise=True, scale=1.5),
    "deepseek v2": dict(k=4, n_groups=4, top_groups=2, scale=16.0),
    "deepseek v3": dict(
        k=4, score="sigmoid", bias=True, n_groups=8, top_groups=4, group_score="top2", renormalise=True, scale=2.5
    ),
    "bias": dict(k=5, bias=True),
}


def given(name, device, e=32):
    options = dict(OPTIONS[name])
    torch.manual_seed(len(name))
    if options.get("bias"):
        options["bias"] = torch.randn(e, device=device) * 0.1
    return options.pop("k"), options


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_gradient(device, dtype, name):
    k, options = given(name, device)
    logits = torch.randn(3, 17, 32, device=device).to(dtype).requires_grad_()
    route = st.moe_route(logits, k, **options)
    weights, ids = reference(logits, k, **options)
    if dtype == torch.float32:  # others have ties, which topk breaks as it likes
        assert torch.equal(route.ids.long(), ids)
        torch.testing.assert_close(route.weights, weights)
    g = torch.randn_like(weights)
    chosen = logits.float().softmax(-1) if options.get("score", "softmax") == "softmax" else logits.float().sigmoid()
    chosen = chosen.gather(-1, route.ids.long())
    if options.get("renormalise"):
        chosen = chosen / chosen.sum(-1, keepdim=True)
    chosen = chosen * options.get("scale", 1.0)
    torch.testing.assert_close(route.weights, chosen)
    found, expected = (torch.autograd.grad(w, logits, g)[0] for w in (route.weights, chosen))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_sorted_rows(device):
    logits = torch.randn(2, 301, 16, device=device)
    route = st.moe_route(logits, 3)
    flat = route.ids.flatten().long()
    order = flat.argsort(stable=True)
    counts = flat.bincount(minlength=16)
    assert torch.equal(route.order.long(), order)
    assert torch.equal(route.counts.long(), counts)
    assert route.offsets[0] == 0 and torch.equal(route.offsets[1:].long(), counts.cumsum(0))
    assert torch.equal(route.token.long(), order // 3)
    assert torch.equal(route.place[route.order.long()].long(), torch.arange(order.numel(), device=device))


@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_of_experts(device):
    """Routed, multiplied and combined with gradients, beside a loop over the experts."""
    torch.manual_seed(0)
    t, h, i, e, k = 23, 16, 24, 5, 2
    x, gate = torch.randn(t, h, device=device), torch.randn(e, h, device=device)
    up, down = torch.randn(e, h, 2 * i, device=device) / 4, torch.randn(e, i, h, device=device) / 4
    inputs = [a.requires_grad_() for a in (x, gate, up, down)]

    def ours(x, gate, up, down):
        route = st.moe_route(x @ gate.T, k, renormalise=True)
        a = st.grouped_matmul(x[route.token.long()], up, route.offsets)
        y = st.grouped_matmul(st.swiglu(a), down, route.offsets)
        return (y[route.place.long()].view(t, k, h) * route.weights.unsqueeze(-1)).sum(1)

    def theirs(x, gate, up, down):
        weights, ids = reference(x @ gate.T, k, renormalise=True)
        y = torch.zeros_like(x)
        for expert in range(e):
            a = x @ up[expert]
            out = (torch.nn.functional.silu(a[:, :i]) * a[:, i:]) @ down[expert]
            y = y + out * (weights * (ids == expert)).sum(-1, keepdim=True)
        return y

    a, b = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    g = torch.randn_like(a)
    for found, expected in zip(torch.autograd.grad(a, inputs, g), torch.autograd.grad(b, inputs, g)):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_strides_and_nothing():
    logits = torch.randn(8, 40)
    assert torch.equal(st.moe_route(logits.T, 3).ids, st.moe_route(logits.T.contiguous(), 3).ids)
    route = st.moe_route(logits[:0], 3)
    assert route.ids.shape == (0, 3) and route.counts.tolist() == [0] * 40 and route.offsets.tolist() == [0] * 41
    ties = st.moe_route(torch.zeros(1, 6), 6)
    assert ties.ids.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_refusals():
    logits = torch.randn(4, 8)
    with pytest.raises(saker.Error, match="expected a last dimension k of at most 8"):
        st.moe_route(logits, 9)
    with pytest.raises(saker.Error, match="n_groups is 3, expected 0 or a divisor of the 8 experts"):
        st.moe_route(logits, 2, n_groups=3, top_groups=1)
    with pytest.raises(saker.Error, match="score is 'tanh', expected one of softmax, sigmoid"):
        st.moe_route(logits, 2, score="tanh")
    with pytest.raises(saker.Error, match="scale is 0"):
        st.moe_route(logits, 2, scale=0.0)


def test_operators_and_compile():
    logits = torch.randn(6, 16, requires_grad=True)
    torch.library.opcheck(torch.ops.saker.moe_route, (logits, None, 2, 0, 0, 0, 0, True, 1.0, torch.float32))
    ids = torch.tensor([[0, 3], [5, 1]], dtype=torch.int32)
    torch.library.opcheck(
        torch.ops.saker.moe_route_backward, (torch.randn(2, 2), ids, logits[:2].detach(), 1, True, 1.0)
    )

    def call(x):
        route = st.moe_route(x, 2, renormalise=True)
        return route.weights * route.offsets[:2]

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    a, b = compiled(logits), call(logits)
    assert torch.equal(a, b)
    g = torch.randn_like(a)
    assert torch.equal(torch.autograd.grad(a, logits, g)[0], torch.autograd.grad(b, logits, g)[0])


# ---------------------------------------------------------------- experts


def experts(x, weights, ids, up, down, up_bias, down_bias, act, gated):
    """A loop over the experts, in float64."""
    y = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for e in range(up.shape[0]):
        a = x.double() @ up[e].double().T + (0 if up_bias is None else up_bias[e].double())
        if gated == "halves":
            a = act(a[:, : a.shape[1] // 2]) * a[:, a.shape[1] // 2 :]
        elif gated:
            a = act(a[:, ::2]) * a[:, 1::2]
        else:
            a = act(a)
        out = a @ down[e].double().T + (0 if down_bias is None else down_bias[e].double())
        y = y + out * (weights.double() * (ids == e)).sum(-1, keepdim=True)
    return y


ACTS = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu, "relu2": lambda t: t.relu() ** 2}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation, gated", [("silu", "halves"), ("gelu", "interleaved"), ("relu2", None)])
@pytest.mark.parametrize("bias", [False, True])
def test_moe_values_and_gradients(device, dtype, activation, gated, bias):
    torch.manual_seed(1)
    t, h, i, e, k = 19, 24, 16, 6, 2
    up_rows = 2 * i if gated else i

    def parameter(*shape):
        return (torch.randn(shape, device=device) / 4).to(dtype).requires_grad_()

    x, up, down = parameter(t, h), parameter(e, up_rows, h), parameter(e, h, i)
    biases = (parameter(e, up_rows), parameter(e, h)) if bias else (None, None)
    route = st.moe_route(torch.randn(t, e, device=device), k, renormalise=True)
    weights = route.weights.detach().requires_grad_()
    route = route._replace(weights=weights)
    inputs = [p for p in (x, weights, up, down, *biases) if p is not None]
    ours = st.moe(
        x, route, up, down, gate_up_bias=biases[0], down_bias=biases[1], activation=activation, gated=gated
    )
    theirs = experts(x, weights, route.ids, up, down, *biases, ACTS[activation], gated)
    tolerance = dict(rtol=1e-4, atol=1e-5) if dtype == torch.float32 else dict(rtol=5e-2, atol=5e-2)
    torch.testing.assert_close(ours, theirs.to(dtype), **tolerance)
    g = torch.randn(t, h, device=device)
    found = torch.autograd.grad(ours, inputs, g.to(dtype))
    for a, b in zip(found, torch.autograd.grad(theirs, inputs, g.to(dtype).double())):
        torch.testing.assert_close(a, b.to(a.dtype), **tolerance)
    again = torch.autograd.grad(
        st.moe(x, route, up, down, gate_up_bias=biases[0], down_bias=biases[1], activation=activation, gated=gated),
        inputs, g.to(dtype),
    )
    assert all(torch.equal(a, b) for a, b in zip(found, again))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.int8, "i4"])
def test_moe_of_quantised_weights(device, kind):
    torch.manual_seed(2)
    t, h, i, e, k, g = 13, 64, 32, 4, 2, 32
    x = torch.randn(2, t, h, device=device).bfloat16()
    up, down = torch.randn(e, 2 * i, h, device=device) / 8, torch.randn(e, h, i, device=device) / 8
    (q_up, up_scale), (q_down, down_scale) = (st.quantize(w, kind, per="group", group=g) for w in (up, down))
    route = st.moe_route(torch.randn(2, t, e, device=device), k, renormalise=True)
    y = st.moe(x, route, q_up, q_down, group=g, gate_up_scale=up_scale, down_scale=down_scale)
    up, down = (st.dequantize(q, s, per="group", group=g) for q, s in ((q_up, up_scale), (q_down, down_scale)))
    flat = x.flatten(0, 1)
    wanted = experts(
        flat, route.weights.flatten(0, 1), route.ids.flatten(0, 1), up, down, None, None, ACTS["silu"], "halves"
    )
    torch.testing.assert_close(y.flatten(0, 1).float(), wanted.float(), rtol=3e-2, atol=3e-2)
    if kind == torch.int8:
        with pytest.raises(NotImplementedError, match="without group"):
            st.moe(x.requires_grad_(), route, q_up, q_down, group=g, gate_up_scale=up_scale, down_scale=down_scale)


def test_moe_operators_and_nothing():
    t, h, i, e, k = 5, 8, 4, 3, 2
    x, up, down = torch.randn(t, h), torch.randn(e, 2 * i, h), torch.randn(e, h, i)
    route = st.moe_route(torch.randn(t, e), k)
    given = (x.requires_grad_(), route.weights, *route[3:4], route.order, route.token, route.place, up, down)
    torch.library.opcheck(torch.ops.saker.moe, (*given, None, None, None, None, None, None, 3, 1, 0))
    torch.library.opcheck(
        torch.ops.saker.moe_backward, (torch.randn(t, h), x.detach(), *given[1:], torch.randn(e, 2 * i), None, 3, 1)
    )
    nothing = st.moe(x[:0], st.moe_route(torch.randn(0, e), k), up, down)
    assert nothing.shape == (0, h)
    with pytest.raises(saker.Error, match="gate_up and x differ in type"):
        st.moe(x.detach(), route, up.half(), down.half())
    with pytest.raises(ValueError, match="moe: activation is 'tanhh'"):
        st.moe(x, route, up, down, activation="tanhh")
    compiled = torch.compile(lambda *a: st.moe(*a), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, route, up, down), st.moe(x, route, up, down))
