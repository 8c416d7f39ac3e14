/* gemm_skinny_rows_x86_cpu.h - few rows of a on x86-64, times b whose columns are neighbours in memory: b is used as it
 * lies, read once, without panels. Types that the level does not multiply are converted a few k's at a time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Some k's pass over all columns of the task, strip by strip, so that what is read of a row is long; the sums wait in
 * out. A strip's k's of one word (one f32, two bf16, four i8) are put side by side in registers, on AMX in memory. */
#ifndef SKR_GEMM_SKINNY_ROWS_X86_CPU_H
#define SKR_GEMM_SKINNY_ROWS_X86_CPU_H

#include "gemm_skinny_x86_cpu.h"

/* Columns of a strip, k's that pass at a time, and at most, where groups of them are scaled. */
enum { STRIP = 4 * SKR_LANES, STRIP_KS = 64, MOST_STRIP_KS = 256 };

/* ---------------------------------------------------------------- strips that are converted, or copied */

/* (code - zero) * scale of a strip; NULL: none. */
SKR_FN void adjust_strip(const float *zeros, const float *scales, float *x)
{
    for (int i = 0; i < STRIP; i += SKR_LANES) {
        vf v = v_load(SKR_F32, x, i);
        v = zeros ? v_sub(v, v_load(SKR_F32, zeros, i)) : v;
        v_store_float(SKR_F32, x, i, scales ? v_mul(v, v_load(SKR_F32, scales, i)) : v);
    }
}

/* k's from k0 on of n columns from j on, in the panel's type: STRIP columns of each of `padded` k's, zeros where there
 * are none. */
static void convert_strip(const skinny_work *s, int64_t j, int n, int64_t k0, int k, int padded, char *to)
{
    const job_t *job = s->job;
    const side *b = s->b;
    const int size = skr_kind_bytes(job->kind);
    const bool floats = job->kind == SKR_GEMM_F32, grouped = job->scaling == SKR_GEMM_GROUP;
    float zeros[STRIP], scales[STRIP];
    code_columns c = {.data = b->data, .rs = b->ks, .type = b->type, .n = n, .pitch = STRIP};
    if (n < STRIP || k < padded)
        __builtin_memset(to, 0, (size_t)(padded * STRIP * size));
    for (int p = 0; p < k; p += c.columns) { /* of one group */
        const float *zero = NULL, *scale = NULL;
        c.columns = k - p;
        if (grouped) {
            int64_t group = (k0 + p) / job->group, left = (group + 1) * job->group - k0 - p;
            c.columns = left < c.columns ? (int)left : c.columns;
            zero = of_columns(&job->b_zero, b->zero_at, group, j, n, zeros);
            scale = floats ? of_columns(&job->b_scale, b->scale_at, group, j, n, scales) : NULL;
        }
        c.at = b->at + j + (k0 + p) * b->ks;
        c.to = to + p * STRIP * size;
        const bool whole = n == STRIP && !moved(job, b) && (floats || !zero) && convert_codes(job->kind, &c) == n;
        for (int i = 0; i < c.columns; i++)
            if (!whole)
                take_run(job, b, c.at + i * b->ks, 1, j, k0 + p + i, false, n, c.to, (int64_t)i * STRIP);
            else if (zero || scale)
                adjust_strip(zero, scale, (float *)c.to + i * STRIP);
    }
}

/* Where the k's of a strip are, `pitch` bytes from one to the next; ahead: bytes to the next strip (0: none). */
typedef struct strip {
    const char *at;
    int64_t pitch, ahead;
} strip;

/* Asks for n k's of the next strip: there are more of them than the core's own prefetch follows. */
SKR_FN void ask_next(const strip *s, int64_t k, int n)
{
    UNROLLED
    for (int u = 0; u < n; u++)
        for (int64_t at = s->ahead; at && at < 2 * s->ahead; at += 64)
            _mm_prefetch(s->at + (k + u) * s->pitch + at, _MM_HINT_T0);
}

