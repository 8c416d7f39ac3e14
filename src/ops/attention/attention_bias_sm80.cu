/* attention_bias_sm80.cu - the gradient of attention's bias. SPDX-License-Identifier: Apache-2.0 */
#include "attention_bias.cuh"
#include "attention_kernels.cuh"

#define SKR_BIAS BIAS
#include "attention_kernels.def"
