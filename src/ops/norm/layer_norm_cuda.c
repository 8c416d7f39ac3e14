/* layer_norm_cuda.c - the CUDA plans of layer_norm and layer_norm_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_op.h"

saker_status skr_layer_norm_plan_cuda(skr_call *call, skr_norm_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_layer_norm_plan_cuda(skr_call *call, skr_norm_job *job, const skr_target *target, skr_plan *plan)
{
    (void)job, (void)target, (void)plan;
    return skr_fail(call, SAKER_UNSUPPORTED, "there is no CUDA kernel for this operation yet, expected a CPU context");
}

saker_status skr_layer_norm_backward_plan_cuda(skr_call *call, skr_norm_backward_job *job, const skr_target *target,
                                               skr_plan *plan);
saker_status skr_layer_norm_backward_plan_cuda(skr_call *call, skr_norm_backward_job *job, const skr_target *target,
                                               skr_plan *plan)
{
    (void)job, (void)target, (void)plan;
    return skr_fail(call, SAKER_UNSUPPORTED, "there is no CUDA kernel for this operation yet, expected a CPU context");
}
