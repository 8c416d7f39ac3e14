/* fragment.cuh - tiles in shared memory and what a warp reads of them for its matrix instructions, for f16, bf16 and
 * f32 alike. SPDX-License-Identifier: Apache-2.0
 *
 * A tile has rows of D elements, a multiple of 128 bytes; chunk c (16 bytes) of row r is kept at c ^ (r % 8), so that
 * eight rows of one chunk lie in eight different places. A step of the product takes two chunks along k: 16 halves or 8
 * floats. With g = lane / 4 and q = lane % 4, every fragment is in the layout of mma_k16 (mma.cuh), words in place of
 * pairs of halves for f32.
 *
 * f32 goes through tf32 in three products: x = hi + lo with 11 bits each, and lo x lo is left out, so that a product is
 * off by at most 2^-21 of itself. The three are summed from zero and added with one f32 addition, for the tensor cores
 * cut sums off instead of rounding them: a long sum inside of them would drift. */
#ifndef SKR_CUDA_FRAGMENT_CUH
#define SKR_CUDA_FRAGMENT_CUH

#include "mma.cuh"

SKR_DEVICE void ldmatrix4(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

SKR_DEVICE void ldmatrix4_transposed(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

SKR_DEVICE uint32_t tf32(float f)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(f));
    return r;
}

SKR_DEVICE void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d += a x b: one step along k. */
template <int T> SKR_DEVICE void mma_step(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (T == SKR_F32) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            high[k] = tf32(__uint_as_float(a[k]));
            low[k] = tf32(__uint_as_float(a[k]) - __uint_as_float(high[k]));
        }
        uint32_t h0 = tf32(__uint_as_float(b0)), h1 = tf32(__uint_as_float(b1));
        uint32_t l0 = tf32(__uint_as_float(b0) - __uint_as_float(h0));
        uint32_t l1 = tf32(__uint_as_float(b1) - __uint_as_float(h1));
        float sum[4] = {};
        mma_tf32(sum, low, h0, h1);
        mma_tf32(sum, high, l0, l1);
        mma_tf32(sum, high, h0, h1);
#pragma unroll
        for (int k = 0; k < 4; k++)
            d[k] += sum[k];
    } else {
        mma_k16<T>(d, a, b0, b1);
    }
}

template <int T, int D> struct skr_tile {
    static constexpr int bytes = skr_elem<T>::bytes, row_bytes = D * bytes, chunks = row_bytes / 16;
    static constexpr int steps = row_bytes / 32;   /* along a row, when k runs along it */
    static constexpr int rows_a_step = 32 / bytes; /* when k runs over the rows */
    static_assert(row_bytes % 128 == 0, "chunks are exchanged among eight");

    /* Where the chunk is, in bytes from the tile's start. */
    __device__ __forceinline__ static uint32_t at(int row, int chunk)
    {
        return (uint32_t)(row * row_bytes + ((chunk ^ (row & 7)) << 4));
    }

    __device__ __forceinline__ static uint32_t element_at(uint32_t tile, int row, int column)
    {
        return tile + at(row, column * bytes >> 4) + (column * bytes & 15);
    }
    /* Two elements of a row from an even column on. */
    __device__ __forceinline__ static void load_pair(uint32_t tile, int row, int column, float (&f)[2])
    {
        uint32_t from = element_at(tile, row, column);
        if constexpr (T == SKR_F32)
            f[0] = shared_load4(from), f[1] = shared_load4(from + 4);
        else
            unpack2<T>(__float_as_uint(shared_load4(from)), f[0], f[1]);
    }
    __device__ __forceinline__ static void store_pair(uint32_t tile, int row, int column, float a, float b)
    {
        uint32_t to = element_at(tile, row, column);
        if constexpr (T == SKR_F32)
            shared_store4(to, __float_as_uint(a)), shared_store4(to + 4, __float_as_uint(b));
        else
            shared_store4(to, pack2<T>(a, b));
    }

    /* A lane's place in a fragment is one address for all of a tile: tiles begin at multiples of 128 bytes, so that the
     * chunk, an even number that the compiler knows, can be put into it afterwards. (Addresses of their own for every
     * fragment would fill the registers.) */
    __device__ __forceinline__ static uint32_t moved(uint32_t place, int rows, int chunk)
    {
        return (place ^ (uint32_t)((chunk & 7) << 4)) + rows * row_bytes + (chunk >> 3) * 128;
    }

    /* The left operand: 16 rows from `row` on, which k runs along. */
    __device__ __forceinline__ static uint32_t left_place(uint32_t tile, int row)
    {
        int lane = threadIdx.x & 31;
        return tile + at(row + (lane & 15), lane >> 4);
    }
    __device__ __forceinline__ static void left(uint32_t (&a)[4], uint32_t place, int rows, int step)
    {
        ldmatrix4(a, moved(place, rows, 2 * step));
    }

    /* The right operand, 16 columns of it, kept as 16 rows which k runs along: b[0], b[1] for the first eight. */
    __device__ __forceinline__ static uint32_t right_place(uint32_t tile)
    {
        int lane = threadIdx.x & 31;
        return tile + at((lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
    }
    __device__ __forceinline__ static void right(uint32_t (&b)[4], uint32_t place, int rows, int step)
    {
        ldmatrix4(b, moved(place, rows, 2 * step));
    }

    /* The right operand with k over the rows, 16 columns from `column` on. For f32 the rows of a step are taken in the
     * order that as_left() gives to columns. */
    __device__ __forceinline__ static uint32_t rows_place(uint32_t tile)
    {
        int lane = threadIdx.x & 31;
        if constexpr (T == SKR_F32)
            return tile + at(2 * (lane & 3), lane >> 4) + (lane >> 2 & 3) * 4;
        return tile + at(lane & 15, lane >> 4);
    }
    __device__ __forceinline__ static void right_rows(uint32_t (&b)[4], uint32_t place, int step, int column)
    {
        if constexpr (T == SKR_F32) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                b[k] = __float_as_uint(
                    shared_load4(moved(k & 1 ? place ^ 16 : place, 8 * step + (k & 1), column / 4 + (k & 2))));
        } else {
            ldmatrix4_transposed(b, moved(place, 16 * step, column / 8));
        }
    }
};

/* Keeps the compiler from computing what depends on it before the loop that this is in, and keeping all of it. */
SKR_DEVICE uint32_t here(uint32_t place)
{
    asm volatile("" : "+r"(place));
    return place;
}

/* Sums of 16 rows as the left operand of the next product, step s along their columns; sum[j] is eight columns. */
template <int T, int N> SKR_DEVICE void as_left(uint32_t (&a)[4], const float (&sum)[N][4], int s)
{
    if constexpr (T == SKR_F32) {
        a[0] = __float_as_uint(sum[s][0]), a[1] = __float_as_uint(sum[s][2]);
        a[2] = __float_as_uint(sum[s][1]), a[3] = __float_as_uint(sum[s][3]);
    } else {
        a[0] = pack2<T>(sum[2 * s][0], sum[2 * s][1]), a[1] = pack2<T>(sum[2 * s][2], sum[2 * s][3]);
        a[2] = pack2<T>(sum[2 * s + 1][0], sum[2 * s + 1][1]), a[3] = pack2<T>(sum[2 * s + 1][2], sum[2 * s + 1][3]);
    }
}

#endif
