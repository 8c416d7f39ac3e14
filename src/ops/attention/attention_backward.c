/* attention_backward.c - attention_backward: fields and checks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_fields.h"
#include "attention_op.h"

enum { D_O, Q, K, V, O, LSE, DLSE, SHARED, DQ = SHARED + N_SHARED, DK, DV, DBIAS, DSLOPES, DSINKS, N_TENSORS };

static const saker_field fields[] = {
    [D_O] = SKR_IN(attention_backward, d_o, 1, skr_floats, "o's shape and type: its gradient"),
    [Q] = SKR_IN(attention_backward, q, 1, skr_floats, "forward's q"),
    [K] = SKR_IN(attention_backward, k, 1, skr_floats, "forward's k, q's type"),
    [V] = SKR_IN(attention_backward, v, 1, skr_floats, "forward's v, q's type"),
    [O] = SKR_IN(attention_backward, o, 1, skr_floats, "forward's o"),
    [LSE] = SKR_IN(attention_backward, lse, 1, skr_f32_only, "forward's lse"),
    [DLSE] = SKR_IN(attention_backward, dlse, 0, skr_f32_only, "lse's shape: its gradient"),
    ATTENTION_SHARED(attention_backward, SHARED),
    [DQ] = SKR_OUT(attention_backward, dq, 0, skr_floats, "q's shape"),
    [DK] = SKR_OUT(attention_backward, dk, 0, skr_floats, "k's shape"),
    [DV] = SKR_OUT(attention_backward, dv, 0, skr_floats, "v's shape"),
    [DBIAS] = SKR_OUT(attention_backward, dbias, 0, skr_floats, "bias's shape and type"),
    [DSLOPES] = SKR_OUT(attention_backward, dslopes, 0, skr_f32_only, "slopes's shape"),
    [DSINKS] = SKR_OUT(attention_backward, dsinks, 0, skr_f32_only, "[Hq]"),
    ATTENTION_OPTIONS(attention_backward),
    SKR_OPTION_BOOL(attention_backward, accumulate, "gradients are added to what the tensors hold"),
};

/* dbias, dslopes and dsinks: with their tensor, of its shape. */
static saker_status check_gradient(skr_call *call, const skr_view *v, const skr_view *of)
{
    if (!v->present)
        return SAKER_OK;
    if (!of->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL but %s is given", of->name, v->name);
    if (v->type != of->type)
        return skr_fail(call, SAKER_INVALID_ARG, "%s and %s differ in type, expected one type for both", v->name,
                        of->name);
    return skr_same_shape(call, v, of);
}

static skr_attention_matrix matrix_of(const skr_view *v)
{
    int64_t stride[4] = {0, 0, 0, 0};
    for (int i = 0; i < v->ndim; i++)
        stride[4 - v->ndim + i] = v->shape[i] == 1 ? 0 : v->stride[i];
    return (skr_attention_matrix){v->data, stride[0], stride[1], stride[2], stride[3], v->type, 0};
}

static saker_status check_outputs(skr_call *call, const skr_view *v, int layout, skr_attention_job *job)
{
    bool some = false;
    for (int i = DQ; i <= DSINKS; i++)
        some |= v[i].present;
    if (!some)
        return skr_fail(call, SAKER_NULL_POINTER,
                        "dq, dk, dv, dbias, dslopes and dsinks are all NULL, expected at least one of them");
    SKR_TRY(skr_attention_check_rows(call, &v[DQ], &v[Q], layout, &job->dq));
    SKR_TRY(skr_attention_check_rows(call, &v[DK], &v[K], layout, &job->dk));
    SKR_TRY(skr_attention_check_rows(call, &v[DV], &v[V], layout, &job->dv));
    SKR_TRY(check_gradient(call, &v[DBIAS], &v[SHARED + BIAS]));
    SKR_TRY(check_gradient(call, &v[DSLOPES], &v[SHARED + SLOPES]));
    SKR_TRY(check_gradient(call, &v[DSINKS], &v[SHARED + SINKS]));
    if (v[DBIAS].present)
        job->dbias = matrix_of(&v[DBIAS]);
    SKR_TRY(skr_attention_check_heads(call, &v[DSLOPES], job->heads, job->batch, &job->dslopes));
    return skr_attention_check_heads(call, &v[DSINKS], job->heads, -1, &job->dsinks);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_attention_backward_args *a = args;
    const skr_attention_options o = ATTENTION_TAKE_OPTIONS(a);
    const skr_attention_views views = ATTENTION_VIEWS(v, SHARED, Q, K, V, O, LSE);
    skr_attention_job *job = out;
    SKR_TRY(skr_attention_check_common(call, &views, &o, job));
    for (int i = K; i <= V; i++)
        if (v[i].type != v[Q].type)
            return skr_fail(call, SAKER_INVALID_ARG, "%s and q differ in type, expected one type for both", v[i].name);
    SKR_TRY(skr_attention_check_rows(call, &v[D_O], &v[O], o.layout, &job->d_o));
    if (v[D_O].type != v[O].type)
        return skr_fail(call, SAKER_INVALID_ARG, "d_o and o differ in type, expected one type for both");
    SKR_TRY(skr_attention_check_stat(call, &v[DLSE], job, &job->dlse));
    SKR_TRY(check_outputs(call, v, o.layout, job));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, NULL, 0));
    job->backward = 1;
    job->accumulate = a->accumulate;
    /* Without queries the sums over them are 0: written, or added (that is, left). */
    bool some = false;
    for (int i = DQ; i <= DSINKS; i++)
        some |= v[i].data != NULL;
    *empty =
        !some || (a->accumulate && (job->length == 0 || job->length_k == 0 || job->batch == 0) && !job->dsinks.data);
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *given, const skr_target *target, skr_plan *out)
{
    skr_attention_job *job = given;
    job->deterministic = !(target->flags & SAKER_ALLOW_NONDETERMINISTIC);
    if (target->backend == SKR_CUDA)
        return skr_attention_plan_cuda(call, job, target, out);
    return skr_attention_plan_cpu(call, job, target, out);
}

const skr_op skr_op_attention_backward = {
    .info = {.name = "attention_backward",
             .doc = "gradients of attention: dq, dk, dv, dbias, dslopes, dsinks",
             .fields = fields,
             .n_fields = sizeof fields / sizeof *fields,
             .args_size = sizeof(saker_attention_backward_args)},
    .v1_size = sizeof(saker_attention_backward_args),
    .reserved_at = offsetof(saker_attention_backward_args, reserved),
    .job_size = sizeof(skr_attention_job),
    .check = check,
    .plan = plan,
};
