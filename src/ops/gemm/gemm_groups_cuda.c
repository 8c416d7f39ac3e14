/* gemm_groups_cuda.c - grouped_gemm's CUDA plan: the table of groups, then Hopper's kernel, a portable one, or a
 * general one. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_groups_f16_sm90)
SKR_FATBIN(gemm_groups_bf16_sm90)

/* f16 and bf16; along memory run k and k, k and n, and, of groups of k's, m and n. */
enum { KK, KN, MN };
#define KERNEL(type, layout)                                                                                           \
    SKR_KERNEL(gemm_groups_##type##_sm90, "skr_gemm_groups_" #type "_" #layout, SKR_GEMM_TMA_SHARED, 2)
#define KERNELS(type)                                                                                                  \
    {                                                                                                                  \
        KERNEL(type, kk), KERNEL(type, kn), KERNEL(type, mn)                                                           \
    }
static skr_cuda_kernel kernels[2][3] = {KERNELS(f16), KERNELS(bf16)};
static const char *const variants[2][3] = {
    {"tma f16 kk 256x128 groups", "tma f16 kn 256x128 groups", "tma f16 mn 256x128 groups"},
    {"tma bf16 kk 256x128 groups", "tma bf16 kn 256x128 groups", "tma bf16 mn 256x128 groups"}};
enum { COLUMNS = 128, BLOCK = 64 };

static bool is_half(int type)
{
    return type == SKR_F16 || type == SKR_BF16;
}

/* d as the copy engine writes groups of rows, which begin and end anywhere: row r of a group of n rows that begins at
 * `first` is row limit - n + r of matrix first + n, where matrices begin a row after each other, the first of them
 * `limit` rows before d. So whatever lies beyond the group is beyond its matrix, and is not written. */
static const char *box_of_rows(const skr_grouped_gemm_job *job, skr_matrix_box *out)
{
    const skr_gemm_job *g = &job->gemm;
    const char *bad = skr_gemm_box(g, &g->d, job->total, g->gated ? g->n / 2 : g->n, false, BLOCK, out);
    uint64_t before = (uint64_t)skr_mul(skr_mul(job->total, out->row_stride), skr_type_bytes(g->d.at.type));
    if (bad || !out->data)
        return bad;
    if ((uintptr_t)out->data <= before)
        return "lies too near to address 0";
    out->data = (char *)out->data - before;
    out->batches = job->total + 1;
    out->batch_stride = out->row_stride;
    return NULL;
}

/* The boxes of a, b and, where the copy engine writes it, d. NULL, or what stands in the way. */
static const char *boxes(const skr_grouped_gemm_job *job, skr_matrix_box out[3])
{
    const skr_gemm_job *g = &job->gemm;
    const char *bad;
    if (job->along_k) {
        bad = skr_gemm_box(g, &g->a, g->m, job->total, true, BLOCK, &out[0]);
        bad = bad ? bad : skr_gemm_box(g, &g->b, job->total, g->n, false, BLOCK, &out[1]);
    } else {
        bad = skr_gemm_box(g, &g->a, job->total, g->k, false, BLOCK, &out[0]);
        bad = bad ? bad : skr_gemm_box(g, &g->b, g->k, g->n, !g->work.bt, BLOCK, &out[1]);
    }
    if (bad || !g->work.store || g->scatter.data)
        return bad;
    return job->along_k ? skr_gemm_box(g, &g->d, g->m, g->n, false, BLOCK, &out[2]) : box_of_rows(job, &out[2]);
}

static saker_status bind_maps(skr_call *call, void *opaque)
{
    skr_grouped_gemm_job *job = opaque;
    skr_gemm_work *t = &job->gemm.work;
    skr_matrix_box box[3];
    boxes(job, box);
    SKR_TRY(skr_tensor_map_3d(call, &box[0], &t->a));
    SKR_TRY(skr_tensor_map_3d(call, &box[1], &t->b));
    return t->store && !job->gemm.scatter.data ? skr_tensor_map_3d(call, &box[2], &t->d) : SAKER_OK;
}

/* What stands in the way of Hopper's kernel, or NULL. */
static const char *refuses(const skr_grouped_gemm_job *job, const skr_target *target)
{
    const skr_gemm_job *g = &job->gemm;
    const skr_gemm_matrix *a = &g->a, *b = &g->b, *d = &g->d;
    skr_matrix_box box[3];
    int64_t largest = skr_max(skr_max(g->n, skr_max(g->m, g->k)), skr_max(job->total, job->groups));
    if (target->sm != 90 || target->shared_bytes < SKR_GEMM_TMA_SHARED)
        return "it needs compute capability 9.0";
    if (a->at.type != b->at.type || !is_half(a->at.type))
        return "it takes f16 and bf16";
    if (g->gather.data || g->c.at.data || g->pre.at.data || g->saved.at.data || g->gated == SKR_GEMM_INTERLEAVED ||
        g->scaling > SKR_GEMM_ROW_COLUMN)
        return "it has no gather, c, pre, saved, gates in pairs, and no scales along k";
    if (g->k < 1 || job->groups < 1 || job->total < 1 || largest > 1 << 30)
        return "sizes are 1 to 2^30 there";
    if (d->at.col_stride != 1 || (job->along_k ? a->row != 1 || b->at.col_stride != 1
                                               : a->at.col_stride != 1 || (b->row != 1 && b->at.col_stride != 1)))
        return job->along_k ? "m has no stride 1 in a, or n none in b or d" : "a, b or d has no rows of stride 1";
    if ((uintptr_t)d->at.data % 16 || (d->row | d->at.stride[0]) * skr_type_bytes(d->at.type) % 16 ||
        (g->gated ? g->n / 2 : g->n) % 8)
        return "rows of d do not come in aligned eights";
    return boxes(job, box);
}

static bool plan_tma(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_gemm_job *g = &job->gemm;
    skr_gemm_work *t = &g->work;
    const int bf16 = g->a.at.type == SKR_BF16, layout = job->along_k ? MN : g->b.row != 1 ? KN : KK;
    t->bt = layout != KK;
    t->store = is_half(g->d.at.type);
    const char *why = refuses(job, target);
    if (why) {
        skr_why(plan, "tensor core kernel for Hopper: %s", why);
        *t = (skr_gemm_work){0};
        return false;
    }
    t->cluster = g->n > COLUMNS ? 2 : 1;
    t->batch_b = !job->along_k && job->groups > 1 && g->b.at.stride[0] != 0;
    t->plain = t->store && !g->bias.data && !g->act && !g->gated && g->scaling <= SKR_GEMM_TENSOR;
    g->groups.rows = SKR_GEMM_GROUP_ROWS;
    g->groups.columns = COLUMNS * t->cluster;
    g->groups.limit = (int32_t)job->total;
    plan->variant = variants[bf16][layout];
    plan->bind = bind_maps;
    plan->bind_job = job;
    skr_why(plan, "blocks that stay walk the groups in tiles of up to 256x128, %d blocks in a cluster", t->cluster);
    skr_gemm_plan_table(plan);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[bf16][layout];
    step->grid = (uint32_t)(target->n_sms / t->cluster * t->cluster);
    step->block = 384;
    step->cluster = (uint32_t)t->cluster;
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
