/* vmath_probe.c - each function of vmath.h over an array, and the quantised types, so that tests can sweep them.
 * Compiled once per level like a kernel, linked into tests only. SPDX-License-Identifier: Apache-2.0 */
#include "vmath.h"

typedef vf (*function)(vf x);

SKR_FN void sweep(function f, const float *x, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + SKR_LANES <= n; i += SKR_LANES)
        v_store(SKR_F32, y, i, f(v_load(SKR_F32, x, i)));
    if (i < n)
        v_store_n(SKR_F32, y, i, f(v_load_n(SKR_F32, x, i, (int)(n - i))), (int)(n - i));
}

/* Codes of a quantised type, one byte each; fast: by the words for finite values in range. */
void SKR_KERNEL(codes)(int type, int fast, const float *x, uint8_t *q, int64_t n);
void SKR_KERNEL(codes)(int type, int fast, const float *x, uint8_t *q, int64_t n)
{
    int64_t i = 0;
    for (; fast && i + 4 * SKR_LANES <= n; i += 4 * SKR_LANES) {
        vf a[4];
        vi code[4];
        for (int k = 0; k < 4; k++) {
            a[k] = v_load(SKR_F32, x, i + k * SKR_LANES);
            code[k] = type == SKR_E4M3 ? v_fp8_byte(a[k], 3, -6) : v_fp8_byte(a[k], 2, -14);
        }
        v_store4_signed(q + i, code, a);
    }
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        if (type == SKR_E4M3)
            v_store_n(SKR_E4M3, q, i, v_load_n(SKR_F32, x, i, m), m);
        else if (type == SKR_E5M2)
            v_store_n(SKR_E5M2, q, i, v_load_n(SKR_F32, x, i, m), m);
        else
            v_store_n(SKR_I8, q, i, v_load_n(SKR_F32, x, i, m), m);
    }
}

/* f16 and bf16. */
void SKR_KERNEL(halves)(int type, const float *x, uint16_t *y, int64_t n);
void SKR_KERNEL(halves)(int type, const float *x, uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        if (m < SKR_LANES && type == SKR_F16)
            v_store_n(SKR_F16, y, i, v_load_n(SKR_F32, x, i, m), m);
        else if (m < SKR_LANES)
            v_store_n(SKR_BF16, y, i, v_load_n(SKR_F32, x, i, m), m);
        else if (type == SKR_F16)
            v_store(SKR_F16, y, i, v_load(SKR_F32, x, i));
        else
            v_store(SKR_BF16, y, i, v_load(SKR_F32, x, i));
    }
}

SKR_FN void four_values(int type, const uint8_t *q, float *y)
{
    vf a[4];
    v_load4_codes(type, q, a);
    for (int k = 0; k < 4; k++)
        v_store(SKR_F32, y, k * SKR_LANES, a[k]);
}

/* The values of all 256 codes, a vector at a time, then four. */
void SKR_KERNEL(values)(int type, float *y);
void SKR_KERNEL(values)(int type, float *y)
{
    uint8_t all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    for (int i = 0; i < 256; i += 4 * SKR_LANES) {
        if (type == SKR_E4M3)
            four_values(SKR_E4M3, all + i, y + 256 + i);
        else if (type == SKR_E5M2)
            four_values(SKR_E5M2, all + i, y + 256 + i);
        else
            four_values(SKR_I8, all + i, y + 256 + i);
    }
    for (int i = 0; i < 256; i += SKR_LANES) {
        vi c = vi_load_u8(all + i);
        v_store(SKR_F32, y, i,
                type == SKR_E4M3   ? v_of_code(SKR_E4M3, c)
                : type == SKR_E5M2 ? v_of_code(SKR_E5M2, c)
                                   : v_of_code(SKR_I8, c));
    }
}

static vf exp2_four(vf x)
{
    vf all[4] = {x, x, x, x};
    v_exp2_each(all, 4);
    return all[3];
}

static vf exp_below_four(vf x)
{
    vf all[4] = {x, x, x, x};
    v_exp_raised_each(all, 4);
    return v_mul(all[3], v_set1(0x1p-24f));
}

/* e^-|x|, and what the sigmoid of -|x| is made of it. */
static vf exp_falling(vf x)
{
    vf a = v_at_most(v_abs(x), v_set1(104.0f));
    v_exp_falling_each(&a, 1);
    return v_mul(a, v_set1(0x1p-24f));
}

static vf sigmoid_tail(vf x)
{
    vf a = v_abs(x), all[4] = {a, a, a, a};
    v_sigmoid_tail_each(all, 4);
    return all[3];
}

/* 0 exp, 1 exp2, 2 log, 3 tanh, 4 erf, 5 sigmoid, 6 rsqrt, 7 sin, 8 cos, 9 exp below 70, 10 and 11 exp2 without
 * subnormals, one vector and four, 12 exp and 13 sigmoid of -|x|, 14 exp below 70, four vectors. */
void SKR_KERNEL(vmath)(int which, const float *x, float *y, int64_t n);
void SKR_KERNEL(vmath)(int which, const float *x, float *y, int64_t n)
{
    switch (which) {
    case 0:
        sweep(v_exp, x, y, n);
        break;
    case 1:
        sweep(v_exp2, x, y, n);
        break;
    case 2:
        sweep(v_log, x, y, n);
        break;
    case 3:
        sweep(v_tanh, x, y, n);
        break;
    case 4:
        sweep(v_erf, x, y, n);
        break;
    case 5:
        sweep(v_sigmoid, x, y, n);
        break;
    case 6:
        sweep(v_rsqrt, x, y, n);
        break;
    case 7:
        sweep(v_sin, x, y, n);
        break;
    case 9:
        sweep(v_exp_below, x, y, n);
        break;
    case 10:
        sweep(v_exp2_normal, x, y, n);
        break;
    case 11:
        sweep(exp2_four, x, y, n);
        break;
    case 12:
        sweep(exp_falling, x, y, n);
        break;
    case 13:
        sweep(sigmoid_tail, x, y, n);
        break;
    case 14:
        sweep(exp_below_four, x, y, n);
        break;
    default:
        sweep(v_cos, x, y, n);
        break;
    }
}
