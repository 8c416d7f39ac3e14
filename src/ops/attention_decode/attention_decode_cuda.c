/* attention_decode_cuda.c - the CUDA half of attention_decode's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_decode_op.h"

saker_status skr_attention_decode_plan_cuda(skr_call *call, skr_attention_decode_job *job, const skr_target *target,
                                            skr_plan *plan)
{
    (void)job, (void)target, (void)plan;
    return skr_fail(call, SAKER_UNSUPPORTED, "attention_decode is for the CPU: there is no CUDA kernel yet");
}
