/* softmax_backward_sm80.cu - the softmax_backward kernels for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "softmax_any.cuh"
#include "softmax_backward_rows.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const __grid_constant__ skr_softmax_backward_job job)                                                     \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }

#define SKR_BACKWARD(type, lanes, threads, vpt, rows, blocks)                                                          \
    KERNEL(skr_softmax_backward_##type##_##lanes##x##vpt, threads, blocks,                                             \
           softmax_backward_plain<TYPE_##type, block_owner<lanes, threads>, vpt, rows>::run)
#include "softmax_kernels.def"

KERNEL(skr_softmax_backward_any_warp, 128, 1, softmax_backward_any<along_team<32, 128>>)
KERNEL(skr_softmax_backward_any_block, 512, 1, softmax_backward_any<along_team<512, 512>>)
KERNEL(skr_softmax_backward_any_across, 512, 1, softmax_backward_any<across_team<16>>)
