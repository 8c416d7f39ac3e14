/* gemm_skinny_x86_cpu.h - few rows of a on x86-64, times columns of b whose k's are neighbours in memory: b is used as
 * it lies, read once, without panels. Types that the level does not multiply are converted a few k's at a time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every sum is the same chain of operations as in the register tiles, so a row has the same bits whichever of them
 * makes it. AVX2 and AVX-512: columns are turned around in registers, word by word: one f32, two bf16, four i8. AMX:
 * columns of b are the rows of the left operand, which is how they lie, and a is the right one. */
#ifndef SKR_GEMM_SKINNY_X86_CPU_H
#define SKR_GEMM_SKINNY_X86_CPU_H

#include "gemm_pack_cpu.h"

enum { MOST_COLUMNS = 64, MOST_SUMS = MOST_COLUMNS * 16 };

/* Columns of b, and the k's of a that are multiplied at a time: its panel or what rows_of_a makes, where it has two
 * panels so many bytes from one to the other. */
typedef struct skinny_work {
    const job_t *job;
    const side *b;
    const char *a;
    int64_t to_second;
    bool converted;
} skinny_work;

/* Makes the sums over k k's from k0 on of `width` columns from j on: that of a column and a row is at
 * column * column_step + row * row_step. */
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
    if (m->at.type == SKR_F32)
        for (int i = 0; i < columns; i++)
            room[i] = one_float(SKR_F32, m->at.data, at + i * step);
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
    const int size = kind_bytes(job->kind);
    float zeros[MOST_COLUMNS], scales[MOST_COLUMNS];
    code_columns c = {.data = b->data, .rs = b->rs, .type = b->type, .columns = columns, .pitch = pitch};
    for (int p = 0; p < k; p += c.n) { /* of one group */
        c.n = k - p;
        if (job->scaling == SKR_GEMM_GROUP) {
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

/* ---------------------------------------------------------------- words turned around */

/* The kinds, and the types of b, whose words registers hold: one(name, kind, type). AMX has its own way with the
 * others.
 */
#if defined(SKR_LEVEL_amx)
#define WORD_TYPES(one) one(f32, SKR_GEMM_F32, SKR_F32) one(f16, SKR_GEMM_F32, SKR_F16)
#elif HAS_BF16
#define WORD_TYPES(one)                                                                                                \
    one(f32, SKR_GEMM_F32, SKR_F32) one(f16, SKR_GEMM_F32, SKR_F16) one(bf16, SKR_GEMM_BF16, SKR_BF16)                 \
        one(i8, SKR_GEMM_I8, SKR_I8)
#elif HAS_I8
#define WORD_TYPES(one)                                                                                                \
    one(f32, SKR_GEMM_F32, SKR_F32) one(f16, SKR_GEMM_F32, SKR_F16) one(bf16, SKR_GEMM_F32, SKR_BF16)                  \
        one(i8, SKR_GEMM_I8, SKR_I8)
#else
#define WORD_TYPES(one)                                                                                                \
    one(f32, SKR_GEMM_F32, SKR_F32) one(f16, SKR_GEMM_F32, SKR_F16) one(bf16, SKR_GEMM_F32, SKR_BF16)
#endif

#if defined(SKR_LEVEL_avx2)

enum { MOST_ROWS = TILE(F32, MR), TURNED = 4 };

/* Four neighbours as f32. */
SKR_FN __m128 four_floats(int type, const char *at)
{
    if (type == SKR_F32)
        return _mm_loadu_ps((const float *)at);
    __m128i halves = _mm_loadl_epi64((const __m128i *)at);
    if (type == SKR_F16)
        return _mm_cvtph_ps(halves);
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}

/* TURNED words of a vector of columns, `pitch` bytes apart. */
SKR_FN void turn_columns(int type, const char *b, int64_t pitch, vf v[TURNED])
{
    __m256 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++)
        x[i] = two_rows_of(four_floats(type, b + i * pitch), four_floats(type, b + (i + 4) * pitch));
    turn_eight(x, v);
}

#else

enum { MOST_ROWS = 16, TURNED = 8 }; /* AMX: as many, too */

SKR_FN void turn_sixteen_words(const char *b, int64_t pitch, vf v[4])
{
    __m512 x[4];
    UNROLLED
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(b + i * pitch)));
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps((const float *)(b + (i + 4) * pitch)), 1);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps((const float *)(b + (i + 8) * pitch)), 2);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps((const float *)(b + (i + 12) * pitch)), 3);
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
SKR_FN void turn_sixteen_halves(int type, const char *b, int64_t pitch, vf v[8])
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

