/* topk_cuda.c - the CUDA half of the plans of topk and topk_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads and digits follow from the width of a row, so a row's softmax has the same bits in any batch. */
#include "../../cuda/rows_plan.h"
#include "topk.h"

SKR_FATBIN(topk_sm80)

#define MANY_few  false
#define MANY_many true
static const struct {
    bool many;
    int threads, bits;
    int64_t most;
    const char *variant;
} shapes[] = {
#define SKR_TOPK(survivors, threads, bits, most) {MANY_##survivors, threads, bits, most, #survivors " " #threads},
#include "topk_kernels.def"
};

#define SHARED (SKR_TOPK_SHARED + 24 * 1024)
static skr_cuda_kernel kernels[3][sizeof shapes / sizeof *shapes] = {
#define SKR_TOPK(survivors, threads, bits, most)                                                                       \
    SKR_KERNEL(topk_sm80, "skr_topk_" #survivors "_f32_" #threads, SHARED, 1),
    [SKR_F32] =
        {
#include "topk_kernels.def"
        },
#define SKR_TOPK(survivors, threads, bits, most)                                                                       \
    SKR_KERNEL(topk_sm80, "skr_topk_" #survivors "_f16_" #threads, SHARED, 1),
    [SKR_F16] =
        {
#include "topk_kernels.def"
        },
#define SKR_TOPK(survivors, threads, bits, most)                                                                       \
    SKR_KERNEL(topk_sm80, "skr_topk_" #survivors "_bf16_" #threads, SHARED, 1),
    [SKR_BF16] = {
#include "topk_kernels.def"
    }};

saker_status skr_topk_plan_cuda(skr_call *call, skr_topk_job *job, const skr_target *target, skr_plan *plan);

/* Indices are signed in the kernels, and a step of all threads may go beyond the end: without a sign they spill, or are
 * 5 % slower (the gradient). */
static saker_status check_width(skr_call *call, const char *name, int64_t n)
{
    if (n > INT32_MAX - SKR_TOPK_STEP)
        return skr_fail(call, SAKER_UNSUPPORTED, "%s has rows of %lld elements, expected at most 2^31 - 2^16 on CUDA",
                        name, (long long)n);
    return SAKER_OK;
}

saker_status skr_topk_plan_cuda(skr_call *call, skr_topk_job *job, const skr_target *target, skr_plan *plan)
{
    SKR_TRY(check_width(call, "x", job->n));
    /* Some room beyond a small k saves passes over the row; what is beyond a large one would have to be sorted. */
    int64_t cap = 64;
    while (cap < job->k + (job->k <= SKR_TOPK_RANK / 2 ? 16 : 0))
        cap *= 2;
    job->cap = (int32_t)skr_min(cap, (int64_t)1 << 30);
    bool many = cap > SKR_TOPK_RANK;
    int i = 0;
    while (shapes[i].many != many || job->n > shapes[i].most)
        i++;
    int64_t bytes = skr_type_bytes(job->x.type), shared = (int64_t)sizeof(uint32_t) << shapes[i].bits;
    bool in_shared = cap <= SKR_TOPK_LIST;
    int64_t places = (many ? 0 : SKR_TOPK_PADDED(SKR_TOPK_RANK)) + (in_shared ? SKR_TOPK_PADDED(cap) : 0);
    int64_t number = SKR_TOPK_NARROW(job->x.type, shapes[i].threads) ? sizeof(uint32_t) : sizeof(uint64_t);
    shared += places * number;
    job->cached = shared + skr_mul(job->n, bytes) <= skr_min(SKR_TOPK_SHARED, target->shared_bytes - 1024);
    job->wide = skr_rows_aligned(&job->rows, &job->x, (int)(16 / bytes));
    shared += job->cached ? job->n * bytes : 0;
    int64_t most = in_shared ? SKR_ROWS_GRID : 2 * (int64_t)target->n_sms;
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[job->x.type][i];
    step->grid = (uint32_t)skr_min(job->rows.m, most);
    step->block = (uint32_t)shapes[i].threads;
    step->shared_bytes = (uint32_t)shared;
    step->overlap = true;
    plan->variant = shapes[i].variant;
    if (cap > (int64_t)1 << 30)
        return skr_fail(call, SAKER_UNSUPPORTED, "values and indices have k = %lld, expected at most 2^30 on CUDA",
                        (long long)job->k);
    return skr_take_done(call, in_shared ? 0 : skr_mul(step->grid, skr_mul(SKR_TOPK_PADDED(cap), number)), plan);
}

/* ---------------------------------------------------------------- gradient */

static skr_cuda_kernel backward[2] = {SKR_KERNEL(topk_sm80, "skr_topk_backward_32", 0, 1),
                                      SKR_KERNEL(topk_sm80, "skr_topk_backward_256", 0, 1)};

saker_status skr_topk_backward_plan_cuda(skr_call *call, skr_topk_backward_job *job, const skr_target *target,
                                         skr_plan *plan);

saker_status skr_topk_backward_plan_cuda(skr_call *call, skr_topk_backward_job *job, const skr_target *target,
                                         skr_plan *plan)
{
    (void)target;
    SKR_TRY(check_width(call, "dx", job->n));
    int large = job->n > 1024;
    job->wide = skr_rows_aligned(&job->rows, &job->dx, 16 / skr_type_bytes(job->dx.type));
    plan->variant = large ? "block of 256" : "block of 32";
    skr_step *step = skr_plan_step(plan);
    step->kernel = &backward[large];
    step->grid = (uint32_t)skr_min(job->rows.m, INT32_MAX);
    step->block = large ? 256 : 32;
    step->overlap = true;
    return SAKER_OK;
}
