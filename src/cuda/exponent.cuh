/* exponent.cuh - exponentials: of one number, of many against one maximum, and sums of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_EXPONENT_CUH
#define SKR_EXPONENT_CUH

#include "device.cuh"

/* 2^x: at most two units in the last place off. Subnormal results are kept; with FLUSH they are 0, for a quarter of the
 * instructions. */
template <bool FLUSH = false> SKR_DEVICE float exp2_fast(float x)
{
    float y;
    if (FLUSH)
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    else
        asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#define SKR_LOG2E 1.44269504f

SKR_DEVICE float exp_fast(float x)
{
    return exp2_fast(x * SKR_LOG2E);
}

/* Pairs (largest value, sum of 2^(unit * difference to it)): the partial results of a softmax. -infinity and 0 are
 * neutral. A NaN is lost in the maximum and kept in the sum. */
struct skr_softmax_sums {
    static constexpr float none = -__builtin_huge_valf();
    float unit; /* log2(e), times what the values still have to be multiplied by */

    /* What brings a sum that was taken against `from` to `to`, which is at least as large. Equal infinities give 1. */
    __device__ __forceinline__ float factor(float from, float to) const
    {
        return from == to ? 1.0f : exp2_fast((from - to) * unit);
    }
    __device__ __forceinline__ void join(float &most, float &sum, float other_most, float other_sum) const
    {
        float top = fmaxf(most, other_most);
        sum = sum * factor(most, top) + other_sum * factor(other_most, top);
        most = top;
    }
    template <int LANES> __device__ __forceinline__ void lanes(float &most, float &sum) const
    {
        float top = lanes_reduce<skr_max, LANES>(most);
        sum = lanes_reduce<skr_sum, LANES>(sum * factor(most, top));
        most = top;
    }
};

/* e^x, 2 ulp and what rounding x * log2(e) costs; 0 below 2^-126. */
SKR_DEVICE float exp_flush(float x)
{
    return exp2_fast<true>(x * SKR_LOG2E);
}

/* The larger, or smaller, of two words' elements, T f16 or bf16: two at once, without widening them. NaN loses. */
template <int T> SKR_DEVICE uint32_t max2(uint32_t a, uint32_t b)
{
    uint32_t r;
    if (T == SKR_BF16)
        asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else
        asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

template <int T> SKR_DEVICE uint32_t min2(uint32_t a, uint32_t b)
{
    uint32_t r;
    if (T == SKR_BF16)
        asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else
        asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* The largest element of VPT vectors of 16 bytes; NaN loses. */
template <int T, int VPT> SKR_DEVICE float packed_max(const uint4 *raw)
{
    if (T == SKR_F32) {
        float m = -INFINITY;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[4];
            unpack<SKR_F32>(raw[i], f);
            m = fmaxf(fmaxf(m, fmaxf(f[0], f[1])), fmaxf(f[2], f[3]));
        }
        return m;
    }
    uint32_t m = max2<T>(max2<T>(raw[0].x, raw[0].y), max2<T>(raw[0].z, raw[0].w));
#pragma unroll
    for (int i = 1; i < VPT; i++)
        m = max2<T>(m, max2<T>(max2<T>(raw[i].x, raw[i].y), max2<T>(raw[i].z, raw[i].w)));
    float lo, hi;
    unpack2<T == SKR_F32 ? SKR_BF16 : T>(m, lo, hi);
    return fmaxf(lo, hi);
}

/* What exponentials are taken against: the maximum, or a finite number below all others where that is -infinity, so
 * that -infinity minus it is not NaN. */
SKR_DEVICE float exp_base(float max)
{
    return fmaxf(max, -3.402823466e38f);
}

/* e^(x - base) for many x, one product and one function each: 2^(x * scale - shift), where shift is base * scale,
 * rounded. What the rounding did is the same for all and is put right in their sum: times fix. The product is exact
 * before shift is subtracted, so large x lose nothing. From 2^30 on, where fix could overflow, numbers that differ do
 * so by 64 or more: any scale will do that leaves shift exact and finite. */
struct skr_exponent {
    float scale, shift, fix;

    __device__ __forceinline__ skr_exponent(float max)
    {
        float base = exp_base(max);
        scale = fabsf(base) < 0x1p30f ? SKR_LOG2E : fabsf(base) < 0x1p126f ? 2.0f : 0x1p-10f;
        shift = base * scale;
        fix = exp2_fast<true>(__fmaf_rn(-base, scale, shift));
    }
    __device__ __forceinline__ float at(float x) const
    {
        return exp2_fast<true>(__fmaf_rn(x, scale, -shift));
    }
};

#endif
