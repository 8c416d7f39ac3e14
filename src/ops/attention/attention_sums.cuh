/* attention_sums.cuh - the sums beside attention's gradients: delta of every query before them, dslopes and dsinks
 * after. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_SUMS_CUH
#define SKR_ATTENTION_SUMS_CUH

#include "../../cuda/exponent.cuh"
#include "attention_work.cuh"

/* a . b of 16 bytes each. */
template <int T> SKR_DEVICE float attention_dot16(const char *a, const char *b)
{
    constexpr int vec = 16 / skr_elem<T>::bytes;
    float x[vec], y[vec], sum = 0.0f;
    unpack<T>(load16_once(a), x);
    unpack<T>(load16_once(b), y);
#pragma unroll
    for (int k = 0; k < vec; k++)
        sum = __fmaf_rn(x[k], y[k], sum);
    return sum;
}

/* This lane's share, of eight, of o . d_o over d_v columns. */
SKR_DEVICE float attention_delta(const skr_attention_job &job, const char *o, const char *g)
{
    int share = threadIdx.x & 7, type = job.o.type, end = (int)job.d_v;
    int o_bytes = skr_type_bytes(type), g_bytes = skr_type_bytes(job.d_o.type);
    float sum = 0.0f;
    if (job.cuda.delta_aligned)
        for (int c = 16 * share; c < end * o_bytes; c += 128)
            sum += type == SKR_F32   ? attention_dot16<SKR_F32>(o + c, g + c)
                   : type == SKR_F16 ? attention_dot16<SKR_F16>(o + c, g + c)
                                     : attention_dot16<SKR_BF16>(o + c, g + c);
    else
        for (int c = share; c < end; c += 8)
            sum = __fmaf_rn(any_load1(type, o + c * o_bytes), any_load1(job.d_o.type, g + c * g_bytes), sum);
    return sum;
}

/* (lse in base 2, delta - dlse), eight lanes for each query and head. Where nothing is seen lse becomes +infinity, so
 * that every exponential against it is 0, and where it is too large (SKR_ATTENTION_NO_PART). And the sums of dq become
 * 0, and nobody has taken a piece. */
SKR_DEVICE void attention_make_stats(const skr_attention_job &job)
{
    wait_for_previous();
    if (blockIdx.x == 0)
        attention_start_count(job);
    int64_t tokens = job.packed ? job.length : job.batch * job.length, all = tokens * job.heads;
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64_t)gridDim.x * blockDim.x;
    float2 *stats = (float2 *)((char *)job.head.workspace + job.cuda.stats_at);
    uint4 *sums = (uint4 *)((char *)job.head.workspace + job.cuda.sums_at);
    for (int64_t n = thread; job.cuda.sums_at >= 0 && n < job.cuda.sum_bytes / 16; n += threads)
        sums[n] = make_uint4(0, 0, 0, 0);
    int o_bytes = skr_type_bytes(job.o.type), g_bytes = skr_type_bytes(job.d_o.type);
    for (int64_t first = thread / 32 * 4; first < all; first += threads / 8) { /* four of them for a warp */
        int64_t n = first + (threadIdx.x & 31) / 8;
        bool there = n < all;
        int64_t token = there ? n / job.heads : 0, h = there ? n - token * job.heads : 0; /* heads of a token lie */
        int64_t b = job.packed ? 0 : token / job.length, i = token - b * job.length;      /* together, mostly */
        const char *o = (const char *)job.o.data + (b * job.o.batch + i * job.o.token + h * job.o.head) * o_bytes;
        const char *g =
            (const char *)job.d_o.data + (b * job.d_o.batch + i * job.d_o.token + h * job.d_o.head) * g_bytes;
        float sum = lanes_reduce<skr_sum, 8>(attention_delta(job, o, g));
        if (there && (threadIdx.x & 7) == 0) {
            float lse = job.lse.data[b * job.lse.batch + h * job.lse.head + i * job.lse.token];
            if (job.dlse.data)
                sum -= job.dlse.data[b * job.dlse.batch + h * job.dlse.head + i * job.dlse.token];
            stats[h * tokens + token] =
                make_float2(fabsf(lse) >= SKR_ATTENTION_NO_PART ? __builtin_huge_valf() : lse * SKR_LOG2E, sum);
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
