/* moe_route_cuda.c - the CUDA half of the plans of moe_route and moe_route_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A warp has a token; how many experts a lane has follows from their number alone, so a row has the same bits in any
 * batch. Tiles of tokens are few enough for one block to add up their counts. */
#include "../../cuda/rows_plan.h"
#include "moe_route.h"

SKR_FATBIN(moe_route_sm80)

enum { THREADS = 32 * SKR_ROUTE_WARPS };
/* What choosing takes for 1024 experts: a warp's words, and a count for each expert. */
enum { MOST_SHARED = (SKR_ROUTE_WARPS * (2 * SKR_ROUTE_EXPERTS + SKR_ROUTE_EXPERTS / 2) + SKR_ROUTE_EXPERTS) * 4 };

#define CHOOSE(each) SKR_KERNEL(moe_route_sm80, "skr_moe_route_choose_" #each, MOST_SHARED, 1)
static skr_cuda_kernel choose[] = {CHOOSE(1), CHOOSE(2), CHOOSE(4), CHOOSE(8), CHOOSE(16), CHOOSE(32)};
static const char *const variants[][2] = {{"choose 1", "choose 1 and sort"},   {"choose 2", "choose 2 and sort"},
                                          {"choose 4", "choose 4 and sort"},   {"choose 8", "choose 8 and sort"},
                                          {"choose 16", "choose 16 and sort"}, {"choose 32", "choose 32 and sort"}};
static skr_cuda_kernel add_up = SKR_KERNEL(moe_route_sm80, "skr_moe_route_add_up", 0, 1);
static skr_cuda_kernel place = SKR_KERNEL(moe_route_sm80, "skr_moe_route_place", 0, 1);
static skr_cuda_kernel backward = SKR_KERNEL(moe_route_sm80, "skr_moe_route_backward", 0, 1);

static void launch(skr_plan *plan, skr_cuda_kernel *kernel, int64_t grid, int threads, int64_t shared)
{
    skr_step *step = skr_plan_step(plan);
    step->kernel = kernel;
    step->grid = (uint32_t)grid;
    step->block = (uint32_t)threads;
    step->shared_bytes = (uint32_t)shared;
    step->overlap = true;
}

saker_status skr_moe_route_plan_cuda(skr_call *call, skr_moe_route_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_moe_route_plan_cuda(skr_call *call, skr_moe_route_job *job, const skr_target *target, skr_plan *plan)
{
    (void)target;
    int64_t m = job->k ? job->rows.m : 0, n = job->n, at = 0;
    int i = 0;
    while (n > (int64_t)32 << i)
        i++;
    int64_t least = job->sorted ? skr_max(SKR_ROUTE_TILE, skr_ceil_div(m, SKR_ROUTE_TILES))
                                : skr_max(SKR_ROUTE_WARPS, skr_ceil_div(m, SKR_ROWS_GRID));
    job->tile_rows = skr_ceil_div(least, SKR_ROUTE_WARPS) * SKR_ROUTE_WARPS;
    job->tiles = (int32_t)skr_ceil_div(m, job->tile_rows);
    /* What groups or weights are judged by, the keys of the groups, the chosen in 16 bits. */
    job->warp_words = (int32_t)(n + job->n_groups + skr_ceil_div(job->k, 2));
    plan->variant = variants[i][job->sorted];
    if (job->sorted) {
        job->counts_at = skr_take(&at, skr_mul(job->tiles, n * (int64_t)sizeof(int32_t)));
        job->starts_at = skr_take(&at, (n + 1) * (int64_t)sizeof(int32_t));
    }
    int64_t shared = ((int64_t)SKR_ROUTE_WARPS * job->warp_words + n) * (int64_t)sizeof(int32_t);
    if (m)
        launch(plan, &choose[i], job->tiles, THREADS, shared);
    if (job->sorted)
        launch(plan, &add_up, 1, SKR_ROUTE_SCAN, 0);
    if (m && (job->order || job->place || job->token))
        launch(plan, &place, job->tiles, THREADS, SKR_ROUTE_WARPS * n * (int64_t)sizeof(int32_t));
    return skr_take_done(call, at, plan);
}

saker_status skr_moe_route_backward_plan_cuda(skr_call *call, skr_moe_route_backward_job *job, const skr_target *target,
                                              skr_plan *plan);

saker_status skr_moe_route_backward_plan_cuda(skr_call *call, skr_moe_route_backward_job *job, const skr_target *target,
                                              skr_plan *plan)
{
    (void)call;
    (void)target;
    plan->variant = "warp";
    launch(plan, &backward, skr_min(skr_ceil_div(job->rows.m, SKR_ROUTE_WARPS), SKR_ROWS_GRID), THREADS, 0);
    return SAKER_OK;
}
