/* attention_cpu.c - attention: rows of o, block of keys by block. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first steps put keys and values into panels, for all queries. A task makes the rows of o of some queries of one
 * head: for each block of keys, for each panel of queries, scores, exponentials against the maximum so far, and their
 * product with the values, added to o as [column][query] (or as o_at says). A key that a query does not see adds exact
 * zeros, so a row's bits do not depend on its neighbours. */
#include "attention_scores_cpu.h"

/* ---------------------------------------------------------------- softmax, query by query in vectors */

/* What is kept of a panel between blocks: the maximum in units of ln 2 and as scores are, and the sum; and how much o
 * shrinks. What is subtracted from a score is base, or, where the maximum is large, large_top before it is brought to
 * units of ln 2. */
typedef struct running {
    float *max, *top, *sum;
    _Alignas(64) float shrink[MAX_NR], base[MAX_NR], large_top[MAX_NR];
    bool moved, large;
} running;

/* The state of panel a of `panels`. */
SKR_FN running running_of(float *sums, int64_t panels, int nr, int64_t a)
{
    return (running){.max = sums + a * nr, .sum = sums + (panels + a) * nr, .top = sums + (2 * panels + a) * nr};
}

SKR_FN vm is_large(vf max, vf top)
{
    vf size = v_select(v_lt(v_abs(top), v_set1(__builtin_inff())), v_abs(max), v_set1(0.0f));
    return v_lt(v_set1(LARGE), size);
}

/* Takes over the maximum of n more scores (times factor). A NaN may be passed over: its p, and so the sum, is NaN. */
SKR_TAIL void raise_max(running *w, int nr, int n, float factor, const float *s)
{
    w->moved = w->large = false;
    for (int r = 0; r < nr; r += SKR_LANES) {
        const vf none = v_set1(-__builtin_inff()), zero = v_set1(0.0f);
        vf m[4] = {none, none, none, none}, old = v_load(SKR_F32, w->max, r), old_top = v_load(SKR_F32, w->top, r);
        int k = 0;
        for (; k + 4 <= n; k += 4)
            SKR_UNROLL
        for (int u = 0; u < 4; u++)
            m[u] = v_at_least(m[u], v_load(SKR_F32, s, (k + u) * nr + r));
        for (; k < n; k++)
            m[0] = v_at_least(m[0], v_load(SKR_F32, s, k * nr + r));
        vf most = v_max(v_max(m[0], m[1]), v_max(m[2], m[3])), top = v_max(most, old_top);
        vf max = v_max(v_mul(most, v_set1(factor)), old);
        vf base = v_select(v_eq(max, none), zero, max); /* nothing seen yet: no -inf minus -inf */
        vf apart = v_sub(old, base), large_top = zero;
        vm was_large = is_large(old, old_top), large = is_large(max, top);
        w->moved |= vm_any(v_ne(max, old));
        if (vm_any(was_large) || vm_any(large)) {
            w->moved = w->large = true;
            large_top = v_select(large, top, zero);
            base = v_select(large, zero, base);
            apart = v_fma(v_sub(v_select(was_large, old_top, zero), large_top), v_set1(factor),
                          v_sub(v_select(was_large, zero, old), base));
        }
        vf shrink = v_exp2_normal(apart);
        v_store_float(SKR_F32, w->max, r, max);
        v_store_float(SKR_F32, w->top, r, top);
        v_store_float(SKR_F32, w->base, r, base);
        v_store_float(SKR_F32, w->large_top, r, large_top);
        v_store_float(SKR_F32, w->shrink, r, shrink);
        v_store_float(SKR_F32, w->sum, r, v_mul(v_load(SKR_F32, w->sum, r), shrink));
    }
}

/* Scores against a large maximum: what is left is small where it matters. */
static void subtract_large(const running *w, int nr, int n, float *s)
{
    for (int k = 0; k < n; k++)
        for (int at = k * nr, r = 0; r < nr; r += SKR_LANES)
            v_store_float(SKR_F32, s, at + r, v_sub(v_load(SKR_F32, s, at + r), v_load(SKR_F32, w->large_top, r)));
}

#if defined(SKR_LEVEL_neonmm)
/* p of keys k to k + 3 and a vector of queries from r on, where the panels of BFMMLA have them: four keys of a query
 * side by side. */
