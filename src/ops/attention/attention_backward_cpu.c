/* attention_backward_cpu.c - attention_backward: dq, dk, dv and the sums for heads. Compiled once per level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task is one head of one sequence. Its queries are put into panels once; then, for each block of keys, for each
 * block of queries: p and ds as [key][query], ds k added to dq, and p d_o and ds q added to the block's dv and dk,
 * which are complete when all queries have passed. Heads that share keys leave f32 parts, which a later step adds in
 * their order. Where there are fewer such tasks than threads, a head is cut into pieces: some take blocks of keys and
 * make dk and dv, others take blocks of queries and make dq. Every sum is made in an order that depends on the sequence
 * alone, and not on that. */
#include "attention_backward_cpu.h"
#include "attention_dbias_cpu.h"
#include "attention_sums_cpu.h"

/* One head of one sequence, in a worker's scratch memory. */
typedef struct head_t {
    const job_t *job;
    const seq_t *s;
    int64_t b, h;
    bool dq; /* made here */
    queries_t q;
    char *scratch;
    double dslope; /* of a block of keys */
} head_t;

SKR_FN char *in(const head_t *w, int64_t at)
{
    return w->scratch + at;
}

/* Rows of x for sums over queries: columns in panels, k along the queries, block of queries by block. bad: rows that
 * are not finite, taken as 0. */
static void pack_for_sums(const head_t *w, const skr_attention_rows *x, int64_t width, uint8_t *bad, char *to)
{
    const job_t *job = w->job;
    const skr_attention_cpu *c = &job->cpu;
    const skr_gemm_tile *t = &c->s_tile;
    int size = skr_kind_bytes(c->s_kind);
    for (int64_t i0 = 0; i0 < w->s->s.q_len; i0 += c->block_q) {
        int64_t n = least(c->block_q, w->s->s.q_len - i0), pad = up_to(n, t->nr);
        int64_t at = row_at(job, x, w->b, w->s->s.q + i0, w->h);
        for (int64_t r = 0; r < n; r++)
            bad[i0 + r] = !is_finite(x->type, x->data, at + r * x->token, width);
        staged rows =
            stage_rows(c->s_kind, x->type, x->data, at, x->token, n, width, bad + i0, NULL, in(w, c->in_stage));
        for (int64_t col = 0; col < width; col += t->nr, to += t->nr * pad * size)
            pack_moved(c->s_kind, rows.data + col * size, 1, rows.stride, (int)least(t->nr, width - col), t->nr, t->kb,
                       n, pad, to);
    }
}

/* ---------------------------------------------------------------- dq */

/* dq += ds k of the panel at p: [column][query]. */
static void add_dq(const head_t *w, const panel_t *p, int64_t j0, int n, int all, const void *ds, float *dq)
{
    const job_t *job = w->job;
    const skr_attention_cpu *c = &job->cpu;
    int mr = c->s_tile.mr, nr = p->nr, pad = (int)up_to(n, c->s_tile.granule), size = skr_kind_bytes(c->s_kind);
    const char *k = kt_panels(job, p->hk, p->s->v_row + j0);
    int64_t each = mr * up_to(all, c->s_tile.granule) * size;
    for (int64_t d = 0; d < job->d; d += mr, k += each, dq += mr * nr)
        micro_add(c->s_kind, mr, nr, pad, k, ds, dq);
}

/* Keys that are not finite: only for the queries that see them. */
static void add_bad_dq(const head_t *w, const panel_t *p, int64_t j0, int n, const float *ds, float *dq)
{
    const job_t *job = w->job;
    const uint8_t *bad = bad_keys(job, p->hk, p->s->v_row + j0);
    for (int k = 0; k < n; k++)
        for (int64_t d = 0; bad[k] && d < job->d; d++) {
            float x = one_float(job->k.type, job->k.data, row_at(job, &job->k, p->b, p->s->s.k + j0 + k, p->hk) + d);
            for (int r = 0; r < p->rows; r++)
                if (ds[k * p->nr + r] != 0)
                    dq[d * p->nr + r] += ds[k * p->nr + r] * x;
        }
}

