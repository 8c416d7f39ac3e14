/* gemm_skinny_x86_cpu.h - few rows of a on x86-64, times columns of b whose k's are neighbours in memory: b is used as
 * it lies, read once, without panels. Types that the level does not multiply are converted a few k's at a time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every sum is the same chain of operations as in the register tiles, so a row has the same bits whichever of them
 * makes it. AVX2 and AVX-512: columns are turned around in registers, word by word: one f32, two bf16, four i8. AMX:
 * columns of b are the rows of the left operand, which is how they lie, and a is the right one. */
#ifndef SKR_GEMM_SKINNY_X86_CPU_H
#define SKR_GEMM_SKINNY_X86_CPU_H

#include "gemm_skinny_codes_x86_cpu.h"
#include "gemm_skinny_dots_x86_cpu.h"

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

/* TURNED words of a vector of columns, `pitch` bytes apart. */
SKR_FN void turn_columns(int type, const char *b, int64_t pitch, vf v[TURNED])
{
    eight_rows(type, b, pitch, v);
}

#else

enum { MOST_ROWS = 16, TURNED = 8 }; /* AMX: as many, too */

/* TURNED words of a vector of columns, `pitch` bytes apart; halves that are widened count as words. */
SKR_FN void turn_columns(int type, const char *b, int64_t pitch, vf v[TURNED])
{
    if (type == SKR_F16 || (type == SKR_BF16 && !HAS_BF16)) {
        sixteen_rows(type, b, pitch, v);
    } else {
        turn_sixteen_words(b, pitch, v);
        turn_sixteen_words(b + 16, pitch, v + 4);
    }
}

#endif

