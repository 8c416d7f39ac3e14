/* check.h - running a suite's correctness cases, for `saker check`, `saker doctor` and `saker demo`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include "cases.h"

typedef struct check_options {
    const char *pattern;  /* case names, as cli_case_matches */
    bool all;             /* else a spread of small cases */
    double limit_seconds; /* stop after this long; 0: never */
    /* Told of every case; wrong is NULL or the sentence of a call that failed or ran another kernel than the case
     * demands. */
    void (*each)(void *arg, const suite *s, const suite_case *c, double error, const char *where, const char *wrong);
    void *arg;
} check_options;

typedef struct check_result {
    int run, failed;
    double worst; /* largest error / bound among those that ran */
    char worst_case[SUITE_NAME];
    char first_wrong[256]; /* case and reason of the first failure, or "" */
    char kernel[160];      /* of the last case that was not empty */
} check_result;

/* Fails are counted, not fatal. An error above 1 is a failure. */
check_result cli_check_suite(cli_place *place, cli_arena *arena, const suite *s, const check_options *options);

#endif
