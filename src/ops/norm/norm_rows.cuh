/* norm_rows.cuh - rms_norm and layer_norm (CENTRE) forward on rows that fit the registers of their owner, 16-byte
 * accesses throughout. SPDX-License-Identifier: Apache-2.0
 *
 * Here: what all row kernels share, and the plain ones (x and y of one type, weight, offset, statistics; layer_norm:
 * bias, all of x's type). An owner (some lanes, a block, a cluster) takes RPG rows, VPT vectors of each in every
 * thread, and is done: many small blocks on an SM, each in another phase, keep its reads and writes under way better
 * than blocks that stay. The input stays packed in registers. Parameters of the same type come packed too: the first G
 * vectors are asked for right after the input, so that they are there when the sum is, the others as registers become
 * free. Other parameters are loaded where they are used. */
#ifndef SKR_NORM_ROWS_CUH
#define SKR_NORM_ROWS_CUH

#include "../../cuda/rows.cuh"
#include "norm.h"

/* ---------------------------------------------------------------- statistics of a row */

/* 1 / sqrt(mean + eps), every step rounded as IEEE says. */
SKR_DEVICE float rstd_of_variance(float variance, float eps)
{
    return __frsqrt_rn(__fadd_rn(variance, eps));
}

/* A row is normalised as x * rstd or, with CENTRE, as (x - mean) * rstd + shift, where the small shift stands for what
 * mean lost when it was rounded to f32. */
struct norm_stats {
    float mean, low, shift, rstd;
};

template <bool CENTRE> SKR_DEVICE float normal(const norm_stats &s, float f)
{
    return CENTRE ? __fmaf_rn(f - s.mean, s.rstd, s.shift) : f * s.rstd;
}

/* The piece of a row that this thread's warp (or group of lanes) holds. */
template <class Owner, int V, int VPT> SKR_DEVICE skr_piece piece_of(int valid, int64_t n)
{
    float inverse_n = inverse_of((int)n);
    if (Owner::lanes <= 32)
        return {inverse_of(min((int)n, V * Owner::lanes)), inverse_n, 1.0f, inverse_n};
    valid = min(max(valid, 0), VPT);
    int count = V * (int)__reduce_add_sync(0xffffffffu, (unsigned)valid),
        first = V * __popc(__ballot_sync(0xffffffffu, valid > 0));
    return {inverse_of(first), inverse_of(count), (float)count * inverse_n, inverse_n};
}

/* get(i, f): vector i of this thread, in order and once each; zeros where it has none, that is from `valid` on. */
template <bool CENTRE, int V, int VPT, class Owner, class Get>
SKR_DEVICE norm_stats row_stats(Owner &owner, int64_t n, float eps, int valid, const skr_piece &piece, const Get &get)
{
    if constexpr (CENTRE) {
        constexpr int lanes = Owner::lanes < 32 ? Owner::lanes : 32;
        float pivot = 0.0f, low[2] = {0.0f, 0.0f}, square[2] = {0.0f, 0.0f}, f[V];
        get(0, f);
#pragma unroll
        for (int c = 0; c < V; c++)
            pivot = __fmaf_rn(f[c], piece.inverse_first, pivot);
        pivot = lanes_reduce<skr_sum, lanes>(pivot);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (i > 0)
                get(i, f);
            if (i < valid)
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float d = f[c] - pivot;
                    low[c & 1] += d;
                    square[c & 1] = __fmaf_rn(d, d, square[c & 1]);
                }
        }
        /* Divided after they were added: single products would lose the bits of subnormal rows. */
        skr_moments m = owner.moments(pivot, (low[0] + low[1]) * piece.inverse, square[0] + square[1], piece);
        float rstd = rstd_of_variance(m.variance, eps);
        return {m.mean, m.low, -m.low * rstd, rstd};
    } else {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            get(i, f);
#pragma unroll
            for (int c = 0; c < V; c++)
                part[c & 3] = __fmaf_rn(f[c], f[c], part[c & 3]);
        }
        float sum = owner.template reduce<skr_sum>((part[0] + part[1]) + (part[2] + part[3]));
        return {0.0f, 0.0f, 0.0f, rstd_of(sum, n, eps)};
    }
}

