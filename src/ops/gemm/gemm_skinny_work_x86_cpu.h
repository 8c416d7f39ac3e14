/* gemm_skinny_work_x86_cpu.h - what the kernels of few rows share on x86-64.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_SKINNY_WORK_X86_CPU_H
#define SKR_GEMM_SKINNY_WORK_X86_CPU_H

#include "gemm_pack_cpu.h"

/* A kernel takes no more columns at a time, nor rows than 16; products with fewer columns go through panels. */
enum { MOST_COLUMNS = 64, MOST_SUMS = MOST_COLUMNS * 16 };

/* b; a from its first k on, and the k's of it that are multiplied at a time: words of `rows` rows side by side; for
 * rows of b its panels, where there are two so many bytes from one to the other. */
typedef struct skinny_work {
    const job_t *job;
    const side *b;
    const char *all, *a;
    int rows;
    int64_t to_second;
    bool converted;
} skinny_work;

/* Of `rows` rows, which is not more than a's panels have: makes the sums over k k's from k0 on of `width` columns from
 * j on: that of a column and a row is at column * column_step + row * row_step. */
typedef struct skinny_kernel {
    void (*run)(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums);
    int rows, width, column_step, row_step;
} skinny_kernel;

/* ---------------------------------------------------------------- columns as they lie, or converted */

/* Zero points, or scales, of group `group` of some columns from j on; NULL: there are none. */
static const float *of_columns(const skr_gemm_matrix *m, int64_t begin, int64_t group, int64_t j, int columns,
                               float *room)
{
    const int64_t at = begin + group * m->row + j * m->at.col_stride, step = m->at.col_stride;
    if (!m->at.data)
        return NULL;
    if (m->at.type == SKR_F32 && step == 1)
        return (const float *)m->at.data + at;
    if (m->at.type == SKR_F32)
        for (int i = 0; i < columns; i++)
            room[i] = ((const float *)m->at.data)[at + i * step];
    else
        for (int i = 0; i < columns; i++)
            room[i] = one_float(m->at.type, m->at.data, at + i * step);
    return room;
}

/* k's from k0 on of some columns from j on in the panel's type, column after column, each in `pitch` elements; what is
 * left of `padded` k's is zeros. */
static void convert_columns(const skinny_work *s, int columns, int64_t j, int64_t k0, int k, int padded, int pitch,
                            char *to)
{
    const job_t *job = s->job;
    const side *b = s->b;
    const int size = skr_kind_bytes(job->kind);
    float zeros[MOST_COLUMNS], scales[MOST_COLUMNS];
    code_columns c = {.data = b->data, .rs = b->rs, .type = b->type, .columns = columns, .pitch = pitch};
    for (int p = 0; p < k; p += c.n) { /* of one group */
        c.n = k - p;
        if (job->scaling == SKR_GEMM_GROUP && (job->b_zero.at.data || scaled_here(job, 1))) {
            int64_t group = (k0 + p) / job->group, left = (group + 1) * job->group - k0 - p;
            c.n = left < c.n ? (int)left : c.n;
            c.zeros = of_columns(&job->b_zero, b->zero_at, group, j, columns, zeros);
            c.scales = scaled_here(job, 1) ? of_columns(&job->b_scale, b->scale_at, group, j, columns, scales) : NULL;
        }
        c.at = b->at + j * b->rs + k0 + p;
        c.to = to + p * size;
        const int done = convert_codes(job->kind, &c);
        for (int i = 0; i < columns; i++)
            for (int q = done, n; q < c.n; q += n) {
                n = c.n - q < CHUNK ? c.n - q : CHUNK;
                take_run(job, b, c.at + i * b->rs + q, 1, j + i, k0 + p + q, true, n, c.to, (int64_t)i * pitch + q);
            }
    }
    for (int i = 0; k < padded && i < columns; i++)
        __builtin_memset(to + ((int64_t)i * pitch + k) * size, 0, (size_t)((padded - k) * size));
}

#if !defined(SKR_LEVEL_avx2)

/* Four words of each of sixteen columns, `pitch` bytes apart. */
SKR_FN void turn_sixteen_words(const char *b, int64_t pitch, vf v[4])
{
    /* Addresses are a register and 0 to 3 times another: sixteen that GCC would keep do not fit. */
    const char *fifth = b + 4 * pitch, *ninth = b + 8 * pitch, *thirteenth = b + 12 * pitch;
    __asm__("" : "+r"(fifth), "+r"(ninth), "+r"(thirteenth));
    __m512 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(b + i * pitch)));
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps((const float *)(fifth + i * pitch)), 1);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps((const float *)(ninth + i * pitch)), 2);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps((const float *)(thirteenth + i * pitch)), 3);
    }
    __m512d u0 = _mm512_castps_pd(_mm512_unpacklo_ps(x[0], x[1])),
            u1 = _mm512_castps_pd(_mm512_unpackhi_ps(x[0], x[1]));
    __m512d v0 = _mm512_castps_pd(_mm512_unpacklo_ps(x[2], x[3])),
            v1 = _mm512_castps_pd(_mm512_unpackhi_ps(x[2], x[3]));
    v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(u0, v0));
    v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(u0, v0));
    v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(u1, v1));
    v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(u1, v1));
}

#endif

#endif
