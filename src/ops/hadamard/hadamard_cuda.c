/* hadamard_cuda.c - the CUDA half of hadamard's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "hadamard.h"

SKR_FATBIN(hadamard_sm80)

#define TILE(threads) ((threads)*33 * (uint32_t)sizeof(float)) /* 32 elements a thread, one of padding for 32 */

static const uint32_t threads_of[] = {
#define SKR_HADAMARD(log_n, threads) threads,
#include "hadamard_kernels.def"
};
static skr_cuda_kernel kernels[3][sizeof threads_of / sizeof *threads_of] = {
    [SKR_F32] =
        {
#define SKR_HADAMARD(log_n, threads) SKR_KERNEL(hadamard_sm80, "skr_hadamard_f32_" #log_n, TILE(threads), 1),
#include "hadamard_kernels.def"
        },
    [SKR_F16] =
        {
#define SKR_HADAMARD(log_n, threads) SKR_KERNEL(hadamard_sm80, "skr_hadamard_f16_" #log_n, TILE(threads), 1),
#include "hadamard_kernels.def"
        },
    [SKR_BF16] =
        {
#define SKR_HADAMARD(log_n, threads) SKR_KERNEL(hadamard_sm80, "skr_hadamard_bf16_" #log_n, TILE(threads), 1),
#include "hadamard_kernels.def"
        },
};
static skr_cuda_kernel any = SKR_KERNEL(hadamard_sm80, "skr_hadamard_any", sizeof(float) << SKR_HADAMARD_PIECE, 1);
static skr_cuda_kernel join = SKR_KERNEL(hadamard_sm80, "skr_hadamard_join", 0, 1);

static saker_status plan_any(skr_call *call, skr_hadamard_job *job, skr_plan *plan)
{
    int log_piece = job->log_n < SKR_HADAMARD_PIECE ? job->log_n : SKR_HADAMARD_PIECE;
    int64_t pieces = (int64_t)1 << (job->log_n - log_piece), at = 0;
    if (job->log_n > SKR_HADAMARD_HUGE)
        return skr_fail(call, SAKER_UNSUPPORTED, "x has rows of %lld elements, expected at most 2^%d on CUDA",
                        (long long)job->n, SKR_HADAMARD_HUGE);
    plan->variant = pieces > 1 ? "pieces" : "any";
    skr_step *step = skr_plan_step(plan);
    step->kernel = &any;
    step->grid = (uint32_t)skr_min(skr_mul(job->rows.m, pieces), SKR_ROWS_GRID);
    step->block = SKR_HADAMARD_ANY;
    step->shared_bytes = (uint32_t)sizeof(float) << log_piece;
    step->overlap = true;
    if (pieces > 1) {
        skr_take(&at, skr_mul(job->rows.m, skr_mul(job->n, sizeof(float))));
        step = skr_plan_step(plan);
        step->kernel = &join;
        step->grid =
            (uint32_t)skr_min(skr_mul(job->rows.m, (1 << SKR_HADAMARD_PIECE) / SKR_HADAMARD_ANY), SKR_ROWS_GRID);
        step->block = SKR_HADAMARD_ANY;
        step->overlap = true;
    }
    return skr_take_done(call, at, plan);
}

saker_status skr_hadamard_plan_cuda(skr_call *call, skr_hadamard_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_hadamard_plan_cuda(skr_call *call, skr_hadamard_job *job, const skr_target *target, skr_plan *plan)
{
    int type = job->x.type, vec = 16 / skr_type_bytes(type);
    if (job->rows.n_dims != 1 || job->y.type != type || job->log_n < SKR_HADAMARD_LEAST ||
        job->log_n > SKR_HADAMARD_MOST || !skr_rows_aligned(&job->rows, &job->x, vec) ||
        !skr_rows_aligned(&job->rows, &job->y, vec)) {
        skr_why(plan, "tiles: need x and y of one type, one row stride each, aligned to 16 bytes, and rows of 2^5 to "
                      "2^15 elements");
        return plan_any(call, job, plan);
    }
    int i = job->log_n - SKR_HADAMARD_LEAST;
    int64_t rows = (int64_t)threads_of[i] * 32 >> job->log_n;
    if (skr_ceil_div(job->rows.m, rows) > INT32_MAX)
        return plan_any(call, job, plan);
    if ((int64_t)TILE(threads_of[i]) > target->shared_bytes) {
        skr_why(plan, "tiles: need %u bytes of shared memory, this GPU has %d for a block", TILE(threads_of[i]),
                target->shared_bytes);
        return plan_any(call, job, plan);
    }
    plan->variant = "tiles";
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[type][i];
    step->grid = (uint32_t)skr_ceil_div(job->rows.m, rows);
    step->block = threads_of[i];
    step->shared_bytes = TILE(threads_of[i]);
    step->overlap = true;
    return SAKER_OK;
}
