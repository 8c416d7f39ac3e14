"""pip install: the wheel's tag and content, and the package at work in a fresh environment. Slow.
SPDX-License-Identifier: Apache-2.0
"""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

import saker

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, "pyproject.toml")), reason="not in a source tree"),
    pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine"),
]


def run(*command, **kwargs):
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, **kwargs)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


def test_wheel_in_a_fresh_environment(tmp_path):
    # Without CUDA and with one level it is short: the others are the same objects that `make` builds.
    environment = {**os.environ, "SAKER_CUDA": "0", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment["MAKEFLAGS"] = "LEVELS=scalar"
    environment.pop("PYTHONPATH", None)
    # From the sdist, so that a file missing in it is noticed.
    code = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    name = run(sys.executable, "-c", code, str(tmp_path), cwd=ROOT, env=environment).split()[-1]
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path / "the source")  # a space, which make takes in no target
    source = next((tmp_path / "the source").iterdir())
    sources = [path.relative_to(ROOT) for path in pathlib.Path(ROOT, "src").rglob("*.[chS]*")]
    assert sources and [path for path in sources if not (source / path).is_file()] == []
    pip = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps")
    run(*pip, "-w", str(tmp_path), str(source), env=environment)
    (wheel,) = tmp_path.glob("*.whl")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name == f"saker-{saker.__version__}-cp39-abi3-{platform}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = ("__init__.py", "__init__.pyi", "torch/__init__.py", "numpy.py", "py.typed")
    expected = (*modules, "libsaker.so", "_saker.abi3.so")
    assert {"saker/" + name for name in expected} <= names
    assert not any(n.endswith((".c", ".h")) for n in names)

    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", str(fresh), env=environment)
    python = str(fresh / "bin" / "python")
    run(python, "-m", "pip", "install", "--no-index", str(wheel), env=environment)
    environment.pop("SAKER_LIBRARY", None)
    code = "import saker; print(saker.__version__, sorted(saker.ops()), saker.info()['build'])"
    out = run(python, "-c", code, cwd=tmp_path, env=environment)
    assert out.startswith(saker.__version__) and "rms_norm" in out
    code = (
        "import array, saker\n"  # there is no NumPy
        "try: saker.rms_norm(array.array('f', [1, 2]))\n"
        "except saker.Error as e: print(e.name, e)\n"
    )
    assert "INVALID_ARG rms_norm: x is of type array" in run(python, "-c", code, cwd=tmp_path, env=environment)
    # NumPy of this environment, if any, with the installed package.
    numpy = os.path.dirname(os.path.dirname(__import__("numpy").__file__))
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import numpy, saker\n"
        "print(saker.__file__, abs(saker.rms_norm(numpy.full((2, 8), 3, 'f4')) - 1).max() < 1e-6)"
    )
    out = run(python, "-c", code, numpy, cwd=tmp_path, env=environment)
    assert str(fresh) in out and "True" in out

    # pip install -e: the package is imported from the source tree. The library is the one that this test runs with.
    environment["SAKER_BUILD"] = os.path.dirname(saker.__file__)
    code = "import setuptools.build_meta as b, sys; print(b.build_editable(sys.argv[1]))"
    (tmp_path / "editable").mkdir()
    name = run(sys.executable, "-c", code, str(tmp_path / "editable"), cwd=source, env=environment).split()[-1]
    wheel = tmp_path / "editable" / name
    run(python, "-m", "pip", "install", "--no-index", "--force-reinstall", str(wheel), env=environment)
    out = run(python, "-c", "import saker; print(saker.__file__, len(saker.ops()))", cwd=tmp_path, env=environment)
    assert str(source) in out and out.split()[-1] == str(len(saker.ops()))

    # What the archive can and cannot do, and what building needs.
    made = run("make", "-n", "BUILD=another", "CUDA=0", "LEVELS=scalar", cwd=source, env=environment)
    assert "another/libsaker.a" in made and "another/saker" not in made
    refused = subprocess.run(["make", "test"], cwd=source, env=environment, capture_output=True, text=True)
    assert refused.returncode and "the library and the Python package only" in refused.stdout
    environment["PATH"] = str(tmp_path)
    command = [sys.executable, "setup.py", "build_ext"]
    refused = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert refused.returncode and "building needs a C compiler" in refused.stderr
