/* stream_sm80.cu - the bandwidth probe on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile is U accesses of each thread, all loads of a tile under way before the first is used. W is the width of
 * an access: 16 bytes, or 8 where a pointer is aligned to no more. */
#include "../../cuda/device.cuh"
#include "stream.h"
#include "stream_shape.h"

template <int W> struct lane_word;
template <> struct lane_word<16> {
    uint4 v;
    SKR_DEVICE lane_word fill()
    {
        return {make_uint4(0x5a5a5a5au, 0x5a5a5a5au, 0x5a5a5a5au, 0x5a5a5a5au)};
    }
    SKR_DEVICE lane_word load(const void *p)
    {
        return {load16_once(p)};
    }
    __device__ __forceinline__ void store(void *p) const
    {
        store16_once(p, v);
    }
    __device__ __forceinline__ void join(const lane_word &b)
    {
        v.x ^= b.v.x, v.y ^= b.v.y, v.z ^= b.v.z, v.w ^= b.v.w;
    }
    __device__ __forceinline__ uint64_t fold() const
    {
        return (uint64_t)(v.y ^ v.w) << 32 | (v.x ^ v.z);
    }
};
template <> struct lane_word<8> {
    uint2 v;
    SKR_DEVICE lane_word fill()
    {
        return {make_uint2(0x5a5a5a5au, 0x5a5a5a5au)};
    }
    SKR_DEVICE lane_word load(const void *p)
    {
        return {load8_once(p)};
    }
    __device__ __forceinline__ void store(void *p) const
    {
        store8_once(p, v);
    }
    __device__ __forceinline__ void join(const lane_word &b)
    {
        v.x ^= b.v.x, v.y ^= b.v.y;
    }
    __device__ __forceinline__ uint64_t fold() const
    {
        return (uint64_t)v.y << 32 | v.x;
    }
};

/* Exclusive-or over the block; thread 0 has it. */
SKR_DEVICE uint64_t block_xor(uint64_t f)
{
    __shared__ uint64_t partial[SKR_STREAM_THREADS / 32];
    for (int k = 16; k > 0; k /= 2)
        f ^= __shfl_xor_sync(0xffffffffu, f, k);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = f;
    __syncthreads();
    f = 0;
    for (int k = 0; k < SKR_STREAM_THREADS / 32; k++)
        f ^= partial[k];
    return f;
}

template <int W, int INPUTS, int U> SKR_DEVICE void stream(const skr_stream_job &job)
{
    constexpr int64_t tile = (int64_t)SKR_STREAM_THREADS * U * W;
    wait_for_previous();
    let_next_start();
    uint64_t sum = 0;
    for (int64_t first = blockIdx.x * tile; first < job.bytes; first += gridDim.x * tile) {
        int64_t at = first + threadIdx.x * W;
        lane_word<W> word[U], in[INPUTS > 0 ? INPUTS : 1][U];
#pragma unroll
        for (int k = 0; k < INPUTS; k++)
#pragma unroll
            for (int i = 0; i < U; i++) {
                in[k][i] = {};
                if (at + i * SKR_STREAM_THREADS * W < job.bytes)
                    in[k][i] = lane_word<W>::load((const char *)job.x[k] + at + i * SKR_STREAM_THREADS * W);
            }
#pragma unroll
        for (int i = 0; i < U; i++) {
            word[i] = INPUTS > 0 ? in[0][i] : lane_word<W>::fill();
#pragma unroll
            for (int k = 1; k < INPUTS; k++)
                word[i].join(in[k][i]);
            sum ^= word[i].fold();
        }
        for (int k = 0; k < job.n_out; k++)
#pragma unroll
            for (int i = 0; i < U; i++)
                if (at + i * SKR_STREAM_THREADS * W < job.bytes)
                    word[i].store((char *)job.y[k] + at + i * SKR_STREAM_THREADS * W);
    }
    if (job.checksum) {
        sum = block_xor(INPUTS > 0 ? sum : 0);
        if (threadIdx.x == 0)
            ((uint64_t *)job.head.workspace)[blockIdx.x] = sum;
    }
}

#define KERNEL(width, inputs)                                                                                          \
    extern "C" __global__ void __launch_bounds__(SKR_STREAM_THREADS)                                                   \
        skr_stream_##width##_##inputs(const __grid_constant__ skr_stream_job job)                                      \
    {                                                                                                                  \
        if (job.checksum)                                                                                              \
            stream<width, inputs, SKR_STREAM_UNROLL>(job);                                                             \
        else                                                                                                           \
            stream<width, inputs, 1>(job);                                                                             \
    }
KERNEL(16, 0)
KERNEL(16, 1)
KERNEL(16, 2)
KERNEL(16, 3)
KERNEL(16, 4)
KERNEL(8, 0)
KERNEL(8, 1)
KERNEL(8, 2)
KERNEL(8, 3)
KERNEL(8, 4)

/* The checksums of the blocks, n_tasks of them. */
extern "C" __global__ void __launch_bounds__(SKR_STREAM_THREADS)
    skr_stream_fold(const __grid_constant__ skr_stream_job job)
{
    wait_for_previous();
    let_next_start();
    uint64_t sum = 0;
    for (int64_t i = threadIdx.x; i < job.n_tasks; i += SKR_STREAM_THREADS)
        sum ^= ((const uint64_t *)job.head.workspace)[i];
    sum = block_xor(sum);
    if (threadIdx.x == 0)
        *job.checksum = (int64_t)sum;
}
