/* embedding_sm80.cu - rows of a table by index on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row belongs to 2^lane_bits threads, several rows to a block; a thread has four accesses under way. Short rows have
 * one a thread and many threads. */
#include "../../cuda/device.cuh"
#include "embedding.h"

/* ONE: rows have one stride. */
template <bool ONE> SKR_DEVICE int64_t offset_of(const skr_embedding_job &job, const skr_rows &t, int64_t row)
{
    return ONE ? row * t.stride[0] : skr_row_offset(&job.rows, t.stride, row);
}

template <bool ONE> SKR_DEVICE int64_t id_at(const skr_embedding_job &job, int64_t row)
{
    int64_t at = offset_of<ONE>(job, job.ids, row);
    return job.ids.type == SKR_I32 ? ((const int32_t *)job.ids.data)[at] : ((const int64_t *)job.ids.data)[at];
}

/* One access of V elements; COPY: 16 bytes as they are. */
template <bool COPY, int V> struct access {
    uint4 raw;
    float f[COPY ? 1 : V];
    __device__ __forceinline__ void load(const skr_embedding_job &job, const char *p)
    {
        if constexpr (COPY)
            raw = load16(p);
        else if constexpr (V == 1)
            f[0] = any_load1(job.table.type, p);
        else
            any_load<V>(job.table.type, p, f);
    }
    __device__ __forceinline__ void zero()
    {
        raw = make_uint4(0, 0, 0, 0);
        for (int k = 0; k < (COPY ? 1 : V); k++)
            f[k] = 0.0f;
    }
    __device__ __forceinline__ void store(const skr_embedding_job &job, char *p) const
    {
        if constexpr (COPY)
            store16_once(p, raw);
        else if constexpr (V == 1)
            any_store1(job.out.type, p, f[0]);
        else
            any_store<V>(job.out.type, p, f);
    }
};

/* UNROLL: accesses of a thread at once. ONE: see offset_of. */
template <bool COPY, int V, int UNROLL, bool ONE> SKR_DEVICE void embedding(const skr_embedding_job &job)
{
    wait_for_previous();
    let_next_start();
    int lanes = 1 << job.lane_bits, lane = threadIdx.x & (lanes - 1), groups = SKR_EMBED_THREADS >> job.lane_bits;
    int from = COPY ? 16 : V * skr_type_bytes(job.table.type), to = COPY ? 16 : V * skr_type_bytes(job.out.type);
    for (int64_t row = (int64_t)blockIdx.x * groups + (threadIdx.x >> job.lane_bits); row < job.rows.m;
         row += (int64_t)gridDim.x * groups) {
        int64_t id = id_at<ONE>(job, row);
        bool good = id >= 0 && id < job.v;
        if (!good && lane == 0)
            *job.head.error_word = SKR_BAD_INDEX;
        const char *x = (const char *)job.table.data + id * job.table.stride * skr_type_bytes(job.table.type);
        char *y = (char *)job.out.data + offset_of<ONE>(job, job.out, row) * skr_type_bytes(job.out.type);
        for (int first = lane; first < job.vectors; first += lanes * UNROLL) {
            access<COPY, V> a[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int i = first + u * lanes;
                a[u].zero();
                if (good && i < job.vectors)
                    a[u].load(job, x + (int64_t)i * from);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int i = first + u * lanes;
                if (i < job.vectors)
                    a[u].store(job, y + (int64_t)i * to);
            }
        }
    }
}

#define KERNEL(name, copy, v, unroll, one)                                                                             \
    extern "C" __global__ void __launch_bounds__(SKR_EMBED_THREADS)                                                    \
        skr_embedding_##name(const __grid_constant__ skr_embedding_job job)                                            \
    {                                                                                                                  \
        embedding<copy, v, unroll, one>(job);                                                                          \
    }
KERNEL(copy, true, 1, 4, false)
KERNEL(copy_short, true, 1, 1, true)
KERNEL(convert4, false, 4, 4, false)
KERNEL(any, false, 1, 4, false)
