/* gemm_skinny_dots_x86_cpu.h - few rows of i8 on x86-64, times columns of i4 whose k's are neighbours in memory.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Integers are exact in any order, so a column's codes are multiplied where they lie: 128 at a time, those of even k's
 * and those of odd k's, and a has its k's in that order. */
#ifndef SKR_GEMM_SKINNY_DOTS_X86_CPU_H
#define SKR_GEMM_SKINNY_DOTS_X86_CPU_H

#include "gemm_skinny_work_x86_cpu.h"

#if HAS_I8

enum { DOT_KS = 128, DOT_ROWS = 4, DOT_COLUMNS = 16 };

/* a for them: of each DOT_KS k's all rows, one after the other. */
static void halves_of_rows(const job_t *job, const side *a, int rows, char *to)
{
    for (int64_t block = 0; block < job->n_blocks; block++, to += panel_bytes(job, rows, 0)) {
        int64_t padded;
        for (int64_t g = 0, k; g < job->segs && (k = segment_k(job, block, g, &padded)); g++)
            for (int64_t p = 0; p < k; p += DOT_KS)
                for (int r = 0; r < rows; r++) {
                    int8_t run[DOT_KS] = {0}, *halves = (int8_t *)to + (g * job->seg_pad + p) * rows + r * DOT_KS;
                    const int64_t k0 = (block * job->segs + g) * job->seg + p, from = r >= job->m ? -1
                                                                                      : job->gather.data
                                                                                          ? row_of_a(job, r)
                                                                                          : r;
                    for (int64_t q = 0; from >= 0 && q < DOT_KS && p + q < k; q += CHUNK)
                        take_run(job, a, a->at + from * a->rs + (k0 + q) * a->ks, a->ks, r, k0 + q, true,
                                 k - p - q < CHUNK ? (int)(k - p - q) : CHUNK, run, q);
                    for (int i = 0; i < DOT_KS / 2; i++) {
                        halves[i] = run[2 * i];
                        halves[DOT_KS / 2 + i] = run[2 * i + 1];
                    }
                }
    }
}

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
SKR_FN void nibble_dots(int ROWS, const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)
{
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    const int64_t pitch = c->b->rs / 2;
    const char *from = (const char *)c->b->data + (c->b->at + j * c->b->rs + k0) / 2, *a = c->a;
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

#define DOT_KERNEL(ROWS)                                                                                               \
    static void nibble_dots_##ROWS##_run(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)          \
    {                                                                                                                  \
        nibble_dots(ROWS, c, j, k0, k, sums);                                                                          \
    }                                                                                                                  \
    static const skinny_kernel nibble_dots_##ROWS = {nibble_dots_##ROWS##_run, ROWS, DOT_COLUMNS, 1, DOT_COLUMNS};
DOT_KERNEL(1)
DOT_KERNEL(2)
DOT_KERNEL(4)
#undef DOT_KERNEL

/* NULL: not so. All products of a batch get the same answer, for they share a. */
static const skinny_kernel *dots_for(const job_t *job, const side *b)
{
    bool whole = job->k >= DOT_KS && job->seg % DOT_KS == 0 && b->rs % 2 == 0;
    for (int i = 0; i < job->batch.n_dims; i++)
        whole &= job->b.at.stride[i] % 2 == 0;
    if (!whole || job->kind != SKR_GEMM_I8 || b->type != SKR_I4 || job->m > DOT_ROWS)
        return NULL;
    return job->m <= 1 ? &nibble_dots_1 : job->m == 2 ? &nibble_dots_2 : &nibble_dots_4;
}

#endif

#endif
