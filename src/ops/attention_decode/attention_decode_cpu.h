/* attention_decode_cpu.h - what attention_decode's CPU kernel begins with: keys of a block and where they lie, queries
 * and new tokens with their rotation, what is appended.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_DECODE_CPU_H
#define SKR_ATTENTION_DECODE_CPU_H

#include <stdbool.h>

#include "../../cpu/gemm/load.h"
#include "../../cpu/quant.h"
#include "../../cpu/simd/vmath.h"
#include "attention_decode.h"

typedef skr_attention_decode_job job_t;

enum { BLOCK = SKR_DECODE_BLOCK, SCORES = SKR_DECODE_SCORES, REACH = SCORES - BLOCK };

SKR_FN int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

SKR_FN int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline void bad_index(const job_t *job)
{
    __atomic_store_n(job->head.error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
}

SKR_FN char *scratch_of(const job_t *job, int worker, int64_t at)
{
    return (char *)job->head.workspace + job->cpu.scratch_at + worker * job->cpu.scratch_bytes + at;
}

/* Tokens before the call. */
static int64_t length_of(const job_t *job, int64_t b)
{
    int bad = 0;
    int64_t n = skr_decode_length(job, b, &bad);
    if (bad)
        bad_index(job);
    return n;
}

SKR_FN char *row_in(const skr_decode_cache *c, int64_t block, int64_t row, int64_t h)
{
    return c->data + block * c->block + row * c->token + h * c->head;
}

SKR_FN float *scale_in(const skr_decode_cache *c, int64_t block, int64_t row, int64_t h)
{
    return c->scale ? c->scale + block * c->scale_block + row * c->scale_token + h * c->scale_head : NULL;
}

/* ---------------------------------------------------------------- keys */

/* Keys of a block that some row sees, on pages that exist: their places after the block's first key, their rows. What a
 * tile reads beyond the last one is that one again. */
typedef struct keys_t {
    int n;
    float place[SCORES];
    const char *k[SCORES], *v[SCORES];
    const float *k_scale[BLOCK], *v_scale[BLOCK];
    float k_by[SCORES], v_by[SCORES]; /* their values, where rows are used as they lie (as_bytes) */
} keys_t;

/* Whether bytes are multiplied as they lie, which a few rows do not pay twice for: then scores and p take the scales.
 */
SKR_FN bool as_bytes(const job_t *job)
{
    enum { FEW = 8 };
    return SKR_LANES > 1 && job->k.type == SKR_I8 && job->rows <= FEW && job->k.group >= job->d &&
           job->v.group >= job->d_v && job->d % SKR_LANES == 0 && job->d_v % SKR_LANES == 0;
}

/* Keys [from, to) of the block that begins at key j0. */
static void find_keys(const job_t *job, int64_t b, int64_t h, int64_t j0, int64_t from, int64_t to, keys_t *keys)
{
    int n = 0;
    for (int64_t j = from; j < to;) {
        int64_t row, block = skr_decode_block(job, b, j, &row), run = to - j;
        if (job->paged)
            run = least(run, job->page_size - row);
        if (block < 0)
            bad_index(job);
        for (int64_t end = j + run; block >= 0 && j < end; j++, row++, n++) {
            keys->place[n] = (float)(j - j0);
            keys->k[n] = row_in(&job->k, block, row, h);
            keys->v[n] = row_in(&job->v, block, row, h);
            if (job->codes) {
                keys->k_scale[n] = scale_in(&job->k, block, row, h);
                keys->v_scale[n] = scale_in(&job->v, block, row, h);
                keys->k_by[n] = keys->k_scale[n] ? *keys->k_scale[n] : 1;
                keys->v_by[n] = keys->v_scale[n] ? *keys->v_scale[n] : 1;
            }
        }
        if (block < 0)
            j += run;
    }
    keys->n = n;
    for (int i = n; n && i < SCORES; i++) {
        keys->k[i] = keys->k[n - 1];
        keys->v[i] = keys->v[n - 1];
        keys->place[i] = keys->place[n - 1];
    }
}

