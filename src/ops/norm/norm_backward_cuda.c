/* norm_backward_cuda.c - the CUDA half of the plans of the norms' gradients: which kernel, how many parts.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One kernel (or, where nothing else fits, one for each) computes dx and one partial row of dweight (and dbias) for
 * each part, another one adds the parts in order. The number of parts is a function of the kernel, width, heads and
 * rows, never of the number of SMs: the same bits on every GPU that runs the same kernel.
 */
#include "../../cuda/rows_plan.h"
#include "norm_op.h"

SKR_FATBIN(norm_backward_sm80)
SKR_FATBIN(norm_backward_lean_sm80)
SKR_FATBIN(norm_backward_sm90)

/* The tables hold both norms: a shape's type is that of x, CENTRED added for layer_norm. */
enum { CENTRED = 16, rms = 0, layer = CENTRED };
#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16
/* WEIGHTS_SHARED of norm_kernels.cuh. In these tables the field `rows` says whether weights are in shared memory. */
#define WIDE(norm, type, vpt) (vpt * (TYPE_##type == SKR_F32 ? 4 : 8) > (norm == layer ? 8 : 16))

static const skr_rows_shape lean_shape[] = {
#define SKR_BACKWARD_LEAN(norm, type, lanes, threads, vpt, stages, shared, blocks, parts)                              \
    {TYPE_##type + norm, lanes, threads, vpt, shared, stages, 1, 1, parts, "lean " #type " " #lanes "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel lean_kernel[] = {
#define SKR_BACKWARD_LEAN(norm, type, lanes, threads, vpt, stages, shared, blocks, parts)                              \
    SKR_KERNEL(norm_backward_lean_sm80, "skr_" #norm "_norm_backward_lean_" #type "_" #lanes "x" #vpt,                 \
               SKR_ROWS_SHARED, 1),
#include "norm_kernels.def"
};
/* Here `slots` is what the ring has, and `walk` the number of blocks an SM. */
static const skr_rows_shape ring_shape[] = {
#define SKR_BACKWARD_RING(norm, type, threads, p, slots, ahead, shared, blocks, least, most)                           \
    {TYPE_##type + norm, threads, threads, p, shared, slots, least, most, blocks, "ring " #type " " #threads "x" #p},
#include "norm_kernels.def"
};
static skr_cuda_kernel ring_kernel[] = {
#define SKR_BACKWARD_RING(norm, type, threads, p, slots, ahead, shared, blocks, least, most)                           \
    SKR_KERNEL(norm_backward_sm90, "skr_" #norm "_norm_backward_ring_" #type "_" #threads "x" #p "_" #least,           \
               SKR_ROWS_SHARED, SKR_ROWS_CLUSTER),
#include "norm_kernels.def"
};
static const skr_rows_shape block_shape[] = {
#define SKR_BACKWARD(norm, type, lanes, threads, vpt, stages, blocks, parts)                                           \
    {TYPE_##type + norm, lanes, threads, vpt, WIDE(norm, type, vpt), stages, 1, 1, parts, #type " " #lanes "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel block_kernel[] = {
#define SKR_BACKWARD(norm, type, lanes, threads, vpt, stages, blocks, parts)                                           \
    SKR_KERNEL(norm_backward_sm80, "skr_" #norm "_norm_backward_" #type "_" #lanes "x" #vpt, SKR_ROWS_SHARED, 1),
#include "norm_kernels.def"
};
static const skr_rows_shape wide_shape[] = {
#define SKR_BACKWARD_CLUSTER(norm, type, threads, vpt, stages, least, most, parts)                                     \
    {TYPE_##type + norm,                                                                                               \
     threads,                                                                                                          \
     threads,                                                                                                          \
     vpt,                                                                                                              \
     WIDE(norm, type, vpt),                                                                                            \
     stages,                                                                                                           \
     least,                                                                                                            \
     most,                                                                                                             \
     parts,                                                                                                            \
     #type " cluster " #threads "x" #vpt},
#include "norm_kernels.def"
};
static skr_cuda_kernel wide_kernel[] = {
#define SKR_BACKWARD_CLUSTER(norm, type, threads, vpt, stages, least, most, parts)                                     \
    SKR_KERNEL(norm_backward_sm90, "skr_" #norm "_norm_backward_" #type "_c" #threads "x" #vpt, SKR_ROWS_SHARED,       \
               SKR_ROWS_CLUSTER),
#include "norm_kernels.def"
};
/* The kernels that take anything: [centre], [a row belongs to a block], [four columns at once]. */
#define KERNEL(name) SKR_KERNEL(norm_backward_sm80, name, 0, 1)
static skr_cuda_kernel stats_kernel[2][2] = {
    {KERNEL("skr_rms_norm_backward_stats_warp"), KERNEL("skr_rms_norm_backward_stats_block")},
    {KERNEL("skr_layer_norm_backward_stats_warp"), KERNEL("skr_layer_norm_backward_stats_block")}};
static skr_cuda_kernel columns_kernel[2][2] = {
    {KERNEL("skr_rms_norm_backward_columns1"), KERNEL("skr_rms_norm_backward_columns4")},
    {KERNEL("skr_layer_norm_backward_columns1"), KERNEL("skr_layer_norm_backward_columns4")}};
#define DX(norm)                                                                                                       \
    {                                                                                                                  \
        {KERNEL("skr_" norm "_norm_backward_dx_warp1"), KERNEL("skr_" norm "_norm_backward_dx_warp4")},                \
        {                                                                                                              \
            KERNEL("skr_" norm "_norm_backward_dx_block1"), KERNEL("skr_" norm "_norm_backward_dx_block4")             \
        }                                                                                                              \
    }
static skr_cuda_kernel dx_kernel[2][2][2] = {DX("rms"), DX("layer")};
static const char *const any_variant[2][2] = {{"any warp1", "any warp4"}, {"any block1", "any block4"}};
static skr_cuda_kernel add_kernel[2] = {SKR_KERNEL(norm_backward_sm80, "skr_norm_add_parts1", 0, 1),
                                        SKR_KERNEL(norm_backward_sm80, "skr_norm_add_parts4", 0, 1)};

/* MIN_ROWS: rows of a part, so that its partial row costs little beside them. COLUMN_BLOCKS: blocks of the columns
 * kernel, enough to fill a GPU; each of its COLUMN_WARPS warps takes its own rows. RING_SMS: SMs that the parts of a
 * ring fill. */
enum { MIN_ROWS = 8, COLUMN_BLOCKS = 4096, COLUMN_WARPS = 8, COLUMNS = 128, RING_SMS = 132 };

static bool aligned(const skr_norm_backward_job *job, int vec)
{
    const skr_row_space *s = &job->rows;
    return job->n % vec == 0 && skr_rows_aligned(s, &job->dy, vec) && skr_rows_aligned(s, &job->x, vec) &&
           skr_rows_aligned(s, &job->dres, vec) && skr_rows_aligned(s, &job->dx, vec) &&
           skr_param_aligned(job->heads, &job->weight, vec);
}

static bool is_lean(const skr_norm_backward_job *job)
{
    const skr_rows *dx = &job->dx;
    int64_t stride = job->x.stride[0];
    return job->rows.n_dims == 1 && job->heads == 1 && job->rstd.data && !job->dres.data &&
           (!job->dbias.data || job->centre) && !(job->round_before_weight && job->x.type != SKR_F32) &&
           job->dy.stride[0] == stride && (!dx->data || (dx->type == job->x.type && dx->stride[0] == stride));
}

static int64_t shared_bytes(const skr_norm_backward_job *job, const skr_rows_shape *s, int vec)
{
    int64_t dres = job->dres.data ? vec * skr_type_bytes(job->dres.type) : 0;
    int64_t weight = s->rows ? 4 * s->vpt * vec : 0;
    int64_t dbias = job->dbias.data ? 4 * s->vpt * vec : 0, stats = job->centre ? 8 : 4;
    return s->threads * (s->slots * (2 * 16 * s->vpt + stats) + weight + dbias + (s->slots + 1) * s->vpt * dres);
}

static int kind(const skr_norm_backward_job *job)
{
    return job->x.type + (job->centre ? CENTRED : 0);
}

/* Dynamic shared bytes that a kernel may ask for. Messages of four words in a cluster take 4 KiB more; a GPU other than
 * Hopper runs blocks only. */
static int64_t most_shared(const skr_norm_backward_job *job, const skr_target *target)
{
    return skr_min(SKR_ROWS_SHARED - (job->centre ? 4096 : 0), target->shared_bytes - SKR_ROWS_STATIC);
}

/* Parts: `most` of them, as many for every head, none with fewer than MIN_ROWS turns of `groups` rows unless there is
 * only one. */
static void set_parts(skr_norm_backward_job *job, int64_t most, int64_t groups)
{
    int64_t rows = job->rows.m / job->heads, parts = most / job->heads, useful = rows / (MIN_ROWS * groups);
    parts = parts < useful ? parts : useful;
    parts = parts > 1 ? parts : 1;
    job->n_parts = parts * job->heads;
    job->rows_per_part = skr_ceil_div(rows, parts);
}

static bool plan_block(skr_norm_backward_job *job, const skr_target *target, const skr_rows_shape *shapes,
                       skr_cuda_kernel *kernels, int count, int vec, skr_plan *plan)
{
    for (int i = 0; i < count; i++) {
        const skr_rows_shape *s = &shapes[i];
        int64_t shared = shared_bytes(job, s, vec);
        if (s->type != kind(job) || (int64_t)s->lanes * s->vpt < job->n / vec || shared > most_shared(job, target))
            continue;
        set_parts(job, s->walk, s->threads / s->lanes);
        skr_step *step = skr_plan_step(plan);
        step->kernel = &kernels[i];
        step->grid = (uint32_t)job->n_parts;
        step->block = (uint32_t)s->threads;
        step->shared_bytes = (uint32_t)shared;
        step->overlap = false; /* a single wave: blocks that start early would share SMs while others idle */
        plan->variant = s->variant;
        return true;
    }
    return false;
}

static bool plan_cluster(skr_norm_backward_job *job, const skr_target *target, const skr_rows_shape *shapes,
                         skr_cuda_kernel *kernels, int count, int vec, skr_plan *plan)
{
    if (target->sm != 90) {
        skr_why(plan, "cluster kernels: need compute capability 9.0, this is %d.%d", target->sm / 10, target->sm % 10);
        return false;
    }
    for (int i = 0; i < count; i++) {
        const skr_rows_shape *s = &shapes[i];
        int64_t shared = shared_bytes(job, s, vec);
        int cluster = skr_rows_cluster(job->n, s, vec);
        if (s->type != kind(job) || !cluster || shared > most_shared(job, target))
            continue;
        set_parts(job, s->walk / cluster, 1);
        skr_step *step = skr_plan_step(plan);
        step->kernel = &kernels[i];
        step->grid = (uint32_t)(job->n_parts * cluster);
        step->block = (uint32_t)s->threads;
        step->cluster = (uint32_t)cluster;
        step->shared_bytes = (uint32_t)shared;
        step->overlap = false; /* a single wave: blocks that start early would share SMs while others idle */
        plan->variant = s->variant;
        return true;
    }
    skr_why(plan, "cluster kernels: %lld columns do not fit", (long long)job->n);
    return false;
}

/* The copy engine moves x and dy, and weights stay packed: see norm_backward_ring.cuh. Narrower rows are as fast or
 * faster without. */
static bool plan_ring(skr_norm_backward_job *job, const skr_target *target, int vec, skr_plan *plan)
{
    const skr_param *w = &job->weight;
    int64_t narrow = job->centre ? 2048 : vec == 8 ? 4096 : 16384;
    if (target->sm != 90 || job->n <= narrow || job->weight_offset != 0.0f || (w->data && w->type != job->x.type))
        return false;
    for (int i = 0; i < SKR_COUNT(ring_shape); i++) {
        const skr_rows_shape *s = &ring_shape[i];
        int cluster = skr_rows_cluster(job->n, s, vec);
        if (s->type != kind(job) || !cluster)
            continue;
        set_parts(job, s->walk * skr_rows_resident(RING_SMS, cluster), 1);
        skr_step *step = skr_plan_step(plan);
        step->kernel = &ring_kernel[i];
        step->grid = (uint32_t)(job->n_parts * cluster);
        step->block = (uint32_t)s->threads + 64; /* one warp more copies, one adds up */
        step->cluster = cluster > 1 ? (uint32_t)cluster : 0;
        step->shared_bytes = (uint32_t)(s->threads * (s->slots * 32 + (s->rows ? 4 * s->vpt * vec : 0)));
        step->overlap = false; /* a single wave: blocks that start early would share SMs while others idle */
        plan->variant = s->variant;
        return true;
    }
    return false;
}

static void any_step(skr_plan *plan, skr_cuda_kernel *kernel, int64_t grid, uint32_t block)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)skr_min(grid, INT32_MAX);
    step->block = block;
    step->overlap = true;
}

static void plan_any(skr_norm_backward_job *job, skr_plan *plan)
{
    bool sums = job->dweight.data || job->dbias.data;
    int centre = job->centre != 0, block = job->n > 2048, four = aligned(job, 4);
    int64_t m = job->rows.m, chunks = skr_ceil_div(job->n, COLUMNS), row_blocks = block ? m : skr_ceil_div(m, 4);
    uint32_t threads = block ? 512 : 128;
    set_parts(job, skr_ceil_div(COLUMN_BLOCKS, chunks), COLUMN_WARPS);
    if (!job->rstd.data)
        any_step(plan, &stats_kernel[centre][block], row_blocks, threads);
    if (sums)
        any_step(plan, &columns_kernel[centre][four], skr_mul(job->n_parts, chunks), 32 * COLUMN_WARPS);
    if (job->dx.data)
        any_step(plan, &dx_kernel[centre][block][four], row_blocks, threads);
    plan->variant = any_variant[block][four];
}

/* Without rows the sums are empty: no parts, and the second kernel writes zeros. */
static void plan_sums(const skr_norm_backward_job *job, skr_plan *plan)
{
    int64_t width = job->heads * job->n, parts = job->n_parts / job->heads, warps = skr_ceil_div(parts, 4);
    int four = job->n % 4 == 0 && width >= 16384;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &add_kernel[four];
    step->grid = (uint32_t)skr_ceil_div(width, four ? 128 : 32);
    step->block = (uint32_t)(32 * (warps < 1 ? 1 : warps > 32 ? 32 : warps));
    step->overlap = true;
}

saker_status skr_norm_backward_plan_cuda(skr_call *call, skr_norm_backward_job *job, const skr_target *target,
                                         skr_plan *plan)
{
    int vec = 16 / skr_type_bytes(job->x.type);
    /* One block a part, and parts are numbered in 31 bits. */
    if (job->heads > INT32_MAX / SKR_ROWS_CLUSTER || job->heads > (INT64_MAX >> 8) / (job->n + 1))
        return skr_fail(call, SAKER_OVERFLOW, "%lld heads of %lld columns do not fit one launch", (long long)job->heads,
                        (long long)job->n);
    job->n_parts = job->rows_per_part = 0;
    bool done = job->rows.m == 0;
    if (done) {
        plan->variant = "empty sums";
    } else {
        if (job->rows.m > SKR_ROWS_MOST)
            skr_why(plan, "row kernels: %lld rows, they count in 32 bits", (long long)job->rows.m);
        else if (!aligned(job, vec))
            skr_why(plan, "row kernels: a pointer, a stride or the width is no multiple of %d elements", vec);
        else if (job->dy.type != job->x.type)
            skr_why(plan, "row kernels: dy and x differ in type");
        else
            done =
                (is_lean(job) && (plan_ring(job, target, vec, plan) || plan_block(job, target, lean_shape, lean_kernel,
                                                                                  SKR_COUNT(lean_shape), vec, plan))) ||
                plan_block(job, target, block_shape, block_kernel, SKR_COUNT(block_shape), vec, plan) ||
                plan_cluster(job, target, wide_shape, wide_kernel, SKR_COUNT(wide_shape), vec, plan);
        if (!done)
            plan_any(job, plan);
    }
    int64_t at = 0, sums = (job->dweight.data != NULL) + (job->dbias.data != NULL);
    skr_take(&at, skr_mul(job->n_parts, skr_mul(job->n, sums * (int64_t)sizeof(float))));
    if (!done && !job->rstd.data)
        job->stats_at = skr_take(&at, skr_mul(job->rows.m, 4 * sizeof(float)));
    if (sums)
        plan_sums(job, plan);
    return skr_take_done(call, at, plan);
}
