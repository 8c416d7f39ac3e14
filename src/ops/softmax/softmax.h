/* softmax.h - the jobs of softmax and softmax_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Forward:  s = scale * x + mask, -infinity outside of the row's visible columns;  m = max s;  e = exp(s - m)
 *           y = e / sum e;                      log: y = (s - m) - ln(sum e)
 * Backward: dx = scale * y * (dy - sum dy * y); log: dx = scale * (dy - exp(y) * sum dy)
 * Rows lie along the chosen dimension, with any distance between their columns; the other dimensions number them. */
#ifndef SKR_SOFTMAX_H
#define SKR_SOFTMAX_H

#include "../../core/job.h"

/* How a causal mask, element (i, j) of [q, k] seen where j <= i + k - q, cuts a row. */
enum {
    SKR_SEEN_ALL,
    SKR_SEEN_FIRST, /* columns are j, rows count i: the first columns are seen */
    SKR_SEEN_LAST,  /* columns are i, rows count j: the last columns are seen */
    SKR_SEEN_ROW    /* rows count both: all of a row or nothing */
};

typedef struct skr_seen {
    int32_t how;
    int32_t reserved;
    int64_t q, k;
} skr_seen;

/* The columns of a row that are seen: [begin, end), begin <= end. */
typedef struct skr_span {
    int64_t begin, end;
} skr_span;

SKR_INLINE int64_t skr_clamp(int64_t a, int64_t n)
{
    return a < 0 ? 0 : a < n ? a : n;
}

SKR_INLINE skr_span skr_seen_of(const skr_seen *s, int64_t n, int64_t row)
{
    skr_span r = {0, n};
    if (s->how == SKR_SEEN_FIRST)
        r.end = skr_clamp(row % s->q + 1 + s->k - s->q, n);
    else if (s->how == SKR_SEEN_LAST)
        r.begin = skr_clamp(row % s->k - s->k + s->q, n);
    else if (s->how == SKR_SEEN_ROW)
        r.end = row % s->k <= row / s->k % s->q + s->k - s->q ? n : 0;
    return r;
}

/* Rows of a tile at most. */
enum { SKR_SOFTMAX_TILE = 64 };

/* What the CPU plan adds: rows (or, across columns, tiles of neighbouring rows) of a task, rows of a tile, and f32
 * scratch for each worker. */
typedef struct skr_softmax_cpu {
    int64_t per_task, tile;
    int64_t scratch_bytes;
} skr_softmax_cpu;

typedef struct skr_softmax_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;
    skr_rows x, mask, y;
    skr_seen seen;
    float scale;
    int32_t log;
    skr_softmax_cpu cpu;
} skr_softmax_job;

typedef struct skr_softmax_backward_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;
    skr_rows dy, y, dx;
    skr_seen seen;
    float scale;
    int32_t log;
    skr_softmax_cpu cpu;
} skr_softmax_backward_job;

#endif
