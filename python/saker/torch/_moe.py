"""Mixture of experts for PyTorch: which experts tokens go to, and what comes of them.
SPDX-License-Identifier: Apache-2.0
"""
import math
from typing import NamedTuple

import torch

from .. import _ops
from ._front import autocast, no_second_order, or_empty, ops, refuse, register, straight
from ._gemm import _epilogue, _plain

_call = _ops["moe_route"].call
_call_backward = _ops["moe_route_backward"].call
_moe_call = _ops["moe"].call
SCORES = {"softmax": 0, "sigmoid": 1}
GROUP_SCORES = {"max": 0, "top2": 1}


class Route(NamedTuple):
    """What moe_route gives. Row t * k + j is the j-th choice of token t; all but weights are int32."""

    weights: torch.Tensor  # [..., k]
    ids: torch.Tensor  # [..., k]: experts, best first
    counts: torch.Tensor  # [E]: rows of each expert
    offsets: torch.Tensor  # [E + 1]: where they begin when rows are sorted by expert
    order: torch.Tensor  # [T k]: the row at each sorted place
    place: torch.Tensor  # [T k]: the sorted place of each row
    token: torch.Tensor  # [T k]: the token at each sorted place


def _outputs(logits, k, dtype):
    def number(*shape):
        return logits.new_empty(shape, dtype=torch.int32)

    lead, e = logits.shape[:-1], logits.shape[-1]
    rows = math.prod(lead) * k
    lists = number(e), number(e + 1), number(rows), number(rows), number(rows)
    return (logits.new_empty((*lead, k), dtype=dtype), number(*lead, k), *lists)


def _forward(logits, bias, k, score, n_groups, top_groups, group_score, renormalise, scale, dtype):
    outputs = Route(*_outputs(logits, k, dtype))
    if logits.stride(-1) != 1 or logits.is_neg():
        (logits,), _ = straight(logits)
    _call(
        logits=logits, bias=None if bias is None else straight(bias)[0][0], n_groups=n_groups, top_groups=top_groups,
        scale=scale, score=score, group_score=group_score, renormalise=renormalise, **outputs._asdict(),
    )
    return tuple(outputs)


def _fake(logits, bias, k, score, n_groups, top_groups, group_score, renormalise, scale, dtype):
    return _outputs(logits, k, dtype)


def _backward(dweights, ids, logits, score, renormalise, scale):
    dlogits = logits.new_empty(logits.shape)
    if logits.stride(-1) != 1 or logits.is_neg():
        (logits,), _ = straight(logits)
    _call_backward(
        dweights=dweights.resolve_neg(), ids=ids, logits=logits, dlogits=dlogits, score=score, renormalise=renormalise,
        scale=scale,
    )
    return dlogits


def _setup(ctx, inputs, output):
    logits, _, _, score, _, _, _, renormalise, scale, _ = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(logits, output[1])
    ctx.options = score, renormalise, scale


def _gradient(ctx, dweights, *_):
    logits, ids = ctx.saved_tensors
    return (ops.moe_route_backward(dweights, ids, logits, *ctx.options), *(None,) * 9)


register(
    "moe_route",
    "(Tensor logits, Tensor? bias, SymInt k, int score, int n_groups, int top_groups, int group_score, "
    "bool renormalise, float scale, ScalarType dtype) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward,
    _fake,
    _gradient,
    _setup,
)
register(
    "moe_route_backward",
    "(Tensor dweights, Tensor ids, Tensor logits, int score, bool renormalise, float scale) -> Tensor",
    _backward,
    lambda dweights, ids, logits, score, renormalise, scale: logits.new_empty(logits.shape),
    no_second_order("moe_route_backward"),
)


def moe_route(
    logits, k, *, bias=None, score="softmax", n_groups=0, top_groups=0, group_score="max", renormalise=False,
    scale=1.0, dtype=torch.float32,
):
    """A Route of logits [..., E]: the k best experts of each token, their weights, and the rows t * k + j in the order
    of their experts. Weights are scores ("softmax" over all experts, or "sigmoid") of the chosen, with renormalise
    divided by their sum, times scale; their gradient goes to logits. bias [E] is added to the scores to choose, and is
    no part of the weights; it gets no gradient. With n_groups only experts of the top_groups best groups are chosen,
    which are judged by their "max", or by the sum of their "top2"."""
    if score not in SCORES:
        refuse(f"moe_route: score is {score!r}, expected one of {', '.join(SCORES)}")
    if group_score not in GROUP_SCORES:
        refuse(f"moe_route: group_score is {group_score!r}, expected one of {', '.join(GROUP_SCORES)}")
    if scale == 0:
        refuse("moe_route: scale is 0, expected another factor")
    bias = None if bias is None else bias.detach().float()
    options = SCORES[score], n_groups, top_groups, GROUP_SCORES[group_score], renormalise, scale, dtype
    return Route(*ops.moe_route(logits, bias, k, *options))


# ---------------------------------------------------------------- experts


def _moe(
    x, weights, offsets, order, token, place, gate_up, down, gate_up_bias, down_bias, gate_up_scale, gate_up_zero,
    down_scale, down_zero, act, gated, group,
):
    y = x.new_empty(x.shape)
    x, weights, gate_up, down, gate_up_bias, down_bias = _plain(x, weights, gate_up, down, gate_up_bias, down_bias)
    _moe_call(
        x=x, weights=weights, offsets=offsets, token=token, place=place, gate_up=gate_up, down=down,
        gate_up_bias=gate_up_bias, down_bias=down_bias, gate_up_scale=gate_up_scale, gate_up_zero=gate_up_zero,
        down_scale=down_scale, down_zero=down_zero, y=y, group=group, act=act, gated=gated,
    )
    return y


