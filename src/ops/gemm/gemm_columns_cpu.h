/* gemm_columns_cpu.h - blocks of d that have all rows, on CPUs with AMX: tasks share nothing of b.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task packs its columns of b for itself, into memory that stays in L2, and rows of a pass by: what other caches and
 * memory are asked for is b once, and a once for each task. Where AMX can load a's tiles as they lie a is not packed.
 */
#ifndef SKR_GEMM_COLUMNS_CPU_H
#define SKR_GEMM_COLUMNS_CPU_H

/* Panel ip of a in k block `block`. tail: the last one, which has rows missing, where a is used as it lies. */
static const char *rows_of_a(task_state *s, int64_t block, int64_t ip, panels tail)
{
    const job_t *job = s->job;
    s->a_row = 0;
    if (!job->a_lies)
        return panel(job, 0, s->batch, block, ip);
    if (ip == tail.first)
        return panel_in(job, 0, tail, block, ip);
    int size = skr_kind_bytes(job->kind);
    s->a_row = s->a.rs * size;
    return (const char *)s->a.data + (s->a.at + ip * job->tile.mr * s->a.rs + block * job->segs * job->seg) * size;
}

/* Where the scales of panel p of the task's columns are in a k block; for all of these blocks and panels they are taken
 * once. */
static float *scales_of(const task_state *s, float *all, int64_t block, int64_t p)
{
    return all + (block * s->job->tile_n + p) * s->job->segs * 2 * s->job->tile.nr;
}

static void make_columns(const job_t *job, block_of_d where, int worker)
{
    int64_t n_first = where.nt * job->tile_n, n_n = job->n_panels - n_first, whole = job->m / job->tile.mr;
    n_n = n_n < job->tile_n ? n_n : job->tile_n;
    int mr = job->tile.mr, nr = job->tile.nr, step = job->gated ? 2 : 1;
    task_state s = start_task(job, where.batch, worker);
    panels b = all_panels(job, 1, s.batch), tail = {s.b_panel, whole, 1};
    if (!job->packed) {
        b = (panels){s.b_panel, n_first, n_n};
        tail.at += job->tile_n * job->b_panel_bytes;
        pack_panels(job, 1, s.batch, b, n_first, n_first + n_n);
    }
    if (job->a_lies && whole < job->m_panels)
        pack_panels(job, 0, s.batch, tail, whole, whole + 1);
    panel_pair pairs[SKR_GEMM_COLUMN_PANELS];
    for (int64_t jp = 0; jp < n_n; jp += step)
        take_pair(&s, n_first + jp, &pairs[jp / step]);
    float *scales = s.scales;
    for (int64_t i = 0; scaled_apart(job) && i < job->n_blocks * n_n; i++) {
        int64_t block = i / n_n, jp = i % n_n;
        s.scales = scales_of(&s, scales, block, jp - jp % step);
        take_scales(&s, block, pairs[jp / step].c[jp % step]);
    }
    for (int64_t first = 0; first < job->m_panels; first += job->tile_m) {
        int64_t left = job->m_panels - first, end = first + (left < job->tile_m ? left : job->tile_m);
        for (int64_t block = 0; block < job->n_blocks; block++)
            for (int64_t ip = first; ip < end; ip++) {
                int64_t m0 = ip * mr;
                int rows = job->m - m0 < mr ? (int)(job->m - m0) : mr;
                const char *pa = rows_of_a(&s, block, ip, tail);
                for (int64_t jp = 0; jp < n_n; jp += step) {
                    _Alignas(64) float tile[2][MAX_MR * MAX_NR];
                    const panel_pair *p = &pairs[jp / step];
                    if (scaled_apart(job))
                        s.scales = scales_of(&s, scales, block, jp);
                    for (int h = 0; h < step; h++)
                        make_tile(&s, block, ip - first, pa, m0, rows, panel_in(job, 1, b, block, n_first + jp + h),
                                  p->c[h], jp + h, tile[h]);
                    if (block == job->n_blocks - 1)
                        finish(job, &s.f, m0, rows, nr, &p->finish[0], tile[0], &p->finish[1], tile[1], NULL);
                }
            }
    }
}

#endif
