/* attention_forward.cuh - attention over tiles of queries, on the matrix instructions of a warp.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns BM queries of a head and passes over the keys they may see, BN at a time: s = q k^T, the running maximum
 * and sum of every row, o = o * factor + p v. p stays in registers: the sums of one product are the left operand of the
 * next. WM warps share the queries and WV warps the columns of v (each of those has all scores of its rows). Keys and
 * values are brought in one tile ahead (STAGES 2), or on demand.
 *
 * KIND: a plain kernel knows sequences, window and causal; a scored one also softcap, slopes, sinks and a bias whose
 * rows are whole chunks of 16 bytes; an any kernel everything. Exponentials are taken in base 2: 2^(x * unit - top *
 * unit), where the product is exact before the subtraction.
 *
 * A row's maximum need not be the largest score so far: exponentials above 1 do no harm while they fit their type, bf16
 * or f16. So plain and scored kernels take it from the first keys that a row sees and keep it: nothing waits for a
 * maximum, and the exponentials of some keys are computed beside the products of others. Where it was too small,
 * results come out infinite and are computed again, with a maximum for every tile.
 *
 * Maxima are kept in base 2, where steps are large for large numbers: from 2^30 on (a row masked with -1e9, say) a
 * block is computed again with maxima in the scores' own units, which are subtracted before the product with unit.
 *
 * A value that is infinite or not a number must not reach the rows that do not see its key, though 0 times it would.
 * Nothing guards against that on the way: a tile whose result holds a NaN is computed again carefully, with products
 * that leave out p = 0. */
#ifndef SKR_ATTENTION_FORWARD_CUH
#define SKR_ATTENTION_FORWARD_CUH

#include "attention_products.cuh"
#include "attention_scored.cuh"

