/* norm_rows.cuh - rms_norm and layer_norm (CENTRE) forward on rows that fit the registers of some lanes or of a block,
 * 16-byte accesses throughout. SPDX-License-Identifier: Apache-2.0
 *
 * Here: what all row kernels share, and the plain ones (x and y of one type, weight, offset, statistics; layer_norm:
 * bias, all of x's type). An owner takes RPG rows, VPT vectors of each in every thread, and is done: many small blocks
 * on an SM, each in another phase, keep its reads and writes under way better than blocks that stay. The input stays
 * packed in registers. Parameters of the same type come packed too: the first G vectors are asked for right after the
 * input, so that they are there when the sum is, the others as registers become free. Other parameters are loaded where
 * they are used. */
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

SKR_DEVICE float inverse_of(int count)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"((float)count));
    return r;
}

/* A mean beyond sqrt(8) deviations (of the row around it): their squares' difference has lost three bits. */
SKR_DEVICE bool far_off(float mean, float variance)
{
    return !(mean * mean <= 8.0f * variance);
}

/* Mean and variance of a row that is far from 0: the sums are taken again, around the mean. Rows that share a warp go
 * through all turns together; one that is done keeps what it has. */
template <int V, int VPT, class Owner, class Get>
SKR_DEVICE void far_stats(Owner &owner, float inverse_n, int valid, const Get &get, norm_stats &s, float &variance)
{
    float share = inverse_n; /* first the mean alone, by products: a sum might be beyond f32's range */
    bool done = false;
    s.mean = 0.0f;
#pragma unroll 1
    for (int turn = 0; turn < 3 && !(done && Owner::lanes >= 32); turn++) {
        float low = 0.0f, square = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            get(i, f);
            if (i < valid)
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float d = f[c] - s.mean;
                    low = __fmaf_rn(d, share, low), square = __fmaf_rn(d, d, square);
                }
        }
        owner.template reduce2<skr_sum, skr_sum>(low, square);
        if (turn == 0) {
            s.mean = low, share = 1.0f;
        } else if (!done) {
            s.low = low * inverse_n;
            variance = __fmaf_rn(-s.low, s.low, square * inverse_n);
            done = turn == 2 || !far_off(s.low, variance);
            if (!done)
                s.mean += s.low;
        }
    }
    variance = variance < 0.0f ? 0.0f : variance; /* NaN stays */
}

/* get(i, f): vector i of this thread, from 0 on in order, perhaps more than once; zeros where it has none, that is from
 * `valid` on. */
