/* attention_any_order.cuh - dq where dk and dv are made, for callers who allow other bits from run to run.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block of keys has ds of its keys and a tile of queries at a time. It adds ds k, its part of dq, to sums in the
 * workspace as soon as it has it, so s and dp are computed once and in no other kernel. dq's kernel takes the sums.
 * They are kept as fragments: 16 queries by 8 columns, four numbers for each lane. */
#ifndef SKR_ATTENTION_ANY_ORDER_CUH
#define SKR_ATTENTION_ANY_ORDER_CUH

#include "attention_products.cuh"
#include "attention_scored.cuh"

/* This lane's numbers of the first fragment of 16 queries of a head, from `row` on; a fragment has 32 such. Packed
 * sequences begin where those before them have ended, whatever the lengths are, as in attention_find(). */
SKR_DEVICE float4 *attention_dq_sums(const skr_attention_job &job, const attention_sequence &s, int h, int row,
                                     int columns)
{
    int first = job.cuda.spans_at < 0 ? s.b * (((int)job.length + 15) / 16) : s.q / 16 + s.b + 1;
    int64_t line = h * job.cuda.sum_lines + first + row / 16;
    return (float4 *)((char *)job.head.workspace + job.cuda.sums_at) + line * (columns / 8) * 32 + (threadIdx.x & 31);
}

SKR_DEVICE void attention_add_sums(float4 *to, const float (&x)[4])
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
                 "f"(x[3])
                 : "memory");
#else /* the same for sm_90: tools/portable_fatbin.sh */
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1; // sm_80\n\t"
                 "red.relaxed.gpu.global.add.f32 [%0 + 4], %2; // sm_80\n\t"
                 "red.relaxed.gpu.global.add.f32 [%0 + 8], %3; // sm_80\n\t"
                 "red.relaxed.gpu.global.add.f32 [%0 + 12], %4; // sm_80\n\t"
                 "// sm_90: red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
#endif
}

/* ds k of a tile of BR keys and BC queries, by all warps of the block: 32 queries and some columns each. */
template <int T, int DK, int BR, int BC, int WARPS> struct attention_dq_part {
    static constexpr int QI = 2, WQ = BC / 32, WD = WARPS / WQ, DJ = DK / WD / 8;
    static_assert(WQ * WD == WARPS && DJ % 2 == 0, "warps share the tile");
    using tile = attention_bias_tile<T, BR, BC>; /* of ds, which lies as a bias does: rows are keys */
    using k_tile = skr_tile<T, DK>;

    template <int MI, int NJ>
    __device__ __forceinline__ static void store(uint32_t to, const float (&ds)[MI][NJ][4], int warp_row)
    {
        int lane = (int)here(threadIdx.x) & 31;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int j = 0; j < NJ; j++)
                    shared_store4(to + tile::at(warp_row + 16 * i + 8 * r + (lane >> 2), j) + 4 * (lane & 3),
                                  pack2<T>(ds[i][j][2 * r], ds[i][j][2 * r + 1]));
    }

    /* first: of the tile's queries. */
    __device__ __forceinline__ static void add(const skr_attention_job &job, const attention_sequence &s, int h,
                                               int first, uint32_t ds, uint32_t k)
    {
        int lane = (int)here(threadIdx.x) & 31, warp = (int)here(threadIdx.x) / 32;
        int row = warp % WQ * 32, column = warp / WQ * (8 * DJ);
        float part[QI][DJ][4];
        attention_clear(part);
        uint32_t right = here(k_tile::moved(k_tile::rows_place(k), 0, column / 8));
        uint32_t left = here(ds + tile::at((lane & 7) + (lane >> 4 << 3), (lane >> 3 & 1) + row / 8));
#pragma unroll
        for (int d = 0; d < BR / 16; d++) {
            uint32_t rows[QI][4];
#pragma unroll
            for (int i = 0; i < QI; i++)
                ldmatrix4_transposed(rows[i], (left ^ (uint32_t)(2 * i << 4)) + 16 * d * tile::row_bytes);
#pragma unroll
            for (int j = 0; j < DJ; j += 2) {
                uint32_t columns[4];
                k_tile::right_rows(columns, right, d, 8 * j);
#pragma unroll
                for (int i = 0; i < QI; i++) {
                    mma_step<T>(part[i][j], rows[i], columns[0], columns[1]);
                    mma_step<T>(part[i][j + 1], rows[i], columns[2], columns[3]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < QI; i++)
            if (first + row + 16 * i < s.rows) {
                float4 *to = attention_dq_sums(job, s, h, first + row + 16 * i, DK) + column * 4;
#pragma unroll
                for (int j = 0; j < DJ; j++)
                    attention_add_sums(to + 32 * j, part[i][j]);
            }
    }
};

#endif
