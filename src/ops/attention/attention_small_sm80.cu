/* attention_small_sm80.cu - attention forward with every option in small tiles, for GPUs with little shared memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_forward.cuh"

#define TAKE_small_f16  FORWARD
#define TAKE_small_bf16 FORWARD
#define TAKE_small_f32  FORWARD
#include "attention_kernels.cuh"
#define SKR_FORWARD(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