/* Words of k's k ... of SKR_LANES columns. */
SKR_FN vf strip_words(int kind, int type, const strip *s, int64_t k, int column)
{
    const char *at = s->at + k * s->pitch + column * skr_type_bytes(type);
#if HAS_I8
    if (kind == SKR_GEMM_I8)
        return v_of_bits(quads_of(16, (const uint8_t *)at, s->pitch));
#endif
#if HAS_BF16
    if (kind == SKR_GEMM_BF16)
        return v_of_bits(pairs_of(16, (const uint16_t *)at, s->pitch / 2));
#endif
    (void)kind;
    return v_load(type, at, 0);
}

/* ---------------------------------------------------------------- sums of a strip */

#if defined(SKR_LEVEL_amx)

enum { STEP_BYTES = 2 * 16 * 64 }; /* of the panel of a, 32 rows */

#define AMX_STRIP(name, dot, SIZE)                                                                                     \
    static void name(const strip *s, const char *a, int64_t k, bool fresh, float *t, int64_t ld)                       \
    {                                                                                                                  \
        enum { STEP = 64 / SIZE, WORD = 4 / SIZE };                                                                    \
        const int kind = SIZE == 2 ? SKR_GEMM_BF16 : SKR_GEMM_I8, type = SIZE == 2 ? SKR_BF16 : SKR_I8; /* moved */    \
        _Alignas(64) float words[4][16 * 16];                                                                          \
        if (fresh) {                                                                                                   \
            _tile_zero(0);                                                                                             \
            _tile_zero(1);                                                                                             \
            _tile_zero(2);                                                                                             \
            _tile_zero(3);                                                                                             \
        } else {                                                                                                       \
            amx_stored(t);                                                                                             \
            _tile_loadd(0, t, ld * 4);                                                                                 \
            _tile_loadd(1, t + 16, ld * 4);                                                                            \
            _tile_loadd(2, t + 32, ld * 4);                                                                            \
            _tile_loadd(3, t + 48, ld * 4);                                                                            \
        }                                                                                                              \
        for (int64_t p = 0; p < k; p += STEP, a += STEP_BYTES) {                                                       \
            for (int w = 0; w < 16; w++) {                                                                             \
                ask_next(s, p + w * WORD, WORD);                                                                       \
                UNROLLED                                                                                               \
                for (int i = 0; i < 4; i++)                                                                            \
                    v_store_float(SKR_F32, words[i], 16 * w, strip_words(kind, type, s, p + w * WORD, 16 * i));        \
            }                                                                                                          \
            amx_stored(words);                                                                                         \
            _tile_loadd(4, a, 64);                                                                                     \
            _tile_loadd(5, words[0], 64);                                                                              \
            dot(0, 4, 5);                                                                                              \
            _tile_loadd(6, words[1], 64);                                                                              \
            dot(1, 4, 6);                                                                                              \
            _tile_loadd(7, words[2], 64);                                                                              \
            dot(2, 4, 7);                                                                                              \
            _tile_loadd(5, words[3], 64);                                                                              \
            dot(3, 4, 5);                                                                                              \
        }                                                                                                              \
        _tile_stored(0, t, ld * 4);                                                                                    \
        _tile_stored(1, t + 16, ld * 4);                                                                               \
        _tile_stored(2, t + 32, ld * 4);                                                                               \
        _tile_stored(3, t + 48, ld * 4);                                                                               \
    }
AMX_STRIP(amx_bf16_strip, _tile_dpbf16ps, 2)
AMX_STRIP(amx_i8_strip, _tile_dpbssd, 1)
#if HAS_F16
AMX_STRIP(amx_f16_strip, AMX_DOT_F16, 2)
#endif
#undef AMX_STRIP

#endif

