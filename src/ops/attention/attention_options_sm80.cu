/* attention_options_sm80.cu - the forward kernels of attention with every option, f16 and bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#define TAKE_plain_f16    DROP
#define TAKE_plain_bf16   DROP
#define TAKE_options_f16  KEEP
#define TAKE_options_bf16 KEEP
#define TAKE_options_f32  DROP
#include "attention_kernels.cuh"