SKR_FN void store_group(int kind, const vf *x, int nr, int k, int r, uint16_t *panel)
{
    (void)kind;
    uint16_t *to = panel + k * nr + r * 4;
    uint16x8_t a = v_narrow2_bf16((vf2){x[0], x[1]}), b = v_narrow2_bf16((vf2){x[2], x[3]});
    uint16x8_t even = vzip1q_u16(a, b), odd = vzip2q_u16(a, b);
    vst1q_u16(to, vzip1q_u16(even, odd));
    vst1q_u16(to + 8, vzip2q_u16(even, odd));
}
enum { GROUPS = 1 };
#elif X86_BF16
/* Two keys of a query side by side. */
SKR_FN void store_group(int kind, const vf *x, int nr, int k, int r, uint16_t *panel)
{
    UNROLLED
    for (int i = 0; i < 4; i += 2) {
#if HAS_F16
        __m512i pairs = kind == SKR_GEMM_F16 ? f16_pairs(x[i], x[i + 1]) : bf16_pairs(x[i], x[i + 1]);
#else
        __m512i pairs = bf16_pairs(x[i], x[i + 1]);
#endif
        _mm512_storeu_si512(panel + (k + i) * nr + r * 2, pairs);
    }
    (void)kind;
}
enum { GROUPS = 1 };
#else
SKR_FN void store_group(int kind, const vf *x, int nr, int k, int r, uint16_t *panel)
{
    (void)kind, (void)x, (void)nr, (void)k, (void)r, (void)panel;
}
enum { GROUPS = 0 };
#endif

/* p of keys k to k + 3, of which `part` are there: beyond n the buffer holds what it did, no scores. */
SKR_FN void exponentials4(int panel, int nr, int k, int r, int part, vf f, vf base, float *scores, vf *sum,
                          uint16_t *to)
{
    vf x[4];
    float *s = scores + k * nr + r;
    SKR_UNROLL
    for (int u = 0; u < 4; u++)
        x[u] = u < part ? v_fma(v_load(SKR_F32, s, u * nr), f, base) : v_set1(-__builtin_inff());
    v_exp2_each(x, 4);
    SKR_UNROLL
    for (int u = 0; u < 4; u++)
        sum[u] = v_add(sum[u], x[u]);
    if (panel != SKR_GEMM_F32) {
        store_group(panel, x, nr, k, r, to);
        return;
    }
    SKR_UNROLL
    for (int u = 0; u < 4; u++)
        if (u < part)
            v_store_float(SKR_F32, s, u * nr, x[u]);
}

/* s becomes p, and the sums grow. panel: the kind of halves as which p goes there instead, where the level can. */
SKR_FN void exponentials_to(int panel, running *w, int nr, int n, float factor, float *s, uint16_t *to)
{
    vf f = v_set1(factor);
    for (int r = 0; r < nr; r += SKR_LANES) {
        vf base = v_neg(v_load(SKR_F32, w->base, r)), zero = v_set1(0.0f), sum[4] = {zero, zero, zero, zero};
        int k = 0;
        for (; k + 4 <= n; k += 4)
            exponentials4(panel, nr, k, r, 4, f, base, s, sum, to);
        if (k < n)
            exponentials4(panel, nr, k, r, n - k, f, base, s, sum, to);
        vf all = v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3]));
        v_store_float(SKR_F32, w->sum, r, v_add(v_load(SKR_F32, w->sum, r), all));
    }
}

/* Functions of their own: in order, and with all registers. */
SKR_IN_ORDER SKR_TAIL void exponentials(running *w, int nr, int n, float factor, float *s)
{
    uint16_t none;
    exponentials_to(SKR_GEMM_F32, w, nr, n, factor, s, &none);
}

SKR_IN_ORDER SKR_TAIL void exponentials_bf16(running *w, int nr, int n, float factor, float *s, uint16_t *to)
{
    exponentials_to(SKR_GEMM_BF16, w, nr, n, factor, s, to);
}

#if HAS_F16
SKR_IN_ORDER SKR_TAIL void exponentials_f16(running *w, int nr, int n, float factor, float *s, uint16_t *to)
{
    exponentials_to(SKR_GEMM_F16, w, nr, n, factor, s, to);
}
#endif

/* Whether the level multiplies p as halves. */
SKR_FN bool of_halves(int kind)
{
    return (HAS_BF16 && kind == SKR_GEMM_BF16) || (HAS_F16 && kind == SKR_GEMM_F16);
}

/* p as it multiplies v: codes where it is quantised, then dropout. */
static void quantise_and_drop(const panel_t *p, int64_t j0, int n, float *extra, float *s)
{
    const job_t *job = p->job;
    int all = n * p->nr;
    if (job->mode == SKR_ATTENTION_I8_P)
        for (int k = 0; k < all; k += SKR_LANES) {
            vf x = v_round(v_div(v_load(SKR_F32, s, k), v_set1(job->p_scale)));
            v_store_float(SKR_F32, s, k, v_at_most(x, v_set1(127.0f)));
        }
    if (job->drop) {
        make_keep(p, j0, n, extra);
        for (int k = 0; k < all; k += SKR_LANES)
            v_store_float(SKR_F32, s, k, v_mul(v_load(SKR_F32, s, k), v_load(SKR_F32, extra, k)));
    }
}

