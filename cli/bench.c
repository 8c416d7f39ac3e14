/* bench.c - `saker bench`: the command around measure.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct collection {
    bench_row *row;
    int n, room;
    bool quiet; /* no table: JSON goes to standard output */
} collection;

static void collect(void *arg, const bench_row *row)
{
    collection *c = arg;
    if (c->n == c->room) {
        int room = c->room ? 2 * c->room : 64;
        bench_row *grown = realloc(c->row, (size_t)room * sizeof *grown);
        if (!grown) {
            cli_failed("out of memory: a row is lost");
            return;
        }
        c->row = grown;
        c->room = room;
    }
    c->row[c->n++] = *row;
    if (!c->quiet && c->n == 1)
        bench_table_head();
    if (!c->quiet)
        bench_table_row(row);
}

static void write_rows(FILE *file, const collection *rows)
{
    json_out j = {.file = file};
    json_begin(&j, NULL, '{');
    json_text(&j, "what", "saker bench");
    json_text(&j, "build", saker_build_info());
    json_begin(&j, "rows", '[');
    for (int i = 0; i < rows->n; i++)
        bench_json(&j, &rows->row[i]);
    json_end(&j, ']');
    json_end(&j, '}');
}

/* Puts the rows, if there are any, in place of what the file held. False: they are not all there (errno). */
static bool close_out(FILE *file, const collection *rows)
{
    bool ok = true;
    if (rows->n) {
        ok = !ftruncate(fileno(file), 0) || errno == EINVAL; /* a device or a pipe holds nothing */
        write_rows(file, rows);
        ok &= !ferror(file);
    }
    return fclose(file) == 0 && ok;
}

/* Whether the case belongs to a bench on this device. A case named exactly is always wanted. */
static bool wanted(const suite *s, const suite_case *c, bool cuda, const char *op, const char *pattern, bool only_cache)
{
    if (!cli_case_matches(s, c, op, pattern))
        return false;
    if (pattern && !strcmp(pattern, c->name))
        return true;
    int uses = cuda ? SUITE_BENCH_CUDA : only_cache ? SUITE_CACHE : SUITE_BENCH | SUITE_CACHE;
    return c->use & uses;
}

static int run(const cli_target *target, bench_state *b, const char *op, const char *pattern, bool flush,
               collection *rows)
{
    int code = bench_open(b, target), total = 0, done = 0, failed = 0;
    if (code >= 0)
        return code;
    if (flush)
        b->flush_bytes = (size_t)(2 * b->place.cache);
    for (int pass = 0; pass < 2; pass++) /* first count, then run */
        for (int i = 0; i < suite_count(); i++) {
            suite_case c;
            for (int k = 0; suite_at(i)->at(k, &c); k++) {
                if (!wanted(suite_at(i), &c, b->place.cuda, op, pattern, b->force_cache))
                    continue;
                if (pass == 0) {
                    total++;
                    continue;
                }
                cli_progress("bench %d/%d on %s: %s %s", ++done, total, b->place.device, suite_at(i)->op, c.name);
                bench_row row;
                const char *wrong = bench_case(b, suite_at(i), &c, &row);
                if (wrong) {
                    cli_failed("%s %s: %s", suite_at(i)->op, c.name, wrong);
                    failed++;
                    continue;
                }
                if (row.max_error > 1) {
                    cli_failed("%s %s is WRONG: %s", suite_at(i)->op, c.name, row.where);
                    failed++;
                }
                collect(rows, &row);
            }
        }
    cli_progress_clear();
    if (!total)
        return cli_failed("no bench case matches on this device");
    return failed ? CLI_FAILED : -1;
}

int cli_bench(int argc, char **argv)
{
    cli_target target = {0};
    const char *op = NULL, *pattern = NULL, *out = NULL, *baseline = NULL;
    bool json = false, flush = false, overhead = false;
    bench_state b = {.min_seconds = -1};
    const cli_option table[] = {
        CLI_TARGET_OPTIONS(target),
        {"--op", CLI_TEXT, &op, "NAME", "only this operation"},
        {"--case", CLI_TEXT, &pattern, "TEXT", "only cases whose name contains TEXT (or matches it, with * and ?)"},
        {"--min-time", CLI_FLOAT, &b.min_seconds, "S", "seconds per case (0.5)"},
        {"--flush", CLI_FLAG, &flush, NULL, "empty the caches before each call (each call timed by itself)"},
        {"--cache", CLI_FLAG, &b.force_cache, NULL,
         "only cases in cache: one thread, many calls a timing, against a copy in cache"},
        {"--overhead", CLI_FLAG, &overhead, NULL, "the host's cost of one call, and of its check and plan, instead"},
        {"--out", CLI_TEXT, &out, "FILE", "write the rows as JSON, too"},
        {"--baseline", CLI_TEXT, &baseline, "FILE",
         "compare with rows written earlier; exit code 1 if something is slower than noise"},
        {"--json", CLI_FLAG, &json, NULL, "rows as JSON on standard output instead of the table"},
    };
    int code = cli_parse(argc, argv, "bench [options]",
                         "Times operations. Every case is timed in turn with a bandwidth probe that has as many read "
                         "and write streams and\n"
                         "moves as many bytes; `of roof` is the share of that. `error` is the worst element of a few "
                         "rows, in units of the\n"
                         "bound that the double-precision oracle gives.",
                         table, sizeof table / sizeof table[0], NULL);
    if (code >= 0)
        return code;
    if (overhead && (op || pattern || b.min_seconds >= 0 || flush || b.force_cache))
        return cli_usage("--overhead times one call of its own: --op, --case, --min-time, --flush and --cache do "
                         "nothing there");
    if (flush && b.force_cache)
        return cli_usage("--flush empties the caches that --cache wants filled: give one of them");
    if (b.min_seconds < 0)
        b.min_seconds = 0.5;
    if (op && !suite_find(op))
        return cli_usage("--op: there is no operation '%s'; `saker list --names` shows them", op);
    char error[160];
    json_value *old = baseline ? json_read(baseline, error) : NULL;
    if (baseline && !old)
        return cli_failed("%s", error);
    /* Whether it can be written is known before the run; what it holds stays until there are rows. */
    struct stat there;
    bool fresh = out && lstat(out, &there);
    FILE *file = out ? fopen(out, "a") : NULL;
    if (out && !file) {
        json_free(old);
        return cli_failed("cannot write '%s': %s", out, strerror(errno));
    }
    collection rows = {.quiet = json};
    code = overhead ? bench_overhead(&target, collect, &rows) : run(&target, &b, op, pattern, flush, &rows);
    bench_close(&b);
    if (json)
        write_rows(stdout, &rows);
    if (file && !close_out(file, &rows))
        code = cli_failed("cannot write '%s': %s", out, strerror(errno));
    if (fresh && !rows.n)
        remove(out);
    if (old && code < 0)
        code = bench_compare(old, rows.row, rows.n, json ? stderr : stdout);
    json_free(old);
    free(rows.row);
    return code < 0 ? CLI_OK : code;
}
