/* gemm_cpu.c - gemm: panels, tiles of d, sums of dbias. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task of the main step makes a block of d: for each k block, for each panel of b (which stays in L1), for each panel
 * of a (from L2), one register tile. All sums of an element are made by one task in the order of k. */
#include "gemm_cpu.h"
#include "gemm_epilogue_cpu.h"
#include "gemm_micro_cpu.h"
#include "gemm_pack_cpu.h"
#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
#include "gemm_skinny_neon_cpu.h"
#endif
#if defined(SKR_LEVEL_neonmm)
#include "gemm_neonmm_cpu.h"
#elif defined(SKR_LEVEL_avx512) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#include "gemm_avx512_cpu.h"
#endif

SKR_FN void micro(int kind, int64_t k, const void *a, const void *b, float *t)
{
#if HAS_BF16
    if (kind == SKR_GEMM_BF16) {
        micro_bf16(k, a, b, t);
        return;
    }
#endif
#if HAS_I8
    if (kind == SKR_GEMM_I8) {
        micro_i8(k, a, b, t);
        return;
    }
#endif
    if (kind == SKR_GEMM_F32)
        micro_f32(k, a, b, t);
    else
        micro_int(k, a, b, (uint32_t *)t);
}

/* ---------------------------------------------------------------- columns and panels */

/* Panel p of b: which columns it has. Gated, panels come in pairs of gate and up for the same columns of d. */
typedef struct columns {
    int64_t n0;
    int step, n;
} columns;

static columns panel_columns(const job_t *job, int64_t p)
{
    int nr = job->tile.nr;
    int64_t j = (job->gated ? p / 2 : p) * nr, all = job->gated ? job->n / 2 : job->n;
    int n = all - j < nr ? (int)(all - j) : nr;
    if (!job->gated)
        return (columns){j, 1, n};
    if (job->gated == 1)
        return (columns){j + (p & 1) * all, 1, n};
    return (columns){2 * j + (p & 1), 2, n};
}

SKR_FN int64_t panel_bytes(const job_t *job, int rows)
{
    return job->seg_pad * job->segs * rows * kind_bytes(job->kind);
}

/* Panel p of k block `block`. */
static char *panel(const job_t *job, int is_b, int64_t batch, int64_t block, int64_t p)
{
    char *base = (char *)job->head.workspace + (is_b ? job->b_at : job->a_at);
    int64_t each = panel_bytes(job, is_b ? job->tile.nr : job->tile.mr);
    int64_t of_batch = is_b ? job->b_batch_bytes : job->a_batch_bytes;
    int64_t z = (is_b ? job->b_batches : job->a_batches) == 1 ? 0 : batch;
    return base + z * of_batch + (block * (is_b ? job->n_panels : job->m_panels) + p) * each;
}

static void pack_step(const job_t *job, int64_t task)
{
    int is_b = task >= job->a_tasks;
    task -= is_b ? job->a_tasks : 0;
    int64_t panels = is_b ? job->n_panels : job->m_panels;
    int64_t per_task = is_b ? job->b_panels_per_task : job->a_panels_per_task;
    int64_t tasks = (panels + per_task - 1) / per_task, batch = task / tasks, first = task % tasks * per_task;
    side s = side_of(job, is_b, batch);
    int R = is_b ? job->tile.nr : job->tile.mr;
    int64_t end = first + per_task < panels ? first + per_task : panels, rows = is_b ? job->n : job->m;
    int64_t whole = rows / R < end ? rows / R : end; /* panels without missing rows */
    int granule = is_b ? job->tile.kb : job->tile.ka;
    for (int64_t block = 0; block < job->n_blocks; block++) {
        int64_t p = first;
        if (s.rs == 1 && !(is_b && job->gated) && moved(job, &s) && granule <= 8 && whole > p) {
            pack_across(job, &s, p * R, whole - p, block, panel_bytes(job, R), panel(job, is_b, batch, block, p));
            p = whole;
        }
        for (; p < end; p++) {
            int64_t left = rows - p * R;
            columns c = {p * R, 1, left < R ? (int)left : R};
            if (is_b)
                c = panel_columns(job, p);
            pack_panel(job, &s, c.n0, c.step, c.n, block, panel(job, is_b, batch, block, p));
        }
    }
}

/* ---------------------------------------------------------------- one register tile */

/* t = a * scales (+ what t holds): the product of a segment, with the scales of its k's group. */
static void add_scaled(const job_t *job, const side *a, const side *b, int64_t m0, int rows, columns c, int64_t k0,
                       int fresh, const float *sums, float *t)
{
    int nr = job->tile.nr, ints = job->kind == SKR_GEMM_I8;
    _Alignas(64) float by_column[MAX_NR];
    for (int j = 0; j < nr; j++)
        by_column[j] = j < c.n ? scale_of(job, b, c.n0 + (int64_t)j * c.step, k0) : 0;
    for (int r = 0; r < rows; r++, sums += nr, t += nr) {
        vf by_row = v_set1(job->scaling == SKR_GEMM_BLOCK ? scale_of(job, a, m0 + r, k0) : 1);
        for (int j = 0; j < nr; j += SKR_LANES) {
            vf s = v_mul(by_row, v_load(SKR_F32, by_column, j));
            vf old = fresh ? v_set1(0.0f) : v_load(SKR_F32, t, j);
            v_store_float(SKR_F32, t, j, v_fma(sum_at(ints, sums, j), s, old));
        }
    }
}

