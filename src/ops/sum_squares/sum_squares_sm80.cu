/* sum_squares_sm80.cu - sums of squares on the GPU: one partial sum a block, then one block adds them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/device.cuh"
#include "sum_squares.h"

enum { THREADS = SKR_SQUARES_THREADS, UNROLL = SKR_SQUARES_UNROLL };

template <int T> SKR_DEVICE float one(const char *p)
{
    return any_load1(T, p);
}

/* A tile is UNROLL accesses of 16 bytes a thread (WIDE) or of one element. */
template <int T, bool WIDE> SKR_DEVICE void sum_squares(const skr_sum_squares_job &job)
{
    constexpr int V = WIDE ? skr_elem<T>::vec : 1, bytes = skr_elem<T>::bytes;
    __shared__ __align__(16) float partial[THREADS / 32];
    wait_for_previous();
    let_next_start();
    float sum[V] = {};
    for (int64_t tile = blockIdx.x; tile < job.rows.m * job.pieces; tile += gridDim.x) {
        int64_t row = job.rows.m == 1 ? 0 : tile / job.pieces;
        const char *x = (const char *)job.x.data + skr_row_offset(&job.rows, job.x.stride, row) * bytes;
        int64_t first = ((tile - row * job.pieces) * UNROLL * THREADS + threadIdx.x) * V;
        if constexpr (WIDE) {
            uint4 raw[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int64_t i = first + u * THREADS * V;
                raw[u] = i + V <= job.n ? load16_once(x + i * bytes) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float f[V];
                unpack<T>(raw[u], f);
#pragma unroll
                for (int k = 0; k < V; k++)
                    sum[k] = __fmaf_rn(f[k], f[k], sum[k]);
            }
            /* The last elements of a row that fill no vector: the thread whose vector is cut takes them. */
            int64_t cut = job.n / V * V;
            for (int u = 0; u < UNROLL; u++)
                if (first + u * THREADS * V == cut)
                    for (int64_t i = cut; i < job.n; i++)
                        sum[0] = __fmaf_rn(one<T>(x + i * bytes), one<T>(x + i * bytes), sum[0]);
        } else {
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int64_t i = first + u * THREADS;
                float f = i < job.n ? one<T>(x + i * bytes) : 0.0f;
                sum[0] = __fmaf_rn(f, f, sum[0]);
            }
        }
    }
    float all = sum[0];
#pragma unroll
    for (int k = 1; k < V; k++)
        all += sum[k];
    double total = (double)block_reduce<skr_sum, THREADS / 32>(all, partial);
    if (threadIdx.x == 0)
        ((double *)job.head.workspace)[blockIdx.x] = total;
}

#define KERNEL(name, type)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        skr_sum_squares_##name##_wide(const __grid_constant__ skr_sum_squares_job job)                                 \
    {                                                                                                                  \
        sum_squares<type, true>(job);                                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        skr_sum_squares_##name##_any(const __grid_constant__ skr_sum_squares_job job)                                  \
    {                                                                                                                  \
        sum_squares<type, false>(job);                                                                                 \
    }
KERNEL(f32, SKR_F32)
KERNEL(f16, SKR_F16)
KERNEL(bf16, SKR_BF16)

extern "C" __global__ void __launch_bounds__(THREADS)
    skr_sum_squares_fold(const __grid_constant__ skr_sum_squares_job job)
{
    __shared__ double sums[THREADS];
    wait_for_previous();
    let_next_start();
    double sum = 0;
    for (int64_t i = threadIdx.x; i < job.parts; i += THREADS)
        sum += ((const double *)job.head.workspace)[i];
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *job.out = (float)(job.accumulate ? (double)*job.out + sums[0] : sums[0]);
}
