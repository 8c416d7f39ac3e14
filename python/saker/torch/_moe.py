"""Mixture of experts for PyTorch: which experts tokens go to.
SPDX-License-Identifier: Apache-2.0
"""
import math
from typing import NamedTuple

import torch

from .. import _ops
from ._front import no_second_order, ops, refuse, register, straight

_call = _ops["moe_route"].call
_call_backward = _ops["moe_route_backward"].call
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
