/* attention_backward_cpu.h - p and ds of a panel of queries against a block of keys, from what a head's queries saved.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_BACKWARD_CPU_H
#define SKR_ATTENTION_BACKWARD_CPU_H

#include "attention_scores_cpu.h"

/* Rows of v as keys are: for d_o v. */
SKR_FN char *v_rows_panel(const job_t *job, int64_t h, int64_t row)
{
    const skr_attention_cpu *c = &job->cpu;
    return (char *)job->head.workspace + c->v_at + (h * c->k_rows + row) * c->dv_pad * skr_kind_bytes(c->s_kind);
}

/* Columns of k, of a block of keys that begins at `row`: for ds k. */
SKR_FN char *kt_panels(const job_t *job, int64_t h, int64_t row)
{
    const skr_attention_cpu *c = &job->cpu;
    return (char *)job->head.workspace + c->kt_at +
           (h * c->v_rows + row) * up_to(job->d, c->s_tile.mr) * skr_kind_bytes(c->s_kind);
}

static void pack_block_backward(const job_t *job, int64_t h, int64_t b, const seq_t *s, int64_t j0, char *room)
{
    const skr_attention_cpu *c = &job->cpu;
    int64_t n = least(c->block_k, s->s.k_len - j0);
    uint8_t *bad = bad_keys(job, h, s->v_row + j0);
    int64_t k_at = row_at(job, &job->k, b, s->s.k + j0, h), v_at = row_at(job, &job->v, b, s->s.k + j0, h);
    int kind = c->s_kind;
    staged k = stage_rows(kind, job->k.type, job->k.data, k_at, job->k.token, n, job->d, NULL, NULL, room);
    pack_rows(kind, &c->s_tile, k, n, job->d, k_panel(job, h, s->k_row + j0));
    for (int64_t r = 0; r < n; r++)
        bad[r] = !is_finite(job->k.type, job->k.data, k_at + r * job->k.token, job->d);
    k = stage_rows(kind, job->k.type, job->k.data, k_at, job->k.token, n, job->d, bad, NULL, room);
    pack_columns(kind, &c->s_tile, k, n, job->d, kt_panels(job, h, s->v_row + j0));
    staged v = stage_rows(kind, job->v.type, job->v.data, v_at, job->v.token, n, job->d_v, NULL, NULL, room);
    pack_rows(kind, &c->s_tile, v, n, job->d_v, v_rows_panel(job, h, s->k_row + j0));
}

/* ---------------------------------------------------------------- queries */

/* What of n queries, from i0 on, of one head the tiles need; all in a worker's scratch memory. */
typedef struct queries_t {
    const char *q, *d_o; /* panels of queries */
    float *lse, *delta;  /* lse, infinite where p is 0; delta - dlse */
} queries_t;

/* delta - dlse of one query. */
static float delta_of(const job_t *job, int64_t b, int64_t token, int64_t h)
{
    _Alignas(64) float x[64], y[64];
    int64_t at = row_at(job, &job->d_o, b, token, h), o = row_at(job, &job->o, b, token, h);
    vf sum = v_set1(0.0f);
    for (int64_t i = 0; i < job->d_v; i += 64) {
        int n = (int)least(64, job->d_v - i), k = n;
        load_neighbours(job->d_o.type, job->d_o.data, at + i, n, x);
        load_neighbours(job->o.type, job->o.data, o + i, n, y);
        for (; k % SKR_LANES; k++)
            x[k] = y[k] = 0;
        for (k = 0; k < n; k += SKR_LANES)
            sum = v_fma(v_load(SKR_F32, x, k), v_load(SKR_F32, y, k), sum);
    }
    float dlse = job->dlse.data ? job->dlse.data[stat_at(job, &job->dlse, b, token, h)] : 0;
    return v_sum(sum) - dlse;
}

static queries_t take_queries(const job_t *job, int64_t b, int64_t h, int64_t token, int64_t n, char *scratch)
{
    const skr_attention_cpu *c = &job->cpu;
    int64_t rows = up_to(n, c->s_tile.nr);
    float *stats = (float *)(scratch + c->in_stats);
    queries_t q = {scratch + c->in_q, scratch + c->in_do, stats, stats + rows};
    pack_queries(job, c->s_kind, &c->s_tile, &job->q, job->d, b, h, token, n, scratch + c->in_stage, scratch + c->in_q);
    pack_queries(job, c->s_kind, &c->s_tile, &job->d_o, job->d_v, b, h, token, n, scratch + c->in_stage,
                 scratch + c->in_do);
    for (int64_t r = 0; r < rows; r++) {
        float lse = r < n ? job->lse.data[stat_at(job, &job->lse, b, token + r, h)] : -__builtin_inff();
        q.lse[r] = __builtin_fabsf(lse) >= SKR_ATTENTION_NO_PART ? __builtin_inff() : lse;
        q.delta[r] = r < n ? delta_of(job, b, token + r, h) : 0;
    }
    return q;
}

/* ---------------------------------------------------------------- one tile */

