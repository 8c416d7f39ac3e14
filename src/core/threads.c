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

#include <linux/futex.h>
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

/* Called by the owner of the pool. Signals stay with the program's own threads. */
static void start_workers(int wanted)
{
    if (!pool.hooked) {
        pthread_atfork(NULL, NULL, after_fork);
        atomic_store(&pool.generation, 1);
        pool.hooked = true;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
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

/* floor(quota / period) of one cgroup directory, or a large number when it has no limit. */
static int cgroup_limit(const char *directory)
{
    char path[600];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%.500s/cpu.max", directory);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2)
            quota = -1;
        fclose(f);
    }
    if (quota <= 0 || period <= 0)
        return MAX_WORKERS + 1;
    return quota < period ? 1 : (int)(quota / period);
}

/* The tightest limit of this process's cgroup and its ancestors (cgroup v2). */
static int quota_limit(void)
{
    char line[512], path[600];
    int limit = MAX_WORKERS + 1;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return limit;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "0::", 3))
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s", line + 3);
        for (;;) {
            int here = cgroup_limit(path);
            limit = here < limit ? here : limit;
            char *slash = strrchr(path, '/');
            if (!slash || strlen(path) <= strlen("/sys/fs/cgroup"))
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
