/* adamw.c - the AdamW step: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"

#include <math.h>
#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernel (adamw_cuda.c). */
saker_status skr_adamw_plan_cuda(skr_call *call, skr_adamw_job *job, const skr_target *target, skr_plan *plan);

enum {
    PARAM,
    GRAD,
    EXP_AVG,
    EXP_AVG_SQ,
    MAX_SQ,
    GRAD_SCALE,
    SUM_SQUARES,
    LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    MAX_NORM,
    STEP,
    MAXIMIZE,
    N_FIELDS
};

static const saker_field fields[N_FIELDS] = {
    [PARAM] = SKR_INOUT(adamw, param, 1, skr_floats, "[..., N]: the parameter, updated"),
    [GRAD] = SKR_IN(adamw, grad, 1, skr_floats, "param's shape: its gradient"),
    [EXP_AVG] = SKR_INOUT(adamw, exp_avg, 1, skr_floats, "param's shape: mean of the gradients, updated"),
    [EXP_AVG_SQ] = SKR_INOUT(adamw, exp_avg_sq, 1, skr_floats, "param's shape: mean of their squares, updated"),
    [MAX_SQ] = SKR_INOUT(adamw, max_exp_avg_sq, 0, skr_floats, "param's shape: largest exp_avg_sq, updated (amsgrad)"),
    [GRAD_SCALE] = SKR_IN(adamw, grad_scale, 0, skr_f32_only, "one element: multiplies the gradient"),
    [SUM_SQUARES] =
        SKR_IN(adamw, grad_sum_squares, 0, skr_f32_only, "one element: sum of squares of all gradients, for max_norm"),
    [LR] = SKR_OPTION_F64(adamw, lr, 0, "learning rate"),
    [BETA1] = SKR_OPTION_F64(adamw, beta1, 0.9, "decay of exp_avg"),
    [BETA2] = SKR_OPTION_F64(adamw, beta2, 0.999, "decay of exp_avg_sq"),
    [EPS] = SKR_OPTION_F64(adamw, eps, 1e-8, "added to the root"),
    [WEIGHT_DECAY] = SKR_OPTION_F64(adamw, weight_decay, 0, "param shrinks by lr times this"),
    [MAX_NORM] = SKR_OPTION_F64(adamw, max_norm, 0, "gradients are scaled down to this global norm"),
    [STEP] = SKR_OPTION_I64(adamw, step, 0, "number of this step, from 1"),
    [MAXIMIZE] = SKR_OPTION_BOOL(adamw, maximize, "the gradient is negated"),
};

/* ---------------------------------------------------------------- check */

static saker_status check_one(skr_call *call, const skr_view *v, const float **out)
{
    char text[192];
    if (v->present && v->count != 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected one element", v->name,
                        skr_shape_text(v, text));
    *out = (const float *)v->data;
    return SAKER_OK;
}

static saker_status check_range(skr_call *call, const char *name, double value, bool below_one)
{
    if (value < 0 || (below_one && value >= 1))
        return skr_fail(call, SAKER_INVALID_ARG, "%s is %g, expected %s", name, value,
                        below_one ? "0 or more and less than 1" : "0 or more");
    return SAKER_OK;
}

