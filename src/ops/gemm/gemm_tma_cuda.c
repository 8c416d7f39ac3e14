/* gemm_tma_cuda.c - gemm's plan for Hopper's tensor cores: may the copy engine read it, which tile, which schedule.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_bf16_sm90)
SKR_FATBIN(gemm_e4m3_sm90)
SKR_FATBIN(gemm_e5m2_sm90)
SKR_FATBIN(gemm_f16_sm90)
SKR_FATBIN(gemm_i8_sm90)
SKR_FATBIN(gemm_tf32_sm90)

static const struct {
    int a, b, sums, at, bt, columns;
    const char *spread, *variant[SKR_GEMM_N_VARIANTS];
} shapes[] = {
#define NAME(types, layout, columns) "tma " #types " " #layout " 128x" #columns
#define SKR_GEMM_TMA(file, types, A, B, sums, layout, AT, BT, columns)                                                 \
    {A,                                                                                                                \
     B,                                                                                                                \
     sums,                                                                                                             \
     AT,                                                                                                               \
     BT,                                                                                                               \
     columns,                                                                                                          \
     NAME(types, layout, columns) " split-K in clusters",                                                              \
     SKR_GEMM_VARIANTS(NAME(types, layout, columns))},
#include "gemm_kernels.def"
};
static skr_cuda_kernel kernels[] = {
#define SKR_GEMM_TMA(file, types, A, B, sums, layout, AT, BT, columns)                                                 \
    SKR_KERNEL(file, "skr_gemm_" #types "_" #layout "_" #columns, SKR_GEMM_TMA_SHARED, 8),
#include "gemm_kernels.def"
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* ---------------------------------------------------------------- what the copy engine can read */

int skr_gemm_along(const skr_gemm_matrix *m, int64_t rows, int64_t cols)
{
    return m->at.col_stride == 1 || cols == 1 ? 0 : m->row == 1 || rows == 1 ? 1 : -1;
}

const char *skr_gemm_box(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t rows, int64_t cols, bool turned,
                         int box_rows, skr_matrix_box *out)
{
    int bytes = skr_type_bytes(m->at.type), unit = 16 / bytes;
    int64_t inner = turned ? rows : cols, outer = turned ? cols : rows, pitch = turned ? m->at.col_stride : m->row;
    *out = (skr_matrix_box){.data = m->at.data, .type = m->at.type, .rows = outer, .cols = inner, .batches = 1};
    out->row_stride = outer > 1 ? pitch : skr_mul(skr_ceil_div(inner, unit), unit);
    out->box_rows = box_rows;
    out->box_cols = 128 / bytes;
    out->swizzle_bytes = 128;
    out->tf32 = m->at.type == SKR_F32; /* a and b: where f32 is taken at all, it may be rounded */
    if (job->batch.m > 1 && m->at.stride[0]) {
        out->batches = job->batch.m;
        out->batch_stride = m->at.stride[0];
    }
    if ((uintptr_t)m->at.data % 16 || out->row_stride % unit || out->batch_stride % unit)
        return "is not aligned to 16 bytes";
    if (out->row_stride < 1 || out->row_stride >= (int64_t)1 << 36 || out->batch_stride >= (int64_t)1 << 36)
        return "has a stride that is too large";
    return NULL;
}

/* ---------------------------------------------------------------- which kernel, which schedule */

typedef struct choice {
    int shape, schedule, cluster, spread; /* spread: skr_gemm_work's */
    int64_t tiles;
    skr_gemm_cut cut;
    double us;
} choice;

/* Microseconds of a k step of a tile on an H200 (docs/notes/gemm_cuda.md); blocks without a peer read b alone. */
static double step_us(int shape, int cluster)
{
    const int columns = shapes[shape].columns, sums = shapes[shape].sums;
    double us = columns == 256 ? 0.68 : columns == 192 ? 0.52 : columns == 128 ? 0.37 : 0.24;
    if (columns % 64) /* the line through the others foretold them */
        us = 0.06 + 0.00242 * columns;
    if (sums == SKR_GEMM_STEPWISE) /* in two parts or four there are more waits */
        us *= columns == 256 ? 1.14 : columns == 192 ? 1.1 : 1.07;
    else if (sums == SKR_GEMM_SCALED)
        us *= columns == 256 ? 1.38 : 1.43;
    else if (shapes[shape].a == SKR_I8)
        us *= 1.1;
    return us * (cluster == 2 ? 1 : 1.06);
}

