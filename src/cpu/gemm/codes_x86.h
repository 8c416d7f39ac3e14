/* codes_x86.h - runs of i8 and i4 weights as what a level multiplies: f32, bf16, f16 or bytes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An i4 is looked up: what its 16 values become, zero point and scale included, is in a register. Bits above the index
 * are not looked at, so a byte that was shifted beside itself needs no mask. */
#ifndef SKR_CPU_CODES_X86_H
#define SKR_CPU_CODES_X86_H

#include "tile.h"

/* n codes of each of some columns, which share a zero point and a scale: column i begins at element at + i * rs, and
 * goes to element i * pitch of `to`. zeros, scales: of the columns, or NULL. Each of the functions returns how many
 * codes of every column it did; i4 begin with whole bytes. */
typedef struct code_columns {
    const void *data;
    int64_t at, rs;
    int type, columns, n;
    const float *zeros, *scales;
    void *to;
    int64_t pitch;
} code_columns;

enum { CODES_AHEAD = 256 }; /* bytes that a column is asked for early: on a Xeon there are 16 to 64 at a time */

/* The first column, and the bytes from one to the next. */
SKR_FN const uint8_t *codes_of(int type, const code_columns *c)
{
    return (const uint8_t *)c->data + (type == SKR_I4 ? c->at / 2 : c->at);
}

SKR_FN int64_t codes_step(int type, const code_columns *c)
{
    return type == SKR_I4 ? c->rs / 2 : c->rs;
}

#if defined(SKR_LEVEL_avx2)

/* SKR_LANES codes as they are. */
SKR_FN vf plain_codes(int type, const uint8_t *from)
{
    if (type == SKR_I8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
    int32_t eight;
    __builtin_memcpy(&eight, from, 4);
    const __m256i places = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0); /* each to the left end, then back */
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(eight), places), 28));
}

/* (code - zero) * scale. */
SKR_FN vf some_floats(int type, const uint8_t *from, vf zero, vf scale)
{
    return v_mul(v_sub(plain_codes(type, from), zero), scale);
}

#else

SKR_FN vf plain_bytes(const uint8_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}

/* (code - zero) * scale. */
SKR_FN vf some_floats(int type, const uint8_t *from, vf zero, vf scale)
{
    if (type == SKR_I8)
        return v_mul(v_sub(plain_bytes(from), zero), scale);
    const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    __m512i wide = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)from));
    wide = _mm512_or_si512(wide, _mm512_slli_epi64(wide, 28));
    return _mm512_permutexvar_ps(wide, v_mul(v_sub(values, zero), scale));
}

#endif

/* (code - zero) * scale. */
SKR_FN int codes_to_floats(int type, const code_columns *c)
{
    const int n = c->n - c->n % SKR_LANES;
    const uint8_t *from = codes_of(type, c);
    float *to = c->to;
    for (int i = 0; i < c->columns; i++, from += codes_step(type, c), to += c->pitch) {
        _mm_prefetch((const char *)from + CODES_AHEAD, _MM_HINT_T0);
        vf zero = v_set1(c->zeros ? c->zeros[i] : 0.0f), scale = v_set1(c->scales ? c->scales[i] : 1.0f);
        for (int k = 0; k < n; k += SKR_LANES)
            v_store_float(SKR_F32, to, k, some_floats(type, from + (type == SKR_I4 ? k / 2 : k), zero, scale));
    }
    return n;
}

#if HAS_BF16
/* Whole numbers of two vectors as halves of that kind, which is exact. */
SKR_FN __m512i halves_of(int kind, vf low, vf high)
{
#if HAS_F16
    if (kind == SKR_GEMM_F16)
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT)),
                                  _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT), 1);
