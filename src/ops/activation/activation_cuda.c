/* activation_cuda.c - the CUDA half of the plans of activation and activation_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "activation.h"

SKR_FATBIN(activation_sm80)
SKR_FATBIN(activation_backward_sm80)

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

/* By type and form: not gated, gate and up apart, interleaved. */
#define FLATS(fatbin, prefix, type)                                                                                    \
    {                                                                                                                  \
        SKR_KERNEL(fatbin, prefix #type "_0", 0, 1), SKR_KERNEL(fatbin, prefix #type "_1", 0, 1),                      \
            SKR_KERNEL(fatbin, prefix #type "_2", 0, 1)                                                                \
    }
static skr_cuda_kernel flat[3][3] = {FLATS(activation_sm80, "skr_activation_flat_", f32),
                                     FLATS(activation_sm80, "skr_activation_flat_", f16),
                                     FLATS(activation_sm80, "skr_activation_flat_", bf16)};
static skr_cuda_kernel backward_flat[3][3] = {FLATS(activation_backward_sm80, "skr_activation_backward_flat_", f32),
                                              FLATS(activation_backward_sm80, "skr_activation_backward_flat_", f16),
                                              FLATS(activation_backward_sm80, "skr_activation_backward_flat_", bf16)};
static const char *const flat_variant[3][3] = {{"flat f32", "flat gated f32", "flat interleaved f32"},
                                               {"flat f16", "flat gated f16", "flat interleaved f16"},
                                               {"flat bf16", "flat gated bf16", "flat interleaved bf16"}};
static const skr_rows_shape rows_shape[] = {
#define SKR_ACT_ROWS_OF(type, lanes, threads, vpt)                                                                     \
    {TYPE_##type, lanes, threads, vpt, 1, 0, 1, 1, 0, "rows " #type " " #lanes "x" #vpt},
#include "activation_kernels.def"
};
static skr_cuda_kernel rows_kernel[] = {
#define SKR_ACT_ROWS_OF(type, lanes, threads, vpt)                                                                     \
    SKR_KERNEL(activation_sm80, "skr_activation_rows_" #type "_" #lanes "x" #vpt, 0, 1),
#include "activation_kernels.def"
};
static skr_cuda_kernel any_kernel = SKR_KERNEL(activation_sm80, "skr_activation_any", 0, 1);
static skr_cuda_kernel backward_any = SKR_KERNEL(activation_backward_sm80, "skr_activation_backward_any", 0, 1);
static skr_cuda_kernel columns_kernel = SKR_KERNEL(activation_backward_sm80, "skr_activation_backward_columns", 0, 1);
static skr_cuda_kernel add_kernel = SKR_KERNEL(activation_backward_sm80, "skr_activation_add_parts", 0, 1);

/* THREADS of all but the row kernels; PIECE: columns of a row that a block of the any kernels takes; TILE: columns of a
 * block of the columns kernel. */
enum { THREADS = 256, PIECE = 8192, TILE = 4 * THREADS };

static int form_of(const skr_act_head *a)
{
    return a->step == 2 ? 2 : a->gated ? 1 : 0;
}

static bool follows(const skr_rows *t, int64_t n)
{
    return !t->data || t->stride[0] == n;
}

static bool of_type(const skr_rows *t, int type)
{
    return !t->data || t->type == type;
}

/* Gate, up and bias can be read in vectors, in rows with one stride. */
static bool operands_aligned(const skr_act_head *a, int vec, skr_plan *plan)
{
    const skr_row_space *s = &a->rows;
    bool fits = a->n % vec == 0 && skr_rows_aligned(s, &a->gate, vec) && skr_param_aligned(1, &a->bias, vec) &&
                (a->step == 2 || skr_rows_aligned(s, &a->up, vec));
    if (!fits)
        skr_why(plan, "vector kernels: a pointer, a stride or the width is no multiple of %d elements", vec);
    else if (s->n_dims > 1)
        skr_why(plan, "vector kernels: rows with one stride");
    else if (a->gated && a->up.type != a->gate.type)
        skr_why(plan, "vector kernels: x and up differ in type");
    return fits && s->n_dims == 1 && (!a->gated || a->up.type == a->gate.type);
}

/* each: vectors of a thread; compact: the rows of all tensors follow one another. */
static bool plan_flat(skr_act_head *a, int vec, int each, bool compact, skr_cuda_kernel (*kernels)[3], skr_plan *plan)
{
    int64_t m = a->rows.m, vectors = a->n / vec;
    if (compact && !a->bias.data)
        vectors = skr_mul(m, vectors), m = 1;
    if (!skr_flat_of(m, vectors, &a->flat)) {
        skr_why(plan, "vector kernels: %lld rows of %lld vectors are too many", (long long)m, (long long)vectors);
        return false;
    }
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[a->gate.type][form_of(a)];
    step->grid = (uint32_t)skr_ceil_div(a->flat.total, each * THREADS);
    step->block = THREADS;
    step->overlap = true;
    plan->variant = flat_variant[a->gate.type][form_of(a)];
    return true;
}

/* The row is shared by a block where it is one task, else its pieces are tasks. */
static void plan_any(skr_act_head *a, bool whole_rows, skr_cuda_kernel *kernel, skr_plan *plan)
{
    int64_t n = skr_max(a->n, 1); /* rows of nothing have their scale */
    a->piece = whole_rows ? (int64_t)skr_align_up((size_t)n, SKR_QUANT_GROUP) : PIECE;
    a->pieces = skr_ceil_div(n, a->piece);
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)skr_min(skr_mul(a->rows.m, a->pieces), SKR_ROWS_GRID);
    step->block = THREADS;
    step->overlap = true;
    plan->variant = "any";
}

saker_status skr_activation_plan_cuda(skr_call *call, skr_activation_job *job, const skr_target *target,
                                      skr_plan *plan);

saker_status skr_activation_plan_cuda(skr_call *call, skr_activation_job *job, const skr_target *target, skr_plan *plan)
{
    (void)call;
    skr_act_head *a = &job->a;
    const skr_row_space *s = &a->rows;
    int vec = 16 / skr_type_bytes(a->gate.type);
    bool whole_rows = job->quant == SAKER_QUANT_ROW, blocks = job->quant == SAKER_QUANT_BLOCK;
    bool vectors = operands_aligned(a, vec, plan) && skr_rows_aligned(s, &job->y, vec) &&
                   skr_rows_aligned(s, &job->y_quant, vec) && of_type(&job->y, a->gate.type) && s->m <= SKR_ROWS_MOST &&
                   !(blocks && a->n % SKR_QUANT_GROUP);
    if (vectors && whole_rows) {
        skr_rows_problem p = {.type = a->gate.type, .vec = vec, .m = s->m, .n = a->n};
        a->flat = (skr_flat){.vectors = (uint32_t)(a->n / vec)};
        if (a->n / vec <= INT32_MAX &&
            skr_plan_rows_block(&p, target, rows_shape, rows_kernel, SKR_COUNT(rows_shape), plan))
            return SAKER_OK;
    } else if (vectors) {
        int64_t operand = a->n * a->step; /* interleaved, a row of the gate spans its up as well */
        bool compact = follows(&a->gate, operand) && follows(&a->up, operand) && follows(&job->y, a->n) &&
                       follows(&job->y_quant, a->n) &&
                       (!blocks || (job->scale.col_stride == 1 && follows(&job->scale, a->n / SKR_QUANT_GROUP)));
        if (plan_flat(a, vec, SKR_ACT_VECTORS(a->gate.type, form_of(a)), compact, flat, plan))
            return SAKER_OK;
    }
    plan_any(a, whole_rows, &any_kernel, plan);
    return SAKER_OK;
}

/* Parts of dbias: enough blocks to fill a GPU, at least 16 rows each; a function of the shape alone. */
static void plan_columns(skr_activation_backward_job *job, skr_plan *plan)
{
    const skr_act_head *a = &job->a;
    int64_t tiles = skr_ceil_div(a->n, TILE), parts = skr_min(2048 / tiles, a->rows.m / 16);
    job->rows_per_part = skr_ceil_div(a->rows.m, skr_max(parts, 1));
    job->n_parts = skr_ceil_div(a->rows.m, job->rows_per_part);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &columns_kernel;
    step->grid = (uint32_t)(tiles * job->n_parts);
    step->block = THREADS;
    step->overlap = true;
    plan->variant = "columns";
}

saker_status skr_activation_backward_plan_cuda(skr_call *call, skr_activation_backward_job *job,
                                               const skr_target *target, skr_plan *plan);

saker_status skr_activation_backward_plan_cuda(skr_call *call, skr_activation_backward_job *job,
                                               const skr_target *target, skr_plan *plan)
{
    (void)target;
    skr_act_head *a = &job->a;
    const skr_row_space *s = &a->rows;
    int64_t columns = a->gated ? 2 * a->n : a->n;
    if (job->dbias.data) {
        if (a->n > (int64_t)TILE * INT32_MAX)
            return skr_fail(call, SAKER_OVERFLOW, "%lld columns do not fit one launch", (long long)a->n);
        job->n_parts = 0;
        plan->variant = "empty sums";
        if (s->m)
            plan_columns(job, plan);
        plan->workspace_bytes = (size_t)skr_mul(job->n_parts, skr_mul(columns, sizeof(float)));
        skr_step *step = skr_plan_step(plan);
        int64_t warps = skr_ceil_div(job->n_parts, 4);
        step->kernel = &add_kernel;
        step->grid = (uint32_t)skr_ceil_div(columns, 32);
        step->block = (uint32_t)(32 * (warps < 1 ? 1 : warps > 32 ? 32 : warps));
        step->overlap = true;
        return SAKER_OK;
    }
    int vec = 16 / skr_type_bytes(a->gate.type), type = a->gate.type;
    bool vectors = operands_aligned(a, vec, plan) && skr_rows_aligned(s, &job->dy, vec) &&
                   skr_rows_aligned(s, &job->dgate, vec) && (a->step == 2 || skr_rows_aligned(s, &job->dup, vec)) &&
                   of_type(&job->dy, type) && of_type(&job->dgate, type) && of_type(&job->dup, type) &&
                   s->m <= SKR_ROWS_MOST;
    if (vectors) {
        int64_t operand = a->n * a->step; /* as forward's */
        bool compact = follows(&a->gate, operand) && follows(&a->up, operand) && follows(&job->dy, a->n) &&
                       follows(&job->dgate, operand) && follows(&job->dup, operand);
        if (plan_flat(a, vec, 1, compact, backward_flat, plan))
            return SAKER_OK;
    }
    plan_any(a, false, &backward_any, plan);
    return SAKER_OK;
}
