#!/usr/bin/env python3
# rms_norm_tune.py - tries shapes of the rms_norm kernels on a GPU: compiles each from the headers in src/, checks it, times it beside a copy.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 bench/device/rms_norm_tune.py [copy] [plain] [full] [backward]     prints the best per width and writes $OUT/rms_norm_tune_*.json
# TUNE_WIDTHS=1024,4096 limits the widths, TUNE_FLAGS adds nvcc options, TUNE_TAG names the file.
import json, os, sys, time
import torch
import gpu
from gpu import TORCH, Forward, Backward, Kernel, job

SM = 132
WIDTHS = [int(n) for n in os.environ.get("TUNE_WIDTHS", "256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144").split(",")]
ELEMENTS = 1 << 27
OUT = os.environ.get("OUT", "/tmp")
result = {"device": None, "rows": []}
start = time.time()


def say(*a):
    print(f"[{time.time() - start:5.1f}s]", *a, flush=True)


def owner(lanes, threads, cluster):
    return f"cluster_owner<{threads}>" if cluster else f"block_owner<{lanes}, {threads}>"


PRELUDE = '#include "cuda/sm90.cuh"\n#include "ops/rms_norm/rms_norm_backward_rows.cuh"\n#include "ops/rms_norm/rms_norm_parts.cuh"\n'


def kernel_text(name, struct, kind, threads, blocks):
    bounds = f"{threads}, {blocks}" if blocks else f"{threads}"
    return (f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(const __grid_constant__ skr_rms_norm_{kind} job)\n'
            f"{{\n    {struct}::run(job);\n}}\n")


class Set:
    """Kernels to compile: name -> (text, threads)."""

    def __init__(self):
        self.text, self.threads, self.kernels = {}, {}, {}

    def add(self, name, struct, kind, threads, blocks=0):
        self.text.setdefault(name, kernel_text(name, struct, kind, threads, blocks))
        self.threads[name] = threads

    def compile(self, extra=()):
        names = list(self.text)
        sources = {f"s{i}": PRELUDE + "".join(self.text[n] for n in names[i::48]) for i in range(48) if names[i::48]}
        for name, text in extra:
            sources[name] = text
        modules, self.info = gpu.build(sources, os.environ.get("TUNE_FLAGS", "").split())
        for i in range(48):
            for n in names[i::48]:
                self.kernels[n] = Kernel(modules[f"s{i}"], n, self.threads[n])
        self.modules = modules
        bad = [n for n, v in self.info.items() if v["spill"]]
        say(f"compiled {len(names)} kernels; spills in: {' '.join(bad) or 'none'}")


# ------------------------------------------------------------------------------------------------ copy

COPY = r'''
#include <stdint.h>
struct copy_job { const char *x; char *y; int64_t n; };
#define LOAD_0(v, p) v = *(const uint4 *)(p)
#define LOAD_1(v, p) asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p))
#define LOAD_2(v, p) asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p))
#define STORE_0(v, p) *(uint4 *)(p) = v
#define STORE_1(v, p) asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory")
#define COPY(name, U, L, S) extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ copy_job j) { \
    int64_t tile = (int64_t)256 * U * 16; \
    for (int64_t t = blockIdx.x * tile; t < j.n; t += gridDim.x * tile) { uint4 v[U]; \
        _Pragma("unroll") for (int i = 0; i < U; i++) { int64_t at = t + (i * 256 + threadIdx.x) * 16; if (at < j.n) LOAD_##L(v[i], j.x + at); } \
        _Pragma("unroll") for (int i = 0; i < U; i++) { int64_t at = t + (i * 256 + threadIdx.x) * 16; if (at < j.n) STORE_##S(v[i], j.y + at); } } }
'''


def copy_text():
    return COPY + "".join(f"COPY(copy_u{u}_l{l}_s{s}, {u}, {l}, {s})\n" for u in (1, 2, 4, 8) for l in (0, 1, 2) for s in (0, 1))


class CopyJob(gpu.C.Structure):
    _fields_ = [("x", gpu.C.c_void_p), ("y", gpu.C.c_void_p), ("n", gpu.C.c_int64)]


