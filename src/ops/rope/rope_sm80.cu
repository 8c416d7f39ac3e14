/* rope_sm80.cu - kernels of rope and of its gradient; rope_kernels.def lists the row kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rope_any.cuh"
#include "rope_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

#define ROPE_KERNEL(type, lanes, plain, norm, gradient)                                                                \
    extern "C" __global__ void __launch_bounds__(ROPE_THREADS)                                                         \
        skr_rope_##type##_##lanes(const __grid_constant__ skr_rope_job job)                                            \
    {                                                                                                                  \
        rope_rows<TYPE_##type, lanes, plain, false, false>(job);                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(ROPE_THREADS)                                                         \
        skr_rope_norm_##type##_##lanes(const __grid_constant__ skr_rope_job job)                                       \
    {                                                                                                                  \
        rope_rows<TYPE_##type, lanes, norm, true, false>(job);                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(ROPE_THREADS)                                                         \
        skr_rope_lean_##type##_##lanes(const __grid_constant__ skr_rope_job job)                                       \
    {                                                                                                                  \
        rope_rows<TYPE_##type, lanes, plain, false, true>(job);                                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(ROPE_THREADS)                                                         \
        skr_rope_norm_lean_##type##_##lanes(const __grid_constant__ skr_rope_job job)                                  \
    {                                                                                                                  \
        rope_rows<TYPE_##type, lanes, norm, true, true>(job);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(ROPE_THREADS, 3)                                                      \
        skr_rope_norm_backward_##type##_##lanes(const __grid_constant__ skr_rope_job job)                              \
    {                                                                                                                  \
        rope_norm_backward<TYPE_##type, lanes, gradient>::run(job);                                                    \
    }
#include "rope_kernels.def"

extern "C" __global__ void __launch_bounds__(ROPE_PREPARE_THREADS)
    skr_rope_prepare(const __grid_constant__ skr_rope_job job)
{
    rope_prepare(job);
}

extern "C" __global__ void __launch_bounds__(128) skr_rope_any(const __grid_constant__ skr_rope_job job)
{
    rope_any<false>(job);
}

extern "C" __global__ void __launch_bounds__(128) skr_rope_any_gradient(const __grid_constant__ skr_rope_job job)
{
    rope_any<true>(job);
}

extern "C" __global__ void __launch_bounds__(1024) skr_rope_add_parts(const __grid_constant__ skr_rope_job job)
{
    rope_add_parts(job);
}