/* What a task knows of its batch. */
typedef struct task_state {
    const job_t *job;
    side a, b;
    int64_t batch;
    finish_batch f;
    float *sums; /* of the k blocks so far */
    int64_t ld;
    char *b_panel; /* skinny: the panel at hand; gated: two */
} task_state;

/* t = this k block's part of the tile. */
static void block_tile(const task_state *s, int64_t block, const char *pa, const char *pb, int64_t m0, int rows,
                       columns c, float *t)
{
    const job_t *job = s->job;
    int size = kind_bytes(job->kind);
    int64_t pad;
    if ((job->scaling != SKR_GEMM_BLOCK && job->scaling != SKR_GEMM_GROUP) || job->kind == SKR_GEMM_F32) {
        segment_k(job, block, 0, &pad);
        micro(job->kind, pad, pa, pb, t);
        return;
    }
    _Alignas(64) float part[MAX_MR * MAX_NR];
    for (int64_t g = 0; g < job->segs; g++) {
        if (!segment_k(job, block, g, &pad))
            break;
        micro(job->kind, pad, pa + g * job->seg_pad * job->tile.mr * size, pb + g * job->seg_pad * job->tile.nr * size,
              part);
        add_scaled(job, &s->a, &s->b, m0, rows, c, (block * job->segs + g) * job->seg, g == 0, part, t);
    }
}

/* Sums of a tile over the k blocks: in `sums` until the last one. mode: first block stores there, middle ones add, the
 * last one adds to t. */
SKR_FN void add_tile(int ints, const float *from, int64_t from_ld, float *to, int64_t to_ld, const float *old,
                     int64_t old_ld, int mr, int nr)
{
    for (int r = 0; r < mr; r++)
        for (int j = 0; j < nr; j += SKR_LANES) {
            vf x = v_load(SKR_F32, from, r * from_ld + j), y = v_load(SKR_F32, old, r * old_ld + j);
            vf sum = ints ? v_of_bits(vi_add(v_bits(x), v_bits(y))) : v_add(y, x);
            v_store_float(SKR_F32, to, r * to_ld + j, sum);
        }
}

static void make_tile(const task_state *s, int64_t block, int64_t ip, int64_t m_panel, const char *pb, columns c,
                      int64_t jp, float *t)
{
    const job_t *job = s->job;
    int mr = job->tile.mr, nr = job->tile.nr;
    int64_t m0 = m_panel * mr, left = job->m - m0;
    int rows = left < mr ? (int)left : mr;
    block_tile(s, block, panel(job, 0, s->batch, block, m_panel), pb, m0, rows, c, t);
    if (job->n_blocks == 1)
        return;
    float *sums = s->sums + ip * mr * s->ld + jp * nr;
    if (block == 0) {
        for (int r = 0; r < rows; r++)
            __builtin_memcpy(sums + r * s->ld, t + r * nr, (size_t)nr * 4);
    } else if (block < job->n_blocks - 1) {
        add_tile(s->f.ints, t, nr, sums, s->ld, sums, s->ld, rows, nr);
    } else {
        add_tile(s->f.ints, t, nr, t, nr, sums, s->ld, rows, nr);
    }
}

/* ---------------------------------------------------------------- a block of d */

static const char *b_panel(const task_state *s, int64_t block, int64_t p, columns c, int half)
{
    if (!s->job->skinny)
        return panel(s->job, 1, s->batch, block, p);
    char *at = s->b_panel + half * panel_bytes(s->job, s->job->tile.nr);
    pack_panel(s->job, &s->b, c.n0, c.step, c.n, block, at);
    return at;
}

#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
/* Few rows: all columns of the task at once, k block by k block, then the epilogue panel by panel. The scratch memory
 * holds the block's sums, those so far, and room for the kernel. */
static void skinny_tiles(const task_state *s, int64_t n_first, int64_t n_panels)
{
    const job_t *job = s->job;
    int nr = job->tile.nr, rows = (int)job->m;
    int64_t n0 = n_first * nr, left = job->n - n0, ld = s->ld;
    int cols = left < n_panels * nr ? (int)left : (int)(n_panels * nr);
    float *sums = s->sums, *part = sums + job->tile.mr * ld, *spare = part + job->tile.mr * ld;
    int width = skinny_width(&s->b, cols);
    for (int j = 0; j < cols; j += width) {
        int n = cols - j < width ? cols - j : width;
        for (int64_t block = 0; block < job->n_blocks; block++) {
            const char *a = panel(job, 0, s->batch, block, 0);
            skinny_block(job, &s->a, &s->b, a, block, n0 + j, n, spare, block ? part : sums + j, ld);
            if (block)
                add_tile(s->f.ints, part, ld, sums + j, ld, sums + j, ld, rows, n);
        }
    }
    for (int j = 0; j < cols; j += nr) {
        _Alignas(64) float tile[MAX_MR * MAX_NR];
        finish_columns c;
        int n = cols - j < nr ? cols - j : nr;
        finish_take_columns(job, &s->f, n0 + j, 1, n, &c);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < nr; i++)
                tile[r * nr + i] = i < n ? sums[r * ld + j + i] : 0;
        finish(job, &s->f, 0, rows, nr, &c, tile, NULL, NULL, NULL);
    }
}
#endif

