/* gemm_tf32_sm90.cu - the gemm kernels for Hopper, f32 that the copy engine rounds to tf32.
 * SPDX-License-Identifier: Apache-2.0 */
#define SKR_GEMM_ONLY 4
#include "gemm_tma_kernels.cuh"