/* Whether the tiles' k may be cut over clusters, all of which run at once. */
static bool may_spread(const skr_gemm_job *job, const choice *c, int64_t steps, int64_t resident)
{
    return (!job->schedule || job->schedule == SKR_GEMM_SPLIT_K) && c->tiles <= resident && steps >> c->spread >= 2 &&
           SKR_GEMM_SPREADS(shapes[c->shape].a, shapes[c->shape].sums, shapes[c->shape].columns) &&
           skr_gemm_plain_of(job) == SKR_GEMM_ONE_FACTOR && skr_gemm_writes_itself(job);
}

static void consider(const skr_gemm_job *job, const skr_target *target, choice c, choice *best)
{
    const int columns = shapes[c.shape].columns, bytes = skr_type_bytes(job->a.at.type);
    int64_t rows = (int64_t)SKR_GEMM_TMA_ROWS * c.cluster, steps = skr_ceil_div(job->k, SKR_GEMM_TMA_BYTES / bytes);
    int64_t resident = skr_max(1, target->n_sms / c.cluster);
    if (c.spread)
        resident = skr_gemm_clusters(target, 1 << c.spread);
    c.tiles = skr_mul(skr_mul(skr_ceil_div(job->m, rows), skr_ceil_div(job->n, columns)), job->batch.m);
    if (c.tiles > 1 << 24 || (c.cluster == 2 && job->m <= SKR_GEMM_TMA_ROWS))
        return;
    if (c.spread && !may_spread(job, &c, steps, resident))
        return;
    const skr_gemm_cut cut = c.cut =
        skr_gemm_cut_of(c.spread ? SKR_GEMM_PERSISTENT : c.schedule, c.tiles, steps, resident);
    if ((!c.spread && !skr_gemm_may_cut(job, c.schedule, &cut)) || (columns % 64 && cut.left))
        return;
    double waves = (double)skr_ceil_div(cut.whole, skr_min(cut.units, resident));
    double us = 1.5 + waves * ((double)skr_ceil_div(steps, 1 << c.spread) * step_us(c.shape, c.cluster) + 1.5);
    if (c.spread) /* sums go from block to block */
        us += columns == 64 ? 2.2 : 4.2;
    if (cut.left) { /* a part of the k steps each; then all parts are written, read and added */
        double part = (double)steps * cut.left / cut.units, used = (double)skr_min(job->m, rows);
        int ranges = cut.units - cut.slices * cut.left;
        us += part * step_us(c.shape, c.cluster) + 6.5 + (ranges ? 2 + (double)cut.left / ranges : 0);
        us += 2 * (double)cut.left * (cut.slices + (ranges ? 1.5 : 0)) * used * columns * 4 / 3e6;
    }
    /* Fewer blocks than SMs cannot draw on all of the memory. */
    double read = (double)job->batch.m * ((double)job->m + (double)job->n) * (double)job->k * bytes / 4.2e6;
    double busy = (double)skr_min(((int64_t)cut.units * c.cluster) << c.spread, target->n_sms) / target->n_sms;
    read = read / (busy < 0.7 ? busy / 0.7 : 1) + 3 + (cut.left ? 5 : 0);
    /* Cutting has to pay, and so has a width that writes columns of d twice. */
    c.us = (us > read ? us : read) * (cut.left || columns % 64 ? 1.02 : 1);
    if (cut.left && shapes[c.shape].sums == SKR_GEMM_STEPWISE) /* up to 17 % more than foretold (gemm_cuda.md) */
        c.us *= 1.15;
    if (best->shape < 0 || c.us < best->us)
        *best = c;
}

/* The kernel multiplies the job's types, as it may be done and with its scales. */
static bool takes(const skr_gemm_job *job, int shape)
{
    if (shapes[shape].a != job->a.at.type || shapes[shape].b != job->b.at.type)
        return false;
    const int sums = shapes[shape].sums;
    if ((sums == SKR_GEMM_SCALED) != (job->scaling == SKR_GEMM_BLOCK))
        return false;
    if (skr_gemm_is_fp8(job->a.at.type) && sums == SKR_GEMM_KEPT && !job->fast_accum)
        return false;
    if (shapes[shape].columns % 64) /* gemm_tma_out.cuh */
        return skr_gemm_plain_of(job) == SKR_GEMM_ONE_FACTOR && skr_gemm_writes_itself(job);
    return job->gated != SKR_GEMM_HALVES || shapes[shape].columns % 128 == 0; /* a panel of d is 64 columns */
}

