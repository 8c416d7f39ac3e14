/* attention_cpu.h - what attention's CPU kernels share: sequences, panels of keys and values, panels of queries.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_CPU_H
#define SKR_ATTENTION_CPU_H

#include <stdbool.h>

#include "../../cpu/gemm/load.h"
#include "../../cpu/gemm/micro.h"
#include "../../cpu/gemm/pack.h"
#include "../../cpu/simd/vmath.h"
#include "attention.h"

typedef skr_attention_job job_t;
typedef skr_attention_sequence seq_t;

#define LOG2E 0x1.715476p0f
#define LN2   0x1.62e43p-1f

SKR_FN int64_t up_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

SKR_FN int64_t blocks_of(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}

SKR_FN int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

SKR_FN char *scratch_of(const job_t *job, int worker, int64_t at)
{
    return (char *)job->head.workspace + job->cpu.scratch_at + worker * job->cpu.scratch_bytes + at;
}

/* ---------------------------------------------------------------- sequences */

static seq_t *table_of(const job_t *job)
{
    return (seq_t *)((char *)job->head.workspace + job->cpu.table_at);
}

static seq_t sequence(const job_t *job, int64_t b)
{
    const skr_attention_cpu *c = &job->cpu;
    if (c->table_at >= 0)
        return table_of(job)[b];
    return (seq_t){skr_attention_plain(job),
                   b * up_to(job->length_k, c->s_tile.mr),
                   b * up_to(job->length_k, c->v_tile.granule),
                   b * blocks_of(job->length_k, c->block_k),
                   b * blocks_of(job->length, c->block_q),
                   (double)b * (double)job->length * (double)job->length_k};
}

