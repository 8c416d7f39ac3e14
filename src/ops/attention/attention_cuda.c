/* attention_cuda.c - attention on a GPU: which kernels, how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The kernel depends on the types, the head sizes, the options and the alignment, never on how many rows there are: a
 * row's bits do not depend on its neighbours. */
#include "attention_cuda.h"

SKR_FATBIN(attention_plain_sm80)
SKR_FATBIN(attention_scored_sm80)
SKR_FATBIN(attention_any_sm80)
SKR_FATBIN(attention_f32_sm80)
SKR_FATBIN(attention_small_sm80)
SKR_FATBIN(attention_prepare_sm80)

#define FATBIN_plain_f16   attention_plain_sm80
#define FATBIN_plain_bf16  attention_plain_sm80
#define FATBIN_scored_f16  attention_scored_sm80
#define FATBIN_scored_bf16 attention_scored_sm80
#define FATBIN_any_f16     attention_any_sm80
#define FATBIN_any_bf16    attention_any_sm80
#define FATBIN_any_f32     attention_f32_sm80
#define FATBIN_small_f16   attention_small_sm80
#define FATBIN_small_bf16  attention_small_sm80
#define FATBIN_small_f32   attention_small_sm80
/* q, then stages of k and v. */
#define SHARED(type, d, dv, bm, bn, stages) (BYTES_##type * ((bm) * (d) + (stages) * (bn) * ((d) + (dv))))

