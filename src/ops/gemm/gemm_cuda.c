/* gemm_cuda.c - the CUDA half of gemm's plan: the general kernels, and what comes after the others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_sm80)

static skr_cuda_kernel any_float = SKR_KERNEL(gemm_sm80, "skr_gemm_any_float", 0, 1);
static skr_cuda_kernel any_int = SKR_KERNEL(gemm_sm80, "skr_gemm_any_int", 0, 1);
static skr_cuda_kernel rows_kernel[2] = {SKR_KERNEL(gemm_sm80, "skr_gemm_rows_f16", 0, 1),
                                         SKR_KERNEL(gemm_sm80, "skr_gemm_rows_bf16", 0, 1)};
static skr_cuda_kernel finish_float = SKR_KERNEL(gemm_sm80, "skr_gemm_finish_float", 0, 1);
static skr_cuda_kernel finish_int = SKR_KERNEL(gemm_sm80, "skr_gemm_finish_int", 0, 1);
static skr_cuda_kernel add_dbias = SKR_KERNEL(gemm_sm80, "skr_gemm_add_dbias", 0, 1);

enum { THREADS = 256, MOST_BLOCKS = 1 << 20 };

static void add_step(skr_plan *plan, skr_cuda_kernel *kernel, int64_t blocks)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)skr_max(1, skr_min(blocks, MOST_BLOCKS));
    step->block = THREADS;
    step->overlap = true;
}

skr_gemm_cut skr_gemm_cut_of(int schedule, int64_t tiles, int64_t steps, int64_t resident)
{
    int64_t units = skr_min(resident, tiles);
    bool cuts = schedule >= SKR_GEMM_SPLIT_K;
    if (schedule == SKR_GEMM_DATA_PARALLEL)
        units = tiles;
    else if (schedule == SKR_GEMM_SPLIT_K) /* equal parts of each tile, to fill the GPU */
        units = tiles * skr_max(1, skr_min(resident / tiles, steps / 2));
    else if (schedule == SKR_GEMM_STREAM_K)
        units = skr_min(resident, skr_max(1, skr_mul(tiles, steps) / 2));
    int64_t cut = tiles % units * steps;
    if (cut < 2 * units || cut > INT32_MAX) /* no part has less than 2 steps, and 32 bits count all */
        cuts = false;
    skr_gemm_cut c = {.units = (int32_t)units, .whole = (int32_t)(cuts ? tiles / units * units : tiles)};
    c.left = (int32_t)tiles - c.whole;
    c.slices = c.left ? c.units / c.left : 0;
    return c;
}

int64_t skr_gemm_clusters(const skr_target *target, int cluster)
{
    return (cluster > 2 ? target->n_sms * 3 / 4 : target->n_sms) / cluster;
}

bool skr_gemm_may_cut(const skr_gemm_job *job, int schedule, const skr_gemm_cut *cut)
{
    if (job->schedule)
        return schedule == job->schedule;
    return schedule == SKR_GEMM_PERSISTENT || (schedule > SKR_GEMM_PERSISTENT && cut->left);
}

/* Sums of products of whole numbers that no scale touches on the way. */
static bool integers(const skr_gemm_job *job)
{
    return job->a.at.type == SKR_I32 || (job->a.at.type == SKR_I8 && job->b.at.type == SKR_I8 &&
                                         job->scaling != SKR_GEMM_BLOCK && job->scaling != SKR_GEMM_GROUP);
}

/* Rows of 16 bytes along one of its dimensions. */
static bool vectors(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t rows, int64_t cols)
{
    int64_t pitch = m->at.col_stride == 1 ? (rows > 1 ? m->row : 0) : (cols > 1 ? m->at.col_stride : 0), bits = pitch;
    if (m->at.col_stride != 1 && m->row != 1)
        return false;
    for (int i = 0; i < job->batch.n_dims; i++)
        bits |= job->batch.dims[i] > 1 ? m->at.stride[i] : 0;
    return (uintptr_t)m->at.data % 16 == 0 && bits * skr_type_bytes(m->at.type) % 16 == 0;
}

