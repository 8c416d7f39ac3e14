#!/usr/bin/env python3
"""Saker beside PyTorch eager and torch.compile: same process, same tensors, same threads, in turn.

    python bench/peers.py                      # CPU, all cores
    python bench/peers.py --threads 1
    python bench/peers.py --device cuda --set sweep
    python bench/peers.py --device cuda --set quack

Writes bench/results/<machine>-<what>.json (or --out) and prints a table. bench/README.md says how the figures are made.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import ctypes
import gc
import os
import sys
import time

os.environ.setdefault(
    "THP_MEM_ALLOC_ENABLE", "1"
)  # huge pages for torch's CPU tensors, which are everybody's tensors here

import torch
import torch.nn.functional as F

import common
import ours
import timing

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
EPS = 1e-6
PEERS = ("torch eager", "torch.compile")


def keep_freed_memory():
    """PyTorch's norms take no output tensor, they allocate one a call. Freed memory stays in the process here, so that
    this costs no page faults."""
    libc = ctypes.CDLL(None)
    m_trim_threshold, m_mmap_max = -1, -4
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, -1)


# ---------------------------------------------------------------- cases


def cases(arguments):
    """(op, dtype, rows, width) in the order they run."""
    widths = [int(w) for w in arguments.widths.split(",")] if arguments.widths else None
    ops = [op for op in ("rms_norm", "rms_norm_backward") if arguments.op in (None, op)]
    types = arguments.types.split(",")
    shapes = []
    if arguments.set == "quack":  # the shapes that QuACK publishes figures for
        wide = [(32768, n) for n in (256, 512, 1024, 4096, 8192)] + [
            (16384, 16384),
            (8192, 32768),
            (2048, 65536),
            (1024, 131072),
            (512, 262144),
        ]
        shapes = [("bf16", m, n) for m, n in wide] + [
            ("f32", m, n) for m, n in ((32768, 1024), (32768, 4096), (2048, 65536), (512, 262144))
        ]
    elif arguments.device == "cuda":  # 2^27 elements
        shapes = [(t, 2**27 // n, n) for t in types for n in widths or [2**k for k in range(8, 19)]]
    else:  # x is 256 MiB
        shapes = [(t, 2**28 // TYPES[t].itemsize // n, n) for t in types for n in widths or [1024, 4096, 16384, 65536]]
    for op in ops:
        for dtype, m, n in shapes:
            if dtype in types and (widths is None or n in widths):
                yield op, dtype, m, n


def traffic(op, dtype, m, n):
    """Least bytes that must move, and the streams they come in."""
    e = TYPES[dtype].itemsize
    return (2 * m * n * e + n * e, 1, 1) if op == "rms_norm" else (3 * m * n * e + 4 * m + 2 * n * e, 2, 1)


class Case:
    """The tensors of one case, several copies where one would stay in the GPU's L2 cache."""

    def __init__(self, op, dtype, m, n, device):
        self.op, self.dtype, self.m, self.n = op, dtype, m, n
        self.name = f"{dtype} {m}x{n}"
        self.bytes, self.reads, self.writes = traffic(op, dtype, m, n)
        copies = 1
        if device == "cuda":
            l2 = torch.cuda.get_device_properties(0).L2_cache_size
            copies = max(1, min(16, 1 + 3 * l2 // self.bytes))
        self.sets = [self._tensors(TYPES[dtype], device, seed) for seed in range(copies)]

    def _tensors(self, dtype, device, seed):
        generator = torch.Generator(device).manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype, device=device)
        t = {
            "x": draw(self.m, self.n),
            "weight": torch.rand(self.n, generator=generator, dtype=torch.float32, device=device).to(dtype) + 0.5,
        }
        t["y"] = torch.empty_like(t["x"])
        if self.op == "rms_norm_backward":
            t["dy"], t["dx"], t["dweight"] = (
                draw(self.m, self.n),
                torch.empty_like(t["x"]),
                torch.empty_like(t["weight"]),
            )
            squares = torch.linalg.vector_norm(t["x"], dim=1, dtype=torch.float32).square()
            t["rstd"] = torch.rsqrt(squares / self.n + EPS)
        return t


def rotate(runs):
    """One function out of one per copy of the tensors."""
    if len(runs) == 1:
        return runs[0]
    state = [0]

    def run():
        state[0] += 1
        runs[state[0] % len(runs)]()

    return run


# ---------------------------------------------------------------- contenders


def saker_runs(library, case):
    if case.op == "rms_norm":
        return [library.prepare("rms_norm", x=t["x"], weight=t["weight"], y=t["y"], eps=EPS) for t in case.sets]
    return [
        library.prepare("rms_norm_backward", **{k: t[k] for k in ("dy", "x", "weight", "rstd", "dx", "dweight")})
        for t in case.sets
    ]


def norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def forward_into(x, weight, y):
    y.copy_(norm(x, weight))


def eager_forward(t):
    def run():
        with torch.no_grad():
            norm(t["x"], t["weight"])

    return run


def compiled_forward(t, compiled):
    def run():
        with torch.no_grad():
            compiled(t["x"], t["weight"], t["y"])

    return run


def backward_of(t, function):
    x, weight = t["x"].detach().requires_grad_(), t["weight"].detach().requires_grad_()
    y = function(x, weight)
    return lambda: torch.autograd.grad(y, (x, weight), t["dy"], retain_graph=True)


def torch_runs(case, compile_too):
    """{name: run}; a compiler that fails is reported, not fatal."""
    found = {}
    if case.op == "rms_norm":
        found["torch eager"] = rotate([eager_forward(t) for t in case.sets])
    else:
        found["torch eager"] = rotate([backward_of(t, norm) for t in case.sets])
    if not compile_too:
        return found
    torch._dynamo.reset()
    try:
        if case.op == "rms_norm":
            compiled = torch.compile(forward_into, dynamic=False)
            runs = [compiled_forward(t, compiled) for t in case.sets]
        else:
            torch._functorch.config.donated_buffer = False  # the same graph is run backward many times
            compiled = torch.compile(norm, dynamic=False)
            runs = [backward_of(t, compiled) for t in case.sets]
        runs[0]()
        found["torch.compile"] = rotate(runs)
    except Exception as why:  # whatever the compiler's own stack throws
        print(f"torch.compile failed on {case.op} {case.name}: {str(why).splitlines()[0]}", file=sys.stderr)
    return found


def probe_runs(library, case, device):
    """{name: (run, bytes, streams)} at the same total bytes: our kernel with the case's streams, a plain copy by us and by
    torch, torch's add for 2x1."""
    streams = (case.reads, case.writes)
    memory = [
        torch.randint(0, 100, (int(case.bytes) // 384 * 384,), dtype=torch.uint8, device=device) for _ in case.sets
    ]
    cut = lambda t, n: [part.view(TYPES[case.dtype]) for part in t.chunk(n)]  # both numbers of streams divide 384 bytes
    found = {}
    for shape in dict.fromkeys((streams, (1, 1))):
        names = ["x0", "x1", "x2", "x3"][: shape[0]] + ["y0", "y1"][: shape[1]]
        calls = [library.prepare("stream", **dict(zip(names, cut(t, sum(shape))))) for t in memory]
        found["stream %dx%d" % shape] = (rotate(calls), memory[0].numel(), shape)
    copies = [cut(t, 2) for t in memory]
    found["torch copy_"] = (rotate([(lambda s=s: s[1].copy_(s[0])) for s in copies]), memory[0].numel(), (1, 1))
    if streams == (2, 1):
        adds = [cut(t, 3) for t in memory]
        found["torch add"] = (
            rotate([(lambda s=s: torch.add(s[0], s[1], out=s[2])) for s in adds]),
            memory[0].numel(),
            (2, 1),
        )
    return found


def worst_error(case):
    """Largest error of ours in three rows, relative to the row's largest value, against torch in double. For a glance;
    the tests judge."""
    t, worst = case.sets[0], 0.0
    for row in {0, case.m // 2, case.m - 1}:
        x, w = t["x"][row].double(), t["weight"].double()
        rstd = torch.rsqrt(x.square().mean() + EPS)
        if case.op == "rms_norm":
            got, want = t["y"][row].double(), x * rstd * w
        else:
            g = t["dy"][row].double() * w
            got, want = t["dx"][row].double(), rstd * (g - x * rstd * (g * x * rstd).mean())
        worst = max(worst, ((got - want).abs().max() / want.abs().max()).item())
    return worst


# ---------------------------------------------------------------- running


def run_case(case, library, clock, arguments):
    mine = saker_runs(library, case)
    for run in mine:
        run()
    kernel = library.kernel()
    error = worst_error(case)
    contenders = {"saker": rotate(mine), **torch_runs(case, not arguments.no_compile)}
    probes = probe_runs(library, case, arguments.device)
    times = timing.interleave(
        clock, {**contenders, **{name: probe[0] for name, probe in probes.items()}}, arguments.seconds
    )
    speed = {name: size / times[name]["median_us"] * 1e-3 for name, (_, size, _) in probes.items()}
    fastest = lambda streams: max((name for name in probes if probes[name][2] == streams), key=speed.get)
    probe, copy = fastest((case.reads, case.writes)), fastest((1, 1))
    rows = []
    for name in (*contenders, *probes):
        size = probes[name][1] if name in probes else case.bytes
        gbps = size / times[name]["median_us"] * 1e-3
        row = {
            "op": case.op,
            "case": case.name,
            "dtype": case.dtype,
            "rows": case.m,
            "width": case.n,
            "device": arguments.device,
            "who": name,
            **times[name],
            "gbps": gbps,
            "roof_fraction": gbps / speed[probe],
            "probe": probe,
            "probe_gbps": speed[probe],
            "copy": copy,
            "copy_gbps": speed[copy],
            "bytes": size,
            "threads": arguments.threads,
        }
        if name == "saker":
            row.update(kernel=kernel, max_relative_error=error, reads=case.reads, writes=case.writes)
        rows.append(row)
    return rows


def show(rows):
    by = {row["who"]: row for row in rows}
    mine = by["saker"]
    line = f"{mine['op']:18} {mine['case']:20} {mine['median_us']:10.1f} us {mine['gbps']:8.1f} GB/s"
    line += f" {100 * mine['roof_fraction']:4.0f}% of {mine['probe']:11}"
    for name in PEERS:
        line += (
            f" {name[6:]}: {by[name]['median_us'] / mine['median_us']:6.2f}x" if name in by else f" {name[6:]}:      -"
        )
    print(f"{line}  error {mine['max_relative_error']:.1e}", flush=True)


def summary(rows):
    """Speed-up over each peer, and over the better one of each case."""
    table = {}
    for row in rows:
        table.setdefault((row["op"], row["case"]), {})[row["who"]] = row["median_us"]
    for name in (*PEERS, "the better one"):
        ratios = {}
        for key, times in table.items():
            peers = [t for who, t in times.items() if who in PEERS]
            peer = min(peers, default=None) if name == "the better one" else times.get(name)
            if peer:
                ratios[key] = peer / times["saker"]
        if ratios:
            worst = min(ratios, key=ratios.get)
            print(
                f"against {name:14}: geometric mean {common.geometric_mean(ratios.values()):.2f}x, "
                f"worst {ratios[worst]:.2f}x ({worst[0]} {worst[1]})"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--set", choices=("sweep", "quack"), default="sweep")
    parser.add_argument("--op", choices=("rms_norm", "rms_norm_backward"))
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--widths", help="comma separated; without it all of the set")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads for everybody; 0: all allowed cores")
    parser.add_argument("--seconds", type=float, default=0.5, help="per case, at least seven rounds")
    parser.add_argument("--limit", type=float, default=0, help="stop after so many seconds and keep what there is")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--way", choices=("binding", "ctypes"), help="how Saker is called; without it the binding if it can be imported"
    )
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--out", help="results file; without it bench/results/<machine>-<what>.json")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)

    arguments.threads = arguments.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    library = ours.open_library(arguments.build, arguments.device, arguments.threads, arguments.way)
    clock = timing.Cuda() if arguments.device == "cuda" else timing.Cpu()
    head = {
        "what": "peers",
        "device": arguments.device,
        "threads": arguments.threads,
        **common.describe(arguments.build, arguments.device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if arguments.device == "cuda" else None,
        "called": library.way,
    }
    path = arguments.out or os.path.join(
        common.RESULTS,
        f"{common.slug(head, arguments.device)}-peers-{arguments.set}"
        + (f"-{arguments.threads}thread" if arguments.device == "cpu" else "")
        + ".json",
    )
    print(
        f"{head['machine']}, torch {head['torch']}, {arguments.threads} threads, "
        f"saker {head['version']} {head['commit']} by {library.way}",
        flush=True,
    )
    rows, start = [], time.perf_counter()
    for op, dtype, m, n in cases(arguments):
        if arguments.limit and time.perf_counter() - start > arguments.limit:
            print(f"time limit of {arguments.limit:.0f} s: the rest is left out", file=sys.stderr)
            head["cut_short"] = True
            break
        case_rows = run_case(Case(op, dtype, m, n, arguments.device), library, clock, arguments)
        show(case_rows)
        rows += case_rows
        common.save(path, head, rows)
        gc.collect()  # autograd graphs hold each other
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    summary(rows)
    print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