/* TURNED words of a vector of columns, `pitch` bytes apart; halves that are widened count as words. */
SKR_FN void turn_columns(int type, const char *b, int64_t pitch, vf v[TURNED])
{
    if (type == SKR_F16 || (type == SKR_BF16 && !HAS_BF16)) {
        turn_sixteen_halves(type, b, pitch, v);
    } else {
        turn_sixteen_words(b, pitch, v);
        turn_sixteen_words(b + 16, pitch, v + 4);
    }
}

#endif

/* Lines that a vector of columns will need soon. */
SKR_FN void ask_early(const char *b, int64_t pitch)
{
    enum { EARLY = 512 }; /* bytes */
    UNROLLED
    for (int i = 0; i < SKR_LANES; i++)
        _mm_prefetch(b + i * pitch + EARLY, _MM_HINT_T1);
}

/* One word of a vector of columns, of which `bytes` bytes are there. */
SKR_FN vf some_words(int kind, int type, const char *b, int64_t pitch, int bytes)
{
    float words[SKR_LANES] = {0};
    for (int i = 0; i < SKR_LANES; i++)
        if (kind == SKR_GEMM_F32)
            words[i] = one_float(type, b + i * pitch, 0);
        else
            __builtin_memcpy(&words[i], b + i * pitch, (size_t)bytes);
    return v_load(SKR_F32, words, 0);
}

/* acc += a's word times those of columns. */
SKR_FN vf add_word(int kind, float word, vf v, vf acc)
{
#if HAS_I8
    if (kind == SKR_GEMM_I8)
        return v_of_bits(_mm512_dpbusd_epi32(v_bits(acc), v_bits(v_set1(word)), v_bits(v)));
#endif
#if HAS_BF16
    if (kind == SKR_GEMM_BF16)
        return _mm512_dpbf16_ps(acc, (__m512bh)v_set1(word), (__m512bh)v);
#endif
    (void)kind;
    return v_fma(v_set1(word), v, acc);
}

/* The same for ROWS rows, whose words of a are side by side. i8: a + 128, and 128 times the columns in extra, as in
 * micro_i8. */
SKR_FN void add_words(int kind, int ROWS, const char *a, int64_t to_second, vf v, vf *acc, vf *extra)
{
    enum { MR = TILE(F32, MR) };
    const uint32_t flip = kind == SKR_GEMM_I8 ? 0x80808080 : 0;
    if (kind == SKR_GEMM_I8)
        *extra = add_word(kind, skr_float(flip), v, *extra);
    UNROLLED
    for (int r = 0; r < ROWS; r++) {
        float word = *(const float *)(a + (r < MR ? r * 4 : to_second + (r - MR) * 4));
        acc[r] = add_word(kind, flip ? skr_float(skr_bits(word) ^ flip) : word, v, acc[r]);
    }
}

/* The rows of a that a kernel takes, zeros where a has fewer: side by side for each word, so that one row stays in L1;
 * more than a panel has, as its panels lie. room: for as much as a panel. */
static const char *rows_of_a(int rows, int mr, const char *panels, const float *as_it_lies, int64_t words, char *room)
{
    if (rows >= mr)
        return panels;
    if (rows == 1 && as_it_lies)
        return (const char *)as_it_lies;
    for (int64_t p = 0; p < words; p++)
        for (int r = 0; r < rows; r++)
            ((float *)room)[p * rows + r] = ((const float *)panels)[p * mr + r];
    return room;
}

