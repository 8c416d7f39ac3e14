/* suite_list.h - a growing list of cases, and the words that make one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SUITE_LIST_H
#define SUITE_LIST_H

#include "suite.h"

typedef struct suite_list {
    suite_case *c;
    int n, room;
} suite_list;

/* Adds a case; one of the same name gains its uses. A name says everything: what differs must not share one. */
void suite_list_add(suite_list *l, const suite_case *c);
bool suite_list_at(const suite_list *l, int i, suite_case *out);

/* Appends to the case's name. */
__attribute__((format(printf, 2, 3))) void suite_say(suite_case *c, const char *format, ...);
const char *suite_type_text(saker_type type);
const char *suite_fill_text(suite_fill fill); /* "" for SUITE_NORMAL, else a space and a word */

/* Adds a tensor [lead..., columns]; gap > 0: rows that many elements apart more than they need. columns < 0: no such
 * dimension. */
suite_tensor *suite_add_rows(suite_case *c, const char *field, suite_role role, saker_type type, int n_lead,
                             const int64_t *lead, int64_t columns, int64_t gap);
/* Bytes of all its tensors. */
double suite_all_bytes(const suite_case *c);

#endif
