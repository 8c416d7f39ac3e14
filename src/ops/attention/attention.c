/* attention.c - attention: fields, types and scales. What it shares with its backward is in attention_check.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_fields.h"
#include "attention_op.h"

enum { Q, K, V, O, LSE, SHARED, Q_DESCALE = SHARED + N_SHARED, K_DESCALE, V_DESCALE, N_TENSORS };

static const uint32_t operand_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_I8, SAKER_E4M3, 0};

static const saker_field fields[] = {
    [Q] = SKR_IN(attention, q, 1, operand_types, "[B, Sq, Hq, D], [B, Hq, Sq, D] or [Tq, Hq, D], as layout says"),
    [K] = SKR_IN(attention, k, 1, operand_types, "the same with Sk and Hk; q's type, or i8 beside a float q"),
    [V] = SKR_IN(attention, v, 1, operand_types, "the same with Sk, Hk and Dv; k's type"),
    [O] = SKR_OUT(attention, o, 1, skr_floats, "q's shape with Dv"),
    [LSE] = SKR_OUT(attention, lse, 0, skr_f32_only, "[B, Hq, Sq] or [Hq, Tq]: logarithm of the sum of exponentials"),
    ATTENTION_SHARED(attention, SHARED),
    [Q_DESCALE] = SKR_IN(attention, q_descale, 0, skr_f32_only, "[H], [B, H] or [B, H, blocks]: scales of q's codes"),
    [K_DESCALE] = SKR_IN(attention, k_descale, 0, skr_f32_only, "[Hk], [B, Hk] or [B, Hk, blocks]: of k's"),
    [V_DESCALE] = SKR_IN(attention, v_descale, 0, skr_f32_only, "[Hk], [B, Hk] or [B, Hk, blocks]: of v's"),
    ATTENTION_OPTIONS(attention),
    SKR_OPTION_I64(attention, descale_block, 0, "tokens that share a descale; 0: all of a head"),
    SKR_OPTION_F32(attention, p_scale, 0, "i8: quantises p with this scale; 0: p stays float"),
};

/* ---------------------------------------------------------------- types and their scales */

static bool is_float(int type)
{
    return type == SKR_F32 || type == SKR_F16 || type == SKR_BF16;
}

static saker_status check_mode(skr_call *call, const skr_view *v, const saker_attention_args *a, skr_attention_job *job)
{
    int q = v[Q].type, k = v[K].type;
    if (v[V].type != k)
        return skr_fail(call, SAKER_INVALID_ARG, "v and k differ in type, expected one type for both");
    if (q != k && !(is_float(q) && k == SKR_I8))
        return skr_fail(call, SAKER_INVALID_ARG,
                        "k and q differ in type, expected one type for both, or k and v of type i8 beside a float q");
    job->mode = q == SKR_E4M3 ? SKR_ATTENTION_E4M3
                : q == SKR_I8 ? (a->p_scale != 0 ? SKR_ATTENTION_I8_P : SKR_ATTENTION_I8)
                : k == SKR_I8 ? SKR_ATTENTION_I8_KV
                              : SKR_ATTENTION_FLOAT;
    if (a->p_scale < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "p_scale is %g, expected 0 (none) or more", (double)a->p_scale);
    if (a->p_scale != 0 && q != SKR_I8)
        return skr_fail(call, SAKER_INVALID_ARG, "p_scale is given, expected q, k and v of type i8 with it");
    if (v[Q_DESCALE].present && is_float(q))
        return skr_fail(call, SAKER_INVALID_ARG, "q_descale is given, and q has a float type");
    if ((v[K_DESCALE].present || v[V_DESCALE].present) && is_float(k))
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given, and k and v have a float type",
                        v[K_DESCALE].present ? "k_descale" : "v_descale");
    if (a->descale_block < 0 || (a->descale_block && k != SKR_I8))
        return skr_fail(call, SAKER_INVALID_ARG, "descale_block is %lld, expected %s", (long long)a->descale_block,
                        k == SKR_I8 ? "0 (all of a head) or more" : "0: it is for i8");
    job->p_scale = a->p_scale;
    job->descale_block = a->descale_block;
    job->q_descale_group = job->mode == SKR_ATTENTION_E4M3 ? job->group : 1;
    return SAKER_OK;
}

/* [H], [B, H] or, with descale_block, [B, H, blocks]. thd: as many blocks as the tensor has; a sequence ends there. */
static saker_status check_descale(skr_call *call, const skr_view *v, int64_t heads, int64_t length, int64_t *limit,
                                  const skr_attention_job *job, skr_attention_scales *out)
{
    char text[192];
    if (!v->present || v->ndim != 3)
        return skr_attention_check_heads(call, v, heads, job->batch, out);
    if (!job->descale_block)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected descale_block with it", v->name,
                        skr_shape_text(v, text));
    int64_t blocks = skr_ceil_div(length, job->descale_block);
    bool enough = job->cu_q.data || (job->packed ? v->shape[2] >= blocks : v->shape[2] == blocks);
    if (v->shape[0] != job->batch || v->shape[1] != heads || !enough)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld, blocks of %lld tokens]",
                        v->name, skr_shape_text(v, text), (long long)job->batch, (long long)heads,
                        (long long)job->descale_block);
    if (job->packed)
        *limit = skr_min(*limit, skr_mul(v->shape[2], job->descale_block));
    *out = (skr_attention_scales){(float *)v->data, v->stride[0], v->stride[1], v->stride[2]};
    return SAKER_OK;
}

/* ---------------------------------------------------------------- check, plan */

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_attention_args *a = args;
    const skr_attention_options o = ATTENTION_TAKE_OPTIONS(a);
    const skr_attention_views views = ATTENTION_VIEWS(v, SHARED, Q, K, V, O, LSE);
    skr_attention_job *job = out;
    SKR_TRY(skr_attention_check_common(call, &views, &o, job));
    SKR_TRY(check_mode(call, v, a, job));
    int64_t of_q = job->mode == SKR_ATTENTION_E4M3 ? job->heads_k : job->heads;
    SKR_TRY(check_descale(call, &v[Q_DESCALE], of_q, job->length, &job->limit_q, job, &job->q_descale));
    SKR_TRY(check_descale(call, &v[K_DESCALE], job->heads_k, job->length_k, &job->limit_k, job, &job->k_descale));
    SKR_TRY(check_descale(call, &v[V_DESCALE], job->heads_k, job->length_k, &job->limit_k, job, &job->v_descale));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, NULL, 0));
    *empty = job->length == 0 || job->heads == 0 || (job->batch == 0 && !job->packed);
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_attention_plan_cuda(call, job, target, out);
    return skr_attention_plan_cpu(call, job, target, out);
}

const skr_op skr_op_attention = {
    .info = {.name = "attention",
             .doc = "softmax(q k + bias, masked) v without the matrix between: any layout, masks, dropout, sinks",
             .fields = fields,
             .n_fields = sizeof fields / sizeof *fields,
             .args_size = sizeof(saker_attention_args)},
    .v1_size = sizeof(saker_attention_args),
    .reserved_at = offsetof(saker_attention_args, reserved),
    .job_size = sizeof(skr_attention_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_attention_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert((int)SKR_ID_UP_TO == (int)SAKER_ID_UP_TO, "the job's numbers are the interface's");