/* ROWS rows and GROUPS vectors of columns. type: of b, or what it is converted to. */
SKR_FN void word_columns(int kind, int type, int ROWS, int GROUPS, const skinny_work *c, int64_t j, int64_t k0,
                         int64_t k, float *sums)
{
    enum { MR = TILE(F32, MR), MOST = 16, AT_ONCE = 16, MOST_GROUPS = 4 };
    const int step = (ROWS < MR ? ROWS : MR) * 4, size = skr_type_bytes(type);
    const int per = kind == SKR_GEMM_F32 ? 1 : 4 / size,
              bytes = per * size; /* k's of a word, and what they take of b */
    _Alignas(64) char room[SKR_LANES * MOST_GROUPS * CHUNK * 4];
    vf acc[MOST], extra[MOST_GROUPS];
    UNROLLED
    for (int i = 0; i < ROWS * GROUPS; i++)
        acc[i] = v_set1(0.0f);
    UNROLLED
    for (int g = 0; g < GROUPS; g++)
        extra[g] = v_set1(0.0f);
    const char *a = c->a;
    for (int64_t p = 0, n; p < k; p += n) {
        const char *from = room;
        int64_t pitch = CHUNK * size;
        if (c->converted) {
            n = k - p < CHUNK ? k - p : CHUNK;
            convert_columns(c, SKR_LANES * GROUPS, j, k0 + p, (int)n, (int)n, CHUNK, room);
        } else {
            n = k;
            pitch = c->b->rs * size;
            from = (const char *)c->b->data + (c->b->at + k0) * size + j * pitch;
        }
        const int64_t words = n / per, all = (n + per - 1) / per;
        int64_t w = 0;
        for (; w + AT_ONCE <= words; w += AT_ONCE)
            UNROLLED
        for (int g = 0; g < GROUPS; g++) { /* a line of each column is used up at once */
            const char *at = from + SKR_LANES * g * pitch + w * bytes;
            if (ROWS == 1 && type == SKR_F32 && SKR_LANES == 16 && !c->converted)
                ask_early(at, pitch); /* from memory 12 % faster, from L3 slower: gemm.md */
            for (int u = 0; u < AT_ONCE; u += TURNED) {
                vf v[TURNED];
                turn_columns(type, at + u * bytes, pitch, v);
                UNROLLED
                for (int i = 0; i < TURNED; i++)
                    add_words(kind, ROWS, a + (w + u + i) * step, c->to_second, v[i], acc + g * ROWS, &extra[g]);
            }
        }
        for (; w < all; w++)
            UNROLLED
        for (int g = 0; g < GROUPS; g++) {
            const int there = w < words ? bytes : (int)(n - w * per) * size;
            vf v = some_words(kind, type, from + SKR_LANES * g * pitch + w * bytes, pitch, there);
            add_words(kind, ROWS, a + w * step, c->to_second, v, acc + g * ROWS, &extra[g]);
        }
        a += all * step;
    }
    UNROLLED
    for (int i = 0; i < ROWS * GROUPS; i++) {
        int r = i / GROUPS, g = i % GROUPS;
        vf sum = acc[g * ROWS + r];
        if (kind == SKR_GEMM_I8)
            sum = v_of_bits(vi_sub(v_bits(sum), v_bits(extra[g])));
        v_store_float(SKR_F32, sums, SKR_LANES * i, sum);
    }
}

