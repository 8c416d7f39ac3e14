/* vmath.h - elementary functions on vectors, written once in the vocabulary of simd.h.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Coefficients come from tools/minimax.py (its output names each polynomial below). Each function states its largest
 * error in units in the last place (ulp) of the true result, over all of f32; tests/test_vmath.c measures it at every
 * level and fails above it. NaN gives NaN; infinities, zeros and the ends of the range give what C's math functions
 * give; subnormal results and arguments are kept. */
#ifndef SKR_VMATH_H
#define SKR_VMATH_H

#include "simd.h"

/* p * 2^n for an integer n in [-254, 254]: two multiplications, the first exact, so that a subnormal result is rounded
 * once. Multiplying, and not adding to the exponent's bits, keeps NaN what it is. */
SKR_FN vf v_scale(vf p, vf n)
{
    vi i = v_to_int(n), half = vi_sra(i, 1), rest = vi_sub(i, half), bias = vi_set1(127);
    vf a = v_of_bits(vi_sll(vi_add(half, bias), 23)), b = v_of_bits(vi_sll(vi_add(rest, bias), 23));
    return v_mul(v_mul(p, a), b);
}

/* e^x, 1.25 ulp. x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 P(r), polynomial error 3.3e-9. Outside [-104, 89]
 * it is 0 or infinity. */
SKR_FN vf v_exp(vf x)
{
    x = v_at_least(v_at_most(x, v_set1(89.0f)), v_set1(-104.0f));
    vf n = v_round(v_mul(x, v_set1(0x1.715476p0f)));
    vf r = v_fnma(n, v_set1(0x1.62e4p-1f), x); /* ln 2 in two parts */
    r = v_fnma(n, v_set1(0x1.7f7d1cp-20f), r);
    vf z = v_mul(r, r);
    vf high = v_fma(v_set1(0x1.6aca52p-10f), r, v_set1(0x1.123dfep-7f));
    vf low = v_fma(v_set1(0x1.55548cp-3f), r, v_set1(0x1.fffffcp-2f));
    vf p = v_fma(v_fma(high, r, v_set1(0x1.555858p-5f)), z, low);
    p = v_add(v_fma(z, p, r), v_set1(1.0f));
    return v_scale(p, n);
}

/* Functions _each take n <= 4 vectors (n a constant) and go step by step for all of them, because one chain of
 * dependent steps is longer than what a core looks ahead; with so few live vectors that four are not spilled. */
#define V_EACH SKR_UNROLL for (int i = 0; i < n; i++)
/* clang-format off */

/* 2^24 e^x for x <= 70, 1.25 ulp: the reduction and polynomial of v_exp with half the steps around them. Adding
 * 1.5 * 2^23 + 151 rounds to an integer and leaves n + 151 in the low bits, which shifted up are those of 2^(n + 24).
 * All results are normal numbers; those of x <= -104 are about 2^-126, which 2^-24 makes 0. NaN gives NaN. */
SKR_FN void v_exp_raised_each(vf *x, int n)
{
    const vf magic = v_set1(12583063.0f), lowest = v_set1(-104.0f);
    vf t[4], p[4], q[4], z[4];
    V_EACH x[i] = v_at_least(x[i], lowest);
    V_EACH t[i] = v_fma(x[i], v_set1(0x1.715476p0f), V_AGAIN(12583063.0f));
    V_EACH p[i] = v_sub(t[i], magic);
    V_EACH x[i] = v_fnma(p[i], v_set1(0x1.62e4p-1f), x[i]); /* ln 2 in two parts */
    V_EACH x[i] = v_fnma(p[i], v_set1(0x1.7f7d1cp-20f), x[i]);
    V_EACH p[i] = v_fma(v_set1(0x1.6aca52p-10f), x[i], V_AGAIN(0x1.123dfep-7f));
    V_EACH z[i] = v_mul(x[i], x[i]);
    V_EACH q[i] = v_fma(p[i], x[i], V_AGAIN(0x1.555858p-5f));
    V_EACH p[i] = v_fma(v_set1(0x1.55548cp-3f), x[i], V_AGAIN(0x1.fffffcp-2f));
    V_EACH p[i] = v_fma(q[i], z[i], p[i]);
    V_EACH x[i] = v_fma(z[i], p[i], x[i]);
    V_EACH t[i] = v_of_bits(vi_sll(v_bits(t[i]), 23));
    V_EACH x[i] = v_add(x[i], v_set1(1.0f));
    V_EACH x[i] = v_mul(x[i], t[i]);
}
/* clang-format on */

