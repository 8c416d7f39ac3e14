/* doctor.c - `saker doctor`: what this machine offers, what the library makes of it, and a short self-test.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "check.h"
#include "json.h"

extern char **environ;

static void show_cpu(json_out *j)
{
    const cli_machine *m = cli_machine_get();
    char a[32], b[32];
    if (j) {
        json_begin(j, "cpu", '{');
        json_text(j, "model", m->cpu);
        json_text(j, "kernel", m->kernel);
        json_int(j, "online_cores", m->online);
        json_int(j, "allowed_cores", m->allowed);
        json_int(j, "threads", saker_thread_count());
        json_int(j, "memory_bytes", m->memory);
        json_int(j, "available_bytes", m->available);
        json_text(j, "huge_pages", m->huge_pages);
        json_begin(j, "caches", '[');
    } else {
        int threads = saker_thread_count();
        printf("cpu       %s, %d cores online, %d allowed; Saker uses %d thread%s%s\n", m->cpu, m->online, m->allowed,
               threads, threads == 1 ? "" : "s", threads < m->allowed ? " (the cgroup's quota or SAKER_THREADS)" : "");
        printf("system    %s; memory %s, %s available; huge pages: %s\n", m->kernel, cli_size(m->memory, a),
               cli_size(m->available, b), m->huge_pages);
    }
    for (int i = 0; i < m->n_caches; i++) {
        const cli_cache *c = &m->cache[i];
        if (j) {
            json_row(j, NULL);
            json_int(j, "level", c->level);
            json_text(j, "type", c->type);
            json_int(j, "bytes", c->bytes);
            json_text(j, "shared_by", c->shared);
            json_end(j, '}');
        } else {
            printf("cache     L%d %-12s %s (cores %s)\n", c->level, c->type, cli_size(c->bytes, a), c->shared);
        }
    }
    if (j) {
        json_end(j, ']');
        json_end(j, '}');
    } else if (!m->n_caches) {
        printf("cache     the kernel does not say\n");
    }
}

static void show_levels(json_out *j)
{
    if (j)
        json_begin(j, "levels", '[');
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info level = saker_level_at(i);
        if (j) {
            json_row(j, NULL);
            json_text(j, "name", level.name);
            json_bool(j, "usable", level.usable);
            json_text(j, "why_not", level.why_not);
            json_end(j, '}');
        } else {
            printf("level     %-11s %s%s\n", level.name,
                   level.usable ? "usable" : "no: ", level.usable ? "" : level.why_not);
        }
    }
    if (j)
        json_end(j, ']');
}

static void show_cuda(json_out *j)
{
    const char *why = "";
    int count = saker_cuda_count(&why);
    char memory[32], l2[32];
    if (j) {
        json_begin(j, "cuda", '{');
        json_text(j, "why_not", count ? "" : why);
        json_begin(j, "devices", '[');
    } else if (count == 0) {
        printf("cuda      none: %s\n", why);
    }
    for (int i = 0; i < count; i++) {
        saker_cuda_info d;
        if (saker_cuda_at(i, &d))
            continue;
        if (j) {
            json_row(j, NULL);
            json_text(j, "name", d.name);
            json_int(j, "compute_major", d.compute_major);
            json_int(j, "compute_minor", d.compute_minor);
            json_int(j, "multiprocessors", d.multiprocessors);
            json_int(j, "driver_version", d.driver_version);
            json_int(j, "memory_bytes", d.memory_bytes);
            json_int(j, "l2_bytes", d.l2_bytes);
            json_int(j, "shared_bytes", d.shared_bytes);
            json_bool(j, "has_image", d.has_image);
            json_end(j, '}');
        } else {
            printf(
                "cuda:%-4d %s, compute %d.%d, %d multiprocessors, %s memory, %s L2, driver %d.%d; kernels for it: %s\n",
                i, d.name, d.compute_major, d.compute_minor, d.multiprocessors, cli_size(d.memory_bytes, memory),
                cli_size(d.l2_bytes, l2), d.driver_version / 1000, d.driver_version % 1000 / 10,
                d.has_image ? "yes" : "NO");
        }
    }
    if (j) {
        json_end(j, ']');
        json_end(j, '}');
    }
}

static void show_environment(json_out *j)
{
    int n = 0;
    if (j)
        json_begin(j, "environment", '{');
    for (char **e = environ; *e; e++) {
        const char *equals = strchr(*e, '=');
        char name[64];
        if (!equals || (strncmp(*e, "SAKER_", 6) && strncmp(*e, "CUDA_VISIBLE_DEVICES=", 21)))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - *e), *e);
        if (j)
            json_text(j, name, equals + 1);
        else
            printf("%s %s\n", n ? "         " : "variable ", *e);
        n++;
    }
    if (j)
        json_end(j, '}');
}

/* About a second an op on one device. Returns the number of ops that failed. */
static int self_test(json_out *j, const char *device)
{
    cli_place place;
    cli_arena arena = {0};
    cli_target target = {.device = device};
    int failed = 0;
    if (cli_open(&target, &place) >= 0)
        return 1;
    for (int i = 0; i < suite_count(); i++) {
        check_options options = {.limit_seconds = 1};
        check_result r = cli_check_suite(&place, &arena, suite_at(i), &options);
        bool ok = r.run > 0 && r.failed == 0;
        failed += !ok;
        if (j) {
            json_row(j, NULL);
            json_text(j, "op", suite_at(i)->op);
            json_text(j, "device", place.device);
            json_text(j, "kernel", r.kernel);
            json_int(j, "cases", r.run);
            json_int(j, "failed", r.failed);
            json_number(j, "worst_error", r.worst);
            json_text(j, "wrong", r.first_wrong);
            json_end(j, '}');
        } else {
            printf("test      %-20s %-7s %s: %d cases, worst error %.3f of the bound, last kernel %s\n",
                   suite_at(i)->op, place.device, ok ? "ok" : "FAILED", r.run, r.worst, r.kernel);
            if (!ok)
                printf("          %s\n", r.run ? r.first_wrong : "no case ran");
        }
        fflush(stdout);
    }
    cli_arena_free(&place, &arena);
    cli_close(&place);
    return failed;
}

