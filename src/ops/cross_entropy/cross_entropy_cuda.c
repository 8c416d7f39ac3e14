/* cross_entropy_cuda.c - the CUDA half of the plans: which kernels, how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Families (docs/notes/cross_entropy.md): rows with gradient held in registers; streamed rows, which take any width;
 * both without and with the less common options (full); single elements where the alignment allows no vectors; the
 * elementwise gradient from lse. Nothing here looks at the number of rows to choose a row's kernel. */
#include "../../cuda/rows_plan.h"
#include "cross_entropy_plan.h"

SKR_FATBIN(cross_entropy_sm80)
SKR_FATBIN(cross_entropy_full_sm80)
SKR_FATBIN(cross_entropy_sm90)

#define TYPE_f32     SKR_F32
#define TYPE_f16     SKR_F16
#define TYPE_bf16    SKR_BF16
#define SKR_ALL_ROWS (1LL << 60)

static const skr_rows_shape rows_shape[] = {
#define SKR_CE_ROWS(type, lanes, threads, vpt, keep, blocks)                                                           \
    {TYPE_##type, lanes, threads, vpt, 1, 0, 1, 1, 0, "rows " #type " " #lanes "x" #vpt},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel rows_kernel[] = {
#define SKR_CE_ROWS(type, lanes, threads, vpt, keep, blocks)                                                           \
    SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_rows_" #type "_" #lanes "x" #vpt, 0, 1),
#include "cross_entropy_kernels.def"
};
static const skr_rows_shape cluster_shape[] = {
#define SKR_CE_CLUSTER(type, threads, vpt, blocks, least, most)                                                        \
    {TYPE_##type, threads, threads, vpt, 1, 0, least, most, 0, "rows " #type " cluster " #threads "x" #vpt},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel cluster_kernel[] = {
#define SKR_CE_CLUSTER(type, threads, vpt, blocks, least, most)                                                        \
    SKR_KERNEL(cross_entropy_sm90, "skr_cross_entropy_rows_" #type "_c" #threads "x" #vpt, 0, SKR_ROWS_CLUSTER),
#include "cross_entropy_kernels.def"
};
static const skr_rows_shape full_shape[] = {
#define SKR_CE_ROWS_FULL(type, lanes, threads, vpt, blocks)                                                            \
    {TYPE_##type, lanes, threads, vpt, 1, 0, 1, 1, 0, "rows full " #type " " #lanes "x" #vpt},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel full_kernel[] = {
#define SKR_CE_ROWS_FULL(type, lanes, threads, vpt, blocks)                                                            \
    SKR_KERNEL(cross_entropy_full_sm80, "skr_cross_entropy_rows_full_" #type "_" #lanes "x" #vpt, 0, 1),
#include "cross_entropy_kernels.def"
};
static const skr_rows_shape full_cluster_shape[] = {
#define SKR_CE_CLUSTER_FULL(type, threads, vpt, blocks, least, most)                                                   \
    {TYPE_##type, threads, threads, vpt, 1, 0, least, most, 0, "rows full " #type " cluster " #threads "x" #vpt},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel full_cluster_kernel[] = {
#define SKR_CE_CLUSTER_FULL(type, threads, vpt, blocks, least, most)                                                   \
    SKR_KERNEL(cross_entropy_sm90, "skr_cross_entropy_rows_full_" #type "_c" #threads "x" #vpt, 0, SKR_ROWS_CLUSTER),
#include "cross_entropy_kernels.def"
};

/* A kernel that streams rows of up to `most` bytes. */
typedef struct stream_shape {
    int type, lanes, threads;
    long long most;
    const char *variant;
} stream_shape;

static const stream_shape stream_shapes[] = {
#define SKR_CE_STREAM(type, lanes, threads, u, blocks, most)                                                           \
    {TYPE_##type, lanes, threads, most, "stream " #type " " #lanes "x" #u},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel stream_kernel[] = {
#define SKR_CE_STREAM(type, lanes, threads, u, blocks, most)                                                           \
    SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_stream_" #type "_" #lanes "x" #u, 0, 1),
#include "cross_entropy_kernels.def"
};
static const stream_shape stream_full_shapes[] = {
#define SKR_CE_STREAM_FULL(type, lanes, threads, u, blocks, most)                                                      \
    {TYPE_##type, lanes, threads, most, "stream full " #type " " #lanes "x" #u},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel stream_full_kernel[] = {
#define SKR_CE_STREAM_FULL(type, lanes, threads, u, blocks, most)                                                      \
    SKR_KERNEL(cross_entropy_full_sm80, "skr_cross_entropy_stream_full_" #type "_" #lanes "x" #u, 0, 1),
#include "cross_entropy_kernels.def"
};
static const stream_shape any_shapes[] = {
#define SKR_CE_ANY(type, lanes, threads, u, most) {TYPE_##type, lanes, threads, most, "any " #type " " #lanes "x" #u},
#include "cross_entropy_kernels.def"
};
static skr_cuda_kernel any_kernel[] = {
#define SKR_CE_ANY(type, lanes, threads, u, most)                                                                      \
    SKR_KERNEL(cross_entropy_full_sm80, "skr_cross_entropy_any_" #type "_" #lanes "x" #u, 0, 1),
#include "cross_entropy_kernels.def"
};

/* The gradient from lse: a group of lanes takes u vectors each. [type][which] */
enum { BACKWARD_THREADS = 256 };
enum { FEW, SOME, MANY, FULL, ANY };
static const struct {
    int lanes, u;
    const char *variant;
} backward_shape[] = {[FEW] = {8, 4, "elements 8x4"},
                      [SOME] = {8, 8, "elements 8x8"},
                      [MANY] = {32, 8, "elements 32x8"},
                      [FULL] = {32, 4, "elements full"},
                      [ANY] = {32, 8, "elements any"}};
static skr_cuda_kernel backward_kernel[3][5] = {
#define BACKWARD(type)                                                                                                 \
    {SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_backward_" #type "_8x4", 0, 1),                                 \
     SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_backward_" #type "_8x8", 0, 1),                                 \
     SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_backward_" #type "_32x8", 0, 1),                                \
     SKR_KERNEL(cross_entropy_full_sm80, "skr_cross_entropy_backward_full_" #type, 0, 1),                              \
     SKR_KERNEL(cross_entropy_full_sm80, "skr_cross_entropy_backward_any_" #type, 0, 1)},
    BACKWARD(f32) BACKWARD(f16) BACKWARD(bf16)};

static skr_cuda_kernel prepare_kernel[2] = {SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_prepare", 0, 1),
                                            SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_merge_prepare", 0, 1)};
static skr_cuda_kernel sum_kernel[2] = {SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_sum", 0, 1),
                                        SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_merge_sum", 0, 1)};
static skr_cuda_kernel finish_kernel[2] = {SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_finish", 0, 1),
                                           SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_merge_finish", 0, 1)};
static skr_cuda_kernel merge_kernel = SKR_KERNEL(cross_entropy_sm80, "skr_cross_entropy_merge_rows", 0, 1);

static void add_step(skr_plan *plan, skr_cuda_kernel *kernel, int64_t grid, int block)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)skr_min(grid, SKR_ROWS_GRID);
    step->block = (uint32_t)block;
    step->overlap = true;
}

enum { SUM_THREADS = 512 };

static void plan_before(const skr_ce_room *room, int merge, skr_plan *plan)
{
    if (room->part_at >= 0)
        add_step(plan, &prepare_kernel[merge], SKR_CE_PARTS, SUM_THREADS);
}

static void plan_after(const skr_ce_room *room, int merge, skr_plan *plan)
{
    if (room->loss_at < 0)
        return;
    add_step(plan, &sum_kernel[merge], SKR_CE_PARTS, SUM_THREADS);
    add_step(plan, &finish_kernel[merge], 1, 32);
}

/* Rows can be read and written in aligned 16-byte vectors. */
static bool aligned(const skr_cross_entropy_job *job, int vec, skr_plan *plan)
{
    if (job->rows.m > SKR_ROWS_MOST) {
        skr_why(plan, "vector kernels: %lld rows, they count in 32 bits", (long long)job->rows.m);
        return false;
    }
    if (job->n % vec == 0 && skr_rows_aligned(&job->rows, &job->logits, vec) &&
        skr_rows_aligned(&job->rows, &job->dlogits, vec))
        return true;
    skr_why(plan, "vector kernels: a pointer, a stride or the width is no multiple of %d elements", vec);
    return false;
}

static void plan_stream(const skr_cross_entropy_job *job, const stream_shape *shapes, skr_cuda_kernel *kernels,
                        int count, skr_plan *plan)
{
    int64_t bytes = skr_mul(job->n, skr_type_bytes(job->logits.type));
    for (int i = 0; i < count; i++)
        if (shapes[i].type == job->logits.type && bytes <= shapes[i].most) {
            int groups = shapes[i].threads / shapes[i].lanes;
            add_step(plan, &kernels[i], skr_ceil_div(job->rows.m, groups), shapes[i].threads);
            plan->variant = shapes[i].variant;
            return;
        }
}

static void plan_rows(const skr_cross_entropy_job *job, const skr_target *target, skr_plan *plan)
{
    int vec = 16 / skr_type_bytes(job->logits.type);
    bool full = job->softcap != 0 || job->smoothing != 0;
    skr_rows_problem p = {.type = job->logits.type, .vec = vec, .m = job->rows.m, .n = job->n, .slot_bytes = 16};
    if (!aligned(job, vec, plan)) {
        plan_stream(job, any_shapes, any_kernel, SKR_COUNT(any_shapes), plan);
        return;
    }
    if (job->dlogits.data && !full &&
        (skr_plan_rows_block(&p, target, rows_shape, rows_kernel, SKR_COUNT(rows_shape), plan) ||
         skr_plan_rows_cluster(&p, target, cluster_shape, cluster_kernel, SKR_COUNT(cluster_shape), plan)))
        return;
    if (job->dlogits.data && full &&
        (skr_plan_rows_block(&p, target, full_shape, full_kernel, SKR_COUNT(full_shape), plan) ||
         skr_plan_rows_cluster(&p, target, full_cluster_shape, full_cluster_kernel, SKR_COUNT(full_cluster_shape),
                               plan)))
        return;
    if (full)
        plan_stream(job, stream_full_shapes, stream_full_kernel, SKR_COUNT(stream_full_shapes), plan);
    else
        plan_stream(job, stream_shapes, stream_kernel, SKR_COUNT(stream_shapes), plan);
}

saker_status skr_cross_entropy_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                         int stages, int64_t at, skr_plan *plan)
{
    plan->variant = "no rows";
    if (stages & SKR_CE_STAGE_BEFORE)
        plan_before(&job->room, 0, plan);
    if (stages & SKR_CE_STAGE_ROWS && job->rows.m)
        plan_rows(job, target, plan);
    if (stages & SKR_CE_STAGE_AFTER)
        plan_after(&job->room, 0, plan);
    return skr_take_done(call, at, plan);
}

saker_status skr_cross_entropy_backward_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                                  skr_plan *plan)
{
    int vec = 16 / skr_type_bytes(job->logits.type), which;
    int64_t at = 0;
    (void)target;
    job->room = skr_ce_room_of(job->reduction, job->smoothing, job->rows.m, job->weight.data, false, true, &at);
    plan_before(&job->room, 0, plan);
    if (!aligned(job, vec, plan))
        which = ANY, vec = 1;
    else if (job->softcap != 0 || job->smoothing != 0)
        which = FULL;
    else
        which = job->n / vec <= 32 ? FEW : job->n / vec < 256 ? SOME : MANY;
    int lanes = backward_shape[which].lanes, u = backward_shape[which].u;
    int64_t chunks = skr_ceil_div(job->n, (int64_t)vec * u * lanes);
    if (chunks > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "logits has %lld columns, expected fewer than 2^37",
                        (long long)job->n);
    job->chunks = (int32_t)chunks;
    int64_t items = skr_mul(job->rows.m, chunks), groups = BACKWARD_THREADS / lanes;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &backward_kernel[job->logits.type][which];
    step->grid = (uint32_t)skr_min(skr_ceil_div(items, groups), INT32_MAX);
    step->block = BACKWARD_THREADS;
    step->overlap = true;
    plan->variant = backward_shape[which].variant;
    return skr_take_done(call, at, plan);
}

saker_status skr_cross_entropy_merge_plan_cuda(skr_call *call, skr_cross_entropy_merge_job *job,
                                               const skr_target *target, skr_plan *plan)
{
    int64_t at = 0;
    (void)target;
    job->room = skr_ce_room_of(job->reduction, job->smoothing, job->rows.m, job->weight.data, job->total, false, &at);
    plan->variant = "merge";
    plan_before(&job->room, 1, plan);
    if (job->rows.m)
        add_step(plan, &merge_kernel, skr_ceil_div(job->rows.m, 256), 256);
    plan_after(&job->room, 1, plan);
    return skr_take_done(call, at, plan);
}
