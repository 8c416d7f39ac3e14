/* status.c - status names, and the sentence behind a failure.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "log.h"
#include "op.h"

const char *saker_status_name(saker_status status)
{
    static const char *const name[] = {
        "OK",        "INVALID_ARG",   "UNSUPPORTED", "NULL_POINTER", "MISALIGNED", "ALIAS",     "OVERFLOW",
        "WORKSPACE", "OUT_OF_MEMORY", "DEVICE",      "DEVICE_LOST",  "COMM",       "BAD_INDEX", "VERSION",
    };
    return (unsigned)status < sizeof name / sizeof *name ? name[status] : "unknown status";
}

saker_status skr_fail(skr_call *call, saker_status status, const char *format, ...)
{
    int at = 0;
    if (call->op)
        at = snprintf(call->error, SKR_ERROR_BYTES, "%s: ", call->op->info.name);
    va_list list;
    va_start(list, format);
    vsnprintf(call->error + at, SKR_ERROR_BYTES - (size_t)at, format, list);
    va_end(list);
    if (skr_verbose())
        skr_log("%s: %s", saker_status_name(status), call->error);
    return status;
}
