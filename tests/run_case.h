/* run_case.h - one call of one case: guarded and poisoned memory around every tensor, and what is true of every call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RUN_CASE_H
#define RUN_CASE_H

#include <stddef.h>

#include "suite.h"

/* A case with its inputs and what the oracle says, computed once and used for every level. */
typedef struct case_data {
    const suite *s;
    suite_case c;
    uint64_t seed;
    int64_t elements[SUITE_MAX_TENSORS];
    char *packed[SUITE_MAX_TENSORS];  /* what the tensor holds before the call (inputs), in logical order; else NULL */
    double *value[SUITE_MAX_TENSORS]; /* inputs, and the oracle's outputs */
    double *bound[SUITE_MAX_TENSORS]; /* outputs only */
    double *plain[SUITE_MAX_TENSORS]; /* outputs in plain float; NULL when the suite has none */
} case_data;

void case_prepare(case_data *d, const suite *s, const suite_case *c, uint64_t seed);
/* The case that is row `row` of d alone; no oracle. */
void case_prepare_row(case_data *one, const case_data *d, int64_t row, suite_slice *slice);
void case_release(case_data *d);

typedef enum place {
    PLACE_FRONT, /* right after a page that nobody may touch */
    PLACE_BACK,  /* right before one */
    PLACE_ODD    /* an odd number of elements in, given through byte_offset */
} place;

typedef struct run_how {
    place place;
    unsigned char poison; /* what outputs and gaps are filled with */
    bool lend;            /* lend a workspace of exactly the asked size, with garbage in it */
    bool with_strides;    /* give compact strides explicitly, and the device too */
    int alone;            /* PLACE_ODD: of this tensor only, counted from 1; 0: of all */
} run_how;

typedef struct run_result {
    bool ran;          /* false: problem says why, and out holds nothing */
    char problem[512]; /* "" or one sentence; the call itself, stray bytes, changed inputs, changed state */
    char kernel[160];
    size_t workspace_bytes;
    char *out[SUITE_MAX_TENSORS]; /* outputs' bytes in logical order */
} run_result;

/* Runs d on ctx. cuda: the tensors are moved to the device, with red zones instead of guard pages. */
void run_case(saker_context *ctx, bool cuda, const case_data *d, const run_how *how, run_result *r);
void run_release(run_result *r);

/* Name of the first output whose bytes differ between two runs, or NULL. */
const char *run_difference(const case_data *d, const run_result *a, const run_result *b, int64_t *element);

/* Turns SIGSEGV, SIGBUS, SIGILL and SIGFPE inside run_case into a problem. In another thread than the caller's they end
 * the process, after a line of text. */
void run_catch_signals(void);

#endif
