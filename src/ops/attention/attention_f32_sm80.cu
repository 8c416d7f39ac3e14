/* attention_f32_sm80.cu - attention forward, f32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_forward.cuh"

#define TAKE_any_f32 FORWARD
#include "attention_kernels.cuh"
#define SKR_FORWARD(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
