/* test_cuda_faults.c - the CUDA backend when things go wrong (FAULTS D2, D3, O2, C3, C4), on the fake driver.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cuda_host.h"

/* ---------------------------------------------------------------- faults */

static const char stuck[] =
    "CUDA device 0 was already in error before this call: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory "
    "access was encountered); other work in this process caused it";
static const char lost[] =
    "CUDA device 0 faulted during earlier work: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was "
    "encountered); it is lost to this process, every later call on it fails";

/* D2 */
static void in_error_before(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL), *late = NULL;
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(run_one(ctx), SAKER_OK); /* one wait is for both */
    NUMBER(saker_context_sync(ctx), SAKER_OK);
    fake_stick(0, 700);
    NUMBER(run_one(ctx), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), stuck);
    NUMBER(use_scratch(ctx, 256), SAKER_DEVICE);
    NUMBER(saker_context_sync(ctx), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), stuck);
    NUMBER(create(&late, 0, NULL), SAKER_DEVICE);
    TEXT(saker_context_error(NULL), stuck);
    /* It was not ours, so we did not give up on the device. */
    fake_stick(0, 0);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
}

/* Waits that are not called so, too. */
static void confirmed_otherwise(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL), *other = made(0, NULL);
    skr_call call = skr_call_in(ctx, NULL);
    double us;
    NUMBER(ctx->api->time_start(&call, ctx->state), SAKER_OK);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(ctx->api->time_stop(&call, ctx->state, &us), SAKER_OK);
    fake_stick(0, 700);
    NUMBER(run_one(ctx), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), stuck);
    fake_stick(0, 0);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
    fake_stick(0, 700);
    NUMBER(run_one(other), SAKER_DEVICE);
    TEXT(saker_context_error(other), stuck);
    fake_stick(0, 0);
    saker_context_destroy(other);
}

/* One stream more than are counted: it is never confirmed. */
static void one_stream_too_many(void)
{
    load_fake("");
    void *stream[9];
    saker_context *ctx = made(0, NULL);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 9 - pass; i++) {
            if (pass == 0)
                stream[i] = fake_stream(0);
            NUMBER(saker_context_set_stream(ctx, stream[i]), SAKER_OK);
            NUMBER(pass ? saker_context_sync(ctx) : run_one(ctx), SAKER_OK);
        }
    fake_stick(0, 700);
    NUMBER(run_one(ctx), SAKER_DEVICE_LOST);
    saker_context_destroy(ctx);
}

/* Which errors of the driver stick, by its numbers, and which do not. */
static void which_stick(void)
{
    static const int sticky[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911};
    static const int passing[] = {1, 400, 500, 600, 701, 999};
    load_fake("");
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++) {
        saker_context *ctx = made(0, NULL);
        NUMBER(run_one(ctx), SAKER_OK);
        fake_stick(0, sticky[i]);
        NUMBER(saker_context_sync(ctx), SAKER_DEVICE_LOST);
        saker_context_destroy(ctx);
        fake_stick(0, 0);
    }
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        saker_context *ctx = made(0, NULL);
        NUMBER(run_one(ctx), SAKER_OK);
        fake_fail("cuStreamSynchronize", passing[i], 1, 1);
        NUMBER(saker_context_sync(ctx), SAKER_DEVICE);
        NUMBER(run_one(ctx), SAKER_OK);
        saker_context_destroy(ctx);
    }
}

/* A wait is for the stream that the context has, and confirms that stream's launches: no other stream is touched, for
 * it may be captured, or gone. */
static void several_streams(void)
{
    load_fake("");
    void *a = fake_stream(0), *b = fake_stream(0);
    saker_context *ctx = made(0, a);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(saker_context_set_stream(ctx, b), SAKER_OK);
    NUMBER(run_one(ctx), SAKER_OK);
    fake_set_current(fake_primary(0));
    fake_trace_start();
    NUMBER(saker_context_sync(ctx), SAKER_OK);
    TEXT(fake_trace(), "cuCtxGetCurrent cuStreamIsCapturing cuStreamSynchronize ");
    NUMBER(saker_context_set_stream(ctx, a), SAKER_OK);
    NUMBER(saker_context_sync(ctx), SAKER_OK);
    /* All are confirmed: a fault is not ours. */
    fake_stick(0, 700);
    NUMBER(run_one(ctx), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), stuck);
    fake_stick(0, 0);
    /* What is captured does not keep the context from leaving, nor from waiting elsewhere. */
    fake_capture(a, 1);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(saker_context_set_stream(ctx, b), SAKER_OK);
    NUMBER(saker_context_check(ctx), SAKER_OK);
    NUMBER(fake_capture_spoiled(), 0);
    fake_capture(a, 0);
    /* More than are counted. */
    for (int i = 0; i < 20; i++) {
        NUMBER(saker_context_set_stream(ctx, fake_stream(0)), SAKER_OK);
        NUMBER(run_one(ctx), SAKER_OK);
        NUMBER(i < 10 || !saker_context_sync(ctx), 1);
    }
    fake_stick(0, 700);
    NUMBER(run_one(ctx), SAKER_DEVICE_LOST);
    TEXT(saker_context_error(ctx), lost);
    saker_context_destroy(ctx);
}

