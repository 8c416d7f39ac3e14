/* gemm_any.cuh - gemm of any types, strides and options, on the multiply-add units.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns 64 x 64 of d (virtual columns, gemm_epilogue.cuh) and walks k in steps of 16 through shared memory; a
 * thread has 4 x 4 of it. Operands become f32 (or stay integers) on their way to shared memory, scaled there where
 * scales change along k. */
#ifndef SKR_GEMM_ANY_CUH
#define SKR_GEMM_ANY_CUH

#include "gemm_groups.cuh"

SKR_DEVICE int32_t gemm_int(int type, const void *data, int64_t i)
{
    if (type == SKR_I4) { /* two to a byte, the lower one first */
        int32_t byte = ((const uint8_t *)data)[i >> 1];
        return (int32_t)((uint32_t)(i & 1 ? byte >> 4 : byte) << 28) >> 28;
    }
    return type == SKR_I8 ? ((const int8_t *)data)[i] : ((const int32_t *)data)[i];
}

SKR_DEVICE float gemm_float(int type, const void *data, int64_t i)
{
    if (type == SKR_I8 || type == SKR_I4)
        return (float)gemm_int(type, data, i);
    if (type == SKR_E4M3)
        return value_of<SKR_E4M3>(((const uint8_t *)data)[i]);
    if (type == SKR_E5M2)
        return value_of<SKR_E5M2>(((const uint8_t *)data)[i]);
    return any_load1(type, (const char *)data + i * skr_type_bytes(type));
}

template <class S> struct gemm_any {
    static constexpr int SIDE = SKR_GEMM_SIDE, STEP = 16, THREADS = 256;
    static constexpr bool INTS = S(0.5) == S(0); /* int32_t, or float */
    static constexpr int64_t CHAIN = 1024;       /* products in one chain of f32 roundings */

    union shared {
        struct {
            __align__(16) S a[STEP][SIDE + 4], b[STEP][SIDE + 4];
        } in;
        gemm_sums<S> out;
    };

    const skr_gemm_job &job;
    const gemm_batch z;
    int64_t m0, n0;

    __device__ __forceinline__ gemm_any(const skr_gemm_job &j, int64_t batch, int64_t row, int64_t col)
        : job(j), z(j, batch), m0(row), n0(col)
    {
    }

    __device__ __forceinline__ S a_at(int64_t m, int64_t k) const
    {
        m = gemm_a_row(job, z, m);
        if (m < 0)
            return S(0);
        int64_t i = z.a + m * job.a.row + k * job.a.at.col_stride;
        if constexpr (INTS)
            return gemm_int(job.a.at.type, job.a.at.data, i);
        float f = gemm_float(job.a.at.type, job.a.at.data, i);
        if (job.scaling == SKR_GEMM_BLOCK && job.a_scale.at.data)
            f *= ((const float *)job.a_scale.at
                      .data)[z.a_scale + m * job.a_scale.row + k / SKR_GEMM_SCALE_BLOCK * job.a_scale.at.col_stride];
        return (S)f;
    }

    __device__ __forceinline__ S b_at(int64_t k, int64_t n) const
    {
        int64_t i = z.b + k * job.b.row + n * job.b.at.col_stride;
        if constexpr (INTS)
            return gemm_int(job.b.at.type, job.b.at.data, i);
        float f = gemm_float(job.b.at.type, job.b.at.data, i);
        bool blocks = job.scaling == SKR_GEMM_BLOCK, groups = job.scaling == SKR_GEMM_GROUP;
        int64_t down = blocks ? k / SKR_GEMM_SCALE_BLOCK : groups ? k / job.group : 0;
        if (groups && job.b_zero.at.data)
            f -= gemm_float(job.b_zero.at.type, job.b_zero.at.data,
                            z.b_zero + down * job.b_zero.row + n * job.b_zero.at.col_stride);
        if ((blocks || groups) && job.b_scale.at.data)
            f *= ((const float *)
                      job.b_scale.at.data)[z.b_scale + down * job.b_scale.row +
                                           (blocks ? n / SKR_GEMM_SCALE_BLOCK : n) * job.b_scale.at.col_stride];
        return (S)f;
    }

    /* The thread that is next to a neighbour in memory loads next to it: along k or along the other dimension. */
    __device__ __forceinline__ void fetch(shared &s, int64_t k0) const
    {
        bool a_along_k = job.a.at.col_stride == 1, b_along_k = job.b.row == 1;
#pragma unroll 1
        for (int t = (int)threadIdx.x; t < SIDE * STEP; t += THREADS) {
            int k = a_along_k ? t % STEP : t / SIDE, i = a_along_k ? t / STEP : t % SIDE;
            bool in = k0 + k < z.k && m0 + i < z.m;
            s.in.a[k][i] = in ? a_at(m0 + i, k0 + k) : S(0);
            k = b_along_k ? t % STEP : t / SIDE, i = b_along_k ? t / STEP : t % SIDE;
            in = k0 + k < z.k && n0 + i < job.n;
            s.in.b[k][i] = in ? b_at(k0 + k, gemm_column(job, n0 + i)) : S(0);
        }
    }

    __device__ __forceinline__ static S multiply_add(S a, S b, S c)
    {
        if constexpr (INTS)
            return (S)((uint32_t)a * (uint32_t)b + (uint32_t)c);
        else
            return __fmaf_rn(a, b, c);
    }

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        __shared__ shared s;
        wait_for_previous();
        let_next_start();
        int row = (int)threadIdx.x / 16 * 4, col = (int)threadIdx.x % 16 * 4;
        const int64_t each = job.m_tiles * job.n_tiles, all = each * job.batch.m;
        gemm_group_walk groups;
        gemm_tile_at t;
        for (int64_t i = blockIdx.x; job.groups.of ? groups.next(job, STEP, t) : i < all; i += gridDim.x) {
            int64_t batch = job.groups.of ? t.z : i / each, rest = i % each;
            gemm_any g(job, batch, job.groups.of ? t.row : rest / job.n_tiles * SIDE,
                       job.groups.of ? t.col : rest % job.n_tiles * SIDE);
            S sum[4][4] = {}, chain[4][4] = {};
            for (int64_t k0 = 0; k0 < g.z.k; k0 += STEP) {
                g.fetch(s, k0);
                __syncthreads();
#pragma unroll
                for (int k = 0; k < STEP; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            chain[i][j] = multiply_add(s.in.a[k][row + i], s.in.b[k][col + j], chain[i][j]);
                __syncthreads();
                if ((k0 + STEP) % CHAIN == 0)
                    add(sum, chain);
            }
            add(sum, chain);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s.out.at[row + i][col + j] = sum[i][j];
            __syncthreads();
            s.out.write(job, g.z, g.m0, g.n0, batch * job.m_tiles + g.m0 / SIDE);
            __syncthreads();
        }
    }

    __device__ __forceinline__ static void add(S (&sum)[4][4], S (&chain)[4][4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[i][j] = multiply_add(chain[i][j], S(1), sum[i][j]);
                chain[i][j] = S(0);
            }
    }
};

#endif
