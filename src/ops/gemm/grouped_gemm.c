/* grouped_gemm.c - grouped_gemm: fields, checks and CPU plan. Its kernel runs gemm's for each group
 * (gemm_groups_cpu.h). SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "gemm_cuda.h"

enum {
    A,
    B,
    D,
    OFFSETS,
    GATHER,
    SCATTER,
    C,
    BIAS,
    A_SCALE,
    B_SCALE,
    B_ZERO,
    SAVED,
    PRE,
    N_TENSORS,
    GROUP = N_TENSORS,
    ALPHA,
    BETA,
    SCALING,
    ACT,
    GATED,
    ALONG_K,
    ALLOW_TF32,
    FAST_ACCUM,
    N_FIELDS
};

static const saker_field fields[N_FIELDS] = {
    [A] = SKR_IN(grouped_gemm, a, 1, skr_gemm_a_types, "[T, K]; along_k [M, T]"),
    [B] = SKR_IN(grouped_gemm, b, 1, skr_gemm_b_types, "[G, K, N], u8: i4 as in gemm; along_k [T, N]"),
    [D] = SKR_OUT(grouped_gemm, d, 1, skr_gemm_result_types, "[T, N]; gated [T, N/2]; along_k [G, M, N]"),
    [OFFSETS] = SKR_IN(grouped_gemm, offsets, 1, skr_index_types, "[G + 1]: where each group begins, and T"),
    [GATHER] = SKR_IN(grouped_gemm, gather, 0, skr_index_types, "[T]: row r is row gather[r] of a"),
    [SCATTER] = SKR_IN(grouped_gemm, scatter, 0, skr_index_types, "[T]: row r goes to row scatter[r] of d"),
    [C] = SKR_IN(grouped_gemm, c, 0, skr_gemm_result_types, "[G, M, N]: beta * c is added, along_k only"),
    [BIAS] = SKR_IN(grouped_gemm, bias, 0, skr_gemm_result_types, "[G, N]"),
    [A_SCALE] = SKR_IN(grouped_gemm, a_scale, 0, skr_f32_only, "scales of a, as scaling says; absent: 1"),
    [B_SCALE] = SKR_IN(grouped_gemm, b_scale, 0, skr_f32_only, "scales of b, as scaling says; absent: 1"),
    [B_ZERO] = SKR_IN(grouped_gemm, b_zero, 0, skr_gemm_zero_types, "b_scale's shape: subtracted from b"),
    [SAVED] = SKR_IN(grouped_gemm, saved, 0, skr_floats, "[T, N]: d is multiplied by act'(saved)"),
    [PRE] = SKR_OUT(grouped_gemm, pre, 0, skr_gemm_result_types, "[T, N]: what act is given"),
    [GROUP] = SKR_OPTION_I64(grouped_gemm, group, 0, "rows of b that share a scale, with scaling group"),
    [ALPHA] = SKR_OPTION_F32(grouped_gemm, alpha, 1, "factor of the product"),
    [BETA] = SKR_OPTION_F32(grouped_gemm, beta, 0, "factor of c"),
    [SCALING] = SKR_OPTION_ENUM(grouped_gemm, scaling, "none|tensor|row_column|block|group", "what the scales are"),
    [ACT] =
        SKR_OPTION_ENUM(grouped_gemm, act, "none|sigmoid|tanh|silu|gelu|gelu_tanh|relu|relu2|swiglu_oai", "activation"),
    [GATED] = SKR_OPTION_ENUM(grouped_gemm, gated, "no|halves|interleaved", "d = act(gate) * up"),
    [ALONG_K] = SKR_OPTION_BOOL(grouped_gemm, along_k, "groups of k's"),
    [ALLOW_TF32] = SKR_OPTION_BOOL(grouped_gemm, allow_tf32, "a GPU may round f32 inputs to tf32"),
    [FAST_ACCUM] =
        SKR_OPTION_BOOL(grouped_gemm, fast_accum, "a GPU may sum fp8 products in its tensor cores' short sums"),
};

/* ---------------------------------------------------------------- options */

