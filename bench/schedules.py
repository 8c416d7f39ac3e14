#!/usr/bin/env python3
"""The schedules of gemm on a GPU beside each other and beside cuBLAS: where each one wins.

    python bench/schedules.py --build build      # about half a minute

Three walks in bf16, weights as a linear layer keeps them: more and more k for a small d; d's sides in steps that leave the last
wave of tiles ragged; more and more rows beside one weight. Writes bench/results/<machine>-schedules.json (or --out), which plot.py
draws.
SPDX-License-Identifier: Apache-2.0
"""

import os

import torch

import common
import ours
import timing
from peers import rotate

# As saker_gemm_schedule counts them.
SCHEDULES = ("auto", "data-parallel", "persistent", "split-K", "stream-K")
WALKS = {
    "1536 x 1536 x k": [(k, 1536, 1536, k) for k in (512, 1024, 2048, 4096, 8192, 16384)],
    "n x n x 4096": [(n, n, n, 4096) for n in range(1024, 3329, 256)],
    "m x 4096 x 4096": [(m, m, 4096, 4096) for m in (1, 4, 16, 32, 64, 128, 256, 512)],
}


def contenders(library, m, n, k):
    """{who: run}; as many copies of the tensors in turn as L2 cannot keep."""
    size = 2 * (m * k + n * k + m * n)
    copies = max(1, min(16, 1 + 3 * torch.cuda.get_device_properties(0).L2_cache_size // size))
    draw = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device="cuda")
    sets = [(draw(m, k), draw(n, k).t(), draw(m, n)) for _ in range(copies)]
    found = {"torch eager": rotate([lambda a=a, b=b, d=d: torch.matmul(a, b, out=d) for a, b, d in sets])}
    kernels = {}
    for schedule, name in enumerate(SCHEDULES):
        runs = [library.prepare("gemm", a=a, b=b, d=d, schedule=schedule) for a, b, d in sets]
        runs[0]()
        kernels[name] = library.kernel()
        found[name] = rotate(runs)
    return found, kernels


def main():
    arguments, library, head, path = ours.begin_on_gpu(__doc__, "schedules", seconds=0.1)
    rows = []
    for walk, shapes in WALKS.items():
        for x, m, n, k in shapes:
            found, kernels = contenders(library, m, n, k)
            times = timing.interleave(timing.Cuda(), found, arguments.seconds)
            for who, time in times.items():
                row = {"walk": walk, "x": x, "m": m, "n": n, "k": k, "who": who, **time}
                row["gflops"] = 2e-3 * m * n * k / time["median_us"]
                rows.append(row | ({"kernel": kernels[who]} if who in kernels else {}))
            line = "  ".join(f"{who} {time['median_us']:.1f}" for who, time in times.items())
            print(f"{m}x{n}x{k}: us: {line}; {kernels['auto']}", flush=True)
            common.save(path, head, rows)
            torch.cuda.empty_cache()
    print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
