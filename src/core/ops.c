/* ops.c - the op table, expanded from ops.def, and the library's description of itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "op.h"

const skr_op *const skr_ops[SKR_N_OPS] = {
#define SKR_OP(name) &skr_op_##name,
#include "ops.def"
#undef SKR_OP
};

int32_t saker_op_count(void)
{
    return SKR_N_OPS;
}

const saker_op_info *saker_op_at(int32_t index)
{
    return index >= 0 && index < SKR_N_OPS ? &skr_ops[index]->info : NULL;
}

const saker_op_info *saker_op_find(const char *name)
{
    for (int i = 0; name && i < SKR_N_OPS; i++)
        if (!strcmp(skr_ops[i]->info.name, name))
            return &skr_ops[i]->info;
    return NULL;
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *saker_version(void)
{
    return TEXT(SAKER_VERSION_MAJOR) "." TEXT(SAKER_VERSION_MINOR) "." TEXT(SAKER_VERSION_PATCH);
}

/* SKR_BUILD_INFO comes from the Makefile: architecture, levels, CUDA images. */
const char *saker_build_info(void)
{
    return "saker " TEXT(SAKER_VERSION_MAJOR) "." TEXT(SAKER_VERSION_MINOR) "." TEXT(
        SAKER_VERSION_PATCH) ", "
#if defined(__clang__)
                             "clang " __clang_version__ ", "
#else
                             "gcc " __VERSION__ ", "
#endif
        SKR_BUILD_INFO;
}
