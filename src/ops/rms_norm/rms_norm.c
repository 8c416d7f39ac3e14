/* rms_norm.c - rms_norm and rms_norm_backward: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rms_norm.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (rms_norm_cuda.c). */
saker_status skr_rms_norm_plan_cuda(skr_call *call, skr_rms_norm_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_rms_norm_backward_plan_cuda(skr_call *call, skr_rms_norm_backward_job *job, const skr_target *target,
                                             skr_plan *plan);

/* ---------------------------------------------------------------- fields */

enum { X, WEIGHT, BIAS, RESIDUAL, Y, RESIDUAL_OUT, RSTD, Y_QUANT, Y_SCALE, EPS, WEIGHT_OFFSET, ROUND, QUANT, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(rms_norm, x, 1, skr_floats, "[..., N] rows to normalise"),
    [WEIGHT] = SKR_IN(rms_norm, weight, 0, skr_floats, "[N] or [H, N] scale; absent: 1"),
    [BIAS] = SKR_IN(rms_norm, bias, 0, skr_floats, "[N] or [H, N] shift; absent: 0"),
    [RESIDUAL] = SKR_IN(rms_norm, residual, 0, skr_floats, "x's shape; added to x first"),
    [Y] = SKR_OUT(rms_norm, y, 0, skr_floats, "x's shape: the result"),
    [RESIDUAL_OUT] =
        SKR_OUT(rms_norm, residual_out, 0, skr_floats, "x's shape: x + residual, rounded; what is normalised"),
    [RSTD] =
        SKR_OUT(rms_norm, rstd, 0, skr_f32_only, "[M] or x's leading shape: 1 / sqrt(mean(s^2) + eps), for backward"),
    [Y_QUANT] = SKR_OUT(rms_norm, y_quant, 0, skr_quant_types, "x's shape: the result, quantised"),
    [Y_SCALE] = SKR_INOUT(rms_norm, y_scale, 0, skr_f32_only,
                          "scales of y_quant: one (read), [M] or [M, ceil(N/128)] (written)"),
    [EPS] = SKR_OPTION_F32(rms_norm, eps, 1e-6, "added to the mean square"),
    [WEIGHT_OFFSET] = SKR_OPTION_F32(rms_norm, weight_offset, 0, "added to the weight; 1 for Gemma"),
    [ROUND] = SKR_OPTION_BOOL(rms_norm, round_before_weight, "s * rstd is rounded to x's type before the weight"),
    [QUANT] = SKR_OPTION_ENUM(rms_norm, quant, "none|tensor|row|block", "how y_quant is scaled"),
};

enum {
    B_DY,
    B_X,
    B_WEIGHT,
    B_RSTD,
    B_DRES,
    B_DX,
    B_DWEIGHT,
    B_DBIAS,
    B_EPS,
    B_WEIGHT_OFFSET,
    B_ROUND,
    B_ACCUMULATE,
    N_B_FIELDS
};

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DY] = SKR_IN(rms_norm_backward, dy, 1, skr_floats, "[..., N] gradient of y"),
    [B_X] = SKR_IN(rms_norm_backward, x, 1, skr_floats, "dy's shape: what forward normalised"),
    [B_WEIGHT] = SKR_IN(rms_norm_backward, weight, 0, skr_floats, "[N] or [H, N] forward's weight; absent: 1"),
    [B_RSTD] =
        SKR_IN(rms_norm_backward, rstd, 0, skr_f32_only, "[M] or x's leading shape, from forward; absent: recomputed"),
    [B_DRES] =
        SKR_IN(rms_norm_backward, dresidual_out, 0, skr_floats, "dy's shape: gradient that arrives at residual_out"),
    [B_DX] = SKR_OUT(rms_norm_backward, dx, 0, skr_floats, "dy's shape: gradient of x and of residual"),
    [B_DWEIGHT] = SKR_OUT(rms_norm_backward, dweight, 0, skr_floats, "[N] or [H, N]: gradient of weight"),
    [B_DBIAS] = SKR_OUT(rms_norm_backward, dbias, 0, skr_floats, "[N] or [H, N]: gradient of bias"),
    [B_EPS] = SKR_OPTION_F32(rms_norm_backward, eps, 1e-6, "used only without rstd"),
    [B_WEIGHT_OFFSET] = SKR_OPTION_F32(rms_norm_backward, weight_offset, 0, "as in forward"),
    [B_ROUND] = SKR_OPTION_BOOL(rms_norm_backward, round_before_weight, "as in forward"),
    [B_ACCUMULATE] =
        SKR_OPTION_BOOL(rms_norm_backward, accumulate, "dweight and dbias are added to what the tensors hold"),
};

