/* gemm_cpu.c - gemm: panels, tiles of d, sums of dbias. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task of the main step makes a block of d: for each k block, for each panel of b (which stays in L1), for each panel
 * of a (from L2), one register tile. All sums of an element are made by one task in the order of k. */
#include "gemm_cpu.h"
#include "gemm_epilogue_cpu.h"
#include "gemm_pack_cpu.h"
#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
#include "gemm_skinny_groups_neon_cpu.h"
#include "gemm_skinny_ints_neon_cpu.h"
#include "gemm_skinny_neon_cpu.h"
#elif !defined(SKR_LEVEL_scalar)
#include "gemm_skinny_rows_x86_cpu.h"
#include "gemm_skinny_x86_cpu.h"
#endif

/* ---------------------------------------------------------------- columns and panels */

/* Panel p of b: which columns it has. Gated, panels come in pairs of gate and up for the same columns of d. */
typedef struct columns {
    int64_t n0;
    int step, n, half; /* half: 1 for up */
} columns;

static columns panel_columns(const job_t *job, int64_t p)
{
    int nr = job->tile.nr;
    int64_t j = (job->gated ? p / 2 : p) * nr, all = job->gated ? job->n / 2 : job->n;
    int n = all - j < nr ? (int)(all - j) : nr;
    int half = job->gated ? (int)(p & 1) : 0;
    if (!job->gated)
        return (columns){j, 1, n, 0};
    if (job->gated == 1)
        return (columns){j + half * all, 1, n, half};
    return (columns){2 * j + half, 2, n, half};
}

/* Where `count` panels, from panel `first` on, stand: k block by k block. */
typedef struct panels {
    char *at;
    int64_t first, count;
} panels;

/* All panels of a batch. */
static panels all_panels(const job_t *job, int is_b, int64_t batch)
{
    char *base = is_b && job->packed ? job->packed : (char *)job->head.workspace + (is_b ? job->b_at : job->a_at);
    int64_t of_batch = is_b ? job->b_batch_bytes : job->a_batch_bytes;
    int64_t z = (is_b ? job->b_batches : job->a_batches) == 1 ? 0 : batch;
    return (panels){base + z * of_batch, 0, is_b ? job->n_panels : job->m_panels};
}

/* Panel p of k block `block`. */
static char *panel_in(const job_t *job, int is_b, panels in, int64_t block, int64_t p)
{
    int R = is_b ? job->tile.nr : job->tile.mr;
    return in.at + block * in.count * panel_bytes(job, R, 0) + (p - in.first) * panel_bytes(job, R, block);
}

static char *panel(const job_t *job, int is_b, int64_t batch, int64_t block, int64_t p)
{
    return panel_in(job, is_b, all_panels(job, is_b, batch), block, p);
}

/* Panels first ... end - 1 of a or b, all k blocks. */
static void pack_panels(const job_t *job, int is_b, int64_t batch, panels to, int64_t first, int64_t end)
{
    if (!job->n_blocks) /* without k's there are no panels */
        return;
    side s = side_of(job, is_b, batch);
    int R = is_b ? job->tile.nr : job->tile.mr;
    int64_t rows = is_b ? job->n : job->m;
    int64_t whole = rows / R < end ? rows / R : end; /* panels without missing rows */
    int granule = is_b ? job->tile.kb : job->tile.ka;
#if defined(SKR_GEMM_SKINNY_X86_CPU_H)
    side b = side_of(job, 1, batch);
    if (!is_b && skinny_columns(job, &b)) { /* all rows at once */
        if (first == 0)
            pack_few_rows(job, &s, &b, panel_in(job, 0, to, 0, 0));
        return;
    }
#endif
    for (int64_t block = 0; block < job->n_blocks; block++) {
        int64_t p = first;
        bool in_place = is_b ? !job->gated : !job->gather.data;
        if (s.rs == 1 && in_place && moved(job, &s) && granule <= 8 && whole > p) {
            pack_across(job, &s, p * R, whole - p, block, panel_bytes(job, R, block),
                        panel_in(job, is_b, to, block, p));
            p = whole;
        }
        for (; p < end; p++) {
            int64_t left = rows - p * R;
            columns c = {p * R, 1, left < R ? (int)left : R, 0};
            if (is_b)
                c = panel_columns(job, p);
            pack_panel(job, &s, c.n0, c.step, c.n, block, panel_in(job, is_b, to, block, p));
        }
    }
#if defined(SKR_LEVEL_neonmm)
    side b = side_of(job, 1, batch);
    if (!is_b && skinny_widened(job, &b)) /* one panel: its k blocks follow each other */
        two_rows(job->k, (uint8_t *)panel_in(job, 0, to, 0, 0));
#endif
}