/* p in the type of the product: in place for f32. */
static const void *p_panel(const panel_t *p, int n, int pad, float *s, char *scratch)
{
    const skr_attention_cpu *c = &p->job->cpu;
    int nr = p->nr;
    for (int k = n * nr; k < pad * nr; k += SKR_LANES)
        v_store_float(SKR_F32, s, k, v_set1(0.0f));
    if (c->v_kind == SKR_GEMM_F32)
        return s;
    uint16_t *rows = (uint16_t *)(scratch + c->in_rows);
    narrow(c->v_kind, pad * nr, s, rows);
    pack_moved(c->v_kind, (const char *)rows, 1, nr, nr, nr, c->v_tile.kb, pad, pad, scratch + c->in_p);
    return scratch + c->in_p;
}

/* ---------------------------------------------------------------- o */

/* Sums of products of halves can go on: o = o * shrink + p v for one panel of columns, which lie as o_at says. */
SKR_FN bool goes_on(const skr_attention_cpu *c)
{
    return of_halves(c->v_kind);
}

SKR_FN void go_on(const skr_attention_cpu *c, const running *w, int64_t keys, const void *v, const void *p, float *o)
{
#if HAS_F16
    if (c->v_kind == SKR_GEMM_F16) {
        micro_f16_on(keys, v, p, w->moved ? w->shrink : NULL, o);
        return;
    }
#endif
#if X86_BF16
    micro_bf16_on(keys, v, p, w->moved ? w->shrink : NULL, o);
#elif HAS_BF16
    micro_bf16_on(keys, v, p, w->shrink, o);
#endif
    (void)c, (void)w, (void)keys, (void)v, (void)p, (void)o;
}

/* Where o has a column of query r: [column][query], or as the accumulators of BFMMLA are. */
SKR_FN int64_t o_at(const skr_attention_cpu *c, int64_t column, int r)
{
#if defined(SKR_LEVEL_neonmm)
    enum { MR = TILE(BF16, MR), NR = TILE(BF16, NR) };
    if (goes_on(c)) /* blocks of 2 x 2, those of two queries one after the other */
        return column / MR * (MR * NR) + r / 2 * (2 * MR) + column % MR / 2 * 4 + column % 2 * 2 + r % 2;
#endif
    return column * c->v_tile.nr + r;
}

/* mr columns from `column` on as rows of queries, [query][mr]. */
static void turn_o(const skr_attention_cpu *c, int64_t column, const float *o, float *t)
{
    const int mr = c->v_tile.mr, nr = c->v_tile.nr;
    o += o_at(c, column, 0);
#if defined(SKR_LEVEL_neonmm)
    for (int r = 0; goes_on(c) && r < nr; r += 2)
        for (int i = 0; i < mr; i += 4) {
            vf even = vld1q_f32(o + r * mr + i * 2), odd = vld1q_f32(o + r * mr + i * 2 + 4);
            vst1q_f32(t + r * mr + i, vuzp1q_f32(even, odd));
            vst1q_f32(t + (r + 1) * mr + i, vuzp2q_f32(even, odd));
        }
    if (goes_on(c))
        return;
#endif
    pack_moved(SKR_GEMM_F32, (const char *)o, nr, 1, mr, mr, 1, nr, nr, (char *)t);
}

/* o = o * shrink + p v where sums cannot go on: t is p v of one panel of columns. */
static void add_tile(const running *w, int mr, int nr, const float *t, float *o)
{
    for (int r = 0; r < nr; r += SKR_LANES) {
        vf shrink = v_load(SKR_F32, w->shrink, r);
        for (int c = 0; c < mr; c++) {
            vf x = v_load(SKR_F32, o, c * nr + r), y = v_load(SKR_F32, t, c * nr + r);
            v_store_float(SKR_F32, o, c * nr + r, w->moved ? v_fma(x, shrink, y) : v_add(x, y));
        }
    }
}