/* ROWS rows of t += k k's (t =: fresh). a: the first of these rows' words. */
SKR_FN void strip_sums(int kind, int type, int ROWS, const strip *s, const char *a, int64_t k, bool fresh, float *t,
                       int64_t ld)
{
    enum { MR = TILE(F32, MR), NV = 4, MOST = 4 };
    const int per = kind == SKR_GEMM_F32 ? 1 : 4 / skr_type_bytes(type);
    vf acc[NV][MOST], extra[NV];
    UNROLLED
    for (int i = 0; i < NV; i++) {
        extra[i] = v_set1(0.0f);
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            acc[i][r] = fresh ? v_set1(0.0f) : v_load(SKR_F32, t, r * ld + i * SKR_LANES);
    }
    for (int64_t p = 0; p < k; p += per, a += MR * 4) {
        ask_next(s, p, per);
        UNROLLED
        for (int i = 0; i < NV; i++)
            add_words(kind, ROWS, a, strip_words(kind, type, s, p, i * SKR_LANES), acc[i], &extra[i]);
    }
    UNROLLED
    for (int i = 0; i < NV * ROWS; i++) {
        vf sum = acc[i / ROWS][i % ROWS];
        if (kind == SKR_GEMM_I8)
            sum = v_of_bits(vi_sub(v_bits(sum), v_bits(extra[i / ROWS])));
        v_store_float(SKR_F32, t, i % ROWS * ld + i / ROWS * SKR_LANES, sum);
    }
}

/* Rows of a that are taken together: a panel has whole such groups. */
enum { ROWS_TOGETHER = TILE(F32, MR) % 4 ? 2 : 4 };

#define STRIP_KERNELS(name, kind, type)                                                                                \
    SKR_IN_ORDER static void name##_strip_one(const strip *s, const char *a, int64_t k, bool fresh, float *t,          \
                                              int64_t ld)                                                              \
    {                                                                                                                  \
        strip_sums(kind, type, 1, s, a, k, fresh, t, ld);                                                              \
    }                                                                                                                  \
    SKR_IN_ORDER static void name##_strip_some(const strip *s, const char *a, int64_t k, bool fresh, float *t,         \
                                               int64_t ld)                                                             \
    {                                                                                                                  \
        strip_sums(kind, type, ROWS_TOGETHER, s, a, k, fresh, t, ld);                                                  \
    }
WORD_TYPES(STRIP_KERNELS)
#undef STRIP_KERNELS

typedef void strip_kernel(const strip *s, const char *a, int64_t k, bool fresh, float *t, int64_t ld);

/* type: of the strip. */
static strip_kernel *strip_kernel_of(int kind, int type, bool one)
{
#define PICK(name, KIND, TYPE)                                                                                         \
    if (kind == KIND && type == TYPE)                                                                                  \
        return one ? name##_strip_one : name##_strip_some;
    WORD_TYPES(PICK)
#undef PICK
    return NULL; /* no product has such a kind and such a strip */
}

/* All rows. t: `rows` rows of STRIP columns, rounded up to whole groups of rows (AMX: not). */
static void strip_rows(const skinny_work *c, int type, const strip *s, int64_t k, bool fresh, float *t, int64_t ld)
{
    const job_t *job = c->job;
    const int m = (int)job->m, mr = job->tile.mr;
#if defined(SKR_LEVEL_amx)
#if HAS_F16
    if (job->kind == SKR_GEMM_F16) {
        amx_f16_strip(s, c->a, k, fresh, t, ld);
        return;
    }
#endif
    if (job->kind != SKR_GEMM_F32) {
        (job->kind == SKR_GEMM_BF16 ? amx_bf16_strip : amx_i8_strip)(s, c->a, k, fresh, t, ld);
        return;
    }
#endif
    for (int r = 0; r < m; r += m == 1 ? 1 : ROWS_TOGETHER)
        strip_kernel_of(job->kind, type, m == 1)(s, c->a + (r < mr ? r * 4 : c->to_second + (r - mr) * 4), k, fresh,
                                                 t + r * ld, ld);
}

