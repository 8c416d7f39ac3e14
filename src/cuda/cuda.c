/* cuda.c - the CUDA backend behind core/backend.h: a context's stream, scratch, launches, memory and time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function makes the device's primary context current if it is not, and puts the caller's back. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/backend.h"
#include "../core/log.h"
#include "device.h"

enum { BUSY_STREAMS = 8 };

typedef struct cuda_state {
    skr_cuda_device *device;
    int32_t sm; /* kernels for it, or for less, run */
    skr_cu_stream stream;
    int32_t *error_host;         /* pinned */
    skr_cu_pointer error_device; /* the same word as kernels see it */
    skr_cu_event start, stop;    /* NULL until time is first taken */
    /* Streams with launches that no wait has confirmed. One more than the list has: some are unknown, and stay. */
    int32_t n_busy;
    skr_cu_stream busy[BUSY_STREAMS];
    char what[64];
} cuda_state;

static void mark_busy(cuda_state *s)
{
    if (s->n_busy > BUSY_STREAMS)
        return;
    for (int32_t i = 0; i < s->n_busy; i++)
        if (s->busy[i] == s->stream)
            return;
    if (s->n_busy == 0)
        atomic_fetch_add_explicit(&s->device->busy, 1, memory_order_relaxed);
    if (s->n_busy < BUSY_STREAMS)
        s->busy[s->n_busy] = s->stream;
    s->n_busy++;
}

/* The stream was waited for without an error. Streams that the context had before are not waited for: the program may
 * have destroyed them, or be capturing them. */
static void mark_idle(cuda_state *s)
{
    for (int32_t i = 0; s->n_busy <= BUSY_STREAMS && i < s->n_busy; i++)
        if (s->busy[i] == s->stream) {
            s->busy[i] = s->busy[--s->n_busy];
            if (s->n_busy == 0)
                atomic_fetch_sub_explicit(&s->device->busy, 1, memory_order_relaxed);
        }
}

/* ---------------------------------------------------------------- open, close, stream */

/* A stream of another device would take the launch there. The driver's special handles (0, 1, 2) follow the current
 * context. */
static saker_status check_stream(skr_call *call, const cuda_state *s, skr_cu_stream stream)
{
    if ((uintptr_t)stream <= 2)
        return SAKER_OK;
    skr_cu_context of = NULL, popped;
    skr_cu_device on = s->device->handle;
    skr_cu_result result = skr_cu.cuStreamGetCtx(stream, &of);
    if (!result && of != s->device->primary && !(result = skr_cu.cuCtxPushCurrent(of))) {
        result = skr_cu.cuCtxGetDevice(&on);
        skr_cu.cuCtxPopCurrent(&popped);
    }
    if (result)
        return skr_cuda_fail(call, s->device, result, "asking the stream for its device");
    if (on != s->device->handle)
        return skr_fail(call, SAKER_INVALID_ARG, "the stream belongs to CUDA device %d, the context runs on device %d",
                        on, s->device->id);
    return SAKER_OK;
}

static saker_status make_error_word(skr_call *call, cuda_state *s)
{
    void *memory = NULL;
    skr_cu_result result = skr_cu.cuMemHostAlloc(&memory, sizeof *s->error_host,
                                                 SKR_CU_MEMHOSTALLOC_PORTABLE | SKR_CU_MEMHOSTALLOC_DEVICEMAP);
    if (result)
        return skr_cuda_fail(call, s->device, result, "%zu bytes of pinned host memory", sizeof *s->error_host);
    s->error_host = memory;
    *s->error_host = 0;
    result = skr_cu.cuMemHostGetDevicePointer(&s->error_device, memory, 0);
    return result ? skr_cuda_fail(call, s->device, result, "mapping the error word") : SAKER_OK;
}

