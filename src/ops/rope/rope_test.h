/* rope_test.h - a short description of a case (struct spec), between the tables of cases and the oracle.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ROPE_TEST_H
#define ROPE_TEST_H

#include "../../../tests/suite.h"

bool rope_case(int i, suite_case *out);
bool rope_backward_case(int i, suite_case *out);

#endif
