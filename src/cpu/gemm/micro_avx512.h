/* micro_avx512.h - register tiles of x86-64's dot-product and matrix instructions: VNNI, AVX512-BF16, AMX.
 * SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: 12 rows x two vectors of 16 columns; a's k pairs (bf16) or quadruples (i8) are broadcast as 32-bit words.
 * AMX: 32 x 32 as 2 x 2 tiles of 16 x 16; a's panel holds whole tile rows of 64 bytes, b's the same words as AVX-512.
 */
#ifndef SKR_CPU_MICRO_AVX512_H
#define SKR_CPU_MICRO_AVX512_H

#include "tile.h"

#if !defined(SKR_LEVEL_amx)

SKR_FN __m512i word_at(const void *p)
{
    int32_t w;
    __builtin_memcpy(&w, p, 4);
    return _mm512_set1_epi32(w);
}

/* acc + the products of unsigned by signed bytes. Not the intrinsic: GCC 12 keeps the accumulators of a whole tile on
 * the stack, too, and stores all of them in each step. */
SKR_FN __m512i dot_bytes(__m512i acc, __m512i a, __m512i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

/* a's panel holds a + 128: 128 times b's sums, made beside, are taken off again. */
SKR_IN_ORDER static void micro_i8(int64_t k, const int8_t *a, const int8_t *b, float *t)
{
    enum { MR = TILE(I8, MR), NR = TILE(I8, NR) };
    _Static_assert(A_PLUS_128, "a's panels hold a + 128");
    __m512i acc[MR][2], extra0 = _mm512_setzero_si512(), extra1 = extra0;
    const __m512i least = _mm512_set1_epi8((char)0x80);
    UNROLLED
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = _mm512_setzero_si512();
    for (; k > 0; k -= 4, a += 4 * MR, b += 4 * NR) {
        __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
        extra0 = dot_bytes(extra0, least, b0);
        extra1 = dot_bytes(extra1, least, b1);
        UNROLLED
        for (int i = 0; i < MR; i++) {
            __m512i x = word_at(a + 4 * i);
            acc[i][0] = dot_bytes(acc[i][0], x, b0);
            acc[i][1] = dot_bytes(acc[i][1], x, b1);
        }
    }
    UNROLLED
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_si512(t + i * NR, _mm512_sub_epi32(acc[i][0], extra0));
        _mm512_storeu_si512(t + i * NR + 16, _mm512_sub_epi32(acc[i][1], extra1));
    }
}

#if defined(SKR_LEVEL_avx512bf16)
/* on: the sums in t go on; factors: of its columns, or NULL. */
SKR_FN void bf16_tile(bool on, int64_t k, const uint16_t *a, const uint16_t *b, const float *factors, float *t)
{
    enum { MR = TILE(BF16, MR), NR = TILE(BF16, NR) };
    __m512 acc[MR][2];
    UNROLLED
    for (int i = 0; i < 2 * MR; i++)
        acc[i / 2][i % 2] = on ? _mm512_loadu_ps(t + i / 2 * NR + i % 2 * 16) : _mm512_setzero_ps();
    if (factors) {
        UNROLLED
        for (int i = 0; i < 2 * MR; i++)
            acc[i / 2][i % 2] = _mm512_mul_ps(acc[i / 2][i % 2], _mm512_loadu_ps(factors + i % 2 * 16));
    }
    for (; k > 0; k -= 2, a += 2 * MR, b += 2 * NR) {
        __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 32);
        UNROLLED
        for (int i = 0; i < MR; i++) {
            __m512bh x = (__m512bh)word_at(a + 2 * i);
            acc[i][0] = _mm512_dpbf16_ps(acc[i][0], x, b0);
            acc[i][1] = _mm512_dpbf16_ps(acc[i][1], x, b1);
        }
    }
    UNROLLED
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_ps(t + i * NR, acc[i][0]);
        _mm512_storeu_ps(t + i * NR + 16, acc[i][1]);
    }
}

SKR_IN_ORDER static void micro_bf16(int64_t k, const uint16_t *a, const uint16_t *b, float *t)
{
    bf16_tile(false, k, a, b, NULL, t);
}

SKR_IN_ORDER static void micro_bf16_on(int64_t k, const uint16_t *a, const uint16_t *b, const float *factors, float *t)
{
    bf16_tile(true, k, a, b, factors, t);
}
#endif

#else /* amx */

/* To the compiler the tile instructions read no memory (and a configuration is 8 bytes long): what is stored for them
 * has to be said to be used. */
SKR_FN void amx_stored(const void *p)
{
    __asm__ volatile("" ::"r"(p) : "memory");
}

/* Tiles have 16 rows of 64 bytes, but for the first five. */
static void amx_shape(int rows, int bytes)
{
    _Alignas(64) uint8_t config[64] = {1};
    for (int i = 0; i < 8; i++) {
        config[16 + 2 * i] = (uint8_t)(i < 5 ? bytes : 64);
        config[48 + i] = (uint8_t)(i < 5 ? rows : 16);
    }
    amx_stored(config);
    _tile_loadconfig(config);
}

/* Tiles 0 to 3 hold the result, 4 and 5 rows of a, 6 and 7 columns of b. */
static void amx_begin(void)
{
    amx_shape(16, 64);
}

static void amx_end(void)
{
    _tile_release();
}

#define AMX_ZERO                                                                                                       \
    _tile_zero(0);                                                                                                     \
    _tile_zero(1);                                                                                                     \
    _tile_zero(2);                                                                                                     \
    _tile_zero(3)
