/* rms_norm_cpu.c - forward rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two sweeps a row: the sum of squares (first adding and storing the residual), then the result, read again from cache. The element types are
 * constants of always-inlined bodies; the tables below hold one small function for each combination. */
#include "rms_norm_cpu.h"

typedef skr_rms_norm_job job_t;

/* ---------------------------------------------------------------- first sweep: s and its sum of squares, one chunk */

SKR_FN float finish(vf2 *a)
{
    vf lo = v_add(v_add(a[0].lo, a[1].lo), v_add(a[2].lo, a[3].lo));
    vf hi = v_add(v_add(a[0].hi, a[1].hi), v_add(a[2].hi, a[3].hi));
    return v_sum(v_add(lo, hi));
}

SKR_FN float square_body(int xt, const void *x, int64_t n)
{
    vf2 zero = {v_set1(0.0f), v_set1(0.0f)}, a[4] = {zero, zero, zero, zero};
    int64_t i = 0;
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES)
        SKR_UNROLL
        for (int k = 0; k < 4; k++)
            v_sumsq2(xt, x, i + 2 * k * SKR_LANES, &a[k]);
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        v_sumsq2(xt, x, i, &a[0]);
    if (i < n) {
        vf2 t = v_load2_n(xt, x, i, (int)(n - i));
        a[1].lo = v_fma(t.lo, t.lo, a[1].lo);
        a[1].hi = v_fma(t.hi, t.hi, a[1].hi);
    }
    return finish(a);
}

/* s = x + residual (x alone when with is 0), stored as type ot; what was stored is squared. */
SKR_FN float add_body(int xt, int rt, int ot, int with, const void *x, const void *residual, void *out, int64_t n)
{
    vf2 zero = {v_set1(0.0f), v_set1(0.0f)}, a[4] = {zero, zero, zero, zero};
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES) {
        vf2 s = v_load2(xt, x, i);
        if (with) {
            vf2 r = v_load2(rt, residual, i);
            s.lo = v_add(s.lo, r.lo);
            s.hi = v_add(s.hi, r.hi);
        }
        s = v_store2_round(ot, out, i, s);
        a[0].lo = v_fma(s.lo, s.lo, a[0].lo);
        a[0].hi = v_fma(s.hi, s.hi, a[0].hi);
    }
    if (i < n) {
        int m = (int)(n - i);
        vf2 s = v_load2_n(xt, x, i, m);
        if (with) {
            vf2 r = v_load2_n(rt, residual, i, m);
            s.lo = v_add(s.lo, r.lo);
            s.hi = v_add(s.hi, r.hi);
        }
        v_store2_n(ot, out, i, s, m);
        s.lo = v_round_to(ot, s.lo);
        s.hi = v_round_to(ot, s.hi);
        a[1].lo = v_fma(s.lo, s.lo, a[1].lo);
        a[1].hi = v_fma(s.hi, s.hi, a[1].hi);
    }
    return finish(a);
}

typedef float (*first_fn)(const void *x, const void *residual, void *out, int64_t n);

