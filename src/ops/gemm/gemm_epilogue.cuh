/* gemm_epilogue.cuh - what CUDA kernels do with sums of products: scales, c, bias, activation, outputs.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel but those that write d through the copy engine ends here: 64 x 64 sums lie in shared memory, and the
 * block writes them. The loop is not unrolled, so the code of every option exists once. */
#ifndef SKR_GEMM_EPILOGUE_CUH
#define SKR_GEMM_EPILOGUE_CUH

#include "../../cuda/act.cuh"
#include "gemm.h"

SKR_DEVICE const skr_gemm_group *gemm_group_table(const skr_gemm_job &job)
{
    return (const skr_gemm_group *)((const char *)job.head.workspace + job.groups.table_at);
}

/* Where the matrices of one batch index, or of one group, begin, in elements, and how large the product is. */
struct gemm_batch {
    int64_t a, b, c, d, pre, saved, a_scale, b_scale, b_zero, bias;
    int64_t m, k;  /* rows and k's */
    int64_t first; /* the group's first row: gather and scatter are indexed from there */

    __device__ __forceinline__ gemm_batch(const skr_gemm_job &job, int64_t z) : bias(0), m(job.m), k(job.k), first(0)
    {
        a = at(job, job.a, z), b = at(job, job.b, z), c = at(job, job.c, z), d = at(job, job.d, z);
        pre = at(job, job.pre, z), saved = at(job, job.saved, z), a_scale = at(job, job.a_scale, z);
        b_scale = at(job, job.b_scale, z), b_zero = at(job, job.b_zero, z);
        if (job.groups.of == SKR_GEMM_OF_ROWS)
            enter_rows(job, z);
        else if (job.groups.of == SKR_GEMM_OF_KS)
            enter_ks(job, z);
    }

    __device__ __forceinline__ void enter_rows(const skr_gemm_job &job, int64_t z)
    {
        const skr_gemm_group &g = gemm_group_table(job)[z];
        first = g.first, m = g.count, bias = z * job.groups.bias_stride;
        pre += first * job.pre.row, saved += first * job.saved.row;
        if (!job.gather.data) {
            a += first * job.a.row;
            a_scale += first * (job.scaling == SKR_GEMM_BLOCK   ? job.a_scale.row
                                : job.scaling > SKR_GEMM_TENSOR ? job.a_scale.at.col_stride
                                                                : 0);
        }
        if (!job.scatter.data)
            d += first * job.d.row;
    }

    __device__ __forceinline__ void enter_ks(const skr_gemm_job &job, int64_t z)
    {
        const skr_gemm_group &g = gemm_group_table(job)[z];
        k = g.count;
        a += g.first * job.a.at.col_stride, b += g.first * job.b.row;
    }

    __device__ __forceinline__ static int64_t at(const skr_gemm_job &job, const skr_gemm_matrix &m, int64_t z)
    {
        return m.at.data && z ? skr_row_offset(&job.batch, m.at.stride, z) : 0;
    }
};

SKR_DEVICE int64_t gemm_index(const skr_param &p, int64_t i)
{
    return p.type == SKR_I32 ? ((const int32_t *)p.data)[i * p.stride] : ((const int64_t *)p.data)[i * p.stride];
}

/* Row m of the product among the rows of a, and among those of d; -1: outside, which is reported. */
SKR_DEVICE int64_t gemm_row_of(const skr_gemm_job &job, const gemm_batch &z, const skr_param &map, int64_t rows,
                               int64_t m)
{
    if (!map.data)
        return m;
    int64_t r = gemm_index(map, z.first + m);
    if (r >= 0 && r < rows)
        return r;
    *job.head.error_word = SKR_BAD_INDEX;
    return -1;
}

SKR_DEVICE int64_t gemm_a_row(const skr_gemm_job &job, const gemm_batch &z, int64_t m)
{
    return gemm_row_of(job, z, job.gather, job.gather_rows, m);
}

