/* rms_norm_backward_cpu.c - backward rows and the sums over rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two sweeps a row. The first: dot = sum(dy * w * x), and sum(x * x) where rstd is not given. The second, with
 * e = dy * rstd and k = -rstd^3 * dot / N, which is the formula of rms_norm.h in the fewest operations:
 * - dx = e * w + x * k + dres
 * - dw += e * x
 * - db += dy
 *
 * dw and db are sums over one part of the rows, in row order; the last step adds the parts. dy, x and dx of one type
 * are read and written where they are; when types differ, or h is rounded on the way, chunks pass through f32 buffers.
 */
#include "rms_norm_cpu.h"

typedef skr_rms_norm_backward_job job_t;

/* Elements that the main loops take at once: two pairs of vectors of each tensor. As in forward: loads first, then each
 * operation for all of them, then the stores. STAGED: elements of a chunk that passes through the buffers. */
enum { K = 2, BLOCK = 2 * K * SKR_LANES, STAGED = 1024 };

/* ---------------------------------------------------------------- first sweep, one chunk */

typedef struct sums {
    double dot, square;
} sums;

SKR_FN float total(const vf2 *a)
{
    vf2 sum = v2_add(a[0], a[1]);
    return v_sum(v_add(sum.lo, sum.hi));
}

SKR_FN void dot_block(int t, const void *dy, const void *x, const vf2 *w, int64_t i, vf2 *a)
{
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        v_dot2(t, dy, x, i + 2 * k * SKR_LANES, w[k], &a[k]);
}

/* What is left after the whole blocks; every way to sum a row ends with this. */
SKR_TAIL float dot_tail(int t, const void *dy, const void *x, const float *w, int64_t i, int64_t n)
{
    vf2 a = v2_set1(0.0f);
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        vf2 g = v2_mul(v_load2_n(t, dy, i, m), v_load2_n(SKR_F32, w, i, m));
        a = v2_fma(g, v_load2_n(t, x, i, m), a);
    }
    return v_sum(v_add(a.lo, a.hi));
}

SKR_TAIL float square_tail(int t, const void *x, int64_t i, int64_t n)
{
    vf2 a = v2_set1(0.0f);
    for (; i < n; i += 2 * SKR_LANES) {
        vf2 v = v_load2_n(t, x, i, n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES);
        a = v2_fma(v, v, a);
    }
    return v_sum(v_add(a.lo, a.hi));
}

SKR_FN void load_weight(const float *w, int64_t i, vf2 *to)
{
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        to[k] = v_load2(SKR_F32, w, i + 2 * k * SKR_LANES);
}

SKR_FN float dot_body(int t, const void *dy, const void *x, const float *w, int64_t n)
{
    vf2 a[K] = {v2_set1(0.0f), v2_set1(0.0f)}, weight[K];
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        load_weight(w, i, weight);
        dot_block(t, dy, x, weight, i, a);
    }
    float sum = total(a);
    return i < n ? sum + dot_tail(t, dy, x, w, i, n) : sum;
}

SKR_FN float square_body(int t, const void *x, int64_t n)
{
    vf2 a[K] = {v2_set1(0.0f), v2_set1(0.0f)};
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        SKR_UNROLL
    for (int k = 0; k < K; k++)
        v_sumsq2(t, x, i + 2 * k * SKR_LANES, &a[k]);
    float sum = total(a);
    return i < n ? sum + square_tail(t, x, i, n) : sum;
}

