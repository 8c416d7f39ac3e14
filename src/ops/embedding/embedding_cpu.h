/* embedding_cpu.h - reading ids, for both of embedding's CPU files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_EMBEDDING_CPU_H
#define SKR_EMBEDDING_CPU_H

#include "../../cpu/rows.h"
#include "embedding.h"

static inline int64_t id_at(const skr_row_space *space, const skr_rows *ids, int64_t row)
{
    const void *p = row_of(space, ids, row);
    return ids->type == SKR_I32 ? *(const int32_t *)p : *(const int64_t *)p;
}

#endif