/* Whether nibbles come out as they lie: of each two vectors of columns first the even ones, then the odd ones. Queries
 * and results are put in that order, too. */
SKR_FN bool in_pairs(const job_t *job, const skr_decode_cache *c)
{
    const int both = 2 * SKR_LANES;
    return SKR_LANES > 1 && c->type == SKR_I4 && c->width % both == 0 && c->group % both == 0 &&
           (!job->latent || job->d_v % both == 0);
}

/* Columns of such a row into that order, or back. */
static void turn_pairs(const job_t *job, const skr_decode_cache *c, bool back, float *x)
{
    float was[2 * SKR_LANES];
    for (int64_t at = 0; in_pairs(job, c) && at < c->width; at += 2 * SKR_LANES) {
        __builtin_memcpy(was, x + at, sizeof was);
        for (int i = 0; i < SKR_LANES; i++)
            for (int odd = 0; odd < 2; odd++) {
                int apart = odd * SKR_LANES + i, beside = 2 * i + odd;
                x[at + (back ? beside : apart)] = was[back ? apart : beside];
            }
    }
}

/* n codes, whole vectors of the number that are taken at once, times scale. */
SKR_FN void widen_nibbles(const uint8_t *from, int64_t n, vf scale, float *to)
{
    for (int64_t i = 0; i < n; i += 2 * SKR_LANES) {
        vi x = vi_load_u8(from + i / 2);
        v_store_float(SKR_F32, to, i, v_mul(v_of_int(vi_sra(vi_sll(x, 28), 28)), scale));
        v_store_float(SKR_F32, to, i + SKR_LANES, v_mul(v_of_int(vi_sra(vi_sll(x, 24), 28)), scale));
    }
}

SKR_FN void widen_bytes(int type, const uint8_t *from, int64_t n, vf scale, float *to)
{
    for (int64_t i = 0; i < n; i += 4 * SKR_LANES) {
        vf x[4];
        v_load4_codes(type, from + i, x);
        SKR_UNROLL
        for (int k = 0; k < 4; k++)
            v_store_float(SKR_F32, to, i + k * SKR_LANES, v_mul(x[k], scale));
    }
}

/* Codes of a row as floats. */
static void widen_codes(const job_t *job, const skr_decode_cache *c, const char *from, const float *scale, float *to)
{
    const uint8_t *codes = (const uint8_t *)from;
    bool pairs = in_pairs(job, c), whole = c->type != SKR_I4 && c->group % (4 * SKR_LANES) == 0;
    if (!pairs && !whole)
        load_neighbours(c->type, from, 0, (int)c->width, to);
    for (int64_t at = 0; at < c->width; at += c->group, scale += scale ? c->scale_group : 0) {
        int64_t n = least(c->group, c->width - at);
        vf by = v_set1(scale ? *scale : 1);
        if (pairs)
            widen_nibbles(codes + at / 2, n, by, to + at);
        else if (whole && c->type == SKR_I8)
            widen_bytes(SKR_I8, codes + at, n, by, to + at);
        else if (whole)
            widen_bytes(SKR_E4M3, codes + at, n, by, to + at);
        for (int64_t i = at; !pairs && !whole && scale && i < at + n; i++)
            to[i] *= *scale;
    }
}

/* Asks for a row in time. */
SKR_FN void fetch_row(const char *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += LINE)
        v_prefetch_l2(row + at);
}

/* Codes become f32 rows of scratch memory, and these the keys' rows. Those of the next block are asked for. */
static void stage_keys(const job_t *job, keys_t *keys, const keys_t *later, float *k_room, float *v_room)
{
    const skr_decode_cpu *c = &job->cpu;
    for (int i = 0; i < keys->n + REACH; i++) {
        float *k = k_room + least(i, keys->n - 1) * c->q_width;
        float *v = job->latent ? k : v_room + least(i, keys->n - 1) * c->o_width;
        if (i < later->n) {
            fetch_row(later->k[i], job->k.width);
            if (!job->latent)
                fetch_row(later->v[i], job->v.width);
        }
        if (i < keys->n) {
            widen_codes(job, &job->k, keys->k[i], keys->k_scale[i], k);
            if (!job->latent)
                widen_codes(job, &job->v, keys->v[i], keys->v_scale[i], v);
        }
        keys->k[i] = (const char *)k;
        keys->v[i] = (const char *)v;
    }
}

