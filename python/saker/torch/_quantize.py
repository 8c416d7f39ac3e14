"""quantize and dequantize for PyTorch.
SPDX-License-Identifier: Apache-2.0
"""
import torch

from .. import _ops
from ._front import ops, register, straight

_call = _ops["quantize"].call
_call_back = _ops["dequantize"].call
PER = {"tensor": 1, "row": 2, "block": 3, "block2d": 4, "group": 5}


def _scale_shape(shape, per, group):
    n = shape[-1]
    if per == PER["tensor"]:
        return ()
    if per == PER["row"]:
        return shape[:-1]
    if per == PER["block2d"]:
        return (*shape[:-2], (shape[-2] + 127) // 128, (n + 127) // 128)
    columns = group if per == PER["group"] else 128
    return (*shape[:-1], (n + columns - 1) // columns)


def _outputs(x, scale, per, group, dtype):
    shape = x.shape if dtype != torch.uint8 else (*x.shape[:-1], (x.shape[-1] + 1) // 2)
    q = x.new_empty(shape, dtype=dtype)
    return q, x.new_empty(0 if scale is not None else _scale_shape(x.shape, per, group), dtype=torch.float32)


def _quantize(x, scale, per, group, dtype):
    q, made = _outputs(x, scale, per, group, dtype)
    (x,), _ = straight(x)
    dynamic = scale is None and per == PER["tensor"]
    _call(x=x, q=q, scale=made if scale is None else scale, group=group, quant=per, dynamic=dynamic)
    return q, made


def _dequantize(q, scale, per, group, columns, dtype):
    y = q.new_empty((*q.shape[:-1], columns), dtype=dtype)
    (q,), _ = straight(q)
    _call_back(q=q, scale=scale, y=y, group=group, quant=per)
    return y


register(
    "quantize",
    "(Tensor x, Tensor? scale, int per, int group, ScalarType dtype) -> (Tensor, Tensor)",
    _quantize,
    _outputs,
)
register(
    "dequantize",
    "(Tensor q, Tensor scale, int per, int group, SymInt columns, ScalarType dtype) -> Tensor",
    _dequantize,
    lambda q, scale, per, group, columns, dtype: q.new_empty((*q.shape[:-1], columns), dtype=dtype),
)


def _mode(name, per, group):
    if per not in PER or (per == "group") != bool(group):
        raise ValueError(f"{name}: per is {per!r}, expected one of {', '.join(PER)}; group with 'group' alone")
    return PER[per], group or 0


def quantize(x, dtype=torch.float8_e4m3fn, *, per="row", group=None, scale=None):
    """(q, scale) with q = round(x / scale); scale is what multiplies back. There is no gradient.

    dtype: int8, float8_e4m3fn, float8_e5m2, or "i4": uint8 with two codes in a byte, low nibble first. per: "tensor",
    "row", "block" (128 columns), "block2d" (128 x 128), "group" (of `group` columns): what shares a scale. With
    per="tensor" the scale may be given.
    """
    if scale is not None and per != "tensor":
        raise ValueError(f"quantize: per is {per!r}, and only 'tensor' takes a scale")
    q, made = ops.quantize(
        x.detach(), scale, *_mode("quantize", per, group), torch.uint8 if dtype == "i4" else dtype
    )
    return q, made if scale is None else scale


def dequantize(q, scale, dtype=torch.float32, *, per="row", group=None, columns=None):
    """q * scale in a float type, the reverse of quantize. A uint8 q holds i4 codes; columns says how many (twice its last
    dimension, unless that number was odd)."""
    if columns is None:
        columns = 2 * q.shape[-1] if q.dtype == torch.uint8 else q.shape[-1]
    return ops.dequantize(q, scale, *_mode("dequantize", per, group), columns, dtype)
