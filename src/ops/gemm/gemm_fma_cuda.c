/* gemm_fma_cuda.c - gemm's plan for true f32 (gemm_fma.cuh): which tile, how operands are copied, which schedule.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_fma_sm80)

static const struct {
    int rows, columns, a_way, b_way, blocks;
    const char *variant[SKR_GEMM_N_VARIANTS];
} shapes[] = {
#define SKR_GEMM_FMA(tile, layout, down, across, rows, a_way, b_way, blocks)                                           \
    {(down) * (rows)*4, (across)*64, a_way, b_way, blocks, SKR_GEMM_VARIANTS("fma f32 " #tile " " #layout)},
#include "gemm_fma.def"
};
#define STAGE_BYTES(rows, columns) (SKR_GEMM_FMA_STEP * ((rows) + 4 + (columns) + 4) * 4)
enum { MOST_SHARED = 128 * 1024 }; /* more than half of an SM's */
static skr_cuda_kernel kernels[] = {
#define SKR_GEMM_FMA(tile, layout, down, across, rows, a_way, b_way, blocks)                                           \
    SKR_KERNEL(gemm_fma_sm80, "skr_gemm_fma_" #tile "_" #layout, MOST_SHARED, 1),
#include "gemm_fma.def"
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
#define VECTOR(rows, layout) SKR_KERNEL(gemm_fma_sm80, "skr_gemm_vector_" #rows "_" #layout, 0, 1)
static skr_cuda_kernel vector_kk[] = {VECTOR(1, kk), VECTOR(4, kk), VECTOR(8, kk)};
static skr_cuda_kernel vector_kn[] = {VECTOR(1, kn), VECTOR(4, kn)};

/* ---------------------------------------------------------------- how operands are copied */

/* Addresses of a matrix are multiples of 16 bytes where its offsets, in `elements`, are. */
static bool aligned(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t elements)
{
    for (int i = 0; i < job->batch.n_dims; i++)
        elements |= job->batch.dims[i] > 1 ? m->at.stride[i] : 0;
    return (uintptr_t)m->at.data % 16 == 0 && elements % 4 == 0;
}

/* Rows (columns of b) `pitch` apart, k's `along` apart. half: rows between the halves of gates, or 0. */
static int way_of(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t pitch, int64_t along, int64_t half)
{
    if (along == 1)
        return job->k % 4 == 0 && aligned(job, m, pitch) ? SKR_GEMM_FMA_TURN : SKR_GEMM_FMA_K;
    return pitch == 1 && aligned(job, m, along | half) ? SKR_GEMM_FMA_VECTORS : SKR_GEMM_FMA_ELEMENTS;
}

/* How a kernel that copies by `way_of_kernel` copies an operand that `way` is for, -1: not at all. What can be turned
 * can be copied one by one. */
static int way_taken(int way_of_kernel, int way)
{
    const int other = way == SKR_GEMM_FMA_TURN ? SKR_GEMM_FMA_K : way;
    return way_of_kernel == SKR_GEMM_FMA_WAYS || way_of_kernel == other ? other : way_of_kernel == way ? way : -1;
}

/* Bytes from a thread's copy to its next (gemm_fma_side.cuh), for a tile of so many rows. */
static skr_gemm_fma_side side_of(int way, int64_t tile, int64_t pitch, int64_t along, int64_t half)
{
    const int64_t threads = SKR_GEMM_FMA_THREADS, step = SKR_GEMM_FMA_STEP;
    const int64_t jump = half ? (half - tile / 2) * pitch * 4 : 0;
    skr_gemm_fma_side s = {.way = way};
    if (way == SKR_GEMM_FMA_K) {
        s.far = threads / 8 * pitch * 4;
        s.jump = jump;
        s.next = step * 4 - tile / (threads / 8) * s.far - jump;
    } else if (way == SKR_GEMM_FMA_VECTORS) {
        s.far = skr_min(threads * 4 / tile, step) * along * 4;
    } else if (way == SKR_GEMM_FMA_ELEMENTS) {
        s.far = skr_max(threads / tile, 1) * along * 4;
        s.jump = threads * pitch * 4 + jump;
    }
    return s;
}

/* ---------------------------------------------------------------- which tile, which schedule */

typedef struct choice {
    int shape, schedule;
    skr_gemm_cut cut;
    double us;
} choice;

/* Microseconds of a k step of a block's tile on an H200, with so many blocks on its SM; those of 32 rows are estimates
 * (docs/notes/gemm_cuda.md). */
static double step_us(int shape, int64_t blocks)
{
    static const struct {
        int rows, columns;
        double alone, full;
    } times[] = {
        {128, 128, 1.05, 1.35}, {64, 256, 0.85, 1.6}, {32, 256, 0.6, 1.1}, {16, 256, 0.38, 1.6}, {32, 128, 0.33, 0.9}};
    int i = 0;
    while (times[i].rows != shapes[shape].rows || times[i].columns != shapes[shape].columns)
        i++;
    double share = (double)(skr_min(blocks, shapes[shape].blocks) - 1) / (shapes[shape].blocks - 1);
    return (times[i].alone + (times[i].full - times[i].alone) * share) *
           (shapes[shape].a_way == SKR_GEMM_FMA_WAYS ? 1.12 : 1);
}

static void consider(const skr_gemm_job *job, const skr_target *target, bool plain, choice c, choice *best)
{
    const int64_t rows = shapes[c.shape].rows, columns = shapes[c.shape].columns;
    const int64_t steps = skr_ceil_div(job->k, SKR_GEMM_FMA_STEP);
    const int64_t tiles = skr_mul(skr_mul(skr_ceil_div(job->m, rows), skr_ceil_div(job->n, columns)), job->batch.m);
    const int64_t resident = (int64_t)target->n_sms * shapes[c.shape].blocks;
    if (tiles > 1 << 24)
        return;
    c.cut = skr_gemm_cut_of(c.schedule, tiles, steps, resident);
    if (!skr_gemm_may_cut(job, c.schedule, &c.cut))
        return;
    /* Flat tiles: wide ones for one row of tiles; else where nothing is kept, for gemm_finish.cuh has 64 rows of each.
     */
    if (rows < SKR_GEMM_SIDE && (columns == 256 ? job->m > rows : job->m <= rows || c.cut.left || !plain))
        return;
    const double step = step_us(c.shape, skr_ceil_div(c.cut.units, target->n_sms));
    c.us = (double)skr_ceil_div(c.cut.whole, skr_min(c.cut.units, resident)) * ((double)steps * step + 1);
    if (c.cut.left) { /* parts are written and read again; a range has pieces of several tiles */
        const int ranges = c.cut.units - c.cut.slices * c.cut.left;
        c.us += (double)steps * c.cut.left / c.cut.units * step + 10 + (ranges ? 2.5 * c.cut.left / ranges : 0);
        c.us += 2 * (double)c.cut.left * (c.cut.slices + 1) * (double)(skr_min(job->m, rows) * columns) * 4 / 3e6;
        c.us *= 1.05; /* cutting has to pay */
    }
    if (best->shape < 0 || c.us < best->us)
        *best = c;
}

/* ---------------------------------------------------------------- the plan */

/* Nothing but one factor, rows of d in vectors. */
static bool is_plain(const skr_gemm_job *job)
{
    const skr_gemm_matrix *d = &job->d;
    return job->scaling == SKR_GEMM_NONE && !job->c.at.data && !job->bias.data && !job->act && !job->gated &&
           !job->pre.at.data && !job->saved.at.data && !job->dbias.data && d->at.type == SKR_F32 &&
           (d->at.col_stride == 1 || job->n == 1) && aligned(job, d, job->m > 1 ? d->row : 0);
}

static bool suits(const skr_gemm_job *job)
{
    return job->a.at.type == SKR_F32 && job->b.at.type == SKR_F32 && job->scaling <= SKR_GEMM_ROW_COLUMN &&
           job->m > 0 && job->n > 0 && job->k > 0 && job->batch.m > 0 &&
           skr_max(job->m, skr_max(job->n, job->k)) <= 1 << 30 && job->batch.m <= 1 << 20;
}

/* Few rows, in vectors of b. */
static bool plan_vector(skr_gemm_job *job, skr_plan *plan)
{
    const bool k_along = job->m <= SKR_GEMM_VECTOR_ROWS_K && job->k % 4 == 0 && job->a.at.col_stride == 1 &&
                         job->b.row == 1 && aligned(job, &job->a, job->m > 1 ? job->a.row : 0) &&
                         aligned(job, &job->b, job->n > 1 ? job->b.at.col_stride : 0);
    const bool n_along = job->m <= SKR_GEMM_VECTOR_ROWS_N && job->n % 4 == 0 && job->gated != SKR_GEMM_HALVES &&
                         job->b.at.col_stride == 1 && aligned(job, &job->b, job->b.row);
    const int64_t columns = k_along ? SKR_GEMM_VECTOR_COLUMNS_K : SKR_GEMM_VECTOR_COLUMNS_N;
    const int64_t blocks = skr_mul(skr_ceil_div(job->n, columns), job->batch.m);
    if (job->schedule || job->dbias.data || (!k_along && !n_along) || blocks > INT32_MAX)
        return false;
    const int rows = job->m > 4 ? 2 : job->m > 1;
    plan->variant = k_along ? "vector f32 kk" : "vector f32 kn";
    skr_step *step = skr_plan_step(plan);
    step->kernel = k_along ? &vector_kk[rows] : &vector_kn[rows];
    step->grid = (uint32_t)blocks;
    step->block = SKR_GEMM_VECTOR_THREADS;
    step->overlap = true;
    return true;
}

bool skr_gemm_plan_fma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at)
{
    if (!suits(job))
        return false;
    bool turned = job->d.at.col_stride != 1 && job->d.row == 1, few = job->n <= 64 && job->m > job->n;
    if ((turned || few) && skr_gemm_may_swap(job))
        skr_gemm_swap(job);
    if (plan_vector(job, plan))
        return true;
    const int64_t half = job->gated == SKR_GEMM_HALVES ? job->n / 2 : 0;
    const int a_way = way_of(job, &job->a, job->a.row, job->a.at.col_stride, 0);
    const int b_way = way_of(job, &job->b, job->b.at.col_stride, job->b.row, half);
    const bool plain = is_plain(job);
    choice c = {.shape = -1};
    for (int i = 0; i < N_SHAPES; i++) {
        if (way_taken(shapes[i].a_way, a_way) >= 0 && way_taken(shapes[i].b_way, b_way) >= 0)
            for (int s = SKR_GEMM_DATA_PARALLEL; s <= SKR_GEMM_STREAM_K; s++)
                consider(job, target, plain, (choice){.shape = i, .schedule = s}, &c);
    }
    if (c.shape < 0)
        return false;
    skr_gemm_work *t = &job->work;
    const int rows = shapes[c.shape].rows, columns = shapes[c.shape].columns;
    job->fma.a = side_of(way_taken(shapes[c.shape].a_way, a_way), rows, job->a.row, job->a.at.col_stride, 0);
    job->fma.b = side_of(way_taken(shapes[c.shape].b_way, b_way), columns, job->b.at.col_stride, job->b.row, half);
    job->fma.one = 1;
    t->rows = (int32_t)(job->m > rows ? rows : skr_max(rows, SKR_GEMM_SIDE)); /* of one row of tiles, what is kept */
    t->columns = columns;
    t->cluster = 1;
    t->tiles_m = (int32_t)skr_ceil_div(job->m, rows);
    t->tiles_n = (int32_t)skr_ceil_div(job->n, columns);
    t->batches = (int32_t)job->batch.m;
    t->group = 16;
    t->steps = (int32_t)skr_ceil_div(job->k, SKR_GEMM_FMA_STEP);
    t->cut = c.cut;
    t->plain = t->store = plain;
    t->finish = !plain;
    int64_t slots = (int64_t)t->cut.left * (t->cut.slices + 2) + (t->finish ? t->cut.whole : 0);
    t->slots_at = skr_take(at, skr_mul(slots, (int64_t)t->rows * columns * 4));
    plan->variant = shapes[c.shape].variant[c.schedule];
    skr_why(plan, "%d tiles of %dx%d, %d k steps, %d blocks, about %.0f us%s", t->tiles_m * t->tiles_n * t->batches,
            rows, columns, t->steps, t->cut.units, c.us, t->finish ? ", written by a second kernel" : "");
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[c.shape];
    step->grid = (uint32_t)t->cut.units;
    step->block = SKR_GEMM_FMA_THREADS;
    step->shared_bytes = SKR_GEMM_FMA_STAGES * (uint32_t)STAGE_BYTES(rows, columns);
    /* Blocks that can have an SM each must not share one, as they would on those that the kernel before leaves first:
     * two have no room for so much. */
    if (t->cut.units <= target->n_sms)
        step->shared_bytes = skr_min(target->shared_bytes / 2 + 1024, MOST_SHARED);
    step->overlap = true;
    return true;
}
