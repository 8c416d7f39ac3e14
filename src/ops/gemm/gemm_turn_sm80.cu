/* gemm_turn_sm80.cu - the instances of gemm_turn.cuh, for elements of 1 byte and of 4.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_turn.cuh"

#define KERNEL(name, E, side)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ skr_gemm_job job)                   \
    {                                                                                                                  \
        gemm_turn<E>::side(job);                                                                                       \
    }

KERNEL(skr_gemm_turn_a_1, uint8_t, a)
KERNEL(skr_gemm_turn_a_4, uint32_t, a)
KERNEL(skr_gemm_turn_b_1, uint8_t, b)
KERNEL(skr_gemm_turn_b_4, uint32_t, b)
