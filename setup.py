"""Builds the wheel: libsaker.so by make, the extension by python/build.py. All metadata is in pyproject.toml.

SAKER_CUDA=0|1|auto is handed to make as CUDA; SAKER_BUILD=dir takes libsaker.so from an existing build instead.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(ROOT, "python"))
import build  # noqa: E402  (python/build.py, not the PyPI package)


class Build(build_ext):
    def build_extension(self, ext):
        target = self.get_ext_fullpath(ext.name)
        build.build_extension(target)
        directory = os.environ.get("SAKER_BUILD")
        if not directory:
            build.need((os.environ.get("CC") or "gcc").split()[0])
            build.need("make")
            directory = os.path.abspath(os.path.join(self.build_temp, "saker"))
            inside = os.path.relpath(directory, ROOT)  # make takes no path with a space: not that of ROOT
            cuda = os.environ.get("SAKER_CUDA", "auto")
            # -g0: debug information would triple the wheel.
            command = ["make", f"-j{os.cpu_count() or 1}", f"BUILD={inside}", f"CUDA={cuda}", "CFLAGS=-g0"]
            subprocess.check_call(command + [f"{inside}/libsaker.so"], cwd=ROOT)
        build.place_library(directory, os.path.dirname(target))

    def copy_extensions_to_source(self):
        """For an editable installation, which imports from the source tree."""
        super().copy_extensions_to_source()
        build.place_library(os.path.join(self.build_lib, "saker"), build.PACKAGE)

    def get_outputs(self):
        outputs = super().get_outputs()
        return outputs + [os.path.join(os.path.dirname(path), "libsaker.so") for path in outputs]


def readme():
    path = os.path.join(ROOT, "README.md")
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    version=build.version(),
    ext_modules=[Extension("saker._saker", [f"python/saker/{name}" for name in build.SOURCES], py_limited_api=True)],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