/* Few rows of a, or few columns of b, which is the same transposed. */
static bool plan_rows(skr_gemm_job *job, skr_plan *plan)
{
    int type = job->a.at.type;
    if (type != job->b.at.type || (type != SKR_F16 && type != SKR_BF16) || job->schedule ||
        job->scaling > SKR_GEMM_ROW_COLUMN || job->dbias.data || job->k % 8 || job->k < 8 || job->m < 1 || job->n < 1)
        return false;
    if (job->m > SKR_GEMM_ROWS_MOST && job->n <= SKR_GEMM_ROWS_MOST && skr_gemm_may_swap(job))
        skr_gemm_swap(job);
    int64_t blocks = skr_mul(skr_ceil_div(job->n, SKR_GEMM_ROWS_COLUMNS), job->batch.m);
    if (job->m > SKR_GEMM_ROWS_MOST || blocks < 1 || blocks > INT32_MAX || job->a.at.col_stride != 1 ||
        job->b.row != 1 || !vectors(job, &job->a, job->m, job->k) || (job->n > 1 && job->b.at.col_stride == 1) ||
        !vectors(job, &job->b, job->k, job->n))
        return false;
    plan->variant = type == SKR_F16 ? "few rows f16" : "few rows bf16";
    skr_step *step = skr_plan_step(plan);
    step->kernel = &rows_kernel[type == SKR_BF16];
    step->grid = (uint32_t)blocks;
    step->block = 512;
    step->overlap = true;
    return true;
}

/* Tiles that were left in the workspace. */
static void plan_finish(const skr_gemm_job *job, skr_plan *plan)
{
    const skr_gemm_work *t = &job->work;
    int64_t tiles = (int64_t)t->tiles_m * t->tiles_n * t->batches - (t->finish ? 0 : t->cut.whole);
    if (tiles > 0)
        add_step(plan, integers(job) ? &finish_int : &finish_float,
                 tiles * (t->rows / SKR_GEMM_SIDE * t->cluster) * (t->columns / SKR_GEMM_SIDE));
}

saker_status skr_gemm_plan_cuda(skr_call *call, skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    int64_t at = 0;
    bool rows = skr_gemm_plan_few(job, target, plan) || plan_rows(job, plan) ||
                skr_gemm_plan_codes(job, target, plan) || skr_gemm_plan_many(job, target, plan),
         ints = integers(job);
    bool tiles = !rows && (skr_gemm_plan_tma(job, target, plan, &at) || skr_gemm_plan_mma(job, target, plan, &at) ||
                           skr_gemm_plan_fma(job, target, plan, &at));
    job->m_tiles = skr_ceil_div(job->m, SKR_GEMM_SIDE);
    job->n_tiles = skr_ceil_div(job->n, SKR_GEMM_SIDE);
    int64_t parts = skr_mul(job->batch.m, job->m_tiles);
    job->parts_at = job->dbias.data ? skr_take(&at, skr_mul(parts, skr_mul(job->n, sizeof(float)))) : 0;
    if (tiles) {
        plan_finish(job, plan);
    } else if (!rows) {
        plan->variant = ints ? "any int" : "any float";
        add_step(plan, ints ? &any_int : &any_float, skr_mul(job->batch.m, skr_mul(job->m_tiles, job->n_tiles)));
    }
    if (job->dbias.data)
        add_step(plan, &add_dbias, skr_ceil_div(job->n, THREADS));
    return skr_take_done(call, at, plan);
}

void skr_gemm_plan_any_groups(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    bool ints = integers(&job->gemm);
    job->gemm.groups.rows = job->gemm.groups.columns = SKR_GEMM_SIDE;
    plan->variant = ints ? "any int groups" : "any float groups";
    skr_gemm_plan_table(plan);
    add_step(plan, ints ? &any_int : &any_float, (int64_t)target->n_sms * 4);
}
