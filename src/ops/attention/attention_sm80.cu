/* attention_sm80.cu - the forward kernels of attention in f16 and bf16. SPDX-License-Identifier: Apache-2.0 */
#include "attention_forward.cuh"
#define KERNEL(name, ...)                                                                                              \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::threads, 1)                                              \
        name(const __grid_constant__ skr_attention_job job)                                                            \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }
#ifndef V
#define V 1
#endif
#if V & 1
KERNEL(plain_bf16_128, attention_forward<SKR_BF16, 128, 128, 128, 64, 4, 1, 2, false>)
#endif
#if V & 2
KERNEL(plain_bf16_64, attention_forward<SKR_BF16, 64, 64, 128, 64, 4, 1, 2, false>)
#endif
#if V & 4
KERNEL(full_bf16_128, attention_forward<SKR_BF16, 128, 128, 128, 64, 4, 1, 2, true>)
#endif
