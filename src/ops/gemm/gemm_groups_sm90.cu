/* gemm_groups_sm90.cu - the instances of gemm_groups_tma.cuh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_groups_tma.cuh"

#define KERNEL(type, T, layout, BT)                                                                                    \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                               \
        skr_gemm_groups_##type##_##layout(const __grid_constant__ skr_gemm_job job)                                    \
    {                                                                                                                  \
        gemm_groups_tma<T, BT>::run(job);                                                                              \
    }

KERNEL(bf16, SKR_BF16, kk, 0)
KERNEL(bf16, SKR_BF16, kn, 1)
KERNEL(f16, SKR_F16, kk, 0)
KERNEL(f16, SKR_F16, kn, 1)