#endif
    (void)kind;
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* What the 16 values of an i4 become, twice: an index has five bits, of which four are the code's. */
SKR_FN __m512i halves_table(int kind, float zero)
{
    static const uint8_t all[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
    vf values = some_floats(SKR_I4, all, v_set1(zero), v_set1(1.0f));
    return halves_of(kind, values, values);
}

/* 32 codes less zero; of i4 the table has them so. */
SKR_FN void some_halves(int kind, int type, const uint8_t *from, __m512i table, const float *zero, uint16_t *to)
{
    if (type == SKR_I4) {
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
        wide = _mm512_or_si512(wide, _mm512_slli_epi32(wide, 12));
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(wide, table));
    } else {
        vf low = plain_bytes(from), high = plain_bytes(from + 16);
        if (zero)
            low = v_sub(low, v_set1(*zero)), high = v_sub(high, v_set1(*zero));
        _mm512_storeu_si512(to, halves_of(kind, low, high));
    }
}

SKR_FN int codes_to_halves(int kind, int type, const code_columns *c)
{
    enum { AT_ONCE = 128 };
    const int n = c->n - c->n % 32;
    const uint8_t *from = codes_of(type, c);
    uint16_t *to = c->to;
    __m512i table = halves_table(kind, 0.0f);
    for (int i = 0; i < c->columns; i++, from += codes_step(type, c), to += c->pitch) {
        const float *zero = c->zeros ? c->zeros + i : NULL;
        int k = 0;
        _mm_prefetch((const char *)from + CODES_AHEAD, _MM_HINT_T0);
        if (type == SKR_I8) /* AT_ONCE of them are two lines */
            _mm_prefetch((const char *)from + CODES_AHEAD + 64, _MM_HINT_T0);
        if (type == SKR_I4 && zero)
            table = halves_table(kind, *zero);
        for (; k + AT_ONCE <= n; k += AT_ONCE)
            UNROLLED
        for (int u = 0; u < AT_ONCE; u += 32)
            some_halves(kind, type, from + (type == SKR_I4 ? (k + u) / 2 : k + u), table, zero, to + k + u);
        for (; k < n; k += 32)
            some_halves(kind, type, from + (type == SKR_I4 ? k / 2 : k), table, zero, to + k);
    }
    return n;
}
#endif

#if HAS_I8
/* 64 codes. */
SKR_FN void some_bytes(const uint8_t *from, int8_t *to)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    __m512i wide = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
    wide = _mm512_and_si512(_mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)), low);
    _mm512_storeu_si512(to, _mm512_shuffle_epi8(table, wide));
}

SKR_FN int nibbles_to_bytes(const code_columns *c)
{
    enum { AT_ONCE = 128 };
    const int n = c->n - c->n % 64;
    const uint8_t *from = codes_of(SKR_I4, c);
    int8_t *to = c->to;
    for (int i = 0; i < c->columns; i++, from += codes_step(SKR_I4, c), to += c->pitch) {
        int k = 0;
        _mm_prefetch((const char *)from + CODES_AHEAD, _MM_HINT_T0);
        for (; k + AT_ONCE <= n; k += AT_ONCE)
            UNROLLED
        for (int u = 0; u < AT_ONCE; u += 64)
            some_bytes(from + (k + u) / 2, to + k + u);
        for (; k < n; k += 64)
            some_bytes(from + k / 2, to + k);
    }
    return n;
}
#endif

/* As a panel of that kind has them. */
static int convert_codes(int kind, const code_columns *c)
{
    if (c->type != SKR_I8 && (c->type != SKR_I4 || c->at & 1 || c->rs & 1))
        return 0;
#if HAS_BF16
    if (kind == SKR_GEMM_BF16)
        return c->type == SKR_I4 ? codes_to_halves(SKR_GEMM_BF16, SKR_I4, c)
                                 : codes_to_halves(SKR_GEMM_BF16, SKR_I8, c);
#endif
#if HAS_F16
    if (kind == SKR_GEMM_F16)
        return c->type == SKR_I4 ? codes_to_halves(SKR_GEMM_F16, SKR_I4, c) : codes_to_halves(SKR_GEMM_F16, SKR_I8, c);
#endif
#if HAS_I8
    if (kind == SKR_GEMM_I8)
        return c->type == SKR_I4 ? nibbles_to_bytes(c) : 0;
#endif
    if (kind != SKR_GEMM_F32)
        return 0;
    return c->type == SKR_I4 ? codes_to_floats(SKR_I4, c) : codes_to_floats(SKR_I8, c);
}

#endif
