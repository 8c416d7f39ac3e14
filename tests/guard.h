/* guard.h - memory between two pages that nobody may touch.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GUARD_H
#define GUARD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct guarded {
    char *map; /* guard page, pages, guard page */
    size_t map_bytes;
    char *pages; /* what may be touched */
    size_t page_bytes;
    char *data; /* where the tensor starts */
} guarded;

/* bytes of memory that start `offset` bytes after the front guard page, or, with at_end, end right at the back one. */
bool guard_alloc(guarded *g, size_t bytes, size_t offset, bool at_end);
void guard_free(guarded *g);

/* The floating-point control word: rounding, flush to zero and traps, without the sticky flags. */
unsigned long guard_float_control(void);

#endif
