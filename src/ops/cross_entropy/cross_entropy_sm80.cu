/* cross_entropy_sm80.cu - the cross-entropy kernels that run on every supported GPU, without softcap and smoothing, and
 * the small ones around them. SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy_rows.cuh"
#include "cross_entropy_stream.cuh"
#include "cross_entropy_sums.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const __grid_constant__ skr_cross_entropy_job job)                                                        \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_CE_ROWS(type, lanes, threads, vpt, keep, blocks)                                                           \
    KERNEL(skr_cross_entropy_rows_##type##_##lanes##x##vpt, threads, blocks,                                           \
           cross_entropy_rows<TYPE_##type, block_owner<lanes, threads>, vpt, keep, false>)
#define SKR_CE_STREAM(type, lanes, threads, u, blocks, most)                                                           \
    KERNEL(                                                                                                            \
        skr_cross_entropy_stream_##type##_##lanes##x##u, threads, blocks,                                              \
        cross_entropy_stream<TYPE_##type, block_owner<lanes, threads>, skr_elem<TYPE_##type>::vec, u, false>)
#include "cross_entropy_kernels.def"

#define BACKWARD_SHAPE(type, lanes, u, blocks)                                                                         \
    KERNEL(skr_cross_entropy_backward_##type##_##lanes##x##u, 256, blocks,                                             \
           cross_entropy_backward<TYPE_##type, lanes, skr_elem<TYPE_##type>::vec, u, false>)
#define BACKWARD(type) BACKWARD_SHAPE(type, 8, 4, 4) BACKWARD_SHAPE(type, 8, 8, 3) BACKWARD_SHAPE(type, 32, 8, 3)
BACKWARD(f32)
BACKWARD(f16)
BACKWARD(bf16)

#define SMALL(name, threads, job_type, function)                                                                       \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ job_type job)                   \
    {                                                                                                                  \
        function(job);                                                                                                 \
    }
SMALL(skr_cross_entropy_prepare, SKR_CE_SUM_THREADS, skr_cross_entropy_job, cross_entropy_prepare)
SMALL(skr_cross_entropy_sum, SKR_CE_SUM_THREADS, skr_cross_entropy_job, cross_entropy_sum)
SMALL(skr_cross_entropy_finish, 32, skr_cross_entropy_job, cross_entropy_finish)
SMALL(skr_cross_entropy_merge_prepare, SKR_CE_SUM_THREADS, skr_cross_entropy_merge_job, cross_entropy_prepare)
SMALL(skr_cross_entropy_merge_sum, SKR_CE_SUM_THREADS, skr_cross_entropy_merge_job, cross_entropy_sum)
SMALL(skr_cross_entropy_merge_finish, 32, skr_cross_entropy_merge_job, cross_entropy_finish)
SMALL(skr_cross_entropy_merge_rows, 256, skr_cross_entropy_merge_job, cross_entropy_merge)