static choice choose(const skr_gemm_job *job, const skr_target *target, int at, int bt)
{
    choice best = {.shape = -1};
    for (int i = 0; i < N_SHAPES; i++) {
        if (!takes(job, i) || shapes[i].at != at || shapes[i].bt != bt)
            continue;
        for (int cluster = 2; cluster >= 1; cluster--)
            for (int s = SKR_GEMM_DATA_PARALLEL; s <= SKR_GEMM_STREAM_K; s++)
                consider(job, target, (choice){.shape = i, .schedule = s, .cluster = cluster}, &best);
        for (int spread = 1; spread <= 3; spread++)
            consider(job, target, (choice){.shape = i, .schedule = SKR_GEMM_SPLIT_K, .cluster = 1, .spread = spread},
                     &best);
    }
    return best;
}

/* ---------------------------------------------------------------- the plan */

static bool is_half(const skr_gemm_matrix *m)
{
    return m->at.type == SKR_F16 || m->at.type == SKR_BF16;
}

/* c is nothing that the kernels could not add: floats, in rows that the copy engine may be asked for. */
static bool adds_c(const skr_gemm_job *job)
{
    const skr_gemm_matrix *c = &job->c;
    int bytes = skr_type_bytes(c->at.type);
    int64_t bits = (int64_t)(uintptr_t)c->at.data;
    if (!c->at.data)
        return true;
    if (job->m > 1)
        bits |= c->row * bytes;
    if (job->batch.m > 1)
        bits |= c->at.stride[0] * bytes;
    return !job->exact && !job->gated && job->scaling != SKR_GEMM_BLOCK && (is_half(c) || c->at.type == SKR_F32) &&
           (c->at.col_stride == 1 || job->n == 1) && bits % 16 == 0;
}

bool skr_gemm_writes_itself(const skr_gemm_job *job)
{
    const skr_gemm_matrix *d = &job->d;
    int64_t width = job->gated ? job->n / 2 : job->n, bits = (int64_t)(uintptr_t)d->at.data;
    int bytes = skr_type_bytes(d->at.type);
    if (job->m > 1)
        bits |= d->row * bytes;
    if (job->batch.m > 1)
        bits |= d->at.stride[0] * bytes;
    if (is_half(d) && !job->d_gaps) /* the copy engine writes whole sixteens, zeros behind a row's end */
        bits |= width * bytes;
    return adds_c(job) && !job->pre.at.data && !job->saved.at.data && !job->dbias.data &&
           job->gated != SKR_GEMM_INTERLEAVED && !(job->exact && job->bias.data) &&
           (d->at.col_stride == 1 || width == 1) && bits % 16 == 0;
}

int skr_gemm_plain_of(const skr_gemm_job *job)
{
    if (job->bias.data || job->act || job->gated || !is_half(&job->d))
        return 0;
    if (job->c.at.data)
        return is_half(&job->c) && job->c.at.type == SKR_GEMM_C_OF(job->a.at.type) &&
                       job->scaling != SKR_GEMM_ROW_COLUMN
                   ? SKR_GEMM_FACTOR_AND_C
                   : 0;
    return job->scaling == SKR_GEMM_ROW_COLUMN ? SKR_GEMM_ROWS_AND_COLUMNS : SKR_GEMM_ONE_FACTOR;
}

bool skr_gemm_near(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t rows, int64_t cols)
{
    int64_t row = m->row < 0 ? -m->row : m->row, col = m->at.col_stride < 0 ? -m->at.col_stride : m->at.col_stride;
    int64_t batch = m->at.stride[0] < 0 ? -m->at.stride[0] : m->at.stride[0];
    int64_t reach = skr_mul(rows, row) + skr_mul(cols, col) + skr_mul(job->batch.m, job->batch.n_dims ? batch : 0);
    return !m->at.data || reach < (int64_t)1 << 31;
}

