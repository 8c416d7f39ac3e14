/* attention_tma_sm90.cu - attention forward for Hopper, f16 and bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_tma.cuh"

#include "attention_kernels.cuh"
#define SKR_TMA(kind, type, d, bn, stages, q_stages)                                                                   \
    KERNEL(skr_attention_tma_##kind##_##type##_##d, 384, 1,                                                            \
           attention_tma<TYPE_##type, d, bn, stages, q_stages, KIND_##kind>)
#include "attention_kernels.def"
