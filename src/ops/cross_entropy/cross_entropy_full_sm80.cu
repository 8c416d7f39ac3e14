/* cross_entropy_full_sm80.cu - the cross-entropy kernels with softcap and label smoothing, and those that take
 * anything. SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy_rows.cuh"
#include "cross_entropy_stream.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const __grid_constant__ skr_cross_entropy_job job)                                                        \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_CE_ROWS_FULL(type, lanes, threads, vpt, blocks)                                                            \
    KERNEL(skr_cross_entropy_rows_full_##type##_##lanes##x##vpt, threads, blocks,                                      \
           cross_entropy_rows<TYPE_##type, block_owner<lanes, threads>, vpt, false, true>)
#define SKR_CE_STREAM_FULL(type, lanes, threads, u, blocks, most)                                                      \
    KERNEL(skr_cross_entropy_stream_full_##type##_##lanes##x##u, threads, blocks,                                      \
           cross_entropy_stream<TYPE_##type, block_owner<lanes, threads>, skr_elem<TYPE_##type>::vec, u, true>)
#define SKR_CE_ANY(type, lanes, threads, u, most)                                                                      \
    KERNEL(skr_cross_entropy_any_##type##_##lanes##x##u, threads, 1,                                                   \
           cross_entropy_stream<TYPE_##type, block_owner<lanes, threads>, 1, u, true>)
#include "cross_entropy_kernels.def"

#define BACKWARD_KIND(name, type, v, u)                                                                                \
    KERNEL(skr_cross_entropy_backward_##name##_##type, 256, 1,                                                         \
           cross_entropy_backward<TYPE_##type, 32, v, u, true>)
#define BACKWARD(type)                                                                                                 \
    BACKWARD_KIND(full, type, skr_elem<TYPE_##type>::vec, 4)                                                           \
    BACKWARD_KIND(any, type, 1, 8)
BACKWARD(f32)
BACKWARD(f16)
BACKWARD(bf16)
