/* rms_norm_backward_sm80.cu - the rms_norm backward kernels that run on every supported GPU, and the sum of their
 * parts. SPDX-License-Identifier: Apache-2.0 */
#include "rms_norm_any.cuh"
#include "rms_norm_backward_rows.cuh"
#include "rms_norm_parts.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const __grid_constant__ skr_norm_backward_job job)                                                        \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }

#define SKR_BACKWARD(type, lanes, threads, vpt, stages, blocks, parts)                                                 \
    KERNEL(skr_rms_norm_backward_##type##_##lanes##x##vpt, threads, blocks,                                            \
           rms_norm_backward<TYPE_##type, block_owner<lanes, threads>, vpt, stages,                                    \
                             (vpt * skr_elem<TYPE_##type>::vec > 16), false>::run(job))
#include "rms_norm_kernels.def"

KERNEL(skr_rms_norm_backward_any_warp1, 128, 1, rms_norm_backward_any<32, 128, 1>::run(job))
KERNEL(skr_rms_norm_backward_any_warp4, 128, 1, rms_norm_backward_any<32, 128, 4>::run(job))
KERNEL(skr_rms_norm_backward_any_block1, 512, 1, rms_norm_backward_any<512, 512, 1>::run(job))
KERNEL(skr_rms_norm_backward_any_block4, 512, 1, rms_norm_backward_any<512, 512, 4>::run(job))
KERNEL(skr_rms_norm_add_parts1, 1024, 1, rms_norm_add_parts<1>(job))
KERNEL(skr_rms_norm_add_parts4, 1024, 1, rms_norm_add_parts<4>(job))
