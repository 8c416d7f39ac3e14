/* gemm_mma_cuda.c - gemm's and grouped_gemm's plan for the matrix instructions of a warp (gemm_mma.cuh): what is
 * multiplied, how operands are loaded, which schedule. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_mma_sm80)

static const struct {
    int type, at, bt, any, wide;
    const char *variant[SKR_GEMM_N_VARIANTS];
} shapes[] = {
#define SKR_GEMM_MMA(type, T, layout, AT, BT, any, wide)                                                               \
    {T, AT, BT, any, wide, SKR_GEMM_VARIANTS("mma " #type " " #layout)},
#include "gemm_mma.def"
};
static skr_cuda_kernel kernels[] = {
#define SKR_GEMM_MMA(type, T, layout, AT, BT, any, wide)                                                               \
    SKR_KERNEL(gemm_mma_sm80, "skr_gemm_mma_" #type "_" #layout, SKR_GEMM_MMA_SHARED, 1),
#include "gemm_mma.def"
};
static skr_cuda_kernel table_kernel = SKR_KERNEL(gemm_mma_sm80, "skr_gemm_group_table", 0, 1);
enum { N_SHAPES = sizeof shapes / sizeof *shapes, NO_TYPE = -1 };

/* ---------------------------------------------------------------- what is multiplied */

/* The type in which both operands are exact (f32: rounded, where that is allowed); NO_TYPE: there is none. f16 holds
 * fp8; f16 and bf16 hold i8 less an i8 zero point, and i8 holds i4 without one. */
static int type_of(const skr_gemm_job *job)
{
    int a = job->a.at.type, b = job->b.at.type;
    bool zeros = job->b_zero.at.data != NULL;
    if ((zeros && job->b_zero.at.type != SKR_I8) || a == SKR_I32)
        return NO_TYPE;
    if (a == SKR_F32)
        return job->allow_tf32 && job->scaling <= SKR_GEMM_ROW_COLUMN ? SKR_F32 : NO_TYPE;
    if (skr_gemm_is_fp8(a) || (a == SKR_I8 && b == SKR_I4 && zeros))
        return SKR_F16;
    return a;
}

/* ---------------------------------------------------------------- how operands are loaded */

/* One operand: `rows` rows (of a; columns of b) `pitch` elements apart, k's `along` apart. */
typedef struct side {
    const skr_gemm_matrix *m;
    int64_t rows, pitch, along;
    bool moves_row, moves_k; /* a group begins at any row, at any k */
} side;

static int bits_of(int type)
{
    return type == SKR_I4 ? 4 : 8 * skr_type_bytes(type);
}

bool skr_gemm_aligned(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t pitch, int64_t rows, int bytes)
{
    int64_t elements = rows > 1 ? pitch : 0;
    for (int i = 0; i < job->batch.n_dims; i++)
        elements |= job->batch.dims[i] > 1 ? m->at.stride[i] : 0;
    return (uintptr_t)m->at.data % (uintptr_t)bytes == 0 && elements * bits_of(m->at.type) % (8 * bytes) == 0;
}

/* 16-bit rows that are neighbours in memory: k's order is made when they are read from shared memory. */
static bool can_turn(const skr_gemm_job *job, const side *s, int type)
{
    return s->m->at.type == type && skr_type_bytes(type) == 2 && s->pitch == 1 && s->along != 1 && !s->moves_row &&
           skr_gemm_aligned(job, s->m, s->along, job->k, 16);
}

static int load_of(const skr_gemm_job *job, const side *s, int type)
{
    int from = s->m->at.type, each = 16 / skr_type_bytes(type), bytes = each * bits_of(from) / 8;
    bool cut = skr_gemm_scaled_in_k(job) && job->seg % each;
    if (s->along != 1 || s->moves_k || cut || !skr_gemm_aligned(job, s->m, s->pitch, s->rows, bytes))
        return SKR_GEMM_ELEMENTS;
    return from == type ? SKR_GEMM_COPY : SKR_GEMM_VECTORS;
}

/* The kernel, with the ways of loading in the job; -1: none. */
static int shape_of(skr_gemm_job *job, int type)
{
    bool rows = job->groups.of == SKR_GEMM_OF_ROWS, ks = job->groups.of == SKR_GEMM_OF_KS;
    side a = {&job->a, rows ? INT32_MAX : job->m, job->a.row, job->a.at.col_stride, rows, ks};
    side b = {&job->b, job->n, job->b.at.col_stride, job->b.row, false, ks};
    bool scaled = skr_gemm_scaled_in_k(job), wide = scaled || job->a.at.type != type || job->b.at.type != type;
    bool halves = job->gated == SKR_GEMM_HALVES && job->n / 2 % 8;
    bool at = !wide && can_turn(job, &a, type), bt = !wide && !halves && can_turn(job, &b, type);
    job->a_load = at ? SKR_GEMM_COPY : load_of(job, &a, type);
    job->b_load = bt ? SKR_GEMM_COPY : load_of(job, &b, type);
    if (job->a_load == SKR_GEMM_ELEMENTS || job->b_load == SKR_GEMM_ELEMENTS) { /* those kernels turn nothing */
        job->a_load = at ? SKR_GEMM_ELEMENTS : job->a_load;
        job->b_load = bt ? SKR_GEMM_ELEMENTS : job->b_load;
        at = bt = false;
        wide |= skr_type_bytes(type) == 2;
    }
    for (int i = 0; i < N_SHAPES; i++)
        if (shapes[i].type == type && shapes[i].at == at && shapes[i].bt == bt && shapes[i].wide == wide)
            return i;
    return -1;
}

/* ---------------------------------------------------------------- schedules */

/* Steps that the slowest block does one after the other; what adding parts up costs is about 12 of them, and 64 KiB
 * for each part. */
