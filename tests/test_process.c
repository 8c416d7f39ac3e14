/* test_process.c - the library in a real process: many threads, nested use, fork, signals, environment.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everywhere the question is the same: are the bits those of a quiet single-threaded run? */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "norm_call.h"
#include "pthread_for.h"

static norm_results *quiet; /* the answer */

static saker_context *create(int threads)
{
    saker_config c = {.struct_size = sizeof c, .threads = threads};
    saker_context *ctx = NULL;
    if (saker_context_create(&ctx, &c))
        printf("FAIL: %s\n", saker_context_error(NULL));
    return ctx;
}

/* One fresh run; 1 when it gives the quiet bits. */
static int same_bits(saker_context *ctx)
{
    norm_results *r = malloc(sizeof *r);
    int good = ctx && r && norm_run(ctx, r) == SAKER_OK && !memcmp(r, quiet, sizeof *r);
    free(r);
    return good;
}

/* ---------------------------------------------------------------- threads (C1, R1) */

enum { THREADS = 16, REPEATS = 60 };

static void *many_calls(void *arg)
{
    int threads = (int)(intptr_t)arg;
    saker_context *ctx = create(threads);
    intptr_t good = 0;
    for (int i = 0; i < REPEATS; i++)
        good += same_bits(ctx);
    saker_context_destroy(ctx);
    return (void *)good;
}

static void at_once(void)
{
    pthread_t t[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, many_calls, (void *)(i % 3));
    for (int i = 0; i < THREADS; i++) {
        void *good;
        pthread_join(t[i], &good);
        CHECK_TEXT((intptr_t)good == REPEATS, "thread %d: %d of %d runs have the right bits", i, (int)(intptr_t)good,
                   REPEATS);
    }
}

static void repeats(void)
{
    saker_context *ctx = create(0);
    int good = 0;
    for (int i = 0; i < 1000; i++)
        good += same_bits(ctx);
    CHECK_TEXT(good == 1000, "%d of 1000 repeats have the same bits", good);
    saker_context_destroy(ctx);
}

/* Workers round as their caller does. */
static void rounding(void)
{
    saker_context *one = create(1), *all = create(0);
    norm_results *r = malloc(2 * sizeof *r);
    int good = 0;
    fesetround(FE_UPWARD);
    CHECK(norm_run(one, &r[0]) == SAKER_OK);
    for (int i = 0; i < 50; i++)
        good += norm_run(all, &r[1]) == SAKER_OK && !memcmp(&r[0], &r[1], sizeof *r);
    fesetround(FE_TONEAREST);
    CHECK_TEXT(good == 50 && memcmp(&r[0], quiet, sizeof *r), "%d of 50 runs have the bits of rounding upwards", good);
    CHECK(same_bits(all));
    free(r);
    saker_context_destroy(one);
    saker_context_destroy(all);
}

/* Does the pool help at all? Processor time of the other threads while this one calls; sleeping workers have none. */
static double helpers_share(saker_context *ctx)
{
    struct rusage all[2], own[2];
    getrusage(RUSAGE_SELF, &all[0]);
    getrusage(RUSAGE_THREAD, &own[0]);
    for (int i = 0; i < 300; i++)
        same_bits(ctx);
    getrusage(RUSAGE_SELF, &all[1]);
    getrusage(RUSAGE_THREAD, &own[1]);
    double a = (double)(all[1].ru_utime.tv_sec - all[0].ru_utime.tv_sec) +
               (double)(all[1].ru_utime.tv_usec - all[0].ru_utime.tv_usec) * 1e-6;
    double o = (double)(own[1].ru_utime.tv_sec - own[0].ru_utime.tv_sec) +
               (double)(own[1].ru_utime.tv_usec - own[0].ru_utime.tv_usec) * 1e-6;
    return a > 0 ? (a - o) / a : 0;
}

