/* attention_scores_cpu.h - scores of a panel of queries against a block of keys: [key][query], the queries in a vector.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a vector of queries can tell of itself (scale, softcap, ALiBi, causal, window) is computed in vectors. A bias
 * and everything that is read for each pair of tokens comes through one matrix of addends, made row by row: -infinity
 * where the query does not see the key. */
#ifndef SKR_ATTENTION_SCORES_CPU_H
#define SKR_ATTENTION_SCORES_CPU_H

#include "attention_cpu.h"

enum { MAX_NR = SKR_GEMM_MAX_NR };

/* From here on f32 is too coarse for a row's maximum (or lse) to be brought to units of ln 2 before it is subtracted:
 * it is subtracted from the scores as they are. */
#define LARGE 0x1p20f

/* Neighbouring queries of one head, as many as a tile has columns. */
typedef struct panel_t {
    const job_t *job;
    const seq_t *s;
    int64_t b, h, hk; /* batch, query head, key head */
    int64_t i0;       /* the first query */
    int rows, nr;
    int64_t diagonal;
    float factor, slope; /* of scores; of ALiBi */
    float q_scale[MAX_NR];
} panel_t;

static panel_t panel_of(const job_t *job, const seq_t *s, int64_t b, int64_t h, int64_t i0)
{
    panel_t p = {.job = job, .s = s, .b = b, .h = h, .hk = h / job->group, .i0 = i0, .nr = job->cpu.s_tile.nr};
    p.rows = (int)least(p.nr, s->s.q_len - i0);
    p.diagonal = skr_attention_diagonal(job, &s->s);
    p.slope = job->slopes.data ? scale_at(&job->slopes, b, h, 0) : 0;
    p.factor = job->scale;
    bool codes = job->mode != SKR_ATTENTION_FLOAT && job->mode != SKR_ATTENTION_I8_KV;
    if (codes && !job->descale_block)
        p.factor *= scale_at(&job->q_descale, b, h / job->q_descale_group, 0) * scale_at(&job->k_descale, b, p.hk, 0);
    for (int r = 0; codes && job->descale_block && r < p.nr; r++)
        p.q_scale[r] = r < p.rows ? scale_at(&job->q_descale, b, h, scale_block(job, i0 + r)) : 0;
    return p;
}

/* Keys that any of the queries can see: [*first, *end). */
static void panel_range(const panel_t *p, int64_t *first, int64_t *end)
{
    const job_t *job = p->job;
    *first = 0;
    *end = p->s->s.k_len;
    if (!job->bounded || job->q_positions.data || job->k_positions.data)
        return;
    int64_t low = p->i0 + p->diagonal - job->left, high = p->i0 + p->rows - 1 + p->diagonal + job->right + 1;
    *first = low > 0 ? least(low, *end) : 0;
    *end = high < *end ? high : *end;
    if (*end < *first)
        *end = *first;
}

/* ---------------------------------------------------------------- pairs of tokens */

SKR_FN bool by_positions(const job_t *job)
{
    return job->q_positions.data || job->k_positions.data;
}

/* Whether pairs are asked about one by one. */
SKR_FN bool asks_pairs(const job_t *job)
{
    return job->mask.data || job->key_mask.data || job->q_ids.data || by_positions(job);
}

/* Addends of one query for n keys from j0 on. */
static void extra_row(const panel_t *p, int lane, int64_t j0, int n, float *row)
{
    const job_t *job = p->job;
    const skr_attention_matrix *bias = &job->bias;
    int64_t of_tokens = job->packed ? 0 : p->b, i = p->i0 + lane;
    int64_t pi = skr_attention_place(&job->q_positions, of_tokens, p->s->s.q, i);
    if (bias->data)
        load_run(bias->type, bias->data, p->b * bias->batch + p->h * bias->head + i * bias->query + j0 * bias->key,
                 bias->key, n, row);
    else
        __builtin_memset(row, 0, (size_t)n * 4);
    for (int k = 0; asks_pairs(job) && k < n; k++) {
        int64_t j = j0 + k, pj = skr_attention_place(&job->k_positions, of_tokens, p->s->s.k, j);
        if (!skr_attention_sees(job, &p->s->s, p->b, p->h, i, j, pi, pj))
            row[k] = -__builtin_inff();
        else if (by_positions(job) && job->slopes.data)
            row[k] -= p->slope * (float)(pi > pj ? pi - pj : pj - pi);
    }
}

/* [n][nr], from rows of queries in room, or from the bias as it lies. */
static void make_extra(const panel_t *p, int64_t j0, int n, float *room, float *to)
{
    const job_t *job = p->job;
    const skr_attention_matrix *bias = &job->bias;
    const float *rows = room;
    int64_t stride = n;
    if (bias->data && bias->type == SKR_F32 && bias->key == 1 && !asks_pairs(job)) {
        rows = (const float *)bias->data + p->b * bias->batch + p->h * bias->head + p->i0 * bias->query + j0;
        stride = bias->query;
    } else {
        for (int lane = 0; lane < p->rows; lane++)
            extra_row(p, lane, j0, n, room + (int64_t)lane * n);
    }
    pack_moved(SKR_GEMM_F32, (const char *)rows, stride, 1, p->rows, p->nr, 1, n, n, (char *)to);
}

