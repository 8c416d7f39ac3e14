"""QuantizedLinear: a linear layer whose weights have 4 or 8 bits. SPDX-License-Identifier: Apache-2.0"""
import torch

from ._gemm import matmul, scaled_matmul
from ._quantize import dequantize, quantize


class _Product(torch.autograd.Function):
    """x @ dequantize(weight).T + bias, with the gradients of x and bias."""

    @staticmethod
    def forward(x, weight, scale, bias, group):
        return scaled_matmul(x, weight.t(), b_scale=scale.t(), bias=bias, group=group, dtype=x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, scale, _, ctx.group = inputs
        ctx.columns = x.shape[-1]
        ctx.save_for_backward(weight, scale)

    @staticmethod
    def backward(ctx, dy):
        weight, scale = ctx.saved_tensors
        dx = dbias = None
        if ctx.needs_input_grad[0]:
            dx = matmul(dy, dequantize(weight, scale, dy.dtype, per="group", group=ctx.group, columns=ctx.columns))
        if ctx.needs_input_grad[3]:
            dbias = dy.flatten(0, -2).sum(0)
        return dx, None, None, dbias, None


class QuantizedLinear(torch.nn.Module):
    """A linear layer of float16 or bfloat16 with weights of 4 or 8 bits, `group` of which share a scale:
    QuantizedLinear.from_linear(layer, bits=4, group=128). weight is uint8 [out, in / 2], two codes in a byte and the low
    one first, or int8 [out, in]; scale is float32 [out, in / group]. Both are buffers: x and bias have gradients."""

    def __init__(self, in_features, out_features, bias=True, *, bits=4, group=128, device=None, dtype=torch.bfloat16):
        super().__init__()
        if bits not in (4, 8):
            raise ValueError(f"QuantizedLinear: bits is {bits!r}, expected 4 or 8")
        if group < 1:
            raise ValueError(f"QuantizedLinear: group is {group!r}, expected 1 or more")
        self.in_features, self.out_features, self.bits, self.group = in_features, out_features, bits, group
        columns, kind = ((in_features + 1) // 2, torch.uint8) if bits == 4 else (in_features, torch.int8)
        groups = (in_features + group - 1) // group
        self.register_buffer("weight", torch.zeros(out_features, columns, dtype=kind, device=device))
        self.register_buffer("scale", torch.ones(out_features, groups, dtype=torch.float32, device=device))
        zeros = torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        self.bias = None if zeros is None else torch.nn.Parameter(zeros)

    @classmethod
    def from_linear(cls, linear, *, bits=4, group=128):
        """The weights of a torch.nn.Linear, rounded; its bias, as it is."""
        rows, columns = linear.weight.shape
        bias = linear.bias
        made = cls(
            columns, rows, bias is not None, bits=bits, group=group, device=linear.weight.device, dtype=linear.weight.dtype
        )
        made.weight, made.scale = quantize(linear.weight, "i4" if bits == 4 else torch.int8, per="group", group=group)
        if bias is not None:
            made.bias = bias
        return made

    def _apply(self, function, recurse=True):
        scale = self.scale
        super()._apply(function, recurse)
        if self.scale.dtype != torch.float32:  # scales are no weights: half() and to(dtype) leave them
            self.scale = scale.to(self.scale.device)
        return self

    def forward(self, x):
        return _Product.apply(x, self.weight, self.scale, self.bias, self.group)

    def extra_repr(self):
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"bits={self.bits}, group={self.group}"
        )
