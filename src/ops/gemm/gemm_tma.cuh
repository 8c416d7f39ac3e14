/* gemm_tma.cuh - gemm on Hopper's tensor cores, fed by the copy engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns 128 x BN of d: two warpgroups multiply 64 rows each, one warp of a third has the copy engine fill a ring
 * of stages, 128 bytes of k at a time. Two blocks of a cluster lie below each other and share b: each loads half of it
 * for both. Blocks stay and walk over the tiles (gemm_work.cuh), in groups that keep what they read in L2; while a tile
 * is being written the next one's stages fill. gemm_tma_out.cuh has the ways out.
 *
 * The tensor cores' sums of fp8 products are short (docs/NUMERICS.md). STEPWISE, they leave the tensor cores after
 * every step of 128 k's and are added in f32; scales of blocks, which are those 128 k's, multiply them on the way. */
#ifndef SKR_GEMM_TMA_CUH
#define SKR_GEMM_TMA_CUH

#include "gemm_spread.cuh"
#include "gemm_stages.cuh"
#include "gemm_step_scales.cuh"
#include "gemm_tma_out.cuh"

template <int A, int B, int SUMS, int BN, bool AT, bool BT, int BM = SKR_GEMM_TMA_ROWS> struct gemm_tma
    : gemm_stages<A, B, BM, BN, AT, BT, 4 * 48 * 1024> {
    typedef gemm_stages<A, B, BM, BN, AT, BT, 4 * 48 * 1024> stages;
    using typename stages::mma;
    typedef typename mma::sum S;
    static constexpr bool STEPWISE = SUMS != SKR_GEMM_KEPT, SCALED = SUMS == SKR_GEMM_SCALED;
    typedef gemm_tma_out<S, BN, SCALED ? -1 : SKR_GEMM_C_OF(A)> out_type;
    typedef gemm_step_scales<BN> scale_type;
    typedef gemm_spread<BN> spread_type;
    using stages::A_BYTES, stages::STAGE, stages::STAGES, stages::PANEL;
    using stages::advance, stages::base, stages::empty, stages::full, stages::release, stages::sharers;
    static constexpr bool SPREADS = SKR_GEMM_SPREADS(A, SUMS, BN) && BM == SKR_GEMM_TMA_ROWS;
    static constexpr int BYTES = A == SKR_F32 ? 4 : A == SKR_F16 || A == SKR_BF16 ? 2 : 1;
    static constexpr int BK = SKR_GEMM_TMA_BYTES / BYTES, OUT = out_type::BYTES;

    const skr_gemm_job &job;
    uint32_t out; /* staging of d */
    int rank;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        gemm_roles(gemm_tma(job, gemm_stages_at()));
    }

    __device__ __forceinline__ gemm_tma(const skr_gemm_job &j, uint32_t at)
        : stages{at, at + STAGES * STAGE + 2 * OUT, at + STAGES * (STAGE + 8) + 2 * OUT, j.work.cluster}, job(j),
          out(at + STAGES * STAGE), rank((int)cluster_rank())
    {
        static_assert(STAGES * STAGE + 2 * OUT + (2 * STAGES + 2) * 8 + 1024 <= SKR_GEMM_TMA_SHARED,
                      "what the plan asks for");
    }

    __device__ __forceinline__ spread_type spread() const
    {
        return {job, base, empty + STAGES * 8, empty + STAGES * 8 + 8, rank};
    }

    __device__ __forceinline__ void start() const
    {
        if (threadIdx.x == 256) {
            tensor_prefetch(&job.work.a);
            tensor_prefetch(&job.work.b);
        }
        if (threadIdx.x == 0) {
            this->init_stages();
            if (SPREADS)
                spread().init();
            barrier_init_done();
        }
        __syncthreads();
        if (sharers > 1 || (SPREADS && job.work.spread)) {
            cluster_arrive();
            cluster_wait();
        }
    }

    /* ---------------------------------------------------------------- what this block does */

    __device__ __forceinline__ int block() const
    {
        return SPREADS ? (int)blockIdx.x >> job.work.spread : (int)blockIdx.x;
    }

    __device__ __forceinline__ bool next(gemm_work &w) const
    {
        if (!w.next())
            return false;
        if (SPREADS && job.work.spread)
            w.first = job.work.steps * rank >> job.work.spread, w.last = job.work.steps * (rank + 1) >> job.work.spread;
        return true;
    }

    /* ---------------------------------------------------------------- the copy engine's warp */

    /* Columns of the first half of b's columns; of three panels it has two. */
    static constexpr int HALF = BT ? (BN / 64 + 1) / 2 * 64 : BN / 2;

    __device__ __forceinline__ int half_at(int half, int col) const
    {
        return job.gated == SKR_GEMM_HALVES ? col / 2 + half * (int)(job.n / 2) : col + half * HALF;
    }

    /* Of `most` rows or columns those that there are; where they run along memory, whole panels. The copy engine takes
     * longer for what lies outside of a tensor than for what it reads, and nobody needs it. */
    __device__ __forceinline__ static int present(bool panels, int left, int most)
    {
        return max(0, min(panels ? (left + 63) / 64 * 64 : left, most));
    }

    __device__ __forceinline__ int half_end(int half) const
    {
        return (int)(job.gated == SKR_GEMM_HALVES && half == 0 ? job.n / 2 : job.n);
    }

    __device__ __forceinline__ int half_columns(int half, int col, bool panels = BT) const
    {
        return present(panels, half_end(half) - half_at(half, col), half ? BN - HALF : HALF);
    }

    /* `there` columns of a half of b's, for this block or for both (each). */
    __device__ __forceinline__ void load_b(const skr_tensor_map &map, uint32_t to, uint32_t barrier, int half,
                                           int there, int col, int k, int z, bool each) const
    {
        col = half_at(half, col);
        to += half * HALF * 128;
#pragma unroll
        for (int i = 0; i < (BT ? HALF / 64 : 1); i++) {
            if (i * 64 >= there)
                break;
            int x = BT ? col + i * 64 : k, y = BT ? k : col;
            if (each)
                tensor_load_each(to + i * PANEL, &map, barrier, x, y, z, 3);
            else if (job.work.once)
                tensor_load_once(to + i * PANEL, &map, barrier, x, y, z);
            else
                tensor_load(to + i * PANEL, &map, barrier, x, y, z);
        }
    }

    __device__ __forceinline__ void produce() const
    {
        /* 128 * 24 + 256 * 240: what 384 threads begin with, 168 each; more would wait for ever */
        registers_down<24>();
        if (threadIdx.x != 256)
            return;
        int stage = 0, phase = 0;
        gemm_work w(job, block());
        while (next(w)) {
            /* By what lies there, not by how much of it: ptxas 13.0 took a predicate of the instruction that makes the
             * count for rows < BM, and the wrong one. */
            const bool rows = w.row + BM <= (int)job.m, left = half_at(0, w.col) + HALF <= half_end(0);
            const bool right = half_at(1, w.col) + BN - HALF <= half_end(1);
            if (rows && left && right)
                for (int k = w.first; k < w.last; k++) /* a step is short: so is this */
                    load_step(w, k, BM, HALF, BN - HALF, job.work.a, job.work.b, job.work.b, stage, phase);
            else
                load_rest(w, AT || rows ? job.work.a : job.work.a_rest, BT || left ? job.work.b : job.work.b_rest,
                          BT || right ? job.work.b : job.work.b_rest, stage, phase);
            if (!SCALED && job.c.at.data && w.slot < 0)
                ask_for_c(w);
        }
        stay(stage, phase);
    }

    /* L2 gets the tile's part of c from memory while its last steps are multiplied. */
    __device__ __forceinline__ void ask_for_c(const gemm_work &w) const
    {
        const int bytes = skr_type_bytes(job.c.at.type), width = min(BN, (int)job.n - w.col) * bytes / 16 * 16;
        const int rows = min(BM, (int)job.m - w.row);
        const char *from = gemm_c_at(job, w.z, w.row, w.col);
        for (int r = 0; r < rows && width; r++, from += job.c.row * bytes)
            bulk_prefetch(from, width);
    }

    /* The steps of a tile that does not end inside of a and b, by the maps of what there is of it. */
    __device__ __forceinline__ void load_rest(const gemm_work &w, const skr_tensor_map &a, const skr_tensor_map &b_left,
                                              const skr_tensor_map &b_right, int &stage, int &phase) const
    {
        const int rows = present(AT, (int)job.m - w.row, BM);
        const int left = half_columns(0, w.col), right = half_columns(1, w.col);
#pragma unroll 1 /* short, for code comes from memory the first time */
        for (int k = w.first; k < w.last; k++)
            load_step(w, k, rows, left, right, a, b_left, b_right, stage, phase);
    }

    /* One step: so many rows of a, and columns of both halves of b. */
    __device__ __forceinline__ void load_step(const gemm_work &w, int k, int rows, int left, int right,
                                              const skr_tensor_map &a, const skr_tensor_map &b_left,
                                              const skr_tensor_map &b_right, int &stage, int &phase) const
    {
        const int za = job.work.batch_a ? w.z : 0, zb = job.work.batch_b ? w.z : 0;
        const uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
        barrier_wait(empty + stage * 8, phase ^ 1);
        barrier_expect(barrier, (rows + left + right) * 128);
#pragma unroll
        for (int i = 0; i < (AT ? BM / 64 : 1); i++)
            if (i * 64 < rows)
                tensor_load(at + i * PANEL, &a, barrier, AT ? w.row + i * 64 : k * BK, AT ? k * BK : w.row, za);
        if (sharers == 1 || rank == 0)
            load_b(b_left, at + A_BYTES, barrier, 0, left, w.col, k * BK, zb, sharers > 1);
        if (sharers == 1 || rank == 1)
            load_b(b_right, at + A_BYTES, barrier, 1, right, w.col, k * BK, zb, sharers > 1);
        advance(stage, phase);
    }

    /* After the last step: the peer still arrives on these barriers. */
    __device__ __forceinline__ void stay(int stage, int phase) const
    {
        for (int s = 0; sharers > 1 && s < STAGES; s++) {
            barrier_wait(empty + stage * 8, phase ^ 1);
            advance(stage, phase);
        }
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    /* Columns of a step's sums that are made together: two such parts fit beside the tile's sums. */
    static constexpr int WIDTH = BN == 256 ? 64 : BN == 192 ? 96 : BN;

    __device__ __forceinline__ void multiply_stepwise(float (&d)[BN / 2], scale_type scale, int count, int &stage,
                                                      int &phase) const
    {
        const auto begins = [&](int step) {
            if (SCALED)
                scale.next(job, 1 - step);
        };
        const auto add = [&](int step, int first, float(&part)[WIDTH / 2]) {
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) {
                const int at = first / 2 + i;
                float &sum = d[at];
                sum = SCALED ? __fmaf_rn(part[i], scale.a[step][i / 2 & 1] * scale.b[step][at / (BN / 4)], sum)
                             : sum + part[i];
                asm volatile("" : "+f"(sum)); /* now, not when the next ones are done */
            }
        };
#pragma unroll
        for (int i = 0; i < BN / 2; i++)
            d[i] = 0.0f;
        this->template multiply_apart<WIDTH>(count, stage, phase, begins, add);
    }

    /* Whether the next tile's place is found while the tensor cores have the first step (a tile of one: before it), not
     * after d is written. Smaller tiles are often a block's only ones, and sums that leave the tensor cores leave no
     * registers for it. */
    static constexpr bool AHEAD = !STEPWISE && BN == 256;

    __device__ __forceinline__ void consume() const
    {
        registers_up<240>();
        int stage = 0, phase = 0;
        const out_type way = {job, out + threadIdx.x / 128 * OUT};
        gemm_work walk(job, block());
        bool more = next(walk);
        while (more) {
            const gemm_work w = walk;
            const int row = w.row + threadIdx.x / 128 * 64, steps = w.last - w.first;
            if (row < job.m) {
                S d[1][BN / 2];
                typename out_type::options o;
                if (!SCALED)
                    way.read_options(row, w, o);
                if constexpr (STEPWISE) {
                    const scale_type scale(job, gemm_batch(job, w.z), row, w.col, w.first, w.last);
                    multiply_stepwise(d[0], scale, steps, stage, phase);
                } else {
                    this->template multiply<1>(d, steps, stage, phase, [&](uint32_t, int k) {
                        if (AHEAD && k == (steps > 1))
                            more = next(walk);
                    });
                }
                if (SCALED) /* scales of steps leave no registers for them earlier */
                    way.read_options(row, w, o);
                if constexpr (SPREADS)
                    if (job.work.spread) {
                        spread().write(d[0], w.row, w.col, w.z);
                        return;
                    }
                way.write(d[0], row, w, o);
            } else {
                this->pass(steps, stage, phase, [](uint32_t, int) {});
            }
            if (!AHEAD || row >= job.m)
                more = next(walk);
        }
        way.done();
    }
};

#endif