static saker_status check_options(skr_call *call, const saker_adamw_args *a, skr_adamw_job *job)
{
    SKR_TRY(check_range(call, "lr", a->lr, false));
    SKR_TRY(check_range(call, "beta1", a->beta1, true));
    SKR_TRY(check_range(call, "beta2", a->beta2, true));
    SKR_TRY(check_range(call, "eps", a->eps, false));
    SKR_TRY(check_range(call, "weight_decay", a->weight_decay, false));
    SKR_TRY(check_range(call, "max_norm", a->max_norm, false));
    if (a->step < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "step is %lld, expected 1 or more: steps count from 1",
                        (long long)a->step);
    if (!!a->grad_sum_squares != (a->max_norm > 0))
        return skr_fail(call, SAKER_INVALID_ARG,
                        a->grad_sum_squares ? "grad_sum_squares is given but max_norm is 0, expected both or neither"
                                            : "max_norm is given but grad_sum_squares is NULL, expected both or "
                                              "neither");
    double beta1 = a->beta1 == 0 ? 0.9 : a->beta1, beta2 = a->beta2 == 0 ? 0.999 : a->beta2;
    job->beta1 = (float)beta1;
    job->grad1 = (float)(1 - beta1);
    job->beta2 = (float)beta2;
    job->grad2 = (float)(1 - beta2);
    job->decay = (float)(1 - a->lr * a->weight_decay);
    job->step_size = (float)(a->lr / (1 - pow(beta1, (double)a->step)));
    job->inv_root = (float)(1 / sqrt(1 - pow(beta2, (double)a->step)));
    job->eps = (float)(a->eps == 0 ? 1e-8 : a->eps);
    job->max_norm = (float)a->max_norm;
    job->sign = a->maximize ? -1.0f : 1.0f;
    return SAKER_OK;
}

/* Compact tensors are one row. */
static void flatten(skr_adamw_job *job)
{
    const skr_rows *all[SKR_ADAMW_TENSORS] = {&job->param, &job->grad, &job->exp_avg, &job->exp_avg_sq, &job->max_sq};
    for (int i = 0; i < SKR_ADAMW_TENSORS; i++)
        if (all[i]->data && all[i]->stride[0] != job->n)
            return;
    if (job->rows.n_dims == 1) {
        job->n *= job->rows.m;
        job->rows.m = job->rows.dims[0] = 1;
    }
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    skr_adamw_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_options(call, args, job));
    SKR_TRY(skr_last_contiguous(call, &v[PARAM]));
    SKR_TRY(check_one(call, &v[GRAD_SCALE], &job->grad_scale));
    SKR_TRY(check_one(call, &v[SUM_SQUARES], &job->sum_squares));
    job->n = v[PARAM].shape[v[PARAM].ndim - 1];
    skr_row_builder b;
    skr_rows_start(&b, &v[PARAM]);
    SKR_TRY(skr_rows_add(call, &b, &v[PARAM], &job->param));
    SKR_TRY(skr_rows_add(call, &b, &v[GRAD], &job->grad));
    SKR_TRY(skr_rows_add(call, &b, &v[EXP_AVG], &job->exp_avg));
    SKR_TRY(skr_rows_add(call, &b, &v[EXP_AVG_SQ], &job->exp_avg_sq));
    SKR_TRY(skr_rows_add(call, &b, &v[MAX_SQ], &job->max_sq));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    *empty = v[PARAM].count == 0;
    if (!*empty)
        flatten(job);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_adamw_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_adamw_plan_cuda(call, j, target, out);
    out->variant = "rows";
    out->traffic_bytes = skr_mul(j->rows.m, 2 * (skr_row_bytes(&j->param, j->n) + skr_row_bytes(&j->exp_avg, j->n) +
                                                 skr_row_bytes(&j->exp_avg_sq, j->n)) +
                                                skr_row_bytes(&j->grad, j->n));
    j->pieces = skr_ceil_div(j->n, SKR_ADAMW_PIECE);
    skr_cpu_step(out, 0, skr_mul(j->rows.m, j->pieces));
    return skr_take_done(call, skr_mul(target->width, SKR_ADAMW_TENSORS * SKR_ADAMW_BLOCK * sizeof(float)), out);
}

const skr_op skr_op_adamw = {
    .info = {.name = "adamw",
             .doc = "one AdamW step of one tensor, in place, with gradient clipping",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_adamw_args)},
    .v1_size = sizeof(saker_adamw_args),
    .reserved_at = offsetof(saker_adamw_args, reserved),
    .job_size = sizeof(skr_adamw_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_adamw_job) <= SKR_JOB_BYTES, "the job must fit");
