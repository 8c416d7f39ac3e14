/* gemm_skinny_groups_neon_cpu.h - few rows of a with i8 or i4 weights in groups, whose k's are neighbours: the weights
 * are read once as they lie and widened in registers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * As in the register tiles: the sum of each group by matrix instructions, then t = fma(sum, scale, t). Sums of bytes
 * are exact in any order, so for i4 with i8 activations the even k's of 32 come before the odd ones, as the nibbles do,
 * and a is put in that order once for all columns. */
#ifndef SKR_GEMM_SKINNY_GROUPS_NEON_CPU_H
#define SKR_GEMM_SKINNY_GROUPS_NEON_CPU_H

#include "gemm_skinny_neon_cpu.h"
#include "gemm_skinny_widen_neon_cpu.h"

#if defined(SKR_LEVEL_neonmm)

enum { SPAN = 32, AHEAD = 1024 }; /* k values at a time; bytes that a stream is prefetched ahead */

/* Blocks of two rows and of two pairs of columns as rows of out; n: how many of the four columns there are. */
SKR_FN void mm_put(float32x4_t left, float32x4_t right, int rows, int n, float *out, int64_t ld)
{
    float64x2_t x = vreinterpretq_f64_f32(left), y = vreinterpretq_f64_f32(right);
    v_store_float_n(SKR_F32, out, 0, vreinterpretq_f32_f64(vzip1q_f64(x, y)), n);
    if (rows > 1)
        v_store_float_n(SKR_F32, out, ld, vreinterpretq_f32_f64(vzip2q_f64(x, y)), n);
}

/* [x's 8 bytes, y's 8 bytes]: low and high half of two columns. */
SKR_FN void pair_columns(uint8x16_t x, uint8x16_t y, uint8x16_t *out)
{
    uint64x2_t u = vreinterpretq_u64_u8(x), v = vreinterpretq_u64_u8(y);
    out[0] = vreinterpretq_u8_u64(vzip1q_u64(u, v));
    out[1] = vreinterpretq_u8_u64(vzip2q_u64(u, v));
}

/* i4 as bytes: 16 even k's, then 16 odd ones. */
SKR_FN void nibbles_even_odd(const uint8_t *x, const uint8_t *y, uint8x16_t out[4])
{
    int8x16_t u = vreinterpretq_s8_u8(vld1q_u8(x)), v = vreinterpretq_s8_u8(vld1q_u8(y));
    pair_columns(vreinterpretq_u8_s8(vshrq_n_s8(vshlq_n_s8(u, 4), 4)),
                 vreinterpretq_u8_s8(vshrq_n_s8(vshlq_n_s8(v, 4), 4)), out);
    pair_columns(vreinterpretq_u8_s8(vshrq_n_s8(u, 4)), vreinterpretq_u8_s8(vshrq_n_s8(v, 4)), out + 2);
}

/* Columns of the weights, in bytes: column j begins at b + j * pitch. */
typedef struct group_columns {
    const uint8_t *b, *a; /* a: as groups_order makes it */
    int64_t pitch;
    int64_t k, group;    /* multiples of SPAN */
    int64_t block;       /* k's of a k block */
    const float *scales; /* of the first column and group, or NULL */
    int64_t scale_row, scale_column;
    int rows;
} group_columns;