static void close_state(void *state)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    /* After a fork the driver is the parent's. A lost device frees everything with its context. */
    if (!skr_driver_forked()) {
        if (!skr_cuda_make_current(s->device, &v)) {
            skr_cuda_relax(&v);
            /* Kernels in flight may still write the error word; if they cannot be waited for, it stays. */
            bool quiet = s->n_busy == 0 || !skr_cu.cuCtxSynchronize();
            if (s->error_host && quiet)
                skr_cu.cuMemFreeHost(s->error_host);
            if (s->start)
                skr_cu.cuEventDestroy(s->start);
            if (s->stop)
                skr_cu.cuEventDestroy(s->stop);
            skr_cuda_leave(&v);
        }
        if (s->n_busy)
            atomic_fetch_sub(&s->device->busy, 1);
        skr_cuda_device_give(s->device);
    }
    free(s);
}

/* SAKER_CUDA_ISA, read once: sm80 leaves Hopper's own kernels out. */
static int32_t env_limit = INT32_MAX;

static void read_env(void)
{
    const char *text = getenv("SAKER_CUDA_ISA");
    if (!text || !*text)
        return;
    if (!strcmp(text, "sm80"))
        env_limit = 80;
    else if (strcmp(text, "sm90"))
        skr_warn("SAKER_CUDA_ISA=%.40s is ignored: expected sm80 or sm90", text);
}

static saker_status open_state(skr_call *call, const saker_config *config, void **state, skr_target *target)
{
    skr_cuda_device *d = NULL;
    SKR_TRY(skr_cuda_device_take(call, config->device_id, &d));
    cuda_state *s = calloc(1, sizeof *s);
    if (!s) {
        skr_cuda_device_give(d);
        return skr_fail(call, SAKER_OUT_OF_MEMORY, "saker_context_create: no memory for the context");
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_env);
    s->device = d;
    s->sm = 10 * d->major + d->minor < env_limit ? 10 * d->major + d->minor : env_limit;
    s->stream = config->stream;
    skr_cuda_visit v;
    saker_status status = skr_cuda_enter(call, s->device, &v);
    if (!status) {
        skr_cuda_relax(&v);
        status = make_error_word(call, s);
        if (!status)
            status = check_stream(call, s, s->stream);
        skr_cuda_leave(&v);
    }
    if (status) {
        close_state(s);
        return status;
    }
    *state = s;
    *target = (skr_target){.backend = SKR_CUDA, .sm = s->sm, .n_sms = d->n_sms, .shared_bytes = d->shared_bytes};
    return SAKER_OK;
}

/* The family of code that runs: Hopper has its own, everything else takes the portable one. */
static const char *level(const void *state, int op_index)
{
    (void)op_index;
    return ((const cuda_state *)state)->sm / 10 == 9 ? "sm90" : "sm80";
}

static void describe(const skr_step *step, char *text, size_t size)
{
    snprintf(text, size, "%s, grid %u, block %u, cluster %u, shared %u bytes", step->kernel->symbol, step->grid,
             step->block, step->cluster ? step->cluster : 1, step->shared_bytes);
}

static saker_status set_stream(skr_call *call, void *state, void *stream)
{
    cuda_state *s = state;
    if (stream == (void *)s->stream)
        return SAKER_OK;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    saker_status status = check_stream(call, s, stream);
    skr_cuda_leave(&v);
    if (!status)
        s->stream = stream;
    return status;
}

/* ---------------------------------------------------------------- running */

static saker_status scratch_take(skr_call *call, void *state, size_t bytes, void **memory)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    if (!s->device->pool)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "CUDA device %d has no stream-ordered memory for %zu bytes of scratch; lend a workspace with "
                        "saker_context_set_workspace",
                        s->device->id, bytes);
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    skr_cu_pointer at = 0;
    skr_cu_result result = skr_cu.cuMemAllocFromPoolAsync(&at, bytes, s->device->pool, s->stream);
    skr_cuda_leave(&v);
    *memory = (void *)(uintptr_t)at;
    return result ? skr_cuda_fail(call, s->device, result, "%zu bytes of scratch", bytes) : SAKER_OK;
}

