/* pack_x86.h - whole panels on x86-64: transposes in registers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A group of k's that a panel keeps together is a 32-bit word here: one f32, two bf16, four i8. f16, and bf16 where it
 * is multiplied as f32, is widened on the way to one. Each function packs as many k's as fill its vectors, of a panel
 * without missing rows, and returns their number (0 when the strides are not for it); the rest is left to the plain
 * loops. */
#ifndef SKR_CPU_PACK_X86_H
#define SKR_CPU_PACK_X86_H

#include "tile.h"

SKR_FN __m256 two_rows_of(__m128 low, __m128 high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

/* Four words of eight rows, out[w]: word w of all rows. x[i]: rows i and i + 4. */
SKR_FN void turn_eight(const __m256 x[4], __m256 out[4])
{
    __m256d u0 = _mm256_castps_pd(_mm256_unpacklo_ps(x[0], x[1])),
            u1 = _mm256_castps_pd(_mm256_unpackhi_ps(x[0], x[1]));
    __m256d v0 = _mm256_castps_pd(_mm256_unpacklo_ps(x[2], x[3])),
            v1 = _mm256_castps_pd(_mm256_unpackhi_ps(x[2], x[3]));
    out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(u0, v0));
    out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(u0, v0));
    out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(u1, v1));
    out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(u1, v1));
}

/* Four neighbours as words: of type SKR_F32 they are, halves are widened. */
SKR_FN __m128 four_words(int type, const char *at)
{
    if (type == SKR_F32)
        return _mm_loadu_ps((const float *)at);
    __m128i halves = _mm_loadl_epi64((const __m128i *)at);
    if (type == SKR_F16)
        return _mm_cvtph_ps(halves);
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}

/* Four words of eight rows, `pitch` bytes apart. */
SKR_FN void eight_rows(int type, const char *from, int64_t pitch, __m256 out[4])
{
    __m256 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++)
        x[i] = two_rows_of(four_words(type, from + i * pitch), four_words(type, from + (i + 4) * pitch));
    turn_eight(x, out);
}

SKR_FN void four_rows(int type, const char *from, int64_t pitch, float *to, int R)
{
    __m128 x0 = four_words(type, from), x1 = four_words(type, from + pitch);
    __m128 x2 = four_words(type, from + 2 * pitch), x3 = four_words(type, from + 3 * pitch);
    _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
    _mm_storeu_ps(to, x0);
    _mm_storeu_ps(to + R, x1);
    _mm_storeu_ps(to + 2 * R, x2);
    _mm_storeu_ps(to + 3 * R, x3);
}

#if !defined(SKR_LEVEL_avx2)
/* Eight halves of sixteen rows, turned before they are widened: half the shuffles. x[i]: rows i and i + 8. */
SKR_FN void sixteen_rows(int type, const char *from, int64_t pitch, __m512 out[8])
{
    __m256i x[8], pairs[8];
    UNROLLED
    for (int i = 0; i < 8; i++) {
        __m128i high = _mm_loadu_si128((const __m128i *)(from + (i + 8) * pitch));
        x[i] = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(from + i * pitch)));
        x[i] = _mm256_inserti128_si256(x[i], high, 1);
    }
    UNROLLED
    for (int i = 0; i < 4; i++) { /* of rows 2 i and 2 i + 1: k's 0 to 3, and 4 to 7 */
        pairs[i] = _mm256_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
        pairs[i + 4] = _mm256_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
    }
    UNROLLED
    for (int k = 0; k < 8; k += 2) {
        const __m256i *p = pairs + k / 4 * 4;
        __m256i low = k & 2 ? _mm256_unpackhi_epi32(p[0], p[1]) : _mm256_unpacklo_epi32(p[0], p[1]);
        __m256i high = k & 2 ? _mm256_unpackhi_epi32(p[2], p[3]) : _mm256_unpacklo_epi32(p[2], p[3]);
        __m256i two[2] = {_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high)};
        UNROLLED
        for (int i = 0; i < 2; i++)
            out[k + i] = type == SKR_F16 ? _mm512_cvtph_ps(two[i])
                                         : v_of_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(two[i]), 16));
    }
}
#endif

/* k words of R rows, `pitch` bytes apart, whose words are neighbours. Rows of a power-of-two width fall into the same
 * sets of L1: a line of eight rows is used up before the next eight. */
SKR_FN int64_t turn_words(int type, int R, const char *from, int64_t pitch, int64_t k, float *to)
{
    const int size = type == SKR_F32 ? 4 : 2;
    int64_t p = 0;
    for (; p + 16 <= k; p += 16) {
        const char *here = from + p * size;
        int r = 0;
#if !defined(SKR_LEVEL_avx2)
        for (; size == 2 && r + 16 <= R; r += 16)
            for (int w = 0; w < 16; w += 8) {
                __m512 out[8];
                sixteen_rows(type, here + r * pitch + w * size, pitch, out);
                UNROLLED
                for (int i = 0; i < 8; i++)
                    _mm512_storeu_ps(to + (p + w + i) * R + r, out[i]);
            }
#endif
        for (; r + 8 <= R; r += 8)
            for (int w = 0; w < 16; w += 4) {
                __m256 out[4];
                eight_rows(type, here + r * pitch + w * size, pitch, out);
                UNROLLED
                for (int i = 0; i < 4; i++)
                    _mm256_storeu_ps(to + (p + w + i) * R + r, out[i]);
            }
        for (; r < R; r += 4) { /* the last four of six are the third and on */
            int at = r + 4 <= R ? r : R - 4;
            for (int w = 0; w < 16; w += 4)
                four_rows(type, here + at * pitch + w * size, pitch, to + (p + w) * R + at, R);
        }
    }
    return p;
}