/* TWOS times two columns of eight rows. other: columns from the first of two to the second (0: there is none). */
SKR_FN void groups_of(int TWOS, int other, const group_columns *g, int j, float *out, int64_t ld)
{
    enum { VECTORS = 4, PAIRS = 4 }; /* of SPAN k's; of rows */
    float32x4_t t[2][PAIRS];
    UNROLLED
    for (int i = 0; i < TWOS * PAIRS; i++)
        t[i / PAIRS][i % PAIRS] = vdupq_n_f32(0);
    const float *scales = g->scales ? g->scales + j * g->scale_column : NULL;
    for (int64_t k = 0; k < g->k;) {
        float32x4_t acc[2][PAIRS];
        UNROLLED
        for (int i = 0; i < TWOS * PAIRS; i++)
            acc[i / PAIRS][i % PAIRS] = vdupq_n_f32(0);
        int64_t end = k + g->group < g->k ? k + g->group : g->k;
        for (; k < end; k += SPAN) {
            const uint8_t *a = g->a + k / SPAN * (VECTORS * 64);
            UNROLLED
            for (int c = 0; c < TWOS; c++) {
                const uint8_t *b = g->b + (j + 2 * c) * g->pitch + k / 2;
                uint8x16_t v[VECTORS];
                __builtin_prefetch(b + AHEAD, 0, 2);
                __builtin_prefetch(b + other * g->pitch + AHEAD, 0, 2);
                nibbles_even_odd(b, b + other * g->pitch, v);
                UNROLLED
                for (int i = 0; i < VECTORS; i++)
                    UNROLLED
                for (int r = 0; r < PAIRS; r++)
                    acc[c][r] = mm_one(1, acc[c][r], vld1q_u8(a + i * 64 + r * 16), v[i]);
            }
        }
        UNROLLED
        for (int c = 0; c < TWOS; c++) {
            const float *at = scales ? scales + 2 * c * g->scale_column : NULL;
            float32x2_t two = vdup_n_f32(at ? at[0] : 1);
            two = vset_lane_f32(at ? at[other * g->scale_column] : 1, two, 1);
            float32x4_t scale = vcombine_f32(two, two);
            UNROLLED
            for (int r = 0; r < PAIRS; r++)
                t[c][r] = vfmaq_f32(t[c][r], vcvtq_f32_s32(vreinterpretq_s32_f32(acc[c][r])), scale);
        }
        scales = scales ? scales + g->scale_row : NULL;
    }
    UNROLLED
    for (int c = 0; c < TWOS; c++)
        UNROLLED
    for (int r = 0; r < PAIRS; r++)
        if (2 * r < g->rows) {
            float *to = out + 2 * r * ld + j + 2 * c;
            mm_put(t[c][r], t[c][r], g->rows - 2 * r, 1 + other, to, ld);
        }
}

SKR_IN_ORDER static void groups_i8_i4(const group_columns *g, int cols, float *out, int64_t ld)
{
    int j = 0;
    for (; j + 4 <= cols; j += 4)
        groups_of(2, 1, g, j, out, ld);
    for (; j + 2 <= cols; j += 2)
        groups_of(1, 1, g, j, out, ld);
    if (j < cols)
        groups_of(1, 0, g, j, out, ld);
}

/* a's panel with the even k's of every 32 before the odd ones. */
static void even_odd(const uint8_t *a, int64_t k, uint8_t *to)
{
    for (int64_t p = 0; p < k; p += SPAN)
        for (int i = 0; i < SPAN; i++) {
            int from = i < SPAN / 2 ? 2 * i : 2 * i - SPAN + 1;
            for (int r = 0; r < 8; r++)
                to[p * 8 + i / 8 * 64 + r * 8 + i % 8] = a[p * 8 + from / 8 * 64 + r * 8 + from % 8];
        }
}

/* ---------------------------------------------------------------- bf16 x i8 and i4, one or two rows */

/* A panel of a as its first two rows alone: with the others between they would take most of L1, and every task reads
 * them. */
static void two_rows(int64_t k, uint8_t *a)
{
    for (int64_t p = 0; p < k; p += 4)
        vst1q_u8(a + p * 4, vld1q_u8(a + p * 16));
}

/* Scales of groups first ... first + n - 1 where they are not eight neighbours. Groups that are neighbours themselves,
 * as a linear layer's [N, K / group] has them, are taken four by four. */
static void wide_scales(const group_columns *g, int j, int cols, int64_t first, int64_t n, float *to)
{
    int64_t i = 0;
    for (; g->scales && g->scale_row == 1 && cols == WIDE && i + 4 <= n; i += 4)
        for (int c = 0; c < WIDE; c += 4)
            transpose_words(g->scales + first + i + (j + c) * g->scale_column, g->scale_column, to + i * WIDE + c,
                            WIDE);
    for (; i < n; i++)
        for (int c = 0; c < WIDE; c++) {
            int column = j + (c < cols ? c : cols - 1);
            to[i * WIDE + c] = g->scales ? g->scales[(first + i) * g->scale_row + column * g->scale_column] : 1;
        }
}

