#!/usr/bin/env python3
# softmax_tune.py - tries shapes of the softmax row kernels on a GPU: compiles each from the headers in src/, checks it, times it beside a copy.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 bench/device/softmax_tune.py compile FOLDER     no GPU needed
#   python3 bench/device/softmax_tune.py run FOLDER         prints the best shapes per type and width as fractions of the copy
#
# TUNE_KINDS (forward,backward), TUNE_TYPES and TUNE_WIDTHS limit both.
import ctypes as C
import json
import os
import sys

import gpu

TYPES = os.environ.get("TUNE_TYPES", "bf16,f32").split(",")
KINDS = os.environ.get("TUNE_KINDS", "forward,backward").split(",")
WIDTHS = [int(n) for n in os.environ.get("TUNE_WIDTHS", ",".join(str(2**k) for k in range(8, 19))).split(",")]
ELEMENTS, REPEATS = 1 << 27, 21
BYTES = {"bf16": 2, "f16": 2, "f32": 4}

# Vectors of a row: (lanes, threads, vpt, rows, blocks, cluster).
FORWARD = {
    32: ((16, 128, 2, 1, 1, 1), (8, 128, 4, 1, 1, 1)),
    64: ((32, 128, 2, 1, 1, 1), (16, 128, 4, 1, 1, 1)),
    128: ((32, 128, 4, 1, 1, 1), (16, 128, 8, 1, 1, 1), (64, 64, 2, 2, 1, 1)),
    256: ((32, 128, 8, 1, 1, 1), (64, 64, 4, 1, 1, 1), (128, 128, 2, 1, 1, 1)),
    512: ((64, 64, 8, 1, 1, 1), (128, 128, 4, 1, 1, 1), (256, 256, 2, 1, 1, 1)),
    1024: ((128, 128, 8, 1, 1, 1), (256, 256, 4, 1, 1, 1), (512, 512, 2, 1, 1, 1)),
    2048: ((256, 256, 8, 1, 1, 1), (512, 512, 4, 1, 1, 1), (512, 512, 4, 1, 2, 1), (128, 128, 8, 1, 9, 2), (256, 256, 4, 1, 1, 2), (256, 256, 8, 1, 4, 1)),
    4096: ((128, 128, 8, 1, 1, 4), (128, 128, 8, 1, 8, 4), (128, 128, 8, 1, 9, 4), (128, 128, 8, 1, 10, 4), (256, 256, 4, 1, 1, 4), (256, 256, 8, 1, 4, 2), (512, 512, 4, 1, 2, 2), (512, 512, 8, 1, 2, 1)),
    8192: ((128, 128, 8, 1, 1, 8), (128, 128, 8, 1, 8, 8), (128, 128, 8, 1, 9, 8), (128, 128, 8, 1, 10, 8), (256, 256, 4, 1, 1, 8), (256, 256, 8, 1, 4, 4), (512, 512, 4, 1, 2, 4), (512, 512, 8, 1, 2, 2)),
    16384: ((128, 128, 8, 1, 1, 16), (128, 128, 8, 1, 8, 16), (128, 128, 8, 1, 9, 16), (128, 128, 8, 1, 10, 16), (256, 256, 8, 1, 4, 8), (512, 512, 4, 1, 2, 8), (512, 512, 8, 1, 2, 4)),
    32768: ((256, 256, 8, 1, 1, 16), (256, 256, 8, 1, 3, 16), (256, 256, 8, 1, 4, 16), (256, 256, 8, 1, 5, 16), (512, 512, 8, 1, 2, 8), (128, 128, 16, 1, 1, 16), (128, 128, 16, 1, 4, 16), (128, 128, 16, 1, 5, 16), (256, 256, 16, 1, 2, 8)),
    65536: ((512, 512, 8, 1, 2, 16), (256, 256, 16, 1, 2, 16), (256, 256, 16, 1, 3, 16), (128, 128, 32, 1, 3, 16)),
}
BACKWARD = {
    32: ((8, 128, 4, 1, 1, 1), (16, 128, 2, 1, 1, 1), (16, 128, 2, 2, 1, 1), (16, 256, 2, 1, 1, 1), (32, 128, 1, 2, 1, 1)),
    64: ((16, 128, 4, 1, 1, 1), (32, 128, 2, 1, 1, 1), (32, 128, 2, 2, 1, 1), (32, 256, 2, 1, 1, 1)),
    128: ((32, 128, 4, 1, 1, 1), (64, 64, 2, 1, 1, 1), (64, 64, 2, 2, 1, 1), (128, 128, 1, 1, 1, 1)),
    256: ((64, 64, 4, 1, 1, 1), (128, 128, 2, 1, 1, 1), (256, 256, 1, 1, 1, 1), (128, 128, 2, 2, 1, 1)),
    512: ((128, 128, 4, 1, 1, 1), (256, 256, 2, 1, 1, 1), (512, 512, 1, 1, 1, 1)),
    1024: ((256, 256, 4, 1, 1, 1), (512, 512, 2, 1, 1, 1), (128, 128, 8, 1, 1, 1)),
    2048: ((512, 512, 4, 1, 1, 1), (512, 512, 4, 1, 2, 1), (256, 256, 8, 1, 1, 1), (1024, 1024, 2, 1, 1, 1), (256, 256, 4, 1, 1, 2), (128, 128, 4, 1, 1, 4)),
    4096: ((128, 128, 4, 1, 1, 8), (128, 128, 8, 1, 1, 4), (256, 256, 4, 1, 1, 4), (512, 512, 4, 1, 1, 2), (1024, 1024, 4, 1, 1, 1), (512, 512, 2, 1, 1, 4)),
    8192: ((128, 128, 4, 1, 1, 16), (128, 128, 8, 1, 1, 8), (256, 256, 4, 1, 1, 8), (512, 512, 4, 1, 1, 4), (512, 512, 2, 1, 1, 8)),
    16384: ((256, 256, 4, 1, 1, 16), (128, 128, 8, 1, 1, 16), (512, 512, 4, 1, 1, 8), (512, 512, 2, 1, 1, 16)),
    32768: ((512, 512, 4, 1, 1, 16), (256, 256, 8, 1, 1, 16), (512, 512, 8, 1, 1, 8)),
    65536: ((512, 512, 8, 1, 1, 16), (1024, 1024, 4, 1, 1, 16)),
}
TEXT = {
    "forward": ("softmax_rows.cuh", "softmax_plain", "skr_softmax_job", FORWARD),
    "backward": ("softmax_backward_rows.cuh", "softmax_backward_plain", "skr_softmax_backward_job", BACKWARD),
}