static void scratch_give(void *state, void *memory)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    if (skr_driver_forked() || skr_cuda_make_current(s->device, &v))
        return;
    skr_cu.cuMemFreeAsync((skr_cu_pointer)(uintptr_t)memory, s->stream);
    skr_cuda_leave(&v);
}

static saker_status run(skr_call *call, void *state, int op_index, const skr_plan *plan, const void *job)
{
    (void)op_index;
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    saker_status status = plan->bind ? plan->bind(call, plan->bind_job) : SAKER_OK;
    for (int i = 0; i < plan->n_steps && !status; i++) {
        status = skr_cuda_launch(call, s->device, &plan->step[i], job, s->stream);
        if (!status)
            mark_busy(s);
    }
    skr_cuda_leave(&v);
    return status;
}

static int32_t *error_word(void *state)
{
    return (int32_t *)(uintptr_t)((cuda_state *)state)->error_device;
}

/* ---------------------------------------------------------------- waiting */

/* Waiting for a captured stream is an error that would also spoil the capture: say so before it does. */
static saker_status refuse_capture(skr_call *call, const cuda_state *s)
{
    skr_cu_capture_status status = SKR_CU_CAPTURE_STATUS_NONE;
    skr_cu_result result = skr_cu.cuStreamIsCapturing(s->stream, &status);
    if (result)
        return skr_cuda_fail(call, s->device, result, "asking whether the stream is captured");
    if (status != SKR_CU_CAPTURE_STATUS_NONE)
        return skr_fail(call, SAKER_DEVICE, "the stream is being captured into a graph and cannot be waited for");
    return SAKER_OK;
}

static saker_status wait_inside(skr_call *call, cuda_state *s)
{
    SKR_TRY(refuse_capture(call, s));
    skr_cu_result result = skr_cu.cuStreamSynchronize(s->stream);
    if (result)
        return skr_cuda_fail(call, s->device, result, "waiting for the stream");
    mark_idle(s);
    return SAKER_OK;
}

static saker_status sync(skr_call *call, void *state)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    saker_status status = wait_inside(call, s);
    skr_cuda_leave(&v);
    return status;
}

static saker_status read_error(skr_call *call, void *state, int32_t *word)
{
    SKR_TRY(sync(call, state));
    *word = __atomic_exchange_n(((cuda_state *)state)->error_host, 0, __ATOMIC_ACQ_REL);
    return SAKER_OK;
}

static saker_status time_start(skr_call *call, void *state)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    skr_cuda_relax(&v);
    skr_cu_result result = SKR_CU_SUCCESS;
    if (!s->start)
        result = skr_cu.cuEventCreate(&s->start, SKR_CU_EVENT_DEFAULT);
    if (!result && !s->stop)
        result = skr_cu.cuEventCreate(&s->stop, SKR_CU_EVENT_DEFAULT);
    if (!result)
        result = skr_cu.cuEventRecord(s->start, s->stream);
    skr_cuda_leave(&v);
    return result ? skr_cuda_fail(call, s->device, result, "starting the clock") : SAKER_OK;
}

static saker_status time_stop(skr_call *call, void *state, double *microseconds)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    float milliseconds = 0;
    saker_status status = refuse_capture(call, s);
    if (!status) {
        skr_cu_result result = skr_cu.cuEventRecord(s->stop, s->stream);
        if (!result)
            result = skr_cu.cuEventSynchronize(s->stop);
        if (!result)
            result = skr_cu.cuEventElapsedTime(&milliseconds, s->start, s->stop);
        if (result)
            status = skr_cuda_fail(call, s->device, result, "stopping the clock");
        else
            mark_idle(s);
    }
    skr_cuda_leave(&v);
    *microseconds = 1000.0 * (double)milliseconds;
    return status;
}

/* ---------------------------------------------------------------- memory */

