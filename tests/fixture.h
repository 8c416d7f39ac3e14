/* fixture.h - a good call of an op, taken from its suite, to be spoiled one argument at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "guard.h"
#include "suite.h"

enum { FIXTURE_DIMS = SAKER_MAX_DIMS + 2 };

typedef struct fixture {
    const suite *s;
    const saker_op_info *op;
    suite_case c;
    saker_tensor tensor[SUITE_MAX_TENSORS];
    int64_t shape[SUITE_MAX_TENSORS][FIXTURE_DIMS], stride[SUITE_MAX_TENSORS][FIXTURE_DIMS];
    guarded memory[SUITE_MAX_TENSORS];
    char *before[SUITE_MAX_TENSORS];
    _Alignas(8) unsigned char args[SUITE_ARGS_BYTES];
} fixture;

/* Memory, contents and arguments of a case (aliases are given memory of their own). */
void fixture_open(fixture *f, const suite *s, const suite_case *c);
void fixture_close(fixture *f);
/* Descriptors and arguments as they were. */
void fixture_reset(fixture *f);
/* Index of the tensor for a field name, or -1. */
int fixture_find(const fixture *f, const char *field);
/* True when no byte of any tensor's memory has changed since fixture_open. */
bool fixture_untouched(const fixture *f);
/* Field of the op by name, or NULL. */
const saker_field *fixture_field(const fixture *f, const char *name);

/* The smallest number of small cases of a suite in which every tensor field appears; returns how many were stored. */
int fixture_cases(const suite *s, suite_case *out, int room);

#endif