SKR_DEVICE int64_t gemm_d_row(const skr_gemm_job &job, const gemm_batch &z, int64_t m)
{
    return gemm_row_of(job, z, job.scatter, job.scatter_rows, m);
}

/* Tiles count virtual columns, in which the gate and what it multiplies are neighbours; this is the column of b. */
SKR_DEVICE int64_t gemm_column(const skr_gemm_job &job, int64_t n)
{
    return job.gated == SKR_GEMM_HALVES ? (n >> 1) + (n & 1 ? job.n / 2 : 0) : n;
}

SKR_DEVICE bool gemm_scaled_late(const skr_gemm_job &job)
{
    return job.scaling == SKR_GEMM_TENSOR || job.scaling == SKR_GEMM_ROW_COLUMN;
}

/* Of a product whose scales are those of whole tensors, or were applied along k. */
SKR_DEVICE float gemm_one_factor(const skr_gemm_job &job)
{
    float factor = job.alpha;
    if (job.scaling != SKR_GEMM_TENSOR)
        return factor;
    if (job.a_scale.at.data)
        factor *= *(const float *)job.a_scale.at.data;
    if (job.b_scale.at.data)
        factor *= *(const float *)job.b_scale.at.data;
    return factor;
}

SKR_DEVICE float gemm_row_factor(const skr_gemm_job &job, const gemm_batch &z, int64_t m)
{
    bool rows = gemm_scaled_late(job) || job.scaling == SKR_GEMM_GROUP;
    if (!rows || !job.a_scale.at.data)
        return job.alpha;
    m = gemm_a_row(job, z, m);
    return m < 0 ? job.alpha
                 : job.alpha * ((const float *)job.a_scale.at.data)[z.a_scale + m * job.a_scale.at.col_stride];
}

SKR_DEVICE float gemm_column_factor(const skr_gemm_job &job, const gemm_batch &z, int64_t n)
{
    if (!gemm_scaled_late(job) || !job.b_scale.at.data)
        return 1.0f;
    return ((const float *)job.b_scale.at.data)[z.b_scale + n * job.b_scale.at.col_stride];
}

SKR_DEVICE float gemm_load(const skr_gemm_matrix &t, int64_t begin, int64_t m, int64_t n)
{
    int64_t i = begin + m * t.row + n * t.at.col_stride;
    return any_load1(t.at.type, (const char *)t.at.data + i * skr_type_bytes(t.at.type));
}

/* Where row m of c is, from column n on; c's columns are neighbours. */
SKR_DEVICE const char *gemm_c_at(const skr_gemm_job &job, int64_t z, int64_t m, int64_t n)
{
    return (const char *)job.c.at.data +
           (gemm_batch::at(job, job.c, z) + m * job.c.row + n) * skr_type_bytes(job.c.at.type);
}

SKR_DEVICE void gemm_store(const skr_gemm_matrix &t, int64_t begin, int64_t m, int64_t n, float f)
{
    int64_t i = begin + m * t.row + n * t.at.col_stride;
    any_store1(t.at.type, (char *)t.at.data + i * skr_type_bytes(t.at.type), f);
}

/* v of one element, stored in pre where that is wanted. n is a column of b. */
SKR_DEVICE float gemm_value(const skr_gemm_job &job, const gemm_batch &z, int64_t m, int64_t n, float sum)
{
    float v = sum * (gemm_row_factor(job, z, m) * gemm_column_factor(job, z, n));
    if (job.c.at.data)
        v = __fmaf_rn(job.beta, gemm_load(job.c, z.c, m, n), v);
    if (job.bias.data) { /* and not + 0 without one: that would change -0 */
        int64_t i = z.bias + (job.bias_rows ? m : n) * job.bias.stride;
        v += any_load1(job.bias.type, (const char *)job.bias.data + i * skr_type_bytes(job.bias.type));
    }
    if (job.pre.at.data)
        gemm_store(job.pre, z.pre, m, n, v);
    return v;
}

