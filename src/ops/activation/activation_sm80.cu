/* activation_sm80.cu - the kernels of activation that run on every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "activation.cuh"

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
#define KERNEL(name, bounds, ...)                                                                                      \
    extern "C" __global__ void __launch_bounds__ bounds name(const __grid_constant__ skr_activation_job job)           \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }

#define FLAT(type)                                                                                                     \
    KERNEL(skr_activation_flat_##type##_0, (FLAT_THREADS), forward_flat<TYPE_##type, PLAIN>)                           \
    KERNEL(skr_activation_flat_##type##_1, (FLAT_THREADS), forward_flat<TYPE_##type, SPLIT>)                           \
    KERNEL(skr_activation_flat_##type##_2, (FLAT_THREADS), forward_flat<TYPE_##type, PAIRS>)
FLAT(f32)
FLAT(f16)
FLAT(bf16)

#define SKR_ACT_ROWS_OF(type, lanes, threads, vpt)                                                                     \
    KERNEL(skr_activation_rows_##type##_##lanes##x##vpt, (threads),                                                    \
           forward_rows<TYPE_##type, block_owner<lanes, threads>, vpt>::run)
#include "activation_kernels.def"

KERNEL(skr_activation_any, (ANY_THREADS, 1), forward_any)