static void pool_helps(const char *when)
{
    if (saker_thread_count() < 2) {
        CHECK_SKIP("only one core: the pool has no workers (%s)", when);
        return;
    }
    saker_context *ctx = create(0), *one = create(1);
    same_bits(ctx);
    double share = helpers_share(ctx), none = helpers_share(one);
    CHECK_TEXT(share > 0.05, "%s: the workers did %.1f%% of the work", when, 100 * share);
    CHECK_TEXT(none < 0.02 || none < share / 2, "%s: with one thread others did %.1f%%", when, 100 * none);
    saker_context_destroy(ctx);
    saker_context_destroy(one);
}

/* ---------------------------------------------------------------- the caller's own threads (C6) */

static void drop_for(void *user, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    ++*(int *)user;
    fn(arg, n - 1); /* only the last lane ever runs: the work must be done all the same */
}

static void nested_task(void *arg, int64_t i)
{
    saker_context *ctx = create(i % 2 ? 1 : 0);
    ((int *)arg)[i] = same_bits(ctx);
    saker_context_destroy(ctx);
}

static void own_threads(void)
{
    static const saker_parallel_for ways[] = {pthread_for, drop_for};
    for (int k = 0; k < 2; k++)
        for (int width = 2; width <= 16; width += 7) {
            int calls = 0;
            saker_config c = {
                .struct_size = sizeof c, .parallel_for = ways[k], .parallel_user = &calls, .parallel_width = width};
            saker_context *ctx = NULL;
            saker_context_create(&ctx, &c);
            int good = 0;
            for (int i = 0; i < 20; i++) /* lanes may come too late to meet each other */
                good += same_bits(ctx);
            CHECK_TEXT(good == 20 && calls >= 20, "parallel_for %d of width %d: %d of 20 runs, called %d times", k,
                       width, good, calls);
            saker_context_destroy(ctx);
        }
    int good[8] = {0}, calls = 0;
    pthread_for(&calls, 8, nested_task, good); /* calls from inside of somebody's parallel loop */
    for (int i = 0; i < 8; i++)
        CHECK_TEXT(good[i], "nested call %d", i);
}

/* ---------------------------------------------------------------- fork (C4) */

static int thread_count(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void forked(void)
{
    saker_context *ctx = create(0);
    CHECK(same_bits(ctx)); /* the pool is running */
    for (int depth = 0; depth < 5; depth++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            int good = same_bits(ctx); /* the parent's context */
            saker_context *own = create(0);
            good &= same_bits(own);
            good &= saker_thread_count() == 1 || thread_count() > 1; /* with workers of its own */
            pid_t grandchild = fork();                               /* after the child's own pool has started */
            if (grandchild == 0)
                _exit(same_bits(own) ? 0 : 1);
            int status = -1;
            waitpid(grandchild, &status, 0);
            exit(good && status == 0 ? 0 : 1); /* exit, not _exit: destructors must not hang */
        }
        int status = -1;
        waitpid(child, &status, 0);
        CHECK_TEXT(status == 0, "forked child %d ended with %d", depth, status);
        CHECK(same_bits(ctx));
    }
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- signals and cancellation (C7) */

static volatile sig_atomic_t ticks;
static void on_tick(int number)
{
    (void)number;
    ticks++;
}

/* What workers block: everything but faults of their own and a profiler's signal. */
static void blocked(void)
{
    static const struct {
        int number;
        bool blocked;
    } expected[] = {{SIGTERM, true}, {SIGINT, true},   {SIGALRM, true},  {SIGCHLD, true},
                    {SIGUSR1, true}, {SIGPROF, false}, {SIGSEGV, false}, {SIGBUS, false},
                    {SIGFPE, false}, {SIGILL, false},  {SIGSYS, false},  {SIGTRAP, false}};
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], line[256];
        unsigned long long mask = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = atoi(e->d_name) > 0 && atoi(e->d_name) != getpid() ? fopen(path, "r") : NULL;
        bool known = false;
        while (f && !known && fgets(line, sizeof line, f))
            known = sscanf(line, "SigBlk: %llx", &mask) == 1;
        if (f)
            fclose(f);
        for (size_t i = 0; known && i < sizeof expected / sizeof *expected; i++)
            CHECK_TEXT((mask >> (expected[i].number - 1) & 1) == expected[i].blocked, "a worker has signal %d %s",
                       expected[i].number, expected[i].blocked ? "open" : "blocked");
    }
    if (d)
        closedir(d);
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_tick}, before; /* no SA_RESTART: system calls see EINTR */
    struct itimerval fast = {{0, 200}, {0, 200}}, off = {{0, 0}, {0, 0}};
    saker_context *ctx = create(0);
    int good = 0;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &fast, NULL);
    for (int i = 0; i < 300; i++)
        good += same_bits(ctx);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &before, NULL);
    CHECK_TEXT(good == 300 && ticks > 0, "%d of 300 runs under %d signals", good, (int)ticks);
    blocked();
    saker_context_destroy(ctx);
}

