/* rope.cuh - what the CUDA kernels of rope share: where a token's cos and sin are, and the lanes of a head.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The row kernels give a head to L lanes of a warp. Each lane owns a unit: two 16-byte vectors R/2 columns apart, which
 * hold V whole pairs (one of each vector, or neighbours within them when pairs are interleaved), or two vectors of the
 * columns that do not rotate. So a lane rotates what it loaded, in place or not, neighbouring lanes have neighbouring
 * vectors, and cos and sin of a unit serve every head of the token. */
#ifndef SKR_ROPE_CUH
#define SKR_ROPE_CUH

#include "../../cuda/rows.cuh"
#include "rope.h"

/* ---------------------------------------------------------------- tables */

/* cos and sin of one token: element 0 of their rows. */
struct rope_token {
    const char *cos, *sin;
    int type;
    bool nowhere; /* it belongs to no sequence */
};

SKR_DEVICE rope_token token_at(const skr_rope_job &job, int64_t b, int64_t s)
{
    rope_token t;
    int64_t token = b * job.length + s, row = s, position = 0;
    t.nowhere = false;
    if (job.cuda.positions_at >= 0) {
        position = ((const int64_t *)((const char *)job.head.workspace + job.cuda.positions_at))[token];
        t.nowhere = position == SKR_ROPE_NOWHERE;
    }
    if (job.cuda.table_at >= 0) { /* made for these tokens */
        row = job.cuda.made_rows == job.length ? s : token;
        t.type = SKR_F32;
        t.cos = (const char *)job.head.workspace + job.cuda.table_at + row * (job.r / 2) * 4;
        t.sin = t.cos + job.cuda.made_rows * (job.r / 2) * 4;
        return t;
    }
    if (job.cuda.positions_at < 0)
        position = skr_rope_position(&job, b, s);
    row = position < 0 ? 0 : position < job.table_rows ? position : job.table_rows - 1;
    if (row != position && !t.nowhere && job.cos)
        *job.head.error_word = SKR_BAD_INDEX;
    t.type = job.table_type;
    t.cos = (const char *)job.cos + row * job.cos_stride * skr_type_bytes(t.type);
    t.sin = (const char *)job.sin + row * job.sin_stride * skr_type_bytes(t.type);
    return t;
}

/* The same where a token's row is its place in the sequence. */
SKR_DEVICE rope_token token_in_place(const skr_rope_job &job, int s)
{
    if (job.cuda.table_at >= 0) {
        const char *cos = (const char *)job.head.workspace + job.cuda.table_at;
        int bytes = (int)job.r * 2;
        return {cos + (int64_t)s * bytes, cos + (job.cuda.made_rows + s) * bytes, SKR_F32, false};
    }
    int row = min(s, (int)job.table_rows - 1), bytes = skr_type_bytes(job.table_type);
    if (row != s)
        *job.head.error_word = SKR_BAD_INDEX;
    return {(const char *)job.cos + row * job.cos_stride * bytes, (const char *)job.sin + row * job.sin_stride * bytes,
            job.table_type, false};
}

/* ---------------------------------------------------------------- a unit */

struct rope_unit {
    int first, second; /* columns of its two vectors */
    int pair, other;   /* its pairs: V/2 from each of these on; pair < 0: its columns are copied */
    bool has_first, has_second;
};

template <int V> SKR_DEVICE rope_unit unit_of(const skr_rope_job &job, int lane)
{
    rope_unit u;
    int rotary = job.cuda.rotary_units, r = (int)job.r;
    bool turns = lane < rotary;
    u.first = turns ? V * lane : r + (lane - rotary) * 2 * V;
    u.second = turns ? u.first + r / 2 : u.first + V;
    u.pair = !turns ? -1 : job.interleaved ? u.first / 2 : u.first;
    u.other = job.interleaved ? u.pair + r / 4 : u.pair + V / 2;
    u.has_first = lane < job.cuda.units;
    u.has_second = u.has_first && u.second < (int)job.d;
    return u;
}

/* The same of a head of exactly 2 V columns a lane which all rotate, in halves. */
template <int V, int L> SKR_DEVICE rope_unit unit_in_halves(int lane)
{
    return {V * lane, V * (L + lane), V * lane, V * lane + V / 2, true, true};
}

/* Rotates the pairs of f, V of them: f[0 .. V-1] with f[V .. 2V-1], or neighbours. */
template <int V> SKR_DEVICE void rotate(float *f, const float *c, const float *s, bool interleaved)
{
    if (interleaved) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            float a = f[2 * i], b = f[2 * i + 1];
            f[2 * i] = __fmaf_rn(-b, s[i], a * c[i]);
            f[2 * i + 1] = __fmaf_rn(a, s[i], b * c[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            float a = f[i], b = f[V + i];
            f[i] = __fmaf_rn(-b, s[i], a * c[i]);
            f[V + i] = __fmaf_rn(a, s[i], b * c[i]);
        }
    }
}

/* N elements of a run-time float type as they are, 2 or 4 of them, in the first words. Asked for and not looked at: a
 * conversion here would wait for the data, and what is asked for next would come one latency later. */
template <int N> SKR_DEVICE void get_raw(int type, const char *p, uint4 &raw)
{
    bool wide = type == SKR_F32;
    if (N == 4 && wide)
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                     : "l"(p));
    else if (N == 4 || wide)
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(raw.x), "=r"(raw.y) : "l"(p));
    else
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(raw.x) : "l"(p));
}

