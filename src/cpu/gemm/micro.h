/* micro.h - register tiles that every level has: f32 in the words of simd.h, and 32-bit integers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * micro_<kind>(k, a, b, t): t[mr][nr] = the sums over k of a's rows times b's columns, from one panel of each. Every
 * sum is one chain in the order of k. Loops over accumulators are unrolled: one that is not puts them all in memory.
 * micro_bf16_on(k, a, b, factors, t): the sums in t, times the factors of its columns, go on. Where X86_BF16 is 1 t
 * has rows as above and factors may be NULL; BFMMLA's t is in the order of its accumulators. */
#ifndef SKR_CPU_MICRO_H
#define SKR_CPU_MICRO_H

#include "tile.h"

#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)

#include "micro_neon.h"

#else

SKR_IN_ORDER static void micro_f32(int64_t k, const float *a, const float *b, float *t)
{
    enum { MR = TILE(F32, MR), NR = TILE(F32, NR), NV = NR / SKR_LANES };
    vf acc[MR][NV];
    UNROLLED
    for (int i = 0; i < MR * NV; i++)
        acc[i / NV][i % NV] = v_set1(0.0f);
    for (; k > 0; k--, a += MR, b += NR) {
        vf v[NV];
        UNROLLED
        for (int j = 0; j < NV; j++) {
            v[j] = v_load(SKR_F32, b, j * SKR_LANES);
            if (SKR_LANES == 16) /* a panel of b is as large as L1, and half of it comes from L2: 6 % on a Xeon */
                __builtin_prefetch(b + j * SKR_LANES + 8 * NR);
        }
        UNROLLED
        for (int i = 0; i < MR; i++) {
            vf s = v_set1(a[i]);
            UNROLLED
            for (int j = 0; j < NV; j++)
                acc[i][j] = v_fma(s, v[j], acc[i][j]);
        }
    }
    UNROLLED
    for (int i = 0; i < MR * NV; i++)
        v_store_float(SKR_F32, t, i / NV * NR + i % NV * SKR_LANES, acc[i / NV][i % NV]);
}

#endif

/* Modulo 2^32; the compiler's own vectors. */
static void micro_int(int64_t k, const uint32_t *a, const uint32_t *b, uint32_t *t)
{
    enum { MR = TILE(INT, MR), NR = TILE(INT, NR) };
    for (int i = 0; i < MR; i++) {
        uint32_t acc[NR] = {0};
        for (int64_t p = 0; p < k; p++)
            for (int j = 0; j < NR; j++)
                acc[j] += a[p * MR + i] * b[p * NR + j];
        __builtin_memcpy(t + i * NR, acc, sizeof acc);
    }
}

#if defined(SKR_LEVEL_neonmm)
#include "micro_neonmm.h"
#elif defined(SKR_LEVEL_avx512) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#include "micro_avx512.h"
#endif

/* The tile of that kind. */
SKR_FN void micro(int kind, int64_t k, const void *a, const void *b, float *t)
{
#if HAS_BF16
    if (kind == SKR_GEMM_BF16) {
        micro_bf16(k, a, b, t);
        return;
    }
#endif
#if HAS_F16
    if (kind == SKR_GEMM_F16) {
        micro_f16(k, a, b, t);
        return;
    }
#endif
#if HAS_I8
    if (kind == SKR_GEMM_I8) {
        micro_i8(k, a, b, t);
        return;
    }
#endif
    if (kind == SKR_GEMM_F32)
        micro_f32(k, a, b, t);
    else
        micro_int(k, a, b, (uint32_t *)t);
}

/* The same added to what t, of mr rows and nr columns, holds. */
SKR_FN void micro_add(int kind, int mr, int nr, int64_t k, const void *a, const void *b, float *t)
{
    _Alignas(64) float sums[SKR_GEMM_MAX_MR * SKR_GEMM_MAX_NR];
#if X86_BF16
    if (kind == SKR_GEMM_BF16) {
        micro_bf16_on(k, a, b, NULL, t);
        return;
    }
#endif
#if HAS_F16
    if (kind == SKR_GEMM_F16) {
        micro_f16_on(k, a, b, NULL, t);
        return;
    }
#endif
    micro(kind, k, a, b, sums);
    for (int i = 0; i < mr * nr; i += SKR_LANES)
        v_store_float(SKR_F32, t, i, v_add(v_load(SKR_F32, t, i), v_load(SKR_F32, sums, i)));
}

#endif
