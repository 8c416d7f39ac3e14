#!/usr/bin/env python3
# norm_tune.py - tries shapes of the norm kernels on a GPU: compiles each from the headers in src/, checks it, times it beside a copy.
# SPDX-License-Identifier: Apache-2.0
#
#   python3 bench/device/norm_tune.py [plain | residual | e4m3 | backward | layer_plain | layer_residual | layer_e4m3 | layer_backward ...]
#
# With TUNE_FOLDER=folder TUNE_COMPILE=1 it only compiles (no GPU needed); with TUNE_FOLDER alone it runs what was compiled there.
#
# Prints the best shapes per type and width as fractions of the copy and writes $OUT/norm_tune.jsonl. TUNE_WIDTHS and TUNE_TYPES limit it.
# The parent compiles and never touches the GPU; a worker process runs the kernels. A kernel that fails or hangs takes the worker with it, and a
# new worker goes on without that kernel. Every shape is timed a few times, the best of them REPEATS times, and those again with the other ways to
# load and store (FLAVOURS), all in turn with two copies, of which the faster counts.
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import gpu
import norm_shapes

WIDTHS = [int(n) for n in os.environ.get("TUNE_WIDTHS", ",".join(str(2**k) for k in range(8, 19))).split(",")]
TYPES = os.environ.get("TUNE_TYPES", "bf16,f32").split(",")
KINDS = tuple(norm + kind for norm in ("", "layer_") for kind in ("plain", "residual", "e4m3", "backward"))
ELEMENTS = 1 << 27
FEW, REPEATS, KEEP, KEEP_FLAVOURS = 6, 40, 10, 2
SILENCE = 25  # seconds without a word from the worker: the kernel it named last hangs
OUT = os.environ.get("OUT", "/tmp")
start = time.time()


def say(*words):
    print(f"[{time.time() - start:5.1f}s]", *words, flush=True)


# ---------------------------------------------------------------- parent


def compile_entries(entries, folder):
    texts = norm_shapes.sources(entries, 3 * os.cpu_count())
    errors, spills = {}, []
    for flavour, flags in norm_shapes.FLAVOURS.items():
        some = {name: text for (f, name), text in texts.items() if f == flavour}
        if some:
            if not os.path.exists(f"{folder}/copy.cubin"):
                some |= {"copy": norm_shapes.COPY, "add": gpu.INCLUDES + norm_shapes.ADD}
            info, bad = gpu.compile_all(some, folder, flags)
            errors |= bad
            spills += [name for name, v in info.items() if v["spill"]]
    for name, text in errors.items():
        say(f"{name} does not compile:\n{text[-1500:]}")
    say(f"compiled {len({(e['flavour'], e['name']) for e in entries})} kernels; spills in: {' '.join(spills) or 'none'}")
    return [e for e in entries if e["cubin"] not in errors and e["name"] not in spills]


def case_of(e):
    return e["kind"], e["type"], e["n"]


def run_worker(entries, folder, reps, phase):
    """Results by (kind, type, n), over as many workers as it takes."""
    results, bad, lost = {}, [], set()
    while True:
        left = [e for e in entries if case_of(e) not in results and case_of(e) not in lost]
        left = [e for e in left if [e["flavour"], e["name"]] not in bad]
        if not left:
            return results
        plan = f"{folder}/plan.json"
        with open(plan, "w") as f:
            json.dump({"entries": left, "reps": reps}, f)
        worker = subprocess.Popen(
            [sys.executable, "-u", os.path.abspath(__file__), "--worker", folder], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(x) for x in worker.stdout] + [lines.put("")], daemon=True).start()
        now, finished = None, False
        while True:
            try:
                line = lines.get(timeout=SILENCE if now else 90)
            except queue.Empty:
                line = ""
            if not line:
                break
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "TRY":
                now = json.loads(rest)
            elif word == "RESULT":
                r = json.loads(rest)
                results[r["kind"], r["type"], r["n"]] = r
                report(r)
                with open(f"{OUT}/norm_tune.jsonl", "a") as f:
                    f.write(json.dumps(dict(r, phase=phase)) + "\n")
            elif word == "TIME":
                now = tuple(json.loads(rest))
            elif word == "DONE":
                finished = True
            else:
                say(line.rstrip())
        worker.kill()
        worker.wait()
        if finished:
            return results
        if now is None:
            say("the worker does not start; giving up")
            return results
        lost.add(now) if isinstance(now, tuple) else bad.append(now)
        say(f"BAD {now} ended the worker; going on without it")


