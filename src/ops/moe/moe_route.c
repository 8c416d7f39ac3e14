/* moe_route.c - which experts tokens go to, and the gradient of their weights: fields, checks, and the CPU plans.
 * SPDX-License-Identifier: Apache-2.0 */
#include "moe_route.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (moe_route_cuda.c). */
saker_status skr_moe_route_plan_cuda(skr_call *call, skr_moe_route_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_moe_route_backward_plan_cuda(skr_call *call, skr_moe_route_backward_job *job, const skr_target *target,
                                              skr_plan *plan);

enum {
    LOGITS,
    BIAS,
    IDS,
    WEIGHTS,
    COUNTS,
    OFFSETS,
    ORDER,
    PLACE,
    TOKEN,
    N_GROUPS,
    TOP_GROUPS,
    SCALE,
    SCORE,
    GROUP_SCORE,
    RENORMALISE,
    N_FIELDS
};

static const saker_field fields[N_FIELDS] = {
    [LOGITS] = SKR_IN(moe_route, logits, 1, skr_floats, "[..., E]: a row for each token"),
    [BIAS] = SKR_IN(moe_route, bias, 0, skr_f32_only, "[E]: added to the scores, only to choose"),
    [IDS] = SKR_OUT(moe_route, ids, 1, skr_i32_only, "[..., k]: the experts chosen, best first"),
    [WEIGHTS] = SKR_OUT(moe_route, weights, 0, skr_floats, "[..., k]: their weights"),
    [COUNTS] = SKR_OUT(moe_route, counts, 0, skr_i32_only, "[E]: rows of each expert"),
    [OFFSETS] = SKR_OUT(moe_route, offsets, 0, skr_i32_only, "[E + 1]: where they begin, sorted by expert"),
    [ORDER] = SKR_OUT(moe_route, order, 0, skr_i32_only, "[T k]: the row t * k + j at each sorted place"),
    [PLACE] = SKR_OUT(moe_route, place, 0, skr_i32_only, "[T k]: the sorted place of each row"),
    [TOKEN] = SKR_OUT(moe_route, token, 0, skr_i32_only, "[T k]: the token t at each sorted place"),
    [N_GROUPS] = SKR_OPTION_I64(moe_route, n_groups, 0, "groups of neighbouring experts; 0: none"),
    [TOP_GROUPS] = SKR_OPTION_I64(moe_route, top_groups, 0, "groups whose experts can be chosen"),
    [SCALE] = SKR_OPTION_F32(moe_route, scale, 1, "factor of the weights"),
    [SCORE] = SKR_OPTION_ENUM(moe_route, score, "softmax|sigmoid", "what makes scores of logits"),
    [GROUP_SCORE] = SKR_OPTION_ENUM(moe_route, group_score, "max|top2", "what a group is worth"),
    [RENORMALISE] = SKR_OPTION_BOOL(moe_route, renormalise, "weights are divided by their sum"),
};

enum { B_DWEIGHTS, B_IDS, B_LOGITS, B_DLOGITS, B_SCALE, B_SCORE, B_RENORMALISE, N_B_FIELDS };

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DWEIGHTS] = SKR_IN(moe_route_backward, dweights, 1, skr_floats, "[..., k]: gradient of weights"),
    [B_IDS] = SKR_IN(moe_route_backward, ids, 1, skr_i32_only, "[..., k]: from forward"),
    [B_LOGITS] = SKR_IN(moe_route_backward, logits, 1, skr_floats, "[..., E]: forward's"),
    [B_DLOGITS] = SKR_OUT(moe_route_backward, dlogits, 1, skr_floats, "[..., E]: gradient of logits"),
    [B_SCALE] = SKR_OPTION_F32(moe_route_backward, scale, 1, "forward's"),
    [B_SCORE] = SKR_OPTION_ENUM(moe_route_backward, score, "softmax|sigmoid", "forward's"),
    [B_RENORMALISE] = SKR_OPTION_BOOL(moe_route_backward, renormalise, "forward's"),
};

/* ---------------------------------------------------------------- check */

static saker_status check_experts(skr_call *call, const skr_view *logits)
{
    SKR_TRY(skr_last_contiguous(call, logits));
    int64_t n = logits->shape[logits->ndim - 1];
    if (n > SKR_ROUTE_EXPERTS)
        return skr_fail(call, SAKER_UNSUPPORTED, "logits has rows of %lld experts, expected at most %d", (long long)n,
                        SKR_ROUTE_EXPERTS);
    return SAKER_OK;
}

