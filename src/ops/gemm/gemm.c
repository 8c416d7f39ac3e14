/* gemm.c - gemm: fields and checks. The CPU plan is in gemm_plan.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_op.h"

#include <string.h>

enum {
    A,
    B,
    D,
    C,
    BIAS,
    A_SCALE,
    B_SCALE,
    B_ZERO,
    SAVED,
    PRE,
    DBIAS,
    N_TENSORS,
    GROUP = N_TENSORS,
    ALPHA,
    BETA,
    SCALING,
    ACT,
    GATED,
    BIAS_ROWS,
    ACCUMULATE,
    ALLOW_TF32,
    FAST_ACCUM,
    SCHEDULE,
    B_PACKED,
    N_FIELDS
};

const uint32_t skr_gemm_a_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2, SAKER_I8, SAKER_I32, 0};
const uint32_t skr_gemm_b_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2,
                                     SAKER_I8,  SAKER_I4,  SAKER_U8,   SAKER_I32,  0};
const uint32_t skr_gemm_result_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_I32, 0};
const uint32_t skr_gemm_zero_types[] = {SAKER_I8, SAKER_F32, 0};

static const saker_field fields[N_FIELDS] = {
    [A] = SKR_IN(gemm, a, 1, skr_gemm_a_types, "[..., M, K]"),
    [B] = SKR_IN(gemm, b, 1, skr_gemm_b_types, "[..., K, N]; u8: i4, two in a byte, [..., K/2, N] or [..., K, N/2]"),
    [D] = SKR_OUT(gemm, d, 1, skr_gemm_result_types, "[..., M, N]; gated [..., M, N/2]"),
    [C] = SKR_IN(gemm, c, 0, skr_gemm_result_types, "[..., M, N]: beta * c is added"),
    [BIAS] = SKR_IN(gemm, bias, 0, skr_gemm_result_types, "[N], or [M] with bias_rows"),
    [A_SCALE] = SKR_IN(gemm, a_scale, 0, skr_f32_only, "scales of a, as scaling says; absent: 1"),
    [B_SCALE] = SKR_IN(gemm, b_scale, 0, skr_f32_only, "scales of b, as scaling says; absent: 1"),
    [B_ZERO] = SKR_IN(gemm, b_zero, 0, skr_gemm_zero_types, "b_scale's shape: subtracted from b before it is scaled"),
    [SAVED] = SKR_IN(gemm, saved, 0, skr_floats, "[..., M, N]: d is multiplied by act'(saved)"),
    [PRE] = SKR_OUT(gemm, pre, 0, skr_gemm_result_types, "[..., M, N]: what act is given"),
    [DBIAS] = SKR_OUT(gemm, dbias, 0, skr_floats, "[N]: sums of d over its rows"),
    [GROUP] = SKR_OPTION_I64(gemm, group, 0, "rows of b that share a scale, with scaling group"),
    [ALPHA] = SKR_OPTION_F32(gemm, alpha, 1, "factor of the product"),
    [BETA] = SKR_OPTION_F32(gemm, beta, 0, "factor of c"),
    [SCALING] = SKR_OPTION_ENUM(gemm, scaling, "none|tensor|row_column|block|group", "what a_scale and b_scale are"),
    [ACT] = SKR_OPTION_ENUM(gemm, act, "none|sigmoid|tanh|silu|gelu|gelu_tanh|relu|relu2|swiglu_oai", "activation"),
    [GATED] = SKR_OPTION_ENUM(gemm, gated, "no|halves|interleaved", "d = act(gate) * up"),
    [BIAS_ROWS] = SKR_OPTION_BOOL(gemm, bias_rows, "bias is [M]"),
    [ACCUMULATE] = SKR_OPTION_BOOL(gemm, accumulate, "dbias += instead of ="),
    [ALLOW_TF32] = SKR_OPTION_BOOL(gemm, allow_tf32, "a GPU may round f32 inputs to tf32"),
    [FAST_ACCUM] = SKR_OPTION_BOOL(gemm, fast_accum, "a GPU may sum fp8 products in its tensor cores' short sums"),
    [SCHEDULE] = SKR_OPTION_ENUM(gemm, schedule, "auto|data_parallel|persistent|split_k|stream_k",
                                 "how the product is cut into work"),
    [B_PACKED] = SKR_OPTION_BOOL(gemm, b_packed, "b is what gemm_pack wrote"),
};

/* ---------------------------------------------------------------- types and options */

static bool same_family(int a, int b)
{
    return (a == b && a != SKR_I4) || (skr_gemm_is_fp8(a) && skr_gemm_is_fp8(b));
}

