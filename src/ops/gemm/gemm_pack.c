/* gemm_pack.c - gemm_pack: fields, checks and plan. The panels are those of gemm's packing step (gemm_cpu.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gemm_op.h"

enum { B, B_SCALE, B_ZERO, PACKED, BYTES, N_TENSORS, GROUP = N_TENSORS, SCALING, GATED, FOR_A, N_FIELDS };

static const uint32_t u8_only[] = {SAKER_U8, 0};

static const saker_field fields[N_FIELDS] = {
    [B] = SKR_IN(gemm_pack, b, 1, skr_gemm_b_types, "[K, N]; u8: i4, two in a byte along what lies side by side"),
    [B_SCALE] = SKR_IN(gemm_pack, b_scale, 0, skr_f32_only, "scales of b, as scaling says; absent: 1"),
    [B_ZERO] = SKR_IN(gemm_pack, b_zero, 0, skr_gemm_zero_types, "b_scale's shape: as in gemm"),
    [PACKED] = SKR_OUT(gemm_pack, packed, 0, u8_only, "[bytes or more]: b as the kernels read it"),
    [BYTES] = SKR_OUT(gemm_pack, bytes, 0, skr_i64_only, "one element: how many bytes packed needs"),
    [GROUP] = SKR_OPTION_I64(gemm_pack, group, 0, "rows of b that share a scale, with scaling group"),
    [SCALING] = SKR_OPTION_ENUM(gemm_pack, scaling, "none|tensor|row_column|block|group", "as in gemm"),
    [GATED] = SKR_OPTION_ENUM(gemm_pack, gated, "no|halves|interleaved", "as in gemm"),
    [FOR_A] = SKR_OPTION_ENUM(gemm_pack, for_a, "same|f16|bf16|i8", "type of gemm's a"),
};

/* Scales (or zero points) of blocks of b: rows x columns of them. */
static saker_status check_blocks(skr_call *call, const skr_view *v, int64_t rows, int64_t cols, skr_gemm_matrix *out)
{
    char text[192];
    if (!v->present)
        return SAKER_OK;
    if (v->ndim != 2 || v->shape[0] != rows || v->shape[1] != cols)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld]", v->name,
                        skr_shape_text(v, text), (long long)rows, (long long)cols);
    out->at = (skr_rows){.data = v->data, .col_stride = v->stride[1], .type = v->type};
    out->row = v->stride[0];
    return SAKER_OK;
}

/* Only scales that change along k have a part in packing; the others need no check here. */
static saker_status check_scales(skr_call *call, const skr_view *v, skr_gemm_job *job)
{
    char text[192];
    const skr_view *scale = &v[B_SCALE];
    if (v[B_ZERO].present && !(job->scaling == SKR_GEMM_GROUP && scale->present))
        return skr_fail(call, SAKER_INVALID_ARG, "b_zero is given: it needs scaling group and b_scale");
    if (scale->present && !skr_gemm_scaled_in_k(job)) {
        int64_t want = job->scaling == SKR_GEMM_TENSOR ? 1 : job->n;
        if (job->scaling == SKR_GEMM_NONE)
            return skr_fail(call, SAKER_INVALID_ARG, "b_scale is given, but scaling is none");
        if (scale->count != want)
            return skr_fail(call, SAKER_INVALID_ARG, "b_scale has shape %s, expected %lld elements",
                            skr_shape_text(scale, text), (long long)want);
        return SAKER_OK;
    }
    int64_t size = job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK;
    int64_t rows = skr_ceil_div(job->k, size);
    int64_t cols = job->scaling == SKR_GEMM_GROUP ? job->n : skr_ceil_div(job->n, size);
    SKR_TRY(check_blocks(call, scale, rows, cols, &job->b_scale));
    return check_blocks(call, &v[B_ZERO], rows, cols, &job->b_zero);
}

static saker_status check_outputs(skr_call *call, const skr_view *v)
{
    char text[192];
    if (!v[PACKED].present && !v[BYTES].present)
        return skr_fail(call, SAKER_NULL_POINTER, "packed and bytes are NULL, expected one of them");
    if (v[PACKED].present && v[PACKED].ndim != 1)
        return skr_fail(call, SAKER_INVALID_ARG, "packed has shape %s, expected one dimension",
                        skr_shape_text(&v[PACKED], text));
    if (v[PACKED].present)
        SKR_TRY(skr_last_contiguous(call, &v[PACKED]));
    if ((uintptr_t)v[PACKED].data % SKR_GEMM_PACK_ALIGN)
        return skr_fail(call, SAKER_MISALIGNED, "packed is not at a multiple of %d bytes", SKR_GEMM_PACK_ALIGN);
    if (v[BYTES].present && (v[BYTES].count != 1 || v[BYTES].ndim > 1))
        return skr_fail(call, SAKER_INVALID_ARG, "bytes has shape %s, expected one element",
                        skr_shape_text(&v[BYTES], text));
    return SAKER_OK;
}

