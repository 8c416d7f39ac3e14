/* softmax_rows.cuh - softmax forward on rows that fit the registers of their owner: one read, one write, 16-byte
 * accesses. SPDX-License-Identifier: Apache-2.0
 *
 * softmax_plain: x and y of one type, softmax itself. softmax_full: also the logarithm, masks, y of another type.
 * A warp takes its exponentials against its own maximum; one exchange of (maximum, sum) pairs then tells what brings
 * them to the row's. So there is one barrier a row. An owner takes RPG rows and is done (docs/notes/softmax.md). */
#ifndef SKR_SOFTMAX_ROWS_CUH
#define SKR_SOFTMAX_ROWS_CUH

#include "../../cuda/exponent.cuh"
#include "../../cuda/rows.cuh"
#include "softmax.h"

/* 16 bytes of +infinity or -infinity. */
template <int T> SKR_DEVICE uint4 infinities(bool negative)
{
    uint32_t word = T == SKR_F32 ? 0x7f800000u : T == SKR_F16 ? 0x7c007c00u : 0x7f807f80u;
    if (negative)
        word |= T == SKR_F32 ? 0x80000000u : 0x80008000u;
    return make_uint4(word, word, word, word);
}

/* What exponents are taken against; a row (or a warp's part) of -infinity only gives zeros. */
SKR_DEVICE float against(float most)
{
    return most == skr_softmax_sums::none ? 0.0f : most;
}

/* 1 / sum, 0 for the empty sum. The sum is 0, NaN, or between 1 and the width. */
SKR_DEVICE float inverse(float sum)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(sum));
    return sum == 0.0f ? 0.0f : r;
}

/* Largest (or smallest) of a vector's elements, joined to what came before; one half of a word in 16-bit types until
 * the end. */
template <int T> struct extremes {
    uint32_t most, least; /* two halves, or one f32 */

    __device__ __forceinline__ extremes()
    {
        most = infinities<T>(true).x, least = infinities<T>(false).x;
    }
    __device__ __forceinline__ void take(const uint4 &v)
    {
        take(v.x), take(v.y), take(v.z), take(v.w);
    }
    __device__ __forceinline__ void take(uint32_t word)
    {
        if (T == SKR_F32) {
            most = __float_as_uint(fmaxf(__uint_as_float(most), __uint_as_float(word)));
            least = __float_as_uint(fminf(__uint_as_float(least), __uint_as_float(word)));
        } else {
            most = max2<T>(most, word), least = min2<T>(least, word);
        }
    }
    __device__ __forceinline__ float largest() const
    {
        float lo, hi;
        if (T == SKR_F32)
            return __uint_as_float(most);
        unpack2<T>(most, lo, hi);
        return fmaxf(lo, hi);
    }
    __device__ __forceinline__ float smallest() const
    {
        float lo, hi;
        if (T == SKR_F32)
            return __uint_as_float(least);
        unpack2<T>(least, lo, hi);
        return fminf(lo, hi);
    }
};

/* KEEP: exponentials stay in registers as f32; otherwise the row stays packed, in half as many, and they are computed
 * twice. exp(scale * (x - m)) is 2^(unit * (x - m)): the difference of two numbers of type T is mostly exact. A
 * negative scale turns x around first. Only where a result could be subnormal (the smallest x says so) are exponentials
 * taken that keep them. */
template <int T, class Owner, int VPT, int RPG, bool KEEP> struct softmax_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes, W = L < 32 ? L : 32;

    const skr_softmax_job &job;
    skr_softmax_sums pair;
    int m, first, start, valid; /* rows; this thread's first row, first vector, vectors */
    uint4 raw[RPG][VPT];
    float e[RPG][KEEP ? VPT : 1][V];
    float most[RPG], sum[RPG], least[RPG];

    SKR_DEVICE void run(const skr_softmax_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        softmax_plain k(job, owner);
        k.load();
        owner.ready();
        k.rows(owner);
    }

    __device__ __forceinline__ softmax_plain(const skr_softmax_job &j, const Owner &owner) : job(j)
    {
        m = (int)j.rows.m, first = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, j.n);
        start = slice.first + threadIdx.x % L, valid = slice.valid;
        pair.unit = fabsf(j.scale) * SKR_LOG2E;
    }

    __device__ __forceinline__ char *at(const skr_rows &t, int r) const
    {
        return row_at<char>(t, row_of(job.rows, first + r), skr_elem<T>::bytes) + start * 16;
    }

    /* -infinity beyond the row. */
    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            const char *p = at(job.x, r);
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                raw[r][i] = infinities<T>(!(job.scale < 0.0f));
                if (first + r < m && i < valid)
                    raw[r][i] = load16_once(p + i * L * 16);
            }
        }
        if (job.scale < 0.0f) {
            uint32_t sign = T == SKR_F32 ? 0x80000000u : 0x80008000u;
#pragma unroll
            for (int r = 0; r < RPG; r++)
#pragma unroll
                for (int i = 0; i < VPT; i++)
                    raw[r][i].x ^= sign, raw[r][i].y ^= sign, raw[r][i].z ^= sign, raw[r][i].w ^= sign;
        }
    }

    __device__ __forceinline__ void rows(Owner &owner)
    {
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            extremes<T> x;
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < valid)
                    x.take(raw[r][i]);
            most[r] = x.largest(), least[r] = x.smallest();
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            most[r] = lanes_reduce<skr_max, W>(most[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float top = against(most[r]);
            if (KEEP && care(least[r], top))
                sum[r] = exponentials<false>(r, top);
            else
                sum[r] = exponentials<true>(r, top);
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            sum[r] = lanes_reduce<skr_sum, W>(sum[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float mine = most[r];
            owner.join(pair, most[r], sum[r]);
            sum[r] = inverse(sum[r]);
            if (KEEP)
                sum[r] *= pair.factor(mine, most[r]);
            char *p = at(job.y, r);
            if (!KEEP && care(least[r], against(most[r])))
                write<false>(r, p);
            else
                write<true>(r, p);
        }
    }

    /* Some lane of the warp has exponentials that may be subnormal. What f16 holds of them is 0. */
    __device__ __forceinline__ bool care(float smallest, float top) const
    {
        return T != SKR_F16 && __any_sync(0xffffffffu, (smallest - top) * pair.unit < -125.0f);
    }

    /* The sum; a subnormal term does not change it. */
    template <bool FLUSH> __device__ __forceinline__ float exponentials(int r, float top)
    {
        float part[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            unpack<T>(raw[r][i], f);
#pragma unroll
            for (int c = 0; c < V; c++) {
                f[c] = exp2_fast<FLUSH>((f[c] - top) * pair.unit);
                part[c & 1] += f[c];
                if (KEEP)
                    e[r][i][c] = f[c];
            }
        }
        return part[0] + part[1];
    }

    template <bool FLUSH> __device__ __forceinline__ void write(int r, char *p)
    {
        float top = against(most[r]);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            if (!KEEP) {
                opaque(raw[r][i]); /* or the compiler keeps the f32 values from the first pass */
                unpack<T>(raw[r][i], f);
            }
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = (KEEP ? e[r][KEEP ? i : 0][c] : exp2_fast<FLUSH>((f[c] - top) * pair.unit)) * sum[r];
            if (first + r < m && i < valid)
                store16_once(p + i * L * 16, pack<T>(f));
        }
    }
};

