/* gemm_fma.cuh - gemm of f32 on the multiply-add units, true f32: what every GPU runs for larger matrices.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns 128 x 128 of d and walks k in steps of 16: the next step is on its way to shared memory while this one
 * is multiplied. A warp has 64 x 64, a thread 16 x 8 of them in groups of four neighbours each way, so that it reads
 * shared memory 16 bytes at a time; 8 x 8 would read a third more for each product, as much as shared memory gives. */
#ifndef SKR_GEMM_FMA_CUH
#define SKR_GEMM_FMA_CUH

#include "gemm_epilogue.cuh"

struct gemm_fma {
    static constexpr int TILE = 128, STEP = 16, PITCH = TILE + 4, THREADS = SKR_GEMM_FMA_THREADS;
    static constexpr int ROWS = 16, COLS = 8; /* of a thread */

    union shared {
        struct {
            __align__(16) float a[2][STEP][PITCH], b[2][STEP][PITCH];
        } in;
        gemm_sums<float, THREADS> out[2]; /* 64 rows, twice 64 columns */
    };

    /* One operand of a tile. Rows beyond the last repeat it, for what comes of them is not written; k's beyond the last
     * are 0. With k along memory elements go to shared memory one by one, 8 k's of 4 rows for each warp, which meet in
     * no bank; else 4 at a time. */
    struct side {
        const float *data; /* where this thread begins */
        int64_t far, k_stride;
        int room; /* elements that there are from the thread's first on */
        bool along_k;
        static constexpr int FAR = THREADS / 8;

        __device__ __forceinline__ side(const float *tile, int64_t outer_stride, int64_t stride, int64_t left)
            : far(FAR * outer_stride), k_stride(stride), along_k(stride == 1)
        {
            int outer = along_k ? (int)threadIdx.x / 8 : (int)threadIdx.x % 32 * 4;
            int k = along_k ? (int)threadIdx.x % 8 : (int)threadIdx.x / 32;
            room = (int)min(left, (int64_t)TILE) - outer;
            int last = along_k ? outer + room - 1 : (outer + room - 1) & ~3; /* an aligned address, read or not */
            data = tile + k * stride + min(outer, last) * outer_stride;
        }

        /* left: k's that there are from here on. */
        __device__ __forceinline__ void fetch(float (&to)[STEP][PITCH], int left)
        {
            if (along_k) {
                int k = (int)threadIdx.x % 8, outer = (int)threadIdx.x / 8;
#pragma unroll
                for (int i = 0; i < TILE / FAR; i++) {
                    const float *row = data + (FAR * i < room ? i * far : 0);
#pragma unroll
                    for (int h = 0; h < STEP; h += 8)
                        copy_async4_or_zero(shared_address(&to[k + h][outer + FAR * i]), row + h, k + h < left);
                }
            } else {
                int k = (int)threadIdx.x / 32, outer = (int)threadIdx.x % 32 * 4, bytes = max(min(room * 4, 16), 0);
#pragma unroll
                for (int h = 0; h < STEP; h += THREADS / 32)
                    copy_async16_part(shared_address(&to[k + h][outer]), data + h * k_stride, k + h < left ? bytes : 0);
            }
            data += STEP * k_stride;
        }
    };

    /* Groups of four, spread over 64. */
    template <int N> __device__ __forceinline__ static void read(const float *p, float (&f)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 v = *(const float4 *)(p + i * (16 / (N / 4)));
            f[i] = v.x, f[i + 1] = v.y, f[i + 2] = v.z, f[i + 3] = v.w;
        }
    }

    /* Tiles go down 8 rows of them, then right. */
    __device__ __forceinline__ static void place(int t, int tm, int tn, int &batch, int &m0, int &n0)
    {
        batch = t / (tm * tn), t -= batch * tm * tn;
        int g = t / (8 * tn), rows = min(8, tm - g * 8);
        t -= g * 8 * tn;
        m0 = (g * 8 + t % rows) * TILE, n0 = t / rows * TILE;
    }

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        __shared__ shared s;
        wait_for_previous();
        let_next_start();
        int tn = (int)((job.n + TILE - 1) / TILE), tm = (int)((job.m + TILE - 1) / TILE), batch, m0, n0;
        place((int)blockIdx.x, tm, tn, batch, m0, n0);
        float sum[ROWS][COLS] = {};
        const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
        const int row = warp % 2 * 64 + lane / 8 * 4, col = warp / 2 * 64 + lane % 8 * 4;
        multiply(job, s, gemm_batch(job, batch), m0, n0, row, col, sum);
        if (job.work.plain) {
            store(job, gemm_batch(job, batch), m0 + row, n0 + col, sum);
            return;
        }
#pragma unroll 1
        for (int h = 0; h < 2; h++) { /* 64 rows: half of the warps */
            __syncthreads();
            if (row / 64 == h)
                stage(s.out[col / 64], row % 64, col % 64, sum);
            __syncthreads();
#pragma unroll 1
            for (int q = 0; q < 2; q++) {
                int m = m0 + h * 64, n = n0 + q * 64;
                if (m < job.m && n < job.n)
                    s.out[q].write(job, gemm_batch(job, batch), m, n, batch * job.m_tiles + m / 64);
            }
        }
    }

    __device__ __forceinline__ static void multiply(const skr_gemm_job &job, shared &s, const gemm_batch &z, int m0,
                                                    int n0, int row, int col, float (&sum)[ROWS][COLS])
    {
        side a((const float *)job.a.at.data + z.a + m0 * job.a.row, job.a.row, job.a.at.col_stride, job.m - m0);
        side b((const float *)job.b.at.data + z.b + n0 * job.b.at.col_stride, job.b.at.col_stride, job.b.row,
               job.n - n0);
        int left = (int)job.k, at = 0;
        a.fetch(s.in.a[0], left), b.fetch(s.in.b[0], left);
        copy_async_commit();
#pragma unroll 1
        for (; left > 0; left -= STEP, at ^= 1) {
            copy_async_wait<0>();
            __syncthreads(); /* this step is there, and no one reads the one before any more */
            if (left > STEP)
                a.fetch(s.in.a[at ^ 1], left - STEP), b.fetch(s.in.b[at ^ 1], left - STEP);
            copy_async_commit();
#pragma unroll
            for (int k = 0; k < STEP; k++) {
                float x[ROWS], y[COLS];
                read(&s.in.a[at][k][row], x);
                read(&s.in.b[at][k][col], y);
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int j = 0; j < COLS; j++)
                        sum[i][j] = __fmaf_rn(x[i], y[j], sum[i][j]);
            }
        }
    }

    __device__ __forceinline__ static void stage(gemm_sums<float, THREADS> &out, int row, int col,
                                                 const float (&sum)[ROWS][COLS])
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j += 4)
                *(float4 *)&out.at[row + i % 4 + i / 4 * 16][col + j * 8] =
                    make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
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
