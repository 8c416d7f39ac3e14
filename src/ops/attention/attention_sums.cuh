/* attention_sums.cuh - the sums beside attention's gradients: delta of every query before them, dslopes and dsinks
 * after. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_SUMS_CUH
#define SKR_ATTENTION_SUMS_CUH

#include "../../cuda/exponent.cuh"
#include "attention_work.cuh"

/* (lse in base 2, delta - dlse), a warp for each query and head. Where nothing is seen lse becomes +infinity, so that
 * every exponential against it is 0. */
SKR_DEVICE void attention_make_stats(const skr_attention_job &job)
{
    wait_for_previous();
    int lane = threadIdx.x & 31, warps = (int)blockDim.x / 32;
    int64_t tokens = job.packed ? job.length : job.batch * job.length;
    float2 *stats = (float2 *)((char *)job.head.workspace + job.cuda.stats_at);
    int o_bytes = skr_type_bytes(job.o.type), g_bytes = skr_type_bytes(job.d_o.type);
    for (int64_t n = (int64_t)blockIdx.x * warps + threadIdx.x / 32; n < tokens * job.heads;
         n += (int64_t)gridDim.x * warps) {
        int64_t token = n / job.heads, h = n - token * job.heads; /* heads of a token lie together, mostly */
        int64_t b = job.packed ? 0 : token / job.length, i = token - b * job.length;
        const char *o = (const char *)job.o.data + (b * job.o.batch + i * job.o.token + h * job.o.head) * o_bytes;
        const char *g =
            (const char *)job.d_o.data + (b * job.d_o.batch + i * job.d_o.token + h * job.d_o.head) * g_bytes;
        float sum = 0.0f;
        for (int c = lane; c < job.d_v; c += 32)
            sum = __fmaf_rn(any_load1(job.o.type, o + c * o_bytes), any_load1(job.d_o.type, g + c * g_bytes), sum);
        sum = lanes_reduce<skr_sum, 32>(sum);
        if (lane == 0) {
            float lse = job.lse.data[b * job.lse.batch + h * job.lse.head + i * job.lse.token];
            if (job.dlse.data)
                sum -= job.dlse.data[b * job.dlse.batch + h * job.dlse.head + i * job.dlse.token];
            stats[h * tokens + token] = make_float2(lse == -__builtin_huge_valf() ? -lse : lse * SKR_LOG2E, sum);
        }
    }
}

/* The sum of f(k) for k from first on before end, by a block: the same order in every run. In all threads. */
template <int WARPS, class F> SKR_DEVICE float attention_block_sum(int64_t first, int64_t end, const F &f)
{
    __shared__ double parts[WARPS];
    double sum = 0.0;
    for (int64_t k = first + threadIdx.x; k < end; k += 32 * WARPS)
        sum += f(k);
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, k);
    __syncthreads();
    if ((threadIdx.x & 31) == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0;
    for (int k = 0; k < WARPS; k++)
        sum += parts[k];
    return (float)sum;
}

SKR_DEVICE void attention_put(float *to, float sum, bool add)
{
    if (threadIdx.x == 0)
        *to = add ? *to + sum : sum;
}

/* dsinks: a block for each head. */
template <int WARPS> SKR_DEVICE void attention_sink_sums(const skr_attention_job &job)
{
    wait_for_previous();
    int64_t h = blockIdx.x, tokens = job.packed ? job.length : job.batch * job.length;
    const float2 *stats = (const float2 *)((const char *)job.head.workspace + job.cuda.stats_at) + h * tokens;
    float sink = job.sinks.data[h * job.sinks.head] * SKR_LOG2E;
    float sum = attention_block_sum<WARPS>(0, tokens, [&](int64_t k) {
        float p = exp2_fast(sink - stats[k].x);
        return p == 0.0f ? 0.0f : -p * stats[k].y;
    });
    attention_put(job.dsinks.data + h * job.dsinks.head, sum, job.accumulate);
}

/* dslopes: a block for each head, or each batch and head. The parts of a batch lie together. */
template <int WARPS> SKR_DEVICE void attention_slope_sums(const skr_attention_job &job)
{
    wait_for_previous();
    int size = job.cuda.slope_piece;
    int64_t h = blockIdx.x % job.heads, b = blockIdx.x / job.heads, first = 0, end = job.cuda.slope_parts;
    const float *parts = (const float *)((const char *)job.head.workspace + job.cuda.slopes_at) + h * end;
    if (job.dslopes.batch && job.cuda.spans_at < 0) {
        first = b * job.cuda.grid[0].pieces, end = first + job.cuda.grid[0].pieces;
    } else if (job.dslopes.batch) { /* the slots of attention_find() */
        const skr_attention_span *spans = attention_spans(job);
        first = spans[b + 1].q / size + b + 1, end = spans[b + 2].q / size + b + 2;
    }
    float sum = attention_block_sum<WARPS>(first, end, [&](int64_t k) { return parts[k]; });
    attention_put(job.dslopes.data + b * job.dslopes.batch + h * job.dslopes.head, sum, job.accumulate);
}

#endif
