/* gemm_groups_bf16_sm90.cu - grouped_gemm for Hopper, bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_groups_tma.cuh"

SKR_GEMM_GROUPS(bf16, SKR_BF16)
