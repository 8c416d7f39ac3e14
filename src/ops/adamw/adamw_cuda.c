/* adamw_cuda.c - the CUDA half of adamw's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "adamw.h"

SKR_FATBIN(adamw_sm80)

/* By elements of a thread. */
static skr_cuda_kernel kernels[3] = {SKR_KERNEL(adamw_sm80, "skr_adamw_1", 0, 1),
                                     SKR_KERNEL(adamw_sm80, "skr_adamw_4", 0, 1),
                                     SKR_KERNEL(adamw_sm80, "skr_adamw_8", 0, 1)};
static const char *const variants[3] = {"1 element", "4 elements", "8 elements"};

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
    int which = all_narrow && aligned(job, 8) ? 2 : aligned(job, 4) ? 1 : 0;
    static const int width[3] = {1, 4, 8};
    job->pieces = skr_ceil_div(job->n, SKR_ADAMW_THREADS * width[which]);
    plan->variant = variants[which];
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[which];
    step->grid = (uint32_t)skr_min(skr_mul(job->rows.m, job->pieces), INT32_MAX);
    step->block = SKR_ADAMW_THREADS;
    step->overlap = true;
    return SAKER_OK;
}