SKR_FN vf v_exp_raised(vf x)
{
    v_exp_raised_each(&x, 1);
    return x;
}

/* Of two pairs, in place. On x86 gcc's own order is as good, and better beside conversions. */
SKR_FN void v_exp_raised_pairs(vf2 *a)
{
    vf each[4] = {a[0].lo, a[0].hi, a[1].lo, a[1].hi};
    const int together = SKR_LANES > 4 ? 1 : 4;
    SKR_UNROLL
    for (int i = 0; i < 4; i += together)
        v_exp_raised_each(each + i, together);
    a[0] = (vf2){each[0], each[1]}, a[1] = (vf2){each[2], each[3]};
}

/* e^x for x <= 70, 1.25 ulp. The last product rounds once where the result is subnormal. */
SKR_FN vf v_exp_below(vf x)
{
    return v_mul(v_exp_raised(x), v_set1(0x1p-24f));
}

/* 2^f for |f| <= 1/2: 1 + f P(f), polynomial error 1.3e-8. */
SKR_FN vf v_exp2_fraction(vf f)
{
    vf z = v_mul(f, f);
    vf high = v_fma(v_set1(0x1.18e4p-13f), f, v_set1(0x1.5ef0cap-10f));
    vf middle = v_fma(v_set1(0x1.3b66f8p-7f), f, v_set1(0x1.c6af9ep-5f));
    vf low = v_fma(v_set1(0x1.ebfb94p-3f), f, v_set1(0x1.62e43p-1f));
    return v_fma(v_fma(v_fma(high, z, middle), z, low), f, v_set1(1.0f));
}

/* 2^x for x < 127.5, 1.25 ulp; results below 2^-126 are 0. x = n + f: adding 1.5 * 2^23 + 127 rounds to an integer and
 * leaves n + 127 in the low bits, which shifted up are those of 2^n, and of 0 where n is -127. NaN gives NaN. */
SKR_FN vf v_exp2_normal(vf x)
{
    const vf magic = v_set1(12583039.0f);
    x = v_at_least(x, v_set1(-127.0f));
    vf t = v_add(x, magic), f = v_sub(x, v_sub(t, magic));
    return v_mul(v_exp2_fraction(f), v_of_bits(vi_sll(v_bits(t), 23)));
}

/* ---------------------------------------------------------------- several vectors at once */

/* clang-format off */

/* 2^f for |f| <= 1/2 with a term less than v_exp2_fraction, polynomial error 9.8e-8. */
SKR_FN void v_exp2_fraction_each(const vf *f, vf *p, int n)
{
    vf q[4], z[4];
    V_EACH p[i] = v_fma(v_set1(0x1.5cc8bap-10f), f[i], V_AGAIN(0x1.3cf502p-7f));
    V_EACH z[i] = v_mul(f[i], f[i]);
    V_EACH q[i] = v_fma(v_set1(0x1.c6b58ep-5f), f[i], V_AGAIN(0x1.ebf9a2p-3f));
    V_EACH q[i] = v_fma(p[i], z[i], q[i]);
    V_EACH p[i] = v_fma(v_set1(0x1.62e42ap-1f), f[i], V_AGAIN(1.0f));
    V_EACH p[i] = v_fma(q[i], z[i], p[i]);
}

