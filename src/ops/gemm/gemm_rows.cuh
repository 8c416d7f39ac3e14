/* gemm_rows.cuh - gemm of up to 16 rows of a, f16 or bf16, k along memory in a and b: the speed of reading b.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns 32 columns of b and all of their k, which its 16 warps take in turn, 128 k (256 bytes of each column) at
 * a time. Nothing passes through shared memory on the way in: the order of k in a sum is free, so what one lane reads,
 * 8 neighbours along k, is what it gives to two matrix instructions; a's rows are read in the same pattern. The warps'
 * sums are added in order at the end. b's columns are the rows of the instruction, a's rows its columns. */
#ifndef SKR_GEMM_ROWS_CUH
#define SKR_GEMM_ROWS_CUH

#include "../../cuda/mma.cuh"
#include "gemm_epilogue.cuh"

template <int T> struct gemm_rows {
    static constexpr int COLUMNS = SKR_GEMM_ROWS_COLUMNS, MOST = SKR_GEMM_ROWS_MOST, WARPS = 16, UNROLL = 4;
    static constexpr int CHUNK = 32 * UNROLL;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        __shared__ float part[WARPS][COLUMNS][MOST];
        wait_for_previous();
        let_next_start();
        int lane = threadIdx.x & 31, g = lane / 4, q = lane % 4, warp = threadIdx.x / 32;
        int64_t blocks = (job.n + COLUMNS - 1) / COLUMNS, batch = blockIdx.x / blocks;
        int64_t n0 = (blockIdx.x - batch * blocks) * COLUMNS;
        const gemm_batch z(job, batch);
        const char *w[4], *x[2]; /* columns and rows out of range repeat the last one; their sums are not written */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t n = gemm_column(job, min(n0 + i * 8 + g, job.n - 1));
            w[i] = (const char *)job.b.at.data + (z.b + n * job.b.at.col_stride) * 2;
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            x[i] = (const char *)job.a.at.data + (z.a + min((int64_t)(i * 8 + g), job.m - 1) * job.a.row) * 2;
        float d[2][2][4] = {};
        for (int64_t k0 = warp * CHUNK; k0 < job.k; k0 += WARPS * CHUNK) {
            uint4 wide[4][UNROLL], few[2][UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int64_t k = k0 + u * 32 + q * 8; /* k is a multiple of 8 */
                bool in = k < job.k;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    wide[i][u] = in ? load16_once(w[i] + k * 2) : make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    few[i][u] = in ? load16(x[i] + k * 2) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const uint4 &lo = wide[2 * i][u], &hi = wide[2 * i + 1][u];
                    const uint32_t first[4] = {lo.x, hi.x, lo.y, hi.y}, second[4] = {lo.z, hi.z, lo.w, hi.w};
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        mma_k16<T>(d[i][j], first, few[j][u].x, few[j][u].y);
                        mma_k16<T>(d[i][j], second, few[j][u].z, few[j][u].w);
                    }
                }
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *(float2 *)&part[warp][i * 16 + h * 8 + g][j * 8 + q * 2] =
                        make_float2(d[i][j][2 * h], d[i][j][2 * h + 1]);
        __syncthreads();
        int m = threadIdx.x / (COLUMNS / 2), c = threadIdx.x % (COLUMNS / 2) * 2;
        int64_t n = n0 + c;
        if (m >= job.m || n >= job.n)
            return;
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            sum[0] += part[i][c][m], sum[1] += part[i][c + 1][m];
        gemm_finish_pair(job, z, m, n, n + 1 < job.n, sum);
    }
};

#endif