/* Float or i8 activations with weights of fewer bits. */
static bool narrow_weights(int a, int b)
{
    return ((a == SKR_F16 || a == SKR_BF16) && (b == SKR_I8 || b == SKR_I4)) || (a == SKR_I8 && b == SKR_I4);
}

saker_status skr_gemm_check_types(skr_call *call, int a_type, int b_type, int scaling, int64_t group)
{
    bool groups = narrow_weights(a_type, b_type);
    if (!groups && !same_family(a_type, b_type))
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "a and b have types that do not go together, expected the same type, two fp8 types, f16 or "
                        "bf16 a with i8 or i4 b, or i8 a with i4 b");
    if (groups != (scaling == SKR_GEMM_GROUP))
        return skr_fail(call, SAKER_INVALID_ARG,
                        groups ? "scaling is not group, and b of type i8 or i4 beside this a needs it"
                               : "scaling is group, which is for f16 or bf16 a with i8 or i4 b, and i8 a with i4 b");
    if (groups != (group != 0) || group < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "group is %lld, expected %s", (long long)group,
                        groups ? "1 or more" : "0 (scaling is not group)");
    return SAKER_OK;
}

/* d is i32: the result is exact, and nothing may round it. */
static saker_status check_exact(skr_call *call, const skr_gemm_options *o)
{
    if (!(o->a->type == SKR_I8 && o->b->type == SKR_I8) && o->a->type != SKR_I32)
        return skr_fail(call, SAKER_UNSUPPORTED, "d has type i32, which needs a and b of type i8, or both i32");
    if (o->scaling || o->act || o->gated || o->saved->present)
        return skr_fail(call, SAKER_INVALID_ARG, "d has type i32: scaling, act, gated and saved are for float results");
    if ((o->alpha != 0 && o->alpha != 1) || (o->beta != 0 && o->beta != 1))
        return skr_fail(call, SAKER_INVALID_ARG, "alpha is %g and beta %g: with d of type i32 alpha is 1, beta 0 or 1",
                        (double)o->alpha, (double)o->beta);
    return SAKER_OK;
}

saker_status skr_gemm_check_options(skr_call *call, const skr_gemm_options *o)
{
    const skr_view *results[] = {o->c, o->bias, o->pre};
    bool exact = o->d->type == SKR_I32;
    SKR_TRY(skr_gemm_check_types(call, o->a->type, o->b->type, o->scaling, o->group));
    if (o->a->type == SKR_I32 && !exact)
        return skr_fail(call, SAKER_UNSUPPORTED, "d has a float type, expected i32 (the type of a and b)");
    if (exact)
        SKR_TRY(check_exact(call, o));
    for (int i = 0; i < 3; i++)
        if (results[i]->present && (results[i]->type == SKR_I32) != exact)
            return skr_fail(call, SAKER_INVALID_ARG, "%s has type %s, expected %s as d has", results[i]->name,
                            exact ? "float" : "i32", exact ? "i32" : "a float type");
    if (o->beta != 0 && !o->c->present)
        return skr_fail(call, SAKER_NULL_POINTER, "c is NULL, and beta is %g", (double)o->beta);
    if (o->act == SAKER_ACT_SWIGLU_OAI && !o->gated)
        return skr_fail(call, SAKER_INVALID_ARG, "act is swiglu_oai, which needs gated");
    if (o->gated && o->saved->present)
        return skr_fail(call, SAKER_INVALID_ARG, "saved does not go with gated");
    if (!o->scaling && (o->a_scale->present || o->b_scale->present))
        return skr_fail(call, SAKER_INVALID_ARG, "a_scale or b_scale is given, but scaling is none");
    if (o->scaling && !o->a_scale->present && !o->b_scale->present)
        return skr_fail(call, SAKER_NULL_POINTER, "a_scale and b_scale are NULL, and scaling is not none");
    if (o->b_zero->present && !(o->scaling == SKR_GEMM_GROUP && o->b_scale->present))
        return skr_fail(call, SAKER_INVALID_ARG, "b_zero is given: it needs scaling group and b_scale");
    return SAKER_OK;
}

