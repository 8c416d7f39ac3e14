/* rope_cpu.h - what the CPU kernels of rope and of its gradient share: tiles of tokens with their rows of cos and sin.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task takes tiles of neighbouring tokens. A worker keeps cos and sin of a tile's tokens as f32 rows, ready for the
 * loops: signs set, each value twice for interleaved pairs. All heads of the tile use them, and the same tile of the
 * next batch too where its positions are the same. */
#ifndef SKR_ROPE_CPU_H
#define SKR_ROPE_CPU_H

#include "../../cpu/rows.h"
#include "rope.h"

typedef skr_rope_job job_t;

/* Rows of one head dim with the same step between them: x to y, cos and sin from table. */
typedef struct run {
    const char *x;
    char *y;
    int64_t x_step, y_step; /* bytes */
    const float *table;
    int64_t table_step; /* floats; 0: all rows have one position */
    int64_t n, r, d;
    const float *weight; /* norm */
    float eps;
    int past; /* y is written past the caches */
} run;

/* Heads x of a tensor: rotated, the rest copied; normalised first where norm says so (rope_cpu.c). */
typedef void (*run_fn)(const run *w);
run_fn SKR_KERNEL(rope_run)(int norm, int interleaved, int x_type, int y_type);

/* A worker's memory. */
typedef struct tile {
    const job_t *job;
    float *table;     /* [tile, 2 R]: half: cos, sin; interleaved: cos twice each, sin with both signs */
    int64_t *slot;    /* [tile, 2]: position of the row, and whether it is there */
    float *row, *sum; /* gradient of the norm: [HEADS, D], [2, D] */
    int64_t b, s, n;  /* the tile: batch, first token, tokens */
} tile;

static inline tile tile_start(const job_t *job, int worker)
{
    const skr_rope_cpu *cpu = &job->cpu;
    char *scratch = (char *)job->head.workspace + cpu->scratch_at + worker * cpu->scratch_bytes;
    tile t = {.job = job, .slot = (int64_t *)scratch};
    t.table = (float *)(t.slot + 2 * cpu->tile);
    t.row = t.table + cpu->tile * 2 * job->r;
    t.sum = t.row + SKR_ROPE_HEADS * job->d;
    for (int64_t i = 0; i < cpu->tile; i++)
        t.slot[2 * i + 1] = 0;
    return t;
}

static inline void bad_index(const job_t *job)
{
    __atomic_store_n(job->head.error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
}

enum { PAIRS = 64 }; /* pairs that are made at once */

/* cos and sin of position * turns, times scale. The product is rounded once; what follows up to the polynomials is
 * exact: 4 t = k + r, |r| <= 1/2, and k = 4 n + q. Their error is below 2e-10 (tools/minimax.py: cos and sin of
 * vmath.h), so that the rounding to f32 decides. Beyond 2^46 turns a double has no fraction to speak of: the angle is
 * 0. Only double arithmetic and choices: compilers make vectors of it. */
SKR_FN void cos_sin_of(double position, double turns, double scale, float *cosine, float *sine)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: the sum's last bit is 1 */
    double t = position * turns * 4;
    t = t < 0x1p48 ? t : 0;
    t = t > -0x1p48 ? t : 0;
    double k = (t + magic) - magic, q = k - 4 * ((k * 0.25 + magic) - magic);
    double r = (t - k) * 1.5707963267948966, z = r * r;
    double s = r + r * z * (-0x1.555556p-3 + z * (0x1.111174p-7 + z * (-0x1.a058e4p-13 + z * 0x1.7bf104p-19)));
    double c = 1 - 0.5 * z + z * z * (0x1.55554ap-5 + z * (-0x1.6c0c1ap-10 + z * 0x1.99e112p-16));
    double even = q == 0 ? scale : -scale, odd = q * scale, size = q * q;
    *cosine = (float)(size == 1 ? -odd * s : even * c);
    *sine = (float)(size == 1 ? odd * c : even * s);
}

