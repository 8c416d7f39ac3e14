#!/usr/bin/env python3
"""Saker beside PyTorch eager, torch.compile and, for f32 products, OpenBLAS and BLIS: same process, same tensors, same
threads, in turn.

    python bench/peers.py                      # CPU, all cores
    python bench/peers.py --threads 1
    python bench/peers.py --device cuda --set sweep
    python bench/peers.py --device cuda --set quack
    python bench/peers.py --device cuda --op softmax --warm    # compiles only, many may do it at once; then run as above

Writes bench/results/<machine>-<what>.json (or --out) and prints a table. bench/README.md says how the figures are made.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import ctypes
import fnmatch
import gc
import os
import re
import sys
import time

os.environ.setdefault(
    "THP_MEM_ALLOC_ENABLE", "1"
)  # huge pages for torch's CPU tensors, which are everybody's tensors here

import torch

import common
import ops
import ours
import timing
from ops import TYPES


def keep_freed_memory():
    """PyTorch's norms take no output tensor, they allocate one a call. Freed memory stays in the process here, so that
    this costs no page faults."""
    libc = ctypes.CDLL(None)
    m_trim_threshold, m_mmap_max = -1, -4
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, -1)


# ---------------------------------------------------------------- cases


def wanted(op, patterns):
    return any(fnmatch.fnmatchcase(name, p) for name in (op.name, op.label) if name for p in patterns.split(","))


def cases(arguments, known):
    """(op, dtype, rows, width) in the order they run."""
    widths = [int(w) for w in arguments.widths.split(",")] if arguments.widths else None
    for op in known:
        if not arguments.op or wanted(op, arguments.op):
            for shape in op.shapes(arguments.set, arguments.device, arguments.types.split(","), widths):
                yield op, *shape


class Case:
    """The tensors of one case, several copies where one would stay in the GPU's L2 cache (in the CPU's, where the case
    wants them from memory)."""

    def __init__(self, op, dtype, m, n, device):
        self.op, self.dtype, self.m, self.n = op, dtype, m, n
        self.name = f"{dtype} {m}x{n}"
        self.bytes, self.reads, self.writes = op.traffic(dtype, m, n)
        copies = 1
        if device == "cuda":
            l2 = torch.cuda.get_device_properties(0).L2_cache_size
            copies = max(1, min(16, 1 + 3 * l2 // self.bytes))
        elif op.from_memory:
            copies = 1 + 4 * common.last_cache_bytes() // self.bytes
        self.sets = [
            op.tensors(dtype, m, n, device, torch.Generator(device).manual_seed(seed))
            for seed in range(copies if device == "cuda" else 1)
        ]
        self.sets += [{name: t.clone() for name, t in self.sets[0].items()} for _ in range(copies - len(self.sets))]


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


def torch_runs(case, compile_too):
    """{name: run}; a compiler that fails is reported, not fatal."""
    found = {"torch eager": rotate([case.op.torch(t, None) for t in case.sets])}
    if not compile_too:
        return found
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False  # the same graph is run backward many times
    made = {}

    def compiled(function):
        if function not in made:
            made[function] = torch.compile(function, dynamic=False)
        return made[function]

    try:
        runs = [case.op.torch(t, compiled) for t in case.sets]
        runs[0]()
        found["torch.compile"] = rotate(runs)
    except Exception as why:  # whatever the compiler's own stack throws
        print(f"torch.compile failed on {case.op.name} {case.name}: {str(why).splitlines()[0]}", file=sys.stderr)
    return found


def probe_runs(library, case, device):
    """{name: (run, bytes, streams)} at the same total bytes: our kernel with the case's streams, a plain copy by us and by
    torch, torch's add for 2x1."""
    streams = (case.reads, case.writes)
    unit = 128 * 12 * sum(streams)  # every number of streams used here divides it into whole lines
    memory = [
        torch.randint(0, 100, (int(case.bytes) // unit * unit,), dtype=torch.uint8, device=device) for _ in case.sets
    ]
    cut = lambda t, n: [part.view(TYPES[case.dtype]) for part in t.chunk(n)]
    found = {}
    for shape in dict.fromkeys((streams, (1, 1))):
        names = ["x0", "x1", "x2", "x3"][: shape[0]] + ["y0", "y1"][: shape[1]]
        trace = {"checksum": torch.empty(1, dtype=torch.int64, device=device)} if not shape[1] else {}
        calls = [library.prepare("stream", **dict(zip(names, cut(t, sum(shape)))), **trace) for t in memory]
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


# ---------------------------------------------------------------- running


def run_case(case, library, clock, arguments):
    for t in case.sets:
        case.op.prepare(t, library)
    mine = [library.prepare(case.op.name, **case.op.arguments(t)) for t in case.sets]
    for run in mine:
        run()
    kernel = library.kernel()
    error = case.op.error(case.sets[0])
    contenders = {"saker": rotate(mine), **torch_runs(case, not arguments.no_compile)}
    others = [case.op.others(t, arguments.threads) for t in case.sets]
    contenders.update({name: rotate([runs[name] for runs in others]) for name in others[0]})
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
            "op": (case.op.label or case.op.name) + (" in any order" if arguments.nondeterministic else ""),
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
        operations = case.op.operations(case.dtype, case.m, case.n)
        if operations and name in contenders:
            row["gflops"] = operations / times[name]["median_us"] * 1e-3
        if name == "saker":
            row.update(kernel=kernel, max_relative_error=error, reads=case.reads, writes=case.writes)
        rows.append(row)
    return rows


def show(rows):
    by = {row["who"]: row for row in rows}
    mine = by["saker"]
    line = f"{mine['op']:18} {mine['case']:20} {mine['median_us']:10.1f} us {mine['gbps']:8.1f} GB/s"
    line += f" {100 * mine['roof_fraction']:4.0f}% of {mine['probe']:11}"
    if "gflops" in mine:
        line += f" {mine['gflops']:8.1f} GFLOP/s"
    for name in common.PEERS:
        if name in by:
            line += f" {name.removeprefix('torch').strip(' .')}: {by[name]['median_us'] / mine['median_us']:6.2f}x"
    print(f"{line}  error {mine['max_relative_error']:.1e}", flush=True)


def summary(rows):
    """Speed-up over each peer, and over the best one of each case."""
    table = {}
    for row in rows:
        table.setdefault((row["op"], row["case"]), {})[row["who"]] = row["median_us"]
    for name in (*common.PEERS, "the best one"):
        ratios = {}
        for key, times in table.items():
            peers = [t for who, t in times.items() if who in common.PEERS]
            peer = min(peers, default=None) if name == "the best one" else times.get(name)
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
    known = ops.all_ops()
    parser.add_argument("--op", help="names of operations or of their cases, comma separated, * and ? as in a shell")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--widths", help="comma separated; without it all of the set")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads for everybody; 0: all allowed cores")
    parser.add_argument("--seconds", type=float, default=0.5, help="per case, at least seven rounds")
    parser.add_argument("--limit", type=float, default=0, help="stop after so many seconds and keep what there is")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--warm", action="store_true", help="only fill torch.compile's cache: times nothing")
    parser.add_argument(
        "--way", choices=("binding", "ctypes"), help="how Saker is called; without it the binding if it can be imported"
    )
    parser.add_argument("--nondeterministic", action="store_true", help="Saker may give other bits from run to run")
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--out", help="results file; without it bench/results/<machine>-<what>.json")
    arguments = parser.parse_args()
    for pattern in arguments.op.split(",") if arguments.op else ():
        if not any(wanted(op, pattern) for op in known):
            names = sorted({name for op in known for name in (op.name, op.label) if name})
            parser.error(f"no operation is called '{pattern}'; there are {', '.join(names)}")
    arguments.build = os.path.abspath(arguments.build)

    arguments.threads = arguments.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    if arguments.warm:
        for op, dtype, m, n in cases(arguments, known):
            case = Case(op, dtype, m, n, arguments.device)
            torch_runs(case, not arguments.no_compile)
            op.others(case.sets[0], arguments.threads)
        return
    library = ours.open_library(arguments.build, arguments.device, arguments.threads, arguments.way, arguments.nondeterministic)
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
    only = re.sub("[^a-z0-9_]+", "-", arguments.op or "").strip("-")
    path = arguments.out or os.path.join(
        common.RESULTS,
        f"{common.slug(head, arguments.device)}-peers-{only + '-' if only else ''}{arguments.set}"
        + (f"-{arguments.threads}thread" if arguments.device == "cpu" else "")
        + ".json",
    )
    print(
        f"{head['machine']}, torch {head['torch']}, {arguments.threads} threads, "
        f"saker {head['version']} {head['commit']} by {library.way}",
        flush=True,
    )
    rows, left_out, start = [], 0, time.perf_counter()
    for op, dtype, m, n in cases(arguments, known):
        if arguments.limit and time.perf_counter() - start > arguments.limit:
            print(f"time limit of {arguments.limit:.0f} s: the rest is left out", file=sys.stderr)
            head["cut_short"] = True
            common.save(path, head, rows)
            break
        try:
            case_rows = run_case(Case(op, dtype, m, n, arguments.device), library, clock, arguments)
        except Exception as why:  # one case that a machine cannot run does not cost the others
            print(f"left out: {op.label or op.name} {dtype} {m}x{n}: {why}", file=sys.stderr)
            left_out += 1
            continue
        show(case_rows)
        rows += case_rows
        common.save(path, head, rows)
        gc.collect()  # autograd graphs hold each other
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    summary(rows)
    print(f"written: {os.path.relpath(path)}")
    sys.exit(1 if left_out else 0)


if __name__ == "__main__":
    main()
