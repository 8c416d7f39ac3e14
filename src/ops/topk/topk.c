/* topk.c - the largest values of each row: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "topk.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (topk_cuda.c). */
saker_status skr_topk_plan_cuda(skr_call *call, skr_topk_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_topk_backward_plan_cuda(skr_call *call, skr_topk_backward_job *job, const skr_target *target,
                                         skr_plan *plan);

enum { X, VALUES, INDICES, SOFTMAX, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(topk, x, 1, skr_floats, "[..., N] rows"),
    [VALUES] = SKR_OUT(topk, values, 0, skr_floats, "[..., k]: the largest values, descending"),
    [INDICES] = SKR_OUT(topk, indices, 0, skr_i32_only, "[..., k]: where they stand"),
    [SOFTMAX] = SKR_OPTION_BOOL(topk, softmax, "values are softmax over the k"),
};

enum { B_DVALUES, B_INDICES, B_VALUES, B_DX, N_B_FIELDS };

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DVALUES] = SKR_IN(topk_backward, dvalues, 1, skr_floats, "[..., k]: gradient of values"),
    [B_INDICES] = SKR_IN(topk_backward, indices, 1, skr_i32_only, "[..., k]: from forward"),
    [B_VALUES] = SKR_IN(topk_backward, values, 0, skr_floats, "[..., k]: forward's values where it had softmax"),
    [B_DX] = SKR_OUT(topk_backward, dx, 1, skr_floats, "[..., N]: gradient of x"),
};

/* ---------------------------------------------------------------- check */

/* v is [..., k] beside x [..., N]; k is set by the first one. */
static saker_status check_k(skr_call *call, const skr_view *v, const skr_view *x, const skr_view *first, int64_t *k)
{
    char text[192], other[192];
    if (!v->present)
        return SAKER_OK;
    int64_t n = x->shape[x->ndim - 1];
    if (v->ndim < 1 || v->shape[v->ndim - 1] > n)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected a last dimension k of at most %lld (%s's)",
                        v->name, skr_shape_text(v, text), (long long)n, x->name);
    if (first != v && v->shape[v->ndim - 1] != *k)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s and %s has shape %s, expected the same k", v->name,
                        skr_shape_text(v, text), first->name, skr_shape_text(first, other));
    *k = v->shape[v->ndim - 1];
    return SAKER_OK;
}

static saker_status check_width(skr_call *call, const skr_view *x)
{
    SKR_TRY(skr_last_contiguous(call, x));
    int64_t n = x->shape[x->ndim - 1];
    if (n > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "%s has rows of %lld elements, expected less than 2^31 (indices are i32)", x->name,
                        (long long)n);
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_topk_args *a = args;
    skr_topk_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_width(call, &v[X]));
    if (!v[VALUES].present && !v[INDICES].present)
        return skr_fail(call, SAKER_NULL_POINTER, "values and indices are both NULL, expected at least one of them");
    const skr_view *first = v[VALUES].present ? &v[VALUES] : &v[INDICES];
    SKR_TRY(check_k(call, &v[VALUES], &v[X], first, &job->k));
    SKR_TRY(check_k(call, &v[INDICES], &v[X], first, &job->k));
    job->n = v[X].shape[v[X].ndim - 1];
    job->softmax = a->softmax;
    skr_row_builder b;
    skr_rows_start(&b, &v[X]);
    SKR_TRY(skr_rows_add(call, &b, &v[X], &job->x));
    SKR_TRY(skr_rows_add_block(call, &b, &v[VALUES], job->k, &job->values));
    SKR_TRY(skr_rows_add_block(call, &b, &v[INDICES], job->k, &job->indices));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    *empty = job->k == 0 || job->rows.m == 0;
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    (void)args;
    skr_topk_backward_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_width(call, &v[B_DX]));
    SKR_TRY(check_k(call, &v[B_DVALUES], &v[B_DX], &v[B_DVALUES], &job->k));
    SKR_TRY(check_k(call, &v[B_INDICES], &v[B_DX], &v[B_DVALUES], &job->k));
    SKR_TRY(check_k(call, &v[B_VALUES], &v[B_DX], &v[B_DVALUES], &job->k));
    job->n = v[B_DX].shape[v[B_DX].ndim - 1];
    skr_row_builder b;
    skr_rows_start(&b, &v[B_DX]);
    SKR_TRY(skr_rows_add(call, &b, &v[B_DX], &job->dx));
    SKR_TRY(skr_rows_add_block(call, &b, &v[B_DVALUES], job->k, &job->dvalues));
    SKR_TRY(skr_rows_add_block(call, &b, &v[B_INDICES], job->k, &job->indices));
    SKR_TRY(skr_rows_add_block(call, &b, &v[B_VALUES], job->k, &job->values));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_B_FIELDS, NULL, 0));
    *empty = v[B_DX].count == 0;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

static saker_status plan_cpu(skr_call *call, skr_topk_job *job, const skr_target *target, skr_plan *plan)
{
    int64_t bytes = skr_row_bytes(&job->x, job->n) + skr_row_bytes(&job->values, job->k);
    plan->variant = "select";
    plan->traffic_bytes = skr_mul(job->rows.m, bytes);
    job->rows_per_task = skr_rows_per_task(job->rows.m, bytes, target->width);
    /* Survivors, twice as many again to cut and sort them, and a row of f32 for softmax. */
    job->room = 2 * job->k + 128;
    job->scratch_bytes = (int64_t)skr_align_up(
        (size_t)(3 * job->room * (int64_t)sizeof(uint64_t) + job->k * (int64_t)sizeof(float)), 256);
    int64_t tasks = skr_ceil_div(job->rows.m, job->rows_per_task);
    skr_cpu_step(plan, 0, tasks);
    return skr_take_done(call, skr_mul(skr_min(target->width, tasks), job->scratch_bytes), plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_topk_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_topk_backward_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_topk_backward_plan_cuda(call, j, target, out);
    int64_t bytes = skr_row_bytes(&j->dx, j->n) + 3 * skr_row_bytes(&j->dvalues, j->k);
    out->variant = "rows";
    out->traffic_bytes = skr_mul(j->rows.m, bytes);
    j->rows_per_task = skr_rows_per_task(j->rows.m, bytes, target->width);
    skr_cpu_step(out, 0, skr_ceil_div(j->rows.m, j->rows_per_task));
    return SAKER_OK;
}

const skr_op skr_op_topk = {
    .info = {.name = "topk",
             .doc = "the k largest values of each row with their indices, exact, softmax over them on demand",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_topk_args)},
    .v1_size = sizeof(saker_topk_args),
    .reserved_at = offsetof(saker_topk_args, reserved),
    .job_size = sizeof(skr_topk_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_topk_backward = {
    .info = {.name = "topk_backward",
             .doc = "gradient of topk: dvalues at the indices, zero elsewhere",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_topk_backward_args)},
    .v1_size = sizeof(saker_topk_backward_args),
    .job_size = sizeof(skr_topk_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};

_Static_assert(sizeof(skr_topk_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_topk_backward_job) <= SKR_JOB_BYTES, "the job must fit");