/* Queries whose lse is large, or NaN; not those without p. */
SKR_FN vm needs_care(vf lse)
{
    vf size = v_select(v_eq(lse, v_set1(__builtin_inff())), v_set1(0.0f), v_abs(lse));
    return v_ne(v_at_most(size, v_set1(LARGE)), size);
}

/* Their scores become s - lse, at most 0: above it they are by rounding. What is not seen stays so beside a NaN. */
static void subtract_lse(int nr, int n, float unit, const float *lse, float *s)
{
    const vf none = v_set1(-__builtin_inff()), zero = v_set1(0.0f);
    for (int r = 0; r < nr; r += SKR_LANES) {
        vf of_row = v_load(SKR_F32, lse, r);
        vm care = needs_care(of_row);
        for (int k = 0; vm_any(care) && k < n; k++) {
            vf x = v_load(SKR_F32, s, k * nr + r), y = v_min(v_sub(v_mul(x, v_set1(unit)), of_row), zero);
            y = v_select(v_eq(x, none), none, y);
            v_store_float(SKR_F32, s, k * nr + r, v_select(care, y, x));
        }
    }
}

/* What the queries of a vector bring to every key. */
typedef struct tile_row {
    vf factor, base, delta;
    vm nothing; /* queries without p */
} tile_row;

/* Four keys, of which `part` are there: s becomes p z, dp becomes ds. */
SKR_FN void finish4(const tile_row *w, int nr, int part, const float *keep, float *s, float *dp)
{
    vf x[4], zero = v_set1(0.0f);
    SKR_UNROLL
    for (int u = 0; u < 4; u++)
        x[u] = u < part ? v_fma(v_load(SKR_F32, s, u * nr), w->factor, w->base) : zero;
    v_exp2_each(x, 4);
    SKR_UNROLL
    for (int u = 0; u < 4; u++) {
        if (u >= part)
            break;
        vf p = v_select(w->nothing, zero, x[u]), y = v_load(SKR_F32, dp, u * nr), kept = p;
        if (keep) {
            vf z = v_load(SKR_F32, keep, u * nr);
            vm dropped = v_eq(z, zero);
            y = v_select(dropped, zero, v_mul(y, z));
            kept = v_select(dropped, zero, v_mul(p, z));
        }
        v_store_float(SKR_F32, s, u * nr, kept);
        /* what is not seen has no gradient, even if its product is NaN */
        v_store_float(SKR_F32, dp, u * nr, v_select(v_eq(p, zero), zero, v_mul(p, v_sub(y, w->delta))));
    }
}

SKR_IN_ORDER SKR_TAIL void finish_tile(int nr, int n, float factor, const float *lse, const float *delta,
                                       const float *keep, float *s, float *dp)
{
    for (int r = 0; r < nr; r += SKR_LANES) {
        vf of_row = v_load(SKR_F32, lse, r), base = v_neg(v_mul(of_row, v_set1(LOG2E)));
        vm care = needs_care(of_row);
        tile_row w = {v_select(care, v_set1(LOG2E), v_set1(factor)), v_select(care, v_set1(0.0f), base),
                      v_load(SKR_F32, delta, r), v_eq(of_row, v_set1(__builtin_inff()))};
        for (int k = 0; k < n; k += 4) {
            int at = k * nr + r;
            if (n - k < 4)
                finish4(&w, nr, n - k, keep ? keep + at : NULL, s + at, dp + at);
            else if (keep)
                finish4(&w, nr, 4, keep + at, s + at, dp + at);
            else
                finish4(&w, nr, 4, NULL, s + at, dp + at);
        }
    }
}

/* p z and ds of panel a of queries (the panel at p) against n keys from j0 on: [n][nr] in scratch s and dp. */
static void gradient_tile(const panel_t *p, const queries_t *q, int64_t a, int64_t j0, int n, char *scratch)
{
    const job_t *job = p->job;
    const skr_attention_cpu *c = &job->cpu;
    int mr = c->s_tile.mr, nr = p->nr, size = skr_kind_bytes(c->s_kind);
    float *s = (float *)(scratch + c->in_s), *dp = (float *)(scratch + c->in_dp);
    float *keep = job->drop ? (float *)(scratch + c->in_keep) : NULL;
    float *slope = job->softcap != 0 ? (float *)(scratch + c->in_slope) : NULL;
    const char *d_o = q->d_o + a * nr * c->dv_pad * size, *v = v_rows_panel(job, p->hk, p->s->k_row + j0);
    float factor = panel_scores(p, q->q + a * nr * c->d_pad * size, j0, n, scratch, s, slope);
    for (int at = 0; at < n; at += mr, v += mr * c->dv_pad * size)
        micro(c->s_kind, c->dv_pad, v, d_o, dp + at * nr);
    if (keep)
        make_keep(p, j0, n, keep);
    subtract_lse(nr, n, score_unit(p), q->lse + a * nr, s);
    finish_tile(nr, n, factor, q->lse + a * nr, q->delta + a * nr, keep, s, dp);
}

#endif