typedef float (*dot_fn)(const void *dy, const void *x, const float *w, int64_t n);
typedef float (*square_fn)(const void *x, int64_t n);
#define FIRST(t)                                                                                                       \
    static float dot_##t(const void *dy, const void *x, const float *w, int64_t n)                                     \
    {                                                                                                                  \
        return dot_body(SKR_##t, dy, x, w, n);                                                                         \
    }                                                                                                                  \
    static float square_##t(const void *x, int64_t n)                                                                  \
    {                                                                                                                  \
        return square_body(SKR_##t, x, n);                                                                             \
    }
FIRST(F32)
FIRST(F16)
FIRST(BF16)
static const dot_fn dots[3] = {dot_F32, dot_F16, dot_BF16};
static const square_fn squares[3] = {square_F32, square_F16, square_BF16};

/* ---------------------------------------------------------------- second sweep, one chunk */

enum { WANT_DX = 1, WANT_DW = 2, WANT_DB = 4, HAVE_DRES = 8, N_WANTS = 16 };

/* dy, x, dres, dx have one type. next_*: the row after, whose dot product is formed on the way; ahead_*: what to
 * prefetch. */
typedef struct grad {
    const void *dy, *x, *dres;
    const float *w;
    void *dx;
    float *dw, *db;
    float rstd, k;
    const void *next_dy, *next_x;
    const char *ahead_dy, *ahead_x;
} grad;

SKR_FN vf2 dx_of(int want, vf2 e, vf2 x, vf2 w, vf2 dres, vf k)
{
    vf2 g = want & HAVE_DRES ? v2_fma(e, w, dres) : v2_mul(e, w);
    return v2_fma(x, (vf2){k, k}, g);
}

/* What e * x or, where h = x * rstd is rounded on the way, dy * h adds to dw. */
SKR_FN vf2 dw_of(int round, vf2 dy, vf2 e, vf2 x, vf rstd, vf2 dw)
{
    return round == SKR_F32 ? v2_fma(e, x, dw) : v2_fma(dy, v2_round_to(round, v2_scale(x, rstd)), dw);
}

SKR_FN void grad_block(int t, int round, int want, const grad *a, const vf2 *w, vf rstd, vf k1, int64_t at)
{
    vf2 dy[K], x[K], e[K], dw[K], db[K], dx[K], dres[K];
#define EACH_PAIR(statement)                                                                                           \
    SKR_UNROLL                                                                                                         \
    for (int k = 0; k < K; k++) {                                                                                      \
        const int64_t i = at + 2 * k * SKR_LANES;                                                                      \
        (void)i;                                                                                                       \
        statement;                                                                                                     \
    }
    EACH_PAIR(dy[k] = v_load2_fast(t, a->dy, i))
    EACH_PAIR(x[k] = want & (WANT_DX | WANT_DW) ? v_load2_fast(t, a->x, i) : v2_set1(0.0f))
    EACH_PAIR(dres[k] = want & HAVE_DRES ? v_load2_fast(t, a->dres, i) : v2_set1(0.0f))
    EACH_PAIR(e[k] = want & (WANT_DX | WANT_DW) ? v2_scale(dy[k], rstd) : dy[k])
    if (want & WANT_DX)
        EACH_PAIR(dx[k] = dx_of(want, e[k], x[k], w[k], dres[k], k1))
    if (want & WANT_DW)
        EACH_PAIR(dw[k] = dw_of(round, dy[k], e[k], x[k], rstd, v_load2(SKR_F32, a->dw, i)))
    if (want & WANT_DB)
        EACH_PAIR(db[k] = v2_add(dy[k], v_load2(SKR_F32, a->db, i)))
    if (want & WANT_DW)
        EACH_PAIR(v_store2(SKR_F32, a->dw, i, dw[k]))
    if (want & WANT_DB)
        EACH_PAIR(v_store2(SKR_F32, a->db, i, db[k]))
    if (want & WANT_DX)
        EACH_PAIR(v_store2(t, a->dx, i, dx[k]))
#undef EACH_PAIR
}

SKR_TAIL void grad_tail(int t, int round, int want, const grad *a, int64_t i, int64_t n)
{
    vf rstd = v_set1(a->rstd), k1 = v_set1(a->k);
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        vf2 dy = v_load2_n(t, a->dy, i, m), e = v2_scale(dy, rstd), x = dy;
        if (want & (WANT_DX | WANT_DW))
            x = v_load2_n(t, a->x, i, m);
        if (want & WANT_DX) {
            vf2 dres = want & HAVE_DRES ? v_load2_n(t, a->dres, i, m) : v2_set1(0.0f);
            v_store2_n(t, a->dx, i, dx_of(want, e, x, v_load2_n(SKR_F32, a->w, i, m), dres, k1), m);
        }
        if (want & WANT_DW)
            v_store2_n(SKR_F32, a->dw, i, dw_of(round, dy, e, x, rstd, v_load2_n(SKR_F32, a->dw, i, m)), m);
        if (want & WANT_DB)
            v_store2_n(SKR_F32, a->db, i, v2_add(dy, v_load2_n(SKR_F32, a->db, i, m)), m);
    }
}

SKR_FN void grad_body(int t, int round, int want, const grad *given, int64_t n)
{
    grad a = *given;
    vf rstd = v_set1(a.rstd), k = v_set1(a.k);
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        vf2 weight[K];
        if (want & WANT_DX)
            load_weight(a.w, i, weight);
        grad_block(t, round, want, &a, weight, rstd, k, i);
    }
    if (i < n)
        grad_tail(t, round, want, given, i, n);
}

