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

/* Columns of b, `pitch` elements apart. a: its panel; of f32, what rows_of_a makes. */
typedef struct skinny_cols {
    const void *a, *b;
    int64_t pitch;
} skinny_cols;

/* Makes the sums over k0 ... k1 - 1 of `width` columns from j on: that of a column and a row is at
 * column * column_step + row * row_step. */
typedef struct skinny_kernel {
    void (*run)(const skinny_cols *c, int64_t j, int64_t k0, int64_t k1, float *sums);
    int rows, width, column_step, row_step;
} skinny_kernel;

/* ---------------------------------------------------------------- f32 */

#if defined(SKR_LEVEL_avx2)

enum { MOST_ROWS = TILE(F32, MR), TURNED = 4 };

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

/* TURNED k's of a vector of columns from (j, k) on. */
SKR_FN void turn_columns(int type, const skinny_cols *c, int64_t j, int64_t k, vf v[TURNED])
{
    __m256 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++)
        x[i] = two_rows_of(four_floats(type, c->b, (j + i) * c->pitch + k),
                           four_floats(type, c->b, (j + i + 4) * c->pitch + k));
    turn_eight(x, v);
}

#else

enum { MOST_ROWS = 16, TURNED = 8 };

SKR_FN void turn_sixteen_floats(const float *b, int64_t pitch, vf v[4])
{
    __m512 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_castps128_ps512(_mm_loadu_ps(b + i * pitch));
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(b + (i + 4) * pitch), 1);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(b + (i + 8) * pitch), 2);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(b + (i + 12) * pitch), 3);
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

/* Halves are turned before they are widened: half the shuffles. x[i]: columns i and i + 8. */
SKR_FN void turn_sixteen_halves(int type, const uint16_t *b, int64_t pitch, vf v[8])
{
    __m256i x[8], pairs[8];
    UNROLLED
    for (int i = 0; i < 8; i++) {
        __m128i high = _mm_loadu_si128((const __m128i *)(b + (i + 8) * pitch));
        x[i] = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(b + i * pitch)));
        x[i] = _mm256_inserti128_si256(x[i], high, 1);
    }
    UNROLLED
    for (int i = 0; i < 4; i++) { /* of columns 2 i and 2 i + 1: k's 0 to 3, and 4 to 7 */
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
            v[k + i] = type == SKR_F16 ? _mm512_cvtph_ps(two[i])
                                       : v_of_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(two[i]), 16));
    }
}

/* TURNED k's of a vector of columns from (j, k) on. */
SKR_FN void turn_columns(int type, const skinny_cols *c, int64_t j, int64_t k, vf v[TURNED])
{
    int64_t at = j * c->pitch + k;
    if (type == SKR_F32) {
        turn_sixteen_floats((const float *)c->b + at, c->pitch, v);
        turn_sixteen_floats((const float *)c->b + at + 4, c->pitch, v + 4);
    } else {
        turn_sixteen_halves(type, (const uint16_t *)c->b + at, c->pitch, v);
    }
}

#endif

/* Lines that a vector of columns will need soon. */
SKR_FN void ask_early(const skinny_cols *c, int64_t j, int64_t k)
{
    enum { EARLY = 128 }; /* f32's */
    UNROLLED
    for (int i = 0; i < SKR_LANES; i++)
        _mm_prefetch((const char *)((const float *)c->b + (j + i) * c->pitch + k + EARLY), _MM_HINT_T1);
}

/* The rows of a that a kernel takes, zeros where a has fewer: side by side for each k, so that one row stays in L1;
 * more than a panel has, as two panels lie. room: for as much as a panel. */
static const float *rows_of_a(int rows, const float *panels, const float *as_it_lies, int64_t k, float *room)
{
    enum { MR = TILE(F32, MR) };
    if (rows >= MR)
        return panels;
    if (rows == 1 && as_it_lies)
        return as_it_lies;
    for (int64_t p = 0; p < k; p++)
        for (int r = 0; r < rows; r++)
            room[p * rows + r] = panels[p * MR + r];
    return room;
}

