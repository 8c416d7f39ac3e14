/* cross_entropy_backward_cpu.c - the gradient from the saved lse. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy_rows_cpu.h"

typedef skr_cross_entropy_job job_t;

/* x - lse. A difference beyond 70 cannot come from a right lse; its exponential must not wrap around all the same. */
SKR_FN vf2 below_lse(vf2 x, vf lse)
{
    const vf most = v_set1(70.0f);
    vf2 d = v2_minus(x, lse);
    return (vf2){v_min(d.lo, most), v_min(d.hi, most)};
}

/* y = e^(x - lse) * a; nothing else is needed without softcap and smoothing, but for the target's column. */
SKR_FN vf2 p_of(vf2 x, vf lse, vf a)
{
    vf2 d = below_lse(x, lse);
    return v2_scale((vf2){v_exp_below(d.lo), v_exp_below(d.hi)}, a);
}

SKR_FN void p_body(int xt, int yt, const void *x, float lse1, float a1, void *y, int64_t n, int past)
{
    vf lse = v_set1(lse1), a = v_set1(a1);
    vf2 t[K];
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            t[k] = below_lse(v_load2(xt, x, i + 2 * k * SKR_LANES), lse);
        exp_pairs(t);
        SKR_UNROLL
        for (int k = 0; k < K; k++)
            v_out2(yt, y, i + 2 * k * SKR_LANES, v2_scale(t[k], a), past);
    }
    for (; i < n; i += 2 * SKR_LANES) {
        int m = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        v_store2_n(yt, y, i, p_of(v_load2_n(xt, x, i, m), lse, a), m);
    }
}

typedef void (*p_fn)(const void *x, float lse, float a, void *y, int64_t n, int past);
#define P(xt, yt)                                                                                                      \
    static void p_##xt##_##yt(const void *x, float lse, float a, void *y, int64_t n, int past)                         \
    {                                                                                                                  \
        p_body(SKR_##xt, SKR_##yt, x, lse, a, y, n, past);                                                             \
    }
#define PS(xt) P(xt, F32) P(xt, F16) P(xt, BF16)
PS(F32)
PS(F16)
PS(BF16)
#define P_ROW(xt)                                                                                                      \
    {                                                                                                                  \
        p_##xt##_F32, p_##xt##_F16, p_##xt##_BF16                                                                      \
    }
static const p_fn ps[3][3] = {P_ROW(F32), P_ROW(F16), P_ROW(BF16)};

static void plain_row(const job_t *job, const char *x, char *y, float lse, int64_t hit, skr_ce_coef c)
{
    int xt = job->logits.type, yt = job->dlogits.type;
    float at = 0.0f, one;
    int here = hit >= 0 && hit < job->n;
    if (here) { /* before dlogits, which may be logits, is written */
        ps[xt][SKR_F32](x + hit * skr_type_bytes(xt), lse, c.a, &one, 1, 0);
        at = one - c.b;
    }
    ps[xt][yt](x, lse, c.a, y, job->n, goes_past(&job->head, y));
    if (here)
        store1(yt, y, hit, at);
}

static void full_row(const job_t *job, const float *weight, const char *x, char *y, float lse, int64_t hit,
                     skr_ce_coef c)
{
    int xb = skr_type_bytes(job->logits.type), yb = skr_type_bytes(job->dlogits.type);
    float e[SKR_CE_CHUNK];
    for (int64_t i = 0; i < job->n; i += SKR_CE_CHUNK) {
        int64_t n = job->n - i < SKR_CE_CHUNK ? job->n - i : SKR_CE_CHUNK;
        if (job->softcap != 0.0f)
            ps[SKR_F32][SKR_F32](cap(job->logits.type, x + i * xb, job->softcap, e, n), lse, c.a, e, n, 0);
        else
            ps[job->logits.type][SKR_F32](x + i * xb, lse, c.a, e, n, 0);
        gradient_chunk g = {.softcap = job->softcap,
                            .c = c.c,
                            .b = c.b,
                            .hit = hit - i,
                            .weight = weight ? weight + i : NULL,
                            .logits_type = job->logits.type,
                            .type = job->dlogits.type,
                            .past = goes_past(&job->head, y)};
        put_gradient(&g, e, 1.0f, x + i * xb, y + i * yb, n);
    }
}

static void rows(const job_t *job, const aims *a, int64_t task)
{
    skr_ce_scale scale = job_scale(job);
    const float *weight = smooth_weight(job);
    int64_t end = (task + 1) * job->rows_per_task;
    end = end < job->rows.m ? end : job->rows.m;
    for (int64_t at = task * job->rows_per_task; at < end; at++) {
        aim t = aim_of(a, at);
        const char *x = row_of(&job->rows, &job->logits, at);
        char *y = row_of(&job->rows, &job->dlogits, at);
        float lse = *(const float *)row_of(&job->rows, &job->lse, at);
        float grad = job->grad.data ? *(const float *)row_of(&job->rows, &job->grad, at) : 1.0f;
        float dlse = job->dlse.data ? *(const float *)row_of(&job->rows, &job->dlse, at) : 0.0f;
        skr_ce_coef c = skr_ce_coef_of(&scale, job->z_loss, t.counts, t.weight, lse, grad, dlse);
        int64_t hit = t.counts ? t.class - job->start : -1;
        if (c.a == 0.0f && c.b == 0.0f && c.c == 0.0f)
            __builtin_memset(y, 0, (size_t)(job->n * skr_type_bytes(job->dlogits.type)));
        else if (job->softcap == 0.0f && c.c == 0.0f)
            plain_row(job, x, y, lse, hit, c);
        else
            full_row(job, weight, x, y, lse, hit, c);
    }
}

void SKR_KERNEL(cross_entropy_backward)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(cross_entropy_backward)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
    aims a = aims_of(job);
    (void)worker;
    if (step == SKR_CE_STEP_PREPARE)
        prepare(job, &a, task);
    else
        rows(job, &a, task);
}