static void tiles_step(const job_t *job, int64_t task, int worker)
{
    int64_t mt = task % job->m_tiles, nt = task / job->m_tiles % job->n_tiles,
            batch = task / job->m_tiles / job->n_tiles;
    int64_t m_first = mt * job->tile_m, n_first = nt * job->tile_n;
    int64_t m_n = job->m_panels - m_first, n_n = job->n_panels - n_first;
    m_n = m_n < job->tile_m ? m_n : job->tile_m;
    n_n = n_n < job->tile_n ? n_n : job->tile_n;
    int mr = job->tile.mr, nr = job->tile.nr, pair = job->gated ? 2 : 1;
    char *scratch = (char *)job->head.workspace + job->scratch_at + worker * job->scratch_bytes;
    task_state s = {.job = job,
                    .a = side_of(job, 0, batch),
                    .b = side_of(job, 1, batch),
                    .batch = batch,
                    .f = finish_start(job, batch),
                    .sums = (float *)scratch,
                    .ld = job->tile_n * nr};
#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
    if (job->n_blocks && !job->dbias.data && skinny_direct(job, &s.b)) {
        skinny_tiles(&s, n_first, n_n);
        return;
    }
#endif
    s.b_panel = scratch + (job->n_blocks > 1 ? job->tile_m * mr * s.ld * 4 : 0);
    float *dbias = job->dbias.data
                       ? (float *)((char *)job->head.workspace + job->parts_at) + (batch * job->m_tiles + mt) * job->n
                       : NULL;
    _Alignas(64) float tile[2][MAX_MR * MAX_NR];
    int64_t blocks = job->n_blocks ? job->n_blocks : 1;
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t jp = 0; jp < n_n; jp += pair) {
            bool last = block == blocks - 1;
            columns c[2];
            finish_columns fc[2];
            float db[MAX_NR] = {0};
            const char *pb[2] = {NULL, NULL};
            for (int h = 0; h < pair; h++) {
                c[h] = panel_columns(job, n_first + jp + h);
                if (job->n_blocks)
                    pb[h] = b_panel(&s, block, n_first + jp + h, c[h], h);
                if (last)
                    finish_take_columns(job, &s.f, c[h].n0, c[h].step, c[h].n, &fc[h]);
            }
            for (int64_t ip = 0; ip < m_n; ip++) {
                int64_t m0 = (m_first + ip) * mr, left = job->m - m0;
                for (int h = 0; h < pair; h++) {
                    if (!job->n_blocks)
                        __builtin_memset(tile[h], 0, sizeof tile[h]);
                    else
                        make_tile(&s, block, ip, m_first + ip, pb[h], c[h], jp + h, tile[h]);
                }
                if (last)
                    finish(job, &s.f, m0, left < mr ? (int)left : mr, nr, &fc[0], tile[0], &fc[1], tile[1],
                           dbias ? db : NULL);
            }
            for (int j = 0; dbias && last && j < c[0].n; j++)
                dbias[c[0].n0 + j] = db[j];
        }
}

/* ---------------------------------------------------------------- dbias */

static void dbias_step(const job_t *job, int64_t task)
{
    const float *parts = (const float *)((const char *)job->head.workspace + job->parts_at);
    int64_t begin = task * SKR_GEMM_DBIAS_PIECE, end = begin + SKR_GEMM_DBIAS_PIECE;
    int64_t n_parts = job->m_tiles * job->batch.m;
    for (int64_t j = begin; j < end && j < job->n; j++) {
        double sum = job->accumulate ? one_float(job->dbias.type, job->dbias.data, j * job->dbias.stride) : 0;
        for (int64_t p = 0; p < n_parts; p++)
            sum += parts[p * job->n + j];
        float rounded = (float)sum;
        store_run(job->dbias.type, job->dbias.data, j * job->dbias.stride, 2, 1, &rounded);
    }
}

void SKR_KERNEL(gemm)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(gemm)(const void *job, int step, int64_t task, int worker)
{
    if (step == SKR_GEMM_PACK) {
        pack_step(job, task);
    } else if (step == SKR_GEMM_TILES) {
#if defined(SKR_LEVEL_amx)
        amx_begin(); /* tile state is the thread's: taken and given back by each task */
#endif
        tiles_step(job, task, worker);
#if defined(SKR_LEVEL_amx)
        amx_end();
#endif
    } else {
        dbias_step(job, task);
    }
}
