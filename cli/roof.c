/* roof.c - `saker roof`: bytes a second per cache level and stream shape, operations a second per type.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

typedef struct roof {
    json_out *j;    /* NULL: text */
    double seconds; /* per figure */
} roof;

/* ---------------------------------------------------------------- bandwidth */

typedef struct shape {
    int reads, writes;
} shape;

typedef struct job {
    cli_probe probe;
    cli_place *place;
    cli_team *team;
    const saker_op_info *op;
} job;

static bool run_stream(void *arg)
{
    job *b = arg;
    return saker_call(b->place->ctx, b->op, &b->probe.args) == SAKER_OK;
}

static bool run_memcpy(void *arg)
{
    job *b = arg;
    cli_probe_memcpy(&b->probe, b->place, b->team);
    return true;
}

static const char *shape_name(shape s)
{
    return s.reads == 1 && s.writes == 1 ? "copy" : !s.writes ? "read" : !s.reads ? "write" : "";
}

static const char *bandwidth(roof *r, cli_place *place, cli_team *team, cli_arena *arena, const char *where, shape s,
                             int64_t bytes)
{
    job b = {.place = place, .team = team, .op = saker_op_find("stream")};
    const char *wrong = cli_probe_arena(place, team, arena, cli_probe_bytes(s.reads, s.writes, bytes));
    if (wrong)
        return wrong;
    cli_probe_bind(&b.probe, arena->memory, s.reads, s.writes, bytes);
    cli_contender c[2] = {{run_stream, &b, 0, {0}}, {run_memcpy, &b, 0, {0}}};
    bool copy = s.reads == 1 && s.writes == 1;
    cli_progress("roof %s %s %dx%d", place->device, where, s.reads, s.writes);
    wrong = cli_time(place, c, copy ? 2 : 1, r->seconds);
    if (wrong)
        return wrong;
    double ours = (double)b.probe.bytes / c[0].us.median * 1e-3, best = (double)b.probe.bytes / c[0].us.min * 1e-3;
    double other = copy ? (double)b.probe.bytes / c[1].us.median * 1e-3 : 0;
    char size[32];
    cli_progress_clear();
    if (r->j) {
        json_row(r->j, NULL);
        json_text(r->j, "device", place->device);
        json_text(r->j, "machine", place->machine);
        json_text(r->j, "where", where);
        json_int(r->j, "threads", place->threads);
        json_int(r->j, "reads", s.reads);
        json_int(r->j, "writes", s.writes);
        json_int(r->j, "bytes", b.probe.bytes);
        json_number(r->j, "gbps", ours);
        json_number(r->j, "best_gbps", best);
        if (copy)
            json_number(r->j, "memcpy_gbps", other);
        json_number(r->j, "roof_gbps", ours > other ? ours : other);
        json_text(r->j, "kernel", saker_context_kernel(place->ctx));
        json_end(r->j, '}');
    } else {
        printf("%-7s %2d thr  %-5s %9s  %dx%d %-6s %9.1f %9.1f", place->device, place->threads, where,
               cli_size(bytes, size), s.reads, s.writes, shape_name(s), ours, best);
        if (copy)
            printf(" %9.1f", other);
        printf("\n");
        fflush(stdout);
    }
    return NULL;
}

typedef struct size_class {
    const char *where;
    int64_t bytes;
} size_class;

/* Half of each cache, so that streams and what else lives there fit; main memory: eight times the last cache, at least
 * 256 MiB. */
static int cpu_sizes(size_class *out, int threads)
{
    static const char *const names[] = {"", "L1", "L2", "L3"};
    int n = 0;
    int64_t last = 0;
    for (int level = 1; level <= 3; level++) {
        int64_t bytes = cli_cache_bytes(level);
        if (!bytes)
            continue;
        last = bytes;
        /* L1 and L2 belong to one core; the share of the last level that a virtual machine really gets is often far
         * below the figure it reports. */
        out[n++] = (size_class){names[level], level < 3 ? bytes / 2 * threads : bytes / 8};
    }
    int64_t dram = 8 * last > (256 << 20) ? 8 * last : 256 << 20;
    int64_t most = cli_machine_get()->available / 4;
    out[n++] = (size_class){"DRAM", dram < most ? dram : most};
    return n;
}