int cli_doctor(int argc, char **argv)
{
    bool json = false, no_test = false;
    const cli_option table[] = {
        {"--no-test", CLI_FLAG, &no_test, NULL, "leave the self-test out"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable output"},
    };
    int code = cli_parse(
        argc, argv, "doctor [options]",
        "Shows what this machine offers and what the library makes of it, then tests every operation for about a "
        "second\n"
        "on every device. Exit code 1: a test failed, or there is a GPU that this library has no kernels for.",
        table, sizeof table / sizeof table[0], NULL);
    if (code >= 0)
        return code;
    json_out out = {.file = stdout}, *j = json ? &out : NULL;
    if (j) {
        json_begin(j, NULL, '{');
        json_text(j, "version", saker_version());
        json_text(j, "build", saker_build_info());
        json_text(j, "compiler", cli_compiler());
        json_text(j, "commit", cli_commit());
    } else {
        printf("saker     %s, %s\nbuild     %s\n", saker_version(), cli_compiler(), saker_build_info());
    }
    show_cpu(j);
    show_levels(j);
    show_cuda(j);
    show_environment(j);
    int failed = 0, devices = saker_cuda_count(NULL);
    bool with_cuda = !strstr(saker_build_info(), "CUDA kernels: none"); /* a build for the CPU alone is no fault */
    if (j)
        json_begin(j, "tests", '[');
    if (!no_test)
        failed += self_test(j, "cpu");
    for (int i = 0; i < devices; i++) {
        saker_cuda_info d;
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", i);
        if (saker_cuda_at(i, &d) || !d.has_image)
            failed += with_cuda;
        else if (!no_test)
            failed += self_test(j, name);
    }
    if (j) {
        json_end(j, ']');
        json_bool(j, "healthy", failed == 0);
        json_end(j, '}');
    } else {
        printf("%s\n", failed ? "something is wrong, see above" : "all is well");
    }
    return failed ? CLI_FAILED : CLI_OK;
}
