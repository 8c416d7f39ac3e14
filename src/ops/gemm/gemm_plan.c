/* gemm_plan.c - gemm: which arithmetic, which tiles, how the work is cut and what it needs of the workspace.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An element of d is the same chain of operations whatever M, N and the number of threads are: the k blocks are
 * constants of the level and of the types, and nothing here changes the order inside of them. So tiles may be cut as
 * the machine likes. */
#include "gemm.h"

#include <string.h>

#include "../../core/op.h"
#include "../../core/plan.h"

saker_status skr_gemm_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan);

static const struct {
    const char *level;
    int kind;
    skr_gemm_tile tile;
} tiles[] = {
#define SKR_TILE(level, kind, mr, nr, ka, kb, granule, kc) {#level, SKR_GEMM_##kind, {mr, nr, ka, kb, granule, kc}},
#include "gemm_tiles.def"
#undef SKR_TILE
};

static const skr_gemm_tile *find_tile(const char *level, int kind)
{
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (tiles[i].kind == kind && !strcmp(tiles[i].level, level))
            return &tiles[i].tile;
    return NULL;
}

/* The arithmetic that the types ask for; the level may not have it. Codes of fp8 and whole numbers up to 256 are exact
 * in bf16. */
static int wanted_kind(const skr_gemm_job *job)
{
    int a = job->a.at.type, b = job->b.at.type;
    bool whole_zero = !job->b_zero.at.data || job->b_zero.at.type == SKR_I8;
    if (a == SKR_I32)
        return SKR_GEMM_INT;
    if (a == SKR_I8) /* i4 weights with a zero point leave the range of i8 */
        return job->b_zero.at.data ? SKR_GEMM_F32 : SKR_GEMM_I8;
    if (a == SKR_E4M3 || a == SKR_E5M2 || (a == SKR_BF16 && (b == SKR_BF16 || whole_zero)))
        return SKR_GEMM_BF16;
    return SKR_GEMM_F32;
}

/* Scales that change along k: products of groups of k are scaled apart. In f32 the operands are scaled while packing.
 */
static bool scaled_in_k(const skr_gemm_job *job)
{
    return job->scaling == SKR_GEMM_BLOCK || job->scaling == SKR_GEMM_GROUP;
}

static const char *choose_kind(skr_gemm_job *job, const char *level)
{
    static const char *const names[] = {"f32", "bf16", "i8", "int"};
    static const char *const skinny_names[] = {"f32 skinny", "bf16 skinny", "i8 skinny", "int skinny"};
    int kind = wanted_kind(job);
    const skr_gemm_tile *tile = find_tile(level, kind);
    if (!tile) { /* sums of bytes must stay exact, unless they are scaled along the way */
        kind = kind == SKR_GEMM_I8 && !scaled_in_k(job) ? SKR_GEMM_INT : SKR_GEMM_F32;
        tile = find_tile(level, kind);
    }
    job->kind = kind;
    job->tile = *tile;
    return (job->skinny ? skinny_names : names)[kind];
}

static void swap(skr_gemm_matrix *a, skr_gemm_matrix *b)
{
    skr_gemm_matrix t = *a;
    *a = *b;
    *b = t;
}

static void transpose(skr_gemm_matrix *m)
{
    int64_t t = m->row;
    m->row = m->at.col_stride;
    m->at.col_stride = t;
}

/* Few columns: the transposed product has few rows, and the large matrix is then read once as it lies. */
static void swap_sides(skr_gemm_job *job)
{
    int64_t t = job->m;
    job->m = job->n;
    job->n = t;
    swap(&job->a, &job->b);
    swap(&job->a_scale, &job->b_scale);
    transpose(&job->a);
    transpose(&job->b);
    transpose(&job->c);
    transpose(&job->d);
    transpose(&job->pre);
    transpose(&job->saved);
    job->bias_rows = !job->bias_rows;
}

static bool may_swap(const skr_gemm_job *job)
{
    return !job->gated && !job->dbias.data && !scaled_in_k(job);
}

/* ---------------------------------------------------------------- cutting */

static int element_bytes(int kind)
{
    return kind == SKR_GEMM_BF16 ? 2 : kind == SKR_GEMM_I8 ? 1 : 4;
}

static void cut_k(skr_gemm_job *job)
{
    const skr_gemm_tile *t = &job->tile;
    job->seg = t->kc;
    job->segs = 1;
    if (scaled_in_k(job) && job->kind != SKR_GEMM_F32) {
        job->seg = job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK;
        job->segs = skr_max(1, t->kc / job->seg);
    }
    job->seg = skr_min(job->seg, job->k);
    job->seg_pad = skr_mul(skr_ceil_div(job->seg, t->granule), t->granule);
    job->n_blocks = job->k ? skr_ceil_div(job->k, skr_mul(job->seg, job->segs)) : 0;
}

/* Tasks: a k block of the task's panels of a should stay in half of L2 (512 KiB) beside one panel of b; and there
 * should be several tasks for each thread. */
static void cut_tiles(skr_gemm_job *job, int width)
{
    int pair = job->gated ? 2 : 1;
    int64_t want = (int64_t)(job->skinny ? 3 : 8) * width;
    job->tile_m = skr_max(1, skr_min(job->m_panels, (job->kind == SKR_GEMM_F32 ? 256 : 128) / job->tile.mr));
    job->tile_n = skr_max(1, skr_min(job->n_panels, (job->skinny ? 1024 : 384) / job->tile.nr / pair * pair));
    for (;;) {
        job->m_tiles = skr_ceil_div(job->m_panels, job->tile_m);
        job->n_tiles = skr_ceil_div(job->n_panels, job->tile_n);
        if (skr_mul(skr_mul(job->m_tiles, job->n_tiles), job->batch.m) >= want)
            break;
        if (job->tile_n > 4 * pair)
            job->tile_n = (job->tile_n / 2 + pair - 1) / pair * pair;
        else if (job->tile_m > 4 && !job->dbias.data) /* the rows that a partial sum of dbias covers are fixed */
            job->tile_m /= 2;
        else
            break;
    }
}