/* n queries from i0 on: mr columns of a panel of queries at a time, turned around. */
static void store_dq(const head_t *w, int64_t i0, int64_t n, const float *dq)
{
    const job_t *job = w->job;
    const int nr = job->cpu.s_tile.nr, mr = job->cpu.s_tile.mr;
    _Alignas(64) float t[SKR_GEMM_MAX_MR * MAX_NR], old[SKR_GEMM_MAX_MR] = {0};
    for (int64_t i = 0; i < n; i += nr)
        for (int64_t d = 0; d < job->d; d += mr, dq += mr * nr) {
            const int columns = (int)least(mr, job->d - d);
            pack_moved(SKR_GEMM_F32, (const char *)dq, nr, 1, mr, mr, 1, nr, nr, (char *)t);
            for (int r = 0; r < nr && i + r < n; r++) {
                float *row = t + r * mr;
                int64_t at = row_at(job, &job->dq, w->b, w->s->s.q + i0 + i + r, w->h) + d;
                if (job->accumulate)
                    load_neighbours(job->dq.type, job->dq.data, at, columns, old);
                for (int c = 0; c < columns; c++)
                    row[c] = row[c] * job->scale + old[c];
                store_run(job->dq.type, job->dq.data, at, 1, columns, row);
            }
        }
}

/* ---------------------------------------------------------------- dk and dv */

/* Panels of a block of keys, at most: tiles have at least four rows. */
enum { BLOCK_PANELS = 64 };

/* Which panels of queries of a block see a panel of keys: [first, end). */
typedef struct seers {
    int32_t first, end;
} seers;

/* x [n][nr] of panel a of a block of queries into the panels that sums over queries read: rows are keys. The block has
 * `all` keys; those from n on are not seen. */
static void turn(const job_t *job, int64_t a, int n, int all, const void *x, char *to)
{
    const skr_attention_cpu *c = &job->cpu;
    int mr = c->s_tile.mr, nr = c->s_tile.nr, size = skr_kind_bytes(c->s_kind);
    for (int k = 0; k < all; k += mr) {
        char *panel = to + (k * c->block_q + a * nr * mr) * size;
        if (k < n)
            pack_moved(c->s_kind, (const char *)x + (int64_t)k * nr * size, nr, 1, n - k < mr ? n - k : mr, mr,
                       c->s_tile.ka, nr, nr, panel);
        else
            __builtin_memset(panel, 0, (size_t)(mr * nr * size));
    }
}

/* out [n keys][width] += x times rows of queries, of the panels that see the keys. */
static void add_sums(const job_t *job, const char *x, const char *rows, int64_t pad, const seers *who, int n,
                     int64_t width, float *out)
{
    const skr_attention_cpu *c = &job->cpu;
    int mr = c->s_tile.mr, nr = c->s_tile.nr, size = skr_kind_bytes(c->s_kind);
    for (int64_t col = 0; col < width; col += nr, rows += nr * pad * size)
        for (int k = 0; k < n; k += mr, out += mr * nr) {
            seers w = who[k / mr];
            if (w.first < w.end)
                micro_add(c->s_kind, mr, nr, (w.end - w.first) * nr, x + (k * c->block_q + w.first * nr * mr) * size,
                          rows + w.first * nr * nr * size, out);
        }
}

/* Element (key, column) of what add_sums makes. */
SKR_FN int64_t sum_at(const job_t *job, int n, int64_t key, int64_t column)
{
    int mr = job->cpu.s_tile.mr, nr = job->cpu.s_tile.nr;
    return column / nr * up_to(n, mr) * nr + key * nr + column % nr;
}

