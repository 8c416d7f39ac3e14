/* quantize.c - quantize and dequantize: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quantize.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (quantize_cuda.c). */
saker_status skr_quantize_plan_cuda(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_dequantize_plan_cuda(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan);

#define QUANTS "none|tensor|row|block|block2d|group"

enum { X, Q, SCALE, GROUP, QUANT, DYNAMIC, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(quantize, x, 1, skr_floats, "[..., N] what is quantised"),
    [Q] = SKR_OUT(quantize, q, 1, skr_code_types, "x's shape; u8: [..., ceil(N/2)], i4 two in a byte"),
    [SCALE] = SKR_INOUT(quantize, scale, 1, skr_f32_only, "the scales: one, or in the shape that quant says"),
    [GROUP] = SKR_OPTION_I64(quantize, group, 0, "quant group: columns that share a scale"),
    [QUANT] = SKR_OPTION_ENUM(quantize, quant, QUANTS, "what shares a scale"),
    [DYNAMIC] = SKR_OPTION_BOOL(quantize, dynamic, "quant tensor: the scale is computed and written"),
};

enum { D_Q, D_SCALE, D_Y, D_GROUP, D_QUANT, N_D_FIELDS };

static const saker_field dequantize_fields[N_D_FIELDS] = {
    [D_Q] = SKR_IN(dequantize, q, 1, skr_code_types, "codes, as quantize writes them"),
    [D_SCALE] = SKR_IN(dequantize, scale, 1, skr_f32_only, "the scales: one, or in the shape that quant says"),
    [D_Y] = SKR_OUT(dequantize, y, 1, skr_floats, "[..., N]: q times scale"),
    [D_GROUP] = SKR_OPTION_I64(dequantize, group, 0, "quant group: columns that share a scale"),
    [D_QUANT] = SKR_OPTION_ENUM(dequantize, quant, QUANTS, "what shares a scale"),
};

/* ---------------------------------------------------------------- check */

/* q as rows of bytes: i4 has two columns in one. The copy keeps the number of columns, so that its shape is x's. */
static saker_status bytes_of(skr_call *call, const skr_view *q, const skr_view *x, skr_view *out)
{
    int64_t n = x->shape[x->ndim - 1];
    char text[192];
    *out = *q;
    if (q->type == SKR_U8) {
        if (q->ndim < 1 || q->shape[q->ndim - 1] != n / 2 + n % 2)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "%s has shape %s, expected a last dimension of %lld (two to a byte)", q->name,
                            skr_shape_text(q, text), (long long)(n / 2 + n % 2));
        out->shape[q->ndim - 1] = n;
    }
    SKR_TRY(skr_same_shape(call, out, x));
    SKR_TRY(skr_last_contiguous(call, q));
    out->stride[q->ndim - 1] = 1; /* one byte has any stride, two columns do not */
    for (int i = 0; q->type == SKR_I4 && i < q->ndim - 1; i++) {
        if (q->stride[i] % 2 && q->shape[i] > 1 && q->count)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "%s has stride %lld in dimension %d, expected an even number: rows of i4 start at whole "
                            "bytes",
                            q->name, (long long)q->stride[i], i);
        out->stride[i] = q->stride[i] / 2;
    }
    return SAKER_OK;
}