/* Task `task` of one side: some panels of one batch. */
static void pack_task(const job_t *job, int is_b, int64_t task)
{
    int64_t count = is_b ? job->n_panels : job->m_panels;
    int64_t per_task = is_b ? job->b_panels_per_task : job->a_panels_per_task;
    int64_t tasks = (count + per_task - 1) / per_task, first = task % tasks * per_task;
    int64_t batch = task / tasks, end = first + per_task < count ? first + per_task : count;
    pack_panels(job, is_b, batch, all_panels(job, is_b, batch), first, end);
}

/* Task `task` of both sides: those of b, which are larger, come first. */
static void pack_step(const job_t *job, int64_t task)
{
    int is_b = task < job->b_tasks;
    pack_task(job, is_b, is_b ? task : task - job->b_tasks);
}

/* ---------------------------------------------------------------- one register tile */

/* What a task knows of its batch. */
typedef struct task_state {
    const job_t *job;
    side a, b;
    int64_t batch;
    finish_batch f;
    float *scales; /* of the columns of the panel at hand, for each segment, twice; gated: of two */
    float *sums;   /* of the k blocks so far */
    int64_t ld;
    char *b_panel;     /* skinny: the panel at hand; gated: two. By columns: all of the task's, and a's last one */
    int64_t a_row;     /* AMX: bytes from row to row of a where it is multiplied as it lies; 0: it is a panel */
    const char *ahead; /* AMX: what the tile at hand asks L2 for, so many lines in each step */
    int lines;
} task_state;

#if defined(SKR_LEVEL_neonmm)
/* Whether the register tile can scale its sums: by column only, and integers if they are small enough. */
static bool scaled_in_tile(const job_t *job)
{
    int product_bits = job->b.at.type == SKR_I4 ? 10 : 14;
    bool small = job->kind != SKR_GEMM_I8 || job->seg <= (int64_t)1 << (MM_SUM_BITS - product_bits);
    return small && !(job->scaling == SKR_GEMM_BLOCK && job->a_scale.at.data);
}
#endif

/* Scales of the columns of a panel: room for each twice. */
static float *scales_at(const task_state *s, columns c)
{
    return s->scales + c.half * s->job->segs * 2 * s->job->tile.nr;
}

/* Scales of the columns of a panel of b in one k block. */
static void take_scales(const task_state *s, int64_t block, columns c)
{
    const job_t *job = s->job;
    int nr = job->tile.nr;
    float *to = scales_at(s, c);
    const skr_gemm_matrix *m = &job->b_scale;
    bool neighbours = job->scaling == SKR_GEMM_GROUP && m->at.data && m->at.col_stride == 1 && c.step == 1 && c.n == nr;
    for (int64_t g = 0; g < job->segs; g++, to += nr) {
        int64_t k0 = (block * job->segs + g) * job->seg;
        if (neighbours && k0 < job->k) {
            const float *from = (const float *)m->at.data + s->b.scale_at + k0 / job->group * m->row + c.n0;
            __builtin_memcpy(to, from, (size_t)nr * sizeof *to);
            continue;
        }
        for (int j = 0; j < nr; j++)
            to[j] = j < c.n && k0 < job->k ? scale_of(job, &s->b, c.n0 + (int64_t)j * c.step, k0) : 0;
    }
#if defined(SKR_LEVEL_neonmm)
    if (scaled_in_tile(job))
        mm_twice(job->segs, scales_at(s, c));
#endif
}

