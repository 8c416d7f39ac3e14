/* rms_norm_backward_lean_sm80.cu - the rms_norm backward kernels of the common case, for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rms_norm_backward_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define SKR_BACKWARD_LEAN(type, lanes, threads, vpt, stages, shared, blocks, parts)                                    \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        skr_rms_norm_backward_lean_##type##_##lanes##x##vpt(const __grid_constant__ skr_norm_backward_job job)         \
    {                                                                                                                  \
        rms_norm_backward<TYPE_##type, block_owner<lanes, threads>, vpt, stages, shared, true>::run(job);              \
    }
#include "rms_norm_kernels.def"