/* Values that are not finite were left out of the panels: they reach the queries that see them, and no others. */
static void add_bad(const panel_t *p, int64_t j0, int n, const uint8_t *bad, const float *s, float *o)
{
    const job_t *job = p->job;
    for (int k = 0; k < n; k++) {
        if (!bad[k])
            continue;
        int64_t at = row_at(job, &job->v, p->b, p->s->s.k + j0 + k, p->hk);
        float scale = scale_at(&job->v_descale, p->b, p->hk, scale_block(job, j0 + k));
        for (int64_t c = 0; c < job->d_v; c++) {
            float v = one_float(job->v.type, job->v.data, at + c) * scale;
            for (int r = 0; r < p->rows; r++)
                if (s[k * p->nr + r] != 0)
                    o[o_at(&job->cpu, c, r)] += s[k * p->nr + r] * v;
        }
    }
}

/* One panel of queries, keys [from, to) of the block that begins at j0. */
static void panel_block(const panel_t *p, const char *q, int64_t j0, int64_t from, int64_t to, bool any_bad, running *w,
                        float *o, char *scratch)
{
    const job_t *job = p->job;
    const skr_attention_cpu *c = &job->cpu;
    int nr = p->nr, n = (int)(to - from), mr = c->v_tile.mr, size = skr_kind_bytes(c->v_kind);
    int pad = (int)up_to(n, c->v_tile.granule);
    int64_t keys = up_to(least(c->block_k, p->s->s.k_len - j0), c->v_tile.granule);
    float *s = (float *)(scratch + c->in_s), *extra = (float *)(scratch + c->in_extra);
    float factor = panel_scores(p, q, from, n, scratch, s, NULL);
    raise_max(w, nr, n, factor, s);
    if (w->large)
        subtract_large(w, nr, n, s);
    bool straight = GROUPS && of_halves(c->v_kind) && !any_bad && !job->drop && job->mode != SKR_ATTENTION_I8_P;
    const void *pp = scratch + c->in_p;
    if (straight) {
        uint16_t *panel = (uint16_t *)(scratch + c->in_p);
        const int64_t made = up_to(n, 4); /* with zeros beyond n; may be more than the granule asks for */
#if HAS_F16
        if (c->v_kind == SKR_GEMM_F16)
            exponentials_f16(w, nr, n, factor, s, panel);
        else
#endif
            exponentials_bf16(w, nr, n, factor, s, panel);
        if (made < pad)
            __builtin_memset(panel + made * nr, 0, (size_t)((pad - made) * nr) * 2);
    } else {
        exponentials(w, nr, n, factor, s);
        quantise_and_drop(p, from, n, extra, s);
        pp = p_panel(p, n, pad, s, scratch);
    }
    _Alignas(64) float t[SKR_GEMM_MAX_MR * MAX_NR];
    for (int64_t v = 0; v < c->v_panels; v++) {
        const char *panel = v_panel(job, p->hk, p->s->v_row + j0, keys, v) + (from - j0) * mr * size;
        if (goes_on(c)) {
            go_on(c, w, pad, panel, pp, o + v * mr * nr);
            continue;
        }
        micro(c->v_kind, pad, panel, pp, t);
        add_tile(w, mr, nr, t, o + v * mr * nr);
    }
    if (any_bad)
        add_bad(p, from, n, bad_keys(job, p->hk, p->s->v_row + from), s, o);
}

/* ---------------------------------------------------------------- results */

static void finish_panel(const panel_t *p, const running *w, const float *o)
{
    const job_t *job = p->job;
    const skr_attention_cpu *c = &job->cpu;
    const skr_attention_stat *lse = &job->lse;
    int nr = p->nr, mr = c->v_tile.mr;
    _Alignas(64) float inverse[MAX_NR], log[MAX_NR], t[SKR_GEMM_MAX_MR * MAX_NR];
    vf out = v_set1(job->mode == SKR_ATTENTION_I8_P ? job->p_scale : 1), unit = v_set1(score_unit(p));
    for (int r = 0; r < nr; r += SKR_LANES) {
        vf sum = v_load(SKR_F32, w->sum, r), zero = v_set1(0.0f), rest = v_log(sum);
        vf max = v_load(SKR_F32, w->max, r), top = v_load(SKR_F32, w->top, r);
        v_store_float(SKR_F32, inverse, r, v_select(v_eq(sum, zero), zero, v_div(out, sum)));
        /* large: rounded twice, so that backward's scores, rounded once, are not above it or far below */
        v_store_float(SKR_F32, log, r,
                      v_select(is_large(max, top), v_add(v_mul(top, unit), rest), v_fma(max, v_set1(LN2), rest)));
    }
    const int64_t token = p->s->s.q + p->i0;
    for (int64_t column = 0; column < job->d_v; column += mr) {
        const int columns = (int)least(mr, job->d_v - column);
        turn_o(c, column, o, t);
        for (int r = 0; r < p->rows; r++) {
            float *row = t + r * mr;
            for (int i = 0; i < columns; i++)
                row[i] *= inverse[r];
            store_run(job->o.type, job->o.data, row_at(job, &job->o, p->b, token + r, p->h) + column, 1, columns, row);
        }
    }
    for (int r = 0; lse->data && r < p->rows; r++)
        lse->data[stat_at(job, lse, p->b, token + r, p->h)] = log[r];
}