/* t = sums * scales (+ what t holds): the product of segment g of a k block. */
SKR_FN void add_scaled_body(int ints, int by_row, const task_state *s, int64_t m0, int rows, int64_t k0,
                            const float *scales, int fresh, const float *sums, float *t)
{
    enum { nr = PANEL }; /* of every kind that is scaled apart */
    for (int r = 0; r < rows; r++, sums += nr, t += nr) {
        vf row = v_set1(by_row ? scale_of(s->job, &s->a, m0 + r, k0) : 1);
        SKR_UNROLL
        for (int j = 0; j < nr; j += SKR_LANES) {
            vf scale = v_load(SKR_F32, scales, j);
            scale = by_row ? v_mul(row, scale) : scale;
            vf old = fresh ? v_set1(0.0f) : v_load(SKR_F32, t, j);
            v_store_float(SKR_F32, t, j, v_fma(sum_at(ints, sums, j), scale, old));
        }
    }
}

static void add_scaled(const task_state *s, int64_t m0, int rows, int64_t k0, const float *scales, int fresh,
                       const float *sums, float *t)
{
    int ints = s->job->kind == SKR_GEMM_I8, by_row = s->job->scaling == SKR_GEMM_BLOCK && s->job->a_scale.at.data;
    if (ints && by_row)
        add_scaled_body(1, 1, s, m0, rows, k0, scales, fresh, sums, t);
    else if (ints)
        add_scaled_body(1, 0, s, m0, rows, k0, scales, fresh, sums, t);
    else if (by_row)
        add_scaled_body(0, 1, s, m0, rows, k0, scales, fresh, sums, t);
    else
        add_scaled_body(0, 0, s, m0, rows, k0, scales, fresh, sums, t);
}

/* Sums that are whole numbers become integers. A product of bytes is at most 2^14: those of a k block are exact. */
static void whole_tile(int n, float *t)
{
    _Static_assert(TILE(F32, KC) <= 1 << (24 - 14), "sums of a k block are exact in f32");
    for (int i = 0; i < n; i++)
        t[i] = skr_float((uint32_t)(int32_t)t[i]);
}

/* t = a's panel, or rows of a as they lie, times a panel of b. */
static void multiply(const task_state *s, int64_t k, const char *pa, const char *pb, float *t)
{
#if defined(SKR_LEVEL_amx)
    if (s->a_row) {
        micro_lying(s->job->kind, k, pa, s->a_row, pb, t);
        return;
    }
#endif
    micro(s->job->kind, k, pa, pb, t);
}

/* t = this k block's part of the tile. */
static void block_tile(const task_state *s, int64_t block, const char *pa, const char *pb, int64_t m0, int rows,
                       columns c, float *t)
{
    const job_t *job = s->job;
    int size = skr_kind_bytes(job->kind), mr = job->tile.mr, nr = job->tile.nr;
    int64_t pad;
    if (!scaled_apart(job)) {
        segment_k(job, block, 0, &pad);
#if defined(SKR_LEVEL_amx)
        if (s->lines)
            micro_ahead(job->kind, pad, pa, pb, t, s->ahead, s->lines);
        else
#endif
            multiply(s, pad, pa, pb, t);
        if (job->whole)
            whole_tile(mr * nr, t);
        return;
    }
    const float *scales = scales_at(s, c);
    _Alignas(64) float part[MAX_MR * MAX_NR];
#if defined(SKR_LEVEL_neonmm)
    if (scaled_in_tile(job)) {
        int64_t k = job->k - block * job->segs * job->seg, whole = k / job->seg < job->segs ? k / job->seg : job->segs;
        __builtin_memset(part, 0, (size_t)(mr * nr) * sizeof *part);
        if (whole)
            micro_scaled(job->kind, whole, job->seg_pad, pa, pb, scales, part);
        if (whole < job->segs && segment_k(job, block, whole, &pad))
            micro_scaled(job->kind, 1, pad, pa + whole * job->seg_pad * mr * size,
                         pb + whole * job->seg_pad * nr * size, scales + whole * 2 * nr, part);
        mm_rows(part, t);
        return;
    }
#endif
    int64_t next = job->seg_pad * (s->a_row ? 1 : mr) * size; /* from segment to segment of a */
    for (int64_t g = 0; g < job->segs; g++, scales += nr) {
        if (!segment_k(job, block, g, &pad))
            break;
        multiply(s, pad, pa + g * next, pb + g * job->seg_pad * nr * size, part);
        add_scaled(s, m0, rows, (block * job->segs + g) * job->seg, scales, g == 0, part, t);
    }
}

