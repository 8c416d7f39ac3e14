/* gemm_groups_sm90.cu - the instances of gemm_groups_tma.cuh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_groups_tma.cuh"

#define SKR_GEMM_GROUPS(types, A, B, sums, columns, layout, BT)                                                        \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                               \
        skr_gemm_groups_##types##_##layout(const __grid_constant__ skr_gemm_job job)                                   \
    {                                                                                                                  \
        gemm_groups_tma<A, B, sums, columns, BT>::run(job);                                                            \
    }
#include "gemm_groups.def"
