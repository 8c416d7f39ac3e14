/* attention_gradient.cuh - dq, or with FLIP dk and dv: the tiles of one side stay, those of the other pass.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns BR rows, queries or keys of a head, and passes over the BC columns at a time that they meet. p and ds
 * are computed again from lse in the kernel that needs them, with rows and columns so that each is the left operand of
 * the next product straight from the registers, and sums have one order, always.
 *   rows queries: s = q k^T,  dp = d_o v^T,  dq += ds k
 *   rows keys:    s = k q^T,  dp = v d_o^T,  dv += p d_o,  dk += ds q, over all heads that share the keys
 * WM warps share the rows; WV warps have the same rows and share the results' columns. EXCHANGE: they share the scores,
 * too, and p and ds go through shared memory, where the warps of all columns find them. Doubtful sums are computed
 * again carefully, as in attention_forward.cuh. */
#ifndef SKR_ATTENTION_GRADIENT_CUH
#define SKR_ATTENTION_GRADIENT_CUH

#include "attention_any_order.cuh"

/* (lse in base 2, delta - dlse) of a head's queries, in the workspace. */
SKR_DEVICE float2 *attention_stats(const skr_attention_job &job, const attention_sequence &s, int h)
{
    int64_t tokens = job.packed ? job.length : job.batch * job.length;
    return (float2 *)((char *)job.head.workspace + job.cuda.stats_at) + h * tokens +
           (job.packed ? s.q : s.b * job.length);
}

template <int T, int DK, int DV, int BR, int BC, int WM, int WV, int STAGES, bool FLIP, int KIND>
struct attention_gradient {
    static constexpr bool ANY = KIND == SKR_ATTENTION_ANY, SCORED = KIND == SKR_ATTENTION_SCORED;
    static constexpr bool EXCHANGE = FLIP && !ANY && WV > 1;
    static constexpr int threads = 32 * WM * WV;
    static constexpr int MI = BR / (16 * WM), NJ = BC / 8 / (EXCHANGE ? WV : 1), KJ = DK / WV / 8,
                         VJ = FLIP ? DV / WV / 8 : 2;
    using k_tile = skr_tile<T, DK>;
    using v_tile = skr_tile<T, DV>;
    using scored = attention_scored<T, MI, NJ, FLIP>;
    using scores_of = attention_scores<MI, NJ, FLIP>;
    static constexpr int row_bytes = BR * (k_tile::row_bytes + v_tile::row_bytes);
    static constexpr int k_bytes = BC * k_tile::row_bytes, v_bytes = BC * v_tile::row_bytes;
    static constexpr int stage_bytes = k_bytes + v_bytes + (FLIP && !EXCHANGE ? 8 * BC : 0);
    static constexpr int p_at = row_bytes + STAGES * stage_bytes + 8 * BC,
                         ds_at = p_at + SKR_ATTENTION_DS_BYTES(BR, BC);
    static constexpr int shared_bytes =
        EXCHANGE ? ds_at + SKR_ATTENTION_DS_BYTES(BR, BC) : row_bytes + STAGES * stage_bytes;
    static_assert(DK / WV * k_tile::bytes % 128 == 0 && (!FLIP || DV / WV * v_tile::bytes % 128 == 0),
                  "columns of a warp begin where chunks do");
    static_assert(WM * WV * 16 * MI * 32 * (KJ > VJ ? KJ : VJ) <= shared_bytes, "results go through the same memory");
    static_assert(!FLIP || BC % 16 == 0, "tiles begin at multiples of 128 bytes");
    static_assert(!SCORED || WV == 1 || EXCHANGE, "a warp has the bias of its scores alone");
    static_assert(!EXCHANGE || BC == 64, "p and ds lie as tiles do");

