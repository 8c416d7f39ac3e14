/* attention_scored.cuh - softcap, bias and slopes in the kernels of SKR_ATTENTION_SCORED: one or few operations a
 * score, and no register that stays. SPDX-License-Identifier: Apache-2.0
 *
 * Scores are in units of 1 / over (job.cuda) throughout. Layout and FLIP are those of attention_scores.cuh. */
#ifndef SKR_ATTENTION_SCORED_CUH
#define SKR_ATTENTION_SCORED_CUH

#include "attention_scores.cuh"

/* A warp's own part of the bias in shared memory: ROWS queries of COLUMNS keys, of type T. Only that warp writes and
 * reads it, so that the next part can be on its way as soon as this one is used. Chunks of 16 bytes are exchanged so
 * that eight rows of one chunk lie in eight different places. */
template <int T, int ROWS, int COLUMNS> struct attention_bias_tile {
    static constexpr int bytes = skr_elem<T>::bytes, row_bytes = COLUMNS * bytes, chunks = row_bytes / 16;
    static constexpr int together = row_bytes < 128 ? 128 / row_bytes : 1; /* rows in all 32 banks */
    static constexpr int a_turn = 32 / chunks;
    static_assert(chunks <= 32 && ROWS % a_turn == 0, "whole rows in every turn");
    static_assert((chunks & (chunks - 1)) == 0, "chunks change places within a row");

    __device__ __forceinline__ static uint32_t at(int row, int chunk)
    {
        return (uint32_t)(row * row_bytes + ((chunk ^ (row / together & ((chunks < 8 ? chunks : 8) - 1))) << 4));
    }

    /* Starts to bring it in, from this query and key on, of the head that begins `head` bytes behind the source's. What
     * is beyond becomes zeros. */
    __device__ __forceinline__ static void load(uint32_t to, const attention_source &s, int query, int key,
                                                int64_t head)
    {
        int lane = (int)here(threadIdx.x) & 31, r = lane / chunks, c = lane % chunks;
        const char *from = s.data + head + (query + r) * s.pitch + (int64_t)key * bytes + 16 * c;
        int left = key + c * (16 / bytes) < s.width ? s.rows - query - r : 0;
        int64_t step = a_turn * s.pitch;
#pragma unroll
        for (int k = 0; k < ROWS; k += a_turn, from += step)
            copy_async16_or_zero(to + at(r + k, c), from, k < left);
    }
};