static int64_t distinct(const skr_gemm_job *job, const skr_gemm_matrix *m)
{
    for (int i = 0; i < job->batch.n_dims; i++)
        if (m->at.stride[i] && job->batch.dims[i] > 1)
            return job->batch.m;
    return 1;
}

static int64_t panels_bytes(const skr_gemm_job *job, int64_t panels, int width)
{
    int64_t k = skr_mul(skr_mul(job->seg_pad, job->segs), job->n_blocks);
    return skr_mul(skr_mul(k, panels), (int64_t)width * element_bytes(job->kind));
}

static saker_status plan_cpu(skr_call *call, skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    job->skinny = job->m <= SKR_GEMM_SKINNY;
    if (job->n < job->m && job->n <= SKR_GEMM_SKINNY && may_swap(job)) {
        swap_sides(job);
        job->skinny = 1;
    }
    plan->variant = choose_kind(job, target->level);
    cut_k(job);
    const skr_gemm_tile *t = &job->tile;
    int64_t columns = job->gated ? job->n / 2 : job->n, at = 0;
    job->m_panels = skr_ceil_div(job->m, t->mr);
    job->n_panels = skr_ceil_div(columns, t->nr) * (job->gated ? 2 : 1);
    cut_tiles(job, target->width);
    job->a_batches = distinct(job, &job->a);
    job->b_batches = distinct(job, &job->b);
    if (job->scaling == SKR_GEMM_BLOCK || job->scaling == SKR_GEMM_GROUP) { /* packed with the scales of their batch */
        job->a_batches = job->b_batches = job->batch.m;
    }
    job->a_batch_bytes = panels_bytes(job, job->m_panels, t->mr);
    job->b_batch_bytes = job->skinny ? 0 : panels_bytes(job, job->n_panels, t->nr);
    job->a_at = skr_take(&at, skr_mul(job->a_batch_bytes, job->a_batches));
    job->b_at = skr_take(&at, skr_mul(job->b_batch_bytes, job->b_batches));
    /* Sums of the k blocks so far; skinny: the panel of b at hand, too. */
    int64_t block = skr_mul(job->seg_pad, job->segs);
    int64_t sums = job->n_blocks > 1 ? skr_mul(job->tile_m * t->mr, job->tile_n * t->nr * 4) : 0;
    if (job->skinny) /* a block's sums, those so far, and as many beside, up to 8 more columns (gemm_skinny_neon_cpu.h)
                      */
        sums = (job->tile_m * t->mr * (job->tile_n * t->nr * 2 + skr_max(job->tile_n * t->nr, t->kc) + 8)) * 4;
    int64_t panel = job->skinny ? skr_mul(skr_mul(block, t->nr), element_bytes(job->kind) * (job->gated ? 2 : 1)) : 0;
    job->scratch_bytes = (int64_t)skr_align_up((size_t)skr_min(sums + panel, SKR_HUGE), 256);
    job->scratch_at = skr_take(&at, skr_mul(job->scratch_bytes, target->width));
    int64_t parts = skr_mul(job->batch.m, job->m_tiles);
    job->parts_at = job->dbias.data ? skr_take(&at, skr_mul(parts, skr_mul(job->n, 4))) : 0;
    SKR_TRY(skr_take_done(call, at, plan));

    int64_t panel_work = skr_mul(job->k, t->mr * 4);
    job->a_panels_per_task = skr_max(1, skr_min(job->m_panels, 128 * 1024 / skr_max(panel_work, 1)));
    job->b_panels_per_task = skr_max(1, skr_min(job->n_panels, 128 * 1024 / skr_max(panel_work, 1)));
    job->a_tasks = skr_mul(job->a_batches, skr_ceil_div(job->m_panels, job->a_panels_per_task));
    job->b_tasks = job->skinny ? 0 : skr_mul(job->b_batches, skr_ceil_div(job->n_panels, job->b_panels_per_task));
    /* Waking threads pays from about 400 thousand operations on, as it does from 256 KiB of traffic on. */
    int64_t flops = skr_mul(skr_mul(2 * job->batch.m, job->m), skr_mul(job->n, skr_max(job->k, 1)));
    plan->traffic_bytes = skr_max(flops / 8 * 5, skr_mul(job->b_batches, skr_mul(job->k, job->n)));
    if (job->k && job->m)
        skr_cpu_step(plan, SKR_GEMM_PACK, job->a_tasks + job->b_tasks);
    skr_cpu_step(plan, SKR_GEMM_TILES, skr_mul(job->batch.m, skr_mul(job->m_tiles, job->n_tiles)));
    if (job->dbias.data)
        skr_cpu_step(plan, SKR_GEMM_DBIAS, skr_ceil_div(job->n, SKR_GEMM_DBIAS_PIECE));
    return SAKER_OK;
}

saker_status skr_gemm_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan)
{
    if (target->backend == SKR_CUDA)
        return skr_fail(call, SAKER_UNSUPPORTED, "gemm has no CUDA kernel in this version: use a CPU context");
    return plan_cpu(call, job, target, plan);
}
