/* norm_backward_cpu.h - backward rows of rms_norm and layer_norm, and the sums over rows. Included by the kernel file
 * of each, which says what CENTRE is: 0, or 1 where the mean was subtracted. SPDX-License-Identifier: Apache-2.0
 *
 * Two sweeps a row, with d = x, or with CENTRE d = x - mean. The first: dot = sum(dy * w * d), and with CENTRE
 * sum(dy * w). The second, with e = dy * rstd, k = -rstd^3 * dot / N and k0 = -rstd * sum(dy * w) / N, which is the
 * formula of norm.h in the fewest operations:
 * - dx = e * w + k0 + d * k + dres
 * - dw += e * d
 * - db += dy
 *
 * dw and db are sums over one part of the rows, in row order; the last step adds the parts. dy, x and dx of one type
 * are read and written where they are; when types differ, or h is rounded on the way, chunks pass through f32 buffers.
 */
#ifndef SKR_NORM_BACKWARD_CPU_H
#define SKR_NORM_BACKWARD_CPU_H

#include "norm_cpu.h"

typedef skr_norm_backward_job job_t;

/* Elements that the main loops take at once: two pairs of vectors of each tensor. As in forward: loads first, then each
 * operation for all of them, then the stores. STAGED: elements of a chunk that passes through the buffers. */
enum { K = 2, BLOCK = 2 * K * SKR_LANES, STAGED = 1024 };

/* ---------------------------------------------------------------- first sweep, one chunk */

typedef struct dots {
    float dot, grad; /* sum(dy * w * d); with CENTRE sum(dy * w) */
} dots;
typedef struct vdots {
    vf2 dot, grad;
} vdots;

/* Sums that are filled in turn. With CENTRE there are two kinds, of half as many each: registers are scarce. Terms that
 * are few different numbers have roundings that do not even out: so a chain has at most LINKS of them, and f64 adds
 * the sums of SUMMED elements. */
enum { SUMS = CENTRE && SKR_LANES > 1 ? 1 : K, LINKS = SKR_LANES > 1 ? 256 : 128 };
enum { SUMMED = LINKS * 2 * SUMS * SKR_LANES };

SKR_FN void vdots_zero(vdots *a)
{
    SKR_UNROLL
    for (int k = 0; k < SUMS; k++)
        a[k].dot = a[k].grad = v2_set1(0.0f);
}

SKR_FN dots vdots_total(const vdots *a)
{
    vf2 dot = SUMS == 1 ? a[0].dot : v2_add(a[0].dot, a[SUMS - 1].dot);
    vf2 grad = SUMS == 1 ? a[0].grad : v2_add(a[0].grad, a[SUMS - 1].grad);
    return (dots){v_sum(v_add(dot.lo, dot.hi)), CENTRE ? v_sum(v_add(grad.lo, grad.hi)) : 0.0f};
}

SKR_FN vf2 centre(vf2 x, vf mean)
{
    return CENTRE ? v2_sub(x, (vf2){mean, mean}) : x;
}

SKR_FN void dot_add(vf2 dy, vf2 x, vf2 w, vf mean, vdots *a)
{
    vf2 g = v2_mul(dy, w);
    if (CENTRE)
        a->grad = v2_add(a->grad, g);
    a->dot = v2_fma(g, centre(x, mean), a->dot);
}

SKR_FN void dot_pair(int t, const void *dy, const void *x, int64_t i, vf2 w, vf mean, vdots *a)
{
    if (CENTRE)
        dot_add(v_load2_fast(t, dy, i), v_load2_fast(t, x, i), w, mean, a);
    else
        v_dot2(t, dy, x, i, w, &a->dot);
}

/* What is left after the whole blocks; every way to sum a row ends with this. Missing lanes have dy = 0. */
SKR_TAIL dots dot_tail(int t, const void *dy, const void *x, const float *w, float mean, int64_t i, int64_t n)
{
    vdots a[SUMS];
    vdots_zero(a);
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        dot_add(v_load2_n(t, dy, i, m), v_load2_n(t, x, i, m), v_load2_n(SKR_F32, w, i, m), v_set1(mean), a);
    }
    return vdots_total(a);
}

