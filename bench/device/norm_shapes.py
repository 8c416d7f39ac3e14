# norm_shapes.py - the instances of the norm kernels that norm_tune.py tries, and their source text.
# SPDX-License-Identifier: Apache-2.0
#
# They are read from src/ops/norm/norm_kernels.def and, in the same words, from the file that TUNE_EXTRA names (one instance a line).
import os
import re

import gpu

BYTES = {"bf16": 2, "f16": 2, "f32": 4}
# How once-read data is loaded and stored. The first is what device.cuh has.
FLAVOURS = {
    "": [],
    "n": ['-DSKR_LOAD_ONCE="ld.global.L1::no_allocate"'],
    "s": ['-DSKR_STORE_ONCE="st.global.cs"'],
}
FIELDS = {
    "PLAIN": "lanes threads vpt rows early blocks",
    "PLAIN_CLUSTER": "threads vpt inside params blocks least most",
    "RESIDUAL": "lanes threads vpt blocks",
    "RESIDUAL_CLUSTER": "threads vpt blocks least most walk",
    "QUANT": "lanes threads vpt hold blocks walk",
    "QUANT_CLUSTER": "threads vpt hold least most",
    "BACKWARD_LEAN": "lanes threads vpt stages shared blocks parts",
    "BACKWARD_RING": "threads vpt slots ahead shared blocks least most",
}
KIND = {"PLAIN": "plain", "RESIDUAL": "residual", "QUANT": "e4m3", "BACKWARD": "backward"}
STRUCT = {
    "PLAIN": "norm_plain<{C}, {T}, {O}, {vpt}, {rows}, {early}>",
    "PLAIN_CLUSTER": "norm_wide<{C}, {T}, {threads}, {vpt}, {inside}, {params}>",
    "RESIDUAL": "norm_residual<{C}, {T}, {O}, {vpt}>",
    "QUANT": "norm_quant<{C}, {T}, {O}, {vpt}, 2, {hold}>",
    "BACKWARD_LEAN": "norm_backward<{C}, {T}, {O}, {vpt}, {stages}, {shared}, true>",
    "BACKWARD_RING": "norm_backward_ring<{C}, {T}, {threads}, {M}, {vpt}, {slots}, {ahead}, {shared}>",
}


def instances():
    """(family, norm, type, fields) of every line."""
    text = open(f"{gpu.ROOT}/src/ops/norm/norm_kernels.def").read()
    if os.environ.get("TUNE_EXTRA"):
        text += open(os.environ["TUNE_EXTRA"]).read()
    for line in dict.fromkeys(text.splitlines()):
        m = re.match(r"(?:SKR_(TYPES|HALVES|BOTH)\()?SKR_(\w+)[,(] ?(.*)\)$", line)
        if not m or m[2] not in FIELDS:
            continue
        group, family, rest = m.groups()
        words = [w.strip() for w in rest.split(",")]
        norms = ["rms", "layer"] if group == "BOTH" else [words.pop(0)]
        types = [words.pop(0)] if not group else ["f16", "bf16"] if group == "HALVES" else ["f32", "f16", "bf16"]
        for norm in norms:
            for t in types:
                yield family, norm, t, dict(zip(FIELDS[family].split(), map(int, words)))


def entry(family, norm, t, n, f):
    """What norm_tune.py needs to know of an instance, for rows of n columns; None where they do not fit, or leave half of it empty."""
    vec = 16 // BYTES[t]
    lanes = f.get("lanes", f["threads"])
    clusters = [1]
    if "least" in f:
        clusters = [c for c in (1, 2, 4, 8, 16) if f["least"] <= c <= f["most"]]
    fit = [c for c in clusters if c * lanes * f["vpt"] * vec >= n]
    if not fit or (fit[0] * lanes * f["vpt"] * vec >= 2 * n and lanes > 8):
        return None
    c, stages = fit[0], 2 if family.startswith("QUANT") else f.get("stages", 0)
    weights = f["vpt"] * vec * 4 if f.get("shared") else 0
    if family == "PLAIN_CLUSTER":
        shared = (f["inside"] + f["params"] * (2 if norm == "layer" else 1)) * f["threads"] * 16
    elif family == "BACKWARD_RING":
        shared = f["threads"] * (f["slots"] * 32 + weights)
    elif family == "BACKWARD_LEAN":
        shared = f["threads"] * (stages * (2 * f["vpt"] * 16 + (8 if norm == "layer" else 4)) + weights + f["vpt"] * vec * 4 * (norm == "layer"))
    else:
        shared = stages * f["vpt"] * f["threads"] * 16
    owner = f"block_owner<{lanes}, {f['threads']}>" if "least" not in f else f"cluster_owner<{f['threads']}>"
    struct = STRUCT[family if family in STRUCT else family.replace("_CLUSTER", "")].format(
        **{"rows": 1, **f}, C="true" if norm == "layer" else "false", T=f"SKR_{t.upper()}", O=owner, M="true" if c > 1 or f.get("least", 1) > 1 else "false")
    tag = "_".join(f"{k[0]}{v}" for k, v in f.items() if k not in ("least", "most", "parts", "walk", "lanes", "threads", "vpt"))
    args = f"{family.lower()}_{lanes}_{f['threads']}x{f['vpt']}_{tag}"
    kind = ("layer_" if norm == "layer" else "") + KIND[family.split("_")[0]]
    e = dict(kind=kind, type=t, n=n, lanes=lanes, threads=f["threads"] + (64 if family == "BACKWARD_RING" else 0), vpt=f["vpt"], cluster=c, rpg=f.get("rows", 1), stages=stages,
             blocks=f.get("blocks", 1), shared=shared, name=f"{norm}_{t}_{args}", shape=f"{args}_c{c}", flavour="", struct=struct)
    if kind.endswith("plain"):
        e["grids"] = ["once"]
    return e


def shapes(kind, t, n):
    found = [entry(family, norm, u, n, f) for family, norm, u, f in instances() if u == t]
    return [e for e in found if e and e["kind"] == kind]


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
ADD = "".join(
    f'extern "C" __global__ void __launch_bounds__(1024) add_{c}(const __grid_constant__ skr_norm_backward_job job)\n'
    f"{{ norm_add_parts<{c}>(job); }}\n"
    for c in (1, 4)
)


def kernel_text(e):
    kind = "backward_job" if e["kind"].endswith("backward") else "job"
    return (
        f'extern "C" __global__ void __launch_bounds__({e["threads"]}, {e["blocks"]}) '
        f'{e["name"]}(const __grid_constant__ skr_norm_{kind} job)\n{{ {e["struct"]}::run(job); }}\n'
    )


def sources(entries, pieces):
    """Texts that hold the kernels of the entries, and sets e["cubin"]."""
    texts, place = {}, {}
    for e in entries:
        key = (e["flavour"], e["name"])
        if key not in place:
            place[key] = f"piece{len(place) % pieces}{e['flavour']}"
            texts.setdefault((e["flavour"], place[key]), gpu.INCLUDES)
            texts[e["flavour"], place[key]] += kernel_text(e)
        e["cubin"] = place[key]
    return texts
