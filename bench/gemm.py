#!/usr/bin/env python3
"""Saker's gemm beside cuBLAS through PyTorch on one GPU: same tensors, in turn, L2 flushed before each call, median.

    python bench/gemm.py --build build --out bench/results/nvidia-h200-peers-gemm-sweep.json

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import os
import statistics
import sys
import time

import torch

import common
import ours

BIG = [(n, n, n) for n in (1024, 2048, 4096, 8192)] + [
    (16384, 4096, 4096),
    (4096, 14336, 4096),
    (1536, 1536, 16384),
    (4864, 4096, 8256),
]
SMALL = [(16, 4096, 4096), (64, 14336, 4096), (128, 4096, 14336)]
LAYOUTS = {"kk": (False, True), "kn": (False, False), "mk": (True, True), "mn": (True, False)}  # stored turned?


def matrix(rows, cols, turned, dtype, generator):
    shape = (cols, rows) if turned else (rows, cols)
    if dtype == torch.int8:
        t = torch.randint(-128, 128, shape, dtype=dtype, device="cuda", generator=generator)
    else:
        t = torch.randn(shape, dtype=torch.float32, device="cuda", generator=generator).to(dtype)
    return t.t() if turned else t


class Case:
    def __init__(self, what, m, n, k, layout, options):
        g = torch.Generator("cuda").manual_seed(1)
        self.what, self.shape, self.layout, self.options = what, (m, n, k), layout, options
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8, "f32": torch.float32}[what.split()[0]]
        ta, tb = LAYOUTS[layout]
        self.a, self.b = matrix(m, k, ta, dtype, g), matrix(k, n, tb, dtype, g)
        out = torch.int32 if dtype == torch.int8 else dtype
        self.d = torch.empty(m, n // 2 if options.get("gated") else n, dtype=out, device="cuda")
        self.ref = torch.empty(m, n, dtype=out, device="cuda")
        self.bias = torch.randn(n, dtype=torch.float32, device="cuda").to(dtype) if "bias" in options else None

    def ours(self, library):
        extra = {k: v for k, v in self.options.items() if k != "bias"}
        if self.bias is not None:
            extra["bias"] = self.bias
        return library.prepare("gemm", a=self.a, b=self.b, d=self.d, **extra)

    def theirs(self):
        if self.a.dtype == torch.int8:
            return lambda: torch._int_mm(self.a, self.b, out=self.ref)
        return lambda: torch.mm(self.a, self.b, out=self.ref)

    def error(self):
        """Of the plain product, in units of the type's rounding."""
        if self.bias is not None or self.options.get("gated"):
            return 0.0
        if self.a.dtype == torch.int8:
            right = self.a.double() @ self.b.double()  # exact: torch has no integer product of 16 rows
            return float((self.d.double() != right).sum())
        rows = slice(0, min(len(self.a), 64))
        right = self.a[rows].double() @ self.b.double()
        return float((self.d[rows].double() - right).norm() / right.norm())


def timed(run, flush, events):
    flush.zero_()
    events[0].record()
    run()
    events[1].record()


def measure(runs, flush, seconds):
    times = {name: [] for name in runs}
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for run in runs.values():
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    while len(times[next(iter(runs))]) < 9 or time.perf_counter() - start < seconds:
        for name, run in runs.items():
            timed(run, flush, events)
            events[1].synchronize()
            times[name].append(events[0].elapsed_time(events[1]) * 1e3)
    return {name: common.stats(t) for name, t in times.items()}


def cases(types):
    for what in types:
        for m, n, k in BIG + SMALL:
            yield what, m, n, k, "kk", {}
        if what in ("bf16", "f16"):
            for layout in ("kn", "mk", "mn"):
                yield what, 4096, 4096, 4096, layout, {}
        if what == "bf16":
            yield "bf16 bias gelu", 4096, 4096, 4096, "kk", {"bias": True, "act": 4}
            yield "bf16 swiglu", 4096, 4096, 4096, "kk", {"act": 3, "gated": 1}
            yield "bf16 stream-K", 1536, 1536, 16384, "kk", {"schedule": 4}
            yield "bf16 persistent", 1536, 1536, 16384, "kk", {"schedule": 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--types", default="bf16,f16,i8")
    parser.add_argument("--seconds", type=float, default=0.15, help="per case")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    library = ours.Native(arguments.build, "cuda", 1)
    head = {"what": "gemm peers", "device": "cuda", **common.describe(arguments.build, "cuda")}
    head.update(torch=torch.__version__, cuda=torch.version.cuda, called=library.way)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    for what, m, n, k, layout, options in cases(arguments.types.split(",")):
        case = Case(what, m, n, k, layout, options)
        runs = {"saker": case.ours(library)}
        runs["saker"]()
        kernel = library.kernel()
        try:
            case.theirs()()
            runs["cuBLAS (torch)"] = case.theirs()
        except RuntimeError as why:
            print(f"torch: {str(why).splitlines()[0]}", file=sys.stderr)
        times = measure(runs, flush, arguments.seconds)
        error = case.error()
        for who, t in times.items():
            row = {"op": "gemm", "case": f"{what} {m}x{n}x{k} {layout}", "who": who, **t}
            row["tflops"] = 2e-6 * m * n * k / t["median_us"]
            if who == "saker":
                row.update(kernel=kernel, error=error)
            rows.append(row)
        mine, peer = times["saker"]["median_us"], times.get("cuBLAS (torch)", {}).get("median_us", float("nan"))
        print(
            f"{what:16} {m:5}x{n:5}x{k:5} {layout} {mine:9.1f} us {2e-6 * m * n * k / mine:7.1f} T/s  "
            f"cuBLAS {peer:9.1f} us {peer / mine:5.2f}x  error {error:.2e}  {kernel}",
            flush=True,
        )
        if arguments.out:
            common.save(os.path.abspath(arguments.out), head, rows)
        del case, runs
    for what in arguments.types.split(","):
        ratios = []
        by = {}
        for row in rows:
            if row["case"].startswith(what + " ") and row["case"].split()[1][0].isdigit():
                by.setdefault(row["case"], {})[row["who"]] = row["median_us"]
        ratios = [t["cuBLAS (torch)"] / t["saker"] for t in by.values() if len(t) == 2]
        if ratios:
            print(f"{what}: geometric mean {statistics.geometric_mean(ratios):.3f}x, worst {min(ratios):.3f}x")


if __name__ == "__main__":
    main()
