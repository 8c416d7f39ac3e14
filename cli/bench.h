/* bench.h - timing a case beside a bandwidth probe of the same shape, and the row that comes of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cases.h"
#include "json.h"

/* ---------------------------------------------------------------- the probe (probe.c) */

/* The op `stream` with so many read and write streams and so many bytes in all. */
typedef struct cli_probe {
    int reads, writes;
    int64_t bytes; /* in all, as moved: rounded down to whole streams */
    int64_t stream_bytes;
    int64_t shape[1], one[1];
    saker_tensor tensor[7];
    saker_stream_args args;
} cli_probe;
size_t cli_probe_bytes(int reads, int writes, int64_t bytes);
/* Lays the streams out in memory of cli_probe_bytes. */
void cli_probe_bind(cli_probe *p, void *memory, int reads, int writes, int64_t bytes);
/* Grows the arena, with random contents. NULL, or what went wrong. */
const char *cli_probe_arena(cli_place *place, cli_team *team, cli_arena *arena, size_t bytes);
/* The same copy by memcpy on the whole team (CPU) or by the driver (CUDA); needs one read and one write stream. Waits.
 */
void cli_probe_memcpy(cli_probe *p, cli_place *place, cli_team *team);

/* ---------------------------------------------------------------- timing */

/* Something that can be timed: call it n times. False: it failed, the context has the sentence. */
typedef struct cli_contender {
    bool (*run)(void *arg);
    void *arg;
    int calls;    /* per timing; 0: found by the first round */
    cli_stats us; /* microseconds a call */
} cli_contender;
enum { CLI_MAX_CONTENDERS = 4 };
/* Times all in turn, round after round, until min_seconds have passed. A timing lasts long enough for the clock; on
 * CUDA its calls are queued back to back and waited for once. */
const char *cli_time(cli_place *place, cli_contender *c, int n, double min_seconds);

/* ---------------------------------------------------------------- rows */

typedef struct bench_row {
    char op[40], name[SUITE_NAME], dtype[8], device[16], kernel[160], machine[160];
    int threads; /* 0 on CUDA */
    bool in_cache;
    int64_t width; /* last dimension of the first tensor */
    double bytes, flops;
    int reads, writes;
    cli_stats us;
    double gbps, gflops;
    char probe[16]; /* what was fastest: "stream 2x1", "memcpy" */
    double probe_gbps, roof_fraction, max_error;
    double copy_gbps; /* of a plain copy of as many bytes, timed in turn too */
    char where[96];
} bench_row;

typedef struct bench_state {
    cli_place place, one; /* one: the same with a single thread, for cases in cache (CPU) */
    cli_team *team, *single;
    cli_arena tensors, streams, tensors_one, streams_one;
    double min_seconds;
    size_t flush_bytes; /* > 0: caches are emptied before each call */
    bool force_cache;
} bench_state;

int bench_open(bench_state *b, const cli_target *target); /* -1, or an exit code */
void bench_close(bench_state *b);
/* NULL, or why there is no row. */
const char *bench_case(bench_state *b, const suite *s, const suite_case *c, bench_row *row);
void bench_json(json_out *j, const bench_row *row);
void bench_table_head(void);
void bench_table_row(const bench_row *row);
/* The host's cost of one call; adds rows through emit. Returns an exit code. */
int bench_overhead(const cli_target *target, void (*emit)(void *arg, const bench_row *row), void *arg);

/* ---------------------------------------------------------------- comparison with an older file (baseline.c) */

/* Prints one verdict a row and a summary; returns CLI_FAILED when something became slower by more than the noise. */
int bench_compare(const json_value *old, const bench_row *rows, int n, FILE *out);

#endif
