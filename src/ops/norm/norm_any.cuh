/* norm_any.cuh - rms_norm and layer_norm (CENTRE) forward and backward for what the row kernels do not take: any width,
 * any alignment, any mix of types, any number of rows. SPDX-License-Identifier: Apache-2.0
 *
 * Rows are walked in chunks of 128 columns, a chunk per warp, as often as the arithmetic needs (the second read mostly
 * hits L2). A column belongs to the same thread in every pass, so what a pass wrote can be read back, and exact aliases
 * are safe. V is 4 where every tensor allows accesses of four elements, else 1. TPR threads share a row: a warp, or the
 * whole block. */
#ifndef SKR_NORM_ANY_CUH
#define SKR_NORM_ANY_CUH

#include "../../cuda/chunk.cuh"
#include "norm_rows.cuh"

/* The second sweep of layer_norm's statistics: deviations from the first mean, four columns; and what both sweeps
 * give. */
template <int V>
SKR_DEVICE void add_deviations(const chunk<V> &c, const float *s, float mean, float &low, float &square)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (c.in(j)) {
            float d = s[j] - mean;
            low += d;
            square = __fmaf_rn(d, d, square);
        }
}

SKR_DEVICE norm_stats around_mean(float mean, float low, float square, int64_t n, float eps)
{
    low = __fdiv_rn(low, (float)n); /* not each of them: the bits of subnormal ones would be lost */
    float variance = __fmaf_rn(-low, low, __fdiv_rn(square, (float)n));
    float rstd = rstd_of_variance(variance < 0.0f ? 0.0f : variance, eps);
    return {mean, low, -low * rstd, rstd};
}

/* ---------------------------------------------------------------- forward */

template <bool CENTRE, int TPR, int THREADS, int V> struct norm_any {
    using Owner = block_owner<TPR, THREADS>;
    static constexpr int WARPS = TPR / 32;

    const skr_norm_job &job;
    Owner owner;
    int warp;
    const char *x, *residual, *weight, *bias;
    char *y, *residual_out, *y_quant;

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        wait_for_previous();
        let_next_start();
        norm_any k(job, memory);
        for (int64_t first = (int64_t)blockIdx.x * Owner::groups; first < job.rows.m;
             first += (int64_t)gridDim.x * Owner::groups)
            k.row(first + threadIdx.x / TPR);
    }

    __device__ __forceinline__ norm_any(const skr_norm_job &j, typename Owner::shared &m) : job(j), owner(m)
    {
        warp = threadIdx.x % TPR / 32;
    }

    /* s of a chunk: on the first pass as it comes, later from residual_out where that holds the rounded one. */
    __device__ __forceinline__ void get_s(const chunk<V> &c, bool again, float *s) const
    {
        if (again && residual_out) {
            c.load(job.residual_out.type, residual_out, s);
            return;
        }
        c.load(job.x.type, x, s);
        if (residual) {
            float f[4];
            c.load(job.residual.type, residual, f);
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[j] += f[j];
        }
    }

    __device__ __forceinline__ void get_y(const chunk<V> &c, const norm_stats &stats, float *f) const
    {
        float w[4];
        get_s(c, true, f);
        if (weight)
            c.load(job.weight.type, weight, w);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float h = normal<CENTRE>(stats, f[j]);
            if (job.round_before_weight)
                h = any_rounded(job.x.type, h);
            f[j] = h * ((weight ? w[j] : 1.0f) + job.weight_offset);
        }
        if (bias) {
            c.load(job.bias.type, bias, w);
#pragma unroll
            for (int j = 0; j < 4; j++)
                f[j] += w[j];
        }
    }

    __device__ __forceinline__ void row(int64_t row)
    {
        bool in = row < job.rows.m;
        int64_t n = in ? job.n : 0,
                chunks = (n + SKR_CHUNK - 1) / SKR_CHUNK; /* a row past the end still joins the reductions */
        int64_t at = in ? row : 0, head = at % job.heads;
        x = any_row(job.rows, job.x, at), residual = any_row(job.rows, job.residual, at),
        y = any_row(job.rows, job.y, at);
        residual_out = any_row(job.rows, job.residual_out, at), y_quant = any_row(job.rows, job.y_quant, at);
        weight = any_param(job.weight, head), bias = any_param(job.bias, head);
        bool leader = in && threadIdx.x % TPR == 0;

        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f}, inverse = __frcp_rn((float)job.n);
        for (int64_t k = warp; k < chunks; k += WARPS) {
            chunk<V> c(k, n);
            float s[4];
            get_s(c, false, s);
            if (residual_out) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[j] = any_rounded(job.residual_out.type, s[j]);
                c.store(job.residual_out.type, residual_out, s);
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                part[j] = __fmaf_rn(s[j], CENTRE ? inverse : s[j], part[j]);
        }
        float sum = owner.template reduce<skr_sum>((part[0] + part[1]) + (part[2] + part[3]));
        norm_stats stats = {0.0f, 0.0f, 0.0f, 0.0f};
        if constexpr (CENTRE) {
            float low = 0.0f, square = 0.0f;
            stats.mean = sum;
            for (int64_t k = warp; k < chunks; k += WARPS) {
                chunk<V> c(k, n);
                float s[4];
                get_s(c, true, s);
                add_deviations(c, s, sum, low, square);
            }
            owner.template reduce2<skr_sum, skr_sum>(low, square);
            stats = around_mean(sum, low, square, job.n, job.eps);
        } else {
            stats.rstd = rstd_of(sum, job.n, job.eps);
        }
        if (job.rstd.data && leader)
            *(float *)any_row(job.rows, job.rstd, at) = stats.rstd;
        if (CENTRE && job.mean.data && leader)
            *(float *)any_row(job.rows, job.mean, at) = stats.mean + stats.low;

        float amax = 0.0f;
        char *scales = job.quant > SKR_QUANT_TENSOR ? any_row(job.rows, job.scale, at) : nullptr;
        skr_tamer by = tame(job.quant == SKR_QUANT_TENSOR ? *(const float *)job.scale.data : 1.0f);
        for (int64_t k = warp; k < chunks; k += WARPS) {
            chunk<V> c(k, n);
            float f[4];
            get_y(c, stats, f);
            if (y) {
                c.store(job.y.type, y, f);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    f[j] = any_rounded(job.y.type, f[j]);
            }
            if (job.quant == SKR_QUANT_BLOCK) {
                float scale = quant_scale(job.y_quant.type, lanes_reduce<skr_max, 32>(c.amax(f)));
                if ((threadIdx.x & 31) == 0)
                    ((float *)scales)[k * job.scale.col_stride] = scale;
                by = tame(scale);
            }
            if (job.quant == SKR_QUANT_ROW)
                amax = fmaxf(amax, c.amax(f));
            else if (job.quant)
                c.store_quant(job.y_quant.type, y_quant, by, f);
        }
        if (job.quant != SKR_QUANT_ROW)
            return;
        float scale = quant_scale(job.y_quant.type, owner.template reduce<skr_max>(amax));
        if (leader)
            *(float *)scales = scale;
        by = tame(scale);
        for (int64_t k = warp; k < chunks; k += WARPS) {
            chunk<V> c(k, n);
            float f[4];
            if (y) /* the rounded y is what is quantised, and x may be gone: y may be x */
                c.load(job.y.type, y, f);
            else
                get_y(c, stats, f);
            c.store_quant(job.y_quant.type, y_quant, by, f);
        }
    }
};

