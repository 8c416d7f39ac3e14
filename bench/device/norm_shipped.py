#!/usr/bin/env python3
# norm_shipped.py - times rms_norm of the built library on a GPU beside a copy of the same bytes: 2^27 elements, and QuACK's shapes.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 bench/device/norm_shipped.py [BUILD]
import os
import sys
import tempfile

import gpu
import torch
from norm_shapes import COPY

sys.path.insert(0, f"{gpu.ROOT}/bench")
import ours  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
QUACK = [("bf16", 32768, n) for n in (256, 512, 1024, 4096, 8192)]
QUACK += [("bf16", 16384, 16384), ("bf16", 8192, 32768), ("bf16", 2048, 65536), ("bf16", 1024, 131072), ("bf16", 512, 262144)]
QUACK += [("f32", 32768, 1024), ("f32", 32768, 4096), ("f32", 2048, 65536), ("f32", 512, 262144)]
SWEEP = [(t, 2**27 >> k, 2**k) for t in TYPES for k in range(8, 19)]


def measure(library, copy, t, m, n):
    x = torch.randn(m, n, device="cuda").to(TYPES[t])
    y, w = torch.empty_like(x), (torch.randn(n, device="cuda") * 0.2 + 1).to(TYPES[t])
    run = library.prepare("rms_norm", x=x, weight=w, y=y, eps=1e-6)
    size = x.numel() * x.element_size()
    by_hand = copy.launcher(copy.config(-(-size // 4096)), gpu.Copy(x.data_ptr(), y.data_ptr(), size), torch.cuda.current_stream().cuda_stream)
    times = gpu.time_all(torch, {"ours": run, "copy": by_hand, "torch": lambda: y.copy_(x)}, 40)
    run()
    few = slice(m - min(m, 64), m)
    f = x[few].double()
    want = f / (f.square().mean(1, keepdim=True) + 1e-6).sqrt() * w.double()
    error = ((y[few].double() - want).norm() / want.norm()).item()
    best = min(times["copy"], times["torch"])
    print(f"{t:4} {m:6}x{n:<6} {times['ours']:7.1f} us {2 * size / times['ours'] / 1e3:6.0f} GB/s  {best / times['ours']:.3f} of copy"
          f"  error {error:.1e}  {library.kernel()}", flush=True)
    if not error < (4e-3 if t == "bf16" else 1e-6):
        sys.exit("wrong")


def main():
    folder = tempfile.mkdtemp()
    gpu.compile_all({"copy": COPY}, folder)
    library = ours.open_library(os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build"), "cuda", 1, "ctypes")
    copy = gpu.Driver().kernel(f"{folder}/copy.cubin", "copy", 256)
    for title, shapes in (("2^27 elements", SWEEP), ("QuACK's shapes", QUACK)):
        print(title)
        for shape in shapes:
            measure(library, copy, *shape)


if __name__ == "__main__":
    main()
