/* attention_tma_cuda.c - attention's plan for Hopper's tensor cores: may the copy engine read it, which kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_cuda.h"

SKR_FATBIN(attention_tma_sm90)
SKR_FATBIN(attention_prepare_sm80)

/* q, then stages of k and v, and what it takes to begin at a multiple of 1024. */
#define ROWS                            128
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

static bool boxes(skr_attention_job *job, int columns, skr_matrix_box out[3])
{
    return box_of(job, &job->q, job->length, job->heads, job->d, ROWS, &out[0], &job->cuda.q_rows) &&
           box_of(job, &job->k, job->length_k, job->heads_k, job->d, columns, &out[1], &job->cuda.k_rows) &&
           box_of(job, &job->v, job->length_k, job->heads_k, job->d_v, columns, &out[2], &job->cuda.v_rows);
}

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
    boxes(job, shape_of(job)->columns, box);
    SKR_TRY(skr_tensor_map_3d(call, &box[0], &job->cuda.q));
    SKR_TRY(skr_tensor_map_3d(call, &box[1], &job->cuda.k));
    return skr_tensor_map_3d(call, &box[2], &job->cuda.v);
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
             !boxes(job, s->columns, box))
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
    job->cuda.count_at = skr_take(at, sizeof(int32_t));
    if (job->cuda.spans_at >= 0) /* its kernel starts the count */
        return;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &count_kernel;
    step->grid = 1;
    step->block = 32;
    step->overlap = true;
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
    skr_step *step;
    SKR_TRY(skr_attention_add_kernel(call, job, target, false, &kernels[found - shapes], s, plan, &step));
    if (!step)
        return SAKER_OK;
    job->cuda.pieces = (int32_t)pieces;
    job->cuda.marks_at = skr_take(at, 8 * pieces);
    plan->bind = bind_maps;
    plan->bind_job = job;
    step->grid = (uint32_t)skr_min(pieces, target->n_sms);
    step->overlap = true;
    SKR_TRY(skr_attention_add_kernel(call, job, target, false, again, again_shape, plan, &step));
    step->grid = (uint32_t)skr_min(pieces, target->n_sms);
    step->overlap = true;
    return SAKER_OK;
}
