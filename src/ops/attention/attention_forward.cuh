/* attention_forward.cuh - attention over tiles of queries, on the matrix instructions of a warp.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns BM queries of a head and passes over the keys they may see, BN at a time: s = q k^T, the running maximum
 * and sum of every row, o = o * factor + p v. p stays in registers: the sums of one product are the left operand of the
 * next. WM warps share the queries and WV warps the columns of v (each of those has all scores of its rows). Keys and
 * values are brought in one tile ahead (STAGES 2), or on demand.
 *
 * The plain kernel knows sequences, window and causal; the one with OPTIONS everything. Exponentials are taken in base
 * 2: 2^(x * unit - top * unit), where the product is exact before the subtraction.
 *
 * A value that is infinite or not a number must not reach the rows that do not see its key, though 0 times it would.
 * Nothing guards against that on the way: a tile whose result holds a NaN is done again carefully, with products that
 * leave out p = 0. */
#ifndef SKR_ATTENTION_FORWARD_CUH
#define SKR_ATTENTION_FORWARD_CUH

#include "attention_scores.cuh"

template <int T, int DK, int DV, int BM, int BN, int WM, int WV, int STAGES, bool OPTIONS> struct attention_forward {
    static constexpr int threads = 32 * WM * WV;
    static constexpr int MI = BM / (16 * WM), NJ = BN / 8, OJ = DV / WV / 8;
    using q_tile = skr_tile<T, DK>;
    using v_tile = skr_tile<T, DV>;
    static constexpr int q_bytes = BM * q_tile::row_bytes, k_bytes = BN * q_tile::row_bytes;
    static constexpr int v_bytes = BN * v_tile::row_bytes, stage_bytes = k_bytes + v_bytes;
    static constexpr int shared_bytes = q_bytes + STAGES * stage_bytes;
    static constexpr float none = -__builtin_huge_valf();

    const skr_attention_job &job;
    attention_work w;
    uint32_t memory;  /* q, then stages of k and v */
    int warp_row;     /* of this warp in the tile */
    int warp_column;  /* of v */
    float unit;       /* what scores are multiplied by, in base 2 */
    float o[MI][OJ][4];
    float top[MI][2], sum[MI][2]; /* of rows g and g + 8; sum is this thread's own part */

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        extern __shared__ __align__(128) char shared[];
        attention_work w;
        if (!attention_find(job, (int)job.heads, BM, false, w))
            return;
        attention_forward self(job, w, shared_address(shared));
        if (!self.pass(false)) {
            __syncthreads();
            self.pass(true);
        }
    }

    __device__ __forceinline__ attention_forward(const skr_attention_job &j, const attention_work &work, uint32_t m)
        : job(j), w(work), memory(m)
    {
        int warp = (int)threadIdx.x / 32;
        warp_row = warp % WM * (16 * MI);
        warp_column = warp / WM * (8 * OJ);
    }

    /* Everything for the block's queries. False: a NaN came out that may not belong there, nothing was written. */
    __device__ __forceinline__ bool pass(bool careful)
    {
        const attention_sequence &s = w.s;
        int first = w.tile * BM, last = min(first + BM, s.rows) - 1, kv_h = w.h / (int)job.group;
        int n = last >= first ? s.first_key(first) / BN : 0;
        int end = last >= first ? (s.end_key(last) + BN - 1) / BN : 0;
        bool aligned = !OPTIONS || job.cuda.aligned;
        const attention_source<T, DK, BM, threads> q(job.q, s, s.q, s.rows, w.h, (int)job.d, aligned);
        const attention_source<T, DK, BN, threads> k(job.k, s, s.k, s.keys, kv_h, (int)job.d, aligned);
        const attention_source<T, DV, BN, threads> v(job.v, s, s.k, s.keys, kv_h, (int)job.dv, aligned);
        float scale = attention_scale(kv_h);
        unit = OPTIONS ? SKR_LOG2E : scale * SKR_LOG2E;
        clear();
        if (n < end) {
            q.load(memory, first);
            if (STAGES == 2)
                k.load(stage(0), n * BN), v.load(stage(0) + k_bytes, n * BN);
            copy_async_commit();
        }
        for (int turn = 0; n < end; n++, turn ^= STAGES - 1) {
            if (STAGES == 1) {
                __syncthreads();
                k.load(stage(0), n * BN), v.load(stage(0) + k_bytes, n * BN);
                copy_async_commit();
            }
            copy_async_wait<0>();
            __syncthreads();
            if (STAGES == 2 && n + 1 < end)
                k.load(stage(turn ^ 1), (n + 1) * BN), v.load(stage(turn ^ 1) + k_bytes, (n + 1) * BN);
            copy_async_commit();
            float x[MI][NJ][4];
            multiply_keys(x, stage(turn));
            int lane = threadIdx.x & 31;
            attention_scores<MI, NJ, false> scores{job, s, w.h, first + warp_row + (lane >> 2), n * BN + 2 * (lane & 3)};
            bool inside = s.all_seen(first, last + 1, n * BN, n * BN + BN);
            if (OPTIONS)
                scores.finish(x, scale, inside);
            else if (!inside)
                scores.limit(x);
            soften(x);
            if (OPTIONS && job.drop) {
                uint64_t kept = scores.draw();
#pragma unroll
                for (int i = 0; i < MI * NJ * 4; i++)
                    x[i / (4 * NJ)][i / 4 % NJ][i & 3] = kept >> i & 1 ? x[i / (4 * NJ)][i / 4 % NJ][i & 3] : 0.0f;
            }
            if (careful)
                multiply_values_one_by_one(x, stage(turn) + k_bytes);
            else
                multiply_values(x, stage(turn) + k_bytes);
        }
        return finish(first, careful);
    }

    __device__ __forceinline__ uint32_t stage(int turn) const
    {
        return memory + q_bytes + turn * stage_bytes;
    }

    __device__ __forceinline__ float attention_scale(int) const
    {
        return job.scale;
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < MI; i++) {
            top[i][0] = top[i][1] = none;
            sum[i][0] = sum[i][1] = 0.0f;
#pragma unroll
            for (int j = 0; j < OJ; j++)
                o[i][j][0] = o[i][j][1] = o[i][j][2] = o[i][j][3] = 0.0f;
        }
    }

    __device__ __forceinline__ void multiply_keys(float (&x)[MI][NJ][4], uint32_t k) const
    {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NJ; j++)
                x[i][j][0] = x[i][j][1] = x[i][j][2] = x[i][j][3] = 0.0f;
