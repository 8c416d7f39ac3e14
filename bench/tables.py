#!/usr/bin/env python3
"""Rewrites the blocks <!-- bench:NAME --> ... <!-- /bench --> of README.md (or the files given) from bench/results/.

NAME is the stem of a results file (a peers file or the output of `saker bench --out`), or `quack`: ours beside QuACK's
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


def quack(recorded):
    theirs = recorded.get("quack-h200-recorded")
    mine = next(
        (
            r
            for stem, r in recorded.items()
            if r.get("what") == "peers" and stem.endswith("-quack") and "H200" in r["machine"]
        ),
        None,
    )
    if not theirs or not mine:
        return None
    cases, lines, ratios = by_case(mine), [], {}
    for row in theirs["rows"]:
        key = row["op"], row["case"]
        if key not in cases:
            continue
        ours = cases[key]["saker"]
        fraction = ours["gbps"] / ours["copy_gbps"]
        ratios[key] = fraction / row["copy_fraction"]
        lines.append(
            [f"{row['op']} {row['case']}", percent(fraction), percent(row["copy_fraction"]), times(ratios[key])]
        )
    worst = min(ratios, key=ratios.get)
    return (
        table(["case", "Saker, of copy", "QuACK, of copy", "ratio"], lines)
        + f"\nGeometric mean {times(common.geometric_mean(ratios.values()))}, "
        + f"worst {times(ratios[worst])} ({worst[0]} {worst[1]}).\n"
        + f"\n*{source(mine)}. {theirs['source']}*\n"
    )


def block(name, recorded):
    """The text of a block, None when nothing is recorded for it."""
    if name == "quack":
        return quack(recorded)
    result = recorded.get(name)
    if not result or not result.get("rows"):
        return None
    return peers(result) if result.get("what") == "peers" else bench(result)


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
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
