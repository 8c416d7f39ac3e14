/* suite_quant.c - see suite_quant.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "suite_quant.h"

#include <float.h>
#include <math.h>

#include "suite_convert.h"

suite_interval suite_scale(saker_type type, const suite_interval *v, int64_t n)
{
    suite_interval amax = {0, 0};
    double largest = quant_max(type), type_max = 0x1.fffffep127;
    for (int64_t j = 0; j < n; j++) {
        if (isnan(v[j].lo))
            continue;
        double a = fmin(fabs(v[j].lo), fabs(v[j].hi)), b = fmax(fabs(v[j].lo), fabs(v[j].hi));
        if (v[j].lo < 0 && v[j].hi > 0)
            a = 0;
        if (isfinite(a)) { /* a value that may be finite or not may count or not */
            amax.lo = isfinite(b) ? fmax(amax.lo, a) : amax.lo;
            amax.hi = fmax(amax.hi, isfinite(b) ? b : type_max);
        }
    }
    /* amax / largest, or amax times the rounded 1 / largest: two roundings, the last of them to a number of f32, which
     * has few digits where it is subnormal, and may be 0. */
    suite_interval s = {(double)(float)(amax.lo / largest * (1 - 2 * U)),
                        (double)(float)(amax.hi / largest * (1 + 2 * U))};
    if (s.hi == 0)
        return (suite_interval){1, 1};
    if (s.lo == 0) /* it may be 1 or tiny, and the codes anything. Other cases look at them */
        return (suite_interval){0, 1};
    return s;
}

double suite_scale_bound(suite_interval s)
{
    return s.lo == s.hi ? 0 : (s.hi - s.lo) / 2 + half_ulp(SAKER_F32, s.hi);
}

void suite_code(saker_type type, suite_interval v, suite_interval s, double *value, double *bound)
{
    *bound = 0;
    *value = float_format_of(type) ? NAN : 0;
    if (isnan(v.lo))
        return;
    if (s.lo == 0) {
        *value = 0;
        *bound = quant_max(type);
        return;
    }
    /* v / scale, or v times the rounded 1 / scale: two roundings. */
    double e[4] = {v.lo / s.lo, v.lo / s.hi, v.hi / s.lo, v.hi / s.hi};
    suite_interval t = {fmin(fmin(e[0], e[1]), fmin(e[2], e[3])), fmax(fmax(e[0], e[1]), fmax(e[2], e[3]))};
    t.lo = round_to(type, t.lo * (t.lo < 0 ? 1 + 2 * U : 1 - 2 * U)); /* an infinity stays one */
    t.hi = round_to(type, t.hi * (t.hi < 0 ? 1 - 2 * U : 1 + 2 * U));
    *value = (t.lo + t.hi) / 2;
    *bound = *value == 0 && t.lo == t.hi ? DBL_TRUE_MIN : (t.hi - t.lo) / 2; /* a zero may have either sign */
}
