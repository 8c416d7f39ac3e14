/* moe_plan.c - the parts that moe is made of, and the workspace that they share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * On a GPU, whose fastest kernels take rows as they lie: the rows of x in the experts' order. Then the products into h
 * and z, and the sum over a token's experts. z is read by place instead of being scattered: what no expert wrote is 0
 * there, whatever offsets say. */
#include <string.h>

#include "../embedding/embedding_op.h"
#include "moe_op.h"

typedef skr_moe_job job_t;

enum { GATHER, UP, DOWN, SUM, N_WORKS };

/* Elements that rows in the workspace are a multiple of. */
enum { PITCH = 64 };

/* Where the workspace will begin, as far as a plan needs to know it: aligned, and not so near to address 0 that kernels
 * which count from before their rows would not be taken. */
#define ALIGNED ((void *)((uintptr_t)1 << 62))

static void *room(const job_t *job, int64_t at)
{
    return (char *)job->head.workspace + at;
}

static void start(const job_t *job, int op_index, skr_part *out)
{
    skr_job_head *head = (skr_job_head *)out->job;
    out->op_index = op_index;
    head->workspace = room(job, job->scratch_at);
    head->error_word = job->head.error_word;
}

/* Rows in the workspace, of x's type. */
static skr_gemm_matrix kept(const job_t *job, int64_t at, int64_t pitch)
{
    skr_gemm_matrix m = {.row = pitch};
    m.at = (skr_rows){.data = room(job, at), .type = job->x.at.type, .col_stride = 1};
    return m;
}

static saker_status part_gather(skr_call *call, const job_t *job, const skr_target *target, skr_part *out)
{
    if (!job->gathers)
        return SAKER_OK;
    skr_embedding_job *e = (skr_embedding_job *)out->job;
    start(job, SKR_OP_embedding, out);
    e->rows = (skr_row_space){.m = job->rows, .n_dims = 1, .dims = {job->rows}};
    e->v = job->sum.t;
    e->d = job->up.k;
    e->table = (skr_param){.data = job->x.at.data, .stride = job->x.row, .type = job->x.at.type};
    e->ids =
        (skr_rows){.data = job->token.data, .stride = {job->token.stride}, .col_stride = 1, .type = job->token.type};
    e->out = kept(job, job->x_at, job->x_pitch).at;
    e->out.stride[0] = job->x_pitch;
    return skr_embedding_plan_cuda(call, e, target, &out->plan);
}

static skr_grouped_gemm_job *start_product(const job_t *job, const skr_moe_layer *l, skr_gemm_matrix a,
                                           skr_gemm_matrix d, skr_part *out)
{
    skr_grouped_gemm_job *g = (skr_grouped_gemm_job *)out->job;
    start(job, SKR_OP_grouped_gemm, out);
    skr_grouped_gemm_product(g, job->experts, job->rows, l->n, l->k, a, l->weight, d);
    g->offsets = job->offsets;
    g->gemm.gather_rows = g->gemm.scatter_rows = job->rows;
    g->gemm.bias = l->bias;
    g->bias_stride = l->bias_stride;
    g->gemm.scaling = job->group ? SKR_GEMM_GROUP : SKR_GEMM_NONE;
    g->gemm.group = job->group;
    g->gemm.b_scale = l->scale;
    g->gemm.b_zero = l->zero;
    g->gemm.allow_tf32 = job->allow_tf32;
    return g;
}

static saker_status part_up(skr_call *call, const job_t *job, const skr_target *target, skr_part *out)
{
    if (!job->rows || !job->up.n)
        return SAKER_OK;
    skr_gemm_matrix a = job->gathers ? kept(job, job->x_at, job->x_pitch) : job->x;
    skr_grouped_gemm_job *g = start_product(job, &job->up, a, kept(job, job->h_at, job->h_pitch), out);
    if (!job->gathers) {
        g->gemm.gather = job->token;
        g->gemm.gather_rows = job->sum.t;
    }
    g->gemm.act = job->act;
    g->gemm.gated = job->gated;
    return skr_grouped_gemm_plan(call, g, target, &out->plan);
}

static saker_status part_down(skr_call *call, const job_t *job, const skr_target *target, skr_part *out)
{
    if (!job->rows)
        return SAKER_OK;
    skr_grouped_gemm_job *g =
        start_product(job, &job->down, kept(job, job->h_at, job->h_pitch), kept(job, job->z_at, job->sum.pitch), out);
    return skr_grouped_gemm_plan(call, g, target, &out->plan);
}

static saker_status part_sum(skr_call *call, const job_t *job, const skr_target *target, skr_part *out)
{
    skr_moe_combine_job *s = (skr_moe_combine_job *)out->job;
    *s = job->sum;
    start(job, SKR_OP_moe, out);
    s->z = room(job, job->z_at);
    s->z_type = job->x.at.type;
    if (target->backend == SKR_CUDA)
        return skr_moe_combine_plan_cuda(call, s, target, &out->plan);
    int64_t bytes = skr_mul(skr_mul(s->k + 1, s->h), 4);
    out->plan.traffic_bytes = skr_mul(s->t, bytes);
    s->rows_per_task = skr_rows_per_task(s->t, bytes, target->width);
    skr_cpu_step(&out->plan, 0, skr_ceil_div(s->t, s->rows_per_task));
    return SAKER_OK;
}

static saker_status part(skr_call *call, const void *job, const skr_target *target, int64_t i, skr_part *out)
{
    return (i == GATHER ? part_gather : i == UP ? part_up : i == DOWN ? part_down : part_sum)(call, job, target, out);
}

/* ---------------------------------------------------------------- plan */

saker_status skr_moe_plan(skr_call *call, void *given, const skr_target *target, skr_plan *plan)
{
    job_t *job = given;
    const int64_t bytes = skr_type_bytes(job->x.at.type);
    int64_t at = 0;
    job->head.workspace = ALIGNED;
    job->gathers = target->backend == SKR_CUDA && bytes == 2 && job->x.at.col_stride == 1 && job->rows && job->up.n;
    job->x_pitch = skr_mul(skr_ceil_div(job->up.k, PITCH), PITCH);
    job->h_pitch = skr_mul(skr_ceil_div(job->down.k, PITCH), PITCH);
    job->sum.pitch = skr_mul(skr_ceil_div(job->down.n, PITCH), PITCH);
    job->h_at = skr_take(&at, skr_mul(job->rows, skr_mul(job->h_pitch, bytes)));
    /* Once h is there the rows of x are not needed any more: z takes their place. */
    job->x_at = job->z_at = skr_take(&at, skr_mul(job->rows, skr_mul(skr_max(job->sum.pitch, job->x_pitch), bytes)));
    job->scratch_at = at;
    plan->n_parts = N_WORKS;
    plan->part = part;
    plan->variant = "sum alone";
    int64_t end = at;
    skr_part p;
    for (int64_t i = 0; i < plan->n_parts; i++) {
        memset(&p, 0, sizeof p);
        p.plan.why = i == UP ? plan->why : NULL;
        SKR_TRY(part(call, job, target, i, &p));
        if (p.plan.n_steps)
            end = skr_max(end, skr_min(at + (int64_t)p.plan.workspace_bytes, SKR_HUGE));
        if (i == UP && p.plan.n_steps)
            plan->variant = p.plan.variant;
    }
    return skr_take_done(call, end, plan);
}
