/* suite_quant.h - what quantisers may give, for oracles that know their values only within an interval.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SUITE_QUANT_H
#define SUITE_QUANT_H

#include "suite.h"

/* lo is NaN where the value must be NaN. */
typedef struct suite_interval {
    double lo, hi;
} suite_interval;

/* The scale of n values: amax / largest over the finite ones, 1 when that is 0. */
suite_interval suite_scale(saker_type type, const suite_interval *v, int64_t n);
/* What the stored scale may be: the middle of s, and how far off. */
double suite_scale_bound(suite_interval s);
/* The code of v, as the value it stands for, and how far off it may be. */
void suite_code(saker_type type, suite_interval v, suite_interval scale, double *value, double *bound);

#endif
