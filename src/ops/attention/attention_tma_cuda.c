/* attention_tma_cuda.c - attention's plans for Hopper's tensor cores: may the copy engine read it, which kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_cuda.h"

SKR_FATBIN(attention_tma_sm90)
SKR_FATBIN(attention_tma_gradient_sm90)
SKR_FATBIN(attention_prepare_sm80)

#define ROWS 128 /* of a piece */

/* Tokens of all batch indices are one list, *step apart from index to index, and heads are matrices. False: they do not
 * lie like that. */
static bool box_of(const skr_attention_job *job, const skr_attention_rows *t, int64_t tokens, int64_t heads,
                   int64_t width, int rows, skr_matrix_box *out, int64_t *step)
{
    const int64_t batches = job->packed ? 1 : job->batch, most = INT64_C(1) << 31;
    const int64_t token = tokens > 1 ? t->token : batches > 1 && t->batch ? t->batch : skr_ceil_div(width, 8) * 8;
    if (token <= 0 || token >= INT64_C(1) << 36 || t->head < (heads > 1) || t->head >= INT64_C(1) << 36)
        return false;
    *step = batches > 1 ? t->batch / token : 0;
    if (t->batch < 0 || (batches > 1 && *step * token != t->batch) || *step >= most / batches)
        return false;
    const int64_t all = (batches - 1) * *step + tokens;
    *out = (skr_matrix_box){.data = t->data, .type = t->type, .rows = all, .cols = width, .row_stride = token};
    out->batches = heads;
    out->batch_stride = t->head;
    out->box_rows = rows;
    out->box_cols = 64;
    out->swizzle_bytes = 128;
    return all > 0 && all < most;
}

/* rows: of q at a time, columns: of k and v. */
static bool boxes(skr_attention_job *job, int rows, int columns, skr_matrix_box out[3])
{
    return box_of(job, &job->q, job->length, job->heads, job->d, rows, &out[0], &job->cuda.q_rows) &&
           box_of(job, &job->k, job->length_k, job->heads_k, job->d, columns, &out[1], &job->cuda.k_rows) &&
           box_of(job, &job->v, job->length_k, job->heads_k, job->d_v, columns, &out[2], &job->cuda.v_rows);
}

static saker_status bind_boxes(skr_call *call, skr_attention_job *job, const skr_matrix_box box[3])
{
    SKR_TRY(skr_tensor_map_3d(call, &box[0], &job->cuda.q));
    SKR_TRY(skr_tensor_map_3d(call, &box[1], &job->cuda.k));
    return skr_tensor_map_3d(call, &box[2], &job->cuda.v);
}

/* ---------------------------------------------------------------- forward */

/* q, then stages of k and v, and what it takes to begin at a multiple of 1024. */
#define SHARED(d, bn, stages, q_stages) (1024 + 2 * (d) * ((q_stages)*ROWS + 2 * (stages) * (bn)))

