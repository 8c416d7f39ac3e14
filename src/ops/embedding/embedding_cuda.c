/* embedding_cuda.c - the CUDA half of the plans of embedding and embedding_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/rows_plan.h"
#include "embedding_op.h"

SKR_FATBIN(embedding_sm80)
SKR_FATBIN(embedding_backward_sm80)

enum { COPY, COPY_SHORT, CONVERT, ANY };
static skr_cuda_kernel kernels[4] = {SKR_KERNEL(embedding_sm80, "skr_embedding_copy", 0, 1),
                                     SKR_KERNEL(embedding_sm80, "skr_embedding_copy_short", 0, 1),
                                     SKR_KERNEL(embedding_sm80, "skr_embedding_convert4", 0, 1),
                                     SKR_KERNEL(embedding_sm80, "skr_embedding_any", 0, 1)};
static const char *const variants[4] = {"copy", "copy short rows", "convert", "any"};

static bool can(const skr_embedding_job *job, int vec)
{
    return job->d % vec == 0 && skr_rows_aligned(&job->rows, &job->out, vec) &&
           skr_param_aligned(job->v, &job->table, vec);
}

saker_status skr_embedding_plan_cuda(skr_call *call, skr_embedding_job *job, const skr_target *target, skr_plan *plan)
{
    (void)target;
    int vec = 16 / skr_type_bytes(job->table.type);
    int which = job->table.type == job->out.type && can(job, vec) ? COPY : can(job, 4) ? CONVERT : ANY;
    job->vec = which == COPY ? vec : which == CONVERT ? 4 : 1;
    /* Four accesses a thread, but at least eight threads side by side: a line of every store. A thread has one of each
     * row where rows are too short for both. */
    int64_t vectors = job->d / job->vec;
    if (vectors > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "table has rows of %lld elements, read %d at a time: expected less than 2^31 reads on CUDA",
                        (long long)job->d, job->vec);
    int bits = 0;
    if (which == COPY && vectors <= 16 && job->rows.n_dims == 1 && job->rows.m <= INT32_MAX)
        which = COPY_SHORT;
    int64_t each = which == COPY_SHORT ? 1 : 4;
    while (1 << bits < SKR_EMBED_THREADS && 1 << bits < vectors && (bits < 3 || each << bits < vectors))
        bits++;
    job->vectors = (int32_t)vectors;
    job->lane_bits = bits;
    plan->variant = variants[which];
    skr_step *step = skr_plan_step(plan);
    step->kernel = &kernels[which];
    int64_t block_rows = (SKR_EMBED_THREADS >> bits) * (which == COPY_SHORT ? SKR_EMBED_SHORT : 1);
    step->grid = (uint32_t)skr_min(skr_ceil_div(job->rows.m, block_rows), INT32_MAX);
    step->block = SKR_EMBED_THREADS;
    step->overlap = true;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- gradient */

#define SORT(pass)                                                                                                     \
    {                                                                                                                  \
        SKR_KERNEL(embedding_backward_sm80, "skr_embedding_count_" #pass, 0, 1),                                       \
            SKR_KERNEL(embedding_backward_sm80, "skr_embedding_scatter_" #pass, 0, 1)                                  \
    }
static skr_cuda_kernel sort[4][2] = {SORT(0), SORT(1), SORT(2), SORT(3)};
static skr_cuda_kernel scan = SKR_KERNEL(embedding_backward_sm80, "skr_embedding_scan", 0, 1);
static skr_cuda_kernel zero = SKR_KERNEL(embedding_backward_sm80, "skr_embedding_zero", 0, 1);
#define SUMS(type)                                                                                                     \
    {                                                                                                                  \
        SKR_KERNEL(embedding_backward_sm80, "skr_embedding_sums_" type "_any", 0, 1),                                  \
            SKR_KERNEL(embedding_backward_sm80, "skr_embedding_sums_" type "_wide", 0, 1)                              \
    }
static skr_cuda_kernel sums[3][2] = {[SKR_F32] = SUMS("f32"), [SKR_F16] = SUMS("f16"), [SKR_BF16] = SUMS("bf16")};
static skr_cuda_kernel join[3] = {SKR_KERNEL(embedding_backward_sm80, "skr_embedding_join_1", 0, 1),
                                  SKR_KERNEL(embedding_backward_sm80, "skr_embedding_join_4", 0, 1),
                                  SKR_KERNEL(embedding_backward_sm80, "skr_embedding_join_8", 0, 1)};

static void launch(skr_plan *plan, skr_cuda_kernel *kernel, int64_t grid, uint32_t block)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)grid;
    step->block = block;
    step->overlap = true;
}

saker_status skr_embedding_backward_plan_cuda(skr_call *call, skr_embedding_backward_job *job, const skr_target *target,
                                              skr_plan *plan);

saker_status skr_embedding_backward_plan_cuda(skr_call *call, skr_embedding_backward_job *job, const skr_target *target,
                                              skr_plan *plan)
{
    (void)target;
    int64_t m = job->rows.m, at = 0;
    int vec = 16 / skr_type_bytes(job->dout.type), bits = 1;
    bool wide =
        job->d % 8 == 0 && skr_rows_aligned(&job->rows, &job->dout, vec) && skr_param_aligned(job->v, &job->dtable, 8);
    while (job->v >> bits)
        bits++;
    int passes = (bits + SKR_EMBED_DIGIT - 1) / SKR_EMBED_DIGIT;
    for (int p = 0, left = bits; p < passes; left -= job->pass_bits[p], p++)
        job->pass_bits[p] = (left + passes - p - 1) / (passes - p);
    job->vec = wide ? vec : 1;
    job->last_pass = passes - 1;
    job->tiles = (int32_t)skr_ceil_div(m, SKR_EMBED_TILE);
    job->parts = (int32_t)skr_ceil_div(m, SKR_EMBED_RUN);
    job->column_blocks = (int32_t)skr_ceil_div(job->d, SKR_EMBED_THREADS * job->vec);
    for (int k = 0; k < 2; k++) {
        job->ids_at[k] = skr_take(&at, skr_mul(m, sizeof(uint32_t)));
        job->list_at[k] = skr_take(&at, skr_mul(m, sizeof(int32_t)));
    }
    job->counts_at = skr_take(&at, skr_mul(job->tiles, sizeof(uint32_t) << SKR_EMBED_DIGIT));
    job->sums_at = skr_take(&at, skr_mul(2 * job->parts, skr_mul(job->d, sizeof(float))));
    int64_t blocks = skr_mul(job->parts, job->column_blocks);
    if (blocks > INT32_MAX)
        return skr_fail(call, SAKER_UNSUPPORTED, "dout has too many elements for one CUDA grid");
    plan->variant = wide ? "sort and sum, 16 bytes" : "sort and sum, 1 element";
    for (int p = 0; m && p < passes; p++) {
        launch(plan, &sort[p][0], job->tiles, SKR_EMBED_THREADS);
        launch(plan, &scan, 1, 1024);
        launch(plan, &sort[p][1], job->tiles, SKR_EMBED_THREADS);
    }
    if (!job->accumulate)
        launch(plan, &zero, skr_min(job->v, SKR_ROWS_GRID), SKR_EMBED_THREADS);
    if (m) {
        launch(plan, &sums[job->dout.type][wide], blocks, SKR_EMBED_THREADS);
        launch(plan, &join[wide ? vec / 4 : 0], blocks, SKR_EMBED_THREADS);
    }
    return skr_take_done(call, at, plan);
}
