/* attention_merge.c - attention_merge: fields, checks, CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "attention_op.h"

saker_status skr_attention_merge_plan_cuda(skr_call *call, skr_attention_merge_job *job, const skr_target *target,
                                           skr_plan *plan);

enum { O_A, LSE_A, O_B, LSE_B, O, LSE, N_TENSORS };

static const saker_field fields[] = {
    [O_A] = SKR_IN(attention_merge, o_a, 1, skr_floats, "[B, S, H, D], [B, H, S, D] or [T, H, D], as layout says"),
    [LSE_A] = SKR_IN(attention_merge, lse_a, 1, skr_f32_only, "[B, H, S] or [H, T]"),
    [O_B] = SKR_IN(attention_merge, o_b, 1, skr_floats, "o_a's shape"),
    [LSE_B] = SKR_IN(attention_merge, lse_b, 1, skr_f32_only, "lse_a's shape"),
    [O] = SKR_OUT(attention_merge, o, 1, skr_floats, "o_a's shape"),
    [LSE] = SKR_OUT(attention_merge, lse, 0, skr_f32_only, "lse_a's shape"),
    SKR_OPTION_ENUM(attention_merge, layout, "bshd|bhsd|thd", "order of the dimensions"),
};

/* lse as o without its last dimension: [B, H, S] and [H, T] with head and token in o's order, and a last one of size 1
 * (whose stride no row needs). */
static saker_status like_o(skr_call *call, const skr_view *lse, const skr_view *o, int layout, skr_view *out)
{
    skr_attention_places p = skr_attention_place_of[layout];
    char text[192];
    int head = p.batch < 0 ? 0 : 1;
    *out = *lse;
    if (!lse->present)
        return SAKER_OK;
    if (lse->ndim != head + 2 || (head && lse->shape[0] != o->shape[0]) || lse->shape[head] != o->shape[p.head] ||
        lse->shape[head + 1] != o->shape[p.token])
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected %s of o_a", lse->name,
                        skr_shape_text(lse, text), head ? "[B, H, S]" : "[H, T]");
    out->shape[p.head] = lse->shape[head];
    out->stride[p.head] = lse->stride[head];
    out->shape[p.token] = lse->shape[head + 1];
    out->stride[p.token] = lse->stride[head + 1];
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{O_A, O}, {O_B, O}, {LSE_A, LSE}, {LSE_B, LSE}};
    const saker_attention_merge_args *a = args;
    skr_attention_merge_job *job = out;
    skr_view lse[3];
    skr_row_builder rows;
    memset(job, 0, sizeof *job);
    SKR_TRY(skr_attention_check_rank(call, &v[O_A], a->layout));
    job->d = v[O_A].shape[v[O_A].ndim - 1];
    SKR_TRY(like_o(call, &v[LSE_A], &v[O_A], a->layout, &lse[0]));
    SKR_TRY(like_o(call, &v[LSE_B], &v[O_A], a->layout, &lse[1]));
    SKR_TRY(like_o(call, &v[LSE], &v[O_A], a->layout, &lse[2]));
    skr_rows_start(&rows, &v[O_A]);
    SKR_TRY(skr_rows_add(call, &rows, &v[O_A], &job->o_a));
    SKR_TRY(skr_rows_add(call, &rows, &v[O_B], &job->o_b));
    SKR_TRY(skr_rows_add(call, &rows, &v[O], &job->o));
    SKR_TRY(skr_rows_add_stat(call, &rows, &lse[0], &job->lse_a));
    SKR_TRY(skr_rows_add_stat(call, &rows, &lse[1], &job->lse_b));
    SKR_TRY(skr_rows_add_stat(call, &rows, &lse[2], &job->lse));
    SKR_TRY(skr_rows_merge(call, &rows, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, allowed, sizeof allowed / sizeof *allowed));
    *empty = job->rows.m == 0 || (job->d == 0 && !job->lse.data);
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *given, const skr_target *target, skr_plan *out)
{
    skr_attention_merge_job *job = given;
    if (target->backend == SKR_CUDA)
        return skr_attention_merge_plan_cuda(call, job, target, out);
    int64_t row = skr_row_bytes(&job->o_a, job->d) + skr_row_bytes(&job->o_b, job->d) + skr_row_bytes(&job->o, job->d);
    out->variant = "rows";
    out->traffic_bytes = skr_mul(job->rows.m, row);
    job->rows_per_task = skr_rows_per_task(job->rows.m, row, target->width);
    skr_cpu_step(out, 0, skr_ceil_div(job->rows.m, job->rows_per_task));
    return SAKER_OK;
}

const skr_op skr_op_attention_merge = {
    .info = {.name = "attention_merge",
             .doc = "attention over two sets of keys from the o and lse of each",
             .fields = fields,
             .n_fields = sizeof fields / sizeof *fields,
             .args_size = sizeof(saker_attention_merge_args)},
    .v1_size = sizeof(saker_attention_merge_args),
    .reserved_at = offsetof(saker_attention_merge_args, reserved),
    .job_size = sizeof(skr_attention_merge_job),
    .check = check,
    .plan = plan,
};