def report(r, top=int(os.environ.get("TUNE_TOP", 3))):
    copy = r["copy_us"]
    order = sorted((v, k) for k, v in r["us"].items() if not k.startswith("copy"))
    words = "  ".join(f"{k} {r['ideal_us'] / v:.3f}" for v, k in order[:top])
    print(f"{r['kind']:14} {r['type']:4} {r['n']:6}: copy {copy:.1f} us {r['bytes'] / copy / 1e3:.0f} GB/s | {words}", flush=True)


def table(results, title):
    print(f"\n{title}: best fraction of copy")
    print(f"{'':20}" + "".join(f"{n:>8}" for n in WIDTHS))
    for kind in KINDS:
        for t in TYPES:
            cells = []
            for n in WIDTHS:
                r = results.get((kind, t, n))
                times = [v for k, v in r["us"].items() if not k.startswith("copy")] if r else []
                cells.append(f"{r['ideal_us'] / min(times):8.3f}" if times else f"{'-':>8}")
            if any(c.strip() != "-" for c in cells):
                print(f"{kind:14} {t:5}" + "".join(cells), flush=True)


def flavoured(results, entries):
    """The best shapes of each case again, with every way to load and store; backward loads by asynchronous copies only."""
    out = []
    for case, r in results.items():
        order = [k.rsplit(" ", 1) for v, k in sorted((v, k) for k, v in r["us"].items() if not k.startswith("copy"))]
        best = list(dict.fromkeys(shape for shape, grid in order))[:KEEP_FLAVOURS]
        for e in entries:
            if case_of(e) == case and e["shape"] in best:
                grids = [grid.rstrip("0123456789") if "walk" in grid else grid for shape, grid in order if shape == e["shape"]][:2]
                flavours = [f for f in norm_shapes.FLAVOURS if not (case[0].endswith("backward") and "n" in f)]
                out += [dict(e, flavour=f, grids=grids) for f in flavours]
    return out


def parent(kinds):
    folder = os.environ.get("TUNE_FOLDER") or tempfile.mkdtemp()
    ready = f"{folder}/entries.json"
    if os.path.exists(ready) and not os.environ.get("TUNE_COMPILE"):
        with open(ready) as f:
            entries = [e for e in json.load(f) if e["kind"] in kinds and e["type"] in TYPES and e["n"] in WIDTHS]
    else:
        entries = [e for kind in kinds for t in TYPES for n in WIDTHS for e in norm_shapes.shapes(kind, t, n)]
        entries = compile_entries(entries, folder)
        with open(ready, "w") as f:
            json.dump(entries, f)
        if os.environ.get("TUNE_COMPILE"):
            return
    results = run_worker(entries, folder, [FEW, REPEATS], "shapes")
    table(results, "shapes")
    if os.environ.get("TUNE_FOLDER"):
        return
    again = flavoured(results, entries)
    again = [e for e in again if not e["flavour"]] + compile_entries([e for e in again if e["flavour"]], folder)
    say("the best of these again (n: loads without L1, s: streaming stores)")
    again.sort(key=lambda e: list(results).index(case_of(e)))
    final = run_worker(again, folder, [REPEATS], "flavours")
    table(final, "shapes and flavours")
    say("done")


# ---------------------------------------------------------------- worker