#define WORD_KERNEL(name, kind, type, ROWS, GROUPS)                                                                    \
    SKR_IN_ORDER static void name##_run(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)           \
    {                                                                                                                  \
        word_columns(kind, type, ROWS, GROUPS, c, j, k0, k, sums);                                                     \
    }                                                                                                                  \
    static const skinny_kernel name = {name##_run, ROWS, SKR_LANES * GROUPS, 1, SKR_LANES * GROUPS};
#if defined(SKR_LEVEL_avx2)
#define WORD_KERNELS(name, kind, type)                                                                                 \
    WORD_KERNEL(name##_1, kind, type, 1, 2)                                                                            \
    WORD_KERNEL(name##_2, kind, type, 2, 4)                                                                            \
    WORD_KERNEL(name##_4, kind, type, 4, 2)                                                                            \
    WORD_KERNEL(name##_all, kind, type, MOST_ROWS, 1)                                                                  \
    static const skinny_kernel *name(int rows)                                                                         \
    {                                                                                                                  \
        return rows == 1 ? &name##_1 : rows == 2 ? &name##_2 : rows <= 4 ? &name##_4 : &name##_all;                    \
    }
#else
#define WORD_KERNELS(name, kind, type)                                                                                 \
    WORD_KERNEL(name##_1, kind, type, 1, 1)                                                                            \
    WORD_KERNEL(name##_4, kind, type, 4, 1)                                                                            \
    WORD_KERNEL(name##_8, kind, type, 8, 1)                                                                            \
    WORD_KERNEL(name##_all, kind, type, MOST_ROWS, 1)                                                                  \
    static const skinny_kernel *name(int rows)                                                                         \
    {                                                                                                                  \
        return rows == 1 ? &name##_1 : rows <= 4 ? &name##_4 : rows <= 8 ? &name##_8 : &name##_all;                    \
    }
#endif
#define COLUMNS(name, kind, type) WORD_KERNELS(name##_columns, kind, type)
WORD_TYPES(COLUMNS)
#undef COLUMNS
#undef WORD_KERNELS
#undef WORD_KERNEL

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

/* 64 columns. K's that do not fill a step get zeros after them, as a has. Converted: a few steps at a time, a line more
 * from column to column than they have, which spreads them over L1. */
#define AMX_COLUMNS(name, dot, SIZE)                                                                                   \
    static void name##_run(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)                        \
    {                                                                                                                  \
        enum { AT_ONCE = 256 / SIZE, PITCH = AT_ONCE + 64 / SIZE };                                                    \
        _Alignas(64) char room[MOST_COLUMNS * PITCH * SIZE];                                                           \
        const char *a = c->a;                                                                                          \
        amx_stored(a);                                                                                                 \
        _tile_zero(0);                                                                                                 \
        _tile_zero(1);                                                                                                 \
        _tile_zero(2);                                                                                                 \
        _tile_zero(3);                                                                                                 \
        for (int64_t p = 0, n; p < k; p += n) {                                                                        \
            int64_t pitch = c->b->rs * SIZE, left = (k - p) * SIZE;                                                    \
            const char *from = (const char *)c->b->data + (c->b->at + k0 + p) * SIZE + j * pitch;                      \
            n = c->converted ? AT_ONCE : left >= 64 ? left / 64 * (64 / SIZE) : left / SIZE;                           \
            n = n < k - p ? n : k - p;                                                                                 \
            if (c->converted || left < 64) {                                                                           \
                left = (n * SIZE + 63) / 64 * 64;                                                                      \
                convert_columns(c, MOST_COLUMNS, j, k0 + p, (int)n, (int)left / SIZE, PITCH, room);                    \
                from = room;                                                                                           \
                pitch = PITCH * SIZE;                                                                                  \
                amx_stored(room);                                                                                      \
            }                                                                                                          \
            for (; left >= 64; left -= 64, from += 64, a += STEP_BYTES) {                                              \
                AMX_STEP(dot, from, pitch, a)                                                                          \
            }                                                                                                          \
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

/* For columns of that type; NULL: none. */
static const skinny_kernel *kernel_for(int kind, int type, int rows)
{
    if (rows > MOST_ROWS)
        return NULL;
#if defined(SKR_LEVEL_amx)
    if (kind != SKR_GEMM_F32)
        return kind == SKR_GEMM_BF16 ? &amx_bf16_columns : &amx_i8_columns;
#endif
#define PICK(name, KIND, TYPE)                                                                                         \
    if (kind == KIND && type == TYPE)                                                                                  \
        return name##_columns(rows);
    WORD_TYPES(PICK)
#undef PICK
    return NULL;
}

/* Whether b has another type than is multiplied: f16 and bf16 become f32 in registers. */
static bool skinny_converted(const job_t *job, const side *b)
{
    bool widened = job->kind == SKR_GEMM_F32 && (b->type == SKR_F16 || b->type == SKR_BF16);
    return !moved(job, b) && !(widened && !scaled_here(job, 1));
}

/* Few rows, all of them one task's, and b is nothing that is in panels or scaled by blocks. */
static bool skinny_able(const job_t *job)
{
    return job->skinny && job->m_panels <= job->tile_m && !job->packed && job->scaling != SKR_GEMM_BLOCK &&
           !job->dbias.data && job->kind != SKR_GEMM_INT;
}

static const skinny_kernel *skinny_kernel_of(const job_t *job, const side *b)
{
    if (!skinny_able(job) || b->ks != 1 || job->n < MOST_COLUMNS)
        return NULL;
    return kernel_for(job->kind, skinny_converted(job, b) ? native_type(job->kind) : b->type, (int)job->m);
}

static bool skinny_columns(const job_t *job, const side *b)
{
    return skinny_kernel_of(job, b) != NULL;
}

/* t = sums * scales (+ what t holds), of the columns from `first` on and the group of k0. */
static void scale_sums(const skinny_work *c, const skinny_kernel *kernel, int64_t first, int64_t k0, bool fresh,
                       const float *sums, float *t)
{
    const job_t *job = c->job;
    const int ints = job->kind == SKR_GEMM_I8, all = kernel->width * kernel->rows;
    _Alignas(64) float scales[MOST_COLUMNS];
    if (!of_columns(&job->b_scale, c->b->scale_at, k0 / job->group, first, kernel->width, scales))
        for (int i = 0; i < kernel->width; i++)
            scales[i] = 1.0f;
    for (int i = 0; i < all; i += SKR_LANES) { /* some columns of a row, or all rows of a column */
        vf scale = kernel->column_step == 1 ? v_load(SKR_F32, scales, i % kernel->width) : v_set1(scales[i / 16]);
        vf old = fresh ? v_set1(0.0f) : v_load(SKR_F32, t, i);
        v_store_float(SKR_F32, t, i, v_fma(sum_at(ints, sums, i), scale, old));
    }
}

/* Sums of a k block, of the columns from `first` on. */
static void block_of_columns(skinny_work *c, const skinny_kernel *kernel, const char *a, int64_t first, int64_t block,
                             float *t)
{
    const job_t *job = c->job;
    const bool apart = scaled_apart(job);
    const bool fewer = kernel->column_step == 1 && kernel->rows < job->tile.mr; /* rows_of_a left the others out */
    const int rows = fewer ? kernel->rows : job->tile.mr;
    const int64_t before = block * job->m_panels * panel_bytes(job, rows, 0);
    int64_t padded;
    c->to_second = job->m_panels > 1 ? panel_bytes(job, rows, block) : 0; /* else: of rows that are not there */
    for (int64_t g = 0, k; g < job->segs && (k = segment_k(job, block, g, &padded)); g++) {
        _Alignas(64) float sums[MOST_SUMS];
        const int64_t k0 = (block * job->segs + g) * job->seg;
        c->a = a + before + g * job->seg_pad * rows * kind_bytes(job->kind);
        kernel->run(c, first, k0, k, apart ? sums : t);
        if (apart)
            scale_sums(c, kernel, first, k0, g == 0, sums, t);
    }
}

/* All k's of columns n0 ... into out. panels: of a; room: for as much as one of them. The last columns are taken with
 * some before them. */
static void skinny_by_columns(const job_t *job, const side *a, const side *b, const char *panels, int64_t n0, int cols,
                              char *room, float *out, int64_t ld)
{
    const skinny_kernel *kernel = skinny_kernel_of(job, b);
    const bool ints = job->kind == SKR_GEMM_I8 && !scaled_apart(job);
    skinny_work c = {.job = job, .b = b, .converted = skinny_converted(job, b)};
    const char *rows = panels;
    if (kernel->column_step == 1) {
        bool in_order = job->kind == SKR_GEMM_F32 && a->type == SKR_F32 && a->ks == 1 && !job->gather.data;
        const float *as_it_lies = in_order ? (const float *)a->data + a->at : NULL;
        int64_t words = job->a_batch_bytes / job->m_panels / (job->tile.mr * 4);
        rows = rows_of_a(kernel->rows, job->tile.mr, panels, as_it_lies, words, room);
    }
    for (int j = 0; j < cols; j += kernel->width) {
        int64_t first = n0 + j < job->n - kernel->width ? n0 + j : job->n - kernel->width;
        int end = cols - j < kernel->width ? cols : j + kernel->width;
        for (int64_t block = 0; block < job->n_blocks; block++) {
            _Alignas(64) float sums[MOST_SUMS];
            block_of_columns(&c, kernel, rows, first, block, sums);
            for (int r = 0; r < (int)job->m; r++)
                for (int i = j; i < end; i++) {
                    float x = sums[(n0 + i - first) * kernel->column_step + r * kernel->row_step],
                          *to = out + r * ld + i;
                    if (block && ints)
                        x = skr_float(skr_bits(*to) + skr_bits(x));
                    else if (block)
                        x = *to + x;
                    *to = x;
                }
        }
    }
}

#endif
