/* attention_backward_cuda.c - attention_backward on a GPU: which kernels, how many blocks, what workspace.
 * SPDX-License-Identifier: Apache-2.0
 *
 * delta of every query first; then dk with dv, and dq, by a kernel of their own each, whose sums have one order. Where
 * the caller allows any order, the first adds up dq, too, and the second only takes the sums. dbias computes ds once
 * more. */
#include "attention_cuda.h"

SKR_FATBIN(attention_gradient_plain_sm80)
SKR_FATBIN(attention_gradient_scored_sm80)
SKR_FATBIN(attention_gradient_any_sm80)
SKR_FATBIN(attention_gradient_f32_sm80)
SKR_FATBIN(attention_gradient_small_sm80)
SKR_FATBIN(attention_bias_sm80)
SKR_FATBIN(attention_sums_sm80)

#define FATBIN_plain_f16   attention_gradient_plain_sm80
#define FATBIN_plain_bf16  attention_gradient_plain_sm80
#define FATBIN_scored_f16  attention_gradient_scored_sm80
#define FATBIN_scored_bf16 attention_gradient_scored_sm80
#define FATBIN_any_f16     attention_gradient_any_sm80
#define FATBIN_any_bf16    attention_gradient_any_sm80
#define FATBIN_any_f32     attention_gradient_f32_sm80
#define FATBIN_small_f16   attention_gradient_small_sm80
#define FATBIN_small_bf16  attention_gradient_small_sm80
#define FATBIN_small_f32   attention_gradient_small_sm80
enum { SIDE_q, SIDE_k };
/* Whether warps share scores (attention_gradient.cuh). */
#define EXCHANGE(kind, side, wv) (SIDE_##side && KIND_##kind != KIND_any && (wv) > 1)
/* Rows of both widths; then stages of columns, and with the keys as rows what is known of the queries. */
#define SHARED(kind, type, d, dv, side, br, bc, wv, stages)                                                            \
    (BYTES_##type * ((br) + (stages) * (bc)) * ((d) + (dv)) + (stages)*SIDE_##side * 8 * (bc) +                        \
     (EXCHANGE(kind, side, wv) ? 2 * SKR_ATTENTION_DS_BYTES(br, bc) : 0))
