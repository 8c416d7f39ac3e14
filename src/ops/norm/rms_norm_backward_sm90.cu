/* rms_norm_backward_sm90.cu - the rms_norm backward kernels whose rows belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "rms_norm_backward_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define SKR_BACKWARD_CLUSTER(type, threads, vpt, stages, least, most, parts)                                           \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                           \
        skr_rms_norm_backward_##type##_c##threads##x##vpt(const __grid_constant__ skr_norm_backward_job job)           \
    {                                                                                                                  \
        rms_norm_backward<TYPE_##type, cluster_owner<threads>, vpt, stages, (vpt * skr_elem<TYPE_##type>::vec > 16),   \
                          false>::run(job);                                                                            \
    }
#define SKR_BACKWARD_LEAN_CLUSTER(type, threads, vpt, stages, blocks, least, most, parts)                              \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        skr_rms_norm_backward_lean_##type##_c##threads##x##vpt##_##least(                                              \
            const __grid_constant__ skr_norm_backward_job job)                                                         \
    {                                                                                                                  \
        rms_norm_backward<TYPE_##type, cluster_owner<threads>, vpt, stages, true, true>::run(job);                     \
    }
#include "rms_norm_kernels.def"
