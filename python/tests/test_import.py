"""Importing starts nothing; the package describes itself; fork and threads work.
SPDX-License-Identifier: Apache-2.0
"""
import inspect
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import saker

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(saker.__file__)))


def run(code):
    environment = {**os.environ, "PYTHONPATH": PYTHON}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_starts_nothing():
    out = run(
        "import os, sys, saker\n"
        "print(len(os.listdir('/proc/self/task')))\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('libcuda' in maps, 'numpy' in sys.modules, 'torch' in sys.modules, saker.kernel() == '')\n"
    )
    assert out.split() == ["1", "False", "False", "False", "True"]


def test_import_without_the_library_says_so():
    environment = {**os.environ, "PYTHONPATH": PYTHON, "SAKER_LIBRARY": "/nonexistent/libsaker.so"}
    result = subprocess.run([sys.executable, "-c", "import saker"], env=environment, capture_output=True, text=True)
    assert result.returncode != 0 and "ImportError: saker: /nonexistent/libsaker.so" in result.stderr


def test_description():
    ops = saker.ops()
    assert {"rms_norm", "rms_norm_backward"} <= set(ops)
    info = saker.info()
    assert info["version"] == saker.__version__ and info["threads"] >= 1 and info["levels"]
    assert info["cuda"] or info["cuda_why_not"]
    for name, op in ops.items():
        function = getattr(saker, name)
        assert function is getattr(saker.numpy, name)
        parameters = inspect.signature(function).parameters
        assert [f.name for f in op.fields if f.name not in parameters] == []
        assert function.__doc__.startswith(op.doc)
        for field in op.fields:
            assert f"{field.name} (" in function.__doc__


def test_signature_follows_the_table():
    parameters = inspect.signature(saker.rms_norm).parameters
    assert parameters["x"].default is inspect.Parameter.empty
    assert parameters["weight"].default is None
    assert parameters["y"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["eps"].default == pytest.approx(1e-6)
    assert parameters["quant"].default == "none"


def test_error_can_be_pickled():
    with pytest.raises(saker.Error) as caught:
        saker.rms_norm(np.zeros((2, 4), np.float32), np.zeros(5, np.float32))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (type(error), error.code, error.name, str(error)) == (saker.Error, 1, "INVALID_ARG", caught.value.sentence)


def test_kernel_explain_and_check():
    x = np.ones((2, 64), np.float32)
    saker.rms_norm(x)
    assert saker.kernel().startswith("rms_norm/")
    assert "rms_norm" in saker.explain("rms_norm", x, y=np.empty_like(x))
    assert saker.explain("rms_norm", x) == saker.explain("rms_norm", x, y=np.empty_like(x))
    a, b = np.ones((8, 16), np.float32), np.ones((16, 32), np.float32)
    assert saker.explain("gemm", a, b) == saker.explain("gemm", b=b, a=a, d=np.empty((8, 32), np.float32))
    saker.check()
    with pytest.raises(KeyError, match="nothing_like_it"):
        saker.explain("nothing_like_it")
    for wrong in ("tpu", "cpu:x", "cpu:\u0663", "cuda:\u00b2"):  # digits, but not of numbers as we write them
        with pytest.raises(ValueError, match="device"):
            saker.kernel(wrong)
    with pytest.raises(saker.Error, match="weight"):
        saker.explain("rms_norm", x, np.ones(3, np.float32), y=np.empty_like(x))


def test_configure():
    x = np.random.default_rng(0).standard_normal((300, 257)).astype(np.float32)
    expected = saker.rms_norm(x)
    try:
        saker.configure(threads=1)
        assert (saker.rms_norm(x) == expected).all()
        saker.configure(isa="scalar")
        np.testing.assert_allclose(saker.rms_norm(x), expected, rtol=1e-5)
        assert "scalar" in saker.kernel()
        for wrong in ({"isa": "nonsense"}, {"isa": "x" * 100}, {"threads": -5}, {"check_level": 77}):
            with pytest.raises(saker.Error):
                saker.configure(**wrong)
        assert "scalar" in (saker.rms_norm(x), saker.kernel())[1], "a refused setting must not change anything"
    finally:
        saker.configure()


def test_threads_give_the_same_bits():
    x = np.random.default_rng(1).standard_normal((512, 384)).astype(np.float32)
    expected = saker.rms_norm(x)
    wrong = []

    def work():
        for _ in range(20):
            if not (saker.rms_norm(x) == expected).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_contexts_end_with_their_threads():
    x = np.ones((1, 8), np.float32)

    def memory():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1])

    def rounds(n):
        for _ in range(n):
            t = threading.Thread(target=saker.rms_norm, args=(x,))
            t.start()
            t.join()

    rounds(200)
    before = memory()
    rounds(1000)
    assert (memory() - before) * 4096 < 4 << 20


def child(connection, x):
    connection.send(saker.rms_norm(x))


def test_fork_after_use():
    x = np.random.default_rng(2).standard_normal((2048, 512)).astype(np.float32)
    expected = saker.rms_norm(x)
    fork = multiprocessing.get_context("fork")
    for _ in range(3):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=child, args=(theirs, x))
        process.start()
        assert ours.poll(60), "the forked child does not answer"
        assert (ours.recv() == expected).all()
        process.join(60)
        assert process.exitcode == 0
    assert (saker.rms_norm(x) == expected).all()
