/* gemm_turn_cuda.c - the plan of gemm_turn.cuh: when a or b is copied for Hopper's kernels, and what they then read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_turn_sm80)

/* a and b, elements of 1 byte and of 4. */
static skr_cuda_kernel kernels[2][2] = {
    {SKR_KERNEL(gemm_turn_sm80, "skr_gemm_turn_a_1", 0, 1), SKR_KERNEL(gemm_turn_sm80, "skr_gemm_turn_a_4", 0, 1)},
    {SKR_KERNEL(gemm_turn_sm80, "skr_gemm_turn_b_1", 0, 1), SKR_KERNEL(gemm_turn_sm80, "skr_gemm_turn_b_4", 0, 1)}};

/* How often a or b is there. */
static int64_t copies_of(const skr_gemm_job *job, const skr_gemm_matrix *m)
{
    return job->batch.m > 1 && m->at.stride[0] ? job->batch.m : 1;
}

/* Blocks that turn a or b. */
static int64_t blocks_of(const skr_gemm_job *job, bool b)
{
    int64_t across = skr_ceil_div(b ? job->n : job->m, SKR_GEMM_SIDE), down = skr_ceil_div(job->k, SKR_GEMM_SIDE);
    return skr_mul(skr_mul(across, down), copies_of(job, b ? &job->b : &job->a));
}

bool skr_gemm_may_turn(const skr_gemm_job *job)
{
    return skr_type_bytes(job->a.at.type) != 2 && (double)job->m * (double)job->n * (double)job->k >= 1 << 24 &&
           skr_max(blocks_of(job, false), blocks_of(job, true)) <= INT32_MAX;
}

int64_t skr_gemm_add_turn(const skr_gemm_job *job, skr_plan *plan, bool b, int64_t *at_end)
{
    const skr_gemm_matrix *m = b ? &job->b : &job->a;
    int bytes = skr_type_bytes(m->at.type);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[b][bytes == 4];
    step->grid = (uint32_t)blocks_of(job, b);
    step->block = 256;
    step->overlap = true;
    return skr_take(at_end, skr_mul(skr_mul(copies_of(job, m), b ? job->n : job->m), job->work.turned_pitch * bytes));
}

skr_gemm_matrix skr_gemm_turned(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t at, bool b)
{
    skr_gemm_matrix copy = *m;
    if (at < 0)
        return copy;
    int64_t pitch = job->work.turned_pitch;
    copy.at.data = (void *)((uintptr_t)job->head.workspace + (uintptr_t)at);
    copy.row = b ? 1 : pitch;
    copy.at.col_stride = b ? pitch : 1;
    copy.at.stride[0] = m->at.stride[0] ? skr_mul(b ? job->n : job->m, pitch) : 0;
    return copy;
}
