/* gemm_plan.c - gemm: which arithmetic, which tiles, how the work is cut and what it needs of the workspace.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An element of d is the same chain of operations whatever M, N and the number of threads are: the k blocks are
 * constants of the level and of the types, and nothing here changes the order inside of them. So tiles may be cut as
 * the machine likes. */
#include "gemm_op.h"

#include <stdio.h>
#include <string.h>

#include "gemm_cuda.h"

/* The arithmetic that the types ask for; the level may not have it. Codes of fp8 and whole numbers up to 256 are exact
 * in bf16, i8 and i4 in f16, too. */
static int wanted_kind(const skr_gemm_job *job)
{
    int a = job->a.at.type, b = job->b.at.type;
    bool codes = b == SKR_I8 || b == SKR_I4, whole_zero = !job->b_zero.at.data || job->b_zero.at.type == SKR_I8;
    if (a == SKR_I32)
        return SKR_GEMM_INT;
    if (a == SKR_I8) /* i4 weights with a zero point leave the range of i8 */
        return job->b_zero.at.data ? SKR_GEMM_F32 : SKR_GEMM_I8;
    if (a == SKR_E4M3 || a == SKR_E5M2 || (a == SKR_BF16 && (b == SKR_BF16 || whole_zero)))
        return SKR_GEMM_BF16;
    return a == SKR_F16 && (b == SKR_F16 || (codes && whole_zero)) ? SKR_GEMM_F16 : SKR_GEMM_F32;
}

static const char *choose_kind(skr_gemm_job *job, const char *level)
{
    static const char *const names[] = {"f32", "bf16", "i8", "int", "f16"};
    static const char *const skinny_names[] = {"f32 skinny", "bf16 skinny", "i8 skinny", "int skinny", "f16 skinny"};
    int kind = wanted_kind(job);
    const skr_gemm_tile *tile = skr_gemm_tile_of(level, kind);
    job->whole = 0;
    if (!tile) { /* sums of bytes must stay exact, unless they are scaled along the way */
        job->whole = kind == SKR_GEMM_I8 && !skr_gemm_scaled_in_k(job);
        kind = SKR_GEMM_F32;
        tile = skr_gemm_tile_of(level, kind);
    }
    job->kind = kind;
    job->tile = *tile;
    if (job->whole)
        return job->skinny ? "i8 in f32 skinny" : "i8 in f32";
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
void skr_gemm_swap(skr_gemm_job *job)
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
    job->turned = !job->turned;
}

bool skr_gemm_may_swap(const skr_gemm_job *job)
{
    return !job->gated && !job->dbias.data && !job->b_packed && !skr_gemm_scaled_in_k(job);
}

/* ---------------------------------------------------------------- cutting */

void skr_gemm_cut_k(skr_gemm_job *job)
{
    const skr_gemm_tile *t = &job->tile;
    job->seg = t->kc;
    job->segs = 1;
    if (skr_gemm_scaled_in_k(job) && job->kind != SKR_GEMM_F32) {
        job->seg = job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK;
        job->segs = skr_max(1, t->kc / job->seg);
    }
    job->seg = skr_min(job->seg, job->k);
    job->seg_pad = skr_mul(skr_ceil_div(job->seg, t->granule), t->granule);
    job->n_blocks = job->k ? skr_ceil_div(job->k, skr_mul(job->seg, job->segs)) : 0;
}

const char *skr_gemm_shape(skr_gemm_job *job, const char *level)
{
    const char *name = choose_kind(job, level);
    int64_t columns = job->gated ? job->n / 2 : job->n;
    skr_gemm_cut_k(job);
    job->m_panels = skr_ceil_div(job->m, job->tile.mr);
    job->n_panels = skr_ceil_div(columns, job->tile.nr) * (job->gated ? 2 : 1);
    return name;
}

/* The register tile of AMX's own instructions. */
static bool of_amx(const skr_gemm_tile *t)
{
    return t->mr * t->nr == 32 * 32;
}

static int64_t most_panels(const skr_gemm_job *job)
{
    return (job->kind == SKR_GEMM_F32 || of_amx(&job->tile) ? 256 : 128) / job->tile.mr;
}

