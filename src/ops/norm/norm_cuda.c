/* norm_cuda.c - the CUDA half of the norms' plans: which kernel, how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Families (docs/notes/norm_cuda.md): plain, residual, quant and full row kernels, which read once with
 * 16-byte accesses and are picked by type and width from norm_kernels.def; and the kernels that take anything.
 * Nothing here looks at the number of rows to choose a kernel (below 2^28): a row's bits do not depend on its
 * neighbours. The number of blocks may: it changes no bit. */
#include "../../cuda/rows_plan.h"
#include "norm_op.h"

SKR_FATBIN(norm_sm80)
SKR_FATBIN(norm_lean_sm80)
SKR_FATBIN(norm_full_sm80)
SKR_FATBIN(norm_sm90)

/* The tables hold both norms: a shape's type is that of x, CENTRED added for layer_norm. */
enum { CENTRED = 16, rms = 0, layer = CENTRED };
#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

static const skr_rows_shape plain_shape[] = {
#define SKR_PLAIN(norm, type, lanes, threads, vpt, rows, early, blocks)                                                \
    {TYPE_##type + norm, lanes, threads, vpt, rows, 0, 1, 1, 0, "plain " #type " " #lanes "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel plain_kernel[] = {
#define SKR_PLAIN(norm, type, lanes, threads, vpt, rows, early, blocks)                                                \
    SKR_KERNEL(norm_sm80, "skr_" #norm "_norm_plain_" #type "_" #lanes "x" #vpt, 0, 1),
#include "norm_kernels.def"
};
/* Slots of x and of the parameters: one, or layer_norm's two. */
#define WIDE_SLOTS(norm, inside, params) ((inside) + (params) * ((norm) == layer ? 2 : 1))
static const skr_rows_shape plain_wide_shape[] = {
#define SKR_PLAIN_CLUSTER(norm, type, threads, vpt, inside, params, blocks, least, most)                               \
    {TYPE_##type + norm,                                                                                               \
     threads,                                                                                                          \
     threads,                                                                                                          \
     vpt,                                                                                                              \
     1,                                                                                                                \
     WIDE_SLOTS(norm, inside, params),                                                                                 \
     least,                                                                                                            \
     most,                                                                                                             \
     0,                                                                                                                \
     "plain " #type " cluster " #threads "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel plain_wide_kernel[] = {
#define SKR_PLAIN_CLUSTER(norm, type, threads, vpt, inside, params, blocks, least, most)                               \
    SKR_KERNEL(norm_sm90, "skr_" #norm "_norm_plain_" #type "_c" #threads "x" #vpt "_" #least,                         \
               WIDE_SLOTS(norm, inside, params) * threads * 16, SKR_ROWS_CLUSTER),
#include "norm_kernels.def"
};
static const skr_rows_shape residual_shape[] = {
#define SKR_RESIDUAL(norm, type, lanes, threads, vpt, blocks)                                                          \
    {TYPE_##type + norm, lanes, threads, vpt, 1, 0, 1, 1, 0, "residual " #type " " #lanes "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel residual_kernel[] = {
#define SKR_RESIDUAL(norm, type, lanes, threads, vpt, blocks)                                                          \
    SKR_KERNEL(norm_lean_sm80, "skr_" #norm "_norm_residual_" #type "_" #lanes "x" #vpt, 0, 1),
#include "norm_kernels.def"
};
static const skr_rows_shape residual_wide_shape[] = {
#define SKR_RESIDUAL_CLUSTER(norm, type, threads, vpt, blocks, least, most, walk)                                      \
    {TYPE_##type + norm,                                                                                               \
     threads,                                                                                                          \
     threads,                                                                                                          \
     vpt,                                                                                                              \
     1,                                                                                                                \
     0,                                                                                                                \
     least,                                                                                                            \
     most,                                                                                                             \
     walk,                                                                                                             \
     "residual " #type " cluster " #threads "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel residual_wide_kernel[] = {
#define SKR_RESIDUAL_CLUSTER(norm, type, threads, vpt, blocks, least, most, walk)                                      \
    SKR_KERNEL(norm_sm90, "skr_" #norm "_norm_residual_" #type "_c" #threads "x" #vpt "_" #least, 0, SKR_ROWS_CLUSTER),
#include "norm_kernels.def"
};
static const skr_rows_shape quant_shape[] = {
#define SKR_QUANT(norm, type, lanes, threads, vpt, hold, blocks, walk)                                                 \
    {TYPE_##type + norm, lanes, threads, vpt, 1, 2 * vpt, 1, 1, walk, "quant " #type " " #lanes "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel quant_kernel[] = {
#define SKR_QUANT(norm, type, lanes, threads, vpt, hold, blocks, walk)                                                 \
    SKR_KERNEL(norm_lean_sm80, "skr_" #norm "_norm_quant_" #type "_" #lanes "x" #vpt, 2 * vpt * threads * 16, 1),
#include "norm_kernels.def"
};
static const skr_rows_shape quant_wide_shape[] = {
#define SKR_QUANT_CLUSTER(norm, type, threads, vpt, hold, least, most)                                                 \
    {TYPE_##type + norm,                                                                                               \
     threads,                                                                                                          \
     threads,                                                                                                          \
     vpt,                                                                                                              \
     1,                                                                                                                \
     2 * vpt,                                                                                                          \
     least,                                                                                                            \
     most,                                                                                                             \
     1,                                                                                                                \
     "quant " #type " cluster " #threads "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel quant_wide_kernel[] = {
#define SKR_QUANT_CLUSTER(norm, type, threads, vpt, hold, least, most)                                                 \
    SKR_KERNEL(norm_sm90, "skr_" #norm "_norm_quant_" #type "_c" #threads "x" #vpt, 2 * vpt * threads * 16,            \
               SKR_ROWS_CLUSTER),
#include "norm_kernels.def"
};
static const skr_rows_shape full_shape[] = {
#define SKR_FULL(norm, type, lanes, threads, vpt, stages, blocks, walk)                                                \
    {TYPE_##type + norm, lanes, threads, vpt, 1, stages * vpt, 1, 1, walk, "full " #type " " #lanes "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel full_kernel[] = {
#define SKR_FULL(norm, type, lanes, threads, vpt, stages, blocks, walk)                                                \
    SKR_KERNEL(norm_full_sm80, "skr_" #norm "_norm_full_" #type "_" #lanes "x" #vpt, SKR_ROWS_SHARED *(stages > 0), 1),
#include "norm_kernels.def"
};
static const skr_rows_shape full_wide_shape[] = {
#define SKR_FULL_CLUSTER(norm, type, threads, vpt, stages, least, most, walk)                                          \
    {TYPE_##type + norm, threads, threads, vpt,  1,                                                                    \
     stages * vpt,       least,   most,    walk, "full " #type " cluster " #threads "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel full_wide_kernel[] = {
#define SKR_FULL_CLUSTER(norm, type, threads, vpt, stages, least, most, walk)                                          \
    SKR_KERNEL(norm_sm90, "skr_" #norm "_norm_full_" #type "_c" #threads "x" #vpt, SKR_ROWS_SHARED, SKR_ROWS_CLUSTER),
#include "norm_kernels.def"
};
#define ANY(norm)                                                                                                      \
    {                                                                                                                  \
        {SKR_KERNEL(norm_sm80, "skr_" #norm "_norm_any_warp1", 0, 1),                                                  \
         SKR_KERNEL(norm_sm80, "skr_" #norm "_norm_any_warp4", 0, 1)},                                                 \
        {                                                                                                              \
            SKR_KERNEL(norm_sm80, "skr_" #norm "_norm_any_block1", 0, 1),                                              \
                SKR_KERNEL(norm_sm80, "skr_" #norm "_norm_any_block4", 0, 1)                                           \
        }                                                                                                              \
    }
static skr_cuda_kernel any_kernel[2][2][2] = {ANY(rms), ANY(layer)};
static const char *const any_variant[2][2] = {{"any warp1", "any warp4"}, {"any block1", "any block4"}};

static bool aligned(const skr_norm_job *job, int vec)
{
    const skr_row_space *s = &job->rows;
    return job->n % vec == 0 && skr_rows_aligned(s, &job->x, vec) && skr_rows_aligned(s, &job->residual, vec) &&
           skr_rows_aligned(s, &job->y, vec) && skr_rows_aligned(s, &job->residual_out, vec) &&
           skr_rows_aligned(s, &job->y_quant, vec) && skr_param_aligned(job->heads, &job->weight, vec) &&
           skr_param_aligned(job->heads, &job->bias, vec);
}

/* layer_norm: absent, or one row of x's type. */
static bool packs(const skr_norm_job *job, const skr_param *p)
{
    return !p->data || (p->type == job->x.type && job->heads == 1);
}

static bool is_plain(const skr_norm_job *job)
{
    return job->y.data && job->y.type == job->x.type && !job->residual.data && !job->residual_out.data &&
           (job->centre ? packs(job, &job->weight) && packs(job, &job->bias) : !job->bias.data) && !job->y_quant.data &&
           !(job->round_before_weight && job->x.type != SKR_F32);
}

/* Rows with one stride, one weight of x's type, no bias; layer_norm: no bias or one of x's type. */
static bool is_lean(const skr_norm_job *job)
{
    return job->rows.n_dims == 1 && job->heads == 1 && job->weight.data && job->weight.type == job->x.type &&
           (job->centre ? packs(job, &job->bias) : !job->bias.data) &&
           !(job->round_before_weight && job->x.type != SKR_F32);
}

static bool has_type(const skr_rows *t, int type)
{
    return t->data && t->type == type;
}

static bool is_residual(const skr_norm_job *job)
{
    return is_lean(job) && !job->quant && has_type(&job->residual, job->x.type) &&
           has_type(&job->residual_out, job->x.type) && has_type(&job->y, job->x.type);
}

static bool is_quant(const skr_norm_job *job)
{
    return is_lean(job) && (job->quant == SKR_QUANT_ROW || job->quant == SKR_QUANT_TENSOR) && !job->residual.data &&
           !job->residual_out.data && !job->y.data;
}

static void plan_any(const skr_norm_job *job, skr_plan *plan)
{
    int block = job->n > 2048, four = aligned(job, 4);
    int64_t tiles = skr_ceil_div(job->rows.m, block ? 1 : 4);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &any_kernel[job->centre != 0][block][four];
    step->grid = (uint32_t)(tiles < SKR_ROWS_GRID ? tiles : SKR_ROWS_GRID);
    step->block = block ? 512 : 128;
    step->overlap = true;
    plan->variant = any_variant[block][four];
}

saker_status skr_norm_plan_cuda(skr_call *call, skr_norm_job *job, const skr_target *target, skr_plan *plan)
{
    (void)call;
    int vec = 16 / skr_type_bytes(job->x.type);
    skr_rows_problem p = {.type = job->x.type + (job->centre ? CENTRED : 0), .vec = vec, .m = job->rows.m, .n = job->n};
    p.slot_bytes = 16 + (job->residual.data ? vec * skr_type_bytes(job->residual.type) : 0);
    if (job->rows.m > SKR_ROWS_MOST) {
        skr_why(plan, "row kernels: %lld rows, they count in 32 bits", (long long)job->rows.m);
    } else if (!aligned(job, vec)) {
        skr_why(plan, "row kernels: a pointer, a stride or the width is no multiple of %d elements", vec);
    } else if (is_plain(job)) {
        if (skr_plan_rows_filled_cluster(&p, target, plain_wide_shape, plain_wide_kernel, SKR_COUNT(plain_wide_shape),
                                         plan) ||
            skr_plan_rows_block(&p, target, plain_shape, plain_kernel, SKR_COUNT(plain_shape), plan) ||
            skr_plan_rows_cluster(&p, target, plain_wide_shape, plain_wide_kernel, SKR_COUNT(plain_wide_shape), plan))
            return SAKER_OK;
    } else {
        if (is_residual(job) &&
            (skr_plan_rows_block(&p, target, residual_shape, residual_kernel, SKR_COUNT(residual_shape), plan) ||
             skr_plan_rows_cluster(&p, target, residual_wide_shape, residual_wide_kernel,
                                   SKR_COUNT(residual_wide_shape), plan)))
            return SAKER_OK;
        if (is_quant(job) &&
            (skr_plan_rows_block(&p, target, quant_shape, quant_kernel, SKR_COUNT(quant_shape), plan) ||
             skr_plan_rows_cluster(&p, target, quant_wide_shape, quant_wide_kernel, SKR_COUNT(quant_wide_shape), plan)))
            return SAKER_OK;
        if (skr_plan_rows_block(&p, target, full_shape, full_kernel, SKR_COUNT(full_shape), plan) ||
            skr_plan_rows_cluster(&p, target, full_wide_shape, full_wide_kernel, SKR_COUNT(full_wide_shape), plan))
            return SAKER_OK;
    }
    plan_any(job, plan);
    return SAKER_OK;
}
