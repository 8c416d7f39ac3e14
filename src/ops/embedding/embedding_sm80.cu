/* embedding_sm80.cu - rows of a table by index on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row belongs to job.lanes threads, several rows to a block; a thread has four accesses under way: of one row, or of
 * four short rows that have one each. */
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

/* ROWS: rows of a thread at once, 1, or 4 with one stride. */
template <bool COPY, int V, int ROWS> SKR_DEVICE void embedding(const skr_embedding_job &job)
{
    constexpr int UNROLL = 4;
    wait_for_previous();
    let_next_start();
    int lane = (int)threadIdx.x % job.lanes, groups = SKR_EMBED_THREADS / job.lanes;
    int from = COPY ? 16 : V * skr_type_bytes(job.table.type), to = COPY ? 16 : V * skr_type_bytes(job.out.type);
    int vectors = (int)(job.d / job.vec);
    for (int64_t base = (int64_t)blockIdx.x * groups * ROWS + threadIdx.x / job.lanes; base < job.rows.m;
         base += (int64_t)gridDim.x * groups * ROWS) {
        const char *x[ROWS];
        char *y[ROWS];
        bool good[ROWS], in[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int64_t row = base + r * groups, id = -1;
            in[r] = row < job.rows.m;
            if (in[r])
                id = id_at<(ROWS > 1)>(job, row);
            good[r] = id >= 0 && id < job.v;
            if (in[r] && !good[r] && lane == 0)
                *job.head.error_word = SKR_BAD_INDEX;
            x[r] = (const char *)job.table.data + id * job.table.stride * skr_type_bytes(job.table.type);
            y[r] = (char *)job.out.data +
                   offset_of<(ROWS > 1)>(job, job.out, in[r] ? row : 0) * skr_type_bytes(job.out.type);
        }
        for (int first = lane; first < vectors; first += job.lanes * UNROLL) {
            access<COPY, V> a[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int r = ROWS > 1 ? u : 0, i = ROWS > 1 ? first : first + u * job.lanes;
                a[u].zero();
                if (good[r] && i < vectors)
                    a[u].load(job, x[r] + (int64_t)i * from);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int r = ROWS > 1 ? u : 0, i = ROWS > 1 ? first : first + u * job.lanes;
                if (in[r] && i < vectors)
                    a[u].store(job, y[r] + (int64_t)i * to);
            }
        }
    }
}

#define KERNEL(name, copy, v, rows)                                                                                          \
    extern "C" __global__ void __launch_bounds__(SKR_EMBED_THREADS)                                                    \
        skr_embedding_##name(const __grid_constant__ skr_embedding_job job)                                            \
    {                                                                                                                  \
        embedding<copy, v, rows>(job);                                                                                       \
    }
KERNEL(copy, true, 1, 1)
KERNEL(copy_rows, true, 1, 4)
KERNEL(convert4, false, 4, 1)
KERNEL(any, false, 1, 1)
