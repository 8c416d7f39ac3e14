/* cross_entropy.c - cross_entropy, cross_entropy_backward and cross_entropy_merge: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy.h"

#include <string.h>

#include "cross_entropy_plan.h"

/* ---------------------------------------------------------------- fields */

enum { LOGITS, TARGET, WEIGHT, GRAD, LOSS, LSE, DLOGITS, PARTIAL, N_TENSORS, N_FIELDS = N_TENSORS + 8 };

#define OPTIONS(op, at)                                                                                                \
    [at] = SKR_OPTION_F32(op, label_smoothing, 0, "share of the target that is spread over all classes, 0 to 1"),      \
    [at + 1] = SKR_OPTION_F32(op, z_loss, 0, "factor of lse squared in the loss"),                                     \
    [at + 2] = SKR_OPTION_ENUM(op, reduction, "none|mean|sum", "how the losses of rows become one"),                   \
    [at + 3] = SKR_OPTION_BOOL(op, has_ignore_index, "ignore_index counts; otherwise it is -100"),                     \
    [at + 4] = SKR_OPTION_I64(op, ignore_index, 0, "target of rows that are left out; needs has_ignore_index"),        \
    [at + 5] = SKR_OPTION_I64(op, vocab, 0, "classes of the whole vocabulary")

static const saker_field fields[N_FIELDS] = {
    [LOGITS] = SKR_IN(cross_entropy, logits, 1, skr_floats, "[..., V] rows of logits"),
    [TARGET] = SKR_IN(cross_entropy, target, 1, skr_index_types, "[M] or logits' leading shape: the class of each row"),
    [WEIGHT] = SKR_IN(cross_entropy, weight, 0, skr_floats, "[V] weight of each class; absent: 1"),
    [GRAD] = SKR_IN(cross_entropy, grad, 0, skr_f32_only, "[M] or one: gradient that arrives at loss; absent: 1"),
    [LOSS] = SKR_OUT(cross_entropy, loss, 0, skr_f32_only, "[M] (reduction none) or one: the loss"),
    [LSE] =
        SKR_OUT(cross_entropy, lse, 0, skr_f32_only, "[M] or logits' leading shape: log of the sum of exponentials"),
    [DLOGITS] = SKR_OUT(cross_entropy, dlogits, 0, skr_floats, "logits' shape: gradient of the loss; may be logits"),
    [PARTIAL] = SKR_OUT(cross_entropy, partial, 0, skr_f32_only,
                        "[M, 4] of a shard: max, sum of exponentials, logit of the target, smoothing's sum"),
    OPTIONS(cross_entropy, N_TENSORS),
    [N_TENSORS + 6] = SKR_OPTION_F32(cross_entropy, softcap, 0, "logits are softcap * tanh(logits / softcap); 0: not"),
    [N_TENSORS + 7] = SKR_OPTION_I64(cross_entropy, vocab_start, 0, "class of a shard's first column"),
};

enum { B_LOGITS, B_TARGET, B_LSE, B_WEIGHT, B_GRAD, B_DLSE, B_DLOGITS, B_TENSORS, N_B_FIELDS = B_TENSORS + 8 };

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_LOGITS] = SKR_IN(cross_entropy_backward, logits, 1, skr_floats, "[..., V] forward's logits"),
    [B_TARGET] = SKR_IN(cross_entropy_backward, target, 1, skr_index_types, "[M] or logits' leading shape"),
    [B_LSE] = SKR_IN(cross_entropy_backward, lse, 1, skr_f32_only, "[M] or logits' leading shape, from forward"),
    [B_WEIGHT] = SKR_IN(cross_entropy_backward, weight, 0, skr_floats, "[V] forward's weight; absent: 1"),
    [B_GRAD] = SKR_IN(cross_entropy_backward, grad, 0, skr_f32_only, "[M] or one: gradient of loss; absent: 1"),
    [B_DLSE] = SKR_IN(cross_entropy_backward, dlse, 0, skr_f32_only, "[M] or logits' leading shape: gradient of lse"),
    [B_DLOGITS] = SKR_OUT(cross_entropy_backward, dlogits, 1, skr_floats, "logits' shape; may be logits"),
    OPTIONS(cross_entropy_backward, B_TENSORS),
    [B_TENSORS + 6] = SKR_OPTION_F32(cross_entropy_backward, softcap, 0, "as in forward"),
    [B_TENSORS + 7] = SKR_OPTION_I64(cross_entropy_backward, vocab_start, 0, "class of a shard's first column"),
};

