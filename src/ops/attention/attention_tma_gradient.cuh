/* attention_tma_gradient.cuh - dq, or with FLIP dk and dv, on Hopper's tensor cores, fed by the copy engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What attention_gradient.cuh computes, in the manner of attention_tma.cuh: a block stays and takes pieces of 128 rows,
 * queries or keys of a head, one after the other; two warpgroups have 64 of them each, and a warp of a third has the
 * copy engine bring the rows, and tiles of BC columns in a ring.
 *   rows queries: s = q k^T,  dp = d_o v^T,  dq += ds k
 *   rows keys:    s = k q^T,  dp = v d_o^T,  dv += p d_o,  dk += ds q, over all heads that share the keys
 * p and ds stay in registers and are left operands. A warpgroup's exponentials are taken beside its dp, ds is computed
 * beside dv, the next scores are queued behind dk: the tensor cores have work from each of the two at all times.
 *
 * SUMS: dq is added up here, too, in any order (attention_any_order.cuh). ds goes to shared memory, where both
 * warpgroups have the keys of both; each multiplies it with half of the columns of k.
 *
 * A piece with a NaN is marked, and the next kernel, which is that of attention_gradient.cuh, computes it again. */
#ifndef SKR_ATTENTION_TMA_GRADIENT_CUH
#define SKR_ATTENTION_TMA_GRADIENT_CUH

#include "attention_any_order.cuh"
#include "attention_gradient_state.cuh"
#include "attention_warpgroup.cuh"

template <int T, int D, int BC, int STAGES, int ROW_STAGES, bool FLIP, bool SUMS, int KIND>
struct attention_tma_gradient {
    static constexpr bool SCORED = KIND == SKR_ATTENTION_SCORED;
    static constexpr int BR = 128, NJ = BC / 8, OJ = D / 8, VJ = FLIP ? OJ : 1, QJ = SUMS ? 8 : 1;
    using row_tile = attention_panels<BR, D>;
    using column_tile = attention_panels<BC, D>;
    static constexpr int ROW_BYTES = 2 * row_tile::bytes;
    /* 128 threads have fewer registers, 256 more; all began with 168. dk and dv of 128 need all that there are. */
    static constexpr int MORE = FLIP && D == 128 ? 240 : 232, FEWER = FLIP && D == 128 ? 24 : 40;
    static constexpr int STATS = FLIP ? 8 * BC : 0, STAGE = 2 * column_tile::bytes;
    static constexpr int DS_BYTES = SKR_ATTENTION_DS_BYTES(BR, BC); /* and there are two of them */
    static_assert(!SUMS || (FLIP && BC == 64 && D == 128), "64 queries, a panel of columns for each warpgroup");

    struct piece {
        attention_work w;
        int first;             /* row */
        int begin, end;        /* tiles of columns that some of the rows meet, of each head */
        int whole, whole_end;  /* those that they all meet whole */
        attention_source bias; /* of the first head */
        int index;             /* of the piece; -1: there is none, the block is done */
    };
    struct state { /* in shared memory */
        uint64_t rows_full[ROW_STAGES], rows_empty[ROW_STAGES], full[STAGES], empty[STAGES];
        piece pieces[ROW_STAGES + 1]; /* the one that is being written has given back its rows */
    };
    typedef attention_place<STAGES> place;
    using scores = attention_scores<1, NJ, FLIP>;