/* One block, with the dot product of the next row's formed in between: memory is read while gradients are computed. */
SKR_FN void both_block(int t, int want, const grad *a, vf rstd, vf k1, vf2 *sum, int64_t at)
{
    vf2 w[K], dw[K], e[K], x[K], g[K];
    load_weight(a->w, at, w);
#define EACH_PAIR(statement)                                                                                           \
    SKR_UNROLL                                                                                                         \
    for (int k = 0; k < K; k++) {                                                                                      \
        const int64_t i = at + 2 * k * SKR_LANES;                                                                      \
        (void)i;                                                                                                       \
        statement;                                                                                                     \
    }
    EACH_PAIR(e[k] = v2_scale(v_load2_fast(t, a->dy, i), rstd))
    EACH_PAIR(x[k] = v_load2_fast(t, a->x, i))
    EACH_PAIR(g[k] = want & HAVE_DRES ? v_load2_fast(t, a->dres, i) : v2_set1(0.0f))
    dot_block(t, a->next_dy, a->next_x, w, at, sum);
    if (want & WANT_DW)
        EACH_PAIR(dw[k] = v2_fma(e[k], x[k], v_load2(SKR_F32, a->dw, i)))
    EACH_PAIR(g[k] = dx_of(want, e[k], x[k], w[k], g[k], k1))
    if (want & WANT_DW)
        EACH_PAIR(v_store2(SKR_F32, a->dw, i, dw[k]))
    EACH_PAIR(v_store2(t, a->dx, i, g[k]))
#undef EACH_PAIR
}

SKR_FN float both_body(int t, int want, const grad *given, int64_t n)
{
    const int bytes = t == SKR_F32 ? 4 : 2, step = BLOCK * bytes < LINE ? LINE / bytes : BLOCK;
    grad a = *given;
    vf rstd = v_set1(a.rstd), k = v_set1(a.k);
    vf2 sum[K] = {v2_set1(0.0f), v2_set1(0.0f)};
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        prefetch_block(a.ahead_dy + i * bytes, step * bytes);
        prefetch_block(a.ahead_x + i * bytes, step * bytes);
        SKR_UNROLL
        for (int at = 0; at < step; at += BLOCK)
            both_block(t, want, &a, rstd, k, sum, i + at);
    }
    for (; i + BLOCK <= n; i += BLOCK)
        both_block(t, want, &a, rstd, k, sum, i);
    float dot = total(sum);
    if (i < n) {
        dot += dot_tail(t, a.next_dy, a.next_x, a.w, i, n);
        grad_tail(t, SKR_F32, want, given, i, n);
    }
    return dot;
}

typedef void (*grad_fn)(const grad *a, int64_t n);
typedef float (*both_fn)(const grad *a, int64_t n);

