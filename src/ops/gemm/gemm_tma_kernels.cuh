/* gemm_tma_kernels.cuh - the instances of one type's file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_tma.cuh"

#define SKR_GEMM_TMA(file, types, A, B, sums, layout, AT, BT, columns)                                                 \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                               \
        skr_gemm_##types##_##layout##_##columns(const __grid_constant__ skr_gemm_job job)                              \
    {                                                                                                                  \
        gemm_tma<A, B, sums, columns, AT, BT>::run(job);                                                               \
    }
#include "gemm_kernels.def"
