/* norm.c - checks and CPU plans of rms_norm and layer_norm, forward and backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "norm_op.h"

/* ---------------------------------------------------------------- check */

static saker_status check_eps(skr_call *call, float eps, bool centre, float *out)
{
    if (eps < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "eps is %g, expected 0 (the default, %s) or more", (double)eps,
                        centre ? "1e-5" : "1e-6");
    *out = eps != 0 ? eps : centre ? 1e-5f : 1e-6f;
    return SAKER_OK;
}

static saker_status check_has_rows(skr_call *call, const skr_view *x)
{
    if (x->ndim < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has no dimensions, expected at least 1 ([..., N])", x->name);
    return SAKER_OK;
}

saker_status skr_norm_check(skr_call *call, const skr_norm_args *a, skr_norm_job *job)
{
    memset(job, 0, sizeof *job);
    SKR_TRY(check_has_rows(call, a->x));
    SKR_TRY(check_eps(call, a->eps, a->mean != NULL, &job->eps));
    SKR_TRY(skr_check_quant(call, a->y, a->y_quant, a->y_scale, a->quant));
    job->n = a->x->shape[a->x->ndim - 1];
    job->weight_offset = a->weight_offset;
    job->round_before_weight = a->round_before_weight;
    job->quant = a->quant;
    job->centre = a->mean != NULL;
    SKR_TRY(skr_param_of(call, a->weight, a->x, &job->heads, &job->weight));
    SKR_TRY(skr_param_of(call, a->bias, a->x, &job->heads, &job->bias));
    job->heads = job->heads ? job->heads : 1;

    skr_row_builder b;
    skr_rows_start(&b, a->x);
    SKR_TRY(skr_rows_add(call, &b, a->x, &job->x));
    SKR_TRY(skr_rows_add(call, &b, a->residual, &job->residual));
    SKR_TRY(skr_rows_add(call, &b, a->y, &job->y));
    SKR_TRY(skr_rows_add(call, &b, a->residual_out, &job->residual_out));
    SKR_TRY(skr_rows_add(call, &b, a->y_quant, &job->y_quant));
    if (a->mean)
        SKR_TRY(skr_rows_add_stat(call, &b, a->mean, &job->mean));
    SKR_TRY(skr_rows_add_stat(call, &b, a->rstd, &job->rstd));
    SKR_TRY(skr_rows_add_scale(call, &b, a->y_scale, a->quant, job->n, &job->scale));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    return SAKER_OK;
}

saker_status skr_norm_backward_check(skr_call *call, const skr_norm_backward_args *a, skr_norm_backward_job *job,
                                     bool *empty)
{
    memset(job, 0, sizeof *job);
    SKR_TRY(check_has_rows(call, a->dy));
    SKR_TRY(check_eps(call, a->eps, a->mean != NULL, &job->eps));
    if (!a->dx->present && !a->dweight->present && !a->dbias->present)
        return skr_fail(call, SAKER_NULL_POINTER, "dx, dweight and dbias are all NULL, expected at least one of them");
    if (a->dres->present && !a->dx->present)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "dresidual_out is given but dx is NULL, expected dx, which it is added to");
    if (a->mean && a->mean->present != a->rstd->present)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given but %s is NULL, expected both of them or neither",
                        a->mean->present ? "mean" : "rstd", a->mean->present ? "rstd" : "mean");
    job->n = a->dy->shape[a->dy->ndim - 1];
    job->weight_offset = a->weight_offset;
    job->round_before_weight = a->round_before_weight;
    job->accumulate = a->accumulate;
    job->centre = a->mean != NULL;
    SKR_TRY(skr_param_of(call, a->weight, a->dy, &job->heads, &job->weight));
    SKR_TRY(skr_param_of(call, a->dweight, a->dy, &job->heads, &job->dweight));
    SKR_TRY(skr_param_of(call, a->dbias, a->dy, &job->heads, &job->dbias));
    job->heads = job->heads ? job->heads : 1;

    skr_row_builder b;
    skr_rows_start(&b, a->dy);
    SKR_TRY(skr_rows_add(call, &b, a->dy, &job->dy));
    SKR_TRY(skr_rows_add(call, &b, a->x, &job->x));
    SKR_TRY(skr_rows_add(call, &b, a->dres, &job->dres));
    SKR_TRY(skr_rows_add(call, &b, a->dx, &job->dx));
    if (a->mean)
        SKR_TRY(skr_rows_add_stat(call, &b, a->mean, &job->mean));
    SKR_TRY(skr_rows_add_stat(call, &b, a->rstd, &job->rstd));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    /* Without rows there is no dx, but the empty sums dweight and dbias are zero: written, or added (that is, left). */
    bool sums = (job->dweight.data || job->dbias.data) && !a->accumulate;
    *empty = a->dy->count == 0 && !sums;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

