/* attention_cuda.c - attention on a GPU: which kernels, how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The kernel depends on the types, the head sizes, the options and the alignment, never on how many rows there are: a
 * row's bits do not depend on its neighbours. */
#include "attention_cuda.h"

SKR_FATBIN(attention_plain_sm80)
SKR_FATBIN(attention_options_sm80)
SKR_FATBIN(attention_f32_sm80)
SKR_FATBIN(attention_prepare_sm80)

enum { KIND_plain, KIND_options };
#define TYPE_f32                SKR_F32
#define TYPE_f16                SKR_F16
#define TYPE_bf16               SKR_BF16
#define FATBIN_plain_f16        attention_plain_sm80
#define FATBIN_plain_bf16       attention_plain_sm80
#define FATBIN_options_f16      attention_options_sm80
#define FATBIN_options_bf16     attention_options_sm80
#define FATBIN_options_f32      attention_f32_sm80
#define BYTES_f32               4
#define BYTES_f16               2
#define BYTES_bf16              2
/* q, then stages of k and v. */
#define SHARED(type, d, dv, bm, bn, stages) (BYTES_##type * ((bm) * (d) + (stages) * (bn) * ((d) + (dv))))
#define KERNEL(fatbin, symbol, shared)      SKR_KERNEL(fatbin, symbol, shared, 1)

