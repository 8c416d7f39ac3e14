/* gemm_e5m2_sm90.cu - the gemm kernels for Hopper, a of e5m2, b of either fp8.
 * SPDX-License-Identifier: Apache-2.0 */
#define SKR_GEMM_ONLY 6
#include "gemm_tma_kernels.cuh"