static saker_status check(skr_call *call, const skr_view *v, const void *given, void *out, bool *empty)
{
    static const int types[] = {0, SKR_F16, SKR_BF16, SKR_I8};
    const saker_gemm_pack_args *args = given;
    skr_gemm_pack_job *job = out;
    skr_gemm_job *g = &job->gemm;
    skr_view opened[N_TENSORS];
    char text[192];
    memset(job, 0, sizeof *job);
    if (v[B].type == SKR_U8) {
        memcpy(opened, v, sizeof opened);
        v = opened;
        SKR_TRY(skr_gemm_open_bytes(call, -1, false, &opened[B]));
    }
    if (v[B].ndim != 2)
        return skr_fail(call, SAKER_INVALID_ARG, "b has shape %s, expected [K, N]", skr_shape_text(&v[B], text));
    g->k = v[B].shape[0];
    g->n = v[B].shape[1];
    g->m = 1;
    g->batch = (skr_row_space){.m = 1, .n_dims = 1, .dims = {1}};
    g->a.at.type = args->for_a ? types[args->for_a] : v[B].type;
    g->b.at = (skr_rows){.data = v[B].data, .col_stride = v[B].stride[1], .type = v[B].type};
    g->b.row = v[B].stride[0];
    g->scaling = args->scaling;
    g->group = args->group;
    g->gated = args->gated;
    SKR_TRY(skr_gemm_check_types(call, g->a.at.type, g->b.at.type, g->scaling, g->group));
    if (g->b.at.type == SKR_I4)
        SKR_TRY(skr_gemm_check_nibbles(call, &v[B]));
    if (g->gated && g->n % 2)
        return skr_fail(call, SAKER_INVALID_ARG, "b has %lld columns, expected an even number (gated)",
                        (long long)g->n);
    SKR_TRY(check_scales(call, v, g));
    SKR_TRY(check_outputs(call, v));
    SKR_TRY(skr_check_alias(call, v, N_TENSORS, NULL, 0));
    job->out = v[PACKED].data;
    job->out_bytes = v[PACKED].count;
    job->bytes = (int64_t *)v[BYTES].data;
    *empty = false;
    return SAKER_OK;
}

static saker_status plan(skr_call *call, void *planned, const skr_target *target, skr_plan *out)
{
    skr_gemm_pack_job *job = planned;
    skr_gemm_job *g = &job->gemm;
    if (target->backend == SKR_CUDA)
        return skr_fail(call, SAKER_UNSUPPORTED, "gemm_pack is for the CPU: a GPU reads b as it lies");
    out->variant = skr_gemm_shape(g, target->level);
    job->tag = skr_gemm_tag_of(g, target->level);
    g->b_batches = 1;
    g->b_batch_bytes = skr_gemm_panels_bytes(g, g->n_panels, g->tile.nr);
    job->need = skr_min((int64_t)sizeof job->tag + g->b_batch_bytes, SKR_HUGE);
    SKR_TRY(skr_take_done(call, job->need, out)); /* too large a size is refused in the same words */
    out->workspace_bytes = 0;
    skr_cpu_step(out, SKR_GEMM_PACK_TAG, 1);
    if (!job->out)
        return SAKER_OK;
    if (job->out_bytes < job->need)
        return skr_fail(call, SAKER_INVALID_ARG, "packed has %lld bytes, expected at least %lld",
                        (long long)job->out_bytes, (long long)job->need);
    g->packed = job->out + sizeof job->tag;
    g->b_panels_per_task = skr_gemm_panels_per_task(g, g->n_panels, target->width);
    g->b_tasks = skr_ceil_div(g->n_panels, g->b_panels_per_task);
    out->traffic_bytes = skr_mul(2, job->need);
    skr_cpu_step(out, SKR_GEMM_PACK_PANELS, g->b_tasks);
    return SAKER_OK;
}

const skr_op skr_op_gemm_pack = {
    .info = {.name = "gemm_pack",
             .doc = "b of gemm in the order in which the CPU's kernels read it, for weights that are used many times",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_gemm_pack_args)},
    .v1_size = sizeof(saker_gemm_pack_args),
    .reserved_at = offsetof(saker_gemm_pack_args, reserved),
    .job_size = sizeof(skr_gemm_pack_job),
    .check = check,
    .plan = plan,
};

_Static_assert(sizeof(skr_gemm_pack_job) <= SKR_JOB_BYTES, "the job must fit");