/* x of type T; mask and y of any. mask: V of its elements side by side and aligned, or one for the whole row. */
template <int T, class Owner, int VPT> struct softmax_full {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes, W = L < 32 ? L : 32;

    SKR_DEVICE void run(const skr_softmax_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        int row = owner.index() * Owner::groups + threadIdx.x / L;
        bool in = row < (int)job.rows.m;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, job.n);
        int column = (slice.first + threadIdx.x % L) * V, valid = in ? slice.valid : 0;
        skr_row at = row_of(job.rows, in ? row : 0);
        float s[VPT][V];
        load(job, at, row, column, valid, s);
        owner.ready();
        float most = skr_softmax_sums::none;
#pragma unroll
        for (int i = 0; i < VPT; i++)
#pragma unroll
            for (int c = 0; c < V; c++)
                most = fmaxf(most, s[i][c]);
        most = lanes_reduce<skr_max, W>(most);
        float top = against(most), part[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < VPT; i++)
#pragma unroll
            for (int c = 0; c < V; c++)
                part[c & 1] += exp_fast(s[i][c] - top);
        float sum = lanes_reduce<skr_sum, W>(part[0] + part[1]);
        owner.join(skr_softmax_sums{SKR_LOG2E}, most, sum);
        top = against(most);
        float end = !job.log ? inverse(sum) : sum == 0.0f ? 0.0f : logf(sum);
        int bytes = skr_type_bytes(job.y.type);
        char *y = row_at<char>(job.y, at, bytes) + column * bytes;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (i >= valid)
                continue;
#pragma unroll
            for (int c = 0; c < V; c++)
                s[i][c] = job.log ? (s[i][c] - top) - end : exp_fast(s[i][c] - top) * end;
            any_store<V>(job.y.type, y + i * L * V * bytes, s[i]);
        }
    }

    SKR_DEVICE void load(const skr_softmax_job &job, const skr_row &at, int row, int column, int valid,
                         float (&s)[VPT][V])
    {
        uint4 raw[VPT];
        const char *p = row_at<const char>(job.x, at, skr_elem<T>::bytes) + column * skr_elem<T>::bytes;
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < valid)
                raw[i] = load16_once(p + i * L * 16);
        skr_span seen = {0, job.n};
        if (job.seen.how != SKR_SEEN_ALL)
            seen = skr_seen_of(&job.seen, job.n, row);
        int begin = (int)seen.begin, end = (int)seen.end, bytes = skr_type_bytes(job.mask.type);
        const char *mask = row_at<const char>(job.mask, at, bytes);
        float one = job.mask.data && job.mask.col_stride == 0 ? any_load1(job.mask.type, mask) : 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            int first = column + i * L * V;
            if (i < valid) {
                float add[V];
                unpack<T>(raw[i], s[i]);
                if (job.mask.data && job.mask.col_stride != 0)
                    any_load<V>(job.mask.type, mask + first * bytes, add);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float f = job.mask.col_stride != 0 ? add[c] : one;
                    s[i][c] = job.mask.data ? __fmaf_rn(s[i][c], job.scale, f) : s[i][c] * job.scale;
                }
            }
#pragma unroll
            for (int c = 0; c < V; c++)
                if (i >= valid || first + c < begin || first + c >= end)
                    s[i][c] = skr_softmax_sums::none;
        }
    }
};

#endif
