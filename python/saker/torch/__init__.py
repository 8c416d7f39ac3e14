"""The PyTorch front: functions with autograd, registered operators for torch.compile, and drop-in modules.

    y = saker.torch.rms_norm(x, weight)                        # any mix of f32, f16 and bf16; y has x's type
    y, s = saker.torch.rms_norm(x, weight, residual=r)         # s = x + r, y = norm(s)
    q, scale = saker.torch.rms_norm_quant(x, weight)           # float8, one scale a row
    norm = saker.torch.RMSNorm(4096)                           # in place of torch.nn.RMSNorm
    y = saker.torch.layer_norm(x, weight, bias)                # and layer_norm_quant, LayerNorm
    p = saker.torch.softmax(x, -1, scale=0.125, causal=True)   # and log_softmax; any dimension, additive mask
    q, k = saker.torch.rope(q, k, base=500000.0)               # rotary positions; RotaryEmbedding reads configurations
    y = saker.torch.swiglu(gate_up)                            # silu(gate) * up of [..., 2N], or swiglu(gate, up)
    q, scale = saker.torch.quantize(x, per="block")            # float8, one scale for 128 columns
    y = saker.torch.linear(x, weight, bias, activation="gelu") # and matmul, scaled_matmul (float8, int8), grouped_matmul
    route = saker.torch.moe_route(logits, 8)                   # experts, weights, and tokens in the experts' order
    y = saker.torch.moe(x, route, gate_up, down)               # the experts' MLPs and their weighted sum
    layer = saker.torch.QuantizedLinear.from_linear(layer)     # weights of 4 or 8 bits in place of torch.nn.Linear
    o = saker.torch.attention(q, k, v, causal=True)            # every mask and bias; flash_attn_func and others as drop-ins
    o = saker.torch.attention_decode(q, keys, values, lengths) # of caches: paged, quantised, appended to; flash_attn_with_kvcache
    loss = saker.torch.cross_entropy(logits, target)           # in place of torch.nn.functional.cross_entropy
    loss = saker.torch.linear_cross_entropy(x, weight, target) # of the logits x @ weight.T, which are never there as a whole

SPDX-License-Identifier: Apache-2.0
"""
import torch as _torch

if not hasattr(_torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(f"saker.torch needs PyTorch 2.10 or newer (DLPack's C exchange), found {_torch.__version__}")

from ._activation import SwiGLU, activation, activation_quant, gelu, relu2, silu, swiglu
from ._adamw import AdamW, adamw_, sum_squares_
from ._attention import attention, attention_merge
from ._attention_as import (
    flash_attn_func,
    flash_attn_varlen_func,
    register_transformers,
    scaled_dot_product_attention,
    transformers_attention,
)
from ._attention_decode import attention_decode, flash_attn_with_kvcache
from ._cross_entropy import cross_entropy, cross_entropy_and_gradient
from ._embedding import embedding
from ._gemm import grouped_matmul, Linear, linear, matmul, scaled_matmul
from ._hadamard import hadamard
from ._layer_norm import LayerNorm, layer_norm, layer_norm_quant
from ._linear_cross_entropy import linear_cross_entropy
from ._moe import moe, moe_route
from ._quantize import dequantize, quantize
from ._quantized_linear import QuantizedLinear
from ._rms_norm import RMSNorm, rms_norm, rms_norm_quant
from ._rope import RotaryEmbedding, apply_rotary_pos_emb, rope, rope_options
from ._softmax import log_softmax, softmax
from ._topk import topk

__all__ = [name for name in dir() if not name.startswith("_")]
