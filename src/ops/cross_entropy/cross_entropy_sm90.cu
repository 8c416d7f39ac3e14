/* cross_entropy_sm90.cu - loss and gradient of rows that belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "cross_entropy_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const __grid_constant__ skr_cross_entropy_job job)                                                        \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_CE_CLUSTER(type, threads, vpt, blocks, least, most)                                                        \
    KERNEL(skr_cross_entropy_rows_##type##_c##threads##x##vpt, threads, blocks,                                        \
           cross_entropy_rows<TYPE_##type, cluster_owner<threads>, vpt, false, false>)
#define SKR_CE_CLUSTER_FULL(type, threads, vpt, blocks, least, most)                                                   \
    KERNEL(skr_cross_entropy_rows_full_##type##_c##threads##x##vpt, threads, blocks,                                   \
           cross_entropy_rows<TYPE_##type, cluster_owner<threads>, vpt, false, true>)
#include "cross_entropy_kernels.def"