enum { M_PARTIALS, M_TARGET, M_WEIGHT, M_LOSS, M_LSE, M_TENSORS, N_M_FIELDS = M_TENSORS + 6 };

static const saker_field merge_fields[N_M_FIELDS] = {
    [M_PARTIALS] = SKR_IN(cross_entropy_merge, partials, 1, skr_f32_only, "[S, ..., 4] partial results of S shards"),
    [M_TARGET] = SKR_IN(cross_entropy_merge, target, 1, skr_index_types, "[...] or [M]: the class of each row"),
    [M_WEIGHT] = SKR_IN(cross_entropy_merge, weight, 0, skr_floats, "[vocab] weight of each class; absent: 1"),
    [M_LOSS] = SKR_OUT(cross_entropy_merge, loss, 0, skr_f32_only, "[...] or [M] (reduction none) or one: the loss"),
    [M_LSE] = SKR_OUT(cross_entropy_merge, lse, 0, skr_f32_only, "[...] or [M]: log of the sum of exponentials"),
    OPTIONS(cross_entropy_merge, M_TENSORS),
};

/* ---------------------------------------------------------------- check */

static saker_status check_options(skr_call *call, const skr_ce_options *o)
{
    if (o->smoothing < 0 || o->smoothing > 1)
        return skr_fail(call, SAKER_INVALID_ARG, "label_smoothing is %g, expected 0 to 1", (double)o->smoothing);
    if (o->z_loss < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "z_loss is %g, expected 0 or more", (double)o->z_loss);
    if (o->softcap < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "softcap is %g, expected 0 (none) or more", (double)o->softcap);
    if (!o->has_ignore_index && o->ignore_index)
        return skr_fail(call, SAKER_INVALID_ARG, "ignore_index is %lld but has_ignore_index is 0, expected 1",
                        (long long)o->ignore_index);
    if (o->vocab_start < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "vocab_start is %lld, expected 0 or more", (long long)o->vocab_start);
    if (o->vocab < 0 || o->vocab > SKR_HUGE)
        return skr_fail(call, SAKER_INVALID_ARG, "vocab is %lld, expected 0 (the width of logits) to 2^60",
                        (long long)o->vocab);
    return SAKER_OK;
}

static saker_status check_weight(skr_call *call, const skr_view *v, int64_t vocab, skr_param *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    char text[192];
    if (v->ndim != 1 || v->shape[0] != vocab)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (the classes of logits, or vocab)",
                        v->name, skr_shape_text(v, text), (long long)vocab);
    SKR_TRY(skr_last_contiguous(call, v));
    *out = (skr_param){.data = v->data, .type = v->type};
    return SAKER_OK;
}

static bool is_one(const skr_view *v)
{
    return v->count == 1 && v->ndim <= 1;
}

static saker_status check_one(skr_call *call, const skr_view *v)
{
    char text[192];
    if (!v->present || is_one(v))
        return SAKER_OK;
    return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected one element (reduction is mean or sum)",
                    v->name, skr_shape_text(v, text));
}

static saker_status add_loss(skr_call *call, skr_row_builder *b, const skr_view *v, int reduction, skr_rows *rows,
                             float **total)
{
    *total = NULL;
    memset(rows, 0, sizeof *rows);
    if (reduction == SKR_REDUCE_NONE)
        return skr_rows_add_stat(call, b, v, rows);
    SKR_TRY(check_one(call, v));
    *total = (float *)v->data;
    return SAKER_OK;
}

saker_status skr_cross_entropy_add_loss(skr_call *call, skr_row_builder *b, const skr_view *v,
                                        skr_cross_entropy_job *job)
{
    return add_loss(call, b, v, job->reduction, &job->loss, &job->total);
}

saker_status skr_cross_entropy_add_grad(skr_call *call, skr_row_builder *b, const skr_view *v,
                                        skr_cross_entropy_job *job)
{
    memset(&job->grad, 0, sizeof job->grad);
    if (!v->present)
        return SAKER_OK;
    if (job->reduction == SKR_REDUCE_NONE && !is_one(v))
        return skr_rows_add_stat(call, b, v, &job->grad);
    SKR_TRY(check_one(call, v));
    job->grad = (skr_rows){.data = v->data, .type = v->type};
    return SAKER_OK;
}

