/* progress.c - one progress line on standard error, polite to terminals and to logs alike.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static bool shown;       /* a terminal line is on the screen and must be wiped before other output */
static double last = -1; /* when the last plain line was written */

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cli_progress_clear(void)
{
    if (shown)
        fputs("\r\033[K", stderr);
    shown = false;
}

void cli_progress(const char *format, ...)
{
    enum { EVERY_SECONDS = 5 };
    static int terminal = -1;
    if (terminal < 0)
        terminal = isatty(STDERR_FILENO);
    double now = cli_seconds();
    if (!terminal) {
        if (last < 0)
            last = now; /* what ends within the first seconds needs no line at all */
        if (now - last < EVERY_SECONDS)
            return;
        last = now;
    }
    va_list list;
    va_start(list, format);
    if (terminal)
        fputs("\r\033[K", stderr);
    vfprintf(stderr, format, list);
    va_end(list);
    if (!terminal)
        fputc('\n', stderr);
    fflush(stderr);
    shown = terminal;
}
