/* rope_cuda.c - the CUDA half of rope's plan: which kernels, how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Up to three steps: positions and tables where they have to be made, the heads, the weights' gradients. A kernel is
 * chosen by types, sizes and alignment, not by the number of tokens: a head's bits do not depend on its neighbours. */
#include "../../cuda/rows_plan.h"
#include "rope.h"

SKR_FATBIN(rope_sm80)

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

/* rope_kernels.def, once for each kind: rotation alone, with the norm, both again in the usual case (LEAN in
 * rope_rows.cuh), the norm's gradient. */
enum { ROTATE, NORM, LEAN, NORM_LEAN, GRADIENT, KINDS };
static const struct {
    int type, lanes, heads[KINDS];
    const char *variant[KINDS];
} shape[] = {
#define ROPE_KERNEL(type, lanes, plain, norm, gradient)                                                                \
    {TYPE_##type,                                                                                                      \
     lanes,                                                                                                            \
     {plain, norm, plain, norm, gradient},                                                                             \
     {"rows " #type " x" #lanes, "norm " #type " x" #lanes, "lean " #type " x" #lanes, "norm lean " #type " x" #lanes, \
      "norm backward " #type " x" #lanes}},
#include "rope_kernels.def"
};
static skr_cuda_kernel row_kernel[][KINDS] = {
#define ROPE_KERNEL(type, lanes, plain, norm, gradient)                                                                \
    {SKR_KERNEL(rope_sm80, "skr_rope_" #type "_" #lanes, 0, 1),                                                        \
     SKR_KERNEL(rope_sm80, "skr_rope_norm_" #type "_" #lanes, 0, 1),                                                   \
     SKR_KERNEL(rope_sm80, "skr_rope_lean_" #type "_" #lanes, 0, 1),                                                   \
     SKR_KERNEL(rope_sm80, "skr_rope_norm_lean_" #type "_" #lanes, 0, 1),                                              \
     SKR_KERNEL(rope_sm80, "skr_rope_norm_backward_" #type "_" #lanes, 0, 1)},
#include "rope_kernels.def"
};
static skr_cuda_kernel prepare_kernel = SKR_KERNEL(rope_sm80, "skr_rope_prepare", 0, 1);
static skr_cuda_kernel any_kernel[] = {SKR_KERNEL(rope_sm80, "skr_rope_any", 0, 1),
                                       SKR_KERNEL(rope_sm80, "skr_rope_any_gradient", 0, 1)};
static skr_cuda_kernel add_kernel = SKR_KERNEL(rope_sm80, "skr_rope_add_parts", 0, 1);

/* THREADS, PREPARE_*: as in the kernels. PARTS: blocks of the norm's gradient, three for each SM of an H200; none with
 * fewer than MIN_TURNS turns of its groups, or its sums would cost more than its heads. ANY_*: warps of the kernel that
 * takes anything, and the most bytes of their sums. */
enum { THREADS = 128, PREPARE_ROWS = 32, PREPARE_THREADS = 256, PARTS = 396, MIN_TURNS = 4 };
enum { ANY_WARPS = 1 << 20, ANY_PARTS = 2112, ANY_BYTES = 64 << 20, MOST_GROUPS = 1 << 30 };

/* ---------------------------------------------------------------- row kernels */

static bool rows_aligned(const skr_rope_job *job, const skr_rope_rows *r, int type)
{
    int64_t bytes = skr_type_bytes(type), bits = (int64_t)(uintptr_t)r->data | r->head * bytes;
    bits |= (job->length > 1 ? r->token * bytes : 0) | (job->batch > 1 ? r->batch * bytes : 0);
    return !r->data || bits % 16 == 0;
}

/* Why no row kernel takes the job, or NULL. */
static const char *row_obstacle(const skr_rope_job *job, int vec)
{
    bool gradient = job->norm && job->backward;
    if (job->in_type != job->out_type || (gradient && job->x_type != job->in_type))
        return "inputs and outputs differ in type";
    if (job->d % vec || job->r % (2 * vec))
        return "the head size is no multiple of one vector, or the rotary dim of two";
    for (int t = 0; t < 2; t++)
        if (job->heads[t] &&
            !(rows_aligned(job, &job->in[t], job->in_type) && rows_aligned(job, &job->out[t], job->in_type) &&
              rows_aligned(job, &job->x[t], job->in_type) && skr_param_aligned(1, &job->weight[t], vec)))
            return "a pointer or a stride is no multiple of 16 bytes";
    if (job->cos) {
        int64_t bytes = skr_type_bytes(job->table_type), unit = vec * bytes < 16 ? vec * bytes : 16;
        int64_t bits = (int64_t)(uintptr_t)job->cos | (int64_t)(uintptr_t)job->sin;
        if ((bits | job->cos_stride * bytes | job->sin_stride * bytes) % unit)
            return "the tables are not aligned";
    }
    return NULL;
}

/* Blocks of the norm's gradient for q and for k: by their share of the heads. */
static void set_parts(skr_rope_job *job, int64_t tokens, int lanes)
{
    skr_rope_cuda *c = &job->cuda;
    int64_t all = c->groups[0] + c->groups[1], turn = THREADS / lanes;
    for (int t = 0; t < 2; t++) {
        int64_t share = PARTS * c->groups[t] / all, useful = tokens * c->groups[t] / (MIN_TURNS * turn);
        c->parts[t] = c->groups[t] ? (int32_t)skr_max(1, skr_min(share, useful)) : 0;
    }
}

/* All columns rotate in halves, and row s of the table is for place s. */
static bool usual(const skr_rope_job *job)
{
    return job->r == job->d && !job->interleaved && !job->positions && !job->offsets && !job->cu &&
           (!job->cos || (job->table_rows > 0 && job->table_rows <= INT32_MAX));
}

static bool plan_rows(skr_rope_job *job, int64_t tokens, skr_plan *plan)
{
    skr_rope_cuda *c = &job->cuda;
    int vec = 16 / skr_type_bytes(job->in_type), kind = !job->norm ? ROTATE : job->backward ? GRADIENT : NORM;
    const char *obstacle = row_obstacle(job, vec);
    if (obstacle) {
        skr_why(plan, "row kernels: %s", obstacle);
        return false;
    }
    int64_t rotary = job->r / 2 / vec, units = rotary + skr_ceil_div((job->d - job->r) / vec, 2);
    for (int i = 0; i < SKR_COUNT(shape); i++) {
        if (shape[i].type != job->in_type || shape[i].lanes < units)
            continue;
        if (kind != GRADIENT && usual(job) && shape[i].lanes == units)
            kind += LEAN;
        int64_t groups[2], all;
        for (int t = 0; t < 2; t++)
            groups[t] = skr_ceil_div(job->heads[t], shape[i].heads[kind]);
        all = skr_mul(tokens, groups[0] + groups[1]);
        if (all > MOST_GROUPS) {
            skr_why(plan, "row kernels: they count groups of heads in 32 bits");
            return false;
        }
        c->groups[0] = (int32_t)groups[0], c->groups[1] = (int32_t)groups[1];
        c->units = (int32_t)units, c->rotary_units = (int32_t)rotary;
        c->by_groups = skr_divisor_of(groups[0] + groups[1]);
        c->by_group[0] = skr_divisor_of(skr_max(groups[0], 1));
        c->by_group[1] = skr_divisor_of(skr_max(groups[1], 1));
        c->by_length = skr_divisor_of(job->length);
        const skr_rope_rows *r = &job->in[job->heads[0] == 0];
        c->heads_last = job->length > 1 && r->head > r->token;
        skr_step *step = skr_plan_step(plan);
        step->kernel = &row_kernel[i][kind];
        step->block = THREADS;
        step->grid = (uint32_t)skr_ceil_div(all, THREADS / shape[i].lanes);
        step->overlap = true;
        if (kind == GRADIENT) {
            set_parts(job, tokens, shape[i].lanes);
            step->grid = (uint32_t)(c->parts[0] + c->parts[1]);
            step->overlap = false; /* a single wave: blocks that start early would share SMs while others idle */
        }
        plan->variant = shape[i].variant[kind];
        return true;
    }
    skr_why(plan, "row kernels: %lld columns do not fit a warp", (long long)job->d);
    return false;
}

static void plan_any(skr_rope_job *job, int64_t tokens, skr_plan *plan)
{
    bool sums = job->dweight[0].data || job->dweight[1].data;
    int64_t most = sums ? skr_max(1, skr_min(ANY_PARTS, ANY_BYTES / 8 / job->d)) : ANY_WARPS;
    for (int t = 0; t < 2; t++)
        job->cuda.parts[t] = (int32_t)skr_min(most, skr_mul(tokens, job->heads[t]));
    skr_step *step = skr_plan_step(plan);
    step->kernel = &any_kernel[job->norm && job->backward];
    step->block = 128;
    step->grid = (uint32_t)skr_ceil_div(job->cuda.parts[0] + job->cuda.parts[1], 4);
    step->overlap = true;
    plan->variant = job->norm && job->backward ? "any norm backward" : job->norm ? "any norm" : "any";
}

/* ---------------------------------------------------------------- the steps around them */

static saker_status plan_prepare(skr_call *call, skr_rope_job *job, int64_t tokens, int64_t *at, skr_plan *plan)
{
    skr_rope_cuda *c = &job->cuda;
    bool by_place = !job->positions && !job->offsets && !job->cu;
    c->positions_at = job->cu ? skr_take(at, skr_mul(tokens, sizeof(int64_t))) : -1;
    c->made_rows = by_place ? job->length : tokens;
    c->table_at = job->cos ? -1 : skr_take(at, skr_mul(c->made_rows, skr_mul(job->r, sizeof(float))));
    if (job->cos && !job->cu)
        return SAKER_OK;
    int64_t rows = skr_max(c->made_rows, job->cu ? job->sequences + 1 : 0), blocks = skr_ceil_div(rows, PREPARE_ROWS);
    if (blocks > INT32_MAX)
        return skr_fail(call, SAKER_OVERFLOW, "%lld tokens do not fit one launch", (long long)rows);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &prepare_kernel;
    step->block = PREPARE_THREADS;
    step->grid = (uint32_t)blocks;
    step->overlap = true;
    return SAKER_OK;
}

/* Without rows the sums are empty: no parts, and the kernel writes zeros. */
static void plan_sums(skr_rope_job *job, int64_t *at, skr_plan *plan)
{
    int64_t parts = skr_max(job->cuda.parts[0], job->cuda.parts[1]), warps = skr_ceil_div(parts, 4);
    for (int t = 0; t < 2; t++)
        if (job->dweight[t].data)
            job->cuda.parts_at[t] = skr_take(at, skr_mul(job->cuda.parts[t], skr_mul(job->d, sizeof(float))));
    skr_step *step = skr_plan_step(plan);
    step->kernel = &add_kernel;
    step->block = (uint32_t)(32 * skr_max(1, skr_min(warps, 32)));
    step->grid = (uint32_t)skr_ceil_div(job->d, 32);
    step->overlap = true;
}

saker_status skr_rope_plan_cuda(skr_call *call, skr_rope_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_rope_plan_cuda(skr_call *call, skr_rope_job *job, const skr_target *target, skr_plan *plan)
{
    (void)target;
    skr_rope_cuda *c = &job->cuda;
    int64_t tokens = skr_mul(job->batch, job->length), at = 0;
    *c = (skr_rope_cuda){.positions_at = -1, .table_at = -1, .parts_at = {-1, -1}};
    if (job->d > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "the head size is %lld, expected at most 2^31 - 1", (long long)job->d);
    plan->variant = "empty sums";
    if (tokens && job->heads[0] + job->heads[1]) {
        SKR_TRY(plan_prepare(call, job, tokens, &at, plan));
        if (!plan_rows(job, tokens, plan))
            plan_any(job, tokens, plan);
    }
    if (job->dweight[0].data || job->dweight[1].data)
        plan_sums(job, &at, plan);
    return skr_take_done(call, at, plan);
}
