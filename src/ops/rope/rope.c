/* rope.c - rope and rope_backward: fields, checks, the numbers behind the frequencies, and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rope.h"

#include <math.h>
#include <string.h>

#include "../../core/plan.h"

/* Written beside the CUDA kernels (rope_cuda.c). */
saker_status skr_rope_plan_cuda(skr_call *call, skr_rope_job *job, const skr_target *target, skr_plan *plan);

/* ---------------------------------------------------------------- fields */

static const uint32_t i32_only[] = {SAKER_I32, 0};
static const uint32_t index_types[] = {SAKER_I32, SAKER_I64, 0};

#define LAYOUTS  "bshd|bhsd|thd"
#define SCALINGS "none|linear|ntk|yarn|llama3"

/* The options, in both ops alike. */
#define OPTIONS(op)                                                                                                    \
    SKR_OPTION_I64(op, rotary_dim, 0, "R, even; 0: twice the columns of cos, or D"),                                   \
        SKR_OPTION_I64(op, original_length, 0, "YaRN, Llama-3: the length that the model was trained with"),           \
        SKR_OPTION_F64(op, base, 10000, "frequencies are base^(-2i/R)"),                                               \
        SKR_OPTION_F64(op, factor, 1, "how far scaling stretches"),                                                    \
        SKR_OPTION_F32(op, attention_factor, 0, "on cos and sin; 0: 1, with YaRN 0.1 ln(factor) + 1"),                 \
        SKR_OPTION_F32(op, beta_fast, 32, "YaRN: turns in original_length, where the blend begins"),                   \
        SKR_OPTION_F32(op, beta_slow, 1, "YaRN: turns in original_length, where the blend ends"),                      \
        SKR_OPTION_F32(op, low_freq_factor, 1, "Llama-3: turns in original_length, where the blend begins"),           \
        SKR_OPTION_F32(op, high_freq_factor, 4, "Llama-3: turns in original_length, where the blend ends"),            \
        SKR_OPTION_F32(op, eps, 1e-6, "norm: added to the mean square"),                                               \
        SKR_OPTION_F32(op, weight_offset, 0, "norm: added to the weights; 1 for Gemma"),                               \
        SKR_OPTION_ENUM(op, layout, LAYOUTS, "order of the dimensions"),                                               \
        SKR_OPTION_BOOL(op, interleaved, "pairs are neighbours, not half a rotary dim apart"),                         \
        SKR_OPTION_ENUM(op, scaling, SCALINGS, "how frequencies are stretched"),                                       \
        SKR_OPTION_BOOL(op, no_truncate, "YaRN: the blend's ends are not rounded to whole columns"),                   \
        SKR_OPTION_BOOL(op, norm, "RMSNorm of each head before the rotation")

enum { Q, K, COS, SIN, OFFSETS, POSITIONS, CU, Q_WEIGHT, K_WEIGHT, Q_OUT, K_OUT, N_TENSORS };

static const saker_field fields[] = {
    [Q] = SKR_IN(rope, q, 1, skr_floats, "heads [B, S, Hq, D], [B, Hq, S, D] or [T, Hq, D], as layout says"),
    [K] = SKR_IN(rope, k, 0, skr_floats, "the same with Hk heads, q's type"),
    [COS] = SKR_IN(rope, cos, 0, skr_floats, "[positions, R/2] table; absent: computed from base"),
    [SIN] = SKR_IN(rope, sin, 0, skr_floats, "[positions, R/2] table, with cos"),
    [OFFSETS] = SKR_IN(rope, offsets, 0, i32_only, "[B] position of each sequence's first token"),
    [POSITIONS] = SKR_IN(rope, positions, 0, index_types, "[B, S] or [T] position of each token"),
    [CU] = SKR_IN(rope, cu_seqlens, 0, i32_only, "[sequences + 1] first token of each sequence, and T; layout thd"),
    [Q_WEIGHT] = SKR_IN(rope, q_weight, 0, skr_floats, "[D] weight of the norm of q; absent: 1"),
    [K_WEIGHT] = SKR_IN(rope, k_weight, 0, skr_floats, "[D] weight of the norm of k; absent: 1"),
    [Q_OUT] = SKR_OUT(rope, q_out, 1, skr_floats, "q's shape: q rotated"),
    [K_OUT] = SKR_OUT(rope, k_out, 0, skr_floats, "k's shape: k rotated"),
    OPTIONS(rope),
};

