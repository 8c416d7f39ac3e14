/* moe.c - experts of tokens and their weighted sum: fields and checks.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "moe_op.h"

enum {
    X,
    WEIGHTS,
    OFFSETS,
    TOKEN,
    PLACE,
    GATE_UP,
    DOWN,
    GATE_UP_BIAS,
    DOWN_BIAS,
    GATE_UP_SCALE,
    GATE_UP_ZERO,
    DOWN_SCALE,
    DOWN_ZERO,
    Y,
    N_TENSORS,
    GROUP = N_TENSORS,
    ACT,
    GATED,
    ALLOW_TF32,
    N_FIELDS
};

static const uint32_t weight_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_I8, SAKER_I4, SAKER_U8, 0};

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(moe, x, 1, skr_floats, "[T, H]: tokens"),
    [WEIGHTS] = SKR_IN(moe, weights, 1, skr_floats, "[T, k]: of a token's experts"),
    [OFFSETS] = SKR_IN(moe, offsets, 1, skr_index_types, "[E + 1]: where the rows of each expert begin"),
    [TOKEN] = SKR_IN(moe, token, 1, skr_index_types, "[T k]: the token of each row"),
    [PLACE] = SKR_IN(moe, place, 1, skr_index_types, "[T k]: the row of each token's j-th expert"),
    [GATE_UP] = SKR_IN(moe, gate_up, 1, weight_types, "[E, 2 I, H], not gated [E, I, H]; u8: i4"),
    [DOWN] = SKR_IN(moe, down, 1, weight_types, "[E, H, I]; u8: i4"),
    [GATE_UP_BIAS] = SKR_IN(moe, gate_up_bias, 0, skr_floats, "[E, 2 I] or [E, I]"),
    [DOWN_BIAS] = SKR_IN(moe, down_bias, 0, skr_floats, "[E, H]"),
    [GATE_UP_SCALE] = SKR_IN(moe, gate_up_scale, 0, skr_f32_only, "[E, 2 I or I, ceil(H/group)]"),
    [GATE_UP_ZERO] = SKR_IN(moe, gate_up_zero, 0, skr_gemm_zero_types, "gate_up_scale's shape: subtracted"),
    [DOWN_SCALE] = SKR_IN(moe, down_scale, 0, skr_f32_only, "[E, H, ceil(I/group)]"),
    [DOWN_ZERO] = SKR_IN(moe, down_zero, 0, skr_gemm_zero_types, "down_scale's shape: subtracted"),
    [Y] = SKR_OUT(moe, y, 1, skr_floats, "[T, H]"),
    [GROUP] = SKR_OPTION_I64(moe, group, 0, "neighbours of a weight's row that share a scale"),
    [ACT] = SKR_OPTION_ENUM(moe, act, "none|sigmoid|tanh|silu|gelu|gelu_tanh|relu|relu2|swiglu_oai", "activation"),
    [GATED] = SKR_OPTION_ENUM(moe, gated, "no|halves|interleaved", "h = act(gate) * up"),
    [ALLOW_TF32] = SKR_OPTION_BOOL(moe, allow_tf32, "a GPU may round f32 inputs to tf32"),
};

/* what: the dimensions' names. */
static saker_status check_dims(skr_call *call, const skr_view *v, int ndim, int64_t d0, int64_t d1, int64_t d2,
                               const char *what)
{
    return skr_grouped_gemm_check_dims(call, v, " (", what, ")", ndim, (const int64_t[]){d0, d1, d2});
}