static int cuda_sizes(size_class *out, const cli_place *place)
{
    out[0] = (size_class){"L2", place->cache / 3};
    out[1] = (size_class){"HBM", 256 << 20};
    out[2] = (size_class){"HBM", (int64_t)512 << 20};
    out[3] = (size_class){"HBM", (int64_t)2 << 30};
    return 4;
}

static int bandwidths(roof *r, const cli_target *target, const shape *shapes, int n_shapes, int64_t bytes)
{
    cli_place place;
    cli_arena arena = {0};
    int code = cli_open(target, &place);
    if (code >= 0)
        return code;
    cli_team *team = cli_team_create(place.cuda ? 1 : place.threads);
    size_class sizes[8];
    int n_sizes = place.cuda ? cuda_sizes(sizes, &place) : cpu_sizes(sizes, place.threads);
    if (bytes) {
        sizes[0] = (size_class){"given", bytes};
        n_sizes = 1;
    }
    const char *wrong = team ? NULL : "cannot start threads";
    for (int i = n_sizes - 1; i >= 0 && !wrong; i--) /* largest first: the arena is allocated once */
        for (int k = 0; k < n_shapes && !wrong; k++)
            wrong = bandwidth(r, &place, team, &arena, sizes[i].where, shapes[k], sizes[i].bytes);
    cli_team_destroy(team);
    if (wrong)
        code = cli_failed("%s", wrong);
    cli_arena_free(&place, &arena);
    cli_close(&place);
    return code;
}

/* ---------------------------------------------------------------- arithmetic */

typedef struct burst {
    const cli_peak *peak;
    int64_t iterations;
} burst;

static void burn(void *arg, int i, int n)
{
    const burst *b = arg;
    (void)i, (void)n;
    b->peak->run(b->iterations);
}

