/* attention_cuda.c - attention's operations on a GPU: which kernel takes the job.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_op.h"

saker_status skr_attention_merge_plan_cuda(skr_call *call, skr_attention_merge_job *job, const skr_target *target,
                                           skr_plan *plan);

static saker_status refuse(skr_call *call)
{
    return skr_fail(call, SAKER_UNSUPPORTED, "there is no GPU kernel for it: use a CPU context");
}

saker_status skr_attention_plan_cuda(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    (void)job;
    (void)target;
    (void)plan;
    return refuse(call);
}

saker_status skr_attention_merge_plan_cuda(skr_call *call, skr_attention_merge_job *job, const skr_target *target,
                                           skr_plan *plan)
{
    (void)job;
    (void)target;
    (void)plan;
    return refuse(call);
}
