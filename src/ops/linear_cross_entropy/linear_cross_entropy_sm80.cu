/* linear_cross_entropy_sm80.cu - dbias: sums of the columns of dlogits; the ends of rows of logits.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block has a part of the rows and 32 vectors of columns: a warp takes every eighth row of the part, and the first
 * one adds what all of them have, in order. The second kernel adds the parts, a thread a column. Ends: a thread has a
 * row. */
#include "../../cuda/device.cuh"
#include "linear_cross_entropy.h"

enum { GROUPS = SKR_LCE_GROUPS, UNROLL = 4 };

template <int T> SKR_DEVICE void sum_columns(const skr_lce_columns_job &job)
{
    constexpr int V = skr_elem<T>::vec, bytes = skr_elem<T>::bytes;
    __shared__ double sums[GROUPS][V][32];
    wait_for_previous();
    let_next_start();
    const int lane = threadIdx.x & 31, group = threadIdx.x / 32;
    const int64_t part = blockIdx.x / job.blocks, column = ((int64_t)(blockIdx.x % job.blocks) * 32 + lane) * V;
    const int64_t begin = part * job.part_rows, left = job.rows - begin;
    const int64_t end = begin + (left < job.part_rows ? left : job.part_rows);
    const bool inside = column < job.columns; /* a vector's last columns may lie between the rows */
    const char *x = (const char *)job.x + column * bytes;
    double sum[V] = {};
    for (int64_t row = begin + group; inside && row < end; row += GROUPS * SKR_LCE_RUN) {
        float run[V] = {};
        for (int64_t k = 0; k < SKR_LCE_RUN && row + k * GROUPS < end; k += UNROLL) {
            uint4 raw[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int64_t r = row + (k + u) * GROUPS;
                raw[u] = r < end ? load16_once(x + r * job.pitch * bytes) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float f[V];
                unpack<T>(raw[u], f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    run[c] += f[c];
            }
        }
#pragma unroll
        for (int c = 0; c < V; c++)
            sum[c] += (double)run[c];
    }
#pragma unroll
    for (int c = 0; c < V; c++)
        sums[group][c][lane] = sum[c];
    __syncthreads();
    if (group != 0 || !inside)
        return;
    double *to = (double *)job.head.workspace + part * job.pitch + column;
#pragma unroll
    for (int c = 0; c < V; c++) {
        double all = sum[c];
        for (int g = 1; g < GROUPS; g++)
            all += sums[g][c][lane];
        to[c] = all;
    }
}

#define COLUMNS(name, type)                                                                                            \
    extern "C" __global__ void __launch_bounds__(SKR_LCE_THREADS)                                                      \
        skr_linear_cross_entropy_columns_##name(const __grid_constant__ skr_lce_columns_job job)                       \
    {                                                                                                                  \
        sum_columns<type>(job);                                                                                        \
    }
COLUMNS(f32, SKR_F32)
COLUMNS(f16, SKR_F16)
COLUMNS(bf16, SKR_BF16)

extern "C" __global__ void __launch_bounds__(SKR_LCE_THREADS)
    skr_linear_cross_entropy_dbias(const __grid_constant__ skr_lce_columns_job job)
{
    wait_for_previous();
    let_next_start();
    const int64_t column = (int64_t)blockIdx.x * SKR_LCE_THREADS + threadIdx.x;
    if (column >= job.columns)
        return;
    double sum = job.first ? 0.0 : job.sums[column];
    const double *part = (const double *)job.head.workspace + column;
    for (int p = 0; p < job.parts; p++)
        sum += part[p * job.pitch];
    if (!job.last) {
        job.sums[column] = sum;
        return;
    }
    char *to = (char *)job.dbias.data + column * job.dbias.stride * skr_type_bytes(job.dbias.type);
    any_store1(job.dbias.type, to, (float)(job.accumulate ? (double)any_load1(job.dbias.type, to) + sum : sum));
}

extern "C" __global__ void __launch_bounds__(SKR_LCE_THREADS)
    skr_linear_cross_entropy_ends(const __grid_constant__ skr_lce_columns_job job)
{
    wait_for_previous();
    let_next_start();
    const int64_t row = (int64_t)blockIdx.x * SKR_LCE_THREADS + threadIdx.x;
    if (row >= job.rows)
        return;
    const int bytes = skr_type_bytes(job.type), vec = 16 / bytes;
    for (int64_t c = job.columns; c % vec != 0; c++)
        any_store1(job.type, (char *)job.x + (row * job.pitch + c) * bytes, -INFINITY);
}