static saker_status check_options(skr_call *call, const skr_view *v, const saker_gemm_args *args)
{
    skr_gemm_options o = SKR_GEMM_OPTIONS(v, args);
    SKR_TRY(skr_gemm_check_options(call, &o));
    if (v[DBIAS].present && (args->gated || v[D].type == SKR_I32))
        return skr_fail(call, SAKER_INVALID_ARG, "dbias is given, which is for float results that are not gated");
    if (args->accumulate && !v[DBIAS].present)
        return skr_fail(call, SAKER_NULL_POINTER, "dbias is NULL, and accumulate needs it");
    if (args->b_packed && (v[B].ndim != 2 || (args->scaling >= SKR_GEMM_BLOCK && v[B_SCALE].ndim > 2)))
        return skr_fail(call, SAKER_INVALID_ARG, "b_packed is set, which is for one matrix b with scales of its own");
    return SAKER_OK;
}

saker_status skr_gemm_check_nibbles(skr_call *call, const skr_view *b)
{
    bool packed = false;
    for (int i = 0; i < b->ndim; i++) {
        bool last = i >= b->ndim - 2 && b->stride[i] == 1 && !packed;
        if (b->shape[i] < 2)
            continue;
        if (!last && b->stride[i] % 2)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "%s has stride %lld in dimension %d: an i4 matrix has stride 1 in one of its last two "
                            "dimensions and even strides elsewhere",
                            b->name, (long long)b->stride[i], i);
        packed |= last;
    }
    return SAKER_OK;
}

saker_status skr_gemm_open_bytes(skr_call *call, int64_t rows, bool packed, skr_view *b)
{
    if (b->type != SKR_U8 || b->ndim < 2)
        return SAKER_OK;
    const int k = b->ndim - 2, n = b->ndim - 1;
    const bool along_k = rows < 0 ? b->stride[k] == 1 && b->stride[n] != 1 : b->shape[k] != rows;
    const int along = along_k ? k : n;
    if (b->shape[along] > 1 && b->stride[along] != 1 && !packed)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has type u8 and stride %lld in dimension %d, expected 1: along it a byte holds two i4",
                        b->name, (long long)b->stride[along], along);
    const int64_t bytes = b->shape[along];
    const bool odd = along_k && rows > 0 && rows / 2 + rows % 2 == bytes;
    return skr_open_nibbles(call, b, along, odd ? rows : skr_mul(bytes, 2));
}

/* ---------------------------------------------------------------- shapes */

/* The batch: leading dimensions of a and b, broadcast. */
typedef struct batch_shape {
    int n;
    int64_t dim[SAKER_MAX_DIMS];
} batch_shape;

static saker_status find_batch(skr_call *call, const skr_view *a, const skr_view *b, batch_shape *out)
{
    out->n = (a->ndim > b->ndim ? a->ndim : b->ndim) - 2;
    for (int i = 0; i < out->n; i++) {
        int ia = i - (out->n - (a->ndim - 2)), ib = i - (out->n - (b->ndim - 2));
        int64_t da = ia < 0 ? 1 : a->shape[ia], db = ib < 0 ? 1 : b->shape[ib];
        char x[192], y[192];
        if (da != db && da != 1 && db != 1)
            return skr_fail(call, SAKER_INVALID_ARG, "a has shape %s and b %s: their leading dimensions do not match",
                            skr_shape_text(a, x), skr_shape_text(b, y));
        out->dim[i] = da == 1 ? db : da;
    }
    return SAKER_OK;
}

/* The last two dimensions of what v shows, and its strides over the batch, as a matrix of the job. tail: how many of
 * v's dimensions are the matrix's own (0, 1 or 2). */
typedef struct placing {
    skr_row_builder rows;
    skr_view batch;           /* the batch's shape, then [1] */
    skr_view fake[N_TENSORS]; /* the same with each tensor's strides: the row helpers merge dimensions */
    int n;
} placing;

static saker_status place(skr_call *call, placing *p, const skr_view *v, int tail, int64_t rows, int64_t cols,
                          skr_gemm_matrix *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    int lead = v->ndim - tail, n = p->batch.ndim - 1;
    int64_t want[2] = {rows, cols};
    bool fits = lead >= 0 && lead <= n;
    for (int i = 0; fits && i < tail; i++)
        fits = v->shape[lead + i] == want[2 - tail + i];
    for (int i = 0; fits && i < lead; i++)
        fits = v->shape[i] == 1 || v->shape[i] == p->batch.shape[n - lead + i];
    if (!fits) {
        char text[192], batch[192];
        skr_view lead_view = p->batch;
        lead_view.ndim--;
        if (tail == 2)
            return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld] after dimensions that %s",
                            v->name, skr_shape_text(v, text), (long long)rows, (long long)cols,
                            "broadcast to the batch");
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s, expected [%lld] after dimensions that broadcast to "
                        "the batch %s",
                        v->name, skr_shape_text(v, text), (long long)cols, skr_shape_text(&lead_view, batch));
    }
    skr_view *fake = &p->fake[p->n++];
    *fake = p->batch;
    fake->present = true;
    fake->data = v->data;
    fake->type = v->type;
    for (int i = 0; i < n; i++) {
        int own = i - (n - lead);
        fake->stride[i] = own < 0 || v->shape[own] == 1 ? 0 : v->stride[own];
    }
    SKR_TRY(skr_rows_add(call, &p->rows, fake, &out->at));
    out->row = tail == 2 ? v->stride[lead] : 0;
    out->at.col_stride = tail ? v->stride[v->ndim - 1] : 0;
    return SAKER_OK;
}

