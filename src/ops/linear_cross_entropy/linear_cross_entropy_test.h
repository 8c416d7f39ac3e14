/* linear_cross_entropy_test.h - between the cases (linear_cross_entropy_cases_test.c) and their oracle.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef LINEAR_CROSS_ENTROPY_TEST_H
#define LINEAR_CROSS_ENTROPY_TEST_H

#include "../../../tests/suite_list.h"

bool linear_cross_entropy_case(int i, suite_case *out);

#endif
