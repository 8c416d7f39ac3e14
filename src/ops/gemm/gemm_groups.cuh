/* gemm_groups.cuh - the tiles of a block: those that gemm_work.cuh deals out, or those of the groups of grouped_gemm,
 * whose offsets only the device knows. SPDX-License-Identifier: Apache-2.0
 *
 * A first kernel turns offsets into a table, as on the CPU: which rows (k's) a group has and how many tiles of rows
 * come before it. Blocks stay and take every so manieth tile; tiles go up, so each block walks the table once. Offsets
 * are data: whatever they hold, the table stays within the tensors. */
#ifndef SKR_GEMM_GROUPS_CUH
#define SKR_GEMM_GROUPS_CUH

#include "gemm_epilogue.cuh"
#include "gemm_work.cuh"

/* Rows and columns from (row, col) on of batch or group z, steps of k from first to last. */
struct gemm_tile_at {
    int row, col, z, first, last, slot; /* slot < 0: d itself */
};

/* The tiles of the groups, for blocks that stay. The plan refuses what 32 bits do not count. */
struct gemm_group_walk {
    static constexpr int BAND = 2048; /* rows that are walked together: what a column of tiles shares stays in L2 */
    int before, place, units, group;  /* tiles of the turns before, and which of this turn's */

    /* Tiles are dealt out to so many units, blocks or clusters of them; this is one's. */
    __device__ __forceinline__ gemm_group_walk(int unit, int n_units) : before(0), place(unit), units(n_units), group(0)
    {
    }
    __device__ __forceinline__ gemm_group_walk() : gemm_group_walk((int)blockIdx.x, (int)gridDim.x)
    {
    }

    /* step: k's of a step. */
    __device__ __forceinline__ bool next(const skr_gemm_job &job, int step, gemm_tile_at &t)
    {
        const skr_gemm_group *table = gemm_group_table(job);
        const int tile = before + place;
        const int rows = job.groups.rows, width = job.groups.columns, columns = ((int)job.n + width - 1) / width;
        int down, rest, depth = (int)job.k;
        if (job.groups.of == SKR_GEMM_OF_ROWS) {
            const int over = tile / columns; /* tiles of rows before it */
            if (over >= (int)table[job.groups.count].tiles)
                return false;
            find(table, job.groups.count, over);
            int first = (int)table[group].tiles;
            down = (int)table[group + 1].tiles - first, rest = tile - first * columns;
        } else {
            down = ((int)job.m + rows - 1) / rows;
            group = tile / (down * columns), rest = tile - group * down * columns;
            if (group >= job.groups.count)
                return false;
            depth = (int)table[group].count;
        }
        const int most = BAND / rows, band = rest / (most * columns), high = min(most, down - band * most);
        rest -= band * most * columns;
        t = {(band * most + rest % high) * rows, rest / high * width, group, 0, (depth + step - 1) / step, -1};
        if (job.groups.of == SKR_GEMM_OF_ROWS && job.work.steps)
            t.last = job.work.steps; /* where scales cut k, there are more */
        /* Units change places from turn to turn: small tiles, a group's last rows, come at regular distances. */
        before += units, place = (place + (units / 3 | 1)) % units;
        return true;
    }

    /* The last group with no more than `over` tiles of rows before it, which so has one; not before this group. By
     * halves: with hundreds of groups each look at one is a wait for memory. */
    __device__ __forceinline__ void find(const skr_gemm_group *table, int count, int over)
    {
        if (over < (int)table[group + 1].tiles)
            return;
        int end = count; /* this one has more before it */
        for (group++; end - group > 1;) {
            int middle = group + (end - group) / 2;
            if ((int)table[middle].tiles <= over)
                group = middle;
            else
                end = middle;
        }
    }
};

struct gemm_tiles {
    gemm_work work;
    gemm_group_walk groups;
    const int step; /* k's of a step */

    __device__ __forceinline__ gemm_tiles(const skr_gemm_job &job, int step_ks) : work(job), step(step_ks)
    {
    }

    __device__ __forceinline__ bool next(gemm_tile_at &t)
    {
        const skr_gemm_job &job = work.job;
        if (job.groups.of)
            return groups.next(job, step, t);
        if (!work.next())
            return false;
        t = {work.row, work.col, work.z, work.first, work.last, work.slot};
        return true;
    }
};

