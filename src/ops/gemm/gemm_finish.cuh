/* gemm_finish.cuh - adds up what gemm_tma.cuh left in the workspace, and writes it with every option.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block has 64 x 64 sums: one warpgroup's rows of a tile, 64 of its columns. */
#ifndef SKR_GEMM_FINISH_CUH
#define SKR_GEMM_FINISH_CUH

#include "gemm_epilogue.cuh"
#include "gemm_work.cuh"

template <class S> struct gemm_finish {
    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        __shared__ gemm_sums<S> sums;
        const skr_gemm_work &t = job.work;
        wait_for_previous();
        let_next_start();
        int parts = t.columns / SKR_GEMM_SIDE, groups = t.rows / SKR_GEMM_SIDE * t.cluster, each = parts * groups;
        int begin = t.finish ? 0 : t.cut.whole, count = t.tiles_m * t.tiles_n * t.batches - begin;
        for (int64_t i = blockIdx.x; i < (int64_t)count * each; i += gridDim.x) {
            int tile = begin + (int)(i / each), rest = (int)(i % each), part = rest % parts, group = rest / parts;
            int m0, n0, z;
            gemm_place(t, tile, m0, n0, z);
            m0 += group * SKR_GEMM_SIDE, n0 += part * SKR_GEMM_SIDE;
            if (m0 >= job.m || n0 >= job.n)
                continue;
            gather(job, sums, tile, group, part, job.m - m0);
            __syncthreads();
            sums.write(job, gemm_batch(job, z), m0, n0, z * job.m_tiles + m0 / SKR_GEMM_SIDE);
            __syncthreads();
        }
    }

    /* How many parts the tile was cut into; 0: it is whole. */
    __device__ __forceinline__ static int parts_of(const skr_gemm_work &t, int tile)
    {
        int which = tile - t.cut.whole, rest = t.steps - gemm_slice(t, t.cut.slices),
            ranges = t.cut.units - t.cut.slices * t.cut.left;
        if (which < 0)
            return 0;
        if (ranges == 0)
            return t.cut.slices;
        /* The last range that begins before the remainder's end: inside of it, it is a second piece. */
        int64_t begin = (int64_t)which * rest, end = begin + rest;
        int v = (int)((end * ranges - 1) / ((int64_t)t.cut.left * rest));
        return t.cut.slices + 1 + (gemm_range(t, v) > begin);
    }

    __device__ __forceinline__ static S value(uint32_t raw)
    {
        if constexpr (S(0.5) == S(0))
            return (S)raw;
        else
            return __uint_as_float(raw);
    }

    __device__ __forceinline__ static void gather(const skr_gemm_job &job, gemm_sums<S> &sums, int tile, int group,
                                                  int part, int64_t rows)
    {
        const skr_gemm_work &t = job.work;
        int thread = threadIdx.x % 128, lane = thread % 32, row = thread / 32 * 16 + lane / 4;
        bool halves = job.gated == SKR_GEMM_HALVES;
        int cut = parts_of(t, tile);
        int groups = t.rows / SKR_GEMM_SIDE;
        int slot = cut ? (tile - t.cut.whole) * (t.cut.slices + 2) : t.cut.left * (t.cut.slices + 2) + tile;
        S x[4][4] = {};
        int offset[4];
#pragma unroll
        for (int j = 0; j < 4; j++) { /* 8 columns; of gates, 4 times 8 of each half of the tile */
            int c = (int)threadIdx.x / 128 * 4 + j;
            int block = !halves ? part * 8 + c : c < 4 ? part * 4 + c : t.columns / 16 + part * 4 + c - 4;
            offset[j] = block * 2048 + thread * 16;
        }
#pragma unroll 4 /* so many parts are on their way at once */
        for (int u = 0; u < (thread / 32 * 16 < rows ? max(cut, 1) : 0); u++) {
            const char *at = gemm_slot(job, (slot + u) * t.cluster + group / groups, group % groups);
            uint4 raw[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                raw[j] = load16_once(at + offset[j]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[j][0] += value(raw[j].x), x[j][1] += value(raw[j].y);
                x[j][2] += value(raw[j].z), x[j][3] += value(raw[j].w);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) { /* gate and up become neighbours */
            int c = (int)threadIdx.x / 128 * 4 + j, step = halves ? 2 : 1;
            int column = halves ? (c % 4 * 8 + lane % 4 * 2) * 2 + c / 4 : c * 8 + lane % 4 * 2;
            sums.at[row][column] = x[j][0], sums.at[row][column + step] = x[j][1];
            sums.at[row + 8][column] = x[j][2], sums.at[row + 8][column + step] = x[j][3];
        }
    }
};

#endif