enum {
    B_DQ_OUT,
    B_DK_OUT,
    B_Q,
    B_K,
    B_COS,
    B_SIN,
    B_OFFSETS,
    B_POSITIONS,
    B_CU,
    B_Q_WEIGHT,
    B_K_WEIGHT,
    B_DQ,
    B_DK,
    B_DQ_WEIGHT,
    B_DK_WEIGHT,
    N_B_TENSORS
};

static const saker_field backward_fields[] = {
    [B_DQ_OUT] = SKR_IN(rope_backward, dq_out, 1, skr_floats, "gradient of q_out, as layout says"),
    [B_DK_OUT] = SKR_IN(rope_backward, dk_out, 0, skr_floats, "gradient of k_out, dq_out's type"),
    [B_Q] = SKR_IN(rope_backward, q, 0, skr_floats, "dq_out's shape: forward's q; with norm"),
    [B_K] = SKR_IN(rope_backward, k, 0, skr_floats, "dk_out's shape: forward's k; with norm"),
    [B_COS] = SKR_IN(rope_backward, cos, 0, skr_floats, "[positions, R/2] as in forward"),
    [B_SIN] = SKR_IN(rope_backward, sin, 0, skr_floats, "[positions, R/2] as in forward"),
    [B_OFFSETS] = SKR_IN(rope_backward, offsets, 0, i32_only, "[B] as in forward"),
    [B_POSITIONS] = SKR_IN(rope_backward, positions, 0, index_types, "[B, S] or [T] as in forward"),
    [B_CU] = SKR_IN(rope_backward, cu_seqlens, 0, i32_only, "[sequences + 1] as in forward"),
    [B_Q_WEIGHT] = SKR_IN(rope_backward, q_weight, 0, skr_floats, "[D] as in forward"),
    [B_K_WEIGHT] = SKR_IN(rope_backward, k_weight, 0, skr_floats, "[D] as in forward"),
    [B_DQ] = SKR_OUT(rope_backward, dq, 0, skr_floats, "dq_out's shape: gradient of q"),
    [B_DK] = SKR_OUT(rope_backward, dk, 0, skr_floats, "dk_out's shape: gradient of k, dq's type"),
    [B_DQ_WEIGHT] = SKR_OUT(rope_backward, dq_weight, 0, skr_floats, "[D] gradient of q_weight"),
    [B_DK_WEIGHT] = SKR_OUT(rope_backward, dk_weight, 0, skr_floats, "[D] gradient of k_weight"),
    OPTIONS(rope_backward),
    SKR_OPTION_BOOL(rope_backward, accumulate, "the weight gradients are added to what the tensors hold"),
};

/* ---------------------------------------------------------------- heads */

static saker_status check_rank(skr_call *call, const skr_view *q, int layout)
{
    static const char *const dims[] = {"[B, S, H, D]", "[B, H, S, D]", "[T, H, D]"};
    int rank = layout == SAKER_THD ? 3 : 4;
    char text[192];
    if (q->ndim != rank)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected %s", q->name, skr_shape_text(q, text),
                        dims[layout]);
    return skr_last_contiguous(call, q);
}

/* Places of batch (-1: none), token and head among a layout's dimensions. */
static const struct {
    int batch, token, head;
} places[] = {{0, 1, 2}, {0, 2, 1}, {-1, 0, 1}};

static skr_rope_rows rows_of(const skr_view *v, int layout)
{
    int b = places[layout].batch;
    return (skr_rope_rows){v->data, b < 0 ? 0 : v->stride[b], v->stride[places[layout].token],
                           v->stride[places[layout].head]};
}

/* k beside q: all dimensions but the heads agree, and so does the type. */
static saker_status check_beside(skr_call *call, const skr_view *k, const skr_view *q, int layout)
{
    char found[192], expected[192];
    SKR_TRY(check_rank(call, k, layout));
    for (int i = 0; i < q->ndim; i++)
        if (i != places[layout].head && k->shape[i] != q->shape[i])
            return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected that of %s (%s) in all but the heads",
                            k->name, skr_shape_text(k, found), q->name, skr_shape_text(q, expected));
    if (k->type != q->type)
        return skr_fail(call, SAKER_INVALID_ARG, "%s and %s differ in type, expected one type for both", k->name,
                        q->name);
    return SAKER_OK;
}

