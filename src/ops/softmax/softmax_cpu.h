/* softmax_cpu.h - what the forward and the backward kernels share: tiles of rows that lie across memory.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where a row's columns are not side by side, neighbouring rows mostly are. A tile is up to `tile` of them, one index
 * of the innermost row dimension after the other: each column of the tile is a run of elements, and every row has a
 * vector lane of its own. */
#ifndef SKR_SOFTMAX_CPU_H
#define SKR_SOFTMAX_CPU_H

#include <stdbool.h>

#include "../../cpu/rows.h"
#include "../../cpu/simd/vmath.h"
#include "softmax.h"

/* Columns whose f32 sums form one part of a tile's longer sums: a row has but one chain there, and equal terms are
 * rounded the same way in all of it. */
enum { PART = 16 };

typedef struct tile {
    int64_t row; /* the first */
    int width;
} tile;

static inline tile tile_at(const skr_row_space *rows, int64_t width, int64_t index)
{
    int64_t inner = rows->dims[rows->n_dims - 1], tiles = (inner + width - 1) / width;
    int64_t first = index % tiles * width, left = inner - first;
    return (tile){index / tiles * inner + first, (int)(left < width ? left : width)};
}

static inline int64_t tile_count(const skr_row_space *rows, int64_t width)
{
    int64_t inner = rows->dims[rows->n_dims - 1];
    return rows->m / inner * ((inner + width - 1) / width);
}

/* One tensor's share of a tile: columns are `column` elements apart, rows `step`. */
typedef struct tile_view {
    char *data;
    int64_t column, step;
    int type;
} tile_view;

static inline tile_view tile_view_of(const skr_row_space *rows, const skr_rows *t, int64_t row)
{
    return (tile_view){t->data ? row_of(rows, t, row) : NULL, t->col_stride, t->stride[rows->n_dims - 1], t->type};
}

/* n elements of any type and distance to f32, and back. */
static void get_run(int type, const char *p, int64_t step, float *to, int64_t n)
{
    if (step == 1)
        widen(type, p, 0.0f, to, n);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = load_element(type, p, i * step);
}

static void put_run(int type, const float *from, char *p, int64_t step, int64_t n)
{
    if (step == 1 && type != SKR_F32)
        narrow(type, from, p, n);
    else if (step == 1)
        widen(SKR_F32, from, 0.0f, (float *)p, n);
    else
        for (int64_t i = 0; i < n; i++)
            store_element(type, p, i * step, from[i]);
}

static inline char *tile_column(const tile_view *v, int64_t k)
{
    return v->data + k * v->column * skr_type_bytes(v->type);
}

/* The columns that row r of a tile sees; all rows see the same where there is no causal mask. */
static inline void tile_spans(const skr_seen *seen, int64_t n, tile t, skr_span *span)
{
    for (int r = 0; r < t.width; r++)
        span[r] = skr_seen_of(seen, n, t.row + r);
}

#define FLOATS(F)     F(F32) F(F16) F(BF16)
#define FLOATS1(F, a) F(a, F32) F(a, F16) F(a, BF16)

#endif
