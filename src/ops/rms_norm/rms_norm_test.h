/* rms_norm_test.h - between the cases (rms_norm_cases_test.c) and the oracle (rms_norm_test.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RMS_NORM_TEST_H
#define RMS_NORM_TEST_H

#include "../../../tests/suite.h"

bool rms_norm_case(int i, suite_case *out);
bool rms_norm_backward_case(int i, suite_case *out);

#endif
