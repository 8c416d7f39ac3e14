"""Wrong arguments and odd objects: exceptions only, that name the argument, and no output byte changes.
SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import gc
import sys

import numpy as np
import pytest

import saker

X = np.ones((3, 16), np.float32)


def fails(name, code, *args, **kwargs):
    y = np.full((3, 16), 5, np.float32)
    kwargs.setdefault("y", y)
    with pytest.raises(saker.Error) as caught:
        saker.rms_norm(*args, **kwargs)
    error = caught.value
    assert error.name == code and error.sentence == str(error)
    assert error.sentence.startswith("rms_norm: ") and name in error.sentence
    assert (y == 5).all(), "an output was written by a call that failed"
    return error


def test_the_sentence_names_the_argument():
    fails("weight", "INVALID_ARG", X, np.ones(15, np.float32))
    fails("bias", "INVALID_ARG", X, bias=np.ones((16, 1), np.float32))
    fails("residual", "INVALID_ARG", X, residual=np.ones((3, 15), np.float32))
    fails("eps", "INVALID_ARG", X, eps=-1.0)
    fails("eps", "INVALID_ARG", X, eps=float("nan"))
    fails("eps", "INVALID_ARG", X, eps=1e300)
    fails("eps", "INVALID_ARG", X, eps=1e-60)
    fails("eps", "INVALID_ARG", X, eps="much")
    fails("weight_offset", "INVALID_ARG", X, weight_offset=float("inf"))
    fails("round_before_weight", "INVALID_ARG", X, round_before_weight=object())
    fails("round_before_weight", "INVALID_ARG", X, round_before_weight=1 << 70)
    fails("round_before_weight", "INVALID_ARG", X, round_before_weight=1 << 40)
    fails("quant", "UNSUPPORTED", X, quant="diagonal")
    fails("quant", "UNSUPPORTED", X, quant="")
    fails("quant", "UNSUPPORTED", X, quant=17)
    fails("rstd", "INVALID_ARG", X, rstd=np.empty(4, np.float32))
    fails("y_quant", "INVALID_ARG", X, y_quant=np.empty((3, 16), np.int8))
    fails("x", "INVALID_ARG", "text")
    fails("x", "INVALID_ARG", np.ndarray)
    fails("x", "INVALID_ARG", np.ones((1,) * 9, np.float32))
    fails("x", "NULL_POINTER")
    fails("stream", "INVALID_ARG", X, stream="s")


def test_python_rules_for_calls():
    with pytest.raises(TypeError, match="unexpected keyword argument 'wait'"):
        saker.rms_norm(X, wait=1)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        saker.rms_norm(X, x=X)
    with pytest.raises(TypeError, match="positional"):
        saker.rms_norm(*[X] * 5)
    call = saker.ops()["rms_norm"].call
    with pytest.raises(TypeError, match="at most"):
        call(*[None] * 50)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        call(X, x=X)


def test_enum_by_name_number_and_uninterned_names():
    q, s = np.empty((3, 16), np.int8), np.empty(3, np.float32)
    for quant in ("row", 2, np.int64(2), "".join(["r", "ow"])):
        saker.rms_norm(X, y_quant=q, y_scale=s, quant=quant)
    saker.rms_norm(X, **{"".join(["e", "ps"]): 1e-5})


def test_bools_of_numpy():
    heads = [np.random.default_rng(1).standard_normal((1, 5, 2, 8)).astype(np.float32)] * 3
    for theirs, ours in ((np.True_, True), (np.False_, False)):
        assert (saker.attention(*heads, causal=theirs) == saker.attention(*heads, causal=ours)).all()
    assert (saker.attention(*heads, causal=np.True_) != saker.attention(*heads, causal=np.False_)).any()
    fails("round_before_weight", "INVALID_ARG", X, round_before_weight=np.ones(2, bool))
    fails("round_before_weight", "INVALID_ARG", X, round_before_weight=np.float32(1))
    fails("round_before_weight", "INVALID_ARG", X, round_before_weight="True")


# ---------------------------------------------------------------- DLPack producers


class Producer:
    """An array behind nothing but __dlpack__."""

    def __init__(self, array, legacy=False, patch=None):
        self.array, self.legacy, self.patch = array, legacy, patch

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        if self.legacy:
            if kwargs:
                raise TypeError("an old producer knows no keywords")
            return self.array.__dlpack__()
        capsule = self.array.__dlpack__(**kwargs)
        if self.patch:
            self.patch(versioned(capsule))
        return capsule


def versioned(capsule):
    """The head of a DLManagedTensorVersioned as 64-bit words: version (two halves), manager, deleter, flags."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(get(capsule, b"dltensor_versioned"), ctypes.POINTER(ctypes.c_uint64))


