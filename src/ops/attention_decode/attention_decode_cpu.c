/* attention_decode_cpu.c - attention_decode: parts of a sequence's keys, then their merge. Compiled once per
 * instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task reads each key and value of its part once, for all rows of their head: block by block, scores, exponentials
 * against the maximum so far, and their product with the values. Codes are brought to f32 a block at a time. A block
 * that some row sees in part is worked on token by token, so that what a row does not see is not even multiplied. */
#include "attention_decode_tiles_cpu.h"

/* A part of one head's keys on its way: per row what o, maximum and sum are so far, and the scores of a block. */
typedef struct part_t {
    const job_t *job;
    int64_t b, h, total;
    int64_t first[SKR_DECODE_MAX_SQ], end[SKR_DECODE_MAX_SQ]; /* what each token sees */
    float *q, *s, *o, *max, *sum, *shrink;                    /* one row more than there are */
    float *unwanted;                                          /* a row of o */
    bool bytes;                                               /* codes are used as they lie */
    const uint8_t *careful; /* NULL, or the rows whose values are not finite: o is made again for these alone */
} part_t;

SKR_FN float lane0(vf x)
{
    float all[SKR_LANES];
    v_store_float(SKR_F32, all, 0, x);
    return all[0];
}

/* e^x, x <= 0. */
static float exp_one(float x)
{
    return lane0(v_exp_below(v_set1(x)));
}

/* ---------------------------------------------------------------- softmax */

/* Scores of one row with keys [from, to) as softmax wants them; returns the largest. base: the row's place, counted
 * from the block's first key. by: NULL, or what each sum is multiplied by first. */
SKR_TAIL float finish_scores(const job_t *job, const keys_t *keys, const float *by, int from, int to, float base,
                             float slope, float *s)
{
    const vf none = v_set1(-__builtin_inff());
    const float cap = job->softcap, most = 0x1.fffffep127f; /* a score of 0 stays 0 */
    float unit = cap != 0 ? job->scale / cap : job->scale;
    unit = unit > most ? most : unit < -most ? -most : unit;
    vf top = none;
    for (int i = from; i < to; i += SKR_LANES) {
        int n = (int)least(SKR_LANES, to - i);
        vf x = v_load_n(SKR_F32, s, i, n);
        if (by)
            x = v_mul(x, v_load_n(SKR_F32, by, i, n));
        x = v_mul(x, v_set1(unit));
        if (cap != 0)
            x = v_mul(v_tanh(x), v_set1(cap));
        if (job->slopes.data) {
            vf apart = v_abs(v_sub(v_set1(base), v_load_n(SKR_F32, keys->place, i, n)));
            x = v_fnma(v_set1(slope), apart, x);
        }
        v_store_float_n(SKR_F32, s, i, x, n);
        v_store_float_n(SKR_F32, s, to, none, n < SKR_LANES ? SKR_LANES - n : 0);
        top = v_max(top, v_load(SKR_F32, s, i));
    }
    return v_hmax(top);
}

/* s becomes p; what follows the last key of the last vector becomes 0. Returns the sum. */
SKR_TAIL float exponentials(int from, int to, float base, float *s)
{
    vf all = v_set1(0.0f);
    for (int i = from; i < to; i += SKR_LANES) {
        vf p = v_exp_below(v_sub(v_load(SKR_F32, s, i), v_set1(base)));
        v_store_float(SKR_F32, s, i, p);
        all = v_add(all, p);
    }
    return v_sum(all);
}

