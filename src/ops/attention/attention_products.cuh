/* attention_products.cuh - the products of the attention kernels: a warp's rows with a tile, along the heads or over
 * the tile's rows. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_PRODUCTS_CUH
#define SKR_ATTENTION_PRODUCTS_CUH

#include "attention_work.cuh"

template <int MI, int NJ> SKR_DEVICE void attention_clear(float (&x)[MI][NJ][4])
{
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++)
            x[i][j][0] = x[i][j][1] = x[i][j][2] = x[i][j][3] = 0.0f;
}

/* x = a b^T as below, for f32 in plain f32 arithmetic: an infinity that was split would be no number. */
template <int D, int MI, int NJ>
SKR_DEVICE void attention_scores_exactly(float (&x)[MI][NJ][4], uint32_t a, int row, uint32_t b)
{
    using tile = skr_tile<SKR_F32, D>;
    int lane = threadIdx.x & 31;
    row += lane >> 2;
    attention_clear(x);
#pragma unroll 1
    for (int d = 0; d < D; d++) {
        float rows[MI][2];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                rows[i][r] = shared_load4(tile::element_at(a, row + 16 * i + 8 * r, d));
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float f = shared_load4(tile::element_at(b, 8 * j + 2 * (lane & 3) + e, d));
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        x[i][j][2 * r + e] = __fmaf_rn(rows[i][r], f, x[i][j][2 * r + e]);
            }
    }
}

/* x = a b^T: 16 * MI rows of tile a from `row` on with the 8 * NJ rows of tile b, over D columns. beside(d, j): what
 * may go on while the products of step d with the rows from 8 j on, 16 of them, are under way. */
template <int T, int D, int MI, int NJ, class BESIDE>
SKR_DEVICE void attention_scores_of(float (&x)[MI][NJ][4], uint32_t a, int row, uint32_t b, bool careful,
                                    const BESIDE &beside)
{
    if constexpr (T == SKR_F32)
        if (careful)
            return attention_scores_exactly<D>(x, a, row, b);
    using tile = skr_tile<T, D>;
    attention_clear(x);
    uint32_t left = here(tile::left_place(a, row)), right = here(tile::right_place(b));
    constexpr int at_once = T != SKR_F32 && tile::steps <= 16 ? tile::steps : 4; /* places come again after four */
#pragma unroll at_once
    for (int d = 0; d < tile::steps; d++) {
        uint32_t rows[MI][4];
#pragma unroll
        for (int i = 0; i < MI; i++)
            tile::left(rows[i], left, 16 * i, d);
#pragma unroll
        for (int j = 0; j < NJ; j += 2) {
            uint32_t columns[4];
            tile::right(columns, right, 8 * j, d);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                mma_step<T>(x[i][j], rows[i], columns[0], columns[1]);
                mma_step<T>(x[i][j + 1], rows[i], columns[2], columns[3]);
            }
            beside(d, j);
        }
    }
}

template <int T, int D, int MI, int NJ>
SKR_DEVICE void attention_scores_of(float (&x)[MI][NJ][4], uint32_t a, int row, uint32_t b, bool careful)
{
    attention_scores_of<T, D>(x, a, row, b, careful, [](int, int) {});
}

/* o += x b: the 8 * NJ rows of tile b, columns from `column` on. left(a, i, d): step d of rows 16 i of x. beside(d, j)
 * as above, of columns. */
template <int T, int D, int NJ, int MI, int OJ, class LEFT, class BESIDE>
SKR_DEVICE void attention_add_left(float (&o)[MI][OJ][4], const LEFT &take_left, uint32_t b, int column,
                                   const BESIDE &beside)
{
    using tile = skr_tile<T, D>;
    uint32_t place = here(tile::rows_place(b) + column * tile::bytes);
#pragma unroll
    for (int d = 0; d < 8 * NJ / tile::rows_a_step; d++) {
        uint32_t left[MI][4];
#pragma unroll
        for (int i = 0; i < MI; i++)
            take_left(left[i], i, d);
#pragma unroll
        for (int j = 0; j < OJ; j += 2) {
            uint32_t right[4];
            tile::right_rows(right, place, d, 8 * j);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                mma_step<T>(o[i][j], left[i], right[0], right[1]);
                mma_step<T>(o[i][j + 1], left[i], right[2], right[3]);
            }
            beside(d, j);
        }
    }
}

