/* rope_rows.cuh - heads of one type with 16-byte accesses: rotation, with or without the norm before it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A group of L lanes takes G heads of one token and is done. All loads of the heads are asked for first, then cos and
 * sin (which other groups of the token have brought into L1 or L2), then the weights. LEAN: the usual case, where the
 * addresses would otherwise take longer than the heads: all columns rotate in halves, every lane has columns, row s of
 * the table is for place s. */
#ifndef SKR_ROPE_ROWS_CUH
#define SKR_ROPE_ROWS_CUH

#include "rope.cuh"

enum { ROPE_THREADS = 128 };

template <int T, int L, int G, bool NORM, bool LEAN> SKR_DEVICE void rope_rows(const skr_rope_job &job)
{
    constexpr int V = skr_elem<T>::vec, BYTES = skr_elem<T>::bytes;
    wait_for_previous();
    let_next_start();
    uint32_t id = (blockIdx.x * ROPE_THREADS + threadIdx.x) / L;
    rope_group g = group_at(job, id);
    rope_unit u = LEAN ? unit_in_halves<V, L>(threadIdx.x % L) : unit_of<V>(job, threadIdx.x % L);
    if (!NORM && !(g.in && u.has_first))
        return;
    int heads = (int)(g.which ? job.heads[1] : job.heads[0]);
    const skr_rope_rows &from = g.which ? job.in[1] : job.in[0], &to = g.which ? job.out[1] : job.out[0];
    const char *x = (const char *)from.data + (head_offset(from, g.b, g.s, g.first) + u.first) * BYTES;
    char *y = (char *)to.data + (head_offset(to, g.b, g.s, g.first) + u.first) * BYTES;
    int64_t x_step = g.step * from.head * BYTES, y_step = g.step * to.head * BYTES;
    int apart = (u.second - u.first) * BYTES;
    uint4 raw[G][2];
#pragma unroll
    for (int i = 0; i < G; i++) {
        bool has = g.in && g.first + i * g.step < heads;
        raw[i][0] = raw[i][1] = make_uint4(0, 0, 0, 0);
        if (has && u.has_first)
            raw[i][0] = load16_once(x + i * x_step);
        if (has && u.has_second)
            raw[i][1] = load16_once(x + i * x_step + apart);
    }
    const skr_param &p = g.which ? job.weight[1] : job.weight[0];
    rope_token t = {nullptr, nullptr, SKR_F32, false};
    rope_pairs<V> pairs;
    rope_weights<T> weights;
    float c[V], s[V], w[NORM ? 2 * V : 1];
    bool turns = g.in && u.pair >= 0;
    if (g.in)
        t = LEAN ? token_in_place(job, g.s) : token_at(job, g.b, g.s);
    if (turns)
        pairs.get(t, u);
    if (NORM) {
        weights.get(p, u);
        weights.open(p, job.weight_offset, u, w);
    }
    if (turns)
        pairs.open(t, job.backward, c, s);
#pragma unroll
    for (int i = 0; i < G; i++) {
        float f[2 * V];
        unpack<T>(raw[i][0], f), unpack<T>(raw[i][1], f + V);
        if (NORM) {
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int k = 0; k < 2 * V; k++)
                part[k & 3] = __fmaf_rn(f[k], f[k], part[k & 3]);
            float sum = lanes_reduce<skr_sum, L>((part[0] + part[1]) + (part[2] + part[3]));
            float rstd = head_rstd(job, sum);
#pragma unroll
            for (int k = 0; k < 2 * V; k++)
                f[k] = f[k] * rstd * w[NORM ? k : 0];
        }
        if (turns)
            rotate<V>(f, c, s, !LEAN && job.interleaved);
        bool has = g.in && g.first + i * g.step < heads && !t.nowhere;
        if (has && u.has_first)
            store16_once(y + i * y_step, pack<T>(f));
        if (has && u.has_second)
            store16_once(y + i * y_step + apart, pack<T>(f + V));
    }
    if (t.nowhere) /* of no sequence */
