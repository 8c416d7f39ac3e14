/* gemm_skinny_dots_x86_cpu.h - few rows of i8 on x86-64, times columns of i4 (AVX2: of i8) whose k's are neighbours.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Integers are exact in any order, so a column is multiplied where it lies, DOT_KS k's at a time, and the lanes of its
 * sums are added up after that. a has as many k's of every row together, in the order and the type in which they are
 * multiplied. */
#ifndef SKR_GEMM_SKINNY_DOTS_X86_CPU_H
#define SKR_GEMM_SKINNY_DOTS_X86_CPU_H

#include "gemm_skinny_work_x86_cpu.h"

#if defined(SKR_LEVEL_avx2)
enum { DOT_KS = 32, DOT_ROW_BYTES = 2 * DOT_KS, DOT_COLUMNS = 8 };
#else
enum { DOT_KS = 128, DOT_ROW_BYTES = DOT_KS, DOT_COLUMNS = 16 };
#endif
enum { DOT_ROWS = 4 };

/* DOT_KS k's of a row: AVX2 as i16, else those of even k's and then those of odd k's. */
static void order_dots(const float *run, char *to)
{
#if defined(SKR_LEVEL_avx2)
    for (int i = 0; i < DOT_KS; i++)
        ((int16_t *)to)[i] = (int16_t)run[i];
#else
    for (int i = 0; i < DOT_KS / 2; i++) {
        to[i] = ((const char *)run)[2 * i];
        to[DOT_KS / 2 + i] = ((const char *)run)[2 * i + 1];
    }
#endif
}

/* a for these kernels; zeros where there is none. It fits where its panels would be: these have more than DOT_ROWS rows
 * (AVX2: of f32), and there are DOT_KS k's or more. */
static void dots_of_rows(const job_t *job, const side *a, int rows, char *to)
{
    for (int64_t k = 0; k < job->k; k += DOT_KS)
        for (int r = 0; r < rows; r++, to += DOT_ROW_BYTES) {
            float run[DOT_KS] = {0}; /* AVX2; else bytes */
            const int64_t from = r < job->m ? row_of_a(job, r) : -1;
            for (int64_t q = k; from >= 0 && q < k + DOT_KS && q < job->k; q += CHUNK) {
                const int64_t end = k + DOT_KS < job->k ? k + DOT_KS : job->k;
                take_run(job, a, a->at + from * a->rs + q * a->ks, a->ks, r, q, true,
                         end - q < CHUNK ? (int)(end - q) : CHUNK, run, q - k);
            }
            order_dots(run, to);
        }
}

/* Where a's k's from k0 on are. */
SKR_FN const char *dots_at(const skinny_work *c, int64_t k0)
{
    return c->all + k0 / DOT_KS * DOT_ROW_BYTES * c->rows;
}

#if defined(SKR_LEVEL_avx2)

/* DOT_KS k's of a column, of which n are there. */
SKR_FN void widen_dots(const char *at, int64_t n, __m256i v[2])
{
    _Alignas(32) char some[DOT_KS] = {0};
    if (n < DOT_KS) {
        __builtin_memcpy(some, at, (size_t)n);
        at = some;
    }
    v[0] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at));
    v[1] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(at + 16)));
}