/* What a kernel for less than everything may have behind them: ds, and a tile of bias. */
#define BEHIND(kind, side, br, bc)                                                                                     \
    ((KIND_##kind != KIND_any) * SIDE_##side * SKR_ATTENTION_DS_BYTES(br, bc) +                                        \
     (KIND_##kind == KIND_scored) * 4 * (br) * (bc))

typedef struct gradient_shape {
    int side, ds_bytes; /* for ds, where dq is added up in any order */
    skr_attention_shape of;
} gradient_shape;
static const gradient_shape gradient[] = {
#define SKR_GRADIENT(kind, type, d, dv, side, br, bc, wm, wv, stages, blocks)                                          \
    {SIDE_##side,                                                                                                      \
     EXCHANGE(kind, side, wv) ? 0 : SKR_ATTENTION_DS_BYTES(br, bc),                                                    \
     {KIND_##kind, TYPE_##type, d, dv, br, bc, 32 * (wm) * (wv), SHARED(kind, type, d, dv, side, br, bc, wv, stages),  \
      #kind " " #type " " #d}},
#include "attention_kernels.def"
};
static skr_cuda_kernel gradient_kernel[] = {
#define SKR_GRADIENT(kind, type, d, dv, side, br, bc, wm, wv, stages, blocks)                                          \
    SKR_KERNEL_OF(FATBIN_##kind##_##type, "skr_attention_d" #side "_" #kind "_" #type "_" #d,                          \
                  SHARED(kind, type, d, dv, side, br, bc, wv, stages) + BEHIND(kind, side, br, bc)),
#include "attention_kernels.def"
};
static const skr_attention_shape bias[] = {
#define SKR_BIAS(kind, type, d, dv, br, bc, wm)                                                                        \
    {KIND_##kind, TYPE_##type, d, dv, br, bc, 32 * (wm), BYTES_##type * ((br) + (bc)) * ((d) + (dv)), ""},
#include "attention_kernels.def"
};
static skr_cuda_kernel bias_kernel[] = {
#define SKR_BIAS(kind, type, d, dv, br, bc, wm)                                                                        \
    SKR_KERNEL_OF(attention_bias_sm80, "skr_attention_dbias_" #kind "_" #type "_" #d,                                  \
                  BYTES_##type *((br) + (bc)) * ((d) + (dv))),
#include "attention_kernels.def"
};
static skr_cuda_kernel stats_kernel = SKR_KERNEL(attention_sums_sm80, "skr_attention_stats", 0, 1);
static skr_cuda_kernel slopes_kernel = SKR_KERNEL(attention_sums_sm80, "skr_attention_dslopes", 0, 1);
static skr_cuda_kernel sinks_kernel = SKR_KERNEL(attention_sums_sm80, "skr_attention_dsinks", 0, 1);

/* A kernel of its own shape; nothing where there is no work. */
static void add_small(skr_cuda_kernel *kernel, int64_t blocks, int threads, skr_plan *plan)
{
    if (blocks < 1)
        return;
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)blocks;
    step->block = (uint32_t)threads;
}

static saker_status refuse_heads(skr_call *call, const skr_attention_job *job)
{
    return skr_fail(call, SAKER_UNSUPPORTED, "no GPU kernel takes heads of %lld and %lld", (long long)job->d,
                    (long long)job->d_v);
}

static const gradient_shape *find(const skr_attention_job *job, const skr_target *target, int kind, int side)
{
    const gradient_shape *found = NULL;
    for (size_t i = 0; i < SKR_COUNT(gradient) && !(found && skr_attention_fits(&found->of, job, target)); i++)
        if (gradient[i].side == side && skr_attention_can(&gradient[i].of, job, job->q.type, kind))
            found = &gradient[i];
    return found;
}

static saker_status add_gradient(skr_call *call, skr_attention_job *job, const skr_target *target,
                                 const gradient_shape *g, skr_plan *plan)
{
    skr_attention_shape s = g->of;
    s.shared_bytes += skr_attention_bias_bytes(&s, job);
    if (g->side == SIDE_k && job->cuda.sums_at >= 0)
        s.shared_bytes += g->ds_bytes;
    skr_step *step;
    return skr_attention_add_kernel(call, job, target, g->side == SIDE_k, &gradient_kernel[g - gradient], &s, plan,
                                    &step);
}

/* dk and dv, and dq, by Hopper's kernels; what they mark, by q's and k's. */
static saker_status add_tma(skr_call *call, skr_attention_job *job, const skr_target *target, const gradient_shape *q,
                            const gradient_shape *k, skr_plan *plan)
{
    bool keys = job->dk.data || job->dv.data, queries = job->dq.data && job->cuda.sums_at < 0;
    if (keys)
        SKR_TRY(skr_attention_add_tma_gradient(call, job, target, true, plan));
    if (queries)
        SKR_TRY(skr_attention_add_tma_gradient(call, job, target, false, plan));
    if (keys)
        SKR_TRY(skr_attention_add_staying(call, job, target, true, &gradient_kernel[k - gradient], &k->of, plan));
    if (queries)
        return skr_attention_add_staying(call, job, target, false, &gradient_kernel[q - gradient], &q->of, plan);
    return job->dq.data ? add_gradient(call, job, target, q, plan) : SAKER_OK;
}

/* Whether dk's kernel adds up dq in any order (attention_any_order.cuh); dq's kernel q then takes the sums. */
static bool in_any_order(const skr_attention_job *job, const skr_target *target, const gradient_shape *q,
                         const gradient_shape *k)
{
    int shared = k->of.shared_bytes + skr_attention_bias_bytes(&k->of, job) + k->ds_bytes + SKR_ATTENTION_OWN;
    return !job->deterministic && job->dq.data && job->dk.data && q->of.kind != KIND_any && k->of.kind != KIND_any &&
           q->of.d == k->of.d && shared <= target->shared_bytes;
}

/* Their workspace, for heads up to d. */
static void plan_sums(skr_attention_job *job, int d, int64_t *at, skr_plan *plan)
{
    job->cuda.sum_lines =
        job->cuda.spans_at < 0 ? skr_mul(job->batch, skr_ceil_div(job->length, 16)) : job->length / 16 + job->batch + 2;
    job->cuda.sum_bytes = skr_mul(skr_mul(job->heads, job->cuda.sum_lines), 16 * 4 * d);
    job->cuda.sums_at = skr_take(at, job->cuda.sum_bytes);
    skr_why(plan, "dq is added up in any order, by the kernel of dk and dv");
}

static saker_status add_bias(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    const skr_attention_shape *s = NULL;
    const int64_t *dims = job->bias_dims;
    for (size_t i = 0; i < SKR_COUNT(bias) && !(s && skr_attention_fits(s, job, target)); i++)
        if (skr_attention_can(&bias[i], job, job->q.type, KIND_any))
            s = &bias[i];
    if (!s)
        return refuse_heads(call, job);
    if (!skr_attention_fits(s, job, target))
        return skr_attention_refuse(call, job, target, s);
    int64_t blocks =
        skr_mul(skr_mul(dims[0], dims[1]), skr_mul(skr_ceil_div(dims[2], s->rows), skr_ceil_div(dims[3], s->columns)));
    if (blocks > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "dbias takes %lld blocks: a GPU takes 2^31 - 1", (long long)blocks);
    if (blocks == 0)
        return SAKER_OK;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &bias_kernel[s - bias];
    step->grid = (uint32_t)blocks;
    step->block = (uint32_t)s->threads;
    step->shared_bytes = (uint32_t)s->shared_bytes;
    return SAKER_OK;
}

saker_status skr_attention_backward_plan_cuda(skr_call *call, skr_attention_job *job, const skr_target *target,
                                              skr_plan *plan)
{
    int type = job->q.type;
    int64_t at = 0, tokens = job->packed ? job->length : skr_mul(job->batch, job->length);
    SKR_TRY(skr_attention_plan_spans(call, job, &at, plan));
    skr_attention_units(job);
    job->cuda.aligned = skr_attention_aligned(&job->q, type, job->d) && skr_attention_aligned(&job->k, type, job->d) &&
                        skr_attention_aligned(&job->v, type, job->d_v) &&
                        skr_attention_aligned(&job->d_o, type, job->d_v);
    job->cuda.delta_aligned = skr_attention_aligned(&job->o, job->d_o.type, job->d_v) &&
                              skr_attention_aligned(&job->d_o, job->o.type, job->d_v);
    job->cuda.pairs = (!job->dq.data || skr_attention_pairs(&job->dq, type, job->d)) &&
                      (!job->dk.data || skr_attention_pairs(&job->dk, type, job->d)) &&
                      (!job->dv.data || skr_attention_pairs(&job->dv, type, job->d_v));
    int kind = job->cuda.aligned ? skr_attention_kind(job) : KIND_any;
    bool beside = job->bias.data || job->slopes.data; /* scored kernels take the capped score for all of it */
    if (job->dslopes.data || (job->softcap > 0 && beside))
        kind = KIND_any;
    const gradient_shape *q = find(job, target, kind, SIDE_q), *k = find(job, target, kind, SIDE_k);
    if (!q || !k)
        return refuse_heads(call, job);
    const skr_attention_shape *tma = skr_attention_tma_gradient(job, target, plan);
    plan->variant = tma ? tma->variant : q->of.variant;
    job->cuda.sums_at = -1;
    if (in_any_order(job, target, q, k) && (!tma || skr_attention_tma_sums(job, target)))
        plan_sums(job, q->of.d, &at, plan);
    if (tma) {
        skr_attention_take_tma_gradient(job, target, &at, plan);
        k = find(job, target, KIND_any, SIDE_k);
        q = job->cuda.sums_at < 0 ? find(job, target, KIND_any, SIDE_q) : q;
    }
    job->cuda.stats_at = skr_take(&at, skr_mul(skr_mul(job->heads, tokens), 8));
    add_small(&stats_kernel, skr_min(skr_ceil_div(skr_mul(job->heads, tokens), 32), SKR_ROWS_GRID), 256, plan);
    if (job->dslopes.data) {
        int64_t pieces = job->cuda.spans_at < 0 ? skr_mul(job->batch, skr_max(1, skr_ceil_div(job->length, q->of.rows)))
                                                : job->length / q->of.rows + job->batch + 2;
        job->cuda.slope_parts = job->length ? pieces : 0;
        job->cuda.slope_piece = q->of.rows;
        job->cuda.slopes_at = skr_take(&at, skr_mul(skr_mul(job->heads, pieces), 4));
    }
    if (tma)
        SKR_TRY(add_tma(call, job, target, q, k, plan));
    if (!tma && (job->dk.data || job->dv.data))
        SKR_TRY(add_gradient(call, job, target, k, plan));
    if (!tma && (job->dq.data || job->dslopes.data))
        SKR_TRY(add_gradient(call, job, target, q, plan));
    if (job->dbias.data)
        SKR_TRY(add_bias(call, job, target, plan));
    if (job->dslopes.data)
        add_small(&slopes_kernel, job->dslopes.batch ? skr_mul(job->batch, job->heads) : job->heads, 512, plan);
    if (job->dsinks.data)
        add_small(&sinks_kernel, job->heads, 512, plan);
    return skr_take_done(call, at, plan);
}
