"""QuantizedLinear: a linear layer whose weights have 4 or 8 bits. SPDX-License-Identifier: Apache-2.0"""
import torch

from ._gemm import matmul, scaled_matmul
from ._quantize import dequantize, quantize


class _Product(torch.autograd.Function):
    """x @ weights.T + bias, with the gradients of x and bias."""

    @staticmethod
    def forward(x, weight, scale, zero, bias, group):
        zero = None if zero is None else zero.t()
        return scaled_matmul(x, weight.t(), b_scale=scale.t(), b_zero=zero, bias=bias, group=group, dtype=x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, scale, zero, _, ctx.group = inputs
        ctx.columns = x.shape[-1]
        ctx.save_for_backward(weight, scale, zero)

    @staticmethod
    def backward(ctx, dy):
        dx = dbias = None
        if ctx.needs_input_grad[0]:
            dx = matmul(dy, _weights(*ctx.saved_tensors, ctx.group, ctx.columns, dy.dtype))
        if ctx.needs_input_grad[4]:
            dbias = dy.flatten(0, -2).sum(0)
        return dx, None, None, None, dbias, None


def _weights(weight, scale, zero, group, columns, dtype):
    """(code - zero) * scale."""
    found = dequantize(
        weight, scale, dtype if zero is None else torch.float32, per="group", group=group, columns=columns
    )
    if zero is None:
        return found
    return (found - (zero * scale).repeat_interleave(group, 1)[:, :columns]).to(dtype)


def _nibbles(words, dim):
    """The eight codes of each int32, the lowest first, beside each other along dim."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    shape = [1] * (words.dim() + 1)
    shape[dim + 1] = 8
    return (words.unsqueeze(dim + 1) >> shifts.view(shape) & 15).flatten(dim, dim + 1)


# Where a word of AWQ has the code of each of its columns.
_AWQ = [0, 4, 1, 5, 2, 6, 3, 7]


class QuantizedLinear(torch.nn.Module):
    """A linear layer of float16 or bfloat16 with weights of 4 or 8 bits, `group` of which share a scale and, where there
    are some, a zero point: (code - zero) * scale.

        QuantizedLinear.from_linear(layer, bits=4, group=128)
        QuantizedLinear.from_gptq(qweight, qzeros, scales, bias)    # and from_awq: as checkpoints have them

    weight is uint8 [out, in / 2], two codes from -8 to 7 in a byte and the low one first, or int8 [out, in]; scale is
    float32 [out, in / group], zero int8 of that shape or None. They are buffers: x and bias have gradients."""

    def __init__(
        self, in_features, out_features, bias=True, *, bits=4, group=128, zero=False, device=None, dtype=torch.bfloat16
    ):
        super().__init__()
        if bits not in (4, 8):
            raise ValueError(f"QuantizedLinear: bits is {bits!r}, expected 4 or 8")
        if group < 1:
            raise ValueError(f"QuantizedLinear: group is {group!r}, expected 1 or more")
        self.in_features, self.out_features, self.bits, self.group = in_features, out_features, bits, group
        columns, kind = ((in_features + 1) // 2, torch.uint8) if bits == 4 else (in_features, torch.int8)
        groups = (out_features, (in_features + group - 1) // group)
        self.register_buffer("weight", torch.zeros(out_features, columns, dtype=kind, device=device))
        self.register_buffer("scale", torch.ones(groups, dtype=torch.float32, device=device))
        self.register_buffer("zero", torch.zeros(groups, dtype=torch.int8, device=device) if zero else None)
        zeros = torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        self.bias = None if zeros is None else torch.nn.Parameter(zeros)

    @classmethod
    def from_linear(cls, linear, *, bits=4, group=128):
        """The weights of a torch.nn.Linear, rounded, without zero points; its bias, as it is."""
        rows, columns = linear.weight.shape
        weight, scale = quantize(linear.weight, "i4" if bits == 4 else torch.int8, per="group", group=group)
        return cls._of(columns, bits, group, weight, scale, None, linear.bias)

    @classmethod
    def from_gptq(cls, qweight, qzeros, scales, bias=None, *, g_idx=None, zeros_less_one=True):
        """From a checkpoint of GPTQ with 4 bits: qweight int32 [in / 8, out], qzeros int32 [groups, out / 8], scales
        [groups, out]. zeros_less_one: qzeros are one less than the zero points, as in all but its format v2. g_idx may
        only say that groups are neighbours (no act-order)."""
        columns, group = cls._sizes("from_gptq", 8 * qweight.shape[0], qweight, qzeros, scales)
        if g_idx is not None and not torch.equal(g_idx.cpu().long(), torch.arange(columns) // group):
            raise ValueError("QuantizedLinear.from_gptq: g_idx is not in order, which act-order makes: groups must be neighbours")
        zeros = _nibbles(qzeros, 1)
        return cls._of_codes(_nibbles(qweight, 0), zeros + 1 & 15 if zeros_less_one else zeros, scales, group, bias)

    @classmethod
    def from_awq(cls, qweight, qzeros, scales, bias=None):
        """From a checkpoint of AWQ with 4 bits: qweight int32 [in, out / 8], qzeros int32 [groups, out / 8], scales
        [groups, out]."""
        _, group = cls._sizes("from_awq", qweight.shape[0], qweight, qzeros, scales)
        codes, zeros = (_nibbles(t, 1).unflatten(1, (-1, 8))[..., _AWQ].flatten(1) for t in (qweight, qzeros))
        return cls._of_codes(codes, zeros, scales, group, bias)

    @staticmethod
    def _sizes(name, columns, qweight, qzeros, scales):
        groups, rows = scales.shape
        if columns % groups or qzeros.shape != (groups, rows // 8) or qweight.numel() * 8 != columns * rows or rows % 8:
            raise ValueError(
                f"QuantizedLinear.{name}: qweight has shape {list(qweight.shape)}, qzeros {list(qzeros.shape)} and scales "
                f"{list(scales.shape)}, which do not belong together"
            )
        return columns, columns // groups

    @classmethod
    def _of_codes(cls, codes, zeros, scales, group, bias):
        """codes [in, out] and zeros [groups, out] from 0 to 15."""
        signed = (codes ^ 8).t().to(torch.uint8)
        weight = (signed[:, ::2] | signed[:, 1::2] << 4).contiguous()
        zero = (zeros - 8).t().to(torch.int8).contiguous()
        return cls._of(len(codes), 4, group, weight, scales.t().float().contiguous(), zero, bias)

    @classmethod
    def _of(cls, columns, bits, group, weight, scale, zero, bias):
        made = cls(columns, len(weight), False, bits=bits, group=group, device="meta")
        made.weight, made.scale, made.zero = weight, scale, zero
        if bias is not None:
            made.bias = bias if isinstance(bias, torch.nn.Parameter) else torch.nn.Parameter(bias)
        return made

    def _apply(self, function, recurse=True):
        scale = self.scale
        super()._apply(function, recurse)
        if self.scale.dtype != torch.float32:  # scales are no weights: half() and to(dtype) leave them
            self.scale = scale.to(self.scale.device)
        return self

    def forward(self, x):
        return _Product.apply(x, self.weight, self.scale, self.zero, self.bias, self.group)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"bits={self.bits}, group={self.group}, zero={self.zero is not None}"
        )
