/* embedding_sm80.cu - rows of a table by index on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row belongs to 2^lane_bits threads, several rows to a block; a thread has four accesses under way: of one row, or
 * of four short ones. */
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

template <bool COPY, int V> SKR_DEVICE void embedding(const skr_embedding_job &job)
{
    constexpr int UNROLL = 4;
    wait_for_previous();
    let_next_start();
    /* No signs: a step beyond the end of a row of nearly 2^31 accesses must not wrap. */
    const uint32_t lanes = 1u << job.lane_bits, lane = threadIdx.x & (lanes - 1), vectors = (uint32_t)job.vectors;
    int groups = SKR_EMBED_THREADS >> job.lane_bits;
    int from = COPY ? 16 : V * skr_type_bytes(job.table.type), to = COPY ? 16 : V * skr_type_bytes(job.out.type);
    for (int64_t row = (int64_t)blockIdx.x * groups + (threadIdx.x >> job.lane_bits); row < job.rows.m;
         row += (int64_t)gridDim.x * groups) {
        int64_t id = id_at<false>(job, row);
        bool good = id >= 0 && id < job.v;
        if (!good && lane == 0)
            *job.head.error_word = SKR_BAD_INDEX;
        const char *x = (const char *)job.table.data + id * job.table.stride * skr_type_bytes(job.table.type);
        char *y = (char *)job.out.data + offset_of<false>(job, job.out, row) * skr_type_bytes(job.out.type);
        for (uint32_t first = lane; first < vectors; first += lanes * UNROLL) {
            access<COPY, V> a[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                uint32_t i = first + u * lanes;
                a[u].zero();
                if (good && i < vectors)
                    a[u].load(job, x + (int64_t)i * from);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                uint32_t i = first + u * lanes;
                if (i < vectors)
                    a[u].store(job, y + (int64_t)i * to);
            }
        }
    }
}

/* Rows of one stride and at most one vector a thread: ids of all rows are asked for first, then all vectors. */
SKR_DEVICE void embedding_short(const skr_embedding_job &job)
{
    constexpr int ROWS = SKR_EMBED_SHORT;
    wait_for_previous();
    let_next_start();
    int lane = threadIdx.x & ((1 << job.lane_bits) - 1), groups = SKR_EMBED_THREADS >> job.lane_bits;
    int bytes = skr_type_bytes(job.table.type);
    int64_t row = (int64_t)blockIdx.x * (groups * ROWS) + (threadIdx.x >> job.lane_bits), id[ROWS];
    if (lane >= job.vectors)
        return;
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        id[k] = row + k * groups < job.rows.m ? id_at<true>(job, row + k * groups) : 0;
    uint4 raw[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        raw[k] = make_uint4(0, 0, 0, 0);
        if (id[k] >= 0 && id[k] < job.v)
            raw[k] = load16((const char *)job.table.data + id[k] * job.table.stride * bytes + 16 * lane);
    }
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        if (row + k * groups < job.rows.m) {
            if (!(id[k] >= 0 && id[k] < job.v) && lane == 0)
                *job.head.error_word = SKR_BAD_INDEX;
            store16_once((char *)job.out.data + offset_of<true>(job, job.out, row + k * groups) * bytes + 16 * lane,
                         raw[k]);
        }
}

#define KERNEL(name, ...)                                                                                              \
    extern "C" __global__ void __launch_bounds__(SKR_EMBED_THREADS)                                                    \
        skr_embedding_##name(const __grid_constant__ skr_embedding_job job)                                            \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }
KERNEL(copy, embedding<true, 1>)
KERNEL(copy_short, embedding_short)
KERNEL(convert4, embedding<false, 4>)
KERNEL(any, embedding<false, 1>)
