/* log.h - SAKER_VERBOSE and warnings. The library is silent unless asked.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_LOG_H
#define SKR_LOG_H

#include <stdbool.h>

/* SAKER_VERBOSE=1 was set when the process first asked. */
bool skr_verbose(void);
/* One line on standard error, "saker: ...", flushed at once so that a crash still shows it. */
__attribute__((format(printf, 1, 2))) void skr_log(const char *format, ...);
/* The same for an environment variable that makes no sense; callers warn once. */
__attribute__((format(printf, 1, 2))) void skr_warn(const char *format, ...);

#endif