/* Queries whose rows are not finite: only for the keys that they see. x: [n][nr] of their panel. */
static void add_bad_sums(const head_t *w, const panel_t *p, const skr_attention_rows *rows, int64_t width,
                         const uint8_t *bad, int n, int all, const float *x, float *out)
{
    const job_t *job = w->job;
    for (int r = 0; r < p->rows; r++)
        for (int64_t d = 0; bad[p->i0 + r] && d < width; d++) {
            float y = one_float(rows->type, rows->data, row_at(job, rows, p->b, p->s->s.q + p->i0 + r, p->h) + d);
            for (int k = 0; k < n; k++)
                if (x[k * p->nr + r] != 0)
                    out[sum_at(job, all, k, d)] += x[k * p->nr + r] * y;
        }
}

/* n rows of dk or dv from key j0 on: to the output, or to this head's part. */
static void store_keys(const head_t *w, const skr_attention_rows *out, int64_t part_at, int64_t width, float scale,
                       int64_t j0, int n, const float *from)
{
    const job_t *job = w->job;
    const int nr = job->cpu.s_tile.nr;
    float row[SKR_ATTENTION_MAX_D], old[SKR_ATTENTION_MAX_D];
    for (int k = 0; k < n; k++) {
        int64_t token = w->s->s.k + j0 + k, at = row_at(job, out, w->b, token, w->h);
        bool add = job->accumulate && part_at < 0;
        if (add)
            load_neighbours(out->type, out->data, at, (int)width, old);
        for (int64_t d = 0; d < width; d += nr) {
            const float *sums = from + sum_at(job, n, k, d);
            for (int64_t c = 0; c < least(nr, width - d); c++)
                row[d + c] = sums[c] * scale + (add ? old[d + c] : 0);
        }
        if (part_at < 0)
            store_run(out->type, out->data, at, 1, (int)width, row);
        else
            __builtin_memcpy((float *)((char *)job->head.workspace + part_at) +
                                 part_row(job, w->b, token, w->h) * width,
                             row, (size_t)width * 4);
    }
}

/* ---------------------------------------------------------------- one head */

/* x [n][nr] in the products' type, padded with zeros. */
static const void *operand_of(const head_t *w, int n, float *x)
{
    const skr_attention_cpu *c = &w->job->cpu;
    int nr = c->s_tile.nr, pad = (int)up_to(n, c->s_tile.granule);
    for (int i = n * nr; i < pad * nr; i += SKR_LANES)
        v_store_float(SKR_F32, x, i, v_set1(0.0f));
    if (c->s_kind == SKR_GEMM_F32)
        return x;
    narrow(c->s_kind, pad * nr, x, (uint16_t *)in(w, c->in_rows));
    return in(w, c->in_rows);
}

/* The same as a panel of b. */
static const void *as_panel_of_b(const head_t *w, int n, const void *rows)
{
    const skr_attention_cpu *c = &w->job->cpu;
    int nr = c->s_tile.nr, pad = (int)up_to(n, c->s_tile.granule);
    if (c->s_kind == SKR_GEMM_F32)
        return rows;
    pack_moved(c->s_kind, rows, 1, nr, nr, nr, c->s_tile.kb, pad, pad, in(w, c->in_p));
    return in(w, c->in_p);
}

/* dslopes' sum over a tile. */
static double slope_sum(const panel_t *p, int64_t j0, int n, const float *ds)
{
    const job_t *job = p->job;
    int64_t of_tokens = job->packed ? 0 : p->b;
    double sum = 0;
    for (int r = 0; r < p->rows; r++) {
        int64_t pi = skr_attention_place(&job->q_positions, of_tokens, p->s->s.q, p->i0 + r) + p->diagonal;
        for (int k = 0; k < n; k++) {
            int64_t apart = pi - skr_attention_place(&job->k_positions, of_tokens, p->s->s.k, j0 + k);
            sum -= (double)ds[k * p->nr + r] * (double)(apart < 0 ? -apart : apart);
        }
    }
    return sum;
}

