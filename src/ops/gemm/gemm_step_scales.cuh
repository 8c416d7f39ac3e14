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
    float a[2][2], b[2][2]; /* of this step and of the next: rows, halves of the columns */
    int a_at, b_at;         /* where the next one's are */
    int below, right;       /* how far it is from the first row's to the second's, from the first half's */
    int left;               /* steps whose scales are still to be read */

    /* row: the warpgroup's first. col: the tile's. first, end: the steps. */
    __device__ __forceinline__ gemm_step_scales(const skr_gemm_job &job, const gemm_batch &z, int row, int col,
                                                int first, int end)
        : a{{1.0f, 1.0f}, {1.0f, 1.0f}}, b{{1.0f, 1.0f}, {1.0f, 1.0f}}, left(end - first)
    {
        if (job.scaling != SKR_GEMM_BLOCK)
            return;
        /* What is beyond the last row or column is not written. */
        const int last = (int)z.m - 1, blocks = (int)((job.n + SKR_GEMM_SCALE_BLOCK - 1) / SKR_GEMM_SCALE_BLOCK);
        const int m = min(row + (int)(threadIdx.x / 32 & 3) * 16 + (int)(threadIdx.x & 31) / 4, last);
        const bool halves = job.gated == SKR_GEMM_HALVES;
        const int n = min((halves ? col / 2 : col) / SKR_GEMM_SCALE_BLOCK, blocks - 1);
        const int other = min((halves ? col / 2 + (int)(job.n / 2) : col + BN / 2) / SKR_GEMM_SCALE_BLOCK, blocks - 1);
        a_at = (int)(z.a_scale + m * job.a_scale.row + first * job.a_scale.at.col_stride);
        b_at = (int)(z.b_scale + first * job.b_scale.row + n * job.b_scale.at.col_stride);
        below = (min(m + 8, last) - m) * (int)job.a_scale.row;
        right = (other - n) * (int)job.b_scale.at.col_stride;
        next(job, 0);
    }

    /* Those of the next step, an even (0) or an odd one: they arrive while this one is multiplied. */
    __device__ __forceinline__ void next(const skr_gemm_job &job, int i)
    {
        if (left-- <= 0)
            return;
        if (job.a_scale.at.data) {
            const float *from = (const float *)job.a_scale.at.data;
            a[i][0] = from[a_at], a[i][1] = from[a_at + below];
            a_at += (int)job.a_scale.at.col_stride;
        }
        if (job.b_scale.at.data) {
            const float *from = (const float *)job.b_scale.at.data;
            b[i][0] = from[b_at], b[i][1] = from[b_at + right];
            b_at += (int)job.b_scale.row;
        }
    }
};

#endif
