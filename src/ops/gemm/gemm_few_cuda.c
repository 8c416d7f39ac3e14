/* gemm_few_cuda.c - gemm's plan for few rows on Hopper (gemm_few.cuh): may the copy engine read it, over how many
 * blocks k is cut; and what gemm_many.cuh has in common with it. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_few_sm90)

static const struct {
    int type, b, bt, rows;
    const char *variant;
} shapes[] = {
#define SKR_GEMM_FEW(type, T, B, layout, BT, rows) {T, B, BT, rows, "few rows tma " #type " " #layout " " #rows},
#include "gemm_few.def"
};
static skr_cuda_kernel kernels[] = {
#define SKR_GEMM_FEW(type, T, B, layout, BT, rows)                                                                     \
    SKR_KERNEL(gemm_few_sm90, "skr_gemm_few_" #type "_" #layout "_" #rows, SKR_GEMM_TMA_SHARED, 8),
#include "gemm_few.def"
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* ---------------------------------------------------------------- gemm_many.cuh's, too */

bool skr_gemm_suits_few(const skr_gemm_job *job, const skr_target *target, int schedule)
{
    return target->sm == 90 && target->shared_bytes >= SKR_GEMM_TMA_SHARED &&
           (!job->schedule || job->schedule == schedule) && !job->dbias.data && job->m >= 1 && job->n >= 1 &&
           job->k >= 1 && skr_max(job->m, skr_max(job->n, job->k)) <= 1 << 30 && job->batch.n_dims <= 1 &&
           job->batch.m >= 1 && job->batch.m <= 1 << 20;
}

const char *skr_gemm_few_boxes(const skr_gemm_job *job, int tile_rows, skr_matrix_box out[2])
{
    /* gemm_few.cuh: rows that there are, for the copy engine takes longer for others than for these. */
    const int rows = tile_rows > SKR_GEMM_FEW_MOST ? SKR_GEMM_FEW_MOST : (int)skr_min(job->m, SKR_GEMM_FEW_MOST);
    const char *bad = skr_gemm_box(job, &job->a, job->m, job->k, false, rows, &out[0]);
    if (bad)
        return bad;
    return skr_gemm_are_codes(job) ? skr_gemm_code_box(job, &out[1])
                                   : skr_gemm_box(job, &job->b, job->k, job->n, !job->work.bt, 64, &out[1]);
}

/* Eight neighbours of a row of d are one store, and no option but those of gemm_few_vectors. */
bool skr_gemm_in_vectors(const skr_gemm_job *job)
{
    return skr_gemm_writes_itself(job) && !job->c.at.data && !(job->bias.data && job->bias_rows) &&
           (job->gated ? job->n / 2 : job->n) % 8 == 0;
}

bool skr_gemm_few_plain(const skr_gemm_job *job)
{
    return skr_gemm_in_vectors(job) && skr_gemm_plain_of(job) == SKR_GEMM_ONE_FACTOR &&
           !(job->scaling == SKR_GEMM_GROUP && job->a_scale.at.data);
}

void skr_gemm_few_work(skr_gemm_job *job, int tile_rows, int64_t tiles_n, int64_t step)
{
    skr_gemm_work *t = &job->work;
    t->columns = tile_rows;
    t->tiles_m = (int32_t)skr_ceil_div(job->m, tile_rows);
    t->tiles_n = (int32_t)tiles_n;
    t->batches = (int32_t)job->batch.m;
    t->batch_a = job->batch.m > 1 && job->a.at.stride[0] != 0;
    t->batch_b = job->batch.m > 1 && job->b.at.stride[0] != 0;
    t->steps = (int32_t)skr_ceil_div(job->k, step);
    t->store = skr_gemm_in_vectors(job);
    t->plain = skr_gemm_few_plain(job);
    job->seg = skr_gemm_are_codes(job) ? skr_gemm_code_groups(job) : 0;
}

static saker_status bind_maps(skr_call *call, void *opaque)
{
    skr_gemm_job *job = opaque;
    skr_matrix_box box[2];
    skr_gemm_few_boxes(job, job->work.columns, box);
    SKR_TRY(skr_tensor_map_3d(call, &box[0], &job->work.a));
    return skr_tensor_map_3d(call, &box[1], &job->work.b);
}

void skr_gemm_few_step(skr_gemm_job *job, skr_plan *plan, skr_cuda_kernel *kernel)
{
    const skr_gemm_work *t = &job->work;
    plan->bind = bind_maps;
    plan->bind_job = job;
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)(t->cut.units * t->cluster);
    step->block = SKR_GEMM_CODE_THREADS(job->a.at.type, job->b.at.type);
    step->cluster = (uint32_t)t->cluster;
    step->shared_bytes = SKR_GEMM_TMA_SHARED;
    step->overlap = true;
}

/* ---------------------------------------------------------------- few rows */