/* What these kernels lack of the job's scales, or NULL. */
static const char *scales_lack(const skr_gemm_job *job)
{
    if (job->scaling <= SKR_GEMM_ROW_COLUMN)
        return NULL;
    if (job->scaling != SKR_GEMM_BLOCK || !skr_gemm_is_fp8(job->a.at.type))
        return "scales that change along k are those of blocks of fp8 there";
    if (job->gated == SKR_GEMM_HALVES && job->n / 2 % SKR_GEMM_SCALE_BLOCK)
        return "the second half of b's columns does not begin with a block of its scales";
    int64_t steps = skr_ceil_div(job->k, SKR_GEMM_SCALE_BLOCK);
    if (!skr_gemm_near(job, &job->a_scale, job->m, steps) ||
        !skr_gemm_near(job, &job->b_scale, steps, skr_ceil_div(job->n, SKR_GEMM_SCALE_BLOCK)))
        return "scales lie 2^31 elements apart";
    return NULL;
}

static bool suits(const skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    int a = job->a.at.type, b = job->b.at.type;
    bool fp8 = skr_gemm_is_fp8(a) && skr_gemm_is_fp8(b);
    const char *why = NULL;
    if (target->sm != 90 || target->shared_bytes < SKR_GEMM_TMA_SHARED)
        why = "they need compute capability 9.0";
    else if (!fp8 && (a != b || a == SKR_I32 || (a == SKR_F32 && !job->allow_tf32)))
        why = "they take f16, bf16, fp8, i8, and f32 where tf32 is allowed";
    else if (scales_lack(job))
        why = scales_lack(job);
    else if (job->m < 1 || job->n < 1 || job->k < 1 || skr_max(job->m, skr_max(job->n, job->k)) > 1 << 30)
        why = "sizes are 1 to 2^30 there";
    else if (job->batch.n_dims > 1 || job->batch.m < 1 || job->batch.m > 1 << 20)
        why = "a batch has one stride there";
    if (why)
        skr_why(plan, "tensor core kernels for Hopper: %s", why);
    return !why;
}

/* The boxes of a, b and, where the copy engine writes it, d. NULL, or what stands in the way. */
static const char *boxes(const skr_gemm_job *job, skr_matrix_box out[3])
{
    const skr_gemm_work *t = &job->work;
    const skr_gemm_matrix a = skr_gemm_turned(job, &job->a, t->turned_a_at, false);
    const skr_gemm_matrix b = skr_gemm_turned(job, &job->b, t->turned_b_at, true);
    const char *bad = skr_gemm_box(job, &a, job->m, job->k, t->at, t->at ? 64 : SKR_GEMM_TMA_ROWS, &out[0]);
    if (!bad)
        bad = skr_gemm_box(job, &b, job->k, job->n, !t->bt, t->bt ? 64 : t->columns / 2, &out[1]);
    int64_t width = job->gated ? job->n / 2 : job->n;
    if (job->d_gaps) /* the copy engine writes whole sixteens */
        width = skr_mul(skr_ceil_div(width, 8), 8);
    if (!bad && t->store)
        bad = skr_gemm_box(job, &job->d, job->m, width, false, 64, &out[2]);
    return bad;
}

/* The map of an operand, and that of its last rows (columns of b), which a whole box reaches beyond. Panels of what
 * runs along memory stay whole. */
static saker_status bind_operand(skr_call *call, const skr_matrix_box *box, bool panels, int64_t count,
                                 skr_tensor_map *map, skr_tensor_map *rest)
{
    skr_matrix_box last = *box;
    last.box_rows = (int32_t)(count % box->box_rows);
    SKR_TRY(skr_tensor_map_3d(call, box, map));
    return panels || !last.box_rows ? SAKER_OK : skr_tensor_map_3d(call, &last, rest);
}

static saker_status bind_maps(skr_call *call, void *opaque)
{
    skr_gemm_job *job = opaque;
    skr_gemm_work *t = &job->work;
    skr_matrix_box box[3];
    boxes(job, box);
    SKR_TRY(bind_operand(call, &box[0], t->at, job->m, &t->a, &t->a_rest));
    SKR_TRY(bind_operand(call, &box[1], t->bt, job->gated == SKR_GEMM_HALVES ? job->n / 2 : job->n, &t->b, &t->b_rest));
    return t->store ? skr_tensor_map_3d(call, &box[2], &t->d) : SAKER_OK;
}

