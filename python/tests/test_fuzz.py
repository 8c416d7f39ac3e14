"""Odd objects in every place of every operation: exceptions only, never a crash.
SPDX-License-Identifier: Apache-2.0
"""
import numpy as np
import pytest

import saker

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed: no fuzzing")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

from test_arguments import Producer  # noqa: E402

SHAPES = st.lists(st.integers(0, 5), max_size=9).map(tuple)
OURS = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
DTYPES = st.sampled_from(["f4", "f2", "f8", "i1", "i4", "u1", "?", "c8", ">f4", "S3", "O", "V2", *OURS])
ARRAYS = st.builds(lambda s, d: np.zeros(s, d), SHAPES, DTYPES)



def views(a):
    return st.sampled_from([a, a.T, a[::-1] if a.ndim else a, np.broadcast_to(a, (2,) + a.shape)])


VIEWS = ARRAYS.flatmap(views)
OBJECTS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=9), VIEWS,
    VIEWS.map(lambda a: a.view(type("Sub", (np.ndarray,), {}))), ARRAYS.map(Producer),
    st.sampled_from([np.float32(1), np.ndarray, object(), [], {}, (1.0,), np.ma.ones((2, 3), "f4"), range(3), len]),
)  # fmt: skip
OPS = st.sampled_from(sorted(saker.ops()))
NAMES = sorted({f.name for op in saker.ops().values() for f in op.fields} | {"stream", "nonsense"})


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(OPS, st.lists(OBJECTS, max_size=6), st.dictionaries(st.sampled_from(NAMES), OBJECTS, max_size=6))
def test_odd_objects_give_exceptions_only(op, args, kwargs):
    for function in (saker.ops()[op].call, getattr(saker, op), saker.ops()[op].explain):
        try:
            function(*args, **kwargs)
        except (saker.Error, TypeError, ValueError, AttributeError, IndexError):
            pass