static const skr_attention_shape forward_shape[] = {
#define SKR_FORWARD(kind, type, d, dv, bm, bn, wm, wv, stages, blocks)                                                 \
    {KIND_##kind,           TYPE_##type, d, dv, bm, bn, 32 * (wm) * (wv), SHARED(type, d, dv, bm, bn, stages),         \
     #kind " " #type " " #d},
#include "attention_kernels.def"
};
static skr_cuda_kernel forward_kernel[] = {
#define SKR_FORWARD(kind, type, d, dv, bm, bn, wm, wv, stages, blocks)                                                 \
    SKR_KERNEL_OF(FATBIN_##kind##_##type, "skr_attention_" #kind "_" #type "_" #d,                                     \
                  SHARED(type, d, dv, bm, bn, stages) + (KIND_##kind == KIND_scored) * 4 * (bm) * (bn)),
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

/* Tiles of bias can be brought in by chunks of 16 bytes. */
static bool bias_in_chunks(const skr_attention_job *job)
{
    const skr_attention_matrix *m = &job->bias;
    int64_t bytes = skr_type_bytes(m->type);
    return !job->packed && m->key == 1 && (m->type == job->q.type || m->type == SKR_F32) &&
           (uintptr_t)m->data % 16 == 0 && m->batch * bytes % 16 == 0 && m->head * bytes % 16 == 0 &&
           m->query * bytes % 16 == 0 && job->length_k * bytes % 16 == 0;
}

int skr_attention_kind(const skr_attention_job *job)
{
    if (job->key_mask.data || job->q_ids.data || job->mask.data || job->q_positions.data || job->k_positions.data ||
        job->drop || !(job->scale > 0) || job->mode != SKR_ATTENTION_FLOAT)
        return SKR_ATTENTION_ANY;
    if (job->bias.data && !bias_in_chunks(job))
        return SKR_ATTENTION_ANY;
    if (job->slopes.data && job->length + job->length_k > 1 << 24) /* distances are exact in f32 */
        return SKR_ATTENTION_ANY;
    float cap = job->softcap / job->scale; /* the numbers of its series are no subnormals */
    if (job->softcap > 0 && !(cap > 0x1p-11f && cap < 0x1p11f && job->scale > 0x1p-8f && job->scale < 0x1p8f))
        return SKR_ATTENTION_ANY;
    return job->softcap > 0 || job->bias.data || job->slopes.data ? SKR_ATTENTION_SCORED : SKR_ATTENTION_PLAIN;
}

void skr_attention_units(skr_attention_job *job)
{
    /* tanh(x) / x in powers of x^2, within 2^-25 of itself up to 3/4. */
    static const double series[SKR_ATTENTION_SERIES] = {0.9999999710138597,   -0.33332958879196833,
                                                        0.13325406013763189,  -0.05334442994949152,
                                                        0.019582907795290608, -0.0047162569732252645};
    /* The same within 2^-23 up to 1/5. */
    static const double nearest[SKR_ATTENTION_SHORT] = {0.9999998947921848, -0.3332859090348172, 0.13015407553777325};
    bool capped = job->softcap > 0;
    job->cuda.unit = (capped ? 1 : job->scale) * 1.44269504f;
    job->cuda.over = capped ? 1 : 1 / job->scale;
    double x = capped ? (double)job->scale / job->softcap : 0, factor = job->scale;
    job->cuda.near = capped ? (float)(0.75 / x) : 0;
    job->cuda.nearest = capped ? (float)(0.2 / x) : 0;
    for (int k = 0; k < SKR_ATTENTION_SERIES; k++, factor *= x * x) {
        job->cuda.series[k] = (float)(factor * series[k]);
        if (k < SKR_ATTENTION_SHORT)
            job->cuda.short_series[k] = (float)(factor * nearest[k]);
    }
}

saker_status skr_attention_plan_spans(skr_call *call, skr_attention_job *job, int64_t *at, skr_plan *plan)
{
    const int64_t most = INT64_C(1) << 28;
    if (job->length >= most || job->length_k >= most || job->batch >= most || job->heads >= most)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "a length, the batch or the heads reach %lld: the GPU kernels count in 32 bits",
                        (long long)most);
    job->cuda.spans_at = job->cuda.marks_at = job->cuda.count_at = -1;
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

saker_status skr_attention_refuse(skr_call *call, const skr_attention_job *job, const skr_target *target,
                                  const skr_attention_shape *s)
{
    const char *type = s->type == SKR_F32 ? "f32" : s->type == SKR_F16 ? "f16" : "bf16";
    return skr_fail(call, SAKER_UNSUPPORTED,
                    "heads of %lld and %lld in %s need %d bytes of shared memory, this GPU has %d for a block",
                    (long long)job->d, (long long)job->d_v, type, s->shared_bytes + SKR_ATTENTION_OWN,
                    target->shared_bytes);
}

int64_t skr_attention_pieces(const skr_attention_job *job, const skr_attention_shape *s, bool keys)
{
    int64_t tokens = keys ? job->length_k : job->length, heads = keys ? job->heads_k : job->heads;
    return job->cuda.spans_at < 0 ? skr_mul(skr_ceil_div(tokens, s->rows), skr_mul(heads, job->batch))
                                  : skr_mul(tokens / s->rows + job->batch + 2, heads);
}

saker_status skr_attention_add_kernel(skr_call *call, skr_attention_job *job, const skr_target *target, bool keys,
                                      skr_cuda_kernel *kernel, const skr_attention_shape *s, skr_plan *plan,
                                      skr_step **step)
{
    int64_t tokens = keys ? job->length_k : job->length, heads = keys ? job->heads_k : job->heads;
    int64_t pieces = skr_ceil_div(tokens, s->rows), pairs = skr_mul(heads, job->batch);
    int64_t blocks = skr_attention_pieces(job, s, keys);
    *step = NULL;
    if (s->shared_bytes + SKR_ATTENTION_OWN > target->shared_bytes)
        return skr_attention_refuse(call, job, target, s);
    if (blocks > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "%lld blocks of work: a GPU takes 2^31 - 1", (long long)blocks);
    /* Heads whose other side stays in the L2 cache while the pieces of this side pass. */
    int64_t other = skr_mul(keys ? job->length : job->length_k, (job->d + job->d_v) * skr_type_bytes(job->k.type));
    if (keys && job->cuda.sums_at >= 0) /* and dq's sums, which are added to */
        other += skr_mul(job->length, job->d * 4);
    int64_t section = skr_max(1, SKR_ATTENTION_L2 / skr_max(other, 1));
    section = keys ? section / skr_max(1, job->group) : skr_mul(section, job->group);
    job->cuda.grid[keys] = (skr_attention_grid){.pieces = (int32_t)skr_max(1, pieces),
                                                .section = (int32_t)skr_max(1, skr_min(section, pairs)),
                                                .last_first = !keys && job->right < SKR_ATTENTION_FAR};
    job->cuda.by_head = job->bias.data && !job->bias.batch;
    if (blocks == 0)
        return SAKER_OK;
    *step = skr_plan_step(plan);
    (*step)->kernel = kernel;
    (*step)->grid = (uint32_t)blocks;
    (*step)->block = (uint32_t)s->threads;
    (*step)->shared_bytes = (uint32_t)s->shared_bytes;
    return SAKER_OK;
}

bool skr_attention_pairs(const skr_attention_rows *t, int type, int64_t width)
{
    return t->type == type && (uintptr_t)t->data % (2 * (uintptr_t)skr_type_bytes(type)) == 0 && width % 2 == 0 &&
           t->batch % 2 == 0 && t->token % 2 == 0 && t->head % 2 == 0;
}

/* ---------------------------------------------------------------- forward */

/* The type of the products. p times a descale of its own would not fit a half type's digits. */
static int product_type(const skr_attention_job *job)
{
    if (job->mode == SKR_ATTENTION_FLOAT || job->mode == SKR_ATTENTION_I8_KV)
        return job->q.type;
    return job->mode == SKR_ATTENTION_I8_P && job->descale_block ? SKR_F32 : job->o.type;
}

/* The first kernel that can do a kind and has the shared memory; the last that can do it where none has; or NULL. */
static const skr_attention_shape *find_shape(const skr_attention_job *job, const skr_target *target, int type, int kind)
{
    const skr_attention_shape *found = NULL;
    for (size_t i = 0; i < SKR_COUNT(forward_shape) && !(found && skr_attention_fits(found, job, target)); i++)
        if (skr_attention_can(&forward_shape[i], job, type, kind))
            found = &forward_shape[i];
    return found;
}

static saker_status plan_forward(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    int type = product_type(job);
    int64_t at = 0;
    SKR_TRY(skr_attention_plan_spans(call, job, &at, plan));
    job->cuda.aligned = skr_attention_aligned(&job->q, type, job->d) && skr_attention_aligned(&job->k, type, job->d) &&
                        skr_attention_aligned(&job->v, type, job->d_v);
    skr_attention_units(job);
    job->cuda.pairs = skr_attention_pairs(&job->o, type, job->d_v);
    const skr_attention_shape *tma = skr_attention_tma(job, target, plan);
    int kind = tma ? SKR_ATTENTION_ANY : skr_attention_kind(job);
    if (!tma && kind == SKR_ATTENTION_ANY)
        skr_why(plan, "faster kernels: masks, ids, positions, dropout, quantised tensors, or rows of bias apart");
    else if (!job->cuda.aligned)
        skr_why(plan, "faster kernels: a pointer, a stride or a head is no multiple of 16 bytes");
    if (kind == SKR_ATTENTION_PLAIN && job->sinks.data)
        kind = SKR_ATTENTION_SCORED;
    kind = job->cuda.aligned ? kind : SKR_ATTENTION_ANY;
    const skr_attention_shape *found = find_shape(job, target, type, kind);
    if (!found)
        return skr_fail(call, SAKER_UNSUPPORTED, "no GPU kernel takes heads of %lld and %lld", (long long)job->d,
                        (long long)job->d_v);
    skr_cuda_kernel *kernel = &forward_kernel[found - forward_shape];
    skr_step *step;
    skr_attention_shape s = *found;
    s.shared_bytes += skr_attention_bias_bytes(&s, job);
    if (tma)
        SKR_TRY(skr_attention_add_tma(call, job, target, tma, kernel, &s, &at, plan));
    else
        SKR_TRY(skr_attention_add_kernel(call, job, target, false, kernel, &s, plan, &step));
    plan->variant = tma ? tma->variant : s.variant;
    return skr_take_done(call, at, plan);
}

saker_status skr_attention_plan_cuda(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    return (job->backward ? skr_attention_backward_plan_cuda : plan_forward)(call, job, target, plan);
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
