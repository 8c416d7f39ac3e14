/* adamw_cuda.c - the CUDA half of adamw's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "adamw.h"

SKR_FATBIN(adamw_sm80)

enum { ANY1, ANY4, ANY8, SAME };
/* Any types, by elements of a thread; then one type for all, without amsgrad. */
static skr_cuda_kernel kernels[SAME + 3] = {[ANY1] = SKR_KERNEL(adamw_sm80, "skr_adamw_1", 0, 1),
                                            [ANY4] = SKR_KERNEL(adamw_sm80, "skr_adamw_4", 0, 1),
                                            [ANY8] = SKR_KERNEL(adamw_sm80, "skr_adamw_8", 0, 1),
                                            [SAME + SKR_F32] = SKR_KERNEL(adamw_sm80, "skr_adamw_f32", 0, 1),
                                            [SAME + SKR_F16] = SKR_KERNEL(adamw_sm80, "skr_adamw_f16", 0, 1),
                                            [SAME + SKR_BF16] = SKR_KERNEL(adamw_sm80, "skr_adamw_bf16", 0, 1)};
static const char *const variants[SAME + 3] = {"1 element", "4 elements", "8 elements", "f32", "f16", "bf16"};
static const int width[SAME + 3] = {1, 4, 8, 4, 8, 8};

static bool aligned(const skr_adamw_job *job, int vec)
{
    return skr_rows_aligned(&job->rows, &job->param, vec) && skr_rows_aligned(&job->rows, &job->grad, vec) &&
           skr_rows_aligned(&job->rows, &job->exp_avg, vec) && skr_rows_aligned(&job->rows, &job->exp_avg_sq, vec) &&
           skr_rows_aligned(&job->rows, &job->max_sq, vec);
}

static bool narrow(const skr_rows *r)
{
    return !r->data || r->type != SKR_F32;
}

saker_status skr_adamw_plan_cuda(skr_call *call, skr_adamw_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_adamw_plan_cuda(skr_call *call, skr_adamw_job *job, const skr_target *target, skr_plan *plan)
{
    (void)call;
    (void)target;
    /* 16 bytes of the widest type. */
    bool all_narrow = narrow(&job->param) && narrow(&job->grad) && narrow(&job->exp_avg) && narrow(&job->exp_avg_sq) &&
                      narrow(&job->max_sq);
    int which = all_narrow && aligned(job, 8) ? ANY8 : aligned(job, 4) ? ANY4 : ANY1, type = job->param.type;
    bool same =
        !job->max_sq.data && job->grad.type == type && job->exp_avg.type == type && job->exp_avg_sq.type == type;
    if (same && aligned(job, type == SKR_F32 ? 4 : 8))
        which = SAME + type;
    job->pieces = skr_ceil_div(job->n, SKR_ADAMW_THREADS * width[which]);
    plan->variant = variants[which];
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[which];
    step->grid = (uint32_t)skr_min(skr_mul(job->rows.m, job->pieces), INT32_MAX);
    step->block = SKR_ADAMW_THREADS;
    step->overlap = true;
    return SAKER_OK;
}