/* v_exp2_normal, 2.5 ulp. */
SKR_FN void v_exp2_each(vf *x, int n)
{
    const vf magic = v_set1(12583039.0f), lowest = v_set1(-127.0f);
    vf t[4], p[4];
    V_EACH x[i] = v_at_least(x[i], lowest);
    V_EACH t[i] = v_add(x[i], magic);
    V_EACH p[i] = v_sub(t[i], magic);
    V_EACH x[i] = v_sub(x[i], p[i]);
    v_exp2_fraction_each(x, p, n);
    V_EACH t[i] = v_of_bits(vi_sll(v_bits(t[i]), 23));
    V_EACH x[i] = v_mul(p[i], t[i]);
}

/* 2^24 e^-a for 0 <= a <= 104, 2.75 ulp, by 2^(-a log2 e): as v_exp_raised, but f = n - a log2 e takes log2 e in two
 * parts and overwrites n, where r = a - n ln 2 would need a copy of a. */
SKR_FN void v_exp_falling_each(vf *a, int n)
{
    const vf magic = v_set1(12583063.0f), high = v_set1(-0x1.715476p0f), low = v_set1(-0x1.4ae0cp-26f);
    vf t[4], f[4], p[4];
    V_EACH t[i] = v_fma(a[i], high, V_AGAIN(12583063.0f));
    V_EACH f[i] = v_sub(magic, t[i]);
    V_EACH f[i] = v_fma(a[i], high, f[i]);
    V_EACH f[i] = v_fma(a[i], low, f[i]);
    v_exp2_fraction_each(f, p, n);
    V_EACH t[i] = v_of_bits(vi_sll(v_bits(t[i]), 23));
    V_EACH a[i] = v_mul(p[i], t[i]);
}

/* 1 / (1 + e^a), a >= 0, in place, 4 ulp. */
SKR_FN void v_sigmoid_tail_each(vf *a, int n)
{
    V_EACH a[i] = v_at_most(a[i], v_set1(104.0f)); /* from here on it is 0 */
    v_exp_falling_each(a, n);
    V_EACH a[i] = v_div(a[i], v_add(a[i], v_set1(0x1p24f)));
}

/* tanh x, in place, 2 ulp. Below 0.625 an odd polynomial (error 1.7e-10), above it 1 - 2 / (1 + e^2x). */
SKR_FN void v_tanh_each(vf *x, int n)
{
    vf a[4], z[4], p[4], h[4];
    V_EACH a[i] = v_abs(x[i]);
    V_EACH z[i] = v_mul(x[i], x[i]);
    V_EACH p[i] = v_fma(v_set1(0x1.1ac762p-9f), z[i], V_AGAIN(-0x1.0c87f2p-7f));
    V_EACH p[i] = v_fma(p[i], z[i], V_AGAIN(0x1.63ace8p-6f));
    V_EACH p[i] = v_fma(p[i], z[i], V_AGAIN(-0x1.b9f21ep-5f));
    V_EACH p[i] = v_fma(p[i], z[i], V_AGAIN(0x1.11107cp-3f));
    V_EACH p[i] = v_fma(p[i], z[i], V_AGAIN(-0x1.555554p-2f));
    V_EACH z[i] = v_mul(z[i], a[i]);
    V_EACH p[i] = v_fma(z[i], p[i], a[i]);
    V_EACH h[i] = v_add(a[i], a[i]);
    v_sigmoid_tail_each(h, n);
    V_EACH h[i] = v_fnma(v_set1(2.0f), h[i], v_set1(1.0f));
    V_EACH p[i] = v_select(v_lt(a[i], v_set1(0.625f)), p[i], h[i]);
    V_EACH x[i] = v_copysign(p[i], x[i]);
}

/* The normal distribution's integral up to -a, a >= 0, in place, to an absolute error of 1.5e-7: 2^Q(a), where Q is a
 * fit on [0, 5.5] (error 1e-8 of the integral up to a) that falls ever faster beyond. */
