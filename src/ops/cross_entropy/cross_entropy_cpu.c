/* cross_entropy_cpu.c - forward rows, with or without their gradient. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row is read in chunks that stay in L1: the chunk's maximum, then its exponentials against that maximum and their
 * sum. So each element costs one exponential, and the sums of chunks are joined in f64. For the gradient the
 * exponentials are kept as f32 in a row of scratch memory, with the maxima: the second sweep only multiplies. */
#include "cross_entropy_cpu.h"
#include "cross_entropy_rows_cpu.h"

typedef skr_cross_entropy_job job_t;

/* ---------------------------------------------------------------- exponentials of a chunk */

SKR_TAIL float exp_tail(int type, const void *x, float top, float *kept, int64_t i, int64_t n)
{
    float sum = 0.0f, e[SKR_LANES];
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf v = v_exp_below(v_sub(load_any(type, x, i, m), v_set1(top)));
        v_store(SKR_F32, e, 0, v);
        if (kept)
            v_store_n(SKR_F32, kept, i, v, m);
        for (int k = 0; k < m; k++)
            sum += e[k];
    }
    return sum;
}

SKR_FN float exp_body(int type, int keep, const void *x, float top, float *kept, int64_t n)
{
    const int64_t bytes = skr_type_bytes(type);
    vf2 a[K] = {v2_set1(0.0f), v2_set1(0.0f)}, t[K];
    vf m = v_set1(top);
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        ask_ahead((const char *)x + i * bytes, BLOCK * bytes);
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            t[k] = v2_minus(v_load2(type, x, i + 2 * k * SKR_LANES), m);
        exp_pairs(t);
        SKR_UNROLL
        for (int k = 0; k < K; k++) {
            if (keep)
                v_store2(SKR_F32, kept, i + 2 * k * SKR_LANES, t[k]);
            a[k] = v2_add(a[k], t[k]);
        }
    }
    vf2 all = v2_add(a[0], a[1]);
    float sum = v_sum(v_add(all.lo, all.hi));
    return i < n ? sum + exp_tail(type, x, top, keep ? kept : NULL, i, n) : sum;
}

