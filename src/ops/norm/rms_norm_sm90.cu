/* rms_norm_sm90.cu - the rms_norm forward kernels whose rows belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "rms_norm_full.cuh"
#include "rms_norm_lean.cuh"
#include "rms_norm_ring.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ skr_norm_job job)            \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_PLAIN_CLUSTER(type, threads, vpt, early, least, most)                                                      \
    KERNEL(skr_rms_norm_plain_##type##_c##threads##x##vpt##e##early, threads,                                          \
           rms_norm_plain<TYPE_##type, cluster_owner<threads>, vpt, 1, early>)
#define SKR_PLAIN_RING(type, threads, k, p, slots, least, most)                                                        \
    KERNEL(skr_rms_norm_ring_##type##_##threads##x##k##x##p, threads + 32,                                             \
           rms_norm_ring<TYPE_##type, threads, k, p, slots>)
#define SKR_RESIDUAL_CLUSTER(type, threads, vpt, blocks, least, most, walk)                                            \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        skr_rms_norm_residual_##type##_c##threads##x##vpt##_##least(const __grid_constant__ skr_norm_job job)          \
    {                                                                                                                  \
        rms_norm_residual<TYPE_##type, cluster_owner<threads>, vpt>::run(job);                                         \
    }
#define SKR_QUANT_CLUSTER(type, threads, vpt, hold, least, most)                                                       \
    KERNEL(skr_rms_norm_quant_##type##_c##threads##x##vpt, threads,                                                    \
           rms_norm_quant<TYPE_##type, cluster_owner<threads>, vpt, 2, hold>)
#define SKR_FULL_CLUSTER(type, threads, vpt, stages, least, most, walk)                                                \
    KERNEL(skr_rms_norm_full_##type##_c##threads##x##vpt, threads,                                                     \
           rms_norm_full<TYPE_##type, cluster_owner<threads>, vpt, stages>)
#include "rms_norm_kernels.def"