/* D3 */
static void device_lost(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL), *second = made(0, NULL), *other = made(1, NULL), *late = NULL;
    skr_call call = skr_call_in(ctx, NULL);
    void *memory;
    double us;
    int32_t word;
    NUMBER(run_one(ctx), SAKER_OK);
    fake_stick(0, 700);
    NUMBER(saker_context_sync(ctx), SAKER_DEVICE_LOST);
    TEXT(saker_context_error(ctx), lost);
    fake_stick(0, 0); /* even then */
    fake_trace_start();
    NUMBER(run_one(ctx), SAKER_DEVICE_LOST);
    TEXT(saker_context_error(ctx), lost);
    NUMBER(run_one(second), SAKER_DEVICE_LOST);
    NUMBER(use_scratch(ctx, 256), SAKER_DEVICE_LOST);
    NUMBER(saker_memory_alloc(ctx, 256, &memory), SAKER_DEVICE_LOST);
    NUMBER(saker_context_check(ctx), SAKER_DEVICE_LOST);
    NUMBER(saker_context_set_stream(ctx, (void *)1), SAKER_DEVICE_LOST);
    NUMBER(ctx->api->time_start(&call, ctx->state), SAKER_DEVICE_LOST);
    NUMBER(ctx->api->time_stop(&call, ctx->state, &us), SAKER_DEVICE_LOST);
    NUMBER(ctx->api->fill(&call, ctx->state, &word, 0, 4), SAKER_DEVICE_LOST);
    NUMBER(create(&late, 0, NULL), SAKER_DEVICE_LOST);
    TEXT(saker_context_error(NULL), lost);
    TEXT(fake_trace(), ""); /* the driver is left alone */
    NUMBER(run_one(other), SAKER_OK);
    fake_stick(0, 700);
    saker_context_destroy(ctx);
    saker_context_destroy(second);
    saker_context_destroy(other);
    NUMBER(fake_primary_holders(0), 0);
    /* A new primary context is a new device. */
    fake_stick(0, 0);
    ctx = made(0, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
}

/* The fault shows at the next launch, or at the second step of the same call. */
static void device_lost_at_launch(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    const skr_step steps[2] = {{.kernel = &kernels[PLAIN], .grid = 1, .block = 32},
                               {.kernel = &kernels[PLAIN], .grid = 1, .block = 32}};
    fake_fail("cuLaunchKernelEx", 719, 2, 1);
    NUMBER(run_steps(ctx, steps, 2), SAKER_DEVICE_LOST);
    TEXT(saker_context_error(ctx),
         "CUDA device 0 faulted during earlier work: CUDA_ERROR_LAUNCH_FAILED (words of the fake "
         "driver); it is lost to this process, every later call on it fails");
    NUMBER(run_one(ctx), SAKER_DEVICE_LOST);
    saker_context_destroy(ctx);
}

/* O2 */
static void out_of_memory(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL), *late = NULL;
    void *memory = NULL;
    fake_memory_limit(fake_memory_live() + 1000);
    NUMBER(use_scratch(ctx, 4096), SAKER_OUT_OF_MEMORY);
    TEXT(saker_context_error(ctx), "CUDA device 0 has no memory left for 4096 bytes of scratch");
    NUMBER(saker_memory_alloc(ctx, 8192, &memory), SAKER_OUT_OF_MEMORY);
    TEXT(saker_context_error(ctx), "CUDA device 0 has no memory left for 8192 bytes");
    CHECK(memory == NULL);
    fake_memory_limit(fake_memory_live());
    NUMBER(create(&late, 0, NULL), SAKER_OUT_OF_MEMORY);
    TEXT(saker_context_error(NULL), "CUDA device 0 has no memory left for 4 bytes of pinned host memory");
    fake_memory_limit((size_t)-1);
    NUMBER(use_scratch(ctx, 4096), SAKER_OK);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
    NUMBER(fake_memory_live(), 0);
}

