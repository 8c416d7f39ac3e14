/* rope_cpu.c - rotation of heads, with or without their norm, and the preparing step. Compiled once per level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The element types are constants of always-inlined bodies; the table below holds one small function for each
 * combination. With a norm a head is read twice, the second time from cache. */
#include "rope_cpu.h"

/* ---------------------------------------------------------------- the sum of squares of a head */

enum { STEP = 2 * SKR_LANES, BLOCK = 4 * STEP };

/* In chunks whose f32 sums are added in f64, so that any width keeps its accuracy. */
SKR_FN float rstd_of_head(int xt, const void *x, int64_t d, float eps)
{
    double sum = 0;
    for (int64_t at = 0; at < d; at += CHUNK) {
        int64_t end = at + chunk_len(d, at), i = at;
        vf2 a[4] = {v2_set1(0.0f), v2_set1(0.0f), v2_set1(0.0f), v2_set1(0.0f)};
        for (; i + BLOCK <= end; i += BLOCK)
            SKR_UNROLL
        for (int k = 0; k < 4; k++)
            v_sumsq2(xt, x, i + k * STEP, &a[k]);
        for (; i + STEP <= end; i += STEP)
            v_sumsq2(xt, x, i, &a[0]);
        if (i < end) {
            vf2 t = v_load2_n(xt, x, i, (int)(end - i));
            a[1] = v2_fma(t, t, a[1]);
        }
        vf2 all = v2_add(v2_add(a[0], a[1]), v2_add(a[2], a[3]));
        sum += (double)v_sum(v_add(all.lo, all.hi));
    }
    return rstd_of(sum, 1.0 / (double)d, eps);
}

/* ---------------------------------------------------------------- one head */

SKR_FN vf2 v2_fnma(vf2 a, vf2 b, vf2 c)
{
    return (vf2){v_fnma(a.lo, b.lo, c.lo), v_fnma(a.hi, b.hi, c.hi)};
}

SKR_FN vf2 load(int norm, int xt, const void *x, int64_t i, vf rstd, const float *w)
{
    vf2 a = v_load2(xt, x, i);
    return norm ? v2_mul(v2_scale(a, rstd), v_load2(SKR_F32, w, i)) : a;
}

SKR_FN vf2 load_n(int norm, int xt, const void *x, int64_t i, vf rstd, const float *w, int n)
{
    vf2 a = v_load2_n(xt, x, i, n);
    return norm ? v2_mul(v2_scale(a, rstd), v_load2_n(SKR_F32, w, i, n)) : a;
}

/* Columns i and i + r/2. */
SKR_FN void half_head(int norm, int xt, int yt, const float *w, const void *x, void *y, const float *table, int64_t r,
                      vf rstd, int past)
{
    int64_t half = r / 2, i = 0;
    const float *sine = table + half;
    for (; i + 2 * STEP <= half; i += 2 * STEP) {
        vf2 a[2], b[2], c[2], s[2];
        SKR_UNROLL
        for (int k = 0; k < 2; k++) {
            a[k] = load(norm, xt, x, i + k * STEP, rstd, w);
            b[k] = load(norm, xt, x, half + i + k * STEP, rstd, w);
            c[k] = v_load2(SKR_F32, table, i + k * STEP);
            s[k] = v_load2(SKR_F32, sine, i + k * STEP);
        }
        SKR_UNROLL
        for (int k = 0; k < 2; k++) {
            v_out2(yt, y, i + k * STEP, v2_fnma(b[k], s[k], v2_mul(a[k], c[k])), past);
            v_out2(yt, y, half + i + k * STEP, v2_fma(a[k], s[k], v2_mul(b[k], c[k])), past);
        }
    }
    for (; i < half; i += STEP) {
        int n = half - i < STEP ? (int)(half - i) : STEP;
        vf2 a = load_n(norm, xt, x, i, rstd, w, n), b = load_n(norm, xt, x, half + i, rstd, w, n);
        vf2 c = v_load2_n(SKR_F32, table, i, n), s = v_load2_n(SKR_F32, sine, i, n);
        v_store2_n(yt, y, i, v2_fnma(b, s, v2_mul(a, c)), n);
        v_store2_n(yt, y, half + i, v2_fma(a, s, v2_mul(b, c)), n);
    }
}