/* By one thread of the row. */
template <bool CENTRE> SKR_DEVICE void save_stats(const skr_norm_job &job, const skr_row &row, const norm_stats &s)
{
    if (job.rstd.data)
        *row_at<float>(job.rstd, row, 4) = s.rstd;
    if (CENTRE && job.mean.data)
        *row_at<float>(job.mean, row, 4) = s.mean + s.low;
}

/* ---------------------------------------------------------------- plain */

template <int T> SKR_DEVICE uint4 packed_ones()
{
    uint32_t word = T == SKR_F32 ? 0x3f800000u : T == SKR_F16 ? 0x3c003c00u : 0x3f803f80u;
    return make_uint4(word, word, word, word);
}

template <bool CENTRE, int T, class Owner, int VPT, int RPG, int G> struct norm_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    const skr_norm_job &job;
    int lane, first;  /* of this thread: its place, the first of its rows */
    int start, valid; /* its vectors: start, start + L, ... */
    uint4 raw[RPG][VPT];
    norm_stats stats[RPG];
    const char *weight, *bias; /* where its first vector is */
    uint4 w[G], b[CENTRE ? G : 1];

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        norm_plain k(job, owner);
        k.rows(owner);
    }

    __device__ __forceinline__ norm_plain(const skr_norm_job &j, const Owner &owner) : job(j)
    {
        lane = threadIdx.x % L, first = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, j.n);
        start = slice.first + lane, valid = slice.valid;
        weight = (const char *)job.weight.data + start * 16, bias = (const char *)job.bias.data + start * 16;
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
        /* Parameters of type T stay packed until they are used; others (rms_norm only) are loaded and converted then.
         */
        bool packed = CENTRE || (job.weight.data && job.weight.type == T && job.heads == 1);
#pragma unroll
        for (int i = 0; i < G; i++)
            load_packed(packed, i);
        owner.ready();
        skr_piece piece = {0.0f, 0.0f, 0.0f, 0.0f};
        if (CENTRE)
            piece = piece_of<Owner, V, VPT>(valid, job.n);
#pragma unroll
        for (int r = 0; r < RPG; r++)
            stats[r] = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, valid, piece,
                                                 [&](int i, float *f) { unpack<T>(raw[r][i], f); });
#pragma unroll
        for (int r = 0; r < RPG; r++)
            if (lane == 0 && owner.rank() == 0 && first + r < m)
                save_stats<CENTRE>(job, row_of(job.rows, first + r), stats[r]);
        if (packed)
            write<true>(m);
        else
            write<CENTRE>(m);
    }

    __device__ __forceinline__ void load_packed(bool packed, int i)
    {
        if (packed && i < valid) {
            w[i % G] = !CENTRE || job.weight.data ? load16_once(weight + i * L * 16) : packed_ones<T>();
            if (CENTRE)
                b[CENTRE ? i % G : 0] = job.bias.data ? load16_once(bias + i * L * 16) : make_uint4(0, 0, 0, 0);
        }
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
            float g[V], a[V];
            if (PACKED) {
                opaque(w[i % G]);
                unpack<T>(w[i % G], g);
                if (job.weight_offset != 0.0f)
#pragma unroll
                    for (int c = 0; c < V; c++)
                        g[c] += job.weight_offset;
                if (CENTRE) {
                    opaque(b[CENTRE ? i % G : 0]);
                    unpack<T>(b[CENTRE ? i % G : 0], a);
                }
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
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats[r], f[c]);
                    f[c] = CENTRE ? __fmaf_rn(h, g[c], a[c]) : h * g[c];
                }
                if (first + r < m)
                    store16_once(y[r] + i * L * 16, pack<T>(f));
            }
        }
    }
};

#endif