/* Best of many short bursts: what the core can do when nothing disturbs it. */
static double gops(const cli_peak *peak, cli_team *team, double seconds)
{
    enum { MIN_BURSTS = 7 }; /* however short the time is, as in cli_time */
    burst b = {peak, 1000};
    double best = 0, took = 0;
    while (took < 1e-3) {
        double start = cli_seconds();
        cli_team_run(team, burn, &b);
        took = cli_seconds() - start;
        if (took < 1e-3)
            b.iterations *= 2;
    }
    double end = cli_seconds() + seconds;
    for (int i = 0; i < MIN_BURSTS || cli_seconds() < end; i++) {
        double start = cli_seconds();
        cli_team_run(team, burn, &b);
        double rate = peak->ops * (double)b.iterations * cli_team_size(team) / (cli_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

static int peaks(roof *r)
{
    int threads = saker_thread_count();
    cli_team *one = cli_team_create(1), *all = cli_team_create(threads);
    if (!one || !all)
        return cli_failed("cannot start threads");
    if (r->j)
        json_begin(r->j, "peaks", '[');
    else
        printf("\n%-11s %-5s %-24s %12s %9d thr  (Gop/s, multiply and add counted)\n", "level", "type", "instruction",
               "1 thread", threads);
    for (int i = 0; i < cli_n_peaks; i++) {
        const cli_peak *p = &cli_peaks[i];
        if (!p->usable())
            continue;
        cli_progress("roof %s %s", p->type, p->instruction);
        double single = gops(p, one, r->seconds), many = gops(p, all, r->seconds);
        cli_progress_clear();
        if (r->j) {
            json_row(r->j, NULL);
            json_text(r->j, "level", p->level);
            json_text(r->j, "type", p->type);
            json_text(r->j, "instruction", p->instruction);
            json_number(r->j, "gops_1", single);
            json_number(r->j, "gops_all", many);
            json_int(r->j, "threads", threads);
            json_end(r->j, '}');
        } else {
            printf("%-11s %-5s %-24s %12.1f %13.1f\n", p->level, p->type, p->instruction, single, many);
            fflush(stdout);
        }
    }
    if (r->j)
        json_end(r->j, ']');
    cli_team_destroy(one);
    cli_team_destroy(all);
    return -1;
}

/* ---------------------------------------------------------------- the command */

int cli_roof(int argc, char **argv)
{
    cli_target target = {0};
    const char *streams = NULL;
    double mib = -1; /* not given */
    bool json = false, no_peaks = false;
    roof r = {.seconds = 0.3};
    const cli_option table[] = {
        {"--device", CLI_TEXT, &target.device, "cpu|cuda[:N]",
         "one device; without it the CPU and, where there is one, the first GPU"},
        {"--isa", CLI_TEXT, &target.isa, "LEVEL", "highest CPU level for the bandwidth kernels"},
        {"--threads", CLI_INT, &target.threads, "N", "CPU threads; without it all cores, and one"},
        {"--streams", CLI_TEXT, &streams, "RxW",
         "read and write streams, such as 2x1; without it read, write, copy, 2x1, 3x1, 2x2"},
        {"--size", CLI_FLOAT, &mib, "MiB", "total bytes; without it one size for each cache level and for memory"},
        {"--min-time", CLI_FLOAT, &r.seconds, "S", "seconds per figure (0.3)"},
        {"--no-peaks", CLI_FLAG, &no_peaks, NULL, "leave the arithmetic rates out"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable output"},
    };
    int code = cli_parse(
        argc, argv, "roof [options]",
        "Measures what bounds every kernel here: bandwidth of the op `stream` (median, and best), beside it memcpy on "
        "the same\n"
        "threads or the driver's copy, per cache level and mix of streams; and multiply-add rates out of registers.",
        table, sizeof table / sizeof table[0], NULL);
    if (code >= 0)
        return code;
    shape shapes[6] = {{1, 0}, {0, 1}, {1, 1}, {2, 1}, {3, 1}, {2, 2}};
    int n_shapes = 6;
    if (streams) {
        char end;
        if (sscanf(streams, "%dx%d%c", &shapes[0].reads, &shapes[0].writes, &end) != 2 || shapes[0].reads < 0 ||
            shapes[0].reads > 4 || shapes[0].writes < 0 || shapes[0].writes > 2 ||
            shapes[0].reads + shapes[0].writes == 0)
            return cli_usage("--streams: '%s' is not RxW with R up to 4 and W up to 2", streams);
        n_shapes = 1;
    }
    if (mib >= 0 && mib * 1048576 < 4096)
        return cli_usage("--size: at least 4 KiB");
    if (target.device && !strcmp(target.device, "best"))
        return cli_usage("--device: 'best' is not cpu, cuda or cuda:N");
    cli_place place; /* a target that cannot be opened is refused before anything is printed */
    if ((code = cli_open(&target, &place)) >= 0)
        return code;
    cli_close(&place);
    json_out j = {.file = stdout};
    if (json) {
        r.j = &j;
        json_begin(&j, NULL, '{');
        json_text(&j, "machine", cli_machine_get()->cpu);
        json_text(&j, "compiler", cli_compiler());
        json_text(&j, "commit", cli_commit());
        json_text(&j, "date", cli_date());
        json_text(&j, "version", saker_version());
        json_begin(&j, "bandwidth", '[');
    } else {
        printf("%-7s %6s  %-5s %9s  %-10s %9s %9s %9s   (GB/s, bytes read plus bytes written)\n", "device", "", "where",
               "total", "streams", "median", "best", "memcpy");
    }
    int64_t bytes = mib < 0 ? 0 : (int64_t)(mib * 1048576);
    bool on_cpu = !target.device || !strcmp(target.device, "cpu"),
         single_too = on_cpu && !target.threads && saker_thread_count() > 1;
    if (single_too) {
        cli_target one = target;
        one.threads = 1;
        code = bandwidths(&r, &one, shapes, n_shapes, bytes);
    }
    if (code < 0)
        code = bandwidths(&r, &target, shapes, n_shapes, bytes);
    saker_cuda_info info;
    if (code < 0 && !target.device && saker_cuda_count(NULL) > 0 && saker_cuda_at(0, &info) == SAKER_OK &&
        info.has_image) {
        cli_target gpu = {.device = "cuda:0"};
        code = bandwidths(&r, &gpu, shapes, n_shapes, bytes);
    }
    if (json)
        json_end(&j, ']');
    if (code < 0 && on_cpu && !no_peaks)
        code = peaks(&r);
    if (json)
        json_end(&j, '}');
    return code < 0 ? CLI_OK : code;
}
