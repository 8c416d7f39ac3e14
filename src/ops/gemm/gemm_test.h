/* gemm_test.h - between the oracles and the cases of gemm and of grouped_gemm.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMM_TEST_H
#define GEMM_TEST_H

#include "../../../tests/suite.h"

bool gemm_case_at(int i, suite_case *out);

/* A tensor with its values in logical order; t is NULL when it is absent. */
typedef struct gemm_column {
    const suite_tensor *t;
    double *v, *bound;
} gemm_column;

typedef struct gemm_product {
    const saker_gemm_args *args;
    gemm_column a, b, c, bias, a_scale, b_scale, b_zero, saved, d, pre, dbias;
    int64_t m, n, k;
} gemm_product;

/* Tensor `field` of a case. */
gemm_column gemm_find(const suite_case *c, double *const *value, double *const *bound, const char *field);
/* Fills d, pre and dbias. */
void gemm_product_oracle(const gemm_product *p);

#endif
