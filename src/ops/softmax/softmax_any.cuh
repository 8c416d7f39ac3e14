/* softmax_any.cuh - softmax forward and backward for what the row kernels do not take: any strides, any alignment, any
 * mix of types, any width, any number of rows. SPDX-License-Identifier: Apache-2.0
 *
 * A team of threads shares a row and reads it twice, the second time mostly from L2; an element belongs to the same
 * thread both times, so exact aliases are safe. Where columns are side by side, neighbouring lanes take neighbouring
 * columns: a warp or a block to a row. Where rows are, neighbouring lanes take neighbouring rows and the warps of a
 * block share their columns. */
#ifndef SKR_SOFTMAX_ANY_CUH
#define SKR_SOFTMAX_ANY_CUH

#include "softmax_rows.cuh"

/* ---------------------------------------------------------------- teams */

/* TPR threads of a block for each row. */
template <int TPR, int THREADS> struct along_team {
    using Owner = block_owner<TPR, THREADS>;
    static constexpr int rows = Owner::groups, size = TPR;
    Owner owner;

    __device__ __forceinline__ along_team(typename Owner::shared &memory) : owner(memory)
    {
    }
    using shared = typename Owner::shared;
    __device__ __forceinline__ int row() const
    {
        return threadIdx.x / TPR;
    }
    __device__ __forceinline__ int index() const
    {
        return threadIdx.x % TPR;
    }
    __device__ __forceinline__ void join(float &most, float &sum)
    {
        skr_softmax_sums pair = {SKR_LOG2E};
        pair.lanes<32>(most, sum);
        owner.join(pair, most, sum);
    }
    __device__ __forceinline__ float add(float f)
    {
        return owner.template reduce<skr_sum>(f);
    }
};

/* 32 rows for each block, a lane each; its WARPS warps share the columns. */
template <int WARPS> struct across_team {
    static constexpr int rows = 32, size = WARPS;
    struct shared {
        float most[WARPS][32], sum[WARPS][32];
    };
    shared &memory;

    __device__ __forceinline__ across_team(shared &m) : memory(m)
    {
    }
    __device__ __forceinline__ int row() const
    {
        return threadIdx.x & 31;
    }
    __device__ __forceinline__ int index() const
    {
        return threadIdx.x / 32;
    }
    __device__ __forceinline__ void join(float &most, float &sum)
    {
        __syncthreads(); /* the last row's pairs have been read */
        memory.most[index()][row()] = most, memory.sum[index()][row()] = sum;
        __syncthreads();
        most = memory.most[0][row()], sum = memory.sum[0][row()];
        for (int w = 1; w < WARPS; w++)
            skr_softmax_sums{SKR_LOG2E}.join(most, sum, memory.most[w][row()], memory.sum[w][row()]);
    }
    __device__ __forceinline__ float add(float f)
    {
        __syncthreads();
        memory.sum[index()][row()] = f;
        __syncthreads();
        f = memory.sum[0][row()];
        for (int w = 1; w < WARPS; w++)
            f += memory.sum[w][row()];
        return f;
    }
};

/* A tensor's row: element k. */
struct any_row {
    char *data;
    int64_t step; /* bytes */
    int type;

    __device__ __forceinline__ any_row(const skr_row_space &space, const skr_rows &t, int64_t row) : type(t.type)
    {
        int bytes = skr_type_bytes(t.type);
        data = t.data ? (char *)t.data + skr_row_offset(&space, t.stride, row) * bytes : nullptr;
        step = t.col_stride * bytes;
    }
    __device__ __forceinline__ float get(int64_t k) const
    {
        return any_load1(type, data + k * step);
    }
    __device__ __forceinline__ void put(int64_t k, float f) const
    {
        any_store1(type, data + k * step, f);
    }
};

enum { SKR_ANY_UNROLL = 4 };

/* ---------------------------------------------------------------- forward */

struct any_s {
    any_row x, mask;
    skr_span seen;
    float scale;

    __device__ __forceinline__ float operator()(int64_t k) const
    {
        if (k < seen.begin || k >= seen.end)
            return skr_softmax_sums::none;
        float f = x.get(k);
        return mask.data ? __fmaf_rn(f, scale, mask.get(k)) : f * scale;
    }
};

