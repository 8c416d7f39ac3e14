/* measure.c - one case of a suite becomes one row: error of a few rows, time, and the probe's time in turn with it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

int bench_open(bench_state *b, const cli_target *target)
{
    int code = cli_open(target, &b->place);
    if (code >= 0)
        return code;
    if (!b->place.cuda) {
        cli_target single = {.device = "cpu", .isa = target->isa, .threads = 1};
        code = cli_open(&single, &b->one);
        if (code >= 0)
            return code;
    }
    b->team = cli_team_create(b->place.cuda ? 1 : b->place.threads);
    b->single = cli_team_create(1);
    return b->team && b->single ? -1 : cli_failed("cannot start threads");
}

void bench_close(bench_state *b)
{
    if (b->place.ctx) {
        cli_arena_free(&b->place, &b->tensors);
        cli_arena_free(&b->place, &b->streams);
        cli_close(&b->place);
    }
    if (b->one.ctx) {
        cli_arena_free(&b->one, &b->tensors_one);
        cli_arena_free(&b->one, &b->streams_one);
        cli_close(&b->one);
    }
    cli_team_destroy(b->team);
    cli_team_destroy(b->single);
}

/* ---------------------------------------------------------------- contenders
 *
 * On CUDA, data that would stay in the L2 cache is rotated: several copies of all tensors are used in turn, so that one
 * round is three times the cache. On the CPU cases are larger than the caches, or meant to be inside them. */

enum { MAX_SETS = 16 };

static int sets_for(const cli_place *place, double bytes)
{
    double n = place->cuda && bytes > 0 ? 3.0 * (double)place->cache / bytes + 1 : 1;
    return n < 1 ? 1 : n > MAX_SETS ? MAX_SETS : (int)n;
}

typedef struct rotation {
    cli_case k[MAX_SETS];
    cli_probe probe[MAX_SETS], copy[MAX_SETS]; /* as many streams as the case has; a plain copy */
    cli_place *place;
    cli_team *team;
    const saker_op_info *stream;
    int n, at_case, at_probe, at_copy;
} rotation;

static bool call_case(void *arg)
{
    rotation *r = arg;
    cli_case *k = &r->k[r->at_case++ % r->n];
    return saker_call(r->place->ctx, k->op, k->args) == SAKER_OK;
}

static bool call_probe(void *arg)
{
    rotation *r = arg;
    return saker_call(r->place->ctx, r->stream, &r->probe[r->at_probe++ % r->n].args) == SAKER_OK;
}

static bool call_copy(void *arg)
{
    rotation *r = arg;
    return saker_call(r->place->ctx, r->stream, &r->copy[r->at_copy++ % r->n].args) == SAKER_OK;
}

static bool call_memcpy(void *arg)
{
    rotation *r = arg;
    cli_probe_memcpy(&r->copy[0], r->place, r->team);
    return true;
}

/* Emptied caches: the library times each call by itself, with the device's own clock. */
static const char *time_flushed(bench_state *b, cli_place *place, const char *op, const void *args, cli_stats *us)
{
    enum { MOST = 256 };
    double value[MOST];
    int n = 0;
    for (double end = cli_seconds() + b->min_seconds; n < 8 || (n < MOST && cli_seconds() < end); n += 4)
        if (saker_measure(place->ctx, op, args, 4, b->flush_bytes, value + n))
            return saker_context_error(place->ctx);
    *us = cli_stats_of(value, n);
    return NULL;
}

/* ---------------------------------------------------------------- the row */

static void set_probe(bench_row *row, const char *name, double gbps)
{
    if (!(gbps > row->probe_gbps))
        return;
    snprintf(row->probe, sizeof row->probe, "%s", name);
    row->probe_gbps = gbps;
}

static const char *bind_probes(rotation *r, cli_arena *arena, int reads, int writes, int64_t bytes)
{
    size_t room = cli_probe_bytes(reads, writes, bytes), copy_room = cli_probe_bytes(1, 1, bytes);
    if (room < copy_room)
        room = copy_room;
    const char *wrong = cli_probe_arena(r->place, r->team, arena, room * (size_t)r->n);
    for (int i = 0; i < r->n && !wrong; i++) { /* both use the same memory, one after the other */
        cli_probe_bind(&r->probe[i], (char *)arena->memory + room * (size_t)i, reads, writes, bytes);
        cli_probe_bind(&r->copy[i], (char *)arena->memory + room * (size_t)i, 1, 1, bytes);
    }
    return wrong;
}

