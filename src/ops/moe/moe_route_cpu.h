/* moe_route_cpu.h - scores of a row, for both of moe_route's CPU files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_MOE_ROUTE_CPU_H
#define SKR_MOE_ROUTE_CPU_H

#include "../../cpu/rows.h"
#include "../../cpu/simd/vmath.h"
#include "moe_route.h"

SKR_FN int64_t padded(int64_t n)
{
    return (n + SKR_ROUTE_PAD - 1) / SKR_ROUTE_PAD * SKR_ROUTE_PAD;
}

/* x[n] and what fills it up. */
SKR_FN void fill_up(float *x, int64_t n)
{
    for (int64_t i = n; i < padded(n); i++)
        x[i] = -__builtin_inff();
}

/* y = softmax of x, both filled up; y may be x. Sums of eight vectors are added up: where all terms are equal their
 * roundings do not even out, and chains must be short. */
static void softmax_of(const float *x, float *y, int64_t n)
{
    vf most = v_set1(-__builtin_inff()), sum = v_set1(0.0f);
    for (int64_t i = 0; i < n; i += SKR_LANES)
        most = v_max(most, v_load(SKR_F32, x, i));
    float top = v_hmax(most);
    for (int64_t i = 0; i < n;) {
        int64_t end = n - i < 8 * SKR_LANES ? n : i + 8 * SKR_LANES;
        vf part = v_set1(0.0f);
        for (; i < end; i += SKR_LANES) {
            vf e = v_exp_below(v_sub(v_load(SKR_F32, x, i), v_set1(top)));
            part = v_add(part, e);
            v_store(SKR_F32, y, i, e);
        }
        sum = v_add(sum, part);
    }
    vf all = v_set1(v_sum(sum));
    for (int64_t i = 0; i < n; i += SKR_LANES)
        v_store(SKR_F32, y, i, top == -__builtin_inff() ? v_set1(0.0f) : v_div(v_load(SKR_F32, y, i), all));
}

static void sigmoid_of(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += SKR_LANES)
        v_store(SKR_F32, y, i, v_sigmoid(v_load(SKR_F32, x, i)));
}

static inline int32_t id_at(const skr_rows *ids, const char *row, int64_t j)
{
    return ((const int32_t *)row)[j * ids->col_stride];
}

#endif
