/* cross_entropy_row.cuh - what the CUDA kernels of cross-entropy share: a row's target and coefficients, its results,
 * and the gradient of a few columns. SPDX-License-Identifier: Apache-2.0
 *
 * FULL kernels take softcap and label smoothing; the others have neither. */
#ifndef SKR_CROSS_ENTROPY_ROW_CUH
#define SKR_CROSS_ENTROPY_ROW_CUH

#include "../../cuda/exponent.cuh"
#include "../../cuda/rows.cuh"
#include "cross_entropy.h"

enum { SKR_CE_BAD_INDEX = 12 }; /* saker_status; kernels do not see saker.h */

/* The offset of a row in a tensor: rows by skr_row where they are few, by their number where they may be many. */
SKR_DEVICE int64_t stat_offset(const skr_row_space &space, const skr_rows &t, const skr_row &row)
{
    int64_t offset = row.at[0] * t.stride[0];
    if (!row.flat)
#pragma unroll
        for (int k = 1; k < SKR_ROW_DIMS; k++)
            offset += (int64_t)row.at[k] * t.stride[k];
    return offset;
}

SKR_DEVICE int64_t stat_offset(const skr_row_space &space, const skr_rows &t, int64_t row)
{
    return skr_row_offset(&space, t.stride, row);
}

/* Adds the parts of PREPARE; whole warps call it, and every lane gets the result. */
template <class Job> SKR_DEVICE skr_ce_scale scale_of(const Job &job)
{
    float4 p = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (job.room.part_at >= 0) {
        p = ((const float4 *)((char *)job.head.workspace + job.room.part_at))[threadIdx.x & 31];
        p.x = lanes_reduce<skr_sum, 32>(p.x), p.y = lanes_reduce<skr_sum, 32>(p.y);
        p.z = lanes_reduce<skr_sum, 32>(p.z);
    }
    return skr_ce_scale_of(job.reduction, job.smoothing, job.k, job.weight.data != nullptr, p.x, p.y, p.z);
}

/* What a row's target says. Row is skr_row or int64_t. */
template <class Row> struct ce_target {
    int64_t hit; /* column of the target; below 0: ignored; it may lie outside of a shard */
    bool counts;
    float weight;

    __device__ __forceinline__ ce_target(const skr_cross_entropy_job &job, const Row &row, bool leader)
    {
        int64_t t = skr_ce_target(&job.target, stat_offset(job.rows, job.target, row));
        counts = t >= 0 && t < job.vocab && t != job.ignore_index;
        if (leader && !counts && t != job.ignore_index)
            *(volatile int32_t *)job.head.error_word = SKR_CE_BAD_INDEX;
        hit = counts ? t - job.start : -1;
        weight = 1.0f;
        if (counts && job.weight.data)
            weight = any_load1(job.weight.type, (const char *)job.weight.data + t * skr_type_bytes(job.weight.type));
    }
};

/* Sums of exponentials, each against its thread's own maximum, brought to the row's. */
template <class Owner> SKR_DEVICE void join_sums(Owner &owner, float &max, float &sum)
{
    skr_softmax_sums pair = {SKR_LOG2E};
    pair.lanes < Owner::lanes<32 ? Owner::lanes : 32>(max, sum);
    owner.join(pair, max, sum);
}

SKR_DEVICE float capped(float x, float softcap)
{
    return softcap != 0.0f ? softcap * tanhf(x / softcap) : x;
}

/* m + log(sum); -infinity where everything is. Maxima pass over a NaN: it shows in the sum. */
SKR_DEVICE float lse_of(float max, float sum)
{
    return max == -INFINITY && sum == sum ? max : max + logf(sum);
}

template <class Row>
SKR_DEVICE void put_loss(const skr_cross_entropy_job &job, const Row &row, int64_t number, const skr_ce_loss &loss)
{
    if (job.loss.data)
        ((float *)job.loss.data)[stat_offset(job.rows, job.loss, row)] = loss.entropy + loss.z;
    if (job.room.loss_at >= 0)
        ((skr_ce_loss *)((char *)job.head.workspace + job.room.loss_at))[number] = loss;
}

/* Class weights of V columns from column `at` on; 1 without. */
template <int V> SKR_DEVICE void class_weights(const skr_cross_entropy_job &job, int64_t at, float *w)
{
    const char *p = (const char *)job.weight.data + (job.start + at) * skr_type_bytes(job.weight.type);
#pragma unroll
    for (int c = 0; c < V; c++)
        w[c] = job.weight.data ? any_load1(job.weight.type, p + c * skr_type_bytes(job.weight.type)) : 1.0f;
}

/* f holds p * a of V columns from column `at` on, x their logits, place: the target among them if it is below V;
 * leaves the gradient in f. */
template <int V, bool FULL> SKR_DEVICE void finish_gradient(const skr_cross_entropy_job &job, const skr_ce_coef &k,
                                                            uint32_t place, int64_t at, const float *x, float *f)
{
    if (FULL && k.c != 0.0f) {
        float w[V];
        class_weights<V>(job, at, w);
#pragma unroll
        for (int c = 0; c < V; c++)
            f[c] = __fmaf_rn(-k.c, w[c], f[c]);
    }
    if (place < V) {
#pragma unroll
        for (uint32_t c = 0; c < V; c++)
            f[c] -= c == place ? k.b : 0.0f;
    }
    if (FULL && job.softcap != 0.0f) {
#pragma unroll
        for (int c = 0; c < V; c++) {
            float t = tanhf(x[c] / job.softcap);
            f[c] *= __fmaf_rn(-t, t, 1.0f);
        }
    }
}

SKR_DEVICE bool is_zero(const skr_ce_coef &k)
{
    return k.a == 0.0f && k.b == 0.0f && k.c == 0.0f;
}

/* V elements of type T: 16 bytes, or one element where the alignment allows no more. */
template <int T, int V> struct ce_vector {
    uint4 raw;
    template <int U> SKR_DEVICE float most(const ce_vector *v)
    {
        return packed_max<T, U>(&v->raw);
    }
    __device__ __forceinline__ void load(const char *row, int64_t v)
    {
        raw = load16_once(row + v * 16);
    }
    /* -infinity: neutral for maxima and sums of exponentials. */
    __device__ __forceinline__ void none()
    {
        uint32_t w = T == SKR_F32 ? 0xff800000u : T == SKR_BF16 ? 0xff80ff80u : 0xfc00fc00u;
        raw = make_uint4(w, w, w, w);
    }
    __device__ __forceinline__ void get(float *f) const
    {
        unpack<T>(raw, f);
    }
};

template <int T> struct ce_vector<T, 1> {
    float value;
    template <int U> SKR_DEVICE float most(const ce_vector *v)
    {
        float m = -INFINITY;
#pragma unroll
        for (int u = 0; u < U; u++)
            m = fmaxf(m, v[u].value);
        return m;
    }
    __device__ __forceinline__ void load(const char *row, int64_t v)
    {
        value = any_load1(T, row + v * skr_elem<T>::bytes);
    }
    __device__ __forceinline__ void none()
    {
        value = -INFINITY;
    }
    __device__ __forceinline__ void get(float *f) const
    {
        f[0] = value;
    }
};

/* SAME: dlogits has logits' type. */
template <int T, int V, bool SAME> SKR_DEVICE void put_vector(int type, char *p, const float *f)
{
    if (V == 1)
        any_store1(SAME ? T : type, p, f[0]);
    else if (SAME)
        store16_once(p, pack<T>(f));
    else
        any_store<V == 1 ? 4 : V>(type, p, f);
}

#endif
