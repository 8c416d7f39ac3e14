/* threads.h - the worker pool: one per process, started by the first call that needs it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Tasks are handed out by a counter, so which worker runs a task is not fixed; kernels must give the same result
 * whoever runs it. A caller that finds the pool busy (another context, or a nested call) runs its tasks inline. After
 * fork() the child starts a pool of its own. */
#ifndef SKR_THREADS_H
#define SKR_THREADS_H

#include <stdint.h>

#include "saker.h"

typedef struct skr_threads {
    int width;                       /* most tasks at once, the caller's thread included */
    saker_parallel_for parallel_for; /* NULL: the pool */
    void *user;
} skr_threads;

/* Runs fn(arg, task, worker) once for each task in [0, n_tasks) and returns when all are done. worker is in [0, width),
 * and no two calls with the same worker run at once: it may index scratch memory. */
void skr_parallel(const skr_threads *threads, int64_t n_tasks, void (*fn)(void *arg, int64_t task, int worker),
                  void *arg);

/* Cores this process may use: affinity mask, cgroup quota, SAKER_THREADS. At least 1. Read once. */
int skr_allowed_threads(void);

#endif