SKR_FN dots dots_add(dots a, dots b)
{
    return (dots){a.dot + b.dot, a.grad + b.grad};
}

SKR_FN dots dot_body(int t, const void *dy, const void *x, const float *w, float mean1, int64_t n)
{
    vf mean = v_set1(mean1);
    vdots a[SUMS];
    vdots_zero(a);
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        SKR_UNROLL
    for (int k = 0; k < K; k++) {
        const int64_t at = i + 2 * k * SKR_LANES;
        dot_pair(t, dy, x, at, v_load2(SKR_F32, w, at), mean, &a[k % SUMS]);
    }
    dots sum = vdots_total(a);
    return i < n ? dots_add(sum, dot_tail(t, dy, x, w, mean1, i, n)) : sum;
}

typedef dots (*dot_fn)(const void *dy, const void *x, const float *w, float mean, int64_t n);
typedef sums (*sums_fn)(const void *x, int64_t n);
#define FIRST(t)                                                                                                       \
    static dots dot_##t(const void *dy, const void *x, const float *w, float mean, int64_t n)                          \
    {                                                                                                                  \
        return dot_body(SKR_##t, dy, x, w, mean, n);                                                                   \
    }                                                                                                                  \
    static sums sums_##t(const void *x, int64_t n)                                                                     \
    {                                                                                                                  \
        return sums_body(SKR_##t, x, n);                                                                               \
    }
FIRST(F32)
FIRST(F16)
FIRST(BF16)
static const dot_fn dot_fns[3] = {dot_F32, dot_F16, dot_BF16};
static const sums_fn sums_fns[3] = {sums_F32, sums_F16, sums_BF16};

/* ---------------------------------------------------------------- second sweep, one chunk */

enum { WANT_DX = 1, WANT_DW = 2, WANT_DB = 4, HAVE_DRES = 8, N_WANTS = 16 };

/* dy, x, dres, dx have one type. next_*: the row after, whose dot product is formed on the way; ahead_*: what to
 * prefetch. */
typedef struct grad {
    const void *dy, *x, *dres;
    const float *w;
    void *dx;
    float *dw, *db;
    float mean, rstd, k, k0;
    const void *next_dy, *next_x;
    float next_mean;
    int past; /* dx is written past the caches */
    const char *ahead_dy, *ahead_x;
} grad;

/* The numbers of a row, in every lane. */
typedef struct vrow {
    vf mean, rstd, k, k0;
} vrow;

SKR_FN vrow spread(const grad *a)
{
    return (vrow){v_set1(a->mean), v_set1(a->rstd), v_set1(a->k), v_set1(a->k0)};
}

/* dx without its last term, d * k. */
SKR_FN vf2 dx_start(int want, vf2 e, vf2 w, vf2 dres, vrow r)
{
    if (CENTRE)
        return v2_fma(e, w, want & HAVE_DRES ? v2_add(dres, (vf2){r.k0, r.k0}) : (vf2){r.k0, r.k0});
    return want & HAVE_DRES ? v2_fma(e, w, dres) : v2_mul(e, w);
}

SKR_FN vf2 dx_of(int want, vf2 e, vf2 d, vf2 w, vf2 dres, vrow r)
{
    return v2_fma(d, (vf2){r.k, r.k}, dx_start(want, e, w, dres, r));
}

/* What e * d or, where h = d * rstd is rounded on the way, dy * h adds to dw. */
SKR_FN vf2 dw_of(int round, vf2 dy, vf2 e, vf2 d, vf rstd, vf2 dw)
{
    return round == SKR_F32 ? v2_fma(e, d, dw) : v2_fma(dy, v2_round_to(round, v2_scale(d, rstd)), dw);
}

SKR_FN void grad_block(int t, int round, int want, const grad *a, vrow r, int64_t at)
{
    vf2 dy[K], d[K], e[K], dw[K], db[K], dx[K], dres[K];
#define EACH_PAIR(statement)                                                                                           \
    SKR_UNROLL                                                                                                         \
    for (int k = 0; k < K; k++) {                                                                                      \
        const int64_t i = at + 2 * k * SKR_LANES;                                                                      \
        (void)i;                                                                                                       \
        statement;                                                                                                     \
    }
    EACH_PAIR(dy[k] = v_load2_fast(t, a->dy, i))
    EACH_PAIR(d[k] = want & (WANT_DX | WANT_DW) ? centre(v_load2_fast(t, a->x, i), r.mean) : v2_set1(0.0f))
    EACH_PAIR(dres[k] = want & HAVE_DRES ? v_load2_fast(t, a->dres, i) : v2_set1(0.0f))
    EACH_PAIR(e[k] = want & (WANT_DX | WANT_DW) ? v2_scale(dy[k], r.rstd) : dy[k])
    if (want & WANT_DX)
        EACH_PAIR(dx[k] = dx_of(want, e[k], d[k], v_load2(SKR_F32, a->w, i), dres[k], r))
    if (want & WANT_DW)
        EACH_PAIR(dw[k] = dw_of(round, dy[k], e[k], d[k], r.rstd, v_load2(SKR_F32, a->dw, i)))
    if (want & WANT_DB)
        EACH_PAIR(db[k] = v2_add(dy[k], v_load2(SKR_F32, a->db, i)))
    if (want & WANT_DW)
        EACH_PAIR(v_store2(SKR_F32, a->dw, i, dw[k]))
    if (want & WANT_DB)
        EACH_PAIR(v_store2(SKR_F32, a->db, i, db[k]))
    if (want & WANT_DX)
        EACH_PAIR(v_out2(t, a->dx, i, dx[k], a->past))
#undef EACH_PAIR
}

SKR_TAIL void grad_tail(int t, int round, int want, const grad *a, int64_t i, int64_t n)
{
    vrow r = spread(a);
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        vf2 dy = v_load2_n(t, a->dy, i, m), e = v2_scale(dy, r.rstd), d = dy;
        if (want & (WANT_DX | WANT_DW))
            d = centre(v_load2_n(t, a->x, i, m), r.mean);
        if (want & WANT_DX) {
            vf2 dres = want & HAVE_DRES ? v_load2_n(t, a->dres, i, m) : v2_set1(0.0f);
            v_store2_n(t, a->dx, i, dx_of(want, e, d, v_load2_n(SKR_F32, a->w, i, m), dres, r), m);
        }
        if (want & WANT_DW)
            v_store2_n(SKR_F32, a->dw, i, dw_of(round, dy, e, d, r.rstd, v_load2_n(SKR_F32, a->dw, i, m)), m);
        if (want & WANT_DB)
            v_store2_n(SKR_F32, a->db, i, v2_add(dy, v_load2_n(SKR_F32, a->db, i, m)), m);
    }
}

SKR_FN void grad_body(int t, int round, int want, const grad *given, int64_t n)
{
    grad a = *given;
    vrow r = spread(given);
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        grad_block(t, round, want, &a, r, i);
    if (i < n)
        grad_tail(t, round, want, given, i, n);
}

/* Pairs of vectors that both_pairs() takes side by side: with CENTRE two need more registers than AVX2 has. */
enum { BESIDE = CENTRE && SKR_LANES == 8 ? 1 : K };

/* BESIDE pairs, with the sums of the next row's formed in between: memory is read while gradients are computed. In an
 * order that keeps what depends on each other apart: a Neoverse V1 runs four operations a cycle then, and half as many
 * where one follows the other that it waits for. */
SKR_FN void both_pairs(int t, int want, const grad *a, vrow r, vf next_mean, vdots *sum, int64_t at)
{
    const int split = CENTRE || t == SKR_F32; /* else v_dot2() has its own way from the elements to the sum */
    vf2 w[BESIDE], dw[BESIDE], db[BESIDE], dy[BESIDE], e[BESIDE], d[BESIDE], dx[BESIDE], g[BESIDE], next_d[BESIDE];
#define EACH_PAIR(statement)                                                                                           \
    SKR_UNROLL                                                                                                         \
    for (int k = 0; k < BESIDE; k++) {                                                                                 \
        const int64_t i = at + 2 * k * SKR_LANES;                                                                      \
        (void)i;                                                                                                       \
        statement;                                                                                                     \
    }
    EACH_PAIR(dy[k] = v_load2_fast(t, a->dy, i))
    if (want & WANT_DB)
        EACH_PAIR(db[k] = v2_add(dy[k], v_load2(SKR_F32, a->db, i)))
    EACH_PAIR(d[k] = centre(v_load2_fast(t, a->x, i), r.mean))
    if (want & WANT_DB)
        EACH_PAIR(v_store2(SKR_F32, a->db, i, db[k]))
    EACH_PAIR(e[k] = v2_scale(dy[k], r.rstd))
    EACH_PAIR(w[k] = v_load2(SKR_F32, a->w, i))
    if (!split)
        EACH_PAIR(v_dot2(t, a->next_dy, a->next_x, i, w[k], &sum[k % SUMS].dot))
    if (want & WANT_DW) {
        EACH_PAIR(dw[k] = v_load2(SKR_F32, a->dw, i))
        EACH_PAIR(dw[k] = v2_fma(e[k], d[k], dw[k]))
    }
    EACH_PAIR(dx[k] = dx_start(want, e[k], w[k], want & HAVE_DRES ? v_load2_fast(t, a->dres, i) : v2_set1(0.0f), r))
    if (want & WANT_DW)
        EACH_PAIR(v_store2(SKR_F32, a->dw, i, dw[k]))
    if (split)
        EACH_PAIR(g[k] = v2_mul(v_load2_fast(t, a->next_dy, i), w[k]))
    EACH_PAIR(dx[k] = v2_fma(d[k], (vf2){r.k, r.k}, dx[k]))
    if (split)
        EACH_PAIR(next_d[k] = centre(v_load2_fast(t, a->next_x, i), next_mean))
    EACH_PAIR(v_out2(t, a->dx, i, dx[k], a->past))
    if (CENTRE)
        EACH_PAIR(sum[k % SUMS].grad = v2_add(sum[k % SUMS].grad, g[k]))
    if (split)
        EACH_PAIR(sum[k % SUMS].dot = v2_fma(g[k], next_d[k], sum[k % SUMS].dot))
#undef EACH_PAIR
}

SKR_FN void both_block(int t, int want, const grad *a, vrow r, vf next_mean, vdots *sum, int64_t at)
{
    SKR_UNROLL
    for (int first = 0; first < K; first += BESIDE)
        both_pairs(t, want, a, r, next_mean, sum + (first % SUMS), at + 2 * first * SKR_LANES);
}

SKR_FN dots both_body(int t, int want, const grad *given, int64_t n)
{
    const int bytes = t == SKR_F32 ? 4 : 2, step = BLOCK * bytes < LINE ? LINE / bytes : BLOCK;
    grad a = *given;
    vrow r = spread(given);
    vf next_mean = v_set1(a.next_mean);
    vdots sum[SUMS];
    vdots_zero(sum);
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        prefetch_block(a.ahead_dy + i * bytes, step * bytes);
        prefetch_block(a.ahead_x + i * bytes, step * bytes);
        SKR_UNROLL
        for (int at = 0; at < step; at += BLOCK)
            both_block(t, want, &a, r, next_mean, sum, i + at);
    }
    for (; i + BLOCK <= n; i += BLOCK)
        both_block(t, want, &a, r, next_mean, sum, i);
    dots total = vdots_total(sum);
    if (i < n) {
        total = dots_add(total, dot_tail(t, a.next_dy, a.next_x, a.w, a.next_mean, i, n));
        grad_tail(t, SKR_F32, want, given, i, n);
    }
    return total;
}

