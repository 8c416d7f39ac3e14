/* softmax.c - softmax and softmax_backward: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "softmax.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (softmax_cuda.c, softmax_backward_cuda.c). */
saker_status skr_softmax_plan_cuda(skr_call *call, skr_softmax_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_softmax_backward_plan_cuda(skr_call *call, skr_softmax_backward_job *job, const skr_target *target,
                                            skr_plan *plan);

/* ---------------------------------------------------------------- fields */

enum { X, MASK, Y, DIM, SCALE, CAUSAL, LOG, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(softmax, x, 1, skr_floats, "any shape of at least one dimension, any strides"),
    [MASK] = SKR_IN(softmax, mask, 0, skr_floats, "repeated to x's shape; added to scale * x"),
    [Y] = SKR_OUT(softmax, y, 1, skr_floats, "x's shape: the result"),
    [DIM] = SKR_OPTION_I64(softmax, dim_from_last, 0, "0: along the last dimension, 1: along the one before it, ..."),
    [SCALE] = SKR_OPTION_F32(softmax, scale, 1, "multiplies x"),
    [CAUSAL] = SKR_OPTION_BOOL(softmax, causal, "element [i, j] of [Q, K] is seen where j <= i + K - Q"),
    [LOG] = SKR_OPTION_BOOL(softmax, log, "the logarithm of the result instead"),
};

enum { B_DY, B_Y, B_DX, B_DIM, B_SCALE, B_CAUSAL, B_LOG, N_B_FIELDS };

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DY] = SKR_IN(softmax_backward, dy, 1, skr_floats, "y's shape: gradient of y"),
    [B_Y] = SKR_IN(softmax_backward, y, 1, skr_floats, "what forward gave"),
    [B_DX] = SKR_OUT(softmax_backward, dx, 1, skr_floats, "y's shape: gradient of x"),
    [B_DIM] = SKR_OPTION_I64(softmax_backward, dim_from_last, 0, "as in forward"),
    [B_SCALE] = SKR_OPTION_F32(softmax_backward, scale, 1, "as in forward"),
    [B_CAUSAL] = SKR_OPTION_BOOL(softmax_backward, causal, "as in forward"),
    [B_LOG] = SKR_OPTION_BOOL(softmax_backward, log, "as in forward: y is a logarithm"),
};

/* ---------------------------------------------------------------- check */

/* The chosen dimension, counted from the first. */
static saker_status check_dim(skr_call *call, const skr_view *x, int64_t from_last, int *dim)
{
    if (x->ndim < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has no dimensions, expected at least 1", x->name);
    if (from_last < 0 || from_last >= x->ndim)
        return skr_fail(call, SAKER_INVALID_ARG, "dim_from_last is %lld, expected 0 to %d (%s has %d dimensions)",
                        (long long)from_last, x->ndim - 1, x->name, x->ndim);
    *dim = x->ndim - 1 - (int)from_last;
    return SAKER_OK;
}

static saker_status check_causal(skr_call *call, const skr_view *x, int causal, int dim, skr_seen *seen)
{
    *seen = (skr_seen){.how = SKR_SEEN_ALL};
    if (!causal)
        return SAKER_OK;
    if (x->ndim < 2)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "causal is 1 but %s has %d dimension, expected at least 2 ([..., Q, K])", x->name, x->ndim);
    seen->how = dim == x->ndim - 1 ? SKR_SEEN_FIRST : dim == x->ndim - 2 ? SKR_SEEN_LAST : SKR_SEEN_ROW;
    seen->q = x->shape[x->ndim - 2];
    seen->k = x->shape[x->ndim - 1];
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{X, Y}};
    const saker_softmax_args *a = args;
    skr_softmax_job *job = out;
    int dim = 0;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_dim(call, &v[X], a->dim_from_last, &dim));
    SKR_TRY(check_causal(call, &v[X], a->causal, dim, &job->seen));
    SKR_TRY(skr_same_shape(call, &v[Y], &v[X]));
    skr_view mask;
    SKR_TRY(skr_broadcast(call, &v[MASK], &v[X], &mask));
    job->n = v[X].shape[dim];
    job->scale = a->scale == 0 ? 1 : a->scale;
    job->log = a->log;

    skr_view x = skr_dim_last(&v[X], dim), y = skr_dim_last(&v[Y], dim);
    mask = skr_dim_last(&mask, dim);
    skr_row_builder b;
    skr_rows_start(&b, &x);
    SKR_TRY(skr_rows_add_strided(call, &b, &x, &job->x));
    SKR_TRY(skr_rows_add_strided(call, &b, &mask, &job->mask));
    SKR_TRY(skr_rows_add_strided(call, &b, &y, &job->y));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    *empty = v[X].count == 0;
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{B_DY, B_DX}, {B_Y, B_DX}};
    const saker_softmax_backward_args *a = args;
    skr_softmax_backward_job *job = out;
    int dim = 0;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_dim(call, &v[B_Y], a->dim_from_last, &dim));
    SKR_TRY(check_causal(call, &v[B_Y], a->causal, dim, &job->seen));
    SKR_TRY(skr_same_shape(call, &v[B_DY], &v[B_Y]));
    SKR_TRY(skr_same_shape(call, &v[B_DX], &v[B_Y]));
    job->n = v[B_Y].shape[dim];
    job->scale = a->scale == 0 ? 1 : a->scale;
    job->log = a->log;

    skr_view dy = skr_dim_last(&v[B_DY], dim), y = skr_dim_last(&v[B_Y], dim), dx = skr_dim_last(&v[B_DX], dim);
    skr_row_builder b;
    skr_rows_start(&b, &y);
    SKR_TRY(skr_rows_add_strided(call, &b, &dy, &job->dy));
    SKR_TRY(skr_rows_add_strided(call, &b, &y, &job->y));
    SKR_TRY(skr_rows_add_strided(call, &b, &dx, &job->dx));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_B_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    *empty = v[B_Y].count == 0;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

