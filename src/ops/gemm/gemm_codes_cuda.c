/* gemm_codes_cuda.c - gemm's plan for few rows with i4 or i8 weights in groups (gemm_codes.cuh).
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_codes_sm80)

static const struct {
    int type, code, rows, fine;
    const char *variant;
} shapes[] = {
#define SKR_GEMM_CODES(type, T, code, CODE, rows, groups, FINE)                                                        \
    {T, CODE, rows, FINE, "few rows " #type " " #code " " #rows " " #groups},
#include "gemm_codes.def"
};
static skr_cuda_kernel kernels[] = {
#define SKR_GEMM_CODES(type, T, code, CODE, rows, groups, FINE)                                                        \
    SKR_KERNEL(gemm_codes_sm80, "skr_gemm_codes_" #type "_" #code "_" #rows "_" #groups,                               \
               SKR_GEMM_CODES_SHARED(rows, FINE), 1),
#include "gemm_codes.def"
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* k's of what four lanes read, 16 bytes each (CHUNK there). */
static int64_t chunk_of(const skr_gemm_job *job)
{
    return job->b.at.type == SKR_I4 ? 128 : 64;
}

static bool suits(const skr_gemm_job *job)
{
    const int type = job->a.at.type, code = job->b.at.type;
    return (type == SKR_F16 || type == SKR_BF16) && (code == SKR_I4 || code == SKR_I8) &&
           job->scaling == SKR_GEMM_GROUP && !job->dbias.data && !job->schedule && job->m >= 1 &&
           job->m <= SKR_GEMM_CODES_MOST && job->n >= 1 && job->k >= 1 && job->k <= 1 << 30 &&
           job->k % (chunk_of(job) / 4) == 0 && job->a.at.col_stride == 1 &&
           skr_gemm_aligned(job, &job->a, job->a.row, job->m, 16) && job->b.row == 1 &&
           skr_gemm_aligned(job, &job->b, job->b.at.col_stride, job->n, 16);
}

bool skr_gemm_plan_codes(skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    if (!suits(job))
        return false;
    const bool whole = job->group >= job->k || job->group % chunk_of(job) == 0,
               fine = !whole && job->b.at.type == SKR_I4 && job->group % (chunk_of(job) / 4) == 0;
    int i = 0;
    while (i < N_SHAPES && (shapes[i].type != job->a.at.type || shapes[i].code != job->b.at.type ||
                            shapes[i].fine != fine || shapes[i].rows < skr_min(job->m, 16)))
        i++;
    if (i == N_SHAPES || !(whole || fine))
        return false;
    const int64_t rows = shapes[i].rows, columns = SKR_GEMM_CODES_COLUMNS(rows, fine);
    const int64_t blocks = skr_mul(skr_mul(skr_ceil_div(job->m, rows), skr_ceil_div(job->n, columns)), job->batch.m);
    if (blocks < 1 || blocks > INT32_MAX || target->shared_bytes < SKR_GEMM_CODES_SHARED(rows, fine))
        return false;
    job->work.plain = skr_gemm_plain_of(job) == SKR_GEMM_ONE_FACTOR && !job->a_scale.at.data &&
                      skr_gemm_writes_itself(job) && job->n % 2 == 0;
    plan->variant = shapes[i].variant;
    skr_why(plan, "%lld blocks of %lld rows and %lld columns, whose k eight warps share", (long long)blocks,
            (long long)rows, (long long)columns);
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[i];
    step->grid = (uint32_t)blocks;
    step->block = SKR_GEMM_CODES_THREADS;
    step->shared_bytes = SKR_GEMM_CODES_SHARED(rows, fine);
    step->overlap = true;
    return true;
}