def _moe_setup(ctx, inputs, output):
    x, weights, offsets, order, token, place, gate_up, down, gate_up_bias, down_bias, *scales, act, gated, group = inputs
    if group:
        raise NotImplementedError("saker: moe has a gradient with weights of x's type only, without group")
    ctx.save_for_backward(x, weights, offsets, order, token, place, gate_up, down, gate_up_bias, down_bias)
    ctx.options = act, gated


def _moe_chain(ctx, dy):
    found = ops.moe_backward(dy, *ctx.saved_tensors, *ctx.options)
    x, weights, gate_up, down, gate_up_bias, down_bias = (
        d if want else None for d, want in zip(found, [ctx.needs_input_grad[i] for i in (0, 1, 6, 7, 8, 9)])
    )
    return (x, weights, None, None, None, None, gate_up, down, gate_up_bias, down_bias, *(None,) * 7)


def _moe_backward(
    dy, x, weights, offsets, order, token, place, gate_up, down, gate_up_bias, down_bias, act, gated
):
    """Rows in the experts' order throughout; h and z are computed again. Sums over a token's rows are in the order of j,
    those over the rows of an expert are products along k: the same bits each time."""
    (t, k), rows = weights.shape, token.shape[0]
    if rows == 0:
        return tuple(torch.zeros_like(d) for d in (x, weights, gate_up, down)) + or_empty(
            x, *(None if b is None else torch.zeros_like(b) for b in (gate_up_bias, down_bias))
        )
    sorted_token, by_place = token.long(), place.long()
    xs, dys = x[sorted_token], dy[sorted_token]
    pre = ops.grouped_matmul(xs, gate_up.mT, offsets, gate_up_bias, 0, 0)
    h = ops.activation(pre, None, None, act, gated, 0.0, 0.0) if act or gated else pre
    z = ops.grouped_matmul(h, down.mT, offsets, down_bias, 0, 0)
    dweights = (z.float() * dys.float()).sum(-1)[by_place].view(t, k).to(weights.dtype)
    dz = (dys.float() * weights.float().flatten()[order.long()].unsqueeze(-1)).to(x.dtype)
    dpre = ops.grouped_matmul(dz, down, offsets, None, 0, 0)
    if act or gated:
        dpre = ops.activation_backward(dpre, pre, None, None, act, gated, 0.0, 0.0, True, False, False)[0]
    dxs = ops.grouped_matmul(dpre, gate_up, offsets, None, 0, 0)
    dx = dxs[by_place].view(t, k, -1).sum(1, dtype=torch.float32).to(x.dtype)
    ones = x.new_ones((1, rows))

    def over_rows(d, bias):
        return None if bias is None else ops.grouped_matmul_k(ones, d, offsets).squeeze(1).to(bias.dtype)

    dgate_up = ops.grouped_matmul_k(dpre.t(), xs, offsets)
    ddown = ops.grouped_matmul_k(dz.t(), h, offsets)
    return (dx, dweights, dgate_up, ddown, *or_empty(x, over_rows(dpre, gate_up_bias), over_rows(dz, down_bias)))


def _fake_moe_backward(
    dy, x, weights, offsets, order, token, place, gate_up, down, gate_up_bias, down_bias, act, gated
):
    made = [None if d is None else d.new_empty(d.shape) for d in (x, weights, gate_up, down, gate_up_bias, down_bias)]
    return or_empty(x, *made)


_TENSORS = (
    "Tensor x, Tensor weights, Tensor offsets, Tensor order, Tensor token, Tensor place, Tensor gate_up, Tensor down, "
    "Tensor? gate_up_bias, Tensor? down_bias"
)
register(
    "moe",
    f"({_TENSORS}, Tensor? gate_up_scale, Tensor? gate_up_zero, Tensor? down_scale, Tensor? down_zero, int act, "
    "int gated, int group) -> Tensor",
    _moe,
    lambda x, *others: x.new_empty(x.shape),
    _moe_chain,
    _moe_setup,
)
register(
    "moe_backward",
    f"(Tensor dy, {_TENSORS}, int act, int gated) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _moe_backward,
    _fake_moe_backward,
    no_second_order("moe_backward"),
)


def moe(
    x, route, gate_up, down, *, gate_up_bias=None, down_bias=None, activation="silu", gated="halves", group=0,
    gate_up_scale=None, gate_up_zero=None, down_scale=None, down_zero=None,
):
    """The experts of a layer: the sum over j of route.weights[t, j] times what the j-th expert of token t gives, x [..., H],
    gate_up [E, 2 I, H] (not gated: [E, I, H]), down [E, H, I], biases [E, 2 I] and [E, H], route from moe_route.

    h = act(gate) * up of x @ gate_up[e].T + gate_up_bias[e], then h @ down[e].T + down_bias[e]; both rounded to x's type.
    activation: as saker.torch.activation; gated: where the gate lies, "halves", "interleaved" or None.
    Gradients: of x, route.weights, both weights and biases; h and z are computed again for them. Under torch.autocast x
    and the weights are of its type. Without a gradient the weights may be int8, or int4 as quantize gives it, beside
    float16 and bfloat16, with group=g and scales (and zeros) [E, rows, columns / g].
    """
    act, mode = _epilogue("moe", activation, gated)
    if not group:
        x, gate_up, down = autocast(x, gate_up, down)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    weights = route.weights.reshape(rows.shape[0], route.weights.shape[-1])
    y = ops.moe(
        rows, weights, route.offsets, route.order, route.token, route.place, gate_up, down, gate_up_bias, down_bias,
        gate_up_scale, gate_up_zero, down_scale, down_zero, act, mode, group,
    )
    return y.reshape(x.shape)
