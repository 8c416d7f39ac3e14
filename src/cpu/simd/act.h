/* act.h - activation functions and their derivatives on vectors: what activation and gemm's epilogue share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * e = e^-|z| keeps every formula inside the range of f32: 1 / (1 + e) is s(z) or 1 - s(z), and e / (1 + e)^2 their
 * product, without a difference that would cancel. gelu_tanh is x s(2u): (1 + tanh u) / 2 is s(2u). */
#ifndef SKR_ACT_H
#define SKR_ACT_H

#include "vmath.h"

#define EACH_ACT(m) m(NONE) m(SIGMOID) m(TANH) m(SILU) m(GELU) m(GELU_TANH) m(RELU) m(RELU2) m(SWIGLU_OAI)

/* sqrt(2 / pi) 2 and 0.044715 times that: 2u = x (TWO_U + TWO_U3 x^2). */
#define TWO_U  1.5957691216057308f
#define TWO_U3 0.07135481627260025f

/* F(-a) of a >= 0, in place, for the functions x F(x) with F(x) + F(-x) = 1: F is s(x), the normal integral, s(2u). */
SKR_FN void act_tail_each(int act, vf *a, int n)
{
    if (act == SKR_ACT_GELU) {
        v_normal_tail_each(a, n);
        return;
    }
    if (act == SKR_ACT_GELU_TANH)
        for (int i = 0; i < n; i++)
            a[i] = v_mul(a[i], v_fma(v_mul(a[i], a[i]), v_set1(TWO_U3), v_set1(TWO_U)));
    v_sigmoid_tail_each(a, n);
}

/* x F(x) = max(x, 0) - |x| F(-|x|): no selection, and for x > 0 hardly more than one rounding. */
SKR_FN void act_by_tail_each(int act, vf *x, int n)
{
    vf a[4], h[4];
    for (int i = 0; i < n; i++) /* -infinity times 0 stays NaN, infinity does not become it */
        h[i] = a[i] = v_abs(v_at_most(x[i], v_set1(104.0f)));
    act_tail_each(act, h, n);
    for (int i = 0; i < n; i++)
        x[i] = v_fnma(a[i], h[i], v_max(x[i], v_set1(0.0f)));
}

/* gpt-oss's clamped SwiGLU: what the gate multiplies. */
SKR_FN vf swiglu_oai_up(vf up, float limit)
{
    return v_add(v_min(v_max(up, v_set1(-limit)), v_set1(limit)), v_set1(1.0f));
}

/* The function of n <= 4 vectors, in place. */
SKR_FN void act_value_each(int act, vf *x, float alpha, int n)
{
    vf zero = v_set1(0.0f);
    if (act == SKR_ACT_SILU || act == SKR_ACT_GELU || act == SKR_ACT_GELU_TANH) {
        act_by_tail_each(act, x, n);
        return;
    }
    if (act == SKR_ACT_TANH) {
        v_tanh_each(x, n);
        return;
    }
    for (int i = 0; i < n; i++)
        switch (act) {
        case SKR_ACT_SIGMOID:
            x[i] = v_sigmoid(x[i]);
            break;
        case SKR_ACT_RELU:
            x[i] = v_max(x[i], zero);
            break;
        case SKR_ACT_RELU2:
            x[i] = v_max(x[i], zero);
            x[i] = v_mul(x[i], x[i]);
            break;
        case SKR_ACT_SWIGLU_OAI:
            x[i] = v_times_sigmoid(x[i], v_mul(x[i], v_set1(alpha)));
            break;
        default:
            break;
        }
}

/* s(z) in place of z, and s(z) (1 - s(z)). */
SKR_FN void sigmoid_both_each(vf *z, vf *product, int n)
{
    vf e[4], one = v_set1(1.0f);
    for (int i = 0; i < n; i++)
        e[i] = v_at_most(v_abs(z[i]), v_set1(104.0f));
    v_exp_falling_each(e, n);
    for (int i = 0; i < n; i++) {
        e[i] = v_mul(e[i], v_set1(0x1p-24f));
        vf r = v_div(one, v_add(one, e[i])), er = v_mul(e[i], r);
        product[i] = v_mul(er, r);
        z[i] = v_select(v_lt(z[i], v_set1(0.0f)), er, r);
    }
}

