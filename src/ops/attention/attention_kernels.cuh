/* attention_kernels.cuh - makes __global__ functions of the rows of attention_kernels.def.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_KERNELS_CUH
#define SKR_ATTENTION_KERNELS_CUH

#define TYPE_f32    SKR_F32
#define TYPE_f16    SKR_F16
#define TYPE_bf16   SKR_BF16
#define KIND_plain  SKR_ATTENTION_PLAIN
#define KIND_scored SKR_ATTENTION_SCORED
#define KIND_any    SKR_ATTENTION_ANY
#define KIND_small  SKR_ATTENTION_ANY
#define FLIP_q      false
#define FLIP_k      true
#define FLIP_a      true

#define KERNEL(name, threads, blocks, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ skr_attention_job job)  \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }
#define FORWARD(kind, type, d, dv, bm, bn, wm, wv, stages, blocks)                                                     \
    KERNEL(skr_attention_##kind##_##type##_##d, 32 * wm * wv, blocks,                                                  \
           attention_forward<TYPE_##type, d, dv, bm, bn, wm, wv, stages, KIND_##kind>)
#define GRADIENT(kind, type, d, dv, side, br, bc, wm, wv, stages, blocks)                                              \
    KERNEL(skr_attention_d##side##_##kind##_##type##_##d, 32 * wm * wv, blocks,                                        \
           attention_gradient<TYPE_##type, d, dv, br, bc, wm, wv, stages, FLIP_##side, KIND_##kind>)
#define BIAS(kind, type, d, dv, br, bc, wm)                                                                            \
    KERNEL(skr_attention_dbias_##kind##_##type##_##d, 32 * wm, 1, attention_bias<TYPE_##type, d, dv, br, bc, wm>)
#define NONE(...)

/* TAKE_kind_type: FORWARD or GRADIENT, defined by the file whose kernels these are; the rest is in other files. */
#ifndef TAKE_plain_f16
#define TAKE_plain_f16 NONE
#endif
#ifndef TAKE_plain_bf16
#define TAKE_plain_bf16 NONE
#endif
#ifndef TAKE_scored_f16
#define TAKE_scored_f16 NONE
#endif
#ifndef TAKE_scored_bf16
#define TAKE_scored_bf16 NONE
#endif
#ifndef TAKE_any_f16
#define TAKE_any_f16 NONE
#endif
#ifndef TAKE_any_bf16
#define TAKE_any_bf16 NONE
#endif
#ifndef TAKE_any_f32
#define TAKE_any_f32 NONE
#endif
#ifndef TAKE_small_f16
#define TAKE_small_f16 NONE
#endif
#ifndef TAKE_small_bf16
#define TAKE_small_bf16 NONE
#endif
#ifndef TAKE_small_f32
#define TAKE_small_f32 NONE
#endif

#endif
