/* act.h - activation functions and their derivatives on vectors: what activation and gemm's epilogue share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * e = e^-|z| keeps every formula inside the range of f32: 1 / (1 + e) is s(z) or 1 - s(z), and e / (1 + e)^2 their
 * product, without a difference that would cancel. gelu_tanh is x s(2u): (1 + tanh u) / 2 is s(2u). */
#ifndef SKR_ACT_H
#define SKR_ACT_H

#include "vmath.h"

/* sqrt(2 / pi) 2 and 0.044715 times that: 2u = x (TWO_U + TWO_U3 x^2). */
#define TWO_U  1.5957691216057308f
#define TWO_U3 0.07135481627260025f

SKR_FN vf act_value(int act, vf x, float alpha)
{
    vf zero = v_set1(0.0f);
    switch (act) {
    case SKR_ACT_SIGMOID:
        return v_sigmoid(x);
    case SKR_ACT_TANH:
        return v_tanh(x);
    case SKR_ACT_SILU:
        return v_times_sigmoid(x, x);
    case SKR_ACT_GELU:
        return v_times_normal_below(x);
    case SKR_ACT_GELU_TANH: {
        vf u = v_mul(x, v_fma(v_mul(x, x), v_set1(TWO_U3), v_set1(TWO_U)));
        return v_times_sigmoid(x, u);
    }
    case SKR_ACT_RELU:
        return v_max(x, zero);
    case SKR_ACT_RELU2:
        x = v_max(x, zero);
        return v_mul(x, x);
    case SKR_ACT_SWIGLU_OAI:
        return v_times_sigmoid(x, v_mul(x, v_set1(alpha)));
    default:
        return x;
    }
}

/* s(z), and s(z) (1 - s(z)). */
SKR_FN vf sigmoid_both(vf z, vf *product)
{
    vf e = v_exp_below(v_sub(v_set1(0.0f), v_abs(z))), one = v_set1(1.0f), r = v_div(one, v_add(one, e)),
       er = v_mul(e, r);
    *product = v_mul(er, r);
    return v_select(v_lt(z, v_set1(0.0f)), er, r);
}

/* The function and its derivative. */
SKR_FN vf act_both(int act, vf x, float alpha, vf *slope)
{
    vf zero = v_set1(0.0f), one = v_set1(1.0f), s, p;
    switch (act) {
    case SKR_ACT_SIGMOID:
        return sigmoid_both(x, slope);
    case SKR_ACT_TANH:
        sigmoid_both(v_add(x, x), &p);
        *slope = v_mul(p, v_set1(4.0f));
        return v_tanh(x);
    case SKR_ACT_SILU:
        s = sigmoid_both(x, &p);
        *slope = v_fma(x, p, s);
        return v_mul(x, s);
    case SKR_ACT_GELU: {
        vf below = v_normal_below(x);
        vf density = v_mul(v_exp_below(v_mul(v_mul(x, x), v_set1(-0.5f))), v_set1(0.3989422804f));
        *slope = v_fma(x, density, below);
        return v_mul(x, below);
    }
    case SKR_ACT_GELU_TANH: {
        vf c = v_min(v_max(x, v_set1(-32.0f)), v_set1(32.0f)), z = v_mul(c, c); /* beyond, e is 0, and z stays finite */
        s = sigmoid_both(v_mul(c, v_fma(z, v_set1(TWO_U3), v_set1(TWO_U))), &p);
        *slope = v_fma(v_mul(x, p), v_fma(z, v_set1(3 * TWO_U3), v_set1(TWO_U)), s);
        return v_mul(x, s);
    }
    case SKR_ACT_RELU:
        *slope = v_select(v_lt(zero, x), one, v_select(v_le(x, zero), zero, x));
        return v_max(x, zero);
    case SKR_ACT_RELU2:
        x = v_max(x, zero);
        *slope = v_add(x, x);
        return v_mul(x, x);
    case SKR_ACT_SWIGLU_OAI:
        s = sigmoid_both(v_mul(x, v_set1(alpha)), &p);
        *slope = v_fma(x, v_mul(p, v_set1(alpha)), s); /* p is 0 where x * alpha may overflow */
        return v_mul(x, s);
    default:
        *slope = one;
        return x;
    }
}

#endif