saker_status skr_cross_entropy_set(skr_call *call, const skr_ce_options *o, int64_t n, skr_cross_entropy_job *job)
{
    SKR_TRY(check_options(call, o));
    job->n = n;
    job->start = o->vocab_start;
    job->vocab = o->vocab ? o->vocab : n;
    job->ignore_index = o->has_ignore_index ? o->ignore_index : -100;
    job->smoothing = o->smoothing;
    job->k = job->vocab ? (float)((double)o->smoothing / (double)job->vocab) : 0.0f;
    job->z_loss = o->z_loss;
    job->softcap = o->softcap;
    job->reduction = o->reduction;
    return SAKER_OK;
}

/* What forward and backward share; the builder is started. */
static saker_status check_common(skr_call *call, const skr_ce_options *o, const skr_view *logits,
                                 const skr_view *target, const skr_view *weight, skr_row_builder *b,
                                 skr_cross_entropy_job *job)
{
    if (logits->ndim < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "logits has no dimensions, expected at least 1 ([..., V])");
    SKR_TRY(skr_cross_entropy_set(call, o, logits->shape[logits->ndim - 1], job));
    if (job->n > job->vocab - job->start)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "logits has %lld columns from vocab_start %lld on, expected at most the %lld of vocab",
                        (long long)job->n, (long long)job->start, (long long)job->vocab);
    SKR_TRY(check_weight(call, weight, job->vocab, &job->weight));
    skr_rows_start(b, logits);
    SKR_TRY(skr_rows_add(call, b, logits, &job->logits));
    return skr_rows_add_stat(call, b, target, &job->target);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{LOGITS, DLOGITS}};
    const saker_cross_entropy_args *a = args;
    skr_cross_entropy_job *job = out;
    skr_ce_options o = {a->label_smoothing,  a->z_loss,       a->softcap,     a->reduction,
                        a->has_ignore_index, a->ignore_index, a->vocab_start, a->vocab};
    skr_row_builder b;
    memset(job, 0, sizeof *job);
    if (!v[LOSS].present && !v[LSE].present && !v[DLOGITS].present && !v[PARTIAL].present)
        return skr_fail(call, SAKER_NULL_POINTER,
                        "loss, lse, dlogits and partial are all NULL, expected at least one of them");
    if (v[PARTIAL].present && (v[LOSS].present || v[LSE].present || v[DLOGITS].present))
        return skr_fail(call, SAKER_INVALID_ARG, "partial is given beside %s, expected it alone",
                        v[LOSS].present  ? "loss"
                        : v[LSE].present ? "lse"
                                         : "dlogits");
    if (v[GRAD].present && !v[DLOGITS].present)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "grad is given but dlogits is NULL, expected dlogits, which it scales");
    SKR_TRY(check_common(call, &o, &v[LOGITS], &v[TARGET], &v[WEIGHT], &b, job));
    if (!v[PARTIAL].present && job->vocab != job->n)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "vocab is %lld but logits has %lld columns, expected partial as the only output of a shard",
                        (long long)job->vocab, (long long)job->n);
    SKR_TRY(skr_rows_add(call, &b, &v[DLOGITS], &job->dlogits));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[LSE], &job->lse));
    SKR_TRY(skr_cross_entropy_add_loss(call, &b, &v[LOSS], job));
    SKR_TRY(skr_cross_entropy_add_grad(call, &b, &v[GRAD], job));
    SKR_TRY(skr_rows_add_block(call, &b, &v[PARTIAL], SKR_CE_PARTIAL, &job->partial));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, allowed, sizeof allowed / sizeof *allowed));
    *empty = job->rows.m == 0 && !job->total; /* a mean or sum of no rows is still a number */
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{B_LOGITS, B_DLOGITS}};
    const saker_cross_entropy_backward_args *a = args;
    skr_cross_entropy_job *job = out;
    skr_ce_options o = {a->label_smoothing,  a->z_loss,       a->softcap,     a->reduction,
                        a->has_ignore_index, a->ignore_index, a->vocab_start, a->vocab};
    skr_row_builder b;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_common(call, &o, &v[B_LOGITS], &v[B_TARGET], &v[B_WEIGHT], &b, job));
    SKR_TRY(skr_rows_add(call, &b, &v[B_DLOGITS], &job->dlogits));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[B_LSE], &job->lse));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[B_DLSE], &job->dlse));
    SKR_TRY(skr_cross_entropy_add_grad(call, &b, &v[B_GRAD], job));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, B_TENSORS, allowed, sizeof allowed / sizeof *allowed));
    *empty = v[B_LOGITS].count == 0;
    return SAKER_OK;
}