/* v is [..., k] beside logits [..., E]; first sets k. */
static saker_status check_k(skr_call *call, const skr_view *v, const skr_view *logits, const skr_view *first,
                            int64_t *k)
{
    char text[192], other[192];
    if (!v->present)
        return SAKER_OK;
    int64_t n = logits->shape[logits->ndim - 1];
    if (v->ndim < 1 || v->shape[v->ndim - 1] > n)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s, expected a last dimension k of at most %lld (E of logits)", v->name,
                        skr_shape_text(v, text), (long long)n);
    if (v->shape[v->ndim - 1] != first->shape[first->ndim - 1])
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s and %s has shape %s, expected the same k", v->name,
                        skr_shape_text(v, text), first->name, skr_shape_text(first, other));
    *k = v->shape[v->ndim - 1];
    return SAKER_OK;
}

/* A list of n numbers, side by side. */
static saker_status check_list(skr_call *call, const skr_view *v, int64_t n, const char *what, void *out)
{
    char text[192];
    if (!v->present)
        return SAKER_OK;
    if (v->ndim != 1 || v->shape[0] != n)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (%s)", v->name,
                        skr_shape_text(v, text), (long long)n, what);
    memcpy(out, &v->data, sizeof v->data);
    return skr_last_contiguous(call, v);
}

static saker_status check_groups(skr_call *call, const saker_moe_route_args *a, skr_moe_route_job *job)
{
    int64_t groups = a->n_groups, top = a->top_groups, n = job->n;
    if (groups < 0 || (groups > 0 && (groups > skr_max(n, 1) || n % groups)))
        return skr_fail(call, SAKER_INVALID_ARG, "n_groups is %lld, expected 0 or a divisor of the %lld experts",
                        (long long)groups, (long long)n);
    if (groups == 0 && (top || a->group_score))
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given, expected n_groups with it",
                        top ? "top_groups" : "group_score");
    if (groups == 0)
        return SAKER_OK;
    if (top < 1 || top > groups)
        return skr_fail(call, SAKER_INVALID_ARG, "top_groups is %lld, expected 1 to n_groups, %lld", (long long)top,
                        (long long)groups);
    if (job->k > n / groups * top)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "top_groups is %lld, of %lld experts each, expected at least as many as the %lld of ids",
                        (long long)top, (long long)(n / groups), (long long)job->k);
    job->n_groups = (int32_t)groups;
    job->top_groups = (int32_t)top;
    job->per_group = (int32_t)(n / groups);
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_moe_route_args *a = args;
    skr_moe_route_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_experts(call, &v[LOGITS]));
    job->n = v[LOGITS].shape[v[LOGITS].ndim - 1];
    SKR_TRY(check_k(call, &v[IDS], &v[LOGITS], &v[IDS], &job->k));
    SKR_TRY(check_k(call, &v[WEIGHTS], &v[LOGITS], &v[IDS], &job->k));
    skr_row_builder b;
    skr_rows_start(&b, &v[LOGITS]);
    SKR_TRY(skr_rows_add(call, &b, &v[LOGITS], &job->logits));
    SKR_TRY(skr_rows_add_block(call, &b, &v[IDS], job->k, &job->ids));
    SKR_TRY(skr_rows_add_block(call, &b, &v[WEIGHTS], job->k, &job->weights));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    int64_t all = skr_mul(job->rows.m, job->k);
    SKR_TRY(check_list(call, &v[BIAS], job->n, "E", &job->bias));
    SKR_TRY(check_list(call, &v[COUNTS], job->n, "E", &job->counts));
    SKR_TRY(check_list(call, &v[OFFSETS], job->n + 1, "E + 1", &job->offsets));
    SKR_TRY(check_list(call, &v[ORDER], all, "T k", &job->order));
    SKR_TRY(check_list(call, &v[PLACE], all, "T k", &job->place));
    SKR_TRY(check_list(call, &v[TOKEN], all, "T k", &job->token));
    SKR_TRY(check_groups(call, a, job));
    job->sorted = job->counts || job->offsets || job->order || job->place || job->token;
    if (job->sorted && all > (int64_t)1 << 30)
        return skr_fail(call, SAKER_UNSUPPORTED, "ids has %lld elements, expected at most 2^30 where they are sorted",
                        (long long)all);
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    job->score = a->score;
    job->group_score = a->group_score;
    job->renormalise = a->renormalise;
    job->scale = a->scale == 0 ? 1 : a->scale;
    job->all_scores = job->bias || job->group_score == SAKER_MOE_GROUP_TOP2;
    *empty = all == 0 && !job->counts && !job->offsets;
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_moe_route_backward_args *a = args;
    skr_moe_route_backward_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_experts(call, &v[B_LOGITS]));
    job->n = v[B_LOGITS].shape[v[B_LOGITS].ndim - 1];
    SKR_TRY(check_k(call, &v[B_DWEIGHTS], &v[B_LOGITS], &v[B_DWEIGHTS], &job->k));
    SKR_TRY(check_k(call, &v[B_IDS], &v[B_LOGITS], &v[B_DWEIGHTS], &job->k));
    skr_row_builder b;
    skr_rows_start(&b, &v[B_LOGITS]);
    SKR_TRY(skr_rows_add(call, &b, &v[B_LOGITS], &job->logits));
    SKR_TRY(skr_rows_add(call, &b, &v[B_DLOGITS], &job->dlogits));
    SKR_TRY(skr_rows_add_block(call, &b, &v[B_DWEIGHTS], job->k, &job->dweights));
    SKR_TRY(skr_rows_add_block(call, &b, &v[B_IDS], job->k, &job->ids));
    SKR_TRY(skr_rows_merge(call, &b, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_B_FIELDS, NULL, 0));
    job->score = a->score;
    job->renormalise = a->renormalise;
    job->scale = a->scale == 0 ? 1 : a->scale;
    *empty = v[B_DLOGITS].count == 0;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

