"""Fixtures and the oracle. Run with: pytest python/tests (after `make python`); SAKER_TEST_TORCH=0 leaves PyTorch out.
SPDX-License-Identifier: Apache-2.0
"""
import os
import sys

import numpy as np
import pytest

if not os.environ.get("SAKER_TEST_INSTALLED"):  # test the tree, or with this variable the installed package
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def need_torch():
    """Skips the calling module with its reason when PyTorch is left out or missing."""
    if os.environ.get("SAKER_TEST_TORCH") == "0":
        pytest.skip("SAKER_TEST_TORCH=0 leaves the PyTorch tests out", allow_module_level=True)
    try:
        import torch
    except ImportError as error:
        pytest.skip(f"PyTorch cannot be imported: {error}", allow_module_level=True)
    return torch


class Oracle:
    """rms_norm and its gradients in double, on arrays of any float type."""

    @staticmethod
    def forward(x, weight=None, bias=None, residual=None, eps=1e-6, offset=0.0):
        s = np.asarray(x, np.float64)
        if residual is not None:
            s = s + np.asarray(residual, np.float64)
        rstd = 1 / np.sqrt((s * s).mean(-1, keepdims=True) + eps)
        w = (1.0 if weight is None else np.asarray(weight, np.float64)) + offset
        return s * rstd * w + (0.0 if bias is None else np.asarray(bias, np.float64))

    @staticmethod
    def backward(dy, x, weight=None, eps=1e-6, offset=0.0):
        dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
        rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        h = x * rstd
        g = dy * ((1.0 if weight is None else np.asarray(weight, np.float64)) + offset)
        dx = rstd * (g - h * (g * h).mean(-1, keepdims=True))
        lead = tuple(range(x.ndim - (1 if weight is None else np.ndim(weight))))
        return dx, (dy * h).sum(lead), dy.sum(lead)

    @staticmethod
    def close(found, expected, terms=1, scale=None):
        """Within one rounding to found's type and the f32 error of a sum of terms values of the given magnitude."""
        found = np.asarray(found)
        eps = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[found.dtype.name]
        size = np.abs(expected) if scale is None else scale
        bound = np.abs(expected) * eps + size * 2.0**-23 * (8 + np.sqrt(terms)) + 1e-7
        error = np.abs(found.astype(np.float64) - expected)
        assert found.shape == np.shape(expected)
        assert (error <= bound).all(), f"off by {error.max():.3g}, bound {bound.flat[error.argmax()]:.3g}"


@pytest.fixture
def oracle():
    return Oracle


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def pytest_terminal_summary(terminalreporter):
    """One line that `make test` can count."""
    count = {name: len(terminalreporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    failed = count["failed"] + count["error"]
    terminalreporter.write_line(f"python: {count['passed']} passed, {failed} failed, {count['skipped']} skipped")
