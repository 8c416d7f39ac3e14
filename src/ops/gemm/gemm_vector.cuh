/* gemm_vector.cuh - gemm of f32 with up to 8 rows of a, at the speed of reading b.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns a few columns and all of their k, which its threads share; nothing passes through shared memory on the
 * way in, and UNROLL loads of b are on their way in each thread. ALONG_K: k runs along memory in a and b, and a thread
 * takes 4 neighbouring k's of each of 4 columns. Else n does in b, and a thread takes 4 neighbouring columns of one k
 * after the other; 4 lanes are 16 columns. */
#ifndef SKR_GEMM_VECTOR_CUH
#define SKR_GEMM_VECTOR_CUH

#include "gemm_epilogue.cuh"

template <int ROWS, bool ALONG_K> struct gemm_vector {
    static constexpr int THREADS = SKR_GEMM_VECTOR_THREADS, WARPS = THREADS / 32;
    static constexpr int COLUMNS = ALONG_K ? SKR_GEMM_VECTOR_COLUMNS_K : SKR_GEMM_VECTOR_COLUMNS_N;
    static constexpr int UNROLL = !ALONG_K ? 8 : ROWS == 1 ? 4 : ROWS == 4 ? 2 : 1;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        __shared__ float part[WARPS][ROWS][COLUMNS];
        wait_for_previous();
        let_next_start();
        int64_t blocks = (job.n + COLUMNS - 1) / COLUMNS, batch = blockIdx.x / blocks;
        int64_t n0 = (blockIdx.x - batch * blocks) * COLUMNS;
        const gemm_batch z(job, batch);
        const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
        float sum[ROWS][4] = {};
        if constexpr (ALONG_K)
            along_k(job, z, n0, sum);
        else
            along_n(job, z, n0, sum);
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
#pragma unroll
                for (int far = 16; far >= (ALONG_K ? 1 : 4); far /= 2)
                    sum[m][c] += __shfl_xor_sync(0xffffffffu, sum[m][c], far);
                if (lane < COLUMNS / 4)
                    part[warp][m][lane * 4 + c] = sum[m][c];
            }
        __syncthreads();
        const int m = (int)threadIdx.x / (COLUMNS / 2), c = (int)threadIdx.x % (COLUMNS / 2) * 2;
        if (m >= ROWS || m >= job.m || n0 + c >= job.n)
            return;
        float x[2] = {0.0f, 0.0f};
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            x[0] += part[w][m][c], x[1] += part[w][m][c + 1];
        gemm_finish_pair(job, z, m, n0 + c, n0 + c + 1 < job.n, x);
    }

    /* Four neighbours, or zeros. b is read once, a by every block. */
    template <bool ONCE> __device__ __forceinline__ static void read(const float *p, bool there, float (&f)[4])
    {
        unpack<SKR_F32>(!there ? make_uint4(0, 0, 0, 0) : ONCE ? load16_once(p) : load16(p), f);
    }

    /* Rows and columns out of range repeat the last one; their sums are not written. K is a multiple of 4. */
    __device__ __forceinline__ static void along_k(const skr_gemm_job &job, const gemm_batch &z, int64_t n0,
                                                   float (&sum)[ROWS][4])
    {
        const float *a[ROWS], *b[4];
#pragma unroll
        for (int m = 0; m < ROWS; m++)
            a[m] = (const float *)job.a.at.data + z.a + min((int64_t)m, job.m - 1) * job.a.row;
#pragma unroll
        for (int c = 0; c < 4; c++)
            b[c] = (const float *)job.b.at.data + z.b + gemm_column(job, min(n0 + c, job.n - 1)) * job.b.at.col_stride;
        for (int64_t k0 = threadIdx.x * 4; k0 < job.k; k0 += THREADS * 4 * UNROLL) {
            float x[UNROLL][ROWS][4], y[UNROLL][4][4];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const int64_t k = k0 + u * THREADS * 4;
#pragma unroll
                for (int c = 0; c < 4; c++)
                    read<true>(b[c] + k, k < job.k, y[u][c]);
#pragma unroll
                for (int m = 0; m < ROWS; m++)
                    read<false>(a[m] + k, k < job.k, x[u][m]);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int m = 0; m < ROWS; m++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            sum[m][c] = __fmaf_rn(x[u][m][i], y[u][c][i], sum[m][c]);
        }
    }

    /* N is a multiple of 4. */
    __device__ __forceinline__ static void along_n(const skr_gemm_job &job, const gemm_batch &z, int64_t n0,
                                                   float (&sum)[ROWS][4])
    {
        constexpr int KS = THREADS / 4;
        const int64_t n = min(n0 + threadIdx.x % 4 * 4, job.n - 4);
        const float *a = (const float *)job.a.at.data + z.a, *b = (const float *)job.b.at.data + z.b + n;
        for (int64_t k0 = threadIdx.x / 4; k0 < job.k; k0 += KS * UNROLL) {
            float x[UNROLL][ROWS], y[UNROLL][4];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const int64_t k = k0 + u * KS;
                read<true>(b + k * job.b.row, k < job.k, y[u]);
#pragma unroll
                for (int m = 0; m < ROWS; m++)
                    x[u][m] = k < job.k ? a[min((int64_t)m, job.m - 1) * job.a.row + k * job.a.at.col_stride] : 0.0f;
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int m = 0; m < ROWS; m++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        sum[m][c] = __fmaf_rn(x[u][m], y[u][c], sum[m][c]);
        }
    }
};

#endif