/* The rows of the merge are those of one shard: partials without its first dimension. */
static saker_status check_merge(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_cross_entropy_merge_args *a = args;
    skr_cross_entropy_merge_job *job = out;
    skr_ce_options o = {.smoothing = a->label_smoothing,
                        .z_loss = a->z_loss,
                        .reduction = a->reduction,
                        .has_ignore_index = a->has_ignore_index,
                        .ignore_index = a->ignore_index,
                        .vocab = a->vocab};
    memset(job, 0, sizeof *job);
    char text[192];
    SKR_TRY(check_options(call, &o));
    if (a->vocab == 0)
        return skr_fail(call, SAKER_INVALID_ARG, "vocab is 0, expected the number of classes of all shards");
    if (!v[M_LOSS].present && !v[M_LSE].present)
        return skr_fail(call, SAKER_NULL_POINTER, "loss and lse are both NULL, expected at least one of them");
    const skr_view *p = &v[M_PARTIALS];
    if (p->ndim < 2 || p->shape[p->ndim - 1] != SKR_CE_PARTIAL)
        return skr_fail(call, SAKER_INVALID_ARG, "partials has shape %s, expected [S, ..., %d]",
                        skr_shape_text(p, text), SKR_CE_PARTIAL);
    if (p->shape[0] < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "partials has no shards, expected at least 1 in its first dimension");
    skr_view shard = *p;
    shard.ndim = p->ndim - 1;
    memmove(shard.shape, p->shape + 1, (size_t)shard.ndim * sizeof *shard.shape);
    memmove(shard.stride, p->stride + 1, (size_t)shard.ndim * sizeof *shard.stride);
    skr_row_builder b;
    skr_rows_start(&b, &shard);
    SKR_TRY(skr_rows_add_block(call, &b, &shard, SKR_CE_PARTIAL, &job->partials));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[M_TARGET], &job->target));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[M_LSE], &job->lse));
    SKR_TRY(add_loss(call, &b, &v[M_LOSS], a->reduction, &job->loss, &job->total));
    SKR_TRY(check_weight(call, &v[M_WEIGHT], a->vocab, &job->weight));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, M_TENSORS, NULL, 0));
    job->vocab = a->vocab;
    job->shards = p->shape[0];
    job->shard_stride = p->stride[0];
    job->ignore_index = o.has_ignore_index ? o.ignore_index : -100;
    job->smoothing = o.smoothing;
    job->k = (float)((double)o.smoothing / (double)a->vocab);
    job->z_loss = o.z_loss;
    job->reduction = o.reduction;
    *empty = job->rows.m == 0 && !job->total;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

static void plan_steps(const skr_ce_room *room, bool convert, int64_t m, int64_t rows_per_task, int stages,
                       skr_plan *plan)
{
    if (stages & SKR_CE_STAGE_BEFORE && (room->part_at >= 0 || convert))
        skr_cpu_step(plan, SKR_CE_STEP_PREPARE, SKR_CE_PARTS);
    if (stages & SKR_CE_STAGE_ROWS && m)
        skr_cpu_step(plan, SKR_CE_STEP_ROWS, skr_ceil_div(m, rows_per_task));
    if (stages & SKR_CE_STAGE_AFTER && room->loss_at >= 0) {
        skr_cpu_step(plan, SKR_CE_STEP_SUM, SKR_CE_PARTS);
        skr_cpu_step(plan, SKR_CE_STEP_FINISH, 1);
    }
}

void skr_cross_entropy_take(skr_cross_entropy_job *job, const skr_target *target, int64_t *at)
{
    job->room = skr_ce_room_of(job->reduction, job->smoothing, job->rows.m, job->weight.data, job->total,
                               job->dlogits.data, at);
    bool convert = target->backend == SKR_CPU && job->weight.data && job->smoothing != 0 && job->weight.type != SKR_F32;
    job->weight_at = convert ? skr_take(at, skr_mul(job->vocab, sizeof(float))) : -1;
}