/* What has no gradient keeps none, even if the softcap's derivative is NaN. */
static void times(int n, const float *by, float *x)
{
    const vf zero = v_set1(0.0f);
    for (int i = 0; i < n; i += SKR_LANES) {
        vf y = v_load(SKR_F32, x, i);
        v_store_float(SKR_F32, x, i, v_select(v_eq(y, zero), zero, v_mul(y, v_load(SKR_F32, by, i))));
    }
}

/* A panel of queries against n keys from j0 on: its dq, and p and ds for the sums over queries. */
static void panel_step(head_t *w, const panel_t *p, int64_t a, int64_t in_block, int64_t j0, int n, int all, bool bad_k,
                       const uint8_t *bad_q, const uint8_t *bad_do)
{
    const job_t *job = w->job;
    const skr_attention_cpu *c = &job->cpu;
    float *s = (float *)in(w, c->in_s), *ds = (float *)in(w, c->in_dp);
    float *dq = (float *)in(w, c->in_dq) + a * up_to(job->d, c->s_tile.mr) * p->nr;
    gradient_tile(p, &w->q, a, j0, n, w->scratch);
    if (job->dslopes.data)
        w->dslope += slope_sum(p, j0, n, ds);
    if (job->softcap != 0)
        times(n * p->nr, (const float *)in(w, c->in_slope), ds);
    if (job->dv.data) {
        turn(job, in_block, n, all, operand_of(w, n, s), in(w, c->in_pt));
        add_bad_sums(w, p, &job->d_o, job->d_v, bad_do, n, all, s, (float *)in(w, c->in_dv));
    }
    const void *x = operand_of(w, n, ds);
    if (job->dk.data) {
        turn(job, in_block, n, all, x, in(w, c->in_dst));
        add_bad_sums(w, p, &job->q, job->d, bad_q, n, all, ds, (float *)in(w, c->in_dk));
    }
    if (w->dq) {
        add_dq(w, p, j0, n, all, as_panel_of_b(w, n, x), dq);
        if (bad_k)
            add_bad_dq(w, p, j0, n, ds, dq);
    }
}

/* How many of n keys from j0 on are not behind the last that a panel of queries sees; 0: it sees none of them. */
static int keys_seen(const panel_t *p, int64_t j0, int n)
{
    int64_t from, to;
    panel_range(p, &from, &to);
    return from >= j0 + n || to <= j0 ? 0 : (int)least(n, to - j0);
}

static bool any_bad_key(const head_t *w, int64_t j0, int n)
{
    return __builtin_memchr(bad_keys(w->job, w->h / w->job->group, w->s->v_row + j0), 1, (size_t)n) != NULL;
}

