/* attention_decode_sm80.cu - attention_decode on any GPU: instances.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_decode.cuh"

#define KERNEL(name, blocks, ...)                                                                                      \
    extern "C" __global__ void __launch_bounds__(SKR_DECODE_THREADS, blocks)                                           \
        skr_attention_decode_##name(const __grid_constant__ decode_job job)                                            \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }
#define SKR_DECODE(rows, columns, blocks) KERNEL(rows_##rows##_##columns, blocks, decode_part<rows, columns>)
#include "attention_decode_kernels.def"
KERNEL(merge, 8, decode_merge)
KERNEL(append, 4, decode_append)
