/* softmax_sm90.cu - the softmax kernels, forward and backward, whose rows belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "softmax_backward_rows.cuh"
#include "softmax_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, job_type, threads, blocks, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ job_type job)           \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_PLAIN_CLUSTER(type, threads, vpt, keep, blocks, least, most)                                               \
    KERNEL(skr_softmax_plain_##type##_c##threads##x##vpt, skr_softmax_job, threads, blocks,                            \
           softmax_plain<TYPE_##type, cluster_owner<threads>, vpt, 1, keep>)
#define SKR_FULL_CLUSTER(type, threads, vpt, blocks, least, most)                                                      \
    KERNEL(skr_softmax_full_##type##_c##threads##x##vpt, skr_softmax_job, threads, blocks,                             \
           softmax_full<TYPE_##type, cluster_owner<threads>, vpt>)
#define SKR_BACKWARD_CLUSTER(type, threads, vpt, blocks, least, most)                                                  \
    KERNEL(skr_softmax_backward_##type##_c##threads##x##vpt, skr_softmax_backward_job, threads, blocks,                \
           softmax_backward_plain<TYPE_##type, cluster_owner<threads>, vpt, 1>)
#include "softmax_kernels.def"
