#include "../../cuda/rows_plan.h"
#include "rope.h"
saker_status skr_rope_plan_cuda(skr_call *call, skr_rope_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_rope_plan_cuda(skr_call *call, skr_rope_job *job, const skr_target *target, skr_plan *plan)
{
    (void)job, (void)target, (void)plan;
    return skr_fail(call, SAKER_UNSUPPORTED, "x");
}