/* Rows are neighbours: k's of one word each are copied, halves widened. */
SKR_FN int64_t copy_words(int type, int R, const char *from, int64_t pitch, int64_t k, float *to)
{
    for (int64_t p = 0; p < k; p++, from += pitch, to += R) {
        if (type == SKR_F32)
            __builtin_memcpy(to, from, (size_t)R * sizeof *to);
        else
            UNROLLED
        for (int r = 0; r < R; r += 4) {
            int at = r + 4 <= R ? r : R - 4;
            _mm_storeu_ps(to + at, four_words(type, from + 2 * at));
        }
    }
    return k;
}

/* Words, or halves that are widened to them. */
SKR_FN int64_t fast_words_of(int type, int R, const void *from, int64_t rs, int64_t ks, int64_t k, float *to)
{
    const int size = type == SKR_F32 ? 4 : 2;
    return ks == 1   ? turn_words(type, R, from, rs * size, k, to)
           : rs == 1 ? copy_words(type, R, from, ks * size, k, to)
                     : 0;
}

#if HAS_I8

/* Rows are neighbours, at most 16 of them: two k's of each, side by side. */
SKR_FN __m512i pairs_of(int n, const uint16_t *from, int64_t ks)
{
    __mmask16 some = (__mmask16)((1u << n) - 1);
    __m512i first = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from));
    __m512i second = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from + ks));
    return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/* Four k's of each. */
SKR_FN __m512i quads_of(int n, const uint8_t *from, int64_t ks)
{
    __mmask16 some = (__mmask16)((1u << n) - 1);
    __m512i all = _mm512_setzero_si512();
    UNROLLED
    for (int i = 0; i < 4; i++) {
        __m512i one = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, from + i * ks));
        all = _mm512_or_si512(all, _mm512_slli_epi32(one, 8 * i));
    }
    return all;
}

/* k's of R rows that are neighbours, GROUP of them to a word. */
SKR_FN int64_t group_words(int GROUP, int R, const void *from, int64_t ks, int64_t k, uint32_t *to)
{
    int64_t p = 0;
    for (; p + GROUP <= k; p += GROUP, to += R)
        UNROLLED
    for (int r = 0; r < R; r += 16) {
        int n = R - r < 16 ? R - r : 16;
        __m512i words = GROUP == 2 ? pairs_of(n, (const uint16_t *)from + p * ks + r, ks)
                                   : quads_of(n, (const uint8_t *)from + p * ks + r, ks);
        _mm512_mask_storeu_epi32(to + r, (__mmask16)((1u << n) - 1), words);
    }
    return p;
}

#endif

#if HAS_BF16
/* Two k's of 16 rows as bf16, side by side. Subnormals become 0, which they are in the products, too. */
SKR_FN __m512i bf16_pairs(vf first, vf second)
{
    _Alignas(64) static const uint16_t side_by_side[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(side_by_side), (__m512i)_mm512_cvtne2ps_pbh(second, first));
}
#endif

#if HAS_F16
/* The same as f16. */
SKR_FN __m512i f16_pairs(vf first, vf second)
{
    __m512i low = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(first, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __m512i high = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(second, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
#endif

#if defined(SKR_LEVEL_amx)
/* The panel of a: 64 bytes of k's to a row. Rows are neighbours: k's are put together to words, and these turned. */
static int64_t fast_tiles(int size, const char *from, int64_t ks, int64_t k, char *to)
{
    enum { R = 32, WORDS = 16 };
    const int step = 64 / size;
    int64_t p = 0;
    for (; p + step <= k; p += step, from += step * ks * size, to += R * 64) {
        _Alignas(64) uint32_t words[WORDS * R];
        if (size == 2)
            group_words(2, R, from, ks, step, words);
        else
            group_words(4, R, from, ks, step, words);
        turn_words(SKR_F32, WORDS, (const char *)words, 4 * R, R, (float *)to);
    }
    return p;
}
#endif

/* Elements of `size` bytes. */
SKR_FN int64_t fast_panel_of(int R, int size, const void *from, int64_t rs, int64_t ks, int64_t k, void *to)
{
    int group = 4 / size;
    if (size == 4)
        return fast_words_of(SKR_F32, R, from, rs, ks, k, to);
#if HAS_I8
    if (rs == 1)
        return size == 2 ? group_words(2, R, from, ks, k, to) : group_words(4, R, from, ks, k, to);
#endif
    if (ks == 1 && rs % group == 0)
        return group * turn_words(SKR_F32, R, from, rs * size, k / group, to);
    return 0;
}

static int64_t fast_panel(int size, const void *from, int64_t rs, int64_t ks, int R, int64_t k, void *to)
{
    switch (R) {
    case 6:
        return fast_panel_of(6, size, from, rs, ks, k, to);
    case 12:
        return fast_panel_of(12, size, from, rs, ks, k, to);
    case 16:
        return fast_panel_of(16, size, from, rs, ks, k, to);
    case 32:
        return fast_panel_of(32, size, from, rs, ks, k, to);
    default:
        return 0;
    }
}

/* Panels of f32 from halves. */
static int64_t widened_panel(int type, const void *from, int64_t rs, int64_t ks, int R, int64_t k, float *to)
{
    enum { MR = TILE(F32, MR), NR = TILE(F32, NR) };
    if (type == SKR_F16)
        return R == NR ? fast_words_of(SKR_F16, NR, from, rs, ks, k, to)
                       : fast_words_of(SKR_F16, MR, from, rs, ks, k, to);
    return R == NR ? fast_words_of(SKR_BF16, NR, from, rs, ks, k, to)
                   : fast_words_of(SKR_BF16, MR, from, rs, ks, k, to);
}

#endif