SKR_FN void v_normal_tail_each(vf *a, int n)
{
    vf z[4], q[4], r[4];
    V_EACH z[i] = v_mul(a[i], a[i]);
    V_EACH q[i] = v_fma(v_set1(0x1.5c8478p-15f), a[i], V_AGAIN(-0x1.9ac372p-13f));
    V_EACH q[i] = v_fma(v_set1(-0x1.9611fp-19f), z[i], q[i]);
    V_EACH r[i] = v_fma(v_set1(-0x1.e36e5cp-14f), a[i], V_AGAIN(0x1.cd3914p-8f));
    V_EACH r[i] = v_fma(q[i], z[i], r[i]);
    V_EACH q[i] = v_fma(v_set1(-0x1.adeb86p-5f), a[i], V_AGAIN(-0x1.d63bd2p-2f));
    V_EACH q[i] = v_fma(r[i], z[i], q[i]);
    V_EACH r[i] = v_fma(v_set1(-0x1.26aecep0f), a[i], V_AGAIN(-1.0f));
    V_EACH a[i] = v_fma(q[i], z[i], r[i]);
    v_exp2_each(a, n);
}

/* clang-format on */
/* ---------------------------------------------------------------- one vector */

/* 2^x, 1.25 ulp. x = n + f, |f| <= 1/2, exactly. Outside [-151, 129] it is 0 or infinity. */
SKR_FN vf v_exp2(vf x)
{
    x = v_at_least(v_at_most(x, v_set1(129.0f)), v_set1(-151.0f));
    vf n = v_round(x);
    return v_scale(v_exp2_fraction(v_sub(x, n)), n);
}

/* ln x, 1 ulp. x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); ln(1 + f) = f - f^2/2 + f^3 P(f), polynomial
 * error 4.8e-9. */
SKR_FN vf v_log(vf x)
{
    vm small = v_lt(x, v_set1(0x1p-126f)); /* subnormals (and what is not positive, which is put right at the end) */
    vf scaled = v_select(small, v_mul(x, v_set1(0x1p23f)), x);
    vi bits = v_bits(scaled);
    vi e = vi_sra(vi_sub(bits, vi_set1(0x3f3504f3)), 23); /* bits of sqrt(1/2) */
    vf f = v_sub(v_of_bits(vi_sub(bits, vi_sll(e, 23))), v_set1(1.0f));
    vf n = v_of_int(vi_sub(e, vi_select(small, vi_set1(23), vi_set1(0))));
    vf z = v_mul(f, f);
    vf p = v_fma(v_set1(0x1.896708p-5f), f, v_set1(-0x1.b537ecp-4f));
    p = v_fma(p, f, v_set1(0x1.f47ec2p-4f));
    p = v_fma(p, f, v_set1(-0x1.020942p-3f));
    p = v_fma(p, f, v_set1(0x1.22da8cp-3f));
    p = v_fma(p, f, v_set1(-0x1.551fp-3f));
    p = v_fma(p, f, v_set1(0x1.99a696p-3f));
    p = v_fma(p, f, v_set1(-0x1.000096p-2f));
    p = v_fma(p, f, v_set1(0x1.555546p-2f));
    vf y = v_mul(v_mul(f, z), p);
    y = v_fma(n, v_set1(0x1.7f7d1cp-20f), y); /* ln 2 in two parts */
    y = v_fnma(v_set1(0.5f), z, y);
    y = v_fma(n, v_set1(0x1.62e4p-1f), v_add(f, y));
    vf infinity = v_set1(__builtin_inff());
    y = v_select(v_lt(x, infinity), y, x); /* infinity and NaN give themselves */
    y = v_select(v_lt(x, v_set1(0.0f)), v_set1(__builtin_nanf("")), y);
    return v_select(v_eq(x, v_set1(0.0f)), v_neg(infinity), y);
}

SKR_FN vf v_tanh(vf x)
{
    v_tanh_each(&x, 1);
    return x;
}

/* erf x, 2 ulp. Below 0.921875 an odd polynomial (error 1e-9), above it 1 - e^-P(|x|), where P is a fit of -ln(erfc) up
 * to 4, from which on erf is 1. */