/* Keys from j0 on against all queries. */
static void keys_step(head_t *w, int64_t j0, const uint8_t *bad_q, const uint8_t *bad_do)
{
    const job_t *job = w->job;
    const skr_attention_cpu *c = &job->cpu;
    int nr = c->s_tile.nr, mr = c->s_tile.mr, n = (int)least(c->block_k, w->s->s.k_len - j0);
    float *dk = (float *)in(w, c->in_dk), *dv = (float *)in(w, c->in_dv);
    bool bad_k = any_bad_key(w, j0, n);
    __builtin_memset(dk, 0, (size_t)(up_to(n, mr) * up_to(job->d, nr)) * 4);
    __builtin_memset(dv, 0, (size_t)(up_to(n, mr) * up_to(job->d_v, nr)) * 4);
    for (int64_t i0 = 0; i0 < w->s->s.q_len; i0 += c->block_q) {
        int64_t queries = least(c->block_q, w->s->s.q_len - i0), pad = up_to(queries, nr);
        seers who[BLOCK_PANELS];
        bool any = false;
        for (int k = 0; k < n; k += mr)
            who[k / mr] = (seers){0, 0};
        for (int64_t a = 0; a < pad / nr; a++) {
            panel_t p = panel_of(job, w->s, w->b, w->h, i0 + a * nr);
            int seen = keys_seen(&p, j0, n);
            if (!seen)
                continue;
            any = true;
            panel_step(w, &p, i0 / nr + a, a, j0, seen, n, bad_k, bad_q, bad_do);
            for (int k = 0; k < seen; k += mr) {
                seers *x = &who[k / mr];
                *x = (seers){x->end ? x->first : (int32_t)a, (int32_t)a + 1};
            }
        }
        if (!any)
            continue;
        int size = skr_kind_bytes(c->s_kind);
        if (job->dv.data)
            add_sums(job, in(w, c->in_pt), in(w, c->in_dot) + i0 * up_to(job->d_v, nr) * size, pad, who, n, job->d_v,
                     dv);
        if (job->dk.data)
            add_sums(job, in(w, c->in_dst), in(w, c->in_qt) + i0 * up_to(job->d, nr) * size, pad, who, n, job->d, dk);
    }
    if (job->dk.data)
        store_keys(w, &job->dk, c->dk_at, job->d, job->scale, j0, n, dk);
    if (job->dv.data)
        store_keys(w, &job->dv, c->dv_at, job->d_v, 1, j0, n, dv);
}

static double sink_sum(const head_t *w)
{
    double sum = 0;
    float sink = scale_at(&w->job->sinks, 0, w->h, 0), all[SKR_LANES];
    for (int64_t i = 0; i < w->s->s.q_len; i++) {
        v_store_float(SKR_F32, all, 0, v_exp2_normal(v_set1((sink - w->q.lse[i]) * LOG2E)));
        sum -= w->q.lse[i] == __builtin_inff() ? 0 : (double)all[0] * (double)w->q.delta[i];
    }
    return sum;
}

/* Every `step`th block of keys, from block `first` on; and dsinks, where that is 0. */
static void head_keys(head_t *w, int64_t first, int64_t step)
{
    const job_t *job = w->job;
    const skr_attention_cpu *c = &job->cpu;
    uint8_t *bad_q = (uint8_t *)in(w, c->in_bad), *bad_do = bad_q + up_to(job->length, c->s_tile.nr);
    double *slopes = (double *)((char *)job->head.workspace + c->slopes_at);
    double *sinks = (double *)((char *)job->head.workspace + c->sinks_at);
    w->q = take_queries(job, w->b, w->h, w->s->s.q, w->s->s.q_len, w->scratch);
    pack_for_sums(w, &job->q, job->d, bad_q, in(w, c->in_qt));
    pack_for_sums(w, &job->d_o, job->d_v, bad_do, in(w, c->in_dot));
    for (int64_t k = first; k * c->block_k < w->s->s.k_len; k += step) {
        w->dslope = 0;
        keys_step(w, k * c->block_k, bad_q, bad_do);
        slopes[(w->s->k_block + k) * job->heads + w->h] = w->dslope;
    }
    if (first == 0)
        sinks[w->b * job->heads + w->h] = job->sinks.data ? sink_sum(w) : 0;
}

