/* gemm_test.h - between the oracles and the cases of gemm and of grouped_gemm.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMM_TEST_H
#define GEMM_TEST_H

#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"

bool gemm_case_at(int i, suite_case *out);
bool grouped_gemm_case_at(int i, suite_case *out);
/* " silu"; "" for none. */
const char *gemm_act_text(int act);
const char *gemm_scaling_text(int scaling);
const char *gemm_gated_text(int gated);
/* A tensor without dimensions yet; whole numbers cover their type. */
suite_tensor *gemm_add(suite_case *c, const char *field, suite_role role, saker_type type, suite_fill fill);
/* Its first dimension gets stride 0. */
void gemm_expand(suite_tensor *t);

/* Kernels that keep sums of fp8 products short: part of their names. */
#define GEMM_SHORT_SUMS "tma e"

/* Types that go together, and a scaling that they allow. */
typedef struct pair {
    saker_type a, b, d;
    int scaling;
    int64_t group;
} pair;

/* Draws for random combinations: a type that c, bias and pre may have beside d; a pair with any scaling that it allows;
 * a size, half of them at an edge of tiles. */
saker_type gemm_random_type(uint64_t *r, saker_type d);
pair gemm_random_pair(uint64_t *r);
int64_t gemm_random_size(uint64_t *r);

typedef struct gemm_product {
    const saker_gemm_args *args;
    const char *ran; /* suite_case.ran */
    suite_column a, b, c, bias, a_scale, b_scale, b_zero, saved, d, pre, dbias;
    int64_t m, n, k;
} gemm_product;

/* Fills d, pre and dbias. */
void gemm_product_oracle(const gemm_product *p);

#endif