SKR_FN vf v_erf(vf x)
{
    vf a = v_abs(x), z = v_mul(x, x);
    vf p = v_fma(v_set1(0x1.4e3a9ep-14f), z, v_set1(-0x1.a5b82ap-11f));
    p = v_fma(p, z, v_set1(0x1.544242p-8f));
    p = v_fma(p, z, v_set1(-0x1.b8007ep-6f));
    p = v_fma(p, z, v_set1(0x1.ce2d6p-4f));
    p = v_fma(p, z, v_set1(-0x1.81274p-2f));
    p = v_fma(p, z, v_set1(0x1.06eba8p-3f));
    vf small = v_fma(a, p, a);
    vf c = v_at_most(a, v_set1(4.0f));
    vf q = v_fma(v_set1(0x1.d5a634p-22f), c, v_set1(0x1.03dafp-16f));
    q = v_fma(q, c, v_set1(-0x1.a74538p-12f));
    q = v_fma(q, c, v_set1(0x1.0b26dp-8f));
    q = v_fma(q, c, v_set1(-0x1.98a418p-6f));
    q = v_fma(q, c, v_set1(0x1.baa7fep-4f));
    q = v_fma(q, c, v_set1(0x1.4459e4p-1f));
    q = v_fma(q, c, v_set1(0x1.2123ep0f));
    q = v_fma(q, c, v_set1(-0x1.58009ap-13f));
    vf large = v_sub(v_set1(1.0f), v_exp(v_neg(q)));
    return v_copysign(v_select(v_lt(a, v_set1(0.921875f)), small, large), x);
}

/* 1 / (1 + e^-x), 3 ulp: e / (1 + e) with e = e^x, which from 70 on is 1 already. */
SKR_FN vf v_sigmoid(vf x)
{
    vf e = v_exp_raised(v_at_most(x, v_set1(70.0f)));
    return v_div(e, v_add(e, v_set1(0x1p24f)));
}

/* y times v_sigmoid(x), rounded once where x > 0. */
SKR_FN vf v_times_sigmoid(vf y, vf x)
{
    vf e = v_exp_below(v_sub(v_set1(0.0f), v_abs(x))), one = v_set1(1.0f);
    return v_div(v_mul(y, v_select(v_lt(x, v_set1(0.0f)), e, one)), v_add(one, e));
}

/* 1 / sqrt(x), 1.5 ulp: a true square root and a true division, each rounded once. The estimate instructions with
 * Newton steps are no faster where it was measured (Neoverse V1) and need care at 0 and infinity. */
SKR_FN vf v_rsqrt(vf x)
{
    return v_div(v_set1(1.0f), v_sqrt(x));
}

/* ---------------------------------------------------------------- sine and cosine */

/* For |x| >= 2^16: *r = x - k pi/2 with |*r| <= pi/4; returns k mod 4. Infinity and NaN: *r = NaN.
 * x = m 2^e with a 24-bit integer m. Bits of 2/pi whose product with m 2^e is a multiple of 4 are skipped; the next 96
 * give x * 2/pi modulo 4 to 70 fraction bits (Payne and Hanek), and no f32 is closer than 2^-34 to a multiple of pi/2.
 */