/* Factors and bias of eight neighbouring columns of b: of a product without c and pre, and whose bias is its columns'.
 */
struct gemm_columns8 {
    float scale[8], bias[8];

    __device__ __forceinline__ void read(const skr_gemm_job &job, const gemm_batch &z, int64_t n)
    {
        const int bytes = skr_type_bytes(job.bias.type);
        const char *from = (const char *)job.bias.data + (z.bias + n * job.bias.stride) * bytes;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            scale[i] = gemm_column_factor(job, z, n + i);
            bias[i] = job.bias.data ? any_load1(job.bias.type, from + i * job.bias.stride * bytes) : -0.0f;
        }
    }

    /* x: sums of a row, of which `row` is the factor. -0 as a bias changes nothing. */
    __device__ __forceinline__ void apply(float row, float (&x)[8]) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = __fmaf_rn(x[i], row * scale[i], bias[i]);
    }
};

/* Two neighbouring virtual columns of one row; `second` may be out of range. Leaves in x what was stored in d, before
 * it was rounded (not gated: dbias does not go with that). */
SKR_DEVICE void gemm_finish_pair(const skr_gemm_job &job, const gemm_batch &z, int64_t m, int64_t n, bool second,
                                 float (&x)[2])
{
    x[0] = gemm_value(job, z, m, gemm_column(job, n), x[0]);
    x[1] = second ? gemm_value(job, z, m, gemm_column(job, n + 1), x[1]) : 0.0f;
    const int64_t to = gemm_d_row(job, z, m);
    if (job.gated) {
        float y;
        forward_vector<true, 1>(job.act, 1.702f, 7.0f, &x[0], &x[1], &y);
        if (to >= 0)
            gemm_store(job.d, z.d, to, n >> 1, y);
        return;
    }
    if (job.saved.at.data) {
        float s[2] = {gemm_load(job.saved, z.saved, m, n), 0.0f}, up[2] = {0.0f, 0.0f};
        if (second)
            s[1] = gemm_load(job.saved, z.saved, m, n + 1);
        backward_vector<false, 2>(job.act, 0.0f, 0.0f, x, s, up);
        x[0] = s[0], x[1] = s[1];
    } else if (job.act) {
        float y[2];
        forward_vector<false, 2>(job.act, 0.0f, 0.0f, x, x, y);
        x[0] = y[0], x[1] = y[1];
    }
    if (to < 0)
        return;
    gemm_store(job.d, z.d, to, n, x[0]);
    if (second)
        gemm_store(job.d, z.d, to, n + 1, x[1]);
}

/* The same for results that are exact modulo 2^32. */
SKR_DEVICE void gemm_finish_exact(const skr_gemm_job &job, const gemm_batch &z, int64_t m, int64_t n, uint32_t v)
{
    if (job.bias.data)
        v += ((const uint32_t *)job.bias.data)[z.bias + (job.bias_rows ? m : n) * job.bias.stride];
    if (job.c.at.data)
        v += ((const uint32_t *)job.c.at.data)[z.c + m * job.c.row + n * job.c.at.col_stride];
    if (job.pre.at.data)
        ((uint32_t *)job.pre.at.data)[z.pre + m * job.pre.row + n * job.pre.at.col_stride] = v;
    m = gemm_d_row(job, z, m);
    if (m >= 0)
        ((uint32_t *)job.d.at.data)[z.d + m * job.d.row + n * job.d.at.col_stride] = v;
}

/* Sums that wait to be written: 64 rows of 64, in a pitch that spreads the fragments of the tensor cores over all
 * banks. S is float or int32_t. */
