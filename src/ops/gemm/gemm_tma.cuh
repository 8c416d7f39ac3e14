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

#include "gemm_stages.cuh"
#include "gemm_step_scales.cuh"
#include "gemm_tma_out.cuh"

template <int A, int B, int SUMS, int BN, bool AT, bool BT, int BM = SKR_GEMM_TMA_ROWS> struct gemm_tma
    : gemm_stages<A, B, BM, BN, AT, BT, 4 * 48 * 1024> {
    typedef gemm_stages<A, B, BM, BN, AT, BT, 4 * 48 * 1024> stages;
    using typename stages::mma;
    typedef typename mma::sum S;
    typedef gemm_tma_out<S, BN> out_type;
    typedef gemm_step_scales<BN> scale_type;
    using stages::A_BYTES, stages::STAGE, stages::STAGES, stages::PANEL;
    using stages::advance, stages::base, stages::empty, stages::full, stages::release, stages::sharers;
    static constexpr bool STEPWISE = SUMS != SKR_GEMM_KEPT, SCALED = SUMS == SKR_GEMM_SCALED;
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
        static_assert(STAGES * STAGE + 2 * OUT + 2 * STAGES * 8 + 1024 <= SKR_GEMM_TMA_SHARED,
                      "what the plan asks for");
    }

    __device__ __forceinline__ void start() const
    {
        if (threadIdx.x == 256) {
            tensor_prefetch(&job.work.a);
            tensor_prefetch(&job.work.b);
        }
        if (threadIdx.x == 0) {
            this->init_stages();
            barrier_init_done();
        }
        __syncthreads();
        if (sharers > 1) {
            cluster_arrive();
            cluster_wait();
        }
    }

    /* ---------------------------------------------------------------- the copy engine's warp */

    /* One half of b's columns, for this block or for both (each); of three panels the first half has two. */
    __device__ __forceinline__ void load_b(uint32_t to, uint32_t barrier, int half, int col, int k, int z,
                                           bool each) const
    {
        constexpr int COUNT = BT ? (BN / 64 + 1) / 2 * 64 : BN / 2, BOXES = BT ? COUNT / 64 : 1;
        col = job.gated == SKR_GEMM_HALVES ? col / 2 + half * (int)(job.n / 2) : col + half * COUNT;
        to += half * COUNT * 128;
#pragma unroll
        for (int i = 0; i < BOXES; i++) {
            if (half * COUNT + i * 64 >= BN)
                break;
            int x = BT ? col + i * 64 : k, y = BT ? k : col;
            if (each)
                tensor_load_each(to + i * PANEL, &job.work.b, barrier, x, y, z, 3);
            else if (job.work.once)
                tensor_load_once(to + i * PANEL, &job.work.b, barrier, x, y, z);
            else
                tensor_load(to + i * PANEL, &job.work.b, barrier, x, y, z);
        }
    }

    __device__ __forceinline__ void produce() const
    {
        registers_down<24>(); /* 128 * 24 + 256 * 240: what 384 threads begin with, 168 each; more would wait for ever
                               */
        if (threadIdx.x != 256)
            return;
        int stage = 0, phase = 0;
        gemm_work w(job);
        while (w.next()) {
            int za = job.work.batch_a ? w.z : 0, zb = job.work.batch_b ? w.z : 0;
            for (int k = w.first; k < w.last; k++) {
                uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
                barrier_wait(empty + stage * 8, phase ^ 1);
                barrier_expect(barrier, STAGE);
                if (AT) {
#pragma unroll
                    for (int i = 0; i < BM / 64; i++)
                        tensor_load(at + i * PANEL, &job.work.a, barrier, w.row + i * 64, k * BK, za);
                } else {
                    tensor_load(at, &job.work.a, barrier, k * BK, w.row, za);
                }
                if (sharers == 1 || rank == 0)
                    load_b(at + A_BYTES, barrier, 0, w.col, k * BK, zb, sharers > 1);
                if (sharers == 1 || rank == 1)
                    load_b(at + A_BYTES, barrier, 1, w.col, k * BK, zb, sharers > 1);
                advance(stage, phase);
            }
        }
        stay(stage, phase);
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
        gemm_work walk(job);
        bool more = walk.next();
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
                            more = walk.next();
                    });
                }
                if (SCALED) /* scales of steps leave no registers for them earlier */
                    way.read_options(row, w, o);
                way.write(d[0], row, w, o);
            } else {
                this->pass(steps, stage, phase, [](uint32_t, int) {});
            }
            if (!AHEAD || row >= job.m)
                more = walk.next();
        }
        way.done();
    }
};

#endif