static inline __attribute__((unused)) int skr_reduce_large(float x, float *r)
{
    static const uint32_t two_over_pi[8] = {
        0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, /* 32 bits before the point are 0 */
        0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    int exponent = (int)(bits >> 23 & 255);
    if (exponent == 255) {
        *r = __builtin_nanf("");
        return 0;
    }
    uint64_t m = (bits & 0x7fffff) | 0x800000;
    int first = exponent - 150 - 1 + 31; /* the first bit used, of weight 2 after the shift by e */
    int word = first / 32, shift = first % 32;
    uint64_t w[3];
    for (int k = 0; k < 3; k++)
        w[k] = (uint32_t)(((uint64_t)two_over_pi[word + k] << 32 | two_over_pi[word + k + 1]) >> (32 - shift));
    uint64_t p2 = m * w[2], p1 = m * w[1] + (p2 >> 32), p0 = m * w[0] + (p1 >> 32);
    int quadrant = (int)(p0 >> 30 & 3);
    uint64_t fraction = p0 << 34 | (p1 & 0xffffffff) << 2 | (p2 >> 30 & 3);
    quadrant += (int)(fraction >> 63); /* to the nearest: the fraction is then negative */
    double turn = (double)(int64_t)fraction * 0x1p-64;
    float rest = (float)(turn * 1.5707963267948966);
    *r = bits >> 31 ? -rest : rest;
    return bits >> 31 ? -quadrant & 3 : quadrant & 3;
}

/* sin x and cos x, 2 ulp, over all of f32. x = k pi/2 + r, |r| <= pi/4: up to 2^16 by three fused steps (k pi/2 in
 * three parts of 24 bits; the first difference is exact), beyond that one lane at a time. sin r = r + r^3 S(r^2), cos r
 * = 1 - r^2/2 + r^4 C(r^2), errors below 2e-10. */
SKR_FN void v_sincos(vf x, vf *sine, vf *cosine)
{
    vf n = v_round(v_mul(x, v_set1(0x1.45f306p-1f)));
    vf r = v_fnma(n, v_set1(0x1.921fb6p0f), x);
    r = v_fma(n, v_set1(0x1.777a5cp-25f), r);
    r = v_fma(n, v_set1(0x1.ee59dap-50f), r);
    vm near = v_lt(v_abs(x), v_set1(0x1p16f));
    vi k = v_to_int(v_select(near, n, v_set1(0.0f)));
    vf reach = v_select(near, v_set1(0.0f), v_set1(1.0f));
    if (v_hmax(reach) > 0.0f) {
        float from[SKR_LANES], rest[SKR_LANES], turn[SKR_LANES];
        v_store(SKR_F32, from, 0, v_select(near, v_set1(0x1p16f), x));
        for (int i = 0; i < SKR_LANES; i++)
            turn[i] = (float)skr_reduce_large(from[i], &rest[i]);
        r = v_select(near, r, v_load(SKR_F32, rest, 0));
        k = vi_select(near, k, v_to_int(v_load(SKR_F32, turn, 0)));
    }
    vf z = v_mul(r, r);
    vf s = v_fma(v_set1(0x1.7bf104p-19f), z, v_set1(-0x1.a058e4p-13f));
    s = v_fma(s, z, v_set1(0x1.111174p-7f));
    s = v_fma(s, z, v_set1(-0x1.555556p-3f));
    s = v_fma(v_mul(r, z), s, r);
    s = v_select(v_eq(r, v_set1(0.0f)), r, s); /* the sign of a zero */
    vf c = v_fma(v_set1(0x1.99e112p-16f), z, v_set1(-0x1.6c0c1ap-10f));
    c = v_fma(c, z, v_set1(0x1.55554ap-5f));
    c = v_fma(v_mul(z, z), c, v_fnma(v_set1(0.5f), z, v_set1(1.0f)));
    vm swap = vi_eq(vi_and(k, vi_set1(1)), vi_set1(1));
    vi sine_sign = vi_sll(vi_and(k, vi_set1(2)), 30),
       cosine_sign = vi_sll(vi_and(vi_add(k, vi_set1(1)), vi_set1(2)), 30);
    *sine = v_of_bits(vi_xor(v_bits(v_select(swap, c, s)), sine_sign));
    *cosine = v_of_bits(vi_xor(v_bits(v_select(swap, s, c)), cosine_sign));
}

SKR_FN vf v_sin(vf x)
{
    vf s, c;
    v_sincos(x, &s, &c);
    return s;
}

SKR_FN vf v_cos(vf x)
{
    vf s, c;
    v_sincos(x, &s, &c);
    return c;
}

#endif