/* Forward keeps the exponentials of a row, and the maxima of its chunks, for the gradient. */
static saker_status plan_cpu(skr_call *call, skr_cross_entropy_job *job, const skr_target *target, bool backward,
                             int stages, int64_t at, skr_plan *plan)
{
    int64_t m = job->rows.m, n = job->n;
    int64_t bytes = skr_row_bytes(&job->logits, n) + skr_row_bytes(&job->dlogits, n);
    plan->traffic_bytes = skr_mul(m, bytes);
    plan->variant = backward ? "rows" : job->dlogits.data ? "rows with gradient" : job->partial.data ? "shard" : "rows";
    bool keep = !backward && job->dlogits.data && m && stages & SKR_CE_STAGE_ROWS;
    int64_t kept = keep ? skr_mul(n + skr_ceil_div(n, SKR_CE_CHUNK), sizeof(float)) : 0;
    job->exp_bytes = (int64_t)skr_align_up((size_t)kept, 256);
    job->exp_at = skr_take(&at, skr_mul(target->width, job->exp_bytes));
    job->rows_per_task = skr_rows_per_task(m, bytes, target->width);
    plan_steps(&job->room, job->weight_at >= 0, m, job->rows_per_task, stages, plan);
    return skr_take_done(call, at, plan);
}

saker_status skr_cross_entropy_plan(skr_call *call, skr_cross_entropy_job *job, const skr_target *target, int stages,
                                    int64_t at, skr_plan *plan)
{
    if (target->backend == SKR_CUDA)
        return skr_cross_entropy_plan_cuda(call, job, target, stages, at, plan);
    return plan_cpu(call, job, target, false, stages, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    int64_t at = 0;
    skr_cross_entropy_take(job, target, &at);
    return skr_cross_entropy_plan(call, job, target, SKR_CE_STAGES, at, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    int64_t at = 0;
    if (target->backend == SKR_CUDA)
        return skr_cross_entropy_backward_plan_cuda(call, job, target, out);
    skr_cross_entropy_take(job, target, &at);
    return plan_cpu(call, job, target, true, SKR_CE_STAGE_BEFORE | SKR_CE_STAGE_ROWS, at, out);
}

static saker_status plan_merge(skr_call *call, void *out_job, const skr_target *target, skr_plan *out)
{
    skr_cross_entropy_merge_job *job = out_job;
    if (target->backend == SKR_CUDA)
        return skr_cross_entropy_merge_plan_cuda(call, job, target, out);
    int64_t m = job->rows.m, at = 0, bytes = skr_mul(job->shards, SKR_CE_PARTIAL * sizeof(float));
    out->traffic_bytes = skr_mul(m, bytes);
    out->variant = "merge";
    job->room = skr_ce_room_of(job->reduction, job->smoothing, m, job->weight.data, job->total, false, &at);
    job->rows_per_task = skr_rows_per_task(m, bytes, target->width);
    plan_steps(&job->room, false, m, job->rows_per_task, SKR_CE_STAGES, out);
    return skr_take_done(call, at, out);
}

const skr_op skr_op_cross_entropy = {
    .info = {.name = "cross_entropy",
             .doc = "loss of rows of logits against target classes, with their gradient in the same pass",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_cross_entropy_args)},
    .v1_size = sizeof(saker_cross_entropy_args),
    .reserved_at = offsetof(saker_cross_entropy_args, reserved),
    .job_size = sizeof(skr_cross_entropy_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_cross_entropy_backward = {
    .info = {.name = "cross_entropy_backward",
             .doc = "gradient of cross_entropy from the saved lse",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_cross_entropy_backward_args)},
    .v1_size = sizeof(saker_cross_entropy_backward_args),
    .reserved_at = offsetof(saker_cross_entropy_backward_args, reserved),
    .job_size = sizeof(skr_cross_entropy_job),
    .check = check_backward,
    .plan = plan_backward,
};

const skr_op skr_op_cross_entropy_merge = {
    .info = {.name = "cross_entropy_merge",
             .doc = "losses from the partial results of all shards of a vocabulary",
             .fields = merge_fields,
             .n_fields = N_M_FIELDS,
             .args_size = sizeof(saker_cross_entropy_merge_args)},
    .v1_size = sizeof(saker_cross_entropy_merge_args),
    .job_size = sizeof(skr_cross_entropy_merge_job),
    .check = check_merge,
    .plan = plan_merge,
};

_Static_assert(sizeof(skr_cross_entropy_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_cross_entropy_merge_job) <= SKR_JOB_BYTES, "the job must fit");