/* dq of every `step`th block of queries, from block `first` on. */
static void head_queries(head_t *w, int64_t first, int64_t step)
{
    const job_t *job = w->job;
    const skr_attention_cpu *c = &job->cpu;
    int nr = c->s_tile.nr;
    float *dq = (float *)in(w, c->in_dq), *ds = (float *)in(w, c->in_dp);
    int64_t panel = up_to(job->d, c->s_tile.mr) * nr;
    for (int64_t i0 = first * c->block_q; i0 < w->s->s.q_len; i0 += step * c->block_q) {
        int64_t n = least(c->block_q, w->s->s.q_len - i0), panels = blocks_of(n, nr);
        w->q = take_queries(job, w->b, w->h, w->s->s.q + i0, n, w->scratch);
        __builtin_memset(dq, 0, (size_t)(panels * panel) * 4);
        for (int64_t j0 = 0; j0 < w->s->s.k_len; j0 += c->block_k) {
            int all = (int)least(c->block_k, w->s->s.k_len - j0);
            bool bad = any_bad_key(w, j0, all);
            for (int64_t a = 0; a < panels; a++) {
                panel_t p = panel_of(job, w->s, w->b, w->h, i0 + a * nr);
                int keys = keys_seen(&p, j0, all);
                if (!keys)
                    continue;
                gradient_tile(&p, &w->q, a, j0, keys, w->scratch);
                if (job->softcap != 0)
                    times(keys * nr, (const float *)in(w, c->in_slope), ds);
                const void *x = operand_of(w, keys, ds);
                add_dq(w, &p, j0, keys, all, as_panel_of_b(w, keys, x), dq + a * panel);
                if (bad)
                    add_bad_dq(w, &p, j0, keys, ds, dq + a * panel);
            }
        }
        store_dq(w, i0, n, dq);
    }
}

/* A head with more than its share of all the work. */
static bool is_cut(const job_t *job, const seq_t *s)
{
    double own = (double)s->s.q_len * (double)s->s.k_len;
    double all = job->cpu.table_at < 0 ? (double)job->batch * own : table_of(job)[job->batch].pairs;
    return job->cpu.pieces > 1 && own * (double)job->cpu.pieces > 1.2 * all * (double)job->heads;
}

/* The first pieces of a head take keys, the others queries; of one that is not cut the first takes all. */
static void head_task(const job_t *job, int64_t task, int worker)
{
    const skr_attention_cpu *c = &job->cpu;
    int64_t roles = c->pieces > 1 ? 2 * c->pieces : 1, role = task % roles, head = task / roles;
    seq_t s = sequence(job, head / job->heads);
    bool cut = is_cut(job, &s);
    head_t w = {.job = job,
                .s = &s,
                .b = head / job->heads,
                .h = head % job->heads,
                .dq = job->dq.data && !cut,
                .scratch = scratch_of(job, worker, 0)};
    float *dq = (float *)in(&w, c->in_dq);
    if (cut && role < c->pieces) {
        head_keys(&w, role, c->pieces);
    } else if (cut && job->dq.data) {
        head_queries(&w, role - c->pieces, c->pieces);
    } else if (!cut && role == 0) {
        __builtin_memset(dq, 0, (size_t)(up_to(s.s.q_len, c->s_tile.nr) * up_to(job->d, c->s_tile.mr)) * 4);
        head_keys(&w, 0, 1);
        if (w.dq)
            store_dq(&w, 0, s.s.q_len, dq);
    }
}

/* ---------------------------------------------------------------- the steps */

static void pack_backward(const job_t *job, int64_t task, int worker)
{
    int64_t h = task % job->heads_k, block = task / job->heads_k, b = sequence_of_block(job, block, true);
    if (b < 0)
        return;
    seq_t s = sequence(job, b);
    pack_block_backward(job, h, b, &s, (block - s.k_block) * job->cpu.block_k,
                        scratch_of(job, worker, job->cpu.in_stage));
}

void SKR_KERNEL(attention_backward)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(attention_backward)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
#if defined(SKR_LEVEL_amx)
    amx_begin();
#endif
    if (step == SKR_ATTENTION_TABLE) {
        if (!make_table(job))
            __atomic_store_n(job->head.error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
        each_gap(job, false, clear_queries);
        each_gap(job, true, clear_keys);
    } else if (step == SKR_ATTENTION_PACK) {
        pack_backward(job, task, worker);
    } else if (step == SKR_ATTENTION_ROWS) {
        head_task(job, task, worker);
    } else if (step == SKR_ATTENTION_SUM) {
        sum_task(job, task);
    } else {
        dbias_task(job, task, worker);
    }
#if defined(SKR_LEVEL_amx)
    amx_end();
#endif
}