/* A tensor of main's shape, beside its twin (the other of q and k). */
static saker_status check_rows(skr_call *call, const skr_view *v, const skr_view *main, const skr_view *twin,
                               int layout, skr_rope_rows *out)
{
    if (!v->present)
        return SAKER_OK;
    SKR_TRY(skr_same_shape(call, v, main));
    SKR_TRY(skr_last_contiguous(call, v));
    if (twin && twin->present && twin->type != v->type)
        return skr_fail(call, SAKER_INVALID_ARG, "%s and %s differ in type, expected one type for both", v->name,
                        twin->name);
    *out = rows_of(v, layout);
    return SAKER_OK;
}

static saker_status check_weight(skr_call *call, const skr_view *v, const skr_view *q, bool norm, skr_param *out)
{
    char text[192];
    if (!v->present)
        return SAKER_OK;
    if (!norm)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given but norm is 0", v->name);
    int64_t d = q->shape[q->ndim - 1];
    if (v->ndim != 1 || v->shape[0] != d)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (the head size of %s)", v->name,
                        skr_shape_text(v, text), (long long)d, q->name);
    SKR_TRY(skr_last_contiguous(call, v));
    *out = (skr_param){.data = v->data, .type = v->type};
    return SAKER_OK;
}

/* An argument that is there without what it belongs to. */
static saker_status check_pair(skr_call *call, const skr_view *v, const skr_view *needed)
{
    if (v->present && !needed->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL but %s is given", needed->name, v->name);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- positions and tables */

/* v points at COS; the five that follow each other in both ops. */
static saker_status check_positions(skr_call *call, const skr_view *v, const skr_view *q, int layout, skr_rope_job *job)
{
    const skr_view *offsets = &v[OFFSETS - COS], *positions = &v[POSITIONS - COS], *cu = &v[CU - COS];
    char text[192];
    int64_t sequences = job->batch;
    if (cu->present) {
        if (layout != SAKER_THD)
            return skr_fail(call, SAKER_INVALID_ARG, "cu_seqlens is given, expected layout thd with it");
        if (cu->ndim != 1 || cu->shape[0] < 1)
            return skr_fail(call, SAKER_INVALID_ARG, "cu_seqlens has shape %s, expected [sequences + 1]",
                            skr_shape_text(cu, text));
        job->cu = (const int32_t *)cu->data;
        job->cu_stride = cu->stride[0];
        job->sequences = sequences = cu->shape[0] - 1;
    }
    if (offsets->present) {
        if (offsets->ndim != 1 || offsets->shape[0] != sequences)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "offsets has shape %s, expected [%lld]: one for each sequence of %s%s",
                            skr_shape_text(offsets, text), (long long)sequences, q->name,
                            layout == SAKER_THD ? " (cu_seqlens says how many; without it, one)" : "");
        job->offsets = (const int32_t *)offsets->data;
        job->offset_stride = offsets->stride[0];
    }
    if (!positions->present)
        return SAKER_OK;
    if (offsets->present || cu->present)
        return skr_fail(call, SAKER_INVALID_ARG, "positions and %s are both given, expected one of them",
                        offsets->present ? "offsets" : "cu_seqlens");
    bool packed = layout == SAKER_THD;
    if (positions->ndim != (packed ? 1 : 2) || positions->shape[positions->ndim - 1] != job->length ||
        (!packed && positions->shape[0] != job->batch))
        return skr_fail(call, SAKER_INVALID_ARG, "positions has shape %s, expected %s: one for each token of %s",
                        skr_shape_text(positions, text), packed ? "[T]" : "[B, S]", q->name);
    job->positions = positions->data;
    job->position_type = positions->type;
    job->position_batch = packed ? 0 : positions->stride[0];
    job->position_token = positions->stride[positions->ndim - 1];
    return SAKER_OK;
}

static saker_status check_table(skr_call *call, const skr_view *v, const skr_view *q, skr_rope_job *job)
{
    const skr_view *c = &v[0], *s = &v[SIN - COS];
    char text[192];
    SKR_TRY(check_pair(call, c, s));
    SKR_TRY(check_pair(call, s, c));
    if (!c->present)
        return SAKER_OK;
    if (c->ndim != 2)
        return skr_fail(call, SAKER_INVALID_ARG, "cos has shape %s, expected [positions, R/2]",
                        skr_shape_text(c, text));
    SKR_TRY(skr_same_shape(call, s, c));
    SKR_TRY(skr_last_contiguous(call, c));
    SKR_TRY(skr_last_contiguous(call, s));
    if (s->type != c->type)
        return skr_fail(call, SAKER_INVALID_ARG, "sin and cos differ in type, expected one type for both");
    job->table_rows = c->shape[0];
    bool by_place = !v[POSITIONS - COS].present && !v[OFFSETS - COS].present && !v[CU - COS].present;
    if (job->table_rows < (by_place ? job->length : 1) && job->length)
        return skr_fail(call, SAKER_INVALID_ARG, "cos has %lld rows, expected at least %lld (the length of %s)",
                        (long long)c->shape[0], (long long)(by_place ? job->length : 1), q->name);
    job->cos = c->data;
    job->sin = s->data;
    job->cos_stride = c->stride[0];
    job->sin_stride = s->stride[0];
    job->table_type = c->type;
    return SAKER_OK;
}

/* The rotary dim: given, or twice the tables' columns, or the whole head. */
static saker_status check_rotary(skr_call *call, const skr_view *table, const skr_view *q, int64_t given,
                                 skr_rope_job *job)
{
    int64_t cols = table->present && table->ndim == 2 ? table->shape[1] : -1;
    job->r = given ? given : cols >= 0 ? 2 * cols : job->d;
    if (job->r < 0 || job->r > job->d)
        return skr_fail(call, SAKER_INVALID_ARG, "rotary_dim is %lld (%s), expected 0 to %lld, the head size of %s",
                        (long long)job->r, given ? "given" : "twice the columns of cos and sin", (long long)job->d,
                        q->name);
    if (job->r % 2)
        return skr_fail(call, SAKER_INVALID_ARG, "rotary_dim is %lld%s%s, expected an even number", (long long)job->r,
                        given ? "" : ", the head size of ", given ? "" : q->name);
    if (cols >= 0 && 2 * cols != job->r)
        return skr_fail(call, SAKER_INVALID_ARG, "cos and sin have %lld columns, expected %lld (half of rotary_dim)",
                        (long long)cols, (long long)job->r / 2);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- frequencies */

/* The options that both argument structs have, from base to weight_offset and from layout to norm. */
typedef struct options {
    int64_t rotary_dim, original_length;
    double base, factor;
    float attention_factor, beta_fast, beta_slow, low_freq_factor, high_freq_factor, eps, weight_offset;
    int32_t layout, interleaved, scaling, no_truncate, norm;
} options;

#define TAKE_OPTIONS(a)                                                                                                \
    {                                                                                                                  \
        (a)->rotary_dim, (a)->original_length, (a)->base, (a)->factor, (a)->attention_factor, (a)->beta_fast,          \
            (a)->beta_slow, (a)->low_freq_factor, (a)->high_freq_factor, (a)->eps, (a)->weight_offset, (a)->layout,    \
            (a)->interleaved, (a)->scaling, (a)->no_truncate, (a)->norm                                                \
    }

static saker_status check_positive(skr_call *call, const char *name, double value, double preset, double *out)
{
    if (value < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is %g, expected 0 (the default, %g) or more", name, value, preset);
    *out = value == 0 ? preset : value;
    return SAKER_OK;
}

/* YaRN: the pair whose frequency makes so many turns in the trained length. */
static double yarn_pair(double turns, double r, double base, double length)
{
    return r * log(length / (turns * SKR_ROPE_TWO_PI)) / (2 * log(base));
}

static saker_status check_scaling(skr_call *call, const options *o, double r, double base, skr_rope_angles *a)
{
    double first = 0, second = 0;
    bool yarn = o->scaling == SAKER_ROPE_YARN;
    if (o->original_length <= 0)
        return skr_fail(call, SAKER_INVALID_ARG, "original_length is %lld, expected the trained length with scaling %s",
                        (long long)o->original_length, yarn ? "yarn" : "llama3");
    a->length = (double)o->original_length;
    if (yarn) {
        SKR_TRY(check_positive(call, "beta_fast", o->beta_fast, 32, &first));
        SKR_TRY(check_positive(call, "beta_slow", o->beta_slow, 1, &second));
        a->low = yarn_pair(first, r, base, a->length);
        a->high = yarn_pair(second, r, base, a->length);
        if (!o->no_truncate) {
            a->low = floor(a->low);
            a->high = ceil(a->high);
        }
        a->low = fmax(a->low, 0);
        a->high = fmin(a->high, r - 1);
        if (a->high == a->low)
            a->high += 0.001;
        return SAKER_OK;
    }
    SKR_TRY(check_positive(call, "low_freq_factor", o->low_freq_factor, 1, &first));
    SKR_TRY(check_positive(call, "high_freq_factor", o->high_freq_factor, 4, &second));
    if (second <= first)
        return skr_fail(call, SAKER_INVALID_ARG, "high_freq_factor is %g, expected more than low_freq_factor, %g",
                        second, first);
    a->low = first;
    a->high = second;
    return SAKER_OK;
}

static saker_status check_angles(skr_call *call, const options *o, int64_t rotary, skr_rope_angles *a)
{
    double base = 0, attention, r = (double)rotary;
    SKR_TRY(check_positive(call, "base", o->base, 10000, &base));
    SKR_TRY(check_positive(call, "factor", o->factor, 1, &a->factor));
    if (!o->scaling && a->factor != 1)
        return skr_fail(call, SAKER_INVALID_ARG, "factor is %g, and there is no scaling", a->factor);
    if (base <= 1)
        return skr_fail(call, SAKER_INVALID_ARG, "base is %g, expected more than 1", base);
    if (o->scaling >= SAKER_ROPE_YARN)
        SKR_TRY(check_scaling(call, o, r, base, a));
    double preset = o->scaling == SAKER_ROPE_YARN && a->factor > 1 ? 0.1 * log(a->factor) + 1 : 1;
    attention = o->attention_factor == 0 ? preset : (double)o->attention_factor;
    if (o->scaling == SAKER_ROPE_NTK && rotary > 2)
        base *= pow(a->factor, r / (r - 2));
    a->step = rotary ? -2 / r * log2(base) : 0;
    a->attention = (float)attention;
    a->scaling = o->scaling;
    return SAKER_OK;
}

/* Of the options that make angles, those that differ from what a caller who has tables leaves or fills in. */
static saker_status check_unused(skr_call *call, const options *o)
{
    const char *given = o->scaling                                             ? "scaling"
                        : o->attention_factor != 0 && o->attention_factor != 1 ? "attention_factor"
                        : o->base != 0 && o->base != 10000                     ? "base"
                                                                               : NULL;
    if (given)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given with cos: tables are used as they are", given);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- check */

/* What both ops ask of q (or its gradient) and of everything that says where its tokens are. v points at COS. */
static saker_status check_common(skr_call *call, const skr_view *q, const skr_view *k, const skr_view *v,
                                 const options *o, skr_rope_job *job)
{
    memset(job, 0, sizeof *job);
    SKR_TRY(check_rank(call, q, o->layout));
    if (k->present)
        SKR_TRY(check_beside(call, k, q, o->layout));
    if (o->eps < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "eps is %g, expected 0 (the default, 1e-6) or more", (double)o->eps);
    job->eps = o->eps == 0 ? 1e-6f : o->eps;
    job->weight_offset = o->weight_offset;
    job->interleaved = o->interleaved;
    job->norm = o->norm;
    job->in_type = q->type;
    job->batch = places[o->layout].batch < 0 ? 1 : q->shape[places[o->layout].batch];
    job->length = q->shape[places[o->layout].token];
    job->d = q->shape[q->ndim - 1];
    job->inverse_d = job->d ? (float)(1.0 / (double)job->d) : 0;
    job->heads[0] = q->shape[places[o->layout].head];
    job->heads[1] = k->present ? k->shape[places[o->layout].head] : 0;
    job->in[0] = rows_of(q, o->layout);
    job->in[1] = k->present ? rows_of(k, o->layout) : (skr_rope_rows){0};
    SKR_TRY(check_rotary(call, v, q, o->rotary_dim, job));
    SKR_TRY(check_angles(call, o, job->r, &job->angles));
    SKR_TRY(check_positions(call, v, q, o->layout, job));
    if (v[0].present)
        SKR_TRY(check_unused(call, o));
    SKR_TRY(check_table(call, v, q, job));
    SKR_TRY(check_weight(call, &v[Q_WEIGHT - COS], q, o->norm, &job->weight[0]));
    SKR_TRY(check_weight(call, &v[K_WEIGHT - COS], q, o->norm, &job->weight[1]));
    return check_pair(call, &v[K_WEIGHT - COS], k);
}

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{Q, Q_OUT}, {K, K_OUT}};
    const options o = TAKE_OPTIONS((const saker_rope_args *)args);
    skr_rope_job *job = out;
    SKR_TRY(check_common(call, &v[Q], &v[K], &v[COS], &o, job));
    SKR_TRY(check_pair(call, &v[K], &v[K_OUT]));
    SKR_TRY(check_pair(call, &v[K_OUT], &v[K]));
    SKR_TRY(check_rows(call, &v[Q_OUT], &v[Q], NULL, o.layout, &job->out[0]));
    SKR_TRY(check_rows(call, &v[K_OUT], &v[K], &v[Q_OUT], o.layout, &job->out[1]));
    job->out_type = v[Q_OUT].type;
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, allowed, sizeof allowed / sizeof *allowed));
    *empty = v[Q].count == 0 && v[K].count == 0;
    return SAKER_OK;
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{B_DQ_OUT, B_DQ}, {B_DK_OUT, B_DK}};
    const saker_rope_backward_args *a = args;
    const options o = TAKE_OPTIONS(a);
    skr_rope_job *job = out;
    SKR_TRY(check_common(call, &v[B_DQ_OUT], &v[B_DK_OUT], &v[B_COS], &o, job));
    job->backward = 1;
    job->accumulate = a->accumulate;
    if (!v[B_DQ].present && !v[B_DK].present && !v[B_DQ_WEIGHT].present && !v[B_DK_WEIGHT].present)
        return skr_fail(call, SAKER_NULL_POINTER,
                        "dq, dk, dq_weight and dk_weight are all NULL, expected at least one of them");
    static const int of_k[] = {B_K, B_DK, B_DK_WEIGHT};
    for (int i = 0; i < 3; i++)
        SKR_TRY(check_pair(call, &v[of_k[i]], &v[B_DK_OUT]));
    if (o.norm) {
        SKR_TRY(check_pair(call, &v[B_DQ_OUT], &v[B_Q]));
        SKR_TRY(check_pair(call, &v[B_DK_OUT], &v[B_K]));
    }
    SKR_TRY(check_rows(call, &v[B_Q], &v[B_DQ_OUT], NULL, o.layout, &job->x[0]));
    SKR_TRY(check_rows(call, &v[B_K], &v[B_DK_OUT], &v[B_Q], o.layout, &job->x[1]));
    SKR_TRY(check_rows(call, &v[B_DQ], &v[B_DQ_OUT], NULL, o.layout, &job->out[0]));
    SKR_TRY(check_rows(call, &v[B_DK], &v[B_DK_OUT], &v[B_DQ], o.layout, &job->out[1]));
    SKR_TRY(check_weight(call, &v[B_DQ_WEIGHT], &v[B_DQ_OUT], o.norm, &job->dweight[0]));
    SKR_TRY(check_weight(call, &v[B_DK_WEIGHT], &v[B_DQ_OUT], o.norm, &job->dweight[1]));
    job->x_type = v[B_Q].type;
    job->out_type = v[B_DQ].present ? v[B_DQ].type : v[B_DK].present ? v[B_DK].type : SKR_F32;
    SKR_TRY(skr_check_alias(call, v, N_B_TENSORS, allowed, sizeof allowed / sizeof *allowed));
    /* Without rows there is no gradient of q and k, but the empty sums are zero: written, or added (that is, left). */
    bool sums = (job->dweight[0].data || job->dweight[1].data) && !a->accumulate;
    *empty = v[B_DQ_OUT].count == 0 && v[B_DK_OUT].count == 0 && !sums;
    for (int t = 0; t < 2; t++) /* a tensor that nothing is wanted of is not read */
        if (!job->out[t].data && !job->dweight[t].data)
            job->heads[t] = 0;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

