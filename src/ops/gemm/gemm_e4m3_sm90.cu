/* gemm_e4m3_sm90.cu - the gemm kernels for Hopper, a of e4m3, b of either fp8.
 * SPDX-License-Identifier: Apache-2.0 */
#define SKR_GEMM_ONLY 5
#include "gemm_tma_kernels.cuh"