static saker_status check_types(skr_call *call, const skr_view *v, int64_t group)
{
    static const int scales[] = {GATE_UP_SCALE, GATE_UP_ZERO, DOWN_SCALE, DOWN_ZERO};
    if (v[DOWN].type != v[GATE_UP].type)
        return skr_fail(call, SAKER_INVALID_ARG, "down and gate_up differ in type, expected one type for both");
    if (group < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "group is %lld, expected 0 (no scales) or more", (long long)group);
    for (int i = 0; i < 4; i++)
        if (v[scales[i]].present && !group)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is given, expected group with it", v[scales[i]].name);
    if (!group && v[GATE_UP].type != v[X].type)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "gate_up and x differ in type, expected one type for both, or group and scales with i8 and i4");
    if (!group)
        return SAKER_OK;
    if (v[X].type == SKR_F32 || (v[GATE_UP].type != SKR_I8 && v[GATE_UP].type != SKR_I4))
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "group is given, expected x of type f16 or bf16 and gate_up and down of type i8 or i4");
    for (int i = 0; i < 4; i += 2)
        if (!v[scales[i]].present)
            return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL, expected scales with group", v[scales[i]].name);
    return SAKER_OK;
}

static skr_gemm_matrix turned(const skr_view *v)
{
    skr_gemm_matrix m = {.at = {.data = v->data, .type = v->type}};
    if (!v->present)
        return m;
    m.at.stride[0] = v->stride[0];
    m.at.col_stride = v->stride[1];
    m.row = v->stride[2];
    return m;
}

/* Weights [experts, n, k]; their bias, scales and zeros stand at those places among the views. */
static saker_status check_layer(skr_call *call, const skr_view *v, int weight, int bias, int scale, skr_moe_job *job,
                                int64_t n, int64_t k, skr_moe_layer *out)
{
    const skr_view *w = &v[weight];
    SKR_TRY(check_dims(call, w, 3, job->experts, n, k,
                       weight == DOWN ? "E of offsets, H of x, I of gate_up" : "E of offsets, 2 I or I, H of x"));
    out->n = w->shape[1];
    out->k = w->shape[2];
    int64_t blocks = job->group ? skr_ceil_div(out->k, job->group) : 0;
    SKR_TRY(check_dims(call, &v[bias], 2, job->experts, out->n, 0, "a number for each row of the weights"));
    SKR_TRY(check_dims(call, &v[scale], 3, job->experts, out->n, blocks, "a number for each group"));
    SKR_TRY(check_dims(call, &v[scale + 1], 3, job->experts, out->n, blocks, "a number for each group"));
    if (w->type == SKR_I4) {
        skr_view b = *w;
        SKR_TRY(skr_gemm_check_nibbles(call, &b));
    }
    out->weight = turned(w);
    out->scale = turned(&v[scale]);
    out->zero = turned(&v[scale + 1]);
    if (v[bias].present) {
        out->bias = (skr_param){.data = v[bias].data, .stride = v[bias].stride[1], .type = v[bias].type};
        out->bias_stride = v[bias].stride[0];
    }
    return SAKER_OK;
}

/* Bytes become the i4 that they hold, two along the last dimension of `width`; other types stay. */
static saker_status open_bytes(skr_call *call, skr_view *w, int64_t width)
{
    char text[192];
    if (w->type != SKR_U8)
        return SAKER_OK;
    if (w->ndim != 3 || (w->shape[2] > 1 && w->stride[2] != 1) || w->shape[2] != skr_ceil_div(width, 2))
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has type u8 and shape %s, expected a last dimension of %lld bytes, side by side, with two "
                        "i4 each",
                        w->name, skr_shape_text(w, text), (long long)skr_ceil_div(width, 2));
    return skr_open_nibbles(call, w, 2, width);
}

static skr_param list_of(const skr_view *v)
{
    return (skr_param){.data = v->data, .stride = v->stride[0], .type = v->type};
}

