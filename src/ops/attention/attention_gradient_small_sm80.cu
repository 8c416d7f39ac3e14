/* attention_gradient_small_sm80.cu - attention's gradients with every option in small tiles, for GPUs with little
 * shared memory. SPDX-License-Identifier: Apache-2.0 */
#include "attention_gradient.cuh"

#define TAKE_small_f16  GRADIENT
#define TAKE_small_bf16 GRADIENT
#define TAKE_small_f32  GRADIENT
#include "attention_kernels.cuh"
#define SKR_GRADIENT(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
