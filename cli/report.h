/* report.h - the demo's page.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "bench.h"

/* Writes a self-contained page. False: the file cannot be written (errno). */
bool cli_report(const char *path, const bench_row *rows, int n);

#endif