    struct state { /* in shared memory */
        attention_work w;
        attention_source row_k, row_v, column_k, column_v; /* q and d_o, k and v; FLIP: the other way round */
        attention_source bias;
        attention_target out_k, out_v;     /* dq; FLIP: dk and dv */
        int64_t head_k, head_v, head_bias; /* FLIP: bytes to the next query head of q, d_o and bias */
        int first;                         /* row */
        int careful;
        int begin, count, total; /* tiles of columns; total: over all heads */
        int whole, whole_end;
    };
    const skr_attention_job &job;
    state &the;
    uint32_t memory; /* rows of k's width, of v's; then stages of columns */
    int warp_row, warp_column, warp_k, warp_v;
    float out_k[MI][KJ][4], out_v[MI][VJ][4];
    float2 stat[MI][2]; /* of the rows, unless FLIP */
    float slope_sum;

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        extern __shared__ __align__(128) char shared[];
        __shared__ state the;
        if (!attention_find_shared(job, (int)(FLIP ? job.heads_k : job.heads), BR, FLIP, the.w)) {
            if (!FLIP && ANY && job.dslopes.data && threadIdx.x == 0)
                *slope_part(job, the.w) = 0.0f;
            return;
        }
        if (threadIdx.x == 0)
            prepare(job, the);
        __syncthreads();
        attention_gradient self(job, the, shared_address(shared));
        while (!self.pass())
            ;
    }

    static __device__ __forceinline__ void prepare(const skr_attention_job &job, state &the)
    {
        const attention_sequence &s = the.w.s;
        int kv_h = FLIP ? the.w.h : the.w.h / (int)job.group, h = FLIP ? kv_h * (int)job.group : the.w.h;
        int aligned = job.cuda.aligned, pairs = job.cuda.pairs;
        attention_source &q = FLIP ? the.column_k : the.row_k, &d_o = FLIP ? the.column_v : the.row_v;
        attention_source &k = FLIP ? the.row_k : the.column_k, &v = FLIP ? the.row_v : the.column_v;
        q.set(job.q, s, s.q, s.rows, h, job.d, aligned);
        d_o.set(job.d_o, s, s.q, s.rows, h, job.d_v, aligned);
        k.set(job.k, s, s.k, s.keys, kv_h, job.d, aligned);
        v.set(job.v, s, s.k, s.keys, kv_h, job.d_v, aligned);
        the.head_k = job.q.head * skr_type_bytes(job.q.type), the.head_v = job.d_o.head * skr_type_bytes(job.d_o.type);
        if (SCORED && job.bias.data) {
            the.bias.set_bias(job.bias, s, h);
            the.head_bias = job.bias.head * skr_type_bytes(job.bias.type);
        }
        if (FLIP) {
            the.out_k.set(job.dk, s, s.k, s.keys, kv_h, job.d, pairs, job.accumulate);
            the.out_v.set(job.dv, s, s.k, s.keys, kv_h, job.d_v, pairs, job.accumulate);
        } else {
            the.out_k.set(job.dq, s, s.q, s.rows, h, job.d, pairs, job.accumulate);
        }
        int first = the.w.tile * BR, last = min(first + BR, FLIP ? s.keys : s.rows) - 1;
        bool any = last >= first;
        int begin = FLIP ? s.first_row(first) : s.first_key(first), end = FLIP ? s.end_row(last) : s.end_key(last);
        the.first = first, the.careful = 0;
        the.begin = any ? begin / BC : 0;
        the.count = any ? max(0, (end + BC - 1) / BC - the.begin) : 0;
        the.total = the.count * (FLIP ? (int)job.group : 1);
        the.whole = ((FLIP ? s.first_row(last) : s.first_key(last)) + BC - 1) / BC;
        the.whole_end = max(0, FLIP ? s.end_row(first) : s.end_key(first)) / BC;
    }

    __device__ __forceinline__ attention_gradient(const skr_attention_job &j, state &t, uint32_t m)
        : job(j), the(t), memory(m)
    {
        int warp = (int)threadIdx.x / 32;
        warp_row = warp % WM * (16 * MI);
        warp_column = EXCHANGE ? warp / WM * (8 * NJ) : 0;
        warp_k = warp / WM * (8 * KJ), warp_v = FLIP ? warp / WM * (8 * VJ) : 0;
    }

    __device__ __forceinline__ uint32_t stage(int n) const
    {
        return memory + row_bytes + n % STAGES * stage_bytes;
    }

    __device__ __forceinline__ void load_rows() const
    {
        attention_load<T, DK, BR, threads, ANY>(memory, the.row_k, the.first);
        attention_load<T, DV, BR, threads, ANY>(memory + BR * k_tile::row_bytes, the.row_v, the.first);
    }

    /* Of tile n of all columns that pass: which of the heads that share the keys, and which tile of its columns. */
    __device__ __forceinline__ int head_of(int n) const
    {
        return FLIP ? n / the.count : 0;
    }
    __device__ __forceinline__ int tile_of(int n) const
    {
        return the.begin + n - head_of(n) * the.count;
    }

    __device__ __forceinline__ void load_columns(int n) const
    {
        int head = head_of(n), first = tile_of(n) * BC;
        attention_load<T, DK, BC, threads, ANY>(stage(n), the.column_k, first, head * the.head_k);
        attention_load<T, DV, BC, threads, ANY>(stage(n) + k_bytes, the.column_v, first, head * the.head_v);
        if (FLIP && !EXCHANGE)
            load_column_stats(n, head, first);
    }

    /* With EXCHANGE there is one place for them, which is free again when p and ds have been stored. */
    __device__ __forceinline__ uint32_t column_stats(int n) const
    {
        return EXCHANGE ? memory + row_bytes + STAGES * stage_bytes : stage(n) + k_bytes + v_bytes;
    }
    __device__ __forceinline__ void load_column_stats(int n, int head, int first) const
    {
        if (threadIdx.x < BC) {
            const attention_sequence &s = the.w.s;
            int i = first + (int)threadIdx.x;
            copy_async8_or_zero(column_stats(n) + 8 * threadIdx.x,
                                attention_stats(job, s, the.w.h * (int)job.group + head) + i, i < s.rows);
        }
    }

    /* All sums of the block's rows. False: doubtful ones came out, nothing was written. */
    __device__ __forceinline__ bool pass()
    {
        const attention_sequence &s = the.w.s;
        attention_clear(out_k);
        if (FLIP)
            attention_clear(out_v);
        else
            load_stats();
        slope_sum = 0.0f;
        if (!FLIP && in_any_order()) {
            take_sums(); /* dk's kernel has made them; where there is a NaN, the next pass computes them here */
            return finish();
        }
        if (the.total > 0) {
            load_rows();
            if (STAGES == 2)
                load_columns(0);
            if (SCORED)
                load_bias(0);
            if (EXCHANGE)
                load_column_stats(0, head_of(0), tile_of(0) * BC);
            copy_async_commit();
        }
        for (int n = 0; n < the.total; n++) {
            if (STAGES == 1) {
                __syncthreads();
                load_columns(n);
                copy_async_commit();
            }
            copy_async_wait<0>();
            __syncthreads();
            if (STAGES == 2 && n + 1 < the.total)
                load_columns(n + 1);
            copy_async_commit();
            int lane = here(threadIdx.x) & 31, tile = tile_of(n);
            int h = FLIP ? the.w.h * (int)job.group + head_of(n) : the.w.h;
            scores_of scores{job, s, h, the.first + warp_row + (lane >> 2), tile * BC + warp_column + 2 * (lane & 3)};
            bool inside = tile >= the.whole && tile < the.whole_end;
            if constexpr (EXCHANGE)
                exchange_step(scores, n, inside);
            else if constexpr (SCORED)
                scored_step(scores, n, inside);
            else
                step(scores, n, inside);
        }
        return finish();
    }

    __device__ __forceinline__ bool in_any_order() const
    {
        return !ANY && job.cuda.sums_at >= 0 && !the.careful;
    }

    __device__ __forceinline__ void take_sums()
    {
#pragma unroll
        for (int i = 0; i < MI; i++) {
            int row = the.first + warp_row + 16 * i;
            const float4 *from = attention_dq_sums(job, the.w.s, the.w.h, row, DK);
#pragma unroll
            for (int j = 0; j < KJ; j++) {
                float4 f = row < the.w.s.rows ? from[32 * j] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                out_k[i][j][0] = f.x, out_k[i][j][1] = f.y, out_k[i][j][2] = f.z, out_k[i][j][3] = f.w;
            }
        }
    }

    using dq_part = attention_dq_part<T, DK, BR, BC, WM * WV>;

    /* out_k += ds columns; and dq's sums get what the block's keys give. */
    __device__ __forceinline__ void add_ds(const float (&ds)[MI][NJ][4], int n)
    {
        if constexpr (FLIP && !ANY)
            if (in_any_order()) {
                dq_part::store(memory + shared_bytes, ds, warp_row);
                attention_add<T, DK>(out_k, ds, stage(n), warp_k);
                __syncthreads();
                add_dq(n, memory + shared_bytes);
                return;
            }
        add<DK>(out_k, ds, stage(n), warp_k);
    }

    __device__ __forceinline__ void add_dq(int n, uint32_t ds)
    {
        dq_part::add(job, the.w.s, the.w.h * (int)job.group + head_of(n), tile_of(n) * BC, ds, memory);
    }

    __device__ __forceinline__ void step(const scores_of &scores, int n, bool inside)
    {
        uint32_t columns = stage(n);
        float x[MI][NJ][4], bend[ANY ? MI : 1][ANY ? NJ : 1][4];
        attention_scores_of<T, DK>(x, memory, warp_row, columns, the.careful);
        if constexpr (ANY)
            scores.finish(x, job.scale, inside, bend);
        else if (!inside)
            scores.limit(x);
        float unit = ANY ? SKR_LOG2E : job.cuda.unit;
        each_stat(columns, [&](int i, int j, int e, float2 t) {
            x[i][j][e] = exp2_fast<true>(__fmaf_rn(x[i][j][e], unit, -t.x));
        });
        uint64_t kept = ANY && job.drop ? scores.draw() : ~UINT64_C(0);
        float keep = ANY ? job.keep_scale : 1.0f;
        if (FLIP && the.out_v.data) {
            if (ANY && job.drop) {
                float p[MI][NJ][4];
#pragma unroll
                for (int n = 0; n < MI * NJ * 4; n++)
                    p[n / (4 * NJ)][n / 4 % NJ][n & 3] =
                        kept >> n & 1 ? x[n / (4 * NJ)][n / 4 % NJ][n & 3] * keep : 0.0f;
                add<DV>(out_v, p, columns + k_bytes, warp_v);
            } else {
                add<DV>(out_v, x, columns + k_bytes, warp_v);
            }
        }
        if (FLIP && !the.out_k.data)
            return;
        float dp[MI][NJ][4];
        attention_scores_of<T, DV>(dp, memory + BR * k_tile::row_bytes, warp_row, columns + k_bytes, the.careful);
        each_stat(columns, [&](int i, int j, int e, float2 t) {
            float d = ANY ? (kept >> (4 * (NJ * i + j) + e) & 1 ? dp[i][j][e] * keep : 0.0f) : dp[i][j][e];
            x[i][j][e] = x[i][j][e] == 0.0f ? 0.0f : x[i][j][e] * (d - t.y);
        });
        if constexpr (ANY) {
            if (!FLIP && job.dslopes.data)
                slope_sum += scores.slopes_gradient(x);
            if (job.softcap > 0.0f)
#pragma unroll
                for (int n = 0; n < MI * NJ * 4; n++)
                    x[n / (4 * NJ)][n / 4 % NJ][n & 3] *= bend[n / (4 * NJ)][n / 4 % NJ][n & 3];
        }
        add_ds(x, n);
    }

    /* As step() or scored_step(), each score by one warp. */
    __device__ __forceinline__ void exchange_step(const scores_of &scores, int n, bool inside)
    {
        uint32_t columns = stage(n);
        float x[MI][NJ][4], dp[MI][NJ][4], rest[MI][2] = {};
        attention_scores_of<T, DK>(x, memory, warp_row, columns + warp_column * k_tile::row_bytes, false);
        if constexpr (SCORED)
            add_options(x, rest, scores, n);
        attention_scores_of<T, DV>(dp, memory + BR * k_tile::row_bytes, warp_row,
                                   columns + k_bytes + warp_column * v_tile::row_bytes, false);
        if (!inside)
            scores.limit(x);
        if (SCORED && job.softcap > 0.0f)
            exchange<true>(x, dp, rest);
        else
            exchange<false>(x, dp, rest);
        __syncthreads();
        if (n + 1 < the.total)
            load_column_stats(n + 1, head_of(n + 1), tile_of(n + 1) * BC);
        copy_async_commit();
        if (the.out_v.data)
            add_kept<DV>(out_v, memory + p_at, columns + k_bytes, warp_v);
        if (the.out_k.data)
            add_kept<DK>(out_k, memory + ds_at, columns, warp_k);
        if (in_any_order())
            add_dq(n, memory + ds_at);
    }

    /* Scores and dp to p and ds, where all warps find them. CAPPED: see soften(). */
    template <bool CAPPED> __device__ __forceinline__ void
    exchange(const float (&x)[MI][NJ][4], const float (&dp)[MI][NJ][4], const float (&rest)[MI][2]) const
    {
        using kept = skr_tile<T, BC>;
        float unit = job.cuda.unit, bend = CAPPED ? -1.0f / (job.softcap * job.softcap) : 0.0f;
        int lane = (int)here(threadIdx.x) & 31;
        uint32_t to = memory + kept::at(warp_row + (lane >> 2), 0) + 4 * (lane & 3);
        uint32_t at = column_stats(0) + 8 * warp_column + 16 * (lane & 3);
#pragma unroll
        for (int j = 0; j < NJ; j++) {
            uint4 two = shared_load16(at + 64 * j);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                float p[4], ds[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float y = x[i][j][e], lse = __uint_as_float(e & 1 ? two.z : two.x);
                    float delta = __uint_as_float(e & 1 ? two.w : two.y);
                    p[e] = exp2_fast<true>(__fmaf_rn(y, unit, SCORED ? __fmaf_rn(rest[i][e >> 1], unit, -lse) : -lse));
                    float slope = CAPPED ? p[e] * fmaxf(__fmaf_rn(y * y, bend, 1.0f), 0.0f) : p[e];
                    ds[e] = slope == 0.0f ? 0.0f : slope * (dp[i][j][e] - delta);
                }
#pragma unroll
                for (int r = 0; r < 2; r++) { /* rows 8 apart have their chunks in the same places */
                    uint32_t line = (to ^ (uint32_t)((warp_column / 8 + j) << 4)) + (16 * i + 8 * r) * kept::row_bytes;
                    shared_store4(line + p_at, pack2<T>(p[2 * r], p[2 * r + 1]));
                    shared_store4(line + ds_at, pack2<T>(ds[2 * r], ds[2 * r + 1]));
                }
            }
        }
    }

    /* out += x tile, where x is kept as a tile itself. */
    template <int D, int OJ>
    __device__ __forceinline__ void add_kept(float (&out)[MI][OJ][4], uint32_t x, uint32_t tile, int column)
    {
        using kept = skr_tile<T, BC>;
        if (the.careful)
            return attention_add_kept<T, D, BC, BC>(out, x, warp_row, tile, 0, column);
        uint32_t place = here(kept::left_place(x, warp_row));
        attention_add_left<T, D, BC / 8>(
            out, [&](uint32_t(&a)[4], int i, int d) { kept::left(a, place, 16 * i, d); }, tile, column);
    }

    /* As step(), with softcap, a bias or slopes. */
    __device__ __forceinline__ void scored_step(const scores_of &scores, int n, bool inside)
    {
        uint32_t columns = stage(n), p[FLIP ? MI : 1][FLIP ? NJ / 2 : 1][4];
        float x[MI][NJ][4], rest[MI][2] = {};
        attention_scores_of<T, DK>(x, memory, warp_row, columns, the.careful);
        add_options(x, rest, scores, n);
        if (!inside)
            scores.limit(x);
        if (job.softcap > 0.0f)
            soften<true>(x, p, rest, columns);
        else
            soften<false>(x, p, rest, columns);
        if constexpr (FLIP) {
            if (the.out_v.data) {
                if (the.careful) {
                    float f[MI][NJ][4];
#pragma unroll
                    for (int k = 0; k < MI * NJ * 2; k++) { /* word k: a left operand's pairs */
                        int i = k / (2 * NJ), d = k / 4 % (NJ / 2), w = k & 3;
                        float *to = &f[i][2 * d + (w >> 1)][2 * (w & 1)];
                        unpack2<T>(p[i][d][w], to[0], to[1]);
                    }
                    add_carefully<DV>(out_v, f, columns + k_bytes, warp_v);
                } else {
                    attention_add_left<T, DV, NJ>(
                        out_v,
                        [&](uint32_t(&a)[4], int i, int d) {
#pragma unroll
                            for (int k = 0; k < 4; k++)
                                a[k] = p[i][d][k];
                        },
                        columns + k_bytes, warp_v);
                }
            }
            if (!the.out_k.data)
                return;
        }
        float dp[MI][NJ][4];
        attention_scores_of<T, DV>(dp, memory + BR * k_tile::row_bytes, warp_row, columns + k_bytes, the.careful);
        each_stat(columns, [&](int i, int j, int e, float2 t) {
            x[i][j][e] = x[i][j][e] == 0.0f ? 0.0f : x[i][j][e] * (dp[i][j][e] - t.y);
        });
        add_ds(x, n);
    }

    /* Bias, slopes (a part of them is left in rest) and softcap. */
    __device__ __forceinline__ void add_options(float (&x)[MI][NJ][4], float (&rest)[MI][2], const scores_of &scores,
                                                int n) const
    {
        scored options{scores};
        if (job.bias.data) {
            options.add_bias(x, bias());
            __syncwarp();
            if (n + 1 < the.total)
                load_bias(n + 1);
            copy_async_commit();
        }
        if (job.slopes.data)
            options.add_slopes(
                x, job.cuda.over * job.slopes.data[scores.s.b * job.slopes.batch + scores.h * job.slopes.head], rest);
        if (job.softcap > 0.0f)
            options.cap(x);
    }

    /* Scores to p times the derivative of softcap; FLIP: and p alone, as left operands. A score of -infinity would make
     * that derivative one, too, and 0 times it is no number. */
    template <bool CAPPED, int PI, int PJ> __device__ __forceinline__ void
    soften(float (&x)[MI][NJ][4], uint32_t (&p)[PI][PJ][4], const float (&rest)[MI][2], uint32_t columns) const
    {
        float unit = job.cuda.unit, bend = CAPPED ? -1.0f / (job.softcap * job.softcap) : 0.0f;
        int lane = threadIdx.x & 31;
        uint32_t at = columns + k_bytes + v_bytes + 16 * (lane & 3);
#pragma unroll
        for (int d = 0; d < NJ / 2; d++) {
            uint4 two[2];
            if (FLIP)
                two[0] = shared_load16(at + 128 * d), two[1] = shared_load16(at + 128 * d + 64);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                float f[2][4];
#pragma unroll
                for (int k = 0; k < 2; k++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float &y = x[i][2 * d + k][e];
                        float lse = !FLIP ? stat[i][e >> 1].x : __uint_as_float(e & 1 ? two[k].z : two[k].x);
                        f[k][e] = exp2_fast<true>(__fmaf_rn(y, unit, __fmaf_rn(rest[i][e >> 1], unit, -lse)));
                        y = CAPPED ? f[k][e] * fmaxf(__fmaf_rn(y * y, bend, 1.0f), 0.0f) : f[k][e];
                    }
                if constexpr (FLIP)
                    as_left<T>(p[i][d], f, 0);
            }
        }
    }

    __device__ __forceinline__ uint32_t bias() const
    {
        return memory + shared_bytes +
               (FLIP && !EXCHANGE && job.cuda.sums_at >= 0 ? SKR_ATTENTION_DS_BYTES(BR, BC) : 0) +
               threadIdx.x / 32 * scored::bias_bytes(job.bias.type);
    }

    __device__ __forceinline__ void load_bias(int n) const
    {
        if (!job.bias.data)
            return;
        int first = tile_of(n) * BC + warp_column, row = the.first + warp_row;
        scored::load_bias(bias(), the.bias, FLIP ? first : row, FLIP ? row : first, head_of(n) * the.head_bias);
    }

    /* out += x tile. */
    template <int D, int OJ>
    __device__ __forceinline__ void add(float (&out)[MI][OJ][4], const float (&x)[MI][NJ][4], uint32_t tile, int column)
    {
        if (the.careful)
            add_carefully<D>(out, x, tile, column);
        else
            attention_add<T, D>(out, x, tile, column);
    }

    /* Through the memory of the first rows, which are brought in again. */
    template <int D, int OJ> __device__ __forceinline__ void
    add_carefully(float (&out)[MI][OJ][4], const float (&x)[MI][NJ][4], uint32_t tile, int column)
    {
        copy_async_wait<0>();
        attention_add_seen<T, D, DK>(out, x, tile, column, memory, warp_row);
        attention_load<T, DK, BR, threads, ANY>(memory, the.row_k, the.first);
        copy_async_commit();
    }

    __device__ __forceinline__ void load_stats()
    {
        const attention_sequence &s = the.w.s;
        const float2 *from = attention_stats(job, s, the.w.h);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int at = the.first + warp_row + 16 * i + 8 * r + (int)(threadIdx.x & 31) / 4;
                stat[i][r] = at < s.rows ? from[at] : make_float2(0.0f, 0.0f);
            }
    }

    static __device__ __forceinline__ float *slope_part(const skr_attention_job &job, const attention_work &w)
    {
        int64_t part = job.cuda.spans_at < 0 ? w.s.b * job.cuda.grid[0].pieces + w.tile : blockIdx.x / (int)job.heads;
        return (float *)((char *)job.head.workspace + job.cuda.slopes_at) + w.h * job.cuda.slope_parts + part;
    }

    __device__ __forceinline__ bool finish()
    {
        bool doubtful = attention_doubtful<T>(out_k);
        if (FLIP)
            doubtful |= attention_doubtful<T>(out_v);
        if (!the.careful && __syncthreads_or(doubtful)) {
            if (threadIdx.x == 0)
                the.careful = 1;
            __syncthreads();
            return false;
        }
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < KJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    out_k[i][j][e] *= job.scale;
        if (the.out_k.data)
            the.out_k.template store<T>(out_k, the.first + warp_row, warp_k, memory);
        if (FLIP && the.out_v.data)
            the.out_v.template store<T>(out_v, the.first + warp_row, warp_v, memory);
        if (!FLIP && ANY && job.dslopes.data) {
            __shared__ __align__(16) float parts[WM * WV];
            float mine = lanes_reduce<skr_sum, 32>(warp_k == 0 ? slope_sum : 0.0f);
            if ((threadIdx.x & 31) == 0)
                parts[threadIdx.x / 32] = mine;
            __syncthreads();
            if (threadIdx.x == 0) {
                float all = 0.0f;
                for (int k = 0; k < WM * WV; k++)
                    all += parts[k];
                *slope_part(job, the.w) = all;
            }
        }
        return true;
    }

    /* f(i, j, e, stat) for every sum, where stat is its query's. */
    template <class F> __device__ __forceinline__ void each_stat(uint32_t columns, const F &f) const
    {
        int lane = threadIdx.x & 31;
        uint32_t at = columns + k_bytes + v_bytes + 16 * (lane & 3);
#pragma unroll
        for (int j = 0; j < NJ; j++) {
            uint4 two = FLIP ? shared_load16(at + 64 * j) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    f(i, j, e,
                      !FLIP   ? stat[i][e >> 1]
                      : e & 1 ? make_float2(__uint_as_float(two.z), __uint_as_float(two.w))
                              : make_float2(__uint_as_float(two.x), __uint_as_float(two.y)));
        }
    }
};

#endif