/* Microseconds of a step of k on an H200 while so many blocks are busy: 16 KiB of b, which take a block 0.3 us alone,
 * and from 80 blocks on they share the memory; of codes, what it takes to widen and to multiply them. */
static double step_us(const skr_gemm_job *job, int64_t blocks, const skr_target *target)
{
    const double busy = (double)blocks / target->n_sms;
    if (skr_gemm_are_codes(job))
        return job->work.columns > 16 ? 0.77 : 0.55;
    return busy < 0.6 ? 0.3 : 0.5 * busy;
}

/* How many blocks share a tile's k. Returns microseconds. */
static double choose_cluster(const skr_gemm_job *job, const skr_target *target, skr_gemm_work *t)
{
    const int64_t tiles = (int64_t)t->tiles_m * t->tiles_n * t->batches;
    double best = 0;
    for (int cluster = 1; cluster <= 8 && cluster <= t->steps; cluster *= 2) {
        const int64_t units = skr_min(tiles, skr_max(1, skr_gemm_clusters(target, cluster)));
        const double steps = (double)skr_ceil_div(t->steps, cluster) * step_us(job, units * cluster, target);
        const double us = (double)skr_ceil_div(tiles, units) * (steps + (cluster > 1 ? 0.6 : 0));
        if (cluster > 1 && us >= best)
            continue;
        best = us;
        t->cluster = cluster;
        t->cut.units = (int32_t)units;
    }
    return best;
}

static bool suits_floats(const skr_gemm_job *job)
{
    int type = job->a.at.type;
    return type == job->b.at.type && (type == SKR_F16 || type == SKR_BF16 || type == SKR_E4M3) &&
           job->scaling <= SKR_GEMM_ROW_COLUMN;
}

static bool suits(const skr_gemm_job *job, const skr_target *target)
{
    return skr_gemm_suits_few(job, target, SKR_GEMM_SPLIT_K) && (suits_floats(job) || skr_gemm_suits_codes(job));
}

/* Everything but the tensor maps; the number of the kernel, or -1. */
static int prepare(skr_gemm_job *job, const skr_target *target, double *us)
{
    skr_gemm_work *t = &job->work;
    skr_matrix_box box[2];
    const bool codes = skr_gemm_are_codes(job), halves = job->gated == SKR_GEMM_HALVES;
    const int64_t columns = halves ? SKR_GEMM_FEW_COLUMNS : SKR_GEMM_FEW_COLUMNS / 2;
    const int64_t tiles_n = skr_ceil_div(job->n, columns);
    const int64_t step = SKR_GEMM_TMA_BYTES / skr_type_bytes(job->a.at.type) *
                         SKR_GEMM_CODE_BOXES(job->a.at.type, job->b.at.type) * (halves ? 1 : 2);
    const int at = skr_gemm_along(&job->a, job->m, job->k), bt = codes ? 1 : skr_gemm_along(&job->b, job->k, job->n);
    int i = 0;
    if (job->m > (codes ? SKR_GEMM_FEW_CODES_MOST : SKR_GEMM_FEW_MOST) || at != 0 || bt < 0 ||
        tiles_n * job->batch.m > 1 << 24)
        return -1;
    t->bt = !bt; /* of b [K, N] the first index is k */
    if (t->bt && halves && job->n / 2 % 8)
        return -1;
    while (i < N_SHAPES && (shapes[i].type != job->a.at.type || shapes[i].b != job->b.at.type ||
                            shapes[i].bt != t->bt || shapes[i].rows < skr_min(job->m, SKR_GEMM_FEW_MOST)))
        i++;
    if (i == N_SHAPES)
        return -1;
    t->rows = (int32_t)columns;
    skr_gemm_few_work(job, shapes[i].rows, tiles_n, step);
    *us = choose_cluster(job, target, t);
    if (!job->schedule && t->tiles_m > 1 && *us > skr_gemm_many_us(job, target))
        return -1;
    return skr_gemm_few_boxes(job, t->columns, box) ? -1 : i;
}

bool skr_gemm_plan_few(skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_gemm_work *t = &job->work;
    double us;
    if (!suits(job, target))
        return false;
    if (job->m > SKR_GEMM_FEW_MOST && job->n <= SKR_GEMM_FEW_MOST && skr_gemm_may_swap(job))
        skr_gemm_swap(job);
    int i = prepare(job, target, &us);
    if (i < 0) {
        *t = (skr_gemm_work){0};
        job->seg = 0;
        return false;
    }
    plan->variant = shapes[i].variant;
    skr_why(plan, "%d tiles of %d rows and %d columns, %d blocks in a cluster, %d k steps, %d clusters, about %.0f us",
            t->tiles_m * t->tiles_n * t->batches, t->columns, t->rows, t->cluster, t->steps, t->cut.units, us);
    skr_gemm_few_step(job, plan, &kernels[i]);
    return true;
}