/* ---------------------------------------------------------------- check */

static saker_status check_eps(skr_call *call, float eps, float *out)
{
    if (eps < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "eps is %g, expected 0 (the default, 1e-6) or more", (double)eps);
    *out = eps == 0 ? 1e-6f : eps;
    return SAKER_OK;
}

static saker_status check_has_rows(skr_call *call, const skr_view *x)
{
    if (x->ndim < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has no dimensions, expected at least 1 ([..., N])", x->name);
    return SAKER_OK;
}

/* y_quant, y_scale and quant come together or not at all. */
static saker_status check_quant(skr_call *call, const skr_view *v, int32_t quant)
{
    static const char *const names[] = {"none", "tensor", "row", "block"};
    if (!v[Y].present && !v[Y_QUANT].present)
        return skr_fail(call, SAKER_NULL_POINTER, "y and y_quant are both NULL, expected at least one of them");
    if (quant == SAKER_QUANT_NONE) {
        if (v[Y_QUANT].present)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "y_quant is given but quant is none, expected tensor, row or block");
        if (v[Y_SCALE].present)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "y_scale is given but quant is none, expected tensor, row or block");
        return SAKER_OK;
    }
    if (!v[Y_QUANT].present)
        return skr_fail(call, SAKER_NULL_POINTER, "y_quant is NULL but quant is %s, expected a tensor for the result",
                        names[quant]);
    if (!v[Y_SCALE].present)
        return skr_fail(call, SAKER_NULL_POINTER, "y_scale is NULL but quant is %s, expected a tensor of scales",
                        names[quant]);
    if (quant == SAKER_QUANT_TENSOR && v[Y_SCALE].count != 1) {
        char text[192];
        return skr_fail(call, SAKER_INVALID_ARG, "y_scale has shape %s, expected one element (quant is tensor)",
                        skr_shape_text(&v[Y_SCALE], text));
    }
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{X, Y}, {RESIDUAL, RESIDUAL_OUT}};
    const saker_rms_norm_args *a = args;
    skr_rms_norm_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_has_rows(call, &v[X]));
    SKR_TRY(check_eps(call, a->eps, &job->eps));
    SKR_TRY(check_quant(call, v, a->quant));
    job->n = v[X].shape[v[X].ndim - 1];
    job->weight_offset = a->weight_offset;
    job->round_before_weight = a->round_before_weight;
    job->quant = a->quant;
    SKR_TRY(skr_param_of(call, &v[WEIGHT], &v[X], &job->heads, &job->weight));
    SKR_TRY(skr_param_of(call, &v[BIAS], &v[X], &job->heads, &job->bias));
    job->heads = job->heads ? job->heads : 1;

    skr_row_builder b;
    skr_rows_start(&b, &v[X]);
    SKR_TRY(skr_rows_add(call, &b, &v[X], &job->x));
    SKR_TRY(skr_rows_add(call, &b, &v[RESIDUAL], &job->residual));
    SKR_TRY(skr_rows_add(call, &b, &v[Y], &job->y));
    SKR_TRY(skr_rows_add(call, &b, &v[RESIDUAL_OUT], &job->residual_out));
    SKR_TRY(skr_rows_add(call, &b, &v[Y_QUANT], &job->y_quant));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[RSTD], &job->rstd));
    if (a->quant == SAKER_QUANT_ROW)
        SKR_TRY(skr_rows_add_stat(call, &b, &v[Y_SCALE], &job->scale));
    else if (a->quant == SAKER_QUANT_BLOCK)
        SKR_TRY(
            skr_rows_add_block(call, &b, &v[Y_SCALE], (job->n + SKR_QUANT_GROUP - 1) / SKR_QUANT_GROUP, &job->scale));
    else if (a->quant == SAKER_QUANT_TENSOR)
        job->scale = (skr_rows){.data = v[Y_SCALE].data, .type = SKR_F32};
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    *empty = v[X].count == 0;
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{B_DY, B_DX}, {B_DRES, B_DX}};
    const saker_rms_norm_backward_args *a = args;
    skr_rms_norm_backward_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_has_rows(call, &v[B_DY]));
    SKR_TRY(check_eps(call, a->eps, &job->eps));
    if (!v[B_DX].present && !v[B_DWEIGHT].present && !v[B_DBIAS].present)
        return skr_fail(call, SAKER_NULL_POINTER, "dx, dweight and dbias are all NULL, expected at least one of them");
    if (v[B_DRES].present && !v[B_DX].present)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "dresidual_out is given but dx is NULL, expected dx, which it is added to");
    job->n = v[B_DY].shape[v[B_DY].ndim - 1];
    job->weight_offset = a->weight_offset;
    job->round_before_weight = a->round_before_weight;
    job->accumulate = a->accumulate;
    SKR_TRY(skr_param_of(call, &v[B_WEIGHT], &v[B_DY], &job->heads, &job->weight));
    SKR_TRY(skr_param_of(call, &v[B_DWEIGHT], &v[B_DY], &job->heads, &job->dweight));
    SKR_TRY(skr_param_of(call, &v[B_DBIAS], &v[B_DY], &job->heads, &job->dbias));
    job->heads = job->heads ? job->heads : 1;

    skr_row_builder b;
    skr_rows_start(&b, &v[B_DY]);
    SKR_TRY(skr_rows_add(call, &b, &v[B_DY], &job->dy));
    SKR_TRY(skr_rows_add(call, &b, &v[B_X], &job->x));
    SKR_TRY(skr_rows_add(call, &b, &v[B_DRES], &job->dres));
    SKR_TRY(skr_rows_add(call, &b, &v[B_DX], &job->dx));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[B_RSTD], &job->rstd));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_B_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    /* Without rows there is no dx, but the empty sums dweight and dbias are zero: written, or added (that is, left). */
    bool sums = (job->dweight.data || job->dbias.data) && !a->accumulate;
    *empty = v[B_DY].count == 0 && !sums;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