#define SQUARE(xt)                                                                                                     \
    static float square_##xt(const void *x, const void *residual, void *out, int64_t n)                                \
    {                                                                                                                  \
        (void)residual;                                                                                                \
        (void)out;                                                                                                     \
        return square_body(SKR_##xt, x, n);                                                                            \
    }
#define COPY(xt, ot)                                                                                                   \
    static float copy_##xt##_##ot(const void *x, const void *residual, void *out, int64_t n)                           \
    {                                                                                                                  \
        return add_body(SKR_##xt, SKR_F32, SKR_##ot, 0, x, residual, out, n);                                          \
    }
#define ADD(xt, rt, ot)                                                                                                \
    static float add_##xt##_##rt##_##ot(const void *x, const void *residual, void *out, int64_t n)                     \
    {                                                                                                                  \
        return add_body(SKR_##xt, SKR_##rt, SKR_##ot, 1, x, residual, out, n);                                         \
    }
#define EACH(F) F(F32) F(F16) F(BF16)
#define EACH1(F, a) F(a, F32) F(a, F16) F(a, BF16)
#define EACH2(F, a, b) F(a, b, F32) F(a, b, F16) F(a, b, BF16)
#define COPIES(xt) EACH1(COPY, xt)
#define ADDS1(xt, rt) EACH2(ADD, xt, rt)
#define ADDS(xt) ADDS1(xt, F32) ADDS1(xt, F16) ADDS1(xt, BF16)
EACH(SQUARE)
EACH(COPIES)
EACH(ADDS)

/* Indexed by skr_type: F32, F16, BF16 are 0, 1, 2. */
static const first_fn squares[3] = {square_F32, square_F16, square_BF16};
#define COPY_ROW(xt) {copy_##xt##_F32, copy_##xt##_F16, copy_##xt##_BF16},
static const first_fn copies[3][3] = {EACH(COPY_ROW)};
#define ADD_ROW(xt, rt) {add_##xt##_##rt##_F32, add_##xt##_##rt##_F16, add_##xt##_##rt##_BF16},
#define ADD_ROWS(xt) {EACH1(ADD_ROW, xt)},
static const first_fn adds[3][3][3] = {EACH(ADD_ROWS)};

/* ---------------------------------------------------------------- second sweep: y of one chunk */

SKR_FN vf apply(int round, int with_bias, vf s, vf rstd, vf w, const float *b, int64_t i)
{
    vf h = v_round_to(round, v_mul(s, rstd));
    return with_bias ? v_fma(h, w, v_load(SKR_F32, b, i)) : v_mul(h, w);
}

SKR_FN void y_body(int st, int yt, int round, int with_bias, const void *s, const float *w, const float *b, void *y, float rstd1,
                   int64_t n)
{
    vf rstd = v_set1(rstd1);
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES) {
        vf2 a = v_load2(st, s, i), ww = v_load2(SKR_F32, w, i);
        a.lo = apply(round, with_bias, a.lo, rstd, ww.lo, b, i);
        a.hi = apply(round, with_bias, a.hi, rstd, ww.hi, b, i + SKR_LANES);
        v_store2(yt, y, i, a);
    }
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf h = v_round_to(round, v_mul(v_load_n(st, s, i, m), rstd));
        h = with_bias ? v_fma(h, v_load_n(SKR_F32, w, i, m), v_load_n(SKR_F32, b, i, m))
                      : v_mul(h, v_load_n(SKR_F32, w, i, m));
        v_store_n(yt, y, i, h, m);
    }
}

typedef void (*second_fn)(const void *s, const float *w, const float *b, void *y, float rstd, int64_t n);

/* rd: the type that s * rstd is rounded to; F32 is not at all. */
#define APPLY(rd, st, yt)                                                                                              \
    static void y_##rd##_##st##_##yt(const void *s, const float *w, const float *b, void *y, float rstd, int64_t n)    \
    {                                                                                                                  \
        y_body(SKR_##st, SKR_##yt, SKR_##rd, 0, s, w, b, y, rstd, n);                                                  \
    }                                                                                                                  \
    static void yb_##rd##_##st##_##yt(const void *s, const float *w, const float *b, void *y, float rstd, int64_t n)   \
    {                                                                                                                  \
        y_body(SKR_##st, SKR_##yt, SKR_##rd, 1, s, w, b, y, rstd, n);                                                  \
    }
#define APPLIES1(rd, st) EACH2(APPLY, rd, st)
#define APPLIES(rd) APPLIES1(rd, F32) APPLIES1(rd, F16) APPLIES1(rd, BF16)
EACH(APPLIES)
#define APPLY_CELL(rd, st, yt) {y_##rd##_##st##_##yt, yb_##rd##_##st##_##yt},
#define APPLY_ROW(rd, st) {EACH2(APPLY_CELL, rd, st)},
#define APPLY_ROWS(rd) {APPLY_ROW(rd, F32) APPLY_ROW(rd, F16) APPLY_ROW(rd, BF16)},
static const second_fn applies[3][3][3][2] = {EACH(APPLY_ROWS)};

/* ---------------------------------------------------------------- third sweep: quantised output */

/* The largest finite magnitude. */
SKR_FN float amax_body(int type, const void *y, int64_t n)
{
    vf top = v_set1(0.0f), infinity = v_set1(__builtin_inff());
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        vf a = v_abs(n - i < SKR_LANES ? v_load_n(type, y, i, (int)(n - i)) : v_load(type, y, i));
        top = v_max(top, v_select(v_lt(a, infinity), a, v_set1(0.0f)));
    }
    return v_hmax(top);
}

SKR_FN void quant_body(int type, int qt, const void *y, void *q, float scale1, int64_t n)
{
    vf scale = v_set1(scale1);
    int64_t i = 0;
    for (; i + SKR_LANES <= n; i += SKR_LANES)
        v_store(qt, q, i, v_div(v_load(type, y, i), scale));
    if (i < n)
        v_store_n(qt, q, i, v_div(v_load_n(type, y, i, (int)(n - i)), scale), (int)(n - i));
}

static float amax_of(int type, const void *y, int64_t n)
{
    return type == SKR_F32 ? amax_body(SKR_F32, y, n) : type == SKR_F16 ? amax_body(SKR_F16, y, n) : amax_body(SKR_BF16, y, n);
}

#define QUANT(qt, yt)                                                                                                  \
    static void quant_##qt##_##yt(const void *y, void *q, float scale, int64_t n)                                      \
    {                                                                                                                  \
        quant_body(SKR_##yt, SKR_##qt, y, q, scale, n);                                                                \
    }
EACH1(QUANT, E4M3)
EACH1(QUANT, E5M2)
EACH1(QUANT, I8)
typedef void (*quant_fn)(const void *y, void *q, float scale, int64_t n);
static const quant_fn quants[3][3] = {{quant_E4M3_F32, quant_E4M3_F16, quant_E4M3_BF16},
                                      {quant_E5M2_F32, quant_E5M2_F16, quant_E5M2_BF16},
                                      {quant_I8_F32, quant_I8_F16, quant_I8_BF16}};

static float scale_of(float amax, int qt)
{
    float largest = qt == SKR_I8 ? 127.0f : qt == SKR_E4M3 ? 448.0f : 57344.0f;
    float scale = amax / largest;
    return scale > 0 ? scale : 1.0f;
}

static void quantise(const job_t *job, int64_t row, int type, const char *y)
{
    int64_t n = job->n, group = job->quant == SKR_QUANT_BLOCK ? SKR_QUANT_GROUP : n;
    int qt = job->y_quant.type;
    char *q = row_of(&job->rows, &job->y_quant, row);
    quant_fn store = quants[qt - SKR_E4M3][type];
    if (job->quant == SKR_QUANT_TENSOR) {
        store(y, q, *(const float *)job->scale.data, n);
        return;
    }
    float *scale = (float *)row_of(&job->rows, &job->scale, row);
    for (int64_t i = 0; i < n; i += group, scale += job->scale.col_stride) {
        int64_t len = n - i < group ? n - i : group;
        const char *from = y + i * skr_type_bytes(type);
        *scale = scale_of(amax_of(type, from, len), qt);
        store(from, q + i, *scale, len);
    }
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
    int s_type, y_type;   /* of what the second sweep reads and writes */
    char *s_row, *y_row;  /* this worker's scratch rows, or NULL */
} sweep;

static source source_of(const sweep *w, int64_t row)
{
    const job_t *job = w->job;
    source s = {row_of(&job->rows, &job->x, row), NULL, NULL};
    if (job->residual.data)
        s.residual = row_of(&job->rows, &job->residual, row);
    if (job->residual_out.data)
        s.out = row_of(&job->rows, &job->residual_out, row);
    else if (job->residual.data)
        s.out = w->s_row;
    return s;
}

static double first_chunk(const sweep *w, source s, int64_t i, int64_t len)
{
    const job_t *job = w->job;
    const char *x = s.x + i * skr_type_bytes(job->x.type);
    const char *residual = s.residual ? s.residual + i * skr_type_bytes(job->residual.type) : NULL;
    return (double)w->first(x, residual, s.out ? s.out + i * skr_type_bytes(w->s_type) : NULL, len);
}

static sweep start(const job_t *job, int worker)
{
    sweep w = {.job = job};
    int xt = job->x.type, rt = job->residual.type, ot = job->residual_out.data ? job->residual_out.type : SKR_F32;
    char *scratch = (char *)job->head.workspace + job->cpu.scratch_at + worker * job->cpu.scratch_bytes;
    if (job->residual.data && !job->residual_out.data) {
        w.s_row = scratch;
        scratch += job->n * (int64_t)sizeof(float);
    }
    if (job->y_quant.data && !job->y.data)
        w.y_row = scratch;
    w.first = job->residual.data ? adds[xt][rt][ot] : job->residual_out.data ? copies[xt][ot] : squares[xt];
    w.s_type = job->residual.data || job->residual_out.data ? ot : xt;
    w.y_type = job->y.data ? job->y.type : SKR_F32;
    w.second = applies[job->round_before_weight ? xt : SKR_F32][w.s_type][w.y_type][job->bias.data != NULL];
    return w;
}

static void rows(const job_t *job, int64_t task, int worker)
{
    const skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t begin = task * cpu->rows_per_task, end = begin + cpu->rows_per_task, n = job->n;
    end = end < job->rows.m ? end : job->rows.m;
    sweep w = start(job, worker);
    for (int64_t row = begin; row < end; row++) {
        source s = source_of(&w, row);
        double sum = 0;
        for (int64_t i = 0; i < n; i += CHUNK)
            sum += first_chunk(&w, s, i, chunk_len(n, i));
        float rstd = rstd_of(sum, n, job->eps);
        if (job->rstd.data)
            *(float *)row_of(&job->rows, &job->rstd, row) = rstd;
        int64_t h = row % job->heads;
        const float *weight = param_row(&job->head, &job->weight, cpu->weight_at, cpu->weight_stride, h);
        const float *bias = job->bias.data ? param_row(&job->head, &job->bias, cpu->bias_at, cpu->bias_stride, h) : NULL;
        const char *from = s.out ? s.out : s.x;
        char *y = job->y.data ? row_of(&job->rows, &job->y, row) : w.y_row;
        w.second(from, weight, bias, y, rstd, n);
        if (job->y_quant.data)
            quantise(job, row, w.y_type, y);
    }
}

static void params(const job_t *job, int64_t task)
{
    const skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t pieces = (job->n + SKR_PARAM_PIECE - 1) / SKR_PARAM_PIECE, h = task / pieces;
    int64_t begin = task % pieces * SKR_PARAM_PIECE, end = begin + SKR_PARAM_PIECE;
    end = end < job->n ? end : job->n;
    copy_param(&job->head, &job->weight, job->weight_offset, cpu->weight_at, cpu->weight_stride, h, begin, end);
    copy_param(&job->head, &job->bias, 0.0f, cpu->bias_at, cpu->bias_stride, h, begin, end);
}

void SKR_KERNEL(rms_norm)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(rms_norm)(const void *job, int step, int64_t task, int worker)
{
    if (step == SKR_STEP_PARAMS)
        params(job, task);
    else
        rows(job, task, worker);
}