static saker_status check_tokens(skr_call *call, const skr_view *v, skr_moe_job *job)
{
    skr_moe_combine_job *s = &job->sum;
    char text[192];
    SKR_TRY(check_dims(call, &v[X], 2, -1, -1, 0, "T, H"));
    s->t = v[X].shape[0];
    s->h = v[X].shape[1];
    SKR_TRY(check_dims(call, &v[WEIGHTS], 2, s->t, -1, 0, "T of x, k"));
    SKR_TRY(check_dims(call, &v[Y], 2, s->t, s->h, 0, "T, H of x"));
    SKR_TRY(skr_last_contiguous(call, &v[Y]));
    s->k = v[WEIGHTS].shape[1];
    job->rows = skr_mul(s->t, s->k);
    if (job->rows > (int64_t)1 << 30)
        return skr_fail(call, SAKER_UNSUPPORTED, "weights has %lld elements, expected at most 2^30",
                        (long long)job->rows);
    SKR_TRY(check_dims(call, &v[TOKEN], 1, job->rows, 0, 0, "T k of weights"));
    SKR_TRY(check_dims(call, &v[PLACE], 1, job->rows, 0, 0, "T k of weights"));
    if (v[OFFSETS].ndim != 1 || v[OFFSETS].shape[0] < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "offsets has shape %s, expected [E + 1]",
                        skr_shape_text(&v[OFFSETS], text));
    job->experts = v[OFFSETS].shape[0] - 1;
    job->offsets = list_of(&v[OFFSETS]);
    job->token = list_of(&v[TOKEN]);
    s->place = list_of(&v[PLACE]);
    s->weights = (skr_param){.data = v[WEIGHTS].data, .stride = v[WEIGHTS].stride[0], .type = v[WEIGHTS].type};
    s->weights_column = v[WEIGHTS].stride[1];
    s->y = (skr_param){.data = v[Y].data, .stride = v[Y].stride[0], .type = v[Y].type};
    job->x = (skr_gemm_matrix){.at = {.data = v[X].data, .type = v[X].type, .col_stride = v[X].stride[1]},
                               .row = v[X].stride[0]};
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *given, const void *args, void *out, bool *empty)
{
    const saker_moe_args *a = args;
    skr_moe_job *job = out;
    skr_view v[N_TENSORS];
    memset(job, 0, sizeof *job);
    memcpy(v, given, sizeof v);
    job->group = a->group;
    job->act = a->act;
    job->gated = a->gated;
    job->allow_tf32 = a->allow_tf32;
    SKR_TRY(check_tokens(call, v, job));
    SKR_TRY(open_bytes(call, &v[GATE_UP], job->sum.h));
    int64_t up = v[GATE_UP].ndim == 3 ? v[GATE_UP].shape[1] : 0, inner = a->gated ? up / 2 : up;
    SKR_TRY(open_bytes(call, &v[DOWN], inner));
    SKR_TRY(check_types(call, v, a->group));
    if (a->act == SAKER_ACT_SWIGLU_OAI && !a->gated)
        return skr_fail(call, SAKER_INVALID_ARG, "act is swiglu_oai, which needs gated");
    SKR_TRY(check_layer(call, v, GATE_UP, GATE_UP_BIAS, GATE_UP_SCALE, job, -1, job->sum.h, &job->up));
    if (a->gated && up % 2)
        return skr_fail(call, SAKER_INVALID_ARG, "gate_up has %lld rows, expected an even number (gated)",
                        (long long)up);
    SKR_TRY(check_layer(call, v, DOWN, DOWN_BIAS, DOWN_SCALE, job, job->sum.h, inner, &job->down));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, NULL, 0));
    *empty = v[Y].count == 0;
    return SAKER_OK;
}

const skr_op skr_op_moe = {
    .info = {.name = "moe",
             .doc = "experts of tokens, sorted by expert, and their weighted sum",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_moe_args)},
    .v1_size = sizeof(saker_moe_args),
    .reserved_at = offsetof(saker_moe_args, reserved),
    .job_size = sizeof(skr_moe_job),
    .check = check,
    .plan = skr_moe_plan,
};

_Static_assert(sizeof(skr_moe_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert(sizeof(skr_moe_combine_job) <= SKR_JOB_BYTES, "the job must fit");
