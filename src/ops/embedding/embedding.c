/* embedding.c - rows of a table by index, and the gradient: fields, checks, and the CPU plans.
 * SPDX-License-Identifier: Apache-2.0 */
#include "embedding_op.h"

#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (embedding_cuda.c). */
saker_status skr_embedding_backward_plan_cuda(skr_call *call, skr_embedding_backward_job *job, const skr_target *target,
                                              skr_plan *plan);

enum { TABLE, IDS, OUT, N_FIELDS };

static const saker_field fields[N_FIELDS] = {
    [TABLE] = SKR_IN(embedding, table, 1, skr_floats, "[V, D]"),
    [IDS] = SKR_IN(embedding, ids, 1, skr_index_types, "[...]: rows of table"),
    [OUT] = SKR_OUT(embedding, out, 1, skr_floats, "[..., D]: the rows"),
};

enum { B_DOUT, B_IDS, B_DTABLE, B_PADDING, B_HAS_PADDING, B_ACCUMULATE, N_B_FIELDS };

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DOUT] = SKR_IN(embedding_backward, dout, 1, skr_floats, "[..., D]: gradient of out"),
    [B_IDS] = SKR_IN(embedding_backward, ids, 1, skr_index_types, "[...]: as in forward"),
    [B_DTABLE] = SKR_INOUT(embedding_backward, dtable, 1, skr_floats, "[V, D]: gradient of table"),
    [B_PADDING] = SKR_OPTION_I64(embedding_backward, padding_idx, 0, "id without a gradient, with has_padding_idx"),
    [B_HAS_PADDING] = SKR_OPTION_BOOL(embedding_backward, has_padding_idx, "padding_idx counts"),
    [B_ACCUMULATE] = SKR_OPTION_BOOL(embedding_backward, accumulate, "added to what dtable holds"),
};

/* ---------------------------------------------------------------- check */

/* table [V, D], rows [..., D] and ids of its leading shape. */
static saker_status check_shapes(skr_call *call, const skr_view *table, const skr_view *rows, const skr_view *ids)
{
    char text[192], other[192];
    if (table->ndim != 2)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected two dimensions, [V, D]", table->name,
                        skr_shape_text(table, text));
    if (table->shape[0] > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "%s has %lld rows, expected less than 2^31", table->name,
                        (long long)table->shape[0]);
    if (rows->ndim < 1 || rows->shape[rows->ndim - 1] != table->shape[1])
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s and %s has shape %s, expected the same last dimension", rows->name,
                        skr_shape_text(rows, text), table->name, skr_shape_text(table, other));
    bool same = ids->ndim == rows->ndim - 1;
    for (int i = 0; same && i < ids->ndim; i++)
        same = ids->shape[i] == rows->shape[i];
    if (!same)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s and %s has shape %s, expected that without the last "
                        "dimension",
                        ids->name, skr_shape_text(ids, text), rows->name, skr_shape_text(rows, other));
    return skr_last_contiguous(call, table);
}

static skr_param table_of(const skr_view *v)
{
    return (skr_param){.data = v->data, .stride = v->stride[0], .type = v->type};
}

