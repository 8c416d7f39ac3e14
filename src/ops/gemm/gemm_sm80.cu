/* gemm_sm80.cu - the gemm kernels that every GPU runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_any.cuh"
#include "gemm_finish.cuh"
#include "gemm_rows.cuh"

#define KERNEL(name, bounds, ...)                                                                                      \
    extern "C" __global__ void __launch_bounds__ bounds name(const __grid_constant__ skr_gemm_job job)                 \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }

KERNEL(skr_gemm_any_float, (256, 2), gemm_any<float>::run)
KERNEL(skr_gemm_any_int, (256, 2), gemm_any<int32_t>::run)
KERNEL(skr_gemm_rows_bf16, (512, 1), gemm_rows<SKR_BF16>::run)
KERNEL(skr_gemm_rows_f16, (512, 1), gemm_rows<SKR_F16>::run)
KERNEL(skr_gemm_add_dbias, (256), gemm_add_dbias)
KERNEL(skr_gemm_finish_float, (256, 2), gemm_finish<float>::run)
KERNEL(skr_gemm_finish_int, (256, 2), gemm_finish<int32_t>::run)
