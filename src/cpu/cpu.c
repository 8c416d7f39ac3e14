/* cpu.c - the CPU backend: picks a level, owns the scratch block, runs a plan's tasks on the pool.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../core/backend.h"
#include "../core/log.h"
#include "../core/threads.h"
#include "features.h"
#include "table.h"

/* Under this many bytes of traffic the tasks run on the calling thread: about 5 us of work at 50 GB/s, what it costs to
 * wake a worker. */
enum { INLINE_BYTES = 256 * 1024 };
/* x86 reads a line before a plain store changes it: an output costs twice. From this many bytes of outputs on they are
 * written past the caches: not much of them would still be there for who reads them next. Smaller ones are better kept.
 * Cores of other kinds write whole lines without reading them. */
#if defined(__x86_64__)
enum { PAST_BYTES = 32 * 1024 * 1024 };
#else
enum { PAST_BYTES = 0 };
#endif
/* From here on memory is asked for in huge pages: a first touch is six times as fast (26 against 4 GB/s on a Neoverse
 * V1). */
enum { HUGE_BYTES = 4 * 1024 * 1024, HUGE_PAGE = 2 * 1024 * 1024, ALIGN = 256 };

/* ---------------------------------------------------------------- levels */

/* SKR_LEVELS is the Makefile's list: SKR_LEVEL_ROW(scalar) SKR_LEVEL_ROW(neon) ... A level that isa.def does not know
 * fails to compile here. */
#define SKR_LEVEL_ROW(level) extern const skr_cpu_table skr_cpu_table_##level;
SKR_LEVELS
#undef SKR_LEVEL_ROW

static const struct {
    const skr_cpu_table *table;
    int isa;
} built[] = {
#define SKR_LEVEL_ROW(level) {&skr_cpu_table_##level, SKR_ISA_##level},
    SKR_LEVELS
#undef SKR_LEVEL_ROW
};
enum { N_BUILT = sizeof built / sizeof *built };

int32_t saker_level_count(void)
{
    return N_BUILT;
}

saker_level_info saker_level_at(int32_t index)
{
    if (index < 0 || index >= N_BUILT)
        return (saker_level_info){.name = "", .why_not = "there is no level with this number"};
    const char *why = skr_isa_why_not(built[index].isa);
    return (saker_level_info){.name = built[index].table->level, .usable = !*why, .why_not = why};
}

static int isa_of(const char *name)
{
    for (int i = 0; i < SKR_N_ISA; i++)
        if (!strcmp(skr_isa_name(i), name))
            return i;
    return -1;
}

/* SAKER_ISA, read once; the highest level when it is not set or makes no sense. */
static int env_limit = SKR_N_ISA - 1;
static int64_t past_bytes = PAST_BYTES;

/* SAKER_PAST_BYTES: for tests, whose tensors are small. */
static void read_past(void)
{
    const char *text = getenv("SAKER_PAST_BYTES");
    if (!text || !*text)
        return;
    char *end;
    long long wanted = strtoll(text, &end, 10);
    if (*end || wanted < 0)
        skr_warn("SAKER_PAST_BYTES=%.40s is ignored: expected a number from 0 (never)", text);
    else
        past_bytes = PAST_BYTES ? wanted : 0;
}

static void read_env(void)
{
    read_past();
    const char *text = getenv("SAKER_ISA");
    if (!text || !*text)
        return;
    int isa = isa_of(text);
    if (isa < 0)
        skr_warn("SAKER_ISA=%.40s is ignored: expected one of the levels that saker doctor lists", text);
    else
        env_limit = isa;
}

static saker_status pick_level(skr_call *call, const char *wanted, const skr_cpu_table **table)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_env);
    int limit = env_limit;
    if (wanted) {
        int isa = isa_of(wanted);
        if (isa < 0)
            return skr_fail(call, SAKER_UNSUPPORTED,
                            "saker_context_create: isa is \"%.40s\", expected one of the levels of saker_level_at()",
                            wanted);
        limit = isa < limit ? isa : limit;
    }
    for (int i = N_BUILT - 1; i >= 0; i--)
        if (built[i].isa <= limit && !*skr_isa_why_not(built[i].isa)) {
            *table = built[i].table;
            return SAKER_OK;
        }
    return skr_fail(call, SAKER_UNSUPPORTED, "saker_context_create: no level up to %s was built", skr_isa_name(limit));
}