/* to = old + from; without `old`, from. */
SKR_FN void add_rows(int ints, int nr, const float *from, int64_t from_ld, float *to, int64_t to_ld, const float *old,
                     int64_t old_ld, int rows)
{
    for (int r = 0; r < rows; r++)
        SKR_UNROLL
    for (int j = 0; j < nr; j += SKR_LANES) {
        vf sum = v_load(SKR_F32, from, r * from_ld + j);
        if (old) {
            vf y = v_load(SKR_F32, old, r * old_ld + j);
            sum = ints ? v_of_bits(vi_add(v_bits(sum), v_bits(y))) : v_add(y, sum);
        }
        v_store_float(SKR_F32, to, r * to_ld + j, sum);
    }
}

/* Rows of PANEL floats are the ones that count: known, and with or without `old`, they are loops of a few stores. */
static void add_tile(int ints, const float *from, int64_t from_ld, float *to, int64_t to_ld, const float *old,
                     int64_t old_ld, int rows, int nr)
{
    if (ints)
        add_rows(1, nr, from, from_ld, to, to_ld, old, old_ld, rows);
    else if (nr != PANEL)
        add_rows(0, nr, from, from_ld, to, to_ld, old, old_ld, rows);
    else if (old)
        add_rows(0, PANEL, from, from_ld, to, to_ld, old, old_ld, rows);
    else
        add_rows(0, PANEL, from, from_ld, to, to_ld, NULL, 0, rows);
}

/* Sums of a tile over the k blocks: in `sums` until the last one. The first block stores there, middle ones add, the
 * last one adds to t. */
static void make_tile(const task_state *s, int64_t block, int64_t ip, const char *pa, int64_t m0, int rows,
                      const char *pb, columns c, int64_t jp, float *t)
{
    const job_t *job = s->job;
    int mr = job->tile.mr, nr = job->tile.nr;
    block_tile(s, block, pa, pb, m0, rows, c, t);
    if (job->n_blocks == 1)
        return;
    float *sums = s->sums + ip * mr * s->ld + jp * nr;
    if (block == 0)
        add_tile(s->f.ints, t, nr, sums, s->ld, NULL, 0, rows, nr);
    else if (block < job->n_blocks - 1)
        add_tile(s->f.ints, t, nr, sums, s->ld, sums, s->ld, rows, nr);
    else
        add_tile(s->f.ints, t, nr, t, nr, sums, s->ld, rows, nr);
}

/* ---------------------------------------------------------------- a block of d */

/* Panel p of b, and its columns' scales. */
static const char *b_panel(const task_state *s, int64_t block, int64_t p, columns c)
{
    if (scaled_apart(s->job))
        take_scales(s, block, c);
    if (!s->job->skinny || s->job->packed)
        return panel(s->job, 1, s->batch, block, p);
    char *at = s->b_panel + c.half * panel_bytes(s->job, s->job->tile.nr, 0);
    pack_panel(s->job, &s->b, c.n0, c.step, c.n, block, at);
    return at;
}

#include "gemm_skinny_cpu.h"

/* Which block of d a task makes. */
typedef struct block_of_d {
    int64_t batch, mt, nt;
} block_of_d;

static block_of_d block_at(const job_t *job, int64_t task)
{
    return (block_of_d){task / job->m_tiles / job->n_tiles, task % job->m_tiles, task / job->m_tiles % job->n_tiles};
}

static task_state start_task(const job_t *job, int64_t batch, int worker)
{
    char *scratch = (char *)job->head.workspace + job->scratch_at + worker * job->scratch_bytes;
    int64_t ld = job->tile_n * job->tile.nr;
    float *scales = (float *)scratch;
    scratch += job->scale_bytes;
    return (task_state){.job = job,
                        .a = side_of(job, 0, batch),
                        .b = side_of(job, 1, batch),
                        .batch = batch,
                        .f = finish_start(job, batch),
                        .scales = scales,
                        .sums = (float *)scratch,
                        .ld = ld,
                        .b_panel = scratch + (job->n_blocks > 1 ? job->tile_m * job->tile.mr * ld * 4 : 0)};
}

