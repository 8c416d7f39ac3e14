/* parts.cuh - the second half of a sum over rows: adds partial rows in order, and converts.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The workspace holds [parts, heads * n] f32. A block owns 32 * C columns; its warps take turns over the parts (warp w:
 * parts w, w + warps, ...), then warp 0 adds the warps' sums in order. The order depends on the launch shape, which is
 * a function of the problem only. */
#ifndef SKR_PARTS_CUH
#define SKR_PARTS_CUH

#include "device.cuh"

template <int C> SKR_DEVICE void add_parts(const skr_param &out, int64_t heads, int64_t n, bool accumulate,
                                           const float *part, int64_t parts)
{
    __shared__ __align__(16) float sums[32][32 * C];
    int64_t width = heads * n, column = ((int64_t)blockIdx.x * 32 + (threadIdx.x & 31)) * C;
    int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float sum[C] = {};
    if (column < width) {
#pragma unroll 8
        for (int64_t p = warp; p < parts; p += warps) {
            if constexpr (C == 4) {
                float4 f = *(const float4 *)(part + p * width + column);
                sum[0] += f.x, sum[1] += f.y, sum[2] += f.z, sum[3] += f.w;
            } else {
                sum[0] += part[p * width + column];
            }
        }
    }
#pragma unroll
    for (int c = 0; c < C; c++)
        sums[warp][c * 32 + (threadIdx.x & 31)] = sum[c];
    __syncthreads();
    if (warp == 0 && column < width) {
        int64_t head = heads == 1 ? 0 : column / n;
        int bytes = skr_type_bytes(out.type);
        char *to = (char *)out.data + (head * out.stride + (column - head * n)) * bytes;
#pragma unroll
        for (int c = 0; c < C; c++) {
            float all = sum[c];
            for (int w = 1; w < warps; w++)
                all += sums[w][c * 32 + (threadIdx.x & 31)];
            any_store1(out.type, to + c * bytes, accumulate ? any_load1(out.type, to + c * bytes) + all : all);
        }
    }
    __syncthreads();
}

#endif
