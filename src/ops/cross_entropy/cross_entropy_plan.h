/* cross_entropy_plan.h - what the CPU and the CUDA plans of the cross-entropy operations share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CROSS_ENTROPY_PLAN_H
#define SKR_CROSS_ENTROPY_PLAN_H

#include "../../core/plan.h"
#include "cross_entropy.h"

/* Written beside the CUDA kernels (cross_entropy_cuda.c). */
saker_status skr_cross_entropy_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                         skr_plan *plan);
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