/* Groups of k's are a plain sum of products. */
static saker_status check_along_k(skr_call *call, const skr_view *v, const saker_grouped_gemm_args *args)
{
    static const int absent[] = {GATHER, SCATTER, BIAS, SAVED, PRE};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (v[absent[i]].present)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is given, which is not for along_k", v[absent[i]].name);
    if (args->scaling || args->act || args->gated)
        return skr_fail(call, SAKER_INVALID_ARG, "scaling, act and gated are not for along_k");
    return SAKER_OK;
}

static saker_status check_options(skr_call *call, const skr_view *v, const saker_grouped_gemm_args *args)
{
    skr_gemm_options o = SKR_GEMM_OPTIONS(v, args);
    SKR_TRY(skr_gemm_check_options(call, &o));
    if (args->along_k)
        return check_along_k(call, v, args);
    if (v[C].present || args->beta != 0)
        return skr_fail(call, SAKER_INVALID_ARG, "c and beta are for along_k");
    return SAKER_OK;
}

/* ---------------------------------------------------------------- shapes */

saker_status skr_grouped_gemm_check_dims(skr_call *call, const skr_view *v, const char *before, const char *reason,
                                         const char *behind, int ndim, const int64_t want[3])
{
    char text[192], sizes[96] = "";
    bool fits = v->ndim == ndim;
    for (int i = 0; fits && i < ndim; i++)
        fits = want[i] < 0 || v->shape[i] == want[i];
    if (!v->present || fits)
        return SAKER_OK;
    for (int i = 0; i < ndim; i++) {
        size_t used = strlen(sizes);
        if (want[i] < 0)
            snprintf(sizes + used, sizeof sizes - used, "%sany", i ? ", " : "");
        else
            snprintf(sizes + used, sizeof sizes - used, "%s%lld", i ? ", " : "", (long long)want[i]);
    }
    return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%s]%s%s%s", v->name, skr_shape_text(v, text),
                    sizes, before, reason, behind);
}

/* from: the arguments that say so. */
static saker_status check_dims(skr_call *call, const skr_view *v, const char *from, int ndim, int64_t d0, int64_t d1,
                               int64_t d2)
{
    return skr_grouped_gemm_check_dims(call, v, *from ? " from " : "", from, "", ndim, (const int64_t[]){d0, d1, d2});
}

/* A matrix of the job: its group's stride (-1: none), row and column dimensions of v (-1: none). */
static skr_gemm_matrix matrix(const skr_view *v, int group, int row, int col)
{
    skr_gemm_matrix m = {.at = {.data = v->data, .type = v->type}};
    if (!v->present)
        return m;
    m.at.stride[0] = group < 0 ? 0 : v->stride[group];
    m.row = row < 0 ? 0 : v->stride[row];
    m.at.col_stride = col < 0 ? 0 : v->stride[col];
    return m;
}

