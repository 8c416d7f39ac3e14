/* rows.cuh - what CUDA kernels share whose owner (some lanes, a block, a cluster: device.cuh) keeps a row in registers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ROWS_CUH
#define SKR_ROWS_CUH

#include "owner.cuh"

/* Bytes of rows that start their way to L2 before they are loaded (norm_wide.cuh): more than a GPU has under way at
 * once, and a small part of L2. */
enum { SKR_ROWS_AHEAD = 5 << 20 };

/* The vectors of a row that belong to one thread of its owner. */
template <class Owner> struct row_slice {
    int first, count; /* vectors of this block: first of the row, how many */
    int valid;        /* of this thread: vectors lane, lane + lanes, ... */

    template <int V> static __device__ __forceinline__ row_slice of(const Owner &owner, int64_t n)
    {
        row_slice s;
        int vectors = (int)(n / V);
        int share = vectors;
        if (owner.size() > 1) { /* whole groups of 128 columns: a quantisation block stays in one thread block */
            constexpr int unit = SKR_QUANT_GROUP / V;
            share = ((vectors + unit - 1) / unit + owner.size() - 1) / owner.size() * unit;
        }
        s.first = min(share * owner.rank(), vectors);
        s.count = min(share, vectors - s.first);
        int lane = threadIdx.x % Owner::lanes;
        s.valid = (s.count - lane + Owner::lanes - 1) / Owner::lanes;
        return s;
    }
};

/* 1 / sqrt(mean + eps), every step rounded as IEEE says. */
SKR_DEVICE float rstd_of(float sum, int64_t n, float eps)
{
    return __frsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)n), eps));
}

/* weight + offset of V columns; 1 + offset without a weight. */
template <int V> SKR_DEVICE void load_weight(const skr_param &p, float offset, int64_t at, float *w)
{
    if (p.data)
        any_load<V>(p.type, (const char *)p.data + at * skr_type_bytes(p.type), w);
#pragma unroll
    for (int c = 0; c < V; c++)
        w[c] = (p.data ? w[c] : 1.0f) + offset;
}

/* bias of V columns; zeros without one. */
template <int V> SKR_DEVICE void load_bias(const skr_param &p, int64_t at, float *b)
{
#pragma unroll
    for (int c = 0; c < V; c++)
        b[c] = 0.0f;
    if (p.data)
        any_load<V>(p.type, (const char *)p.data + at * skr_type_bytes(p.type), b);
}

#endif
