/* gemm_i8_sm90.cu - the gemm kernels for Hopper, i8.
 * SPDX-License-Identifier: Apache-2.0 */
#define SKR_GEMM_ONLY 3
#include "gemm_tma_kernels.cuh"
