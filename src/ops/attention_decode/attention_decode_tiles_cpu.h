/* attention_decode_tiles_cpu.h - products of a few rows with a block of keys and values, which stay where they lie.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile holds its sums in registers: rows times keys for scores, rows times vectors of columns for values. Vectors go
 * along the columns of a key. The order of each sum does not depend on the tile that it is made in. */
#ifndef SKR_ATTENTION_DECODE_TILES_CPU_H
#define SKR_ATTENTION_DECODE_TILES_CPU_H

#include "attention_decode_cpu.h"

/* Rows of a tile at most; sums that fit the registers of AVX2, and of all others. */
enum { TILE_ROWS = 4, SUMS = SKR_LANES == 8 ? 8 : 16 };

/* What a tile works on: its rows' queries, scores (later p), o and what o is multiplied by first. */
typedef struct tile_t {
    const float *q[TILE_ROWS];
    float *s[TILE_ROWS], *o[TILE_ROWS];
    float shrink[TILE_ROWS];
} tile_t;

/* Rows that are asked for while others are worked on, some of their bytes for each of these: what a core has on its way
 * is little, and the requests should come evenly. */
typedef struct ahead_t {
    const char *const *row; /* of a key for each that is worked on */
    int64_t begin, end;     /* bytes of it */
} ahead_t;

SKR_FN void fetch(const ahead_t *ahead, int key)
{
    fetch_row(ahead->row[key] + ahead->begin, ahead->end - ahead->begin);
}

/* ---------------------------------------------------------------- scores */

static const int32_t lane_numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* A vector of a row, bytes as their values. */
SKR_FN vf load_row(int type, const char *row, int64_t c)
{
    if (type != SKR_I8)
        return v_load(type, row, c);
#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
    return v_of_code(SKR_I8, vi_load_u8((const uint8_t *)row + c));
#else
    return v_of_int(vi_load_i8((const uint8_t *)row + c));
#endif
}

/* Two sets of half sums become one: lanes with the bit take b's. */
SKR_FN vf join(vf a, vf b, int bit)
{
    vi lanes = v_bits(v_load(SKR_F32, lane_numbers, 0));
    vm odd = vi_eq(vi_and(lanes, vi_set1(bit)), vi_set1(bit));
    return v_add(v_select(odd, b, a), v_swap(v_select(odd, a, b), bit));
}

/* Lane i is the sum of all lanes of a[i % n], n a power of two. */
SKR_FN vf lane_sums(vf *a, int n)
{
#define FOLD(bit)                                                                                                      \
    if (SKR_LANES > bit) {                                                                                             \
        SKR_UNROLL                                                                                                     \
        for (int i = 0; i < n; i += 2 * bit)                                                                           \
            a[i] = n > bit ? join(a[i], a[i + (n > bit ? bit : 0)], bit) : v_add(a[i], v_swap(a[i], bit));             \
    }
    FOLD(1)
    FOLD(2)
    FOLD(4)
    FOLD(8)
#undef FOLD
    return a[0];
}

/* rows x keys products over d columns, [row][key] in out. */
SKR_FN void dots_tile(int type, int rows, int keys, const float *const *q, const char *const *k, int64_t d, float *out)
{
    enum { MOST = 16 };
    vf sum[MOST], x[TILE_ROWS];
    const int n = rows * keys, together = n < SKR_LANES ? n : SKR_LANES;
    SKR_UNROLL
    for (int i = 0; i < n; i++)
        sum[i] = v_set1(0.0f);
    int64_t c = 0;
#define STEP(LOAD)                                                                                                     \
    SKR_UNROLL                                                                                                         \
    for (int r = 0; r < rows; r++)                                                                                     \
        x[r] = v_load(SKR_F32, q[r], c);                                                                               \
    SKR_UNROLL                                                                                                         \
    for (int i = 0; i < keys; i++) {                                                                                   \
        vf y = LOAD;                                                                                                   \
        SKR_UNROLL                                                                                                     \
        for (int r = 0; r < rows; r++)                                                                                 \
            sum[r * keys + i] = v_fma(x[r], y, sum[r * keys + i]);                                                     \
    }
    for (; c + SKR_LANES <= d; c += SKR_LANES) {
        STEP(load_row(type, k[i], c))
    }
    if (c < d) {
        STEP(v_load_n(type, k[i], c, (int)(d - c)))
    }
#undef STEP
    SKR_UNROLL
    for (int i = 0; i < n; i += together)
        v_store_float(SKR_F32, out, i, lane_sums(sum + i, together));
}

/* Scores of up to `rows` rows with keys [from, to). */
SKR_FN void dots_rows(int type, int rows, const tile_t *t, const keys_t *keys, int from, int to, int64_t d,
                      ahead_t ahead)
{
    const int most = SUMS / rows, wide = most > 8 ? 8 : most;
    for (int i = from; i < to; i += wide) {
        float out[16 + SKR_LANES];
        SKR_UNROLL
        for (int k = 0; k < wide; k++)
            fetch(&ahead, i + k);
        dots_tile(type, rows, wide, t->q, keys->k + i, d, out);
        SKR_UNROLL
        for (int r = 0; r < rows; r++)
            __builtin_memcpy(t->s[r] + i, out + r * wide, (size_t)wide * sizeof(float));
    }
}