typedef float (*exp_fn)(const void *x, float top, float *kept, int64_t n);
#define EXP(type)                                                                                                      \
    static float exp_##type(const void *x, float top, float *kept, int64_t n)                                          \
    {                                                                                                                  \
        return exp_body(SKR_##type, 0, x, top, kept, n);                                                               \
    }                                                                                                                  \
    static float keep_##type(const void *x, float top, float *kept, int64_t n)                                         \
    {                                                                                                                  \
        return exp_body(SKR_##type, 1, x, top, kept, n);                                                               \
    }
EXP(F32)
EXP(F16)
EXP(BF16)
static const exp_fn exps[3][2] = {{exp_F32, keep_F32}, {exp_F16, keep_F16}, {exp_BF16, keep_BF16}};

/* ---------------------------------------------------------------- a row */

typedef struct kernel {
    const job_t *job;
    aims aims;
    skr_ce_scale scale;
    const float *weight; /* with smoothing: the class weights of these columns, or NULL */
    float *kept, *tops;  /* with a gradient */
} kernel;

typedef struct row_sums {
    float max, smooth;
    double sum;
} row_sums;

/* Joins a chunk. A chunk of -infinity has the sum 0 and changes nothing. */
static void join(row_sums *r, float top, float sum)
{
    if (top > r->max) {
        r->sum = r->sum * (double)exp1(r->max - top) + (double)sum;
        r->max = top;
    } else if (top == top) {
        r->sum += top == -__builtin_inff() ? 0.0 : (double)sum * (double)exp1(top - r->max);
    } else {
        r->sum = (double)top; /* NaN, and it stays */
    }
}

static row_sums first_sweep(const kernel *k, const char *x)
{
    const job_t *job = k->job;
    row_sums r = {-__builtin_inff(), 0.0f, 0.0};
    int type = job->softcap != 0.0f ? SKR_F32 : job->logits.type, bytes = skr_type_bytes(job->logits.type);
    double smooth = 0;
    float capped[SKR_CE_CHUNK];
    for (int64_t i = 0; i < job->n; i += SKR_CE_CHUNK) {
        int64_t n = job->n - i < SKR_CE_CHUNK ? job->n - i : SKR_CE_CHUNK;
        const void *s = x + i * bytes;
        if (job->softcap != 0.0f)
            s = cap(job->logits.type, s, job->softcap, capped, n);
        float top = tops_of[type](s, n), at = top == -__builtin_inff() ? 0.0f : top;
        join(&r, top, exps[type][k->kept != NULL](s, at, k->kept ? k->kept + i : NULL, n));
        if (k->kept)
            k->tops[i / SKR_CE_CHUNK] = top;
        if (job->smoothing != 0.0f)
            smooth += weighted_sum(type, s, k->weight ? k->weight + i : NULL, k->scale.k, n);
    }
    if (!(r.sum >= 0))
        r.max = r.sum != r.sum ? (float)r.sum : r.max;
    r.smooth = (float)smooth;
    return r;
}

/* dlogits from the exponentials that were kept; each chunk has a factor of its own. */
static void second_sweep(const kernel *k, const row_sums *r, const char *x, char *y, int64_t hit, skr_ce_coef c)
{
    const job_t *job = k->job;
    int xb = skr_type_bytes(job->logits.type), yb = skr_type_bytes(job->dlogits.type);
    double factor = (double)c.a / r->sum; /* a row of -infinity: 0 / 0 */
    for (int64_t i = 0; i < job->n; i += SKR_CE_CHUNK) {
        int64_t n = job->n - i < SKR_CE_CHUNK ? job->n - i : SKR_CE_CHUNK;
        float top = k->tops[i / SKR_CE_CHUNK];
        float by = r->max == -__builtin_inff() ? __builtin_nanf("")
                   : top == -__builtin_inff()  ? (float)(factor * 0.0)
                                               : (float)(factor * (double)exp1(top - r->max));
        gradient_chunk g = {.softcap = job->softcap,
                            .c = c.c,
                            .b = c.b,
                            .hit = hit - i,
                            .weight = k->weight ? k->weight + i : NULL,
                            .logits_type = job->logits.type,
                            .type = job->dlogits.type,
                            .past = goes_past(&job->head, y)};
        put_gradient(&g, k->kept + i, by, x + i * xb, y + i * yb, n);
    }
}

static float at_target(const job_t *job, const char *x, int64_t hit)
{
    if (hit < 0 || hit >= job->n)
        return 0.0f;
    float s = load1(job->logits.type, x, hit);
    return job->softcap != 0.0f ? job->softcap * tanh1(s / job->softcap) : s;
}

static void put_loss(const kernel *k, int64_t at, skr_ce_loss loss)
{
    const job_t *job = k->job;
    if (job->loss.data)
        *(float *)row_of(&job->rows, &job->loss, at) = loss.entropy + loss.z;
    if (job->room.loss_at >= 0)
        ((skr_ce_loss *)((char *)job->head.workspace + job->room.loss_at))[at] = loss;
}

static void one_row(const kernel *k, int64_t at)
{
    const job_t *job = k->job;
    aim t = aim_of(&k->aims, at);
    const char *x = row_of(&job->rows, &job->logits, at);
    char *y = job->dlogits.data ? row_of(&job->rows, &job->dlogits, at) : NULL;
    skr_ce_loss loss = {0.0f, 0.0f};
    if (!t.counts && y)
        __builtin_memset(y, 0, (size_t)(job->n * skr_type_bytes(job->dlogits.type)) * (job->lse.data == NULL));
    if (!t.counts && !job->lse.data && !job->partial.data) {
        put_loss(k, at, loss);
        return;
    }
    row_sums r = first_sweep(k, x);
    float lse = r.max == -__builtin_inff() ? r.max : r.max + log1((float)r.sum);
    int64_t hit = t.counts ? t.class - job->start : -1;
    float s = at_target(job, x, hit);
    if (job->lse.data)
        *(float *)row_of(&job->rows, &job->lse, at) = lse;
    if (job->partial.data) {
        float *p = (float *)row_of(&job->rows, &job->partial, at);
        int64_t step = job->partial.col_stride;
        p[0] = r.max, p[step] = (float)r.sum, p[2 * step] = s, p[3 * step] = r.smooth;
        return;
    }
    if (t.counts)
        loss = skr_ce_loss_of(&k->scale, job->z_loss, t.weight, lse, s, r.smooth);
    put_loss(k, at, loss);
    if (!y)
        return;
    float grad = job->grad.data ? *(const float *)row_of(&job->rows, &job->grad, at) : 1.0f;
    skr_ce_coef c = skr_ce_coef_of(&k->scale, job->z_loss, t.counts, t.weight, lse, grad, 0.0f);
    if (c.a == 0.0f && c.b == 0.0f && c.c == 0.0f)
        __builtin_memset(y, 0, (size_t)(job->n * skr_type_bytes(job->dlogits.type)));
    else
        second_sweep(k, &r, x, y, hit, c);
}

void SKR_KERNEL(cross_entropy)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(cross_entropy)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
    aims a = aims_of(job);
    if (step == SKR_CE_STEP_PREPARE) {
        prepare(job, &a, task);
        return;
    }
    if (step == SKR_CE_STEP_SUM || step == SKR_CE_STEP_FINISH) {
        if (step == SKR_CE_STEP_SUM)
            sum_part(&job->head, &job->room, job->rows.m, task);
        else
            finish(&job->head, &job->room, job->reduction, job->total);
        return;
    }
    kernel k = {.job = job, .aims = a, .scale = job_scale(job), .weight = smooth_weight(job)};
    if (job->exp_bytes) {
        k.kept = (float *)((char *)job->head.workspace + job->exp_at + worker * job->exp_bytes);
        k.tops = k.kept + job->n;
    }
    int64_t end = (task + 1) * job->rows_per_task;
    end = end < job->rows.m ? end : job->rows.m;
    for (int64_t at = task * job->rows_per_task; at < end; at++)
        one_row(&k, at);
}
