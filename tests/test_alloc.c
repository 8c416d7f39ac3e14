/* test_alloc.c - every allocation fails once: OUT_OF_MEMORY comes back, nothing leaks, the next call works (O1).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linked with -Wl,--wrap for each allocator, so that the library's calls come here first. Also shows that a context
 * with a lent workspace allocates nothing. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "norm_call.h"

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
int __real_posix_memalign(void **, size_t, size_t);
void __real_free(void *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
int __wrap_posix_memalign(void **, size_t, size_t);
void __wrap_free(void *);

static bool counting;
static long n_calls, n_live, fail_at = -1;

static bool fails(void)
{
    return counting && n_calls++ == fail_at;
}

static void *count(void *p)
{
    n_live += counting && p;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    void *q = __real_realloc(p, n);
    n_live += counting && q && !p;
    return q;
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : count(__real_aligned_alloc(align, n));
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    if (fails())
        return 12; /* ENOMEM */
    int r = __real_posix_memalign(p, align, n);
    n_live += counting && r == 0;
    return r;
}

void __wrap_free(void *p)
{
    n_live -= counting && p;
    __real_free(p);
}

/* ---------------------------------------------------------------- the work */

static norm_results results;

/* Everything a program does: a context, calls that need scratch memory, helper memory, the end. */
static saker_status life(void)
{
    saker_context *ctx = NULL;
    saker_config c = {.struct_size = sizeof c, .threads = 1};
    saker_status s = saker_context_create(&ctx, &c);
    if (s)
        return ctx ? SAKER_INVALID_ARG : s;
    s = norm_run(ctx, &results);
    void *memory = NULL;
    double us[1];
    if (!s)
        s = saker_memory_alloc(ctx, 5 << 20, &memory);
    if (!s) {
        saker_tensor x = SAKER_TENSOR(memory, SAKER_U8, 1 << 20),
                     y = SAKER_TENSOR((char *)memory + (1 << 20), SAKER_U8, 1 << 20);
        int64_t sum;
        saker_tensor check = SAKER_TENSOR(&sum, SAKER_I64, 1);
        saker_stream_args a = {.struct_size = sizeof a, .x0 = &x, .y0 = &y, .checksum = &check};
        memset(memory, 1, 1 << 20);
        s = saker_measure(ctx, "stream", &a, 1, 1 << 20, us);
    }
    saker_memory_free(ctx, memory);
    saker_context_destroy(ctx);
    return s;
}

static void each_fails_once(void)
{
    static norm_results good;
    CHECK(life() == SAKER_OK);
    good = results;
    counting = true;
    n_calls = n_live = 0;
    CHECK(life() == SAKER_OK);
    long total = n_calls;
    CHECK_TEXT(n_live == 0, "%ld allocations are not freed", n_live);
    CHECK_TEXT(total >= 3, "only %ld allocations seen: are the wrappers linked?", total);
    for (long i = 0; i < total; i++) {
        n_calls = n_live = 0;
        fail_at = i;
        saker_status s = life();
        fail_at = -1;
        CHECK_TEXT(s == SAKER_OUT_OF_MEMORY, "allocation %ld fails: %s", i, saker_status_name(s));
        CHECK_TEXT(n_live == 0, "allocation %ld fails: %ld others are leaked", i, n_live);
        CHECK_TEXT(life() == SAKER_OK && !memcmp(&good, &results, sizeof good), "after allocation %ld failed", i);
    }
    counting = false;
    printf("%ld allocations, each failed once\n", total);
}

/* A call that fails for memory writes nothing, and the context goes on. */
static void context_survives(void)
{
    saker_context *ctx = NULL;
    saker_config c = {.struct_size = sizeof c, .threads = 1};
    CHECK(saker_context_create(&ctx, &c) == SAKER_OK);
    static float x[4096], y[4096];
    static uint16_t w[1024];
    for (int i = 0; i < 4096; i++)
        y[i] = 77;
    saker_tensor tx = SAKER_TENSOR(x, SAKER_F32, 4, 1024), ty = SAKER_TENSOR(y, SAKER_F32, 4, 1024);
    saker_tensor tw = SAKER_TENSOR(w, SAKER_BF16, 1024);
    saker_rms_norm_args a = {.struct_size = sizeof a, .x = &tx, .weight = &tw, .y = &ty};
    size_t bytes = 0;
    CHECK(saker_workspace_bytes(ctx, "rms_norm", &a, &bytes) == SAKER_OK);
    if (bytes) {
        counting = true, n_calls = 0, fail_at = 0;
        saker_status s = saker_rms_norm(ctx, &a);
        counting = false, fail_at = -1;
        CHECK(s == SAKER_OUT_OF_MEMORY && strstr(saker_context_error(ctx), "rms_norm"));
        bool untouched = true;
        for (int i = 0; i < 4096; i++)
            untouched &= y[i] == 77;
        CHECK(untouched);
    }
    CHECK(saker_rms_norm(ctx, &a) == SAKER_OK && y[0] == 0);
    saker_context_destroy(ctx);
}

static void nothing_when_lent(void)
{
    saker_context *ctx = NULL;
    saker_config c = {.struct_size = sizeof c, .threads = 2};
    CHECK(saker_context_create(&ctx, &c) == SAKER_OK);
    norm_run(ctx, &results); /* the pool's first start may allocate */
    size_t room = 64 << 20;
    void *lent = aligned_alloc(256, room);
    CHECK(saker_context_set_workspace(ctx, lent, room) == SAKER_OK);
    counting = true, n_calls = 0;
    saker_status s = norm_run(ctx, &results);
    counting = false;
    CHECK_TEXT(s == SAKER_OK && n_calls == 0, "%ld allocations in calls with a lent workspace", n_calls);
    saker_context_destroy(ctx);
    free(lent);
}

int main(void)
{
    norm_fill();
    each_fails_once();
    context_survives();
    nothing_when_lent();
    return check_report("test_alloc");
}