template <int T, int MI, int NJ, bool FLIP> struct attention_scored {
    using base = float[MI][2];
    static constexpr int queries = FLIP ? 8 * NJ : 16 * MI, keys = FLIP ? 16 * MI : 8 * NJ; /* of a warp */
    const attention_scores<MI, NJ, FLIP> &scores;

    /* Bytes of a warp's bias. */
    __device__ __forceinline__ static int bias_bytes(int type)
    {
        return queries * keys * skr_type_bytes(type);
    }

    __device__ __forceinline__ static void load_bias(uint32_t to, const attention_source &s, int query, int key,
                                                     int64_t head = 0)
    {
        if (s.type == SKR_F32)
            attention_bias_tile<SKR_F32, queries, keys>::load(to, s, query, key, head);
        else
            attention_bias_tile<T, queries, keys>::load(to, s, query, key, head);
    }

    /* x *= a series in x^2. */
    template <int N> __device__ __forceinline__ void multiply(float (&x)[MI][NJ][4], const float (&series)[N]) const
    {
        scores.each(x, [&](float &f, int, int) {
            float y = f * f, p = series[N - 1];
#pragma unroll
            for (int k = N - 2; k >= 0; k--)
                p = __fmaf_rn(p, y, series[k]);
            f *= p;
        });
    }

    /* x = cap * tanh(x * scale / cap): by a series where all of the warp's scores are small, else one by one. */
    __device__ __forceinline__ void cap(float (&x)[MI][NJ][4]) const
    {
        const skr_attention_cuda &c = scores.job.cuda;
        float part[4 * MI] = {}, most = 0.0f; /* one maximum after the other would wait for each */
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int n = 0; n < 4 * MI; n++)
                part[n] = fmaxf(part[n], fabsf(x[n / 4][j][n % 4]));
#pragma unroll
        for (int n = 0; n < 4 * MI; n++)
            most = fmaxf(most, part[n]);
        if (!__any_sync(0xffffffffu, most > c.nearest)) {
            multiply(x, c.short_series);
        } else if (!__any_sync(0xffffffffu, most > c.near)) {
            multiply(x, c.series);
        } else {
            float unit = scores.job.scale / scores.job.softcap, times = scores.job.softcap;
            scores.each(x, [&](float &f, int, int) { f = times * attention_tanh(f * unit); });
        }
    }

    /* x += bias. */
    __device__ __forceinline__ void add_bias(float (&x)[MI][NJ][4], uint32_t from) const
    {
        float over = scores.job.cuda.over;
        int lane = threadIdx.x & 31;
        if (scores.job.bias.type == SKR_F32) {
            using tile = attention_bias_tile<SKR_F32, queries, keys>;
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int r = 16 * i + 8 * (e >> 1) + (lane >> 2), c = 8 * j + (e & 1) + 2 * (lane & 3);
                        int query = FLIP ? c : r, key = FLIP ? r : c;
                        float f = shared_load4(from + tile::at(query, key / 4) + key % 4 * 4);
                        x[i][j][e] = __fmaf_rn(f, over, x[i][j][e]);
                    }
        } else {
            using tile = attention_bias_tile<T, queries, keys>;
            int row = FLIP ? (lane & 7) + (lane >> 4 << 3) : lane & 15, chunk = FLIP ? lane >> 3 & 1 : lane >> 4;
            uint32_t place = here(from + tile::at(row, chunk)); /* other chunks: as in skr_tile::moved */
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NJ; j += 2) {
                    uint32_t w[4];
                    if constexpr (FLIP)
                        ldmatrix4_transposed(w, (place ^ (uint32_t)(2 * i << 4)) + 8 * j * tile::row_bytes);
                    else
                        ldmatrix4(w, (place ^ (uint32_t)(j << 4)) + 16 * i * tile::row_bytes);
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        float f[2], *to = &x[i][j + (k >> 1)][2 * (k & 1)];
                        unpack2<T>(w[k], f[0], f[1]);
                        to[0] = __fmaf_rn(f[0], over, to[0]);
                        to[1] = __fmaf_rn(f[1], over, to[1]);
                    }
                }
        }
    }

    /* x + rest = x - slope |i + diagonal - j|, where slope is in the units of x already. Beside the diagonal the
     * distance is what the thread's scores of a row share, which is left to the caller, and a constant. */
    __device__ __forceinline__ void add_slopes(float (&x)[MI][NJ][4], float slope, base &rest) const
    {
        const attention_sequence &s = scores.s;
        int lane = threadIdx.x & 31, row = scores.row - (lane >> 2), column = scores.column - 2 * (lane & 3);
        int across = FLIP ? -s.diagonal : s.diagonal, from = row + across - column; /* of the warp's first of both */
        bool after = from >= 8 * NJ - 1, before = from + 16 * MI - 1 <= 0;
        float step = after ? slope : -slope;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float own = (float)(scores.row + across - scores.column + 16 * i + 8 * r);
                rest[i][r] = after || before ? -step * own : 0.0f;
                if (after || before) {
#pragma unroll
                    for (int j = 0; j < NJ; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            x[i][j][2 * r + e] = __fmaf_rn(step, (float)(8 * j + e), x[i][j][2 * r + e]);
                } else {
#pragma unroll
                    for (int j = 0; j < NJ; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            x[i][j][2 * r + e] = __fmaf_rn(-slope, fabsf(own - (float)(8 * j + e)), x[i][j][2 * r + e]);
                }
            }
    }
};

#endif