/* Sums of the k blocks of one block of d, when they are tasks of their own: blocks one after the other. */
static float *split_sums(const job_t *job, int64_t task)
{
    return (float *)((char *)job->head.workspace + job->split_at + task * job->n_blocks * job->split_bytes);
}

/* One k block of a block of d. */
static void parts_step(const job_t *job, int64_t task, int worker)
{
    int64_t block = task % job->n_blocks;
    block_of_d where = block_at(job, task / job->n_blocks);
    task_state s = start_task(job, where.batch, worker);
    int mr = job->tile.mr, nr = job->tile.nr;
    float *out = split_sums(job, task / job->n_blocks) + block * (job->split_bytes / 4);
    int64_t m_first = where.mt * job->tile_m, n_first = where.nt * job->tile_n;
    for (int64_t jp = 0; jp < job->tile_n && n_first + jp < job->n_panels; jp++) {
        columns c = panel_columns(job, n_first + jp);
        const char *pb = b_panel(&s, block, n_first + jp, c);
        for (int64_t ip = 0; ip < job->tile_m && m_first + ip < job->m_panels; ip++) {
            int64_t m0 = (m_first + ip) * mr, left = job->m - m0;
            block_tile(&s, block, panel(job, 0, s.batch, block, m_first + ip), pb, m0, left < mr ? (int)left : mr, c,
                       out + (jp * job->tile_m + ip) * mr * nr);
        }
    }
}

/* Tile (ip, jp) of a block of d from its k blocks' sums, in their order. */
static void join_parts(const task_state *s, const float *parts, int64_t ip, int64_t jp, float *t)
{
    const job_t *job = s->job;
    int mr = job->tile.mr, nr = job->tile.nr;
    parts += (jp * job->tile_m + ip) * mr * nr;
    __builtin_memcpy(t, parts, (size_t)mr * (size_t)nr * 4);
    for (int64_t block = 1; block < job->n_blocks; block++)
        add_tile(s->f.ints, parts + block * (job->split_bytes / 4), nr, t, nr, t, nr, mr, nr);
}

/* Tile ip of the m_n that use panel pb asks L2 for its share of the panel that lies `bytes` behind: the next one comes
 * from another core's cache, or from memory. */
static void look_ahead(task_state *s, int64_t block, const char *pb, int64_t bytes, int64_t ip, int64_t m_n)
{
#if defined(SKR_LEVEL_amx)
    if (s->job->kind == SKR_GEMM_F32 || s->job->kind == SKR_GEMM_INT)
        return;
    int64_t steps = panel_bytes(s->job, s->job->tile.nr, block) / AMX_STEP;
    s->lines = (int)(AMX_STEP / 64 / m_n);
    s->ahead = pb + bytes + ip * steps * s->lines * 64;
#endif
    (void)s, (void)block, (void)pb, (void)bytes, (void)ip, (void)m_n;
}

/* A panel of b; gated, the two that have the same columns of d. */
typedef struct panel_pair {
    columns c[2];
    finish_columns finish[2];
} panel_pair;

static void take_pair(const task_state *s, int64_t p, panel_pair *to)
{
    for (int h = 0; h < (s->job->gated ? 2 : 1); h++) {
        columns c = to->c[h] = panel_columns(s->job, p + h);
        finish_take_columns(s->job, &s->f, c.n0, c.step, c.n, &to->finish[h]);
    }
}