template <class Team> SKR_DEVICE void softmax_any(const skr_softmax_job &job)
{
    __shared__ __align__(16) typename Team::shared memory;
    constexpr int G = SKR_ANY_UNROLL;
    Team team(memory);
    wait_for_previous();
    let_next_start();
    for (int64_t first = (int64_t)blockIdx.x * Team::rows; first < job.rows.m;
         first += (int64_t)gridDim.x * Team::rows) {
        int64_t row = first + team.row(), n = row < job.rows.m ? job.n : 0; /* one past the end still joins */
        row = row < job.rows.m ? row : first;
        any_s s = {any_row(job.rows, job.x, row), any_row(job.rows, job.mask, row), skr_seen_of(&job.seen, job.n, row),
                   job.scale};
        any_row y(job.rows, job.y, row);
        float most = skr_softmax_sums::none, sum = 0.0f;
        for (int64_t k = team.index(); k < n; k += G * Team::size) {
            float f[G], top = most, part = 0.0f;
#pragma unroll
            for (int g = 0; g < G; g++)
                f[g] = k + g * Team::size < n ? s(k + g * Team::size) : skr_softmax_sums::none;
#pragma unroll
            for (int g = 0; g < G; g++)
                top = fmaxf(top, f[g]);
#pragma unroll
            for (int g = 0; g < G; g++)
                part += exp_fast(f[g] - against(top));
            sum = sum * skr_softmax_sums{SKR_LOG2E}.factor(most, top) + part;
            most = top;
        }
        team.join(most, sum);
        float top = against(most), end = !job.log ? inverse(sum) : sum == 0.0f ? 0.0f : logf(sum);
        for (int64_t k = team.index(); k < n; k += G * Team::size) {
            float f[G];
#pragma unroll
            for (int g = 0; g < G; g++)
                f[g] = k + g * Team::size < n ? s(k + g * Team::size) - top : 0.0f;
#pragma unroll
            for (int g = 0; g < G; g++)
                if (k + g * Team::size < n)
                    y.put(k + g * Team::size, job.log ? f[g] - end : exp_fast(f[g]) * end);
        }
    }
}

/* ---------------------------------------------------------------- backward */

template <class Team> SKR_DEVICE void softmax_backward_any(const skr_softmax_backward_job &job)
{
    __shared__ __align__(16) typename Team::shared memory;
    constexpr int G = SKR_ANY_UNROLL;
    Team team(memory);
    wait_for_previous();
    let_next_start();
    for (int64_t first = (int64_t)blockIdx.x * Team::rows; first < job.rows.m;
         first += (int64_t)gridDim.x * Team::rows) {
        int64_t row = first + team.row(), n = row < job.rows.m ? job.n : 0;
        row = row < job.rows.m ? row : first;
        any_row dy(job.rows, job.dy, row), y(job.rows, job.y, row), dx(job.rows, job.dx, row);
        skr_span seen = skr_seen_of(&job.seen, job.n, row);
        int64_t end = seen.end < n ? seen.end : n;
        float part[G] = {};
        for (int64_t k = team.index(); k < end; k += G * Team::size)
#pragma unroll
            for (int g = 0; g < G; g++) {
                int64_t at = k + g * Team::size;
                if (at >= seen.begin && at < end)
                    part[g] = job.log ? part[g] + dy.get(at) : __fmaf_rn(dy.get(at), y.get(at), part[g]);
            }
        float sum = team.add((part[0] + part[1]) + (part[2] + part[3]));
        for (int64_t k = team.index(); k < n; k += G * Team::size) {
            float d[G], p[G];
#pragma unroll
            for (int g = 0; g < G; g++) {
                int64_t at = k + g * Team::size;
                bool in = at >= seen.begin && at < end;
                d[g] = in ? dy.get(at) : 0.0f, p[g] = in ? y.get(at) : 0.0f;
            }
#pragma unroll
            for (int g = 0; g < G; g++) {
                int64_t at = k + g * Team::size;
                float f = job.log ? job.scale * __fmaf_rn(-exp_fast(p[g]), sum, d[g]) : job.scale * p[g] * (d[g] - sum);
                if (at < n)
                    dx.put(at, at >= seen.begin && at < end ? f : 0.0f);
            }
        }
    }
}

#endif
