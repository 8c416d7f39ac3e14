/* linear_cross_entropy_cuda.c - the CUDA half of the plan of linear_cross_entropy's own kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/launch.h"
#include "linear_cross_entropy_op.h"

SKR_FATBIN(linear_cross_entropy_sm80)

static skr_cuda_kernel columns[3] = {
    [SKR_F32] = SKR_KERNEL(linear_cross_entropy_sm80, "skr_linear_cross_entropy_columns_f32", 0, 1),
    [SKR_F16] = SKR_KERNEL(linear_cross_entropy_sm80, "skr_linear_cross_entropy_columns_f16", 0, 1),
    [SKR_BF16] = SKR_KERNEL(linear_cross_entropy_sm80, "skr_linear_cross_entropy_columns_bf16", 0, 1)};
static skr_cuda_kernel dbias = SKR_KERNEL(linear_cross_entropy_sm80, "skr_linear_cross_entropy_dbias", 0, 1);
static skr_cuda_kernel ends = SKR_KERNEL(linear_cross_entropy_sm80, "skr_linear_cross_entropy_ends", 0, 1);

/* Blocks that fill any GPU: with fewer columns the rows are cut into more parts. Not the GPU's own number, so that the
 * bits are the same on all of them. */
enum { BLOCKS = 1024, LEAST_ROWS = 32 };

static void add_step(skr_plan *plan, skr_cuda_kernel *kernel, int64_t blocks)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)blocks;
    step->block = SKR_LCE_THREADS;
    step->overlap = true;
}

saker_status skr_lce_columns_plan_cuda(skr_call *call, skr_lce_columns_job *job, const skr_target *target,
                                       skr_plan *plan)
{
    (void)target;
    int64_t at = 0, vec = 16 / skr_type_bytes(job->type), blocks = skr_ceil_div(job->columns, vec * 32);
    int64_t most = skr_max(1, skr_min(skr_ceil_div(BLOCKS, blocks), job->rows / LEAST_ROWS));
    job->part_rows = skr_ceil_div(job->rows, most);
    int64_t parts = job->rows ? skr_ceil_div(job->rows, job->part_rows) : 0;
    if (skr_mul(parts, blocks) > INT32_MAX || skr_ceil_div(job->columns, SKR_LCE_THREADS) > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "weight has %lld rows, expected fewer than 2^37",
                        (long long)job->columns);
    job->parts = (int32_t)parts;
    job->blocks = (int32_t)blocks;
    skr_take(&at, skr_mul(parts, skr_mul(job->pitch, sizeof(double))));
    if (parts)
        add_step(plan, &columns[job->type], parts * blocks);
    add_step(plan, &dbias, skr_ceil_div(job->columns, SKR_LCE_THREADS));
    return skr_take_done(call, at, plan);
}

saker_status skr_lce_ends_plan_cuda(skr_call *call, skr_lce_columns_job *job, skr_plan *plan)
{
    const int64_t blocks = skr_ceil_div(job->rows, SKR_LCE_THREADS);
    if (blocks > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "a piece has %lld rows, expected fewer than 2^39",
                        (long long)job->rows);
    add_step(plan, &ends, blocks);
    return SAKER_OK;
}
