/* attention_gradient_f32_sm80.cu - attention's gradients, f32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_gradient.cuh"

#define TAKE_any_f32 GRADIENT
#include "attention_kernels.cuh"
#define SKR_GRADIENT(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