static void count_tiles(skr_gemm_job *job)
{
    job->m_tiles = skr_ceil_div(job->m_panels, job->tile_m);
    job->n_tiles = skr_ceil_div(job->n_panels, job->tile_n);
}

/* Few rows: tasks of `columns` columns of b, fewer until there are enough of them; not fewer than four panels or 64
 * columns. */
static void cut_columns(skr_gemm_job *job, int64_t columns, int64_t tasks)
{
    int pair = job->gated ? 2 : 1, fewest = skr_min(4, 64 / job->tile.nr) * pair;
    job->tile_n = skr_max(1, skr_min(job->n_panels, columns / job->tile.nr / pair * pair));
    for (;;) {
        count_tiles(job);
        if (skr_mul(job->m_tiles, job->n_tiles) >= tasks || job->tile_n <= fewest)
            return;
        job->tile_n = skr_max(fewest, (job->tile_n / 2 + pair - 1) / pair * pair);
    }
}

/* What blocks of tile_m x tile_n panels cost, in bytes of panels for a k: most of these come from another core's
 * cache, and a register tile is made in the time that half of its two panels take (AMX: an eighth). All threads take
 * their blocks in rounds; the last one of somebody who was late is waited for. */
static int64_t cost_of_tiles(const skr_gemm_job *job, int64_t products, int width)
{
    int64_t bytes = skr_kind_bytes(job->kind), a = job->tile.mr * bytes, b = job->tile.nr * bytes;
    int64_t tile = (a + b) / (of_amx(&job->tile) ? 8 : 2);
    int64_t one = job->tile_m * job->tile_n * tile + job->tile_m * a + job->tile_n * b;
    return one * skr_ceil_div(job->m_tiles * job->n_tiles * products, width) + one / 4;
}

/* Blocks as large as they may be are cut smaller where there are few of them: the cheapest of the ways to have about
 * one to eight a thread. */
static void cut_blocks(skr_gemm_job *job, int64_t products, int width)
{
    static const int rounds[] = {1, 2, 3, 4, 6, 8};
    enum { ROWS_OF_BLOCKS = 12 };
    count_tiles(job);
    if (width == 1 || !job->m_panels || !job->n_panels ||
        skr_mul(skr_mul(job->m_tiles, job->n_tiles), products) >= 8 * (int64_t)width)
        return;
    int pair = job->gated ? 2 : 1;
    int64_t least_m = job->m_tiles, least_n = job->n_tiles;
    int64_t best_m = job->tile_m, best_n = job->tile_n, best = INT64_MAX;
    bool fixed = job->dbias.data; /* the rows of a partial sum of dbias do not depend on the threads */
    int64_t end = least_m + (fixed ? 1 : ROWS_OF_BLOCKS);
    for (int64_t m = least_m; m < end && m <= job->m_panels; m++)
        for (int i = 0; i < (int)(sizeof rounds / sizeof *rounds); i++) {
            int64_t n = skr_max(least_n, rounds[i] * (int64_t)width / (m * products));
            job->tile_m = fixed ? job->tile_m : skr_ceil_div(job->m_panels, m);
            job->tile_n = skr_mul(skr_ceil_div(job->n_panels, skr_mul(n, pair)), pair);
            count_tiles(job);
            int64_t cost = cost_of_tiles(job, products, width);
            if (cost >= best)
                continue;
            best = cost;
            best_m = job->tile_m;
            best_n = job->tile_n;
        }
    job->tile_m = best_m;
    job->tile_n = best_n;
    count_tiles(job);
}

/* Tasks: a k block of the task's panels of a should stay in half of L2 (512 KiB) beside one panel of b; and there
 * should be several tasks for each thread. Few rows, and columns of b are neighbours: each k is a new place in memory,
 * so the rows of b should be long, as long as their sums (32 KiB) stay in L1. */