template <bool CENTRE, int V, int VPT, class Owner, class Get>
SKR_DEVICE norm_stats row_stats(Owner &owner, int64_t n, float eps, int valid, const Get &get)
{
    if constexpr (CENTRE) {
        float sum[2] = {0.0f, 0.0f}, square[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            get(i, f);
#pragma unroll
            for (int c = 0; c < V; c++)
                sum[c & 1] += f[c], square[c & 1] = __fmaf_rn(f[c], f[c], square[c & 1]);
        }
        float inverse_n = inverse_of((int)n);
        sum[0] += sum[1], square[0] += square[1];
        owner.template reduce2<skr_sum, skr_sum>(sum[0], square[0]);
        norm_stats s = {sum[0] * inverse_n, 0.0f, 0.0f, 0.0f};
        float variance = __fmaf_rn(-s.mean, s.mean, square[0] * inverse_n);
        bool far = far_off(s.mean, variance); /* all threads of the row agree */
        if (Owner::lanes < 32 ? __any_sync(0xffffffffu, far) : far) {
            norm_stats again = s;
            float other = variance;
            far_stats<V, VPT>(owner, inverse_n, valid, get, again, other);
            if (far)
                s = again, variance = other;
        }
        s.rstd = rstd_of_variance(variance, eps);
        s.shift = -s.low * s.rstd;
        return s;
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

/* Parameters of type T stay packed until they are used; others (rms_norm only) are loaded and converted then. */
template <bool CENTRE, int T> SKR_DEVICE bool params_packed(const skr_norm_job &job)
{
    return CENTRE || (job.weight.data && job.weight.type == T && job.heads == 1);
}

template <bool CENTRE, int T, class Owner, int VPT, int RPG, int G> struct norm_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    const skr_norm_job &job;
    int lane, first; /* of this thread: its place, the first of its rows */
    int valid;       /* how many vectors it has: lane, lane + L, ... */
    uint4 raw[RPG][VPT];
    norm_stats stats[RPG];
    const char *weight, *bias; /* where its first vector is */
    uint4 w[G], b[CENTRE ? G : 1];

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        wait_for_previous();
        let_next_start();
        norm_plain k(job, owner);
        k.load();
#pragma unroll
        for (int i = 0; i < G; i++)
            k.load_packed(i);
        k.make_stats(owner);
        if (params_packed<CENTRE, T>(job))
            k.template write<true>();
        else
            k.template write<CENTRE>();
    }

    __device__ __forceinline__ norm_plain(const skr_norm_job &j, const Owner &owner) : job(j)
    {
        lane = threadIdx.x % L, first = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        valid = row_slice<Owner>::template of<V>(owner, j.n).valid;
        weight = (const char *)job.weight.data + lane * 16, bias = (const char *)job.bias.data + lane * 16;
    }

    /* Where this thread's first vector of a row is. */
    template <class P> __device__ __forceinline__ P *vectors_of(const skr_rows &t, int row) const
    {
        return row_at<P>(t, row_of(job.rows, row), skr_elem<T>::bytes) + lane * 16;
    }

    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            const char *p = vectors_of<const char>(job.x, first + r);
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                raw[r][i] = make_uint4(0, 0, 0, 0);
                if (first + r < job.rows.m && i < valid)
                    raw[r][i] = load16_once(p + i * L * 16);
            }
        }
    }

    __device__ __forceinline__ void make_stats(Owner &owner)
    {
#pragma unroll
        for (int r = 0; r < RPG; r++)
            stats[r] = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, valid, [&](int i, float *f) {
                opaque(raw[r][i]);
                unpack<T>(raw[r][i], f);
            });
#pragma unroll
        for (int r = 0; r < RPG; r++)
            if (lane == 0 && first + r < job.rows.m)
                save_stats<CENTRE>(job, row_of(job.rows, first + r), stats[r]);
    }

    /* Vector i of the parameters, ones and zeros for what is absent. */
    __device__ __forceinline__ void load_packed(int i)
    {
        if (params_packed<CENTRE, T>(job) && i < valid) {
            w[i % G] = !CENTRE || job.weight.data ? load16_once(weight + i * L * 16) : packed_ones<T>();
            if (CENTRE)
                b[CENTRE ? i % G : 0] = job.bias.data ? load16_once(bias + i * L * 16) : make_uint4(0, 0, 0, 0);
        }
    }

    template <bool PACKED> __device__ __forceinline__ void write()
    {
        char *y[RPG];
#pragma unroll
        for (int r = 0; r < RPG; r++)
            y[r] = vectors_of<char>(job.y, first + r);
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
                    load_packed(i + G);
            }
#pragma unroll
            for (int r = 0; r < RPG; r++) {
                if (!PACKED)
                    load_weight<V>(job.weight, job.weight_offset,
                                   param_row(job.heads, first + r) * job.weight.stride + (lane + i * L) * V, g);
                float f[V];
                opaque(raw[r][i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
                unpack<T>(raw[r][i], f);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats[r], f[c]);
                    f[c] = CENTRE ? __fmaf_rn(h, g[c], a[c]) : h * g[c];
                }
                if (first + r < (int)job.rows.m)
                    store16_once(y[r] + i * L * 16, pack<T>(f));
            }
        }
    }
};

#endif