template <int T, int DK, int DV, int BM, int BN, int WM, int WV, int STAGES, int KIND> struct attention_forward {
    static constexpr bool ANY = KIND == SKR_ATTENTION_ANY, SCORED = KIND == SKR_ATTENTION_SCORED;
    static constexpr bool AGAIN = ANY && T != SKR_F32 && BM == 128; /* takes what attention_tma.cuh marked */
    static constexpr int threads = 32 * WM * WV;
    static constexpr int MI = BM / (16 * WM), NJ = BN / 8, OJ = DV / WV / 8;
    using q_tile = skr_tile<T, DK>;
    using v_tile = skr_tile<T, DV>;
    using scored = attention_scored<T, MI, NJ, false>;
    static constexpr int q_bytes = BM * q_tile::row_bytes, k_bytes = BN * q_tile::row_bytes;
    static constexpr int v_bytes = BN * v_tile::row_bytes, stage_bytes = k_bytes + v_bytes;
    static constexpr int shared_bytes = q_bytes + STAGES * stage_bytes;
    static_assert(WM * WV * 16 * MI * 32 * OJ <= shared_bytes, "results go through the same memory");
    static_assert(DV / WV * v_tile::bytes % 128 == 0, "columns of a warp begin where chunks do");
    static constexpr float none = -__builtin_huge_valf(), FINITE = 3.40282347e38f;

    const skr_attention_job &job;
    struct state { /* in shared memory */
        attention_work w;
        attention_source q, k, v, bias;
        attention_target o;
        float scale, o_scale; /* with the descales that all of the head share */
        float slope;          /* in the scores' units */
        int first;            /* query */
        int mode;             /* 0: as fast as it goes; 1: a maximum for every tile, in units of scores; 2: carefully */
        int begin, end;       /* tiles of keys that some of the queries may see */
        int start;            /* the tile that is seen first; behind the last one comes the first */
        int whole, whole_end; /* those of which they all see all */
    };
    state &the;
    const attention_work &w;
    uint32_t memory; /* q, then stages of k and v */
    int warp_row;    /* of this warp in the tile */
    int warp_column; /* of v */
    float o[MI][OJ][4];
    float top[MI][2], sum[MI][2]; /* of rows g and g + 8; top in base 2 (mode 0); sum is this thread's own part */
    float risen;                  /* the largest part of a sum that soften_and_add() found last */

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        attention_each<threads, AGAIN>(job, false, [&](int index) { one(job, index); });
    }

    static __device__ __forceinline__ void one(const skr_attention_job &job, int index)
    {
        extern __shared__ __align__(128) char shared[];
        __shared__ state the;
        if (AGAIN)
            __syncthreads(); /* of the piece before */
        if (!attention_find_shared(job, index, (int)job.heads, BM, false, KIND && job.cuda.by_head, the.w))
            return;
        if (threadIdx.x == 0) {
            const attention_sequence &s = the.w.s;
            int h = the.w.h, kv_h = h / (int)job.group, aligned = job.cuda.aligned;
            the.q.set(job.q, s, s.q, s.rows, h, job.d, aligned);
            the.k.set(job.k, s, s.k, s.keys, kv_h, job.d, aligned);
            the.v.set(job.v, s, s.k, s.keys, kv_h, job.d_v, aligned);
            the.o.set(job.o, s, s.q, s.rows, h, job.d_v, job.cuda.pairs, 0);
            int first = the.w.tile * BM, last = min(first + BM, s.rows) - 1;
            bool any = last >= first;
            the.first = first, the.mode = 0;
            if (SCORED && job.bias.data)
                the.bias.set_bias(job.bias, s, h);
            if (SCORED && any && job.slopes.data)
                the.slope = job.cuda.over * job.slopes.data[s.b * job.slopes.batch + h * job.slopes.head];
            the.scale = attention_scale(job, s.b, h, kv_h), the.o_scale = attention_o_scale(job, s.b, kv_h);
            the.begin = any ? s.first_key(first) / BN : 0, the.end = any ? (s.end_key(last) + BN - 1) / BN : 0;
            the.start = the.begin;
            if (SCORED && any && job.slopes.data) /* the largest scores are those near the diagonal */
                the.start = max(the.begin, min((first + s.diagonal) / BN, the.end - 1));
            the.whole = s.first_whole(last, BN), the.whole_end = s.end_whole(first, BN);
        }
        __syncthreads();
        attention_forward self(job, the, shared_address(shared));
        while (!self.pass())
            ;
    }

    __device__ __forceinline__ attention_forward(const skr_attention_job &j, state &t, uint32_t m)
        : job(j), the(t), w(t.w), memory(m)
    {
        int warp = (int)threadIdx.x / 32;
        warp_row = warp % WM * (16 * MI);
        warp_column = warp / WM * (8 * OJ);
    }

    /* Everything for the block's queries. False: doubtful ones came out, nothing was written. */
    __device__ __forceinline__ bool pass()
    {
        clear();
        if (the.begin < the.end) {
            load_queries();
            if (STAGES == 2)
                load(the.start, 0);
            if (SCORED)
                load_bias(the.start);
            copy_async_commit();
        }
        bool settled = false; /* every row of the warp has a maximum to take exponentials against */
        int begin = the.begin, end = the.end, whole = the.whole, whole_end = the.whole_end, next;
        for (int n = the.start, k = 0; k < end - begin; n = next, k++) {
            bool more = k + 1 < end - begin;
            next = SCORED && n + 1 == end ? begin : n + 1;
            if (STAGES == 1) {
                __syncthreads();
                load(n, k);
                copy_async_commit();
            }
            copy_async_wait<0>();
            __syncthreads();
            float x[MI][NJ][4];
            attention_scores_of<T, DK>(x, memory, warp_row, stage(k), the.mode == 2);
            if (STAGES == 2)
                load(next, k + 1, more);
            copy_async_commit();
            int lane = here(threadIdx.x) & 31;
            attention_scores<MI, NJ, false> scores{job, w.s, w.h, the.first + warp_row + (lane >> 2),
                                                   n * BN + 2 * (lane & 3)};
            bool inside = n >= whole && n < whole_end;
            float rest[MI][2] = {};
            if constexpr (ANY)
                scores.finish(x, the.scale, inside);
            else {
                if constexpr (SCORED)
                    add_options(scores, x, rest, next, more);
                if (!inside)
                    scores.limit(x);
                if (settled)
                    settled = !__any_sync(0xffffffffu, risen > (T == SKR_F16 ? 0x1p8f : 0x1p64f));
                if (settled) {
                    soften_and_add(x, rest, stage(k) + k_bytes);
                    continue;
                }
            }
            soften(x, rest);
            if constexpr (ANY)
                scores.weigh(x);
            if (the.mode == 2) {
                attention_add_seen<T, DV, DK>(o, x, stage(k) + k_bytes, warp_column, memory, warp_row);
                load_queries();
                copy_async_commit();
            } else
                attention_add<T, DV>(o, x, stage(k) + k_bytes, warp_column);
            risen = 0.0f;
            settled = !ANY && the.mode == 0 && k + 1 >= unsettled() && all_settled();
        }
        copy_async_wait<0>();
        return finish();
    }

    /* Of the k-th tile that is seen. */
    __device__ __forceinline__ uint32_t stage(int k) const
    {
        return memory + q_bytes + k % STAGES * stage_bytes;
    }

    /* Softcap, bias and slopes; rest: what is still to be added to all scores that the thread has of a row. The bias of
     * the next tile, if there is one, sets out. */
    __device__ __forceinline__ void add_options(const attention_scores<MI, NJ, false> &scores, float (&x)[MI][NJ][4],
                                                float (&rest)[MI][2], int next, bool more) const
    {
        scored options{scores};
        if (job.softcap > 0.0f)
            options.cap(x);
        if (job.bias.data) {
            options.add_bias(x, bias());
            __syncwarp();
            if (more)
                load_bias(next);
            copy_async_commit();
        }
#pragma unroll
        for (int i = 0; i < MI; i++)
            rest[i][0] = rest[i][1] = 0.0f;
        if (job.slopes.data)
            options.add_slopes(x, the.slope, rest);
    }

    /* This warp's, behind the stages. */
    __device__ __forceinline__ uint32_t bias() const
    {
        return memory + shared_bytes + threadIdx.x / 32 * scored::bias_bytes(job.bias.type);
    }

    __device__ __forceinline__ void load_bias(int n) const
    {
        if (job.bias.data)
            scored::load_bias(bias(), the.bias, the.first + warp_row, n * BN);
    }

    __device__ __forceinline__ void load_queries() const
    {
        attention_load<T, DK, BM, threads, ANY>(memory, the.q, the.first);
    }

    /* Tile n, the k-th. */
    __device__ __forceinline__ void load(int n, int k, bool there = true) const
    {
        attention_load<T, DK, BN, threads, ANY>(stage(k), the.k, n * BN, 0, there);
        attention_load<T, DV, BN, threads, ANY>(stage(k) + k_bytes, the.v, n * BN, 0, there);
    }

    /* What scores are multiplied by, in base 2. */
    __device__ __forceinline__ float unit() const
    {
        return ANY ? SKR_LOG2E : job.cuda.unit;
    }

    __device__ __forceinline__ void clear()
    {
        attention_clear(o);
#pragma unroll
        for (int i = 0; i < MI; i++) {
            top[i][0] = top[i][1] = none;
            sum[i][0] = sum[i][1] = 0.0f;
        }
    }

    /* Scores, to which rest is still to be added, to exponentials against the new maximum; o and sum follow it. */
    __device__ __forceinline__ void soften(float (&x)[MI][NJ][4], const float (&rest)[MI][2])
    {
        float most[MI][2];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float own = fmaxf(x[i][0][2 * r], x[i][0][2 * r + 1]);
#pragma unroll
                for (int j = 1; j < NJ; j++)
                    own = fmaxf(own, fmaxf(x[i][j][2 * r], x[i][j][2 * r + 1]));
                own = lanes_reduce<skr_max, 4>(SCORED ? own + rest[i][r] : own);
                most[i][r] = fmaxf(kept(own), top[i][r]);
            }
        follow(most);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float most_seen = top[i][r] == none ? 0.0f : top[i][r], part[2] = {};
                float less = in_units() ? most_seen - rest[i][r] : 0.0f; /* one of the two */
                float shift = in_units() ? 0.0f : shift_of(most_seen, rest[i][r]);
