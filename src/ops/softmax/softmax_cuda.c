#include "../../cuda/rows_plan.h"
#include "softmax.h"
saker_status skr_softmax_plan_cuda(skr_call *call, skr_softmax_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_softmax_plan_cuda(skr_call *call, skr_softmax_job *job, const skr_target *target, skr_plan *plan)
{ (void)job; (void)target; (void)plan; return skr_fail(call, SAKER_UNSUPPORTED, "no"); }
saker_status skr_softmax_backward_plan_cuda(skr_call *call, skr_softmax_backward_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_softmax_backward_plan_cuda(skr_call *call, skr_softmax_backward_job *job, const skr_target *target, skr_plan *plan)
{ (void)job; (void)target; (void)plan; return skr_fail(call, SAKER_UNSUPPORTED, "no"); }