class Case:
    """The tensors of one kind, type and width, the expected results of some rows, and the calls that are timed."""

    def __init__(self, torch, kind, t, n):
        self.torch, self.t, self.n, self.m = torch, t, n, ELEMENTS // n
        self.layer, self.kind = kind.startswith("layer_"), kind.removeprefix("layer_")
        self.eps = 1e-5 if self.layer else 1e-6
        self.dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[t]
        es = norm_shapes.BYTES[t]
        self.few = min(self.m, max(45, min(1201 if self.kind == "backward" else 301, (1 << 22) // n)))
        draw = lambda: (torch.randn(self.m, n, device="cuda", dtype=torch.float32) + 0.5 * self.layer).to(self.dtype)
        empty = lambda dtype=self.dtype: torch.empty(self.m, n, device="cuda", dtype=dtype)
        param = lambda middle: (torch.randn(n, device="cuda") * 0.2 + middle).to(self.dtype)
        self.x, self.y = draw(), empty()
        self.rstd, self.mean = torch.empty(self.m, 1, device="cuda"), torch.empty(self.m, 1, device="cuda")
        self.weight, self.bias = param(1), param(0)
        self.bytes = 2 * ELEMENTS * es
        self.fields = dict(x=self.x, weight=self.weight, rstd=self.rstd, eps=self.eps)
        if self.layer:
            self.fields |= dict(mean=self.mean, centre=1)
        self.per_copy = 1.0
        if self.layer and self.kind != "backward":
            self.fields["bias"] = self.bias
        if self.kind == "residual":
            self.residual, self.residual_out = draw(), empty()
            self.fields |= dict(residual=self.residual, residual_out=self.residual_out)
            self.per_copy = 2.0
        if self.kind == "e4m3":
            self.quant, self.scale = empty(torch.float8_e4m3fn), torch.empty(self.m, 1, device="cuda")
            self.fields |= dict(y_quant=self.quant, scale=self.scale, quant=2)
            self.per_copy = (es + 1) / (2 * es)
        elif self.kind == "backward":
            self.dy = draw()
            for i in range(0, self.m, max(1, self.m // 64)):
                some = slice(i, i + max(1, self.m // 64))
                part = self.x[some].float()
                if self.layer:
                    self.mean[some] = part.mean(1, keepdim=True)
                    part = part - self.mean[some]
                self.rstd[some] = 1 / (part.square().mean(1, keepdim=True) + self.eps).sqrt()
            self.dweight, self.dbias = torch.empty_like(self.weight), torch.empty_like(self.weight)
            self.workspace = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
            self.fields |= dict(dy=self.dy, dx=self.y, dweight=self.dweight, workspace=self.workspace)
            if self.layer:
                self.fields["dbias"] = self.dbias
            self.per_copy = 1.5
        else:
            self.fields["y"] = self.y
        self.expect()

    def expect(self):
        few, w = self.few, self.weight.double()
        s = self.x[:few].double()
        if self.kind == "backward":
            dy, rstd = self.dy[:few].double(), self.rstd[:few].double()
            g, h = dy * w, (s - self.mean[:few].double() if self.layer else s) * rstd
            mean_g = g.mean(1, keepdim=True) if self.layer else 0
            self.want = rstd * (g - mean_g - h * (g * h).mean(1, keepdim=True))
            self.want_dw, self.size_dw = (dy * h).sum(0), (dy * h).abs().sum(0)
            self.want_db, self.size_db = dy.sum(0), dy.abs().sum(0)
            return
        if self.kind == "residual":
            s = (s + self.residual[:few].double()).float().to(self.dtype).double()
        self.want_mean = s.mean(1, keepdim=True)
        if self.layer:
            s = s - self.want_mean
        self.want_rstd = 1 / (s.square().mean(1, keepdim=True) + self.eps).sqrt()
        self.want = s * self.want_rstd * w + (self.bias.double() if self.layer else 0)

    def wrong(self, got, want, tolerance):
        error = (got.double() - want).abs() / (tolerance * (want.abs() + 1e-3 * want.abs().max()))
        worst = error.max().item()
        return "" if worst <= 1.0 else f"{worst:.2f} of the bound, {self.torch.isnan(got.double()).sum().item()} NaN of {got.numel()}"

    def judge(self):
        few, tolerance = self.few, {"bf16": 2**-8, "f32": 2e-6}[self.t]
        if self.kind == "backward":
            tolerance, text = max(2 * tolerance, 2e-5), ""
            for got, want, size in ((self.dweight, self.want_dw, self.size_dw), (self.dbias, self.want_db, self.size_db))[: 1 + self.layer]:
                bound = size * 1e-5 + want.abs() * (2**-8 if self.t == "bf16" else 1e-6) + 1e-6
                worst = ((got.double() - want).abs() / bound).max().item()
                text += "" if worst <= 1 else f"sums {worst:.2f} of the bound "
            return self.wrong(self.y[:few], self.want, tolerance) or text
        text = self.wrong(self.rstd[:few], self.want_rstd, 2e-6)
        if self.layer and (self.mean[:few].double() - self.want_mean).abs().max() > 1e-6:
            text += " mean"
        if self.kind == "e4m3":
            return text or self.wrong(self.quant[:few].double() * self.scale[:few].double(), self.want, 2**-4 + 2**-16)
        return text or self.wrong(self.y[:few], self.want, 10 * tolerance if self.layer and self.t == "f32" else tolerance)

    def spoil(self):
        nan = float("nan")
        self.y.fill_(nan)
        if self.kind == "backward":
            self.dweight.fill_(nan), self.dbias.fill_(nan), self.workspace.fill_(255)
        else:
            self.rstd.fill_(nan), self.mean.fill_(nan)
        if self.kind == "e4m3":
            self.quant.view(self.torch.uint8).fill_(0x7F), self.scale.fill_(nan)


class Runner:
    def __init__(self, torch, folder):
        self.torch, self.folder, self.driver = torch, folder, gpu.Driver()
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.stream = torch.cuda.current_stream().cuda_stream

    def kernel(self, cubin, name, threads):
        return self.driver.kernel(f"{self.folder}/{cubin}.cubin", name, threads)

    def copies(self, case):
        size = case.x.numel() * case.x.element_size()
        k = self.kernel("copy", "copy", 256)
        ours = k.launcher(k.config(-(-size // 4096)), gpu.Copy(case.x.data_ptr(), case.y.data_ptr(), size), self.stream)
        return {"copy torch": lambda: case.y.copy_(case.x), "copy ours": ours}

    def grids(self, e, k, m):
        """Label -> blocks, or parts for backward."""
        fit, c = k.resident(e["shared"], e["cluster"], self.sms), e["cluster"]
        if not fit:
            return {}
        if e["kind"].endswith("backward"):
            counts = {fit, 128 // c, 132 // c, 256 // c, 264 // c} if c > 1 else {fit} | {self.sms * i for i in (1, 2, 3, 4, 6, 8)}
            return {f"p{p}": p for p in sorted(counts) if 0 < p <= fit and p <= m and p * e["n"] * 4 <= 1 << 28}
        tiles = -(-m // (e["threads"] // e["lanes"] * e["rpg"]))
        grids = {"once": tiles * c, f"walk{fit}": min(tiles, fit) * c}
        return {k: v for k, v in grids.items() if "grids" not in e or k.rstrip("0123456789") in e["grids"]}

    def call(self, e, case, k, grid, rows):
        if not e["kind"].endswith("backward"):
            return k.launcher(k.config(grid, e["shared"], e["cluster"]), gpu.job(gpu.Forward, rows, e["n"], **case.fields), self.stream)
        j = gpu.job(gpu.Backward, rows, e["n"], n_parts=grid, **case.fields)
        first = k.launcher(k.config(grid * e["cluster"], e["shared"], e["cluster"]), j, self.stream)
        name, columns = ("add_4", 128) if e["n"] >= 16384 else ("add_1", 32)
        add = self.kernel("add", name, 32 * max(1, min(32, (grid + 3) // 4)))
        second = add.launcher(add.config(-(-e["n"] // columns)), j, self.stream)
        return lambda: (first(), second())

    def run(self, kind, t, n, entries, reps):
        torch = self.torch
        case, calls = Case(torch, kind, t, n), {}
        for e in entries:
            print("TRY", json.dumps([e["flavour"], e["name"]]))
            k = self.kernel(e["cubin"], e["name"], e["threads"])
            grids = self.grids(e, k, case.m)
            if not grids:
                print(f"does not fit: {e['shape']}")
                continue
            few = self.grids(e, k, case.few)
            label = next(iter(reversed(few)))
            case.spoil()
            self.call(e, case, k, few[label], case.few)()
            torch.cuda.synchronize()
            text = case.judge()
            if text:
                print(f"WRONG {t} {n} {e['shape']} {label}: {text}")
                continue
            for label, grid in grids.items():
                if "grids" not in e or label in e["grids"] or label.rstrip("0123456789") in e["grids"]:
                    calls[f"{e['shape']}{'' if not e['flavour'] else '_' + e['flavour']} {label}"] = self.call(e, case, k, grid, case.m)
        print("TIME", json.dumps([kind, t, n]))
        calls |= self.copies(case)
        for i, count in enumerate(reps):
            times = gpu.time_all(torch, calls, count)
            if i + 1 < len(reps):
                keep = sorted(times, key=times.get)[:KEEP]
                calls = {name: f for name, f in calls.items() if name in keep or name.startswith("copy")}
        copy = min(times["copy torch"], times["copy ours"])
        print("RESULT", json.dumps(dict(kind=kind, type=t, n=n, m=case.m, bytes=case.bytes, copy_us=copy, ideal_us=copy * case.per_copy, us=times)))


def worker(folder):
    import torch

    with open(f"{folder}/plan.json") as f:
        plan = json.load(f)
    runner = Runner(torch, folder)
    for case in dict.fromkeys(case_of(e) for e in plan["entries"]):
        runner.run(*case, [e for e in plan["entries"] if case_of(e) == case], plan["reps"])
        torch.cuda.empty_cache()
    print("DONE")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        parent(sys.argv[1:] or KINDS)
