/* log.c - see log.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool skr_verbose(void)
{
    static _Atomic int state; /* 0 unknown, 1 off, 2 on */
    int s = atomic_load_explicit(&state, memory_order_relaxed);
    if (!s) {
        const char *text = getenv("SAKER_VERBOSE");
        s = 1;
        if (text && !strcmp(text, "1"))
            s = 2;
        int unknown = 0;
        bool first = atomic_compare_exchange_strong(&state, &unknown, s);
        if (first && text && *text && strcmp(text, "0") && strcmp(text, "1"))
            skr_warn("SAKER_VERBOSE=%.40s is ignored: expected 0 or 1", text);
    }
    return s == 2;
}

/* One write() per line, so that lines of several threads do not mix. */
static void line(const char *format, va_list list)
{
    char text[1200];
    int at = snprintf(text, sizeof text, "saker: ");
    int n = vsnprintf(text + at, sizeof text - (size_t)at - 1, format, list);
    if (n < 0)
        return;
    size_t length = strlen(text);
    text[length] = '\n';
    ssize_t written = write(STDERR_FILENO, text, length + 1);
    (void)written;
}

void skr_log(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    line(format, list);
    va_end(list);
}

void skr_warn(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    line(format, list);
    va_end(list);
}