template <int N> SKR_DEVICE void open_raw(int type, const uint4 &raw, float *f)
{
    if (type == SKR_F32) {
        f[0] = __uint_as_float(raw.x), f[1] = __uint_as_float(raw.y);
        if (N == 4)
            f[N - 2] = __uint_as_float(raw.z), f[N - 1] = __uint_as_float(raw.w);
    } else if (type == SKR_F16) {
        unpack2<SKR_F16>(raw.x, f[0], f[1]);
        if (N == 4)
            unpack2<SKR_F16>(raw.y, f[N - 2], f[N - 1]);
    } else {
        unpack2<SKR_BF16>(raw.x, f[0], f[1]);
        if (N == 4)
            unpack2<SKR_BF16>(raw.y, f[N - 2], f[N - 1]);
    }
}

/* cos and sin of a unit's pairs: asked for, then opened. */
template <int V> struct rope_pairs {
    uint4 c[2], s[2];

    __device__ __forceinline__ void get(const rope_token &t, const rope_unit &u)
    {
        int bytes = skr_type_bytes(t.type);
        get_raw<V / 2>(t.type, t.cos + u.pair * bytes, c[0]);
        get_raw<V / 2>(t.type, t.sin + u.pair * bytes, s[0]);
        get_raw<V / 2>(t.type, t.cos + u.other * bytes, c[1]);
        get_raw<V / 2>(t.type, t.sin + u.other * bytes, s[1]);
    }

    /* back: sin with the other sign. */
    __device__ __forceinline__ void open(const rope_token &t, bool back, float *cosine, float *sine) const
    {
        open_raw<V / 2>(t.type, c[0], cosine), open_raw<V / 2>(t.type, c[1], cosine + V / 2);
        open_raw<V / 2>(t.type, s[0], sine), open_raw<V / 2>(t.type, s[1], sine + V / 2);
        if (back)
#pragma unroll
            for (int i = 0; i < V; i++)
                sine[i] = -sine[i];
    }
};

/* weight + offset of a unit's columns. Weights of the heads' own type are asked for early, others when they are
 * opened. */
template <int T> struct rope_weights {
    static constexpr int V = skr_elem<T>::vec;
    uint4 raw[2];

    __device__ __forceinline__ void get(const skr_param &p, const rope_unit &u)
    {
        raw[0] = raw[1] = make_uint4(0, 0, 0, 0);
        bool packed = p.data && p.type == T;
        if (packed && u.has_first)
            raw[0] = load16_once((const char *)p.data + u.first * skr_elem<T>::bytes);
        if (packed && u.has_second)
            raw[1] = load16_once((const char *)p.data + u.second * skr_elem<T>::bytes);
    }

    __device__ __forceinline__ void open(const skr_param &p, float offset, const rope_unit &u, float *w) const
    {
        if (p.data && p.type == T) {
            unpack<T>(raw[0], w), unpack<T>(raw[1], w + V);
#pragma unroll
            for (int k = 0; k < 2 * V; k++)
                w[k] += offset;
            return;
        }
        if (u.has_first)
            load_weight<V>(p, offset, u.first, w);
        if (u.has_second)
            load_weight<V>(p, offset, u.second, w + V);
    }
};

SKR_DEVICE int64_t head_offset(const skr_rope_rows &r, int64_t b, int64_t s, int64_t h)
{
    return b * r.batch + s * r.token + h * r.head;
}

/* 1 / sqrt(mean + eps), within two units in the last place. Not rms_norm's rstd_of: a head is some 16 elements a lane,
 * and the exactly rounded division and root would cost as much as all else, and a call that takes registers from the
 * loop. One Newton step on the estimate; infinity gives 0. */
SKR_DEVICE float head_rstd(const skr_rope_job &job, float sum)
{
    float v = __fmaf_rn(sum, job.inverse_d, job.eps), y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(v));
    float better = __fmaf_rn(__fmaf_rn(-v * y, y, 1.0f), 0.5f * y, y);
    return v < 3.0e38f && v > 1e-30f ? better : y;
}

/* ---------------------------------------------------------------- which heads */

/* Some heads of one token: of q or k, from first on, step apart. */
struct rope_group {
    int which, first, step;
    int b, s;
    bool in;
};

/* Group number id. Neighbours share a token, or take neighbouring tokens where those are closer in memory. */
SKR_DEVICE rope_group group_at(const skr_rope_job &job, uint32_t id)
{
    rope_group g;
    uint32_t groups = (uint32_t)(job.cuda.groups[0] + job.cuda.groups[1]), length = (uint32_t)job.length, n;
    if (job.cuda.heads_last) {
        uint32_t rest = skr_divide(job.cuda.by_length, id);
        g.s = (int)(id - rest * length);
        g.b = (int)skr_divide(job.cuda.by_groups, rest);
        n = rest - (uint32_t)g.b * groups;
    } else {
        uint32_t token = skr_divide(job.cuda.by_groups, id);
        n = id - token * groups;
        g.b = (int)skr_divide(job.cuda.by_length, token);
        g.s = (int)(token - (uint32_t)g.b * length);
    }
    g.which = n >= (uint32_t)job.cuda.groups[0];
    g.first = (int)n - (g.which ? job.cuda.groups[0] : 0);
    g.step = g.which ? job.cuda.groups[1] : job.cuda.groups[0];
    g.in = g.b < job.batch;
    return g;
}

#endif