#pragma unroll
                for (int j = 0; j < NJ; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float &f = x[i][j][2 * r + e];
                        f = exp2_fast<true>(__fmaf_rn(f - less, unit(), -shift));
                        part[e] += f;
                    }
                sum[i][r] += part[0] + part[1];
            }
    }

    /* Whether maxima are in units of the scores, not in base 2. */
    __device__ __forceinline__ bool in_units() const
    {
        return the.mode > 0;
    }

    /* A maximum as it is kept. One that is finite stays so. */
    __device__ __forceinline__ float kept(float score) const
    {
        return in_units() || score == none ? score : fmaxf(score * unit(), -FINITE);
    }

    /* What is subtracted from the scores of a row to which rest is still to be added, in base 2. */
    __device__ __forceinline__ float shift_of(float most, float rest) const
    {
        return SCORED ? __fmaf_rn(-rest, unit(), most) : most;
    }

    /* From now on the maxima are these. */
    __device__ __forceinline__ void follow(const float (&most)[MI][2])
    {
        float factor[MI][2];
        bool moved = false;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float down = (top[i][r] - most[i][r]) * (in_units() ? unit() : 1.0f);
                factor[i][r] = top[i][r] == most[i][r] ? 1.0f : exp2_fast<true>(down);
                moved |= top[i][r] != most[i][r];
                top[i][r] = most[i][r];
            }
        if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
            for (int i = 0; i < MI; i++) {
                sum[i][0] *= factor[i][0], sum[i][1] *= factor[i][1];
#pragma unroll
                for (int j = 0; j < OJ; j++) {
                    o[i][j][0] *= factor[i][0], o[i][j][1] *= factor[i][0];
                    o[i][j][2] *= factor[i][1], o[i][j][3] *= factor[i][1];
                }
            }
        }
    }

    /* Tiles before the largest scores are known as far as the options tell: with slopes, each row's own diagonal. */
    __device__ __forceinline__ int unsettled() const
    {
        return SCORED && job.slopes.data ? BM / BN + 1 : 1;
    }

    /* Whether exponentials of all rows of the warp can be taken against what they have seen. */
    __device__ __forceinline__ bool all_settled() const
    {
        bool unseen = false;
        int row = the.first + warp_row + ((int)threadIdx.x >> 2 & 7);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                unseen |= top[i][r] == none && row + 16 * i + 8 * r < w.s.rows;
        return !__any_sync(0xffffffffu, unseen);
    }

    /* The same against the maximum as it is, and o += p v: exponentials of the next 16 keys are computed beside the
     * products of these. Where one leaves its type, o ends up infinite or not a number, which finish() finds. */
    __device__ __forceinline__ void soften_and_add(float (&x)[MI][NJ][4], const float (&rest)[MI][2], uint32_t v)
    {
        constexpr int pairs = MI * 2 * 2, turns = OJ / 2; /* of a step */
        float shift[MI][2], part[MI][2];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                shift[i][r] = shift_of(top[i][r], rest[i][r]);
                part[i][r] = 0.0f;
            }
        auto soften_pair = [&](int step, int pair) {
            int i = pair >> 2, r = pair & 1;
            float *f = &x[i][2 * step + (pair >> 1 & 1)][2 * r];
            f[0] = exp2_fast<true>(__fmaf_rn(f[0], unit(), -shift[i][r]));
            f[1] = exp2_fast<true>(__fmaf_rn(f[1], unit(), -shift[i][r]));
            part[i][r] += f[0] + f[1];
        };
