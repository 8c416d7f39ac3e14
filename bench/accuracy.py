#!/usr/bin/env python3
"""The error of every operation on rows beside PyTorch's own: same inputs, same types, both against PyTorch in double.

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


def rms_residual(x, r, w):
    return rms(x + r, w), x + r


def layer(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def rotated(x):
    """RoPE as models write it: cos and sin in the type of x, halves rotated; x is [B, S, H, D]."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)[:, None] * 10000.0 ** (
        -torch.arange(half, dtype=torch.float64, device=x.device) / half
    )
    cos, sin = (t.repeat(1, 2)[:, None].to(x.dtype) for t in (angle.cos(), angle.sin()))
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def rope_norm(x, w):
    return rotated(rms(x, w))


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def hadamard(x):
    n = x.shape[-1]
    y, step = x, 1
    while step < n:
        pairs = y.view(*x.shape[:-1], n // (2 * step), 2, step)
        y = torch.cat((pairs[..., :1, :] + pairs[..., 1:, :], pairs[..., :1, :] - pairs[..., 1:, :]), -2)
        step *= 2
    return y.reshape(x.shape) * n**-0.5


def there_and_back(dtype):
    """The values after q = round(x / scale), by PyTorch: one scale a row, as large as the type allows."""
    most = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max

    def run(x):
        x = x.detach()
        scale = x.abs().amax(-1, keepdim=True).to(torch.promote_types(x.dtype, torch.float32)) / most
        q = x / scale
        q = q.round() if dtype == torch.int8 else q.float().to(dtype)
        return (q.to(scale.dtype) * scale).to(x.dtype)

    return run


def ours_there_and_back(dtype):
    def run(x):
        q, scale = st.quantize(x.detach(), dtype)
        return st.dequantize(q, scale, x.dtype)

    return run


def step_adamw(step):
    """The parameter and its moments after one step."""

    def run(*state):
        param, grad, first, second = (t.detach().clone() for t in state)
        step(param, grad, first, second)
        return param, first, second

    return run


def torch_adamw(param, grad, first, second):
    steps = [torch.tensor(2.0, device=param.device)]
    torch.optim._functional.adamw(
        [param], [grad], [first], [second], [], steps, foreach=False, amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-3,
        weight_decay=1e-2, eps=1e-8, maximize=False,
    )  # fmt: skip


def our_sum(x):
    out = torch.zeros(len(x), 1, device=x.device)
    for to, row in zip(out, x.detach()):
        st.sum_squares_(to, row, accumulate=False)
    return out


def their_sum(x):
    x = x.detach()
    return x.to(torch.promote_types(x.dtype, torch.float32)).square().sum(-1, keepdim=True)


def chosen(x):
    values, _ = torch.topk(x, 64)
    return torch.softmax(values, -1)


def rows(d, *shape):
    return (d.normal(*shape),)


def with_winners(d, m, n, k):
    """Rows whose k largest are all different in every type: which of two equals comes first is not PyTorch's to say."""
    x = d.normal(m, n).clamp(-1, 1)
    places = torch.rand(m, n, generator=d.generator).argsort(-1)[:, :k].to(d.device)
    return (x.scatter(-1, places, (1 + (torch.arange(k, device=d.device) + 1) / k).to(d.dtype).expand(m, k)),)


def norm_inputs(m, n, bias=False):
    return lambda d: (d.normal(m, n), d.positive(n)) + ((d.normal(n),) if bias else ())


def logits(m, n):
    return lambda d: (d.normal(m, n, scale=3.0), d.indices(n, m))


# name: (inputs, ours, PyTorch's). Both functions take the inputs and return a tensor or several.
CASES = {
    "rms_norm": (norm_inputs(512, 4096), st.rms_norm, rms),
    "rms_norm wide": (norm_inputs(16, 65536), st.rms_norm, rms),
    "rms_norm residual": (
        lambda d: (d.normal(512, 4096), d.normal(512, 4096), d.positive(4096)),
        lambda x, r, w: st.rms_norm(x, w, residual=r),
        rms_residual,
    ),
    "layer_norm": (norm_inputs(512, 4096, True), st.layer_norm, layer),
    "layer_norm wide": (norm_inputs(16, 65536, True), st.layer_norm, layer),
    "layer_norm far from 0": (
        lambda d: (d.normal(512, 4096) + 30, d.positive(4096), d.normal(4096)),
        st.layer_norm,
        layer,
    ),
    "softmax": (lambda d: rows(d, 512, 4096), st.softmax, lambda x: F.softmax(x, -1)),
    "softmax wide": (lambda d: rows(d, 16, 65536), st.softmax, lambda x: F.softmax(x, -1)),
    "softmax dim": (lambda d: rows(d, 8, 1024, 64), lambda x: st.softmax(x, 1), lambda x: F.softmax(x, 1)),
    "log_softmax": (lambda d: rows(d, 512, 4096), st.log_softmax, lambda x: F.log_softmax(x, -1)),
    "cross_entropy": (logits(512, 32000), st.cross_entropy, F.cross_entropy),
    "cross_entropy rows": (
        logits(512, 4096),
        lambda x, t: st.cross_entropy(x, t, reduction="none"),
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
    ),
    "cross_entropy smoothed": (
        logits(512, 4096),
        lambda x, t: st.cross_entropy(x, t, label_smoothing=0.1),
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    ),
    "rope": (lambda d: rows(d, 2, 512, 8, 128), st.rope, rotated),
    "rope norm": (
        lambda d: (d.normal(2, 512, 8, 128), d.positive(128)),
        lambda x, w: st.rope(x, q_weight=w),
        rope_norm,
    ),
    "silu": (lambda d: rows(d, 512, 4096), st.silu, F.silu),
    "gelu": (lambda d: rows(d, 512, 4096), st.gelu, F.gelu),
    "gelu_tanh": (
        lambda d: rows(d, 512, 4096),
        lambda x: st.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "relu2": (lambda d: rows(d, 512, 4096), st.relu2, lambda x: F.relu(x).square()),
    "swiglu": (lambda d: rows(d, 512, 8192), st.swiglu, swiglu),
    "hadamard": (lambda d: rows(d, 512, 4096), st.hadamard, hadamard),
    "embedding": (
        lambda d: (d.indices(64, 4096), d.normal(64, 512)),
        st.embedding,
        lambda ids, table: F.embedding(ids, table),
    ),
    "topk softmax": (lambda d: with_winners(d, 512, 4096, 64), lambda x: st.topk(x, 64, softmax=True)[0], chosen),
    "quantize i8": (lambda d: rows(d, 512, 4096), ours_there_and_back(torch.int8), there_and_back(torch.int8)),
    "quantize e4m3": (
        lambda d: rows(d, 512, 4096),
        ours_there_and_back(torch.float8_e4m3fn),
        there_and_back(torch.float8_e4m3fn),
    ),
    "adamw": (
        lambda d: (d.normal(1 << 18), d.normal(1 << 18), d.normal(1 << 18, scale=0.1), d.positive(1 << 18)),
        step_adamw(lambda p, g, a, b: st.adamw_(p, g, a, b, step=3)),
        step_adamw(torch_adamw),
    ),
    "sum_squares": (lambda d: rows(d, 64, 1 << 16), our_sum, their_sum),
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
