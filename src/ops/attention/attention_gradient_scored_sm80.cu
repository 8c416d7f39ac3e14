/* attention_gradient_scored_sm80.cu - attention's gradients with softcap, slopes and bias, f16 and bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_gradient.cuh"

#define TAKE_scored_f16  GRADIENT
#define TAKE_scored_bf16 GRADIENT
#include "attention_kernels.cuh"
#define SKR_GRADIENT(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