void skr_gemm_cut_tiles(skr_gemm_job *job, int64_t products, int width)
{
    int pair = job->gated ? 2 : 1;
    bool few = job->m <= SKR_GEMM_SKINNY;
    bool long_rows = job->skinny && few && !job->packed && job->b.at.col_stride == 1 && job->b.row != 1;
    job->tile_m = skr_max(1, skr_min(job->m_panels, most_panels(job)));
    job->tile_n = skr_max(1, skr_min(job->n_panels, 384 / job->tile.nr / pair * pair));
    if (long_rows)
        cut_columns(job, skr_max(1024, 8192 / skr_max(job->m, 1)), skr_ceil_div(width, skr_max(products, 1)));
    else if (job->skinny)
        cut_columns(job, few ? 1024 : 384, skr_ceil_div(3 * (int64_t)width, skr_max(products, 1)));
    else
        cut_blocks(job, skr_max(products, 1), width);
}

static int64_t distinct(const skr_gemm_job *job, const skr_gemm_matrix *m)
{
    for (int i = 0; i < job->batch.n_dims; i++)
        if (m->at.stride[i] && job->batch.dims[i] > 1)
            return job->batch.m;
    return 1;
}

/* Whether tasks can have all rows: nobody asked for k blocks as tasks, and there are enough columns for all threads. */
static bool columns_for_all(const skr_gemm_job *job, int width)
{
    bool free = job->schedule != SKR_GEMM_SPLIT_K && job->schedule != SKR_GEMM_STREAM_K;
    return free && skr_mul(job->n_panels, job->batch.m) >= 8 * (int64_t)width;
}

/* Whether few rows are one task's: a panel of b is then used by it alone, which packs it when it comes to it, and finds
 * it in cache. */
static bool one_task_of_rows(const skr_gemm_job *job, int width)
{
    return columns_for_all(job, width) && !job->packed && job->m_panels <= most_panels(job) &&
           distinct(job, &job->b) == job->batch.m;
}

/* Whether many rows are: tasks pack all of their columns, on CPUs with AMX, whose L2 has room for them (2 MiB). The
 * rows of a partial sum of dbias are fewer. */
static bool by_columns(const skr_gemm_job *job, const char *level, int width)
{
    const skr_gemm_tile *halves = skr_gemm_tile_of(level, SKR_GEMM_BF16);
    return columns_for_all(job, width) && halves && of_amx(halves) && job->n_blocks && !job->dbias.data &&
           job->m_panels > most_panels(job) && (job->packed || distinct(job, &job->b) == job->batch.m);
}

/* Whether AMX can load a's tiles from where they lie: whole tiles of its own type along memory, rows that begin where
 * lines do if the first does. */
static bool lies_as_tiles(const skr_gemm_job *job)
{
    static const int types[SKR_GEMM_KINDS] = {
        [SKR_GEMM_BF16] = SKR_BF16, [SKR_GEMM_F16] = SKR_F16, [SKR_GEMM_I8] = SKR_I8};
    bool native = job->a.at.type == types[job->kind];
    bool whole = job->k % job->tile.granule == 0 && (job->segs == 1 || job->seg % job->tile.granule == 0);
    return of_amx(&job->tile) && native && whole && job->a.at.col_stride == 1 &&
           job->a.row * skr_kind_bytes(job->kind) % 64 == 0;
}

/* Columns whose panels, all k's, stay in L2, which two threads may share, but not fewer than 128: a panel of a
 * meets all of them before the next one does, and no more sums than theirs are kept between k blocks. Where 128 columns
 * are more than that, the panels of one k block are to stay, and sums of 512 rows are kept. */
static void cut_by_columns(skr_gemm_job *job, int width)
{
    enum { LEAST = 4, MOST = SKR_GEMM_COLUMN_PANELS };
    int pair = job->gated ? 2 : 1;
    int64_t share = width > 1 ? 1 << 19 : 1 << 20;
    int64_t fit = share / job->b_panel_bytes;
    bool all_fit = fit >= LEAST;
    int64_t most = (all_fit ? skr_min(fit, MOST) : width > 1 ? MOST / 2 : MOST) / pair * pair;
    int64_t tiles = skr_ceil_div(job->n_panels, most);
    if (width > 1 && job->batch.m < 2 * width) /* two for each thread, or more: one of them may be slower */
        tiles = skr_ceil_div(skr_max(tiles, 2 * width), width) * width;
    job->tile_n = skr_mul(skr_ceil_div(job->n_panels, skr_mul(tiles, pair)), pair);
    job->tile_m = job->n_blocks == 1 ? job->m_panels : all_fit ? 1 : 512 / job->tile.mr;
    job->n_tiles = skr_ceil_div(job->n_panels, job->tile_n);
    job->m_tiles = 1;
}