template <int T, int D, int NJ, int MI, int OJ, class LEFT>
SKR_DEVICE void attention_add_left(float (&o)[MI][OJ][4], const LEFT &take_left, uint32_t b, int column)
{
    attention_add_left<T, D, NJ>(o, take_left, b, column, [](int, int) {});
}

/* x is rounded to T. */
template <int T, int D, int MI, int NJ, int OJ>
SKR_DEVICE void attention_add(float (&o)[MI][OJ][4], const float (&x)[MI][NJ][4], uint32_t b, int column)
{
    attention_add_left<T, D, NJ>(
        o, [&](uint32_t(&a)[4], int i, int d) { as_left<T>(a, x[i], d); }, b, column);
}

/* o += x b for KEYS rows of b from `first` on, without products with 0, one row after the other: an infinity or a NaN
 * of b stays with the rows of x that do see it. x is kept as a tile of columns of DS. */
template <int T, int D, int DS, int KEYS, int MI, int OJ>
SKR_DEVICE void attention_add_kept(float (&o)[MI][OJ][4], uint32_t x, int row, uint32_t b, int first, int column)
{
    using tile = skr_tile<T, D>;
    using kept = skr_tile<T, DS>;
    int lane = threadIdx.x & 31;
    row += lane >> 2;
#pragma unroll 1
    for (int k = 0; k < KEYS; k++) {
        float p[MI][2];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float pair[2];
                kept::load_pair(x, row + 16 * i + 8 * r, k & ~1, pair);
                p[i][r] = k & 1 ? pair[1] : pair[0];
            }
#pragma unroll
        for (int j = 0; j < OJ; j++) {
            float f[2];
            tile::load_pair(b, first + k, column + 8 * j + 2 * (lane & 3), f);
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o[i][j][e] = p[i][e >> 1] == 0.0f ? o[i][j][e] : __fmaf_rn(p[i][e >> 1], f[e & 1], o[i][j][e]);
        }
    }
}

/* The same of x in registers, which goes through `scratch`, a tile of columns of DS, at `row`; only one of the warps
 * that have the same rows writes it. For the whole block. */
template <int T, int D, int DS, int MI, int NJ, int OJ>
SKR_DEVICE void attention_add_seen(float (&o)[MI][OJ][4], const float (&x)[MI][NJ][4], uint32_t b, int column,
                                   uint32_t scratch, int row)
{
    using through = skr_tile<T, DS>;
    int lane = threadIdx.x & 31;
    constexpr int KEYS = DS < 8 * NJ ? DS : 8 * NJ; /* at a time: the scratch has no more columns */
#pragma unroll
    for (int first = 0; first < 8 * NJ; first += KEYS) {
        __syncthreads();
        if (column == 0)
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        through::store_pair(scratch, row + (lane >> 2) + 16 * i + 8 * r, 8 * j + 2 * (lane & 3),
                                            x[i][first / 8 + j][2 * r], x[i][first / 8 + j][2 * r + 1]);
        __syncthreads();
        attention_add_kept<T, D, DS, KEYS>(o, scratch, row, b, first, column);
    }
    __syncthreads();
}

/* Whether results must be computed again carefully: a NaN that may come from what a row does not see, or f32 results so
 * small that the low halves of tf32 products vanished. */
template <int T, int MI, int OJ> SKR_DEVICE bool attention_doubtful(const float (&o)[MI][OJ][4])
{
    bool doubtful = false;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < OJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float f = o[i][j][e];
                doubtful |= f != f || (T == SKR_F32 && f != 0.0f && fabsf(f) < 0x1p-100f);
            }
    return doubtful;
}