    const skr_attention_job &job;
    state &the;
    uint32_t rows, columns;   /* rows of k's width and of v's; stages of both */
    uint32_t ds, stats, bias; /* SUMS: ds twice. FLIP: (lse, delta) of the stages. What each warp has of the bias */
    using scored = attention_scored<T, 1, NJ, FLIP>;

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        extern __shared__ __align__(128) char shared[];
        __shared__ state the;
        const uint32_t at = (shared_address(shared) + 1023) & ~1023u, columns = at + ROW_STAGES * ROW_BYTES;
        const uint32_t ds = columns + STAGES * STAGE, stats = ds + (SUMS ? 2 * DS_BYTES : 0);
        const attention_tma_gradient self = {job, the, at, columns, ds, stats, stats + STAGES * STATS};
        if (threadIdx.x == 0) {
            for (int s = 0; s < ROW_STAGES; s++) {
                barrier_init(shared_address(&the.rows_full[s]), 1);
                barrier_init(shared_address(&the.rows_empty[s]), 8);
            }
            for (int s = 0; s < STAGES; s++) {
                barrier_init(shared_address(&the.full[s]), FLIP ? 33 : 1);
                barrier_init(shared_address(&the.empty[s]), 2);
            }
            barrier_init_done();
        }
        __syncthreads();
        wait_for_previous();
        let_next_start();
        if (threadIdx.x >= 256)
            self.produce();
        else
            self.consume();
    }

    /* ---------------------------------------------------------------- the copy engine's warp */

    __device__ __forceinline__ void produce() const
    {
        registers_down<FEWER>();
        if (threadIdx.x >= 256 + 32)
            return;
        const int lane = threadIdx.x & 31;
        place at = {0, 0};
        int used = 0; /* stages that have been filled */
        attention_place<ROW_STAGES> rows_at = {0, 0};
        attention_place<ROW_STAGES + 1> to = {0, 0};
        for (int index = (int)blockIdx.x, next; index < job.cuda.pieces[FLIP]; index = next) {
            piece &p = the.pieces[to.stage];
            int found;
            if (lane == 0) {
                next = attention_next(job, FLIP, index);
                barrier_wait(shared_address(&the.rows_empty[rows_at.stage]), rows_at.phase ^ 1);
                found = prepare(p, index);
            }
            next = __shfl_sync(0xffffffffu, next, 0);
            if (!__shfl_sync(0xffffffffu, found, 0))
                continue;
            __syncwarp();
            if (lane == 0)
                load_rows(p, rows_at);
            rows_at.advance(), to.advance();
#pragma unroll 1
            for (int head = 0; head < heads(); head++)
#pragma unroll 1
                for (int n = p.begin; n < p.end; n++) {
                    load_columns(p, head, n, at, used == STAGES);
                    used = min(used + 1, STAGES);
                    at.advance();
                }
        }
        if (lane == 0) {
            barrier_wait(shared_address(&the.rows_empty[rows_at.stage]), rows_at.phase ^ 1);
            the.pieces[to.stage].index = -1;
            barrier_arrive(shared_address(&the.rows_full[rows_at.stage]));
        }
        for (int s = 0; FLIP && s < used; s++)
            wait_for_readers(s);
    }

    /* All threads have read what is known of the columns of a stage. */
    __device__ __forceinline__ static void wait_for_readers(int stage)
    {
        asm volatile("bar.sync %0, %1;" ::"r"(4 + stage), "n"(288) : "memory");
    }

    /* Query heads that share the rows. */
    __device__ __forceinline__ int heads() const
    {
        return FLIP ? (int)job.group : 1;
    }

    /* False: a slot that no piece fills. */
    __device__ __forceinline__ bool prepare(piece &p, int index) const
    {
        if (!attention_find(job, index, (int)(FLIP ? job.heads_k : job.heads), BR, FLIP, KIND && job.cuda.by_head,
                            p.w)) {
            *(uint64_t *)(attention_marks(job, FLIP) + 8 * index) = 0;
            return false;
        }
        const attention_sequence &s = p.w.s;
        const int first = p.w.tile * BR, last = min(first + BR, FLIP ? s.keys : s.rows) - 1;
        const bool any = last >= first;
        const int from = FLIP ? s.first_row(first) : s.first_key(first);
        const int end = FLIP ? s.end_row(last) : s.end_key(last);
        p.index = index, p.first = first;
        p.begin = any ? from / BC : 0;
        p.end = any ? (end + BC - 1) / BC : 0;
        p.whole = ((FLIP ? s.first_row(last) : s.first_key(last)) + BC - 1) / BC;
        p.whole_end = max(0, FLIP ? s.end_row(first) : s.end_key(first)) / BC;
        if (FLIP && first + BR > s.keys) /* keys that are not there */
            p.whole_end = 0;
        if (SCORED && job.bias.data)
            p.bias.set_bias(job.bias, s, FLIP ? p.w.h * (int)job.group : p.w.h);
        return true;
    }

    /* Boxes, from `row` on. */
    template <class TILE> __device__ __forceinline__ static void load(uint32_t to, const skr_tensor_map &map,
                                                                      uint32_t barrier, int row, int head)
    {
#pragma unroll
        for (int c = 0; c < TILE::count; c++)
#pragma unroll
            for (int r = 0; r < TILE::panel / 128; r += SKR_ATTENTION_BOX)
                tensor_load(to + c * TILE::panel + r * 128, &map, barrier, c * 64, row + r, head);
    }

    __device__ __forceinline__ void load_rows(const piece &p, const attention_place<ROW_STAGES> &at) const
    {
        const attention_sequence &s = p.w.s;
        const uint32_t barrier = shared_address(&the.rows_full[at.stage]), to = rows + at.stage * ROW_BYTES;
        const int first = (FLIP ? s.k : s.q) + p.first;
        if (p.begin >= p.end) { /* nothing meets them */
            barrier_arrive(barrier);
            return;
        }
        barrier_expect(barrier, ROW_BYTES);
        if constexpr (FLIP) {
            load<row_tile>(to, job.cuda.k, barrier, first + s.b * (int)job.cuda.k_rows, p.w.h);
            load<row_tile>(to + row_tile::bytes, job.cuda.v, barrier, first + s.b * (int)job.cuda.v_rows, p.w.h);
        } else {
            load<row_tile>(to, job.cuda.q, barrier, first + s.b * (int)job.cuda.q_rows, p.w.h);
            load<row_tile>(to + row_tile::bytes, job.cuda.d_o, barrier, first + s.b * (int)job.cuda.d_o_rows, p.w.h);
        }
    }

    /* By the warp: what is known of queries comes by way of registers, for they begin anywhere. again: the stage was
     * filled before. */
    __device__ __forceinline__ void load_columns(const piece &p, int head, int n, const place &at, bool again) const
    {
        const int lane = threadIdx.x & 31;
        const attention_sequence &s = p.w.s;
        const int h = FLIP ? p.w.h * (int)job.group + head : p.w.h / (int)job.group;
        float2 known[BC / 32];
        if (FLIP) {
            const float2 *from = attention_stats(job, s, h) + n * BC;
#pragma unroll
            for (int i = 0; i < BC / 32; i++)
                known[i] = n * BC + lane + 32 * i < s.rows ? from[lane + 32 * i] : make_float2(0.0f, 0.0f);
        }
        barrier_wait(shared_address(&the.empty[at.stage]), at.phase ^ 1);
        const uint32_t barrier = shared_address(&the.full[at.stage]), to = columns + at.stage * STAGE;
        if (FLIP) {
            if (again)
                wait_for_readers(at.stage);
#pragma unroll
            for (int i = 0; i < BC / 32; i++)
                shared_store8(stats + at.stage * STATS + 8 * (lane + 32 * i), known[i].x, known[i].y);
            barrier_arrive(barrier);
        }
        if (lane != 0)
            return;
        const int first = (FLIP ? s.q : s.k) + n * BC;
        barrier_expect(barrier, STAGE);
        if constexpr (FLIP) {
            load<column_tile>(to, job.cuda.q, barrier, first + s.b * (int)job.cuda.q_rows, h);
            load<column_tile>(to + column_tile::bytes, job.cuda.d_o, barrier, first + s.b * (int)job.cuda.d_o_rows, h);
        } else {
            load<column_tile>(to, job.cuda.k, barrier, first + s.b * (int)job.cuda.k_rows, h);
            load<column_tile>(to + column_tile::bytes, job.cuda.v, barrier, first + s.b * (int)job.cuda.v_rows, h);
        }
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    struct sums { /* of a thread's two rows */
        float out_k[1][OJ][4], out_v[1][VJ][4];
        float2 stat[2]; /* unless FLIP */
    };

    __device__ __forceinline__ void consume() const
    {
        registers_up<MORE>();
        walk w = {};
        attention_place<ROW_STAGES> rows_at = {0, 0};
        attention_place<ROW_STAGES + 1> from = {0, 0};
        for (;;) {
            barrier_wait(shared_address(&the.rows_full[rows_at.stage]), rows_at.phase);
            const piece &p = the.pieces[from.stage];
            if (p.index < 0)
                break;
            sums r;
            attention_clear(r.out_k);
            attention_clear(r.out_v);
            if (!FLIP)
                load_stats(p, r);
            w.rows = rows + rows_at.stage * ROW_BYTES, w.rows_empty = &the.rows_empty[rows_at.stage];
            pass(p, r, w);
            finish(p, r);
            rows_at.advance(), from.advance();
        }
    }

    __device__ __forceinline__ static int warp_row(const piece &p)
    {
        return p.first + (int)threadIdx.x / 32 * 16;
    }

    __device__ __forceinline__ void load_stats(const piece &p, sums &r) const
    {
        const attention_sequence &s = p.w.s;
        const float2 *from = attention_stats(job, s, p.w.h);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int at = warp_row(p) + 8 * h + (int)(threadIdx.x & 31) / 4;
            r.stat[h] = at < s.rows ? from[at] : make_float2(0.0f, 0.0f);
        }
    }

    /* Where a warpgroup is in a piece. */
    struct walk {
        place at;
        int before;        /* the stage of the tile before; -1: there was none */
        int n, head, left; /* this tile, and how many there are from it on */
        uint32_t rows;     /* of the piece */
        uint64_t *rows_empty;
        int turn; /* which place ds goes to */
    };

    /* All columns of a piece. */
    __device__ __forceinline__ void pass(const piece &p, sums &r, walk &w) const
    {
        w.n = p.begin, w.head = 0, w.left = (p.end - p.begin) * heads(), w.before = -1;
        if (w.left == 0) {
            attention_release_rows(*w.rows_empty);
            return;
        }
        load_bias(p, 0, w.n, true);
#pragma unroll 1
        while (w.left > 0)
            step(p, r, w);
        wgmma_wait<0>();
        pin_results(r);
        attention_release(the.empty[w.before]);
    }

    /* This warpgroup's rows, as far as the products of scores are concerned. */
    __device__ __forceinline__ static uint32_t own_rows(const walk &w)
    {
        return w.rows + attention_group() * (64 * 128);
    }

    /* A tile, from scores to results. */
    __device__ __forceinline__ void step(const piece &p, sums &r, walk &w) const
    {
        const uint32_t tile = columns + w.at.stage * STAGE, v_tile = tile + column_tile::bytes;
        float x[1][NJ][4], dp[1][NJ][4], dq[1][QJ][4];
        uint32_t p_left[BC / 16][4], ds_left[BC / 16][4];
        barrier_wait(shared_address(&the.full[w.at.stage]), w.at.phase);
        attention_multiply_rows<T, D, BR, BC>(x, own_rows(w), tile);
        wgmma_wait<1>(); /* the results of the tile before */
        pin_results(r);
        if (w.before >= 0)
            attention_release(the.empty[w.before]);
        attention_multiply_rows<T, D, BR, BC>(dp, own_rows(w) + row_tile::bytes, v_tile);
        wgmma_wait<1>();
        attention_pin(x);
        to_p(p, x, p_left, r, w);
        if constexpr (FLIP)
            attention_multiply_left<T, D, BC>(r.out_v, p_left, v_tile);
        wgmma_wait<FLIP>();
        attention_pin(dp);
        if (!SUMS && w.left == 1)
            attention_release_rows(*w.rows_empty);
        to_ds(x, dp, r, w.at);
        if (FLIP)
            asm volatile("bar.arrive %0, %1;" ::"r"(4 + w.at.stage), "n"(288) : "memory");
        as_operand(ds_left, x);
        if constexpr (SUMS) {
            store_ds(ds_left, w.turn);
            multiply_dq(dq, w.rows, w.turn);
            w.turn ^= 1;
        }
        attention_multiply_left<T, D, BC>(r.out_k, ds_left, tile);
        if constexpr (SUMS) {
            wgmma_wait<1>();
            attention_pin(dq);
            if (w.left == 1)
                attention_release_rows(*w.rows_empty);
            add_dq(p, w.head, w.n * BC, dq);
        }
        w.before = w.at.stage;
        w.at.advance();
        w.left--;
        const bool last = w.n + 1 == p.end;
        w.n = last ? p.begin : w.n + 1, w.head += last;
    }

    /* Scores to p, and FLIP: to left operands. */
    __device__ __forceinline__ void to_p(const piece &p, float (&x)[1][NJ][4], uint32_t (&left)[BC / 16][4],
                                         const sums &r, const walk &w) const
    {
        const int lane = threadIdx.x & 31, last = w.n + 1 == p.end;
        const scores of = {job, p.w.s, first_head(p) + w.head, warp_row(p) + (lane >> 2), w.n * BC + 2 * (lane & 3)};
        float rest[1][2] = {};
        if constexpr (SCORED)
            add_options(p, of, w.head + last, last ? p.begin : w.n + 1, w.left > 1, x, rest);
        if (w.n < p.whole || w.n >= p.whole_end)
            of.limit(x);
        if (SCORED && job.softcap > 0.0f)
            soften<SCORED>(x, left, rest, r, w.at);
        else
            soften<false>(x, left, rest, r, w.at);
    }

    __device__ __forceinline__ static void pin_results(sums &r)
    {
        attention_pin(r.out_k);
        if (FLIP)
            attention_pin(r.out_v);
    }

    /* The first of the query heads that share the rows. */
    __device__ __forceinline__ int first_head(const piece &p) const
    {
        return FLIP ? p.w.h * (int)job.group : p.w.h;
    }

    /* This warp's part of the bias of tile n sets out. */
    __device__ __forceinline__ void load_bias(const piece &p, int head, int n, bool there) const
    {
        if constexpr (SCORED)
            if (job.bias.data) {
                if (there)
                    scored::load_bias(bias_at(), p.bias, FLIP ? n * BC : warp_row(p), FLIP ? warp_row(p) : n * BC,
                                      head * job.bias.head * skr_type_bytes(job.bias.type));
                copy_async_commit();
            }
    }
    __device__ __forceinline__ uint32_t bias_at() const
    {
        return bias + threadIdx.x / 32 * scored::bias_bytes(job.bias.type);
    }

    /* Bias, slopes and softcap, which has neither beside it; rest: what is still to be added to all scores that the
     * thread has of a row. */
    __device__ __forceinline__ void add_options(const piece &p, const scores &of, int next_head, int next, bool more,
                                                float (&x)[1][NJ][4], float (&rest)[1][2]) const
    {
        const scored options{of};
        if (job.bias.data) {
            copy_async_wait<0>();
            __syncwarp();
            options.add_bias(x, bias_at());
            __syncwarp();
            load_bias(p, next_head, next, more);
        }
        if (job.slopes.data)
            options.add_slopes(x, job.cuda.over * job.slopes.data[of.s.b * job.slopes.batch + of.h * job.slopes.head],
                               rest);
        if (job.softcap > 0.0f)
            options.cap(x);
    }

    /* ds to where both warpgroups find it: rows are keys, of 64 queries. */
    __device__ __forceinline__ void store_ds(const uint32_t (&left)[BC / 16][4], int turn) const
    {
        const int lane = threadIdx.x & 31, row = (int)threadIdx.x / 32 * 16 + (lane >> 2);
        const uint32_t to = ds + turn * DS_BYTES + row * 128 + 4 * (lane & 3);
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                shared_store4(to + 8 * h * 128 + ((j ^ (row & 7)) << 4), left[j / 2][2 * (j & 1) + h]);
        fence_async();
        asm volatile("bar.sync %0, %1;" ::"r"(3), "n"(256) : "memory");
    }

    /* Queues dq = ds^T k: 64 queries, this warpgroup's half of the columns. */
    __device__ __forceinline__ void multiply_dq(float (&dq)[1][QJ][4], uint32_t k, int turn) const
    {
        const uint64_t left = wgmma_tile(ds + turn * DS_BYTES, 16);
        const uint64_t right = wgmma_tile(k + attention_group() * row_tile::panel, 16);
        attention_pin(dq);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < BR / 16; i++)
            attention_across<T>::product(attention_flat(dq), left + i * 128, right + i * 128, i > 0);
        wgmma_commit();
    }

    __device__ __forceinline__ void add_dq(const piece &p, int head, int row, const float (&dq)[1][QJ][4]) const
    {
        row += (int)threadIdx.x % 128 / 32 * 16;
        if (row >= p.w.s.rows)
            return;
        float4 *to = attention_dq_sums(job, p.w.s, first_head(p) + head, row, D) + threadIdx.x / 128 * (32 * QJ);
#pragma unroll
        for (int j = 0; j < QJ; j++)
            attention_add_sums(to + 32 * j, dq[0][j]);
    }

    __device__ __forceinline__ static void as_operand(uint32_t (&to)[BC / 16][4], const float (&x)[1][NJ][4])
    {
#pragma unroll
        for (int i = 0; i < BC / 16; i++)
            as_left<T>(to[i], x[0], i);
    }

    /* (lse, delta) of columns 8 j and 8 j + 1 of the thread's. */
    __device__ __forceinline__ uint4 stats_of(const place &at, int j) const
    {
        return shared_load16(stats + at.stage * STATS + 16 * (threadIdx.x & 3) + 64 * j);
    }

    /* Scores, to which rest is still to be added, to p, and FLIP: to left operands. CAPPED: to p times the derivative
     * of softcap. A score of -infinity would make that derivative infinite, and 0 times it is no number. */
    template <bool CAPPED> __device__ __forceinline__ void soften(float (&x)[1][NJ][4], uint32_t (&left)[BC / 16][4],
                                                                  const float (&rest)[1][2], const sums &r,
                                                                  const place &at) const
    {
        const float unit = job.cuda.unit, bend = CAPPED ? -1.0f / (job.softcap * job.softcap) : 0.0f;
#pragma unroll
        for (int j = 0; j < NJ; j++) {
            const uint4 two = FLIP ? stats_of(at, j) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float p[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float lse = !FLIP ? r.stat[h].x : __uint_as_float(e ? two.z : two.x);
                    float &f = x[0][j][2 * h + e];
                    p[e] = exp2_fast<true>(__fmaf_rn(f, unit, SCORED ? __fmaf_rn(rest[0][h], unit, -lse) : -lse));
                    f = CAPPED ? p[e] * fmaxf(__fmaf_rn(f * f, bend, 1.0f), 0.0f) : p[e];
                }
                if (FLIP)
                    left[j / 2][2 * (j & 1) + h] = pack2<T>(p[0], p[1]);
            }
        }
    }

    /* p to ds. */
    __device__ __forceinline__ void to_ds(float (&x)[1][NJ][4], const float (&dp)[1][NJ][4], const sums &r,
                                          const place &at) const
    {
#pragma unroll
        for (int j = 0; j < NJ; j++) {
            const uint4 two = FLIP ? stats_of(at, j) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float delta = !FLIP ? r.stat[e >> 1].y : __uint_as_float(e & 1 ? two.w : two.y);
                x[0][j][e] *= dp[0][j][e] - delta;
            }
        }
    }

    __device__ __forceinline__ void finish(const piece &p, sums &r) const
    {
        bool doubtful = attention_doubtful<T>(r.out_k);
        if (FLIP)
            doubtful |= attention_doubtful<T>(r.out_v);
        attention_mark(job, FLIP, p.index, doubtful);
#pragma unroll
        for (int j = 0; j < OJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                r.out_k[0][j][e] *= job.scale;
        if constexpr (FLIP) {
            store(p, job.dk, (int)job.d, r.out_k);
            store(p, job.dv, (int)job.d_v, r.out_v);
        } else {
            store(p, job.dq, (int)job.d, r.out_k);
        }
    }

    __device__ __forceinline__ void store(const piece &p, const skr_attention_rows &t, int width,
                                          const float (&out)[1][OJ][4]) const
    {
        const attention_sequence &s = p.w.s;
        if (t.data)
            attention_store_chunks<T>(attention_rows_at(t, s, FLIP ? s.k : s.q, p.w.h), t.token, width, warp_row(p),
                                      FLIP ? s.keys : s.rows, s.room, out);
    }
};

#endif
