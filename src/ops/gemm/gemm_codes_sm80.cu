/* gemm_codes_sm80.cu - the instances of gemm_codes.cuh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_codes.cuh"

#define SKR_GEMM_CODES(type, T, code, CODE, rows, groups, FINE)                                                        \
    extern "C" __global__ void __launch_bounds__(SKR_GEMM_CODES_THREADS, rows == 8 && !FINE ? 2 : 1)                   \
        skr_gemm_codes_##type##_##code##_##rows##_##groups(const __grid_constant__ skr_gemm_job job)                   \
    {                                                                                                                  \
        gemm_codes<T, CODE, rows / 8, FINE>::run(job);                                                                 \
    }
#include "gemm_codes.def"