/* ---------------------------------------------------------------- all columns */

/* Whether few rows can use b as it lies. */
static bool skinny_rows(const job_t *job, const side *b)
{
    return skinny_able(job) && !job->whole && b->rs == 1 && b->ks != 1 && job->m <= MOST_ROWS &&
           (!scaled_apart(job) || job->seg <= MOST_STRIP_KS);
}

/* k's k0 ... of columns j ... j + n - 1 of the product: t (+)= them, times their scales if they have some. */
static void strip_step(const skinny_work *c, int64_t j, int n, int64_t k0, int k, bool fresh, bool apart, float *t,
                       int64_t ld)
{
    _Alignas(64) char room[MOST_STRIP_KS * STRIP * 2 + STRIP_KS * STRIP * 4];
    _Alignas(64) float sums[16 * STRIP];
    const job_t *job = c->job;
    const int granule = job->tile.granule, padded = (k + granule - 1) / granule * granule, rows = (int)job->m;
    const bool here = c->converted || n < STRIP || k < padded;
    const int type = here ? native_type(job->kind) : c->b->type, size = skr_type_bytes(c->b->type);
    strip s = {.at = room, .pitch = STRIP * skr_kind_bytes(job->kind)};
    if (here)
        convert_strip(c, j, n, k0, k, padded, room);
    else
        s = (strip){(const char *)c->b->data + (c->b->at + j + k0 * c->b->ks) * size, c->b->ks * size, STRIP * size};
    if (n == STRIP && !apart) {
        strip_rows(c, type, &s, padded, fresh, t, ld);
        return;
    }
    for (int r = 0; !apart && !fresh && r < rows; r++)
        __builtin_memcpy(sums + r * STRIP, t + r * ld, (size_t)n * sizeof *t);
    strip_rows(c, type, &s, padded, apart || fresh, sums, STRIP);
    float scales[STRIP];
    const float *scale = apart ? of_columns(&job->b_scale, c->b->scale_at, k0 / job->group, j, n, scales) : NULL;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            float x = sums[r * STRIP + i], *to = t + r * ld + i;
            if (apart) /* as add_scaled does */
                x = __builtin_fmaf(job->kind == SKR_GEMM_I8 ? (float)(int32_t)skr_bits(x) : x, scale ? scale[i] : 1.0f,
                                   fresh ? 0.0f : *to);
            *to = x;
        }
}

/* K block `block` of columns n0 ... into out. panels: of a. */
static void skinny_by_rows(const job_t *job, const side *b, const char *panels, int64_t block, int64_t n0, int cols,
                           float *out, int64_t ld)
{
    const bool apart = scaled_apart(job);
    const int mr = job->tile.mr;
    const char *a = panels + block * job->m_panels * panel_bytes(job, mr, 0);
    skinny_work c = {.job = job,
                     .b = b,
                     .to_second = job->m_panels > 1 ? panel_bytes(job, mr, block) : 0,
                     .converted = skinny_converted(job, b)};
#if defined(SKR_LEVEL_amx)
    amx_shape((int)job->m, 64);
#endif
    int64_t padded;
    for (int64_t g = 0, k; g < job->segs && (k = segment_k(job, block, g, &padded)); g++) {
        const int64_t k0 = (block * job->segs + g) * job->seg, at_once = apart ? k : STRIP_KS;
        for (int64_t p = 0; p < k; p += at_once) {
            const int n = k - p < at_once ? (int)(k - p) : (int)at_once;
            c.a = a + (g * job->seg_pad + p) * mr * skr_kind_bytes(job->kind);
            for (int j = 0; j < cols; j += STRIP)
                strip_step(&c, n0 + j, cols - j < STRIP ? cols - j : STRIP, k0 + p, n, g == 0 && p == 0, apart, out + j,
                           ld);
        }
    }
}

#endif
