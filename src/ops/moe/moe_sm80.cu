/* moe_sm80.cu - the weighted sum of what a token's experts gave, on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block has a token; its threads have columns, V at once. */
#include "../../cuda/device.cuh"
#include "moe.h"

typedef skr_moe_combine_job job_t;

template <int V> SKR_DEVICE void combine_row(const job_t &job, int64_t t)
{
    int size = skr_type_bytes(job.z_type), out = skr_type_bytes(job.y.type), wsize = skr_type_bytes(job.weights.type);
    const char *weights = (const char *)job.weights.data + t * job.weights.stride * wsize;
    char *y = (char *)job.y.data + t * job.y.stride * out;
    int64_t rows = job.t * job.k;
    for (int64_t c = (int64_t)threadIdx.x * V; c < job.h; c += SKR_MOE_THREADS * V) {
        float sum[V] = {};
        for (int64_t j = 0; j < job.k; j++) {
            int64_t i = (t * job.k + j) * job.place.stride;
            int64_t r =
                job.place.type == SKR_I32 ? ((const int32_t *)job.place.data)[i] : ((const int64_t *)job.place.data)[i];
            if (r < 0 || r >= rows) {
                *job.head.error_word = SKR_BAD_INDEX;
                continue;
            }
            const char *z = (const char *)job.z + (r * job.pitch + c) * size;
            float w = any_load1(job.weights.type, weights + j * job.weights_column * wsize), f[V];
            if constexpr (V == 1)
                f[0] = any_load1(job.z_type, z);
            else
                any_load<V>(job.z_type, z, f);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = __fmaf_rn(w, f[k], sum[k]);
        }
        if constexpr (V == 1)
            any_store1(job.y.type, y + c * out, sum[0]);
        else
            any_store<V>(job.y.type, y + c * out, sum);
    }
}

#define COMBINE(v)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(SKR_MOE_THREADS)                                                      \
        skr_moe_combine_##v(const __grid_constant__ job_t job)                                                         \
    {                                                                                                                  \
        wait_for_previous();                                                                                           \
        let_next_start();                                                                                              \
        for (int64_t t = blockIdx.x; t < job.t; t += gridDim.x)                                                        \
            combine_row<v>(job, t);                                                                                    \
    }
COMBINE(1)
COMBINE(8)
