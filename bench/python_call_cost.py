"""What one Python call costs on a tiny tensor, ours against PyTorch's own, in one process. Prints a JSON row each.

    python bench/python_call_cost.py [--device cpu|cuda] [--rows 1] [--columns 64] [--rounds 7] [--out FILE]

Each number is microseconds a call: batches of calls are timed, ours and PyTorch's in turn; the median batch of each
round is kept, and the best round is printed (the machine may be busy). On CUDA the queue is drained between batches,
and --calls keeps a batch short enough to fit in it, so that the host's cost is seen, not the GPU's.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import platform
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import saker  # noqa: E402
import saker.torch  # noqa: E402


def processor():
    """The CPU's name where /proc/cpuinfo has one, else its parts (Arm), and the cores this process may use."""
    with open("/proc/cpuinfo") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    arm = f"implementer {fields.get('CPU implementer')} part {fields.get('CPU part')}"
    name = fields.get("model name", arm)
    return f"{platform.machine()} {name}, {len(os.sched_getaffinity(0))} cores"


def batch(function, calls, synchronise):
    synchronise()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    elapsed = time.perf_counter() - start
    synchronise()
    return elapsed / calls * 1e6


def measure(functions, rounds, calls, synchronise):
    """The best round's median for each function; batches alternate between them."""
    best = [float("inf")] * len(functions)
    for function in functions:
        batch(function, calls, synchronise)
    for _ in range(rounds):
        times = [[] for _ in functions]
        for _ in range(9):
            for i, function in enumerate(functions):
                times[i].append(batch(function, calls, synchronise))
        best = [min(b, statistics.median(t)) for b, t in zip(best, times)]
    return best


def variants(device, rows, columns):
    """(name, ours, PyTorch's or None)"""
    def make(*shape, grad=False):
        return torch.randn(shape, device=device, requires_grad=grad)

    x, w, r, dy, y = make(rows, columns), make(columns), make(rows, columns), make(rows, columns), make(rows, columns)
    gx, gw = make(rows, columns, grad=True), make(columns, grad=True)
    shape, norm, grad = (columns,), saker.torch.rms_norm, torch.autograd.grad
    ours = saker.torch.RMSNorm(columns, eps=1e-6, device=device)
    theirs = torch.nn.RMSNorm(columns, eps=1e-6, device=device)
    call = saker.ops()["rms_norm"].call

    def no_grad(function):
        def run():
            with torch.no_grad():
                function()

        return run

    yield "no grad", lambda: norm(x, w), lambda: F.rms_norm(x, shape, w, 1e-6)
    yield "no grad, no weight", lambda: norm(x), lambda: F.rms_norm(x, shape, None, 1e-6)
    yield "no grad, residual", lambda: norm(x, w, residual=r), lambda: F.rms_norm(x + r, shape, w, 1e-6)
    yield "requires grad, forward", lambda: norm(gx, gw), lambda: F.rms_norm(gx, shape, gw, 1e-6)
    yield (
        "requires grad, forward and backward",
        lambda: grad(norm(gx, gw), (gx, gw), dy),
        lambda: grad(F.rms_norm(gx, shape, gw, 1e-6), (gx, gw), dy),
    )
    yield "module", lambda: ours(gx), lambda: theirs(gx)
    yield "module under no_grad", no_grad(lambda: ours(x)), no_grad(lambda: theirs(x))
    operator = torch.ops.saker.rms_norm
    yield "registered operator, no grad", lambda: operator(x, w, None, None, 1e-6, 0.0, False, False), None
    yield "extension alone, output given", lambda: call(x, w, None, None, y), None
    if device == "cpu":
        nx, nw, ny = x.numpy(), w.numpy(), y.numpy()
        yield "NumPy, output allocated", lambda: saker.rms_norm(nx, nw), None
        yield "NumPy, output given", lambda: saker.rms_norm(nx, nw, y=ny), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=1000, help="calls in a batch")
    parser.add_argument("--out", help="also write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="a table instead of JSON")
    options = parser.parse_args()
    synchronise = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    build, machine = saker.info()["build"], processor()
    if options.device.startswith("cuda"):
        machine += ", " + torch.cuda.get_device_name(options.device)
    rows = []
    if options.markdown:
        print("| call | saker µs | torch µs | torch / saker |\n|---|---|---|---|")
    for name, ours, theirs in variants(options.device, options.rows, options.columns):
        times = measure([f for f in (ours, theirs) if f], options.rounds, options.calls, synchronise)
        row = {
            "bench": "python_call_cost", "case": name, "device": options.device, "dtype": "f32",
            "rows": options.rows, "columns": options.columns,
            "saker_us": round(times[0], 3), "torch_us": round(times[1], 3) if theirs else None,
            "torch_over_saker": round(times[1] / times[0], 2) if theirs else None,
            "build": build, "torch": torch.__version__, "python": platform.python_version(), "machine": machine,
        }  # fmt: skip
        rows.append(json.dumps(row))
        if options.markdown:
            print(f"| {name} | {row['saker_us']:.2f} | {row['torch_us'] or '-'} | {row['torch_over_saker'] or '-'} |")
        else:
            print(rows[-1], flush=True)
    if options.out:
        with open(options.out, "w") as file:
            file.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
