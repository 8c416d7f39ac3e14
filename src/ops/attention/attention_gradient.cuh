/* attention_gradient.cuh - dq, or with FLIP dk and dv: the tiles of one side stay, those of the other pass.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns BR rows, queries or keys of a head, and passes over the BC columns at a time that they meet. p and ds
 * are computed again from lse in the kernel that needs them, with rows and columns so that each is the left operand of
 * the next product straight from the registers, and sums have one order, always.
 *   rows queries: s = q k^T,  dp = d_o v^T,  dq += ds k
 *   rows keys:    s = k q^T,  dp = v d_o^T,  dv += p d_o,  dk += ds q, over all heads that share the keys
 * WM warps share the rows; WV warps have the same rows and share the results' columns. EXCHANGE: they share the scores,
 * too, and p and ds go through shared memory, where the warps of all columns find them. The usual case has no branch
 * between the products, so that exponentials and ds are computed beside them. Doubtful sums are computed again
 * carefully, as in attention_forward.cuh. */
#ifndef SKR_ATTENTION_GRADIENT_CUH
#define SKR_ATTENTION_GRADIENT_CUH

#include "attention_any_order.cuh"
#include "attention_gradient_state.cuh"

template <int T, int DK, int DV, int BR, int BC, int WM, int WV, int STAGES, bool FLIP, int KIND>
struct attention_gradient {
    static constexpr bool ANY = KIND == SKR_ATTENTION_ANY, SCORED = KIND == SKR_ATTENTION_SCORED;
    static constexpr bool AGAIN = ANY && T != SKR_F32 && BR == 128; /* takes what attention_tma_gradient.cuh marked */
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
    static constexpr int stage_bytes = k_bytes + v_bytes + (FLIP ? 8 * BC : 0);
    static constexpr int p_at = row_bytes + STAGES * stage_bytes,
                         ds_at = p_at + SKR_ATTENTION_DS_BYTES(BR, BC);
    static constexpr int shared_bytes =
        EXCHANGE ? ds_at + SKR_ATTENTION_DS_BYTES(BR, BC) : row_bytes + STAGES * stage_bytes;
    static_assert(DK / WV * k_tile::bytes % 128 == 0 && (!FLIP || DV / WV * v_tile::bytes % 128 == 0),
                  "columns of a warp begin where chunks do");
    static_assert(WM * WV * 16 * MI * 32 * (KJ > VJ ? KJ : VJ) <= shared_bytes, "results go through the same memory");
    static_assert(!FLIP || BC % 16 == 0, "tiles begin at multiples of 128 bytes");
    static_assert(!SCORED || WV == 1 || EXCHANGE, "a warp has the bias of its scores alone");
    static_assert(!EXCHANGE || BC == 64, "p and ds lie as tiles do");

