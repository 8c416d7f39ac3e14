/* demo.c - `saker demo`: what the machine offers, every operation on the best device, and a page with plots.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

enum { MAX_ROWS = 256, MAX_OPS = 64 };

typedef struct demo {
    bench_state b;
    bench_row *row;
    int n, failed;
    bool quiet;
} demo;

static void run(demo *d, const suite *s, const suite_case *c)
{
    cli_progress("demo on %s: %s %s", d->b.place.device, s->op, c->name);
    bench_row *row = &d->row[d->n];
    const char *wrong = bench_case(&d->b, s, c, row);
    if (wrong || row->max_error > 1) {
        cli_failed("%s %s: %s", s->op, c->name, wrong ? wrong : row->where);
        d->failed++;
    }
    if (wrong)
        return;
    d->n++;
    if (!d->quiet)
        bench_table_row(row);
}

/* A case of every operation, one that is meant for this if it has one; then the others that are; then, for the plots,
 * the widths around them. The last two while there is time. */
static void run_suites(demo *d, double seconds)
{
    int bench = d->b.place.cuda ? SUITE_BENCH_CUDA : SUITE_BENCH,
        any = d->b.place.cuda ? SUITE_BENCH_CUDA : SUITE_BENCH | SUITE_CACHE;
    double start = cli_seconds();
    suite_case c;
    int first[MAX_OPS]; /* of each suite the case that runs first; -1: it has none */
    for (int i = 0; i < suite_count(); i++) {
        bool meant = false;
        first[i] = -1;
        for (int k = 0; !meant && suite_at(i)->at(k, &c); k++) {
            meant = (c.use & bench) && (c.use & SUITE_DEMO);
            if (meant || ((c.use & bench) && first[i] < 0))
                first[i] = k;
        }
        if (suite_at(i)->at(first[i], &c))
            run(d, suite_at(i), &c);
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < suite_count(); i++) {
            double now = cli_seconds(), end = now + (start + seconds - now) / (suite_count() - i);
            for (int k = 0; suite_at(i)->at(k, &c) && d->n < MAX_ROWS && cli_seconds() < end; k++) {
                bool meant = (c.use & SUITE_DEMO) && (c.use & any), around = suite_at(i)->row && (c.use & bench);
                if (k != first[i] && (pass == 0 ? meant : around && !meant))
                    run(d, suite_at(i), &c);
            }
        }
    cli_progress_clear();
}

/* More than any machine has for each byte that its memory brings: arithmetic is the roof. */
enum { PRODUCT_FLOPS_PER_BYTE = 30 };

static void summary(const demo *d)
{
    putchar('\n');
    for (int i = 0; i < suite_count(); i++) {
        double product = 0, worst_error = NAN, least = INFINITY, slow = INFINITY, fast = 0;
        int n = 0;
        for (int k = 0; k < d->n; k++) {
            const bench_row *row = &d->row[k];
            bool is_product = row->gflops > PRODUCT_FLOPS_PER_BYTE * row->gbps;
            if (strcmp(row->op, suite_at(i)->op) || !(is_product || row->roof_fraction > 0))
                continue;
            n++;
            if (is_product) {
                slow = fmin(slow, row->gflops), fast = fmax(fast, row->gflops);
            } else {
                product += log(row->roof_fraction);
                least = fmin(least, row->roof_fraction);
            }
            worst_error = fmax(worst_error, row->max_error); /* NaN, not checked, loses */
        }
        char error[48] = "errors are for `saker check`";
        if (worst_error >= 0)
            snprintf(error, sizeof error, "worst error %.3f of the bound", worst_error);
        if (n && fast > 0)
            printf("%-22s %3d cases: %3.0f to %.0f GFLOP/s; %s\n", suite_at(i)->op, n, slow, fast, error);
        else if (n)
            printf("%-22s %3d cases: %3.0f%% of the measured roof (geometric mean), least %3.0f%%; %s\n",
                   suite_at(i)->op, n, 100 * exp(product / n), 100 * least, error);
    }
}

/* Makes the folder with its parents and gives the report's path. Before the run, which takes a minute. */
static int make_folder(const char *folder, char *path, size_t size)
{
    if (!*folder || snprintf(path, size, "%s/report.html", folder) >= (int)size)
        return cli_usage("--report: the folder has no name, or one that is too long");
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return cli_failed("cannot make the folder '%s': %s", path, strerror(errno));
        *slash = '/';
    }
    bool fresh = access(path, F_OK);
    FILE *file = fopen(path, "a"); /* an older report stays until there is a new one */
    if (!file)
        return cli_failed("cannot write '%s': %s", path, strerror(errno));
    fclose(file);
    if (fresh)
        remove(path);
    return -1;
}

static int write_report(const demo *d, const char *path)
{
    if (!cli_report(path, d->row, d->n))
        return cli_failed("cannot write '%s': %s", path, strerror(errno));
    fprintf(d->quiet ? stderr : stdout, "report: %s\n", path);
    return -1;
}

int cli_demo(int argc, char **argv)
{
    cli_target target = {.device = "best"};
    const char *folder = "build/demo";
    char path[4096];
    double seconds = 60;
    bool json = false;
    demo d = {.b = {.min_seconds = 0.2}};
    const cli_option table[] = {
        CLI_TARGET_OPTIONS(target),
        {"--report", CLI_TEXT, &folder, "FOLDER", "where report.html goes (build/demo)"},
        {"--seconds", CLI_FLOAT, &seconds, "S", "time for the widths that the plots show (60)"},
        {"--json", CLI_FLAG, &json, NULL, "rows as JSON on standard output instead of the table"},
    };
    int code = cli_parse(argc, argv, "demo [options]",
                         "Shows what this machine offers, runs every operation on the best device (time, GB/s, share "
                         "of the measured roof,\n"
                         "error against the double-precision oracle), and writes a page with plots.",
                         table, sizeof table / sizeof table[0], NULL);
    if (code >= 0)
        return code;
    d.quiet = json;
    d.row = calloc(MAX_ROWS, sizeof *d.row);
    code = d.row ? bench_open(&d.b, &target) : cli_failed("out of memory");
    if (code < 0)
        code = make_folder(folder, path, sizeof path);
    if (code < 0) {
        if (!json) {
            char *doctor[] = {"doctor", "--no-test", NULL};
            cli_doctor(2, doctor);
            putchar('\n');
            bench_table_head();
        }
        run_suites(&d, seconds);
        if (json) {
            json_out j = {.file = stdout};
            json_begin(&j, NULL, '{');
            json_begin(&j, "rows", '[');
            for (int i = 0; i < d.n; i++)
                bench_json(&j, &d.row[i]);
            json_end(&j, ']');
            json_end(&j, '}');
        } else {
            summary(&d);
        }
        code = write_report(&d, path);
    }
    bench_close(&d.b);
    free(d.row);
    return code >= 0 ? code : d.failed || !d.n ? CLI_FAILED : CLI_OK;
}