static const skr_attention_shape shapes[] = {
#define SKR_TMA(kind, type, d, bn, stages, q_stages)                                                                   \
    {KIND_##kind, TYPE_##type, d, d, ROWS, bn, 384, SHARED(d, bn, stages, q_stages), "tma " #kind " " #type " " #d},
#include "attention_kernels.def"
};
static skr_cuda_kernel kernels[] = {
#define SKR_TMA(kind, type, d, bn, stages, q_stages)                                                                   \
    SKR_KERNEL_OF(attention_tma_sm90, "skr_attention_tma_" #kind "_" #type "_" #d,                                     \
                  SHARED(d, bn, stages, q_stages) + (KIND_##kind == KIND_scored) * 4 * ROWS * (bn)),
#include "attention_kernels.def"
};

static skr_cuda_kernel count_kernel = SKR_KERNEL(attention_prepare_sm80, "skr_attention_count", 0, 1);

static const skr_attention_shape *shape_of(const skr_attention_job *job)
{
    for (size_t i = 0; i < SKR_COUNT(shapes); i++)
        if (skr_attention_can(&shapes[i], job, job->q.type, skr_attention_kind(job)))
            return &shapes[i];
    return NULL;
}

static saker_status bind_maps(skr_call *call, void *opaque)
{
    skr_attention_job *job = opaque;
    skr_matrix_box box[3];
    boxes(job, ROWS, shape_of(job)->columns, box);
    return bind_boxes(call, job, box);
}

const skr_attention_shape *skr_attention_tma(skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    const skr_attention_shape *s = shape_of(job);
    skr_matrix_box box[3];
    const char *why = NULL;
    if (target->sm != 90)
        why = "they need compute capability 9.0";
    else if (!s)
        why = "they take f16 and bf16, heads up to 256, or 128 with softcap, slopes or a bias, and no other options";
    else if (job->length_k < 1)
        why = "there is no key";
    else if (!job->cuda.aligned || !skr_attention_aligned(&job->o, job->q.type, job->d_v) ||
             !boxes(job, ROWS, s->columns, box))
        why = "a pointer, a stride or a head is no multiple of 16 bytes, or batches are no multiple of a token apart";
    else if (!skr_attention_fits(s, job, target))
        why = "they need more shared memory";
    else if (skr_attention_pieces(job, s, false) > 1 << 24)
        why = "there are more than 2^24 pieces of queries";
    if (why)
        skr_why(plan, "tensor core kernels for Hopper: %s", why);
    return why ? NULL : s;
}

/* Pieces are of different lengths: who is done takes the next one. */
static void add_count(skr_attention_job *job, int64_t *at, skr_plan *plan)
{
    job->cuda.count_at = skr_take(at, 2 * sizeof(int32_t));
    if (job->cuda.spans_at >= 0) /* its kernel starts the count */
        return;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &count_kernel;
    step->grid = 1;
    step->block = 32;
    step->overlap = true;
}

saker_status skr_attention_add_staying(skr_call *call, skr_attention_job *job, const skr_target *target, bool keys,
                                       skr_cuda_kernel *kernel, const skr_attention_shape *s, skr_plan *plan)
{
    skr_step *step;
    SKR_TRY(skr_attention_add_kernel(call, job, target, keys, kernel, s, plan, &step));
    if (step) {
        step->grid = (uint32_t)skr_min(skr_attention_pieces(job, s, keys), target->n_sms);
        step->overlap = true;
    }
    return SAKER_OK;
}

saker_status skr_attention_add_tma(skr_call *call, skr_attention_job *job, const skr_target *target,
                                   const skr_attention_shape *found, skr_cuda_kernel *again,
                                   const skr_attention_shape *again_shape, int64_t *at, skr_plan *plan)
{
    skr_attention_shape shape = *found, *s = &shape;
    shape.shared_bytes += skr_attention_bias_bytes(found, job);
    const int64_t pieces = skr_attention_pieces(job, s, false);
    if (pieces > target->n_sms && (job->bounded || job->cuda.spans_at >= 0))
        add_count(job, at, plan);
    if (pieces == 0)
        return SAKER_OK;
    job->cuda.pieces[0] = (int32_t)pieces;
    job->cuda.marks_at = skr_take(at, 8 * pieces);
    plan->bind = bind_maps;
    plan->bind_job = job;
    SKR_TRY(skr_attention_add_staying(call, job, target, false, &kernels[found - shapes], s, plan));
    return skr_attention_add_staying(call, job, target, false, again, again_shape, plan);
}

/* ---------------------------------------------------------------- backward */

/* dq; dk and dv; those, and the sums of dq. */
enum { SIDE_q, SIDE_k, SIDE_a };
/* Rows of k's and of v's width; then stages of columns, ds twice, and with the keys as rows what is known of the
 * queries. */
#define SHARED_GRADIENT(d, side, bc, stages, row_stages)                                                               \
    (1024 + 4 * (d) * ((row_stages)*ROWS + (stages) * (bc)) +                                                          \
     (SIDE_##side == SIDE_a) * 2 * SKR_ATTENTION_DS_BYTES(ROWS, bc) + (SIDE_##side != SIDE_q) * (stages)*8 * (bc))

typedef struct gradient_shape {
    int side;
    skr_attention_shape of;
} gradient_shape;
static const gradient_shape gradient[] = {
#define SKR_TMA_GRADIENT(kind, type, d, side, bc, stages, row_stages)                                                  \
    {SIDE_##side,                                                                                                      \
     {KIND_##kind, TYPE_##type, d, d, ROWS, bc, 384, SHARED_GRADIENT(d, side, bc, stages, row_stages),                 \
      "tma " #kind " " #type " " #d}},
#include "attention_kernels.def"
};
static skr_cuda_kernel gradient_kernels[] = {
#define SKR_TMA_GRADIENT(kind, type, d, side, bc, stages, row_stages)                                                  \
    SKR_KERNEL_OF(attention_tma_gradient_sm90, "skr_attention_tma_d" #side "_" #kind "_" #type "_" #d,                 \
                  SHARED_GRADIENT(d, side, bc, stages, row_stages) + (KIND_##kind == KIND_scored) * 4 * ROWS * (bc)),
#include "attention_kernels.def"
};

static const gradient_shape *gradient_of(const skr_attention_job *job, int side)
{
    for (size_t i = 0; i < SKR_COUNT(gradient); i++)
        if (gradient[i].side == side && skr_attention_can(&gradient[i].of, job, job->q.type, skr_attention_kind(job)))
            return &gradient[i];
    return NULL;
}

static bool gradient_boxes(skr_attention_job *job, skr_matrix_box out[4])
{
    return boxes(job, SKR_ATTENTION_BOX, SKR_ATTENTION_BOX, out) &&
           box_of(job, &job->d_o, job->length, job->heads, job->d_v, SKR_ATTENTION_BOX, &out[3], &job->cuda.d_o_rows);
}

static saker_status bind_gradient_maps(skr_call *call, void *opaque)
{
    skr_attention_job *job = opaque;
    skr_matrix_box box[4];
    gradient_boxes(job, box);
    SKR_TRY(bind_boxes(call, job, box));
    return skr_tensor_map_3d(call, &box[3], &job->cuda.d_o);
}

/* A result that they can write, or none. */
static bool writable(const skr_attention_job *job, const skr_attention_rows *t, int64_t width)
{
    return !t->data || skr_attention_aligned(t, job->q.type, width);
}

const skr_attention_shape *skr_attention_tma_gradient(skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    const gradient_shape *q = gradient_of(job, SIDE_q), *k = gradient_of(job, SIDE_k);
    skr_matrix_box box[4];
    const char *why = NULL;
    if (target->sm != 90)
        why = "they need compute capability 9.0";
    else if (!q || !k || job->dslopes.data || (job->softcap > 0 && (job->bias.data || job->slopes.data)))
        why = "they take f16 and bf16, heads up to 128, and no masks, positions, dropout, dslopes, or softcap with a "
              "bias";
    else if (job->accumulate)
        why = "they do not add to what gradients hold";
    else if (!skr_attention_pieces(job, &q->of, false) || !skr_attention_pieces(job, &k->of, true))
        why = "there is no query or no key";
    else if (!job->cuda.aligned || !writable(job, &job->dq, job->d) || !writable(job, &job->dk, job->d) ||
             !writable(job, &job->dv, job->d_v) || !gradient_boxes(job, box))
        why = "a pointer, a stride or a head is no multiple of 16 bytes, or batches are no multiple of a token apart";
    else if (!skr_attention_fits(&q->of, job, target) || !skr_attention_fits(&k->of, job, target))
        why = "they need more shared memory";
    else if (skr_attention_pieces(job, &q->of, false) > 1 << 24 || skr_attention_pieces(job, &k->of, true) > 1 << 24)
        why = "there are more than 2^24 pieces of queries or of keys";
    if (why)
        skr_why(plan, "tensor core kernels for Hopper: %s", why);
    return why ? NULL : &q->of;
}

void skr_attention_take_tma_gradient(skr_attention_job *job, const skr_target *target, int64_t *at, skr_plan *plan)
{
    const int64_t pieces[2] = {skr_attention_pieces(job, &gradient_of(job, SIDE_q)->of, false),
                               skr_attention_pieces(job, &gradient_of(job, SIDE_k)->of, true)};
    for (int side = 0; side < 2; side++)
        job->cuda.pieces[side] = (int32_t)pieces[side];
    job->cuda.marks_at = skr_take(at, 8 * (pieces[0] + pieces[1]));
    if (skr_max(pieces[0], pieces[1]) > target->n_sms && (job->bounded || job->cuda.spans_at >= 0))
        job->cuda.count_at = skr_take(at, 2 * sizeof(int32_t));
    plan->bind = bind_gradient_maps;
    plan->bind_job = job;
}

const skr_attention_shape *skr_attention_tma_sums(const skr_attention_job *job, const skr_target *target)
{
    const gradient_shape *a = gradient_of(job, SIDE_a), *k = gradient_of(job, SIDE_k);
    return a && a->of.d == k->of.d && skr_attention_fits(&a->of, job, target) ? &a->of
                                                                              : NULL; /* heads up to 64: slower */
}

saker_status skr_attention_add_tma_gradient(skr_call *call, skr_attention_job *job, const skr_target *target, bool keys,
                                            skr_plan *plan)
{
    const gradient_shape *g = gradient_of(job, !keys ? SIDE_q : job->cuda.sums_at >= 0 ? SIDE_a : SIDE_k);
    skr_attention_shape s = g->of;
    s.shared_bytes += skr_attention_bias_bytes(&s, job);
    return skr_attention_add_staying(call, job, target, keys, &gradient_kernels[g - gradient], &s, plan);
}
