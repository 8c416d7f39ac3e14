/* attention_gradient_state.cuh - what a block of attention_gradient.cuh works on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_GRADIENT_STATE_CUH
#define SKR_ATTENTION_GRADIENT_STATE_CUH

#include "attention_products.cuh"

/* (lse in base 2, delta - dlse) of a head's queries, in the workspace. */
SKR_DEVICE float2 *attention_stats(const skr_attention_job &job, const attention_sequence &s, int h)
{
    int64_t tokens = job.packed ? job.length : job.batch * job.length;
    return (float2 *)((char *)job.head.workspace + job.cuda.stats_at) + h * tokens +
           (job.packed ? s.q : s.b * job.length);
}

/* Where a block leaves its part of dslopes. */
SKR_DEVICE float *attention_slope_part(const skr_attention_job &job, const attention_work &w)
{
    int64_t part = job.cuda.spans_at < 0 ? w.s.b * job.cuda.grid[0].pieces + w.tile : blockIdx.x / (int)job.heads;
    return (float *)((char *)job.head.workspace + job.cuda.slopes_at) + w.h * job.cuda.slope_parts + part;
}

/* (lse, delta) of the queries of two numbers that lie side by side, of one row. */
struct attention_two_stats {
    float lse[2], delta[2];
};

/* The n'th two of a thread's numbers [MI][NJ][4], those of j first. */
template <int MI> struct attention_pair {
    int i, j, r;
    __device__ __forceinline__ explicit attention_pair(int n) : i(n / 2 % MI), j(n / 2 / MI), r(n & 1)
    {
    }
};

/* The n-th tile of all columns that pass: which of the heads that share the keys, and which tile of its columns. */
struct attention_gradient_place {
    int n, head, tile;

    /* A head's tiles go from begin to end. */
    __device__ __forceinline__ attention_gradient_place after(int end, int begin, bool more_heads) const
    {
        bool last = more_heads && tile + 1 == end;
        return {n + 1, head + last, last ? begin : tile + 1};
    }
};

/* In shared memory. FLIP: rows are keys, else queries; BR rows meet BC columns at a time. */
template <bool FLIP, int BR, int BC> struct attention_gradient_state {
    attention_work w;
    attention_source row_k, row_v, column_k, column_v; /* q and d_o, k and v; FLIP: the other way round */
    attention_source bias;
    attention_target out_k, out_v;     /* dq; FLIP: dk and dv */
    int64_t head_k, head_v, head_bias; /* FLIP: bytes to the next query head of q, d_o and bias */
    int first;                         /* row */
    int careful;
    int begin, count, total; /* tiles of columns; total: over all heads */
    int whole, whole_end;

    __device__ __forceinline__ void prepare(const skr_attention_job &job, bool has_bias)
    {
        const attention_sequence &s = w.s;
        int kv_h = FLIP ? w.h : w.h / (int)job.group, h = FLIP ? kv_h * (int)job.group : w.h;
        int aligned = job.cuda.aligned, pairs = job.cuda.pairs;
        attention_source &q = FLIP ? column_k : row_k, &d_o = FLIP ? column_v : row_v;
        attention_source &k = FLIP ? row_k : column_k, &v = FLIP ? row_v : column_v;
        q.set(job.q, s, s.q, s.rows, h, job.d, aligned);
        d_o.set(job.d_o, s, s.q, s.rows, h, job.d_v, aligned);
        k.set(job.k, s, s.k, s.keys, kv_h, job.d, aligned);
        v.set(job.v, s, s.k, s.keys, kv_h, job.d_v, aligned);
        head_k = job.q.head * skr_type_bytes(job.q.type), head_v = job.d_o.head * skr_type_bytes(job.d_o.type);
        if (has_bias) {
            bias.set_bias(job.bias, s, h);
            head_bias = job.bias.head * skr_type_bytes(job.bias.type);
        }
        if (FLIP) {
            out_k.set(job.dk, s, s.k, s.keys, kv_h, job.d, pairs, job.accumulate);
            out_v.set(job.dv, s, s.k, s.keys, kv_h, job.d_v, pairs, job.accumulate);
        } else {
            out_k.set(job.dq, s, s.q, s.rows, h, job.d, pairs, job.accumulate);
        }
        first = w.tile * BR, careful = 0;
        int last = min(first + BR, FLIP ? s.keys : s.rows) - 1;
        bool any = last >= first;
        int from = FLIP ? s.first_row(first) : s.first_key(first), end = FLIP ? s.end_row(last) : s.end_key(last);
        begin = any ? from / BC : 0;
        count = any ? max(0, (end + BC - 1) / BC - begin) : 0;
        total = count * (FLIP ? (int)job.group : 1);
        whole = ((FLIP ? s.first_row(last) : s.first_key(last)) + BC - 1) / BC;
        whole_end = max(0, FLIP ? s.end_row(first) : s.end_key(first)) / BC;
    }
};

#endif
