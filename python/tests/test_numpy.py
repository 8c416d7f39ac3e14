"""The NumPy front: values, types, strides, allocation, read-only and negative strides.
SPDX-License-Identifier: Apache-2.0
"""
import numpy as np
import pytest

import saker

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

TYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def normal(rng, shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 64), (7, 1), (3, 5, 257), (64,), (2, 3, 4, 128)])
def test_forward(rng, oracle, dtype, shape):
    x, w, b = normal(rng, shape, dtype), normal(rng, shape[-1:], dtype), normal(rng, shape[-1:])
    y = saker.rms_norm(x, w, b)
    assert y.dtype == x.dtype
    magnitude = np.abs(oracle.forward(x, w)) + np.abs(b)
    oracle.close(y, oracle.forward(x, w, b), shape[-1], magnitude)


@pytest.mark.parametrize("x_type", TYPES)
@pytest.mark.parametrize("w_type", TYPES)
def test_mixed_types_and_options(rng, oracle, x_type, w_type):
    x, w, r = normal(rng, (9, 130), x_type), normal(rng, 130, w_type), normal(rng, (9, 130))
    y, s = saker.rms_norm(x, w, residual=r, eps=1e-3, weight_offset=1.0)
    assert y.dtype == x.dtype and s.dtype == r.dtype
    oracle.close(s, x.astype(np.float64) + r)
    oracle.close(y, oracle.forward(s, w, eps=1e-3, offset=1.0), 130, 3 * np.abs(oracle.forward(s)))


@pytest.mark.parametrize("dtype", TYPES)
def test_backward(rng, oracle, dtype):
    x, dy, w = normal(rng, (33, 96), dtype), normal(rng, (33, 96), dtype), normal(rng, 96)
    y, rstd = saker.rms_norm(x, w, y=True, rstd=True)
    assert rstd.shape == (33,) and rstd.dtype == np.float32
    dx, dw, db = saker.rms_norm_backward(dy, x, w, rstd, dx=True, dweight=True, dbias=True)
    ex, ew, eb = oracle.backward(dy, x, w)
    magnitude = np.abs(dy.astype(np.float64)).sum(0) * 4
    oracle.close(dx, ex, 96, 10 + np.abs(ex))
    oracle.close(dw, ew, 33, magnitude)
    oracle.close(db, eb, 33, magnitude)
    again = saker.rms_norm_backward(dy, x, w)
    assert len(again) == 2 and again[1].dtype == w.dtype
    oracle.close(again[0], ex, 96, 10 + np.abs(ex))
    held = dw.copy()
    saker.rms_norm_backward(dy, x, w, rstd, dweight=held, accumulate=True)
    oracle.close(held, 2 * ew, 33, 2 * magnitude)


def test_weight_per_head(rng, oracle):
    x, w = normal(rng, (4, 6, 32)), normal(rng, (6, 32))
    oracle.close(saker.rms_norm(x, w), oracle.forward(x, w), 32)


