/* attention_any_sm80.cu - attention forward with every option, f16 and bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_forward.cuh"

#define TAKE_any_f16  FORWARD
#define TAKE_any_bf16 FORWARD
#include "attention_kernels.cuh"
#define SKR_FORWARD(kind, type, ...) TAKE_##kind##_##type(kind, type, __VA_ARGS__)
#include "attention_kernels.def"
