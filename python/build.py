"""Builds the extension in place: python python/build.py BUILD_DIR

Compiles python/saker/_*.c into python/saker/_saker.abi3.so and puts BUILD_DIR/libsaker.so beside it. Needs a C compiler
and Python's own headers, no package and no network. setup.py uses the same functions.
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shutil
import subprocess
import sys
import sysconfig

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "python", "saker")
SOURCES = ["_saker.c", "_call.c", "_tensor.c"]
LIMITED_API = "0x03090000"  # Python 3.9: one binary for every later one


def version():
    """The version in include/saker.h, the only place that states it."""
    with open(os.path.join(ROOT, "include", "saker.h")) as header:
        text = header.read()
    return ".".join(re.findall(r"define SAKER_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))


def need(program):
    """Ends with a sentence when a program is missing."""
    if not shutil.which(program):
        sys.exit(f"saker: there is no {program} here: building needs a C compiler (CC names another one) and GNU make")


def build_extension(target):
    """Compiles the extension to the file target. CC and CFLAGS are honoured."""
    command = (os.environ.get("CC") or "cc").split()
    need(command[0])
    command += ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
    command += [f"-DPy_LIMITED_API={LIMITED_API}", "-I" + os.path.join(ROOT, "include")]
    command += ["-I" + sysconfig.get_path(name) for name in ("include", "platinclude")]
    command += os.environ.get("CFLAGS", "").split()
    command += [os.path.join(PACKAGE, name) for name in SOURCES]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    # Written beside and renamed: a process that has the old file mapped keeps it.
    subprocess.check_call(command + ["-o", target + ".new", "-ldl"])
    os.replace(target + ".new", target)


def place_library(build_dir, target_dir):
    """Copies libsaker.so out of a build directory to where the package looks for it."""
    target = os.path.join(target_dir, "libsaker.so")
    shutil.copyfile(os.path.join(build_dir, "libsaker.so"), target + ".new")
    os.replace(target + ".new", target)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sources = [os.path.join(PACKAGE, name) for name in SOURCES + ["_binding.h", "_dlpack.h"]]
    sources += [os.path.join(ROOT, "include", "saker.h"), os.path.abspath(__file__)]
    target = os.path.join(PACKAGE, "_saker.abi3.so")
    if not os.path.exists(target) or any(os.path.getmtime(s) > os.path.getmtime(target) for s in sources):
        build_extension(target)
    place_library(sys.argv[1], PACKAGE)
    print(f"python: {os.path.relpath(target, ROOT)} and libsaker.so of {sys.argv[1]} (add python/ to PYTHONPATH)")


if __name__ == "__main__":
    main()