static void softmax_row(const part_t *w, const keys_t *keys, int from, int to, int64_t j0, int64_t row)
{
    const job_t *job = w->job;
    const skr_decode_heads *slopes = &job->slopes;
    int64_t token = row / job->group, head = w->h * job->group + row % job->group;
    float slope = slopes->data ? slopes->data[w->b * slopes->batch + head * slopes->head] : 0;
    float *s = w->s + row * SCORES, was = w->max[row];
    float top = finish_scores(job, keys, w->bytes ? keys->k_by : NULL, from, to,
                              (float)(w->total - job->length + token - j0), slope, s);
    float max = top != top || top > was ? top : was;
    float base = max == -__builtin_inff() ? 0 : max; /* nothing seen yet: no -inf minus -inf */
    float sum = exponentials(from, to, base, s);
    for (int i = from; w->bytes && i < to; i += SKR_LANES)
        v_store_float(SKR_F32, s, i, v_mul(v_load(SKR_F32, s, i), v_load(SKR_F32, keys->v_by, i)));
    w->shrink[row] = max == was ? 1 : exp_one(was - base);
    w->max[row] = max;
    w->sum[row] = w->sum[row] * w->shrink[row] + sum;
}

/* ---------------------------------------------------------------- a block of keys */

/* Rows [row, row + n), n up to a tile's; there are always four, some of them unwanted. */
static tile_t tile_of(const part_t *w, int64_t row, int n)
{
    const skr_decode_cpu *c = &w->job->cpu;
    tile_t t;
    for (int r = 0; r < TILE_ROWS; r++) {
        int64_t at = r < n ? row + r : w->job->rows;
        t.q[r] = w->q + at * c->q_width;
        t.s[r] = w->s + at * SCORES;
        t.o[r] = r < n ? w->o + at * c->o_width : w->unwanted;
        t.shrink[r] = w->shrink[at];
    }
    return t;
}

/* Rows [row, end) against keys [from, to). Values are asked for beside the scores, and beside the values the keys of
 * the next block; what codes are made to is in a cache already. */
static void block_rows(const part_t *w, const keys_t *keys, const keys_t *later, int from, int to, int64_t j0,
                       int64_t row, int64_t end)
{
    const job_t *job = w->job;
    int type = job->codes && !w->bytes ? SKR_F32 : job->k.type;
    int64_t size = job->codes && !w->bytes ? 0 : skr_type_bytes(type);
    ahead_t values = {keys->v, 0, job->latent ? 0 : job->d_v * size},
            next = {later->k, 0, later->n ? job->d * size : 0};
    if (from >= to)
        return;
    for (int64_t r = row; r < end; r += TILE_ROWS) {
        int n = (int)least(TILE_ROWS, end - r);
        tile_t t = tile_of(w, r, n);
        if (type == SKR_F32)
            dots_F32(&t, n, keys, from, to, job->d, values);
        else if (type == SKR_F16)
            dots_F16(&t, n, keys, from, to, job->d, values);
        else if (type == SKR_I8)
            dots_I8(&t, n, keys, from, to, job->d, values);
        else
            dots_BF16(&t, n, keys, from, to, job->d, values);
        values.end = 0;
    }
    for (int64_t r = row; r < end; r++)
        softmax_row(w, keys, from, to, j0, r);
    for (int64_t r = row; r < end; r += TILE_ROWS) {
        int n = (int)least(TILE_ROWS, end - r);
        tile_t t = tile_of(w, r, n);
        if (w->careful)
            values_careful(type, &t, n, w->careful + r, keys, from, to, job->d_v);
        else if (type == SKR_F32)
            values_F32(&t, n, keys, from, to, job->d_v, next);
        else if (type == SKR_F16)
            values_F16(&t, n, keys, from, to, job->d_v, next);
        else if (type == SKR_I8)
            values_I8(&t, n, keys, from, to, job->d_v, next);
        else
            values_BF16(&t, n, keys, from, to, job->d_v, next);
        next.end = 0;
    }
}

/* The first key at or behind a place. */
static int key_at(const keys_t *keys, int64_t place)
{
    int i = 0;
    while (i < keys->n && (int64_t)keys->place[i] < place)
        i++;
    return i;
}

