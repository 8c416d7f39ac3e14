/* cases.h - a suite's case on a device: memory, contents, the call, and the comparison with the oracle.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include <stddef.h>

#include "../tests/suite.h"
#include "cli.h"

/* Device memory that is kept from case to case and only grows: fresh pages are slow the first time. */
typedef struct cli_arena {
    void *memory;
    size_t bytes;
    bool fresh; /* grown by the last cli_arena_need */
} cli_arena;
/* NULL on success, else the library's sentence. */
const char *cli_arena_need(cli_place *place, cli_arena *arena, size_t bytes);
void cli_arena_free(cli_place *place, cli_arena *arena);

/* Fills device memory with repetitions of `tile`; on the CPU all members of the team write their own part. */
const char *cli_tile(cli_place *place, cli_team *team, void *to, size_t bytes, const void *tile, size_t tile_bytes);

typedef struct cli_case {
    cli_place *place;
    const suite *suite;
    const saker_op_info *op;
    suite_case c;
    void *data[SUITE_MAX_TENSORS];
    saker_tensor tensor[SUITE_MAX_TENSORS];
    _Alignas(8) unsigned char args[SUITE_ARGS_BYTES];
} cli_case; /* not to be moved after cli_case_bind: args point into it */

/* Bytes of memory that the case's tensors take. */
size_t cli_case_bytes(const suite_case *c);
/* Lays the tensors out in memory that has room for them and binds the arguments. NULL, or what went wrong. */
const char *cli_case_bind(cli_case *k, cli_place *place, void *memory, const suite *s, const suite_case *c);
/* Random contents for timing: a block of the case's own distribution, repeated. */
const char *cli_case_fill(cli_case *k, cli_team *team);
/* Runs the case once and compares with the oracle. *error: the worst |got - expected| / bound, infinite when an element
 * is outside its bound; where (96 bytes) says where. whole: every element (small cases). rows: three rows of what is in
 * memory now, or the start of the tensors where the operation has no rows (big cases; sums over rows are left to
 * whole). */
const char *cli_case_check_whole(cli_case *k, uint64_t seed, double *error, char *where);
const char *cli_case_check_rows(cli_case *k, double *error, char *where);

/* Whether op and case names are wanted: op is an exact name, pattern part of the name (with *, ? or [: the whole name);
 * NULL: any. */
bool cli_case_matches(const suite *s, const suite_case *c, const char *op, const char *pattern);
/* Type of the first tensor. */
const char *cli_case_type(const suite_case *c);

#endif