/* ---------------------------------------------------------------- values */

/* o = o shrink + p v for `vectors` vectors of columns from c on; part: columns of the only vector, or 0: all. */
SKR_FN void values_tile(int type, int rows, int vectors, int part, const tile_t *t, const keys_t *keys, int from,
                        int to, int64_t c, ahead_t ahead)
{
    enum { MOST = 16 };
    vf sum[MOST], y[8];
    SKR_UNROLL
    for (int i = 0; i < rows * vectors; i++)
        sum[i] = v_set1(0.0f);
    for (int j = from; j < to; j++) {
        const char *v = keys->v[j];
        fetch(&ahead, j);
        SKR_UNROLL
        for (int i = 0; i < vectors; i++)
            y[i] = part ? v_load_n(type, v, c, part) : load_row(type, v, c + i * SKR_LANES);
        SKR_UNROLL
        for (int r = 0; r < rows; r++) {
            vf p = v_set1(t->s[r][j]);
            SKR_UNROLL
            for (int i = 0; i < vectors; i++)
                sum[r * vectors + i] = v_fma(p, y[i], sum[r * vectors + i]);
        }
    }
    SKR_UNROLL
    for (int r = 0; r < rows; r++) {
        vf shrink = v_set1(t->shrink[r]);
        SKR_UNROLL
        for (int i = 0; i < vectors; i++) {
            float *o = t->o[r] + c + i * SKR_LANES;
            v_store_float(SKR_F32, o, 0, v_fma(v_load(SKR_F32, o, 0), shrink, sum[r * vectors + i]));
        }
    }
}

SKR_FN void values_rows(int type, int rows, const tile_t *t, const keys_t *keys, int from, int to, int64_t width,
                        ahead_t ahead)
{
    const int most = SUMS / rows, wide = most > 8 ? 8 : most;
    const int64_t bytes = ahead.end;
    for (int64_t c = 0, n; c < width; c += n) {
        n = c + wide * SKR_LANES <= width ? wide * SKR_LANES : least(SKR_LANES, width - c);
        ahead.begin = bytes * c / width;
        ahead.end = bytes * (c + n) / width;
        if (n == wide * SKR_LANES)
            values_tile(type, rows, wide, 0, t, keys, from, to, c, ahead);
        else if (n == SKR_LANES)
            values_tile(type, rows, 1, 0, t, keys, from, to, c, ahead);
        else
            values_tile(type, rows, 1, (int)n, t, keys, from, to, c, ahead);
    }
}

/* The same for rows with some value that is not finite, which p = 0 must keep out. */
SKR_TAIL void values_careful(int type, const tile_t *t, int rows, const uint8_t *wanted, const keys_t *keys, int from,
                             int to, int64_t width)
{
    _Alignas(64) float v[SKR_DECODE_MAX_DV + SKR_LANES] = {0}, sum[SKR_DECODE_MAX_DV + SKR_LANES];
    for (int r = 0; r < rows; r++) {
        if (!wanted[r])
            continue;
        __builtin_memset(sum, 0, sizeof sum);
        for (int j = from; j < to; j++) {
            float p = t->s[r][j];
            if (p == 0)
                continue;
            load_neighbours(type, keys->v[j], 0, (int)width, v);
            for (int64_t c = 0; c < width; c += SKR_LANES)
                v_store_float(SKR_F32, sum, c, v_fma(v_set1(p), v_load(SKR_F32, v, c), v_load(SKR_F32, sum, c)));
        }
        for (int64_t c = 0; c < width; c += SKR_LANES) {
            float *o = t->o[r] + c;
            vf more = v_load(SKR_F32, sum, c);
            v_store_float(SKR_F32, o, 0,
                          t->shrink[r] == 0 ? more : v_fma(v_load(SKR_F32, o, 0), v_set1(t->shrink[r]), more));
        }
    }
}

/* ---------------------------------------------------------------- by type */

#define DECODE_TILES(T)                                                                                                \
    static void dots_##T(const tile_t *t, int rows, const keys_t *keys, int from, int to, int64_t d, ahead_t ahead)    \
    {                                                                                                                  \
        if (rows == 1)                                                                                                 \
            dots_rows(SKR_##T, 1, t, keys, from, to, d, ahead);                                                        \
        else if (rows == 2)                                                                                            \
            dots_rows(SKR_##T, 2, t, keys, from, to, d, ahead);                                                        \
        else                                                                                                           \
            dots_rows(SKR_##T, TILE_ROWS, t, keys, from, to, d, ahead);                                                \
    }                                                                                                                  \
    static void values_##T(const tile_t *t, int rows, const keys_t *keys, int from, int to, int64_t d, ahead_t ahead)  \
    {                                                                                                                  \
        if (rows == 1)                                                                                                 \
            values_rows(SKR_##T, 1, t, keys, from, to, d, ahead);                                                      \
        else if (rows == 2)                                                                                            \
            values_rows(SKR_##T, 2, t, keys, from, to, d, ahead);                                                      \
        else                                                                                                           \
            values_rows(SKR_##T, TILE_ROWS, t, keys, from, to, d, ahead);                                              \
    }
DECODE_TILES(F32)
DECODE_TILES(F16)
DECODE_TILES(BF16)
DECODE_TILES(I8)
#undef DECODE_TILES

#endif
