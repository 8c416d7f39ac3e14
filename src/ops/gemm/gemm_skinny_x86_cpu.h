/* gemm_skinny_x86_cpu.h - few rows of a on x86-64, times columns of b whose k's are neighbours in memory: b is used as
 * it lies, read once, without panels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every sum is the same chain of operations as in the register tiles, so a row has the same bits whichever of them
 * makes it. f32: k by k, columns turned around in registers. AMX: columns of b are the rows of the left operand, which
 * is how they lie, and a is the right one. */
#ifndef SKR_GEMM_SKINNY_X86_CPU_H
#define SKR_GEMM_SKINNY_X86_CPU_H

#include "gemm_pack_cpu.h"

enum { MOST_COLUMNS = 64, MOST_SUMS = MOST_COLUMNS * 16 };

/* Columns of b, `pitch` elements apart, and the panel of a. */
typedef struct skinny_cols {
    const void *a, *b;
    int64_t pitch;
} skinny_cols;

/* Makes the sums over k0 ... k1 - 1 of `width` columns from j on: that of a column and a row is at
 * column * column_step + row * row_step. */
typedef struct skinny_kernel {
    void (*run)(const skinny_cols *c, int64_t j, int64_t k0, int64_t k1, float *sums);
    int width, column_step, row_step;
} skinny_kernel;

/* ---------------------------------------------------------------- f32 */

/* Four neighbours as f32. */
SKR_FN __m128 four_floats(int type, const void *p, int64_t i)
{
    const char *at = (const char *)p + i * skr_type_bytes(type);
    if (type == SKR_F32)
        return _mm_loadu_ps((const float *)at);
    __m128i halves = _mm_loadl_epi64((const __m128i *)at);
    if (type == SKR_F16)
        return _mm_cvtph_ps(halves);
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}

/* Four k's of eight columns from (j, k) on. */
SKR_FN void eight_columns(int type, const skinny_cols *c, int64_t j, int64_t k, __m256 v[4])
{
    __m256 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++)
        x[i] = two_rows_of(four_floats(type, c->b, (j + i) * c->pitch + k),
                           four_floats(type, c->b, (j + i + 4) * c->pitch + k));
    turn_eight(x, v);
}

/* ROWS rows (zeros in the panel where a has fewer) and GROUPS times eight columns. */
SKR_FN void f32_columns(int type, int ROWS, int GROUPS, const skinny_cols *c, int64_t j, int64_t k0, int64_t k1,
                        float *sums)
{
    enum { MR = TILE(F32, MR), MOST = 16, AT_ONCE = 16 };
    const float *a = c->a;
    __m256 acc[MOST];
    UNROLLED
    for (int i = 0; i < ROWS * GROUPS; i++)
        acc[i] = _mm256_setzero_ps();
    int64_t k = k0;
    for (; k + AT_ONCE <= k1; k += AT_ONCE)
        UNROLLED
    for (int g = 0; g < GROUPS; g++) /* a line of each column is used up at once */
        for (int u = 0; u < AT_ONCE; u += 4) {
            __m256 v[4];
            eight_columns(type, c, j + 8 * g, k + u, v);
            UNROLLED
            for (int i = 0; i < 4 * ROWS; i++) {
                __m256 *sum = &acc[i % ROWS * GROUPS + g];
                *sum = _mm256_fmadd_ps(_mm256_broadcast_ss(a + (k + u + i / ROWS) * MR + i % ROWS), v[i / ROWS], *sum);
            }
        }
    for (; k < k1; k++)
        UNROLLED
    for (int g = 0; g < GROUPS; g++) {
        float one[8];
        for (int i = 0; i < 8; i++)
            one[i] = one_float(type, c->b, (j + 8 * g + i) * c->pitch + k);
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            acc[r * GROUPS + g] =
                _mm256_fmadd_ps(_mm256_broadcast_ss(a + k * MR + r), _mm256_loadu_ps(one), acc[r * GROUPS + g]);
    }
    UNROLLED
    for (int i = 0; i < ROWS * GROUPS; i++)
        _mm256_storeu_ps(sums + 8 * i, acc[i]);
}

