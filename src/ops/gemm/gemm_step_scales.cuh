/* gemm_step_scales.cuh - scales of blocks for the Hopper kernel, whose steps are as long as the blocks: 128 k's.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread has rows lane / 4 and 8 below of its warp's 16. A half of a tile's columns lies in one block of b's: it has
 * 128 columns or a part of that, and the plan sees to it that the halves of gates begin with a block. Without such
 * scales all factors are 1. */
#ifndef SKR_GEMM_STEP_SCALES_CUH
#define SKR_GEMM_STEP_SCALES_CUH

#include "gemm_epilogue.cuh"

template <int BN> struct gemm_step_scales {
    float a[2], b[2]; /* of this step: rows, halves of the columns */
    const float *a_at, *b_at;
    int below, right; /* rows from the first to the second, blocks from the first half's to the second's */

    /* row: the warpgroup's first. col: the tile's. first: the step that comes first. */
    __device__ __forceinline__ gemm_step_scales(const skr_gemm_job &job, const gemm_batch &z, int row, int col,
                                                int first)
        : a{1.0f, 1.0f}, b{1.0f, 1.0f}, a_at(NULL), b_at(NULL)
    {
        if (job.scaling != SKR_GEMM_BLOCK)
            return;
        /* What is beyond the last row or column is not written. */
        const int last = (int)z.m - 1, blocks = (int)((job.n + SKR_GEMM_SCALE_BLOCK - 1) / SKR_GEMM_SCALE_BLOCK);
        const int m = min(row + (int)(threadIdx.x / 32 & 3) * 16 + (int)(threadIdx.x & 31) / 4, last);
        const bool halves = job.gated == SKR_GEMM_HALVES;
        const int n = min((halves ? col / 2 : col) / SKR_GEMM_SCALE_BLOCK, blocks - 1);
        below = min(m + 8, last) - m;
        right = min((halves ? col / 2 + (int)(job.n / 2) : col + BN / 2) / SKR_GEMM_SCALE_BLOCK, blocks - 1) - n;
        if (job.a_scale.at.data)
            a_at = (const float *)job.a_scale.at.data + z.a_scale + m * job.a_scale.row +
                   first * job.a_scale.at.col_stride;
        if (job.b_scale.at.data)
            b_at = (const float *)job.b_scale.at.data + z.b_scale + first * job.b_scale.row +
                   n * job.b_scale.at.col_stride;
    }

    /* Those of the step that begins: they arrive while it is multiplied. */
    __device__ __forceinline__ void next(const skr_gemm_job &job)
    {
        if (a_at) {
            a[0] = a_at[0], a[1] = a_at[below * job.a_scale.row];
            a_at += job.a_scale.at.col_stride;
        }
        if (b_at) {
            b[0] = b_at[0], b[1] = b_at[right * job.b_scale.at.col_stride];
            b_at += job.b_scale.row;
        }
    }
};

#endif