/* ---------------------------------------------------------------- the table */

struct gemm_table {
    static constexpr int THREADS = 256;

    struct larger {
        SKR_DEVICE int64_t join(int64_t a, int64_t b)
        {
            return a > b ? a : b;
        }
    };
    struct both {
        SKR_DEVICE int64_t join(int64_t a, int64_t b)
        {
            return a + b;
        }
    };

    /* v of this thread joined with those of all before it. */
    template <class Op> __device__ __forceinline__ static int64_t scan(int64_t v, int64_t (&warps)[THREADS / 32])
    {
        int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            int64_t other = __shfl_up_sync(0xffffffffu, v, d);
            v = lane >= d ? Op::join(other, v) : v;
        }
        __syncthreads();
        if (lane == 31)
            warps[warp] = v;
        __syncthreads();
        for (int w = 0; w < warp; w++)
            v = Op::join(warps[w], v);
        return v;
    }

    /* Rows of no group: zeros. */
    __device__ __forceinline__ static void clear(const skr_gemm_matrix &m, int64_t cols, int64_t begin, int64_t end)
    {
        if (!m.at.data || cols == 0)
            return;
        int bytes = skr_type_bytes(m.at.type);
        for (int64_t e = begin * cols + threadIdx.x; e < end * cols; e += THREADS) {
            char *to = (char *)m.at.data + (e / cols * m.row + e % cols * m.at.col_stride) * bytes;
            if (bytes == 4)
                *(uint32_t *)to = 0;
            else
                *(uint16_t *)to = 0;
        }
    }

    SKR_DEVICE void run(const skr_grouped_gemm_job &job)
    {
        __shared__ int64_t warps[THREADS / 32], last[2];
        wait_for_previous();
        let_next_start();
        const skr_gemm_job &g = job.gemm;
        const int64_t total = job.total, rows = g.groups.rows;
        skr_gemm_group *table = (skr_gemm_group *)((char *)g.head.workspace + g.groups.table_at);
        const int64_t begin = gemm_index(job.offsets, 0), start = min(max(begin, (int64_t)0), total);
        int64_t end = start, tiles = 0; /* of all groups before these 256 */
        bool sound = begin == 0;
        for (int64_t base = 0; base < job.groups; base += THREADS) {
            int64_t i = base + threadIdx.x, given = i < job.groups ? gemm_index(job.offsets, i + 1) : 0;
            int64_t mine = max(end, scan<larger>(min(max(given, (int64_t)0), total), warps));
            int64_t before = __shfl_up_sync(0xffffffffu, mine, 1);
            __syncthreads();
            if ((threadIdx.x & 31) == 31)
                warps[threadIdx.x / 32] = mine;
            __syncthreads();
            if ((threadIdx.x & 31) == 0)
                before = threadIdx.x ? warps[threadIdx.x / 32 - 1] : end;
            int64_t count = (mine - before + rows - 1) / rows, upto = tiles + scan<both>(count, warps);
            if (i < job.groups) {
                sound &= given >= before && given <= total;
                table[i] = {before, mine - before, 0, upto - count};
            }
            if (threadIdx.x == THREADS - 1)
                last[0] = mine, last[1] = upto;
            __syncthreads();
            end = last[0], tiles = last[1];
            __syncthreads();
        }
        if (threadIdx.x == 0)
            table[job.groups] = {end, 0, 0, tiles};
        if (!sound || end != total)
            *g.head.error_word = SKR_BAD_INDEX;
        if (job.along_k)
            return;
        /* Without k's the general kernel does not look at gather. */
        for (int64_t r = start + threadIdx.x; !g.k && g.gather.data && r < end; r += THREADS) {
            int64_t row = gemm_index(g.gather, r);
            if (row < 0 || row >= g.gather_rows)
                *g.head.error_word = SKR_BAD_INDEX;
        }
        const int64_t columns = g.gated ? g.n / 2 : g.n;
        if (!g.scatter.data) /* with it, rows of d that no row goes to are the caller's */
            clear(g.d, columns, 0, start), clear(g.d, columns, end, total);
        clear(g.pre, g.n, 0, start), clear(g.pre, g.n, end, total);
    }
};

#endif