/* ---------------------------------------------------------------- backward
 *
 * Three steps: statistics of the rows into the workspace, where they were not saved; the columns' sums, a part of the
 * rows at a time; dx, row by row. dx comes last because it may lie where x or dy does. */

template <bool CENTRE> SKR_DEVICE norm_stats stats_at(const skr_norm_backward_job &job, int64_t row)
{
    norm_stats stats = {0.0f, 0.0f, 0.0f, 0.0f};
    if (job.rstd.data) {
        stats.rstd = *(const float *)any_row(job.rows, job.rstd, row);
        if (CENTRE)
            stats.mean = *(const float *)any_row(job.rows, job.mean, row);
    } else {
        float4 made = ((const float4 *)((const char *)job.head.workspace + job.stats_at))[row];
        stats = {made.x, made.y, made.z, made.w};
    }
    return stats;
}

template <bool CENTRE, int TPR, int THREADS> struct norm_backward_stats {
    using Owner = block_owner<TPR, THREADS>;
    static constexpr int WARPS = TPR / 32;

    SKR_DEVICE void run(const skr_norm_backward_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        wait_for_previous();
        let_next_start();
        Owner owner(memory);
        int64_t chunks = (job.n + SKR_CHUNK - 1) / SKR_CHUNK;
        float inverse = __frcp_rn((float)job.n);
        int warp = threadIdx.x / 32 % WARPS;
        for (int64_t row = (int64_t)blockIdx.x * Owner::groups + threadIdx.x / TPR; row < job.rows.m;
             row += (int64_t)gridDim.x * Owner::groups) {
            const char *x = any_row(job.rows, job.x, row);
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f}, f[4];
            for (int64_t i = warp; i < chunks; i += WARPS) {
                chunk<1>(i, job.n).load(job.x.type, x, f);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    part[j] = __fmaf_rn(f[j], CENTRE ? inverse : f[j], part[j]);
            }
            float sum = owner.template reduce<skr_sum>((part[0] + part[1]) + (part[2] + part[3]));
            norm_stats stats = {0.0f, 0.0f, 0.0f, 0.0f};
            if constexpr (CENTRE) {
                float low = 0.0f, square = 0.0f;
                for (int64_t i = warp; i < chunks; i += WARPS) {
                    chunk<1> c(i, job.n);
                    c.load(job.x.type, x, f);
                    add_deviations(c, f, sum, low, square);
                }
                owner.template reduce2<skr_sum, skr_sum>(low, square);
                stats = around_mean(sum, low, square, job.n, job.eps);
            } else {
                stats.rstd = rstd_of(sum, job.n, job.eps);
            }
            if (threadIdx.x % TPR == 0)
                ((float4 *)((char *)job.head.workspace + job.stats_at))[row] =
                    make_float4(stats.mean, stats.low, stats.shift, stats.rstd);
        }
    }
};

