/* gemm_mma_sm80.cu - the instances of gemm_mma.cuh, and the table of grouped_gemm's groups.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_mma.cuh"

#define SKR_GEMM_MMA(type, T, layout, AT, BT, any, wide)                                                               \
    extern "C" __global__ void __launch_bounds__(256, any ? 1 : 2)                                                     \
        skr_gemm_mma_##type##_##layout(const __grid_constant__ skr_gemm_job job)                                       \
    {                                                                                                                  \
        gemm_mma<T, AT, BT, any, wide>::run(job);                                                                      \
    }
#include "gemm_mma.def"

extern "C" __global__ void __launch_bounds__(256) skr_gemm_group_table(const __grid_constant__ skr_grouped_gemm_job job)
{
    gemm_table::run(job);
}
