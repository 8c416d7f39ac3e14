/* attention_kernels.cuh - the __global__ functions of attention_kernels.def. A file that includes this defines the
 * macro TAKE_<kind>_<type> as KEEP for each kind it compiles and as DROP for the others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_forward.cuh"

#define TYPE_f32        SKR_F32
#define TYPE_f16        SKR_F16
#define TYPE_bf16       SKR_BF16
#define OPTIONS_plain   false
#define OPTIONS_options true
#define DROP(...)
#define KEEP(kind, type, d, dv, bm, bn, wm, wv, stages, blocks)                                                        \
    extern "C" __global__ void __launch_bounds__(32 * wm * wv, blocks)                                                 \
        skr_attention_##kind##_##type##_##d(const __grid_constant__ skr_attention_job job)                             \
    {                                                                                                                  \
        attention_forward<TYPE_##type, d, dv, bm, bn, wm, wv, stages, OPTIONS_##kind>::run(job);                       \
    }
#define SKR_FORWARD(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
