/* report.c - the demo's page: one file, no scripts, plots inline.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "svg.h"

/* "bf16 65536x1024 e4m3/row" -> "bf16 e4m3/row": what distinguishes one line of a plot from another. */
static void series_label(const bench_row *row, char *label, size_t size)
{
    const char *first = strchr(row->name, ' '), *rest = first ? strchr(first + 1, ' ') : NULL;
    snprintf(label, size, "%s%s", row->dtype, rest ? rest : "");
}

/* Adds a point in order of x; of two rows with one width the larger one stays. */
static void add_point(svg_series *s, double *weight, double x, double y, double bytes)
{
    int at = 0;
    while (at < s->n && s->x[at] < x)
        at++;
    bool same = at < s->n && s->x[at] == x;
    if (same && weight[at] >= bytes)
        return;
    if (!same) {
        if (s->n == SVG_POINTS)
            return;
        memmove(&s->x[at + 1], &s->x[at], (size_t)(s->n - at) * sizeof s->x[0]);
        memmove(&s->y[at + 1], &s->y[at], (size_t)(s->n - at) * sizeof s->y[0]);
        memmove(&weight[at + 1], &weight[at], (size_t)(s->n - at) * sizeof weight[0]);
        s->n++;
    }
    s->x[at] = x;
    s->y[at] = y;
    weight[at] = bytes;
}

enum { MAX_LINES = SVG_COLOURS };

/* GB/s over row width for one op: a line per type and variant, and its probe as a dashed line. */
static void plot_op(FILE *out, const char *op, const bench_row *rows, int n)
{
    svg_series *s = calloc(2 * MAX_LINES, sizeof *s);
    double(*weight)[SVG_POINTS] = calloc(2 * MAX_LINES, sizeof *weight);
    int lines = 0, shown = 0;
    for (int i = 0; i < n && s && weight; i++) {
        char label[48];
        if (strcmp(rows[i].op, op) || rows[i].in_cache || rows[i].width < 2 || !(rows[i].probe_gbps > 0))
            continue;
        series_label(&rows[i], label, sizeof label);
        int k = 0;
        while (k < lines && strcmp(s[2 * k].label, label))
            k++;
        if (k == MAX_LINES)
            continue;
        if (k == lines) {
            lines++;
            snprintf(s[2 * k].label, sizeof s[0].label, "%s", label);
            s[2 * k].colour = s[2 * k + 1].colour = k;
            s[2 * k + 1].dashed = true;
        }
        add_point(&s[2 * k], weight[2 * k], (double)rows[i].width, rows[i].gbps, rows[i].bytes);
        add_point(&s[2 * k + 1], weight[2 * k + 1], (double)rows[i].width, rows[i].probe_gbps, rows[i].bytes);
    }
    for (int k = 0; k < lines; k++) /* a single point is no line */
        if (s[2 * k].n > 1) {
            s[shown] = s[2 * k];
            s[shown + 1] = s[2 * k + 1];
            shown += 2;
        }
    char title[96];
    snprintf(title, sizeof title, "%s: GB/s over row width", op);
    if (shown)
        svg_plot(out, title, "row width (elements); dashed: the measured probe of the same shape", "GB/s", s, shown);
    free(s);
    free(weight);
}

static void table(FILE *out, const bench_row *rows, int n)
{
    fputs("<table><tr><th>op<th>case<th>device<th>threads<th>time &micro;s<th>GB/s<th>roof GB/s<th>of roof<th>error / "
          "bound<th>kernel</tr>\n",
          out);
    for (int i = 0; i < n; i++) {
        const bench_row *r = &rows[i];
        fputs("<tr><td>", out);
        svg_text(out, r->op);
        fputs("<td>", out);
        svg_text(out, r->name);
        fprintf(out, "<td>%s<td>%d<td>%.2f<td>%.1f<td>%.1f<td>%.0f%%<td>%.3f<td>", r->device, r->threads, r->us.median,
                r->gbps, r->probe_gbps, 100 * r->roof_fraction, r->max_error);
        svg_text(out, r->kernel);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

bool cli_report(const char *path, const bench_row *rows, int n)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    const char *machine = n ? rows[0].machine : cli_machine_get()->cpu;
    fputs("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width\"><title>Saker on ",
          out);
    svg_text(out, machine);
    fputs("</title><style>:root{color-scheme:light dark}body{font:15px/1.5 "
          "system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}"
          "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}td,th{padding:.2rem "
          ".6rem;text-align:right;border-bottom:1px solid "
          "#8884;white-space:nowrap}td:first-child,td:nth-child(2),td:last-child,th:first-child,th:nth-child(2),th:"
          "last-child{text-align:left}",
          out);
    svg_style(out);
    fputs("</style><h1>Saker on ", out);
    svg_text(out, machine);
    fprintf(out, "</h1><p>Version %s, %s, commit %s, %s. ", saker_version(), cli_compiler(), cli_commit(), cli_date());
    fputs("The roof is a bandwidth probe with as many read and write streams and as many bytes, timed in turn with the "
          "operation on this machine; "
          "the error is the worst element against an oracle in double precision, as a fraction of what a correct "
          "kernel may be off by.</p>\n",
          out);
    for (int i = 0; i < saker_op_count(); i++)
        plot_op(out, saker_op_at(i)->name, rows, n);
    table(out, rows, n);
    fputs("</html>\n", out);
    bool ok = !ferror(out);
    return fclose(out) == 0 && ok;
}