#pragma unroll
        for (int d = 0; d < q_tile::steps; d++) {
            uint32_t a[MI][4];
#pragma unroll
            for (int i = 0; i < MI; i++)
                q_tile::left(a[i], memory, warp_row + 16 * i, d);
#pragma unroll
            for (int j = 0; j < NJ; j += 2) {
                uint32_t b[4];
                q_tile::right(b, k, 8 * j, d);
#pragma unroll
                for (int i = 0; i < MI; i++) {
                    mma_step<T>(x[i][j], a[i], b[0], b[1]);
                    mma_step<T>(x[i][j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    /* Scores to exponentials against the new maximum; o and sum follow it. */
    __device__ __forceinline__ void soften(float (&x)[MI][NJ][4])
    {
        float factor[MI][2];
        bool moved = false;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float most = fmaxf(x[i][0][2 * r], x[i][0][2 * r + 1]);
#pragma unroll
                for (int j = 1; j < NJ; j++)
                    most = fmaxf(most, fmaxf(x[i][j][2 * r], x[i][j][2 * r + 1]));
                most = lanes_reduce<skr_max, 4>(most);
                most = fmaxf(most, top[i][r]);
                factor[i][r] = top[i][r] == most ? 1.0f : exp2_fast<true>((top[i][r] - most) * unit);
                moved |= top[i][r] != most;
                top[i][r] = most;
                float shift = most == none ? 0.0f : most * unit;
                float part = 0.0f;
#pragma unroll
                for (int j = 0; j < NJ; j++) {
                    x[i][j][2 * r] = exp2_fast<true>(__fmaf_rn(x[i][j][2 * r], unit, -shift));
                    x[i][j][2 * r + 1] = exp2_fast<true>(__fmaf_rn(x[i][j][2 * r + 1], unit, -shift));
                    part += x[i][j][2 * r] + x[i][j][2 * r + 1];
                }
                sum[i][r] = __fmaf_rn(sum[i][r], factor[i][r], part);
            }
        if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < OJ; j++) {
                    o[i][j][0] *= factor[i][0], o[i][j][1] *= factor[i][0];
                    o[i][j][2] *= factor[i][1], o[i][j][3] *= factor[i][1];
                }
        }
    }

    __device__ __forceinline__ void multiply_values(const float (&x)[MI][NJ][4], uint32_t v)
    {
#pragma unroll
        for (int d = 0; d < BN / v_tile::rows_a_step; d++) {
            uint32_t a[MI][4];
#pragma unroll
            for (int i = 0; i < MI; i++)
                as_left<T>(a[i], x[i], d);
#pragma unroll
            for (int j = 0; j < OJ; j += 2) {
                uint32_t b[4];
                v_tile::right_rows(b, v, d, warp_column + 8 * j);
#pragma unroll
                for (int i = 0; i < MI; i++) {
                    mma_step<T>(o[i][j], a[i], b[0], b[1]);
                    mma_step<T>(o[i][j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    /* The same without a product with p = 0. Key 2q + e of eight is held by lanes q of a row's four. */
    __device__ __forceinline__ void multiply_values_one_by_one(const float (&x)[MI][NJ][4], uint32_t v)
    {
        int lane = threadIdx.x & 31;
#pragma unroll 1
        for (int key = 0; key < BN; key++) {
            float p[MI][2];
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float mine = 0.0f;
#pragma unroll
                    for (int j = 0; j < NJ; j++)
                        mine = j == key / 8 ? (key & 1 ? x[i][j][2 * r + 1] : x[i][j][2 * r]) : mine;
                    p[i][r] = rounded<T>(__shfl_sync(0xffffffffu, mine, (lane & ~3) | (key >> 1 & 3)));
                }
#pragma unroll
            for (int j = 0; j < OJ; j++) {
                int c = warp_column + 8 * j + 2 * (lane & 3);
                uint32_t at = v + v_tile::at(key, c * v_tile::bytes / 16) + c * v_tile::bytes % 16;
                float f[2];
                if (T == SKR_F32)
                    f[0] = shared_load4(at), f[1] = shared_load4(at + 4);
                else
                    unpack2<T == SKR_F32 ? SKR_F16 : T>(__float_as_uint(shared_load4(at)), f[0], f[1]);
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        o[i][j][e] = p[i][e >> 1] == 0.0f ? o[i][j][e] : __fmaf_rn(p[i][e >> 1], f[e & 1], o[i][j][e]);
            }
        }
    }

    /* Divides by the sums and writes o and lse. */
    __device__ __forceinline__ bool finish(int first, bool careful)
    {
        int lane = threadIdx.x & 31;
        float keep = OPTIONS ? job.keep_scale : 1.0f;
        bool bad = false;
        float over[MI][2], lse[MI][2];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float all = lanes_reduce<skr_sum, 4>(sum[i][r]), most = top[i][r];
                float factor = 1.0f;
                if (OPTIONS && job.sinks.data) {
                    float sink = job.sinks.data[w.h * job.sinks.head], larger = fmaxf(most, sink);
                    factor = most == larger ? 1.0f : exp2_fast<true>((most - larger) * unit);
                    all = all * factor + exp2_fast<true>((sink - larger) * unit);
                    most = larger;
                }
                over[i][r] = all == 0.0f ? 0.0f : factor * keep / all;
                lse[i][r] = all == 0.0f ? none : __fmaf_rn(most * unit, 0.693147181f, logf(all));
            }
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < OJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    o[i][j][e] *= over[i][e >> 1];
                    bad |= o[i][j][e] != o[i][j][e];
                }
        if (!careful && __syncthreads_or(bad))
            return false;
        char *to = attention_rows_at(job.o, w.s, w.s.q, w.h);
        int bytes = skr_type_bytes(job.o.type);
        bool pairs = job.cuda.pairs;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int row = first + warp_row + 16 * i + 8 * r + (lane >> 2);
                if (row >= w.s.room)
                    continue;
                bool sees = row < w.s.rows;
                char *line = to + row * job.o.token * bytes;
                if (job.lse.data && warp_column == 0 && (lane & 3) == 0)
                    attention_stat_at(job.lse, w.s, w.h)[row * job.lse.token] = sees ? lse[i][r] : none;
#pragma unroll
                for (int j = 0; j < OJ; j++) {
                    int c = warp_column + 8 * j + 2 * (lane & 3);
                    float a = sees ? o[i][j][2 * r] : 0.0f, b = sees ? o[i][j][2 * r + 1] : 0.0f;
                    if (pairs && c < job.dv) {
                        if (T == SKR_F32)
                            *(float2 *)(line + 4 * c) = make_float2(a, b);
                        else
                            store4_once(line + 2 * c, pack2<T == SKR_F32 ? SKR_F16 : T>(a, b));
                    } else {
                        if (c < job.dv)
                            any_store1(job.o.type, line + c * bytes, a);
                        if (c + 1 < job.dv)
                            any_store1(job.o.type, line + (c + 1) * bytes, b);
                    }
                }
            }
        return true;
    }
};

#endif