/* Columns 2i and 2i + 1: each times cos, plus its neighbour times sin with the sign that belongs to the place. */
SKR_FN void interleaved_head(int norm, int xt, int yt, const float *w, const void *x, void *y, const float *table,
                             int64_t r, vf rstd, int past)
{
    int64_t i = 0;
    const float *sine = table + r;
    for (; i + 2 * STEP <= r; i += 2 * STEP) {
        vf2 a[2], c[2], s[2];
        SKR_UNROLL
        for (int k = 0; k < 2; k++) {
            a[k] = load(norm, xt, x, i + k * STEP, rstd, w);
            c[k] = v_load2(SKR_F32, table, i + k * STEP);
            s[k] = v_load2(SKR_F32, sine, i + k * STEP);
        }
        SKR_UNROLL
        for (int k = 0; k < 2; k++)
            v_out2(yt, y, i + k * STEP, v2_fma(v2_swap_pairs(a[k]), s[k], v2_mul(a[k], c[k])), past);
    }
    for (; i < r; i += STEP) {
        int n = r - i < STEP ? (int)(r - i) : STEP;
        vf2 a = load_n(norm, xt, x, i, rstd, w, n);
        vf2 c = v_load2_n(SKR_F32, table, i, n), s = v_load2_n(SKR_F32, sine, i, n);
        v_store2_n(yt, y, i, v2_fma(v2_swap_pairs(a), s, v2_mul(a, c)), n);
    }
}

SKR_FN void copy_rest(int norm, int xt, int yt, const float *w, const void *x, void *y, int64_t i, int64_t d, vf rstd,
                      int past)
{
    for (; i + STEP <= d; i += STEP)
        v_out2(yt, y, i, load(norm, xt, x, i, rstd, w), past);
    if (i < d)
        v_store2_n(yt, y, i, load_n(norm, xt, x, i, rstd, w, (int)(d - i)), (int)(d - i));
}

SKR_FN void run_body(int norm, int interleaved, int xt, int yt, const run *from)
{
    const run w = *from; /* or it would be read again after every store */
    const char *x = w.x;
    char *y = w.y;
    const float *table = w.table;
    float rstd[SKR_ROPE_HEADS];
    /* Two halves of a head at once look like no stream to a prefetcher. Heads that follow each other are asked for. */
    int64_t bytes = w.d * (xt == SKR_F32 ? 4 : 2), ahead_bytes = w.x_step == bytes ? bytes : 0;
    for (int64_t row = 0; row < w.n; row++, x += w.x_step, y += w.y_step, table += w.table_step) {
        int64_t k = row % SKR_ROPE_HEADS;
        prefetch_block(x + AHEAD, ahead_bytes);
        for (int64_t ahead = 0; norm && k == 0 && ahead < SKR_ROPE_HEADS && row + ahead < w.n; ahead++)
            rstd[ahead] = rstd_of_head(xt, x + ahead * w.x_step, w.d, w.eps);
        vf scale = v_set1(norm ? rstd[k] : 1.0f);
        if (interleaved)
            interleaved_head(norm, xt, yt, w.weight, x, y, table, w.r, scale, w.past);
        else
            half_head(norm, xt, yt, w.weight, x, y, table, w.r, scale, w.past);
        if (w.r < w.d && (norm || x != y))
            copy_rest(norm, xt, yt, w.weight, x, y, w.r, w.d, scale, w.past);
    }
}