def entries():
    for kind in KINDS:
        for t in TYPES:
            for n in WIDTHS:
                for lanes, threads, vpt, rows, blocks, cluster in TEXT[kind][3].get(n * BYTES[t] // 16, ()):
                    for keep in (0, 1) if kind == "forward" else (None,):
                        name = f"{kind}_{t}_{'c' if cluster > 1 else ''}{lanes}_{threads}x{vpt}r{rows}b{blocks}" + ("" if keep is None else f"k{keep}")
                        yield dict(kind=kind, type=t, n=n, lanes=lanes, threads=threads, vpt=vpt, rows=rows, blocks=blocks, cluster=cluster, name=name, keep=keep)


def text(e):
    _, struct, job, _ = TEXT[e["kind"]]
    keep = "" if e["keep"] is None else f", {e['keep']}"
    owner = f"cluster_owner<{e['threads']}>" if e["cluster"] > 1 else f"block_owner<{e['lanes']}, {e['threads']}>"
    return (
        f'extern "C" __global__ void __launch_bounds__({e["threads"]}, {e["blocks"]}) {e["name"]}(const __grid_constant__ {job} job)\n'
        f"{{ {struct}<SKR_{e['type'].upper()}, {owner}, {e['vpt']}, {e['rows']}{keep}>::run(job); }}\n"
    )


COPY = r"""
#include <stdint.h>
struct copy_job { const char *x; char *y; int64_t n; };
extern "C" __global__ void __launch_bounds__(256) copy(const __grid_constant__ copy_job j)
{
    int64_t at = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 16;
    if (at < j.n)
        *(uint4 *)(j.y + at) = *(const uint4 *)(j.x + at);
}
"""


def compile_to(folder):
    sources, parts = {"copy": COPY}, 4
    unique = {e["name"]: e for e in entries()}
    for kind in KINDS:
        mine = [e for e in unique.values() if e["kind"] == kind]
        for p in range(parts):
            include = f'#include "cuda/sm90.cuh"\n#include "ops/softmax/{TEXT[kind][0]}"\n'
            sources[f"{kind}{p}"] = include + "".join(text(e) for e in mine[p::parts])
            for e in mine[p::parts]:
                e["cubin"] = f"{kind}{p}"
    info, errors = gpu.compile_all(sources, folder)
    for name, log in errors.items():
        print(name, log[-2000:])
    for name, v in info.items():
        print(name, v["regs"], f"spills {v['spill']}" if v["spill"] else "")
    with open(f"{folder}/kernels.json", "w") as f:
        json.dump({name: {"cubin": e["cubin"], **info.get(name, {})} for name, e in unique.items()}, f)


class Seen(C.Structure):
    _fields_ = [("how", C.c_int32), ("reserved", C.c_int32), ("q", C.c_int64), ("k", C.c_int64)]


START = [f for f in gpu.HEAD if f[0] != "heads"]
END = [("seen", Seen), ("scale", C.c_float), ("log", C.c_int32), ("cpu", C.c_int64 * 3)]


class Forward(C.Structure):
    _fields_ = START + [(k, gpu.Rows) for k in ("x", "mask", "y")] + END


class Backward(C.Structure):
    _fields_ = START + [(k, gpu.Rows) for k in ("dy", "y", "dx")] + END


def job_of(kind, m, n, **tensors):
    j = kind()
    j.m, j.n_dims, j.n, j.scale = m, 1, n, 1.0
    j.dims[0] = m
    for name, t in tensors.items():
        setattr(j, name, gpu.Rows(t.data_ptr(), (C.c_int64 * 4)(n, 0, 0, 0), 1, gpu.type_of(t), 0))
    return j


def run(folder):
    import torch

    driver = gpu.Driver()
    with open(f"{folder}/kernels.json") as f:
        kernels = json.load(f)
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    stream = torch.cuda.current_stream().cuda_stream
    out = open(os.path.join(os.environ.get("OUT", "/tmp"), "softmax_tune.jsonl"), "w")
    for t in TYPES:
        a, b, c = (torch.randn(ELEMENTS, device="cuda", dtype=dtypes[t]) for _ in range(3))
        copy = gpu.Copy(a.data_ptr(), c.data_ptr(), ELEMENTS * BYTES[t])
        k = driver.kernel(f"{folder}/copy.cubin", "copy", 256)
        copy_call = k.launcher(k.config(ELEMENTS * BYTES[t] // 4096), copy, stream)
        for kind in KINDS:
            for n in WIDTHS:
                m = ELEMENTS // n
                x, y, z = a.view(m, n), b.view(m, n), c.view(m, n)
                if kind == "forward":
                    job, moved = job_of(Forward, m, n, x=x, y=z), 2
                    want = torch.softmax(x[:4].double(), -1)
                else:
                    y.copy_(torch.softmax(x, -1))
                    job, moved = job_of(Backward, m, n, dy=x, y=y, dx=z), 3
                    p = y[:4].double()
                    want = p * (x[:4].double() - (x[:4].double() * p).sum(-1, keepdim=True))
                calls = {"copy": copy_call, "copy again": copy_call}
                for e in [e for e in entries() if (e["kind"], e["type"], e["n"]) == (kind, t, n)]:
                    if kernels[e["name"]].get("spill"):
                        continue
                    k = driver.kernel(f"{folder}/{kernels[e['name']]['cubin']}.cubin", e["name"], e["threads"])
                    grid = m * e["cluster"] if e["cluster"] > 1 else -(-m // (e["threads"] // e["lanes"] * e["rows"]))
                    call = k.launcher(k.config(grid, 0, e["cluster"]), job, stream)
                    z.zero_()
                    call()
                    torch.cuda.synchronize()
                    error = ((z[:4].double() - want).abs().amax() / want.abs().amax()).item()
                    last = bool((z[-1].float().abs().sum() > 0).item())
                    if not error < (1e-2 if t != "f32" else 1e-5) or not last:
                        print(f"WRONG {e['name']} {n}: {error} {last}")
                        continue
                    calls[f"{e['name']}/{e['cluster']}"] = call
                times = gpu.time_all(torch, calls, REPEATS)
                base = min(times.pop("copy"), times.pop("copy again")) * moved / 2
                best = sorted(times.items(), key=lambda v: v[1])
                print(f"{kind} {t} {n}: " + "  ".join(f"{name.split('_', 2)[2]}[{kernels[name.split('/')[0]]['regs']}] {base / us:.3f}" for name, us in best), flush=True)
                out.write(json.dumps({"kind": kind, "type": t, "n": n, "copy": base, "times": times}) + "\n")


if __name__ == "__main__":
    {"compile": compile_to, "run": run}[sys.argv[1]](sys.argv[2])