/* ---------------------------------------------------------------- queries and new tokens */

/* Turns pairs of columns by the angle of a position. */
static void rotate(const job_t *job, int64_t position, float *x)
{
    const skr_decode_rope *r = &job->rope;
    float c[64], s[64];
    int64_t row = greatest(0, least(position, r->rows - 1));
    if (row != position)
        bad_index(job);
    x += r->first;
    for (int64_t i = 0; i < r->pairs; i += 64) {
        int n = (int)least(64, r->pairs - i);
        load_neighbours(r->type, r->cos, row * r->cos_stride + i, n, c);
        load_neighbours(r->type, r->sin, row * r->sin_stride + i, n, s);
        for (int k = 0; k < n; k++) {
            float *a = x + (r->interleaved ? 2 * (i + k) : i + k), *b = a + (r->interleaved ? 1 : r->pairs);
            float was = *a;
            *a = was * c[k] - *b * s[k];
            *b = *b * c[k] + was * s[k];
        }
    }
}

/* Rows of queries of head h, padded with zeros. */
static void load_queries(const job_t *job, int64_t b, int64_t h, int64_t total, float *to)
{
    const skr_decode_rows *q = &job->q;
    const int64_t d = job->d, width = job->cpu.q_width;
    uint16_t rounded[SKR_DECODE_MAX_D];
    for (int64_t row = 0; row < job->rows; row++, to += width) {
        int64_t i = row / job->group, head = h * job->group + row % job->group;
        load_neighbours(q->type, q->data, b * q->batch + i * q->token + head * q->head, (int)d, to);
        __builtin_memset(to + d, 0, (size_t)(width - d) * sizeof(float));
        if (job->rope.cos)
            rotate(job, total - job->length + i, to);
        if (job->rope.cos && q->type != SKR_F32) {
            store_run(q->type, rounded, 0, 1, (int)d, to);
            load_neighbours(q->type, rounded, 0, (int)d, to);
        }
        turn_pairs(job, &job->k, false, to);
    }
    __builtin_memset(to, 0, (size_t)width * sizeof(float)); /* what no row wants */
}

/* One row into a cache. */
static void store_row(const skr_decode_cache *c, const float *x, char *to, float *scale)
{
    float one = 1;
    uint8_t codes[SKR_DECODE_MAX_D];
    if (skr_is_float(c->type)) {
        store_run(c->type, to, 0, 1, (int)c->width, x);
        return;
    }
    quant_row(SKR_F32, c->type, (const char *)x, c->type == SKR_I4 ? codes : (uint8_t *)to,
              c->dynamic ? SKR_QUANT_GROUPS : SKR_QUANT_TENSOR, scale ? scale : &one, c->scale_group, c->group,
              c->width);
    if (c->type == SKR_I4)
        pack_nibbles(codes, (uint8_t *)to, c->width);
}

/* New token n of sequence b. */
static void append_token(const job_t *job, int64_t b, int64_t n, float *room)
{
    int64_t row, position = length_of(job, b) + n, block = skr_decode_block(job, b, position, &row);
    if (block < 0) {
        bad_index(job);
        return;
    }
    for (int64_t h = 0; h < job->heads_k; h++) {
        const skr_decode_rows *k = &job->k_new, *v = &job->v_new;
        load_neighbours(k->type, k->data, b * k->batch + n * k->token + h * k->head, (int)job->d, room);
        if (job->rope.cos)
            rotate(job, position, room);
        store_row(&job->k, room, row_in(&job->k, block, row, h), scale_in(&job->k, block, row, h));
        if (job->latent)
            continue;
        load_neighbours(v->type, v->data, b * v->batch + n * v->token + h * v->head, (int)job->d_v, room);
        store_row(&job->v, room, row_in(&job->v, block, row, h), scale_in(&job->v, block, row, h));
    }
}

#endif