#define AMX_TAKE                                                                                                       \
    _tile_loadd(0, t, 128);                                                                                            \
    _tile_loadd(1, t + 16, 128);                                                                                       \
    _tile_loadd(2, t + 16 * 32, 128);                                                                                  \
    _tile_loadd(3, t + 16 * 32 + 16, 128)
/* beside: once for each step of 2 KiB of b's panel. a: `row` bytes from row to row, `next` from step to step. */
#define AMX_LOOP_OVER(row, next, begin, dot, beside)                                                                   \
    amx_stored(pa);                                                                                                    \
    begin;                                                                                                             \
    for (; k > 0; k -= step, pa += next, pb += AMX_STEP) {                                                             \
        _tile_loadd(6, pb, 128);                                                                                       \
        _tile_loadd(4, pa, row);                                                                                       \
        _tile_loadd(7, pb + 64, 128);                                                                                  \
        dot(0, 4, 6);                                                                                                  \
        beside;                                                                                                        \
        _tile_loadd(5, pa + 16 * (row), row);                                                                          \
        dot(1, 4, 7);                                                                                                  \
        dot(2, 5, 6);                                                                                                  \
        dot(3, 5, 7);                                                                                                  \
    }                                                                                                                  \
    _tile_stored(0, t, 128);                                                                                           \
    _tile_stored(1, t + 16, 128);                                                                                      \
    _tile_stored(2, t + 16 * 32, 128);                                                                                 \
    _tile_stored(3, t + 16 * 32 + 16, 128);
#define AMX_LOOP(begin, dot, beside) AMX_LOOP_OVER(64, AMX_STEP, begin, dot, beside)

enum { AMX_STEP = 2048 };

/* TDPFP16PS: GCC knows it from version 13 on, assemblers do from 2.40. */
#define AMX_DOT_F16(d, a, b)         __asm__ volatile(".byte 0xc4,0xe2,0x7b-8*" #b ",0x5c,0xc0+8*" #d "+" #a)

/* name_on: the sums in t go on; factors: of its columns, or NULL. */
#define AMX_HALVES(name, dot)                                                                                          \
    static void name(int64_t k, const uint16_t *a, const uint16_t *b, float *t)                                        \
    {                                                                                                                  \
        const char *pa = (const char *)a, *pb = (const char *)b;                                                       \
        enum { step = 32 };                                                                                            \
        AMX_LOOP(AMX_ZERO, dot, )                                                                                      \
    }                                                                                                                  \
    static void name##_on(int64_t k, const uint16_t *a, const uint16_t *b, const float *factors, float *t)             \
    {                                                                                                                  \
        const char *pa = (const char *)a, *pb = (const char *)b;                                                       \
        enum { step = 32 };                                                                                            \
        for (int i = 0; factors && i < 32 * 32; i += 16)                                                               \
            _mm512_storeu_ps(t + i, _mm512_mul_ps(_mm512_loadu_ps(t + i), _mm512_loadu_ps(factors + i % 32)));         \
        AMX_LOOP(AMX_TAKE, dot, )                                                                                      \
    }
AMX_HALVES(micro_bf16, _tile_dpbf16ps)
#if HAS_F16
AMX_HALVES(micro_f16, AMX_DOT_F16)
#endif
#undef AMX_HALVES

static void micro_i8(int64_t k, const int8_t *a, const int8_t *b, float *t)
{
    const char *pa = (const char *)a, *pb = (const char *)b;
    enum { step = 64 };
    AMX_LOOP(AMX_ZERO, _tile_dpbssd, )
}

/* Asks L2 for `lines` lines from `at` on; returns what comes behind them. */
SKR_FN const char *ask_lines(const char *at, int lines)
{
    for (int i = 0; i < lines; i++)
        _mm_prefetch(at + 64 * i, _MM_HINT_T1);
    return at + 64 * lines;
}

/* micro() of halves or bytes that asks for `lines` lines in each step. */
static void micro_ahead(int kind, int64_t k, const void *a, const void *b, float *t, const char *ahead, int lines)
{
    const char *pa = a, *pb = b;
    if (kind == SKR_GEMM_BF16) {
        enum { step = 32 };
        AMX_LOOP(AMX_ZERO, _tile_dpbf16ps, ahead = ask_lines(ahead, lines))
#if HAS_F16
    } else if (kind == SKR_GEMM_F16) {
        enum { step = 32 };
        AMX_LOOP(AMX_ZERO, AMX_DOT_F16, ahead = ask_lines(ahead, lines))
#endif
    } else {
        enum { step = 64 };
        AMX_LOOP(AMX_ZERO, _tile_dpbssd, ahead = ask_lines(ahead, lines))
    }
}

/* micro() of halves or bytes whose a lies as tiles want it, `row` bytes from row to row. */
static void micro_lying(int kind, int64_t k, const void *a, int64_t row, const void *b, float *t)
{
    const char *pa = a, *pb = b;
    if (kind == SKR_GEMM_BF16) {
        enum { step = 32 };
        AMX_LOOP_OVER(row, 64, AMX_ZERO, _tile_dpbf16ps, )
#if HAS_F16
    } else if (kind == SKR_GEMM_F16) {
        enum { step = 32 };
        AMX_LOOP_OVER(row, 64, AMX_ZERO, AMX_DOT_F16, )
#endif
    } else {
        enum { step = 64 };
        AMX_LOOP_OVER(row, 64, AMX_ZERO, _tile_dpbssd, )
    }
}
#undef AMX_LOOP
#undef AMX_LOOP_OVER
#undef AMX_TAKE
#undef AMX_ZERO

#endif

#endif
