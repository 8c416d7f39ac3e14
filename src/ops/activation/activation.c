/* activation.c - activation and activation_backward: fields, checks, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "activation.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (activation_cuda.c). */
saker_status skr_activation_plan_cuda(skr_call *call, skr_activation_job *job, const skr_target *target,
                                      skr_plan *plan);
saker_status skr_activation_backward_plan_cuda(skr_call *call, skr_activation_backward_job *job,
                                               const skr_target *target, skr_plan *plan);

#define ACTS   "none|sigmoid|tanh|silu|gelu|gelu_tanh|relu|relu2|swiglu_oai"
#define GATEDS "no|halves|interleaved"

enum { X, UP, BIAS, Y, Y_QUANT, Y_SCALE, ACT, GATED, QUANT, ALPHA, LIMIT, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(activation, x, 1, skr_floats, "[..., N], gated: the gate, or [..., 2N] gate and up"),
    [UP] = SKR_IN(activation, up, 0, skr_floats, "[..., N]: what the gate multiplies"),
    [BIAS] = SKR_IN(activation, bias, 0, skr_floats, "[N], gated [2N]: added first"),
    [Y] = SKR_OUT(activation, y, 0, skr_floats, "[..., N]: the result"),
    [Y_QUANT] = SKR_OUT(activation, y_quant, 0, skr_quant_types, "[..., N]: the result, quantised"),
    [Y_SCALE] = SKR_INOUT(activation, y_scale, 0, skr_f32_only,
                          "scales of y_quant: one (read), [M] or [M, ceil(N/128)] (written)"),
    [ACT] = SKR_OPTION_ENUM(activation, act, ACTS, "the function"),
    [GATED] = SKR_OPTION_ENUM(activation, gated, GATEDS, "where gate and up lie in x"),
    [QUANT] = SKR_OPTION_ENUM(activation, quant, "none|tensor|row|block", "how y_quant is scaled"),
    [ALPHA] = SKR_OPTION_F32(activation, alpha, 1.702, "swiglu_oai: factor of the gate in the sigmoid"),
    [LIMIT] = SKR_OPTION_F32(activation, limit, 7, "swiglu_oai: where gate and up are clamped"),
};

enum { B_DY, B_X, B_UP, B_BIAS, B_DX, B_DUP, B_DBIAS, B_ACT, B_GATED, B_ALPHA, B_LIMIT, B_ACCUMULATE, N_B_FIELDS };

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DY] = SKR_IN(activation_backward, dy, 1, skr_floats, "[..., N] gradient of y"),
    [B_X] = SKR_IN(activation_backward, x, 1, skr_floats, "forward's x"),
    [B_UP] = SKR_IN(activation_backward, up, 0, skr_floats, "forward's up"),
    [B_BIAS] = SKR_IN(activation_backward, bias, 0, skr_floats, "forward's bias"),
    [B_DX] = SKR_OUT(activation_backward, dx, 0, skr_floats, "x's shape: gradient of x"),
    [B_DUP] = SKR_OUT(activation_backward, dup, 0, skr_floats, "up's shape: gradient of up"),
    [B_DBIAS] = SKR_OUT(activation_backward, dbias, 0, skr_floats, "[N], gated [2N]: gradient of bias"),
    [B_ACT] = SKR_OPTION_ENUM(activation_backward, act, ACTS, "as in forward"),
    [B_GATED] = SKR_OPTION_ENUM(activation_backward, gated, GATEDS, "as in forward"),
    [B_ALPHA] = SKR_OPTION_F32(activation_backward, alpha, 1.702, "as in forward"),
    [B_LIMIT] = SKR_OPTION_F32(activation_backward, limit, 7, "as in forward"),
    [B_ACCUMULATE] = SKR_OPTION_BOOL(activation_backward, accumulate, "dbias is added to what the tensor holds"),
};

/* ---------------------------------------------------------------- check */

/* The options of both directions. */
typedef struct options {
    int32_t act, gated;
    float alpha, limit;
} options;