static double rate(const cli_probe *p, const cli_contender *c)
{
    return (double)p->bytes / c->us.median * 1e-3;
}

static const char *time_all(bench_state *b, rotation *r, cli_arena *streams, bench_row *row)
{
    int reads = row->in_cache ? 1 : row->reads, writes = row->in_cache ? 1 : row->writes;
    const char *wrong = NULL;
    bool probe = r->stream && reads + writes > 0 && reads <= 4 && writes <= 2 && row->bytes >= 64.0 * (reads + writes);
    if (probe)
        wrong = bind_probes(r, streams, reads, writes, (int64_t)row->bytes);
    if (wrong)
        return wrong;
    enum { CASE, PROBE, COPY, MEMCPY };
    cli_contender c[CLI_MAX_CONTENDERS] = {
        {call_case, r, 0, {0}}, {call_probe, r, 0, {0}}, {call_copy, r, 0, {0}}, {call_memcpy, r, 0, {0}}};
    if (b->flush_bytes) {
        wrong = time_flushed(b, r->place, row->op, r->k[0].args, &c[CASE].us);
        if (!wrong && probe)
            wrong = time_flushed(b, r->place, "stream", &r->probe[0].args, &c[PROBE].us);
        if (!wrong && probe)
            wrong = time_flushed(b, r->place, "stream", &r->copy[0].args, &c[COPY].us);
    } else { /* the driver's own copy waits each time, so it is not among the contenders: `saker roof` has it */
        wrong = cli_time(r->place, c, !probe ? 1 : r->place->cuda ? 3 : 4, b->min_seconds);
    }
    if (wrong)
        return wrong;
    row->us = c[CASE].us;
    row->gbps = row->bytes / row->us.median * 1e-3;
    row->gflops = row->flops / row->us.median * 1e-3;
    if (probe) {
        char name[16];
        bool copy = reads == 1 && writes == 1;
        row->copy_gbps = rate(&r->copy[0], &c[COPY]);
        if (c[MEMCPY].us.n && rate(&r->copy[0], &c[MEMCPY]) > row->copy_gbps)
            row->copy_gbps = rate(&r->copy[0], &c[MEMCPY]);
        snprintf(name, sizeof name, "stream %dx%d", reads, writes);
        set_probe(row, name, rate(&r->probe[0], &c[PROBE]));
        if (copy && c[MEMCPY].us.n)
            set_probe(row, "memcpy", rate(&r->copy[0], &c[MEMCPY]));
        if (copy)
            set_probe(row, name, rate(&r->copy[0], &c[COPY]));
    }
    row->roof_fraction = row->probe_gbps > 0 ? row->gbps / row->probe_gbps : NAN;
    return NULL;
}

static const char *run_case(bench_state *b, rotation *r, const suite *s, const suite_case *c, bench_row *row)
{
    cli_arena *tensors = row->in_cache ? &b->tensors_one : &b->tensors,
              *streams = row->in_cache ? &b->streams_one : &b->streams;
    size_t room = cli_case_bytes(c);
    r->n = b->flush_bytes ? 1 : sets_for(r->place, (double)room);
    if ((double)r->n * ((double)room + c->bytes) > (double)r->place->memory)
        return "it needs more memory than there is";
    const char *wrong = cli_arena_need(r->place, tensors, room * (size_t)r->n);
    for (int i = r->n - 1; i >= 0 && !wrong; i--) {
        wrong = cli_case_bind(&r->k[i], r->place, (char *)tensors->memory + room * (size_t)i, s, c);
        if (!wrong)
            wrong = cli_case_fill(&r->k[i], r->team);
    }
    if (!wrong)
        wrong = cli_case_check_rows(&r->k[0], &row->max_error, row->where);
    if (!wrong)
        snprintf(row->kernel, sizeof row->kernel, "%s", saker_context_kernel(r->place->ctx));
    if (!wrong)
        wrong = time_all(b, r, streams, row);
    saker_context_check(r->place->ctx); /* a case may hold indices that are out of range: not the next one's business */
    return wrong;
}