/* Lines that columns will need soon, so many bytes on. */
SKR_FN void ask_early(int columns, const char *b, int64_t pitch, int64_t bytes)
{
    UNROLLED
    for (int i = 0; i < columns; i++)
        _mm_prefetch(b + i * pitch + bytes, _MM_HINT_T0);
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

/* The same for ROWS rows, whose words of a are side by side. i8: they are packed as a + 128, and 128 times the columns
 * are in extra, as in micro_i8. */
SKR_FN void add_words(int kind, int ROWS, const char *a, vf v, vf *acc, vf *extra)
{
    if (kind == SKR_GEMM_I8)
        *extra = add_word(kind, skr_float(0x80808080), v, *extra);
    UNROLLED
    for (int r = 0; r < ROWS; r++)
        acc[r] = add_word(kind, ((const float *)a)[r], v, acc[r]);
}

/* a as the kernels of columns take it: words of `rows` rows side by side, zeros where it has fewer. */
static void words_of_rows(const job_t *job, const side *a, int rows, char *to)
{
    const int per = 4 / skr_kind_bytes(job->kind); /* k's of a word */
    for (int64_t block = 0; block < job->n_blocks; block++, to += panel_bytes(job, rows, 0)) {
        int64_t padded;
        for (int64_t g = 0, k; g < job->segs && (k = segment_k(job, block, g, &padded)); g++) {
            const int64_t k0 = (block * job->segs + g) * job->seg;
            float *words = (float *)to + g * job->seg_pad / per * rows;
            for (int64_t p = 0; p < padded; p += CHUNK, words += CHUNK / per * rows) {
                const int n = k - p < CHUNK ? (int)(k - p) : CHUNK,
                          all = padded - p < CHUNK ? (int)(padded - p) : CHUNK;
                for (int r = 0; r < rows; r++) {
                    _Alignas(64) char run[CHUNK * 4] = {0};
                    int64_t from = r < job->m ? row_of_a(job, r) : -1;
                    if (from >= 0)
                        take_run(job, a, a->at + from * a->rs + (k0 + p) * a->ks, a->ks, r, k0 + p, true, n, run, 0);
                    shift_bytes(job->kind, all, run);
                    for (int w = 0; w < all / per; w++)
                        __builtin_memcpy(&words[w * rows + r], run + 4 * w, 4);
                }
            }
        }
    }
}

/* ROWS rows and GROUPS vectors of columns. type: of b, or what it is converted to. */
SKR_FN void word_columns(int kind, int type, int ROWS, int GROUPS, const skinny_work *c, int64_t j, int64_t k0,
                         int64_t k, float *sums)
{
    enum { MOST = 16, AT_ONCE = 16, MOST_GROUPS = 4 };
    const int step = ROWS * 4, size = skr_type_bytes(type);
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
                ask_early(SKR_LANES, at, pitch, 512); /* from memory 12 % faster: gemm.md */
            for (int u = 0; u < AT_ONCE; u += TURNED) {
                vf v[TURNED];
                turn_columns(type, at + u * bytes, pitch, v);
                UNROLLED
                for (int i = 0; i < TURNED; i++)
                    add_words(kind, ROWS, a + (w + u + i) * step, v[i], acc + g * ROWS, &extra[g]);
            }
        }
        for (; w < all; w++)
            UNROLLED
        for (int g = 0; g < GROUPS; g++) {
            const int there = w < words ? bytes : (int)(n - w * per) * size;
            vf v = some_words(kind, type, from + SKR_LANES * g * pitch + w * bytes, pitch, there);
            add_words(kind, ROWS, a + w * step, v, acc + g * ROWS, &extra[g]);
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
    WORD_KERNEL(name##_12, kind, type, 12, 1)                                                                          \
    WORD_KERNEL(name##_16, kind, type, 16, 1)                                                                          \
    static const skinny_kernel *name(int rows)                                                                         \
    {                                                                                                                  \
        return rows == 1    ? &name##_1                                                                                \
               : rows <= 4  ? &name##_4                                                                                \
               : rows <= 8  ? &name##_8                                                                                \
               : rows <= 12 ? &name##_12                                                                               \
                            : &name##_16;                                                                              \
    }
#endif
#define COLUMNS(name, kind, type) WORD_KERNELS(name##_columns, kind, type)
WORD_TYPES(COLUMNS)
#undef COLUMNS
#undef WORD_KERNELS
#undef WORD_KERNEL

/* ---------------------------------------------------------------- AMX */

#if defined(SKR_LEVEL_amx)

/* Sixteen columns, for more places of memory at a time are slower to read. K's that do not fill a step get zeros after
 * them, as a has. Converted: a few steps at a time, a line more from column to column than they have, which spreads
 * them over L1. */
#define AMX_COLUMNS(name, dot, SIZE)                                                                                   \
    static void name##_run(const skinny_work *c, int64_t j, int64_t k0, int64_t k, float *sums)                        \
    {                                                                                                                  \
        enum { AT_ONCE = 256 / SIZE, PITCH = (AT_ONCE * SIZE + 64) };                                                  \
        _Alignas(64) char room[16 * PITCH];                                                                            \
        const int64_t row = c->rows * 4, rs = c->b->rs * SIZE;                                                         \
        const char *a = c->a;                                                                                          \
        amx_stored(a);                                                                                                 \
        _tile_zero(0);                                                                                                 \
        for (int64_t p = 0, n; p < k; p += n) {                                                                        \
            const char *from = (const char *)c->b->data + (c->b->at + k0 + p) * SIZE + j * rs;                         \
            int64_t left = (k - p) * SIZE;                                                                             \
            if (c->converted || left < 64) {                                                                           \
                n = AT_ONCE < k - p ? AT_ONCE : k - p;                                                                 \
                left = (n * SIZE + 63) / 64 * 64;                                                                      \
                convert_columns(c, 16, j, k0 + p, (int)n, (int)left / SIZE, PITCH / SIZE, room);                       \
                amx_stored(room);                                                                                      \
                for (int64_t at = 0; at < left; at += 64, a += 64 * c->rows) {                                         \
                    _tile_loadd(4, a, row);                                                                            \
                    _tile_loadd(5, room + at, PITCH);                                                                  \
                    dot(0, 5, 4);                                                                                      \
                }                                                                                                      \
            } else {                                                                                                   \
                n = left / 64 * (64 / SIZE);                                                                           \
                for (; left >= 64; left -= 64, from += 64, a += 64 * c->rows) {                                        \
                    ask_early(16, from, rs, 512);                                                                      \
                    _tile_loadd(4, a, row);                                                                            \
                    _tile_loadd(5, from, rs);                                                                          \
                    dot(0, 5, 4);                                                                                      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        _tile_stored(0, sums, row);                                                                                    \
    }                                                                                                                  \
    static const skinny_kernel name[] = {{name##_run, 1, 16, 1, 1},                                                    \
                                         {name##_run, 2, 16, 2, 1},                                                    \
                                         {name##_run, 4, 16, 4, 1},                                                    \
                                         {name##_run, 8, 16, 8, 1},                                                    \
                                         {name##_run, 16, 16, 16, 1}};
AMX_COLUMNS(amx_bf16_columns, _tile_dpbf16ps, 2)
AMX_COLUMNS(amx_i8_columns, _tile_dpbssd, 1)
#if HAS_F16
AMX_COLUMNS(amx_f16_columns, AMX_DOT_F16, 2)
#endif
#undef AMX_COLUMNS

#endif

/* ---------------------------------------------------------------- which, and all columns */

/* For columns of that type; NULL: none. */
static const skinny_kernel *kernel_for(int kind, int type, int rows)
{
    if (rows > MOST_ROWS)
        return NULL;
#if defined(SKR_LEVEL_amx)
    int i = rows > 8 ? 4 : rows > 4 ? 3 : rows > 2 ? 2 : rows > 1 ? 1 : 0;
#if HAS_F16
    if (kind == SKR_GEMM_F16)
        return &amx_f16_columns[i];
#endif
    if (kind != SKR_GEMM_F32)
        return kind == SKR_GEMM_BF16 ? &amx_bf16_columns[i] : &amx_i8_columns[i];
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
    const skinny_kernel *dots = dots_for(job, b);
    if (dots || job->whole) /* whole: the others make floats, and no integers of them */
        return dots;
    const skinny_kernel *codes = codes_for(job, b);
    if (codes)
        return codes;
    return kernel_for(job->kind, skinny_converted(job, b) ? native_type(job->kind) : b->type, (int)job->m);
}

static bool skinny_columns(const job_t *job, const side *b)
{
    return skinny_kernel_of(job, b) != NULL;
}

/* Scales of the columns that sums i ... belong to. */
SKR_FN vf scales_of_sums(const skinny_kernel *kernel, const float *scales, int i)
{
#if defined(SKR_LEVEL_amx)
    if (kernel->row_step == 1) { /* of a column there are some rows, 1 to 16, side by side */
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        __m512i columns = _mm512_srlv_epi32(lanes, _mm512_set1_epi32(__builtin_ctz((unsigned)kernel->rows)));
        __mmask16 there = (__mmask16)(0xffff >> (16 - 16 / kernel->rows));
        return _mm512_permutexvar_ps(columns, _mm512_maskz_loadu_ps(there, scales + i / kernel->rows));
    }
#endif
    return v_load(SKR_F32, scales, i % kernel->width);
}

/* a of these products as their kernel takes it. */
static void pack_few_rows(const job_t *job, const side *a, const side *b, char *to)
{
    const int rows = skinny_kernel_of(job, b)->rows;
    if (dots_for(job, b))
        dots_of_rows(job, a, rows, to);
    else
        words_of_rows(job, a, rows, to);
}

/* t = sums * scales (+ what t holds), of the columns from `first` on. */
static void scale_sums(const skinny_work *c, const skinny_kernel *kernel, int64_t first, int64_t group, bool fresh,
                       const float *sums, float *t)
{
    const job_t *job = c->job;
    const int ints = job->kind == SKR_GEMM_I8, all = kernel->width * kernel->rows;
    _Alignas(64) float room[MOST_COLUMNS];
    const float *scales = of_columns(&job->b_scale, c->b->scale_at, group, first, kernel->width, room);
    for (int i = 0; i < all; i += SKR_LANES) {
        vf scale = scales ? scales_of_sums(kernel, scales, i) : v_set1(1.0f);
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
    const int64_t before = block * panel_bytes(job, kernel->rows, 0);
    int64_t padded;
    for (int64_t g = 0, k; g < job->segs && (k = segment_k(job, block, g, &padded)); g++) {
        _Alignas(64) float sums[MOST_SUMS];
        const int64_t k0 = (block * job->segs + g) * job->seg;
        c->a = a + before + g * job->seg_pad * kernel->rows * skr_kind_bytes(job->kind);
        kernel->run(c, first, k0, k, apart ? sums : t);
        if (apart)
            scale_sums(c, kernel, first, block * job->segs + g, g == 0, sums, t);
    }
}

/* All k's of columns n0 ... into out. a: as pack_few_rows left it. The last columns are taken with some before them. */
static void skinny_by_columns(const job_t *job, const side *b, const char *a, int64_t n0, int cols, float *out,
                              int64_t ld)
{
    const skinny_kernel *kernel = skinny_kernel_of(job, b);
    const bool ints = sums_are_ints(job);
    skinny_work c = {.job = job, .b = b, .all = a, .rows = kernel->rows, .converted = skinny_converted(job, b)};
#if defined(SKR_LEVEL_amx)
    amx_shape(16, kernel->rows * 4); /* of the kernels that have tiles */
#endif
    for (int j = 0; j < cols; j += kernel->width) {
        int64_t first = n0 + j < job->n - kernel->width ? n0 + j : job->n - kernel->width;
        int end = cols - j < kernel->width ? cols : j + kernel->width;
        for (int64_t block = 0; block < job->n_blocks; block++) {
            _Alignas(64) float sums[MOST_SUMS];
            block_of_columns(&c, kernel, a, first, block, sums);
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