static void block_of_part(const part_t *w, const keys_t *keys, const keys_t *later, int64_t j0)
{
    const job_t *job = w->job;
    int64_t last = job->length - 1, end = j0 + (int64_t)keys->place[keys->n - 1];
    if (w->first[last] <= j0 + (int64_t)keys->place[0] && w->end[0] > end) {
        block_rows(w, keys, later, 0, keys->n, j0, 0, job->rows);
        return;
    }
    for (int64_t i = 0; i <= last; i++)
        block_rows(w, keys, later, key_at(keys, w->first[i] - j0), key_at(keys, w->end[i] - j0), j0, i * job->group,
                   (i + 1) * job->group);
}

/* Keys [from, to) of the sequence. */
static void run_part(const part_t *w, int64_t from, int64_t to, float *k_room, float *v_room)
{
    const job_t *job = w->job;
    keys_t both[2] = {{0}};
    int at = 0;
    for (int64_t r = 0; r < job->rows; r++) {
        w->max[r] = -__builtin_inff();
        w->sum[r] = 0;
        if (!w->careful || w->careful[r])
            __builtin_memset(w->o + r * job->cpu.o_width, 0, (size_t)job->cpu.o_width * sizeof(float));
    }
    for (int64_t j0 = from / BLOCK * BLOCK, next; j0 < to; j0 = next, at ^= 1) {
        keys_t *keys = &both[at], *later = &both[at ^ 1];
        next = j0 + BLOCK;
        if (j0 <= from)
            find_keys(job, w->b, w->h, j0, from, least(next, to), keys);
        later->n = 0;
        if (next < to)
            find_keys(job, w->b, w->h, next, next, least(next + BLOCK, to), later);
        if (!keys->n)
            continue;
        if (job->codes && !w->bytes)
            stage_keys(job, keys, later, k_room, v_room);
        block_of_part(w, keys, later, j0);
    }
}

/* ---------------------------------------------------------------- results */

/* Where parts of head h of sequence b begin, in rows. */
SKR_FN int64_t part_row(const job_t *job, int64_t b, int64_t h, int64_t part)
{
    return ((b * job->heads_k + h) * job->parts + part) * job->rows;
}

/* One row from n parts, each `step` rows further: o += what it is divided by at the end, in its own order. */
static void merge_row(const job_t *job, int64_t b, int64_t h, int64_t row, const float *o, const float *max,
                      const float *sum, int64_t n, int64_t step)
{
    _Alignas(64) float all[SKR_DECODE_MAX_DV + 16] = {0};
    const int64_t i = row / job->group, head = h * job->group + row % job->group, width = job->cpu.o_width;
    const float none = -__builtin_inff(), sink = job->sinks.data ? job->sinks.data[head * job->sinks.head] : none;
    float top = sink;
    double total = 0;
    for (int64_t p = 0; p < n; p++)
        top = max[p * step] != max[p * step] || max[p * step] > top ? max[p * step] : top;
    if (sink != none)
        total = (double)exp_one(sink - top);
    for (int64_t p = 0; p < n; p++) {
        if (max[p * step] == none)
            continue;
        float share = exp_one(max[p * step] - top);
        total += (double)(share * sum[p * step]);
        for (int64_t c = 0; share != 0 && c < width; c += SKR_LANES)
            v_store_float(SKR_F32, all, c,
                          v_fma(v_set1(share), v_load(SKR_F32, o, p * step * width + c), v_load(SKR_F32, all, c)));
    }
    vf divisor = v_set1((float)total);
    for (int64_t c = 0; total != 0 && c < width; c += SKR_LANES)
        v_store_float(SKR_F32, all, c, v_div(v_load(SKR_F32, all, c), divisor));
    turn_pairs(job, &job->v, true, all);
    store_run(job->o.type, job->o.data, b * job->o.batch + i * job->o.token + head * job->o.head, 1, (int)job->d_v,
              all);
    if (job->lse.data)
        ((float *)job->lse.data)[b * job->lse.batch + i * job->lse.token + head * job->lse.head] =
            top == none ? none : top + lane0(v_log(divisor));
}