/* Queries from i0 on, as many as a task has, of head h. */
static void rows_of_head(const job_t *job, const seq_t *s, int64_t b, int64_t h, int64_t i0, char *scratch)
{
    const skr_attention_cpu *c = &job->cpu;
    int nr = c->s_tile.nr, mr = c->s_tile.mr;
    int64_t n = least(c->block_q, s->s.q_len - i0), panels = blocks_of(n, nr);
    int64_t o_size = c->v_panels * c->v_tile.mr * nr, q_bytes = nr * c->d_pad * skr_kind_bytes(c->s_kind);
    float *o = (float *)(scratch + c->in_o), *sums = (float *)(scratch + c->in_sums);
    float sink = job->sinks.data ? scale_at(&job->sinks, 0, h, 0) : -__builtin_inff();
    int64_t first = s->s.k_len, end = 0;
    pack_queries(job, c->s_kind, &c->s_tile, &job->q, job->d, b, h, s->s.q + i0, n, scratch + c->in_stage,
                 scratch + c->in_q);
    __builtin_memset(o, 0, (size_t)(panels * o_size) * 4);
    for (int64_t a = 0; a < panels; a++) {
        panel_t p = panel_of(job, s, b, h, i0 + a * nr);
        running w = running_of(sums, panels, nr, a);
        for (int r = 0; r < nr; r++) {
            w.max[r] = sink * LOG2E;
            w.sum[r] = sink == -__builtin_inff() ? 0 : 1;
            w.top[r] = sink / score_unit(&p);
        }
        int64_t from, to;
        panel_range(&p, &from, &to);
        first = least(first, from);
        end = to > end ? to : end;
    }
    for (int64_t j0 = first / c->block_k * c->block_k; j0 < end; j0 += c->block_k) {
        int64_t stop = least(j0 + c->block_k, s->s.k_len);
        bool any_bad = __builtin_memchr(bad_keys(job, h / job->group, s->v_row + j0), 1, (size_t)(stop - j0)) != NULL;
        for (int64_t a = 0; a < panels; a++) {
            panel_t p = panel_of(job, s, b, h, i0 + a * nr);
            running w = running_of(sums, panels, nr, a);
            int64_t from, to;
            panel_range(&p, &from, &to);
            from = from > j0 ? j0 + (from - j0) / mr * mr : j0;
            to = least(to, stop);
            if (from < to)
                panel_block(&p, scratch + c->in_q + a * q_bytes, j0, from, to, any_bad, &w, o + a * o_size, scratch);
        }
    }
    for (int64_t a = 0; a < panels; a++) {
        panel_t p = panel_of(job, s, b, h, i0 + a * nr);
        running w = running_of(sums, panels, nr, a);
        finish_panel(&p, &w, o + a * o_size);
    }
}

/* The last queries first: with a causal mask they see the most. */
static void rows_task(const job_t *job, int64_t task, int worker)
{
    int64_t h = task % job->heads, block = job->cpu.q_blocks - 1 - task / job->heads;
    int64_t b = sequence_of_block(job, block, false);
    if (b < 0)
        return;
    seq_t s = sequence(job, b);
    rows_of_head(job, &s, b, h, (block - s.q_block) * job->cpu.block_q, scratch_of(job, worker, 0));
}

static void clear_rows(const job_t *job, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++)
        for (int64_t h = 0; h < job->heads; h++) {
            __builtin_memset((char *)job->o.data + row_at(job, &job->o, 0, t, h) * skr_type_bytes(job->o.type), 0,
                             (size_t)(job->d_v * skr_type_bytes(job->o.type)));
            if (job->lse.data)
                job->lse.data[stat_at(job, &job->lse, 0, t, h)] = -__builtin_inff();
        }
}

void SKR_KERNEL(attention)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(attention)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
#if defined(SKR_LEVEL_amx)
    amx_begin();
#endif
    if (step == SKR_ATTENTION_TABLE) {
        if (!make_table(job))
            __atomic_store_n(job->head.error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
        each_gap(job, false, clear_rows);
    } else if (step == SKR_ATTENTION_PACK) {
        pack_task(job, task, worker);
    } else {
        rows_task(job, task, worker);
    }
#if defined(SKR_LEVEL_amx)
    amx_end();
#endif
}
