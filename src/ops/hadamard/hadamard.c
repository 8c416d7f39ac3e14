/* hadamard.c - the Hadamard transform of rows: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hadamard.h"

#include <math.h>
#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (hadamard_cuda.c). */
saker_status skr_hadamard_plan_cuda(skr_call *call, skr_hadamard_job *job, const skr_target *target, skr_plan *plan);

enum { X, Y, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(hadamard, x, 1, skr_floats, "[..., N] rows, N a power of two"),
    [Y] = SKR_OUT(hadamard, y, 1, skr_floats, "x's shape: the transform"),
};

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{X, Y}};
    (void)args;
    skr_hadamard_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(skr_last_contiguous(call, &v[X]));
    job->n = v[X].shape[v[X].ndim - 1];
    if (job->n & (job->n - 1))
        return skr_fail(call, SAKER_INVALID_ARG, "x has rows of %lld elements, expected a power of two",
                        (long long)job->n);
    while ((int64_t)1 << job->log_n < job->n)
        job->log_n++;
    if (job->log_n > 30)
        return skr_fail(call, SAKER_UNSUPPORTED, "x has rows of %lld elements, expected at most 2^30",
                        (long long)job->n);
    job->scale = (float)(1 / sqrt((double)job->n));
    skr_row_builder b;
    skr_rows_start(&b, &v[X]);
    SKR_TRY(skr_rows_add(call, &b, &v[X], &job->x));
    SKR_TRY(skr_rows_add(call, &b, &v[Y], &job->y));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    *empty = v[X].count == 0;
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_hadamard_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_hadamard_plan_cuda(call, j, target, out);
    int64_t bytes = skr_row_bytes(&j->x, j->n) + skr_row_bytes(&j->y, j->n);
    out->variant = "rows";
    out->traffic_bytes = skr_mul(j->rows.m, bytes);
    j->rows_per_task = skr_rows_per_task(j->rows.m, bytes, target->width);
    j->scratch_bytes = (int64_t)skr_align_up((size_t)j->n * sizeof(float), 256);
    skr_cpu_step(out, 0, skr_ceil_div(j->rows.m, j->rows_per_task));
    return skr_take_done(call, skr_mul(target->width, j->scratch_bytes), out);
}

const skr_op skr_op_hadamard = {
    .info = {.name = "hadamard",
             .doc = "the orthonormal Hadamard transform of rows, Sylvester's order",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_hadamard_args)},
    .v1_size = sizeof(saker_hadamard_args),
    .job_size = sizeof(skr_hadamard_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_hadamard_job) <= SKR_JOB_BYTES, "the job must fit");
