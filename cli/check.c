/* check.c - `saker check`: the operations against their double-precision oracle on this machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

enum { QUICK_CASES = 60, QUICK_ELEMENTS = 1 << 17 };

static int count_cases(const suite *s)
{
    suite_case c;
    int n = 0;
    while (s->at(n, &c))
        n++;
    return n;
}

static int64_t elements(const suite_case *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_tensors; i++)
        n += suite_elements(&c->tensor[i]);
    return n;
}

static int common_divisor(int a, int b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* NULL, or why the case failed. */
static const char *run_case(cli_place *place, cli_arena *arena, const suite *s, const suite_case *c, double *error,
                            char *where, char *text)
{
    cli_case *k = malloc(sizeof *k);
    if (!k)
        return "out of memory";
    *error = NAN;
    where[0] = 0;
    const char *wrong = cli_arena_need(place, arena, cli_case_bytes(c));
    if (!wrong)
        wrong = cli_case_bind(k, place, arena->memory, s, c);
    if (!wrong)
        wrong = cli_case_check_whole(k, 1, error, where);
    free(k);
    const char *ran = saker_context_kernel(place->ctx), *expected = suite_kernel_of(c, place->cuda, ran);
    if (!wrong && expected && !strstr(ran, "/empty") && !strstr(ran, expected)) {
        snprintf(text, 256, "ran %.100s, expected %.100s", ran, expected);
        wrong = text;
    }
    if (!wrong && !(*error <= 1)) {
        snprintf(text, 256, "off by %.3g of the bound: %.96s", *error, where);
        wrong = text;
    }
    return wrong;
}

check_result cli_check_suite(cli_place *place, cli_arena *arena, const suite *s, const check_options *o)
{
    check_result result = {0};
    int n = count_cases(s), step = 1;
    if (!o->all) /* in a spread order: a step near the golden section that meets every case once */
        for (step = n * 5 / 8 + 1; common_divisor(step, n) > 1; step++)
            ;
    double start = cli_seconds();
    for (int i = 0; i < n; i++) {
        suite_case c;
        if (!s->at((int)((int64_t)i * step % n), &c) || !(c.use & SUITE_CHECK) ||
            (place->cuda && (c.use & SUITE_CPU_ONLY)) || !cli_case_matches(s, &c, NULL, o->pattern))
            continue;
        bool quick = !o->all && !o->pattern;
        if (quick && (result.run == QUICK_CASES || elements(&c) > QUICK_ELEMENTS))
            continue;
        if (o->limit_seconds > 0 && cli_seconds() - start > o->limit_seconds)
            break;
        cli_progress("check %s on %s: %d done, %s", s->op, place->device, result.run, c.name);
        double error;
        char where[96], text[256];
        const char *wrong = run_case(place, arena, s, &c, &error, where, text);
        result.run++;
        if (wrong && !result.failed++)
            snprintf(result.first_wrong, sizeof result.first_wrong, "%.80s: %.170s", c.name, wrong);
        if (error >= result.worst) {
            result.worst = error;
            snprintf(result.worst_case, sizeof result.worst_case, "%s", c.name);
        }
        const char *ran = saker_context_kernel(place->ctx);
        if (!strstr(ran, "/empty"))
            snprintf(result.kernel, sizeof result.kernel, "%s", ran);
        if (o->each)
            o->each(o->arg, s, &c, error, where, wrong);
    }
    cli_progress_clear();
    return result;
}

/* ---------------------------------------------------------------- the command */

typedef struct output {
    json_out *json; /* NULL: text */
    bool each;
    const char *device, *isa;
} output;

static void show_case(void *arg, const suite *s, const suite_case *c, double error, const char *where,
                      const char *wrong)
{
    const output *o = arg;
    if (o->json && (o->each || wrong)) {
        json_row(o->json, NULL);
        json_text(o->json, "op", s->op);
        json_text(o->json, "case", c->name);
        json_text(o->json, "device", o->device);
        json_text(o->json, "isa", o->isa);
        json_number(o->json, "max_error", error);
        json_text(o->json, "where", where);
        json_text(o->json, "wrong", wrong);
        json_end(o->json, '}');
    } else if (!o->json && (o->each || wrong)) {
        cli_progress_clear();
        printf("  %s %-60s %8.3f  %s\n", wrong ? "FAIL" : "ok  ", c->name, error, wrong ? wrong : where);
    }
}

static int check_place(const cli_target *target, const char *op, check_options *options, output *out, int *run)
{
    cli_place place;
    cli_arena arena = {0};
    int code = cli_open(target, &place), failed = 0;
    if (code >= 0)
        return code;
    out->device = place.device;
    out->isa = target->isa;
    options->arg = out;
    for (int i = 0; i < suite_count(); i++) {
        const suite *s = suite_at(i);
        if (op && strcmp(op, s->op))
            continue;
        check_result r = cli_check_suite(&place, &arena, s, options);
        failed += r.failed;
        *run += r.run;
        if (!out->json && r.run)
            printf("%-20s %-8s %-11s %4d cases, %d failed, worst error %.3f of the bound (%s)\n", s->op, place.device,
                   target->isa ? target->isa : "", r.run, r.failed, r.worst, r.worst_case);
        fflush(stdout);
    }
    cli_arena_free(&place, &arena);
    cli_close(&place);
    return failed ? CLI_FAILED : -1;
}

int cli_check(int argc, char **argv)
{
    cli_target target = {0};
    const char *op = NULL;
    bool json = false, each = false;
    check_options options = {.each = show_case};
    const cli_option table[] = {
        CLI_TARGET_OPTIONS(target),
        {"--op", CLI_TEXT, &op, "NAME", "only this operation"},
        {"--case", CLI_TEXT, &options.pattern, "TEXT",
         "only cases whose name contains TEXT (or matches it, with * and ?)"},
        {"--all", CLI_FLAG, &options.all, NULL, "every case, not a quick spread of small ones"},
        {"--each", CLI_FLAG, &each, NULL, "show every case, not only failures"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable output"},
    };
    int code = cli_parse(
        argc, argv, "check [options]",
        "Runs operations on random and on awkward inputs and compares every element with an oracle in double\n"
        "precision. Errors are shown as a fraction of what a correct kernel may be off by: above 1 is a failure.\n"
        "--isa all runs every instruction-set level that this machine has.",
        table, sizeof table / sizeof table[0], NULL);
    if (code >= 0)
        return code;
    if (op && !suite_find(op))
        return cli_usage("--op: there is no operation '%s'; `saker list` shows them", op);
    json_out j = {.file = stdout};
    output out = {.json = json ? &j : NULL, .each = each};
    if (json) {
        json_begin(&j, NULL, '{');
        json_begin(&j, "cases", '[');
    }
    int run = 0, failed = 0, worst = -1;
    bool all_levels = target.isa && !strcmp(target.isa, "all");
    for (int i = 0; i < (all_levels ? saker_level_count() : 1) && worst != CLI_USAGE; i++) {
        if (all_levels && !saker_level_at(i).usable)
            continue;
        if (all_levels)
            target.isa = saker_level_at(i).name;
        code = check_place(&target, op, &options, &out, &run);
        failed += code >= 0;
        worst = code > worst ? code : worst;
    }
    if (json) {
        json_end(&j, ']');
        json_int(&j, "run", run);
        json_bool(&j, "passed", !failed && run > 0);
        json_end(&j, '}');
    }
    if (worst < 0 && run == 0)
        return cli_failed("no case matches");
    return worst < 0 ? CLI_OK : worst;
}
