/* compare.h - one result against the oracle: pass or fail per element, and figures that show drift.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef COMPARE_H
#define COMPARE_H

#include <stdint.h>

#include "saker.h"

typedef struct comparison {
    int64_t failed; /* elements outside their bound */
    int64_t index;  /* the first of them */
    double got, want, bound;
    /* Over float elements that passed and whose bound is well below their value: */
    double worst;         /* largest |got - want| / bound */
    double error2, want2; /* sums of squares: NMSE = error2 / want2 */
} comparison;

/* got, want and bound are n elements in logical order, got holds values of the type. */
comparison compare(saker_type type, int64_t n, const double *got, const double *want, const double *bound);

#endif
