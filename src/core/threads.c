/* threads.c - see threads.h.
 * SPDX-License-Identifier: Apache-2.0
 *
 * How a job is published. `gate` counts the workers inside the job; its CLOSED bit says that there is none to enter.
 * The caller fills the job while the gate is closed and nobody is inside, opens it, bumps `generation` and wakes
 * sleepers. A worker enters by adding 1 to the gate and reads the job only if it was open. When the tasks have run out
 * the caller closes the gate and waits for the count to fall to 0: it never waits for a worker that did not wake up in
 * time. */
#define _GNU_SOURCE
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"

/* A compiler for musl finds no kernel headers on Debian; the numbers are the kernel's, for ever. */
#if __has_include(<linux/futex.h>)
#include <linux/futex.h>
#else
enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1, FUTEX_PRIVATE_FLAG = 128 };
#endif

enum { MAX_WORKERS = 511, CLOSED = 1 << 30 };

/* About 100 us of spinning before a worker sleeps: ISB takes 13 ns on a Neoverse V1 (YIELD is a no-op there), PAUSE
 * about 40. */
#if defined(__aarch64__)
enum { SPINS = 8000 };
static void relax(void)
{
    __asm__ volatile("isb" ::: "memory");
}
/* The caller's rounding and flush modes, so that a task gives the same bits on any thread. */
static uint64_t float_mode(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void set_float_mode(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
}
#elif defined(__x86_64__)
enum { SPINS = 2500 };
static void relax(void)
{
    __builtin_ia32_pause();
}
static uint64_t float_mode(void)
{
    return __builtin_ia32_stmxcsr();
}
static void set_float_mode(uint64_t mode)
{
    __builtin_ia32_ldmxcsr((unsigned)mode);
}
#else
#error "Saker runs on aarch64 and x86-64"
#endif

/* What the workers of one call share. */
typedef struct job {
    void (*fn)(void *arg, int64_t task, int worker);
    void *arg;
    int64_t n_tasks;
    _Atomic int64_t next;
} job;

/* Fields that different threads write live on lines of their own. */
static struct {
    _Alignas(128) _Atomic int busy; /* a caller owns the pool */
    _Alignas(128) _Atomic int gate;
    _Alignas(128) _Atomic uint32_t generation;
    _Alignas(128) _Atomic int sleepers;
    _Atomic bool stop;
    /* written by the owner while the gate is closed */
    _Alignas(128) job *job;
    int limit; /* workers with a number below this take part */
    uint64_t mode;
    int n_workers;
    bool hooked;
    pthread_t worker[MAX_WORKERS];
} pool = {.gate = CLOSED};

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, (void *)word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void take_tasks(job *j, int worker)
{
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (task >= j->n_tasks)
            return;
        j->fn(j->arg, task, worker);
    }
}

static void *worker_main(void *number)
{
    int id = (int)(intptr_t)number;
    uint32_t seen = 0; /* generation starts at 1, so a new worker looks for work at once */
    while (!atomic_load_explicit(&pool.stop, memory_order_acquire)) {
        uint32_t now = atomic_load_explicit(&pool.generation, memory_order_acquire);
        for (int i = 0; now == seen && i < SPINS; i++) {
            relax();
            now = atomic_load_explicit(&pool.generation, memory_order_acquire);
        }
        if (now == seen) {
            atomic_fetch_add(&pool.sleepers, 1);
            if (!atomic_load(&pool.stop))
                futex(&pool.generation, FUTEX_WAIT, seen);
            atomic_fetch_sub(&pool.sleepers, 1);
            continue;
        }
        seen = now;
        if (!(atomic_fetch_add_explicit(&pool.gate, 1, memory_order_acq_rel) & CLOSED) && id < pool.limit) {
            set_float_mode(pool.mode);
            take_tasks(pool.job, id + 1);
        }
        atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
    }
    return NULL;
}

/* In a forked child only the forking thread exists: forget the workers, whatever state they were in. */
static void after_fork(void)
{
    atomic_store(&pool.busy, 0);
    atomic_store(&pool.gate, CLOSED);
    atomic_store(&pool.sleepers, 0);
    pool.n_workers = 0;
}

/* The library may be unloaded while workers sleep in its code. */
__attribute__((destructor)) static void stop_workers(void)
{
    atomic_store(&pool.stop, true);
    atomic_fetch_add(&pool.generation, 1);
    futex(&pool.generation, FUTEX_WAKE, MAX_WORKERS);
    for (int i = 0; i < pool.n_workers; i++)
        pthread_join(pool.worker[i], NULL);
    pool.n_workers = 0;
}

/* What a worker leaves to the program's own threads: every signal but those of its own faults, which the kernel
 * would answer by ending the process without asking the program's handler, and a profiler's. */
static sigset_t blocked_signals(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&set, own[i]);
    return set;
}

