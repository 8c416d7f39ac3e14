/* attention_bias.cuh - dbias: ds, summed over what bias repeats, always in the same order.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns a tile of dbias, BR queries by BC keys of one of bias's batches and heads, and passes over all batches,
 * heads and tiles that were given the same bias. Its sums stay in registers. Dimensions of 1 are added up at the end.
 */
#ifndef SKR_ATTENTION_BIAS_CUH
#define SKR_ATTENTION_BIAS_CUH

#include "attention_gradient.cuh"

template <int T, int DK, int DV, int BR, int BC, int WM> struct attention_bias {
    static constexpr int threads = 32 * WM, MI = BR / (16 * WM), NJ = BC / 8, pitch = BC + 1;
    using k_tile = skr_tile<T, DK>;
    using v_tile = skr_tile<T, DV>;
    static constexpr int q_at = 0, d_o_at = BR * k_tile::row_bytes, k_at = d_o_at + BR * v_tile::row_bytes;
    static constexpr int v_at = k_at + BC * k_tile::row_bytes, shared_bytes = v_at + BC * v_tile::row_bytes;
    static_assert(4 * BR * pitch <= shared_bytes, "the sums go through the same memory");

    const skr_attention_job &job;
    uint32_t memory;
    int warp_row;
    float sum[MI][NJ][4];

    static __device__ __forceinline__ void run(const skr_attention_job &job)
    {
        extern __shared__ __align__(128) char shared[];
        wait_for_previous();
        attention_bias self{job, shared_address(shared), (int)threadIdx.x / 32 * (16 * MI), {}};
        self.pass((float *)shared);
    }

    __device__ __forceinline__ void pass(float *shared)
    {
        const int64_t *dims = job.bias_dims;
        int tiles_k = (int)((dims[3] + BC - 1) / BC), tiles_q = (int)((dims[2] + BR - 1) / BR);
        int index = (int)blockIdx.x, tile_k = index % tiles_k;
        index /= tiles_k;
        int tile_q = index % tiles_q;
        index /= tiles_q;
        int h = index % (int)dims[1], b = index / (int)dims[1];
        attention_clear(sum);
        int batches = (int)(dims[0] == 1 ? job.batch : b + 1), heads = (int)(dims[1] == 1 ? job.heads : h + 1);
        for (int at_b = dims[0] == 1 ? 0 : b; at_b < batches; at_b++) {
            attention_sequence s = attention_sequence_of(job, at_b);
            int end_q = dims[2] == 1 ? (s.rows + BR - 1) / BR : tile_q + 1;
            int end_k = dims[3] == 1 ? (s.keys + BC - 1) / BC : tile_k + 1;
            for (int at_h = dims[1] == 1 ? 0 : h; at_h < heads; at_h++)
                for (int q = dims[2] == 1 ? 0 : tile_q; q < end_q; q++)
                    for (int k = dims[3] == 1 ? 0 : tile_k; k < end_k; k++)
                        add(s, at_h, q * BR, k * BC);
        }
        store(shared, b, h, tile_q * BR, tile_k * BC);
    }

    /* One tile of scores. */
    __device__ __forceinline__ void add(const attention_sequence &s, int h, int row, int key)
    {
        int last = min(row + BR, s.rows) - 1, last_key = min(key + BC, s.keys) - 1;
        if (row > last || key > last_key || s.first_key(row) > last_key || s.end_key(last) <= key)
            return;
        __shared__ attention_source from[4];
        __syncthreads();
        if (threadIdx.x == 0) {
            int kv_h = h / (int)job.group, aligned = job.cuda.aligned;
            from[0].set(job.q, s, s.q, s.rows, h, job.d, aligned);
            from[1].set(job.d_o, s, s.q, s.rows, h, job.d_v, aligned);
            from[2].set(job.k, s, s.k, s.keys, kv_h, job.d, aligned);
            from[3].set(job.v, s, s.k, s.keys, kv_h, job.d_v, aligned);
        }
        __syncthreads();
        attention_load<T, DK, BR, threads, true>(memory + q_at, from[0], row);
        attention_load<T, DV, BR, threads, true>(memory + d_o_at, from[1], row);
        attention_load<T, DK, BC, threads, true>(memory + k_at, from[2], key);
        attention_load<T, DV, BC, threads, true>(memory + v_at, from[3], key);
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
        int lane = threadIdx.x & 31;
        float x[MI][NJ][4], dp[MI][NJ][4];
        attention_scores<MI, NJ, false> scores{job, s, h, row + warp_row + (lane >> 2), key + 2 * (lane & 3)};
        attention_scores_of<T, DK>(x, memory + q_at, warp_row, memory + k_at, T == SKR_F32);
        scores.finish(x, job.scale, false);
        attention_scores_of<T, DV>(dp, memory + d_o_at, warp_row, memory + v_at, T == SKR_F32);
        uint64_t kept = job.drop ? scores.draw() : ~UINT64_C(0);
        const float2 *stats = attention_stats(job, s, h);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int at = row + warp_row + 16 * i + 8 * r + (lane >> 2);
                float2 stat = at < s.rows ? stats[at] : make_float2(__builtin_huge_valf(), 0.0f);
#pragma unroll
                for (int j = 0; j < NJ; j++)
#pragma unroll
                    for (int e = 2 * r; e < 2 * r + 2; e++) {
                        float p = exp2_fast<true>(__fmaf_rn(x[i][j][e], SKR_LOG2E, -stat.x));
                        float d = kept >> (4 * (NJ * i + j) + e) & 1 ? dp[i][j][e] * job.keep_scale : 0.0f;
                        sum[i][j][e] += p == 0.0f ? 0.0f : p * (d - stat.y);
                    }
            }
    }

    /* Adds up the dimensions of 1, and writes. */
    __device__ __forceinline__ void store(float *shared, int b, int h, int row, int key)
    {
        int lane = threadIdx.x & 31;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    shared[(warp_row + 16 * i + 8 * (e >> 1) + (lane >> 2)) * pitch + 8 * j + 2 * (lane & 3) +
                           (e & 1)] = sum[i][j][e];
        __syncthreads();
        const skr_attention_matrix &m = job.dbias;
        bool one_row = job.bias_dims[2] == 1, one_key = job.bias_dims[3] == 1;
        int rows = one_row ? 1 : min(BR, (int)job.bias_dims[2] - row);
        int keys = one_key ? 1 : min(BC, (int)job.bias_dims[3] - key), bytes = skr_type_bytes(m.type);
        for (int n = (int)threadIdx.x; n < rows * keys; n += threads) {
            int r = n / keys, c = n - r * keys;
            float all = 0.0f;
            for (int i = one_row ? 0 : r; i < (one_row ? BR : r + 1); i++)
                for (int j = one_key ? 0 : c; j < (one_key ? BC : c + 1); j++)
                    all += shared[i * pitch + j];
            char *to = (char *)m.data + (b * m.batch + h * m.head + (row + r) * m.query + (key + c) * m.key) * bytes;
            any_store1(m.type, to, job.accumulate ? any_load1(m.type, to) + all : all);
        }
    }
};

#endif
