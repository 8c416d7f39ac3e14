/* rms_norm_full_sm80.cu - the rms_norm forward kernels with every option, for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rms_norm_full.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define SKR_FULL(type, lanes, threads, vpt, stages, blocks, walk)                                                      \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        skr_rms_norm_full_##type##_##lanes##x##vpt(const __grid_constant__ skr_norm_job job)                           \
    {                                                                                                                  \
        rms_norm_full<TYPE_##type, block_owner<lanes, threads>, vpt, stages>::run(job);                                \
    }
#include "rms_norm_kernels.def"
