/* rms_norm_rows.cuh - rms_norm forward on rows that fit the registers of their owner, 16-byte accesses throughout.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Here: what all row kernels share, and the plain ones (x and y of one type, weight, offset, rstd). An owner (some
 * lanes, a block, a cluster) takes RPG rows, VPT vectors of each in every thread, and is done: many small blocks on an
 * SM, each in another phase, keep its reads and writes under way better than blocks that stay. The input stays packed
 * in registers. Weights of the same type come packed too: the first G vectors are asked for right after the input, so
 * that they are there when the sum is, the others as registers become free. Other weights are loaded where they are
 * used. */
#ifndef SKR_RMS_NORM_ROWS_CUH
#define SKR_RMS_NORM_ROWS_CUH

#include "../../cuda/rows.cuh"
#include "norm.h"

/* ---------------------------------------------------------------- plain: x and y of type T, weight, offset, rstd */

template <int T, class Owner, int VPT, int RPG, int G> struct rms_norm_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    const skr_norm_job &job;
    int lane, first;  /* of this thread: its place, the first of its rows */
    int start, valid; /* its vectors: start, start + L, ... */
    uint4 raw[RPG][VPT];
    float rstd[RPG];
    const char *weight;
    uint4 w[G];

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        rms_norm_plain k(job, owner);
        k.rows(owner);
    }

    __device__ __forceinline__ rms_norm_plain(const skr_norm_job &j, const Owner &owner) : job(j)
    {
        lane = threadIdx.x % L, first = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, j.n);
        start = slice.first + lane, valid = slice.valid;
        weight = (const char *)job.weight.data + start * 16;
    }

    __device__ __forceinline__ void rows(Owner &owner)
    {
        int m = (int)job.rows.m;
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            const char *p = row_at<const char>(job.x, row_of(job.rows, first + r), skr_elem<T>::bytes) + start * 16;
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                raw[r][i] = make_uint4(0, 0, 0, 0);
                if (first + r < m && i < valid)
                    raw[r][i] = load16_once(p + i * L * 16);
            }
        }
        /* Weights of type T stay packed until they are used; others are loaded and converted then. */
        bool packed = job.weight.data && job.weight.type == T && job.heads == 1;
#pragma unroll
        for (int i = 0; i < G; i++)
            load_packed(packed, i);
        owner.ready();
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float f[V];
                unpack<T>(raw[r][i], f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    part[c & 3] = __fmaf_rn(f[c], f[c], part[c & 3]);
            }
            rstd[r] = (part[0] + part[1]) + (part[2] + part[3]);
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            rstd[r] = owner.template reduce<skr_sum>(rstd[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            rstd[r] = rstd_of(rstd[r], job.n, job.eps);
            if (job.rstd.data && lane == 0 && owner.rank() == 0 && first + r < m)
                *row_at<float>(job.rstd, row_of(job.rows, first + r), 4) = rstd[r];
        }
        if (packed)
            write<true>(m);
        else
            write<false>(m);
    }

    __device__ __forceinline__ void load_packed(bool packed, int i)
    {
        if (packed && i < valid)
            w[i % G] = load16_once(weight + i * L * 16);
    }

    template <bool PACKED> __device__ __forceinline__ void write(int m)
    {
        char *y[RPG];
#pragma unroll
        for (int r = 0; r < RPG; r++)
            y[r] = row_at<char>(job.y, row_of(job.rows, first + r), skr_elem<T>::bytes) + start * 16;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (i >= valid)
                continue;
            float g[V];
            if (PACKED) {
                opaque(w[i % G]);
                unpack<T>(w[i % G], g);
#pragma unroll
                for (int c = 0; c < V; c++)
                    g[c] += job.weight_offset;
                if (i + G < VPT)
                    load_packed(true, i + G);
            }
#pragma unroll
            for (int r = 0; r < RPG; r++) {
                if (!PACKED)
                    load_weight<V>(job.weight, job.weight_offset,
                                   param_row(job.heads, first + r) * job.weight.stride + (start + i * L) * V, g);
                float f[V];
                opaque(raw[r][i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
                unpack<T>(raw[r][i], f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    f[c] = f[c] * rstd[r] * g[c];
                if (first + r < m)
                    store16_once(y[r] + i * L * 16, pack<T>(f));
            }
        }
    }
};

#endif