    using state = attention_gradient_state<FLIP, BR, BC>;
    using place = attention_gradient_place;
    const skr_attention_job &job;
    state &the;
    uint32_t memory; /* rows of k's width, of v's; then stages of columns */
    int warp_row, warp_column, warp_k, warp_v;
    float out_k[MI][KJ][4], out_v[MI][VJ][4];
    float2 stat[MI][2]; /* of the rows, unless FLIP */
    float slope_sum;

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        attention_each<threads, AGAIN>(job, FLIP, [&](int index) { one(job, index); });
    }

    static __device__ __forceinline__ void one(const skr_attention_job &job, int index)
    {
        extern __shared__ __align__(128) char shared[];
        __shared__ state the;
        if (AGAIN)
            __syncthreads(); /* of the piece before */
        if (!attention_find_shared(job, index, (int)(FLIP ? job.heads_k : job.heads), BR, FLIP,
                                   KIND && job.cuda.by_head, the.w)) {
            if (!FLIP && ANY && job.dslopes.data && threadIdx.x == 0)
                *attention_slope_part(job, the.w) = 0.0f;
            return;
        }
        if (threadIdx.x == 0)
            the.prepare(job, SCORED && job.bias.data);
        __syncthreads();
        attention_gradient self(job, the, shared_address(shared));
        while (!self.pass())
            ;
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

    __device__ __forceinline__ void load_columns(const place &at, bool there = true) const
    {
        int first = at.tile * BC;
        attention_load<T, DK, BC, threads, ANY>(stage(at.n), the.column_k, first, at.head * the.head_k, there);
        attention_load<T, DV, BC, threads, ANY>(stage(at.n) + k_bytes, the.column_v, first, at.head * the.head_v,
                                                there);
        if (FLIP)
            load_column_stats(at, there);
    }

    __device__ __forceinline__ uint32_t column_stats(int n) const
    {
        return stage(n) + k_bytes + v_bytes;
    }
    __device__ __forceinline__ void load_column_stats(const place &at, bool there) const
    {
        if (threadIdx.x < BC) {
            const attention_sequence &s = the.w.s;
            int i = at.tile * BC + (int)threadIdx.x;
            copy_async8_or_zero(column_stats(at.n) + 8 * threadIdx.x,
                                attention_stats(job, s, the.w.h * (int)job.group + at.head) + i, there & (i < s.rows));
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
        place at{0, 0, the.begin};
        int total = the.total, end = the.begin + the.count;
        bool careful = the.careful, quick = !careful && (!FLIP || (the.out_k.data && the.out_v.data));
        bool any_order = in_any_order();
        int whole = the.whole, whole_end = the.whole_end;
        if (total > 0) {
            load_rows();
            if (STAGES == 2)
                load_columns(at);
            if (SCORED)
                load_bias(at);
            copy_async_commit();
        }
        while (at.n < total) {
            if (STAGES == 1) {
                __syncthreads();
                load_columns(at);
                copy_async_commit();
            }
            copy_async_wait<0>();
            __syncthreads();
            place next = at.after(end, the.begin, FLIP);
            int lane = here(threadIdx.x) & 31, h = FLIP ? the.w.h * (int)job.group + at.head : the.w.h;
            scores_of scores{job, s, h, the.first + warp_row + (lane >> 2),
                             at.tile * BC + warp_column + 2 * (lane & 3)};
            bool inside = at.tile >= whole && at.tile < whole_end, more = next.n < total;
            float x[MI][NJ][4];
            attention_scores_of<T, DK>(x, memory, warp_row, stage(at.n) + warp_column * k_tile::row_bytes, careful);
            if (STAGES == 2)
                load_columns(next, more);
            copy_async_commit();
            if constexpr (ANY)
                step(x, scores, at, inside);
            else {
                float rest[MI][2] = {};
                if constexpr (SCORED)
                    add_options(x, rest, scores, next, more);
                if (!inside)
                    scores.limit(x);
                bool capped = SCORED && job.softcap > 0.0f;
                if constexpr (EXCHANGE) {
                    if (!quick)
                        exchange_step(x, rest, at);
                    else if (capped)
                        quick_exchange<SCORED>(x, rest, at, any_order);
                    else
                        quick_exchange<false>(x, rest, at, any_order);
                } else if (!quick || (FLIP && capped)) /* p and ds apart need too many registers */
                    slow_step(x, rest, at);
                else if (!FLIP && capped)
                    quick_step<!FLIP && SCORED>(x, rest, at, any_order);
                else
                    quick_step<false>(x, rest, at, any_order);
            }
            at = next;
        }
        copy_async_wait<0>();
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
    __device__ __forceinline__ void add_ds(const float (&ds)[MI][NJ][4], const place &at)
    {
        if constexpr (FLIP)
            if (in_any_order())
                return add_everywhere(ds, at);
        add<DK>(out_k, ds, stage(at.n), warp_k);
    }

    __device__ __forceinline__ void add_everywhere(const float (&ds)[MI][NJ][4], const place &at)
    {
        dq_part::store(memory + shared_bytes, ds, warp_row);
        attention_add<T, DK>(out_k, ds, stage(at.n), warp_k);
        __syncthreads();
        add_dq(at, memory + shared_bytes);
    }

    __device__ __forceinline__ void add_dq(const place &at, uint32_t ds)
    {
        dq_part::add(job, the.w.s, the.w.h * (int)job.group + at.head, at.tile * BC, ds, memory);
    }

    /* Where the columns' (lse, delta) are that go with this thread's sums, two columns in 16 bytes; the next eight
     * columns' are 64 bytes further. */
    __device__ __forceinline__ uint32_t column_stats_at(const place &at) const
    {
        return column_stats(at.n) + 8 * warp_column + 16 * (threadIdx.x & 3);
    }

    static constexpr int pairs = 2 * MI * NJ; /* of scores, and of dp */
    using pair_of = attention_pair<MI>;
    using two_stats = attention_two_stats;
    __device__ __forceinline__ void next_stats(two_stats &t, uint32_t stats, const pair_of &n) const
    {
        if constexpr (!FLIP) {
            t.lse[0] = t.lse[1] = stat[n.i][n.r].x;
            t.delta[0] = t.delta[1] = stat[n.i][n.r].y;
        } else if (n.i == 0 && n.r == 0) { /* the others of j have the same */
            uint4 two = shared_load16(stats + 64 * n.j);
            t.lse[0] = __uint_as_float(two.x), t.lse[1] = __uint_as_float(two.z);
            t.delta[0] = __uint_as_float(two.y), t.delta[1] = __uint_as_float(two.w);
        }
    }

    /* Scores, to which rest is still to be added, to p. CAPPED: to p times the derivative of softcap. A score of
     * -infinity would make that derivative infinite, and 0 times it is no number. Returns p as an operand. */
    template <bool CAPPED> __device__ __forceinline__ uint32_t to_p(float *x, const two_stats &t, float rest) const
    {
        float unit = job.cuda.unit, bend = CAPPED ? -1.0f / (job.softcap * job.softcap) : 0.0f, p[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            p[e] = exp2_fast<true>(__fmaf_rn(x[e], unit, SCORED ? __fmaf_rn(rest, unit, -t.lse[e]) : -t.lse[e]));
            x[e] = CAPPED ? p[e] * fmaxf(__fmaf_rn(x[e] * x[e], bend, 1.0f), 0.0f) : p[e];
        }
        return pack2<T>(p[0], p[1]);
    }

    /* That to ds. 0 times a dp that is infinite or not a number is none: where nothing guards against it, the results
     * show it, and are computed again carefully. */
    template <bool GUARDED>
    __device__ __forceinline__ static void to_ds(float *x, const float *dp, const two_stats &t)
    {
#pragma unroll
        for (int e = 0; e < 2; e++)
            x[e] = GUARDED && x[e] == 0.0f ? 0.0f : x[e] * (dp[e] - t.delta[e]);
    }

    /* Left operands that are there already, for attention_add_left(). */
    template <int PI, int PJ> __device__ __forceinline__ static auto operands(const uint32_t (&p)[PI][PJ][4])
    {
        return [&p](uint32_t(&a)[4], int i, int d) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                a[k] = p[i][d][k];
        };
    }

    __device__ __forceinline__ void dp_of(float (&dp)[MI][NJ][4], const place &at, bool careful) const
    {
        attention_scores_of<T, DV>(dp, memory + BR * k_tile::row_bytes, warp_row,
                                   stage(at.n) + k_bytes + warp_column * v_tile::row_bytes, careful);
    }

    /* From scores to all results, without a branch, so that exponentials and ds are computed beside the products, of
     * the next 16 columns beside those of these. */
    template <bool CAPPED> __device__ __forceinline__ void
    quick_step(float (&x)[MI][NJ][4], const float (&rest)[MI][2], const place &at, bool any_order)
    {
        constexpr int a_step = 4 * MI;
        uint32_t columns = stage(at.n), stats = column_stats_at(at);
        float dp[MI][NJ][4];
        uint32_t p[FLIP ? MI : 1][FLIP ? NJ / 2 : 1][4]; /* left operands */
        two_stats t, u;
        auto p_of = [&](int n) {
            pair_of w(n);
            next_stats(t, stats, w);
            uint32_t word = to_p<CAPPED>(&x[w.i][w.j][2 * w.r], t, rest[w.i][w.r]);
            if (FLIP)
                p[w.i][w.j / 2][2 * (w.j & 1) + w.r] = word;
        };
        auto ds_of = [&](int n) {
            pair_of w(n);
            next_stats(u, stats, w);
            to_ds<false>(&x[w.i][w.j][2 * w.r], &dp[w.i][w.j][2 * w.r], u);
        };
        if constexpr (FLIP) {
#pragma unroll
            for (int n = 0; n < a_step; n++)
                p_of(n);
            attention_add_left<T, DV, NJ>(out_v, operands(p), columns + k_bytes, warp_v, [&](int d, int j) {
                if (d + 1 < NJ / 2)
#pragma unroll
                    for (int n = a_step * j / VJ; n < a_step * (j + 2) / VJ; n++)
                        p_of(a_step * (d + 1) + n);
            });
        }
        dp_of(dp, at, false);
        if constexpr (FLIP)
            if (any_order) {
#pragma unroll
                for (int n = 0; n < pairs; n++)
                    ds_of(n);
                return add_everywhere(x, at);
            }
        auto all_of = [&](int n) {
            if (!FLIP)
                p_of(n);
            ds_of(n);
        };
#pragma unroll
        for (int n = 0; n < a_step; n++)
            all_of(n);
        auto left_ds = [&](uint32_t(&a)[4], int i, int d) { as_left<T>(a, x[i], d); };
        attention_add_left<T, DK, NJ>(out_k, left_ds, columns, warp_k, [&](int d, int j) {
            if (d + 1 < NJ / 2)
#pragma unroll
                for (int n = a_step * j / KJ; n < a_step * (j + 2) / KJ; n++)
                    all_of(a_step * (d + 1) + n);
        });
    }

    /* The same with everything that there is. */
    __device__ __forceinline__ void step(float (&x)[MI][NJ][4], const scores_of &scores, const place &at, bool inside)
    {
        uint32_t columns = stage(at.n);
        float bend[MI][NJ][4];
        scores.finish(x, job.scale, inside, bend);
        each_stat(columns, [&](int i, int j, int e, float2 t) {
            float &f = x[i][j][e]; /* what is not seen is 0, even where lse is no number */
            f = f == scores_of::none ? 0.0f : exp2_fast<true>(__fmaf_rn(f, SKR_LOG2E, -t.x));
        });
        uint64_t kept = job.drop ? scores.draw() : ~UINT64_C(0);
        float keep = job.keep_scale;
        if (FLIP && the.out_v.data) {
            if (job.drop) {
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
        dp_of(dp, at, the.careful);
        each_stat(columns, [&](int i, int j, int e, float2 t) {
            float d = kept >> (4 * (NJ * i + j) + e) & 1 ? dp[i][j][e] * keep : 0.0f;
            x[i][j][e] = x[i][j][e] == 0.0f ? 0.0f : x[i][j][e] * (d - t.y);
        });
        if (!FLIP && job.dslopes.data)
            slope_sum += scores.slopes_gradient(x);
        if (job.softcap > 0.0f)
#pragma unroll
            for (int n = 0; n < MI * NJ * 4; n++) { /* a derivative of what is not seen may be no number */
                float &f = x[n / (4 * NJ)][n / 4 % NJ][n & 3];
                f = f == 0.0f ? 0.0f : f * bend[n / (4 * NJ)][n / 4 % NJ][n & 3];
            }
        add<DK>(out_k, x, columns, warp_k);
    }

    /* As slow_step(), each score by one warp. */
    __device__ __forceinline__ void exchange_step(float (&x)[MI][NJ][4], const float (&rest)[MI][2], const place &at)
    {
        uint32_t columns = stage(at.n);
        float dp[MI][NJ][4];
        dp_of(dp, at, false);
        if (SCORED && job.softcap > 0.0f)
            exchange<SCORED>(x, dp, rest, at);
        else
            exchange<false>(x, dp, rest, at);
        __syncthreads();
        if (the.out_v.data)
            add_kept<DV>(out_v, memory + p_at, columns + k_bytes, warp_v);
        if (the.out_k.data)
            add_kept<DK>(out_k, memory + ds_at, columns, warp_k);
        if (in_any_order())
            add_dq(at, memory + ds_at);
    }

    /* As quick_step(): exponentials beside dp, ds beside dv. The warps that have the same rows wait for each other.
     * CAPPED: see to_p(). */
    template <bool CAPPED> __device__ __forceinline__ void
    quick_exchange(float (&x)[MI][NJ][4], const float (&rest)[MI][2], const place &at, bool any_order)
    {
        uint32_t columns = stage(at.n), stats = column_stats_at(at), kept = kept_place();
        float dp[MI][NJ][4];
        two_stats t;
        constexpr int p_turns = v_tile::steps * NJ / 2, ds_turns = BC / 16 * VJ / 2;
        attention_scores_of<T, DV>(
            dp, memory + BR * k_tile::row_bytes, warp_row, columns + k_bytes + warp_column * v_tile::row_bytes, false,
            [&](int d, int j) {
                int turn = d * NJ / 2 + j / 2;
#pragma unroll
                for (int n = turn * pairs / p_turns; n < (turn + 1) * pairs / p_turns; n++) {
                    pair_of w(n);
                    next_stats(t, stats, w);
                    uint32_t word = to_p<CAPPED>(&x[w.i][w.j][2 * w.r], t, rest[w.i][w.r]);
                    shared_store4(kept_at(kept, w.i, w.j, w.r) + p_at, word);
                }
            });
        rows_barrier();
        add_kept<DV>(out_v, memory + p_at, columns + k_bytes, warp_v, [&](int d, int j) {
            int turn = d * VJ / 2 + j / 2;
#pragma unroll
            for (int n = turn * pairs / ds_turns; n < (turn + 1) * pairs / ds_turns; n++) {
                pair_of w(n);
                float *f = &x[w.i][w.j][2 * w.r];
                next_stats(t, stats, w);
                to_ds<false>(f, &dp[w.i][w.j][2 * w.r], t);
                shared_store4(kept_at(kept, w.i, w.j, w.r) + ds_at, pack2<T>(f[0], f[1]));
            }
        });
        rows_barrier();
        add_kept<DK>(out_k, memory + ds_at, columns, warp_k, [](int, int) {});
        if (any_order) {
            __syncthreads();
            add_dq(at, memory + ds_at);
        }
    }

    /* For the warps that have the same rows. */
    __device__ __forceinline__ void rows_barrier() const
    {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / 32 % WM), "n"(32 * WV) : "memory");
    }

    /* Where p and ds of the thread's columns lie, from p_at and ds_at on: the first ones, and others from there. */
    __device__ __forceinline__ uint32_t kept_place() const
    {
        int lane = (int)here(threadIdx.x) & 31;
        return memory + skr_tile<T, BC>::at(warp_row + (lane >> 2), warp_column / 8) + 4 * (lane & 3);
    }
    __device__ __forceinline__ static uint32_t kept_at(uint32_t place, int i, int j, int r)
    {
        return skr_tile<T, BC>::moved(place, 16 * i + 8 * r, j); /* a warp's columns begin at multiples of 8 NJ */
    }

    /* Scores and dp to p and ds, where all warps find them. CAPPED: see to_p(). */
    template <bool CAPPED> __device__ __forceinline__ void
    exchange(float (&x)[MI][NJ][4], const float (&dp)[MI][NJ][4], const float (&rest)[MI][2], const place &at) const
    {
        uint32_t stats = column_stats_at(at), kept = kept_place();
        two_stats t;
#pragma unroll
        for (int n = 0; n < pairs; n++) {
            pair_of w(n);
            float *f = &x[w.i][w.j][2 * w.r];
            uint32_t line = kept_at(kept, w.i, w.j, w.r);
            next_stats(t, stats, w);
            shared_store4(line + p_at, to_p<CAPPED>(f, t, rest[w.i][w.r]));
            to_ds<true>(f, &dp[w.i][w.j][2 * w.r], t);
            shared_store4(line + ds_at, pack2<T>(f[0], f[1]));
        }
    }

    /* out += x tile, where x is kept as a tile itself. */
    template <int D, int OJ, class BESIDE> __device__ __forceinline__ void
    add_kept(float (&out)[MI][OJ][4], uint32_t x, uint32_t tile, int column, const BESIDE &beside)
    {
        using kept = skr_tile<T, BC>;
        uint32_t place = here(kept::left_place(x, warp_row));
        attention_add_left<T, D, BC / 8>(
            out, [&](uint32_t(&a)[4], int i, int d) { kept::left(a, place, 16 * i, d); }, tile, column, beside);
    }
    template <int D, int OJ>
    __device__ __forceinline__ void add_kept(float (&out)[MI][OJ][4], uint32_t x, uint32_t tile, int column)
    {
        if (the.careful)
            attention_add_kept<T, D, BC, BC>(out, x, warp_row, tile, 0, column);
        else
            add_kept<D>(out, x, tile, column, [](int, int) {});
    }

    /* As quick_step(), where a result is not wanted, carefully, or with softcap. */
    __device__ __forceinline__ void slow_step(float (&x)[MI][NJ][4], const float (&rest)[MI][2], const place &at)
    {
        uint32_t columns = stage(at.n), stats = column_stats_at(at), p[FLIP ? MI : 1][FLIP ? NJ / 2 : 1][4];
        if (SCORED && job.softcap > 0.0f)
            soften<SCORED>(x, p, rest, stats);
        else
            soften<false>(x, p, rest, stats);
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
                    attention_add_left<T, DV, NJ>(out_v, operands(p), columns + k_bytes, warp_v);
                }
            }
            if (!the.out_k.data)
                return;
        }
        float dp[MI][NJ][4];
        two_stats t;
        dp_of(dp, at, false);
