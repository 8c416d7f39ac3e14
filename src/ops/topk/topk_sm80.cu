/* topk_sm80.cu - topk on the GPU: instances, and the gradient.
 * SPDX-License-Identifier: Apache-2.0 */
#include "topk.cuh"

#define FEW_few  true
#define FEW_many false
#define INSTANCE(survivors, name, type, threads, bits)                                                                 \
    extern "C" __global__ void __launch_bounds__(threads)                                                              \
        skr_topk_##survivors##_##name##_##threads(const __grid_constant__ skr_topk_job job)                            \
    {                                                                                                                  \
        topk<type, threads, bits, FEW_##survivors>(job);                                                               \
    }
#define SKR_TOPK(survivors, threads, bits, most)                                                                       \
    INSTANCE(survivors, f32, SKR_F32, threads, bits)                                                                   \
    INSTANCE(survivors, f16, SKR_F16, threads, bits)                                                                   \
    INSTANCE(survivors, bf16, SKR_BF16, threads, bits)
#include "topk_kernels.def"

/* ---------------------------------------------------------------- gradient */

/* A block writes a row: zeros, then the k values. */
template <int THREADS> SKR_DEVICE void topk_backward(const skr_topk_backward_job &job)
{
    __shared__ __align__(16) float partial[2][THREADS < 128 ? 4 : THREADS / 32];
    wait_for_previous();
    let_next_start();
    int turn = 0, size = skr_type_bytes(job.dx.type), bytes = skr_type_bytes(job.dvalues.type);
    for (int64_t row = blockIdx.x; row < job.rows.m; row += gridDim.x, turn ^= 1) {
        char *dx = (char *)job.dx.data + skr_row_offset(&job.rows, job.dx.stride, row) * size;
        const char *g = (const char *)job.dvalues.data + skr_row_offset(&job.rows, job.dvalues.stride, row) * bytes;
        const int32_t *at = (const int32_t *)job.indices.data + skr_row_offset(&job.rows, job.indices.stride, row);
        int vbytes = skr_type_bytes(job.values.type);
        const char *p = (const char *)job.values.data + skr_row_offset(&job.rows, job.values.stride, row) * vbytes;
        int done = 0, n = (int)job.n, k = (int)job.k;
        if (job.wide) {
            int vectors = (int)(job.n / (16 / size));
            done = vectors * (16 / size);
            for (int i = threadIdx.x; i < vectors; i += THREADS)
                store16_once(dx + (int64_t)i * 16, make_uint4(0, 0, 0, 0));
        }
        for (int i = done + threadIdx.x; i < n; i += THREADS)
            any_store1(job.dx.type, dx + (int64_t)i * size, 0.0f);
        float dot = 0;
        if (job.values.data) {
#pragma unroll 1
            for (int i = threadIdx.x; i < k; i += THREADS)
                dot = __fmaf_rn(any_load1(job.values.type, p + i * job.values.col_stride * vbytes),
                                any_load1(job.dvalues.type, g + i * job.dvalues.col_stride * bytes), dot);
            dot = block_reduce<skr_sum, THREADS / 32>(dot, partial[turn]);
        }
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < k; i += THREADS) {
            int to = at[i * job.indices.col_stride];
            if (to < 0 || to >= n) {
                *job.head.error_word = SKR_BAD_INDEX;
                continue;
            }
            float f = any_load1(job.dvalues.type, g + i * job.dvalues.col_stride * bytes);
            if (job.values.data)
                f = any_load1(job.values.type, p + i * job.values.col_stride * vbytes) * (f - dot);
            any_store1(job.dx.type, dx + (int64_t)to * size, f);
        }
    }
}

#define BACKWARD(threads)                                                                                              \
    extern "C" __global__ void __launch_bounds__(threads)                                                              \
        skr_topk_backward_##threads(const __grid_constant__ skr_topk_backward_job job)                                 \
    {                                                                                                                  \
        topk_backward<threads>(job);                                                                                   \
    }
BACKWARD(32)
BACKWARD(256)