static void no_pools(void)
{
    setenv("FAKE_CUDA_POOLS", "0", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(use_scratch(ctx, 512), SAKER_UNSUPPORTED);
    TEXT(saker_context_error(ctx),
         "CUDA device 0 has no stream-ordered memory for 512 bytes of scratch; lend a workspace with "
         "saker_context_set_workspace");
    saker_context_destroy(ctx);
}

/* C3: the fake counts every call that a real driver would refuse during capture. */
static void capture(void)
{
    load_fake("");
    void *stream = fake_stream(0);
    saker_context *ctx = made(0, stream);
    fake_capture(stream, 1);
    NUMBER(run_one(ctx), SAKER_OK); /* loads the kernel */
    NUMBER(use_scratch(ctx, 4096), SAKER_OK);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(fake_launches(), 2);
    NUMBER(fake_launch_at(0)->captured, 1);
    NUMBER(fake_launch_at(1)->captured, 1);
    saker_context *second = made(0, NULL); /* others may come and go meanwhile */
    NUMBER(run_kernel(second, &kernels[LARGE]), SAKER_OK);
    void *memory = NULL;
    NUMBER(saker_memory_alloc(second, 64, &memory), SAKER_OK);
    NUMBER(saker_memory_free(second, memory), SAKER_OK);
    saker_context_destroy(second);
    /* Waiting is refused before it spoils the capture. */
    NUMBER(saker_context_sync(ctx), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), "the stream is being captured into a graph and cannot be waited for");
    NUMBER(saker_context_check(ctx), SAKER_DEVICE);
    NUMBER(saker_memory_copy(ctx, &memory, &stream, sizeof stream), SAKER_DEVICE);
    size_t before = fake_memory_live();
    NUMBER(saker_memory_alloc(ctx, 64, &memory), SAKER_OK);
    NUMBER(saker_memory_free(ctx, memory), SAKER_DEVICE); /* kernels may still use it */
    NUMBER(fake_memory_live(), before + 64);
    NUMBER(fake_capture_spoiled(), 0);
    /* The thread's own mode is back: the same call made by the program is refused. */
    skr_cu_pointer at;
    fake_set_current(fake_primary(0));
    NUMBER(skr_cu.cuMemAlloc(&at, 64), SKR_CU_STREAM_CAPTURE_UNSUPPORTED);
    fake_capture(stream, 0);
    NUMBER(saker_context_sync(ctx), SAKER_OK);
    NUMBER(saker_memory_free(ctx, memory), SAKER_OK);
    saker_context_destroy(ctx);
}

/* C4; "fork before first use" is what every scenario is. */
static void forked_child(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    skr_call call = skr_call_in(ctx, NULL);
    void *scratch = NULL;
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(ctx->api->scratch_take(&call, ctx->state, 64, &scratch), SAKER_OK);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *memory;
        no_cuda(skr_driver_forked_text);
        NUMBER(run_one(ctx), SAKER_DEVICE);
        TEXT(saker_context_error(ctx),
             "CUDA cannot be used in this process: it was forked from one that had already initialised "
             "CUDA (start the process anew, or use CUDA in the child only)");
        NUMBER(saker_context_sync(ctx), SAKER_DEVICE);
        NUMBER(saker_memory_alloc(ctx, 64, &memory), SAKER_DEVICE);
        NUMBER(use_scratch(ctx, 64), SAKER_DEVICE);
        ctx->api->scratch_give(ctx->state, scratch);
        saker_context_destroy(ctx);
        NUMBER(fake_calls_after_fork(), 0);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    NUMBER(status, 0);
    NUMBER(run_one(ctx), SAKER_OK);
    ctx->api->scratch_give(ctx->state, scratch);
    saker_context_destroy(ctx);
}

int main(int argc, char **argv)
{
    static const scenario_row rows[] = {
        SCENARIO(confirmed_otherwise),
        SCENARIO(one_stream_too_many),
        SCENARIO(which_stick),
        SCENARIO(in_error_before),
        SCENARIO(device_lost),
        SCENARIO(device_lost_at_launch),
        SCENARIO(out_of_memory),
        SCENARIO(no_pools),
        SCENARIO(capture),
        SCENARIO(forked_child),
        SCENARIO(several_streams),
    };
    return run_with_fake(argc, argv, rows, sizeof rows / sizeof *rows);
}
