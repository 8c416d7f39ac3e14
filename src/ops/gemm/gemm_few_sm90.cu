/* gemm_few_sm90.cu - the instances of gemm_few.cuh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_few.cuh"

#define SKR_GEMM_FEW(type, T, B, layout, BT, rows)                                                                     \
    extern "C" __global__ void __launch_bounds__(SKR_GEMM_CODE_THREADS(T, B), 1)                                       \
        skr_gemm_few_##type##_##layout##_##rows(const __grid_constant__ skr_gemm_job job)                              \
    {                                                                                                                  \
        gemm_few<T, B, rows, BT>::run(job);                                                                            \
    }
#include "gemm_few.def"
