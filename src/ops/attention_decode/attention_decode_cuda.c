/* attention_decode_cuda.c - the CUDA half of attention_decode's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/launch.h"
#include "attention_decode_op.h"

SKR_FATBIN(attention_decode_sm80)

/* Shared memory that every GPU since 8.0 gives a block, less what the kernels have of their own. */
enum { SHARED = 92 * 1024 };

static struct {
    int rows, columns;
    const char *variant;
    skr_cuda_kernel kernel;
} kernels[] = {
#define SKR_DECODE(rows, columns, blocks)                                                                              \
    {rows, columns, "rows " #rows,                                                                                     \
     SKR_KERNEL(attention_decode_sm80, "skr_attention_decode_rows_" #rows "_" #columns, SHARED, 1)},
#include "attention_decode_kernels.def"
};
static skr_cuda_kernel merge = SKR_KERNEL(attention_decode_sm80, "skr_attention_decode_merge", 0, 1);
static skr_cuda_kernel append = SKR_KERNEL(attention_decode_sm80, "skr_attention_decode_append", 0, 1);

/* Whether four columns of any row lie as one access wants them, and have one scale. */
static int32_t vector_of(const skr_decode_cache *c)
{
    int64_t bytes = c->type == SKR_I4 ? 2 : 4 * (int64_t)skr_type_bytes(c->type);
    bool aligned = (uintptr_t)c->data % (uintptr_t)bytes == 0 && c->block % bytes == 0 && c->token % bytes == 0 &&
                   c->head % bytes == 0;
    return aligned && c->width % 4 == 0 && c->group % 4 == 0 ? 4 : 1;
}

static saker_status launch(skr_call *call, skr_plan *plan, skr_cuda_kernel *kernel, int64_t grid, int64_t shared)
{
    if (grid > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "q and the caches make %lld blocks, expected less than 2^31 on CUDA",
                        (long long)grid);
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)grid;
    step->block = SKR_DECODE_THREADS;
    step->shared_bytes = (uint32_t)shared;
    step->overlap = true;
    return SAKER_OK;
}

saker_status skr_attention_decode_plan_cuda(skr_call *call, skr_attention_decode_job *job, const skr_target *target,
                                            skr_plan *plan)
{
    /* Four blocks for each multiprocessor; a part is long enough that its o is a small part of the traffic. */
    enum { LEAST_KEYS = 256, MOST_KEYS = 2048 };
    skr_decode_cuda *g = &job->cuda;
    int64_t at = 0, heads = skr_mul(job->batch, job->heads_k), most = job->d > job->d_v ? job->d : job->d_v;
    int chosen = job->d_v > SKR_DECODE_THREADS ? SKR_DECODE_CHUNK / 2 : 0;
    for (int i = 0; i < 3 && kernels[chosen].rows < job->rows; i++)
        chosen++;
    if (!job->split)
        job->split = skr_attention_decode_split(job, 4 * (int64_t)target->n_sms, LEAST_KEYS, MOST_KEYS);
    job->parts = skr_max(1, skr_ceil_div(job->capacity, job->split));
    g->chunks = (int32_t)skr_ceil_div(job->rows, kernels[chosen].rows);
    g->quarter = (int32_t)(skr_ceil_div(job->d, 16) * 4);
    g->pitch = (int32_t)(skr_ceil_div(most, 32) * 32 + 4);
    g->vec_k = vector_of(&job->k);
    g->vec_v = vector_of(&job->v);
    int64_t sums = skr_mul(skr_mul(heads, job->parts), job->rows);
    g->o_at = skr_take(&at, skr_mul(sums, job->d_v * (int64_t)sizeof(float)));
    g->sums_at = skr_take(&at, skr_mul(sums, 2 * (int64_t)sizeof(float)));
    int64_t shared = (int64_t)sizeof(float) * (SKR_DECODE_TILE * g->pitch + kernels[chosen].rows * 4 * g->quarter);
    plan->variant = kernels[chosen].variant;
    if (job->appended)
        SKR_TRY(launch(call, plan, &append, skr_mul(heads, job->appended), 0));
    if (job->rows) {
        int64_t grid = skr_mul(skr_mul(heads, job->parts), g->chunks);
        SKR_TRY(launch(call, plan, &kernels[chosen].kernel, grid, shared));
        SKR_TRY(launch(call, plan, &merge, skr_mul(heads, job->rows), 0));
    }
    return skr_take_done(call, at, plan);
}
