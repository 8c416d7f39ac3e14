/* gemm_fma.cuh - gemm of f32 on the multiply-add units, true f32, in any layout.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block walks k in steps, of which several are on their way to shared memory (gemm_fma_side.cuh). A warp has 4 * ROWS
 * x 64 of d, a thread ROWS x 8 in groups of four neighbours each way, so that it reads shared memory 16 bytes at a
 * time; what the next k needs is read while this one is multiplied. Lanes are dealt out so that neighbours want the
 * same address, of a or of b: two quarters of a warp are then served at once. Tiles and parts of k are those of
 * gemm_work.cuh; d is written here where it takes no more than one factor, else by gemm_finish.cuh. */
#ifndef SKR_GEMM_FMA_CUH
#define SKR_GEMM_FMA_CUH

#include "gemm_fma_side.cuh"
#include "gemm_work.cuh"

template <int WARPS_M, int WARPS_N, int ROWS, int A_WAY, int B_WAY> struct gemm_fma {
    static constexpr int STEP = SKR_GEMM_FMA_STEP, STAGES = SKR_GEMM_FMA_STAGES;
    static constexpr int COLS = 8, TILE_M = WARPS_M * ROWS * 4, TILE_N = WARPS_N * 64, THREADS = WARPS_M * WARPS_N * 32;
    typedef gemm_fma_side<TILE_M, THREADS, STEP, A_WAY> side_a;
    typedef gemm_fma_side<TILE_N, THREADS, STEP, B_WAY> side_b;
    static constexpr int A_FLOATS = STEP * side_a::PITCH, STAGE = A_FLOATS + STEP * side_b::PITCH;

    /* Groups of four: of rows 16 apart, of columns 32. */
    template <int N, int APART> __device__ __forceinline__ static void read(const float *p, float (&f)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 v = *(const float4 *)(p + i / 4 * APART);
            f[i] = v.x, f[i + 1] = v.y, f[i + 2] = v.z, f[i + 3] = v.w;
        }
    }

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        extern __shared__ __align__(16) float stages[];
        wait_for_previous();
        let_next_start();
        const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
        const int row = warp % WARPS_M * ROWS * 4 + (lane & 1) * 4 + lane / 16 * 8;
        const int col = warp / WARPS_M * 64 + (lane / 2 & 7) * 4;
        gemm_work work(job);
        while (work.next()) {
            float sum[ROWS][COLS] = {};
            multiply(job, stages, work, row, col, sum);
            if (work.slot < 0)
                store(job, gemm_batch(job, work.z), work.row + row, work.col + col, sum);
            else
                keep(job, work, row, col, sum);
        }
    }

    __device__ __forceinline__ static void multiply(const skr_gemm_job &job, float *stages, const gemm_work &work,
                                                    int row, int col, float (&sum)[ROWS][COLS])
    {
        const gemm_batch z(job, work.z);
        const bool halves = job.gated == SKR_GEMM_HALVES;
        const int64_t k0 = (int64_t)work.first * STEP, along_a = job.a.at.col_stride, along_b = job.b.row;
        side_a a(job.fma.a, (const float *)job.a.at.data + z.a + work.row * job.a.row + k0 * along_a, job.a.row,
                 along_a, job.m - work.row, 0);
        side_b b(job.fma.b,
                 (const float *)job.b.at.data + z.b + (halves ? work.col / 2 : work.col) * job.b.at.col_stride +
                     k0 * along_b,
                 job.b.at.col_stride, along_b, job.n - work.col, halves ? job.n / 2 : 0);
        const uint32_t to = shared_address(stages);
        int left = (int)(min(job.k, (int64_t)work.last * STEP) - k0), steps = work.last - work.first, read_at = 0,
            write_at = STAGES - 1;
        copy_async_wait<0>(); /* of the last tile's, whose last are zeros that no one waited for */
        __syncthreads();      /* no one reads it any more */
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++, left -= STEP) {
            const uint32_t stage = to + s * STAGE * 4;
            a.template fetch<1>(stage, left, 0), b.template fetch<1>(stage + A_FLOATS * 4, left, 0);
            copy_async_commit();
        }
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        float x[2][ROWS], y[2][COLS];
        const float *at = stages;
        read<ROWS, 16>(at + row, x[0]), read<COLS, 32>(at + A_FLOATS + col, y[0]);
#pragma unroll 1
        for (; steps > 0; steps--, left -= STEP) {
            const uint32_t stage = to + write_at * STAGE * 4;
#pragma unroll
            for (int k = 0; k < STEP; k++) {
                if (k == STEP - 1) { /* the next step is there, and no one reads the one before any more */
                    copy_async_wait<STAGES - 2>();
                    __syncthreads();
                    read_at = read_at + 1 < STAGES ? read_at + 1 : 0;
                    at = stages + read_at * STAGE;
                }
                const int next = (k + 1) % STEP;
                read<ROWS, 16>(at + next * side_a::PITCH + row, x[(k + 1) & 1]);
                read<COLS, 32>(at + A_FLOATS + next * side_b::PITCH + col, y[(k + 1) & 1]);
                a.template fetch<side_a::PARTS>(stage, left, k);
                b.template fetch<side_b::PARTS>(stage + A_FLOATS * 4, left, k);
                if (k == STEP / 2) { /* before the wait above */
                    copy_async_commit();
                    write_at = write_at + 1 < STAGES ? write_at + 1 : 0;
                }
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int c = 0; c < COLS; c++) {
                        const int j = i & 1 ? c : COLS - 1 - c; /* there and back: one factor is the last one's */
                        sum[i][j] = __fmaf_rn(x[k & 1][i], y[k & 1][j], sum[i][j]);
                    }
            }
        }
    }

    /* A part of a tile, or one that gemm_finish.cuh writes, in its order. Not the sums themselves, but new numbers: a
     * sum that is stored in a vector has its register beside its neighbour's, and then it and its column's factor are
     * of one bank in every multiplication. */
    __device__ __forceinline__ static void keep(const skr_gemm_job &job, const gemm_work &work, int row, int col,
                                                const float (&sum)[ROWS][COLS])
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int r = row + i % 4 + i / 4 * 16, thread = r % 64 / 16 * 32 + r % 8 * 4;
            char *to = gemm_slot(job, work.slot, r / 64) + thread * 16 + (r & 8);
            if (work.row + r >= job.m)
                continue;
#pragma unroll
            for (int j = 0; j < COLS; j += 2) {
                const int c = col + j % 4 + j / 4 * 32;
                *(float2 *)(to + c / 8 * 2048 + c % 8 * 8) =
                    make_float2(sum[i][j] * job.fma.one, sum[i][j + 1] * job.fma.one);
            }
        }
    }

    /* Nothing but one factor, and rows of d in vectors. */
    __device__ __forceinline__ static void store(const skr_gemm_job &job, const gemm_batch &z, int m, int n,
                                                 const float (&sum)[ROWS][COLS])
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int64_t at = m + i % 4 + i / 4 * 16;
            float *to = (float *)job.d.at.data + z.d + at * job.d.row + n;
#pragma unroll
            for (int j = 0; j < COLS; j += 4) {
                const float *f = &sum[i][j];
                if (at < job.m && n + j * 8 + 4 <= job.n)
                    *(float4 *)(to + j * 8) =
                        make_float4(f[0] * job.alpha, f[1] * job.alpha, f[2] * job.alpha, f[3] * job.alpha);
                else if (at < job.m)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (n + j * 8 + e < job.n)
                            to[j * 8 + e] = f[e] * job.alpha;
            }
        }
    }
};

#endif
