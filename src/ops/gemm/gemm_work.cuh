/* gemm_work.cuh - which tiles, and which part of their k, a block of the tensor core kernels takes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Units are clusters of blocks that stay. The first `whole` tiles are dealt out one by one. Of the `left` others, fewer
 * than units, each is cut along k: first into `slices` equal ones, as many as give each unit at most one; what is left
 * of their k, less than a slice, is one line that is dealt out to the units without a slice (stream-K; where nothing is
 * left, split-K). So units that share an operand read the same part of it at the same time, for L2 to serve them;
 * ranges that start anywhere read it from memory again and again. Parts go to the workspace as f32 (or i32), slices + 2
 * slots for each tile: a remainder has at most two pieces, for the ranges of the line are longer than it. Where every
 * tile needs gemm_finish.cuh, whole ones have a slot each, behind those. Parts are added in the order of k: the same
 * bits in every run. */
#ifndef SKR_GEMM_WORK_CUH
#define SKR_GEMM_WORK_CUH

#include "gemm.h"

/* i * n / of, rounded down, for i <= of: 32 bits are enough for it, and for all steps of the tiles that are cut
 * (skr_gemm_cut_of). */
SKR_INLINE int gemm_share(int i, int n, int of)
{
    return i * (n / of) + i * (n % of) / of;
}

/* Where slice j of a left tile begins; that of `slices` is where the remainder does. */
SKR_INLINE int gemm_slice(const skr_gemm_work &t, int j)
{
    return gemm_share(j, t.steps * t.cut.left, t.cut.units);
}

/* Where range v of the remainders' line begins. */
SKR_INLINE int gemm_range(const skr_gemm_work &t, int v)
{
    return gemm_share(v, t.cut.left * (t.steps - gemm_slice(t, t.cut.slices)), t.cut.units - t.cut.slices * t.cut.left);
}

/* Tile i: groups of rows of tiles, down each column of a group first. The row is that of the cluster's first block. */
SKR_INLINE void gemm_place(const skr_gemm_work &t, int i, int &row, int &col, int &z)
{
    int each = t.tiles_m * t.tiles_n, per = t.group * t.tiles_n;
    z = i / each, i -= z * each;
    int g = i / per, r = i - g * per, rows = min(t.group, t.tiles_m - g * t.group);
    row = (g * t.group + r % rows) * t.cluster * t.rows;
    col = r / rows * t.columns;
}

struct gemm_work {
    const skr_gemm_job &job;
    int block, unit, tile;
    int at, end;                        /* of the line */
    int row, col, z, first, last, slot; /* slot < 0: d itself */

    __device__ __forceinline__ explicit gemm_work(const skr_gemm_job &j, int b = (int)blockIdx.x)
        : job(j), block(b), unit(b / j.work.cluster), tile(unit), at(0), end(0)
    {
        const skr_gemm_work &t = job.work;
        int v = unit - t.cut.slices * t.cut.left;
        if (t.cut.left && v < 0)
            end = 1; /* one slice */
        else if (t.cut.left)
            at = gemm_range(t, v), end = gemm_range(t, v + 1);
    }

    __device__ __forceinline__ bool next()
    {
        const skr_gemm_work &t = job.work;
        if (tile < t.cut.whole) {
            first = 0, last = t.steps;
            slot = t.finish ? t.cut.left * (t.cut.slices + 2) + tile : -1;
            place(tile);
            tile += t.cut.units;
            return true;
        }
        if (at >= end)
            return false;
        int which, part;
        if (unit < t.cut.slices * t.cut.left) {
            which = unit % t.cut.left, part = unit / t.cut.left;
            first = gemm_slice(t, part), last = gemm_slice(t, part + 1);
            at = end;
        } else {
            int begin = gemm_slice(t, t.cut.slices), rest = t.steps - begin;
            which = at / rest;
            int from = at - which * rest, count = min(rest - from, end - at);
            part = t.cut.slices + (from > 0);
            first = begin + from, last = first + count;
            at += count;
        }
        slot = which * (t.cut.slices + 2) + part;
        place(t.cut.whole + which);
        return true;
    }

    __device__ __forceinline__ void place(int i)
    {
        const int rank = block - unit * job.work.cluster;
        gemm_place(job.work, i, row, col, z);
        row += rank * job.work.rows;
        if (slot >= 0)
            slot = slot * job.work.cluster + rank;
    }
};

/* Where the sums of 64 rows lie: for each 8 columns 16 bytes of each thread of a warpgroup. */
SKR_INLINE char *gemm_slot(const skr_gemm_job &job, int slot, int group)
{
    const skr_gemm_work &t = job.work;
    return (char *)job.head.workspace + t.slots_at + ((int64_t)slot * (t.rows / 64) + group) * t.columns * 64 * 4;
}

#endif