/* Memory whose pages the program's own handler opens when they are touched, by a worker, too. */
static struct {
    char *at;
    size_t bytes, page;
    pthread_t caller;
    _Atomic int by_workers;
} closed;

static void open_page(int number, siginfo_t *info, void *state)
{
    (void)number, (void)state;
    size_t offset = (size_t)((char *)info->si_addr - closed.at);
    if (offset >= closed.bytes || mprotect(closed.at + offset / closed.page * closed.page, closed.page, PROT_READ))
        _exit(2);
    closed.by_workers += !pthread_equal(pthread_self(), closed.caller);
}

static int faulting_child(void)
{
    enum { ROWS = 2048, COLS = 1024 };
    struct sigaction action = {.sa_sigaction = open_page, .sa_flags = SA_SIGINFO};
    closed.bytes = sizeof(float) * ROWS * COLS;
    closed.page = (size_t)sysconf(_SC_PAGESIZE);
    closed.caller = pthread_self();
    closed.at = mmap(NULL, closed.bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *y = malloc(closed.bytes);
    saker_context *ctx = create(0);
    saker_tensor tx = SAKER_TENSOR(closed.at, SAKER_F32, ROWS, COLS), ty = SAKER_TENSOR(y, SAKER_F32, ROWS, COLS);
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < 100 && !closed.by_workers; i++) /* a worker may come too late to take anything */
        if (mprotect(closed.at, closed.bytes, PROT_NONE) ||
            saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &tx, .y = &ty)))
            return 3;
    return closed.by_workers ? 0 : 4;
}