template <class S, int THREADS = 256> struct gemm_sums {
    static constexpr int SIDE = SKR_GEMM_SIDE, PITCH = SIDE + 8;
    __align__(16) S at[SIDE][PITCH];

    /* By all threads, after a barrier; another one follows before the sums change. Row m0, virtual column n0 of
     * batch z; tile: row of tiles that dbias's partial sums belong to. */
    __device__ __forceinline__ void write(const skr_gemm_job &job, const gemm_batch &z, int64_t m0, int64_t n0,
                                          int64_t tile)
    {
        constexpr bool INTS = S(0.5) == S(0);
        if (job.work.plain == SKR_GEMM_ONE_FACTOR && job.work.store) {
            write_plain(job, z, m0, n0);
            return;
        }
        int c = (int)threadIdx.x % 32 * 2;
        int64_t n = n0 + c;
        float down[2] = {0.0f, 0.0f};
        if (n < job.n)
#pragma unroll 1
            for (int r = (int)threadIdx.x / 32; r < SIDE && m0 + r < z.m; r += THREADS / 32) {
                if (INTS && job.exact) {
                    gemm_finish_exact(job, z, m0 + r, n, (uint32_t)at[r][c]);
                    if (n + 1 < job.n)
                        gemm_finish_exact(job, z, m0 + r, n + 1, (uint32_t)at[r][c + 1]);
                    continue;
                }
                float x[2] = {(float)at[r][c], (float)at[r][c + 1]};
                gemm_finish_pair(job, z, m0 + r, n, n + 1 < job.n, x);
                down[0] += x[0], down[1] += x[1];
            }
        if (!job.dbias.data)
            return;
        __syncthreads();
        float(*rows)[SIDE] = (float(*)[SIDE])at;
        rows[threadIdx.x / 32][c] = down[0], rows[threadIdx.x / 32][c + 1] = down[1];
        __syncthreads();
        if (threadIdx.x < SIDE && n0 + threadIdx.x < job.n) {
            float all = 0.0f;
            for (int i = 0; i < THREADS / 32; i++)
                all += rows[i][threadIdx.x];
            ((float *)((char *)job.head.workspace + job.parts_at))[tile * job.n + n0 + threadIdx.x] = all;
        }
    }

    /* Nothing but one factor, d in aligned rows. */
    __device__ __forceinline__ void write_plain(const skr_gemm_job &job, const gemm_batch &z, int64_t m0,
                                                int64_t n0) const
    {
        const float factor = gemm_one_factor(job);
        const int bytes = skr_type_bytes(job.d.at.type);
        for (int i = (int)threadIdx.x; i < SIDE * SIDE / 8; i += THREADS) {
            int r = i / 8, c = i % 8 * 8;
            int64_t n = n0 + c;
            char *to = (char *)job.d.at.data + (z.d + (m0 + r) * job.d.row + n) * bytes;
            float f[8];
            if (m0 + r >= z.m)
                return;
#pragma unroll
            for (int k = 0; k < 8; k++)
                f[k] = (float)at[r][c + k] * factor;
            if (n + 8 <= job.n)
                any_store<8>(job.d.at.type, to, f);
            else
#pragma unroll
                for (int k = 0; k < 8; k++)
                    if (n + k < job.n)
                        any_store1(job.d.at.type, to + k * bytes, f[k]);
        }
    }
};

/* dbias: the partial sums of the rows of tiles, added in order. */
SKR_DEVICE void gemm_add_dbias(const skr_gemm_job &job)
{
    wait_for_previous();
    let_next_start();
    const float *part = (const float *)((const char *)job.head.workspace + job.parts_at);
    int64_t parts = job.batch.m * job.m_tiles;
    for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < job.n; n += (int64_t)gridDim.x * blockDim.x) {
        double sum = 0;
        for (int64_t p = 0; p < parts; p++)
            sum += part[p * job.n + n];
        char *to = (char *)job.dbias.data + n * job.dbias.stride * skr_type_bytes(job.dbias.type);
        any_store1(job.dbias.type, to, job.accumulate ? any_load1(job.dbias.type, to) + (float)sum : (float)sum);
    }
}

#endif