/* One number for all. */
static saker_status place_single(skr_call *call, const skr_view *v, skr_gemm_matrix *out)
{
    char text[192];
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    if (v->count != 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected one element", v->name,
                        skr_shape_text(v, text));
    out->at.data = v->data;
    out->at.type = v->type;
    return SAKER_OK;
}

static saker_status place_scales(skr_call *call, placing *p, const skr_view *v, skr_gemm_job *job)
{
    int64_t size = job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK;
    int64_t blocks = skr_ceil_div(job->k, size);
    if (job->scaling <= SKR_GEMM_TENSOR) {
        SKR_TRY(place_single(call, &v[A_SCALE], &job->a_scale));
        return place_single(call, &v[B_SCALE], &job->b_scale);
    }
    if (job->scaling == SKR_GEMM_BLOCK) {
        SKR_TRY(place(call, p, &v[A_SCALE], 2, job->m, blocks, &job->a_scale));
        return place(call, p, &v[B_SCALE], 2, blocks, skr_ceil_div(job->n, size), &job->b_scale);
    }
    SKR_TRY(place(call, p, &v[A_SCALE], 1, 0, job->m, &job->a_scale));
    if (job->scaling == SKR_GEMM_ROW_COLUMN)
        return place(call, p, &v[B_SCALE], 1, 0, job->n, &job->b_scale);
    SKR_TRY(place(call, p, &v[B_SCALE], 2, blocks, job->n, &job->b_scale));
    return place(call, p, &v[B_ZERO], 2, blocks, job->n, &job->b_zero);
}

static saker_status check_vector(skr_call *call, const skr_view *v, int64_t n, skr_param *out)
{
    char text[192];
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    if (v->ndim != 1 || v->shape[0] != n)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld]", v->name, skr_shape_text(v, text),
                        (long long)n);
    *out = (skr_param){.data = v->data, .stride = v->stride[0], .type = v->type};
    return SAKER_OK;
}

/* pre is written, so it has all of the batch: one matrix for several of them would hold any of theirs. */
static saker_status check_pre(skr_call *call, const skr_view *pre, const batch_shape *batch, const skr_gemm_job *job)
{
    char text[192], expected[192];
    skr_view want = {.ndim = batch->n + 2};
    memcpy(want.shape, batch->dim, (size_t)batch->n * sizeof *batch->dim);
    want.shape[batch->n] = job->m;
    want.shape[batch->n + 1] = job->n;
    if (!pre->present ||
        (pre->ndim == want.ndim && !memcmp(pre->shape, want.shape, (size_t)want.ndim * sizeof *want.shape)))
        return SAKER_OK;
    return skr_fail(call, SAKER_INVALID_ARG, "pre has shape %s, expected %s from a and b", skr_shape_text(pre, text),
                    skr_shape_text(&want, expected));
}

