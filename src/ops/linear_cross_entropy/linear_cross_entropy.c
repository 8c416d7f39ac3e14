/* linear_cross_entropy.c - fields and checks. The plan is in linear_cross_entropy_plan.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "linear_cross_entropy_op.h"

enum {
    X,
    WEIGHT,
    TARGET,
    BIAS,
    CLASS_WEIGHT,
    GRAD,
    LOSS,
    LSE,
    DX,
    DWEIGHT,
    DBIAS,
    N_TENSORS,
    SMOOTHING = N_TENSORS,
    Z_LOSS,
    SOFTCAP,
    REDUCTION,
    HAS_IGNORE_INDEX,
    ACCUMULATE,
    ALLOW_TF32,
    IGNORE_INDEX,
    CHUNK_ROWS,
    N_FIELDS
};

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(linear_cross_entropy, x, 1, skr_floats, "[..., H] what the linear layer is given"),
    [WEIGHT] = SKR_IN(linear_cross_entropy, weight, 1, skr_floats, "[V, H] of x's type: logits = x * weight^T + bias"),
    [TARGET] =
        SKR_IN(linear_cross_entropy, target, 1, skr_index_types, "[M] or x's leading shape: the class of each row"),
    [BIAS] = SKR_IN(linear_cross_entropy, bias, 0, skr_floats, "[V] added to each row of logits"),
    [CLASS_WEIGHT] = SKR_IN(linear_cross_entropy, class_weight, 0, skr_floats, "[V] weight of each class; absent: 1"),
    [GRAD] =
        SKR_IN(linear_cross_entropy, grad, 0, skr_f32_only, "[M] or one: gradient that arrives at loss; absent: 1"),
    [LOSS] = SKR_OUT(linear_cross_entropy, loss, 0, skr_f32_only, "[M] (reduction none) or one: the loss"),
    [LSE] =
        SKR_OUT(linear_cross_entropy, lse, 0, skr_f32_only, "[M] or x's leading shape: log of the sum of exponentials"),
    [DX] = SKR_OUT(linear_cross_entropy, dx, 0, skr_floats, "x's shape: gradient of x"),
    [DWEIGHT] = SKR_OUT(linear_cross_entropy, dweight, 0, skr_floats, "[V, H] gradient of weight"),
    [DBIAS] = SKR_OUT(linear_cross_entropy, dbias, 0, skr_floats, "[V] gradient of bias"),
    [SMOOTHING] =
        SKR_OPTION_F32(linear_cross_entropy, label_smoothing, 0, "share of the target that is spread, 0 to 1"),
    [Z_LOSS] = SKR_OPTION_F32(linear_cross_entropy, z_loss, 0, "factor of lse squared in the loss"),
    [SOFTCAP] = SKR_OPTION_F32(linear_cross_entropy, softcap, 0, "logits are softcap * tanh(logits / softcap); 0: not"),
    [REDUCTION] =
        SKR_OPTION_ENUM(linear_cross_entropy, reduction, "none|mean|sum", "how the losses of rows become one"),
    [HAS_IGNORE_INDEX] =
        SKR_OPTION_BOOL(linear_cross_entropy, has_ignore_index, "ignore_index counts; otherwise it is -100"),
    [ACCUMULATE] = SKR_OPTION_BOOL(linear_cross_entropy, accumulate, "dweight += and dbias += instead of ="),
    [ALLOW_TF32] = SKR_OPTION_BOOL(linear_cross_entropy, allow_tf32, "a GPU may round f32 to tf32 in the products"),
    [IGNORE_INDEX] = SKR_OPTION_I64(linear_cross_entropy, ignore_index, 0,
                                    "target of rows that are left out; needs has_ignore_index"),
    [CHUNK_ROWS] = SKR_OPTION_I64(linear_cross_entropy, chunk_rows, 0,
                                  "rows whose logits are held at once; 0: as the workspace's size suggests"),
};

/* ---------------------------------------------------------------- check */

static bool wants_gradient(const skr_view *v)
{
    return v[DX].present || v[DWEIGHT].present || v[DBIAS].present;
}

static saker_status check_options(skr_call *call, const skr_view *v, const saker_linear_cross_entropy_args *a)
{
    if (!v[LOSS].present && !v[LSE].present && !wants_gradient(v))
        return skr_fail(call, SAKER_NULL_POINTER,
                        "loss, lse, dx, dweight and dbias are all NULL, expected at least one of them");
    if (v[GRAD].present && !wants_gradient(v))
        return skr_fail(call, SAKER_INVALID_ARG,
                        "grad is given but dx, dweight and dbias are NULL, expected one of those that it scales");
    if (a->accumulate && !v[DWEIGHT].present && !v[DBIAS].present)
        return skr_fail(call, SAKER_NULL_POINTER, "dweight and dbias are NULL, and accumulate needs one of them");
    if (a->chunk_rows < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "chunk_rows is %lld, expected 0 (chosen by size) or more",
                        (long long)a->chunk_rows);
    if (v[X].type != v[WEIGHT].type)
        return skr_fail(call, SAKER_UNSUPPORTED, "weight and x differ in type, expected one type for both");
    return SAKER_OK;
}