/* A block of d. task: its number, where the k blocks' sums are there already. */
static void make_block(const job_t *job, block_of_d where, int64_t task, int worker)
{
    int64_t m_first = where.mt * job->tile_m, n_first = where.nt * job->tile_n;
    int64_t m_n = job->m_panels - m_first, n_n = job->n_panels - n_first;
    m_n = m_n < job->tile_m ? m_n : job->tile_m;
    n_n = n_n < job->tile_n ? n_n : job->tile_n;
    int mr = job->tile.mr, nr = job->tile.nr, pair = job->gated ? 2 : 1;
    task_state s = start_task(job, where.batch, worker);
#if !defined(SKR_LEVEL_scalar)
    if (job->n_blocks && !job->dbias.data && skinny_as_it_lies(job, &s.b)) {
        skinny_tiles(&s, n_first, n_n);
        return;
    }
#endif
    float *dbias = job->dbias.data ? (float *)((char *)job->head.workspace + job->parts_at) +
                                         (where.batch * job->m_tiles + where.mt) * job->n
                                   : NULL;
    const float *parts = job->split ? split_sums(job, task) : NULL;
    _Alignas(64) float tile[2][MAX_MR * MAX_NR];
    bool multiplies = job->n_blocks && !parts;
    int64_t blocks = multiplies ? job->n_blocks : 1;
    for (int64_t block = 0; block < blocks; block++) {
        int64_t a_bytes = multiplies ? panel_bytes(job, mr, block) : 0;
        for (int64_t jp = 0; jp < n_n; jp += pair) {
            bool last = block == blocks - 1;
            panel_pair p;
            float db[MAX_NR] = {0};
            const char *pb[2] = {NULL, NULL};
            take_pair(&s, n_first + jp, &p);
            for (int h = 0; multiplies && h < pair; h++)
                pb[h] = b_panel(&s, block, n_first + jp + h, p.c[h]);
            const char *pa = multiplies ? panel(job, 0, s.batch, block, m_first) : NULL;
            for (int64_t ip = 0; ip < m_n; ip++) {
                int64_t m0 = (m_first + ip) * mr, left = job->m - m0;
                int rows = left < mr ? (int)left : mr;
                for (int h = 0; h < pair; h++) {
                    if (!job->n_blocks)
                        __builtin_memset(tile[h], 0, sizeof tile[h]);
                    else if (parts)
                        join_parts(&s, parts, ip, jp + h, tile[h]);
                    else {
                        if (!job->skinny)
                            look_ahead(&s, block, pb[h], pair * panel_bytes(job, nr, block), ip, m_n);
                        make_tile(&s, block, ip, pa + ip * a_bytes, m0, rows, pb[h], p.c[h], jp + h, tile[h]);
                    }
                }
                if (last)
                    finish(job, &s.f, m0, rows, nr, &p.finish[0], tile[0], &p.finish[1], tile[1], dbias ? db : NULL);
            }
            for (int j = 0; dbias && last && j < p.c[0].n; j++)
                dbias[p.c[0].n0 + j] = db[j];
        }
    }
}

#if defined(SKR_LEVEL_amx)
#include "gemm_columns_cpu.h"
#endif

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

/* ---------------------------------------------------------------- kernels */

/* Tile state is the thread's: taken and given back by each task. */
SKR_FN void tiles_begin(void)
{
#if defined(SKR_LEVEL_amx)
    amx_begin();
#endif
}

SKR_FN void tiles_end(void)
{
#if defined(SKR_LEVEL_amx)
    amx_end();
#endif
}

void SKR_KERNEL(gemm)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(gemm)(const void *job, int step, int64_t task, int worker)
{
    const job_t *j = job;
    if (step == SKR_GEMM_PACK) {
        pack_step(j, task);
    } else if (step == SKR_GEMM_PARTS) {
        tiles_begin();
        parts_step(j, task, worker);
        tiles_end();
    } else if (step == SKR_GEMM_TILES) {
        tiles_begin();
#if defined(SKR_LEVEL_amx)
        if (j->by_columns)
            make_columns(j, block_at(j, task), worker);
        else
#endif
            make_block(j, block_at(j, task), task, worker);
        tiles_end();
    } else {
        dbias_step(j, task);
    }
}

void SKR_KERNEL(gemm_pack)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(gemm_pack)(const void *job, int step, int64_t task, int worker)
{
    const skr_gemm_pack_job *j = job;
    (void)worker;
    if (step == SKR_GEMM_PACK_PANELS) {
        pack_task(&j->gemm, 1, task);
        return;
    }
    if (j->bytes)
        *j->bytes = j->need;
    if (!j->out)
        return;
    __builtin_memset(j->out, 0, (size_t)j->out_bytes); /* panels have gaps, and there may be more room */
    __builtin_memcpy(j->out, &j->tag, sizeof j->tag);
}

#include "gemm_groups_cpu.h"