typedef struct shape {
    int kind, type, d, dv, queries, threads, shared_bytes;
    const char *variant;
} shape;
static const shape forward_shape[] = {
#define SKR_FORWARD(kind, type, d, dv, bm, bn, wm, wv, stages, blocks)                                                 \
    {KIND_##kind, TYPE_##type, d, dv, bm, 32 * (wm) * (wv), SHARED(type, d, dv, bm, bn, stages),                       \
     #kind " " #type " " #d},
#include "attention_kernels.def"
};
static skr_cuda_kernel forward_kernel[] = {
#define SKR_FORWARD(kind, type, d, dv, bm, bn, wm, wv, stages, blocks)                                                 \
    KERNEL(FATBIN_##kind##_##type, "skr_attention_" #kind "_" #type "_" #d, SHARED(type, d, dv, bm, bn, stages)),
#include "attention_kernels.def"
};
static skr_cuda_kernel merge_kernel = SKR_KERNEL(attention_prepare_sm80, "skr_attention_merge", 0, 1);
static skr_cuda_kernel spans_kernel = SKR_KERNEL(attention_prepare_sm80, "skr_attention_spans", 0, 1);

/* ---------------------------------------------------------------- what both directions decide */

bool skr_attention_aligned(const skr_attention_rows *t, int type, int64_t width)
{
    int64_t bytes = skr_type_bytes(type);
    return t->type == type && (uintptr_t)t->data % 16 == 0 && width * bytes % 16 == 0 && t->batch * bytes % 16 == 0 &&
           t->token * bytes % 16 == 0 && t->head * bytes % 16 == 0;
}

bool skr_attention_plain_scores(const skr_attention_job *job)
{
    return !(job->softcap > 0) && !job->bias.data && !job->slopes.data && !job->key_mask.data && !job->q_ids.data &&
           !job->mask.data && !job->q_positions.data && !job->k_positions.data && !job->drop && job->scale > 0;
}

saker_status skr_attention_plan_spans(skr_call *call, skr_attention_job *job, int64_t *at, skr_plan *plan)
{
    const int64_t most = INT64_C(1) << 28;
    if (job->length >= most || job->length_k >= most || job->batch >= most || job->heads >= most)
        return skr_fail(call, SAKER_UNSUPPORTED, "a length, the batch or the heads reach %lld: the GPU kernels count in 32 bits",
                        (long long)most);
    job->cuda.spans_at = -1;
    if (!job->cu_q.data)
        return SAKER_OK;
    job->cuda.spans_at = skr_take(at, skr_mul(job->batch + 2, sizeof(skr_attention_span)));
    skr_step *step = skr_plan_step(plan);
    step->kernel = &spans_kernel;
    step->grid = 1;
    step->block = 1024;
    step->overlap = true;
    return SAKER_OK;
}

saker_status skr_attention_plan_grid(skr_call *call, skr_attention_job *job, bool keys, int size, skr_step *step)
{
    int64_t tokens = keys ? job->length_k : job->length, heads = keys ? job->heads_k : job->heads;
    int64_t pieces = skr_ceil_div(tokens, size), pairs = skr_mul(heads, job->batch);
    int64_t blocks = job->cuda.spans_at < 0 ? skr_mul(pieces, pairs) : skr_mul(tokens / size + job->batch + 2, heads);
    if (blocks > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "%lld blocks of work: a GPU takes 2^31 - 1", (long long)blocks);
    /* Heads whose keys and values stay in the L2 cache while their queries pass. */
    int64_t pair_bytes = skr_mul(keys ? job->length : job->length_k, (job->d + job->d_v) * skr_type_bytes(job->k.type));
    int64_t section = skr_max(1, SKR_ATTENTION_L2 / skr_max(pair_bytes, 1)) * (heads / job->heads_k);
    if (keys) /* all heads of a group pass through one block */
        section = skr_max(1, section / job->group);
    job->cuda.grid[keys] = (skr_attention_grid){.pieces = (int32_t)pieces,
                                                .section = (int32_t)skr_max(1, skr_min(section, pairs)),
                                                .last_first = !keys && job->right < SKR_ATTENTION_FAR};
    step->grid = (uint32_t)blocks;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- forward */

/* The type of the products. p times a descale of its own would not fit a half type's digits. */
static int product_type(const skr_attention_job *job)
{
    if (job->mode == SKR_ATTENTION_FLOAT || job->mode == SKR_ATTENTION_I8_KV)
        return job->q.type;
    return job->mode == SKR_ATTENTION_I8_P && job->descale_block ? SKR_F32 : job->o.type;
}

static saker_status plan_forward(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    int type = product_type(job), bytes = skr_type_bytes(type);
    int64_t at = 0;
    SKR_TRY(skr_attention_plan_spans(call, job, &at, plan));
    job->cuda.aligned = skr_attention_aligned(&job->q, type, job->d) && skr_attention_aligned(&job->k, type, job->d) &&
                        skr_attention_aligned(&job->v, type, job->d_v);
    job->cuda.unit = job->scale * 1.44269504f;
    job->cuda.pairs = job->o.type == type && (uintptr_t)job->o.data % (2 * (uintptr_t)bytes) == 0 && job->d_v % 2 == 0 &&
                      job->o.batch % 2 == 0 && job->o.token % 2 == 0 && job->o.head % 2 == 0;
    bool plain = skr_attention_plain_scores(job) && !job->sinks.data && job->mode == SKR_ATTENTION_FLOAT;
    if (plain && !job->cuda.aligned)
        skr_why(plan, "plain kernels: a pointer, a stride or a head is no multiple of 16 bytes");
    if (!plain)
        skr_why(plan, "plain kernels: scores with options, or quantised tensors");
    plain = plain && job->cuda.aligned;
    for (size_t i = 0; i < SKR_COUNT(forward_shape); i++) {
        const shape *s = &forward_shape[i];
        if (s->type != type || s->d < job->d || s->dv < job->d_v || (s->kind == KIND_plain && !plain))
            continue;
        if (s->shared_bytes + 1024 > target->shared_bytes)
            return skr_fail(call, SAKER_UNSUPPORTED,
                            "heads of %lld and %lld need %d bytes of shared memory, this GPU has %d for a block",
                            (long long)job->d, (long long)job->d_v, s->shared_bytes + 1024, target->shared_bytes);
        skr_step *step = skr_plan_step(plan);
        step->kernel = &forward_kernel[i];
        step->block = (uint32_t)s->threads;
        step->shared_bytes = (uint32_t)s->shared_bytes;
        SKR_TRY(skr_attention_plan_grid(call, job, false, s->queries, step));
        plan->variant = s->variant;
        return skr_take_done(call, at, plan);
    }
    return skr_fail(call, SAKER_UNSUPPORTED, "no GPU kernel takes heads of %lld and %lld", (long long)job->d,
                    (long long)job->d_v);
}

saker_status skr_attention_plan_cuda(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    if (job->backward)
        return skr_fail(call, SAKER_UNSUPPORTED, "there is no GPU kernel for it: use a CPU context");
    return plan_forward(call, job, target, plan);
}

/* ---------------------------------------------------------------- merge */

saker_status skr_attention_merge_plan_cuda(skr_call *call, skr_attention_merge_job *job, const skr_target *target,
                                           skr_plan *plan)
{
    (void)call;
    (void)target;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &merge_kernel;
    step->grid = (uint32_t)skr_min(skr_ceil_div(job->rows.m, 8), SKR_ROWS_GRID);
    step->block = 256;
    step->overlap = true;
    plan->variant = "rows";
    return SAKER_OK;
}
