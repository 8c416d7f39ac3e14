/* attention_tma_gradient_sm90.cu - attention's gradients for Hopper, f16 and bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_tma_gradient.cuh"

#include "attention_kernels.cuh"
#define SUMS_q false
#define SUMS_k false
#define SUMS_a true
#define SKR_TMA_GRADIENT(kind, type, d, side, bc, stages, row_stages)                                                  \
    KERNEL(skr_attention_tma_d##side##_##kind##_##type##_##d, 384, 1,                                                  \
           attention_tma_gradient<TYPE_##type, d, bc, stages, row_stages, FLIP_##side, SUMS_##side, KIND_##kind>)
#include "attention_kernels.def"