static saker_status check_scales(skr_call *call, const skr_view *v, int64_t a_rows, skr_grouped_gemm_job *job)
{
    skr_gemm_job *g = &job->gemm;
    const skr_view *a = &v[A_SCALE], *b = &v[B_SCALE];
    char text[192];
    int64_t size = g->scaling == SKR_GEMM_GROUP ? g->group : SKR_GEMM_SCALE_BLOCK, blocks = skr_ceil_div(g->k, size);
    if (g->scaling <= SKR_GEMM_TENSOR) {
        for (int i = A_SCALE; i <= B_SCALE; i++)
            if (v[i].present && v[i].count != 1)
                return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected one element", v[i].name,
                                skr_shape_text(&v[i], text));
        g->a_scale = matrix(a, -1, -1, -1);
        g->b_scale = matrix(b, -1, -1, -1);
        return SAKER_OK;
    }
    if (g->scaling == SKR_GEMM_BLOCK) {
        SKR_TRY(check_dims(call, a, "a", 2, a_rows, blocks, 0));
        SKR_TRY(check_dims(call, b, "b and offsets", 3, job->groups, blocks, skr_ceil_div(g->n, size)));
        g->a_scale = matrix(a, -1, 0, 1);
        g->b_scale = matrix(b, 0, 1, 2);
        return SAKER_OK;
    }
    SKR_TRY(check_dims(call, a, "a", 1, a_rows, 0, 0));
    g->a_scale = matrix(a, -1, -1, 0);
    if (g->scaling == SKR_GEMM_ROW_COLUMN) {
        SKR_TRY(check_dims(call, b, "b and offsets", 2, job->groups, g->n, 0));
        g->b_scale = matrix(b, 0, -1, 1);
        return SAKER_OK;
    }
    SKR_TRY(check_dims(call, b, "b, group and offsets", 3, job->groups, blocks, g->n));
    SKR_TRY(check_dims(call, &v[B_ZERO], "b, group and offsets", 3, job->groups, blocks, g->n));
    g->b_scale = matrix(b, 0, 1, 2);
    g->b_zero = matrix(&v[B_ZERO], 0, 1, 2);
    return SAKER_OK;
}

static skr_param indices(const skr_view *v)
{
    return (skr_param){.data = v->data, .stride = v->present ? v->stride[0] : 0, .type = v->type};
}

static saker_status check_rows(skr_call *call, const skr_view *v, skr_grouped_gemm_job *job)
{
    skr_gemm_job *g = &job->gemm;
    SKR_TRY(check_dims(call, &v[A], "", 2, -1, -1, 0));
    g->k = v[A].shape[1];
    SKR_TRY(check_dims(call, &v[B], "a and offsets", 3, job->groups, g->k, -1));
    SKR_TRY(check_dims(call, &v[GATHER], "", 1, -1, 0, 0));
    g->n = v[B].shape[2];
    job->total = v[GATHER].present ? v[GATHER].shape[0] : v[A].shape[0];
    if (g->gated && g->n % 2)
        return skr_fail(call, SAKER_INVALID_ARG, "b has %lld columns, expected an even number (gated)",
                        (long long)g->n);
    SKR_TRY(check_dims(call, &v[SCATTER], "a and gather", 1, job->total, 0, 0));
    SKR_TRY(check_dims(call, &v[D], "a, b, gather and scatter", 2, v[SCATTER].present ? -1 : job->total,
                       g->gated ? g->n / 2 : g->n, 0));
    SKR_TRY(check_dims(call, &v[PRE], "a, b and gather", 2, job->total, g->n, 0));
    SKR_TRY(check_dims(call, &v[SAVED], "a, b and gather", 2, job->total, g->n, 0));
    SKR_TRY(check_dims(call, &v[BIAS], "b and offsets", 2, job->groups, g->n, 0));
    SKR_TRY(check_scales(call, v, v[A].shape[0], job));
    g->a = matrix(&v[A], -1, 0, 1);
    g->b = matrix(&v[B], 0, 1, 2);
    g->d = matrix(&v[D], -1, 0, 1);
    g->pre = matrix(&v[PRE], -1, 0, 1);
    g->saved = matrix(&v[SAVED], -1, 0, 1);
    if (v[BIAS].present) {
        g->bias = (skr_param){.data = v[BIAS].data, .stride = v[BIAS].stride[1], .type = v[BIAS].type};
        job->bias_stride = v[BIAS].stride[0];
    }
    g->gather = indices(&v[GATHER]);
    g->gather_rows = v[A].shape[0];
    g->scatter = indices(&v[SCATTER]);
    g->scatter_rows = v[D].shape[0];
    return SAKER_OK;
}

