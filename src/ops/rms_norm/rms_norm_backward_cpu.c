/* rms_norm_backward_cpu.c - backward rows and the sums over rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two sweeps a row. The first: dot = sum(dy * w * x), and sum(x * x) where rstd is not given. The second, with k = rstd^2 * dot / N:
 *     dx = rstd * (dy * w - x * k) + dres,   dw += dy * (x * rstd),   db += dy.
 * dw and db are sums over one part of the rows, in row order; the last step adds the parts. dy, x and dx of one type are read and written
 * where they are; when types differ, or h is rounded on the way, chunks pass through f32 buffers. */
#include "rms_norm_cpu.h"

typedef skr_rms_norm_backward_job job_t;

/* ---------------------------------------------------------------- first sweep, one chunk */

typedef struct sums {
    double dot, square;
} sums;

SKR_FN float finish(vf2 *a)
{
    vf lo = v_add(v_add(a[0].lo, a[1].lo), v_add(a[2].lo, a[3].lo));
    vf hi = v_add(v_add(a[0].hi, a[1].hi), v_add(a[2].hi, a[3].hi));
    return v_sum(v_add(lo, hi));
}

SKR_FN void first_body(int t, int with_dot, int with_square, const void *dy, const void *x, const float *w, int64_t n, sums *out)
{
    vf2 zero = {v_set1(0.0f), v_set1(0.0f)}, d[4] = {zero, zero, zero, zero}, q[4] = {zero, zero, zero, zero};
    int64_t i = 0;
#define STEP(k, load, ...)                                                                                             \
    do {                                                                                                               \
        vf2 xx = load(t, x, __VA_ARGS__);                                                                              \
        if (with_dot) {                                                                                                \
            vf2 g = load(t, dy, __VA_ARGS__), ww = load(SKR_F32, w, __VA_ARGS__);                                      \
            d[k].lo = v_fma(v_mul(g.lo, ww.lo), xx.lo, d[k].lo);                                                       \
            d[k].hi = v_fma(v_mul(g.hi, ww.hi), xx.hi, d[k].hi);                                                       \
        }                                                                                                              \
        if (with_square) {                                                                                             \
            q[k].lo = v_fma(xx.lo, xx.lo, q[k].lo);                                                                    \
            q[k].hi = v_fma(xx.hi, xx.hi, q[k].hi);                                                                    \
        }                                                                                                              \
    } while (0)
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES)
        SKR_UNROLL
        for (int k = 0; k < 4; k++)
            STEP(k, v_load2, i + 2 * k * SKR_LANES);
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        STEP(0, v_load2, i);
    if (i < n)
        STEP(1, v_load2_n, i, (int)(n - i));
#undef STEP
    if (with_dot)
        out->dot += (double)finish(d);
    if (with_square)
        out->square += (double)finish(q);
}

