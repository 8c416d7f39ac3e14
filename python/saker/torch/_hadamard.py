"""hadamard for PyTorch.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import ops, register, straight

_call = _ops["hadamard"].call


def _forward(x):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.stride(-1) != 1 or x.is_neg():
        (x,), _ = straight(x)
    _call(x, y)
    return y


register(
    "hadamard",
    "(Tensor x) -> Tensor",
    _forward,
    lambda x: torch.empty_like(x, memory_format=torch.contiguous_format),
    lambda ctx, dy: ops.hadamard(dy),
    lambda ctx, inputs, output: None,
)


def hadamard(x):
    """The Hadamard transform of the last dimension (a power of two) in Sylvester's order, divided by sqrt(N): its own
    inverse and its own gradient."""
    return ops.hadamard(x)
