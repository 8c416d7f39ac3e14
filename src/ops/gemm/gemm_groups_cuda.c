/* gemm_groups_cuda.c - grouped_gemm's CUDA plan: the table of groups, then Hopper's kernel, a portable one, or a
 * general one. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_groups_sm90)

/* f16 and bf16, b's k along memory or its n. */
static skr_cuda_kernel kernels[2][2] = {
    {SKR_KERNEL(gemm_groups_sm90, "skr_gemm_groups_f16_kk", SKR_GEMM_TMA_SHARED, 1),
     SKR_KERNEL(gemm_groups_sm90, "skr_gemm_groups_f16_kn", SKR_GEMM_TMA_SHARED, 1)},
    {SKR_KERNEL(gemm_groups_sm90, "skr_gemm_groups_bf16_kk", SKR_GEMM_TMA_SHARED, 1),
     SKR_KERNEL(gemm_groups_sm90, "skr_gemm_groups_bf16_kn", SKR_GEMM_TMA_SHARED, 1)},
};
static const char *const variants[2][2] = {{"tma f16 kk 128x256 groups", "tma f16 kn 128x256 groups"},
                                           {"tma bf16 kk 128x256 groups", "tma bf16 kn 128x256 groups"}};
enum { COLUMNS = 256 };

/* The boxes of all rows of a and of all groups of b. NULL, or what stands in the way. */
static const char *boxes(const skr_grouped_gemm_job *job, skr_matrix_box out[2])
{
    const skr_gemm_job *g = &job->gemm;
    const char *bad = skr_gemm_box(g, &g->a, job->total, g->k, false, SKR_GEMM_TMA_ROWS, &out[0]);
    return bad ? bad : skr_gemm_box(g, &g->b, g->k, g->n, !g->work.bt, g->work.bt ? 64 : COLUMNS / 2, &out[1]);
}

static saker_status bind_maps(skr_call *call, void *opaque)
{
    skr_grouped_gemm_job *job = opaque;
    skr_matrix_box box[2];
    boxes(job, box);
    SKR_TRY(skr_tensor_map_3d(call, &box[0], &job->gemm.work.a));
    return skr_tensor_map_3d(call, &box[1], &job->gemm.work.b);
}

/* What stands in the way of Hopper's kernel, or NULL. */
static const char *refuses(const skr_grouped_gemm_job *job, const skr_target *target)
{
    const skr_gemm_job *g = &job->gemm;
    const skr_gemm_matrix *a = &g->a, *b = &g->b, *d = &g->d;
    skr_matrix_box box[2];
    if (target->sm != 90 || target->shared_bytes < SKR_GEMM_TMA_SHARED)
        return "it needs compute capability 9.0";
    if (job->along_k || a->at.type != b->at.type || (a->at.type != SKR_F16 && a->at.type != SKR_BF16))
        return "it takes groups of rows, f16 and bf16";
    if (g->gather.data || g->pre.at.data || g->saved.at.data || g->gated == SKR_GEMM_INTERLEAVED ||
        g->scaling > SKR_GEMM_ROW_COLUMN)
        return "it has no gather, pre, saved, gates in pairs, and no scales along k";
    if (g->k < 1 || job->groups < 1 || skr_max(skr_max(g->n, g->k), skr_max(job->total, job->groups)) > 1 << 30)
        return "sizes are 1 to 2^30 there";
    if (a->at.col_stride != 1 || (b->row != 1 && b->at.col_stride != 1) || d->at.col_stride != 1)
        return "a, b or d has no rows of stride 1";
    if ((uintptr_t)d->at.data % 16 || d->row * skr_type_bytes(d->at.type) % 16 || (g->gated ? g->n / 2 : g->n) % 8)
        return "rows of d do not come in aligned eights";
    return boxes(job, box);
}

static bool plan_tma(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_gemm_job *g = &job->gemm;
    const int bf16 = g->a.at.type == SKR_BF16, bt = g->b.row != 1;
    g->work.bt = bt;
    const char *why = refuses(job, target);
    if (why) {
        skr_why(plan, "tensor core kernel for Hopper: %s", why);
        g->work.bt = 0;
        return false;
    }
    g->work.cluster = 1;
    g->work.batch_b = job->groups > 1 && g->b.at.stride[0] != 0;
    g->groups.rows = SKR_GEMM_TMA_ROWS;
    g->groups.columns = COLUMNS;
    plan->variant = variants[bf16][bt];
    plan->bind = bind_maps;
    plan->bind_job = job;
    skr_why(plan, "blocks that stay walk the groups in tiles of 128x256");
    skr_gemm_plan_table(plan);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[bf16][bt];
    step->grid = (uint32_t)target->n_sms;
    step->block = 384;
    step->cluster = 1;
    step->shared_bytes = SKR_GEMM_TMA_SHARED;
    step->overlap = true;
    return true;
}

/* Sizes and tiles that the walk over the groups counts in 32 bits. */
static bool countable(const skr_grouped_gemm_job *job)
{
    const skr_gemm_job *g = &job->gemm;
    int64_t largest = skr_max(skr_max(g->m, g->n), skr_max(g->k, skr_max(job->total, job->groups)));
    int64_t rows = job->along_k ? skr_mul(job->groups, skr_ceil_div(g->m, SKR_GEMM_SIDE))
                                : job->total / SKR_GEMM_SIDE + job->groups;
    return largest <= INT32_MAX - 1024 && skr_mul(rows, skr_ceil_div(g->n, SKR_GEMM_SIDE)) <= 1 << 30;
}

saker_status skr_grouped_gemm_plan_cuda(skr_call *call, skr_grouped_gemm_job *job, const skr_target *target,
                                        skr_plan *plan)
{
    skr_gemm_job *g = &job->gemm;
    int64_t at = 0;
    if (!countable(job))
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "a, b and d have 2^31 rows, columns or k's, or more than 2^30 tiles of 64x64, which no CUDA "
                        "kernel of grouped_gemm takes");
    g->groups = (skr_gemm_groups){.bias_stride = job->bias_stride,
                                  .count = (int32_t)job->groups,
                                  .of = job->along_k ? SKR_GEMM_OF_KS : SKR_GEMM_OF_ROWS};
    g->groups.table_at = skr_take(&at, skr_mul(job->groups + 1, sizeof(skr_gemm_group)));
    skr_why(plan, "groups of %s: %lld, of %lld in all", job->along_k ? "k's" : "rows", (long long)job->groups,
            (long long)job->total);
    if (!plan_tma(job, target, plan) && !skr_gemm_plan_mma_groups(job, target, plan))
        skr_gemm_plan_any_groups(job, target, plan);
    return skr_take_done(call, at, plan);
}