#pragma unroll
        for (int n = 0; n < pairs; n++) {
            pair_of w(n);
            next_stats(t, stats, w);
            to_ds<true>(&x[w.i][w.j][2 * w.r], &dp[w.i][w.j][2 * w.r], t);
        }
        add_ds(x, at);
    }

    /* Bias, slopes (a part of them is left in rest) and softcap. */
    __device__ __forceinline__ void add_options(float (&x)[MI][NJ][4], float (&rest)[MI][2], const scores_of &scores,
                                                const place &next, bool more) const
    {
        scored options{scores};
        if (job.bias.data) {
            options.add_bias(x, bias());
            __syncwarp();
            if (more)
                load_bias(next);
            copy_async_commit();
        }
        if (job.slopes.data)
            options.add_slopes(
                x, job.cuda.over * job.slopes.data[scores.s.b * job.slopes.batch + scores.h * job.slopes.head], rest);
        if (job.softcap > 0.0f)
            options.cap(x);
    }

    /* Scores to p, FLIP: and to left operands. CAPPED: see to_p(). */
    template <bool CAPPED, int PI, int PJ> __device__ __forceinline__ void
    soften(float (&x)[MI][NJ][4], uint32_t (&p)[PI][PJ][4], const float (&rest)[MI][2], uint32_t stats) const
    {
        two_stats t;
#pragma unroll
        for (int n = 0; n < pairs; n++) {
            pair_of w(n);
            next_stats(t, stats, w);
            uint32_t word = to_p<CAPPED>(&x[w.i][w.j][2 * w.r], t, rest[w.i][w.r]);
            if (FLIP)
                p[w.i][w.j / 2][2 * (w.j & 1) + w.r] = word;
        }
    }

    __device__ __forceinline__ uint32_t bias() const
    {
        return memory + shared_bytes +
               (FLIP && !EXCHANGE && job.cuda.sums_at >= 0 ? SKR_ATTENTION_DS_BYTES(BR, BC) : 0) +
               threadIdx.x / 32 * scored::bias_bytes(job.bias.type);
    }

    __device__ __forceinline__ void load_bias(const place &at) const
    {
        if (!job.bias.data)
            return;
        int first = at.tile * BC + warp_column, row = the.first + warp_row;
        scored::load_bias(bias(), the.bias, FLIP ? first : row, FLIP ? row : first, at.head * the.head_bias);
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
                *attention_slope_part(job, the.w) = all;
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
