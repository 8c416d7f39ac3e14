/* cross_entropy_cuda.c - the CUDA half of the plans.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy_plan.h"

saker_status skr_cross_entropy_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                         skr_plan *plan)
{
    (void)job, (void)target, (void)plan;
    return skr_fail(call, SAKER_UNSUPPORTED, "no kernel");
}
saker_status skr_cross_entropy_backward_plan_cuda(skr_call *call, skr_cross_entropy_job *job, const skr_target *target,
                                                  skr_plan *plan)
{
    return skr_cross_entropy_plan_cuda(call, job, target, plan);
}
saker_status skr_cross_entropy_merge_plan_cuda(skr_call *call, skr_cross_entropy_merge_job *job,
                                               const skr_target *target, skr_plan *plan)
{
    (void)job, (void)target, (void)plan;
    return skr_fail(call, SAKER_UNSUPPORTED, "no kernel");
}