/* Dropout's factors. */
static void make_keep(const panel_t *p, int64_t j0, int n, float *to)
{
    const job_t *job = p->job;
    int64_t of_tokens = job->packed ? 0 : p->b;
    for (int lane = 0; lane < p->nr; lane++) {
        int64_t pi = skr_attention_place(&job->q_positions, of_tokens, p->s->s.q, p->i0 + (lane < p->rows ? lane : 0));
        skr_philox words = {{0}};
        int64_t have = INT64_MIN; /* the group of four that words are of */
        for (int k = 0; k < n; k++) {
            int64_t pj = skr_attention_place(&job->k_positions, of_tokens, p->s->s.k, j0 + k);
            if (pj >> 2 != have) {
                words = skr_attention_words(job, p->b, p->h, pi, pj);
                have = pj >> 2;
            }
            to[k * p->nr + lane] = skr_attention_kept(job, words.word[(uint32_t)pj & 3]) ? job->keep_scale : 0;
        }
    }
}

/* n floats, rows of a panel, as the halves that are multiplied; subnormals of bf16 may become 0, as they do in the
 * products. */
SKR_FN void narrow(int kind, int n, const float *x, uint16_t *to)
{
#if HAS_F16
    for (int i = 0; kind == SKR_GEMM_F16 && i < n; i += SKR_LANES)
        v_store_float(SKR_F16, to, i, v_load(SKR_F32, x, i));
    if (kind == SKR_GEMM_F16)
        return;
#endif
    (void)kind;
#if X86_BF16
    for (int i = 0; i < n; i += 2 * SKR_LANES)
        _mm512_storeu_si512(to + i,
                            (__m512i)_mm512_cvtne2ps_pbh(v_load(SKR_F32, x, i + SKR_LANES), v_load(SKR_F32, x, i)));
#else
    for (int i = 0; i < n; i += SKR_LANES)
        v_store_float(SKR_BF16, to, i, v_load(SKR_F32, x, i));
#endif
}

/* ---------------------------------------------------------------- scores */

SKR_FN float bounded_float(int64_t x)
{
    const int64_t far = 1 << 20;
    return (float)(x > far ? far : x < -far ? -far : x);
}

/* Keys outside of the window become -infinity, in a block where any query does not see all of them. */
static void cut_window(const panel_t *p, int64_t j0, int n, float *s)
{
    const job_t *job = p->job;
    int64_t first = p->i0 + p->diagonal - j0, last = first + p->rows - 1;
    if (!job->bounded || by_positions(job) || (last - job->left <= 0 && first + job->right >= n - 1))
        return;
    _Alignas(64) float low[MAX_NR], high[MAX_NR];
    for (int r = 0; r < p->nr; r++) {
        low[r] = bounded_float(first + r - job->left);
        high[r] = bounded_float(first + r + job->right);
    }
    const vf out = v_set1(-__builtin_inff());
    for (int k = 0; k < n; k++) {
        vf j = v_set1((float)k);
        for (int r = 0; r < p->nr; r += SKR_LANES) {
            vf x = v_load(SKR_F32, s, k * p->nr + r);
            x = v_select(v_le(v_load(SKR_F32, low, r), j), x, out);
            x = v_select(v_le(j, v_load(SKR_F32, high, r)), x, out);
            v_store_float(SKR_F32, s, k * p->nr + r, x);
        }
    }
}

/* Integer sums become floats. */
static void to_floats(int n, float *s)
{
    for (int k = 0; k < n; k += SKR_LANES)
        v_store_float(SKR_F32, s, k, v_of_int(v_bits(v_load(SKR_F32, s, k))));
}

/* Descales of blocks of tokens. */
static void scale_blocks(const panel_t *p, int64_t j0, int n, float *s)
{
    const job_t *job = p->job;
    for (int k = 0; k < n; k++) {
        vf factor = v_set1(scale_at(&job->k_descale, p->b, p->hk, scale_block(job, j0 + k)));
        for (int at = k * p->nr, r = 0; r < p->nr; r += SKR_LANES)
            v_store_float(SKR_F32, s, at + r,
                          v_mul(v_mul(v_load(SKR_F32, s, at + r), factor), v_load(SKR_F32, p->q_scale, r)));
    }
}

/* s = cap tanh(unit s) of n vectors of scores. slope: NULL, or receives the derivative by the argument. */
SKR_FN void cap_vectors(int n, float unit, float cap, float *s, float *slope)
{
    vf t[4];
    SKR_UNROLL
    for (int i = 0; i < n; i++)
        t[i] = v_mul(v_load(SKR_F32, s, i * SKR_LANES), v_set1(unit));
    v_tanh_each(t, n);
    SKR_UNROLL
    for (int i = 0; i < n; i++) {
        v_store_float(SKR_F32, s, i * SKR_LANES, v_mul(t[i], v_set1(cap)));
        if (slope)
            v_store_float(SKR_F32, slope, i * SKR_LANES, v_fnma(t[i], t[i], v_set1(1.0f)));
    }
}

