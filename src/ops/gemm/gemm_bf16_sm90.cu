/* gemm_bf16_sm90.cu - the gemm kernels for Hopper, bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#define SKR_GEMM_ONLY 1
#include "gemm_tma_kernels.cuh"
