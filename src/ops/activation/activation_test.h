/* activation_test.h - between the cases of activation and their oracle.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ACTIVATION_TEST_H
#define ACTIVATION_TEST_H

#include "../../../tests/suite.h"

bool activation_case(int i, suite_case *out);
bool activation_backward_case(int i, suite_case *out);

#endif