static bool owns(void *state, const void *pointer, const char **what)
{
    cuda_state *s = state;
    const skr_cu_pointer at = (skr_cu_pointer)(uintptr_t)pointer;
    skr_cuda_visit v;
    unsigned kind = 0;
    int managed = 0, on = -1;
    skr_cu_pointer seen = 0;
    /* What the driver cannot answer is not the pointer's fault: the launch will report it. */
    if (skr_driver_forked() || skr_cuda_make_current(s->device, &v))
        return true;
    skr_cu_result result = skr_cu.cuPointerGetAttribute(&kind, SKR_CU_POINTER_MEMORY_TYPE, at);
    if (!result) {
        skr_cu.cuPointerGetAttribute(&managed, SKR_CU_POINTER_IS_MANAGED, at);
        skr_cu.cuPointerGetAttribute(&on, SKR_CU_POINTER_DEVICE_ORDINAL, at);
        skr_cu.cuPointerGetAttribute(&seen, SKR_CU_POINTER_DEVICE_POINTER, at);
    }
    skr_cuda_leave(&v);
    *what = s->what;
    if (result == SKR_CU_INVALID_VALUE)
        snprintf(s->what, sizeof s->what, "ordinary host memory");
    else if (!result && !managed && kind == SKR_CU_MEMORYTYPE_HOST && seen != at)
        snprintf(s->what, sizeof s->what, "pinned host memory that is not mapped at its own address");
    else if (!result && !managed && kind == SKR_CU_MEMORYTYPE_DEVICE && on >= 0 && on != s->device->id)
        snprintf(s->what, sizeof s->what, "memory of CUDA device %d", on);
    else
        return true;
    return false;
}

static saker_status alloc(skr_call *call, void *state, size_t bytes, void **memory)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    skr_cuda_relax(&v);
    skr_cu_pointer at = 0;
    skr_cu_result result = skr_cu.cuMemAlloc(&at, bytes);
    skr_cuda_leave(&v);
    *memory = (void *)(uintptr_t)at;
    return result ? skr_cuda_fail(call, s->device, result, "%zu bytes", bytes) : SAKER_OK;
}

static saker_status free_memory(skr_call *call, void *state, void *memory)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    skr_cuda_relax(&v);
    saker_status status = wait_inside(call, s);
    skr_cu_result result = status ? SKR_CU_SUCCESS : skr_cu.cuMemFree((skr_cu_pointer)(uintptr_t)memory);
    skr_cuda_leave(&v);
    return result ? skr_cuda_fail(call, s->device, result, "freeing memory") : status;
}

static saker_status copy(skr_call *call, void *state, void *to, const void *from, size_t bytes)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    saker_status status = refuse_capture(call, s);
    if (!status) {
        skr_cu_result result =
            skr_cu.cuMemcpyAsync((skr_cu_pointer)(uintptr_t)to, (skr_cu_pointer)(uintptr_t)from, bytes, s->stream);
        status = result ? skr_cuda_fail(call, s->device, result, "copying %zu bytes", bytes) : wait_inside(call, s);
    }
    skr_cuda_leave(&v);
    return status;
}

static saker_status fill(skr_call *call, void *state, void *memory, int byte, size_t bytes)
{
    cuda_state *s = state;
    skr_cuda_visit v;
    SKR_TRY(skr_cuda_enter(call, s->device, &v));
    skr_cu_result result =
        skr_cu.cuMemsetD8Async((skr_cu_pointer)(uintptr_t)memory, (unsigned char)byte, bytes, s->stream);
    skr_cuda_leave(&v);
    return result ? skr_cuda_fail(call, s->device, result, "filling %zu bytes", bytes) : SAKER_OK;
}

const skr_backend_api skr_backend_cuda = {
    .open = open_state,
    .close = close_state,
    .level = level,
    .describe = describe,
    .set_stream = set_stream,
    .scratch_take = scratch_take,
    .scratch_give = scratch_give,
    .run = run,
    .error_word = error_word,
    .read_error = read_error,
    .owns = owns,
    .alloc = alloc,
    .free = free_memory,
    .copy = copy,
    .fill = fill,
    .sync = sync,
    .time_start = time_start,
    .time_stop = time_stop,
};