int64_t skr_gemm_panels_bytes(const skr_gemm_job *job, int64_t panels, int width)
{
    int64_t granule = job->tile.granule, whole = job->k ? job->k / job->seg : 0, rest = job->k ? job->k % job->seg : 0;
    int64_t last = job->segs == 1 ? skr_mul(skr_ceil_div(rest, granule), granule) : job->seg_pad; /* as panel_bytes */
    int64_t k = skr_mul(whole, job->seg_pad) + (rest ? last : 0);
    return skr_mul(skr_mul(k, panels), (int64_t)width * skr_kind_bytes(job->kind));
}

/* Of `panels` panels: 128 KiB for a task, less where the threads would not have two each. */
int64_t skr_gemm_panels_per_task(const skr_gemm_job *job, int64_t panels, int width)
{
    int64_t most = 128 * 1024 / skr_max(skr_mul(job->k, job->tile.mr * 4), 1);
    return skr_max(1, skr_min(skr_min(panels, most), panels / (2 * width)));
}

/* Scales of a panel, each twice (scales_at), or of all that a task has; sums of the k blocks so far; skinny: the panel
 * of b at hand, too. */
int64_t skr_gemm_scratch(skr_gemm_job *job)
{
    int pair = job->gated ? 2 : 1;
    bool apart = skr_gemm_scaled_in_k(job) && job->kind != SKR_GEMM_F32;
    int64_t panels = job->by_columns ? skr_mul(job->n_blocks, job->tile_n) : pair;
    int64_t scales = apart ? skr_min(skr_mul(job->segs * job->tile.nr * 2 * 4, panels), SKR_HUGE) : 0;
    job->scale_bytes = (int64_t)skr_align_up((size_t)scales, 256);
    const skr_gemm_tile *t = &job->tile;
    int64_t block = skr_mul(job->seg_pad, job->segs);
    int64_t sums = job->n_blocks > 1 ? skr_mul(job->tile_m * t->mr, job->tile_n * t->nr * 4) : 0;
    if (job->skinny) /* those so far, a block's, and a in another order, up to 3 k's more (aarch64) */
        sums = skr_mul(job->tile_m * t->mr, job->tile_n * t->nr * 2 * 4) + skr_gemm_panels_bytes(job, 1, t->mr) +
               3 * 4 * t->mr;
    int64_t panel = job->skinny ? skr_mul(skr_mul(block, t->nr), skr_kind_bytes(job->kind) * pair) : 0;
    if (job->by_columns) /* the task's panels of b, and the last one of a */
        panel = (job->packed ? 0 : skr_mul(job->tile_n, job->b_panel_bytes)) +
                (job->a_lies ? skr_gemm_panels_bytes(job, 1, t->mr) : 0);
    return (int64_t)skr_align_up((size_t)skr_min(job->scale_bytes + sums + panel, SKR_HUGE), 256);
}

/* ---------------------------------------------------------------- packed b */

skr_gemm_tag skr_gemm_tag_of(const skr_gemm_job *job, const char *level)
{
    skr_gemm_tag tag = {.magic = "skrpck3",
                        .kind = job->kind,
                        .type = job->b.at.type,
                        .gated = job->gated,
                        .scaling = skr_gemm_scaled_in_k(job) ? job->scaling : SKR_GEMM_NONE,
                        .scales = skr_gemm_scaled_in_k(job) && job->b_scale.at.data,
                        .zeros = skr_gemm_scaled_in_k(job) && job->b_zero.at.data,
                        .tile = job->tile,
                        .n = job->n,
                        .k = job->k,
                        .group = job->group,
                        .seg = job->seg,
                        .segs = job->segs,
                        .seg_pad = job->seg_pad,
                        .n_blocks = job->n_blocks,
                        .n_panels = job->n_panels};
    snprintf(tag.level, sizeof tag.level, "%s", level);
    return tag;
}