/* Rows with columns side by side are worked on one by one. Otherwise a tile of neighbouring rows is: it is they that
 * lie side by side in memory then. A tile's f32 copy stays below 1 MiB where it can. Every row has its own sums, so the
 * width of a tile changes no bit. buffers: f32 copies of a row (or tile) that a worker needs. */
enum { LEAST_TILE = 16 };

static saker_status plan_cpu(skr_call *call, const skr_row_space *rows, int64_t n, bool side_by_side, int buffers,
                             int64_t row_bytes, const skr_target *target, skr_softmax_cpu *cpu, skr_plan *plan)
{
    int64_t m = rows->m, at = 0, tile = 1, inner = rows->dims[rows->n_dims - 1], tasks;
    plan->variant = side_by_side ? "rows" : "columns";
    plan->traffic_bytes = skr_mul(m, row_bytes);
    if (!side_by_side) {
        tile = skr_max(LEAST_TILE, skr_min(SKR_SOFTMAX_TILE, (1 << 18) / n / LEAST_TILE * LEAST_TILE));
        tasks = m / inner * skr_ceil_div(inner, tile);
    } else {
        tasks = m;
    }
    cpu->tile = tile;
    cpu->per_task = skr_rows_per_task(tasks, skr_mul(tile, row_bytes), target->width);
    cpu->scratch_bytes = (int64_t)skr_align_up((size_t)skr_mul(buffers, skr_mul(tile, skr_mul(n, sizeof(float)))), 256);
    skr_take(&at, skr_mul(target->width, cpu->scratch_bytes));
    skr_cpu_step(plan, 0, skr_ceil_div(tasks, cpu->per_task));
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_softmax_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_softmax_plan_cuda(call, j, target, out);
    int64_t bytes = skr_row_bytes(&j->x, j->n) + skr_row_bytes(&j->y, j->n) + skr_row_bytes(&j->mask, j->n);
    bool side_by_side = j->x.col_stride == 1 && j->y.col_stride == 1;
    /* A result of type f32 holds the exponentials until their sum is known, unless it is written past the caches. */
    bool plain = !j->mask.data && j->seen.how == SKR_SEEN_ALL, held = j->y.type == SKR_F32 && !skr_past(&j->head);
    int buffers = side_by_side && plain && (j->log || held) ? 0 : 1;
    return plan_cpu(call, &j->rows, j->n, side_by_side, buffers, bytes, target, &j->cpu, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_softmax_backward_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_softmax_backward_plan_cuda(call, j, target, out);
    int64_t bytes = skr_row_bytes(&j->dy, j->n) + skr_row_bytes(&j->y, j->n) + skr_row_bytes(&j->dx, j->n);
    bool side_by_side = j->dy.col_stride == 1 && j->y.col_stride == 1 && j->dx.col_stride == 1;
    return plan_cpu(call, &j->rows, j->n, side_by_side, 0, bytes, target, &j->cpu, out);
}

const skr_op skr_op_softmax = {
    .info = {.name = "softmax",
             .doc = "softmax or log_softmax along a dimension, with scale, additive mask and causal mask",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_softmax_args)},
    .v1_size = sizeof(saker_softmax_args),
    .reserved_at = offsetof(saker_softmax_args, reserved),
    .job_size = sizeof(skr_softmax_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_softmax_backward = {
    .info = {.name = "softmax_backward",
             .doc = "the gradient of softmax or log_softmax, from its result",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_softmax_backward_args)},
    .v1_size = sizeof(saker_softmax_backward_args),
    .reserved_at = offsetof(saker_softmax_backward_args, reserved),
    .job_size = sizeof(skr_softmax_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};

_Static_assert(sizeof(skr_softmax_job) <= SKR_JOB_BYTES && sizeof(skr_softmax_backward_job) <= SKR_JOB_BYTES,
               "the jobs must fit");