#define RUN(nm, il, xt, yt)                                                                                            \
    static void run_##nm##_##il##_##xt##_##yt(const run *w)                                                            \
    {                                                                                                                  \
        run_body(nm, il, SKR_##xt, SKR_##yt, w);                                                                       \
    }
#define RUNS2(nm, il, xt) RUN(nm, il, xt, F32) RUN(nm, il, xt, F16) RUN(nm, il, xt, BF16)
#define RUNS1(nm, il)     RUNS2(nm, il, F32) RUNS2(nm, il, F16) RUNS2(nm, il, BF16)
#define RUNS(nm)          RUNS1(nm, 0) RUNS1(nm, 1)
RUNS(0)
RUNS(1)
#define ROW(nm, il, xt)                                                                                                \
    {                                                                                                                  \
        run_##nm##_##il##_##xt##_F32, run_##nm##_##il##_##xt##_F16, run_##nm##_##il##_##xt##_BF16                      \
    }
#define ROWS(nm, il)                                                                                                   \
    {                                                                                                                  \
        ROW(nm, il, F32), ROW(nm, il, F16), ROW(nm, il, BF16)                                                          \
    }
static const run_fn runs[2][2][3][3] = {{ROWS(0, 0), ROWS(0, 1)}, {ROWS(1, 0), ROWS(1, 1)}};

run_fn SKR_KERNEL(rope_run)(int norm, int interleaved, int x_type, int y_type)
{
    return runs[norm][interleaved][x_type][y_type];
}

/* ---------------------------------------------------------------- a tile */

/* Heads or tokens inside, whichever are closer together in memory. */
static void rotate(const tile *t, int which, run_fn fn)
{
    const job_t *job = t->job;
    const skr_rope_rows *in = &job->in[which], *out = &job->out[which];
    int64_t heads = job->heads[which], row = 2 * job->r;
    int xb = skr_type_bytes(job->in_type), yb = skr_type_bytes(job->out_type);
    run w = {.r = job->r, .d = job->d, .weight = weight_of(job, which), .eps = job->eps};
    int tokens_inside = in->head > in->token && t->n > 1;
    int64_t outer = tokens_inside ? heads : t->n;
    w.x_step = (tokens_inside ? in->token : in->head) * xb;
    w.y_step = (tokens_inside ? out->token : out->head) * yb;
    w.table_step = tokens_inside ? row : 0;
    int whole_lines = (w.y_step | job->r / 2 * yb) % LINE == 0; /* both halves of every head */
    for (int64_t i = 0; i < outer; i++) {
        int64_t k = tokens_inside ? 0 : i, end = tokens_inside ? t->n : i + 1, h = tokens_inside ? i : 0;
        while (k < end) { /* tokens up to the next that is in no sequence */
            int64_t last = k;
            while (last < end && !nowhere(t, last))
                last++;
            w.x = head_at(in, job->in_type, t, k, h);
            w.y = head_at(out, job->out_type, t, k, h);
            w.past = whole_lines && goes_past(&job->head, w.y);
            w.table = t->table + k * row;
            w.n = tokens_inside ? last - k : last > k ? heads : 0;
            if (w.n)
                fn(&w);
            for (int64_t z = 0; last < end && z < (tokens_inside ? 1 : heads); z++)
                zero_head(head_at(out, job->out_type, t, last, h + z), job->out_type, job->d);
            k = last + 1;
        }
    }
}

static void rows(const job_t *job, int64_t task, int worker)
{
    int64_t begin = task * job->cpu.tiles_per_task, end = begin + job->cpu.tiles_per_task;
    end = end < job->cpu.tiles ? end : job->cpu.tiles;
    run_fn fn = runs[job->norm && !job->backward][job->interleaved][job->in_type][job->out_type];
    tile t = tile_start(job, worker);
    for (int64_t i = begin; i < end; i++) {
        tile_at(&t, i);
        for (int which = 0; which < 2; which++)
            if (job->heads[which])
                rotate(&t, which, fn);
    }
}

/* ---------------------------------------------------------------- before the tiles */

/* Task 0: frequencies and weights; the others: positions of packed tokens, and whether cu_seqlens is sound. */
static void prepare(const job_t *job, int64_t task)
{
    const skr_rope_cpu *cpu = &job->cpu;
    char *workspace = job->head.workspace;
    if (task == 0) {
        for (int64_t i = 0; cpu->turns_at >= 0 && i < job->r / 2; i++)
            ((double *)(workspace + cpu->turns_at))[i] = skr_rope_turns(&job->angles, i);
        for (int t = 0; t < 2; t++)
            copy_param(&job->head, &job->weight[t], job->weight_offset, cpu->weight_at[t], 0, 0, 0, job->d);
        return;
    }
    int64_t begin = (task - 1) * SKR_ROPE_PIECE, end = begin + SKR_ROPE_PIECE;
    int64_t *positions = (int64_t *)(workspace + cpu->positions_at);
    for (int64_t i = begin; i < end; i++) {
        if (i < job->length)
            positions[i] = skr_rope_packed(job, i);
        if (i <= job->sequences && !skr_rope_good_entry(job, i))
            bad_index(job);
    }
}

void SKR_KERNEL(rope)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(rope)(const void *job, int step, int64_t task, int worker)
{
    if (step == SKR_ROPE_PREPARE)
        prepare(job, task);
    else
        rows(job, task, worker);
}