/* b is what gemm_pack wrote for such a product on this level. */
static saker_status open_packed(skr_call *call, skr_gemm_job *job, const char *level)
{
    skr_gemm_tag want = skr_gemm_tag_of(job, level), tag;
    char *data = job->b.at.data;
    if ((uintptr_t)data % SKR_GEMM_PACK_ALIGN)
        return skr_fail(call, SAKER_MISALIGNED, "b is not at a multiple of %d bytes, and b_packed is set",
                        SKR_GEMM_PACK_ALIGN);
    memcpy(&tag, data, sizeof tag);
    tag.magic[sizeof tag.magic - 1] = tag.level[sizeof tag.level - 1] = 0;
    if (memcmp(tag.magic, want.magic, sizeof tag.magic))
        return skr_fail(call, SAKER_INVALID_ARG, "b is not what gemm_pack wrote, and b_packed is set");
    if (strcmp(tag.level, level))
        return skr_fail(call, SAKER_INVALID_ARG, "b was packed for level %s, and this context runs on %s", tag.level,
                        level);
    if (tag.n != want.n || tag.k != want.k)
        return skr_fail(call, SAKER_INVALID_ARG, "b has shape [%lld, %lld], but a matrix [%lld, %lld] was packed",
                        (long long)want.k, (long long)want.n, (long long)tag.k, (long long)tag.n);
    if (memcmp(&tag, &want, sizeof tag))
        return skr_fail(
            call, SAKER_INVALID_ARG,
            "b was packed for another type of a or b, or another scaling, group or gated, or with%s b_scale "
            "and with%s b_zero",
            tag.scales ? "" : "out", tag.zeros ? "" : "out");
    job->packed = data + sizeof tag;
    return SAKER_OK;
}

_Static_assert(sizeof(skr_gemm_tag) % 64 == 0, "panels begin where lines do when the tag does");

/* ---------------------------------------------------------------- the plan */

/* Whether the k blocks become tasks of their own. Bits are the same: the blocks' sums are added in order either way. */
static void choose_schedule(skr_gemm_job *job, int width, skr_plan *plan)
{
    int64_t tasks = skr_mul(job->batch.m, skr_mul(job->m_tiles, job->n_tiles));
    bool able = job->n_blocks > 1 && !job->skinny && !job->by_columns;
    bool asked = job->schedule == SKR_GEMM_SPLIT_K || job->schedule == SKR_GEMM_STREAM_K;
    job->split = able && (asked || (job->schedule == SKR_GEMM_AUTO && tasks < width));
    if (job->split)
        skr_why(plan, "schedule: split_k, %lld k blocks of %lld blocks of d (%s)", (long long)job->n_blocks,
                (long long)tasks, asked ? "asked for" : "fewer blocks of d than threads");
    else if (job->by_columns)
        skr_why(plan, "schedule: data_parallel, %lld blocks of d with all rows%s%s", (long long)tasks,
                job->packed ? "" : ", each packs its own columns of b", job->a_lies ? "; a is used as it lies" : "");
    else
        skr_why(plan, "schedule: data_parallel, %lld blocks of d%s", (long long)tasks,
                !asked        ? ""
                : job->skinny ? " (few rows or columns: b is read once, by blocks of d)"
                              : " (all of k is one block)");
}