#pragma unroll 1
        for (int i = 0; i < G && g.first + i * g.step < heads; i++) {
            if (u.has_first)
                store16_once(y + i * y_step, make_uint4(0, 0, 0, 0));
            if (u.has_second)
                store16_once(y + i * y_step + apart, make_uint4(0, 0, 0, 0));
        }
}

/* ---------------------------------------------------------------- the norm's gradient
 *
 * Groups of lanes walk over the heads of q or of k, G of one token at a time, and keep what they add to the weight's
 * gradient in registers. A block's groups are added in order; its row is one part. */

template <int T, int L, int G> struct rope_norm_backward {
    static constexpr int V = skr_elem<T>::vec, BYTES = skr_elem<T>::bytes, GROUPS = ROPE_THREADS / L;

    const skr_rope_job &job;
    rope_unit u;
    int which, heads;
    float w[2 * V], sum[2 * V];

    __device__ __forceinline__ rope_norm_backward(const skr_rope_job &j) : job(j)
    {
        u = unit_of<V>(job, threadIdx.x % L);
        which = (int)blockIdx.x >= job.cuda.parts[0];
        heads = (int)(which ? job.heads[1] : job.heads[0]);
#pragma unroll
        for (int k = 0; k < 2 * V; k++)
            w[k] = sum[k] = 0.0f;
        const skr_param &p = which ? job.weight[1] : job.weight[0];
        rope_weights<T> weights;
        weights.get(p, u);
        weights.open(p, job.weight_offset, u, w);
    }

    SKR_DEVICE void run(const skr_rope_job &job)
    {
        wait_for_previous();
        let_next_start();
        rope_norm_backward k(job);
        uint32_t part = blockIdx.x - (k.which ? (uint32_t)job.cuda.parts[0] : 0u);
        uint32_t parts = (uint32_t)(k.which ? job.cuda.parts[1] : job.cuda.parts[0]);
        uint32_t groups = (uint32_t)(k.which ? job.cuda.groups[1] : job.cuda.groups[0]);
        uint32_t total = (uint32_t)(job.batch * job.length) * groups, step = parts * GROUPS;
        /* All groups of a warp take as many turns: they exchange sums. */
        for (uint32_t id = part * GROUPS; id < total; id += step)
            k.heads_of(id + threadIdx.x / L, total, groups);
        k.finish(part);
    }

    __device__ __forceinline__ void get(const skr_rope_rows &r, int b, int s, int h, bool in, uint4 (&raw)[2]) const
    {
        raw[0] = raw[1] = make_uint4(0, 0, 0, 0);
        const char *p = (const char *)r.data + (head_offset(r, b, s, h) + u.first) * BYTES;
        if (in && u.has_first)
            raw[0] = load16_once(p);
        if (in && u.has_second)
            raw[1] = load16_once(p + (u.second - u.first) * BYTES);
    }

    __device__ __forceinline__ void heads_of(uint32_t id, uint32_t total, uint32_t groups)
    {
        uint32_t length = (uint32_t)job.length, token, n;
        skr_divisor by_group = which ? job.cuda.by_group[1] : job.cuda.by_group[0];
        if (job.cuda.heads_last) { /* id = (b * groups + n) * length + s */
            uint32_t rest = skr_divide(job.cuda.by_length, id), b = skr_divide(by_group, rest);
            n = rest - b * groups;
            token = b * length + (id - rest * length);
        } else {
            token = skr_divide(by_group, id);
            n = id - token * groups;
        }
        int b = (int)skr_divide(job.cuda.by_length, token), s = (int)(token - (uint32_t)b * length);
        bool in = id < total;
        const skr_rope_rows &dy = which ? job.in[1] : job.in[0], &x = which ? job.x[1] : job.x[0];
        uint4 g_raw[G][2], x_raw[G][2];
#pragma unroll
        for (int i = 0; i < G; i++) {
            int h = (int)(n + i * groups);
            get(dy, b, s, h, in && h < heads, g_raw[i]);
            get(x, b, s, h, in && h < heads, x_raw[i]);
        }
        float c[V], sine[V];
        rope_pairs<V> pairs;
        rope_token t = {nullptr, nullptr, SKR_F32, false};
        if (in)
            t = token_at(job, b, s);
        bool turns = in && u.pair >= 0;
        if (turns) {
            pairs.get(t, u);
            pairs.open(t, true, c, sine);
        }
#pragma unroll
        for (int i = 0; i < G; i++) {
            int h = (int)(n + i * groups);
            one(g_raw[i], x_raw[i], turns, c, sine, t.nowhere, b, s, h, in && h < heads);
        }
    }

    __device__ __forceinline__ void one(const uint4 (&g_raw)[2], const uint4 (&x_raw)[2], bool turns, const float *c,
                                        const float *sine, bool nowhere, int b, int s, int h, bool in)
    {
        float g[2 * V], x[2 * V];
        unpack<T>(g_raw[0], g), unpack<T>(g_raw[1], g + V);
        unpack<T>(x_raw[0], x), unpack<T>(x_raw[1], x + V);
        if (turns)
            rotate<V>(g, c, sine, job.interleaved);
        if (nowhere)
#pragma unroll
            for (int k = 0; k < 2 * V; k++)
                g[k] = x[k] = 0.0f;
        float squares[2] = {0.0f, 0.0f}, dot[2] = {0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < 2 * V; k++) {
            squares[k & 1] = __fmaf_rn(x[k], x[k], squares[k & 1]);
            dot[k & 1] = __fmaf_rn(g[k] * w[k], x[k], dot[k & 1]);
        }
        float rstd = head_rstd(job, lanes_reduce<skr_sum, L>(squares[0] + squares[1]));
        float mean = lanes_reduce<skr_sum, L>(dot[0] + dot[1]) * rstd;
        if (__any_sync(0xffffffffu, rstd == 0.0f)) { /* squares beyond f32: h is 0, or NaN where x is infinite */
            float again = 0.0f;
#pragma unroll
            for (int k = 0; k < 2 * V; k++)
                again = __fmaf_rn(g[k] * w[k], x[k] * rstd, again);
            again = lanes_reduce<skr_sum, L>(again);
            mean = rstd == 0.0f ? again : mean;
        }
        mean *= job.inverse_d;
        if (!in)
            return;
#pragma unroll
        for (int k = 0; k < 2 * V; k++) {
            float hat = x[k] * rstd;
            sum[k] = __fmaf_rn(g[k], hat, sum[k]);
            g[k] = __fmaf_rn(-hat, mean, g[k] * w[k]) * rstd;
        }
        const skr_rope_rows &to = which ? job.out[1] : job.out[0];
        if (!to.data)
            return;
        char *y = (char *)to.data + (head_offset(to, b, s, h) + u.first) * BYTES;
        if (u.has_first)
            store16_once(y, pack<T>(g));
        if (u.has_second)
            store16_once(y + (u.second - u.first) * BYTES, pack<T>(g + V));
    }

    __device__ __forceinline__ void finish(uint32_t part)
    {
        __shared__ __align__(16) float rows[GROUPS][L * 2 * V];
        int64_t at = job.cuda.parts_at[which];
        if (at < 0)
            return;
        int group = threadIdx.x / L;
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (u.has_first)
                rows[group][u.first + k] = sum[k];
            if (u.has_second)
                rows[group][u.second + k] = sum[V + k];
        }
        __syncthreads();
        float *out = (float *)((char *)job.head.workspace + at) + part * job.d;
        for (int j = threadIdx.x; j < (int)job.d; j += ROPE_THREADS) {
            float all = 0.0f;
            for (int k = 0; k < GROUPS; k++)
                all += rows[k][j];
            out[j] = all;
        }
    }
};

#endif