def copy_section():
    modules, _ = gpu.build({"copy": copy_text()})
    for size in (256 << 20, 512 << 20):
        x = torch.randint(0, 255, (size,), dtype=torch.uint8, device="cuda")
        y = torch.empty_like(x)
        calls = {"torch": lambda: y.copy_(x)}
        for u in (1, 2, 4, 8):
            for l in (0, 1, 2):
                for s in (0, 1):
                    k = Kernel(modules["copy"], f"copy_u{u}_l{l}_s{s}", 256)
                    j = CopyJob(x.data_ptr(), y.data_ptr(), size)
                    tiles = -(-size // (256 * u * 16))
                    calls[f"u{u} l{l} s{s} once"] = k.launcher(k.config(tiles), j)
                    calls[f"u{u} l{l} s{s} walk"] = k.launcher(k.config(min(tiles, SM * k.blocks_per_sm())), j)
        t = gpu.time_all(calls, 10)
        assert torch.equal(x, y)
        say(f"copy {size >> 20} MiB: " + ", ".join(f"{n} {2 * size / v / 1e3:.0f}" for n, v in sorted(t.items(), key=lambda e: e[1])[:8]),
            f"... torch {2 * size / t['torch'] / 1e3:.0f} GB/s")
        result["rows"].append({"op": "copy", "bytes": size, "us": t})
        del x, y


# ------------------------------------------------------------------------------------------------ forward

def rows_shapes(vectors):
    """(lanes, threads, vpt, cluster) that hold a row of so many 16-byte vectors."""
    out = []
    for lanes, threads in ((8, 128), (16, 128), (32, 128), (32, 256), (128, 128), (256, 256), (512, 512), (1024, 1024)):
        vpt = -(-vectors // lanes)
        if vpt & (vpt - 1) == 0 and vpt <= 8:
            out.append((lanes, threads, vpt, 0))
    for threads in (256, 512):
        for c in (1, 2, 4, 8, 16):
            vpt = -(-vectors // (threads * c))
            if vectors >= 2048 and vpt in (2, 4, 8):
                out.append((threads, threads, vpt, c))
    return out


def plain_variants(es, n):
    vec = 16 // es
    for lanes, threads, vpt, c in rows_shapes(n // vec):
        if lanes < 32 and vpt > 4 or lanes == 1024 and vpt * vec > 32:
            continue
        for rpg in ((1, 2, 4) if lanes <= 32 and vpt <= 2 and not c else (1,)):
            for stages in ((0, 1, 2) if c else (0, 2) if lanes > 32 and vpt >= 2 else (0,)):
                for ahead in ((0, 1) if stages == 0 and vpt * rpg <= 4 and lanes < 1024 and not c else (0,)):
                    for hold in ((0, 1) if vpt * vec <= 32 and threads < 1024 else (0,)):
                        yield lanes, threads, vpt, c, rpg, stages, ahead, hold


def plain_name(t, v):
    lanes, threads, vpt, c, rpg, stages, ahead, hold = v
    return f"p_{t}_{'c' if c else ''}{lanes}_{threads}x{vpt}_r{rpg}s{stages}a{ahead}h{hold}"


def weight_for(n, t):
    return (torch.randn(n, device="cuda") * 0.2 + 1).to(TORCH[t])


def compare(got, want, t, what):
    tolerance = {"bf16": 2 ** -8, "f16": 2 ** -11, "f32": 2e-6, "e4m3": 2 ** -4}[t]
    error = (got.double() - want).abs()
    limit = tolerance * (want.abs() + 1e-3 * want.abs().max())
    worst = (error / limit).max().item()
    if not worst <= 1.0:
        say(f"WRONG {what}: {worst:.2f} of the bound, nan {torch.isnan(got.double()).sum().item()} of {got.numel()}")
        return False
    return True


def grids(kernel, shared, cluster, m, rows_per_block):
    tiles = -(-m // rows_per_block)
    if cluster > 1:
        resident = kernel.clusters(shared, cluster)
        return {"once": m * cluster, "walk": min(m, resident) * cluster} if resident else {}
    fit = kernel.blocks_per_sm(shared)
    out = {"once": tiles, "walk": min(tiles, SM * fit)} if fit else {}
    return out


def best_table(kind, t, n, copy_us, ideal, times, top=3):
    order = sorted((v, k) for k, v in times.items() if k not in ("copy", "torch", "compile"))
    rate = lambda us: ideal / us
    text = "  ".join(f"{k.split('_', 2)[2]} {rate(v):.3f}" for v, k in order[:top])
    print(f"{kind} {t} {n}: {text}", flush=True)
    result["rows"].append({"op": kind, "type": t, "n": n, "copy_us": copy_us, "ideal_us": ideal, "us": times})


def forward_section(full):
    kinds = ("residual", "e4m3") if full else ("plain",)
    plans = []
    s = Set()
    for t in ("bf16", "f32"):
        es = 2 if t == "bf16" else 4
        for n in WIDTHS:
            for v in plain_variants(es, n):
                lanes, threads, vpt, c, rpg, stages, ahead, hold = v
                if full:
                    if rpg > 1 or ahead or hold or stages == 0 and c and vpt * (16 // es) > 32 or lanes == 1024:
                        continue
                    name = plain_name(t, v).replace("p_", "f_")
                    s.add(name, f"rms_norm_full<SKR_{t.upper()}, {owner(lanes, threads, c)}, {vpt}, {stages}>", "job", threads)
                else:
                    name = plain_name(t, v)
                    s.add(name, f"rms_norm_plain<SKR_{t.upper()}, {owner(lanes, threads, c)}, {vpt}, {rpg}, {stages}, {ahead}, {hold}>", "job", threads)
                plans.append((t, n, name, v))
    s.compile()
    for t in ("bf16", "f32"):
        es = 2 if t == "bf16" else 4
        for n in WIDTHS:
            m = ELEMENTS // n
            x = torch.randn(m, n, device="cuda", dtype=torch.float32).to(TORCH[t])
            r = torch.randn(m, n, device="cuda", dtype=torch.float32).to(TORCH[t]) if full else None
            y = torch.empty_like(x)
            ro = torch.empty_like(x) if full else None
            q = torch.empty(m, n, device="cuda", dtype=TORCH["e4m3"]) if full else None
            scale = torch.empty(m, 1, device="cuda")
            rstd = torch.empty(m, 1, device="cuda")
            w = weight_for(n, "f32" if t == "f32" else "bf16")
            few = min(m, 301)
            xd = x[:few].double()
            for kind in kinds:
                calls = {"copy": lambda: y.copy_(x)}
                sd = xd + r[:few].double() if kind == "residual" else xd
                if kind == "residual":
                    sd = sd.float().to(TORCH[t]).double()
                ref_rstd = 1 / (sd.square().mean(1, keepdim=True) + 1e-6).sqrt()
                ref = sd * ref_rstd * w.double()
                for pt, pn, name, v in plans:
                    if (pt, pn) != (t, n):
                        continue
                    lanes, threads, vpt, c, rpg, stages, ahead, hold = v
                    k = s.kernels[name]
                    shared = stages * vpt * threads * 16 * (2 if kind == "residual" else 1)
                    if shared > 220 * 1024:
                        continue
                    args = dict(x=x, weight=w, rstd=rstd)
                    if kind == "e4m3":
                        args.update(y_quant=q, scale=scale, quant=2)
                    else:
                        args.update(y=y)
                    if kind == "residual":
                        args.update(residual=r, residual_out=ro)
                    try:
                        options = grids(k, shared, c, m, threads // lanes * rpg)
                        j = job(Forward, few, n, **args)
                        first = True
                        for label, grid in options.items():
                            if full and label == "walk" and not stages:
                                continue
                            if first:
                                y.fill_(float("nan")), rstd.fill_(float("nan"))
                                small = grids(k, shared, c, few, threads // lanes * rpg)[label]
                                k.launcher(k.config(small, shared, c), j)()
                                good = compare(rstd[:few], ref_rstd, "f32", name + " rstd")
                                if kind == "e4m3":
                                    good &= compare(q[:few].double() * scale[:few].double(), ref, "e4m3", name)
                                else:
                                    good &= compare(y[:few], ref, t, name)
                                if not good:
                                    break
                                first = False
                            calls[f"{name}_c{c}_{label}"] = k.launcher(k.config(grid, shared, c), job(Forward, m, n, **args))
                    except RuntimeError as e:
                        say("FAILED", name, c, e)
                times = gpu.time_all(calls, 8)
                per = {"plain": 2 * es, "residual": 4 * es, "e4m3": es + 1}[kind]
                best_table("fwd " + kind, t, n, times["copy"], times["copy"] * per / (2 * es), times)
            del x, y, r, ro, q


# ------------------------------------------------------------------------------------------------ backward

def backward_section():
    s, plans = Set(), []
    for t in ("bf16", "f32"):
        es, vec = (2, 8) if t == "bf16" else (4, 4)
        for n in WIDTHS:
            for lanes, threads, vpt, c in rows_shapes(n // vec):
                if vpt * vec > 32 or threads == 1024 or lanes < 32:
                    continue
                for stages in (1, 2, 3):
                    name = f"b_{t}_{'c' if c else ''}{lanes}_{threads}x{vpt}_s{stages}"
                    shared = stages * threads * (2 * vpt * 16 + 4) + (vpt * vec * 4 * threads if vpt * vec > 16 else 0)
                    if shared > 220 * 1024:
                        continue
                    s.add(name, f"rms_norm_backward<SKR_{t.upper()}, {owner(lanes, threads, c)}, {vpt}, {stages}>", "backward_job", threads)
                    plans.append((t, n, name, lanes, threads, vpt, c, stages, shared))
    parts = PRELUDE + "".join(f'extern "C" __global__ void __launch_bounds__(1024) add_{c}(const __grid_constant__ skr_rms_norm_backward_job job) '
                              f"{{ rms_norm_add_parts<{c}>(job); }}\n" for c in (1, 4))
    s.compile([("parts", parts)])
    for t in ("bf16", "f32"):
        es = 2 if t == "bf16" else 4
        for n in WIDTHS:
            m = ELEMENTS // n
            x = torch.randn(m, n, device="cuda", dtype=torch.float32).to(TORCH[t])
            dy = torch.randn(m, n, device="cuda", dtype=torch.float32).to(TORCH[t])
            dx, rstd = torch.empty_like(x), torch.empty(m, 1, device="cuda")
            for i in range(0, m, max(1, m // 64)):
                rstd[i:i + max(1, m // 64)] = 1 / (x[i:i + max(1, m // 64)].float().square().mean(1, keepdim=True) + 1e-6).sqrt()
            w = weight_for(n, "f32" if t == "f32" else "bf16")
            dw = torch.empty_like(w)
            few = min(m, 1201)
            xd, dyd, rd = x[:few].double(), dy[:few].double(), rstd[:few].double()
            g, h = dyd * w.double(), xd * rd
            ref = rd * (g - h * (g * h).mean(1, keepdim=True))
            ref_dw = (dyd * h).sum(0)
            bound_dw = (dyd * h).abs().sum(0)
            del g, h, xd, dyd
            calls = {"copy": lambda: dx.copy_(x)}
            workspace = torch.empty(4096 * 1024 * 64, device="cuda", dtype=torch.uint8)
            for pt, pn, name, lanes, threads, vpt, c, stages, shared in plans:
                if (pt, pn) != (t, n):
                    continue
                k = s.kernels[name]
                cluster = max(c, 1)
                try:
                    fit = k.clusters(shared, cluster) if cluster > 1 else SM * k.blocks_per_sm(shared)
                    if not fit:
                        say("does not fit:", name, c)
                        continue
                    if cluster > 1:
                        counts = sorted({fit, 128 // cluster, 256 // cluster} - {0})
                    else:
                        counts = sorted({p for p in (fit, SM, SM * 2, SM * 3, SM * 4, SM * 6, SM * 8) if p <= fit})
                    first = True
                    for p in counts:
                        p = min(p, m)
                        if p * n * 4 > workspace.numel():
                            continue
                        args = dict(x=x, dy=dy, dx=dx, rstd=rstd, weight=w, dweight=dw, workspace=workspace, n_parts=p)
                        add, columns = ("add_4", 128) if n >= 16384 else ("add_1", 32)
                        warps = max(1, min(32, (p + 3) // 4))
                        ka = Kernel(s.modules["parts"], add, 32 * warps)

                        def both(rows):
                            j = job(Backward, rows, n, **args)
                            one = k.launcher(k.config(p * cluster, shared, cluster), j)
                            two = ka.launcher(ka.config(-(-n // columns)), j)
                            return lambda: (one(), two())
                        if first:
                            dx.fill_(float("nan")), dw.fill_(float("nan")), workspace.fill_(255)
                            both(few)()
                            good = compare(dx[:few], ref, t, name)
                            error = ((dw.double() - ref_dw).abs() / (bound_dw * 1e-5 + ref_dw.abs() * (2 ** -8 if t == "bf16" else 1e-6) + 1e-6)).max().item()
                            if not error <= 1:
                                say("WRONG dweight", name, error)
                                good = False
                            if not good:
                                break
                            first = False
                        calls[f"{name}_c{c}_p{p}"] = both(m)
                except RuntimeError as e:
                    say("FAILED", name, c, e)
            times = gpu.time_all(calls, 8)
            best_table("bwd", t, n, times["copy"], times["copy"] * 1.5, times)
            del x, dy, dx, workspace


if __name__ == "__main__":
    torch.manual_seed(int(time.time()))
    result["device"] = torch.cuda.get_device_name()
    sections = sys.argv[1:] or ["copy", "plain", "backward", "full"]
    for name in sections:
        say("section", name)
        try:
            {"copy": copy_section, "plain": lambda: forward_section(False), "full": lambda: forward_section(True), "backward": backward_section}[name]()
        finally:
            with open(f"{OUT}/rms_norm_tune_{'_'.join(sections)}{os.environ.get('TUNE_TAG', '')}.json", "w") as f:
                json.dump(result, f)
    say("done")
