/* quantize_cuda.c - the CUDA half of the plans of quantize and dequantize.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "quantize.h"

SKR_FATBIN(quantize_sm80)

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

/* By type and by the lanes that share a scale: none (it is given), 2, 4, ... 32. */
#define FLATS(type)                                                                                                    \
    {                                                                                                                  \
        SKR_KERNEL(quantize_sm80, "skr_quantize_flat_" #type "_0", 0, 1),                                              \
            SKR_KERNEL(quantize_sm80, "skr_quantize_flat_" #type "_2", 0, 1),                                          \
            SKR_KERNEL(quantize_sm80, "skr_quantize_flat_" #type "_4", 0, 1),                                          \
            SKR_KERNEL(quantize_sm80, "skr_quantize_flat_" #type "_8", 0, 1),                                          \
            SKR_KERNEL(quantize_sm80, "skr_quantize_flat_" #type "_16", 0, 1),                                         \
            SKR_KERNEL(quantize_sm80, "skr_quantize_flat_" #type "_32", 0, 1)                                          \
    }
static skr_cuda_kernel flat[3][6] = {FLATS(f32), FLATS(f16), FLATS(bf16)};
static skr_cuda_kernel tile[3] = {SKR_KERNEL(quantize_sm80, "skr_quantize_tile_f32", 0, 1),
                                  SKR_KERNEL(quantize_sm80, "skr_quantize_tile_f16", 0, 1),
                                  SKR_KERNEL(quantize_sm80, "skr_quantize_tile_bf16", 0, 1)};
static skr_cuda_kernel back[3] = {SKR_KERNEL(quantize_sm80, "skr_dequantize_flat_f32", 0, 1),
                                  SKR_KERNEL(quantize_sm80, "skr_dequantize_flat_f16", 0, 1),
                                  SKR_KERNEL(quantize_sm80, "skr_dequantize_flat_bf16", 0, 1)};
static const skr_rows_shape rows_shape[] = {
#define SKR_QUANTIZE_ROWS(type, lanes, threads, vpt)                                                                   \
    {TYPE_##type, lanes, threads, vpt, 1, 0, 1, 1, 0, "rows " #type " " #lanes "x" #vpt},
#include "quantize_kernels.def"
};
static skr_cuda_kernel rows_kernel[] = {
#define SKR_QUANTIZE_ROWS(type, lanes, threads, vpt)                                                                   \
    SKR_KERNEL(quantize_sm80, "skr_quantize_rows_" #type "_" #lanes "x" #vpt, 0, 1),
#include "quantize_kernels.def"
};
static skr_cuda_kernel parts = SKR_KERNEL(quantize_sm80, "skr_quantize_parts", 0, 1);
static skr_cuda_kernel fold = SKR_KERNEL(quantize_sm80, "skr_quantize_fold", 0, 1);
static skr_cuda_kernel any_kernel = SKR_KERNEL(quantize_sm80, "skr_quantize_any", 0, 1);
static skr_cuda_kernel back_any = SKR_KERNEL(quantize_sm80, "skr_dequantize_any", 0, 1);

/* PIECE: columns of a row that a block of the any kernels takes, about; PARTS: blocks that look for the largest. */
enum { THREADS = 256, PIECE = 8192, PARTS = 1056 };

static void add_step(skr_plan *plan, skr_cuda_kernel *kernel, int64_t grid)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)grid;
    step->block = THREADS;
    step->overlap = true;
}

/* Vectors that a block of the flat kernels takes (SKR_QUANTIZE_UNROLL of quantize.cuh). */
static int64_t thread_vectors(const skr_quantize_job *job)
{
    return THREADS * (job->x.type == SKR_F32 ? 4 : 2);
}

/* Every vector of x and its codes are one access each, in rows with one stride. */
static bool vectors_fit(const skr_quantize_job *job, int vec, skr_plan *plan)
{
    const skr_row_space *s = &job->rows;
    int64_t code = job->type == SKR_I4 ? vec / 2 : vec;
    bool fits = job->n % vec == 0 && skr_rows_aligned(s, &job->x, vec) &&
                ((uintptr_t)job->q.data | (uintptr_t)(s->m > 1 ? job->q.stride[0] : 0)) % (uint64_t)code == 0 &&
                job->x_step % vec == 0 && job->q_step % code == 0;
    if (!fits)
        skr_why(plan, "vector kernels: a pointer, a stride or the width is no multiple of %d elements", vec);
    else if (s->n_dims > 1)
        skr_why(plan, "vector kernels: rows with one stride");
    return fits && s->n_dims == 1 && s->m <= SKR_ROWS_MOST;
}

/* Lanes that share a scale, as an index of flat[]: -1 where they are no power of two from 2 to 32, or groups are cut.
 */
static int lanes_index(const skr_quantize_job *job, int vec)
{
    if (job->quant == SAKER_QUANT_TENSOR)
        return 0;
    for (int i = 1, lanes = 2; job->group % vec == 0 && lanes <= 32; i++, lanes *= 2)
        if (job->group / vec == lanes && job->n % job->group == 0)
            return i;
    return -1;
}

/* All rows as one run, or as rows of vectors. */
static bool make_flat(skr_quantize_job *job, int vec, skr_plan *plan)
{
    int64_t m = job->rows.m, vectors = job->n / vec, bytes = job->type == SKR_I4 ? job->n / 2 : job->n;
    bool compact = job->x.stride[0] == job->n && job->q.stride[0] == bytes;
    if (job->quant != SAKER_QUANT_TENSOR)
        compact = compact && job->n % job->group == 0 && job->group < job->n && job->scale.col_stride == 1 &&
                  job->scale.stride[0] == job->n / job->group;
    /* dequantize divides a column by its group in 32 bits; by 128 it shifts. */
    if (job->quant != SAKER_QUANT_TENSOR && job->group != SKR_QUANT_GROUP)
        compact = compact && skr_mul(m, job->n) <= UINT32_MAX;
    if (compact)
        vectors = skr_mul(m, vectors), m = 1;
    if (skr_flat_of(m, vectors, &job->flat))
        return true;
    skr_why(plan, "vector kernels: %lld rows of %lld vectors are too many", (long long)m, (long long)vectors);
    return false;
}

static saker_status plan_any(skr_call *call, skr_quantize_job *job, skr_cuda_kernel *kernel, skr_plan *plan)
{
    int64_t unit = job->quant == SAKER_QUANT_TENSOR ? 2 : skr_mul(2, job->group), n = skr_max(job->n, 1);
    if (job->group < n && job->group > INT32_MAX / 4)
        return skr_fail(call, SAKER_OVERFLOW, "group is %lld: groups of a row are counted in 31 bits",
                        (long long)job->group);
    job->piece = job->group >= n && job->quant != SAKER_QUANT_TENSOR ? n : skr_mul(unit, skr_ceil_div(PIECE, unit));
    job->pieces = skr_ceil_div(n, job->piece);
    add_step(plan, kernel, skr_min(skr_mul(job->rows.m, job->pieces), SKR_ROWS_GRID));
    plan->variant = "any";
    return SAKER_OK;
}

saker_status skr_quantize_plan_cuda(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_quantize_plan_cuda(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan)
{
    int vec = 16 / skr_type_bytes(job->x.type);
    bool none = job->rows.m == 0 || (job->n == 0 && job->quant != SAKER_QUANT_ROW);
    bool fit = job->n > 0 && !none && vectors_fit(job, vec, plan);
    int64_t tiles = skr_mul(job->rows.m, skr_ceil_div(job->n, SKR_QUANT_GROUP));
    job->flat = (skr_flat){0};
    if (job->dynamic) {
        bool run = fit && make_flat(job, vec, plan) && job->flat.vectors == job->flat.total;
        int64_t most =
            run ? skr_ceil_div(job->flat.total, THREADS) : skr_ceil_div(skr_mul(job->rows.m, job->n), THREADS);
        if (!run)
            job->flat = (skr_flat){0};
        job->n_parts = none ? 0 : skr_min(most, PARTS);
        plan->workspace_bytes = (size_t)skr_max(job->n_parts, 1) * sizeof(float);
        if (!none)
            add_step(plan, &parts, job->n_parts);
        add_step(plan, &fold, 1);
        plan->variant = "empty";
        fit = fit && run; /* the job is one for all steps: what the first one reads in runs, the last one does too */
    }
    if (none)
        return SAKER_OK;
    if (fit && job->slab > 1 && tiles <= INT32_MAX) {
        add_step(plan, &tile[job->x.type], tiles);
        plan->variant = "tile";
        return SAKER_OK;
    }
    if (fit && job->quant == SAKER_QUANT_ROW && job->n / vec <= INT32_MAX) {
        skr_rows_problem p = {.type = job->x.type, .vec = vec, .m = job->rows.m, .n = job->n};
        job->flat.vectors = (uint32_t)(job->n / vec);
        if (skr_plan_rows_block(&p, target, rows_shape, rows_kernel, SKR_COUNT(rows_shape), plan))
            return SAKER_OK;
    } else if (fit && job->slab == 1 && lanes_index(job, vec) >= 0 && make_flat(job, vec, plan)) {
        add_step(plan, &flat[job->x.type][lanes_index(job, vec)], skr_ceil_div(job->flat.total, thread_vectors(job)));
        plan->variant = "flat";
        return SAKER_OK;
    }
    return plan_any(call, job, &any_kernel, plan);
}

saker_status skr_dequantize_plan_cuda(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_dequantize_plan_cuda(skr_call *call, skr_quantize_job *job, const skr_target *target, skr_plan *plan)
{
    (void)target;
    int vec = 16 / skr_type_bytes(job->x.type);
    bool whole = job->quant == SAKER_QUANT_TENSOR || job->quant == SAKER_QUANT_ROW || job->group % vec == 0;
    if (vectors_fit(job, vec, plan) && job->slab == 1 && whole && job->n <= INT32_MAX && make_flat(job, vec, plan)) {
        add_step(plan, &back[job->x.type], skr_ceil_div(job->flat.total, thread_vectors(job)));
        plan->variant = "flat";
        return SAKER_OK;
    }
    return plan_any(call, job, &back_any, plan);
}