/* x and up as the two row tensors that kernels see: of x [..., 2N] each half becomes a view [..., N]. */
static saker_status split(skr_call *call, const skr_view *x, const skr_view *up, const options *o, skr_view *gate,
                          skr_view *other)
{
    *gate = *x;
    *other = *up;
    if (x->ndim < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has no dimensions, expected at least 1 ([..., N])", x->name);
    if (o->act == SAKER_ACT_SWIGLU_OAI && !o->gated && !up->present)
        return skr_fail(call, SAKER_INVALID_ARG, "act is swiglu_oai, which is gated: expected up, or gated");
    if (!o->gated)
        return SAKER_OK;
    if (up->present)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given but gated says that it is inside of %s", up->name,
                        x->name);
    int last = x->ndim - 1;
    char text[192];
    if (x->shape[last] % 2)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected an even last dimension: gate and up",
                        x->name, skr_shape_text(x, text));
    SKR_TRY(skr_last_contiguous(call, x));
    int64_t n = x->shape[last] / 2, apart = o->gated == SAKER_GATED_HALVES ? n : 1;
    gate->shape[last] = n;
    gate->stride[last] = 1;
    gate->count = x->count / 2;
    *other = *gate;
    if (other->data)
        other->data += apart * skr_type_bytes(x->type);
    return SAKER_OK;
}

static saker_status check_bias(skr_call *call, const skr_view *v, int64_t columns, skr_param *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    char text[192];
    if (v->ndim != 1 || v->shape[0] != columns)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (one for each column of x)", v->name,
                        skr_shape_text(v, text), (long long)columns);
    SKR_TRY(skr_last_contiguous(call, v));
    *out = (skr_param){.data = v->data, .type = v->type};
    return SAKER_OK;
}

