/* rope.cuh - what the CUDA kernels of rope share: where a token's cos and sin are, and the lanes of a head.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The row kernels give a head to L lanes of a warp. Each lane owns a unit: two 16-byte vectors that hold V whole pairs
 * (columns c and c + R/2, or 2 V neighbours when pairs are interleaved), or two vectors of the columns that do not
 * rotate. So a lane rotates what it loaded, in place or not, and cos and sin of its pairs serve every head of the
 * token. */
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

/* ---------------------------------------------------------------- a unit */

struct rope_unit {
    int first, second; /* columns of its two vectors */
    int pair;          /* first of its pairs; negative: its columns are copied */
    bool has_first, has_second;
};

template <int V> SKR_DEVICE rope_unit unit_of(const skr_rope_job &job, int lane)
{
    rope_unit u;
    int rotary = job.cuda.rotary_units, r = (int)job.r;
    bool turns = lane < rotary;
    u.pair = turns ? lane * V : -1;
    u.first = turns ? (job.interleaved ? 2 * V : V) * lane : r + (lane - rotary) * 2 * V;
    u.second = turns && !job.interleaved ? u.first + r / 2 : u.first + V;
    u.has_first = lane < job.cuda.units;
    u.has_second = u.has_first && u.second < (int)job.d;
    return u;
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

/* cos and sin of a unit's pairs; back: sin with the other sign. */
template <int V> SKR_DEVICE void pairs_of(const rope_token &t, int pair, bool back, float *c, float *s)
{
    int bytes = skr_type_bytes(t.type);
    any_load<V>(t.type, t.cos + pair * bytes, c);
    any_load<V>(t.type, t.sin + pair * bytes, s);
    if (back)
#pragma unroll
        for (int i = 0; i < V; i++)
            s[i] = -s[i];
}

SKR_DEVICE int64_t head_offset(const skr_rope_rows &r, int64_t b, int64_t s, int64_t h)
{
    return b * r.batch + s * r.token + h * r.head;
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
        uint32_t rest = id / length;
        g.s = (int)(id - rest * length);
        g.b = (int)(rest / groups);
        n = rest - (uint32_t)g.b * groups;
    } else {
        uint32_t token = id / groups;
        n = id - token * groups;
        g.b = (int)(token / length);
        g.s = (int)(token - (uint32_t)g.b * length);
    }
    g.which = n >= (uint32_t)job.cuda.groups[0];
    g.first = (int)n - (g.which ? job.cuda.groups[0] : 0);
    g.step = g.which ? job.cuda.groups[1] : job.cuda.groups[0];
    g.in = g.b < job.batch;
    return g;
}

#endif
