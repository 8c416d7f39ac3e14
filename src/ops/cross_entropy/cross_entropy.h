/* cross_entropy.h - the jobs of cross_entropy, cross_entropy_backward and cross_entropy_merge.
 * SPDX-License-Identifier: Apache-2.0
 *
 * s = logits or softcap * tanh(logits / softcap); m = max s; sum = sum exp(s - m); lse = m + log(sum)
 * With k = label_smoothing / vocab, w the class weights (1 without), all = sum of w:
 *   loss = (1 - label_smoothing) * w[t] * (lse - s[t]) + lse * (k * all) - sum_c (k * w[c]) * s[c]  +  z_loss * lse^2
 *   d loss / d s[c] = p[c] * a - [c = t] * b - c_w * w[c],   p[c] = exp(s[c] - lse)
 *     a = (1 - label_smoothing) * w[t] + k * all + 2 * z_loss * lse,  b = (1 - label_smoothing) * w[t],  c_w = k
 * The mean divides the first part by the sum of w[t] and the z-loss by the number of rows, ignored ones left out. */
#ifndef SKR_CROSS_ENTROPY_H
#define SKR_CROSS_ENTROPY_H

#include "../../core/job.h"

/* Values of reduction; the same numbers as saker_reduction. */
enum { SKR_REDUCE_NONE, SKR_REDUCE_MEAN, SKR_REDUCE_SUM };

/* Columns of a row of partial results. */
enum { SKR_CE_MAX, SKR_CE_SUM, SKR_CE_TARGET, SKR_CE_SMOOTH, SKR_CE_PARTIAL };

/* Steps: on the CPU one kernel runs them all, on CUDA each is a kernel of its own. PREPARE: the sum of the class
 * weights and the weight of the rows that are not ignored, each in SKR_CE_PARTS parts. SUM: the losses, in as many.
 * FINISH: the one number. So every sum has the same order, whoever computes it. */
enum { SKR_CE_STEP_PREPARE, SKR_CE_STEP_ROWS, SKR_CE_STEP_SUM, SKR_CE_STEP_FINISH };
enum { SKR_CE_PARTS = 32, SKR_CE_CHUNK = 4096 }; /* chunk: columns that the CPU works on at once */

/* What a part of PREPARE leaves. */
typedef struct skr_ce_part {
    float target_weight, rows; /* sums over rows that are not ignored: w[t], 1 */
    float class_weight;        /* sum over classes of w */
    float reserved;
} skr_ce_part;

/* The loss of a row whose losses are to be added up. */
typedef struct skr_ce_loss {
    float entropy, z;
} skr_ce_loss;

/* What a part of SUM leaves. */
typedef struct skr_ce_sum {
    double entropy, z;
} skr_ce_sum;

/* Offsets in bytes into the workspace, -1: none. */
typedef struct skr_ce_room {
    int64_t part_at; /* skr_ce_part [SKR_CE_PARTS] */
    int64_t loss_at; /* skr_ce_loss [M] */
    int64_t sum_at;  /* skr_ce_sum [SKR_CE_PARTS] */
} skr_ce_room;

/* Forward and backward. */
typedef struct skr_cross_entropy_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;            /* columns here */
    int64_t start, vocab; /* class of the first column, classes in all */
    skr_rows logits, dlogits, target;
    skr_rows loss; /* one f32 a row; absent when it is reduced */
    skr_rows lse;  /* one f32 a row; forward writes it, backward reads it */
    skr_rows grad; /* one f32 a row, or one for all (strides 0); absent: 1 */
    skr_rows dlse; /* backward: one f32 a row */
    skr_rows partial;
    skr_param weight;
    float *total; /* where the reduced loss goes */
    int64_t ignore_index;
    float smoothing, z_loss, softcap;
    int32_t reduction;
    float k; /* smoothing / vocab */
    /* Plan. */
    skr_ce_room room;
    int64_t weight_at;         /* CPU: the class weights as f32; -1: none, or they are that */
    int64_t exp_at, exp_bytes; /* CPU: a row of exponentials and the maxima of its chunks, for each worker */
    int64_t rows_per_task;
    int32_t chunks; /* CUDA, backward: pieces of a row */
} skr_cross_entropy_job;

/* The merge. Rows are those of target; partials has the shards in front. */
typedef struct skr_cross_entropy_merge_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t vocab, shards, shard_stride; /* stride in elements */
    skr_rows partials, target, loss, lse;
    skr_param weight;
    float *total;
    int64_t ignore_index;
    float smoothing, z_loss, k;
    int32_t reduction;
    skr_ce_room room;
    int64_t rows_per_task;
} skr_cross_entropy_merge_job;

/* ---------------------------------------------------------------- what all kernels compute alike */

SKR_INLINE int64_t skr_ce_target(const skr_rows *target, int64_t offset)
{
    return target->type == SKR_I32 ? ((const int32_t *)target->data)[offset] : ((const int64_t *)target->data)[offset];
}

/* What the reductions and smoothing make of the weights, for the whole call. */
typedef struct skr_ce_scale {
    float entropy,
        z;        /* factors of the two parts of the loss in the gradient: 1, or one over what the mean divides by */
    float smooth; /* k * all */
    float k;
    float hard; /* 1 - label_smoothing */
} skr_ce_scale;

SKR_INLINE skr_ce_scale skr_ce_scale_of(int reduction, float smoothing, float k, int weighted, float target_weight,
                                        float rows, float class_weight)
{
    skr_ce_scale s;
    s.entropy = reduction == SKR_REDUCE_MEAN ? 1.0f / target_weight : 1.0f;
    s.z = reduction == SKR_REDUCE_MEAN ? 1.0f / rows : 1.0f;
    s.k = k;
    s.smooth = weighted ? s.k * class_weight : smoothing;
    s.hard = 1.0f - smoothing;
    return s;
}

/* The loss of a row that is not ignored, before the reduction. smooth: sum of k * w * s. */
SKR_INLINE skr_ce_loss skr_ce_loss_of(const skr_ce_scale *s, float z_loss, float weight, float lse, float at_target,
                                      float smooth)
{
    skr_ce_loss l;
    l.entropy = s->hard * weight * (lse - at_target);
    if (s->k != 0.0f)
        l.entropy += s->smooth * lse - smooth;
    l.z = z_loss != 0.0f ? z_loss * lse * lse : 0.0f;
    return l;
}

/* Coefficients of a row's gradient; a row that is ignored has only dlse. */
typedef struct skr_ce_coef {
    float a, b, c;
} skr_ce_coef;

SKR_INLINE skr_ce_coef skr_ce_coef_of(const skr_ce_scale *s, float z_loss, int valid, float weight, float lse,
                                      float grad, float dlse)
{
    skr_ce_coef k = {dlse, 0.0f, 0.0f};
    if (!valid)
        return k;
    float g = grad * s->entropy;
    k.b = g * (s->hard * weight);
    k.c = g * s->k;
    k.a += s->k != 0.0f ? g * (s->hard * weight + s->smooth) : k.b;
    if (z_loss != 0.0f && grad != 0.0f) /* lse may be NaN, and gradients of 0 stop that */
        k.a += grad * s->z * (2.0f * z_loss * lse);
    return k;
}

#endif
