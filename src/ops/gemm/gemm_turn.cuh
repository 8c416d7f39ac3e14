/* gemm_turn.cuh - a copy of a or b in the workspace with k along memory: what the matrix instructions of Hopper want of
 * 8-bit types and tf32.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Blocks take tiles of 64 k's and 64 of the other dimension through shared memory. */
#ifndef SKR_GEMM_TURN_CUH
#define SKR_GEMM_TURN_CUH

#include "gemm_epilogue.cuh"

template <class E> struct gemm_turn {
    static constexpr int SIDE = SKR_GEMM_SIDE, ROWS = 8; /* of 32 threads */

    /* outer: size of the other dimension, which runs along memory. */
    SKR_DEVICE void run(const skr_gemm_job &job, const skr_gemm_matrix &from, int64_t outer, int64_t k_stride,
                        int64_t to_at)
    {
        __shared__ E tile[SIDE][SIDE + 4 / sizeof(E)];
        wait_for_previous();
        let_next_start();
        const int lane = threadIdx.x & 31, row = threadIdx.x / 32;
        const int64_t pitch = job.work.turned_pitch, across = (outer + SIDE - 1) / SIDE,
                      down = (job.k + SIDE - 1) / SIDE;
        const int64_t each = across * down, batch = blockIdx.x / each, i = blockIdx.x - batch * each;
        const int64_t o0 = i % across * SIDE, k0 = i / across * SIDE;
        const E *source = (const E *)from.at.data + gemm_batch::at(job, from, batch);
        E *to = (E *)((char *)job.head.workspace + to_at) + batch * outer * pitch;
#pragma unroll 4
        for (int r = row; r < SIDE; r += ROWS)
#pragma unroll
            for (int c = lane; c < SIDE; c += 32)
                if (k0 + r < job.k && o0 + c < outer)
                    tile[r][c] = source[(k0 + r) * k_stride + o0 + c];
        __syncthreads();
#pragma unroll 4
        for (int r = row; r < SIDE; r += ROWS)
#pragma unroll
            for (int c = lane; c < SIDE; c += 32)
                if (o0 + r < outer && k0 + c < job.k)
                    to[(o0 + r) * pitch + k0 + c] = tile[c][r];
    }

    SKR_DEVICE void a(const skr_gemm_job &job)
    {
        run(job, job.a, job.m, job.a.at.col_stride, job.work.turned_a_at);
    }

    SKR_DEVICE void b(const skr_gemm_job &job)
    {
        run(job, job.b, job.n, job.b.row, job.work.turned_b_at);
    }
};

#endif
