#!/usr/bin/env python3
"""gemm on a GPU at the shapes of language models' linear layers, beside cuBLAS.

    python bench/model_shapes.py --build build      # about 20 seconds

Weights [n, k] of models of 0.1 to 671 billion parameters, beside 1 to 4096 rows of activations, bf16: whoever tunes a list of round
shapes learns here what it left out. Shows means over the weights for each number of rows, and the slowest. Writes
bench/results/<machine>-model-shapes.json (or --out).
SPDX-License-Identifier: Apache-2.0
"""

import os

import torch

import common
import ours
import tables
import timing
from peers import rotate

WEIGHTS = (
    [(768, 768), (3072, 768), (768, 3072)]  # GPT-2
    + [(4096, 4096), (6144, 4096), (1024, 4096), (28672, 4096), (4096, 14336), (128256, 4096)]  # Llama 3 8B
    + [(8192, 8192), (10240, 8192), (57344, 8192), (8192, 28672)]  # Llama 3 70B
    + [(3072, 1024), (2560, 9728), (5120, 5120)]  # Qwen 3
    + [(2112, 7168), (24576, 1536), (7168, 2048), (512, 7168)]  # DeepSeek V3
)
ROWS = (1, 4, 8, 16, 32, 48, 64, 96, 100, 128, 160, 192, 256, 300, 384, 512, 640, 768, 1000, 1024, 1536, 2048, 3072, 4096)
MOST = 4096 * 28672 * 4096  # products of one gemm


def contenders(library, weights, m):
    """{who: run}, and the kernel's name."""
    n, k = weights[0].shape
    sets = [(torch.randn(m, k, device="cuda").bfloat16(), w.t(), w.new_empty(m, n)) for w in weights]
    runs = [library.prepare("gemm", a=a, b=b, d=d) for a, b, d in sets]
    runs[0]()
    torch_runs = [lambda a=a, b=b, d=d: torch.matmul(a, b, out=d) for a, b, d in sets]
    return {"saker": rotate(runs), "torch eager": rotate(torch_runs)}, library.kernel()


def main():
    arguments, library, head, path = ours.begin_on_gpu(__doc__, "model shapes", seconds=0.0)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    clock = timing.Cuda()
    clock.least_s = 0.002  # of calls in one timing
    rows = []
    for n, k in WEIGHTS:
        copies = max(1, min(12, 1 + 3 * cache // (2 * n * k)))
        weights = [torch.randn(n, k, device="cuda").bfloat16() for _ in range(copies)]
        for m in (m for m in ROWS if m * n * k <= MOST):
            found, kernel = contenders(library, weights, m)
            times = timing.interleave(clock, found, arguments.seconds)
            shape = {"m": m, "n": n, "k": k}
            for who, time in times.items():
                rows.append({**shape, "who": who, **time} | ({"kernel": kernel} if who == "saker" else {}))
        common.save(path, head, rows)
        torch.cuda.empty_cache()
        print(f"weights {n} x {k}: {len(rows) // 2} products timed", flush=True)
    print(tables.model_shapes({**head, "rows": rows}))
    print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
