/* sum_squares.c - the sum of squares of a tensor: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "sum_squares.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (sum_squares_cuda.c). */
saker_status skr_sum_squares_plan_cuda(skr_call *call, skr_sum_squares_job *job, const skr_target *target,
                                       skr_plan *plan);

enum { X, OUT, ACCUMULATE, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(sum_squares, x, 1, skr_floats, "[..., N]"),
    [OUT] = SKR_INOUT(sum_squares, out, 1, skr_f32_only, "one element: the sum"),
    [ACCUMULATE] = SKR_OPTION_BOOL(sum_squares, accumulate, "the sum is added to what out holds"),
};

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_sum_squares_args *a = args;
    skr_sum_squares_job *job = out;
    memset(job, 0, sizeof *job);
    if (v[OUT].count != 1) {
        char text[192];
        return skr_fail(call, SAKER_INVALID_ARG, "out has shape %s, expected one element",
                        skr_shape_text(&v[OUT], text));
    }
    skr_row_builder b;
    skr_rows_start(&b, &v[X]);
    SKR_TRY(skr_rows_add(call, &b, &v[X], &job->x));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    job->n = v[X].shape[v[X].ndim - 1];
    job->out = (float *)v[OUT].data;
    job->accumulate = a->accumulate;
    if (job->rows.n_dims == 1 && job->x.stride[0] == job->n) { /* compact: one row */
        job->n *= job->rows.m;
        job->rows.m = job->rows.dims[0] = 1;
    }
    if (v[X].count == 0)
        job->rows.m = 0;
    *empty = v[X].count == 0 && a->accumulate;
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_sum_squares_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_sum_squares_plan_cuda(call, j, target, out);
    out->variant = "rows";
    out->traffic_bytes = skr_mul(j->rows.m, skr_row_bytes(&j->x, j->n));
    j->pieces = skr_ceil_div(j->n, SKR_SQUARES_PIECE);
    j->parts = skr_mul(j->rows.m, j->pieces);
    if (j->parts)
        skr_cpu_step(out, SKR_SQUARES_SUM, j->parts);
    skr_cpu_step(out, SKR_SQUARES_FOLD, 1);
    int64_t at = 0;
    skr_take(&at, skr_mul(j->parts, sizeof(double)));
    return skr_take_done(call, at, out);
}

const skr_op skr_op_sum_squares = {
    .info = {.name = "sum_squares",
             .doc = "the sum of squares of a tensor, for the global norm of gradients",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_sum_squares_args)},
    .v1_size = sizeof(saker_sum_squares_args),
    .reserved_at = offsetof(saker_sum_squares_args, reserved),
    .job_size = sizeof(skr_sum_squares_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_sum_squares_job) <= SKR_JOB_BYTES, "the job must fit");
