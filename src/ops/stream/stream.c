/* stream.c - the bandwidth probe: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <string.h>

#include "../../core/op.h"

/* Written beside the CUDA kernel (stream_cuda.c). */
saker_status skr_stream_plan_cuda(skr_call *call, skr_stream_job *job, const skr_target *target, skr_plan *plan);

enum { X0, X1, X2, X3, Y0, Y1, CHECKSUM, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X0] = SKR_IN(stream, x0, 0, skr_any_type, "compact; read once"),
    [X1] = SKR_IN(stream, x1, 0, skr_any_type, "as many bytes as the others; read once"),
    [X2] = SKR_IN(stream, x2, 0, skr_any_type, "as many bytes as the others; read once"),
    [X3] = SKR_IN(stream, x3, 0, skr_any_type, "as many bytes as the others; read once"),
    [Y0] = SKR_OUT(stream, y0, 0, skr_any_type, "exclusive-or of the inputs, 0x5a bytes without; written once"),
    [Y1] = SKR_OUT(stream, y1, 0, skr_any_type, "the same as y0; written once"),
    [CHECKSUM] =
        SKR_OUT(stream, checksum, 0, skr_i64_only, "one element: exclusive-or of all 8-byte words of the inputs"),
};

static int64_t element_bytes(const skr_view *v)
{
    return skr_type_bytes(v->type);
}

static saker_status check_one(skr_call *call, const skr_view *v, const skr_view *first)
{
    int64_t compact = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->count && v->shape[i] > 1 && v->stride[i] != compact)
            return skr_fail(call, SAKER_INVALID_ARG, "%s has stride %lld in dimension %d, expected %lld (compact)",
                            v->name, (long long)v->stride[i], i, (long long)compact);
        compact *= v->count ? v->shape[i] : 1;
    }
    int64_t bytes = v->count * element_bytes(v), expected = first->count * element_bytes(first);
    if (bytes != expected)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has %lld bytes, expected %lld (as many as %s)", v->name,
                        (long long)bytes, (long long)expected, first->name);
    if (bytes % 8)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has %lld bytes, expected a multiple of 8", v->name,
                        (long long)bytes);
    if ((uintptr_t)v->data % 8)
        return skr_fail(call, SAKER_MISALIGNED, "%s is at an address that is not a multiple of 8", v->name);
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    (void)args;
    skr_stream_job *job = out;
    memset(job, 0, sizeof *job);
    const skr_view *first = NULL;
    for (int i = X0; i <= Y1; i++) {
        if (!v[i].present)
            continue;
        first = first ? first : &v[i];
        SKR_TRY(check_one(call, &v[i], first));
        if (i <= X3)
            job->x[job->n_in++] = v[i].data;
        else
            job->y[job->n_out++] = v[i].data;
    }
    if (!first)
        return skr_fail(call, SAKER_NULL_POINTER, "x0 to x3, y0 and y1 are all NULL, expected at least one of them");
    if (!job->n_out && !v[CHECKSUM].present)
        return skr_fail(call, SAKER_NULL_POINTER, "y0, y1 and checksum are all NULL, expected at least one of them");
    if (v[CHECKSUM].present && v[CHECKSUM].count != 1) {
        char text[192];
        return skr_fail(call, SAKER_INVALID_ARG, "checksum has shape %s, expected one element",
                        skr_shape_text(&v[CHECKSUM], text));
    }
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    job->bytes = first->count * element_bytes(first);
    job->checksum = (int64_t *)v[CHECKSUM].data;
    *empty = job->bytes == 0 && !job->checksum; /* the checksum of nothing is 0, and it is written */
    return SAKER_OK;
}

static void plan_cpu(skr_stream_job *job, skr_plan *plan)
{
    plan->variant = "bytes";
    plan->traffic_bytes =
        job->bytes / 8 * (job->n_in + job->n_out) > INT64_MAX / 8 ? INT64_MAX : job->bytes * (job->n_in + job->n_out);
    job->n_tasks = job->bytes / SKR_STREAM_PIECE + (job->bytes % SKR_STREAM_PIECE != 0);
    plan->workspace_bytes = job->checksum ? skr_align_up((size_t)job->n_tasks * sizeof(uint64_t), 256) : 0;
    skr_step *move = skr_plan_step(plan);
    move->index = SKR_STREAM_MOVE;
    move->n_tasks = job->n_tasks;
    if (job->checksum) {
        skr_step *fold = skr_plan_step(plan);
        fold->index = SKR_STREAM_FOLD;
        fold->n_tasks = 1;
    }
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_stream_plan_cuda(call, job, target, out);
    plan_cpu(job, out);
    return SAKER_OK;
}

const skr_op skr_op_stream = {
    .info = {.name = "stream",
             .doc = "the bandwidth probe: reads up to four tensors and writes up to two, each byte once",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_stream_args)},
    .v1_size = sizeof(saker_stream_args),
    .job_size = sizeof(skr_stream_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_stream_job) <= SKR_JOB_BYTES, "the job must fit");
