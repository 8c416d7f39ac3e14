/* rms_norm_backward_sm90.cu - the rms_norm backward kernels whose rows belong to a cluster of blocks or come through a ring.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "rms_norm_backward_ring.cuh"
#include "rms_norm_backward_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define SKR_BACKWARD_CLUSTER(type, threads, vpt, stages, least, most, parts)                                           \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                           \
        skr_rms_norm_backward_##type##_c##threads##x##vpt(const __grid_constant__ skr_rms_norm_backward_job job)       \
    {                                                                                                                  \
        rms_norm_backward<TYPE_##type, cluster_owner<threads>, vpt, stages, (vpt * skr_elem<TYPE_##type>::vec > 16),   \
                          false>::run(job);                                                                            \
    }
#define SKR_BACKWARD_RING(type, threads, p, slots, ahead, shared, blocks, least, most)                                 \
    extern "C" __global__ void __launch_bounds__(threads + 32, blocks)                                                 \
        skr_rms_norm_backward_ring_##type##_##threads##x##p(const __grid_constant__ skr_rms_norm_backward_job job)     \
    {                                                                                                                  \
        rms_norm_backward_ring<TYPE_##type, threads, (least > 1), p, slots, ahead, shared>::run(job);                  \
    }
#include "rms_norm_kernels.def"
