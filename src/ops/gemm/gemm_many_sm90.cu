/* gemm_many_sm90.cu - the instances of gemm_many.cuh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_many.cuh"

#define SKR_GEMM_MANY(types, T, B)                                                                                     \
    extern "C" __global__ void __launch_bounds__(SKR_GEMM_CODE_THREADS(T, B), 1)                                       \
        skr_gemm_many_##types(const __grid_constant__ skr_gemm_job job)                                                \
    {                                                                                                                  \
        gemm_many<T, B>::run(job);                                                                                     \
    }
#include "gemm_many.def"