static saker_status plan_cpu(skr_call *call, skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    job->skinny = job->m <= SKR_GEMM_SKINNY;
    if (job->n < job->m && job->n <= SKR_GEMM_SKINNY && skr_gemm_may_swap(job)) {
        skr_gemm_swap(job);
        job->skinny = 1;
    }
    plan->variant = skr_gemm_shape(job, target->level);
    if (job->b_packed && job->b.at.data)
        SKR_TRY(open_packed(call, job, target->level));
    const skr_gemm_tile *t = &job->tile;
    int64_t at = 0;
    job->skinny |= one_task_of_rows(job, target->width);
    job->by_columns = !job->skinny && by_columns(job, target->level, target->width);
    job->b_panel_bytes = skr_gemm_panels_bytes(job, 1, t->nr);
    job->a_lies = job->by_columns && lies_as_tiles(job);
    if (job->by_columns)
        cut_by_columns(job, target->width);
    else
        skr_gemm_cut_tiles(job, job->batch.m, target->width);
    choose_schedule(job, target->width, plan);
    job->a_batches = distinct(job, &job->a);
    job->b_batches = distinct(job, &job->b);
    if (skr_gemm_scaled_in_k(job)) /* packed with the scales of their batch */
        job->a_batches = job->b_batches = job->batch.m;
    if (job->packed)
        job->b_batches = 1;
    bool pack_a = !job->a_lies, pack_b = !job->skinny && !job->by_columns && !job->packed;
    job->a_batch_bytes = pack_a ? skr_gemm_panels_bytes(job, job->m_panels, t->mr) : 0;
    job->b_batch_bytes = pack_b ? skr_gemm_panels_bytes(job, job->n_panels, t->nr) : 0;
    job->a_at = skr_take(&at, skr_mul(job->a_batch_bytes, job->a_batches));
    job->b_at = skr_take(&at, skr_mul(job->b_batch_bytes, job->b_batches));
    job->scratch_bytes = skr_gemm_scratch(job);
    job->scratch_at = skr_take(&at, skr_mul(job->scratch_bytes, target->width));
    int64_t tasks = skr_mul(job->batch.m, skr_mul(job->m_tiles, job->n_tiles));
    job->split_bytes = skr_mul(job->tile_m * t->mr, job->tile_n * t->nr * 4);
    job->split_at = job->split ? skr_take(&at, skr_mul(skr_mul(tasks, job->n_blocks), job->split_bytes)) : 0;
    int64_t parts = skr_mul(job->batch.m, job->m_tiles);
    job->parts_at = job->dbias.data ? skr_take(&at, skr_mul(parts, skr_mul(job->n, 4))) : 0;
    SKR_TRY(skr_take_done(call, at, plan));

    job->a_panels_per_task = skr_gemm_panels_per_task(job, job->m_panels, target->width);
    job->b_panels_per_task = skr_gemm_panels_per_task(job, job->n_panels, target->width);
    job->a_tasks = pack_a ? skr_mul(job->a_batches, skr_ceil_div(job->m_panels, job->a_panels_per_task)) : 0;
    job->b_tasks = pack_b ? skr_mul(job->b_batches, skr_ceil_div(job->n_panels, job->b_panels_per_task)) : 0;
    /* Waking threads pays from about 400 thousand operations on, as it does from 256 KiB of traffic on. */
    int64_t flops = skr_mul(skr_mul(2 * job->batch.m, job->m), skr_mul(job->n, skr_max(job->k, 1)));
    plan->traffic_bytes = skr_max(flops / 8 * 5, skr_mul(job->b_batches, skr_mul(job->k, job->n)));
    if (job->k && job->m && job->batch.m && job->a_tasks + job->b_tasks)
        skr_cpu_step(plan, SKR_GEMM_PACK, job->a_tasks + job->b_tasks);
    if (job->split)
        skr_cpu_step(plan, SKR_GEMM_PARTS, skr_mul(tasks, job->n_blocks));
    skr_cpu_step(plan, SKR_GEMM_TILES, tasks);
    if (job->dbias.data)
        skr_cpu_step(plan, SKR_GEMM_DBIAS, skr_ceil_div(job->n, SKR_GEMM_DBIAS_PIECE));
    return SAKER_OK;
}

void skr_gemm_product(skr_gemm_job *job, int64_t m, int64_t n, int64_t k, skr_gemm_matrix a, skr_gemm_matrix b,
                      skr_gemm_matrix d)
{
    job->batch = (skr_row_space){.m = 1, .n_dims = 1, .dims = {1}};
    job->m = m;
    job->n = n;
    job->k = k;
    job->a = a;
    job->b = b;
    job->d = d;
    job->alpha = 1;
}

saker_status skr_gemm_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan)
{
    if (target->backend == SKR_CUDA)
        return skr_gemm_plan_cuda(call, job, target, plan);
    return plan_cpu(call, job, target, plan);
}
