/* mma.cuh - the matrix instructions of a warp, on every GPU that Saker runs on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CUDA_MMA_CUH
#define SKR_CUDA_MMA_CUH

#include "device.cuh"

/* d += a x b: 16 rows, 8 columns, 16 k of f16 or bf16. With g = lane / 4 and q = lane % 4, a has (row g, k 2q), (g + 8,
 * 2q), (g, 2q + 8), (g + 8, 2q + 8), b (k 2q, column g), (2q + 8, g), two neighbours along k each; d has (row g,
 * columns 2q and 2q + 1), (g + 8, the same). */
template <int T> SKR_DEVICE void mma_k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (T == SKR_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