/* cos and sin of pairs from `begin` on. */
static inline void make_pairs(const job_t *job, int64_t position, int64_t begin, int64_t n, float *c, float *s)
{
    if (job->cos) {
        int64_t row = position < 0 ? 0 : position < job->table_rows ? position : job->table_rows - 1;
        int bytes = skr_type_bytes(job->table_type);
        widen(job->table_type, (const char *)job->cos + (row * job->cos_stride + begin) * bytes, 0.0f, c, n);
        widen(job->table_type, (const char *)job->sin + (row * job->sin_stride + begin) * bytes, 0.0f, s, n);
        return;
    }
    const double *turns = (const double *)((const char *)job->head.workspace + job->cpu.turns_at) + begin;
    double at = (double)position, scale = (double)job->angles.attention;
    for (int64_t i = 0; i < n; i++)
        cos_sin_of(at, turns[i], scale, &c[i], &s[i]);
}

static void make_row(const job_t *job, int64_t position, float *to)
{
    int64_t pairs = job->r / 2;
    float c[PAIRS], s[PAIRS], sign = job->backward ? -1.0f : 1.0f;
    if (job->cos && (position < 0 || position >= job->table_rows))
        bad_index(job);
    for (int64_t i = 0; i < pairs; i += PAIRS) {
        int64_t n = pairs - i < PAIRS ? pairs - i : PAIRS;
        make_pairs(job, position, i, n, c, s);
        if (job->interleaved) {
            float *cc = to + 2 * i, *ss = to + job->r + 2 * i;
            for (int64_t k = 0; k < n; k++) {
                cc[2 * k] = cc[2 * k + 1] = c[k];
                ss[2 * k] = -sign * s[k];
                ss[2 * k + 1] = sign * s[k];
            }
        } else {
            for (int64_t k = 0; k < n; k++) {
                to[i + k] = c[k];
                to[pairs + i + k] = sign * s[k];
            }
        }
    }
}

/* Moves to tile number i, with its rows of cos and sin. Tiles of one place in the sequence follow each other, batch by
 * batch. */
static void tile_at(tile *t, int64_t i)
{
    const job_t *job = t->job;
    const skr_rope_cpu *cpu = &job->cpu;
    t->b = i % job->batch;
    t->s = i / job->batch * cpu->tile;
    t->n = job->length - t->s < cpu->tile ? job->length - t->s : cpu->tile;
    for (int64_t k = 0; k < t->n; k++) {
        int64_t s = t->s + k, position;
        if (cpu->positions_at >= 0)
            position = ((const int64_t *)((const char *)job->head.workspace + cpu->positions_at))[s];
        else
            position = skr_rope_position(job, t->b, s);
        if (t->slot[2 * k + 1] && t->slot[2 * k] == position)
            continue;
        t->slot[2 * k] = position;
        t->slot[2 * k + 1] = 1;
        if (cpu->positions_at < 0 || position != SKR_ROPE_NOWHERE)
            make_row(job, position, t->table + k * 2 * job->r);
    }
}

static inline int nowhere(const tile *t, int64_t k)
{
    return t->job->cpu.positions_at >= 0 && t->slot[2 * k] == SKR_ROPE_NOWHERE;
}

static inline const float *weight_of(const job_t *job, int t)
{
    int64_t at = job->cpu.weight_at[t];
    return at < 0 ? NULL : (const float *)((const char *)job->head.workspace + at);
}

static inline char *head_at(const skr_rope_rows *r, int type, const tile *t, int64_t k, int64_t h)
{
    if (!r->data)
        return NULL;
    return (char *)r->data + (t->b * r->batch + (t->s + k) * r->token + h * r->head) * skr_type_bytes(type);
}

static inline void zero_head(char *y, int type, int64_t d)
{
    if (y)
        __builtin_memset(y, 0, (size_t)(d * skr_type_bytes(type)));
}

#endif