static saker_status check_options(skr_call *call, const skr_view *x, const skr_view *scale, int32_t quant,
                                  int64_t group)
{
    char text[192];
    if (x->ndim < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has no dimensions, expected at least 1 ([..., N])", x->name);
    if (quant == SAKER_QUANT_NONE)
        return skr_fail(call, SAKER_INVALID_ARG, "quant is none, expected tensor, row, block, block2d or group");
    if (quant == SAKER_QUANT_GROUP ? group < 1 : group != 0)
        return skr_fail(call, SAKER_INVALID_ARG, "group is %lld, expected %s", (long long)group,
                        quant == SAKER_QUANT_GROUP ? "1 or more (quant is group)" : "0 (quant is not group)");
    if (quant == SAKER_QUANT_TENSOR && scale->count != 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected one element (quant is tensor)", scale->name,
                        skr_shape_text(scale, text));
    if (quant == SAKER_QUANT_BLOCK2D && x->ndim < 2)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has 1 dimension, expected at least 2 (quant is block2d)", x->name);
    return SAKER_OK;
}

/* The rows of a slab are not the rows of the job: v with the slabs of its matrices in place of their rows. */
static void make_slabs(skr_view *v, int64_t *step)
{
    int rows = v->ndim - 2;
    *step = v->stride[rows];
    v->shape[rows] = (v->shape[rows] + SKR_QUANT_GROUP - 1) / SKR_QUANT_GROUP;
    v->stride[rows] = v->shape[rows] > 1 ? v->stride[rows] * SKR_QUANT_GROUP : 0; /* one slab: any stride is legal */
}

/* Fills the job from x (the float tensor, whichever way it goes), q and the scales. */
static saker_status check_job(skr_call *call, const skr_view *x, const skr_view *q, const skr_view *scale,
                              int32_t quant, int64_t group, skr_quantize_job *job)
{
    memset(job, 0, sizeof *job);
    SKR_TRY(check_options(call, x, scale, quant, group));
    skr_view float_rows = *x, bytes;
    SKR_TRY(bytes_of(call, q, x, &bytes));
    SKR_TRY(skr_last_contiguous(call, x));
    job->n = x->shape[x->ndim - 1];
    job->quant = quant;
    job->type = q->type == SKR_U8 ? SKR_I4 : q->type;
    job->group = quant == SAKER_QUANT_GROUP                                   ? group
                 : quant == SAKER_QUANT_BLOCK || quant == SAKER_QUANT_BLOCK2D ? SKR_QUANT_GROUP
                                                                              : (job->n ? job->n : 1);
    job->slab = 1;
    if (quant == SAKER_QUANT_BLOCK2D) {
        job->slab = SKR_QUANT_GROUP;
        job->matrix = x->shape[x->ndim - 2];
        make_slabs(&float_rows, &job->x_step);
        make_slabs(&bytes, &job->q_step);
        job->slabs = float_rows.shape[x->ndim - 2];
    }
    skr_row_builder b;
    skr_rows_start(&b, &float_rows);
    SKR_TRY(skr_rows_add(call, &b, &float_rows, &job->x));
    SKR_TRY(skr_rows_add(call, &b, &bytes, &job->q));
    if (quant == SAKER_QUANT_TENSOR)
        job->scale = (skr_rows){.data = scale->data, .type = SKR_F32};
    else if (quant == SAKER_QUANT_ROW)
        SKR_TRY(skr_rows_add_stat(call, &b, scale, &job->scale));
    else
        SKR_TRY(skr_rows_add_block(call, &b, scale, skr_ceil_div(job->n, job->group), &job->scale));
    return skr_rows_merge(call, &b, &job->rows);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_quantize_args *a = args;
    skr_quantize_job *job = out;
    SKR_TRY(check_job(call, &v[X], &v[Q], &v[SCALE], a->quant, a->group, job));
    if (a->dynamic && a->quant != SAKER_QUANT_TENSOR)
        return skr_fail(call, SAKER_INVALID_ARG, "dynamic is 1, expected 0: only quant tensor has the choice");
    job->dynamic = a->dynamic;
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    /* A row without columns has a scale, that of nothing. */
    *empty = v[X].count == 0 && !a->dynamic && !(a->quant == SAKER_QUANT_ROW && v[SCALE].count);
    return SAKER_OK;
}

static saker_status check_dequantize(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_dequantize_args *a = args;
    SKR_TRY(check_job(call, &v[D_Y], &v[D_Q], &v[D_SCALE], a->quant, a->group, out));
    SKR_TRY(skr_check_alias(call, v, N_D_FIELDS, NULL, 0));
    *empty = v[D_Y].count == 0;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

/* One scale for all, and no gap anywhere: one long row. */
static void flatten(skr_quantize_job *job)
{
    int64_t bytes = job->type == SKR_I4 ? job->n / 2 : job->n;
    if (job->quant == SAKER_QUANT_TENSOR && job->n && job->rows.m > 1 && job->rows.n_dims == 1 &&
        job->x.stride[0] == job->n && job->q.stride[0] == bytes && (job->type != SKR_I4 || job->n % 2 == 0) &&
        job->rows.m < SKR_HUGE / job->n) {
        job->n *= job->rows.m;
        job->group = job->n;
        job->rows = (skr_row_space){.m = 1, .n_dims = 1, .dims = {1}};
    }
}

static saker_status plan_cpu(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan)
{
    enum { PIECE = 16384 };
    flatten(job);
    int64_t at = 0, n = job->n;
    int64_t bytes = skr_mul(job->slab, skr_row_bytes(&job->x, n) + (job->type == SKR_I4 ? n / 2 : n));
    plan->traffic_bytes = skr_mul(job->rows.m, bytes);
    plan->variant = job->slab > 1 ? "blocks" : "rows";
    /* Pieces hold whole groups and whole bytes. Of a whole tensor's row any columns may be taken. */
    int64_t unit = job->quant == SAKER_QUANT_TENSOR ? 2 : skr_mul(2, job->group);
    job->piece = job->quant == SAKER_QUANT_ROW ? skr_max(n, 1) : skr_mul(unit, skr_ceil_div(PIECE / job->slab, unit));
    job->pieces = skr_max(1, skr_ceil_div(n, job->piece));
    job->slabs_per_task = job->pieces > 1 ? 1 : skr_rows_per_task(job->rows.m, bytes, target->width);
    job->n_tasks =
        n || job->quant == SAKER_QUANT_ROW ? skr_mul(job->pieces, skr_ceil_div(job->rows.m, job->slabs_per_task)) : 0;
    if (job->dynamic) {
        skr_take(&at, skr_mul(job->n_tasks, sizeof(float)));
        if (job->n_tasks)
            skr_cpu_step(plan, SKR_QUANTIZE_PARTS, job->n_tasks);
        skr_cpu_step(plan, SKR_QUANTIZE_FOLD, 1);
    }
    if (job->n_tasks)
        skr_cpu_step(plan, SKR_QUANTIZE_CODES, job->n_tasks);
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_quantize_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

static saker_status plan_dequantize(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_dequantize_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

const skr_op skr_op_quantize = {
    .info = {.name = "quantize",
             .doc = "to i8, e4m3, e5m2 or i4 with scales of a tensor, of rows, blocks or groups",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_quantize_args)},
    .v1_size = sizeof(saker_quantize_args),
    .job_size = sizeof(skr_quantize_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_dequantize = {
    .info = {.name = "dequantize",
             .doc = "back from i8, e4m3, e5m2 or i4: codes times scales",
             .fields = dequantize_fields,
             .n_fields = N_D_FIELDS,
             .args_size = sizeof(saker_dequantize_args)},
    .v1_size = sizeof(saker_dequantize_args),
    .reserved_at = offsetof(saker_dequantize_args, reserved),
    .job_size = sizeof(skr_quantize_job),
    .check = check_dequantize,
    .plan = plan_dequantize,
};

_Static_assert(sizeof(skr_quantize_job) <= SKR_JOB_BYTES, "the job must fit");