/* A matrix [V, H], as the weight is. */
static saker_status check_matrix(skr_call *call, const skr_view *v, int64_t rows, int64_t cols, skr_gemm_matrix *out)
{
    char text[192];
    *out = (skr_gemm_matrix){.at = {.data = v->data, .type = v->type}};
    if (!v->present)
        return SAKER_OK;
    if (v->ndim != 2 || v->shape[0] != rows || v->shape[1] != cols)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld] as weight", v->name,
                        skr_shape_text(v, text), (long long)rows, (long long)cols);
    out->row = v->stride[0];
    out->at.col_stride = v->stride[1];
    return SAKER_OK;
}

static saker_status check_vector(skr_call *call, const skr_view *v, int64_t n, skr_param *out)
{
    char text[192];
    *out = (skr_param){.data = v->data, .type = v->type};
    if (!v->present)
        return SAKER_OK;
    if (v->ndim != 1 || v->shape[0] != n)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (the rows of weight)", v->name,
                        skr_shape_text(v, text), (long long)n);
    out->stride = v->stride[0];
    return SAKER_OK;
}

static saker_status check_shapes(skr_call *call, const skr_view *v, skr_linear_cross_entropy_job *job)
{
    const skr_view *x = &v[X], *w = &v[WEIGHT];
    char text[192], other[192];
    int64_t vocab = job->rows.n;
    job->h = w->shape[1];
    if (x->ndim < 1 || x->shape[x->ndim - 1] != job->h)
        return skr_fail(call, SAKER_INVALID_ARG, "x has shape %s and weight %s, expected [..., H] and [V, H]",
                        skr_shape_text(x, text), skr_shape_text(w, other));
    SKR_TRY(check_matrix(call, w, vocab, job->h, &job->weight));
    SKR_TRY(check_matrix(call, &v[DWEIGHT], vocab, job->h, &job->dweight));
    SKR_TRY(check_vector(call, &v[BIAS], vocab, &job->bias));
    SKR_TRY(check_vector(call, &v[DBIAS], vocab, &job->dbias));
    SKR_TRY(check_vector(call, &v[CLASS_WEIGHT], vocab, &job->rows.weight));
    if (v[CLASS_WEIGHT].present)
        SKR_TRY(skr_last_contiguous(call, &v[CLASS_WEIGHT]));
    skr_row_builder b;
    skr_rows_start(&b, x);
    SKR_TRY(skr_rows_add_strided(call, &b, x, &job->x));
    SKR_TRY(skr_rows_add_strided(call, &b, &v[DX], &job->dx));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[TARGET], &job->rows.target));
    SKR_TRY(skr_rows_add_stat(call, &b, &v[LSE], &job->rows.lse));
    SKR_TRY(skr_cross_entropy_add_loss(call, &b, &v[LOSS], &job->rows));
    SKR_TRY(skr_cross_entropy_add_grad(call, &b, &v[GRAD], &job->rows));
    return skr_rows_merge(call, &b, &job->rows.rows);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_linear_cross_entropy_args *a = args;
    skr_linear_cross_entropy_job *job = out;
    const skr_ce_options o = {.smoothing = a->label_smoothing,
                              .z_loss = a->z_loss,
                              .softcap = a->softcap,
                              .reduction = a->reduction,
                              .has_ignore_index = a->has_ignore_index,
                              .ignore_index = a->ignore_index};
    char text[192];
    memset(job, 0, sizeof *job);
    SKR_TRY(check_options(call, v, a));
    if (v[WEIGHT].ndim != 2)
        return skr_fail(call, SAKER_INVALID_ARG, "weight has shape %s, expected two dimensions, [V, H]",
                        skr_shape_text(&v[WEIGHT], text));
    SKR_TRY(skr_cross_entropy_set(call, &o, v[WEIGHT].shape[0], &job->rows));
    SKR_TRY(check_shapes(call, v, job));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, NULL, 0));
    job->chunk_rows = a->chunk_rows;
    job->accumulate = a->accumulate;
    job->allow_tf32 = a->allow_tf32;
    /* Sums over no rows are still sums. */
    bool sums = job->rows.total || (!a->accumulate && (job->dweight.at.data || job->dbias.data));
    *empty = job->rows.rows.m == 0 && !sums;
    return SAKER_OK;
}

const skr_op skr_op_linear_cross_entropy = {
    .info = {.name = "linear_cross_entropy",
             .doc =
                 "loss of logits = x * weight^T + bias against target classes, and the gradients, without the logits",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_linear_cross_entropy_args)},
    .v1_size = sizeof(saker_linear_cross_entropy_args),
    .reserved_at = offsetof(saker_linear_cross_entropy_args, reserved),
    .job_size = sizeof(skr_linear_cross_entropy_job),
    .check = check,
    .plan = skr_linear_cross_entropy_plan,
};

_Static_assert(sizeof(skr_linear_cross_entropy_job) <= SKR_JOB_BYTES, "the job must fit");