/* Room for the f32 copy of a parameter, unless the tensor can be used as it is. An absent weight becomes a row of 1 +
 * offset. */
static void plan_param(const skr_param *p, float offset, int64_t heads, int64_t n, int64_t *at, int64_t *copy_at,
                       int64_t *stride)
{
    bool as_is = p->data && p->type == SKR_F32 && offset == 0;
    int64_t rows = p->data ? heads : 1;
    *copy_at = as_is ? -1 : skr_take(at, skr_mul(rows, skr_mul(n, sizeof(float))));
    *stride = as_is ? p->stride : rows > 1 ? n : 0;
}

static void plan_param_step(skr_rms_norm_cpu *cpu, int64_t heads, int64_t n, skr_plan *plan)
{
    if (cpu->weight_at < 0 && cpu->bias_at < 0)
        return;
    skr_cpu_step(plan, SKR_STEP_PARAMS, skr_mul(heads, skr_ceil_div(n, SKR_PARAM_PIECE)));
}

static saker_status plan_cpu(skr_call *call, skr_rms_norm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t m = job->rows.m, n = job->n, at = 0;
    int64_t bytes = skr_row_bytes(&job->x, n) + skr_row_bytes(&job->residual, n) + skr_row_bytes(&job->y, n) +
                    skr_row_bytes(&job->residual_out, n) + skr_row_bytes(&job->y_quant, n);
    plan->traffic_bytes = skr_mul(m, bytes);
    plan->variant = job->y_quant.data                              ? "rows quantised"
                    : job->residual.data || job->residual_out.data ? "rows residual"
                                                                   : "rows";
    plan_param(&job->weight, job->weight_offset, job->heads, n, &at, &cpu->weight_at, &cpu->weight_stride);
    cpu->bias_at = -1;
    if (job->bias.data)
        plan_param(&job->bias, 0, job->heads, n, &at, &cpu->bias_at, &cpu->bias_stride);
    /* For each worker: a row of s when it is stored nowhere else, and a row of y when only its quantised form is
     * wanted. */
    int rows = (job->residual.data && !job->residual_out.data) + (job->y_quant.data && !job->y.data);
    cpu->scratch_bytes = (int64_t)skr_align_up((size_t)skr_mul(rows, skr_mul(n, sizeof(float))), 256);
    cpu->scratch_at = skr_take(&at, skr_mul(target->width, cpu->scratch_bytes));
    plan_param_step(cpu, job->heads, n, plan);
    cpu->rows_per_task = skr_rows_per_task(m, bytes, target->width);
    skr_cpu_step(plan, SKR_STEP_ROWS, skr_ceil_div(m, cpu->rows_per_task));
    return skr_take_done(call, at, plan);
}