/* All k's of cols up to WIDE columns from j on; those that are not there are the last one again. */
static void wide_columns(int nibbles, const group_columns *g, int j, int cols, float *out, int64_t ld)
{
    enum { GROUPS = 32 }; /* at a time, where scales are gathered */
    float scales[GROUPS * WIDE];
    const int per_byte = nibbles ? 2 : 1;
    bool as_they_lie = g->scales && g->scale_column == 1 && cols == WIDE;
    int64_t part = g->group < g->block ? g->group : g->block; /* k's that are summed, then scaled */
    int64_t of_block = g->block / part;
    wide_run run = {.scale_row = as_they_lie ? g->scale_row : WIDE};
    wide_sums sums = {.left = of_block, .of_block = of_block};
    for (int i = 0; i < 2 * WIDE; i++)
        sums.total[i] = -0.0f; /* plus x is x, even for -0 */
    for (int64_t k = 0; k < g->k; k += run.groups * run.units * WIDE_UNIT) {
        int64_t left = g->k - k, whole = left / part, first = k / g->group; /* the last group may have fewer k's */
        run.groups = whole < 1 ? 1 : whole < GROUPS || as_they_lie ? whole : GROUPS;
        run.units = (whole < 1 ? left : part) / WIDE_UNIT;
        run.a = g->a + k * 4;
        for (int c = 0; c < WIDE; c++)
            run.b[c] = g->b + (j + (c < cols ? c : cols - 1)) * g->pitch + k / per_byte;
        run.scales = as_they_lie ? g->scales + first * g->scale_row + j : scales;
        if (!as_they_lie)
            wide_scales(g, j, cols, first, run.groups, scales);
        sums.last = left / per_byte - WIDE_AHEAD;
        sums.next = WIDE * g->pitch - g->k / per_byte;
        (nibbles ? wide_i4 : wide_i8)(&run, &sums);
    }
    bool open = sums.left < of_block; /* the last k block has fewer groups */
    for (int r = 0; r < g->rows; r++)
        for (int c = 0; c < cols; c++) {
            int at = c / 2 * 4 + r * 2 + c % 2;
            out[r * ld + j + c] = open ? sums.total[at] + sums.t[at] : sums.total[at];
        }
}

/* ---------------------------------------------------------------- i8 x i4, one or two rows: dot products
 *
 * A nibble in the upper half of a byte is 16 times its value: one shift, or one mask, instead of two shifts. */

enum { MAX_DOT_GROUP = 1 << 16 }; /* 16 times a sum of so many products fits 32 bits */

/* ROWS rows: 16 even k's of each, 16 odd ones, for every SPAN. */
static void even_odd_rows(const uint8_t *a, int64_t k, int rows, uint8_t *to)
{
    for (int64_t p = 0; p < k; p += SPAN)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < SPAN; i++, to++) {
                int from = i < SPAN / 2 ? 2 * i : 2 * i - SPAN + 1;
                *to = a[p * 8 + from / 8 * 64 + r * 8 + from % 8];
            }
}

/* The sums of four columns from `column` on, `apart` from each other (0: one, four times), over k's up to end. */
SKR_FN void dot_group(int ROWS, const group_columns *g, int column, int apart, int64_t k, int64_t end, int32x4_t *sums)
{
    int32x4_t acc[2][4];
    UNROLLED
    for (int i = 0; i < 4 * ROWS; i++)
        acc[i / 4][i % 4] = vdupq_n_s32(0);
    const uint8_t *b = g->b + column * g->pitch + k / 2;
    for (; k < end; k += SPAN, b += SPAN / 2) {
        const int8_t *a = (const int8_t *)g->a + k * ROWS;
        UNROLLED
        for (int c = 0; c < 4; c++) {
            uint8x16_t v = vld1q_u8(b + c * apart * g->pitch);
            int8x16_t even = vreinterpretq_s8_u8(vshlq_n_u8(v, 4));
            int8x16_t odd = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(0xf0)));
            UNROLLED
            for (int r = 0; r < ROWS; r++) {
                acc[r][c] = vdotq_s32(acc[r][c], even, vld1q_s8(a + r * SPAN));
                acc[r][c] = vdotq_s32(acc[r][c], odd, vld1q_s8(a + r * SPAN + SPAN / 2));
            }
        }
    }
    UNROLLED
    for (int r = 0; r < ROWS; r++)
        sums[r] = vshrq_n_s32(vpaddq_s32(vpaddq_s32(acc[r][0], acc[r][1]), vpaddq_s32(acc[r][2], acc[r][3])), 4);
}

/* The scales of four columns. */
SKR_FN float32x4_t dot_scales(const float *from, int64_t apart)
{
    float four[4];
    for (int i = 0; i < 4; i++)
        four[i] = from[i * apart];
    return vld1q_f32(four);
}