static saker_status check_ks(skr_call *call, const skr_view *v, skr_grouped_gemm_job *job)
{
    skr_gemm_job *g = &job->gemm;
    SKR_TRY(check_dims(call, &v[A], "", 2, -1, -1, 0));
    g->m = v[A].shape[0];
    job->total = g->k = v[A].shape[1];
    SKR_TRY(check_dims(call, &v[B], "a", 2, g->k, -1, 0));
    g->n = v[B].shape[1];
    SKR_TRY(check_dims(call, &v[D], "a, b and offsets", 3, job->groups, g->m, g->n));
    SKR_TRY(check_dims(call, &v[C], "a, b and offsets", 3, job->groups, g->m, g->n));
    g->a = matrix(&v[A], -1, 0, 1);
    g->b = matrix(&v[B], -1, 0, 1);
    g->c = matrix(&v[C], 0, 1, 2);
    g->d = matrix(&v[D], 0, 1, 2);
    if (g->beta == 0)
        g->c.at.data = NULL;
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *given, void *out, bool *empty)
{
    static const skr_alias_pair allowed[] = {{C, D}};
    const saker_grouped_gemm_args *args = given;
    skr_grouped_gemm_job *job = out;
    skr_gemm_job *g = &job->gemm;
    skr_view opened[N_TENSORS];
    char text[192];
    memset(job, 0, sizeof *job);
    if (v[B].type == SKR_U8) {
        memcpy(opened, v, sizeof opened);
        v = opened;
        SKR_TRY(skr_gemm_open_bytes(call, v[A].ndim ? v[A].shape[v[A].ndim - 1] : 0, false, &opened[B]));
    }
    SKR_TRY(check_options(call, v, args));
    g->group = args->group;
    g->alpha = args->alpha != 0 ? args->alpha : 1;
    g->beta = args->beta;
    g->scaling = args->scaling;
    g->act = args->act;
    g->gated = args->gated;
    g->allow_tf32 = args->allow_tf32;
    g->fast_accum = args->fast_accum;
    g->exact = v[D].type == SKR_I32;
    job->along_k = args->along_k;
    if (v[OFFSETS].ndim != 1 || v[OFFSETS].shape[0] < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "offsets has shape %s, expected [groups + 1]",
                        skr_shape_text(&v[OFFSETS], text));
    job->groups = v[OFFSETS].shape[0] - 1;
    job->offsets = indices(&v[OFFSETS]);
    g->batch = (skr_row_space){.m = job->groups, .n_dims = 1, .dims = {job->groups}};
    SKR_TRY((job->along_k ? check_ks : check_rows)(call, v, job));
    if (v[B].type == SKR_I4)
        SKR_TRY(skr_gemm_check_nibbles(call, &v[B]));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, allowed, 1));
    /* Rows that are scattered to a d without rows are still looked at, and still give pre. */
    *empty = job->along_k ? v[D].count == 0 : g->n == 0 || job->total == 0;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- plan */

/* Rows of d are cut into tiles group by group: which tile is whose is known once offsets is, so there are as many tasks
 * as there can be tiles. b is packed by each task as it goes: all of it at once would be the size of all experts. */
static int64_t plan_rows(skr_grouped_gemm_job *job, int width, int64_t *at)
{
    skr_gemm_job *g = &job->gemm;
    const skr_gemm_tile *t = &g->tile;
    g->m_panels = skr_ceil_div(skr_ceil_div(job->total, skr_max(job->groups, 1)), t->mr);
    skr_gemm_cut_tiles(g, skr_max(job->groups, 1), width);
    g->skinny = 1;
    job->max_tiles = job->total / (g->tile_m * t->mr) + job->groups;
    int64_t panels = job->total / t->mr + job->groups;
    g->a_batch_bytes = skr_gemm_panels_bytes(g, 1, t->mr); /* here: of one panel */
    g->a_at = skr_take(at, skr_mul(panels, g->a_batch_bytes));
    job->pack_tasks = job->max_tiles;
    return skr_mul(job->max_tiles, g->n_tiles);
}