@pytest.mark.parametrize("dtype", ["int8", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("quant", ["row", "block"])
def test_quantised(rng, oracle, dtype, quant):
    x, w = normal(rng, (5, 300)), normal(rng, 300)
    q, scale = saker.rms_norm(x, w, y_quant=dtype, quant=quant)
    assert q.dtype == np.dtype(dtype)
    assert scale.shape == ((5,) if quant == "row" else (5, 3))
    wide = np.repeat(scale[:, None], 300, 1) if quant == "row" else np.repeat(scale, 128, 1)[:, :300]
    expected = oracle.forward(x, w)
    step = {"int8": 0.51, "float8_e4m3fn": 448 * 2.0**-4, "float8_e5m2": 57344 * 2.0**-3}[q.dtype.name]
    assert (np.abs(q.astype(np.float64) * wide - expected) <= step * wide + 1e-6).all()


def test_quantised_with_given_scale(rng, oracle):
    x = normal(rng, (5, 64))
    scale = np.array([0.05], np.float32)
    q = saker.rms_norm(x, y_quant=True, quant="tensor", y_scale=scale)
    expected = np.clip(oracle.forward(x) / 0.05, -127, 127)
    assert q.dtype == np.int8 and (np.abs(q - expected) <= 0.501).all()
    both = saker.rms_norm(x, y=True, y_quant=True, quant=1, y_scale=scale)
    assert (both[1] == q).all() and both[0].dtype == np.float32


def test_outputs_are_written_in_place(rng):
    x, w = normal(rng, (6, 40)), normal(rng, 40)
    wide = np.full((6, 100), 7, np.float32)
    y = wide[:, 30:70]
    assert saker.rms_norm(x, w, y=y) is y
    assert (y == saker.rms_norm(x, w)).all()
    assert (wide[:, :30] == 7).all() and (wide[:, 70:] == 7).all()
    copy = x.copy()
    saker.rms_norm(copy, w, y=copy)
    assert (copy == y).all()


def test_strided_broadcast_and_misaligned_inputs(rng, oracle):
    base = normal(rng, (12, 3, 200))
    for x in (base[::2, 1, 10:110], np.broadcast_to(base[0, 0], (5, 200)), base.transpose(1, 0, 2)):
        oracle.close(saker.rms_norm(x), oracle.forward(x), x.shape[-1])
    unaligned = np.frombuffer(b"\0" * 1 + base[0].tobytes(), np.float32, offset=1, count=200)
    with pytest.raises(saker.Error) as caught:
        saker.rms_norm(unaligned)
    assert caught.value.name == "MISALIGNED"


def test_negative_strides(rng, oracle):
    x, w = normal(rng, (6, 40)), normal(rng, 40)
    for view in (x[::-1], x[:, ::-1], x[::-2, ::-1]):
        oracle.close(saker.rms_norm(view, w[::-1]), oracle.forward(view, w[::-1]), 40)
    for view in (x[::-1], x[:, ::-1]):
        held = x.copy()
        with pytest.raises(saker.Error, match="y has a negative"):
            saker.rms_norm(normal(rng, (6, 40)), y=view)
        assert (x == held).all()
    fields = np.zeros((4, 8), np.dtype([("a", "f4"), ("b", "i1")]))  # 5 bytes apart
    fields["a"] = normal(rng, (4, 8))
    oracle.close(saker.rms_norm(fields["a"]), oracle.forward(fields["a"]), 8)


def test_read_only(rng):
    x = normal(rng, (3, 16))
    y = np.zeros_like(x)
    y.flags.writeable = False
    with pytest.raises(saker.Error, match="rms_norm: y is read-only") as caught:
        saker.rms_norm(x, y=y)
    assert caught.value.code == 1 and not y.any()
    x.flags.writeable = False
    assert saker.rms_norm(x).shape == x.shape
    with pytest.raises(saker.Error, match="y is read-only"):
        saker.rms_norm(x, y=np.broadcast_to(np.float32(0), (3, 16)))


def test_empty(rng):
    for shape in ((0, 16), (4, 0, 16), (0,), (3, 0)):
        x = np.zeros(shape, np.float32)
        assert saker.rms_norm(x).shape == shape
    dx, dw = saker.rms_norm_backward(np.zeros((0, 8), np.float32), np.zeros((0, 8), np.float32), np.ones(8, np.float32))
    assert dx.shape == (0, 8) and not dw.any()


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex64, ">f4", "S4", object, ml_dtypes.int4, bool])
def test_types_that_are_refused(dtype):
    x = np.zeros((2, 8), dtype)
    with pytest.raises(saker.Error, match="x") as caught:
        saker.rms_norm(x, y=np.zeros((2, 8), np.float32))
    assert caught.value.name == "UNSUPPORTED"


