/* softmax_test.h - a short description of a case (struct spec), between the tables of cases, their making and the
 * oracle. SPDX-License-Identifier: Apache-2.0
 *
 * softmax_cases_test.c lists what is tried, softmax_spec_test.c turns each description into a case, softmax_test.c has
 * the oracle. */
#ifndef SOFTMAX_TEST_H
#define SOFTMAX_TEST_H

#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"

/* What a mask repeats: dimension d when bit d is set; FEWER: it lacks its first dimension. */
enum { FEWER = 64 };

/* IN_PLACE_Y: the gradient op's dx is y. OUT_GAPPED: the result has gaps, whatever the layout of the others. */
enum { LOG = 1, CAUSAL = 2, IN_PLACE = 4, IN_PLACE_Y = 8, OUT_GAPPED = 16 };

struct spec {
    int ndim;
    int64_t shape[SUITE_MAX_DIMS];
    int dim; /* from last */
    int has, use, random;
    suite_layout layout;
    int mask;           /* 0: none; else 1 + what it repeats */
    saker_type x, y, m; /* 0: x's type; the gradient op: y, dy, dx */
    suite_fill fill, mask_fill;
    float scale;
};

void softmax_add(const struct spec *s);
void softmax_backward_add(const struct spec *s);
bool softmax_added(int i, suite_case *out);
bool softmax_backward_added(int i, suite_case *out);
bool softmax_case(int i, suite_case *out);
bool softmax_backward_case(int i, suite_case *out);

#endif
