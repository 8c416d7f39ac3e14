/* gemm_many.cuh - gemm of many rows of f16 or bf16 with i4 or i8 weights in groups on Hopper.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block has 128 columns of b, 64 to each of two warpgroups, and 128 rows of a. Two blocks beside each other share
 * these: each asks for half of them, and the copy engine writes both. Blocks stay and walk over the tiles. Sums are
 * written 64 rows at a time, by way of shared memory, as few rows are. */
#ifndef SKR_GEMM_MANY_CUH
#define SKR_GEMM_MANY_CUH

#include "gemm_few.cuh"

template <int T, int B> struct gemm_many : gemm_code_stages<T, B, SKR_GEMM_MANY_ROWS, false, gemm_few_room<64>, false> {
    static constexpr int ROWS = SKR_GEMM_MANY_ROWS, BK = 128, SUMS = gemm_few_sums<64>;
    typedef gemm_code_stages<T, B, ROWS, false, gemm_few_room<64>, false> stages;
    using stages::advance, stages::base, stages::empty, stages::full, stages::sharers, stages::A_BYTES, stages::A_BOX,
        stages::PANEL, stages::STAGE, stages::STAGES;

    const skr_gemm_job &job;
    uint32_t sums;
    int rank, unit;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        gemm_roles(gemm_many(job, gemm_stages_at()));
    }

    __device__ __forceinline__ gemm_many(const skr_gemm_job &j, uint32_t at)
        : stages{at, at + STAGES * STAGE + SUMS, at + STAGES * (STAGE + 8) + SUMS, j.work.cluster, false}, job(j),
          sums(at + STAGES * STAGE), rank((int)cluster_rank()), unit((int)blockIdx.x / j.work.cluster)
    {
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

    __device__ __forceinline__ int tiles() const
    {
        return job.work.tiles_m * job.work.tiles_n * job.work.batches;
    }

    /* Some rows of tiles are walked together, so that L2 has their rows of a for all columns. */
    __device__ __forceinline__ void place(int tile, int &row, int &col, int &z) const
    {
        const skr_gemm_work &t = job.work;
        const int each = t.tiles_m * t.tiles_n, per = t.group * t.tiles_n;
        z = tile / each, tile -= z * each;
        const int g = tile / per, i = tile - g * per, rows = min(t.group, t.tiles_m - g * t.group);
        row = (g * t.group + i % rows) * ROWS;
        col = (i / rows * sharers + rank) * SKR_GEMM_FEW_COLUMNS;
    }

    /* Where the columns of a warpgroup's panel begin in b, and end. */
    __device__ __forceinline__ int64_t panel_at(int panel, int col) const
    {
        return job.gated == SKR_GEMM_HALVES ? col / 2 + panel * (job.n / 2) : col + panel * 64;
    }

    __device__ __forceinline__ int64_t panel_end(int panel) const
    {
        return job.gated == SKR_GEMM_HALVES ? (panel + 1) * (job.n / 2) : job.n;
    }

    __device__ __forceinline__ void produce() const
    {
        registers_down<40>();
        if (threadIdx.x != 256)
            return;
        int stage = 0, phase = 0;
#pragma unroll 1
        for (int tile = unit; tile < tiles(); tile += job.work.cut.units) {
            int row, col, z;
            place(tile, row, col, z);
            const int left = (int)panel_at(0, col), right = (int)panel_at(1, col);
            const bool second = row + 64 < (int)job.m; /* the other 64 rows are there */
            const int za = job.work.batch_a ? z : 0, zb = job.work.batch_b ? z : 0;
#pragma unroll 1
            for (int step = 0; step < job.work.steps; step++) {
                const uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
                const int k = step * BK;
                barrier_wait(empty + stage * 8, phase ^ 1);
                barrier_expect(barrier, 2 * PANEL + 2 * (second ? A_BOX : A_BOX / 2));
                tensor_load(at, &job.work.b, barrier, B == SKR_I4 ? k / 2 : k, left, zb);
                tensor_load(at + PANEL, &job.work.b, barrier, B == SKR_I4 ? k / 2 : k, right, zb);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    if (half && !second)
                        break;
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const uint32_t to = at + A_BYTES + i * A_BOX + half * A_BOX / 2;
                        if (sharers == 1)
                            tensor_load(to, &job.work.a, barrier, k + i * 64, row + half * 64, za);
                        else if (rank == (second ? half : i))
                            tensor_load_each(to, &job.work.a, barrier, k + i * 64, row + half * 64, za, 3);
                    }
                }
                advance(stage, phase);
            }
        }
        for (int s = 0; sharers > 1 && s < STAGES; s++) { /* the peer still arrives on these barriers */
            barrier_wait(empty + stage * 8, phase ^ 1);
            advance(stage, phase);
        }
    }

    __device__ __forceinline__ void consume() const
    {
        registers_up<232>(); /* 128 * 40 + 256 * 232: what 384 threads begin with, 168 each */
        int stage = 0, phase = 0;
#pragma unroll 1
        for (int tile = unit; tile < tiles(); tile += job.work.cut.units) {
            int row, col, z;
            place(tile, row, col, z);
            const int panel = threadIdx.x / 128;
            float d[ROWS / 2];
            const gemm_code_columns<T, B> own(job, gemm_batch(job, z), panel_at(panel, col), panel_end(panel));
            stages::multiply_codes(own, 0, BK, job.work.steps, stage, phase, d);
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (row + half * 64 < (int)job.m) {
                    consumers_sync(); /* what was there is written */
                    put(d, half);
                    consumers_sync();
                    if (job.work.plain)
                        write_plain(row + half * 64, col, z);
                    else
                        gemm_few_options(job, sums, col, z, row + half * 64, 64);
                }
        }
    }

    /* 64 rows with nothing but one factor, d of 16 bits whose columns come in eights. */
    __device__ __forceinline__ void write_plain(int row, int col, int z) const
    {
        const float factor = gemm_one_factor(job);
        const int c = threadIdx.x % 16 * 8;
        char *d = (char *)job.d.at.data + (gemm_batch::at(job, job.d, z) + row * job.d.row + col + c) * 2;
#pragma unroll
        for (int r = threadIdx.x / 16; r < 64; r += 16) {
            float f[8];
            gemm_few_load8(sums, r, c, f);
#pragma unroll
            for (int i = 0; i < 8; i++)
                f[i] *= factor;
            if (row + r < (int)job.m && col + c < (int)job.n)
                store16_once(d + r * job.d.row * 2, job.d.at.type == SKR_F16 ? pack<SKR_F16>(f) : pack<SKR_BF16>(f));
        }
    }

    /* Half of the rows' sums, to where the options take them. */
    __device__ __forceinline__ void put(const float (&d)[ROWS / 2], int half) const
    {
        const int lane = threadIdx.x % 32, column = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 32; i++)
            shared_store4(gemm_few_at(sums, i / 4 * 8 + lane % 4 * 2 + i % 2, column + i / 2 % 2 * 8),
                          __float_as_uint(d[half * 32 + i]));
    }
};

#endif
