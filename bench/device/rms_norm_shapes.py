# rms_norm_shapes.py - the shapes of the rms_norm kernels that rms_norm_tune.py tries, and their source text.
# SPDX-License-Identifier: Apache-2.0
import gpu

BYTES = {"bf16": 2, "f16": 2, "f32": 4}
SHARED = 220 * 1024  # dynamic shared memory of a block, SKR_NORM_SHARED
# How once-read data is loaded and stored. The first is what device.cuh has.
FLAVOURS = {
    "": [],
    "n": ['-DSKR_LOAD_ONCE="ld.global.L1::no_allocate"'],
    "d": ['-DSKR_STORE_ONCE="st.global"'],
    "nd": ['-DSKR_LOAD_ONCE="ld.global.L1::no_allocate"', '-DSKR_STORE_ONCE="st.global"'],
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


def plain(t, n):
    vec = 16 // BYTES[t]
    for lanes, threads, vpt, c in owners(n // vec):
        if lanes < 32 and vpt > 4 or lanes == 1024 and vpt * vec > 32:
            continue
        for rpg in (1, 2, 4):
            if rpg > 1 and (c > 1 or threads > 256 or vpt * rpg > (8 if lanes <= 32 else 4)):
                continue
            for stages in (0, 1, 2, 3) if c > 1 else (0, 2) if lanes > 32 and vpt >= 2 and rpg == 1 and threads < 1024 else (0,):
                for ahead in (0, 1) if stages == 0 and vpt * rpg <= 4 and lanes < 1024 and c == 1 else (0,):
                    for hold in (0, 1) if vpt * vec <= 32 and threads < 1024 else (0,):
                        shared = stages * vpt * threads * 16
                        if shared <= SHARED:
                            struct = "rms_norm_plain<{T}, {O}, {VPT}, " + f"{rpg}, {{STAGES}}, {ahead}, {hold}>"
                            yield entry("plain", t, n, lanes, threads, vpt, c, struct, f"r{rpg}s{stages}a{ahead}h{hold}", shared, rpg, stages=stages)


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


def backward(t, n):
    vec = 16 // BYTES[t]
    for lanes, threads, vpt, c in owners(n // vec):
        if vpt * vec > 32 or threads == 1024 or lanes < 32:
            continue
        for stages in (1, 2, 3):
            weights = vpt * vec * 4 if vpt * vec > 16 else 0
            shared = threads * (stages * (2 * vpt * 16 + 4) + weights)
            if shared <= SHARED:
                yield entry("backward", t, n, lanes, threads, vpt, c, "rms_norm_backward<{T}, {O}, {VPT}, {STAGES}>", f"s{stages}", shared, stages=stages)


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