static saker_status check_head(skr_call *call, const skr_view *gate, const skr_view *up, const skr_view *bias,
                               const options *o, skr_act_head *a)
{
    if (o->limit < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "limit is %g, expected 0 (the default, 7) or more", (double)o->limit);
    if (o->act != SAKER_ACT_SWIGLU_OAI && ((o->alpha != 0 && o->alpha != 1.702f) || (o->limit != 0 && o->limit != 7)))
        return skr_fail(call, SAKER_INVALID_ARG, "alpha is %g and limit %g, which only act swiglu_oai has",
                        (double)o->alpha, (double)o->limit);
    a->gated = up->present;
    a->n = gate->shape[gate->ndim - 1];
    a->act = o->act;
    a->alpha = o->alpha == 0 ? 1.702f : o->alpha;
    a->limit = o->limit == 0 ? 7.0f : o->limit;
    a->step = o->gated == SAKER_GATED_INTERLEAVED ? 2 : 1;
    a->bias_step = a->step;
    a->bias_up = a->step == 2 ? 1 : a->n;
    return check_bias(call, bias, a->gated ? 2 * a->n : a->n, &a->bias);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{X, Y}, {UP, Y}};
    const saker_activation_args *a = args;
    const options o = {a->act, a->gated, a->alpha, a->limit};
    skr_activation_job *job = out;
    memset(job, 0, sizeof *job);
    skr_view gate, up;
    SKR_TRY(split(call, &v[X], &v[UP], &o, &gate, &up));
    SKR_TRY(skr_check_quant(call, &v[Y], &v[Y_QUANT], &v[Y_SCALE], a->quant));
    SKR_TRY(check_head(call, &gate, &up, &v[BIAS], &o, &job->a));
    job->quant = a->quant;

    skr_row_builder b;
    skr_rows_start(&b, &gate);
    SKR_TRY(skr_rows_add(call, &b, &gate, &job->a.gate));
    SKR_TRY(skr_rows_add(call, &b, &up, &job->a.up));
    SKR_TRY(skr_rows_add(call, &b, &v[Y], &job->y));
    SKR_TRY(skr_rows_add(call, &b, &v[Y_QUANT], &job->y_quant));
    SKR_TRY(skr_rows_add_scale(call, &b, &v[Y_SCALE], a->quant, job->a.n, &job->scale));
    SKR_TRY(skr_rows_merge(call, &b, &job->a.rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    /* A row without columns has a scale, that of nothing. */
    *empty = gate.count == 0 && !(a->quant == SAKER_QUANT_ROW && v[Y_SCALE].count);
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{B_X, B_DX}, {B_DY, B_DX}, {B_UP, B_DUP}, {B_DY, B_DUP}};
    const saker_activation_backward_args *a = args;
    const options o = {a->act, a->gated, a->alpha, a->limit};
    skr_activation_backward_job *job = out;
    memset(job, 0, sizeof *job);
    skr_view gate, up, dgate, dup;
    SKR_TRY(split(call, &v[B_X], &v[B_UP], &o, &gate, &up));
    if (!v[B_DX].present && !v[B_DUP].present && !v[B_DBIAS].present)
        return skr_fail(call, SAKER_NULL_POINTER, "dx, dup and dbias are all NULL, expected at least one of them");
    if (v[B_DUP].present && !v[B_UP].present)
        return skr_fail(call, SAKER_INVALID_ARG, "dup is given but up is NULL, expected up, whose gradient it is");
    if (v[B_DX].present)
        SKR_TRY(skr_same_shape(call, &v[B_DX], &v[B_X]));
    dgate = v[B_DX];
    dup = v[B_DUP];
    if (v[B_DX].present && a->gated)
        SKR_TRY(split(call, &v[B_DX], &v[B_DUP], &o, &dgate, &dup));
    SKR_TRY(check_head(call, &gate, &up, &v[B_BIAS], &o, &job->a));
    SKR_TRY(check_bias(call, &v[B_DBIAS], job->a.gated ? 2 * job->a.n : job->a.n, &job->dbias));
    job->accumulate = a->accumulate;

    skr_row_builder b;
    skr_rows_start(&b, &gate);
    SKR_TRY(skr_rows_add(call, &b, &gate, &job->a.gate));
    SKR_TRY(skr_rows_add(call, &b, &up, &job->a.up));
    SKR_TRY(skr_rows_add(call, &b, &v[B_DY], &job->dy));
    SKR_TRY(skr_rows_add(call, &b, &dgate, &job->dgate));
    SKR_TRY(skr_rows_add(call, &b, &dup, &job->dup));
    SKR_TRY(skr_rows_merge(call, &b, &job->a.rows));
    SKR_TRY(skr_check_alias(call, v, N_B_FIELDS, allowed, sizeof allowed / sizeof *allowed));
    /* Without rows there is no dx, but the empty sum dbias is zero: written, or added (that is, left). */
    *empty = gate.count == 0 && !(job->dbias.data && !a->accumulate);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

static bool is_compact(const skr_row_space *rows, const skr_rows *t, int64_t n)
{
    return !t->data || rows->m == 1 || (rows->n_dims == 1 && t->stride[0] == n);
}

/* Rows that follow one another without a gap are one long row, where no column has a number of its own. */
static void flatten(skr_act_head *a, bool compact)
{
    if (compact && a->step == 1 && !a->bias.data && a->rows.m < SKR_HUGE / (a->n + 1)) {
        a->n *= a->rows.m;
        a->rows = (skr_row_space){.m = 1, .n_dims = 1, .dims = {1}};
    }
}

/* Rows for a task, and where columns do not belong together, pieces of a row. */
static void cut(skr_act_head *a, bool whole_rows, int64_t row_bytes, int width)
{
    enum { PIECE = 16384 };
    a->piece = whole_rows ? skr_max(a->n, 1) : PIECE;
    a->pieces = skr_max(1, skr_ceil_div(a->n, a->piece));
    a->rows_per_task = a->pieces > 1 ? 1 : skr_rows_per_task(a->rows.m, row_bytes, width);
}

static void plan_bias(skr_act_head *a, int64_t *at, skr_plan *plan)
{
    int64_t stride, columns = a->gated ? 2 * a->n : a->n;
    a->bias_at = -1;
    if (!a->bias.data)
        return;
    skr_plan_param(&a->bias, 0, 1, columns, at, &a->bias_at, &stride);
    if (a->bias_at >= 0 && a->rows.m)
        skr_cpu_step(plan, SKR_ACT_PARAMS, skr_ceil_div(columns, SKR_ACT_PARAM_PIECE));
}

static saker_status plan_cpu(skr_call *call, skr_activation_job *job, const skr_target *target, skr_plan *plan)
{
    skr_act_head *a = &job->a;
    bool rows_matter = job->quant == SAKER_QUANT_ROW || job->quant == SAKER_QUANT_BLOCK;
    flatten(a, !rows_matter && is_compact(&a->rows, &a->gate, a->n) && is_compact(&a->rows, &a->up, a->n) &&
                   is_compact(&a->rows, &job->y, a->n) && is_compact(&a->rows, &job->y_quant, a->n));
    int64_t at = 0, bytes = skr_row_bytes(&a->gate, a->n) + skr_row_bytes(&a->up, a->n) + skr_row_bytes(&job->y, a->n) +
                            skr_row_bytes(&job->y_quant, a->n);
    plan->traffic_bytes = skr_mul(a->rows.m, bytes);
    plan->variant = job->quant ? "rows quantised" : a->gated ? "rows gated" : "rows";
    plan_bias(a, &at, plan);
    cut(a, job->quant == SAKER_QUANT_ROW, bytes, target->width);
    job->scratch_bytes = 0;
    if (job->quant && !job->y.data)
        job->scratch_bytes = (int64_t)skr_align_up((size_t)skr_mul(a->piece, sizeof(float)), 256);
    job->scratch_at = skr_take(&at, skr_mul(target->width, job->scratch_bytes));
    skr_cpu_step(plan, SKR_ACT_ROWS, skr_mul(a->pieces, skr_ceil_div(a->rows.m, a->rows_per_task)));
    return skr_take_done(call, at, plan);
}

static saker_status plan_backward_cpu(skr_call *call, skr_activation_backward_job *job, const skr_target *target,
                                      skr_plan *plan)
{
    skr_act_head *a = &job->a;
    const skr_row_space *rows = &a->rows;
    flatten(a, !job->dbias.data && is_compact(rows, &a->gate, a->n) && is_compact(rows, &a->up, a->n) &&
                   is_compact(rows, &job->dy, a->n) && is_compact(rows, &job->dgate, a->n) &&
                   is_compact(rows, &job->dup, a->n));
    int64_t at = 0, columns = a->gated ? 2 * a->n : a->n;
    int64_t bytes = skr_row_bytes(&a->gate, a->n) + skr_row_bytes(&a->up, a->n) + skr_row_bytes(&job->dy, a->n) +
                    skr_row_bytes(&job->dgate, a->n) + skr_row_bytes(&job->dup, a->n);
    plan->traffic_bytes = skr_mul(rows->m, bytes);
    plan->variant = job->dbias.data ? "rows sums" : a->gated ? "rows gated" : "rows";
    plan_bias(a, &at, plan);
    cut(a, false, bytes, target->width);
    if (job->dbias.data) {
        job->rows_per_part = skr_rows_per_part(rows->m);
        job->n_parts = skr_ceil_div(rows->m, job->rows_per_part);
        job->sums_at = skr_take(&at, skr_mul(job->n_parts, skr_mul(skr_part_stride(columns), sizeof(float))));
        a->rows_per_task = job->rows_per_part;
    }
    if (rows->m && a->n)
        skr_cpu_step(plan, SKR_ACT_ROWS, skr_mul(a->pieces, skr_ceil_div(rows->m, a->rows_per_task)));
    if (job->dbias.data)
        skr_cpu_step(plan, SKR_ACT_SUM, skr_ceil_div(columns, SKR_ACT_SUM_PIECE));
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_activation_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_activation_backward_plan_cuda(call, job, target, out);
    return plan_backward_cpu(call, job, target, out);
}

const skr_op skr_op_activation = {
    .info = {.name = "activation",
             .doc = "activation functions, plain and gated (SwiGLU, GeGLU), with bias and quantised output",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_activation_args)},
    .v1_size = sizeof(saker_activation_args),
    .reserved_at = offsetof(saker_activation_args, reserved),
    .job_size = sizeof(skr_activation_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_activation_backward = {
    .info = {.name = "activation_backward",
             .doc = "gradients of activation: dx (dgate and dup), dbias",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_activation_backward_args)},
    .v1_size = sizeof(saker_activation_backward_args),
    .reserved_at = offsetof(saker_activation_backward_args, reserved),
    .job_size = sizeof(skr_activation_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};

_Static_assert(sizeof(skr_activation_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_activation_backward_job) <= SKR_JOB_BYTES, "the job must fit");
