/* cli.h - what the files of the `saker` command share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The command knows saker.h and the test side's suites (cases and oracles), nothing inside the library. */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "saker.h"

/* Exit codes: everything is fine; something failed or is wrong with this machine; the command line makes no sense. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* ---------------------------------------------------------------- subcommands (main.c holds the list) */

int cli_doctor(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_roof(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_demo(int argc, char **argv);

/* ---------------------------------------------------------------- options (options.c) */

typedef enum cli_kind { CLI_FLAG, CLI_INT, CLI_FLOAT, CLI_TEXT } cli_kind;

typedef struct cli_option {
    const char *name; /* "--device" */
    cli_kind kind;
    void *value;     /* bool *, int *, double *, const char ** */
    const char *arg; /* what --help calls the value, NULL for flags */
    const char *help;
} cli_option;

/* Parses argv[1..]; options may stand anywhere. Words that are no options are moved to argv[1..] and counted in *words
 * (NULL: refused). Returns -1 to go on, or an exit code: CLI_OK after --help, CLI_USAGE after a complaint on standard
 * error. */
int cli_parse(int argc, char **argv, const char *usage, const char *text, const cli_option *options, int n_options,
              int *words);
/* "saker: sentence" on standard error; returns CLI_USAGE / CLI_FAILED. */
__attribute__((format(printf, 1, 2))) int cli_usage(const char *format, ...);
__attribute__((format(printf, 1, 2))) int cli_failed(const char *format, ...);

/* Where to run, as given by --device, --isa, --threads, --nondeterministic. */
typedef struct cli_target {
    const char *device; /* "cpu", "cuda", "cuda:1" or "best"; NULL: cpu */
    const char *isa;
    int threads;
    bool nondeterministic;
} cli_target;
#define CLI_TARGET_OPTIONS(t)                                                                                          \
    {"--device", CLI_TEXT, &(t).device, "cpu|cuda[:N]|best", "where to run"},                                          \
        {"--isa", CLI_TEXT, &(t).isa, "LEVEL", "highest CPU instruction-set level (see `saker doctor`)"},              \
        {"--threads", CLI_INT, &(t).threads, "N", "CPU threads; 0: all cores this process may use"},                   \
    {                                                                                                                  \
        "--nondeterministic", CLI_FLAG, &(t).nondeterministic, NULL,                                                   \
            "allow faster kernels that give other bits from run to run"                                                \
    }

typedef struct cli_place {
    saker_context *ctx;
    bool cuda;
    int threads;       /* CPU threads in use; 0 on CUDA */
    char device[16];   /* "cpu", "cuda:0" */
    char machine[160]; /* CPU model or GPU name */
    int64_t memory;    /* bytes that may be used for tensors */
    int64_t cache;     /* last-level cache bytes (CUDA: L2) */
} cli_place;
/* Returns -1 and an open place, or an exit code after a complaint. */
int cli_open(const cli_target *target, cli_place *place);
void cli_close(cli_place *place);

/* ---------------------------------------------------------------- progress on standard error (progress.c) */

/* A line that rewrites itself on a terminal; otherwise a plain line, at most one every few seconds. */
__attribute__((format(printf, 1, 2))) void cli_progress(const char *format, ...);
void cli_progress_clear(void);
double cli_seconds(void); /* monotonic clock */

/* ---------------------------------------------------------------- the machine (machine.c) */

typedef struct cli_cache {
    int level;
    char type[16];
    int64_t bytes;
    char shared[48]; /* cores that share it, as the kernel writes it */
} cli_cache;

typedef struct cli_machine {
    char cpu[160];
    char kernel[160];
    char huge_pages[32]; /* always, madvise, never */
    int n_caches;
    cli_cache cache[8];
    int online, allowed; /* cores */
    int64_t memory, available;
} cli_machine;
const cli_machine *cli_machine_get(void);
/* Bytes of the data or unified cache of a level, 0 if there is none. */
int64_t cli_cache_bytes(int level);
const char *cli_commit(void);
const char *cli_compiler(void);
const char *cli_date(void); /* UTC, 2025-01-31T12:34:56Z, of the first call */
/* "256 KiB" in a buffer of 32 bytes. */
const char *cli_size(int64_t bytes, char *text);

/* ---------------------------------------------------------------- threads of our own (team.c), for memcpy and the peak
 * rates */

typedef struct cli_team cli_team;
cli_team *cli_team_create(int n); /* NULL: out of memory or threads */
void cli_team_destroy(cli_team *team);
int cli_team_size(const cli_team *team);
void cli_team_run(cli_team *team, void (*fn)(void *arg, int i, int n), void *arg);

/* ---------------------------------------------------------------- register-only arithmetic (peak_<architecture>.c) */

typedef struct cli_peak {
    const char *level, *type, *instruction;
    double ops; /* multiplies and adds in one iteration */
    void (*run)(int64_t iterations);
    bool (*usable)(void);
} cli_peak;
extern const cli_peak cli_peaks[];
extern const int cli_n_peaks;
/* Whether the library can use this level here. */
bool cli_level_usable(const char *level);

/* ---------------------------------------------------------------- statistics of repeated timings (stats.c) */

typedef struct cli_stats {
    int n;
    double min, p20, median, p80;
} cli_stats;
/* Sorts the values. */
cli_stats cli_stats_of(double *values, int n);

#endif