/* Bytes of some rows as wide as the experts and some as wide as the choices. */
static int64_t scratch_bytes(int64_t n, int64_t rows, int64_t k, int64_t lists)
{
    int64_t wide = (int64_t)skr_align_up((size_t)n, SKR_ROUTE_PAD),
            narrow = (int64_t)skr_align_up((size_t)k, SKR_ROUTE_PAD);
    return (int64_t)skr_align_up((size_t)(rows * wide + lists * narrow) * sizeof(float), 256);
}

static saker_status plan_cpu(skr_call *call, skr_moe_route_job *job, const skr_target *target, skr_plan *plan)
{
    int64_t m = job->k ? job->rows.m : 0, at = 0;
    int64_t bytes = skr_row_bytes(&job->logits, job->n) + 8 * job->k;
    plan->variant = job->sorted ? "choose and sort" : "choose";
    plan->traffic_bytes = skr_mul(m, bytes);
    job->tile_rows = skr_rows_per_task(m, bytes, target->width);
    job->tiles = (int32_t)skr_min(skr_ceil_div(m, job->tile_rows), INT32_MAX);
    if (job->sorted) {
        job->counts_at = skr_take(&at, skr_mul(job->tiles, job->n * (int64_t)sizeof(int32_t)));
        job->starts_at = skr_take(&at, (job->n + 1) * (int64_t)sizeof(int32_t));
    }
    job->scratch_bytes = scratch_bytes(job->n, SKR_ROUTE_ROWS, job->k, SKR_ROUTE_LISTS);
    job->scratch_at = skr_take(&at, skr_mul(skr_min(target->width, job->tiles), job->scratch_bytes));
    if (m)
        skr_cpu_step(plan, SKR_ROUTE_CHOOSE, job->tiles);
    if (job->sorted)
        skr_cpu_step(plan, SKR_ROUTE_ADD_UP, 1);
    if (m && (job->order || job->place || job->token))
        skr_cpu_step(plan, SKR_ROUTE_PLACE, job->tiles);
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    return (target->backend == SKR_CUDA ? skr_moe_route_plan_cuda : plan_cpu)(call, job, target, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_moe_route_backward_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_moe_route_backward_plan_cuda(call, j, target, out);
    int64_t bytes = skr_row_bytes(&j->logits, j->n) + skr_row_bytes(&j->dlogits, j->n) + 8 * j->k;
    out->variant = "rows";
    out->traffic_bytes = skr_mul(j->rows.m, bytes);
    j->rows_per_task = skr_rows_per_task(j->rows.m, bytes, target->width);
    j->scratch_bytes = scratch_bytes(j->n, 1, j->k, 2);
    int64_t tasks = skr_ceil_div(j->rows.m, j->rows_per_task);
    skr_cpu_step(out, 0, tasks);
    return skr_take_done(call, skr_mul(skr_min(target->width, tasks), j->scratch_bytes), out);
}

const skr_op skr_op_moe_route = {
    .info = {.name = "moe_route",
             .doc = "experts and weights of tokens, and the tokens in the order of their experts",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_moe_route_args)},
    .v1_size = sizeof(saker_moe_route_args),
    .job_size = sizeof(skr_moe_route_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_moe_route_backward = {
    .info = {.name = "moe_route_backward",
             .doc = "gradient of moe_route's logits",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_moe_route_backward_args)},
    .v1_size = sizeof(saker_moe_route_backward_args),
    .reserved_at = offsetof(saker_moe_route_backward_args, reserved),
    .job_size = sizeof(skr_moe_route_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};

_Static_assert(sizeof(skr_moe_route_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_moe_route_backward_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert((int)SKR_ROUTE_SIGMOID == (int)SAKER_MOE_SIGMOID && (int)SKR_ROUTE_TOP2 == (int)SAKER_MOE_GROUP_TOP2,
               "the same numbers");
