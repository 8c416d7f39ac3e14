/* baseline.c - is it faster or slower than the run in an older file, or is it noise?
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row has changed when its time moved by more than the noise of both runs, and its fraction of the probe moved the
 * same way: the probe was timed in turn with it, so a machine that is slower today slows both. Noise is half the
 * distance of the 20th and 80th percentile, relative to the median, twice that for both runs together, and never below
 * 2 %. */
#include <math.h>
#include <string.h>

#include "bench.h"

static double noise(double p20, double median, double p80)
{
    return median > 0 ? (p80 - p20) / (2 * median) : 0;
}

static const json_value *find(const json_value *old, const bench_row *row)
{
    const json_value *rows = json_get(old, "rows");
    for (const json_value *v = rows ? rows->child : NULL; v; v = v->next)
        if (!strcmp(json_get_text(v, "op", ""), row->op) && !strcmp(json_get_text(v, "case", ""), row->name) &&
            !strncmp(json_get_text(v, "device", ""), row->device, 3) &&
            (int)json_get_number(v, "threads", -1) == row->threads)
            return v;
    return NULL;
}

/* -1 slower, 0 the same, 1 faster; *ratio is old time / new time. */
static int verdict(const json_value *v, const bench_row *row, double *ratio, double *allowed)
{
    double median = json_get_number(v, "median_us", NAN);
    double before = noise(json_get_number(v, "p20_us", median), median, json_get_number(v, "p80_us", median));
    double now = noise(row->us.p20, row->us.median, row->us.p80);
    *ratio = median / row->us.median;
    *allowed = 2 * sqrt(before * before + now * now);
    if (*allowed < 0.02)
        *allowed = 0.02;
    int by_time = *ratio > 1 + *allowed ? 1 : *ratio < 1 / (1 + *allowed) ? -1 : 0;
    double fraction = row->roof_fraction / json_get_number(v, "roof_fraction", NAN);
    if (isnan(fraction))
        return by_time;
    int by_roof = fraction > 1 + *allowed ? 1 : fraction < 1 / (1 + *allowed) ? -1 : 0;
    return by_time == by_roof ? by_time : 0;
}

int bench_compare(const json_value *old, const bench_row *rows, int n, FILE *out)
{
    static const char *const words[] = {"SLOWER", "same", "faster"};
    int count[3] = {0}, missing = 0;
    double product = 0;
    fprintf(out, "\n%-18s %-34s %11s %11s %8s %8s  verdict\n", "op", "case", "before us", "now us", "ratio", "noise");
    for (int i = 0; i < n; i++) {
        const json_value *v = find(old, &rows[i]);
        double before = json_get_number(v, "median_us", NAN);
        if (!(before > 0 && isfinite(before))) {
            if (v)
                fprintf(out, "%-18s %-34s left out: its row in the baseline has no time (median_us)\n", rows[i].op,
                        rows[i].name);
            missing++;
            continue;
        }
        double ratio, allowed;
        int which = verdict(v, &rows[i], &ratio, &allowed);
        count[which + 1]++;
        product += log(ratio);
        fprintf(out, "%-18s %-34s %11.2f %11.2f %7.3fx %7.1f%%  %s\n", rows[i].op, rows[i].name, before,
                rows[i].us.median, ratio, 100 * allowed, words[which + 1]);
    }
    int compared = count[0] + count[1] + count[2];
    if (!compared)
        return cli_failed("the baseline has no time of any of these cases on this device with as many threads");
    fprintf(out, "%d faster, %d the same, %d slower, %d without a time in the baseline; geometric mean %.3fx\n",
            count[2], count[1], count[0], missing, exp(product / compared));
    return count[0] ? CLI_FAILED : CLI_OK;
}