/* ROWS rows and GROUPS vectors of columns. */
SKR_FN void f32_columns(int type, int ROWS, int GROUPS, const skinny_cols *c, int64_t j, int64_t k0, int64_t k1,
                        float *sums)
{
    enum { MR = TILE(F32, MR), MOST = 16, AT_ONCE = 16 };
    const int step = ROWS < MR ? ROWS : MR;
    const float *first = (const float *)c->a + k0 * step * (ROWS > MR ? 2 : 1), *second = first + (k1 - k0) * MR;
    vf acc[MOST];
    UNROLLED
    for (int i = 0; i < ROWS * GROUPS; i++)
        acc[i] = v_set1(0.0f);
    int64_t k = k0;
    for (; k + AT_ONCE <= k1; k += AT_ONCE)
        UNROLLED
    for (int g = 0; g < GROUPS; g++) { /* a line of each column is used up at once */
        int64_t from = j + SKR_LANES * g;
        if (ROWS == 1 && type == SKR_F32 && SKR_LANES == 16) /* from memory 12 % faster, from L3 slower: gemm.md */
            ask_early(c, from, k);
        for (int u = 0; u < AT_ONCE; u += TURNED) {
            vf v[TURNED];
            turn_columns(type, c, from, k + u, v);
            UNROLLED
            for (int i = 0; i < TURNED; i++)
                UNROLLED
            for (int r = 0; r < ROWS; r++) {
                float x = (r < MR ? first + r : second + r - MR)[(k - k0 + u + i) * step];
                acc[r * GROUPS + g] = v_fma(v_set1(x), v[i], acc[r * GROUPS + g]);
            }
        }
    }
    for (; k < k1; k++)
        UNROLLED
    for (int g = 0; g < GROUPS; g++) {
        float one[SKR_LANES];
        for (int i = 0; i < SKR_LANES; i++)
            one[i] = one_float(type, c->b, (j + SKR_LANES * g + i) * c->pitch + k);
        vf v = v_load(SKR_F32, one, 0);
        UNROLLED
        for (int r = 0; r < ROWS; r++) {
            float x = (r < MR ? first + r : second + r - MR)[(k - k0) * step];
            acc[r * GROUPS + g] = v_fma(v_set1(x), v, acc[r * GROUPS + g]);
        }
    }
    UNROLLED
    for (int i = 0; i < ROWS * GROUPS; i++)
        v_store_float(SKR_F32, sums, SKR_LANES * i, acc[i]);
}

#define F32_KERNEL(name, type, ROWS, GROUPS)                                                                           \
    SKR_IN_ORDER static void name##_run(const skinny_cols *c, int64_t j, int64_t k0, int64_t k1, float *sums)          \
    {                                                                                                                  \
        f32_columns(type, ROWS, GROUPS, c, j, k0, k1, sums);                                                           \
    }                                                                                                                  \
    static const skinny_kernel name = {name##_run, ROWS, SKR_LANES * GROUPS, 1, SKR_LANES * GROUPS};
#if defined(SKR_LEVEL_avx2)
#define F32_KERNELS(name, type)                                                                                        \
    F32_KERNEL(name##_1, type, 1, 2)                                                                                   \
    F32_KERNEL(name##_2, type, 2, 4)                                                                                   \
    F32_KERNEL(name##_4, type, 4, 2)                                                                                   \
    F32_KERNEL(name##_all, type, MOST_ROWS, 1)                                                                         \
    static const skinny_kernel *name(int rows)                                                                         \
    {                                                                                                                  \
        return rows == 1 ? &name##_1 : rows == 2 ? &name##_2 : rows <= 4 ? &name##_4 : &name##_all;                    \
    }
#else
#define F32_KERNELS(name, type)                                                                                        \
    F32_KERNEL(name##_1, type, 1, 1)                                                                                   \
    F32_KERNEL(name##_4, type, 4, 1)                                                                                   \
    F32_KERNEL(name##_8, type, 8, 1)                                                                                   \
    F32_KERNEL(name##_all, type, MOST_ROWS, 1)                                                                         \
    static const skinny_kernel *name(int rows)                                                                         \
    {                                                                                                                  \
        return rows == 1 ? &name##_1 : rows <= 4 ? &name##_4 : rows <= 8 ? &name##_8 : &name##_all;                    \
    }
#endif
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
    static const skinny_kernel name = {name##_run, 16, MOST_COLUMNS, 16, 1};
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
    if (!job->skinny || job->packed || job->gated || job->scaling >= SKR_GEMM_BLOCK || job->dbias.data || b->ks != 1 ||
        job->n < MOST_COLUMNS)
        return NULL;
#if defined(SKR_LEVEL_amx)
    if (job->kind == SKR_GEMM_BF16 && b->type == SKR_BF16 && rows <= 16)
        return &amx_bf16_columns;
    if (job->kind == SKR_GEMM_I8 && b->type == SKR_I8 && rows <= 16)
        return &amx_i8_columns;
#endif
    if (job->kind != SKR_GEMM_F32 || rows > MOST_ROWS)
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

/* All k's of columns n0 ... into out. panels: of a; room: for as much as one of them. The last columns are taken with
 * some before them. */
static void skinny_by_columns(const job_t *job, const side *a, const side *b, const char *panels, int64_t n0, int cols,
                              char *room, float *out, int64_t ld)
{
    const skinny_kernel *kernel = skinny_kernel_of(job, b);
    skinny_cols c = {.a = panels, .b = (const char *)b->data + b->at * skr_type_bytes(b->type), .pitch = b->rs};
    if (job->kind == SKR_GEMM_F32) {
        bool in_order = a->type == SKR_F32 && a->ks == 1 && !job->gather.data;
        const float *as_it_lies = in_order ? (const float *)a->data + a->at : NULL;
        c.a = rows_of_a(kernel->rows, (const float *)panels, as_it_lies, job->k, (float *)room);
    }
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
