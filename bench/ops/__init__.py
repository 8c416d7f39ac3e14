"""One file per operation for bench/peers.py: its shapes, its tensors, how Saker and how PyTorch run it.

A file has OPS, a list of Op objects. peers.py finds every file in this folder.
SPDX-License-Identifier: Apache-2.0
"""

import importlib
import pkgutil

import torch

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# The shapes that QuACK publishes figures for.
QUACK = [(32768, n) for n in (256, 512, 1024, 4096, 8192)] + [
    (16384, 16384),
    (8192, 32768),
    (2048, 65536),
    (1024, 131072),
    (512, 262144),
]
QUACK_F32 = ((32768, 1024), (32768, 4096), (2048, 65536), (512, 262144))


class Op:
    """What peers.py asks of an operation. t is the dictionary that tensors() made."""

    name = ""  # the library's operation; a file may time one operation in several ways: label tells them apart
    label = None
    quack = False  # whether QuACK's figures were recorded
    from_memory = False  # on the CPU, too, tensors are several times as large as the caches, all copies together
    cpu_widths = (1024, 4096, 16384, 65536)
    cuda_widths = tuple(2**k for k in range(8, 19))

    def shapes(self, kind, device, types, widths):
        """(dtype, rows, width) in the order they run; kind is "sweep" or "quack"."""
        if kind == "quack":
            if not self.quack:
                return []
            found = [("bf16", m, n) for m, n in QUACK] + [("f32", m, n) for m, n in QUACK_F32]
        elif device == "cuda":  # 2^27 elements
            found = [(t, 2**27 // n, n) for t in types for n in widths or self.cuda_widths]
        else:  # x is 256 MiB
            found = [(t, 2**28 // TYPES[t].itemsize // n, n) for t in types for n in widths or self.cpu_widths]
        return [s for s in found if s[0] in types and (not widths or s[2] in widths)]

    def traffic(self, dtype, m, n):
        """Least bytes that must move, and the streams they come in: (bytes, reads, writes)."""
        raise NotImplementedError

    def prepare(self, t, library):
        """What must be computed before the operation can be: forward, where this is a gradient that needs its results."""

    def others(self, t, threads):
        """{name: call without arguments} of libraries other than PyTorch that know the operation."""
        return {}

    def operations(self, dtype, m, n):
        """Additions and multiplications, where they bind rather than bytes; else 0."""
        return 0

    def tensors(self, dtype, m, n, device, generator):
        """Inputs, and outputs of Saker's."""
        raise NotImplementedError

    def arguments(self, t):
        """The library's arguments."""
        raise NotImplementedError

    def torch(self, t, compiled):
        """A function without arguments that runs PyTorch's version: eager where compiled is None, else compiled(f) is f
        after torch.compile. A compiled function writes into the outputs in t, as Saker does."""
        raise NotImplementedError

    def error(self, t):
        """Worst error of the outputs that Saker left in t, relative to the largest value of its row, against torch in
        double, over a few rows. For a glance; the tests judge."""
        return float("nan")


def draw(generator, dtype, device, *shape):
    return torch.randn(*shape, generator=generator, dtype=TYPES[dtype], device=device)


def gradient(function, inputs, grad):
    """Runs only the backward of function(*inputs), many times; inputs are detached copies that want gradients."""
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = function(*leaves)
    wanted = [x for x in leaves if x.requires_grad]
    return lambda: torch.autograd.grad(out, wanted, grad, retain_graph=True)


def without_gradient(function, *inputs):
    def run():
        with torch.no_grad():
            function(*inputs)

    return run


def rows_error(got, want):
    """Largest error relative to the largest value of its row; one row each."""
    scale = want.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    return ((got.double() - want).abs() / scale).max().item()


def some_rows(m):
    return sorted({0, m // 2, m - 1})


def all_ops():
    found = []
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        found += importlib.import_module(f"{__name__}.{module}").OPS
    return found