static void plan_param_step(skr_norm_cpu *cpu, int64_t heads, int64_t n, skr_plan *plan)
{
    if (cpu->weight_at < 0 && cpu->bias_at < 0)
        return;
    skr_cpu_step(plan, SKR_STEP_PARAMS, skr_mul(heads, skr_ceil_div(n, SKR_PARAM_PIECE)));
}

saker_status skr_norm_plan_cpu(skr_call *call, skr_norm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_norm_cpu *cpu = &job->cpu;
    int64_t m = job->rows.m, n = job->n, at = 0;
    int64_t bytes = skr_row_bytes(&job->x, n) + skr_row_bytes(&job->residual, n) + skr_row_bytes(&job->y, n) +
                    skr_row_bytes(&job->residual_out, n) + skr_row_bytes(&job->y_quant, n);
    plan->traffic_bytes = skr_mul(m, bytes);
    plan->variant = job->y_quant.data                              ? "rows quantised"
                    : job->residual.data || job->residual_out.data ? "rows residual"
                                                                   : "rows";
    skr_plan_param(&job->weight, job->weight_offset, job->heads, n, &at, &cpu->weight_at, &cpu->weight_stride);
    cpu->bias_at = -1;
    if (job->bias.data)
        skr_plan_param(&job->bias, 0, job->heads, n, &at, &cpu->bias_at, &cpu->bias_stride);
    /* For each worker: a row of s, and a row of y when only its quantised form is wanted. */
    int rows = skr_norm_holds_s(job) + (job->y_quant.data && !job->y.data);
    cpu->scratch_bytes = (int64_t)skr_align_up((size_t)skr_mul(rows, skr_mul(n, sizeof(float))), 256);
    cpu->scratch_at = skr_take(&at, skr_mul(target->width, cpu->scratch_bytes));
    plan_param_step(cpu, job->heads, n, plan);
    cpu->rows_per_task = skr_rows_per_task(m, bytes, target->width);
    skr_cpu_step(plan, SKR_STEP_ROWS, skr_ceil_div(m, cpu->rows_per_task));
    return skr_take_done(call, at, plan);
}

/* Rows from which on it pays to copy w for that. */
enum { APART_ROWS = 64 };

/* Takes bytes (-1: none) that begin in the same set as the workspace where they are moved together. */
static int64_t take_apart(const skr_norm_cpu *cpu, int64_t *at, int64_t bytes)
{
    if (bytes < 0)
        return -1;
    if (cpu->apart)
        skr_take(at, -*at & (SKR_L1_WAY - 1));
    return skr_take(at, bytes);
}

saker_status skr_norm_backward_plan_cpu(skr_call *call, skr_norm_backward_job *job, const skr_target *target,
                                        skr_plan *plan)
{
    skr_norm_cpu *cpu = &job->cpu;
    int64_t m = job->rows.m, n = job->n, at = 0,
            sum_bytes = skr_mul(skr_part_stride(skr_mul(job->heads, n)), sizeof(float));
    int64_t bytes = skr_row_bytes(&job->dy, n) + skr_row_bytes(&job->x, n) + skr_row_bytes(&job->dres, n) +
                    skr_row_bytes(&job->dx, n);
    bool sums = job->dweight.data || job->dbias.data;
    plan->traffic_bytes = skr_mul(m, bytes);
    plan->variant = sums ? "rows sums" : "rows";
    cpu->bias_at = -1;
    skr_plan_param(&job->weight, job->weight_offset, job->heads, n, &at, &cpu->weight_at, &cpu->weight_stride);
    /* Columns of w, dweight, x and dy of two rows, and dx, are used together. Where rows are a multiple of SKR_L1_WAY
     * long all of them are in one set: so the first two go elsewhere, w as a copy. */
    cpu->apart = sums && job->heads == 1 && n >= SKR_L1_COLUMNS && m >= APART_ROWS;
    if (cpu->apart && cpu->weight_at < 0)
        cpu->weight_at = skr_take(&at, skr_mul(n, sizeof(float)));
    if (sums) {
        job->rows_per_part = skr_rows_per_part(m);
    } else {
        job->rows_per_part = skr_rows_per_task(m, bytes, target->width);
    }
    job->n_parts = skr_ceil_div(m, job->rows_per_part);
    cpu->dweight_at = take_apart(cpu, &at, job->dweight.data ? skr_mul(job->n_parts, sum_bytes) : -1);
    cpu->dbias_at = take_apart(cpu, &at, job->dbias.data ? skr_mul(job->n_parts, sum_bytes) : -1);
    if (cpu->apart)
        skr_take(&at, SKR_L1_WAY); /* what they are moved by at most */
    if (m) {
        plan_param_step(cpu, job->heads, n, plan);
        skr_cpu_step(plan, SKR_STEP_ROWS, job->n_parts);
    }
    if (sums) {
        skr_cpu_step(plan, SKR_STEP_SUM, skr_mul(job->heads, skr_ceil_div(n, SKR_SUM_PIECE)));
    }
    return skr_take_done(call, at, plan);
}

_Static_assert(sizeof(skr_norm_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_norm_backward_job) <= SKR_JOB_BYTES, "the job must fit");
