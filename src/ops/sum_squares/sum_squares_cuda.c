/* sum_squares_cuda.c - the CUDA half of sum_squares' plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "sum_squares.h"

SKR_FATBIN(sum_squares_sm80)

/* By type, and whether 16-byte accesses can be made. */
#define PAIR(type)                                                                                                     \
    {                                                                                                                  \
        SKR_KERNEL(sum_squares_sm80, "skr_sum_squares_" type "_any", 0, 1),                                            \
            SKR_KERNEL(sum_squares_sm80, "skr_sum_squares_" type "_wide", 0, 1)                                        \
    }
static skr_cuda_kernel kernels[3][2] = {[SKR_F32] = PAIR("f32"), [SKR_F16] = PAIR("f16"), [SKR_BF16] = PAIR("bf16")};
static skr_cuda_kernel fold = SKR_KERNEL(sum_squares_sm80, "skr_sum_squares_fold", 0, 1);

saker_status skr_sum_squares_plan_cuda(skr_call *call, skr_sum_squares_job *job, const skr_target *target,
                                       skr_plan *plan);

saker_status skr_sum_squares_plan_cuda(skr_call *call, skr_sum_squares_job *job, const skr_target *target,
                                       skr_plan *plan)
{
    (void)target; /* the parts, and so the bits, depend on the problem alone */
    int vec = 16 / skr_type_bytes(job->x.type);
    bool wide = skr_rows_aligned(&job->rows, &job->x, vec);
    job->pieces = skr_ceil_div(job->n, (int64_t)SKR_SQUARES_THREADS * SKR_SQUARES_UNROLL * (wide ? vec : 1));
    job->parts = skr_min(skr_mul(job->rows.m, job->pieces), SKR_SQUARES_PARTS);
    plan->variant = wide ? "16 bytes" : "1 element";
    if (job->parts) {
        skr_step *step = skr_plan_step(plan);
        step->kernel = &kernels[job->x.type][wide];
        step->grid = (uint32_t)job->parts;
        step->block = SKR_SQUARES_THREADS;
        step->overlap = true;
    }
    skr_step *step = skr_plan_step(plan);
    step->kernel = &fold;
    step->grid = 1;
    step->block = SKR_SQUARES_THREADS;
    step->overlap = true;
    int64_t at = 0;
    skr_take(&at, skr_mul(job->parts, sizeof(double)));
    return skr_take_done(call, at, plan);
}
