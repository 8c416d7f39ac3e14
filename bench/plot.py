#!/usr/bin/env python3
"""Draws docs/plots/*.svg from bench/results/*.json: GB/s over row width; ours, peers, and the measured copy.

Running it twice gives the same bytes. No figure is typed here.
SPDX-License-Identifier: Apache-2.0
"""

import os
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import common

PLOTS = os.path.join(common.ROOT, "docs", "plots")
# Mid-lightness, legible on white and on dark pages alike; the page shows through.
STYLE = {
    "saker": ("#2f7ed8", "o", "-"),
    "torch eager": ("#d9722e", "s", "-"),
    "torch.compile": ("#2f9e57", "^", "-"),
    "QuACK": ("#a05fd0", "D", "-"),
    "copy": ("#8a8a8a", None, "--"),
}
GREY = "#7f7f7f"
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "saker",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": GREY,
        "axes.edgecolor": GREY,
        "axes.labelcolor": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "legend.frameon": False,
    }
)


def series(rows, op, dtype):
    """{who: [(width, GB/s)]}; of two rows with one width the larger stays."""
    found, size = {}, {}
    for row in rows:
        if row["op"] != op or row["dtype"] != dtype or row["who"] not in STYLE:
            continue
        points = {row["who"]: row["gbps"]}
        if row["who"] == "saker":
            points["copy"] = row["copy_gbps"]
        for who, gbps in points.items():
            key = (who, row["width"])
            if size.get(key, 0) <= row["rows"]:
                size[key] = row["rows"]
                found.setdefault(who, {})[row["width"]] = gbps
    return {who: sorted(points.items()) for who, points in found.items()}


def ticks(width):
    return f"{width // 1024}K" if width >= 1024 else str(width)


def draw(path, title, rows, ops, dtype):
    """One panel for each operation: forward, and backward where there is one."""
    figure, axes = plt.subplots(1, len(ops), figsize=(4.8 * len(ops), 3.6), sharey=True, squeeze=False)
    axes = axes[0]
    widths = sorted({row["width"] for row in rows if row["dtype"] == dtype and row["op"] in ops})
    for axis, op in zip(axes, ops):
        for who, points in series(rows, op, dtype).items():
            colour, marker, line = STYLE[who]
            axis.plot(
                *zip(*points),
                color=colour,
                marker=marker,
                linestyle=line,
                markersize=4,
                linewidth=1.6,
                label="copy, measured beside" if who == "copy" else who,
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(widths[:: max(1, len(widths) // 5)])
        axis.set_xticklabels([ticks(w) for w in axis.get_xticks()])
        axis.minorticks_off()
        axis.set_title(f"{op}, {dtype}", fontsize=10)
        axis.set_xlabel("row width")
        axis.set_ylim(bottom=0)
        axis.grid(color=GREY, alpha=0.25, linewidth=0.6)
    axes[0].set_ylabel("GB/s")
    axes[0].legend(loc="lower right", fontsize=9)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": "bench/plot.py"})
    plt.close(figure)


def main():
    recorded = common.results()
    quack = recorded.get("quack-h200-recorded", {}).get("rows", [])
    os.makedirs(PLOTS, exist_ok=True)
    for stem, result in recorded.items():
        if result.get("what") != "peers":
            continue
        rows = result["rows"]
        if "H200" in result["machine"] and stem.endswith("-quack"):
            rows = rows + quack
        where = f"{result['machine']}, {result['threads']} threads" if result["device"] == "cpu" else result["machine"]
        title = f"{where}, PyTorch {result['torch']}, Saker {result['version']} ({result['commit']})"
        names = list(dict.fromkeys(row["op"] for row in result["rows"]))
        for op in (name for name in names if name.removesuffix("_backward") not in names or not name.endswith("_backward")):
            ops = [op] + [name for name in names if name == f"{op}_backward"]
            for dtype in dict.fromkeys(row["dtype"] for row in result["rows"] if row["op"] == op):
                if len({row["width"] for row in result["rows"] if row["op"] == op}) < 3:
                    continue  # a table says it better
                name = re.sub("[^a-z0-9_]+", "-", op)
                path = os.path.join(PLOTS, f"{stem}-{name}-{dtype}.svg" if op not in stem else f"{stem}-{dtype}.svg")
                draw(path, title, rows, ops, dtype)
                print(os.path.relpath(path, common.ROOT))


if __name__ == "__main__":
    main()