static void faults(void)
{
    if (saker_thread_count() < 2) {
        CHECK_SKIP("only one core: no worker can fault");
        return;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(faulting_child());
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_TEXT(status == 0, "with the program's own handler of faults the child ended with %d", status);
}

static void *until_cancelled(void *arg)
{
    saker_context *ctx = arg;
    for (;;) {
        same_bits(ctx);
        pthread_testcancel();
    }
    return NULL;
}

static void cancelled(void)
{
    for (int i = 0; i < 10; i++) {
        pthread_t t;
        saker_context *ctx = create(0);
        pthread_create(&t, NULL, until_cancelled, ctx);
        usleep(3000);
        pthread_cancel(t);
        void *result;
        pthread_join(t, &result);
        saker_context_destroy(ctx);
        CHECK(result == PTHREAD_CANCELED);
    }
    saker_context *ctx = create(0); /* the pool is not left busy */
    CHECK(same_bits(ctx));
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- environment (I2), limits */

/* Runs this program again as "child", with one variable set; returns its standard output and error together. */
static int child(const char *variable, int cores, char *text, size_t size)
{
    int pipes[2];
    if (pipe(pipes))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        if (cores) {
            cpu_set_t set;
            sched_getaffinity(0, sizeof set, &set);
            for (int i = 0, kept = 0; i < CPU_SETSIZE; i++)
                if (CPU_ISSET(i, &set) && kept++ >= cores)
                    CPU_CLR(i, &set);
            sched_setaffinity(0, sizeof set, &set);
        }
        if (variable)
            putenv((char *)variable);
        execl("/proc/self/exe", "test_process", "child", (char *)NULL);
        _exit(99);
    }
    close(pipes[1]);
    size_t at = 0;
    for (ssize_t n; at + 1 < size && (n = read(pipes[0], text + at, size - at - 1)) != 0;)
        if (n > 0)
            at += (size_t)n;
        else if (errno != EINTR)
            break;
    text[at] = 0;
    close(pipes[0]);
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

/* Rows that begin lines: written past the caches where that is asked for. */
static int child_main(void)
{
    norm_fill();
    norm_results *r = aligned_alloc(64, (sizeof *r + 63) / 64 * 64);
    for (int i = 0; i < 3; i++) {
        saker_config c = {.struct_size = sizeof c}; /* a level of the config is a limit beside that of SAKER_ISA */
        c.isa = i == 2 ? saker_level_at(saker_level_count() - 1).name : NULL;
        saker_context *ctx = NULL;
        if (saker_context_create(&ctx, &c) || norm_run(ctx, r))
            return 1;
        uint64_t bits = 0;
        for (size_t k = 0; k < sizeof *r; k++)
            bits = (bits ^ ((unsigned char *)r)[k]) * 0x100000001b3;
        printf("kernel %s bits %016" PRIx64 " threads %d\n", saker_context_kernel(ctx), bits, saker_thread_count());
        saker_context_destroy(ctx);
    }
    free(r);
    return 0;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

static void environment(void)
{
    static const char *const nonsense[] = {
        "SAKER_ISA=pentium",  "SAKER_ISA=-1",       "SAKER_THREADS=many",
        "SAKER_THREADS=-3",   "SAKER_THREADS=0",    "SAKER_THREADS=2x",
        "SAKER_VERBOSE=loud", "SAKER_VERBOSE=-1",   "SAKER_THREADS=99999999999999999999x",
        "SAKER_PAST_BYTES=x", "SAKER_PAST_BYTES=-1"};
    char text[8192], past[8192];
    CHECK(child(NULL, 0, text, sizeof text) == 0 && count(text, "ignored") == 0 && count(text, "saker: ") == 0);
    CHECK_TEXT(child("SAKER_PAST_BYTES=1", 0, past, sizeof past) == 0 && !strcmp(text, past), "%s%s", text, past);
    CHECK_TEXT(child("SAKER_THREADS=100000", 0, past, sizeof past) == 0 && !strcmp(text, past), "%s%s", text, past);
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        int status = child(nonsense[i], 0, text, sizeof text);
        CHECK_TEXT(status == 0 && count(text, "ignored") == 1, "%s: status %d, output: %s", nonsense[i], status, text);
    }
    static const char *const empty[] = {"SAKER_ISA=", "SAKER_THREADS=", "SAKER_VERBOSE=", "SAKER_VERBOSE=0"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        CHECK_TEXT(child(empty[i], 0, text, sizeof text) == 0 && count(text, "saker: ") == 0, "%s: %s", empty[i], text);
    CHECK_TEXT(child("SAKER_ISA=scalar", 0, text, sizeof text) == 0 && count(text, "/scalar ") == 3, "%s", text);
    CHECK_TEXT(child("SAKER_THREADS=1", 0, text, sizeof text) == 0 && count(text, "threads 1\n") == 3, "%s", text);
    CHECK_TEXT(child(NULL, 1, text, sizeof text) == 0 && count(text, "threads 1\n") == 3, "one allowed core: %s", text);
    CHECK_TEXT(child("SAKER_VERBOSE=1", 0, text, sizeof text) == 0 && count(text, "saker: rms_norm/") == 3 &&
                   count(text, "saker: rms_norm_backward/") == 3,
               "%s", text);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "child"))
        return child_main();
    norm_fill();
    quiet = malloc(sizeof *quiet);
    saker_context *ctx = create(1);
    CHECK(norm_run(ctx, quiet) == SAKER_OK);
    saker_context_destroy(ctx);
    repeats();
    rounding();
    pool_helps("at first");
    at_once();
    own_threads();
    forked();
    signals();
    faults();
    cancelled();
    pool_helps("in the end");
    environment();
    free(quiet);
    return check_report("test_process");
}
