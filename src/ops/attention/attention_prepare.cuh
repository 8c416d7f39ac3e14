/* attention_prepare.cuh - where the sequences of cu_seqlens lie, as a table for the kernels that follow; and
 * attention_merge, a warp for each row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_PREPARE_CUH
#define SKR_ATTENTION_PREPARE_CUH

#include "attention_work.cuh"

/* The largest of the block's values up to and with this thread's, and of `before`; *last is that of the last thread. */
template <int THREADS> SKR_DEVICE int largest_so_far(int value, int before, int *last)
{
    __shared__ int warp_most[THREADS / 32];
    int lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
        int other = __shfl_up_sync(0xffffffffu, value, k);
        value = lane >= k ? max(value, other) : value;
    }
    if (lane == 31)
        warp_most[warp] = value;
    __syncthreads();
    value = max(value, before);
    *last = before;
    for (int w = 0; w < THREADS / 32; w++) {
        value = w < warp ? max(value, warp_most[w]) : value;
        *last = max(*last, warp_most[w]);
    }
    __syncthreads();
    return value;
}

/* Entry 0: the tokens before the first sequence; then the sequences; then the tokens behind the last. Only sequences
 * take part in attention. What is not as it should be is cut as skr_attention_cut says, and noted in the error word. */
template <int THREADS> SKR_DEVICE void attention_make_spans(const skr_attention_job &job)
{
    wait_for_previous();
    attention_start_count(job);
    skr_attention_span *spans = (skr_attention_span *)((char *)job.head.workspace + job.cuda.spans_at);
    int batch = (int)job.batch, before_q = 0, before_k = 0, bad = 0;
    if (threadIdx.x == 0)
        spans[0] = skr_attention_span{0, 0, 0, 0};
    for (int base = 0; base <= batch; base += THREADS) {
        int i = base + (int)threadIdx.x;
        bool there = i <= batch;
        int q = there ? (int)skr_attention_cut(&job.cu_q, i, 0, job.length) : 0;
        int k = there ? (int)skr_attention_cut(&job.cu_k, i, 0, job.length_k) : 0;
        bad |= there && !(skr_attention_sound(&job.cu_q, i, batch, job.length) &&
                          skr_attention_sound(&job.cu_k, i, batch, job.length_k));
        q = largest_so_far<THREADS>(q, before_q, &before_q);
        k = largest_so_far<THREADS>(k, before_k, &before_k);
        if (there)
            spans[i + 1] = skr_attention_span{q, k, 0, 0};
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < batch; i += THREADS) {
        skr_attention_span &s = spans[i + 1];
        int64_t q_len = spans[i + 2].q - s.q, k_len = spans[i + 2].k - s.k;
        bad |= q_len > job.limit_q || k_len > job.limit_k;
        s.q_len = skr_attention_min(q_len, job.limit_q), s.k_len = skr_attention_min(k_len, job.limit_k);
    }
    if (bad)
        *job.head.error_word = SKR_BAD_INDEX;
}

/* Two partial results into one; a part whose share is 0 is not read into the sum. */
SKR_DEVICE void attention_merge_rows(const skr_attention_merge_job &job)
{
    wait_for_previous();
    int lane = threadIdx.x & 31, warps = (int)blockDim.x / 32;
    for (int64_t row = (int64_t)blockIdx.x * warps + threadIdx.x / 32; row < job.rows.m;
         row += (int64_t)gridDim.x * warps) {
        const float none = -__builtin_huge_valf();
        float a = ((const float *)job.lse_a.data)[skr_row_offset(&job.rows, job.lse_a.stride, row)];
        float b = ((const float *)job.lse_b.data)[skr_row_offset(&job.rows, job.lse_b.stride, row)];
        float top = fmaxf(a, b), ea = expf(a - top), eb = expf(b - top), sum = ea + eb; /* NaN stays in the sum */
        bool nothing = a == none && b == none;
        float share_a = nothing || a == none ? 0.0f : ea / sum, share_b = nothing || b == none ? 0.0f : eb / sum;
        __syncwarp(); /* lse may be lse_a or lse_b */
        if (job.lse.data && lane == 0)
            ((float *)job.lse.data)[skr_row_offset(&job.rows, job.lse.stride, row)] = nothing ? none : top + logf(sum);
        int a_bytes = skr_type_bytes(job.o_a.type), b_bytes = skr_type_bytes(job.o_b.type);
        int bytes = skr_type_bytes(job.o.type);
        const char *from_a = (const char *)job.o_a.data + skr_row_offset(&job.rows, job.o_a.stride, row) * a_bytes;
        const char *from_b = (const char *)job.o_b.data + skr_row_offset(&job.rows, job.o_b.stride, row) * b_bytes;
        char *to = (char *)job.o.data + skr_row_offset(&job.rows, job.o.stride, row) * bytes;
        for (int64_t c = lane; c < job.d; c += 32) {
            float x = share_a == 0.0f ? 0.0f : share_a * any_load1(job.o_a.type, from_a + c * a_bytes);
            float y = share_b == 0.0f ? 0.0f : share_b * any_load1(job.o_b.type, from_b + c * b_bytes);
            any_store1(job.o.type, to + c * bytes, x + y);
        }
    }
}

#endif