def set_major_2(head):
    head[0] = 2


def set_read_only(head):
    head[3] |= 1


def test_dlpack_producers(oracle):
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    capsules = (lambda a: a.__dlpack__(), lambda a: a.__dlpack__(max_version=(1, 0)))
    for make in (Producer, lambda a: Producer(a, legacy=True), *capsules):
        y = np.zeros_like(x)
        saker.rms_norm(make(x), y=make(y))
        oracle.close(y, oracle.forward(x), 16)


def test_dlpack_version_and_flags():
    error = fails("x", "UNSUPPORTED", Producer(X, patch=set_major_2))
    assert "DLPack 2.0" in str(error)
    y = np.zeros_like(X)
    with pytest.raises(saker.Error, match="y is read-only") as caught:
        saker.rms_norm(X, y=Producer(y, patch=set_read_only))
    assert caught.value.name == "INVALID_ARG" and not y.any()
    saker.rms_norm(Producer(X, patch=set_read_only), y=y)
    assert y.any()


def test_capsules_are_borrowed_and_freed():
    x = np.ones((2, 8), np.float32)
    before = sys.getrefcount(x)
    for _ in range(100):
        saker.rms_norm(Producer(x), y=np.empty_like(x))
        with pytest.raises(saker.Error):
            saker.rms_norm(Producer(x), Producer(np.ones(3, np.float32)), y=np.empty_like(x))
        saker.rms_norm(x[::-1], y=np.empty_like(x))
    gc.collect()
    assert sys.getrefcount(x) == before
    capsule = x.__dlpack__()
    np.from_dlpack(type("Used", (), {"__dlpack__": lambda s, **k: capsule, "__dlpack_device__": lambda s: (1, 0)})())
    fails("x", "INVALID_ARG", capsule)


def raiser(error):
    def method(*args, **kwargs):
        raise error

    return method


def odd(**methods):
    return type("Odd", (), methods)()


def test_producers_that_raise():
    error = fails("x", "INVALID_ARG", odd(__dlpack__=raiser(BufferError("not today"))))
    assert "not today" in str(error) and isinstance(error.__cause__, BufferError)
    fails("x", "INVALID_ARG", odd(__array_struct__=property(raiser(ValueError("broken")))))
    fails("x", "INVALID_ARG", odd(__array_struct__=3))
    fails("x", "INVALID_ARG", odd(__dlpack__=lambda self, **k: 3))
    fails("x", "INVALID_ARG", odd(__dlpack__=lambda self, **k: None))
    fails("x", "INVALID_ARG", odd(__dlpack__=3))
    fails("x", "INVALID_ARG", odd(__dlpack__=lambda self, **k: X.__dlpack__(), __dlpack_device__=lambda self: "here"))
    fails("x", "INVALID_ARG", odd(__dlpack__=lambda self, **k: X.__dlpack__(), __dlpack_device__=lambda self: ()))
    Unspeakable = type("Unspeakable", (Exception,), {"__str__": raiser(RuntimeError("no"))})
    fails("x", "INVALID_ARG", odd(__dlpack__=raiser(Unspeakable())))
    with pytest.raises(KeyboardInterrupt):
        saker.rms_norm(odd(__dlpack__=raiser(KeyboardInterrupt())), y=np.empty((1, 1), np.float32))


def test_types_that_lie_about_the_exchange_table():
    for value in (3, None, "text", X.__dlpack__()):
        fails("x", "INVALID_ARG", odd(__dlpack_c_exchange_api__=value))
    meta = type("Meta", (type,), {"__getattr__": raiser(ZeroDivisionError())})
    fails("x", "INVALID_ARG", meta("Odd", (), {})())


def test_many_types_pass_through_the_cache():
    for i in range(200):
        cls = type(f"Array{i}", (np.ndarray,), {})
        saker.rms_norm(X.view(cls), y=np.empty_like(X))


def test_numpy_scalars_are_inputs_only():
    scale = np.float32(0.1)
    with pytest.raises(saker.Error, match="y_scale is read-only"):
        saker.rms_norm(X[0], y_quant=np.empty(16, np.int8), y_scale=scale, quant="row")
    assert scale == np.float32(0.1)