bool skr_gemm_plan_tma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at_end)
{
    if (!suits(job, target, plan))
        return false;
    if (job->d.at.col_stride != 1 && job->d.row == 1 && skr_gemm_may_swap(job))
        skr_gemm_swap(job);
    int at = skr_gemm_along(&job->a, job->m, job->k), bt = skr_gemm_along(&job->b, job->k, job->n);
    if (at < 0 || bt < 0) {
        skr_why(plan, "tensor core kernels for Hopper: a or b has no dimension of stride 1");
        return false;
    }
    bt = !bt; /* of b [K, N] the first index is k */
    const bool turn_a = at && skr_gemm_may_turn(job), turn_b = bt && skr_gemm_may_turn(job);
    at = at && !turn_a, bt = bt && !turn_b;
    if (bt && job->gated == SKR_GEMM_HALVES && job->n / 2 * skr_type_bytes(job->b.at.type) % 16) {
        skr_why(plan, "tensor core kernels for Hopper: the halves of b's rows are not aligned to 16 bytes");
        return false;
    }
    bool direct = skr_gemm_writes_itself(job);
    choice c = choose(job, target, at, bt);
    if (c.shape < 0) {
        skr_why(plan, "tensor core kernels for Hopper: none for this layout and size (8 bits, tf32: k along memory)");
        return false;
    }
    skr_gemm_work *t = &job->work;
    skr_matrix_box box[3];
    int columns = shapes[c.shape].columns, bk = SKR_GEMM_TMA_BYTES / skr_type_bytes(job->a.at.type);
    t->turned_pitch = skr_mul(skr_ceil_div(job->k, 16), 16);
    t->turned_a_at = turn_a ? 0 : -1; /* 0: aligned as the workspace will be */
    t->turned_b_at = turn_b ? 0 : -1;
    t->rows = SKR_GEMM_TMA_ROWS;
    t->columns = columns;
    t->at = at;
    t->bt = bt;
    t->plain = skr_gemm_plain_of(job);
    t->store = direct && is_half(&job->d);
    t->once = job->m <= SKR_GEMM_TMA_ROWS;
    const char *bad = boxes(job, box);
    if (bad) {
        skr_why(plan, "tensor core kernels for Hopper: a, b or d %s", bad);
        *t = (skr_gemm_work){0};
        return false;
    }
    plan->bind = bind_maps;
    plan->bind_job = job;
    if (turn_a)
        t->turned_a_at = skr_gemm_add_turn(job, plan, false, at_end);
    if (turn_b)
        t->turned_b_at = skr_gemm_add_turn(job, plan, true, at_end);
    t->cluster = c.cluster;
    t->spread = c.spread;
    t->tiles_m = (int32_t)skr_ceil_div(job->m, (int64_t)SKR_GEMM_TMA_ROWS * c.cluster);
    t->tiles_n = (int32_t)skr_ceil_div(job->n, columns);
    t->batches = (int32_t)job->batch.m;
    t->batch_a = job->batch.m > 1 && job->a.at.stride[0] != 0;
    t->batch_b = job->batch.m > 1 && job->b.at.stride[0] != 0;
    t->group = 16 / c.cluster;
    t->steps = (int32_t)skr_ceil_div(job->k, bk);
    t->cut = c.cut;
    t->finish = !direct;
    int64_t slots = (int64_t)t->cut.left * (t->cut.slices + 2) + (t->finish ? t->cut.whole : 0);
    t->slots_at = skr_take(at_end, skr_mul(slots * c.cluster, (int64_t)SKR_GEMM_TMA_ROWS * columns * 4));
    plan->variant = c.spread ? shapes[c.shape].spread : shapes[c.shape].variant[c.schedule];
    skr_why(plan, "%lld tiles of 128x%d, %d blocks in a cluster%s, %d k steps, %d units, about %.0f us%s%s",
            (long long)(c.tiles * c.cluster), columns, c.cluster << c.spread, c.spread ? ", which share k" : "",
            t->steps, t->cut.units, c.us, turn_a || turn_b ? ", after a copy with k along memory" : "",
            t->finish ? ", written by a second kernel" : "");
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[c.shape];
    step->grid = (uint32_t)(t->cut.units * c.cluster) << c.spread;
    step->block = 384;
    step->cluster = (uint32_t)c.cluster << c.spread;
    step->shared_bytes = SKR_GEMM_TMA_SHARED;
    step->overlap = true;
    return true;
}
