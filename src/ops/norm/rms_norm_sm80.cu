/* rms_norm_sm80.cu - the plain rms_norm forward kernels that run on every supported GPU, and those that take anything.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rms_norm_any.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ skr_norm_job job)       \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }

#define SKR_PLAIN(type, lanes, threads, vpt, rows, early, blocks)                                                      \
    KERNEL(skr_rms_norm_plain_##type##_##lanes##x##vpt, threads, blocks,                                               \
           rms_norm_plain<TYPE_##type, block_owner<lanes, threads>, vpt, rows, early>)
#include "rms_norm_kernels.def"

KERNEL(skr_rms_norm_any_warp1, 128, 1, rms_norm_any<32, 128, 1>)
KERNEL(skr_rms_norm_any_warp4, 128, 1, rms_norm_any<32, 128, 4>)
KERNEL(skr_rms_norm_any_block1, 512, 1, rms_norm_any<512, 512, 1>)
KERNEL(skr_rms_norm_any_block4, 512, 1, rms_norm_any<512, 512, 4>)
