/* cross_entropy_stream.cuh - rows of any width, streamed: losses, partial results of shards, and, where a row fits no
 * registers or no vectors, its gradient by a second read. SPDX-License-Identifier: Apache-2.0
 *
 * An owner (some lanes or a block) walks over its row, U vectors of a thread at once: their maximum first, then their
 * exponentials, so that each element costs one. V is 1 for rows that are not aligned, or of too many for 32 bits. */
#ifndef SKR_CROSS_ENTROPY_STREAM_CUH
#define SKR_CROSS_ENTROPY_STREAM_CUH

#include "cross_entropy_row.cuh"

/* Vector kernels count rows in 32 bits. */
template <int V> struct ce_row_type {
    using type = skr_row;
    SKR_DEVICE type of(const skr_row_space &space, int64_t row)
    {
        return row_of(space, (int)row);
    }
};
template <> struct ce_row_type<1> {
    using type = int64_t;
    SKR_DEVICE type of(const skr_row_space &space, int64_t row)
    {
        return row;
    }
};

template <int T, class Owner, int V, int U, bool FULL> struct cross_entropy_stream {
    static constexpr int L = Owner::lanes, B = skr_elem<T>::bytes;
    using Row = typename ce_row_type<V>::type;

    const skr_cross_entropy_job &job;
    Owner &owner;
    skr_ce_scale scale;
    int lane;

    SKR_DEVICE void run(const skr_cross_entropy_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        wait_for_previous();
        let_next_start();
        cross_entropy_stream k = {job, owner, scale_of(job), (int)(threadIdx.x % L)};
        for (int64_t first = (int64_t)owner.index() * Owner::groups; first < job.rows.m;
             first += (int64_t)owner.count() * Owner::groups)
            k.one(first + threadIdx.x / L);
    }

    __device__ __forceinline__ void one(int64_t row)
    {
        bool in = row < job.rows.m, leader = in && lane == 0;
        Row at = ce_row_type<V>::of(job.rows, in ? row : 0);
        int64_t vectors = in ? (job.n + V - 1) / V : 0;
        const char *x = (const char *)job.logits.data + stat_offset(job.rows, job.logits, at) * B;
        ce_target<Row> t(job, at, leader);
        float at_target = 0.0f;
        if (leader && t.hit >= 0 && t.hit < job.n)
            at_target = any_load1(T, x + t.hit * B);
        __syncwarp(); /* dlogits may be logits: nobody writes before this was read */

        float max = -INFINITY, sum = 0.0f, smooth = 0.0f;
        for (int64_t v = lane; v < vectors; v += L * U)
            add(x, v, vectors, max, sum, smooth);
        join_sums(owner, max, sum);
        if (FULL && job.smoothing != 0.0f)
            smooth = owner.template reduce<skr_sum>(smooth);

        float lse = leader || job.z_loss != 0.0f ? lse_of(max, sum) : 0.0f;
        if (FULL)
            at_target = t.hit >= 0 && t.hit < job.n ? capped(at_target, job.softcap) : 0.0f;
        if (leader) {
            if (job.lse.data)
                ((float *)job.lse.data)[stat_offset(job.rows, job.lse, at)] = lse;
            skr_ce_loss loss = {0.0f, 0.0f};
            if (t.counts)
                loss = skr_ce_loss_of(&scale, job.z_loss, t.weight, lse, at_target, smooth);
            put_loss(job, at, row, loss);
            if (job.partial.data) {
                float *p = (float *)job.partial.data + stat_offset(job.rows, job.partial, at);
                int64_t step = job.partial.col_stride;
                p[0] = sum == sum ? max : sum, p[step] = sum, p[2 * step] = at_target, p[3 * step] = smooth;
            }
        }
        if (!job.dlogits.data)
            return;
        float grad = job.grad.data ? ((const float *)job.grad.data)[stat_offset(job.rows, job.grad, at)] : 1.0f;
        skr_ce_coef k = skr_ce_coef_of(&scale, job.z_loss, t.counts, t.weight, lse, grad, 0.0f);
        if (job.dlogits.type == T)
            write<true>(at, x, vectors, k, max, sum, t.hit);
        else
            write<false>(at, x, vectors, k, max, sum, t.hit);
    }

    /* U vectors from v on, L apart. */
    __device__ __forceinline__ void add(const char *x, int64_t v, int64_t vectors, float &max, float &sum,
                                        float &smooth) const
    {
        ce_vector<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            raw[u].none();
            if (v + u * L < vectors)
                raw[u].load(x, v + u * L);
        }
        float top = ce_vector<T, V>::template most<U>(raw);
        if (FULL && job.softcap != 0.0f) /* it grows with its argument, and vector v is there */
            top = capped(top, job.softcap);
        top = fmaxf(top, max);
        skr_exponent e(top);
        float part[2] = {0.0f, 0.0f};
#pragma unroll
        for (int u = 0; u < U; u++) {
            float f[V];
            get(raw[u], (v + u * L) * V, f);
#pragma unroll
            for (int c = 0; c < V; c++)
                part[c & 1] += e.at(f[c]);
            if (FULL && job.smoothing != 0.0f && v + u * L < vectors) {
                float w[V];
                class_weights<V>(job, (v + u * L) * V, w);
#pragma unroll
                for (int c = 0; c < V; c++)
                    smooth += f[c] * (scale.k * w[c]);
            }
        }
        sum = __fmaf_rn(part[0] + part[1], e.fix, sum * exp_flush(max - exp_base(top)));
        max = top;
    }

    /* s of the vector at column `at`; beyond the row -infinity. */
    __device__ __forceinline__ void get(const ce_vector<T, V> &raw, int64_t at, float *f) const
    {
        raw.get(f);
        if (FULL && job.softcap != 0.0f) {
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = at + c < job.n ? capped(f[c], job.softcap) : -INFINITY;
        }
    }

    template <bool SAME> __device__ __forceinline__ void
    write(const Row &at, const char *x, int64_t vectors, const skr_ce_coef &k, float max, float sum, int64_t hit) const
    {
        int bytes = SAME ? B : skr_type_bytes(job.dlogits.type);
        char *y = (char *)job.dlogits.data + stat_offset(job.rows, job.dlogits, at) * bytes;
        bool zero = is_zero(k);
        skr_exponent e(max);
        float by = zero ? 0.0f : k.a / sum * e.fix;
        for (int64_t v = lane; v < vectors; v += L * U) {
            ce_vector<T, V> raw[U];
#pragma unroll
            for (int u = 0; u < U; u++)
                if (v + u * L < vectors)
                    raw[u].load(x, v + u * L);
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (v + u * L >= vectors)
                    continue;
                float f[V], g[V];
                raw[u].get(f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    g[c] = zero ? 0.0f : e.at(FULL ? capped(f[c], job.softcap) : f[c]) * by;
                int64_t column = (v + u * L) * V;
                if (!zero)
                    finish_gradient<V, FULL>(job, k, hit >= column ? (uint32_t)min(hit - column, (int64_t)V) : V,
                                             column, f, g);
                put_vector<T, V, SAME>(job.dlogits.type, y + column * bytes, g);
            }
        }
    }
};

