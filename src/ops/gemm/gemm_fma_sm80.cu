/* gemm_fma_sm80.cu - the kernels of true f32: the instances of gemm_fma.cuh and gemm_vector.cuh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_fma.cuh"
#include "gemm_vector.cuh"

#define SKR_GEMM_FMA(tile, layout, down, across, rows, a_way, b_way, blocks)                                           \
    extern "C" __global__ void __launch_bounds__(SKR_GEMM_FMA_THREADS, blocks)                                         \
        skr_gemm_fma_##tile##_##layout(const __grid_constant__ skr_gemm_job job)                                       \
    {                                                                                                                  \
        gemm_fma<down, across, rows, a_way, b_way>::run(job);                                                          \
    }
#include "gemm_fma.def"

#define VECTOR(rows, layout, along_k)                                                                                  \
    extern "C" __global__ void __launch_bounds__(SKR_GEMM_VECTOR_THREADS, 2)                                           \
        skr_gemm_vector_##rows##_##layout(const __grid_constant__ skr_gemm_job job)                                    \
    {                                                                                                                  \
        gemm_vector<rows, along_k>::run(job);                                                                          \
    }
VECTOR(1, kk, true)
VECTOR(4, kk, true)
VECTOR(8, kk, true)
VECTOR(1, kn, false)
VECTOR(4, kn, false)
