/* moe_cuda.c - the CUDA half of the plan of moe's own kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "moe_op.h"

SKR_FATBIN(moe_sm80)

static skr_cuda_kernel combine[2] = {SKR_KERNEL(moe_sm80, "skr_moe_combine_1", 0, 1),
                                     SKR_KERNEL(moe_sm80, "skr_moe_combine_8", 0, 1)};

saker_status skr_moe_combine_plan_cuda(skr_call *call, skr_moe_combine_job *job, const skr_target *target,
                                       skr_plan *plan)
{
    (void)call;
    (void)target;
    bool wide = job->h % 8 == 0 && skr_param_aligned(job->t, &job->y, 8);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &combine[wide];
    step->grid = (uint32_t)skr_min(job->t, SKR_ROWS_GRID);
    step->block = SKR_MOE_THREADS;
    step->overlap = true;
    return SAKER_OK;
}
