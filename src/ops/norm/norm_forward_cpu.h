/* norm_forward_cpu.h - forward rows of rms_norm and layer_norm. Included by the kernel file of each, which says what
 * CENTRE is: 0, or 1 to subtract the mean. SPDX-License-Identifier: Apache-2.0
 *
 * Two sweeps a row: the sums (first adding and storing the residual), then the result, read again from cache. The
 * element types are constants of always-inlined bodies; the tables below hold one small function for each
 * combination. */
#ifndef SKR_NORM_FORWARD_CPU_H
#define SKR_NORM_FORWARD_CPU_H

#include "../../cpu/quant.h"
#include "norm_cpu.h"

typedef skr_norm_job job_t;

/* Elements that the main loops take at once: four pairs of vectors. Loads come first, then each operation for all of
 * them, then the stores: the compiler may not move a load above a store, and a core's queues fill up when every
 * operation waits for the one before it. */
enum { K = 4, BLOCK = 2 * K * SKR_LANES };

/* ---------------------------------------------------------------- first sweep: s and its sums, one chunk */

SKR_TAIL sums add_tail(int xt, int rt, int ot, const void *x, const void *residual, void *out, int64_t i, int64_t n)
{
    chains a = chains_zero();
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        vf2 t = v_load2_n(xt, x, i, m);
        if (residual)
            t = v2_add(t, v_load2_n(rt, residual, i, m));
        v_store2_n(ot, out, i, t, m);
        chains_add(v2_round_to(ot, t), 0, &a);
    }
    return chains_total(&a);
}

/* s = x + residual (x alone when with is 0), stored as type ot; what was stored is summed. */
SKR_FN sums add_body(int xt, int rt, int ot, int with, const void *x, const void *residual, void *out, int64_t n)
{
    chains a = chains_zero();
    vf2 s[K];
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            s[k] = v_load2(xt, x, i + 2 * k * SKR_LANES);
        if (with)
            SKR_UNROLL
        for (int k = 0; k < K; k++)
            s[k] = v2_add(s[k], v_load2(rt, residual, i + 2 * k * SKR_LANES));
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            s[k] = v_store2_round(ot, out, i + 2 * k * SKR_LANES, s[k]);
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            chains_add(s[k], k, &a);
    }
    sums sum = chains_total(&a);
    return i < n ? sums_add(sum, add_tail(xt, rt, ot, x, residual, out, i, n)) : sum;
}

typedef sums (*first_fn)(const void *x, const void *residual, void *out, int64_t n);

