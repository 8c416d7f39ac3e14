# rms_norm_shapes.py - the shapes of the rms_norm kernels that rms_norm_tune.py tries, and their source text.
# SPDX-License-Identifier: Apache-2.0
import gpu

BYTES = {"bf16": 2, "f16": 2, "f32": 4}
SHARED = 220 * 1024  # dynamic shared memory of a block, SKR_ROWS_SHARED
# How once-read data is loaded and stored. The first is what device.cuh has.
FLAVOURS = {
    "": [],
    "n": ['-DSKR_LOAD_ONCE="ld.global.L1::no_allocate"'],
    "s": ['-DSKR_STORE_ONCE="st.global.cs"'],
}


def owners(vectors):
    """(lanes, threads, vpt, cluster) that hold a row of so many 16-byte vectors."""
    blocks = ((8, 128), (16, 128), (32, 128), (32, 256), (64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024))
    for lanes, threads in blocks:
        vpt = -(-vectors // lanes)
        if vpt & (vpt - 1) == 0 and vpt <= 8:
            yield lanes, threads, vpt, 1
    for threads in (256, 512):
        for c in (2, 4, 8, 16):
            vpt = -(-vectors // (threads * c))
            if vectors >= 2048 and vpt in (2, 4, 8):
                yield threads, threads, vpt, c


def owner_text(lanes, threads, cluster):
    return f"cluster_owner<{threads}>" if cluster > 1 else f"block_owner<{lanes}, {threads}>"


def entry(kind, t, n, lanes, threads, vpt, cluster, struct, tag, shared, rpg=1, blocks=1, stages=0):
    args = f"{'c' if cluster > 1 else ''}{lanes}_{threads}x{vpt}_{tag}b{blocks}"
    family = "full" if kind in ("residual", "e4m3") else kind
    return dict(kind=kind, type=t, n=n, lanes=lanes, threads=threads, vpt=vpt, cluster=cluster, rpg=rpg, stages=stages, blocks=blocks,
                shared=shared, name=f"{family}_{t}_{args}", shape=f"{args}_c{cluster}", flavour="",
                struct=f"{struct.format(T=f'SKR_{t.upper()}', O=owner_text(lanes, threads, cluster), VPT=vpt, STAGES=stages)}")


# Bytes of a row: (lanes, threads, vpt, rows, early, blocks, cluster), the best of many; the first is shipped.
PLAIN = {
    512: ((16, 256, 2, 1, 2, 1, 1), (16, 256, 2, 2, 2, 1, 1)),
    1024: ((32, 512, 2, 2, 2, 1, 1), (16, 128, 4, 2, 4, 1, 1)),
    2048: ((64, 64, 2, 2, 2, 1, 1), (32, 256, 4, 1, 4, 1, 1)),
    4096: ((128, 128, 2, 1, 2, 1, 1), (64, 64, 4, 1, 4, 1, 1)),
    8192: ((256, 256, 2, 1, 2, 1, 1), (64, 64, 8, 1, 4, 1, 1)),
    16384: ((256, 256, 4, 1, 4, 1, 1), (128, 128, 8, 1, 4, 1, 1)),
    32768: ((512, 512, 4, 1, 4, 2, 1), (256, 256, 8, 1, 8, 1, 1)),
    65536: ((128, 128, 8, 1, 8, 1, 4), (128, 128, 8, 1, 4, 1, 4)),
    131072: ((128, 128, 8, 1, 4, 1, 8), (128, 128, 8, 1, 8, 1, 8)),
    262144: ((128, 128, 8, 1, 4, 1, 16), (128, 128, 8, 1, 8, 1, 16)),
}
# Bytes of a row: (threads, k, p, slots, cluster, blocks)
RING = {
    524288: ((512, 1, 8, 26, 8, 1), (512, 2, 4, 13, 8, 1), (256, 4, 2, 6, 16, 2)),
    1048576: ((512, 1, 8, 26, 16, 1), (512, 2, 4, 13, 16, 1)),
}


def plain(t, n):
    size = n * BYTES[t]
    for lanes, threads, vpt, rows, early, blocks, c in PLAIN.get(size, ()):
        struct = "rms_norm_plain<{T}, {O}, {VPT}, " + f"{rows}, {early}>"
        yield dict(entry("plain", t, n, lanes, threads, vpt, c, struct, f"r{rows}e{early}", 0, rows, blocks), grids=["once"])
    for threads, k, p, s, c, blocks in RING.get(size, ()):
        struct = "rms_norm_ring<{T}, " + f"{threads}, {k}, {p}, {s}>"
        e = entry("plain", t, n, threads, threads + 32, k * p, c, struct, f"ring{k}_{p}_{s}", s * k * threads * 16, blocks=blocks)
        yield dict(e, grids=["walk"])


def full(kind, t, n):
    vec = 16 // BYTES[t]
    for lanes, threads, vpt, c in owners(n // vec):
        if vpt * vec > 32 or lanes == 1024 or vpt > 1 and lanes * vec < 128:
            continue
        for stages in (1, 2) if c > 1 else (0, 2) if lanes > 64 else (0,):
            shared = stages * vpt * threads * 16 * (2 if kind == "residual" else 1)
            if shared > SHARED:
                continue
            room = 65536 // threads  # registers a thread, at one block an SM
            for blocks in sorted({1} | {b for b in (room // 96, room // 80) if b > 1 and room // b >= 44 + vpt * vec}):
                yield entry(kind, t, n, lanes, threads, vpt, c, "rms_norm_full<{T}, {O}, {VPT}, {STAGES}>", f"s{stages}", shared, blocks=blocks, stages=stages)


# (type, columns): (lanes, threads, vpt, stages, weights in shared memory, blocks, cluster) of the lean kernels
BACKWARD = {
    ("bf16", 8192): ((512, 512, 2, 2, 1, 2, 1), (256, 256, 4, 2, 1, 2, 1)),
    ("bf16", 16384): ((512, 512, 4, 2, 1, 1, 1),),
    ("bf16", 32768): ((512, 512, 4, 1, 1, 1, 2),),
    ("bf16", 65536): ((256, 256, 4, 1, 1, 2, 8),),
    ("bf16", 131072): ((512, 512, 4, 2, 1, 1, 8),),
    ("bf16", 262144): ((512, 512, 4, 2, 1, 1, 16),),
    ("f32", 16384): ((512, 512, 8, 1, 1, 1, 1),),
    ("f32", 32768): ((512, 512, 8, 1, 1, 1, 2),),
    ("f32", 65536): ((256, 256, 8, 1, 1, 2, 8),),
    ("f32", 131072): ((512, 512, 8, 1, 1, 1, 8),),
    ("f32", 262144): ((512, 512, 8, 1, 1, 1, 16),),
}
# Vectors of a row: (threads, p, slots, ahead, weights in shared memory, blocks, cluster) of the ring
BACKWARD_RING = {
    1024: ((512, 2, 13, 0, 0, 1, 1), (512, 2, 13, 1, 0, 1, 1), (512, 2, 7, 0, 0, 1, 1)),
    2048: ((256, 4, 10, 1, 0, 2, 2), (256, 4, 13, 1, 0, 2, 2), (512, 4, 7, 0, 0, 1, 1)),
    4096: ((256, 4, 10, 1, 0, 2, 4), (256, 4, 13, 1, 0, 2, 4), (512, 4, 13, 1, 0, 1, 2)),
    8192: ((256, 4, 10, 1, 0, 2, 8), (256, 4, 13, 1, 0, 2, 8), (512, 4, 13, 1, 0, 1, 4)),
    16384: ((256, 4, 10, 1, 0, 2, 16), (256, 4, 13, 1, 0, 2, 16), (512, 4, 13, 1, 0, 1, 8)),
    32768: ((512, 4, 13, 1, 0, 1, 16),),
    65536: ((512, 8, 9, 0, 1, 1, 16),),
}


def backward(t, n):
    vec = 16 // BYTES[t]
    for lanes, threads, vpt, stages, weights, blocks, c in BACKWARD.get((t, n), ()):
        shared = threads * (stages * (2 * vpt * 16 + 4) + (vpt * vec * 4 if weights else 0))
        struct = "rms_norm_backward<{T}, {O}, {VPT}, {STAGES}, " + f"{'true' if weights else 'false'}, true>"
        yield entry("backward", t, n, lanes, threads, vpt, c, struct, f"s{stages}w{weights}", shared, blocks=blocks, stages=stages)
    for threads, p, slots, ahead, weights, blocks, c in BACKWARD_RING.get(n // vec, ()):
        shared = threads * (slots * 32 + (p * vec * 4 if weights else 0))
        flags = ", ".join("true" if f else "false" for f in (ahead, weights))
        struct = "rms_norm_backward_ring<{T}, " + f"{threads}, {'true' if c > 1 else 'false'}, {p}, {slots}, {flags}>"
        yield entry("backward", t, n, threads, threads + 32, p, c, struct, f"ring{slots}a{ahead}w{weights}", shared, blocks=blocks)


def shapes(kind, t, n):
    return list(plain(t, n) if kind == "plain" else backward(t, n) if kind == "backward" else full(kind, t, n))


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
    f'extern "C" __global__ void __launch_bounds__(1024) add_{c}(const __grid_constant__ skr_rms_norm_backward_job job)\n'
    f"{{ rms_norm_add_parts<{c}>(job); }}\n"
    for c in (1, 4)
)


def kernel_text(e):
    kind = "backward_job" if e["kind"] == "backward" else "job"
    return (
        f'extern "C" __global__ void __launch_bounds__({e["threads"]}, {e["blocks"]}) '
        f'{e["name"]}(const __grid_constant__ skr_rms_norm_{kind} job)\n{{ {e["struct"]}::run(job); }}\n'
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
