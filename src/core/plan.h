/* plan.h - arithmetic that the plans of row operations share: sizes, workspace, how rows are cut into tasks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_PLAN_H
#define SKR_PLAN_H

#include "op.h"

/* Sizes saturate here, far above any address space: a broadcast view can have any number of rows. */
#define SKR_HUGE ((int64_t)1 << 60)

static inline int64_t skr_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline int64_t skr_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t skr_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t skr_mul(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_mul_overflow(a, b, &c) ? SKR_HUGE : skr_min(c, SKR_HUGE);
}

/* Bytes of one row of n elements; 0 when the tensor is absent. */
static inline int64_t skr_row_bytes(const skr_rows *r, int64_t n)
{
    return r->data ? skr_mul(n, skr_type_bytes(r->type)) : 0;
}

/* Takes bytes of workspace at the end of *at and returns where they start. */
static inline int64_t skr_take(int64_t *at, int64_t bytes)
{
    int64_t start = *at;
    *at = skr_min(start + (int64_t)skr_align_up((size_t)bytes, 256), SKR_HUGE);
    return start;
}

static inline saker_status skr_take_done(skr_call *call, int64_t at, skr_plan *plan)
{
    plan->workspace_bytes = (size_t)at;
    return at < SKR_HUGE ? SAKER_OK
                         : skr_fail(call, SAKER_OVERFLOW, "the workspace for these shapes does not fit 60 bits");
}

/* CPU: rows that do not meet in a sum. Eight tasks for each thread balance the load, each with at least 64 KiB of
 * traffic; fewer are better, for a task's first row cannot overlap with the one before it. How rows are cut into tasks
 * changes no bit. row_bytes: traffic of one row. */
static inline int64_t skr_rows_per_task(int64_t m, int64_t row_bytes, int width)
{
    int64_t rows = skr_max(skr_ceil_div(m, (int64_t)8 * width), 64 * 1024 / skr_max(row_bytes, 1));
    return skr_max(1, skr_min(rows, m));
}

/* CPU: sums over rows are cut by the problem alone: at most 64 partial sums of at least 8 rows each; more than 16384 in
 * one chain would lose f32 accuracy. */
static inline int64_t skr_rows_per_part(int64_t m)
{
    int64_t parts = skr_max(1, skr_min(64, m / 8));
    return skr_max(1, skr_min(skr_ceil_div(m, parts), 16384));
}

/* CPU: room for the f32 copy of a parameter, unless the tensor can be used as it is. An absent weight becomes a row of
 * 1 + offset. */
static inline void skr_plan_param(const skr_param *p, float offset, int64_t heads, int64_t n, int64_t *at,
                                  int64_t *copy_at, int64_t *stride)
{
    bool as_is = p->data && p->type == SKR_F32 && offset == 0;
    int64_t rows = p->data ? heads : 1;
    *copy_at = as_is ? -1 : skr_take(at, skr_mul(rows, skr_mul(n, sizeof(float))));
    *stride = as_is ? p->stride : rows > 1 ? n : 0;
}

/* Adds a step of the CPU kernel. */
static inline void skr_cpu_step(skr_plan *plan, uint32_t index, int64_t n_tasks)
{
    skr_step *step = skr_plan_step(plan);
    step->index = index;
    step->n_tasks = n_tasks;
}

#endif