static double cost(const skr_gemm_cut *c, int64_t steps, int64_t resident)
{
    double all = (double)(skr_ceil_div(c->whole, skr_min(c->units, resident)) * (steps + 3));
    if (c->left)
        all += (double)steps * c->left / c->units + 12 + (double)c->left * (c->slices + 2) * 0.1;
    return all;
}

static int choose(skr_gemm_job *job, int64_t tiles, int64_t resident)
{
    int best = SKR_GEMM_AUTO;
    double least = 0;
    for (int s = SKR_GEMM_DATA_PARALLEL; s <= SKR_GEMM_STREAM_K; s++) {
        skr_gemm_cut c = skr_gemm_cut_of(s, tiles, job->work.steps, resident);
        double steps = cost(&c, job->work.steps, resident);
        if (skr_gemm_may_cut(job, s, &c) && (!best || steps < least))
            best = s, least = steps, job->work.cut = c;
    }
    return best;
}

/* ---------------------------------------------------------------- the plan */

/* What all plans of these kernels fill in: the kernel's number, or -1. */
static int prepare(skr_gemm_job *job, skr_plan *plan)
{
    int type = type_of(job);
    const char *why = NULL;
    if (type == NO_TYPE)
        why = job->a.at.type == SKR_F32 ? "f32 is rounded to tf32 there, which is not allowed, or scaled along k"
                                        : "they have no i32, and no zero points that are not i8";
    else if (job->n < 1 || skr_max(job->m, skr_max(job->n, job->k)) > 1 << 30 || job->batch.m > 1 << 20 ||
             (job->k < 1 && !job->groups.of))
        why = "sizes are 1 to 2^30 there";
    int64_t step = type == NO_TYPE ? 1 : SKR_GEMM_MMA_BYTES / skr_type_bytes(type);
    job->seg = (int64_t)1 << 30;
    if (skr_gemm_scaled_in_k(job))
        job->seg = skr_min(job->seg, job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK);
    job->segs = skr_ceil_div(job->seg, step);
    int64_t steps = skr_gemm_scaled_in_k(job) && job->seg < job->k ? skr_mul(skr_ceil_div(job->k, job->seg), job->segs)
                                                                   : skr_ceil_div(job->k, step);
    if (!why && steps > 1 << 30)
        why = "groups along k are too small for so many of them";
    int shape = why ? -1 : shape_of(job, type);
    if (why)
        skr_why(plan, "matrix instructions of a warp: %s", why);
    job->work.rows = job->work.columns = SKR_GEMM_MMA_SIDE;
    job->work.cluster = 1;
    job->work.steps = (int32_t)(why ? 0 : steps);
    return shape;
}

static skr_step *add_step(skr_plan *plan, int shape, int64_t blocks)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[shape];
    step->grid = (uint32_t)skr_max(1, blocks);
    step->block = 256;
    step->shared_bytes = SKR_GEMM_MMA_SHARED;
    step->overlap = true;
    return step;
}

static const char *load_text(int load)
{
    return load == SKR_GEMM_COPY ? "copied" : load == SKR_GEMM_VECTORS ? "widened" : "element by element";
}

/* Blocks on one SM: what registers and shared memory allow. */
static int64_t resident_of(int shape, const skr_target *target)
{
    return (int64_t)target->n_sms * (shapes[shape].any ? 1 : 2);
}

bool skr_gemm_plan_mma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at)
{
    if (target->shared_bytes < SKR_GEMM_MMA_SHARED)
        return false;
    if (job->d.at.col_stride != 1 && job->d.row == 1 && skr_gemm_may_swap(job))
        skr_gemm_swap(job);
    int shape = prepare(job, plan);
    skr_gemm_work *t = &job->work;
    int64_t tiles_m = skr_ceil_div(job->m, SKR_GEMM_MMA_SIDE), tiles_n = skr_ceil_div(job->n, SKR_GEMM_MMA_SIDE);
    int64_t tiles = skr_mul(skr_mul(tiles_m, tiles_n), job->batch.m);
    if (shape < 0 || tiles < 1 || tiles > 1 << 24)
        return false;
    t->tiles_m = (int32_t)tiles_m;
    t->tiles_n = (int32_t)tiles_n;
    t->batches = (int32_t)job->batch.m;
    t->group = 16;
    int schedule = choose(job, tiles, resident_of(shape, target));
    t->slots_at =
        skr_take(at, skr_mul((int64_t)t->cut.left * (t->cut.slices + 2), SKR_GEMM_MMA_SIDE * SKR_GEMM_MMA_SIDE * 4));
    plan->variant = shapes[shape].variant[schedule];
    skr_why(plan, "%lld tiles of 128x128, %d k steps, %d blocks; a %s, b %s", (long long)tiles, t->steps, t->cut.units,
            load_text(job->a_load), load_text(job->b_load));
    add_step(plan, shape, t->cut.units);
    return true;
}

void skr_gemm_plan_table(skr_plan *plan)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = &table_kernel;
    step->grid = 1;
    step->block = 256;
    step->overlap = true;
}

bool skr_gemm_plan_mma_groups(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_gemm_job *g = &job->gemm;
    int shape = target->shared_bytes < SKR_GEMM_MMA_SHARED || job->total > 1 << 30 ? -1 : prepare(g, plan);
    if (shape < 0)
        return false;
    g->groups.rows = g->groups.columns = SKR_GEMM_MMA_SIDE;
    plan->variant = shapes[shape].variant[SKR_GEMM_AUTO];
    skr_why(plan, "blocks that stay walk the groups in tiles of 128x128; a %s, b %s", load_text(g->a_load),
            load_text(g->b_load));
    skr_gemm_plan_table(plan);
    add_step(plan, shape, resident_of(shape, target));
    return true;
}
