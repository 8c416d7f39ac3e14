#!/usr/bin/env python3
"""Rewrites the blocks <!-- bench:NAME --> ... <!-- /bench --> of README.md (or the files given) from bench/results/,
and docs/RESULTS.md, which has every case of every file.

NAME is the stem of a results file (a peers file or the output of `saker bench --out`); `summary-<machine>`: a line for
each operation out of all peers files of that machine; `products-<machine>`: one line for each operation bound by
arithmetic; `attention-<machine>`: attention beside the peers that a GPU has for it; or `quack`: ours beside QuACK's
recorded fractions.
`--check` writes nothing and fails when a block is out of date. Running it twice changes nothing.
SPDX-License-Identifier: Apache-2.0
"""

import os
import re
import sys

import common

BLOCK = re.compile(r"(<!-- bench:([A-Za-z0-9_.-]+) -->\n)(.*?)(<!-- /bench -->)", re.S)


def table(head, rows):
    align = "|".join("---" if i == 0 else "---:" for i in range(len(head)))
    return "\n".join([f"| {' | '.join(head)} |", f"|{align}|"] + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def percent(value):
    return f"{100 * value:.0f} %"


def times(value):
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def span(least, most):
    return f"{least}" if least == most else f"{least} … {most}"


def by_case(result):
    cases = {}
    for row in result["rows"]:
        cases.setdefault((row["op"], row["case"]), {})[row["who"]] = row
    return cases


def source(result):
    parts = [
        result.get("machine"),
        f"{result['threads']} threads" if result.get("device") == "cpu" else None,
        result.get("compiler"),
        f"CUDA {result['cuda']}" if result.get("cuda") else None,
        f"PyTorch {result['torch']}" if result.get("torch") else None,
        f"Saker {result['version']} at {result['commit']}" if result.get("version") else None,
        (result.get("date") or "")[:10],
    ]
    return ", ".join(str(p) for p in parts if p)


def peers(result):
    lines, ratios = [], {}
    for (op, case), who in by_case(result).items():
        mine = who["saker"]
        cells = [f"{op} {case}", f"{mine['median_us']:.0f}", f"{mine['gbps']:.0f}", percent(mine["roof_fraction"])]
        speedups = {}
        for peer in ("torch eager", "torch.compile"):
            if peer in who:
                speedups[peer] = who[peer]["median_us"] / mine["median_us"]
            cells.append(times(speedups[peer]) if peer in speedups else "–")
        if speedups:
            ratios[op, case] = min(speedups.values())
        lines.append(cells)
    text = table(["case", "Saker µs", "GB/s", "of the probe", "faster than eager", "than torch.compile"], lines)
    if ratios:
        worst = min(ratios, key=ratios.get)
        mean = times(common.geometric_mean(ratios.values()))
        text += f"\nAgainst the better of eager and torch.compile: geometric mean {mean}, "
        text += f"worst {times(ratios[worst])} ({worst[0]} {worst[1]}).\n"
    return text + f"\n*{source(result)}. Recorded by `bench/peers.py`.*\n"


def bench(result):
    lines = []
    for row in result["rows"]:
        gbps = row.get("gbps")
        lines.append(
            [
                f"{row['op']} {row['case']}",
                f"{row['median_us']:.2f}" if row["median_us"] < 100 else f"{row['median_us']:.0f}",
                f"{gbps:.0f}" if gbps is not None else "–",
                percent(row["roof_fraction"]) if row.get("roof_fraction") is not None else "–",
                f"{row['max_error']:.2f}" if row.get("max_error") is not None else "–",
            ]
        )
    first = result["rows"][0]
    note = (
        f"{first['machine']}, {first['compiler']}, Saker {first['version']} at {first['commit']}, {first['date'][:10]}"
    )
    return (
        table(["case", "µs", "GB/s", "of the probe", "error / bound"], lines)
        + f"\n*{note}. Recorded by `saker bench`.*\n"
    )


def summary(machine, recorded):
    """One line for each operation: the range of the fraction of the probe, and the speed-up over the best of the
    peers (geometric mean over the widths, and the worst)."""
    found, sources = {}, []
    for stem, result in recorded.items():
        if result.get("what") != "peers" or not stem.startswith(f"{machine}-peers") or stem.endswith("quack"):
            continue
        for (op, case), who in by_case(result).items():
            mine = who["saker"]
            if "gflops" in mine:
                continue
            sources.append(source(result))
            peers_us = [who[p]["median_us"] for p in common.PEERS if p in who]
            found.setdefault((op, mine["dtype"]), []).append(
                (mine["width"], mine["roof_fraction"], min(peers_us, default=float("nan")) / mine["median_us"])
            )
    if not found:
        return None
    lines = []
    for op in sorted({op for op, _ in found}):
        cells, worst, widths = [], [], set()
        for dtype in ("f32", "bf16"):
            cases = found.get((op, dtype))
            if not cases:
                cells.append(["–", "–"])
                continue
            at, fractions, ratios = zip(*cases)
            widths.update(at)
            worst.append(min(ratios))
            cells.append([span(percent(min(fractions)), percent(max(fractions))), times(common.geometric_mean(ratios))])
        (f32, f32_ratio), (bf16, bf16_ratio) = cells
        lines.append([op, span(min(widths), max(widths)), f32, bf16, f32_ratio, bf16_ratio, times(min(worst))])
    head = ["operation", "widths", "of the probe, f32", "bf16", "over PyTorch, f32", "bf16", "worst case"]
    return table(head, lines) + "\n*" + "; ".join(dict.fromkeys(sources)) + ". Recorded by `bench/peers.py`.*\n"


def family(op):
    """The operation without the shape that its label may end with."""
    return re.sub(r"(_\d+x\d+x\d+(_\w\w)?| E\d+ .*)$", "", op)


def attention(machine, recorded):
    """On a GPU, 2048 tokens and more, for each head size: the range of TFLOP/s; the speed-up over FlashAttention-2, or over
    FlexAttention with an option that the other lacks, over FlashAttention-2 made to give the same bits in every run, and
    over cuDNN; and what an option costs: time for the same work
    beside the plain kernel's (a window: the causal one's) at the same length."""
    found, sources = {}, []
    for stem, result in recorded.items():
        if result.get("what") == "peers" and stem.startswith(f"{machine}-peers-attention"):
            for (op, _), who in by_case(result).items():
                if who["saker"]["rows"] >= 2048:
                    sources.append(source(result))
                    found.setdefault(op, {}).setdefault(who["saker"]["width"], []).append(who)

    def over(cases, name):
        ratios = [who[name]["median_us"] / who["saker"]["median_us"] for who in cases if name in who]
        return span(times(min(ratios)), times(max(ratios))) if ratios else "–"

    def cost(op, width, case):
        plain = re.sub("_(window|packed|alibi|softcap|bias)", lambda m: "_causal" if m[1] == "window" else "", op)
        same = [who for who in found.get(plain, {}).get(width, ()) if who["saker"]["rows"] == case["saker"]["rows"]]
        return percent(same[0]["saker"]["gflops"] / case["saker"]["gflops"] - 1) if same and plain != op else "–"

    lines = []
    for op in sorted(found, key=lambda op: (op.count("any order"), op.count("backward"), op)):
        line = [op]
        for width in (64, 128, 256):
            cases = found[op].get(width, [])
            rates = [who["saker"]["gflops"] / 1000 for who in cases]
            peer = "FlashAttention-2" if any("FlashAttention-2" in who for who in cases) else "FlexAttention"
            line += [span(f"{min(rates):.0f}", f"{max(rates):.0f}") if rates else "–", over(cases, peer)]
            if width < 256:
                line.append(cost(op, width, cases[0]) if cases else "–")
        lines.append(line + [over(found[op].get(128, []), peer) for peer in ("FlashAttention-2, same bits", "cuDNN")])
    head = ["heads of", "64: TFLOP/s", "over FA2 / Flex", "costs", "128: TFLOP/s", "over FA2 / Flex", "costs"]
    head += ["256: TFLOP/s", "over FA2", "128: over FA2, same bits", "128: over cuDNN"]
    return lines and table(head, lines) + "\n*" + "; ".join(dict.fromkeys(sources)) + ". Recorded by `bench/peers.py`.*\n"


def products(machine, recorded):
    """What is bound by arithmetic, one line for each operation and type: the range of GFLOP/s, and the speed-up over the
    best of the peers."""
    found, sources = {}, []
    for stem, result in recorded.items():
        if result.get("what") != "peers" or not stem.startswith(f"{machine}-peers"):
            continue
        for (op, case), who in by_case(result).items():
            mine = who["saker"]
            if "gflops" not in mine or (mine["device"] == "cuda" and op.startswith("attention")):
                continue
            sources.append(source(result))
            peers_us = [who[p]["median_us"] for p in common.PEERS if p in who]
            ratio = min(peers_us, default=float("nan")) / mine["median_us"]
            shape = case.split(" ", 1)[-1] if op == family(op) else op.removeprefix(family(op)).strip(" _")
            found.setdefault((family(op), mine["dtype"]), []).append((mine["gflops"], ratio, shape))
    if not found:
        return None
    lines = []
    for (op, dtype), cases in sorted(found.items()):
        rates, ratios, _ = zip(*cases)
        worst = min(cases, key=lambda c: c[1])
        lines.append(
            [f"{op} {dtype}", str(len(cases)), span(f"{min(rates):.0f}", f"{max(rates):.0f}")]
            + [times(common.geometric_mean(ratios)), f"{times(worst[1])} ({worst[2]})"]
        )
    head = ["product", "cases", "GFLOP/s", "over the best peer", "worst case"]
    return table(head, lines) + "\n*" + "; ".join(dict.fromkeys(sources)) + ". Recorded by `bench/peers.py`.*\n"


def quack_cases(recorded):
    """[(op, case, our fraction of copy, theirs)] and the two sources."""
    theirs, found, sources = recorded.get("quack-h200-recorded"), [], []
    for stem, result in recorded.items() if theirs else ():
        if result.get("what") != "peers" or not stem.endswith("-quack") or "H200" not in result["machine"]:
            continue
        sources.append(source(result))
        cases = by_case(result)
        for row in theirs["rows"]:
            ours = cases.get((row["op"], row["case"]), {}).get("saker")
            if ours:
                found.append((row["op"], row["case"], ours["gbps"] / ours["copy_gbps"], row["copy_fraction"]))
    return found, "; ".join(dict.fromkeys(sources)) + (f". {theirs['source']}" if theirs else "")


def quack(recorded, brief):
    found, note = quack_cases(recorded)
    if not found:
        return None
    if not brief:
        lines = [[f"{op} {case}", percent(a), percent(b), times(a / b)] for op, case, a, b in found]
        return table(["case", "Saker, of copy", "QuACK, of copy", "ratio"], lines) + f"\n*{note}*\n"
    lines = []
    for name in dict.fromkeys(row[0] for row in found):
        ratios = {case: a / b for op, case, a, b in found if op == name}
        worst = min(ratios, key=ratios.get)
        mean = times(common.geometric_mean(ratios.values()))
        lines.append([name, str(len(ratios)), mean, f"{times(ratios[worst])} ({worst})"])
    return table(["operation", "cases", "geometric mean", "worst"], lines) + f"\n*{note}*\n"


def model_shapes(result):
    """Of each number of rows: times torch over all weights, and the worst of them."""
    us = {(row["m"], row["n"], row["k"], row["who"]): row["median_us"] for row in result["rows"]}
    ratios = {(m, n, k): us[m, n, k, "torch eager"] / time for (m, n, k, who), time in us.items() if who == "saker"}
    lines = []
    for rows in sorted({shape[0] for shape in ratios}) + ["all"]:
        of = {shape: ratio for shape, ratio in ratios.items() if rows in (shape[0], "all")}
        worst = min(of, key=of.get)
        mean = times(common.geometric_mean(of.values()))
        lines.append([str(rows), str(len(of)), mean, f"{times(of[worst])} ({' x '.join(map(str, worst))})"])
    note = f"{result['machine']}, PyTorch {result['torch']}, Saker {result['version']} ({result['commit']}), {result['date'][:10]}"
    return table(["rows", "products", "geometric mean", "worst"], lines) + f"\n*{note}*\n"


# What is recorded, and the table of it; all else is `saker bench`'s.
TABLES = {"peers": peers, "model shapes": model_shapes}


def block(name, recorded):
    """The text of a block, None when nothing is recorded for it."""
    if name == "quack":
        return quack(recorded, True)
    if name.startswith("summary-"):
        return summary(name[len("summary-") :], recorded)
    if name.startswith("attention-"):
        return attention(name[len("attention-") :], recorded)
    if name.startswith("products-"):
        return products(name[len("products-") :], recorded)
    result = recorded.get(name)
    if not result or not result.get("rows"):
        return None
    return TABLES.get(result.get("what"), bench)(result)


def everything(recorded):
    """docs/RESULTS.md."""
    text = "# Every recorded case\n\nMade by `bench/tables.py` from `bench/results/`; `bench/README.md` says how the "
    text += "figures are taken. Plots of the same files are in `docs/plots/`.\n"
    for stem in sorted(recorded):
        if recorded[stem].get("what") in TABLES:
            text += f"\n## {stem}\n\n{TABLES[recorded[stem]['what']](recorded[stem])}"
    beside = quack(recorded, False)
    return text + (f"\n## Beside QuACK, as fractions of each run's own copy\n\n{beside}" if beside else "")


def main():
    check = "--check" in sys.argv
    paths = [a for a in sys.argv[1:] if not a.startswith("--")] or [os.path.join(common.ROOT, "README.md")]
    recorded = common.results()
    wrong = 0
    for path in paths:
        with open(path) as f:
            old = f.read()
        missing = []

        def fill(match):
            text = block(match.group(2), recorded)
            if text is None:
                missing.append(match.group(2))
                return match.group(0)
            return match.group(1) + text + match.group(4)

        new = BLOCK.sub(fill, old)
        for name in missing:
            print(f"{path}: nothing is recorded for '{name}'", file=sys.stderr)
        wrong += len(missing)
        if new != old and check:
            print(f"{path}: out of date, run bench/tables.py", file=sys.stderr)
            wrong += 1
        elif new != old:
            with open(path, "w") as f:
                f.write(new)
            print(f"{path}: rewritten")
    path, text = os.path.join(common.ROOT, "docs", "RESULTS.md"), everything(recorded)
    with open(path, "a+") as f:
        f.seek(0)
        same = f.read() == text
    if not same and check:
        print(f"{path}: out of date, run bench/tables.py", file=sys.stderr)
        wrong += 1
    elif not same:
        with open(path, "w") as f:
            f.write(text)
        print(f"{path}: rewritten")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