/* All combinations of what is wanted, for one element type and one type that h is rounded to (F32: not at all). */
#define GRAD(t, rd, want)                                                                                              \
    static void grad_##t##_##rd##_##want(const grad *a, int64_t n)                                                     \
    {                                                                                                                  \
        grad_body(SKR_##t, SKR_##rd, want, a, n);                                                                      \
    }
#define EACH_WANT(F, t, rd)                                                                                            \
    F(t, rd, 1)                                                                                                        \
    F(t, rd, 2)                                                                                                        \
    F(t, rd, 3) F(t, rd, 4) F(t, rd, 5) F(t, rd, 6) F(t, rd, 7) F(t, rd, 9) F(t, rd, 11) F(t, rd, 13) F(t, rd, 15)
#define GRAD_CELL(t, rd, want) [want] = grad_##t##_##rd##_##want,
#define EACH_BODY(F)           F(F32, F32) F(F16, F32) F(BF16, F32) F(F32, F16) F(F32, BF16)
#define GRADS(t, rd)           EACH_WANT(GRAD, t, rd)
EACH_BODY(GRADS)
#define GRAD_ROW(t, rd) {EACH_WANT(GRAD_CELL, t, rd)},
/* Types in place; f32 with h rounded to f16, to bf16. */
static const grad_fn grads[5][N_WANTS] = {EACH_BODY(GRAD_ROW)};

#define BOTH(t, want)                                                                                                  \
    SKR_IN_ORDER static float both_##t##_##want(const grad *a, int64_t n)                                              \
    {                                                                                                                  \
        return both_body(SKR_##t, want, a, n);                                                                         \
    }
#define BOTHS(t) BOTH(t, 1) BOTH(t, 3) BOTH(t, 9) BOTH(t, 11)
BOTHS(F32)
BOTHS(F16)
BOTHS(BF16)
#define BOTH_ROW(t)                                                                                                    \
    {                                                                                                                  \
        [1] = both_##t##_1, [3] = both_##t##_3, [9] = both_##t##_9, [11] = both_##t##_11                               \
    }
static const both_fn boths[3][N_WANTS] = {BOTH_ROW(F32), BOTH_ROW(F16), BOTH_ROW(BF16)};

/* ---------------------------------------------------------------- rows */

typedef struct sweep {
    const job_t *job;
    dot_fn dot;
    square_fn square;
    grad_fn grad;
    both_fn both; /* NULL: what is wanted has no such form */
    int want;
    int in_place; /* dy, x, dres and dx have one type and need no buffers */
    int type;     /* that one, else f32 */
    int64_t chunk;
    double one_over_n;
    lead ahead;                /* of dy and x, when they have one type */
    float *dy, *x, *dx, *dres; /* buffers of STAGED elements */
} sweep;

typedef struct row_data {
    const char *dy, *x, *dres;
    char *dx;
    const float *w;
    float *dw, *db;
    float rstd, k;
} row_data;

/* A chunk of one tensor as f32: its own memory, or a buffer. */
static const float *staged(int type, const char *row, int64_t i, int64_t n, float *buffer)
{
    const char *from = row + i * skr_type_bytes(type);
    if (type == SKR_F32)
        return (const float *)from;
    widen(type, from, 0.0f, buffer, n);
    return buffer;
}

static int64_t chunk_at(const sweep *s, int64_t i)
{
    return s->job->n - i < s->chunk ? s->job->n - i : s->chunk;
}

static sums first_sweep(const sweep *s, const row_data *r)
{
    const job_t *job = s->job;
    sums sum = {0, 0};
    if (!s->dot && !s->square)
        return sum;
    for (int64_t i = 0; i < job->n; i += s->chunk) {
        int64_t n = chunk_at(s, i);
        const void *x =
            s->in_place ? r->x + i * skr_type_bytes(s->type) : (const void *)staged(job->x.type, r->x, i, n, s->x);
        const void *dy = r->dy + i * skr_type_bytes(s->type);
        if (s->dot && !s->in_place)
            dy = staged(job->dy.type, r->dy, i, n, s->dy);
        sum.dot += s->dot ? (double)s->dot(dy, x, r->w + i, n) : 0;
        sum.square += s->square ? (double)s->square(x, n) : 0;
    }
    return sum;
}

static grad grad_at(const row_data *r, int64_t i, int bytes)
{
    grad g = {.w = r->w + i, .rstd = r->rstd, .k = r->k};
    g.dy = r->dy + i * bytes;
    g.x = r->x + i * bytes;
    g.dres = r->dres ? r->dres + i * bytes : NULL;
    g.dx = r->dx ? r->dx + i * bytes : NULL;
    g.dw = r->dw ? r->dw + i : NULL;
    g.db = r->db ? r->db + i : NULL;
    return g;
}

static void second_sweep(const sweep *s, const row_data *r)
{
    const job_t *job = s->job;
    for (int64_t i = 0; i < job->n; i += s->chunk) {
        int64_t n = chunk_at(s, i);
        grad g = grad_at(r, i, skr_type_bytes(s->type));
        if (s->in_place) {
            s->grad(&g, n);
            continue;
        }
        g.dy = staged(job->dy.type, r->dy, i, n, s->dy);
        g.x = s->want & (WANT_DX | WANT_DW) ? staged(job->x.type, r->x, i, n, s->x) : NULL;
        g.dres = r->dres ? staged(job->dres.type, r->dres, i, n, s->dres) : NULL;
        char *dx = r->dx ? r->dx + i * skr_type_bytes(job->dx.type) : NULL;
        int direct = job->dx.type == SKR_F32;
        g.dx = direct ? dx : (char *)s->dx;
        s->grad(&g, n);
        if (dx && !direct)
            narrow(job->dx.type, s->dx, dx, n);
    }
}

/* Gradients of one row, and the dot product of the next. */
static double both_sweeps(const sweep *s, const row_data *r, const row_data *next, int64_t next_row, int64_t end)
{
    const job_t *job = s->job;
    int bytes = skr_type_bytes(s->type);
    double dot = 0;
    for (int64_t i = 0; i < job->n; i += s->chunk) {
        grad g = grad_at(r, i, bytes);
        g.next_dy = next->dy + i * bytes;
        g.next_x = next->x + i * bytes;
        g.ahead_dy = ahead_at(&s->ahead, &job->rows, &job->dy, next_row, end, i * bytes);
        g.ahead_x = ahead_at(&s->ahead, &job->rows, &job->x, next_row, end, i * bytes);
        dot += (double)s->both(&g, chunk_at(s, i));
    }
    return dot;
}

static void start(sweep *s, const job_t *job, float (*buffer)[STAGED])
{
    int dyt = job->dy.type, xt = job->x.type, dxt = job->dx.data ? job->dx.type : dyt,
        drt = job->dres.data ? job->dres.type : dyt;
    int round = job->round_before_weight && job->dweight.data ? xt : SKR_F32;
    *s = (sweep){.job = job, .dy = buffer[0], .x = buffer[1], .dx = buffer[2], .dres = buffer[3]};
    s->in_place = dyt == xt && xt == dxt && xt == drt && round == SKR_F32;
    s->type = s->in_place ? dyt : SKR_F32;
    s->chunk = s->in_place ? CHUNK : STAGED;
    s->one_over_n = 1.0 / (double)job->n;
    s->ahead = lead_of(&job->x, job->n);
    s->want = (job->dx.data ? WANT_DX : 0) | (job->dweight.data ? WANT_DW : 0) | (job->dbias.data ? WANT_DB : 0) |
              (job->dres.data ? HAVE_DRES : 0);
    s->dot = s->want & WANT_DX ? dots[s->type] : NULL;
    s->square = (s->want & (WANT_DX | WANT_DW)) && !job->rstd.data ? squares[s->type] : NULL;
    s->grad = grads[round == SKR_F32 ? s->type : 2 + round][s->want];
    s->both = s->in_place && !s->square && job->heads == 1 ? boths[s->type][s->want] : NULL;
}

static row_data row_at(const job_t *job, int64_t row, float *dw, float *db)
{
    const skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t h = head_of(job->heads, row);
    row_data r = {.dy = row_of(&job->rows, &job->dy, row), .x = row_of(&job->rows, &job->x, row)};
    r.w = param_row(&job->head, &job->weight, cpu->weight_at, cpu->weight_stride, h);
    r.dres = job->dres.data ? row_of(&job->rows, &job->dres, row) : NULL;
    r.dx = job->dx.data ? row_of(&job->rows, &job->dx, row) : NULL;
    r.dw = dw ? dw + h * job->n : NULL;
    r.db = db ? db + h * job->n : NULL;
    return r;
}

/* The first sweep again in double, for rows whose products leave f32's range (x near its largest value): they must not
 * become NaN by infinity times a vanishing rstd. */
static sums sums_in_double(const sweep *s, const row_data *r)
{
    const job_t *job = s->job;
    sums sum = {0, 0};
    for (int64_t i = 0; i < job->n; i += STAGED) {
        int64_t n = job->n - i < STAGED ? job->n - i : STAGED;
        const float *x = staged(job->x.type, r->x, i, n, s->x), *dy = staged(job->dy.type, r->dy, i, n, s->dy);
        for (int64_t j = 0; j < n; j++) {
            sum.dot += (double)dy[j] * (double)r->w[i + j] * (double)x[j];
            sum.square += (double)x[j] * (double)x[j];
        }
    }
    return sum;
}

static int is_finite(double x)
{
    return x - x == 0;
}

/* rstd, and k = -rstd^2 * mean(g * h) = -rstd^3 * dot / N, from the first sweep's sums. */
static void finish_row(const sweep *s, int64_t row, sums sum, row_data *r)
{
    const job_t *job = s->job;
    if (!is_finite(sum.dot) || !is_finite(sum.square))
        sum = sums_in_double(s, r);
    r->rstd = job->rstd.data ? *(const float *)row_of(&job->rows, &job->rstd, row)
                             : rstd_of(sum.square, s->one_over_n, job->eps);
    double rstd = (double)r->rstd;
    r->k = -(float)(rstd * rstd * rstd * (sum.dot * s->one_over_n));
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
    float buffer[4][STAGED];
    sweep s;
    start(&s, job, buffer);
    int64_t begin = part * job->rows_per_part, end = begin + job->rows_per_part;
    end = end < job->rows.m ? end : job->rows.m;
    float *dw = part_of(job, job->cpu.dweight_at, part), *db = part_of(job, job->cpu.dbias_at, part);
    row_data r = row_at(job, begin, dw, db), next = r;
    sums sum = first_sweep(&s, &r);
    for (int64_t row = begin; row < end; row++, r = next) {
        finish_row(&s, row, sum, &r);
        if (row + 1 < end)
            next = row_at(job, row + 1, dw, db);
        if (s.both && row + 1 < end) {
            sum.dot = both_sweeps(&s, &r, &next, row + 1, end);
        } else {
            second_sweep(&s, &r);
            if (row + 1 < end)
                sum = first_sweep(&s, &next);
        }
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

/* Parts are added in two chains, even and odd numbers; then what the tensor held. */
SKR_FN void sum_body(int t, int accumulate, const float *parts, int64_t n_parts, int64_t stride, void *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf even = v_set1(0.0f), odd = v_set1(0.0f);
        int64_t p = 0;
        for (; p + 2 <= n_parts; p += 2) {
            even = v_add(even, m < SKR_LANES ? v_load_n(SKR_F32, parts + p * stride, i, m)
                                             : v_load(SKR_F32, parts + p * stride, i));
            odd = v_add(odd, m < SKR_LANES ? v_load_n(SKR_F32, parts + (p + 1) * stride, i, m)
                                           : v_load(SKR_F32, parts + (p + 1) * stride, i));
        }
        if (p < n_parts)
            even = v_add(even, v_load_n(SKR_F32, parts + p * stride, i, m));
        vf sum = v_add(even, odd);
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
