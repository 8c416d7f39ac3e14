/* cross_entropy_rows_cpu.h - work on one chunk of a row, for the forward and the backward kernel: maximum, softcap,
 * smoothing's sum, and the gradient from exponentials. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CROSS_ENTROPY_ROWS_CPU_H
#define SKR_CROSS_ENTROPY_ROWS_CPU_H

#include "cross_entropy_cpu.h"

/* Elements that the main loops take at once: two pairs of vectors. An exponential keeps a core busy by itself. */
enum { K = 2, BLOCK = 2 * K * SKR_LANES };

SKR_FN vf2 v2_minus(vf2 a, vf b)
{
    return (vf2){v_sub(a.lo, b), v_sub(a.hi, b)};
}

/* e^a of K pairs, in place; a <= 70. */
SKR_FN void exp_pairs(vf2 *a)
{
    v_exp_raised_pairs(a);
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        a[k] = v2_scale(a[k], v_set1(0x1p-24f));
}

/* n <= SKR_LANES elements of a type that is known at run time. */
SKR_FN vf load_any(int type, const void *x, int64_t i, int n)
{
    return type == SKR_F32   ? v_load_n(SKR_F32, x, i, n)
           : type == SKR_F16 ? v_load_n(SKR_F16, x, i, n)
                             : v_load_n(SKR_BF16, x, i, n);
}

SKR_FN void store_any(int type, void *y, int64_t i, vf v, int n)
{
    if (type == SKR_F32)
        v_store_n(SKR_F32, y, i, v, n);
    else if (type == SKR_F16)
        v_store_n(SKR_F16, y, i, v, n);
    else
        v_store_n(SKR_BF16, y, i, v, n);
}

/* ---------------------------------------------------------------- maximum; NaN wins */

SKR_TAIL float top_tail(int type, const void *x, int64_t i, int64_t n)
{
    float top = -__builtin_inff(), e[SKR_LANES];
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        v_store(SKR_F32, e, 0, load_any(type, x, i, m));
        for (int k = 0; k < m; k++)
            top = e[k] > top || e[k] != e[k] ? e[k] : top;
    }
    return top;
}

SKR_FN float top_body(int type, const void *x, int64_t n)
{
    vf low = v_set1(-__builtin_inff());
    vf2 a[4] = {{low, low}, {low, low}, {low, low}, {low, low}};
    int64_t i = 0;
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES)
        SKR_UNROLL
    for (int k = 0; k < 4; k++) {
        vf2 t = v_load2(type, x, i + 2 * k * SKR_LANES);
        a[k] = (vf2){v_max(a[k].lo, t.lo), v_max(a[k].hi, t.hi)};
    }
    vf b = v_max(v_max(v_max(a[0].lo, a[0].hi), v_max(a[1].lo, a[1].hi)),
                 v_max(v_max(a[2].lo, a[2].hi), v_max(a[3].lo, a[3].hi)));
    float top = v_hmax(b);
    if (i < n) {
        float rest = top_tail(type, x, i, n);
        top = rest > top || rest != rest ? rest : top;
    }
    return top;
}

typedef float (*top_fn)(const void *x, int64_t n);
#define TOP(type)                                                                                                      \
    static float top_##type(const void *x, int64_t n)                                                                  \
    {                                                                                                                  \
        return top_body(SKR_##type, x, n);                                                                             \
    }
TOP(F32)
TOP(F16)
TOP(BF16)
static const top_fn tops_of[3] = {top_F32, top_F16, top_BF16};

/* ---------------------------------------------------------------- softcap and smoothing: the less common options */

/* y = c * tanh(x / c); returns y. */
static const float *cap(int type, const void *x, float c, float *y, int64_t n)
{
    vf by = v_set1(c);
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        v_store_n(SKR_F32, y, i, v_mul(by, v_tanh(v_div(load_any(type, x, i, m), by))), m);
    }
    return y;
}

static float weighted_run(int type, const void *x, const float *w, float k, int64_t n)
{
    vf sum[2] = {v_set1(0.0f), v_set1(0.0f)}, by = v_set1(k);
    float e[SKR_LANES], rest = 0.0f;
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        for (int j = 0; j < 2; j++) {
            int64_t at = i + j * SKR_LANES;
            vf f = w ? v_mul(by, v_load(SKR_F32, w, at)) : by;
            sum[j] = v_fma(load_any(type, x, at, SKR_LANES), f, sum[j]);
        }
    for (; i < n; i++) {
        v_store(SKR_F32, e, 0, load_any(type, x, i, 1));
        rest += e[0] * (k * (w ? w[i] : 1.0f));
    }
    return v_sum(v_add(sum[0], sum[1])) + rest;
}

