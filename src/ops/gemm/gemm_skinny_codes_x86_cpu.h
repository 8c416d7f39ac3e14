/* gemm_skinny_codes_x86_cpu.h - one to four rows of floats on x86-64 with AVX-512, times columns of i8 or i4 codes
 * whose k's are neighbours in memory. SPDX-License-Identifier: Apache-2.0
 *
 * Words of codes are turned around in registers, so that a vector has sixteen columns of one k, and become floats
 * there: nothing of b is written to memory on its way. Every sum is the same chain of operations as in the register
 * tile, also as AMX's: its tiles multiply faster, but the codes would have to be in memory before. */
#ifndef SKR_GEMM_SKINNY_CODES_X86_CPU_H
#define SKR_GEMM_SKINNY_CODES_X86_CPU_H

#include "gemm_skinny_work_x86_cpu.h"

#if !defined(SKR_LEVEL_avx2)

/* k's that are multiplied at a time: AMX adds up so many by themselves. Rows at most. */
enum { CODE_STEP = 32, CODE_ROWS = 4 };

#if defined(SKR_LEVEL_amx)
enum { CODES_IN_TILES = 1 };
#else
enum { CODES_IN_TILES = 0 };
#endif

/* Code i of the words of sixteen columns, less zero; f32: times scale. */
SKR_FN vf code_value(int kind, int type, bool SHIFTED, vf words, int i, vf zero, vf scale)
{
    const vf values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    vf x;
    if (type == SKR_I4) /* of an index four bits are looked at */
        x = _mm512_permutexvar_ps(_mm512_srli_epi32(v_bits(words), (unsigned)(4 * i)), values);
    else
        x = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v_bits(words), (unsigned)(24 - 8 * i)), 24));
    x = SHIFTED ? v_sub(x, zero) : x;
    return kind == SKR_GEMM_F32 ? v_mul(x, scale) : x;
}

/* sums += CODE_STEP k's of ROWS rows times sixteen columns, which lie `pitch` bytes apart. a: words of the kind, of the
 * rows side by side; of pairs there is one row. */
SKR_FN void add_codes(int kind, int type, bool SHIFTED, int ROWS, const char *b, int64_t pitch, vf zero, vf scale,
                      const float *a, vf *sums)
{
    const int per = type == SKR_I4 ? 8 : 4; /* codes of a word */
    const bool f16 = kind == SKR_GEMM_F16, tiles = CODES_IN_TILES && (kind == SKR_GEMM_BF16 || f16);
    _Alignas(64) float even_a[CODE_STEP / 2], odd_a[CODE_STEP / 2];
    vf even_sum = v_set1(0.0f), odd_sum = v_set1(0.0f);
    if (tiles) {
        const __m512i pairs = _mm512_loadu_si512(a), first = _mm512_slli_epi32(pairs, 16),
                      second = _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
        _mm512_store_ps(even_a, f16 ? _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)) : v_of_bits(first));
        _mm512_store_ps(odd_a,
                        f16 ? _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16))) : v_of_bits(second));
        __asm__("" : "+m"(even_a), "+m"(odd_a)); /* else they are taken out of registers, by shuffles */
    }
    UNROLLED
    for (int w = 0; w < CODE_STEP / per; w += 4) {
        vf words[4];
        turn_sixteen_words(b + w * 4, pitch, words);
        UNROLLED
        for (int p = 0; p < 4 * per; p += 2) {
            const int k = w * per + p;
            const vf even = code_value(kind, type, SHIFTED, words[p / per], p % per, zero, scale),
                     odd = code_value(kind, type, SHIFTED, words[p / per], p % per + 1, zero, scale);
            if (tiles) {
                even_sum = v_fma(v_set1(even_a[k / 2]), even, even_sum);
                odd_sum = v_fma(v_set1(odd_a[k / 2]), odd, odd_sum);
                continue;
            }
#if HAS_BF16
            if (kind == SKR_GEMM_BF16) {
                const __m512i pairs =
                    _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(v_bits(even), 16), v_bits(odd));
                *sums = _mm512_dpbf16_ps(*sums, (__m512bh)v_set1(a[k / 2]), (__m512bh)pairs);
                continue;
            }
#endif
            UNROLLED
            for (int r = 0; r < ROWS; r++) {
                sums[r] = v_fma(v_set1(a[k * ROWS + r]), even, sums[r]);
                sums[r] = v_fma(v_set1(a[(k + 1) * ROWS + r]), odd, sums[r]);
            }
        }
    }
    if (tiles)
        *sums = v_add(*sums, v_add(even_sum, odd_sum));
}