def test_allocation_says_what_it_cannot_do(rng):
    x = normal(rng, (2, 8))
    with pytest.raises(TypeError, match="y_scale"):
        saker.rms_norm(x, y=True, y_scale=True)
    with pytest.raises(TypeError, match="NumPy arrays only"):
        saker.rms_norm([[1.0, 2.0]], y=True)
    with pytest.raises(TypeError, match="quantize: its outputs are not allocated: give q=, scale="):
        saker.quantize(x)
    with pytest.raises(TypeError, match="softmax: outputs are allocated for NumPy arrays only; give y="):
        saker.softmax(type("Producer", (), {"__dlpack__": x.__dlpack__, "__dlpack_device__": x.__dlpack_device__})())
    if "stream" in saker.ops():
        with pytest.raises(TypeError, match="y0 cannot be allocated"):
            saker.stream(x, y0=True)
        y = np.empty_like(x)
        assert saker.stream(x, y0=y) is y and (x == y).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_layer_norm(rng, oracle, dtype):
    x, dy, w, b = normal(rng, (33, 96), dtype), normal(rng, (33, 96), dtype), normal(rng, 96), normal(rng, 96)
    x += dtype(3)
    y, mean, rstd = saker.layer_norm(x, w, b, y=True, mean=True, rstd=True)
    exact = x.astype(np.float64)
    assert y.dtype == x.dtype and np.abs(mean - exact.mean(-1)).max() < 1e-6
    d = exact - exact.mean(-1, keepdims=True)
    s = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    assert np.abs(rstd - s[:, 0]).max() < 1e-5
    oracle.close(y, d * s * w + b, 96)
    dx, dw, db = saker.layer_norm_backward(dy, x, w, mean, rstd)
    g, h = dy.astype(np.float64) * w, d * s
    oracle.close(dx, s * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True)), 96, 10 + np.abs(g))
    oracle.close(dw, (dy.astype(np.float64) * h).sum(0), 33, np.abs(dy.astype(np.float64)).sum(0) * 4)
    oracle.close(db, dy.astype(np.float64).sum(0), 33, np.abs(dy.astype(np.float64)).sum(0) * 4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gemm(rng, dtype):
    dtype = np.dtype(dtype) if dtype != "bfloat16" else np.dtype(ml_dtypes.bfloat16)
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((3, 5, 20), (20, 8)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    d = saker.gemm(a, b)
    assert d.dtype == dtype and d.shape == (3, 5, 8)
    assert (np.abs(d.astype(np.float64) - want) <= 2.0**-7 * np.abs(want).max()).all()
    assert saker.gemm(a, b, gated="halves").shape == (3, 5, 4)
    whole = rng.integers(-128, 128, (6, 30), np.int8)
    for unscaled in ({}, {"scaling": "none"}, {"scaling": 0}, {"scaling": None}):
        d = saker.gemm(whole, whole.T, **unscaled)
        assert d.dtype == np.int32 and (d == whole.astype(np.int32) @ whole.T.astype(np.int32)).all()
    assert saker.gemm(whole, whole.T, a_scale=np.ones(1, np.float32), scaling="tensor").dtype == np.float32
    with pytest.raises(saker.Error, match=r"a has shape \[20\] and b \[20, 8\], expected"):
        saker.gemm(a=a[0, 0], b=b)


def test_gemm_packed(rng):
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((5, 70), (70, 30)))
    size = np.zeros(1, np.int64)
    saker.gemm_pack(b, bytes=size)
    packed = np.zeros(size[0], np.uint8)
    saker.gemm_pack(b, packed=packed)
    where = np.lib.stride_tricks.as_strided(packed[:b.nbytes].view(np.float32), b.shape, b.strides)
    assert (saker.gemm(a, where, b_packed=True) == saker.gemm(a, b)).all()


def test_attention_and_gradients():
    q, k, v = (np.random.default_rng(i).standard_normal((2, 7, 3, 8)).astype(np.float32) for i in range(3))
    o, lse = saker.numpy.attention(q, k, v, causal=True, o=True, lse=True)
    s = np.einsum("bihd,bjhd->bhij", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(8)
    s = np.where(np.tril(np.ones((7, 7), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    assert np.abs(o - np.einsum("bhij,bjhd->bihd", p, v)).max() < 1e-5
    dq, dk, dv = saker.numpy.attention_backward(np.ones_like(o), q, k, v, o, lse, causal=True)
    dp = np.einsum("bjhd->bhj", v)[:, :, None]
    ds = p * (dp - np.einsum("bihd->bhi", o)[..., None]) / np.sqrt(8)
    assert np.abs(dq - np.einsum("bhij,bjhd->bihd", ds, k)).max() < 1e-5
    assert np.abs(dk - np.einsum("bhij,bihd->bjhd", ds, q)).max() < 1e-5
    assert np.abs(dv - np.einsum("bhij->bjh", p)[..., None]).max() < 1e-5


def test_attention_decode(rng):
    q = rng.standard_normal((2, 1, 3, 8)).astype(np.float32)
    k, v = (rng.standard_normal((2, 9, 3, 8)).astype(np.float32) for _ in range(2))
    lengths = np.array([8, 5], np.int32)
    new = rng.standard_normal((2, 1, 3, 8)).astype(np.float32)
    before = k.copy()
    o, lse = saker.attention_decode(q, lengths, k_cache=k, v_cache=v, k_new=new, v_new=new, o=True, lse=True)
    assert (k[0, 8] == new[0, 0]).all() and (k[1, 5] == new[1, 0]).all() and (k[:, :5] == before[:, :5]).all()
    for b, n in enumerate((9, 6)):
        whole, sums = saker.attention(q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], o=True, lse=True)
        assert np.abs(o[b] - whole[0]).max() < 1e-5 and np.abs(lse[b] - sums[0]).max() < 1e-5
    assert (saker.attention_decode(q, lengths + 1, k_cache=k, v_cache=v) == o).all()
    codes = np.zeros((2, 9, 3, 4), np.uint8)
    assert saker.attention_decode(q, lengths, k_cache=codes, v_cache=codes.copy(), k_scale=np.ones((2, 9, 3), np.float32),
                                  v_scale=np.ones((2, 9, 3), np.float32)).shape == (2, 1, 3, 8)


def test_attention_and_gemm_of_subclasses(rng, tmp_path):
    q = np.memmap(tmp_path / "q", np.float32, "w+", shape=(2, 7, 3, 8))
    q[:] = rng.standard_normal(q.shape)
    k, v = (rng.standard_normal(q.shape).astype(np.float32) for _ in range(2))
    plain = np.array(q)
    assert (saker.attention(q, k, v) == saker.attention(plain, k, v)).all()
    assert (saker.attention(k, q, q) == saker.attention(k, plain, plain)).all()
    assert (saker.gemm(q[0, 0], k[0, 0].T) == saker.gemm(plain[0, 0], k[0, 0].T)).all()
    assert (saker.gemm(k[0, 0], q[0, 0].T) == saker.gemm(k[0, 0], plain[0, 0].T)).all()


def test_attention_says_what_is_wrong(rng):
    q = rng.standard_normal((2, 7, 3, 8)).astype(np.float32)
    for layout, message in (
        (7, "layout is 7, expected"),
        (-1, "layout is -1, expected"),
        ("dhsb", "layout is 'dhsb', expected one of bshd"),
        ("thd", r"q has shape \[2, 7, 3, 8\], expected \[T, H, D\]"),
    ):
        with pytest.raises(saker.Error, match=f"attention: {message}"):
            saker.attention(q, q, q, layout=layout)
    for wrong, name in (
        ((q[0, 0], q, q), "q"),
        ((q[0], q, q), "q"),
        ((q, q[0], q), "k"),
        ((q, q, q[0, 0, 0, 0]), "v"),
        ((q, q, None), "v"),
        ((q, q, "v"), "v"),
    ):
        with pytest.raises(saker.Error, match=f"attention: {name} "):
            saker.attention(*wrong)