static saker_status plan_backward_cpu(skr_call *call, skr_rms_norm_backward_job *job, const skr_target *target,
                                      skr_plan *plan)
{
    skr_rms_norm_cpu *cpu = &job->cpu;
    int64_t m = job->rows.m, n = job->n, at = 0, sum_bytes = skr_mul(job->heads, skr_mul(n, sizeof(float)));
    int64_t bytes = skr_row_bytes(&job->dy, n) + skr_row_bytes(&job->x, n) + skr_row_bytes(&job->dres, n) +
                    skr_row_bytes(&job->dx, n);
    bool sums = job->dweight.data || job->dbias.data;
    plan->traffic_bytes = skr_mul(m, bytes);
    plan->variant = sums ? "rows sums" : "rows";
    cpu->bias_at = -1;
    plan_param(&job->weight, job->weight_offset, job->heads, n, &at, &cpu->weight_at, &cpu->weight_stride);
    if (sums) {
        job->rows_per_part = skr_rows_per_part(m);
    } else {
        job->rows_per_part = skr_rows_per_task(m, bytes, target->width);
    }
    job->n_parts = skr_ceil_div(m, job->rows_per_part);
    cpu->dweight_at = job->dweight.data ? skr_take(&at, skr_mul(job->n_parts, sum_bytes)) : -1;
    cpu->dbias_at = job->dbias.data ? skr_take(&at, skr_mul(job->n_parts, sum_bytes)) : -1;
    if (m) {
        plan_param_step(cpu, job->heads, n, plan);
        skr_cpu_step(plan, SKR_STEP_ROWS, job->n_parts);
    }
    if (sums) {
        skr_cpu_step(plan, SKR_STEP_SUM, skr_mul(job->heads, skr_ceil_div(n, SKR_SUM_PIECE)));
    }
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_rms_norm_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_rms_norm_backward_plan_cuda(call, job, target, out);
    return plan_backward_cpu(call, job, target, out);
}

const skr_op skr_op_rms_norm = {
    .info = {.name = "rms_norm",
             .doc = "root-mean-square normalisation of rows, with residual, bias and quantised output",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_rms_norm_args)},
    .v1_size = sizeof(saker_rms_norm_args),
    .job_size = sizeof(skr_rms_norm_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_rms_norm_backward = {
    .info = {.name = "rms_norm_backward",
             .doc = "gradients of rms_norm: dx (and dresidual), dweight, dbias",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_rms_norm_backward_args)},
    .v1_size = sizeof(saker_rms_norm_backward_args),
    .job_size = sizeof(skr_rms_norm_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};

_Static_assert(sizeof(skr_rms_norm_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_rms_norm_backward_job) <= SKR_JOB_BYTES, "the job must fit");
