/* act.cuh - the activation functions and their derivatives on the GPU, in f32.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The formulas are those of src/cpu/simd/act.h, and the polynomials those of src/cpu/simd/vmath.h. Each function is
 * within 4 ulp: the exponential is the hardware's 2^t (2 ulp) with the rounding error of t put back. */
#ifndef SKR_ACT_CUH
#define SKR_ACT_CUH

#include "device.cuh"

/* The smaller, NaN if one is NaN. */
SKR_DEVICE float least(float a, float b)
{
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

SKR_DEVICE float most(float a, float b)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

#define LOG2E 0x1.715476p0f

/* e^-a for a >= 0; from 110 on it is 0. */
SKR_DEVICE float exp_minus(float a)
{
    a = least(a, 110.0f);
    float t = a * -LOG2E, rest = __fmaf_rn(a, -LOG2E, -t), p;
    rest = __fmaf_rn(a, -0x1.4ae0bep-26f, rest);
    asm("ex2.approx.f32 %0, %1;" : "=f"(p) : "f"(t));
    return __fmaf_rn(p * rest, 0x1.62e43p-1f, p);
}

/* 1 / (1 + e) for e in [0, 1]. */
SKR_DEVICE float one_over(float e)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
    return r;
}

/* s(z), t = -z log2 e, where both it and 2^t are normal numbers. */
SKR_DEVICE float sigmoid_exp2(float t)
{
    float p, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(t));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + p));
    return r;
}

/* NEAR: |z| <= 87, where e^-z and its reciprocal are normal numbers: half the instructions. */
template <bool NEAR> SKR_DEVICE float sigmoid(float z)
{
    if (NEAR) {
        float t = z * -LOG2E, rest = __fmaf_rn(z, -LOG2E, -t), p, r;
        rest = __fmaf_rn(z, -0x1.4ae0bep-26f, rest);
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(t));
        p = __fmaf_rn(p * rest, 0x1.62e43p-1f, p);
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + p));
        return r;
    }
    float e = exp_minus(fabsf(z)), r = one_over(e);
    return z < 0.0f ? e * r : r;
}

/* The same for |z| <= 87 of eight significant bits, a bf16 number: its product with the first 16 bits of log2 e is
 * exact, and what the other bits make of the exponential is so close to 1 that 1 + q will do. */
SKR_DEVICE float sigmoid_of_bf16(float z)
{
    float p, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(z * -0x1.7154p0f));
    p = __fmaf_rn(p, z * -0x1.480fb6p-18f, p);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + p));
    return r;
}

/* |x| up to which an activation's sigmoid is NEAR; 0: it has none. */
SKR_DEVICE float near_limit(int act, float alpha)
{
    return act == SKR_ACT_SIGMOID || act == SKR_ACT_SILU ? 87.0f
           : act == SKR_ACT_GELU_TANH                    ? 9.0f
                                                         : 87.0f / fabsf(alpha);
}

/* s(z), and s(z) (1 - s(z)). */
SKR_DEVICE float sigmoid_both(float z, float &product)
{
    float e = exp_minus(fabsf(z)), r = one_over(e), er = e * r;
    product = er * r;
    return z < 0.0f ? er : r;
}

SKR_DEVICE float tanh_of(float x)
{
    float a = fabsf(x), z = x * x;
    float p = __fmaf_rn(0x1.1ac762p-9f, z, -0x1.0c87f2p-7f);
    p = __fmaf_rn(p, z, 0x1.63ace8p-6f);
    p = __fmaf_rn(p, z, -0x1.b9f21ep-5f);
    p = __fmaf_rn(p, z, 0x1.11107cp-3f);
    p = __fmaf_rn(p, z, -0x1.555554p-2f);
    float small = __fmaf_rn(a * z, p, a);
    float e; /* of what is subtracted from 1, no more than its absolute error matters */
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(a * -2.8853900818f));
    float large = __fmaf_rn(-2.0f * e, one_over(e), 1.0f);
    return copysignf(a < 0.625f ? small : large, x);
}

/* The normal distribution's integral up to x, (1 + erf(x / sqrt 2)) / 2, to an absolute error of 2 U: its value at -|x|
 * is 2^Q(|x|), where Q is a fit on [0, 5.5] that falls ever faster beyond. */
