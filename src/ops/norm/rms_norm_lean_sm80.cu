/* rms_norm_lean_sm80.cu - the rms_norm forward kernels with a residual or a quantised output, for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rms_norm_lean.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ skr_norm_job job)       \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_RESIDUAL(type, lanes, threads, vpt, blocks)                                                                \
    KERNEL(skr_rms_norm_residual_##type##_##lanes##x##vpt, threads, blocks,                                            \
           rms_norm_residual<TYPE_##type, block_owner<lanes, threads>, vpt>)
#define SKR_QUANT(type, lanes, threads, vpt, hold, blocks, walk)                                                       \
    KERNEL(skr_rms_norm_quant_##type##_##lanes##x##vpt, threads, blocks,                                               \
           rms_norm_quant<TYPE_##type, block_owner<lanes, threads>, vpt, 2, hold>)
#include "rms_norm_kernels.def"