/* x s(z) in place of x, and its derivative x p z' + s(z), p = s(z) (1 - s(z)). dz: z', or NULL where it is 1. */
SKR_FN void times_sigmoid_both_each(vf *x, vf *z, const vf *dz, vf *slope, int n)
{
    vf p[4];
    sigmoid_both_each(z, p, n);
    for (int i = 0; i < n; i++) {
        slope[i] = dz ? v_fma(v_mul(x[i], p[i]), dz[i], z[i]) : v_fma(x[i], p[i], z[i]);
        x[i] = v_mul(x[i], z[i]);
    }
}

SKR_FN void gelu_both_each(vf *x, vf *slope, int n)
{
    vf h[4], e[4], one = v_set1(1.0f), zero = v_set1(0.0f);
    for (int i = 0; i < n; i++) {
        h[i] = v_at_most(v_abs(x[i]), v_set1(14.4222f)); /* half its square is 104, and both are 0 */
        e[i] = v_mul(v_mul(h[i], h[i]), v_set1(0.5f));
    }
    v_normal_tail_each(h, n);
    v_exp_falling_each(e, n);
    for (int i = 0; i < n; i++) {
        vf below = v_select(v_lt(zero, x[i]), v_sub(one, h[i]), h[i]);
        slope[i] = v_fma(x[i], v_mul(e[i], v_set1(0x1.988454p-26f)), below); /* 1 / sqrt(2 pi), and not raised */
        x[i] = v_mul(x[i], below);
    }
}

/* The function of n <= 4 vectors, in place, and its derivative. */
SKR_FN void act_both_each(int act, vf *x, vf *slope, float alpha, int n)
{
    vf zero = v_set1(0.0f), one = v_set1(1.0f), z[4], dz[4];
    switch (act) {
    case SKR_ACT_SIGMOID:
        sigmoid_both_each(x, slope, n);
        break;
    case SKR_ACT_TANH:
        for (int i = 0; i < n; i++)
            z[i] = v_add(x[i], x[i]);
        sigmoid_both_each(z, slope, n);
        for (int i = 0; i < n; i++)
            slope[i] = v_mul(slope[i], v_set1(4.0f));
        v_tanh_each(x, n);
        break;
    case SKR_ACT_SILU:
        for (int i = 0; i < n; i++)
            z[i] = x[i];
        times_sigmoid_both_each(x, z, NULL, slope, n);
        break;
    case SKR_ACT_GELU:
        gelu_both_each(x, slope, n);
        break;
    case SKR_ACT_GELU_TANH:
        for (int i = 0; i < n; i++) {
            vf c = v_at_most(v_at_least(x[i], v_set1(-32.0f)), v_set1(32.0f)); /* beyond, e is 0, the square finite */
            vf square = v_mul(c, c);
            z[i] = v_mul(c, v_fma(square, v_set1(TWO_U3), v_set1(TWO_U)));
            dz[i] = v_fma(square, v_set1(3 * TWO_U3), v_set1(TWO_U));
        }
        times_sigmoid_both_each(x, z, dz, slope, n);
        break;
    case SKR_ACT_SWIGLU_OAI:
        for (int i = 0; i < n; i++)
            z[i] = v_mul(x[i], v_set1(alpha)), dz[i] = v_set1(alpha);
        times_sigmoid_both_each(x, z, dz, slope, n);
        break;
    case SKR_ACT_RELU:
        for (int i = 0; i < n; i++) {
            slope[i] = v_select(v_lt(zero, x[i]), one, v_select(v_le(x[i], zero), zero, x[i]));
            x[i] = v_max(x[i], zero);
        }
        break;
    case SKR_ACT_RELU2:
        for (int i = 0; i < n; i++) {
            x[i] = v_max(x[i], zero);
            slope[i] = v_add(x[i], x[i]);
            x[i] = v_mul(x[i], x[i]);
        }
        break;
    default:
        for (int i = 0; i < n; i++)
            slope[i] = one;
        break;
    }
}

#endif
