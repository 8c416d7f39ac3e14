/* table.c - the kernels of one level, in ops.def order. Compiled once per level with -DSKR_LEVEL=<level>; data only.
 * SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#define PASTE_(a, b, c) a##_##b##_##c
#define PASTE(a, b, c)  PASTE_(a, b, c)
#define TEXT_(a)        #a
#define TEXT(a)         TEXT_(a)

/* Without a level for the rest a missing kernel is a link error. */
#if defined(SKR_REST)
#define MAY_LACK __attribute__((weak))
#define REST     &PASTE(skr_cpu, table, SKR_REST)
extern const skr_cpu_table PASTE(skr_cpu, table, SKR_REST);
#else
#define MAY_LACK
#define REST NULL
#endif

#define SKR_OP(name) MAY_LACK void PASTE(skr, name, SKR_LEVEL)(const void *job, int step, int64_t task, int worker);
#include "../core/ops.def"
#undef SKR_OP

extern const skr_cpu_table PASTE(skr_cpu, table, SKR_LEVEL);
const skr_cpu_table PASTE(skr_cpu, table, SKR_LEVEL) = {
    .level = TEXT(SKR_LEVEL),
    .rest = REST,
    .kernel =
        {
#define SKR_OP(name) PASTE(skr, name, SKR_LEVEL),
#include "../core/ops.def"
#undef SKR_OP
        },
};
