/* gemm_f16_sm90.cu - the gemm kernels for Hopper, f16.
 * SPDX-License-Identifier: Apache-2.0 */
#define SKR_GEMM_ONLY 2
#include "gemm_tma_kernels.cuh"
