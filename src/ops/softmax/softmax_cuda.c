/* softmax_cuda.c - the CUDA half of the plans of softmax and softmax_backward: which kernel, how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Row kernels read once with 16-byte accesses and are picked by type and width from softmax_kernels.def; the kernels of
 * softmax_any.cuh take anything. Nothing here looks at the number of rows to choose a kernel: a row's bits do not
 * depend on its neighbours. */
#include "../../cuda/rows_plan.h"
#include "softmax.h"

SKR_FATBIN(softmax_sm80)
SKR_FATBIN(softmax_backward_sm80)
SKR_FATBIN(softmax_sm90)

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

static const skr_rows_shape plain_shape[] = {
#define SKR_PLAIN(type, lanes, threads, vpt, rows, keep, blocks)                                                       \
    {TYPE_##type, lanes, threads, vpt, rows, 0, 1, 1, 0, "plain " #type " " #lanes "x" #vpt},
#include "softmax_kernels.def"
};
static skr_cuda_kernel plain_kernel[] = {
#define SKR_PLAIN(type, lanes, threads, vpt, rows, keep, blocks)                                                       \
    SKR_KERNEL(softmax_sm80, "skr_softmax_plain_" #type "_" #lanes "x" #vpt, 0, 1),
#include "softmax_kernels.def"
};
static const skr_rows_shape plain_wide_shape[] = {
#define SKR_PLAIN_CLUSTER(type, threads, vpt, keep, blocks, least, most)                                               \
    {TYPE_##type, threads, threads, vpt, 1, 0, least, most, 0, "plain " #type " cluster " #threads "x" #vpt},
#include "softmax_kernels.def"
};
static skr_cuda_kernel plain_wide_kernel[] = {
#define SKR_PLAIN_CLUSTER(type, threads, vpt, keep, blocks, least, most)                                               \
    SKR_KERNEL(softmax_sm90, "skr_softmax_plain_" #type "_c" #threads "x" #vpt, 0, SKR_ROWS_CLUSTER),
#include "softmax_kernels.def"
};
static const skr_rows_shape full_shape[] = {
#define SKR_FULL(type, lanes, threads, vpt, blocks)                                                                    \
    {TYPE_##type, lanes, threads, vpt, 1, 0, 1, 1, 0, "full " #type " " #lanes "x" #vpt},
#include "softmax_kernels.def"
};
static skr_cuda_kernel full_kernel[] = {
#define SKR_FULL(type, lanes, threads, vpt, blocks)                                                                    \
    SKR_KERNEL(softmax_sm80, "skr_softmax_full_" #type "_" #lanes "x" #vpt, 0, 1),
#include "softmax_kernels.def"
};
static const skr_rows_shape full_wide_shape[] = {
#define SKR_FULL_CLUSTER(type, threads, vpt, blocks, least, most)                                                      \
    {TYPE_##type, threads, threads, vpt, 1, 0, least, most, 0, "full " #type " cluster " #threads "x" #vpt},
#include "softmax_kernels.def"
};
static skr_cuda_kernel full_wide_kernel[] = {
#define SKR_FULL_CLUSTER(type, threads, vpt, blocks, least, most)                                                      \
    SKR_KERNEL(softmax_sm90, "skr_softmax_full_" #type "_c" #threads "x" #vpt, 0, SKR_ROWS_CLUSTER),
#include "softmax_kernels.def"
};
static const skr_rows_shape backward_shape[] = {
#define SKR_BACKWARD(type, lanes, threads, vpt, rows, blocks)                                                          \
    {TYPE_##type, lanes, threads, vpt, rows, 0, 1, 1, 0, "plain " #type " " #lanes "x" #vpt},
#include "softmax_kernels.def"
};
static skr_cuda_kernel backward_kernel[] = {
#define SKR_BACKWARD(type, lanes, threads, vpt, rows, blocks)                                                          \
    SKR_KERNEL(softmax_backward_sm80, "skr_softmax_backward_" #type "_" #lanes "x" #vpt, 0, 1),
#include "softmax_kernels.def"
};
static const skr_rows_shape backward_wide_shape[] = {
#define SKR_BACKWARD_CLUSTER(type, threads, vpt, blocks, least, most)                                                  \
    {TYPE_##type, threads, threads, vpt, 1, 0, least, most, 0, "plain " #type " cluster " #threads "x" #vpt},
#include "softmax_kernels.def"
};
static skr_cuda_kernel backward_wide_kernel[] = {
#define SKR_BACKWARD_CLUSTER(type, threads, vpt, blocks, least, most)                                                  \
    SKR_KERNEL(softmax_sm90, "skr_softmax_backward_" #type "_c" #threads "x" #vpt, 0, SKR_ROWS_CLUSTER),
#include "softmax_kernels.def"
};

enum { ANY_WARP, ANY_BLOCK, ANY_ACROSS, N_ANY };
static skr_cuda_kernel any_kernel[N_ANY] = {SKR_KERNEL(softmax_sm80, "skr_softmax_any_warp", 0, 1),
                                            SKR_KERNEL(softmax_sm80, "skr_softmax_any_block", 0, 1),
                                            SKR_KERNEL(softmax_sm80, "skr_softmax_any_across", 0, 1)};
static skr_cuda_kernel backward_any_kernel[N_ANY] = {
    SKR_KERNEL(softmax_backward_sm80, "skr_softmax_backward_any_warp", 0, 1),
    SKR_KERNEL(softmax_backward_sm80, "skr_softmax_backward_any_block", 0, 1),
    SKR_KERNEL(softmax_backward_sm80, "skr_softmax_backward_any_across", 0, 1)};
static const char *const any_variant[N_ANY] = {"any warp", "any block", "any across"};

/* Rows whose columns are apart are mostly neighbours themselves. */
static void plan_any(const skr_row_space *rows, int64_t n, bool side_by_side, skr_cuda_kernel *kernels, skr_plan *plan)
{
    int which = !side_by_side ? ANY_ACROSS : n > 2048 ? ANY_BLOCK : ANY_WARP;
    int64_t tiles = skr_ceil_div(rows->m, which == ANY_ACROSS ? 32 : which == ANY_WARP ? 4 : 1);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[which];
    step->grid = (uint32_t)skr_min(tiles, SKR_ROWS_GRID);
    step->block = which == ANY_WARP ? 128 : 512;
    step->overlap = true;
    plan->variant = any_variant[which];
}

/* Whether the row kernels can work on t at all. */
static bool in_vectors(const skr_row_space *rows, const skr_rows *t, int vec)
{
    return t->col_stride == 1 && skr_rows_aligned(rows, t, vec);
}

/* Says why not. */
static bool vectors(const skr_rows_problem *p, bool aligned, skr_plan *plan)
{
    if (p->m > SKR_ROWS_MOST)
        skr_why(plan, "row kernels: %lld rows, they count in 32 bits", (long long)p->m);
    else if (p->n % p->vec || !aligned)
        skr_why(plan, "row kernels: a pointer, a stride or the width is no multiple of %d elements", p->vec);
    return p->m <= SKR_ROWS_MOST && p->n % p->vec == 0 && aligned;
}

saker_status skr_softmax_plan_cuda(skr_call *call, skr_softmax_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_softmax_plan_cuda(skr_call *call, skr_softmax_job *job, const skr_target *target, skr_plan *plan)
{
    (void)call;
    int vec = 16 / skr_type_bytes(job->x.type);
    skr_rows_problem p = {.type = job->x.type, .vec = vec, .m = job->rows.m, .n = job->n};
    bool mask = !job->mask.data || job->mask.col_stride == 0 || in_vectors(&job->rows, &job->mask, vec);
    bool plain = !job->mask.data && !job->log && job->seen.how == SKR_SEEN_ALL && job->y.type == job->x.type;
    if (vectors(&p, in_vectors(&job->rows, &job->x, vec) && in_vectors(&job->rows, &job->y, vec) && mask, plan)) {
        if (plain &&
            (skr_plan_rows_block(&p, target, plain_shape, plain_kernel, SKR_COUNT(plain_shape), plan) ||
             skr_plan_rows_cluster(&p, target, plain_wide_shape, plain_wide_kernel, SKR_COUNT(plain_wide_shape), plan)))
            return SAKER_OK;
        if (!plain &&
            (skr_plan_rows_block(&p, target, full_shape, full_kernel, SKR_COUNT(full_shape), plan) ||
             skr_plan_rows_cluster(&p, target, full_wide_shape, full_wide_kernel, SKR_COUNT(full_wide_shape), plan)))
            return SAKER_OK;
    }
    plan_any(&job->rows, job->n, job->x.col_stride == 1 && job->y.col_stride == 1, any_kernel, plan);
    return SAKER_OK;
}

saker_status skr_softmax_backward_plan_cuda(skr_call *call, skr_softmax_backward_job *job, const skr_target *target,
                                            skr_plan *plan);

saker_status skr_softmax_backward_plan_cuda(skr_call *call, skr_softmax_backward_job *job, const skr_target *target,
                                            skr_plan *plan)
{
    (void)call;
    int vec = 16 / skr_type_bytes(job->y.type);
    skr_rows_problem p = {.type = job->y.type, .vec = vec, .m = job->rows.m, .n = job->n};
    const skr_row_space *s = &job->rows;
    bool plain = job->seen.how == SKR_SEEN_ALL && job->dy.type == job->y.type && job->dx.type == job->y.type;
    if (!plain)
        skr_why(plan, "row kernels: causal, or dy, y and dx differ in type");
    else if (vectors(&p, in_vectors(s, &job->dy, vec) && in_vectors(s, &job->y, vec) && in_vectors(s, &job->dx, vec),
                     plan) &&
             (skr_plan_rows_block(&p, target, backward_shape, backward_kernel, SKR_COUNT(backward_shape), plan) ||
              skr_plan_rows_cluster(&p, target, backward_wide_shape, backward_wide_kernel,
                                    SKR_COUNT(backward_wide_shape), plan)))
        return SAKER_OK;
    bool side_by_side = job->dy.col_stride == 1 && job->y.col_stride == 1 && job->dx.col_stride == 1;
    plan_any(s, job->n, side_by_side, backward_any_kernel, plan);
    return SAKER_OK;
}