#define SUMS(xt)                                                                                                       \
    static sums sums_##xt(const void *x, const void *residual, void *out, int64_t n)                                   \
    {                                                                                                                  \
        (void)residual;                                                                                                \
        (void)out;                                                                                                     \
        return sums_body(SKR_##xt, x, n);                                                                              \
    }
#define COPY(xt, ot)                                                                                                   \
    static sums copy_##xt##_##ot(const void *x, const void *residual, void *out, int64_t n)                            \
    {                                                                                                                  \
        return add_body(SKR_##xt, SKR_F32, SKR_##ot, 0, x, residual, out, n);                                          \
    }
#define ADD(xt, rt, ot)                                                                                                \
    static sums add_##xt##_##rt##_##ot(const void *x, const void *residual, void *out, int64_t n)                      \
    {                                                                                                                  \
        return add_body(SKR_##xt, SKR_##rt, SKR_##ot, 1, x, residual, out, n);                                         \
    }
#define EACH(F)        F(F32) F(F16) F(BF16)
#define EACH1(F, a)    F(a, F32) F(a, F16) F(a, BF16)
#define EACH2(F, a, b) F(a, b, F32) F(a, b, F16) F(a, b, BF16)
#define COPIES(xt)     EACH1(COPY, xt)
#define ADDS1(xt, rt)  EACH2(ADD, xt, rt)
#define ADDS(xt)       ADDS1(xt, F32) ADDS1(xt, F16) ADDS1(xt, BF16)
EACH(SUMS)
EACH(COPIES)
EACH(ADDS)

/* Indexed by skr_type: F32, F16, BF16 are 0, 1, 2. */
static const first_fn sum_alone[3] = {sums_F32, sums_F16, sums_BF16};
#define COPY_ROW(xt) {copy_##xt##_F32, copy_##xt##_F16, copy_##xt##_BF16},
static const first_fn copies[3][3] = {EACH(COPY_ROW)};
#define ADD_ROW(xt, rt) {add_##xt##_##rt##_F32, add_##xt##_##rt##_F16, add_##xt##_##rt##_BF16},
#define ADD_ROWS(xt)    {EACH1(ADD_ROW, xt)},
static const first_fn adds[3][3][3] = {EACH(ADD_ROWS)};

/* ---------------------------------------------------------------- second sweep: y of one chunk */

/* What a row is normalised with: its elements times rstd; with CENTRE, (s - mean - rest) * rstd, where the small rest
 * is what mean lost when it was rounded to f32. It is 0 where mean is no larger than the spread: nobody would see it.
 */
typedef struct stat {
    float mean, rstd, rest;
    int past; /* y is written past the caches */
} stat;
typedef struct vstat {
    vf mean, rstd, rest;
} vstat;

SKR_FN vstat spread(const stat *a)
{
    return (vstat){v_set1(a->mean), v_set1(a->rstd), v_set1(a->rest)};
}

SKR_FN vf2 without_mean(int far, vf2 s, vstat a)
{
    if (CENTRE)
        s = v2_sub(s, (vf2){a.mean, a.mean});
    return CENTRE && far ? v2_sub(s, (vf2){a.rest, a.rest}) : s;
}

SKR_FN void y_block(int far, int st, int yt, int round, int with_bias, const void *s, const float *w, const float *b,
                    void *y, vstat a, int past, int64_t at)
{
    vf2 t[K];
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        t[k] = without_mean(far, v_load2_fast(st, s, at + 2 * k * SKR_LANES), a);
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        t[k] = v2_scale(t[k], a.rstd);
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        t[k] = v2_round_to(round, t[k]);
    SKR_UNROLL
    for (int k = 0; k < K; k++) {
        const int64_t i = at + 2 * k * SKR_LANES;
        vf2 weight = v_load2(SKR_F32, w, i);
        t[k] = with_bias ? v2_fma(t[k], weight, v_load2(SKR_F32, b, i)) : v2_mul(t[k], weight);
    }
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        v_out2(yt, y, at + 2 * k * SKR_LANES, t[k], past);
}

SKR_TAIL void y_tail(int st, int yt, int round, const void *s, const float *w, const float *b, void *y, const stat *a,
                     int64_t i, int64_t n)
{
    vstat with = spread(a);
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        vf2 t = v2_round_to(round, v2_scale(without_mean(1, v_load2_n(st, s, i, m), with), with.rstd)),
            weight = v_load2_n(SKR_F32, w, i, m);
        t = b ? v2_fma(t, weight, v_load2_n(SKR_F32, b, i, m)) : v2_mul(t, weight);
        v_store2_n(yt, y, i, t, m);
    }
}

SKR_FN void y_body(int st, int yt, int round, int with_bias, const void *s, const float *w, const float *b, void *y,
                   const stat *a, int64_t n)
{
    vstat with = spread(a);
    const int past = a->past;
    int64_t i = 0;
    if (CENTRE && a->rest != 0)
        for (; i + BLOCK <= n; i += BLOCK)
            y_block(1, st, yt, round, with_bias, s, w, b, y, with, past, i);
    for (; i + BLOCK <= n; i += BLOCK)
        y_block(0, st, yt, round, with_bias, s, w, b, y, with, past, i);
    if (i < n)
        y_tail(st, yt, round, s, w, b, y, a, i, n);
}

typedef void (*second_fn)(const void *s, const float *w, const float *b, void *y, const stat *a, int64_t n);

#define APPLY(rd, st, yt)                                                                                              \
    static void y_##rd##_##st##_##yt(const void *s, const float *w, const float *b, void *y, const stat *a, int64_t n) \
    {                                                                                                                  \
        y_body(SKR_##st, SKR_##yt, SKR_##rd, 0, s, w, b, y, a, n);                                                     \
    }                                                                                                                  \
    static void yb_##rd##_##st##_##yt(const void *s, const float *w, const float *b, void *y, const stat *a,           \
                                      int64_t n)                                                                       \
    {                                                                                                                  \
        y_body(SKR_##st, SKR_##yt, SKR_##rd, 1, s, w, b, y, a, n);                                                     \
    }
#define APPLIES1(rd, st) EACH2(APPLY, rd, st)
#define APPLIES(rd)      APPLIES1(rd, F32) APPLIES1(rd, F16) APPLIES1(rd, BF16)
EACH(APPLIES)
#define APPLY_CELL(rd, st, yt) {y_##rd##_##st##_##yt, yb_##rd##_##st##_##yt},
#define APPLY_ROW(rd, st)      {EACH2(APPLY_CELL, rd, st)},
#define APPLY_ROWS(rd)         {APPLY_ROW(rd, F32) APPLY_ROW(rd, F16) APPLY_ROW(rd, BF16)},
static const second_fn applies[3][3][3][2] = {EACH(APPLY_ROWS)};

/* ---------------------------------------------------------------- both at once: y of one row, sums of the next */

/* Without a residual, the first sweep of the next row runs block by block between the second sweep's: memory is read
 * while y is computed. */
SKR_FN sums both_body(int xt, int yt, int round, int with_bias, const void *s, const float *w, const float *b, void *y,
                      const stat *a, const void *next, const char *ahead, int64_t n)
{
    const int bytes = xt == SKR_F32 ? 4 : 2;
    vstat with = spread(a);
    const int past = a->past;
    chains c = chains_zero();
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        prefetch_block(ahead + i * bytes, BLOCK * bytes);
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            chains_load(xt, next, i + 2 * k * SKR_LANES, k, &c);
        y_block(0, xt, yt, round, with_bias, s, w, b, y, with, past, i);
    }
    sums sum = chains_total(&c);
    if (i < n) {
        sum = sums_add(sum, sums_tail(xt, next, i, n));
        y_tail(xt, yt, round, s, w, b, y, a, i, n);
    }
    return sum;
}

typedef sums (*both_fn)(const void *s, const float *w, const float *b, void *y, const stat *a, const void *next,
                        const char *ahead, int64_t n);

#define BOTH(rd, xt, yt)                                                                                               \
    BOTH_IN_ORDER static sums both_##rd##_##xt##_##yt(const void *s, const float *w, const float *b, void *y,          \
                                                      const stat *a, const void *next, const char *ahead, int64_t n)   \
    {                                                                                                                  \
        return both_body(SKR_##xt, SKR_##yt, SKR_##rd, 0, s, w, b, y, a, next, ahead, n);                              \
    }                                                                                                                  \
    BOTH_IN_ORDER static sums bothb_##rd##_##xt##_##yt(const void *s, const float *w, const float *b, void *y,         \
                                                       const stat *a, const void *next, const char *ahead, int64_t n)  \
    {                                                                                                                  \
        return both_body(SKR_##xt, SKR_##yt, SKR_##rd, 1, s, w, b, y, a, next, ahead, n);                              \
    }
/* h is rounded to x's type or not at all. */
EACH2(BOTH, F32, F32)
EACH2(BOTH, F32, F16)
EACH2(BOTH, F32, BF16)
EACH2(BOTH, F16, F16)
EACH2(BOTH, BF16, BF16)
#define BOTH_CELL(rd, xt, yt) {both_##rd##_##xt##_##yt, bothb_##rd##_##xt##_##yt},
#define BOTH_ROW(rd, xt)      {EACH2(BOTH_CELL, rd, xt)},
/* [round][x][y][bias] */
static const both_fn boths[2][3][3][2] = {{BOTH_ROW(F32, F32) BOTH_ROW(F32, F16) BOTH_ROW(F32, BF16)},
                                          {BOTH_ROW(F32, F32) BOTH_ROW(F16, F16) BOTH_ROW(BF16, BF16)}};

/* ---------------------------------------------------------------- third sweep: quantised output */

static void quantise(const job_t *job, int64_t row, int type, const char *y)
{
    int64_t group = job->quant == SKR_QUANT_BLOCK ? SKR_QUANT_GROUP : job->n;
    uint8_t *q = (uint8_t *)row_of(&job->rows, &job->y_quant, row);
    float *scale = job->quant == SKR_QUANT_TENSOR ? job->scale.data : row_of(&job->rows, &job->scale, row);
    quant_row(type, job->y_quant.type, y, q, job->quant, scale, job->scale.col_stride, group, job->n);
}

/* ---------------------------------------------------------------- rows */

/* Where one row's first sweep reads and writes. */
typedef struct source {
    const char *x, *residual;
    char *out; /* s as stored; what the second sweep reads when there is a residual or a residual_out */
} source;

typedef struct sweep {
    const job_t *job;
    first_fn first;
    second_fn second;
    int s_type, y_type;  /* of what the second sweep reads and writes */
    char *s_row, *y_row; /* this worker's scratch rows, or NULL */
} sweep;

static source source_of(const sweep *w, int64_t row)
{
    const job_t *job = w->job;
    source s = {row_of(&job->rows, &job->x, row), NULL, NULL};
    if (job->residual.data)
        s.residual = row_of(&job->rows, &job->residual, row);
    if (w->s_row)
        s.out = w->s_row;
    else if (job->residual_out.data)
        s.out = row_of(&job->rows, &job->residual_out, row);
    return s;
}

static sums first_chunk(const sweep *w, source s, int64_t i, int64_t len)
{
    const job_t *job = w->job;
    const char *x = s.x + i * skr_type_bytes(job->x.type);
    const char *residual = s.residual ? s.residual + i * skr_type_bytes(job->residual.type) : NULL;
    return w->first(x, residual, s.out ? s.out + i * skr_type_bytes(w->s_type) : NULL, len);
}

static sweep start(const job_t *job, int worker)
{
    sweep w = {.job = job};
    int xt = job->x.type, rt = job->residual.type, ot = job->residual_out.data ? job->residual_out.type : SKR_F32;
    char *scratch = NULL;
    if (job->cpu.scratch_bytes)
        scratch = (char *)job->head.workspace + job->cpu.scratch_at + worker * job->cpu.scratch_bytes;
    if (skr_norm_holds_s(job)) {
        w.s_row = scratch;
        scratch += job->n * (int64_t)sizeof(float);
    }
    if (job->y_quant.data && !job->y.data)
        w.y_row = scratch;
    w.first = job->residual.data ? adds[xt][rt][ot] : job->residual_out.data ? copies[xt][ot] : sum_alone[xt];
    w.s_type = job->residual.data || job->residual_out.data ? ot : xt;
    w.y_type = job->y.data ? job->y.type : SKR_F32;
    w.second = applies[job->round_before_weight ? xt : SKR_F32][w.s_type][w.y_type][job->bias.data != NULL];
    return w;
}

static const float *weight_row(const job_t *job, int64_t row)
{
    return param_row(&job->head, &job->weight, job->cpu.weight_at, job->cpu.weight_stride, head_of(job->heads, row));
}

static const float *bias_row(const job_t *job, int64_t row)
{
    return job->bias.data
               ? param_row(&job->head, &job->bias, job->cpu.bias_at, job->cpu.bias_stride, head_of(job->heads, row))
               : NULL;
}

static moments first_sweep(const sweep *w, source s)
{
    moments m = {0, 0};
    for (int64_t i = 0; i < w->job->n; i += CHUNK)
        m = moments_add(m, first_chunk(w, s, i, chunk_len(w->job->n, i)));
    return m;
}

/* s: the row that the second sweep will read. */
static stat finish_row(const sweep *w, int64_t row, const void *s, moments m)
{
    const job_t *job = w->job;
    centred c = centred_of(w->s_type, s, job->n, m, job->eps);
    stat a = {.mean = (float)c.mean, .rstd = c.rstd};
    if (CENTRE && c.far)
        a.rest = (float)(c.mean - (double)a.mean);
    if (CENTRE && job->mean.data)
        *(float *)row_of(&job->rows, &job->mean, row) = a.mean;
    if (job->rstd.data)
        *(float *)row_of(&job->rows, &job->rstd, row) = a.rstd;
    return a;
}

/* x alone, y alone. */
static void plain_rows(const job_t *job, const sweep *w, int64_t begin, int64_t end)
{
    int64_t n = job->n;
    int xb = skr_type_bytes(job->x.type), yb = skr_type_bytes(job->y.type);
    both_fn both = boths[job->round_before_weight][job->x.type][job->y.type][job->bias.data != NULL];
    lead a = lead_of(&job->x, n);
    source s = source_of(w, begin);
    const char *x = s.x;
    moments m = first_sweep(w, s);
    for (int64_t row = begin; row < end; row++) {
        char *y = row_of(&job->rows, &job->y, row);
        stat with = finish_row(w, row, x, m);
        with.past = goes_past(&job->head, y);
        const float *weight = weight_row(job, row), *bias = bias_row(job, row);
        if (row + 1 == end) {
            w->second(x, weight, bias, y, &with, n);
            return;
        }
        const char *next = row_of(&job->rows, &job->x, row + 1);
        if (with.rest != 0) {
            w->second(x, weight, bias, y, &with, n);
            m = first_sweep(w, source_of(w, row + 1));
            x = next;
            continue;
        }
        m = (moments){0, 0};
        for (int64_t i = 0; i < n; i += CHUNK)
            m = moments_add(m, both(x + i * xb, weight + i, bias ? bias + i : NULL, y + i * yb, &with, next + i * xb,
                                    ahead_at(&a, &job->rows, &job->x, row + 1, end, i * xb), chunk_len(n, i)));
        x = next;
    }
}

static void rows(const job_t *job, int64_t task, int worker)
{
    int64_t begin = task * job->cpu.rows_per_task, end = begin + job->cpu.rows_per_task, n = job->n;
    end = end < job->rows.m ? end : job->rows.m;
    sweep w = start(job, worker);
    if (!job->residual.data && !job->residual_out.data && !job->y_quant.data) {
        plain_rows(job, &w, begin, end);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        source s = source_of(&w, row);
        moments m = first_sweep(&w, s);
        const char *from = s.out ? s.out : s.x;
        stat a = finish_row(&w, row, from, m);
        char *y = job->y.data ? row_of(&job->rows, &job->y, row) : w.y_row;
        a.past = !job->y_quant.data && goes_past(&job->head, y);
        w.second(from, weight_row(job, row), bias_row(job, row), y, &a, n);
        if (job->y_quant.data)
            quantise(job, row, w.y_type, y);
        if (w.s_row && job->residual_out.data)
            copy_past(row_of(&job->rows, &job->residual_out, row), from, n * skr_type_bytes(w.s_type));
    }
}

static void params(const job_t *job, int64_t task)
{
    const skr_norm_cpu *cpu = &job->cpu;
    int64_t pieces = (job->n + SKR_PARAM_PIECE - 1) / SKR_PARAM_PIECE, h = task / pieces;
    int64_t begin = task % pieces * SKR_PARAM_PIECE, end = begin + SKR_PARAM_PIECE;
    end = end < job->n ? end : job->n;
    copy_param(&job->head, &job->weight, job->weight_offset, cpu->weight_at, cpu->weight_stride, h, begin, end);
    copy_param(&job->head, &job->bias, 0.0f, cpu->bias_at, cpu->bias_stride, h, begin, end);
}

static void norm_forward(const void *job, int step, int64_t task, int worker)
{
    if (step == SKR_STEP_PARAMS)
        params(job, task);
    else
        rows(job, task, worker);
}

#endif