SKR_DEVICE float normal_below(float x)
{
    float a = fabsf(x), q = __fmaf_rn(-1.2560555629e-06f, a, 2.0940335257e-05f), h;
    q = __fmaf_rn(q, a, -1.0260135027e-04f);
    q = __fmaf_rn(q, a, -3.2551185861e-04f);
    q = __fmaf_rn(q, a, 7.2886919828e-03f);
    q = __fmaf_rn(q, a, -5.2635853064e-02f);
    q = __fmaf_rn(q, a, -4.5916746864e-01f);
    q = __fmaf_rn(q, a, -1.1511095890f);
    q = __fmaf_rn(q, a, -9.9999991647e-01f);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(h) : "f"(q));
    return x > 0.0f ? 1.0f - h : h;
}

/* 2u = x (TWO_U + TWO_U3 x^2) of gelu_tanh. */
#define TWO_U  1.5957691216057308
#define TWO_U3 0.07135481627260025

/* An argument that is itself computed (2u, alpha x) takes log2 e into its coefficients where it is NEAR: one rounding
 * less. */
template <int ACT, bool NEAR> SKR_DEVICE float act_value(float x, float alpha)
{
    if (ACT == SKR_ACT_SIGMOID)
        return sigmoid<NEAR>(x);
    if (ACT == SKR_ACT_TANH)
        return tanh_of(x);
    if (ACT == SKR_ACT_SILU)
        return x * sigmoid<NEAR>(x);
    if (ACT == SKR_ACT_GELU)
        return x * normal_below(x);
    if (ACT == SKR_ACT_GELU_TANH && NEAR)
        return x * sigmoid_exp2(x * __fmaf_rn(x * x, (float)(-TWO_U3 * M_LOG2E), (float)(-TWO_U * M_LOG2E)));
    if (ACT == SKR_ACT_GELU_TANH)
        return x * sigmoid<NEAR>(x * __fmaf_rn(x * x, (float)TWO_U3, (float)TWO_U));
    if (ACT == SKR_ACT_RELU)
        return most(x, 0.0f);
    if (ACT == SKR_ACT_RELU2) {
        x = most(x, 0.0f);
        return x * x;
    }
    if (ACT == SKR_ACT_SWIGLU_OAI)
        return x * (NEAR ? sigmoid_exp2(x * (alpha * -LOG2E)) : sigmoid<NEAR>(x * alpha));
    return x;
}

/* The function and its derivative. */
template <int ACT> SKR_DEVICE float act_both(float x, float alpha, float &slope)
{
    float s, p;
    if (ACT == SKR_ACT_SIGMOID)
        return sigmoid_both(x, slope);
    if (ACT == SKR_ACT_TANH) {
        sigmoid_both(x + x, p);
        slope = 4.0f * p;
        return tanh_of(x);
    }
    if (ACT == SKR_ACT_SILU) {
        s = sigmoid_both(x, p);
        slope = __fmaf_rn(x, p, s);
        return x * s;
    }
    if (ACT == SKR_ACT_GELU) {
        float below = normal_below(x);
        slope = __fmaf_rn(x, exp_minus(0.5f * (x * x)) * 0.3989422804f, below);
        return x * below;
    }
    if (ACT == SKR_ACT_GELU_TANH) {
        float c = least(most(x, -32.0f), 32.0f), z = c * c; /* beyond, e is 0, and z stays finite */
        s = sigmoid_both(c * __fmaf_rn(z, (float)TWO_U3, (float)TWO_U), p);
        slope = __fmaf_rn(x * p, __fmaf_rn(z, (float)(3 * TWO_U3), (float)TWO_U), s);
        return x * s;
    }
    if (ACT == SKR_ACT_RELU) {
        slope = x > 0.0f ? 1.0f : x <= 0.0f ? 0.0f : x;
        return most(x, 0.0f);
    }
    if (ACT == SKR_ACT_RELU2) {
        x = most(x, 0.0f);
        slope = x + x;
        return x * x;
    }
    if (ACT == SKR_ACT_SWIGLU_OAI) {
        s = sigmoid_both(x * alpha, p);
        slope = __fmaf_rn(x, p * alpha, s); /* p is 0 where x * alpha may overflow */
        return x * s;
    }
    slope = 1.0f;
    return x;
}

