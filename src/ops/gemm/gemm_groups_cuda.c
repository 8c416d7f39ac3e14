/* gemm_groups_cuda.c - grouped_gemm's CUDA plan: the table of groups, then the portable kernels or the general ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

/* Sizes and tiles that the walk over the groups counts in 32 bits. */
static bool countable(const skr_grouped_gemm_job *job)
{
    const skr_gemm_job *g = &job->gemm;
    int64_t largest = skr_max(skr_max(g->m, g->n), skr_max(g->k, skr_max(job->total, job->groups)));
    int64_t rows = job->along_k ? skr_mul(job->groups, skr_ceil_div(g->m, SKR_GEMM_SIDE))
                                : job->total / SKR_GEMM_SIDE + job->groups;
    return largest <= INT32_MAX - 1024 && skr_mul(rows, skr_ceil_div(g->n, SKR_GEMM_SIDE)) <= 1 << 30;
}

saker_status skr_grouped_gemm_plan_cuda(skr_call *call, skr_grouped_gemm_job *job, const skr_target *target,
                                        skr_plan *plan)
{
    skr_gemm_job *g = &job->gemm;
    int64_t at = 0;
    if (!countable(job))
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "a, b and d have 2^31 rows, columns or k's, or more than 2^30 tiles of 64x64, which no CUDA "
                        "kernel of grouped_gemm takes");
    g->groups = (skr_gemm_groups){.bias_stride = job->bias_stride,
                                  .count = (int32_t)job->groups,
                                  .of = job->along_k ? SKR_GEMM_OF_KS : SKR_GEMM_OF_ROWS};
    g->groups.table_at = skr_take(&at, skr_mul(job->groups + 1, sizeof(skr_gemm_group)));
    skr_why(plan, "groups of %s: %lld, of %lld in all", job->along_k ? "k's" : "rows", (long long)job->groups,
            (long long)job->total);
    if (!skr_gemm_plan_mma_groups(job, target, plan))
        skr_gemm_plan_any_groups(job, target, plan);
    return skr_take_done(call, at, plan);
}
