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
    "OpenBLAS": ("#c8a415", "v", "-"),
    "BLIS": ("#b0508f", "P", "-"),
    "FlashAttention-2": ("#c0392b", "<", "-"),
    "efficient": ("#7f8c3a", ">", "-"),
    "cuDNN": ("#16a085", "X", "-"),
    "FlexAttention": ("#8e6e53", "*", "-"),
    "QuACK": ("#a05fd0", "D", "-"),
    "auto": ("#2f7ed8", "o", "-"),
    "data-parallel": ("#c8a415", "v", "-"),
    "persistent": ("#2f9e57", "^", "-"),
    "split-K": ("#b0508f", "P", "-"),
    "stream-K": ("#16a085", "X", "-"),
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
    """{who: [(width, GB/s, or GFLOP/s of a product)]}; of two rows with one width the larger stays."""
    found, size = {}, {}
    for row in rows:
        if row["op"] != op or row["dtype"] != dtype or row["who"] not in STYLE:
            continue
        points = {row["who"]: row.get("gflops", row["gbps"])}
        if row["who"] == "saker" and "gflops" not in row:
            points["copy"] = row["copy_gbps"]
        for who, gbps in points.items():
            key = (who, row["width"])
            if size.get(key, 0) <= row["rows"]:
                size[key] = row["rows"]
                found.setdefault(who, {})[row["width"]] = gbps
    return {who: sorted(points.items()) for who, points in found.items()}


def ticks(width):
    return f"{width // 1024}K" if width >= 1024 else str(width)


def lines(axis, found, ticked, label):
    """One line for each contender, over powers of two."""
    for who, points in found.items():
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
    axis.set_xticks(ticked[:: max(1, len(ticked) // 5)])
    axis.set_xticklabels([ticks(at) for at in axis.get_xticks()])
    axis.minorticks_off()
    axis.set_xlabel(label)
    axis.grid(color=GREY, alpha=0.25, linewidth=0.6)


def save(figure, path, title):
    figure.axes[0].set_ylim(bottom=0)  # shared by all panels, and fixed from here on
    figure.axes[0].legend(loc="lower right", fontsize=9)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": "bench/plot.py"})
    plt.close(figure)
    print(os.path.relpath(path, common.ROOT))


def draw(path, title, rows, ops, dtype):
    """GB/s (of a product GFLOP/s) over the width, one panel for each operation: forward, and backward where there is one."""
    figure, axes = plt.subplots(1, len(ops), figsize=(4.8 * len(ops), 3.6), sharey=True, squeeze=False)
    shown = [row for row in rows if row["dtype"] == dtype and row["op"] in ops]
    widths, product = sorted({row["width"] for row in shown}), any("gflops" in row for row in shown)
    for axis, op in zip(axes[0], ops):
        lines(axis, series(rows, op, dtype), widths, "m = n = k" if product else "row width")
        axis.set_title(f"{op}, {dtype}", fontsize=10)
    axes[0][0].set_ylabel("GFLOP/s" if product else "GB/s")
    save(figure, path, title)


def draw_lengths(path, title, rows, dtype):
    """GFLOP/s over the sequence length, one panel for each head size, full and causal."""
    panels = sorted({(row["width"], "causal" in row["op"], row["op"]) for row in rows})
    figure, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.6), sharey=True, squeeze=False)
    for axis, (size, causal, op) in zip(axes[0], panels):
        found = {}
        for row in sorted(rows, key=lambda row: row["rows"]):
            if row["op"] == op and row["width"] == size:
                found.setdefault(row["who"], []).append((row["rows"], row["gflops"]))
        lines(axis, found, sorted({row["rows"] for row in rows}), "sequence length")
        axis.set_title(f"heads of {size}{', causal' if causal else ''}, {dtype}", fontsize=10)
    axes[0][0].set_ylabel("GFLOP/s")
    save(figure, path, title)


def draw_schedules(path, title, rows):
    """TFLOP/s over what a walk varies: each schedule alone, the one that is chosen, and cuBLAS."""
    walks = list(dict.fromkeys(row["walk"] for row in rows))
    figure, axes = plt.subplots(1, len(walks), figsize=(4.8 * len(walks), 3.6), squeeze=False)
    for axis, walk in zip(axes[0], walks):
        found = {}
        for row in (row for row in rows if row["walk"] == walk):
            found.setdefault(row["who"], []).append((row["x"], row["gflops"] * 1e-3))
        lines(axis, found, sorted({row["x"] for row in rows if row["walk"] == walk}), walk)
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("TFLOP/s")
    save(figure, path, title)


def machine_of(stem):
    return stem.split("-peers")[0]


def attention_rows(rows, dtype, backward):
    """Full and causal attention without other options."""
    names = {"attention_backward", "attention_causal_backward"} if backward else {"attention", "attention_causal"}
    return [r for r in rows if r["op"] in names and r["dtype"] == dtype and r["who"] in STYLE and "gflops" in r]


def main():
    recorded = common.results()
    quack = recorded.get("quack-h200-recorded", {}).get("rows", [])
    os.makedirs(PLOTS, exist_ok=True)
    for stem, result in recorded.items():
        if result.get("what") == "schedules":
            title = f"{result['machine']}, PyTorch {result['torch']}, Saker {result['version']} ({result['commit']}), bf16"
            draw_schedules(os.path.join(PLOTS, f"{stem}.svg"), title, result["rows"])
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
        for dtype in dict.fromkeys(row["dtype"] for row in rows):
            for backward in (False, True):
                found = attention_rows(rows, dtype, backward)
                if len({row["rows"] for row in found}) > 2:
                    way = "backward" if backward else "forward"
                    draw_lengths(
                        os.path.join(PLOTS, f"{machine_of(stem)}-attention-{way}-{dtype}.svg"), title, found, dtype
                    )


if __name__ == "__main__":
    main()