/* ---------------------------------------------------------------- the gradient from lse
 *
 * Elementwise: a group of L lanes takes U vectors each of one piece of a row. job.chunks pieces a row. */
template <int T, int L, int V, int U, bool FULL> struct cross_entropy_backward {
    static constexpr int B = skr_elem<T>::bytes;

    SKR_DEVICE void run(const skr_cross_entropy_job &job)
    {
        wait_for_previous();
        let_next_start();
        if (job.dlogits.type == T)
            all<true>(job);
        else
            all<false>(job);
    }

    template <bool SAME> SKR_DEVICE void all(const skr_cross_entropy_job &job)
    {
        using Row = typename ce_row_type<V>::type;
        skr_ce_scale scale = scale_of(job);
        int64_t items = job.rows.m * job.chunks, step = (int64_t)gridDim.x * (blockDim.x / L);
        int64_t vectors = (job.n + V - 1) / V;
        int lane = threadIdx.x % L, bytes = SAME ? B : skr_type_bytes(job.dlogits.type);
        for (int64_t item = (int64_t)blockIdx.x * (blockDim.x / L) + threadIdx.x / L; item < items; item += step) {
            int64_t number = V > 1 && items <= 0x7fffffff ? (uint32_t)item / (uint32_t)job.chunks : item / job.chunks;
            int64_t v = (item - number * job.chunks) * (L * U) + lane;
            Row at = ce_row_type<V>::of(job.rows, number);
            const char *x = (const char *)job.logits.data + stat_offset(job.rows, job.logits, at) * B;
            char *y = (char *)job.dlogits.data + stat_offset(job.rows, job.dlogits, at) * bytes;
            int valid = (int)min((vectors - v + L - 1) / L, (int64_t)U);
            x += v * (V * B), y += v * (V * bytes); /* one base, constant distances */
            ce_vector<T, V> raw[U];
#pragma unroll
            for (int u = 0; u < U; u++)
                if (u < valid)
                    raw[u].load(x, u * L);
            ce_target<Row> t(job, at, v == 0);
            float lse = ((const float *)job.lse.data)[stat_offset(job.rows, job.lse, at)];
            float grad = job.grad.data ? ((const float *)job.grad.data)[stat_offset(job.rows, job.grad, at)] : 1.0f;
            float dlse = job.dlse.data ? ((const float *)job.dlse.data)[stat_offset(job.rows, job.dlse, at)] : 0.0f;
            skr_ce_coef k = skr_ce_coef_of(&scale, job.z_loss, t.counts, t.weight, lse, grad, dlse);
            bool zero = is_zero(k);
            int place = t.hit >= v * V ? (int)min(t.hit - v * V, (int64_t)(L * U * V)) : -1;
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (u >= valid)
                    continue;
                float f[V], g[V];
                raw[u].get(f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    g[c] = zero ? 0.0f : exp_flush((FULL ? capped(f[c], job.softcap) : f[c]) - lse) * k.a;
                if (!zero)
                    finish_gradient<V, FULL>(job, k, (uint32_t)(place - u * L * V), (v + u * L) * V, f, g);
                put_vector<T, V, SAME>(job.dlogits.type, y + (int64_t)u * L * V * bytes, g);
            }
        }
    }
};

#endif
