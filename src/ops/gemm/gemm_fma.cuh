/* gemm_fma.cuh - gemm of f32 on the multiply-add units, true f32: what every GPU runs for larger matrices.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns 128 x 128 of d and walks k in steps of 16: the next step is on its way to registers while this one is
 * multiplied from shared memory, which holds two. A thread has 8 x 8 sums, four neighbours each way and four more 64
 * further on, so that a warp reads shared memory 16 bytes at a time without conflicts. */
#ifndef SKR_GEMM_FMA_CUH
#define SKR_GEMM_FMA_CUH

#include "gemm_epilogue.cuh"

struct gemm_fma {
    static constexpr int TILE = 128, STEP = 16, PITCH = TILE + 4, THREADS = 256;

    union shared {
        struct {
            __align__(16) float a[2][STEP][PITCH], b[2][STEP][PITCH];
        } in;
        gemm_sums<float> out[2]; /* 64 rows, twice 64 columns */
    };

    /* One operand of a tile. Inside of the matrix its elements go to shared memory 4 at a time, along k or along the
     * other dimension, by way of registers; at the edges one by one and at once. */
    struct side {
        const float *data; /* the tile's first element */
        int64_t outer_stride, k_stride;
        int room; /* elements of the other dimension in the tile or beyond */
        float4 next[2];

        __device__ __forceinline__ bool inside(int left) const
        {
            return room >= TILE && left >= STEP;
        }

        /* k: the step's first; left: how many there are from there on. */
        __device__ __forceinline__ void fetch(int k, int left)
        {
            if (!inside(left))
                return;
            bool along_k = k_stride == 1;
            int o = along_k ? (int)threadIdx.x / 4 : (int)threadIdx.x % 32 * 4;
            int kk = along_k ? (int)threadIdx.x % 4 * 4 : (int)threadIdx.x / 32;
            const float *p = data + o * outer_stride + (k + kk) * k_stride;
            next[0] = *(const float4 *)p;
            next[1] = *(const float4 *)(p + (along_k ? 64 * outer_stride : 8 * k_stride));
        }

        __device__ __forceinline__ void put(float (&to)[STEP][PITCH], int k, int left) const
        {
            bool along_k = k_stride == 1;
            if (!inside(left)) {
#pragma unroll 1
                for (int e = (int)threadIdx.x; e < TILE * STEP; e += THREADS) {
                    int o = along_k ? e / STEP : e % TILE, kk = along_k ? e % STEP : e / TILE;
                    to[kk][o] = o < room && kk < left ? data[o * outer_stride + (k + kk) * k_stride] : 0.0f;
                }
            } else if (along_k) {
                int o = (int)threadIdx.x / 4, kk = (int)threadIdx.x % 4 * 4;
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    to[kk][o + r * 64] = next[r].x, to[kk + 1][o + r * 64] = next[r].y;
                    to[kk + 2][o + r * 64] = next[r].z, to[kk + 3][o + r * 64] = next[r].w;
                }
            } else {
#pragma unroll
                for (int r = 0; r < 2; r++)
                    *(float4 *)&to[(int)threadIdx.x / 32 + r * 8][(int)threadIdx.x % 32 * 4] = next[r];
            }
        }
    };

    __device__ __forceinline__ static void eight(const float *p, float (&f)[8])
    {
        float4 lo = *(const float4 *)p, hi = *(const float4 *)(p + 64);
        f[0] = lo.x, f[1] = lo.y, f[2] = lo.z, f[3] = lo.w;
        f[4] = hi.x, f[5] = hi.y, f[6] = hi.z, f[7] = hi.w;
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
        const gemm_batch z(job, batch);
        side a = {
            (const float *)job.a.at.data + z.a + m0 * job.a.row, job.a.row, job.a.at.col_stride, (int)(job.m - m0), {}};
        side b = {(const float *)job.b.at.data + z.b + n0 * job.b.at.col_stride,
                  job.b.at.col_stride,
                  job.b.row,
                  (int)(job.n - n0),
                  {}};
        float sum[8][8] = {};
        const int row = (int)threadIdx.x / 16 * 4, col = (int)threadIdx.x % 16 * 4, depth = (int)job.k;
        a.fetch(0, depth), b.fetch(0, depth);
        a.put(s.in.a[0], 0, depth), b.put(s.in.b[0], 0, depth);
        __syncthreads();
        int at = 0;
        for (int k0 = 0; k0 < depth; k0 += STEP, at ^= 1) {
            int after = k0 + STEP, left = depth - after;
            if (left > 0)
                a.fetch(after, left), b.fetch(after, left);
#pragma unroll
            for (int k = 0; k < STEP; k++) {
                float x[8], y[8];
                eight(&s.in.a[at][k][row], x);
                eight(&s.in.b[at][k][col], y);
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        sum[i][j] = __fmaf_rn(x[i], y[j], sum[i][j]);
            }
            if (left > 0)
                a.put(s.in.a[at ^ 1], after, left), b.put(s.in.b[at ^ 1], after, left);
            __syncthreads();
        }
#pragma unroll 1
        for (int h = 0; h < 2; h++) { /* half of the rows: the sums of the other wait in registers */
            if (h == 0)
                stage<0, 0>(s.out[0], row, col, sum), stage<0, 4>(s.out[1], row, col, sum);
            else
                stage<4, 0>(s.out[0], row, col, sum), stage<4, 4>(s.out[1], row, col, sum);
            __syncthreads();
#pragma unroll 1
            for (int q = 0; q < 2; q++) {
                int m = m0 + h * 64, n = n0 + q * 64;
                if (m < job.m && n < job.n)
                    s.out[q].write(job, gemm_batch(job, batch), m, n, batch * job.m_tiles + m / 64);
            }
            __syncthreads();
        }
    }

    template <int I, int J>
    __device__ __forceinline__ static void stage(gemm_sums<float> &out, int row, int col, const float (&sum)[8][8])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(float4 *)&out.at[row + i][col] =
                make_float4(sum[I + i][J], sum[I + i][J + 1], sum[I + i][J + 2], sum[I + i][J + 3]);
    }
};

#endif