#pragma unroll
        for (int pair = 0; pair < pairs; pair++)
            soften_pair(0, pair);
        attention_add_left<T, DV, NJ>(
            o, [&](uint32_t(&a)[4], int i, int d) { as_left<T>(a, x[i], d); }, v, warp_column,
            [&](int d, int j) {
                if (d + 1 < NJ / 2)
#pragma unroll
                    for (int pair = j / 2 * pairs / turns; pair < (j / 2 + 1) * pairs / turns; pair++)
                        soften_pair(d + 1, pair);
            });
        risen = 0.0f;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                sum[i][r] += part[i][r];
                risen = fmaxf(risen, part[i][r]);
            }
    }

    /* Divides by the sums and writes o and lse. */
    __device__ __forceinline__ bool finish()
    {
        int lane = threadIdx.x & 31, row = the.first + warp_row;
        float scale = ANY ? the.o_scale : 1.0f;
        float lse[MI][2];
        bool doubtful = false;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float all = lanes_reduce<skr_sum, 4>(sum[i][r]), most = top[i][r], factor = 1.0f;
                float sink = KIND && job.sinks.data ? job.sinks.data[w.h * job.sinks.head] : none;
                bool far = !in_units() && fabsf(most) >= 0x1p30f && most != none;
                float natural = 0.693147181f; /* of a unit of most */
                if (in_units() && !(KIND && sink != none))
                    natural *= unit();
                else if (in_units() && most != none)
                    most = fmaxf(most * unit(), -FINITE);
                if (KIND && sink != none) {
                    sink *= SKR_LOG2E;
                    float larger = fmaxf(most, sink);
                    factor = most == larger ? 1.0f : exp2_fast<true>(most - larger);
                    all = all * factor + exp2_fast<true>(sink - larger);
                    most = larger;
                }
                doubtful |= (far || !(all < __builtin_huge_valf())) && row + 16 * i + 8 * r + (lane >> 2) < w.s.rows;
                factor = all == 0.0f ? 0.0f : factor * scale / all;
                lse[i][r] = all == 0.0f ? none : __fmaf_rn(most, natural, logf(all));
#pragma unroll
                for (int j = 0; j < OJ; j++)
                    o[i][j][2 * r] *= factor, o[i][j][2 * r + 1] *= factor;
            }
        if (the.mode == 0 && !ANY)
            doubtful = doubtful || attention_infinite(o, w.s.rows - row);
        else
            doubtful = (the.mode == 0 && doubtful) || attention_doubtful<T>(o);
        if (the.mode < 2 && __syncthreads_or(doubtful)) {
            if (threadIdx.x == 0)
                the.mode++;
            __syncthreads();
            return false;
        }
        the.o.template store<T>(o, row, warp_column, memory);
        if (job.lse.data && warp_column == 0 && (lane & 3) == 0) {
            float *to = attention_stat_at(job.lse, w.s, w.h);
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    int at = row + 16 * i + 8 * r + (lane >> 2);
                    if (at < w.s.room)
                        to[at * job.lse.token] = at < w.s.rows ? lse[i][r] : none;
                }
        }
        return true;
    }
};

#endif
