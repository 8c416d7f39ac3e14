/* rows_plan.c - picks an instance of a row kernel and sizes its launch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rows_plan.h"

static int64_t shared_bytes(const skr_rows_problem *p, const skr_rows_shape *s)
{
    return (int64_t)s->slots * s->threads * p->slot_bytes;
}

bool skr_plan_rows_block(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                         skr_cuda_kernel *kernels, int count, skr_plan *plan)
{
    for (int i = 0; i < count; i++) {
        const skr_rows_shape *s = &shapes[i];
        int64_t shared = shared_bytes(p, s);
        if (s->type != p->type || (int64_t)s->lanes * s->vpt < p->n / p->vec ||
            shared > target->shared_bytes - SKR_ROWS_STATIC)
            continue;
        int64_t tiles = skr_ceil_div(p->m, s->threads / s->lanes * s->rows), most = (int64_t)s->walk * target->n_sms;
        skr_step *step = skr_plan_step(plan);
        step->kernel = &kernels[i];
        step->grid = (uint32_t)(s->walk && tiles > most ? most : tiles);
        step->block = (uint32_t)s->threads;
        step->shared_bytes = (uint32_t)shared;
        step->overlap = true;
        plan->variant = s->variant;
        return true;
    }
    return false;
}

/* filled: only clusters that the row fills by more than half. */
static bool pick_cluster(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                         skr_cuda_kernel *kernels, int count, bool filled, skr_plan *plan)
{
    for (int i = 0; i < count && target->sm == 90; i++) {
        const skr_rows_shape *s = &shapes[i];
        int64_t shared = shared_bytes(p, s);
        int cluster = skr_rows_cluster(p->n, s, p->vec);
        if (s->type != p->type || !cluster || shared > SKR_ROWS_SHARED)
            continue;
        if (filled && 2 * p->n <= (int64_t)cluster * s->threads * s->vpt * p->vec)
            continue;
        int64_t rows = p->m, most = skr_rows_resident(target->n_sms, cluster) * s->walk;
        if (s->walk && rows > most)
            rows = most > 0 ? most : 1;
        skr_step *step = skr_plan_step(plan);
        step->kernel = &kernels[i];
        step->grid = (uint32_t)(rows * cluster);
        step->block = (uint32_t)s->threads;
        step->cluster = (uint32_t)cluster;
        step->shared_bytes = (uint32_t)shared;
        step->overlap = s->walk == 0;
        plan->variant = s->variant;
        return true;
    }
    return false;
}

bool skr_plan_rows_filled_cluster(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                                  skr_cuda_kernel *kernels, int count, skr_plan *plan)
{
    return pick_cluster(p, target, shapes, kernels, count, true, plan);
}

bool skr_plan_rows_cluster(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                           skr_cuda_kernel *kernels, int count, skr_plan *plan)
{
    if (pick_cluster(p, target, shapes, kernels, count, false, plan))
        return true;
    if (target->sm != 90)
        skr_why(plan, "cluster kernels: need compute capability 9.0, this is %d.%d", target->sm / 10, target->sm % 10);
    else
        skr_why(plan, "cluster kernels: %lld columns do not fit", (long long)p->n);
    return false;
}
