/* vmath_probe.c - each function of vmath.h over an array, so that tests can sweep it. Compiled once per level like a
 * kernel, linked into tests only. SPDX-License-Identifier: Apache-2.0 */
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

/* 0 exp, 1 exp2, 2 log, 3 tanh, 4 erf, 5 sigmoid, 6 rsqrt, 7 sin, 8 cos, 9 exp below 70. */
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
    default:
        sweep(v_cos, x, y, n);
        break;
    }
}
