#!/usr/bin/env python3
"""The error of every operation beside PyTorch's own: same inputs, same types, both against PyTorch in double.

    python bench/accuracy.py                    # CPU
    python bench/accuracy.py --device cuda
    python bench/accuracy.py --op softmax

Forward outputs and all gradients. An error is relative to the largest value of its tensor; `rms` is its root mean
square, `max` the worst element. The ratio is ours over theirs; where PyTorch is exact, a quarter of the type's spacing
stands for its error. Exits with 1 when a ratio passes --limit.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os
import sys

import torch
import torch.nn.functional as F

import common

sys.path.insert(0, os.path.join(common.ROOT, "python"))
import saker.torch as st  # noqa: E402

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Draw:
    """Inputs of one case; floats are rounded to the case's type, so that double sees the same numbers."""

    def __init__(self, dtype, device, seed=0):
        self.dtype, self.device = dtype, device
        self.generator = torch.Generator("cpu").manual_seed(seed)

    def normal(self, *shape, scale=1.0):
        return (torch.randn(*shape, generator=self.generator) * scale).to(self.device, self.dtype)

    def positive(self, *shape):
        return (torch.rand(*shape, generator=self.generator) + 0.5).to(self.device, self.dtype)

    def indices(self, high, *shape):
        return torch.randint(0, high, shape, generator=self.generator).to(self.device)


def rms(x, w):
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


# name: (inputs, ours, PyTorch's). Both functions take the inputs and return a tensor or several.
CASES = {
    "rms_norm": (lambda d: (d.normal(512, 4096), d.positive(4096)), lambda x, w: st.rms_norm(x, w), rms),
    "rms_norm wide": (lambda d: (d.normal(16, 65536), d.positive(65536)), lambda x, w: st.rms_norm(x, w), rms),
    "softmax": (lambda d: (d.normal(512, 4096),), lambda x: st.softmax(x), lambda x: F.softmax(x, -1)),
    "softmax wide": (lambda d: (d.normal(16, 65536),), lambda x: st.softmax(x), lambda x: F.softmax(x, -1)),
    "softmax dim": (lambda d: (d.normal(8, 1024, 64),), lambda x: st.softmax(x, 1), lambda x: F.softmax(x, 1)),
    "log_softmax": (lambda d: (d.normal(512, 4096),), lambda x: st.log_softmax(x), lambda x: F.log_softmax(x, -1)),
}


def run(function, inputs, cotangents):
    """Outputs, then gradients of the floating inputs."""
    leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs = function(*leaves)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    wanted = [x for x in leaves if x.requires_grad]
    if not any(y.requires_grad for y in outputs):
        return [y.detach() for y in outputs], []
    if not cotangents:
        generator = torch.Generator("cpu").manual_seed(1)
        for y in outputs:
            cotangents.append(torch.randn(y.shape, generator=generator).to(y.device, y.dtype))
    grads = torch.autograd.grad(outputs, wanted, [c.to(y.dtype) for c, y in zip(cotangents, outputs)])
    return [y.detach() for y in outputs], list(grads)


def errors(got, want):
    scale = want.abs().max().clamp_min(1e-300)
    error = (got.double() - want).abs() / scale
    return error.square().mean().sqrt().item(), error.max().item()


def compare(name, type_name, device):
    make, ours, theirs = CASES[name]
    inputs = make(Draw(TYPES[type_name], device))
    exact = [x.double() if x.is_floating_point() else x for x in inputs]
    cotangents = []  # made by the first run, in the outputs' type
    mine, his = run(ours, inputs, cotangents), run(theirs, inputs, cotangents)
    truth = run(theirs, exact, [c.double() for c in cotangents])
    for kind, a, b, want in zip(("out", "grad"), mine, his, truth):
        for i, (x, y, t) in enumerate(zip(a, b, want)):
            floor = torch.finfo(y.dtype).eps / 4
            (our_rms, our_max), (rms_error, max_error) = errors(x, t), errors(y, t)
            yield {
                "case": name,
                "dtype": type_name,
                "device": device,
                "tensor": f"{kind}{i}",
                "rms": our_rms,
                "torch_rms": rms_error,
                "max": our_max,
                "torch_max": max_error,
                "ratio": max(our_rms / max(rms_error, floor / 4), our_max / max(max_error, floor)),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--op", help="only cases whose name starts so")
    parser.add_argument("--types", default="f32,f16,bf16")
    parser.add_argument("--limit", type=float, default=1.25, help="largest ratio to accept (1.25)")
    parser.add_argument("--out", help="write the rows as JSON, too")
    arguments = parser.parse_args()
    rows, bad = [], 0
    print(f"{'case':28} {'type':5} {'tensor':6} {'rms':>9} {'torch':>9} {'max':>9} {'torch':>9}  ratio")
    for name in CASES:
        if arguments.op and not name.startswith(arguments.op):
            continue
        for type_name in arguments.types.split(","):
            for row in compare(name, type_name, arguments.device):
                over = row["ratio"] > arguments.limit
                bad += over
                rows.append(row)
                numbers = " ".join(f"{row[k]:9.2e}" for k in ("rms", "torch_rms", "max", "torch_max"))
                print(f"{name:28} {type_name:5} {row['tensor']:6} {numbers} {row['ratio']:6.2f}{' !' if over else ''}")
    print(f"{len(rows)} tensors, {bad} with more than {arguments.limit} of PyTorch's error")
    if arguments.out:
        head = {"what": "accuracy", "device": arguments.device, "torch": torch.__version__}
        common.save(arguments.out, head, rows)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