static saker_status check_rows(skr_call *call, const skr_view *rows, const skr_view *ids, skr_rows *rows_out,
                               skr_rows *ids_out, skr_row_space *space)
{
    skr_row_builder b;
    skr_rows_start(&b, rows);
    SKR_TRY(skr_rows_add(call, &b, rows, rows_out));
    SKR_TRY(skr_rows_add_stat(call, &b, ids, ids_out));
    return skr_rows_merge(call, &b, space);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    (void)args;
    skr_embedding_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_shapes(call, &v[TABLE], &v[OUT], &v[IDS]));
    SKR_TRY(check_rows(call, &v[OUT], &v[IDS], &job->out, &job->ids, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_FIELDS, NULL, 0));
    job->table = table_of(&v[TABLE]);
    job->v = v[TABLE].shape[0];
    job->d = v[TABLE].shape[1];
    *empty = v[OUT].count == 0;
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_embedding_backward_args *a = args;
    skr_embedding_backward_job *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_shapes(call, &v[B_DTABLE], &v[B_DOUT], &v[B_IDS]));
    SKR_TRY(check_rows(call, &v[B_DOUT], &v[B_IDS], &job->dout, &job->ids, &job->rows));
    SKR_TRY(skr_check_alias(call, v, N_B_FIELDS, NULL, 0));
    if (job->rows.m > (int64_t)1 << 30)
        return skr_fail(call, SAKER_UNSUPPORTED, "ids has %lld elements, expected at most 2^30",
                        (long long)job->rows.m);
    if (!a->has_padding_idx && a->padding_idx)
        return skr_fail(call, SAKER_INVALID_ARG, "padding_idx is %lld but has_padding_idx is 0, expected 1",
                        (long long)a->padding_idx);
    job->dtable = table_of(&v[B_DTABLE]);
    job->v = v[B_DTABLE].shape[0];
    job->d = v[B_DTABLE].shape[1];
    job->padding = a->has_padding_idx ? a->padding_idx : -1;
    job->accumulate = a->accumulate;
    *empty = v[B_DTABLE].count == 0 || (job->rows.m == 0 && a->accumulate);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_embedding_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_embedding_plan_cuda(call, j, target, out);
    int64_t bytes = skr_mul(j->d, skr_type_bytes(j->table.type)) + skr_row_bytes(&j->out, j->d);
    out->variant = j->table.type == j->out.type ? "copy" : "convert";
    out->traffic_bytes = skr_mul(j->rows.m, bytes);
    j->rows_per_task = skr_rows_per_task(j->rows.m, bytes, target->width);
    skr_cpu_step(out, 0, skr_ceil_div(j->rows.m, j->rows_per_task));
    return SAKER_OK;
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    skr_embedding_backward_job *j = job;
    if (target->backend == SKR_CUDA)
        return skr_embedding_backward_plan_cuda(call, j, target, out);
    int64_t at = 0;
    out->variant = "sort and sum";
    int64_t table = skr_mul(j->v, skr_mul(j->d, skr_type_bytes(j->dtable.type)));
    out->traffic_bytes = skr_mul(j->rows.m, skr_row_bytes(&j->dout, j->d)) + table;
    if (!j->accumulate) /* dtable is no input then */
        skr_write_past(&j->head, target, table, out);
    j->starts_at = skr_take(&at, skr_mul(j->v + 1, sizeof(int32_t)));
    j->places_at = skr_take(&at, skr_mul(j->rows.m, sizeof(int32_t)));
    j->sums_at = skr_take(&at, skr_mul(target->width, 2 * SKR_EMBED_COLUMNS * sizeof(float)));
    skr_cpu_step(out, SKR_EMBED_SORT, 1);
    if (!j->accumulate)
        skr_cpu_step(out, SKR_EMBED_ZERO, skr_ceil_div(j->v, SKR_EMBED_TABLE_ROWS));
    skr_cpu_step(out, SKR_EMBED_SUM,
                 skr_mul(skr_ceil_div(j->v, SKR_EMBED_TABLE_ROWS), skr_ceil_div(j->d, SKR_EMBED_COLUMNS)));
    return skr_take_done(call, at, out);
}

const skr_op skr_op_embedding = {
    .info = {.name = "embedding",
             .doc = "rows of a table, picked by index",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_embedding_args)},
    .v1_size = sizeof(saker_embedding_args),
    .job_size = sizeof(skr_embedding_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_embedding_backward = {
    .info = {.name = "embedding_backward",
             .doc = "gradient of embedding's table, deterministic",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_embedding_backward_args)},
    .v1_size = sizeof(saker_embedding_backward_args),
    .job_size = sizeof(skr_embedding_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};

_Static_assert(sizeof(skr_embedding_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_embedding_backward_job) <= SKR_JOB_BYTES, "the job must fit");
