/* gemm_code_pairs.cuh - i4 and i8 weights as pairs of halves, exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_CODE_PAIRS_CUH
#define SKR_GEMM_CODE_PAIRS_CUH

#include "../../cuda/device.cuh"

/* a + b of two halves. */
template <int T> SKR_DEVICE uint32_t gemm_codes_add2(uint32_t a, uint32_t b)
{
    const uint32_t one = T == SKR_BF16 ? 0x3f803f80u : 0x3c003c00u;
    uint32_t r;
    if (T == SKR_BF16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(one), "r"(b));
    else
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(one), "r"(b));
    return r;
}

/* (a & b) ^ c in one instruction: of two constants the compiler makes two. */
SKR_DEVICE uint32_t gemm_and_xor(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* The i4 codes in bits 0 to 3 and 16 to 19; the others do not matter. A half whose last bits count ones, here 128 (f16:
 * 1024) and 8 more than the code, and what is too much. */
template <int T> SKR_DEVICE uint32_t gemm_i4_pair(uint32_t bits)
{
    const uint32_t more = T == SKR_BF16 ? 0x43084308u : 0x64086408u;
    return gemm_codes_add2<T>(gemm_and_xor(bits, 0x000f000fu, more), more ^ 0x80008000u);
}

/* The i8 codes in bits 0 to 7 and 16 to 23; the others are 0. In f16 as above; a bf16 counts ones up to 127 only, and
 * the sign is the last bit of the exponent of what is too much: 128 or 256. */
template <int T> SKR_DEVICE uint32_t gemm_i8_pair(uint32_t bits)
{
    if (T == SKR_BF16)
        return gemm_codes_add2<T>(gemm_and_xor(bits, 0x007f007fu, 0x43004300u),
                                  gemm_and_xor(bits, 0x00800080u, 0xc300c300u));
    return gemm_codes_add2<T>(bits ^ 0x64806480u, 0xe480e480u);
}

#endif
