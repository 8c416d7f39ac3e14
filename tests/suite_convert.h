/* suite_convert.h - element types for the tests, in double; written apart from the library's own conversions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SUITE_CONVERT_H
#define SUITE_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "saker.h"

/* What is to be known of a float type. max is the largest finite value; step_min the distance of its denormals. */
typedef struct float_format {
    int exponent_bits, mantissa_bits, bias;
    bool has_inf;   /* else the top exponent holds numbers too (e4m3) */
    bool saturates; /* narrowing clamps to max instead of giving infinity */
    double max, step_min;
} float_format;

/* NULL for integer types. */
const float_format *float_format_of(saker_type type);
int type_bytes(saker_type type);

/* Nearest value of the type, ties to even; NaN stays NaN (0 in integers). Infinity stays infinity where the type
 * narrows to it. */
double round_to(saker_type type, double v);
/* Half the distance between neighbours of the type around v (0 for integers). Rounding to nearest is never off by more.
 */
double half_ulp(saker_type type, double v);
/* Of f32: half an ulp, relative, and the smallest number. */
#define U      0x1p-24
#define DENORM 0x1p-149
/* How far a sum of n terms in f32 may be off, in U times the sum of their magnitudes. A chain of n adds errs by sqrt(n)
 * when roundings are independent; no kernel has a longer one than 4096 (norm_test.c says why). */
double sum_factor(int64_t n);
/* Largest value of a quantised type: 127, 7, 448, 57344. */
double quant_max(saker_type type);

/* Between memory and double. encode expects a value that the type holds (round_to first). */
double decode(saker_type type, const void *p);
void encode(saker_type type, double v, void *p);

#endif