static void merge_task(const job_t *job, int64_t task)
{
    int64_t b = task / job->heads_k, h = task % job->heads_k, total = length_of(job, b) + job->appended;
    int64_t n = (total + job->split - 1) / job->split, at = part_row(job, b, h, 0), width = job->cpu.o_width;
    const float *o = (const float *)((const char *)job->head.workspace + job->cpu.o_at) + at * width;
    const float *max = (const float *)((const char *)job->head.workspace + job->cpu.sums_at) + 2 * at;
    for (int64_t row = 0; row < job->rows; row++)
        merge_row(job, b, h, row, o + row * width, max + row, max + job->rows * job->parts + row, n, job->rows);
}

/* ---------------------------------------------------------------- tasks */

static bool all_finite(const float *x, int64_t n)
{
    vf sum = v_set1(0.0f), zero = sum;
    for (int64_t i = 0; i < n; i += SKR_LANES)
        sum = v_fma(v_load(SKR_F32, x, i), zero, sum);
    return v_sum(sum) == 0;
}

/* Heads first: their rows lie beside each other, and so does what is read at a time. */
static void part_task(const job_t *job, int64_t task, int worker)
{
    const skr_decode_cpu *c = &job->cpu;
    int64_t h = task % job->heads_k, part = task / job->heads_k % job->parts, b = task / job->heads_k / job->parts;
    char *scratch = scratch_of(job, worker, 0);
    part_t w = {.job = job, .b = b, .h = h, .total = length_of(job, b) + job->appended, .bytes = as_bytes(job)};
    int64_t from = part * job->split, to = least(from + job->split, w.total);
    if (part && from >= w.total)
        return;
    float *sums = (float *)(scratch + c->in_sums);
    w.q = (float *)(scratch + c->in_q);
    w.s = (float *)(scratch + c->in_s);
    w.o = (float *)(scratch + c->in_o);
    w.max = sums, w.sum = sums + c->rows_pad, w.shrink = sums + 2 * c->rows_pad;
    w.unwanted = w.o + job->rows * c->o_width;
    if (job->parts > 1) {
        int64_t at = part_row(job, b, h, part), first = part_row(job, b, h, 0);
        float *all = (float *)((char *)job->head.workspace + c->sums_at) + 2 * first;
        w.o = (float *)((char *)job->head.workspace + c->o_at) + at * c->o_width;
        w.max = all + (at - first);
        w.sum = all + job->rows * job->parts + (at - first);
    }
    for (int64_t i = 0; i < job->length; i++)
        skr_decode_range(job, w.total - job->length + i, w.total, &w.first[i], &w.end[i]);
    from = greatest(from, w.first[0]);
    to = least(to, w.end[job->length - 1]);
    __builtin_memset(w.unwanted, 0, (size_t)c->o_width * sizeof(float));
    __builtin_memset(w.s + job->rows * SCORES, 0, SCORES * sizeof(float));
    w.shrink[job->rows] = 0;
    load_queries(job, b, h, w.total, w.q);
    run_part(&w, from, to, (float *)(scratch + c->in_k), (float *)(scratch + c->in_v));
    if (!all_finite(w.o, job->rows * c->o_width)) {
        uint8_t *careful = (uint8_t *)(scratch + c->in_careful);
        for (int64_t row = 0; row < job->rows; row++)
            careful[row] = !all_finite(w.o + row * c->o_width, c->o_width);
        w.careful = careful;
        w.bytes = false;
        run_part(&w, from, to, (float *)(scratch + c->in_k), (float *)(scratch + c->in_v));
    }
    for (int64_t row = 0; job->parts == 1 && row < job->rows; row++)
        merge_row(job, b, h, row, w.o + row * c->o_width, w.max + row, w.sum + row, 1, job->rows);
}

void SKR_KERNEL(attention_decode)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(attention_decode)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
    if (step == SKR_DECODE_APPEND)
        append_token(job, task / job->appended, task % job->appended,
                     (float *)scratch_of(job, worker, job->cpu.in_new));
    else if (step == SKR_DECODE_PARTS)
        part_task(job, task, worker);
    else
        merge_task(job, task);
}
