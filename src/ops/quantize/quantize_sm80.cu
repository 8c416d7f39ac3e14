/* quantize_sm80.cu - the kernels of quantize and dequantize; they run on every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quantize.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ skr_quantize_job job)           \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }

/* blocks: of an SM at least, which bounds the registers. */
#define TILE(type, blocks)                                                                                             \
    extern "C" __global__ void __launch_bounds__(TILE_THREADS, blocks)                                                 \
        skr_quantize_tile_##type(const __grid_constant__ skr_quantize_job job)                                         \
    {                                                                                                                  \
        quantize_tile<TYPE_##type>(job);                                                                               \
    }
TILE(f32, 2)
TILE(f16, 3)
TILE(bf16, 3)

#define FLAT(type)                                                                                                     \
    KERNEL(skr_quantize_flat_##type##_0, FLAT_THREADS, quantize_flat<TYPE_##type, 0>)                                  \
    KERNEL(skr_quantize_flat_##type##_2, FLAT_THREADS, quantize_flat<TYPE_##type, 2>)                                  \
    KERNEL(skr_quantize_flat_##type##_4, FLAT_THREADS, quantize_flat<TYPE_##type, 4>)                                  \
    KERNEL(skr_quantize_flat_##type##_8, FLAT_THREADS, quantize_flat<TYPE_##type, 8>)                                  \
    KERNEL(skr_quantize_flat_##type##_16, FLAT_THREADS, quantize_flat<TYPE_##type, 16>)                                \
    KERNEL(skr_quantize_flat_##type##_32, FLAT_THREADS, quantize_flat<TYPE_##type, 32>)                                \
    KERNEL(skr_dequantize_flat_##type, FLAT_THREADS, dequantize_flat<TYPE_##type>)
FLAT(f32)
FLAT(f16)
FLAT(bf16)

#define SKR_QUANTIZE_ROWS(type, lanes, threads, vpt)                                                                   \
    KERNEL(skr_quantize_rows_##type##_##lanes##x##vpt, threads,                                                        \
           quantize_rows<TYPE_##type, block_owner<lanes, threads>, vpt>::run)
#include "quantize_kernels.def"

KERNEL(skr_quantize_parts, FOLD_THREADS, quantize_parts)
KERNEL(skr_quantize_fold, FOLD_THREADS, quantize_fold)
KERNEL(skr_quantize_any, ANY_THREADS, quantize_any)
KERNEL(skr_dequantize_any, ANY_THREADS, dequantize_any)