static saker_status check_shapes(skr_call *call, const skr_view *v, skr_gemm_job *job)
{
    char x[192], y[192], z[192];
    const skr_view *a = &v[A], *b = &v[B], *d = &v[D];
    if (a->ndim < 2 || b->ndim < 2 || a->shape[a->ndim - 1] != b->shape[b->ndim - 2])
        return skr_fail(call, SAKER_INVALID_ARG, "a has shape %s and b %s, expected [..., M, K] and [..., K, N]",
                        skr_shape_text(a, x), skr_shape_text(b, y));
    job->m = a->shape[a->ndim - 2];
    job->k = a->shape[a->ndim - 1];
    job->n = b->shape[b->ndim - 1];
    if (job->gated && job->n % 2)
        return skr_fail(call, SAKER_INVALID_ARG, "b has %lld columns, expected an even number (gated)",
                        (long long)job->n);
    batch_shape batch;
    SKR_TRY(find_batch(call, a, b, &batch));
    int64_t columns = job->gated ? job->n / 2 : job->n;
    bool fits = d->ndim == batch.n + 2 && d->shape[batch.n] == job->m && d->shape[batch.n + 1] == columns;
    for (int i = 0; fits && i < batch.n; i++)
        fits = d->shape[i] == batch.dim[i];
    if (!fits)
        return skr_fail(call, SAKER_INVALID_ARG, "d has shape %s, expected [..., %lld, %lld] from a %s and b %s",
                        skr_shape_text(d, x), (long long)job->m, (long long)columns, skr_shape_text(a, y),
                        skr_shape_text(b, z));
    SKR_TRY(check_pre(call, &v[PRE], &batch, job));
    placing p = {.batch = {.name = "d", .present = true, .ndim = batch.n + 1}};
    memcpy(p.batch.shape, batch.dim, sizeof batch.dim);
    p.batch.shape[batch.n] = 1;
    skr_rows_start(&p.rows, &p.batch);
    SKR_TRY(place(call, &p, a, 2, job->m, job->k, &job->a));
    SKR_TRY(place(call, &p, b, 2, job->k, job->n, &job->b));
    SKR_TRY(place(call, &p, d, 2, job->m, columns, &job->d));
    SKR_TRY(place(call, &p, &v[C], 2, job->m, job->n, &job->c));
    SKR_TRY(place(call, &p, &v[PRE], 2, job->m, job->n, &job->pre));
    SKR_TRY(place(call, &p, &v[SAVED], 2, job->m, job->n, &job->saved));
    SKR_TRY(place_scales(call, &p, v, job));
    SKR_TRY(check_vector(call, &v[BIAS], job->bias_rows ? job->m : job->n, &job->bias));
    SKR_TRY(check_vector(call, &v[DBIAS], job->n, &job->dbias));
    return skr_rows_merge(call, &p.rows, &job->batch);
}

static saker_status check(skr_call *call, const skr_view *v, const void *out_args, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{C, D}};
    const saker_gemm_args *args = out_args;
    skr_gemm_job *job = out;
    skr_view opened[N_TENSORS];
    memset(job, 0, sizeof *job);
    if (v[B].type == SKR_U8) {
        memcpy(opened, v, sizeof opened);
        v = opened;
        SKR_TRY(skr_gemm_open_bytes(call, v[A].ndim ? v[A].shape[v[A].ndim - 1] : 0, args->b_packed, &opened[B]));
    }
    SKR_TRY(check_options(call, v, args));
    job->group = args->group;
    job->alpha = args->alpha != 0 ? args->alpha : 1;
    job->beta = args->beta;
    job->scaling = args->scaling;
    job->act = args->act;
    job->gated = args->gated;
    job->bias_rows = args->bias_rows;
    job->accumulate = args->accumulate;
    job->schedule = args->schedule;
    job->allow_tf32 = args->allow_tf32;
    job->fast_accum = args->fast_accum;
    job->b_packed = args->b_packed;
    job->exact = v[D].type == SKR_I32;
    SKR_TRY(check_shapes(call, v, job));
    if (v[B].type == SKR_I4 && !job->b_packed)
        SKR_TRY(skr_gemm_check_nibbles(call, &v[B]));
    if (job->gated && v[C].present && v[C].data == v[D].data && v[C].data)
        return skr_fail(call, SAKER_ALIAS, "d overlaps c, which gated does not allow");
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, allowed, 1));
    if (job->beta == 0)
        job->c.at.data = NULL;
    *empty = job->m == 0 || job->n == 0 || job->batch.m == 0;
    /* Sums over nothing are still sums. */
    if (*empty && job->dbias.data && job->n && !job->accumulate)
        *empty = false;
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA && ((const skr_gemm_job *)job)->b_packed)
        return skr_fail(call, SAKER_UNSUPPORTED, "b_packed is set, and a GPU reads b as it lies");
    return skr_gemm_plan(call, job, target, out);
}

const skr_op skr_op_gemm = {
    .info = {.name = "gemm",
             .doc = "matrix product with scales, bias, activation: d = act(alpha * scales * (a x b) + beta * c + bias)",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_gemm_args)},
    .v1_size = sizeof(saker_gemm_args),
    .reserved_at = offsetof(saker_gemm_args, reserved),
    .job_size = sizeof(skr_gemm_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_gemm_job) <= SKR_JOB_BYTES, "the job must fit");
_Static_assert((int)SKR_GEMM_GROUP == (int)SAKER_GEMM_SCALE_GROUP, "the job's numbers are the interface's");