/* The first n of four columns through all k's. */
SKR_FN void dot_columns(int ROWS, const group_columns *g, int column, int apart, int n, float *out, int64_t ld)
{
    float32x4_t total[2] = {vdupq_n_f32(-0.0f), vdupq_n_f32(-0.0f)}; /* plus x is x, even for -0 */
    const float *scales = g->scales ? g->scales + column * g->scale_column : NULL;
    for (int64_t k = 0; k < g->k;) {
        int64_t end = k + g->block < g->k ? k + g->block : g->k;
        float32x4_t t[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
        while (k < end) {
            int32x4_t sums[2];
            int64_t next = k + g->group < end ? k + g->group : end;
            dot_group(ROWS, g, column, apart, k, next, sums);
            float32x4_t scale = scales ? dot_scales(scales, apart * g->scale_column) : vdupq_n_f32(1);
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                t[r] = vfmaq_f32(t[r], vcvtq_f32_s32(sums[r]), scale);
            scales = scales ? scales + g->scale_row : NULL;
            k = next;
        }
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            total[r] = vaddq_f32(total[r], t[r]);
    }
    for (int r = 0; r < ROWS; r++) {
        float sums[4];
        vst1q_f32(sums, total[r]);
        for (int i = 0; i < n; i++)
            out[r * ld + column + i * apart] = sums[i];
    }
}

#define DOTS(name, ROWS)                                                                                               \
    SKR_IN_ORDER static void name(const group_columns *g, int cols, float *out, int64_t ld)                            \
    {                                                                                                                  \
        int j = 0;                                                                                                     \
        for (; j + 4 <= cols; j += 4)                                                                                  \
            dot_columns(ROWS, g, j, 1, 4, out, ld);                                                                    \
        for (; j < cols; j++)                                                                                          \
            dot_columns(ROWS, g, j, 0, 1, out, ld);                                                                    \
    }
DOTS(dots_1, 1)
DOTS(dots_2, 2)
#undef DOTS

/* ---------------------------------------------------------------- which one */

/* Whether there is a way for this product. With more rows of bf16, panels of widened weights are no slower. */
static bool skinny_groups(const job_t *job, const side *b)
{
    bool i8 = job->kind == SKR_GEMM_I8 && b->type == SKR_I4 && job->m <= job->tile.mr;
    bool bf16 = job->kind == SKR_GEMM_BF16 && (b->type == SKR_I4 || b->type == SKR_I8) && job->m <= 2;
    return job->skinny && (i8 || bf16) && !job->packed && !job->b_zero.at.data && job->scaling == SKR_GEMM_GROUP &&
           b->ks == 1 && job->group % SPAN == 0 && job->k % SPAN == 0;
}

/* Whether the tasks of a product will be groups_by_widening's. */
static bool skinny_widened(const job_t *job, const side *b)
{
    return job->kind == SKR_GEMM_BF16 && job->n_blocks && !job->dbias.data && skinny_groups(job, b);
}

static bool skinny_dots(const job_t *job)
{
    return job->kind == SKR_GEMM_I8 && job->m <= 2 && job->group <= MAX_DOT_GROUP;
}

/* Columns n0 ... of b from k0 on. */
static group_columns columns_from(const job_t *job, const side *b, const uint8_t *a, int64_t k0, int64_t n0)
{
    int nibbles = b->type == SKR_I4;
    const float *scales = job->b_scale.at.data;
    int64_t at = b->at + n0 * b->rs + k0;
    group_columns g = {.b = (const uint8_t *)b->data + (nibbles ? at / 2 : at),
                       .a = a,
                       .pitch = nibbles ? b->rs / 2 : b->rs,
                       .k = job->k - k0,
                       .group = job->group,
                       .block = job->seg * job->segs,
                       .scale_row = job->b_scale.row,
                       .scale_column = job->b_scale.at.col_stride,
                       .rows = (int)job->m};
    if (scales)
        g.scales = scales + b->scale_at + k0 / job->group * g.scale_row + n0 * g.scale_column;
    return g;
}

/* All k's of columns n0 ... into out. a: the panel; room: for as much. */
static void groups_by_dots(const job_t *job, const side *b, const char *a, int64_t n0, int cols, char *room, float *out,
                           int64_t ld)
{
    even_odd_rows((const uint8_t *)a, job->k, (int)job->m, (uint8_t *)room);
    group_columns g = columns_from(job, b, (const uint8_t *)room, 0, n0);
    (job->m == 1 ? dots_1 : dots_2)(&g, cols, out, ld);
}

/* The same by widening the weights. a: as two_rows leaves it. */
static void groups_by_widening(const job_t *job, const side *b, const char *a, int64_t n0, int cols, float *out,
                               int64_t ld)
{
    group_columns g = columns_from(job, b, (const uint8_t *)a, 0, n0);
    for (int j = 0; j < cols; j += WIDE)
        wide_columns(b->type == SKR_I4, &g, j, cols - j < WIDE ? cols - j : WIDE, out, ld);
}

/* As skinny_by_rows, for more than two rows. a: all its k's, as even_odd makes it. */
static void groups_block(const job_t *job, const side *b, const uint8_t *a, int64_t block, int64_t n0, int cols,
                         float *out, int64_t ld)
{
    int64_t k0 = block * job->seg * job->segs;
    group_columns g = columns_from(job, b, a + k0 * 8, k0, n0);
    g.k = g.k < g.block ? g.k : g.block;
    groups_i8_i4(&g, cols, out, ld);
}

#endif

#endif