#define F32_KERNEL(name, type, ROWS, GROUPS)                                                                           \
    SKR_IN_ORDER static void name##_run(const skinny_cols *c, int64_t j, int64_t k0, int64_t k1, float *sums)          \
    {                                                                                                                  \
        f32_columns(type, ROWS, GROUPS, c, j, k0, k1, sums);                                                           \
    }                                                                                                                  \
    static const skinny_kernel name = {name##_run, 8 * GROUPS, 1, 8 * GROUPS};
#define F32_KERNELS(name, type)                                                                                        \
    F32_KERNEL(name##_1, type, 1, 2)                                                                                   \
    F32_KERNEL(name##_2, type, 2, 4)                                                                                   \
    F32_KERNEL(name##_4, type, 4, 2)                                                                                   \
    F32_KERNEL(name##_all, type, TILE(F32, MR), 1)                                                                     \
    static const skinny_kernel *name(int rows)                                                                         \
    {                                                                                                                  \
        return rows == 1 ? &name##_1 : rows == 2 ? &name##_2 : rows <= 4 ? &name##_4 : &name##_all;                    \
    }
F32_KERNELS(f32_columns_of, SKR_F32)
F32_KERNELS(f16_columns_of, SKR_F16)
#if !HAS_BF16
F32_KERNELS(bf16_columns_of, SKR_BF16)
#endif
#undef F32_KERNELS
#undef F32_KERNEL

/* ---------------------------------------------------------------- AMX */

#if defined(SKR_LEVEL_amx)

enum { TILE_BYTES = 1024, STEP_BYTES = 2 * TILE_BYTES }; /* of the panel of a, 32 rows */

/* a's panel, of which 16 rows are used, as a right operand: of each step, 16 words of each row become 16 rows of words,
 * in the first half of the step's place. */
static void right_operand(int64_t bytes, char *panel)
{
    for (int64_t at = 0; at < bytes; at += STEP_BYTES) {
        _Alignas(64) float turned[TILE_BYTES / 4];
        turn_words(16, (const float *)(panel + at), 16, 16, turned);
        __builtin_memcpy(panel + at, turned, sizeof turned);
    }
}

#define AMX_STEP(dot, from, pitch, a)                                                                                  \
    _tile_loadd(4, a, 64);                                                                                             \
    _tile_loadd(5, from, pitch);                                                                                       \
    dot(0, 5, 4);                                                                                                      \
    _tile_loadd(6, (from) + 16 * (pitch), pitch);                                                                      \
    dot(1, 6, 4);                                                                                                      \
    _tile_loadd(7, (from) + 32 * (pitch), pitch);                                                                      \
    dot(2, 7, 4);                                                                                                      \
    _tile_loadd(5, (from) + 48 * (pitch), pitch);                                                                      \
    dot(3, 5, 4);

/* 64 columns. K's that do not fill a step are copied with zeros after them. */
#define AMX_COLUMNS(name, dot, SIZE)                                                                                   \
    static void name##_run(const skinny_cols *c, int64_t j, int64_t k0, int64_t k1, float *sums)                       \
    {                                                                                                                  \
        const char *from = (const char *)c->b + (j * c->pitch + k0) * SIZE;                                            \
        const char *a = (const char *)c->a + k0 * SIZE / 64 * STEP_BYTES;                                              \
        int64_t pitch = c->pitch * SIZE, left = (k1 - k0) * SIZE;                                                      \
        amx_stored(a);                                                                                                 \
        _tile_zero(0);                                                                                                 \
        _tile_zero(1);                                                                                                 \
        _tile_zero(2);                                                                                                 \
        _tile_zero(3);                                                                                                 \
        for (; left >= 64; left -= 64, from += 64, a += STEP_BYTES) {                                                  \
            AMX_STEP(dot, from, pitch, a)                                                                              \
        }                                                                                                              \
        if (left) {                                                                                                    \
            _Alignas(64) char rest[MOST_COLUMNS * 64] = {0};                                                           \
            for (int i = 0; i < MOST_COLUMNS; i++)                                                                     \
                __builtin_memcpy(rest + 64 * i, from + i * pitch, (size_t)left);                                       \
            amx_stored(rest);                                                                                          \
            AMX_STEP(dot, rest, 64, a)                                                                                 \
        }                                                                                                              \
        _tile_stored(0, sums, 64);                                                                                     \
        _tile_stored(1, sums + 256, 64);                                                                               \
        _tile_stored(2, sums + 512, 64);                                                                               \
        _tile_stored(3, sums + 768, 64);                                                                               \
    }                                                                                                                  \
    static const skinny_kernel name = {name##_run, MOST_COLUMNS, 16, 1};
AMX_COLUMNS(amx_bf16_columns, _tile_dpbf16ps, 2)
AMX_COLUMNS(amx_i8_columns, _tile_dpbssd, 1)
#undef AMX_COLUMNS
#undef AMX_STEP

#endif

/* ---------------------------------------------------------------- which, and all columns */

/* NULL: none. */
static const skinny_kernel *skinny_kernel_of(const job_t *job, const side *b)
{
    int rows = (int)job->m;
    if (!job->skinny || job->packed || job->gated || job->m > job->tile.mr || job->scaling >= SKR_GEMM_BLOCK ||
        job->dbias.data || b->ks != 1 || job->n < MOST_COLUMNS)
        return NULL;
#if defined(SKR_LEVEL_amx)
    if (job->kind == SKR_GEMM_BF16 && b->type == SKR_BF16 && rows <= 16)
        return &amx_bf16_columns;
    if (job->kind == SKR_GEMM_I8 && b->type == SKR_I8 && rows <= 16)
        return &amx_i8_columns;
#endif
    if (job->kind != SKR_GEMM_F32)
        return NULL;
#if !HAS_BF16
    if (b->type == SKR_BF16)
        return bf16_columns_of(rows);
#endif
    return b->type == SKR_F32 ? f32_columns_of(rows) : b->type == SKR_F16 ? f16_columns_of(rows) : NULL;
}

/* Whether few rows can use b as it lies. */
static bool skinny_as_it_lies(const job_t *job, const side *b)
{
    return skinny_kernel_of(job, b) != NULL;
}

/* All k's of columns n0 ... into out. a: the panel. The last columns are taken with some before them. */
static void skinny_by_columns(const job_t *job, const side *b, const char *a, int64_t n0, int cols, float *out,
                              int64_t ld)
{
    const skinny_kernel *kernel = skinny_kernel_of(job, b);
    skinny_cols c = {.a = a, .b = (const char *)b->data + b->at * skr_type_bytes(b->type), .pitch = b->rs};
    for (int j = 0; j < cols; j += kernel->width) {
        int64_t first = n0 + j < job->n - kernel->width ? n0 + j : job->n - kernel->width;
        int end = cols - j < kernel->width ? cols : j + kernel->width;
        for (int64_t k = 0; k < job->k; k += job->seg) {
            _Alignas(64) float sums[MOST_SUMS];
            kernel->run(&c, first, k, k + job->seg < job->k ? k + job->seg : job->k, sums);
            for (int r = 0; r < (int)job->m; r++)
                for (int i = j; i < end; i++) {
                    float x = sums[(n0 + i - first) * kernel->column_step + r * kernel->row_step],
                          *to = out + r * ld + i;
                    if (k && job->kind == SKR_GEMM_I8)
                        x = skr_float(skr_bits(*to) + skr_bits(x));
                    else if (k)
                        x = *to + x;
                    *to = x;
                }
        }
    }
}

#endif
