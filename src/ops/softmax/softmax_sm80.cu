/* softmax_sm80.cu - the softmax forward kernels for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "softmax_any.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ skr_softmax_job job)    \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }

#define SKR_PLAIN(type, lanes, threads, vpt, rows, keep, blocks)                                                       \
    KERNEL(skr_softmax_plain_##type##_##lanes##x##vpt, threads, blocks,                                                \
           softmax_plain<TYPE_##type, block_owner<lanes, threads>, vpt, rows, keep>::run)
#define SKR_FULL(type, lanes, threads, vpt, blocks)                                                                    \
    KERNEL(skr_softmax_full_##type##_##lanes##x##vpt, threads, blocks,                                                 \
           softmax_full<TYPE_##type, block_owner<lanes, threads>, vpt>::run)
#include "softmax_kernels.def"

KERNEL(skr_softmax_any_warp, 128, 1, softmax_any<along_team<32, 128>>)
KERNEL(skr_softmax_any_block, 512, 1, softmax_any<along_team<512, 512>>)
KERNEL(skr_softmax_any_across, 512, 1, softmax_any<across_team<16>>)
