"""What the bench scripts share: the machine, the build, statistics, files.

SPDX-License-Identifier: Apache-2.0
"""

import datetime
import json
import math
import os
import re
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
# Who is timed beside Saker; not all of them know every operation.
PEERS = (
    "torch eager",
    "torch.compile",
    "OpenBLAS",
    "BLIS",
    "math",
    "FlashAttention-2",
    "FlashAttention-2, same bits",
    "efficient",
    "cuDNN",
    "FlexAttention",
)


def doctor(build):
    """What `saker doctor` says of this machine, {} if the command is not there."""
    try:
        text = subprocess.run(
            [os.path.join(build, "saker"), "doctor", "--no-test", "--json"], capture_output=True, text=True, check=False
        ).stdout
        return json.loads(text)
    except (OSError, ValueError):
        return {}


def commit():
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe(build, device):
    """The head of every results file."""
    seen = doctor(build)
    cpu = seen.get("cpu", {})
    gpus = seen.get("cuda", {}).get("devices", [])
    machine = gpus[0]["name"] if device == "cuda" and gpus else cpu.get("model", "unknown machine")
    known = seen.get("commit", "unknown")
    return {
        "machine": machine,
        "cpu": cpu.get("model"),
        "cores": cpu.get("allowed_cores"),
        "version": seen.get("version"),
        "build": seen.get("build"),
        "compiler": seen.get("compiler"),
        "commit": known if known != "unknown" else commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def last_cache_bytes():
    """The largest cache of the CPU; 64 MiB where the system does not say."""
    found = []
    for index in range(8):
        try:
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as f:
                found.append(int(f.read().strip().removesuffix("K")) * 1024)
        except (OSError, ValueError):
            break
    return max(found, default=2**26)


def slug(head, device):
    """File-name part for a machine: nvidia-h200, neoverse-v1-2core."""
    name = re.sub(r"\((r|tm)\)|cpu|@.*|processor", " ", (head["machine"] or "machine").lower())
    name = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    return name if device == "cuda" else f"{name}-{head['cores']}core"


def stats(values):
    values = sorted(values)
    pick = lambda q: values[min(len(values) - 1, round(q * (len(values) - 1)))]
    return {
        "median_us": statistics.median(values),
        "min_us": values[0],
        "p20_us": pick(0.2),
        "p80_us": pick(0.8),
        "timings": len(values),
    }


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def _short(value):
    """Six digits are more than any timing holds."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def save(path, head, rows):
    """One row a line, so that files can be compared by eye."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    rows = [{k: _short(v) for k, v in row.items()} for row in rows]
    with open(path + ".part", "w") as f:
        f.write("{\n")
        for key, value in head.items():
            f.write(f"  {json.dumps(key)}: {json.dumps(value)},\n")
        f.write('  "rows": [\n' + ",\n".join("    " + json.dumps(row) for row in rows) + "\n  ]\n}\n")
    os.replace(path + ".part", path)


def load(path):
    with open(path) as f:
        return json.load(f)


def results():
    """All recorded files: {stem: contents}."""
    found = {}
    for name in sorted(os.listdir(RESULTS)) if os.path.isdir(RESULTS) else []:
        if name.endswith(".json"):
            found[name[:-5]] = load(os.path.join(RESULTS, name))
    return found