/* Sum of k * w * x, w 1 when it is NULL. In short runs: a long chain of equal terms would be rounded the same way each
 * time. */
static double weighted_sum(int type, const void *x, const float *w, float k, int64_t n)
{
    enum { RUN = 512 };
    double sum = 0;
    for (int64_t i = 0; i < n; i += RUN)
        sum += (double)weighted_run(type, (const char *)x + i * skr_type_bytes(type), w ? w + i : NULL, k,
                                    n - i < RUN ? n - i : RUN);
    return sum;
}

/* ---------------------------------------------------------------- gradient */

typedef struct gradient_chunk {
    float softcap, c, b;
    int64_t hit; /* the target's place in the chunk, if it is in it */
    const float *weight;
    int logits_type, type;
    int past; /* the gradient is written past the caches */
} gradient_chunk;

SKR_FN void scale_body(int type, const float *e, float by, void *y, int64_t n, int past)
{
    vf f = v_set1(by);
    int64_t i = 0;
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES)
        SKR_UNROLL
    for (int k = 0; k < 4; k++)
        v_out2(type, y, i + 2 * k * SKR_LANES, v2_scale(v_load2(SKR_F32, e, i + 2 * k * SKR_LANES), f), past);
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        v_store_n(type, y, i, v_mul(v_load_n(SKR_F32, e, i, m), f), m);
    }
}

/* y = (e * by - c * w) * (1 - tanh^2). */
static void any_gradient(const gradient_chunk *g, const float *e, float by, const void *x, void *y, int64_t n)
{
    vf f = v_set1(by), c = v_set1(g->c), one = v_set1(1.0f), cap_by = v_set1(g->softcap);
    float hit[SKR_LANES];
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf v = v_mul(v_load_n(SKR_F32, e, i, m), f);
        v = g->weight ? v_fnma(c, v_load_n(SKR_F32, g->weight, i, m), v) : v_sub(v, c);
        if (g->hit >= i && g->hit < i + m) {
            v_store(SKR_F32, hit, 0, v);
            hit[g->hit - i] -= g->b;
            v = v_load(SKR_F32, hit, 0);
        }
        if (g->softcap != 0.0f) {
            vf t = v_tanh(v_div(load_any(g->logits_type, x, i, m), cap_by));
            v = v_mul(v, v_fnma(t, t, one));
        }
        store_any(g->type, y, i, v, m);
    }
}

/* The gradient of a chunk from its exponentials: e * by is p * a. */
static void put_gradient(const gradient_chunk *g, const float *e, float by, const void *x, void *y, int64_t n)
{
    if (g->softcap != 0.0f || g->c != 0.0f) {
        any_gradient(g, e, by, x, y, n);
        return;
    }
    if (g->type == SKR_F32)
        scale_body(SKR_F32, e, by, y, n, g->past);
    else if (g->type == SKR_F16)
        scale_body(SKR_F16, e, by, y, n, g->past);
    else
        scale_body(SKR_BF16, e, by, y, n, g->past);
    if (g->hit >= 0 && g->hit < n)
        store1(g->type, y, g->hit, e[g->hit] * by - g->b);
}

/* ---------------------------------------------------------------- what a job says */

static inline aims aims_of(const skr_cross_entropy_job *job)
{
    return (aims){&job->rows, &job->target, &job->weight, job->ignore_index, job->vocab, job->head.error_word};
}

static inline skr_ce_scale job_scale(const skr_cross_entropy_job *job)
{
    return scale_of(&job->head, &job->room, job->reduction, job->smoothing, job->k, job->weight.data != NULL);
}

/* With smoothing: the class weights of the job's columns as f32; NULL: all 1. */
static inline const float *smooth_weight(const skr_cross_entropy_job *job)
{
    if (!job->weight.data || job->smoothing == 0.0f)
        return NULL;
    const char *base = job->weight_at < 0 ? job->weight.data : (const char *)job->head.workspace + job->weight_at;
    return (const float *)base + job->start;
}

static void prepare(const skr_cross_entropy_job *job, const aims *a, int64_t part)
{
    if (job->room.part_at >= 0)
        prepare_part(a, &job->head, &job->room, part);
    if (job->weight_at >= 0)
        copy_param(&job->head, &job->weight, 0.0f, job->weight_at, 0, 0, part_begin(job->vocab, part),
                   part_begin(job->vocab, part + 1));
}

#endif