/* Whether some result of the warp's first rows is infinite or not a number. */
template <int MI, int OJ> SKR_DEVICE bool attention_infinite(const float (&o)[MI][OJ][4], int rows)
{
    bool infinite = false;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float none = 0.0f; /* no number, where one of them is infinite or none */
#pragma unroll
            for (int j = 0; j < OJ; j++)
                none += 0.0f * o[i][j][2 * r] + 0.0f * o[i][j][2 * r + 1];
            infinite |= none != 0.0f && 16 * i + 8 * r + (lane >> 2) < rows;
        }
    return infinite;
}

/* Where results go: rows of a head. Kept in shared memory like attention_source. */
struct attention_target {
    char *data; /* row 0; NULL: nowhere */
    int64_t pitch;
    int room, rows; /* rows from `rows` to `room` are zeros */
    int width, type;
    int pairs; /* of the type of the products, two elements are aligned, nothing is added */
    int add;

    __device__ __forceinline__ void set(const skr_attention_rows &t, const attention_sequence &s, int first, int rows_,
                                        int h, int64_t width_, int pairs_, int add_)
    {
        data = t.data ? attention_rows_at(t, s, first, h) : nullptr;
        pitch = t.token * skr_type_bytes(t.type);
        room = s.room, rows = rows_, width = (int)width_, type = t.type, pairs = pairs_ && !add_, add = add_;
    }

    /* A warp's sums: rows from `row` on, columns from `column` on. For the whole block, at its end: what is not a pair
     * of the products' type goes through shared memory, `scratch`, so that a loop can go over it. */
    template <int T, int MI, int OJ>
    __device__ __forceinline__ void store(const float (&o)[MI][OJ][4], int row, int column, uint32_t scratch) const
    {
        int lane = threadIdx.x & 31;
        if (!pairs)
            return store_each(o, row, column, scratch);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int at = row + 16 * i + 8 * r + (lane >> 2);
                if (at >= room)
                    continue;
                char *line = data + at * pitch;
#pragma unroll
                for (int j = 0; j < OJ; j++) {
                    int c = column + 8 * j + 2 * (lane & 3);
                    float a = at < rows ? o[i][j][2 * r] : 0.0f, b = at < rows ? o[i][j][2 * r + 1] : 0.0f;
                    if (c >= width)
                        continue;
                    if constexpr (T == SKR_F32)
                        *(float2 *)(line + 4 * c) = make_float2(a, b);
                    else
                        store4_once(line + 2 * c, pack2<T>(a, b));
                }
            }
    }

  private:
    template <int MI, int OJ>
    __device__ __forceinline__ void store_each(const float (&o)[MI][OJ][4], int row, int column, uint32_t scratch) const
    {
        constexpr int columns = 8 * OJ, line_bytes = 4 * columns;
        int lane = threadIdx.x & 31, bytes = skr_type_bytes(type);
        copy_async_wait<0>();
        __syncthreads();
        scratch += threadIdx.x / 32 * (16 * MI * line_bytes);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < OJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    shared_store4(scratch + (16 * i + 8 * (e >> 1) + (lane >> 2)) * line_bytes +
                                      4 * (8 * j + 2 * (lane & 3) + (e & 1)),
                                  __float_as_uint(o[i][j][e]));
        __syncwarp();
#pragma unroll 1
        for (int n = lane; n < 16 * MI * columns; n += 32) {
            int r = n / columns, c = n % columns;
            float f = row + r < rows ? shared_load4(scratch + r * line_bytes + 4 * c) : 0.0f;
            char *to = data + (row + r) * pitch + (column + c) * bytes;
            if (row + r < room && column + c < width)
                any_store1(type, to, add ? any_load1(type, to) + f : f);
        }
        __syncthreads();
    }
};

#endif