static int64_t plan_ks(skr_grouped_gemm_job *job, int width, int64_t *at)
{
    skr_gemm_job *g = &job->gemm, mean = *g;
    const skr_gemm_tile *t = &g->tile;
    skr_gemm_cut_tiles(g, job->groups, width);
    int64_t k = job->total + job->groups * t->granule, bytes = skr_kind_bytes(g->kind);
    g->a_at = skr_take(at, skr_mul(skr_mul(k, g->m_panels), t->mr * bytes));
    g->b_at = skr_take(at, skr_mul(skr_mul(k, g->n_panels), t->nr * bytes));
    mean.k = job->total / job->groups;
    g->a_panels_per_task = skr_gemm_panels_per_task(&mean, g->m_panels, width);
    g->b_panels_per_task = skr_gemm_panels_per_task(&mean, g->n_panels, width);
    g->a_tasks = skr_ceil_div(g->m_panels, g->a_panels_per_task);
    g->b_tasks = skr_ceil_div(g->n_panels, g->b_panels_per_task);
    job->pack_tasks = skr_mul(job->groups, g->a_tasks + g->b_tasks);
    return skr_mul(job->groups, skr_mul(g->m_tiles, g->n_tiles));
}

void skr_grouped_gemm_product(skr_grouped_gemm_job *job, int64_t groups, int64_t total, int64_t n, int64_t k,
                              skr_gemm_matrix a, skr_gemm_matrix b, skr_gemm_matrix d)
{
    skr_gemm_product(&job->gemm, 0, n, k, a, b, d);
    job->gemm.batch = (skr_row_space){.m = groups, .n_dims = 1, .dims = {groups}};
    job->groups = groups;
    job->total = total;
}

saker_status skr_grouped_gemm_plan(skr_call *call, void *planned, const skr_target *target, skr_plan *out)
{
    skr_grouped_gemm_job *job = planned;
    skr_gemm_job *g = &job->gemm;
    if (target->backend == SKR_CUDA)
        return skr_grouped_gemm_plan_cuda(call, job, target, out);
    int64_t at = 0;
    out->variant = skr_gemm_shape(g, target->level);
    g->a_batches = g->b_batches = 1;
    int64_t tasks = (job->along_k ? plan_ks : plan_rows)(job, target->width, &at);
    g->scratch_bytes = skr_gemm_scratch(g);
    g->scratch_at = skr_take(&at, skr_mul(g->scratch_bytes, target->width));
    job->table_at = skr_take(&at, skr_mul(job->groups + 1, sizeof(skr_gemm_group)));
    SKR_TRY(skr_take_done(call, at, out));
    out->traffic_bytes = skr_mul(skr_mul(job->along_k ? g->m : job->total, skr_mul(g->n, skr_max(g->k, 1))), 2) / 8 * 5;
    skr_why(out, "groups of %s: %lld, of %lld in all", job->along_k ? "k's" : "rows", (long long)job->groups,
            (long long)job->total);
    skr_cpu_step(out, SKR_GROUPED_TABLE, 1);
    skr_cpu_step(out, SKR_GROUPED_PACK, job->pack_tasks);
    skr_cpu_step(out, SKR_GROUPED_TILES, tasks);
    return SAKER_OK;
}

const skr_op skr_op_grouped_gemm = {
    .info = {.name = "grouped_gemm",
             .doc = "matrix products of groups of rows (experts) or of k's (their weight gradients)",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_grouped_gemm_args)},
    .v1_size = sizeof(saker_grouped_gemm_args),
    .job_size = sizeof(skr_grouped_gemm_job),
    .check = check,
    .plan = skr_grouped_gemm_plan,
};

_Static_assert(sizeof(skr_grouped_gemm_job) <= SKR_JOB_BYTES, "the job must fit");