/* ---------------------------------------------------------------- blocks of memory */

/* Tensors of a power-of-two size that all start at the same place in a page fight for the same few cache sets when a
 * kernel walks through several of them. So each block starts a little further on than the last; what malloc gave is
 * kept just before it. */
static void *allocate(size_t bytes)
{
    enum { COLOURS = 16, STEP = 17 * ALIGN };
    static _Atomic unsigned turn;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bool huge = bytes >= HUGE_BYTES;
    size_t align = huge ? HUGE_PAGE : ALIGN;
    size_t offset = ALIGN + (huge ? atomic_fetch_add(&turn, 1) % COLOURS * STEP : 0);
    size_t size = skr_align_up(bytes + offset, align);
    char *base = aligned_alloc(align, size);
    if (!base)
        return NULL;
    if (huge)
        madvise(base, size, MADV_HUGEPAGE); /* advice only */
    memcpy(base + offset - sizeof base, &base, sizeof base);
    return base + offset;
}

static void release(void *memory)
{
    char *base = memory;
    if (memory)
        memcpy(&base, (char *)memory - sizeof base, sizeof base);
    free(base);
}

/* ---------------------------------------------------------------- the context's part */

typedef struct cpu_state {
    const skr_cpu_table *table;
    skr_threads threads;
    void *scratch; /* one grow-only block */
    size_t scratch_bytes;
    _Atomic int32_t words[2]; /* what kernels report; skr_past's */
    struct timespec start;
} cpu_state;

static saker_status cpu_open(skr_call *call, const saker_config *config, void **state, skr_target *target)
{
    const skr_cpu_table *table = NULL;
    SKR_TRY(pick_level(call, config->isa, &table));
    cpu_state *s = calloc(1, sizeof *s);
    if (!s)
        return skr_fail(call, SAKER_OUT_OF_MEMORY, "saker_context_create: no memory for the context");
    s->table = table;
    int width = config->parallel_for && config->parallel_width ? config->parallel_width : skr_allowed_threads();
    if (config->threads && config->threads < width)
        width = config->threads;
    s->threads = (skr_threads){.width = width, .parallel_for = config->parallel_for, .user = config->parallel_user};
    target->backend = SKR_CPU;
    target->width = width;
    target->level = table->level;
    target->past_bytes = past_bytes;
    *state = s;
    return SAKER_OK;
}

static void cpu_close(void *state)
{
    cpu_state *s = state;
    release(s->scratch);
    free(s);
}

static const char *cpu_level(const void *state, int op_index)
{
    (void)op_index;
    return ((const cpu_state *)state)->table->level;
}

static void cpu_describe(const skr_step *step, char *text, size_t size)
{
    snprintf(text, size, "%lld tasks", (long long)step->n_tasks);
}

static saker_status cpu_set_stream(skr_call *call, void *state, void *stream)
{
    (void)state;
    return stream ? skr_fail(call, SAKER_INVALID_ARG,
                             "saker_context_set_stream: the context runs on the CPU, which has no streams")
                  : SAKER_OK;
}

/* ---------------------------------------------------------------- memory */

static saker_status cpu_scratch_take(skr_call *call, void *state, size_t bytes, void **memory)
{
    cpu_state *s = state;
    if (bytes > s->scratch_bytes) {
        release(s->scratch);
        s->scratch = allocate(bytes);
        s->scratch_bytes = s->scratch ? bytes : 0;
        if (!s->scratch)
            return skr_fail(call, SAKER_OUT_OF_MEMORY, "no memory for %zu bytes of workspace", bytes);
    }
    *memory = s->scratch;
    return SAKER_OK;
}

static void cpu_scratch_give(void *state, void *memory)
{
    (void)state;
    (void)memory; /* kept for the next call */
}

