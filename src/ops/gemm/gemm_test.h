/* gemm_test.h - between the oracle and the cases of gemm.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMM_TEST_H
#define GEMM_TEST_H

#include "../../../tests/suite.h"

bool gemm_case_at(int i, suite_case *out);

#endif
