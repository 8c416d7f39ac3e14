/* compare.c - see compare.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compare.h"

#include <math.h>
#include <stdbool.h>

#include "suite_convert.h"

/* Past the largest finite value the type's grid is continued by one step, and infinity stands there: then a value that
 * may or may not round to infinity is judged by the same distance as any other. */
static double on_grid(const float_format *f, double v)
{
    if (!f || f->saturates || isnan(v))
        return v;
    double top = ldexp(1, ilogb(f->max) + 1);
    return fabs(v) > top ? copysign(top, v) : v;
}

static bool passes(double got, double want, double bound)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got); /* NaN where it is required, and nowhere else */
    return got == want || fabs(got - want) <= bound;
}

/* Codes of fp8 that are exact are so to the bit: zeros have a sign. */
static bool same_zero(const float_format *f, saker_type type, double got, double want, double bound)
{
    return !f || type_bytes(type) > 1 || bound > 0 || got != 0 || want != 0 || !signbit(got) == !signbit(want);
}

comparison compare(saker_type type, int64_t n, const double *got, const double *want, const double *bound)
{
    comparison r = {0};
    const float_format *f = float_format_of(type);
    for (int64_t i = 0; i < n; i++) {
        double g = on_grid(f, got[i]), w = on_grid(f, want[i]);
        if (!passes(g, w, bound[i]) || !same_zero(f, type, g, w, bound[i])) {
            if (r.failed++ == 0) {
                r.index = i;
                r.got = got[i];
                r.want = want[i];
                r.bound = bound[i];
            }
            continue;
        }
        double error = fabs(g - w);
        if (f && type_bytes(type) > 1 && isfinite(error) && bound[i] < fabs(w) / 256) {
            if (bound[i] > 0 && error / bound[i] > r.worst)
                r.worst = error / bound[i];
            r.error2 += error * error;
            r.want2 += w * w;
        }
    }
    return r;
}
