/* attention_tma.cuh - attention over tiles of queries, on Hopper's tensor cores, fed by the copy engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block stays and takes pieces of 128 queries of a head, one after the other: two warpgroups have 64 of them each,
 * one thread of a third has the copy engine bring the queries, and keys and values in a ring of tiles. s = q k^T comes
 * out of shared memory; its exponentials stay in registers and are the left operand of o += p v. While a tile's
 * exponentials are taken, the tensor cores have the product of the tile before with its values, and the other
 * warpgroup's: the two take turns to queue theirs.
 *
 * KIND: plain kernels know sequences, window, causal and sinks; scored ones also softcap, slopes and a bias whose rows
 * are whole chunks of 16 bytes. Maxima are kept as attention_forward.cuh says. There are no second passes: a piece that
 * came out infinite or not a number is marked, and the next kernel, which is that of attention_forward.cuh, computes it
 * again. */
#ifndef SKR_ATTENTION_TMA_CUH
#define SKR_ATTENTION_TMA_CUH

#include "attention_warpgroup.cuh"

template <int T, int D, int BN, int STAGES, int Q_STAGES, int KIND> struct attention_tma {
    static constexpr bool SCORED = KIND == SKR_ATTENTION_SCORED;
    static constexpr int BM = 128, PANELS = D / 64, NJ = BN / 8, OJ = D / 8;
    static constexpr int Q_PANEL = BM * 128, PANEL = BN * 128; /* bytes; of 64 columns */
    static constexpr int Q_BYTES = PANELS * Q_PANEL, TILE = PANELS * PANEL;
    static constexpr float none = -__builtin_huge_valf();

    struct piece {
        attention_work w;
        int first;            /* query */
        int begin, end;       /* tiles of keys that some of the queries may see */
        int start;            /* the tile that is seen first; behind the last one comes the first */
        int whole, whole_end; /* those of which they all see all */
        float slope;          /* in the scores' units */
        attention_source bias;
        int index; /* of the piece; -1: there is none, the block is done */
    };
    struct state { /* in shared memory */
        uint64_t q_full[Q_STAGES], q_empty[Q_STAGES];
        uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
        piece pieces[Q_STAGES + 1]; /* the one that is being written has given back its queries */
    };
    typedef attention_place<STAGES> place;
    typedef attention_place<Q_STAGES> q_place;
    typedef attention_place<Q_STAGES + 1> piece_place;

    const skr_attention_job &job;
    state &the;
    uint32_t q, k, v, bias;
    using scores = attention_scores<1, NJ, false>;
    using scored = attention_scored<T, 1, NJ, false>;

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        extern __shared__ __align__(128) char shared[];
        __shared__ state the;
        const uint32_t at = (shared_address(shared) + 1023) & ~1023u;
        const uint32_t tiles = at + Q_STAGES * Q_BYTES;
        const attention_tma self = {job, the, at, tiles, tiles + STAGES * TILE, tiles + 2 * STAGES * TILE};
        if (threadIdx.x == 0) {
            for (int s = 0; s < Q_STAGES; s++) {
                barrier_init(shared_address(&the.q_full[s]), 1);
                barrier_init(shared_address(&the.q_empty[s]), 8);
            }
            for (int s = 0; s < STAGES; s++) {
                barrier_init(shared_address(&the.k_full[s]), 1);
                barrier_init(shared_address(&the.v_full[s]), 1);
                barrier_init(shared_address(&the.k_empty[s]), 2);
                barrier_init(shared_address(&the.v_empty[s]), 2);
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

    /* ---------------------------------------------------------------- the copy engine's thread */

    __device__ __forceinline__ void produce() const
    {
        registers_down<40>();
        if (threadIdx.x != 256)
            return;
        tensor_prefetch(&job.cuda.q);
        tensor_prefetch(&job.cuda.k);
        tensor_prefetch(&job.cuda.v);
        place at = {0, 0};
        q_place q_at = {0, 0};
        piece_place to = {0, 0};
        for (int index = (int)blockIdx.x, next; index < job.cuda.pieces[0]; index = next) {
            attention_work w;
            next = attention_next(job, false, index);
            if (!attention_find(job, index, (int)job.heads, BM, false, KIND && job.cuda.by_head, w)) {
                *(uint64_t *)(attention_marks(job, false) + 8 * index) = 0;
                continue;
            }
            const attention_sequence &s = w.s;
            const int first = w.tile * BM, last = min(first + BM, s.rows) - 1;
            const int begin = last >= first ? s.first_key(first) / BN : 0;
            const int end = last >= first ? (s.end_key(last) + BN - 1) / BN : 0;
            const bool any = begin < end; /* one tile that nobody sees where there is none */
            const int kv_h = w.h / (int)job.group;
            const int q_row = s.q + s.b * (int)job.cuda.q_rows + first;
            const int k_row = s.k + s.b * (int)job.cuda.k_rows, v_row = s.k + s.b * (int)job.cuda.v_rows;
            barrier_wait(shared_address(&the.q_empty[q_at.stage]), q_at.phase ^ 1);
            piece &p = the.pieces[to.stage];
            p.w = w, p.first = first, p.index = index;
            p.begin = p.start = any ? begin : 0, p.end = any ? end : 1;
            p.whole = any ? s.first_whole(last, BN) : 1, p.whole_end = any ? s.end_whole(first, BN) : 0;
            if (SCORED && job.bias.data)
                p.bias.set_bias(job.bias, s, w.h);
            if (SCORED && job.slopes.data && any) { /* the largest scores are those near the diagonal */
                p.slope = job.cuda.over * job.slopes.data[s.b * job.slopes.batch + w.h * job.slopes.head];
                p.start = max(begin, min((first + s.diagonal) / BN, end - 1));
            }
            const uint32_t barrier = shared_address(&the.q_full[q_at.stage]);
            barrier_expect(barrier, Q_BYTES);
#pragma unroll
            for (int i = 0; i < PANELS; i++)
                tensor_load(q + q_at.stage * Q_BYTES + i * Q_PANEL, &job.cuda.q, barrier, i * 64, q_row, w.h);
            q_at.advance(), to.advance();
#pragma unroll 1
            for (int count = p.end - p.begin, n = p.start; count > 0; count--, n = behind(p, n)) {
                load(k, job.cuda.k, the.k_full, the.k_empty, at, k_row + n * BN, kv_h);
                load(v, job.cuda.v, the.v_full, the.v_empty, at, v_row + n * BN, kv_h);
                at.advance();
            }
        }
        barrier_wait(shared_address(&the.q_empty[q_at.stage]), q_at.phase ^ 1);
        the.pieces[to.stage].index = -1;
        barrier_arrive(shared_address(&the.q_full[q_at.stage]));
    }

    /* The tile that is seen after n. */
    __device__ __forceinline__ static int behind(const piece &p, int n)
    {
        return SCORED && n + 1 == p.end ? p.begin : n + 1;
    }

    __device__ __forceinline__ void load(uint32_t tiles, const skr_tensor_map &map, uint64_t (&full)[STAGES],
                                         uint64_t (&empty)[STAGES], const place &at, int row, int head) const
    {
        const uint32_t barrier = shared_address(&full[at.stage]);
        barrier_wait(shared_address(&empty[at.stage]), at.phase ^ 1);
        barrier_expect(barrier, TILE);
#pragma unroll
        for (int p = 0; p < PANELS; p++)
            tensor_load(tiles + at.stage * TILE + p * PANEL, &map, barrier, p * 64, row, head);
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    struct rows { /* what a thread keeps of its two */
        float o[1][OJ][4];
        float top[2], sum[2]; /* top in base 2; sum is this thread's own part */
        float risen;          /* the largest part of a sum that was found last */
        bool settled;         /* every row of the warp has a maximum to take exponentials against */
    };

    /* Products are queued by one warpgroup after the other. Heads of 64 and 256 are faster without that order. */
    static constexpr bool IN_TURN = D == 128;
    __device__ __forceinline__ static void my_turn()
    {
        if (IN_TURN)
            asm volatile("bar.sync %0, %1;" ::"r"(3 + threadIdx.x / 128), "n"(256) : "memory");
    }
    __device__ __forceinline__ static void your_turn()
    {
        if (IN_TURN)
            asm volatile("bar.arrive %0, %1;" ::"r"(4 - threadIdx.x / 128), "n"(256) : "memory");
    }

    /* Where this warpgroup is. */
    struct position {
        place at;
        q_place q_at;
        piece_place piece_at;
    };

    __device__ __forceinline__ const piece &wait_for_piece(const position &c) const
    {
        barrier_wait(shared_address(&the.q_full[c.q_at.stage]), c.q_at.phase);
        return the.pieces[c.piece_at.stage];
    }

    __device__ __forceinline__ void consume() const
    {
        registers_up<232>(); /* 128 * 40 + 256 * 232: what 384 threads begin with, 168 each */
        if (threadIdx.x >= 128)
            your_turn(); /* the first one's */
        position c = {};
        const piece *p = &wait_for_piece(c);
        float x[1][NJ][4];
        start(*p, x, c);
        while (p->index >= 0) {
            rows r;
            clear(r);
            const place last = attend(*p, x, r, c);
            c.q_at.advance(), c.piece_at.advance();
            /* While o is written the tensor cores have the first scores of the next piece. */
            const piece &next = wait_for_piece(c);
            start(next, x, c);
            wgmma_wait<1>();
            attention_pin(r.o);
            attention_release(the.v_empty[last.stage]);
            finish(*p, r);
            p = &next;
        }
        wgmma_wait<0>();
    }

    /* Queues the scores of a piece's first keys; where there is no piece, those of whatever is there: products that may
     * or may not be made would be made one by one. */
    __device__ __forceinline__ void start(const piece &p, float (&x)[1][NJ][4], const position &c) const
    {
        if (p.index >= 0)
            barrier_wait(shared_address(&the.k_full[c.at.stage]), c.at.phase);
        multiply_keys(x, c);
    }

    __device__ __forceinline__ static void clear(rows &r)
    {
        attention_clear(r.o);
#pragma unroll
        for (int h = 0; h < 2; h++)
            r.top[h] = none, r.sum[h] = 0.0f;
        r.risen = 0.0f, r.settled = false;
    }

    /* All of a piece whose first scores are under way. Returns where the last values are, whose product is queued. */
    __device__ __forceinline__ place attend(const piece &p, float (&x)[1][NJ][4], rows &r, position &c) const
    {
        place &at = c.at;
        uint64_t &q_empty = the.q_empty[c.q_at.stage];
        int n = p.start, left = p.end - p.begin - 1;
        uint32_t weights[BN / 16][4];
        float factor[2];
        load_bias(p, n, true);
        wgmma_wait<0>();
        attention_pin(x);
        attention_release(the.k_empty[at.stage]);
        if (left == 0)
            attention_release_rows(q_empty);
        soften(p, n, left, x, r, factor);
        as_weights(weights, x);
        place last = at;
        at.advance();
#pragma unroll 1
        while (left > 0) {
            n = behind(p, n), left--;
            barrier_wait(shared_address(&the.k_full[at.stage]), at.phase);
            my_turn();
            multiply_keys(x, c);
            barrier_wait(shared_address(&the.v_full[last.stage]), last.phase);
            multiply_values(r.o, weights, last);
            your_turn();
            wgmma_wait<1>();
            attention_pin(x);
            attention_release(the.k_empty[at.stage]);
            if (left == 0)
                attention_release_rows(q_empty);
            const bool moved = soften(p, n, left, x, r, factor);
            wgmma_wait<0>();
            attention_pin(r.o);
            attention_release(the.v_empty[last.stage]);
            if (moved)
                scale(r.o, factor);
            as_weights(weights, x);
            last = at;
            at.advance();
        }
        barrier_wait(shared_address(&the.v_full[last.stage]), last.phase);
        multiply_values(r.o, weights, last);
        return last;
    }

    /* This warp's part of the bias of tile n sets out. */
    __device__ __forceinline__ void load_bias(const piece &p, int n, bool there) const
    {
        if constexpr (SCORED)
            if (job.bias.data) {
                if (there)
                    scored::load_bias(bias_at(), p.bias, warp_row(p), n * BN);
                copy_async_commit();
            }
    }
    __device__ __forceinline__ uint32_t bias_at() const
    {
        return bias + threadIdx.x / 32 * scored::bias_bytes(job.bias.type);
    }

    /* Softcap, bias and slopes; rest: what is still to be added to all scores that the thread has of a row. */
    __device__ __forceinline__ void add_options(const piece &p, const scores &of, int next, bool more,
                                                float (&x)[1][NJ][4], float (&rest)[1][2]) const
    {
        const scored options{of};
        if (job.softcap > 0.0f)
            options.cap(x);
        if (job.bias.data) {
            copy_async_wait<0>();
            __syncwarp();
            options.add_bias(x, bias_at());
            __syncwarp();
            load_bias(p, next, more);
        }
        if (job.slopes.data)
            options.add_slopes(x, p.slope, rest);
    }

    __device__ __forceinline__ void multiply_keys(float (&x)[1][NJ][4], const position &c) const
    {
        attention_multiply_rows<T, D, BM, BN>(x, q + c.q_at.stage * Q_BYTES + attention_group() * (64 * 128),
                                              k + c.at.stage * TILE);
    }

    __device__ __forceinline__ void multiply_values(float (&o)[1][OJ][4], const uint32_t (&weights)[BN / 16][4],
                                                    const place &at) const
    {
        attention_multiply_left<T, D, BN>(o, weights, v + at.stage * TILE);
    }

    __device__ __forceinline__ static void as_weights(uint32_t (&weights)[BN / 16][4], const float (&x)[1][NJ][4])
    {
#pragma unroll
        for (int i = 0; i < BN / 16; i++)
            as_left<T>(weights[i], x[0], i);
    }

    __device__ __forceinline__ static void scale(float (&o)[1][OJ][4], const float (&factor)[2])
    {
#pragma unroll
        for (int j = 0; j < OJ; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                o[0][j][e] *= factor[e / 2];
    }

    /* The warp's first row in the sequence. */
    __device__ __forceinline__ static int warp_row(const piece &p)
    {
        return p.first + (int)threadIdx.x / 32 * 16;
    }

    /* Scores of tile n, behind which there are `left`, to exponentials. True: against other maxima than before, and o
     * has to follow by the factors. */
    __device__ __forceinline__ bool soften(const piece &p, int n, int left, float (&x)[1][NJ][4], rows &r,
                                           float (&factor)[2]) const
    {
        const int lane = threadIdx.x & 31;
        const float unit = job.cuda.unit;
        const scores of = {job, p.w.s, p.w.h, warp_row(p) + (lane >> 2), n * BN + 2 * (lane & 3)};
        float rest[1][2] = {};
        if constexpr (SCORED)
            add_options(p, of, behind(p, n), left > 0, x, rest);
        if (n < p.whole || n >= p.whole_end)
            of.limit(x);
        bool moved = false;
        if (r.settled)
            r.settled = !__any_sync(0xffffffffu, r.risen > (T == SKR_F16 ? 0x1p8f : 0x1p64f));
        if (!r.settled) {
            bool unseen = SCORED && job.slopes.data && p.end - p.begin - left <= BM / BN; /* diagonals to come */
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float own = fmaxf(x[0][0][2 * h], x[0][0][2 * h + 1]);
#pragma unroll
                for (int j = 1; j < NJ; j++)
                    own = fmaxf(own, fmaxf(x[0][j][2 * h], x[0][j][2 * h + 1]));
                own = lanes_reduce<skr_max, 4>(own + rest[0][h]);
                const float most = fmaxf(own == none ? none : fmaxf(own * unit, -FLT_LARGEST), r.top[h]);
                factor[h] = r.top[h] == most ? 1.0f : exp2_fast<true>(r.top[h] - most);
                moved |= r.top[h] != most;
                r.top[h] = most;
                r.sum[h] *= factor[h];
                unseen |= most == none && warp_row(p) + (lane >> 2) + 8 * h < p.w.s.rows;
            }
            moved = __any_sync(0xffffffffu, moved);
            r.settled = !__any_sync(0xffffffffu, unseen);
        }
        r.risen = 0.0f;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float top = r.top[h] == none ? 0.0f : r.top[h];
            const float shift = SCORED ? __fmaf_rn(-rest[0][h], unit, top) : top;
            float part[2] = {};
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &f = x[0][j][2 * h + e];
                    f = exp2_fast<true>(__fmaf_rn(f, unit, -shift));
                    part[e] += f;
                }
            part[0] += part[1];
            r.sum[h] += part[0];
            r.risen = fmaxf(r.risen, part[0]);
        }
        return moved;
    }

    static constexpr float FLT_LARGEST = 3.40282347e38f;

    /* Divides by the sums, writes o and lse, or marks. */
    __device__ __forceinline__ void finish(const piece &p, rows &r) const
    {
        const int lane = threadIdx.x & 31, row = warp_row(p);
        const attention_sequence &s = p.w.s;
        float lse[2];
        bool doubtful = false;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float all = lanes_reduce<skr_sum, 4>(r.sum[h]), most = r.top[h], factor = 1.0f;
            const bool far = fabsf(most) >= 0x1p30f && most != none;
            float sink = job.sinks.data ? job.sinks.data[p.w.h * job.sinks.head] : none;
            if (sink != none) {
                sink *= SKR_LOG2E;
                const float larger = fmaxf(most, sink);
                factor = most == larger ? 1.0f : exp2_fast<true>(most - larger);
                all = all * factor + exp2_fast<true>(sink - larger);
                most = larger;
            }
            doubtful |= (far || !(all < __builtin_huge_valf())) && row + 8 * h + (lane >> 2) < s.rows;
            factor = all == 0.0f ? 0.0f : factor / all;
            lse[h] = all == 0.0f ? none : __fmaf_rn(most, 0.693147181f, logf(all));
#pragma unroll
            for (int j = 0; j < OJ; j++)
                r.o[0][j][2 * h] *= factor, r.o[0][j][2 * h + 1] *= factor;
        }
        doubtful = doubtful || attention_infinite(r.o, s.rows - row);
        attention_mark(job, false, p.index, doubtful);
        attention_store_chunks<T>(attention_rows_at(job.o, s, s.q, p.w.h), job.o.token, (int)job.d_v, row, s.rows,
                                  s.room, r.o);
        if (job.lse.data && (lane & 3) == 0) {
            float *to = attention_stat_at(job.lse, s, p.w.h);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = row + 8 * h + (lane >> 2);
                if (at < s.room)
                    to[at * job.lse.token] = at < s.rows ? lse[h] : none;
            }
        }
    }
};

#endif