/* A block takes the rows of one part, 128 columns wide: each warp every WARPS-th of them. */
template <bool CENTRE, int WARPS, int V> struct norm_backward_columns {
    SKR_DEVICE void run(const skr_norm_backward_job &job)
    {
        __shared__ float sums[2][WARPS][SKR_CHUNK];
        wait_for_previous();
        let_next_start();
        int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
        int64_t n = job.n, chunks = (n + SKR_CHUNK - 1) / SKR_CHUNK, subs = job.n_parts / job.heads,
                rows = job.rows.m / job.heads;
        float *dw = job.dweight.data ? (float *)job.head.workspace : nullptr;
        float *db = job.dbias.data ? (float *)job.head.workspace + (dw ? job.n_parts * n : 0) : nullptr;
        for (int64_t id = blockIdx.x; id < job.n_parts * chunks; id += gridDim.x) {
            int64_t part = id / chunks, head = part % job.heads;
            chunk<V> c(id % chunks, n);
            float w[4] = {0.0f, 0.0f, 0.0f, 0.0f}, b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (int64_t k = part / job.heads + warp * subs; k < rows; k += WARPS * subs) {
                int64_t row = k * job.heads + head;
                float x[4], dy[4];
                c.load(job.dy.type, any_row(job.rows, job.dy, row), dy);
                if (dw) {
                    norm_stats stats = stats_at<CENTRE>(job, row);
                    c.load(job.x.type, any_row(job.rows, job.x, row), x);
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        float h = normal<CENTRE>(stats, x[j]);
                        if (job.round_before_weight)
                            h = any_rounded(job.x.type, h);
                        w[j] = __fmaf_rn(dy[j], h, w[j]);
                    }
                }
#pragma unroll
                for (int j = 0; j < 4; j++)
                    b[j] += dy[j];
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[0][warp][j * 32 + lane] = w[j], sums[1][warp][j * 32 + lane] = b[j];
            __syncthreads();
            if (warp == 0) {
                for (int i = 1; i < WARPS; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        w[j] += sums[0][i][j * 32 + lane], b[j] += sums[1][i][j * 32 + lane];
                if (dw)
                    c.store(SKR_F32, dw + part * n, w);
                if (db)
                    c.store(SKR_F32, db + part * n, b);
            }
            __syncthreads();
        }
    }
};

template <bool CENTRE, int TPR, int THREADS, int V> struct norm_backward_dx {
    using Owner = block_owner<TPR, THREADS>;
    static constexpr int WARPS = TPR / 32;

    SKR_DEVICE void run(const skr_norm_backward_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        wait_for_previous();
        let_next_start();
        Owner owner(memory);
        int64_t n = job.n, chunks = (n + SKR_CHUNK - 1) / SKR_CHUNK;
        int warp = threadIdx.x % TPR / 32;
        for (int64_t row = (int64_t)blockIdx.x * Owner::groups + threadIdx.x / TPR; row < job.rows.m;
             row += (int64_t)gridDim.x * Owner::groups) {
            const char *x = any_row(job.rows, job.x, row), *dy = any_row(job.rows, job.dy, row),
                       *dres = any_row(job.rows, job.dres, row), *weight = any_param(job.weight, row % job.heads);
            char *dx = any_row(job.rows, job.dx, row);
            norm_stats stats = stats_at<CENTRE>(job, row);
            /* h and g of a chunk */
            auto get = [&](const chunk<V> &c, float *h, float *g) {
                float w[4];
                c.load(job.x.type, x, h), c.load(job.dy.type, dy, g);
                if (weight)
                    c.load(job.weight.type, weight, w);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    h[j] = normal<CENTRE>(stats, h[j]);
                    g[j] *= (weight ? w[j] : 1.0f) + job.weight_offset;
                }
            };
            float dot[4] = {0.0f, 0.0f, 0.0f, 0.0f}, all[4] = {0.0f, 0.0f, 0.0f, 0.0f}, h[4], g[4];
            for (int64_t i = warp; i < chunks; i += WARPS) {
                get(chunk<V>(i, n), h, g);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    dot[j] = __fmaf_rn(g[j], h[j], dot[j]), all[j] += g[j];
            }
            float sum = (dot[0] + dot[1]) + (dot[2] + dot[3]), sum_g = (all[0] + all[1]) + (all[2] + all[3]);
            owner.template reduce2<skr_sum, skr_sum>(sum, sum_g);
            float mean = __fdiv_rn(sum, (float)n), mean_g = CENTRE ? __fdiv_rn(sum_g, (float)n) : 0.0f;
            for (int64_t i = warp; i < chunks; i += WARPS) {
                chunk<V> c(i, n);
                get(c, h, g);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    g[j] = stats.rstd * __fmaf_rn(-h[j], mean, g[j] - mean_g);
                if (dres) {
                    c.load(job.dres.type, dres, h);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        g[j] += h[j];
                }
                c.store(job.dx.type, dx, g);
            }
        }
    }
};

#endif
