/* chunk.cuh - what kernels share that take any width, any alignment and any mix of types.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rows are walked in chunks of 128 columns, a chunk per warp. A column belongs to the same thread in every pass. V is 4
 * where every tensor allows accesses of four elements, else 1. */
#ifndef SKR_CHUNK_CUH
#define SKR_CHUNK_CUH

#include "owner.cuh"

enum { SKR_CHUNK = 128 };

/* The columns of this lane in one chunk, and access to them. */
template <int V> struct chunk {
    int64_t base, n;

    __device__ __forceinline__ chunk(int64_t index, int64_t columns)
        : base(index * SKR_CHUNK + (threadIdx.x & 31) * V), n(columns)
    {
    }
    __device__ __forceinline__ int64_t column(int j) const
    {
        return base + (V == 4 ? j : 32 * j);
    }
    __device__ __forceinline__ bool in(int j) const
    {
        return column(j) < n;
    }

    /* Zeros beyond the row. */
    __device__ __forceinline__ void load(int type, const void *row, float *f) const
    {
        const char *p = (const char *)row;
        int bytes = skr_type_bytes(type);
        if (V == 4) {
            f[0] = f[1] = f[2] = f[3] = 0.0f;
            if (in(3))
                any_load<4>(type, p + base * bytes, f);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                f[j] = in(j) ? any_load1(type, p + column(j) * bytes) : 0.0f;
        }
    }

    __device__ __forceinline__ void store(int type, void *row, const float *f) const
    {
        char *p = (char *)row;
        int bytes = skr_type_bytes(type);
        if (V == 4) {
            if (in(3))
                any_store<4>(type, p + base * bytes, f);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (in(j))
                    any_store1(type, p + column(j) * bytes, f[j]);
        }
    }

    __device__ __forceinline__ void store_quant(int type, void *row, const skr_tamer &t, const float *f) const
    {
        skr_divider by = divide_by(t.scale);
        float q[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = divide(by, tamed(t, f[j]));
        uint32_t word;
        if (type == SKR_E4M3)
            word = quant2<SKR_E4M3>(q[0], q[1]) | quant2<SKR_E4M3>(q[2], q[3]) << 16;
        else if (type == SKR_E5M2)
            word = quant2<SKR_E5M2>(q[0], q[1]) | quant2<SKR_E5M2>(q[2], q[3]) << 16;
        else
            word = quant2<SKR_I8>(q[0], q[1]) | quant2<SKR_I8>(q[2], q[3]) << 16;
        uint8_t *p = (uint8_t *)row;
        if (V == 4) {
            if (in(3))
                *(uint32_t *)(p + base) = word;
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (in(j))
                    p[column(j)] = (uint8_t)(word >> 8 * j);
        }
    }

    __device__ __forceinline__ float amax(const float *f) const
    {
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++)
            most = fmaxf(most, in(j) ? finite_size(f[j]) : 0.0f);
        return most;
    }
};

/* The start of row `row` of a tensor, NULL where it is absent. */
SKR_DEVICE char *any_row(const skr_row_space &space, const skr_rows &t, int64_t row)
{
    return t.data ? (char *)t.data + skr_row_offset(&space, t.stride, row) * skr_type_bytes(t.type) : nullptr;
}

SKR_DEVICE const char *any_param(const skr_param &p, int64_t head)
{
    return p.data ? (const char *)p.data + head * p.stride * skr_type_bytes(p.type) : nullptr;
}

#endif