typedef void (*first_fn)(const void *dy, const void *x, const float *w, int64_t n, sums *out);
#define FIRST(t)                                                                                                       \
    static void dot_##t(const void *dy, const void *x, const float *w, int64_t n, sums *out)                           \
    {                                                                                                                  \
        first_body(SKR_##t, 1, 0, dy, x, w, n, out);                                                                   \
    }                                                                                                                  \
    static void square_##t(const void *dy, const void *x, const float *w, int64_t n, sums *out)                        \
    {                                                                                                                  \
        first_body(SKR_##t, 0, 1, dy, x, w, n, out);                                                                   \
    }                                                                                                                  \
    static void both_##t(const void *dy, const void *x, const float *w, int64_t n, sums *out)                          \
    {                                                                                                                  \
        first_body(SKR_##t, 1, 1, dy, x, w, n, out);                                                                   \
    }
FIRST(F32)
FIRST(F16)
FIRST(BF16)
static const first_fn firsts[3][4] = {{NULL, dot_F32, square_F32, both_F32},
                                      {NULL, dot_F16, square_F16, both_F16},
                                      {NULL, dot_BF16, square_BF16, both_BF16}};

/* ---------------------------------------------------------------- second sweep, one chunk */

enum { WANT_DX = 1, WANT_DW = 2, WANT_DB = 4, HAVE_DRES = 8, N_WANTS = 16 };

typedef struct grad {
    const void *dy, *x;
    const float *w, *dres; /* dres as f32 */
    void *dx;
    float *dw, *db;
    float rstd, k;
} grad;

SKR_FN void second_body(int t, int round, int want, const grad *a, int64_t n)
{
    vf rstd = v_set1(a->rstd), k = v_set1(a->k);
    int64_t i = 0;
#define ONE(part, at)                                                                                                  \
    do {                                                                                                               \
        if (want & WANT_DX) {                                                                                          \
            vf g = v_fnma(x.part, k, v_mul(dy.part, w.part));                                                          \
            dx.part = want & HAVE_DRES ? v_fma(g, rstd, dres.part) : v_mul(g, rstd);                                   \
        }                                                                                                              \
        if (want & WANT_DW)                                                                                            \
            dw.part = v_fma(dy.part, v_round_to(round, v_mul(x.part, rstd)), dw.part);                                 \
        if (want & WANT_DB)                                                                                            \
            db.part = v_add(db.part, dy.part);                                                                         \
    } while (0)
#define STEP(load, store, ...)                                                                                         \
    do {                                                                                                               \
        vf2 zero = {v_set1(0.0f), v_set1(0.0f)}, dx = zero;                                                            \
        vf2 dy = load(t, a->dy, i __VA_ARGS__);                                                                        \
        vf2 x = want & (WANT_DX | WANT_DW) ? load(t, a->x, i __VA_ARGS__) : zero;                                      \
        vf2 w = want & WANT_DX ? load(SKR_F32, a->w, i __VA_ARGS__) : zero;                                            \
        vf2 dres = want & HAVE_DRES ? load(SKR_F32, a->dres, i __VA_ARGS__) : zero;                                    \
        vf2 dw = want & WANT_DW ? load(SKR_F32, a->dw, i __VA_ARGS__) : zero;                                          \
        vf2 db = want & WANT_DB ? load(SKR_F32, a->db, i __VA_ARGS__) : zero;                                          \
        ONE(lo, i);                                                                                                    \
        ONE(hi, i + SKR_LANES);                                                                                        \
        if (want & WANT_DX)                                                                                            \
            store(t, a->dx, i, dx __VA_ARGS__);                                                                        \
        if (want & WANT_DW)                                                                                            \
            store(SKR_F32, a->dw, i, dw __VA_ARGS__);                                                                  \
        if (want & WANT_DB)                                                                                            \
            store(SKR_F32, a->db, i, db __VA_ARGS__);                                                                  \
    } while (0)
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        STEP(v_load2, v_store2, );
    if (i < n)
        STEP(v_load2_n, v_store2_n, , (int)(n - i));
#undef STEP
#undef ONE
}

typedef void (*second_fn)(const grad *a, int64_t n);

/* All combinations of what is wanted, for one element type and one type that h is rounded to (F32: not at all). */
#define SECOND(t, rd, want)                                                                                            \
    static void grad_##t##_##rd##_##want(const grad *a, int64_t n)                                                     \
    {                                                                                                                  \
        second_body(SKR_##t, SKR_##rd, want, a, n);                                                                    \
    }
#define EACH_WANT(F, t, rd)                                                                                            \
    F(t, rd, 1) F(t, rd, 2) F(t, rd, 3) F(t, rd, 4) F(t, rd, 5) F(t, rd, 6) F(t, rd, 7) F(t, rd, 9) F(t, rd, 11)       \
        F(t, rd, 13) F(t, rd, 15)
#define ROW(t, rd, want) [want] = grad_##t##_##rd##_##want,
#define EACH_BODY(F) F(F32, F32) F(F16, F32) F(BF16, F32) F(F32, F16) F(F32, BF16)
#define SECONDS(t, rd) EACH_WANT(SECOND, t, rd)
EACH_BODY(SECONDS)
#define ROWS(t, rd) {EACH_WANT(ROW, t, rd)},
/* Types in place, f32 with h rounded to f16, to bf16. */
static const second_fn seconds[5][N_WANTS] = {EACH_BODY(ROWS)};

/* ---------------------------------------------------------------- rows */

typedef struct sweep {
    const job_t *job;
    first_fn first;
    second_fn second;
    int want;
    int in_place; /* dy, x and dx have one type and need no buffers */
    int type;     /* that one, else f32 */
    float *dy, *x, *dx, *dres; /* buffers of CHUNK */
} sweep;

typedef struct row_data {
    const char *dy, *x, *dres;
    char *dx;
    const float *w;
    float *dw, *db;
    float rstd, k;
} row_data;

/* Chunks of one tensor as f32: its own memory, or a buffer. */
static const float *staged(int type, const char *row, int64_t i, int64_t n, float *buffer)
{
    const char *from = row + i * skr_type_bytes(type);
    if (type == SKR_F32)
        return (const float *)from;
    widen(type, from, 0.0f, buffer, n);
    return buffer;
}

static void narrow(int type, const float *x, void *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES) {
        vf2 a = v_load2(SKR_F32, x, i);
        if (type == SKR_F16)
            v_store2(SKR_F16, y, i, a);
        else
            v_store2(SKR_BF16, y, i, a);
    }
    if (i < n) {
        vf2 a = v_load2_n(SKR_F32, x, i, (int)(n - i));
        if (type == SKR_F16)
            v_store2_n(SKR_F16, y, i, a, (int)(n - i));
        else
            v_store2_n(SKR_BF16, y, i, a, (int)(n - i));
    }
}

static void first_chunk(const sweep *s, const row_data *r, int64_t i, int64_t n, sums *out)
{
    const job_t *job = s->job;
    const void *dy = r->dy + i * skr_type_bytes(job->dy.type), *x = r->x + i * skr_type_bytes(job->x.type);
    if (!s->in_place) {
        dy = staged(job->dy.type, r->dy, i, n, s->dy);
        x = staged(job->x.type, r->x, i, n, s->x);
    }
    s->first(dy, x, r->w + i, n, out);
}

static void second_chunk(const sweep *s, const row_data *r, int64_t i, int64_t n)
{
    const job_t *job = s->job;
    grad g = {.w = r->w + i, .rstd = r->rstd, .k = r->k};
    g.dw = r->dw ? r->dw + i : NULL;
    g.db = r->db ? r->db + i : NULL;
    if (s->in_place) {
        g.dy = r->dy + i * skr_type_bytes(s->type);
        g.x = r->x + i * skr_type_bytes(s->type);
    } else {
        g.dy = staged(job->dy.type, r->dy, i, n, s->dy);
        g.x = staged(job->x.type, r->x, i, n, s->x);
    }
    if (r->dres)
        g.dres = staged(job->dres.type, r->dres, i, n, s->dres);
    char *dx = r->dx ? r->dx + i * skr_type_bytes(job->dx.type) : NULL;
    g.dx = s->in_place || job->dx.type == SKR_F32 ? dx : (char *)s->dx;
    s->second(&g, n);
    if (dx && g.dx != dx)
        narrow(job->dx.type, s->dx, dx, n);
}

static void start(sweep *s, const job_t *job, float (*buffer)[1024])
{
    int dyt = job->dy.type, xt = job->x.type, dxt = job->dx.data ? job->dx.type : dyt;
    int round = job->round_before_weight && job->dweight.data ? xt : SKR_F32;
    *s = (sweep){.job = job, .dy = buffer[0], .x = buffer[1], .dx = buffer[2], .dres = buffer[3]};
    s->in_place = dyt == xt && xt == dxt && round == SKR_F32;
    s->type = s->in_place ? dyt : SKR_F32;
    s->want = (job->dx.data ? WANT_DX : 0) | (job->dweight.data ? WANT_DW : 0) | (job->dbias.data ? WANT_DB : 0) |
              (job->dres.data ? HAVE_DRES : 0);
    int need_rstd = s->want & (WANT_DX | WANT_DW);
    s->first = firsts[s->type][(s->want & WANT_DX ? 1 : 0) | (need_rstd && !job->rstd.data ? 2 : 0)];
    s->second = seconds[round == SKR_F32 ? s->type : 2 + round][s->want];
}

static row_data row_at(const job_t *job, int64_t row, float *dw, float *db)
{
    const skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t h = row % job->heads;
    row_data r = {.dy = row_of(&job->rows, &job->dy, row), .x = row_of(&job->rows, &job->x, row)};
    r.w = param_row(&job->head, &job->weight, cpu->weight_at, cpu->weight_stride, h);
    r.dres = job->dres.data ? row_of(&job->rows, &job->dres, row) : NULL;
    r.dx = job->dx.data ? row_of(&job->rows, &job->dx, row) : NULL;
    r.dw = dw ? dw + h * job->n : NULL;
    r.db = db ? db + h * job->n : NULL;
    return r;
}

/* rstd, and k = rstd * mean(g * h) = rstd^2 * dot / N, from the first sweep's sums. */
static void finish_row(const job_t *job, int64_t row, const sums *sum, row_data *r)
{
    float rstd = job->rstd.data ? *(const float *)row_of(&job->rows, &job->rstd, row) : rstd_of(sum->square, job->n, job->eps);
    r->rstd = rstd;
    r->k = (float)((double)rstd * rstd * sum->dot / (double)job->n);
}

static float *part_of(const job_t *job, int64_t at, int64_t part)
{
    if (at < 0)
        return NULL;
    int64_t count = job->heads * job->n;
    float *sum = (float *)((char *)job->head.workspace + at) + part * count;
    for (int64_t i = 0; i < count; i++)
        sum[i] = 0.0f;
    return sum;
}

static void rows(const job_t *job, int64_t part)
{
    float buffer[4][1024];
    sweep s;
    start(&s, job, buffer);
    int64_t begin = part * job->rows_per_part, end = begin + job->rows_per_part, n = job->n;
    end = end < job->rows.m ? end : job->rows.m;
    float *dw = part_of(job, job->cpu.dweight_at, part), *db = part_of(job, job->cpu.dbias_at, part);
    for (int64_t row = begin; row < end; row++) {
        row_data r = row_at(job, row, dw, db);
        sums sum = {0, 0};
        if (s.first)
            for (int64_t i = 0; i < n; i += CHUNK)
                first_chunk(&s, &r, i, chunk_len(n, i), &sum);
        finish_row(job, row, &sum, &r);
        for (int64_t i = 0; i < n; i += CHUNK)
            second_chunk(&s, &r, i, chunk_len(n, i));
    }
}

/* ---------------------------------------------------------------- first and last step */

static void params(const job_t *job, int64_t task)
{
    const skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t pieces = (job->n + SKR_PARAM_PIECE - 1) / SKR_PARAM_PIECE, h = task / pieces;
    int64_t begin = task % pieces * SKR_PARAM_PIECE, end = begin + SKR_PARAM_PIECE;
    end = end < job->n ? end : job->n;
    copy_param(&job->head, &job->weight, job->weight_offset, cpu->weight_at, cpu->weight_stride, h, begin, end);
}

/* Parts are added in four chains, by number; then what the tensor held. */
SKR_FN void sum_body(int t, int accumulate, const float *parts, int64_t n_parts, int64_t stride, void *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf a[4] = {v_set1(0.0f), v_set1(0.0f), v_set1(0.0f), v_set1(0.0f)};
        for (int64_t p = 0; p < n_parts; p++) {
            const float *from = parts + p * stride;
            vf v = m < SKR_LANES ? v_load_n(SKR_F32, from, i, m) : v_load(SKR_F32, from, i);
            a[p & 3] = v_add(a[p & 3], v);
        }
        vf sum = v_add(v_add(a[0], a[1]), v_add(a[2], a[3]));
        if (accumulate)
            sum = v_add(v_load_n(t, out, i, m), sum);
        v_store_n(t, out, i, sum, m);
    }
}

static void sum_parts(const job_t *job, const skr_param *out, int64_t at, int64_t h, int64_t begin, int64_t end)
{
    if (!out->data)
        return;
    int64_t stride = job->heads * job->n, n = end - begin;
    const float *parts = (const float *)((const char *)job->head.workspace + at) + h * job->n + begin;
    char *to = (char *)out->data + (h * out->stride + begin) * skr_type_bytes(out->type);
    if (out->type == SKR_F32)
        sum_body(SKR_F32, job->accumulate, parts, job->n_parts, stride, to, n);
    else if (out->type == SKR_F16)
        sum_body(SKR_F16, job->accumulate, parts, job->n_parts, stride, to, n);
    else
        sum_body(SKR_BF16, job->accumulate, parts, job->n_parts, stride, to, n);
}

void SKR_KERNEL(rms_norm_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(rms_norm_backward)(const void *job, int step, int64_t task, int worker)
{
    (void)worker;
    const job_t *j = job;
    if (step == SKR_STEP_PARAMS) {
        params(j, task);
    } else if (step == SKR_STEP_ROWS) {
        rows(j, task);
    } else {
        int64_t pieces = (j->n + SKR_SUM_PIECE - 1) / SKR_SUM_PIECE, h = task / pieces;
        int64_t begin = task % pieces * SKR_SUM_PIECE, end = begin + SKR_SUM_PIECE;
        end = end < j->n ? end : j->n;
        sum_parts(j, &j->dweight, j->cpu.dweight_at, h, begin, end);
        sum_parts(j, &j->dbias, j->cpu.dbias_at, h, begin, end);
    }
}