typedef void (*grad_fn)(const grad *a, int64_t n);
typedef dots (*both_fn)(const grad *a, int64_t n);

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
    SKR_IN_ORDER static dots both_##t##_##want(const grad *a, int64_t n)                                               \
    {                                                                                                                  \
        return both_body(SKR_##t, want, a, n);                                                                         \
    }
#define BOTHS(t) BOTH(t, 1) BOTH(t, 3) BOTH(t, 7) BOTH(t, 9) BOTH(t, 11) BOTH(t, 15)
BOTHS(F32)
BOTHS(F16)
BOTHS(BF16)
#define BOTH_ROW(t)                                                                                                    \
    {                                                                                                                  \
        [1] = both_##t##_1, [3] = both_##t##_3, [7] = both_##t##_7, [9] = both_##t##_9, [11] = both_##t##_11,          \
        [15] = both_##t##_15                                                                                           \
    }
static const both_fn boths[3][N_WANTS] = {BOTH_ROW(F32), BOTH_ROW(F16), BOTH_ROW(BF16)};

/* ---------------------------------------------------------------- rows */

typedef struct sweep {
    const job_t *job;
    dot_fn dot;
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
    float mean, rstd, k, k0;
    int past; /* dx is written past the caches */
} row_data;

/* The first sweep's results for a whole row. */
typedef struct row_sums {
    double dot, grad;
} row_sums;

static row_sums row_sums_add(row_sums a, dots b)
{
    return (row_sums){a.dot + (double)b.dot, a.grad + (double)b.grad};
}

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

static row_sums first_sweep(const sweep *s, const row_data *r)
{
    const job_t *job = s->job;
    row_sums sum = {0, 0};
    for (int64_t i = 0; s->dot && i < job->n; i += s->chunk) {
        int64_t n = chunk_at(s, i);
        const void *x = r->x + i * skr_type_bytes(s->type), *dy = r->dy + i * skr_type_bytes(s->type);
        if (!s->in_place) {
            x = staged(job->x.type, r->x, i, n, s->x);
            dy = staged(job->dy.type, r->dy, i, n, s->dy);
        }
        sum = row_sums_add(sum, s->dot(dy, x, r->w + i, r->mean, n));
    }
    return sum;
}

/* Field by field: a struct that is copied right after it was written waits for the writes. */
static inline void grad_at(grad *g, const row_data *r, int64_t i, int bytes)
{
    g->dy = r->dy + i * bytes;
    g->x = r->x + i * bytes;
    g->dres = r->dres ? r->dres + i * bytes : NULL;
    g->w = r->w + i;
    g->dx = r->dx ? r->dx + i * bytes : NULL;
    g->dw = r->dw ? r->dw + i : NULL;
    g->db = r->db ? r->db + i : NULL;
    g->mean = r->mean;
    g->rstd = r->rstd;
    g->k = r->k;
    g->k0 = r->k0;
    g->past = r->past;
}

static void second_sweep(const sweep *s, const row_data *r)
{
    const job_t *job = s->job;
    for (int64_t i = 0; i < job->n; i += s->chunk) {
        int64_t n = chunk_at(s, i);
        grad g;
        grad_at(&g, r, i, skr_type_bytes(s->type));
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
        g.past &= direct;
        s->grad(&g, n);
        if (dx && !direct)
            narrow(job->dx.type, s->dx, dx, n);
    }
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
    s->chunk = s->chunk < SUMMED ? s->chunk : SUMMED;
    s->one_over_n = 1.0 / (double)job->n;
    s->ahead = lead_of(&job->x, job->n);
    s->want = (job->dx.data ? WANT_DX : 0) | (job->dweight.data ? WANT_DW : 0) | (job->dbias.data ? WANT_DB : 0) |
              (job->dres.data ? HAVE_DRES : 0);
    s->dot = s->want & WANT_DX ? dot_fns[s->type] : NULL;
    s->grad = grads[round == SKR_F32 ? s->type : 2 + round][s->want];
    s->both = s->in_place && job->rstd.data && job->heads == 1 ? boths[s->type][s->want] : NULL;
}

static int is_finite(double x)
{
    return x - x == 0;
}

/* Mean and rstd as forward saved them, or from x. */
static void stat_row(const sweep *s, int64_t row, row_data *r)
{
    const job_t *job = s->job;
    int type = job->x.type, bytes = skr_type_bytes(type);
    if (job->rstd.data) {
        r->rstd = *(const float *)row_of(&job->rows, &job->rstd, row);
        r->mean = CENTRE ? *(const float *)row_of(&job->rows, &job->mean, row) : 0.0f;
        return;
    }
    r->mean = r->rstd = 0.0f;
    if (!(s->want & (WANT_DX | WANT_DW)))
        return;
    moments m = {0, 0};
    for (int64_t i = 0; i < job->n; i += CHUNK)
        m = moments_add(m, sums_fns[type](r->x + i * bytes, chunk_len(job->n, i)));
    centred c = centred_of(type, r->x, job->n, m, job->eps);
    r->mean = (float)c.mean;
    r->rstd = c.rstd;
}

/* Where something that the plan put at `at` (-1: nowhere) is: half of a way of L1 from x, where they are apart. */
static inline int64_t place_of(const job_t *job, int64_t at)
{
    if (at < 0 || !job->cpu.apart)
        return at;
    uintptr_t from_x = (uintptr_t)job->x.data + SKR_L1_WAY / 2 - (uintptr_t)job->head.workspace;
    return at + (int64_t)(from_x & (SKR_L1_WAY - LINE));
}

static void row_at(const sweep *s, int64_t row, float *dw, float *db, row_data *r)
{
    const job_t *job = s->job;
    const skr_norm_cpu *cpu = &job->cpu;
    int64_t h = head_of(job->heads, row);
    r->dy = row_of(&job->rows, &job->dy, row);
    r->x = row_of(&job->rows, &job->x, row);
    r->w = param_row(&job->head, &job->weight, place_of(job, cpu->weight_at), cpu->weight_stride, h);
    r->dres = job->dres.data ? row_of(&job->rows, &job->dres, row) : NULL;
    r->dx = job->dx.data ? row_of(&job->rows, &job->dx, row) : NULL;
    r->past = goes_past(&job->head, r->dx);
    r->dw = dw ? dw + h * job->n : NULL;
    r->db = db ? db + h * job->n : NULL;
    stat_row(s, row, r);
}

/* The first sweep again in double, for rows whose products leave f32's range (x near its largest value): they must not
 * become NaN by infinity times a vanishing rstd. */
static row_sums sums_in_double(const sweep *s, const row_data *r)
{
    const job_t *job = s->job;
    row_sums sum = {0, 0};
    for (int64_t i = 0; i < job->n; i += STAGED) {
        int64_t n = job->n - i < STAGED ? job->n - i : STAGED;
        const float *x = staged(job->x.type, r->x, i, n, s->x), *dy = staged(job->dy.type, r->dy, i, n, s->dy);
        for (int64_t j = 0; j < n; j++) {
            double g = (double)dy[j] * (double)r->w[i + j];
            sum.grad += g;
            sum.dot += g * ((double)x[j] - (double)r->mean);
        }
    }
    return sum;
}

/* k = -rstd^2 * mean(g * h) = -rstd^3 * dot / N and k0, from the first sweep's sums. */
static void finish_row(const sweep *s, row_sums sum, row_data *r)
{
    if (!is_finite(sum.dot))
        sum = sums_in_double(s, r);
    double rstd = (double)r->rstd;
    r->k = -(float)(rstd * rstd * rstd * (sum.dot * s->one_over_n));
    r->k0 = CENTRE ? -(float)(rstd * (sum.grad * s->one_over_n)) : 0.0f;
}

/* Where the next row is and what to prefetch, from byte `at` on. */
static inline void next_at(grad *g, const sweep *s, const row_data *next, int64_t row, int64_t end, int64_t at)
{
    const job_t *job = s->job;
    g->next_dy = next->dy + at;
    g->next_x = next->x + at;
    g->ahead_dy = ahead_at(&s->ahead, &job->rows, &job->dy, row, end, at);
    g->ahead_x = ahead_at(&s->ahead, &job->rows, &job->x, row, end, at);
}

/* Gradients of one row, and the sums of the next. */
static row_sums both_sweeps(const sweep *s, const row_data *r, const row_data *next, int64_t next_row, int64_t end)
{
    const job_t *job = s->job;
    int bytes = skr_type_bytes(s->type);
    row_sums sum = {0, 0};
    for (int64_t i = 0; i < job->n; i += s->chunk) {
        grad g;
        grad_at(&g, r, i, bytes);
        next_at(&g, s, next, next_row, end, i * bytes);
        g.next_mean = next->mean;
        sum = row_sums_add(sum, s->both(&g, chunk_at(s, i)));
    }
    return sum;
}

/* All rows but the last one of a part that have one stride and one chunk, from r on, which is left at the last one: as
 * both_sweeps(), but a row is a step from the one before. Short rows are many: of 128 columns 48 GB/s and not 41. */
static row_sums flat_sweeps(const sweep *s, row_sums sum, row_data *r, int64_t begin, int64_t end)
{
    const job_t *job = s->job;
    const int bytes = skr_type_bytes(s->type);
    const int64_t n = job->n, dy = job->dy.stride[0] * bytes, x = job->x.stride[0] * bytes,
                  dres = job->dres.stride[0] * bytes, dx = job->dx.stride[0] * bytes;
    const float *rstd = (const float *)row_of(&job->rows, &job->rstd, begin);
    const float *mean = CENTRE ? (const float *)row_of(&job->rows, &job->mean, begin) : NULL;
    for (int64_t row = begin + 1; row < end; row++) {
        grad g;
        finish_row(s, sum, r);
        grad_at(&g, r, 0, bytes);
        r->dy += dy;
        r->x += x;
        next_at(&g, s, r, row, end, 0);
        r->dres = r->dres ? r->dres + dres : NULL;
        r->dx = r->dx ? r->dx + dx : NULL;
        r->past = goes_past(&job->head, r->dx);
        r->rstd = *(rstd += job->rstd.stride[0]);
        r->mean = CENTRE ? *(mean += job->mean.stride[0]) : 0.0f;
        g.next_mean = r->mean;
        sum = row_sums_add((row_sums){0, 0}, s->both(&g, n));
    }
    return sum;
}

static float *part_of(const job_t *job, int64_t at, int64_t part)
{
    if (at < 0)
        return NULL;
    int64_t count = job->heads * job->n;
    float *sum = (float *)((char *)job->head.workspace + at) + part * skr_part_stride(count);
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
    float *dw = part_of(job, place_of(job, job->cpu.dweight_at), part),
          *db = part_of(job, place_of(job, job->cpu.dbias_at), part);
    row_data pair[2], *r = &pair[0], *next = &pair[1];
    row_at(&s, begin, dw, db, r);
    row_sums sum = first_sweep(&s, r);
    if (s.both && job->rows.n_dims == 1 && job->n <= s.chunk) {
        sum = flat_sweeps(&s, sum, r, begin, end);
        begin = end - 1;
    }
    for (int64_t row = begin; row < end; row++) {
        finish_row(&s, sum, r);
        if (row + 1 < end)
            row_at(&s, row + 1, dw, db, next);
        if (s.both && row + 1 < end) {
            sum = both_sweeps(&s, r, next, row + 1, end);
        } else {
            second_sweep(&s, r);
            if (row + 1 < end)
                sum = first_sweep(&s, next);
        }
        row_data *done = r;
        r = next, next = done;
    }
}

/* ---------------------------------------------------------------- first and last step */

static void params(const job_t *job, int64_t task)
{
    const skr_norm_cpu *cpu = &job->cpu;
    int64_t pieces = (job->n + SKR_PARAM_PIECE - 1) / SKR_PARAM_PIECE, h = task / pieces;
    int64_t begin = task % pieces * SKR_PARAM_PIECE, end = begin + SKR_PARAM_PIECE;
    end = end < job->n ? end : job->n;
    copy_param(&job->head, &job->weight, job->weight_offset, place_of(job, cpu->weight_at), cpu->weight_stride, h,
               begin, end);
}

static void norm_backward(const void *job, int step, int64_t task)
{
    const job_t *j = job;
    if (step == SKR_STEP_PARAMS) {
        params(j, task);
    } else if (step == SKR_STEP_ROWS) {
        rows(j, task);
    } else {
        int64_t pieces = (j->n + SKR_SUM_PIECE - 1) / SKR_SUM_PIECE, h = task / pieces;
        int64_t begin = task % pieces * SKR_SUM_PIECE, end = begin + SKR_SUM_PIECE;
        end = end < j->n ? end : j->n;
        sum_parts(&j->head, &j->dweight, j->accumulate, place_of(j, j->cpu.dweight_at), j->n_parts, j->heads, j->n, h,
                  begin, end);
        sum_parts(&j->head, &j->dbias, j->accumulate, place_of(j, j->cpu.dbias_at), j->n_parts, j->heads, j->n, h,
                  begin, end);
    }
}

#endif
