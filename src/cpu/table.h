/* table.h - the CPU kernels of one instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each src/ops/<op>/<op>_cpu.c is compiled once per level and defines skr_<op>_<level> for each op of its folder.
 * table.c is compiled once per level too (data only) and collects them in ops.def order. A level that differs from the
 * one before in products alone (ROWS_<level> in the Makefile) has kernels of its own for these; where it has none, that
 * one's are called. */
#ifndef SKR_CPU_TABLE_H
#define SKR_CPU_TABLE_H

#include "../core/op.h"

typedef void (*skr_cpu_kernel)(const void *job, int step, int64_t task, int worker);

typedef struct skr_cpu_table {
    const char *level;
    const struct skr_cpu_table *rest; /* whose kernels stand in for those that are NULL */
    skr_cpu_kernel kernel[SKR_N_OPS];
} skr_cpu_table;

#endif