/* Tokens of a tile: its rows of cos and sin stay in the first-level cache. */
enum { TILE = 32, TILE_BYTES = 16 * 1024 };

static saker_status plan_cpu(skr_call *call, skr_rope_job *job, const skr_target *target, skr_plan *plan)
{
    skr_rope_cpu *cpu = &job->cpu;
    int64_t at = 0, heads = job->heads[0] + job->heads[1], d = job->d, pieces = 0;
    int64_t element = skr_type_bytes(job->in_type) + skr_type_bytes(job->out_type) +
                      (job->backward && job->norm ? skr_type_bytes(job->x_type) : 0);
    int64_t token_bytes = skr_mul(skr_mul(heads, d), element), tokens = skr_mul(job->batch, job->length);
    bool sums = job->dweight[0].data || job->dweight[1].data;
    plan->traffic_bytes = skr_mul(tokens, token_bytes);
    plan->variant = sums ? "norm sums" : job->norm ? "norm" : "rows";

    cpu->turns_at = job->cos ? -1 : skr_take(&at, skr_mul(job->r / 2, sizeof(double)));
    cpu->positions_at = job->cu ? skr_take(&at, skr_mul(tokens, sizeof(int64_t))) : -1;
    for (int t = 0; t < 2; t++)
        cpu->weight_at[t] = job->norm && job->heads[t] ? skr_take(&at, skr_mul(d, sizeof(float))) : -1;
    if (job->cu)
        pieces = skr_ceil_div(skr_max(tokens, job->sequences + 1), SKR_ROPE_PIECE);
    if (tokens && (!job->cos || job->norm || job->cu))
        skr_cpu_step(plan, SKR_ROPE_PREPARE, 1 + pieces);

    cpu->tile = skr_max(1, skr_min(TILE, TILE_BYTES / skr_max(skr_mul(job->r, 2 * sizeof(float)), 1)));
    cpu->tiles = skr_mul(skr_ceil_div(job->length, cpu->tile), job->batch);
    if (sums) /* cut by the problem alone: at most 64 partial sums, which are f64 */
        cpu->tiles_per_task = skr_max(1, skr_ceil_div(cpu->tiles, 64));
    else
        cpu->tiles_per_task = skr_rows_per_task(cpu->tiles, skr_mul(cpu->tile, token_bytes), target->width);
    cpu->n_parts = skr_ceil_div(cpu->tiles, cpu->tiles_per_task);
    for (int t = 0; t < 2; t++)
        cpu->parts_at[t] = job->dweight[t].data ? skr_take(&at, skr_mul(cpu->n_parts, skr_mul(d, sizeof(double)))) : -1;
    /* Each worker: rows of cos and sin with their positions, and for the norm's gradient rotated rows and two sums. */
    int64_t table = skr_mul(cpu->tile, skr_mul(job->r, 2 * sizeof(float)) + 2 * (int64_t)sizeof(int64_t));
    int64_t rows = job->backward && job->norm ? skr_mul(SKR_ROPE_HEADS + 2, skr_mul(d, sizeof(float))) : 0;
    cpu->scratch_bytes = (int64_t)skr_align_up((size_t)skr_min(table + rows, SKR_HUGE), 256);
    cpu->scratch_at = skr_take(&at, skr_mul(target->width, cpu->scratch_bytes));
    if (cpu->tiles && heads)
        skr_cpu_step(plan, SKR_ROPE_ROWS, cpu->n_parts);
    else
        cpu->n_parts = 0;
    if (sums)
        skr_cpu_step(plan, SKR_ROPE_SUM, 1);
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_rope_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

const skr_op skr_op_rope = {
    .info = {.name = "rope",
             .doc = "rotary position embedding of q and k, with their RMSNorm",
             .fields = fields,
             .n_fields = sizeof fields / sizeof *fields,
             .args_size = sizeof(saker_rope_args)},
    .v1_size = sizeof(saker_rope_args),
    .job_size = sizeof(skr_rope_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_rope_backward = {
    .info = {.name = "rope_backward",
             .doc = "gradients of rope: dq, dk, and the gradients of the norms' weights",
             .fields = backward_fields,
             .n_fields = sizeof backward_fields / sizeof *backward_fields,
             .args_size = sizeof(saker_rope_backward_args)},
    .v1_size = sizeof(saker_rope_backward_args),
    .reserved_at = offsetof(saker_rope_backward_args, reserved),
    .job_size = sizeof(skr_rope_job),
    .check = check_backward,
    .plan = plan,
};

_Static_assert(sizeof(skr_rope_job) <= SKR_JOB_BYTES, "the job must fit");
