/* stats.c - order statistics of repeated timings.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cli.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear between the two neighbours. */
static double quantile(const double *sorted, int n, double q)
{
    double at = q * (n - 1);
    int low = (int)at, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

cli_stats cli_stats_of(double *values, int n)
{
    if (n == 0)
        return (cli_stats){0};
    qsort(values, (size_t)n, sizeof *values, compare);
    return (cli_stats){n, values[0], quantile(values, n, 0.2), quantile(values, n, 0.5), quantile(values, n, 0.8)};
}