/* Called by the owner of the pool. */
static void start_workers(int wanted)
{
    if (!pool.hooked) {
        pthread_atfork(NULL, NULL, after_fork);
        atomic_store(&pool.generation, 1);
        pool.hooked = true;
    }
    sigset_t blocked = blocked_signals(), before;
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    while (pool.n_workers < wanted) {
        int id = pool.n_workers;
        if (pthread_create(&pool.worker[id], NULL, worker_main, (void *)(intptr_t)id))
            break; /* fewer workers, the same result */
        pool.n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void run_on_pool(job *j, int helpers)
{
    if (pool.n_workers < helpers)
        start_workers(helpers);
    pool.job = j;
    pool.limit = helpers;
    pool.mode = float_mode();
    atomic_fetch_and_explicit(&pool.gate, ~CLOSED, memory_order_release);
    atomic_fetch_add(&pool.generation, 1);
    if (atomic_load(&pool.sleepers) > 0)
        futex(&pool.generation, FUTEX_WAKE, MAX_WORKERS);
    take_tasks(j, 0);
    atomic_fetch_or_explicit(&pool.gate, CLOSED, memory_order_acq_rel);
    for (int i = 0; atomic_load_explicit(&pool.gate, memory_order_acquire) != CLOSED; i++) {
        relax();
        if (i > SPINS)
            sched_yield(); /* a worker lost its core in the middle of a task */
    }
}

/* One lane of the caller's parallel_for: takes tasks until none is left. The lane number is the worker number. */
static void lane(void *arg, int64_t i)
{
    take_tasks(arg, (int)i);
}

void skr_parallel(const skr_threads *threads, int64_t n_tasks, void (*fn)(void *arg, int64_t task, int worker),
                  void *arg)
{
    job j = {.fn = fn, .arg = arg, .n_tasks = n_tasks};
    int64_t width = threads->width < n_tasks ? threads->width : n_tasks;
    int idle = 0;
    if (width > 1 && threads->parallel_for) {
        threads->parallel_for(threads->user, width, lane, &j);
    } else if (width > 1 && atomic_compare_exchange_strong_explicit(&pool.busy, &idle, 1, memory_order_acquire,
                                                                    memory_order_relaxed)) {
        run_on_pool(&j, width > MAX_WORKERS ? MAX_WORKERS : (int)width - 1);
        atomic_store_explicit(&pool.busy, 0, memory_order_release);
    }
    take_tasks(&j, 0); /* all of them when nobody helped; none otherwise, unless a parallel_for dropped lanes */
}

/* ---------------------------------------------------------------- how many */

/* The numbers that a small file begins with, at most n; how many there are. */
static int read_numbers(const char *directory, const char *name, int n, long long *out)
{
    char path[600];
    snprintf(path, sizeof path, "%.500s/%s", directory, name);
    FILE *f = fopen(path, "re");
    int found = 0;
    while (f && found < n && fscanf(f, "%lld", &out[found]) == 1)
        found++;
    if (f)
        fclose(f);
    return found;
}

/* floor(quota / period) of one cgroup directory, or a large number when it has no limit. cpu.max is version 2's. */
static int cgroup_limit(const char *directory)
{
    long long v[2]; /* quota, period */
    bool known =
        read_numbers(directory, "cpu.max", 2, v) == 2 || (read_numbers(directory, "cpu.cfs_quota_us", 1, &v[0]) == 1 &&
                                                          read_numbers(directory, "cpu.cfs_period_us", 1, &v[1]) == 1);
    if (!known || v[0] <= 0 || v[1] <= 0 || v[0] / v[1] > MAX_WORKERS)
        return MAX_WORKERS + 1;
    return v[0] < v[1] ? 1 : (int)(v[0] / v[1]);
}

/* The tightest limit of this process's cgroups and their ancestors. A line is "0::/path" (version 2) or
 * "4:cpu,cpuacct:/path" (version 1). In a container the path may be one of the host: what is not there limits nothing,
 * and its ancestors are looked at all the same. */
static int quota_limit(void)
{
    char line[512], path[600];
    int limit = MAX_WORKERS + 1;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return limit;
    while (fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        bool version2 = group == names + 1;
        *names = *group = ',';
        group[strcspn(group, "\n")] = 0;
        const char *cpu = strstr(names, ",cpu,");
        if (!version2 && (!cpu || cpu >= group))
            continue;
        const char *root = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
        snprintf(path, sizeof path, "%s%s", root, group + 1);
        for (;;) {
            int here = cgroup_limit(path);
            limit = here < limit ? here : limit;
            char *slash = strrchr(path, '/');
            if (!slash || strlen(path) <= strlen(root))
                break;
            *slash = 0;
        }
    }
    fclose(f);
    return limit;
}

static int count_allowed(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    int quota = quota_limit();
    n = n < quota ? n : quota;
    const char *text = getenv("SAKER_THREADS");
    if (text && *text) {
        char *end;
        long wanted = strtol(text, &end, 10);
        static _Atomic bool warned;
        if (*end || wanted < 1) {
            if (!atomic_exchange(&warned, true))
                skr_warn("SAKER_THREADS=%.40s is ignored: expected a number from 1", text);
        } else if (wanted < n)
            n = (int)wanted;
    }
    return n < 1 ? 1 : n > MAX_WORKERS + 1 ? MAX_WORKERS + 1 : n;
}

int skr_allowed_threads(void)
{
    static _Atomic int known; /* no lock: a child of fork() would wait for its holder forever */
    int n = atomic_load(&known);
    if (!n) {
        int counted = count_allowed();
        n = atomic_compare_exchange_strong(&known, &n, counted) ? counted : n; /* the first one's */
    }
    return n;
}

int32_t saker_thread_count(void)
{
    return skr_allowed_threads();
}