/* The sequence that block `at` of keys (or queries) belongs to; -1: there are fewer blocks. */
static int64_t sequence_of_block(const job_t *job, int64_t at, bool keys)
{
    const skr_attention_cpu *c = &job->cpu;
    if (c->table_at < 0)
        return at / blocks_of(keys ? job->length_k : job->length, keys ? c->block_k : c->block_q);
    const seq_t *t = table_of(job);
    int64_t low = 0, high = job->batch; /* the last that begins at or before it */
    if (at >= (keys ? t[high].k_block : t[high].q_block))
        return -1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if ((keys ? t[middle].k_block : t[middle].q_block) <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Where a token's head lies; b counts batches (thd: 0), token from the first of all. */
SKR_FN int64_t row_at(const job_t *job, const skr_attention_rows *x, int64_t b, int64_t token, int64_t h)
{
    return (job->packed ? 0 : b * x->batch) + token * x->token + h * x->head;
}

SKR_FN int64_t stat_at(const job_t *job, const skr_attention_stat *x, int64_t b, int64_t token, int64_t h)
{
    return (job->packed ? 0 : b * x->batch) + token * x->token + h * x->head;
}

/* A row of a query head's part of dk or dv. */
SKR_FN int64_t part_row(const job_t *job, int64_t b, int64_t token, int64_t h)
{
    return ((job->packed ? 0 : b) * job->heads + h) * job->length_k + token;
}

/* cu_seqlens made sound; returns whether it was. */
static bool make_table(const job_t *job)
{
    const skr_attention_cpu *c = &job->cpu;
    seq_t *t = table_of(job), at = {0};
    bool sound = true;
    for (int64_t i = 0; i <= job->batch; i++)
        sound &= skr_attention_sound(&job->cu_q, i, job->batch, job->length) &&
                 skr_attention_sound(&job->cu_k, i, job->batch, job->length_k);
    at.s.q = skr_attention_cut(&job->cu_q, 0, 0, job->length);
    at.s.k = skr_attention_cut(&job->cu_k, 0, 0, job->length_k);
    for (int64_t b = 0; b < job->batch; b++) {
        int64_t q = skr_attention_cut(&job->cu_q, b + 1, at.s.q, job->length);
        int64_t k = skr_attention_cut(&job->cu_k, b + 1, at.s.k, job->length_k);
        at.s.q_len = least(q - at.s.q, job->limit_q);
        at.s.k_len = least(k - at.s.k, job->limit_k);
        sound &= at.s.q_len == q - at.s.q && at.s.k_len == k - at.s.k;
        t[b] = at;
        at.k_row += up_to(at.s.k_len, c->s_tile.mr);
        at.v_row += up_to(at.s.k_len, c->v_tile.granule);
        at.k_block += blocks_of(at.s.k_len, c->block_k);
        at.q_block += blocks_of(at.s.q_len, c->block_q);
        at.pairs += (double)at.s.q_len * (double)at.s.k_len;
        at.s.q = q;
        at.s.k = k;
    }
    at.s.q_len = at.s.k_len = 0;
    t[job->batch] = at;
    return sound;
}

/* Calls what(job, from, to) for each run of tokens that are in no sequence. */
static void each_gap(const job_t *job, bool keys, void (*what)(const job_t *, int64_t, int64_t))
{
    const seq_t *t = table_of(job);
    int64_t end = 0, all = keys ? job->length_k : job->length;
    for (int64_t b = 0; b <= job->batch; b++) {
        int64_t begin = b == job->batch ? all : keys ? t[b].s.k : t[b].s.q;
        if (begin > end)
            what(job, end, begin);
        end = begin + (keys ? t[b].s.k_len : t[b].s.q_len);
    }
}

/* ---------------------------------------------------------------- rows as panels want them */

/* Whether a row has only finite numbers: times 0, anything else is NaN. */
static bool is_finite(int type, const void *data, int64_t at, int64_t n)
{
    _Alignas(64) float x[64];
    vf sum = v_set1(0.0f), zero = sum;
    if (type != SKR_F32 && type != SKR_F16 && type != SKR_BF16 && type != SKR_E4M3)
        return true;
    for (int64_t i = 0; i < n; i += 64) {
        int part = (int)least(64, n - i), k = part;
        load_neighbours(type, data, at + i, part, x);
        for (; k % SKR_LANES; k++)
            x[k] = 0;
        for (k = 0; k < part; k += SKR_LANES)
            sum = v_fma(v_load(SKR_F32, x, k), zero, sum);
    }
    return v_sum(sum) == 0;
}

/* A row times scale, as the panel's type. */
static void convert_row(int type, const void *data, int64_t at, int64_t n, float scale, int kind, char *to)
{
    _Alignas(64) float x[64];
    for (int64_t i = 0; i < n; i += 64) {
        int part = (int)least(64, n - i);
        load_neighbours(type, data, at + i, part, x);
        for (int k = 0; scale != 1 && k < part; k++)
            x[k] *= scale;
        if (kind == SKR_GEMM_I8)
            for (int k = 0; k < part; k++)
                ((int8_t *)to)[i + k] = (int8_t)x[k];
        else
            store_run(native_type(kind), to, i, 1, part, x);
    }
}

/* n rows for a panel of that kind: where they are, and how far apart. They are used in place when nothing has to be
 * done to them. bad: rows to be taken as 0; scale: for each row; either may be NULL. */
typedef struct staged {
    const char *data;
    int64_t stride;
} staged;

static staged stage_rows(int kind, int type, const void *data, int64_t at, int64_t stride, int64_t n, int64_t width,
                         const uint8_t *bad, const float *scale, char *room)
{
    int size = skr_kind_bytes(kind);
    bool clean = type == native_type(kind) && !scale;
    for (int64_t r = 0; clean && bad && r < n; r++)
        clean = !bad[r];
    if (clean)
        return (staged){(const char *)data + at * size, stride};
    for (int64_t r = 0; r < n; r++) {
        char *to = room + r * width * size;
        if (bad && bad[r])
            __builtin_memset(to, 0, (size_t)(width * size));
        else
            convert_row(type, data, at + r * stride, width, scale ? scale[r] : 1, kind, to);
    }
    return (staged){room, width};
}

/* ---------------------------------------------------------------- panels of keys and values */

SKR_FN float scale_at(const skr_attention_scales *s, int64_t b, int64_t h, int64_t block)
{
    return s->data ? s->data[b * s->batch + h * s->head + block * s->block] : 1.0f;
}

SKR_FN int64_t scale_block(const job_t *job, int64_t token)
{
    return job->descale_block ? token / job->descale_block : 0;
}

/* Keys from row `row` of head h on. */
SKR_FN char *k_panel(const job_t *job, int64_t h, int64_t row)
{
    const skr_attention_cpu *c = &job->cpu;
    return (char *)job->head.workspace + c->k_at + (h * c->k_rows + row) * c->d_pad * skr_kind_bytes(c->s_kind);
}

/* The values of a block of keys that begins at `row`: panel p has its columns p * mr on, of `keys` keys (padded). */
SKR_FN char *v_panel(const job_t *job, int64_t h, int64_t row, int64_t keys, int64_t p)
{
    const skr_attention_cpu *c = &job->cpu;
    int64_t width = c->v_panels * c->v_tile.mr;
    return (char *)job->head.workspace + c->v_at +
           ((h * c->v_rows + row) * width + p * keys * c->v_tile.mr) * skr_kind_bytes(c->v_kind);
}

SKR_FN uint8_t *bad_keys(const job_t *job, int64_t h, int64_t row)
{
    return (uint8_t *)job->head.workspace + job->cpu.bad_at + h * job->cpu.v_rows + row;
}

/* Panels of rows: n rows of `width` columns, mr rows to a panel, k along the row. */
static void pack_rows(int kind, const skr_gemm_tile *t, staged x, int64_t n, int64_t width, char *to)
{
    int64_t pad = up_to(width, t->granule);
    int size = skr_kind_bytes(kind);
    for (int64_t r = 0; r < n; r += t->mr, to += t->mr * pad * size)
        pack_moved(kind, x.data + r * x.stride * size, x.stride, 1, (int)least(t->mr, n - r), t->mr, t->ka, width, pad,
                   to);
}

/* Panels of columns: mr columns to a panel, k along the n rows. */
static void pack_columns(int kind, const skr_gemm_tile *t, staged x, int64_t n, int64_t width, char *to)
{
    int64_t pad = up_to(n, t->granule);
    int size = skr_kind_bytes(kind);
    for (int64_t c = 0; c < width; c += t->mr, to += t->mr * pad * size)
        pack_moved(kind, x.data + c * size, 1, x.stride, (int)least(t->mr, width - c), t->mr, t->ka, n, pad, to);
}

/* Keys and values of one block. */
static void pack_block(const job_t *job, int64_t h, int64_t b, const seq_t *s, int64_t j0, char *room)
{
    const skr_attention_cpu *c = &job->cpu;
    int64_t n = least(c->block_k, s->s.k_len - j0);
    uint8_t *bad = bad_keys(job, h, s->v_row + j0);
    float scale[512];
    bool dequantise_k = job->mode == SKR_ATTENTION_I8_KV, dequantise_v = job->mode != SKR_ATTENTION_FLOAT;
    int64_t k_at = row_at(job, &job->k, b, s->s.k + j0, h), v_at = row_at(job, &job->v, b, s->s.k + j0, h);
    for (int64_t r = 0; dequantise_k && r < n; r++)
        scale[r] = scale_at(&job->k_descale, b, h, scale_block(job, j0 + r));
    staged k = stage_rows(c->s_kind, job->k.type, job->k.data, k_at, job->k.token, n, job->d, NULL,
                          dequantise_k ? scale : NULL, room);
    pack_rows(c->s_kind, &c->s_tile, k, n, job->d, k_panel(job, h, s->k_row + j0));
    for (int64_t r = 0; r < n; r++) {
        scale[r] = dequantise_v ? scale_at(&job->v_descale, b, h, scale_block(job, j0 + r)) : 1;
        bad[r] =
            !__builtin_isfinite(scale[r]) || !is_finite(job->v.type, job->v.data, v_at + r * job->v.token, job->d_v);
    }
    staged v = stage_rows(c->v_kind, job->v.type, job->v.data, v_at, job->v.token, n, job->d_v, bad,
                          dequantise_v ? scale : NULL, room);
    pack_columns(c->v_kind, &c->v_tile, v, n, job->d_v, v_panel(job, h, s->v_row + j0, 0, 0));
}

static void pack_task(const job_t *job, int64_t task, int worker)
{
    int64_t h = task % job->heads_k, block = task / job->heads_k, b = sequence_of_block(job, block, true);
    if (b < 0)
        return;
    seq_t s = sequence(job, b);
    pack_block(job, h, b, &s, (block - s.k_block) * job->cpu.block_k, scratch_of(job, worker, job->cpu.in_stage));
}

/* ---------------------------------------------------------------- panels of queries */

/* n rows of x from token i0 on, as columns of b: panels of nr. */
static void pack_queries(const job_t *job, int kind, const skr_gemm_tile *t, const skr_attention_rows *x, int64_t width,
                         int64_t b, int64_t h, int64_t token, int64_t n, char *room, char *to)
{
    int size = skr_kind_bytes(kind), nr = t->nr;
    int64_t pad = up_to(width, t->granule);
    for (int64_t r = 0; r < n; r += nr, to += nr * pad * size) {
        int rows = (int)least(nr, n - r);
        staged q = stage_rows(kind, x->type, x->data, row_at(job, x, b, token + r, h), x->token, rows, width, NULL,
                              NULL, room);
        pack_moved(kind, q.data, q.stride, 1, rows, nr, t->kb, width, pad, to);
    }
}

#endif