const char *bench_case(bench_state *b, const suite *s, const suite_case *c, bench_row *row)
{
    memset(row, 0, sizeof *row);
    row->in_cache = !b->place.cuda && (b->force_cache || (c->use & SUITE_CACHE));
    cli_place *place = row->in_cache ? &b->one : &b->place;
    snprintf(row->op, sizeof row->op, "%s", s->op);
    snprintf(row->name, sizeof row->name, "%s", c->name);
    snprintf(row->dtype, sizeof row->dtype, "%s", cli_case_type(c));
    snprintf(row->device, sizeof row->device, "%s", place->device);
    snprintf(row->machine, sizeof row->machine, "%s", place->machine);
    row->threads = place->threads;
    row->bytes = c->bytes;
    row->flops = c->flops;
    row->reads = c->reads;
    row->writes = c->writes;
    row->width = c->n_tensors && c->tensor[0].ndim ? c->tensor[0].shape[c->tensor[0].ndim - 1] : 0;
    rotation *r = calloc(1, sizeof *r);
    if (!r)
        return "out of memory";
    r->place = place;
    r->team = row->in_cache ? b->single : b->team;
    r->stream = saker_op_find("stream");
    const char *wrong = run_case(b, r, s, c, row);
    free(r);
    return wrong;
}

/* ---------------------------------------------------------------- showing it */

void bench_json(json_out *j, const bench_row *row)
{
    json_row(j, NULL);
    json_text(j, "op", row->op);
    json_text(j, "case", row->name);
    json_text(j, "dtype", row->dtype);
    json_text(j, "device", row->device);
    json_text(j, "kernel", row->kernel);
    json_number(j, "median_us", row->us.median);
    json_number(j, "gbps", row->gbps);
    json_number(j, "gflops", row->gflops);
    json_number(j, "roof_fraction", row->roof_fraction);
    json_number(j, "max_error", row->max_error);
    json_number(j, "min_us", row->us.min);
    json_number(j, "p20_us", row->us.p20);
    json_number(j, "p80_us", row->us.p80);
    json_int(j, "timings", row->us.n);
    json_int(j, "threads", row->threads);
    json_bool(j, "in_cache", row->in_cache);
    json_int(j, "width", row->width);
    json_int(j, "bytes", (int64_t)row->bytes);
    json_int(j, "reads", row->reads);
    json_int(j, "writes", row->writes);
    json_text(j, "probe", row->probe[0] ? row->probe : NULL);
    json_number(j, "probe_gbps", row->probe_gbps);
    json_number(j, "copy_gbps", row->copy_gbps);
    json_text(j, "machine", row->machine);
    json_text(j, "compiler", cli_compiler());
    json_text(j, "commit", cli_commit());
    json_text(j, "date", cli_date());
    json_text(j, "version", saker_version());
    json_end(j, '}');
}

void bench_table_head(void)
{
    printf("%-18s %-34s %-6s %3s %11s %6s %8s %8s %7s %7s  %s\n", "op", "case", "device", "thr", "time us", "+-%",
           "GB/s", "roof", "of roof", "error", "kernel");
}

/* A figure in a column, or a dash where there is none. */
static void column(const char *format, int width, double value)
{
    char text[32] = "-";
    if (!isnan(value))
        snprintf(text, sizeof text, format, value);
    printf(" %*s", width, text);
}

void bench_table_row(const bench_row *row)
{
    cli_progress_clear();
    printf("%-18s %-34s %-6s %3d", row->op, row->name, row->device, row->threads);
    column("%.2f", 11, row->us.median);
    column("%.1f", 6, row->us.median > 0 ? 50 * (row->us.p80 - row->us.p20) / row->us.median : NAN);
    column("%.1f", 8, row->gbps);
    column("%.1f", 8, row->probe_gbps > 0 ? row->probe_gbps : NAN);
    column("%.0f%%", 7, 100 * row->roof_fraction);
    column("%.3f", 7, row->max_error);
    printf("  %s\n", row->kernel);
    fflush(stdout);
}