/* y of one element; u is not read unless it is gated. */
template <int ACT, bool GATED, bool NEAR> SKR_DEVICE float forward_of(float g, float u, float alpha, float limit)
{
    if (ACT == SKR_ACT_SWIGLU_OAI)
        g = least(g, limit), u = least(most(u, -limit), limit) + 1.0f;
    float y = act_value<ACT, NEAR>(g, alpha);
    return GATED ? y * u : y;
}

/* Turns g into dgate and u into dup. */
template <int ACT, bool GATED> SKR_DEVICE void backward_of(float dy, float &g, float &u, float alpha, float limit)
{
    float gc = g, uc = u, slope;
    if (ACT == SKR_ACT_SWIGLU_OAI)
        gc = least(g, limit), uc = least(most(u, -limit), limit) + 1.0f;
    float value = act_both<ACT>(gc, alpha, slope);
    if (!GATED) {
        g = dy * slope;
        return;
    }
    float dgate = dy * (uc * slope), dup = dy * value;
    if (ACT == SKR_ACT_SWIGLU_OAI)
        dgate = g > limit ? 0.0f : dgate, dup = fabsf(u) > limit ? 0.0f : dup;
    g = dgate, u = dup;
}

/* V elements of the function that the job names: one switch for all of them, and one question whether all are near. */
#define SKR_EACH_ACT(one)                                                                                              \
    switch (act) {                                                                                                     \
        one(SKR_ACT_NONE) one(SKR_ACT_SIGMOID) one(SKR_ACT_TANH) one(SKR_ACT_SILU) one(SKR_ACT_GELU)                   \
            one(SKR_ACT_GELU_TANH) one(SKR_ACT_RELU) one(SKR_ACT_RELU2) one(SKR_ACT_SWIGLU_OAI)                        \
    }

/* bf16: every g is a number of that type. */
template <int ACT, bool GATED, int V>
SKR_DEVICE void forward_all(float alpha, float limit, bool bf16, const float *g, const float *u, float *y)
{
    constexpr bool sigmoids =
        ACT == SKR_ACT_SIGMOID || ACT == SKR_ACT_SILU || ACT == SKR_ACT_GELU_TANH || ACT == SKR_ACT_SWIGLU_OAI;
    float top = 0.0f;
#pragma unroll
    for (int c = 0; c < V && sigmoids; c++)
        top = fmaxf(top, fabsf(g[c]));
    bool near = !sigmoids || top <= near_limit(ACT, alpha);
    if (ACT == SKR_ACT_SILU && near && bf16) {
#pragma unroll
        for (int c = 0; c < V; c++) {
            float f = g[c] * sigmoid_of_bf16(g[c]);
            y[c] = GATED ? f * u[c] : f;
        }
    } else if (near) {
#pragma unroll
        for (int c = 0; c < V; c++)
            y[c] = forward_of<ACT, GATED, true>(g[c], u[c], alpha, limit);
    } else {
#pragma unroll
        for (int c = 0; c < V; c++)
            y[c] = forward_of<ACT, GATED, false>(g[c], u[c], alpha, limit);
    }
}

template <bool GATED, int V> SKR_DEVICE void forward_vector(int act, float alpha, float limit, const float *g,
                                                            const float *u, float *y, bool bf16 = false)
{
#define ONE(ACT)                                                                                                       \
    case ACT:                                                                                                          \
        forward_all<ACT, GATED, V>(alpha, limit, bf16, g, u, y);                                                       \
        break;
    SKR_EACH_ACT(ONE)
#undef ONE
}

template <bool GATED, int V>
SKR_DEVICE void backward_vector(int act, float alpha, float limit, const float *dy, float *g, float *u)
{
#define ONE(ACT)                                                                                                       \
    case ACT:                                                                                                          \
        _Pragma("unroll") for (int c = 0; c < V; c++) backward_of<ACT, GATED>(dy[c], g[c], u[c], alpha, limit);        \
        break;
    SKR_EACH_ACT(ONE)
#undef ONE
}

#endif
