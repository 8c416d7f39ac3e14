/* gemm_groups_f16_sm90.cu - grouped_gemm for Hopper, f16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_groups_tma.cuh"

SKR_GEMM_GROUPS(f16, SKR_F16)