/* SHIFTED: zero points are taken off, which may be 0. */
SKR_FN void codes_of_columns(int kind, int type, bool SHIFTED, int ROWS, const skinny_work *c, int64_t j, int64_t k0,
                             int64_t k, float *sums)
{
    enum { NO_SUBNORMALS = 0x8040 }; /* AMX takes those of bf16 as zeros, and makes none; of f16 it takes them */
    const job_t *job = c->job;
    const bool tiles = CODES_IN_TILES && kind == SKR_GEMM_BF16, scaled = kind == SKR_GEMM_F32,
               grouped = job->scaling == SKR_GEMM_GROUP && (SHIFTED || scaled);
    const int per_byte = type == SKR_I4 ? 2 : 1;
    const int64_t pitch = c->b->rs / per_byte;
    const char *b = (const char *)c->b->data + (c->b->at + j * c->b->rs + k0) / per_byte;
    const float *a = (const float *)c->a;
    const unsigned mode = _mm_getcsr();
    if (tiles)
        _mm_setcsr(mode | NO_SUBNORMALS);
    vf acc[CODE_ROWS], zero = v_set1(0.0f), scale = v_set1(1.0f);
    UNROLLED
    for (int r = 0; r < ROWS; r++)
        acc[r] = v_set1(0.0f);
    for (int64_t p = 0, end; p < k; p = end) {
        end = k;
        if (grouped) {
            _Alignas(64) float room[2][SKR_LANES];
            const int64_t group = (k0 + p) / job->group, left = (group + 1) * job->group - k0 - p;
            const float *zeros = of_columns(&job->b_zero, c->b->zero_at, group, j, SKR_LANES, room[0]),
                        *scales =
                            scaled ? of_columns(&job->b_scale, c->b->scale_at, group, j, SKR_LANES, room[1]) : NULL;
            zero = zeros ? v_load(SKR_F32, zeros, 0) : zero;
            scale = scales ? v_load(SKR_F32, scales, 0) : scale;
            end = left < k - p ? p + left : k;
        }
        for (int64_t q = p; q < end; q += CODE_STEP, b += CODE_STEP / per_byte) {
            if (type == SKR_I4 && (size_t)b % 64 < CODE_STEP / 2) /* a line of each column; i8 are slower with it */
                for (int i = 0; i < SKR_LANES; i++)
                    _mm_prefetch(b + i * pitch + CODES_AHEAD, _MM_HINT_T0);
            add_codes(kind, type, SHIFTED, ROWS, b, pitch, zero, scale, a, acc);
            a += CODE_STEP * skr_kind_bytes(kind) / 4 * ROWS;
        }
    }
    UNROLLED
    for (int r = 0; r < ROWS; r++)
        v_store_float(SKR_F32, sums, SKR_LANES * r, acc[r]);
    if (tiles) {
        /* The compiler does not know that sums depend on the mode; stores it keeps before this. */
        __asm__ volatile("" ::: "memory");
        _mm_setcsr(mode);
    }
}

#define CODE_KERNEL(name, kind, type, SHIFTED, ROWS)                                                                   \
    static void name##_run(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)                        \
    {                                                                                                                  \
        codes_of_columns(kind, type, SHIFTED, ROWS, c, j, k0, k, sums);                                                \
    }                                                                                                                  \
    static const skinny_kernel name = {name##_run, ROWS, SKR_LANES, 1, SKR_LANES};
#define CODE_KERNELS(name, kind)                                                                                       \
    CODE_KERNEL(name##_i4, kind, SKR_I4, false, 1)                                                                     \
    CODE_KERNEL(name##_i4_shifted, kind, SKR_I4, true, 1)                                                              \
    CODE_KERNEL(name##_i8, kind, SKR_I8, true, 1)
CODE_KERNELS(codes_f32, SKR_GEMM_F32)
CODE_KERNEL(codes_f32_i4_rows, SKR_GEMM_F32, SKR_I4, true, CODE_ROWS)
CODE_KERNEL(codes_f32_i8_rows, SKR_GEMM_F32, SKR_I8, true, CODE_ROWS)
#if HAS_BF16
CODE_KERNELS(codes_bf16, SKR_GEMM_BF16)
#endif
#if HAS_F16
CODE_KERNELS(codes_f16, SKR_GEMM_F16)
#endif
#undef CODE_KERNELS
#undef CODE_KERNEL

#endif

/* NULL: not so. All products of a batch get the same answer, for they share a. Instructions for bf16 make up for the
 * way through memory where there are several rows. */
static const skinny_kernel *codes_for(const job_t *job, const side *b)
{
#if !defined(SKR_LEVEL_avx2)
    const bool f32 = job->kind == SKR_GEMM_F32, shifted = job->b_zero.at.data != NULL;
    bool able = job->m <= (f32 ? CODE_ROWS : 1) && (b->type == SKR_I4 || b->type == SKR_I8) &&
                job->k % CODE_STEP == 0 && job->seg % CODE_STEP == 0 &&
                (job->scaling != SKR_GEMM_GROUP || job->group % CODE_STEP == 0);
    if (b->type == SKR_I4) {
        able &= b->rs % 2 == 0;
        for (int i = 0; i < job->batch.n_dims; i++)
            able &= job->b.at.stride[i] % 2 == 0;
    }
    if (able && f32 && job->m > 1)
        return b->type == SKR_I8 ? &codes_f32_i8_rows : &codes_f32_i4_rows;
    if (able && f32)
        return b->type == SKR_I8 ? &codes_f32_i8 : shifted ? &codes_f32_i4_shifted : &codes_f32_i4;
#if HAS_BF16
    if (able && job->kind == SKR_GEMM_BF16)
        return b->type == SKR_I8 ? &codes_bf16_i8 : shifted ? &codes_bf16_i4_shifted : &codes_bf16_i4;
#endif
#if HAS_F16
    if (able && job->kind == SKR_GEMM_F16)
        return b->type == SKR_I8 ? &codes_f16_i8 : shifted ? &codes_f16_i4_shifted : &codes_f16_i4;
#endif
#endif
    (void)job, (void)b;
    return NULL;
}

#endif
