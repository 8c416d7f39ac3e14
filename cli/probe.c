/* probe.c - the bandwidth probe that everything is measured against, and interleaved timing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ALIGN = 4096 };

static int64_t per_stream(int reads, int writes, int64_t bytes)
{
    return bytes / (reads + writes) / 64 * 64;
}

static size_t room_of(int64_t stream_bytes)
{
    return ((size_t)stream_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t cli_probe_bytes(int reads, int writes, int64_t bytes)
{
    return (size_t)(reads + writes) * room_of(per_stream(reads, writes, bytes)) + 2 * ALIGN;
}

const char *cli_probe_arena(cli_place *place, cli_team *team, cli_arena *arena, size_t bytes)
{
    enum { TILE = 1 << 20 };
    const char *wrong = cli_arena_need(place, arena, bytes);
    if (wrong || !arena->fresh)
        return wrong;
    uint64_t *tile = malloc(TILE), x = 88172645463325252u;
    if (!tile)
        return "out of memory";
    for (size_t i = 0; i < TILE / 8; i++) { /* xorshift */
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        tile[i] = x;
    }
    wrong = cli_tile(place, team, arena->memory, arena->bytes, tile, TILE);
    free(tile);
    return wrong;
}

void cli_probe_bind(cli_probe *p, void *memory, int reads, int writes, int64_t bytes)
{
    memset(p, 0, sizeof *p);
    p->reads = reads;
    p->writes = writes;
    p->stream_bytes = per_stream(reads, writes, bytes);
    p->bytes = p->stream_bytes * (reads + writes);
    char *at = memory;
    at += ALIGN - (uintptr_t)at % ALIGN;
    const saker_tensor **field[] = {&p->args.x0, &p->args.x1, &p->args.x2, &p->args.x3, &p->args.y0, &p->args.y1};
    p->args.struct_size = sizeof p->args;
    p->shape[0] = p->stream_bytes;
    p->one[0] = 1;
    for (int i = 0; i < reads + writes; i++) {
        int f = i < reads ? i : 4 + i - reads;
        p->tensor[f] = saker_tensor_of(at, SAKER_U8, 1, p->shape, NULL);
        *field[f] = &p->tensor[f];
        at += room_of(p->stream_bytes);
    }
    if (!writes) { /* what is only read must still leave a trace */
        p->tensor[6] = saker_tensor_of(at, SAKER_I64, 1, p->one, NULL);
        p->args.checksum = &p->tensor[6];
    }
}

static void copy_part(void *arg, int i, int n)
{
    const cli_probe *p = arg;
    int64_t part = (p->stream_bytes / n + 63) / 64 * 64, from = part * i, to = from + part;
    if (to > p->stream_bytes)
        to = p->stream_bytes;
    if (from < to)
        memcpy((char *)p->tensor[4].data + from, (char *)p->tensor[0].data + from, (size_t)(to - from));
}

void cli_probe_memcpy(cli_probe *p, cli_place *place, cli_team *team)
{
    if (place->cuda)
        saker_memory_copy(place->ctx, p->tensor[4].data, p->tensor[0].data, (size_t)p->stream_bytes);
    else
        cli_team_run(team, copy_part, p);
}

/* ---------------------------------------------------------------- timing */

/* Microseconds a call over `calls` calls. */
static const char *once(cli_place *place, cli_contender *c, int calls, double *us)
{
    double start = cli_seconds();
    for (int i = 0; i < calls; i++)
        if (!c->run(c->arg))
            return saker_context_error(place->ctx);
    if (place->cuda && saker_context_sync(place->ctx))
        return saker_context_error(place->ctx);
    *us = (cli_seconds() - start) * 1e6 / calls;
    return NULL;
}

const char *cli_time(cli_place *place, cli_contender *c, int n, double min_seconds)
{
    /* A CPU timing lasts 0.3 ms or more: the clock costs well below a thousandth of that. A CUDA timing lasts 5 ms or
     * more, so that the start of the queue and the wait at its end (some 10 us) are below half a percent; 512 calls
     * stay below the driver's queue. */
    enum { MIN_ROUNDS = 7, MAX_ROUNDS = 2000 };
    const double least_us = place->cuda ? 5000 : 300;
    const int most_calls = place->cuda ? 512 : 1 << 20;
    double *us[CLI_MAX_CONTENDERS] = {0};
    const char *wrong = NULL;
    for (int k = 0; k < n; k++)
        if (!(us[k] = malloc(MAX_ROUNDS * sizeof(double))))
            wrong = "out of memory";
    for (int k = 0; k < n && !wrong; k++) {
        double t = 0;
        wrong = once(place, &c[k], 1, &t); /* warms up */
        for (int calls = 1; !wrong && !c[k].calls; calls *= 4) {
            wrong = once(place, &c[k], calls, &t);
            if (t * calls >= least_us / 4 || calls >= most_calls / 4) {
                double want = least_us / (t > 1e-3 ? t : 1e-3) + 1;
                c[k].calls = want < most_calls ? (int)want : most_calls;
            }
        }
    }
    int rounds = 0;
    for (double end = cli_seconds() + min_seconds; !wrong && rounds < MAX_ROUNDS; rounds++) {
        if (rounds >= MIN_ROUNDS && cli_seconds() >= end)
            break;
        for (int k = 0; k < n && !wrong; k++)
            wrong = once(place, &c[k], c[k].calls, &us[k][rounds]);
    }
    for (int k = 0; k < n; k++) {
        if (!wrong)
            c[k].us = cli_stats_of(us[k], rounds);
        free(us[k]);
    }
    return wrong;
}