/* n scores, whole vectors. */
SKR_IN_ORDER SKR_TAIL void cap_scores(int n, float unit, float cap, float *s, float *slope)
{
    int k = 0;
    for (; k + 4 * SKR_LANES <= n; k += 4 * SKR_LANES)
        cap_vectors(4, unit, cap, s + k, slope ? slope + k : NULL);
    for (; k < n; k += SKR_LANES)
        cap_vectors(1, unit, cap, s + k, slope ? slope + k : NULL);
}

static void scale_scores(int n, float factor, float *s)
{
    for (int k = 0; k < n; k += SKR_LANES)
        v_store_float(SKR_F32, s, k, v_mul(v_load(SKR_F32, s, k), v_set1(factor)));
}

/* s = factor s + extra; what is not seen stays so, even if the product was NaN. */
SKR_TAIL void add_extra(int n, float factor, const float *extra, float *s)
{
    const vf none = v_set1(-__builtin_inff());
    for (int k = 0; k < n; k += SKR_LANES) {
        vf more = v_load(SKR_F32, extra, k), x = v_fma(v_load(SKR_F32, s, k), v_set1(factor), more);
        v_store_float(SKR_F32, s, k, v_select(v_eq(more, none), none, x));
    }
}

/* s = factor s - slope |i - j|. */
SKR_TAIL void add_slope(const panel_t *p, int64_t j0, int n, float factor, float *s)
{
    _Alignas(64) float place[MAX_NR];
    for (int r = 0; r < p->nr; r++)
        place[r] = (float)(p->i0 + r + p->diagonal - j0);
    for (int k = 0; k < n; k++)
        for (int at = k * p->nr, r = 0; r < p->nr; r += SKR_LANES) {
            vf x = v_mul(v_load(SKR_F32, s, at + r), v_set1(factor));
            vf apart = v_abs(v_sub(v_load(SKR_F32, place, r), v_set1((float)k)));
            v_store_float(SKR_F32, s, at + r, v_fnma(v_set1(p->slope), apart, x));
        }
}

/* What make_scores leaves the scores to be multiplied by. */
static float score_unit(const panel_t *p)
{
    const job_t *job = p->job;
    bool applied = job->softcap != 0 || job->slopes.data || job->cpu.extras;
    return applied || !(p->factor > 0) ? 1 : p->factor; /* the largest score must stay the largest */
}

/* Every option, one after the other. extra, slope: NULL, or the addends, and where the softcap's derivative goes. */
static void make_scores(const panel_t *p, int64_t j0, int n, const float *extra, float *s, float *slope)
{
    const job_t *job = p->job;
    float factor = p->factor;
    int all = n * p->nr;
    if (job->descale_block && job->mode != SKR_ATTENTION_I8_KV)
        scale_blocks(p, j0, n, s);
    if (job->softcap != 0) {
        float unit = factor / job->softcap, most = 0x1.fffffep127f; /* not infinite: a score of 0 stays 0 */
        cap_scores(all, unit > most ? most : unit < -most ? -most : unit, job->softcap, s, slope);
        factor = 1;
    }
    if (job->slopes.data && !by_positions(job)) {
        add_slope(p, j0, n, factor, s);
        factor = 1;
    }
    if (extra)
        add_extra(all, factor, extra, s);
    else if (!(factor > 0))
        scale_scores(all, factor, s);
}

/* Scores of n keys from j0 on, n at least 1, j0 a multiple of the tile's rows: [n][nr] in s, to be multiplied by what
 * it returns (then they are in units of ln 2). q: the panel. slope: NULL, or receives the softcap's derivative. */
static float panel_scores(const panel_t *p, const char *q, int64_t j0, int n, char *scratch, float *s, float *slope)
{
    const job_t *job = p->job;
    const skr_attention_cpu *c = &job->cpu;
    int mr = c->s_tile.mr, nr = p->nr;
    const char *k = k_panel(job, p->hk, p->s->k_row + j0);
    int64_t each = (int64_t)mr * c->d_pad * skr_kind_bytes(c->s_kind);
    float *extra = c->extras ? (float *)(scratch + c->in_extra) : NULL;
    for (int at = 0; at < n; at += mr, k += each)
        micro(c->s_kind, c->d_pad, k, q, s + at * nr);
    if (c->s_kind == SKR_GEMM_I8)
        to_floats(n * nr, s);
    if (extra)
        make_extra(p, j0, n, (float *)(scratch + c->in_rows), extra);
    make_scores(p, j0, n, extra, s, slope);
    cut_window(p, j0, n, s);
    return score_unit(p) * LOG2E;
}

#endif
