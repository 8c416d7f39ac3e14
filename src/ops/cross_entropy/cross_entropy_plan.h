/* cross_entropy_plan.h - what the CPU and the CUDA plans of the cross-entropy operations share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CROSS_ENTROPY_PLAN_H
#define SKR_CROSS_ENTROPY_PLAN_H

#include "../../core/plan.h"
#include "cross_entropy.h"

typedef struct skr_ce_options {
    float smoothing, z_loss, softcap;
    int32_t reduction, has_ignore_index;
    int64_t ignore_index, vocab_start, vocab;
} skr_ce_options;
/* Checks them, and fills what the job has of them for logits of n columns. */
saker_status skr_cross_entropy_set(skr_call *call, const skr_ce_options *o, int64_t n, skr_cross_entropy_job *job);
/* The loss: one value a row, or the one number. The gradient of the loss: one for all has strides 0. */
saker_status skr_cross_entropy_add_loss(skr_call *call, skr_row_builder *b, const skr_view *v,
                                        skr_cross_entropy_job *job);
saker_status skr_cross_entropy_add_grad(skr_call *call, skr_row_builder *b, const skr_view *v,
                                        skr_cross_entropy_job *job);

/* Stages of forward: what comes before the rows, they themselves, and what makes one number of their losses. An
 * operation that has its logits in pieces runs the first and the last for all rows, and the second for each piece with
 * the room of all (whose head.workspace it must have). */
enum { SKR_CE_STAGE_BEFORE = 1, SKR_CE_STAGE_ROWS = 2, SKR_CE_STAGE_AFTER = 4, SKR_CE_STAGES = 7 };
/* What the stages share, at *at of the workspace. */
void skr_cross_entropy_take(skr_cross_entropy_job *job, const skr_target *target, int64_t *at);
/* Some of the stages, whose own workspace begins at `at`. */
saker_status skr_cross_entropy_plan(skr_call *call, skr_cross_entropy_job *job, const skr_target *target, int stages,
                                    int64_t at, skr_plan *plan);

/* Written beside the CUDA kernels (cross_entropy_cuda.c). */
saker_status skr_cross_entropy_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                         int stages, int64_t at, skr_plan *plan);
saker_status skr_cross_entropy_backward_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                                  skr_plan *plan);
saker_status skr_cross_entropy_merge_plan_cuda(skr_call *call, skr_cross_entropy_merge_job *job,
                                               const skr_target *target, skr_plan *plan);

/* Losses that are added up wait in the workspace. Sums over targets or classes are needed beforehand by the gradient of
 * a mean and by smoothing with weights, and by the mean itself at the end. */
static inline skr_ce_room skr_ce_room_of(int reduction, float smoothing, int64_t m, bool weighted, bool total,
                                         bool gradient, int64_t *at)
{
    bool parts = (reduction == SKR_REDUCE_MEAN && (gradient || total)) || (weighted && smoothing != 0);
    skr_ce_room room = {-1, -1, -1};
    if (parts)
        room.part_at = skr_take(at, (int64_t)sizeof(skr_ce_part) * SKR_CE_PARTS);
    if (total) {
        room.loss_at = skr_take(at, skr_mul(m, sizeof(skr_ce_loss)));
        room.sum_at = skr_take(at, (int64_t)sizeof(skr_ce_sum) * SKR_CE_PARTS);
    }
    return room;
}

#endif
