/* judge.c - the test runner's own comparison, built into the command too: what passes is decided in one place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../tests/compare.c"
