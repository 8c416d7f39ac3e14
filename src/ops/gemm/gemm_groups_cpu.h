/* gemm_groups_cpu.h - grouped_gemm: each task makes gemm's job for its group and runs gemm's parts with it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first step reads offsets and writes a table of the groups: which rows (k's) each has, and where its panels and
 * its tiles begin. Offsets are data: whatever they hold, the table stays within the tensors. */
#ifndef SKR_GEMM_GROUPS_CPU_H
#define SKR_GEMM_GROUPS_CPU_H

#include "gemm_cpu.h"

typedef skr_grouped_gemm_job groups_t;

static skr_gemm_group *group_table(const groups_t *job)
{
    return (skr_gemm_group *)((char *)job->gemm.head.workspace + job->table_at);
}

/* Rows of no group: zeros. */
static void clear_rows(const skr_gemm_matrix *m, int64_t cols, int64_t begin, int64_t end)
{
    size_t bytes = (size_t)skr_type_bytes(m->at.type);
    for (int64_t r = begin; m->at.data && r < end; r++)
        for (int64_t j = 0; j < cols; j++)
            __builtin_memset((char *)m->at.data + (size_t)(r * m->row + j * m->at.col_stride) * bytes, 0, bytes);
}

static void table_step(const groups_t *job)
{
    const job_t *g = &job->gemm;
    skr_gemm_group *table = group_table(job), at = {0, 0, 0, 0};
    int64_t last = index_at(&job->offsets, 0);
    at.first = last < 0 ? 0 : last > job->total ? job->total : last;
    bool sound = last == 0;
    int64_t start = at.first;
    for (int64_t i = 0; i < job->groups; i++) {
        int64_t end = index_at(&job->offsets, i + 1);
        sound &= end >= at.first && end <= job->total;
        end = end < at.first ? at.first : end > job->total ? job->total : end;
        at.count = end - at.first;
        table[i] = at;
        int unit = job->along_k ? g->tile.granule : g->tile.mr;
        int64_t units = (at.count + unit - 1) / unit;
        at.first = end;
        at.panels += job->along_k ? units * unit : units;
        at.tiles += (units + g->tile_m - 1) / g->tile_m;
    }
    at.count = 0;
    table[job->groups] = at;
    if (!sound || at.first != job->total)
        bad_index(&g->head);
    if (job->along_k)
        return;
    for (int64_t r = start; !g->k && r < at.first; r++) /* nobody else looks at gather then */
        row_of_a(g, r);
    int64_t ends[2][2] = {{0, start}, {at.first, job->total}};
    for (int i = 0; i < 2; i++) {
        if (!g->scatter.data) /* with it, rows of d that no row goes to are the caller's */
            clear_rows(&g->d, g->gated ? g->n / 2 : g->n, ends[i][0], ends[i][1]);
        clear_rows(&g->pre, g->n, ends[i][0], ends[i][1]);
    }
}

static void advance(skr_gemm_matrix *m, int64_t elements)
{
    if (m->at.data)
        m->at.data = (char *)m->at.data + elements * skr_type_bytes(m->at.type);
}

static void advance_param(skr_param *p, int64_t elements)
{
    if (p->data)
        p->data = (char *)p->data + elements * skr_type_bytes(p->type);
}

/* Group i of rows as a product of its own. */
static job_t job_of_rows(const groups_t *job, int64_t i)
{
    job_t g = job->gemm;
    const skr_gemm_group *at = &group_table(job)[i];
    g.m = at->count;
    g.m_panels = (at->count + g.tile.mr - 1) / g.tile.mr;
    g.m_tiles = (g.m_panels + g.tile_m - 1) / g.tile_m;
    g.a_at += at->panels * g.a_batch_bytes;
    if (!g.gather.data) {
        advance(&g.a, at->first * g.a.row);
        if (g.scaling > SKR_GEMM_TENSOR)
            advance(&g.a_scale, at->first * (g.scaling == SKR_GEMM_BLOCK ? g.a_scale.row : g.a_scale.at.col_stride));
    }
    advance_param(&g.gather, at->first * g.gather.stride);
    if (!g.scatter.data)
        advance(&g.d, at->first * g.d.row);
    advance_param(&g.scatter, at->first * g.scatter.stride);
    advance(&g.pre, at->first * g.pre.row);
    advance(&g.saved, at->first * g.saved.row);
    advance_param(&g.bias, i * job->bias_stride);
    return g;
}

/* Group i of k's. */
static job_t job_of_ks(const groups_t *job, int64_t i)
{
    job_t g = job->gemm;
    const skr_gemm_group *at = &group_table(job)[i];
    int64_t size = skr_kind_bytes(g.kind), block = g.tile.kc;
    g.k = at->count;
    g.seg = g.k < block ? g.k : block;
    g.seg_pad = (g.seg + g.tile.granule - 1) / g.tile.granule * g.tile.granule;
    g.n_blocks = (g.k + block - 1) / block;
    g.a_at += at->panels * g.m_panels * g.tile.mr * size;
    g.b_at += at->panels * g.n_panels * g.tile.nr * size;
    advance(&g.a, at->first * g.a.at.col_stride);
    advance(&g.b, at->first * g.b.row);
    return g;
}

/* The group that tile t of rows belongs to; job->groups when there is no such tile. */
static int64_t group_of_tile(const groups_t *job, int64_t t)
{
    const skr_gemm_group *table = group_table(job);
    if (t >= table[job->groups].tiles)
        return job->groups;
    int64_t low = 0, high = job->groups; /* tiles[low] <= t < tiles[high] */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (table[mid].tiles <= t)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static void rows_step(const groups_t *job, int step, int64_t task, int worker)
{
    int64_t n_tiles = step == SKR_GROUPED_PACK ? 1 : job->gemm.n_tiles, t = task / n_tiles;
    int64_t i = group_of_tile(job, t);
    if (i == job->groups)
        return;
    job_t g = job_of_rows(job, i);
    int64_t mt = t - group_table(job)[i].tiles, end = (mt + 1) * g.tile_m;
    if (step == SKR_GROUPED_PACK)
        pack_panels(&g, 0, i, all_panels(&g, 0, i), mt * g.tile_m, end < g.m_panels ? end : g.m_panels);
    else
        make_block(&g, (block_of_d){i, mt, task % n_tiles}, 0, worker);
}

static void ks_step(const groups_t *job, int step, int64_t task, int worker)
{
    const job_t *all = &job->gemm;
    int64_t each = step == SKR_GROUPED_PACK ? all->a_tasks + all->b_tasks : all->m_tiles * all->n_tiles;
    int64_t i = task / each;
    job_t g = job_of_ks(job, i);
    task %= each;
    if (step == SKR_GROUPED_PACK)
        pack_step(&g, task);
    else
        make_block(&g, (block_of_d){i, task % g.m_tiles, task / g.m_tiles}, 0, worker);
}

void SKR_KERNEL(grouped_gemm)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(grouped_gemm)(const void *job, int step, int64_t task, int worker)
{
    const groups_t *j = job;
    if (step == SKR_GROUPED_TABLE) {
        table_step(j);
        return;
    }
    tiles_begin();
    (j->along_k ? ks_step : rows_step)(j, step, task, worker);
    tiles_end();
}

#endif
