/* gemm_skinny_cpu.h - few rows: b is read once, as it lies, by the level's own kernels; columns of d are the tasks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_SKINNY_CPU_H
#define SKR_GEMM_SKINNY_CPU_H

#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
/* Whether few rows can use b as it lies. */
static bool skinny_as_it_lies(const job_t *job, const side *b)
{
#if defined(SKR_LEVEL_neonmm)
    if (skinny_groups(job, b))
        return true;
#endif
    return skinny_bytes(job, b) || skinny_direct(job, b);
}

/* The sums of columns n0 ... of few rows. Scratch memory holds the sums so far, those of a k block, and room for as
 * much as a's panel. */
static void skinny_sums(const task_state *s, const char *a, int64_t n0, int cols, float *sums)
{
    const job_t *job = s->job;
    int64_t ld = s->ld;
    float *part = s->sums + job->tile.mr * ld;
    char *room = (char *)(part + job->tile.mr * ld);
    bool groups = false;
#if defined(SKR_LEVEL_neonmm)
    groups = skinny_groups(job, &s->b);
    if (groups && skinny_dots(job)) {
        groups_by_dots(job, &s->b, a, n0, cols, room, sums, ld);
        return;
    }
    if (groups && job->kind == SKR_GEMM_BF16) {
        groups_by_widening(job, &s->b, a, n0, cols, sums, ld);
        return;
    }
    if (groups) {
        even_odd((const uint8_t *)a, job->k, (uint8_t *)room);
        a = room;
    }
#endif
    if (skinny_bytes(job, &s->b)) {
        bytes_by_columns(job, &s->b, a, n0, cols, room, sums, ld);
        return;
    }
    if (!groups && s->b.ks == 1) {
        skinny_by_columns(job, &s->a, &s->b, a, n0, cols, room, sums, ld);
        return;
    }
    int width = groups ? WIDE : cols; /* a stream of k's should be long, a row of columns too */
    for (int j = 0; j < cols; j += width) {
        int n = cols - j < width ? cols - j : width;
        for (int64_t block = 0; block < job->n_blocks; block++) {
            float *out = block ? part : sums + j;
#if defined(SKR_LEVEL_neonmm)
            if (groups)
                groups_block(job, &s->b, (const uint8_t *)a, block, n0 + j, n, out, ld);
            else
#endif
                skinny_by_rows(job, &s->b, a, block, n0 + j, n, out, ld);
            if (block)
                add_tile(s->f.ints, part, ld, sums + j, ld, sums + j, ld, (int)job->m, n);
        }
    }
}
#elif !defined(SKR_LEVEL_scalar)
static bool skinny_as_it_lies(const job_t *job, const side *b)
{
    return skinny_columns(job, b) || skinny_rows(job, b);
}

static void skinny_sums(const task_state *s, const char *a, int64_t n0, int cols, float *sums)
{
    const job_t *job = s->job;
    float *part = s->sums + job->tile_m * job->tile.mr * s->ld;
    if (skinny_columns(job, &s->b)) {
        skinny_by_columns(job, &s->b, a, n0, cols, sums, s->ld);
        return;
    }
    for (int64_t block = 0; block < job->n_blocks; block++) {
        skinny_by_rows(job, &s->b, a, block, n0, cols, block ? part : sums, s->ld);
        if (block)
            add_tile(s->f.ints, part, s->ld, sums, s->ld, sums, s->ld, (int)job->m, cols);
    }
}
#endif

#if !defined(SKR_LEVEL_scalar)
/* Few rows: all columns of the task at once, then the epilogue panel by panel. Gated, the sums of gate and up are side
 * by side, or in turn, as the columns of b are. */
static void skinny_tiles(const task_state *s, int64_t n_first, int64_t n_panels)
{
    const job_t *job = s->job;
    int nr = job->tile.nr, rows = (int)job->m, pair = job->gated ? 2 : 1,
        step = job->gated == SKR_GEMM_INTERLEAVED ? 2 : 1;
    int64_t n0 = n_first / pair * nr, all = job->n / pair, left = all - n0, most = n_panels / pair * nr;
    int cols = left < most ? (int)left : (int)most;
    int64_t up = step == 2 ? 1 : most;             /* from gate's sums to up's */
    const char *a = panel(job, 0, s->batch, 0, 0); /* the k blocks of all panels follow each other */
    skinny_sums(s, a, n0 * step, cols * step, s->sums);
    if (job->gated && step == 1)
        skinny_sums(s, a, all + n0, cols, s->sums + up);
    for (int j = 0; j < cols; j += nr) {
        _Alignas(64) float tile[2][MAX_MR * MAX_NR];
        finish_columns fc[2];
        for (int h = 0; h < pair; h++) {
            columns c = panel_columns(job, n_first + j / nr * pair + h);
            finish_take_columns(job, &s->f, c.n0, c.step, c.n, &fc[h]);
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < nr; i++)
                    tile[h][r * nr + i] = i < c.n ? s->sums[r * s->ld + (j + i) * step + h * up] : 0;
        }
        finish(job, &s->f, 0, rows, nr, &fc[0], tile[0], job->gated ? &fc[1] : NULL, tile[1], NULL);
    }
}
#endif

#endif