static saker_status cpu_alloc(skr_call *call, void *state, size_t bytes, void **memory)
{
    (void)state;
    *memory = allocate(bytes);
    return *memory ? SAKER_OK
                   : skr_fail(call, SAKER_OUT_OF_MEMORY, "saker_memory_alloc: no memory for %zu bytes", bytes);
}

static saker_status cpu_free(skr_call *call, void *state, void *memory)
{
    (void)call;
    (void)state;
    release(memory);
    return SAKER_OK;
}

static saker_status cpu_copy(skr_call *call, void *state, void *to, const void *from, size_t bytes)
{
    (void)call;
    (void)state;
    memmove(to, from, bytes);
    return SAKER_OK;
}

static saker_status cpu_fill(skr_call *call, void *state, void *memory, int byte, size_t bytes)
{
    (void)call;
    (void)state;
    memset(memory, byte, bytes);
    return SAKER_OK;
}

/* The system copies a byte, and says so where a load would be a fault: a GPU's memory, or nobody's. Where it does not
 * let anyone look, nothing is known. */
static bool cpu_owns(void *state, const void *pointer, const char **what)
{
    (void)state;
    char byte;
    const struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)pointer, 1};
    const int before = errno;
    const bool readable = process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
    errno = before;
    *what = "memory that this process cannot read (a GPU's, or nobody's)";
    return readable;
}

/* ---------------------------------------------------------------- run */

static skr_cpu_kernel kernel_of(const skr_cpu_table *table, int op_index)
{
    skr_cpu_kernel own = table->kernel[op_index];
    return own ? own : table->rest->kernel[op_index];
}

typedef struct cpu_step {
    skr_cpu_kernel kernel;
    const void *job;
    int index;
    bool past;
} cpu_step;

static void run_task(void *arg, int64_t task, int worker)
{
    const cpu_step *step = arg;
    step->kernel(step->job, step->index, task, worker);
#if defined(__x86_64__)
    if (step->past)
        __builtin_ia32_sfence(); /* stores past the caches come in no order: all of them before the task is done */
#endif
}

static saker_status cpu_run(skr_call *call, void *state, int op_index, const skr_plan *plan, const void *job)
{
    (void)call;
    cpu_state *s = state;
    for (int i = 0; i < plan->n_steps; i++) {
        cpu_step step = {kernel_of(s->table, op_index), job, (int)plan->step[i].index, skr_past(job)};
        int64_t n = plan->step[i].n_tasks;
        if (n > 1 && plan->traffic_bytes >= INLINE_BYTES)
            skr_parallel(&s->threads, n, run_task, &step);
        else
            for (int64_t task = 0; task < n; task++)
                run_task(&step, task, 0);
    }
    return SAKER_OK;
}

static int32_t *cpu_error_word(void *state)
{
    return (int32_t *)((cpu_state *)state)->words;
}

static saker_status cpu_read_error(skr_call *call, void *state, int32_t *word)
{
    (void)call;
    *word = atomic_exchange(&((cpu_state *)state)->words[0], 0);
    return SAKER_OK;
}

static saker_status cpu_sync(skr_call *call, void *state)
{
    (void)call;
    (void)state;
    return SAKER_OK;
}

static saker_status cpu_time_start(skr_call *call, void *state)
{
    (void)call;
    clock_gettime(CLOCK_MONOTONIC, &((cpu_state *)state)->start);
    return SAKER_OK;
}

static saker_status cpu_time_stop(skr_call *call, void *state, double *microseconds)
{
    (void)call;
    const cpu_state *s = state;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *microseconds = (double)(now.tv_sec - s->start.tv_sec) * 1e6 + (double)(now.tv_nsec - s->start.tv_nsec) * 1e-3;
    return SAKER_OK;
}

const skr_backend_api skr_backend_cpu = {
    .open = cpu_open,
    .close = cpu_close,
    .level = cpu_level,
    .describe = cpu_describe,
    .set_stream = cpu_set_stream,
    .scratch_take = cpu_scratch_take,
    .scratch_give = cpu_scratch_give,
    .run = cpu_run,
    .error_word = cpu_error_word,
    .read_error = cpu_read_error,
    .owns = cpu_owns,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .sync = cpu_sync,
    .time_start = cpu_time_start,
    .time_stop = cpu_time_stop,
};
