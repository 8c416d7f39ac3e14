/* moe_route_test.h - what the cases of moe_route are judged by.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MOE_ROUTE_TEST_H
#define MOE_ROUTE_TEST_H

#include "suite_list.h"

void moe_route_oracle(const suite_case *c, double *const *value, double *const *bound);
void moe_route_backward_oracle(const suite_case *c, double *const *value, double *const *bound);
int64_t moe_route_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice);

#endif
