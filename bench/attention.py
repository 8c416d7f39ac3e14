#!/usr/bin/env python3
"""Saker's attention beside PyTorch's FlashAttention-2 on one GPU: same tensors, in turn, L2 flushed before each call.

    python bench/attention.py --build build --seconds 0.1

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import common
import ours

TOKENS, WIDTH = 16384, 2048


def measure(runs, flush, seconds):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    times = {name: [] for name in runs}
    for run in runs.values():
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    while len(next(iter(times.values()))) < 5 or time.perf_counter() - start < seconds:
        for name, run in runs.items():
            flush.zero_()
            events[0].record()
            run()
            events[1].record()
            events[1].synchronize()
            times[name].append(events[0].elapsed_time(events[1]))
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def tensors(d, length, count):
    shape = (TOKENS // length, WIDTH // d, length, d)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(count)]


def options(q, length):
    heads = q.shape[1]
    yield "window 1024", {"has_window": 1, "window_left": 1024, "window_right": 0}
    yield "alibi", {"slopes": torch.rand(heads, device="cuda")}
    yield "softcap", {"softcap": 30.0}
    yield "bias", {"bias": torch.randn(1, heads, length, length, device="cuda", dtype=torch.bfloat16)}


def line(what, work, t):
    mine, peer = t["saker"], t.get("flash")
    text = f"{what:34} {work / mine * 1e-9:7.1f} T/s"
    print(text + (f"  flash {work / peer * 1e-9:7.1f}  {peer / mine:5.2f}x" if peer else ""), flush=True)


def forward(library, d, length, causal, flush, seconds, extra=None, name=""):
    q, k, v = (t.detach() for t in tensors(d, length, 3))
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], device="cuda")
    extra = extra(q) if extra else {}
    runs = {"saker": library.prepare("attention", q=q, k=k, v=v, o=o, lse=lse, layout=1, causal=causal, **extra)}
    if not extra:

        def flash():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        runs["flash"] = flash
        runs["saker"]()
        print(f"  differs by {(o.float() - flash().float()).abs().max():.2e}", end="")
    t = measure(runs, flush, seconds)
    line(f"forward {d:3} {length:5} {'causal' if causal else 'full':6} {name}", 4 * TOKENS * length * WIDTH / (1 + causal), t)


def backward(library, d, length, causal, flush, seconds):
    q, k, v = tensors(d, length, 3)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
    g = torch.randn_like(o)
    grads = torch.autograd.grad(o, (q, k, v), g, retain_graph=True)
    q0, k0, v0, mine = q.detach(), k.detach(), v.detach(), [torch.empty_like(q) for _ in range(3)]
    o0, lse = torch.empty_like(q0), torch.empty(q.shape[:3], device="cuda")
    library.prepare("attention", q=q0, k=k0, v=v0, o=o0, lse=lse, layout=1, causal=causal)()
    run = library.prepare(
        "attention_backward", d_o=g, q=q0, k=k0, v=v0, o=o0, lse=lse, dq=mine[0], dk=mine[1], dv=mine[2], layout=1,
        causal=causal,
    )  # fmt: skip
    run()
    print("  differs by " + " ".join(f"{(a - b).abs().max().item():.2e}" for a, b in zip(mine, grads)), end="")
    runs = {"saker": run, "flash": lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)}
    t = measure(runs, flush, seconds)
    line(f"backward {d:3} {length:5} {'causal' if causal else 'full'}", 10 * TOKENS * length * WIDTH / (1 + causal), t)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--seconds", type=float, default=0.1, help="per case")
    parser.add_argument("--lengths", default="2048,8192")
    parser.add_argument("--no-backward", action="store_true")
    arguments = parser.parse_args()
    library = ours.Native(os.path.abspath(arguments.build), "cuda", 1)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    lengths = [int(n) for n in arguments.lengths.split(",")]
    for d in (64, 128, 256):
        for length in lengths:
            for causal in (0, 1):
                forward(library, d, length, causal, flush, arguments.seconds)
                if not arguments.no_backward:
                    backward(library, d, length, causal, flush, arguments.seconds)
    for d in (64, 128):
        sample = tensors(d, lengths[0], 1)[0]
        for name, extra in options(sample, lengths[0]):
            forward(library, d, lengths[0], 0, flush, arguments.seconds, lambda q, e=extra: e, name)


if __name__ == "__main__":
    main()
