#!/usr/bin/env python3
"""Saker's grouped_gemm beside torch._grouped_mm on one GPU: same tensors, in turn, L2 flushed before each call, median.

    python bench/grouped_gemm.py --build build --out bench/results/nvidia-h200-peers-grouped-gemm.json

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os

import torch

import common
import ours
from gemm import measure

# experts, experts of a token, tokens, K, N
SHAPES = [
    (8, 2, 4096, 4096, 14336),
    (64, 6, 4096, 2048, 2816),
    (128, 8, 4096, 2048, 1536),
    (256, 8, 4096, 7168, 4096),
    (128, 8, 64, 2048, 1536),
]


def cases(library):
    """(name, flops, ours, theirs, our result)"""
    for experts, each, tokens, k, n in SHAPES:
        g = torch.Generator("cuda").manual_seed(1)
        total = tokens * each
        owner = torch.randint(0, experts, (total,), device="cuda", generator=g)
        ends = torch.bincount(owner, minlength=experts).cumsum(0)
        offsets = torch.cat([torch.zeros(1, dtype=ends.dtype, device="cuda"), ends]).int()
        a = torch.randn(total, k, device="cuda", generator=g).bfloat16()
        for layout in ("kk", "kn"):
            b = torch.empty(experts, *((n, k) if layout == "kk" else (k, n)), dtype=torch.bfloat16, device="cuda")
            b.normal_(generator=g)
            b = b.mT if layout == "kk" else b
            d = torch.empty(total, n, dtype=torch.bfloat16, device="cuda")
            run = library.prepare("grouped_gemm", a=a, b=b, offsets=offsets, d=d)
            name = f"rows E{experts} top{each} T{tokens} {k}->{n} {layout}"
            yield name, 2 * total * k * n, run, lambda a=a, b=b: torch._grouped_mm(a, b, offs=offsets[1:]), d
            del b, d
        if experts > 128:
            continue
        dy = torch.randn(total, n, device="cuda", generator=g).bfloat16()
        d = torch.empty(experts, k, n, dtype=torch.bfloat16, device="cuda")
        run = library.prepare("grouped_gemm", a=a.t(), b=dy, offsets=offsets, d=d, along_k=True)
        name = f"k's E{experts} top{each} T{tokens} {k}->{n}"
        yield name, 2 * total * k * n, run, lambda a=a: torch._grouped_mm(a.t(), dy, offs=offsets[1:]), d


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--seconds", type=float, default=0.15, help="per case")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    library = ours.Native(arguments.build, "cuda", 1)
    head = {"what": "grouped gemm peers", "device": "cuda", **common.describe(arguments.build, "cuda")}
    head.update(torch=torch.__version__, cuda=torch.version.cuda, called=library.way)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    for name, flops, run, theirs, got in cases(library):
        times = measure({"saker": run, "torch": theirs}, flush, arguments.seconds)
        right = theirs().float()
        error = float((got.float() - right).norm() / right.norm())
        del right
        ratio = times["torch"]["median_us"] / times["saker"]["median_us"]
        print(f"{name:40} saker {times['saker']['median_us']:8.1f} us  torch {times['torch']['median_us']:8.1f} us  "
              f"{ratio:5.2f}x  {flops * 1e-6 / times['saker']['median_us']:6.0f} TFLOP/s  off {error:.1e}  {library.kernel()}",
              flush=True)
        for who, t in times.items():
            row = {"op": "grouped_gemm", "case": name, "who": who, **t, "tflops": flops * 1e-6 / t["median_us"]}
            rows.append(row | {"kernel": library.kernel(), "error": error} if who == "saker" else row)
    if arguments.out:
        common.save(os.path.abspath(arguments.out), head, rows)


if __name__ == "__main__":
    main()