SKR_FN int32_t sum_of_eight(__m256i v)
{
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

/* As many columns at a time as there are registers for sums. */
SKR_FN void dots(int ROWS, const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)
{
    enum { MOST = 8 };
    const int COLUMNS = MOST / ROWS;
    const int64_t pitch = c->b->rs;
    for (int i = 0; i < DOT_COLUMNS; i += COLUMNS) {
        const char *from = (const char *)c->b->data + c->b->at + (j + i) * pitch + k0, *a = dots_at(c, k0);
        __m256i acc[MOST];
        UNROLLED
        for (int u = 0; u < MOST; u++)
            acc[u] = _mm256_setzero_si256();
        for (int64_t p = 0; p < k; p += DOT_KS, from += DOT_KS, a += ROWS * DOT_ROW_BYTES)
            UNROLLED
        for (int u = 0; u < COLUMNS; u++) {
            __m256i v[2];
            _mm_prefetch(from + u * pitch + 512, _MM_HINT_T0);
            widen_dots(from + u * pitch, k - p, v);
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                UNROLLED
            for (int h = 0; h < 2; h++) {
                const __m256i *row = (const __m256i *)(a + r * DOT_ROW_BYTES) + h;
                acc[u * ROWS + r] =
                    _mm256_add_epi32(acc[u * ROWS + r], _mm256_madd_epi16(v[h], _mm256_loadu_si256(row)));
            }
        }
        UNROLLED
        for (int u = 0; u < MOST; u++)
            sums[u % ROWS * DOT_COLUMNS + i + u / ROWS] = skr_float((uint32_t)sum_of_eight(acc[u]));
    }
}

#elif HAS_I8

/* Sums of four vectors, of four parts of each. */
SKR_FN __m512i sums_of_parts(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* The four parts of each of four such vectors together. */
SKR_FN __m512i sums_of_all(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x44), _mm512_shuffle_i32x4(v[0], v[1], 0xee));
    __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2], v[3], 0x44), _mm512_shuffle_i32x4(v[2], v[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* A code is used as code + 8, which has no sign, and 8 times the sum of a is taken off. */
SKR_FN void dots(int ROWS, const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)
{
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    const int64_t pitch = c->b->rs / 2;
    const char *from = (const char *)c->b->data + (c->b->at + j * c->b->rs + k0) / 2, *a = dots_at(c, k0);
    __m512i total[DOT_ROWS], extra[DOT_ROWS];
    UNROLLED
    for (int r = 0; r < ROWS; r++)
        total[r] = extra[r] = _mm512_setzero_si512();
    for (int64_t p = 0; p < k; p += DOT_KS, from += DOT_KS / 2, a += ROWS * DOT_KS) {
        const __mmask64 there = k - p >= DOT_KS ? ~0ull : ~0ull >> (64 - (k - p + 1) / 2);
        __m512i even[DOT_ROWS], odd[DOT_ROWS], four[DOT_ROWS][4];
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            even[r] = _mm512_loadu_si512(a + r * DOT_KS);
            odd[r] = _mm512_loadu_si512(a + r * DOT_KS + DOT_KS / 2);
            extra[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(extra[r], eight, even[r]), eight, odd[r]);
        }
        const char *at = from;
        _Pragma("GCC unroll 1") /* else there are 32 addresses to keep */
            for (int q = 0; q < 4; q++, at += 4 * pitch)
        {
            __m512i dots[DOT_ROWS][4];
            UNROLLED
            for (int i = 0; i < 4; i++) {
                _mm_prefetch(at + i * pitch + 512, _MM_HINT_T0);
                __m512i codes = _mm512_maskz_loadu_epi8(there, at + i * pitch), high = _mm512_srli_epi16(codes, 4);
                codes = _mm512_and_si512(_mm512_xor_si512(codes, eight), low);
                high = _mm512_and_si512(_mm512_xor_si512(high, eight), low);
                UNROLLED
                for (int r = 0; r < ROWS; r++) {
                    dots[r][i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, even[r]);
                    dots[r][i] = _mm512_dpbusd_epi32(dots[r][i], high, odd[r]);
                }
            }
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                four[r][q] = sums_of_parts(dots[r]);
        }
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            total[r] = _mm512_add_epi32(total[r], sums_of_all(four[r]));
    }
    UNROLLED
    for (int r = 0; r < ROWS; r++) {
        total[r] = _mm512_sub_epi32(total[r], _mm512_set1_epi32(_mm512_reduce_add_epi32(extra[r])));
        _mm512_storeu_si512(sums + DOT_COLUMNS * r, total[r]);
    }
}

#endif

#if defined(SKR_LEVEL_avx2) || HAS_I8

#define DOT_KERNEL(ROWS)                                                                                               \
    static void dots_##ROWS##_run(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)                 \
    {                                                                                                                  \
        dots(ROWS, c, j, k0, k, sums);                                                                                 \
    }                                                                                                                  \
    static const skinny_kernel dots_##ROWS = {dots_##ROWS##_run, ROWS, DOT_COLUMNS, 1, DOT_COLUMNS};
DOT_KERNEL(1)
DOT_KERNEL(2)
DOT_KERNEL(4)
#undef DOT_KERNEL

#endif

/* NULL: not so. All products of a batch get the same answer, for they share a. */
static const skinny_kernel *dots_for(const job_t *job, const side *b)
{
#if defined(SKR_LEVEL_avx2) || HAS_I8
    bool able = job->m <= DOT_ROWS && job->k >= DOT_KS && job->seg % DOT_KS == 0 && job->a.at.type == SKR_I8;
#if defined(SKR_LEVEL_avx2)
    able &= job->whole && b->type == SKR_I8;
#else
    able &= job->kind == SKR_GEMM_I8 && b->type == SKR_I4 && b->rs % 2 == 0;
    for (int i = 0; i < job->batch.n_dims; i++)
        able &= job->b.at.stride[i] % 2 == 0;
#endif
    if (able)
        return job->m <= 1 ? &dots_1 : job->m == 2 ? &dots_2 : &dots_4;
#endif
    (void)job, (void)b;
    return NULL;
}

#endif
