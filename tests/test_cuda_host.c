/* test_cuda_host.c - contexts, streams, launches, loading, memory and tensor maps, on the fake driver.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "cuda_host.h"

/* ---------------------------------------------------------------- contexts */

static void lifetime(void)
{
    load_fake("");
    saker_context *a = made(0, NULL), *b = made(0, NULL), *c = made(1, NULL);
    NUMBER(fake_primary_holders(0), 1);
    NUMBER(fake_primary_holders(1), 1);
    CHECK(fake_current() == NULL);
    NUMBER(a->target.sm, 90);
    NUMBER(a->target.n_sms, 132);
    NUMBER(a->target.shared_bytes, 232448);
    NUMBER(saker_context_check(a), SAKER_OK);
    NUMBER(run_one(a), SAKER_OK);
    NUMBER(run_one(c), SAKER_OK);
    saker_context_destroy(a);
    NUMBER(fake_primary_holders(0), 1);
    saker_context_destroy(b);
    saker_context_destroy(c);
    NUMBER(fake_primary_holders(0) + fake_primary_holders(1), 0);
    NUMBER(fake_memory_live(), 0);
    /* Kernels outlive the primary context. */
    a = made(0, NULL);
    NUMBER(run_one(a), SAKER_OK);
    NUMBER(fake_calls("cuLibraryLoadData"), 1);
    saker_context_destroy(a);
}

/* What opening needs is needed: a status and a sentence, and nothing is kept. */
static void open_errors(void)
{
    static const char *const where[][2] = {{"cuDeviceGetAttribute", "asking for its properties"},
                                           {"cuDevicePrimaryCtxRetain", "taking its primary context"},
                                           {"cuMemPoolCreate", "making a memory pool"},
                                           {"cuMemPoolSetAttribute", "making a memory pool"},
                                           {"cuMemHostAlloc", "4 bytes of pinned host memory"},
                                           {"cuMemHostGetDevicePointer", "mapping the error word"}};
    load_fake("");
    saker_cuda_count(NULL);
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        saker_context *ctx = NULL;
        char sentence[160];
        snprintf(sentence, sizeof sentence, "CUDA device 0: %s failed: CUDA_ERROR_UNKNOWN (words of the fake driver)",
                 where[i][1]);
        fake_fail(where[i][0], 999, 1, 1);
        NUMBER(create(&ctx, 0, NULL), SAKER_DEVICE);
        TEXT(saker_context_error(NULL), sentence);
        NUMBER(fake_primary_holders(0), 0);
        NUMBER(fake_memory_live(), 0);
    }
}

/* Kernels in flight may still write the error word: where they cannot be waited for, it stays. */
static void error_word_stays(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    fake_fail("cuCtxSynchronize", 999, 1, 1);
    saker_context_destroy(ctx);
    NUMBER(fake_calls("cuMemFreeHost"), 0);
}

/* Whatever the driver refuses: a status, no crash, nothing kept. */
static void use_everything(void *stream)
{
    saker_context *ctx = NULL;
    void *memory = NULL;
    double us;
    int32_t word;
    if (create(&ctx, 0, NULL))
        return;
    skr_call call = skr_call_in(ctx, NULL);
    run_one(ctx);
    use_scratch(ctx, 256);
    saker_context_set_stream(ctx, stream);
    if (!saker_memory_alloc(ctx, 64, &memory)) {
        saker_memory_copy(ctx, memory, "1234567", 8);
        ctx->api->fill(&call, ctx->state, memory, 1, 64);
        if (saker_memory_free(ctx, memory))
            saker_memory_free(ctx, memory);
    }
    if (!ctx->api->time_start(&call, ctx->state))
        ctx->api->time_stop(&call, ctx->state, &us);
    ctx->api->read_error(&call, ctx->state, &word);
    saker_context_destroy(ctx);
}

static void each_call_fails(void)
{
    static const char *const functions[] = {
#define SKR_DRIVER(name, version, symbol, need, parameters) #name,
#include "../src/cuda/driver.def"
#undef SKR_DRIVER
    };
    /* What a failure of these keeps is the driver's to say, not ours. */
    static const char keeps[] = "cuCtxSynchronize cuDevicePrimaryCtxRelease cuCtxPushCurrent cuCtxPopCurrent "
                                "cuMemFreeHost cuMemFreeAsync cuCtxGetCurrent";
    load_fake("");
    saker_cuda_count(NULL);
    void *stream = fake_stream(0);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        for (int from = 1; from <= 3; from++) {
            size_t live = fake_memory_live();
            fake_fail(functions[i], 999, from, 1);
            use_everything(stream);
            fake_fail(functions[i], 0, 1, 0);
            if (!strstr(keeps, functions[i])) {
                record(fake_primary_holders(0) == 0, __LINE__, "the primary context is given back", functions[i]);
                record(fake_memory_live() == live, __LINE__, "no memory is kept", functions[i]);
                record(fake_current() == NULL, __LINE__, "the caller's context is restored", functions[i]);
            }
            while (fake_primary_holders(0))
                skr_cu.cuDevicePrimaryCtxRelease(0);
            fake_set_current(NULL);
        }
    }
    saker_context *ctx = made(0, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
}

/* D4 */
static void other_device_current(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    void *others[] = {NULL, fake_primary(1), fake_context(0), fake_primary(0)};
    for (int i = 0; i < 4; i++) {
        fake_set_current(others[i]);
        NUMBER(run_one(ctx), SAKER_OK);
        NUMBER(use_scratch(ctx, 1024), SAKER_OK);
        NUMBER(saker_context_sync(ctx), SAKER_OK);
        NUMBER(fake_launch_at(i)->device, 0);
        CHECK(fake_current() == others[i]);
    }
    /* Also when the call fails. */
    fake_set_current(others[1]);
    fake_fail("cuLaunchKernelEx", 1, 1, 1);
    NUMBER(run_one(ctx), SAKER_DEVICE);
    CHECK(fake_current() == others[1]);
    saker_context_destroy(ctx);
    CHECK(fake_current() == others[1]);
}

/* The memory is the stream's, from taking it to giving it back. */
static saker_status use_scratch_on(saker_context *ctx, size_t bytes, void *stream)
{
    skr_call call = skr_call_in(ctx, NULL);
    void *memory = NULL;
    saker_status status = ctx->api->scratch_take(&call, ctx->state, bytes, &memory);
    CHECK(fake_memory_stream() == stream);
    const char *what = "";
    CHECK(ctx->api->owns(ctx->state, memory, &what));
    ctx->api->scratch_give(ctx->state, memory);
    CHECK(fake_memory_stream() == stream);
    return status;
}

static void streams(void)
{
    load_fake("");
    void *mine = fake_stream(0), *foreign = fake_stream(1);
    saker_context *ctx = made(0, mine), *none = NULL;
    NUMBER(run_one(ctx), SAKER_OK);
    CHECK(fake_launch_at(0)->stream == mine);
    NUMBER(saker_context_set_stream(ctx, foreign), SAKER_INVALID_ARG);
    TEXT(saker_context_error(ctx), "the stream belongs to CUDA device 1, the context runs on device 0");
    CHECK(fake_current() == NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    CHECK(fake_launch_at(1)->stream == mine);
    NUMBER(use_scratch_on(ctx, 64, mine), SAKER_OK);
    NUMBER(saker_context_set_stream(ctx, (void *)2), SAKER_OK);
    NUMBER(run_one(ctx), SAKER_OK);
    CHECK(fake_launch_at(2)->stream == (void *)2);
    NUMBER(create(&none, 0, foreign), SAKER_INVALID_ARG);
    CHECK(none == NULL);
    saker_context *other = made(1, foreign);
    NUMBER(use_scratch_on(other, 64, foreign), SAKER_OK);
    saker_context_destroy(other);
    saker_context_destroy(ctx);
    NUMBER(fake_primary_holders(0), 0);
    NUMBER(fake_memory_live(), 0);
}

/* ---------------------------------------------------------------- launches */

static void launches(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    fake_parameter_size(sizeof(small_job));
    const skr_step steps[] = {{.kernel = &kernels[PLAIN], .grid = 5, .block = 256, .shared_bytes = 4096},
                              {.kernel = &kernels[LARGE],
                               .grid = 32,
                               .block = 512,
                               .cluster = 16,
                               .shared_bytes = 220 * 1024,
                               .overlap = true}};
    NUMBER(run_steps(ctx, steps, 2), SAKER_OK);
    NUMBER(fake_launches(), 2);
    const fake_launch *a = fake_launch_at(0), *b = fake_launch_at(1);
    TEXT(a->name, "plain");
    CHECK(a->grid[0] == 5 && a->grid[1] == 1 && a->grid[2] == 1 && a->block[0] == 256 && a->block[1] == 1 &&
          a->block[2] == 1);
    CHECK(a->cluster[0] == 0 && !a->overlap && a->shared == 4096 && !a->captured);
    CHECK(((const small_job *)a->parameter)->value[3] == 4);
    TEXT(b->name, "large");
    CHECK(b->grid[0] == 32 && b->block[0] == 512 && b->shared == 220 * 1024 && b->overlap == 1);
    CHECK(b->cluster[0] == 16 && b->cluster[1] == 1 && b->cluster[2] == 1);
    NUMBER(fake_kernel_attribute("large", SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0), 220 * 1024);
    NUMBER(fake_kernel_attribute("large", SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0), 1);
    NUMBER(fake_kernel_attribute("plain", SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0), -1);
    NUMBER(run_steps(ctx, &(skr_step){.kernel = &kernels[PLAIN], .grid = 6, .block = 64, .cluster = 2}, 1), SAKER_OK);
    NUMBER(fake_launch_at(2)->cluster[0], 2);
    NUMBER(run_steps(ctx, &(skr_step){.kernel = &kernels[PLAIN], .grid = 6, .block = 64, .cluster = 1}, 1), SAKER_OK);
    NUMBER(fake_launch_at(3)->cluster[0], 0);
    /* The hot path asks the driver for nothing else. */
    fake_trace_start();
    NUMBER(run_one(ctx), SAKER_OK);
    TEXT(fake_trace(), "cuCtxGetCurrent cuCtxPushCurrent cuLaunchKernelEx cuCtxPopCurrent ");
    fake_set_current(fake_primary(0));
    fake_trace_start();
    NUMBER(run_steps(ctx, steps, 2), SAKER_OK);
    TEXT(fake_trace(), "cuCtxGetCurrent cuLaunchKernelEx cuLaunchKernelEx ");
    fake_trace_start();
    NUMBER(use_scratch(ctx, 4096), SAKER_OK);
    TEXT(fake_trace(), "cuCtxGetCurrent cuMemAllocFromPoolAsync cuCtxGetCurrent cuMemFreeAsync ");
    /* A refused launch says which and why, and stops the plan. */
    const int before = fake_launches();
    const skr_step bad[] = {{.kernel = &kernels[PLAIN], .grid = 5, .block = 2048}, steps[0]};
    NUMBER(run_steps(ctx, bad, 2), SAKER_DEVICE);
    TEXT(saker_context_error(ctx),
         "CUDA device 0: launching kernel plain failed: CUDA_ERROR_INVALID_VALUE (words of the fake driver)");
    NUMBER(fake_launches(), before);
    saker_context_destroy(ctx);
}

static void older_gpu(void)
{
    setenv("FAKE_CUDA_SM", "80", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_steps(
               ctx,
               &(skr_step){.kernel = &kernels[LARGE], .grid = 8, .block = 64, .shared_bytes = 100000, .overlap = true},
               1),
           SAKER_OK);
    NUMBER(fake_launch_at(0)->overlap, 0);
    /* No more than the device has, less the kernel's own. */
    NUMBER(fake_kernel_attribute("large", SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0), 166912 - 1024);
    NUMBER(fake_kernel_attribute("large", SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0), -1);
    TEXT(ctx->api->level(ctx->state, 0), "sm80");
    saker_context_destroy(ctx);
}

/* Newer than the images: the PTX of compute_80, whose kernels do not wait for the one before. */
static void newer_gpu(void)
{
    setenv("FAKE_CUDA_SM", "100", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_steps(ctx, &(skr_step){.kernel = &kernels[PLAIN], .grid = 8, .block = 64, .overlap = true}, 1),
           SAKER_OK);
    NUMBER(fake_launch_at(0)->overlap, 0);
    TEXT(ctx->api->level(ctx->state, 0), "sm80");
    saker_context_destroy(ctx);
}

static void older_driver_no_overlap(void)
{
    setenv("FAKE_CUDA_VERSION", "12020", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_steps(ctx, &(skr_step){.kernel = &kernels[PLAIN], .grid = 8, .block = 64, .overlap = true}, 1),
           SAKER_OK);
    NUMBER(fake_launch_at(0)->overlap, 0);
    TEXT(ctx->api->level(ctx->state, 0), "sm90");
    saker_context_destroy(ctx);
}

static void overlap_since(void)
{
    setenv("FAKE_CUDA_VERSION", "12030", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_steps(ctx, &(skr_step){.kernel = &kernels[PLAIN], .grid = 8, .block = 64, .overlap = true}, 1),
           SAKER_OK);
    NUMBER(fake_launch_at(0)->overlap, 1);
    saker_context_destroy(ctx);
}

static void minor_capability(void)
{
    setenv("FAKE_CUDA_SM", "86", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(ctx->target.sm, 86);
    NUMBER(ctx->target.shared_bytes, 101376);
    saker_context_destroy(ctx);
}

/* SAKER_CUDA_ISA: the portable kernels on a GPU that has its own. */
static void portable_level(void)
{
    setenv("SAKER_CUDA_ISA", "sm80", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    TEXT(ctx->api->level(ctx->state, 0), "sm80");
    NUMBER(ctx->target.sm, 80);
    saker_context_destroy(ctx);
}

static void unknown_level(void)
{
    setenv("SAKER_CUDA_ISA", "sm12", 1);
    load_fake("");
    saker_context *ctx = made(0, NULL);
    TEXT(ctx->api->level(ctx->state, 0), "sm90");
    saker_context_destroy(ctx);
}

static void load_errors(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    NUMBER(run_kernel(ctx, &kernels[ABSENT]), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), "this library was built without CUDA kernels");
    static const char *const where[] = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"};
    for (int i = 0; i < 3; i++) {
        fake_fail(where[i], SKR_CU_NO_BINARY_FOR_GPU, 1, 1);
        NUMBER(run_one(ctx), SAKER_DEVICE);
        TEXT(saker_context_error(ctx), "the CUDA driver (CUDA 13.0) takes no kernel image of this library for CUDA "
                                       "device 0 (compute capability 9.0) "
                                       "though it holds sm_80, sm_90, sm_90a, PTX for compute_80; a newer driver may");
    }
    fake_fail("cuLibraryGetKernel", SKR_CU_NOT_FOUND, 1, 1);
    NUMBER(run_one(ctx), SAKER_DEVICE);
    TEXT(saker_context_error(ctx),
         "CUDA device 0: loading kernel plain of test_there failed: CUDA_ERROR_NOT_FOUND (words of the fake driver)");
    fake_fail("cuKernelGetFunction", SKR_CU_OUT_OF_MEMORY, 1, 1);
    NUMBER(run_one(ctx), SAKER_OUT_OF_MEMORY);
    TEXT(saker_context_error(ctx), "CUDA device 0 has no memory left for loading kernel plain of test_there");
    NUMBER(fake_launches(), 0);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
}

enum { THREADS = 4 };

static void *load_in_thread(void *barrier)
{
    saker_context *ctx = made(0, NULL);
    pthread_barrier_wait(barrier);
    saker_status status = run_one(ctx);
    saker_context_destroy(ctx);
    return (void *)(uintptr_t)status;
}

static void threads_load_once(void)
{
    load_fake("");
    fake_slow_loads(30);
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, load_in_thread, &barrier);
    for (int i = 0; i < THREADS; i++) {
        void *status;
        pthread_join(threads[i], &status);
        NUMBER((uintptr_t)status, SAKER_OK);
    }
    NUMBER(fake_calls("cuLibraryLoadData"), 1);
    NUMBER(fake_calls("cuKernelGetFunction"), 1);
    NUMBER(fake_launches(), THREADS);
    NUMBER(fake_primary_holders(0), 0);
    /* Another device needs its own preparation, not another load. */
    saker_context *ctx = made(1, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(fake_calls("cuLibraryLoadData"), 1);
    NUMBER(fake_calls("cuKernelGetFunction"), 2);
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- memory, time, tensor maps */

static void pointers(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    const char *what = "";
    int on_stack;
    CHECK(ctx->api->owns(ctx->state, fake_memory(64, 0, 'd'), &what));
    CHECK(ctx->api->owns(ctx->state, (char *)fake_memory(64, 0, 'd') + 13, &what));
    CHECK(ctx->api->owns(ctx->state, fake_memory(64, 1, 'm'), &what));
    CHECK(ctx->api->owns(ctx->state, fake_memory(64, 1, 'h'), &what));
    CHECK(!ctx->api->owns(ctx->state, &on_stack, &what));
    TEXT(what, "ordinary host memory");
    CHECK(!ctx->api->owns(ctx->state, fake_memory(64, 1, 'd'), &what));
    TEXT(what, "memory of CUDA device 1");
    CHECK(!ctx->api->owns(ctx->state, fake_memory(64, 0, 'e'), &what));
    TEXT(what, "pinned host memory that is not mapped at its own address");
    saker_context *other = made(1, NULL);
    CHECK(!other->api->owns(other->state, fake_memory(64, 0, 'd'), &what));
    TEXT(what, "memory of CUDA device 0");
    saker_context_destroy(other);
    saker_context_destroy(ctx);
}

static void memory_and_time(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    skr_call call = skr_call_in(ctx, NULL);
    void *memory = NULL;
    char in[8] = "1234567", out[8] = "";
    NUMBER(saker_memory_alloc(ctx, 8, &memory), SAKER_OK);
    NUMBER(saker_memory_copy(ctx, memory, in, 8), SAKER_OK);
    fake_set_current(fake_primary(0));
    fake_trace_start();
    NUMBER(saker_memory_copy(ctx, out, memory, 8), SAKER_OK);
    TEXT(fake_trace(), "cuCtxGetCurrent cuStreamIsCapturing cuMemcpyAsync cuStreamIsCapturing cuStreamSynchronize ");
    TEXT(out, in);
    NUMBER(ctx->api->fill(&call, ctx->state, memory, 'x', 3), SAKER_OK);
    NUMBER(saker_memory_copy(ctx, out, memory, 8), SAKER_OK);
    TEXT(out, "xxx4567");
    NUMBER(saker_memory_free(ctx, memory), SAKER_OK);
    double us = 0;
    for (int i = 0; i < 2; i++) {
        NUMBER(ctx->api->time_start(&call, ctx->state), SAKER_OK);
        NUMBER(run_one(ctx), SAKER_OK);
        NUMBER(ctx->api->time_stop(&call, ctx->state, &us), SAKER_OK);
        NUMBER(us, 125);
    }
    NUMBER(fake_calls("cuEventCreate"), 2);
    /* What a kernel would store. */
    *ctx->api->error_word(ctx->state) = SAKER_BAD_INDEX;
    NUMBER(saker_context_check(ctx), SAKER_BAD_INDEX);
    NUMBER(saker_context_check(ctx), SAKER_OK);
    saker_context_destroy(ctx);
    NUMBER(fake_calls("cuEventDestroy"), 2);
    NUMBER(fake_memory_live(), 0);
}

/* The types and swizzles as the driver numbers them. */
static void map_numbers(void)
{
    static const struct {
        int type, tf32;
        uint64_t number;
    } types[] = {
        {SKR_F32, 0, SKR_CU_TENSOR_FLOAT32}, {SKR_F32, 1, SKR_CU_TENSOR_TFLOAT32},  {SKR_F16, 0, SKR_CU_TENSOR_FLOAT16},
        {SKR_F16, 1, SKR_CU_TENSOR_FLOAT16}, {SKR_BF16, 0, SKR_CU_TENSOR_BFLOAT16}, {SKR_I32, 0, SKR_CU_TENSOR_INT32},
        {SKR_E4M3, 0, SKR_CU_TENSOR_UINT8},  {SKR_E5M2, 0, SKR_CU_TENSOR_UINT8},    {SKR_I8, 0, SKR_CU_TENSOR_UINT8},
        {SKR_U8, 0, SKR_CU_TENSOR_UINT8},    {SKR_BOOL, 0, SKR_CU_TENSOR_UINT8}};
    static const struct {
        int bytes;
        uint64_t number;
    } swizzles[] = {{0, SKR_CU_TENSOR_SWIZZLE_NONE},
                    {32, SKR_CU_TENSOR_SWIZZLE_32B},
                    {64, SKR_CU_TENSOR_SWIZZLE_64B},
                    {128, SKR_CU_TENSOR_SWIZZLE_128B}};
    load_fake("");
    saker_context *ctx = made(0, NULL);
    skr_call call = skr_call_in(ctx, NULL);
    skr_cu_tensor_map map;
    uint64_t field[15];
    skr_matrix_box box = {.data = (void *)4096,
                          .rows = INT64_C(1) << 32,
                          .cols = 64,
                          .row_stride = 64,
                          .batches = 1,
                          .box_rows = 256,
                          .box_cols = 16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        box.type = types[i].type, box.tf32 = types[i].tf32;
        NUMBER(skr_tensor_map_3d(&call, &box, &map), SAKER_OK);
        memcpy(field, map.opaque, sizeof field);
        NUMBER(field[0], types[i].number);
    }
    for (size_t i = 0; i < sizeof swizzles / sizeof *swizzles; i++) {
        box.type = SKR_U8, box.swizzle_bytes = swizzles[i].bytes;
        NUMBER(skr_tensor_map_3d(&call, &box, &map), SAKER_OK);
        memcpy(field, map.opaque, sizeof field);
        NUMBER(field[12], swizzles[i].number);
    }
    skr_cu.cuTensorMapEncodeTiled = NULL;
    NUMBER(skr_tensor_map_3d(&call, &box, &map), SAKER_DEVICE);
    TEXT(saker_context_error(ctx), "tensor map: the CUDA driver has no function cuTensorMapEncodeTiled");
    saker_context_destroy(ctx);
}

static void tensor_maps(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    skr_call call = skr_call_in(ctx, NULL);
    skr_cu_tensor_map map;
    const skr_matrix_box good = {.data = (void *)4096,
                                 .type = SKR_BF16,
                                 .rows = 100,
                                 .cols = 72,
                                 .row_stride = 80,
                                 .batches = 3,
                                 .batch_stride = 8000,
                                 .box_rows = 128,
                                 .box_cols = 64,
                                 .swizzle_bytes = 128};
    NUMBER(skr_tensor_map_3d(&call, &good, &map), SAKER_OK);
    const uint64_t expected[15] = {9, 4096, 72, 100, 3, 160, 16000, 64, 128, 1, 1, 0, 3, 3, 0};
    CHECK(!memcmp(map.opaque, expected, sizeof expected));
    struct {
        skr_matrix_box box;
        const char *sentence;
    } bad[] = {
        {good, "tensor map: data must be 16-byte aligned"},
        {good, "tensor map: rows and cols must be 1 to 2^32"},
        {good, "tensor map: the row stride in bytes must be a multiple of 16 below 2^40"},
        {good, "tensor map: the row stride in bytes must be a multiple of 16 below 2^40"},
        {good, "tensor map: the box must be 1 to 256 each way, its rows a multiple of 16 bytes"},
        {good, "tensor map: the box must be 1 to 256 each way, its rows a multiple of 16 bytes"},
        {good, "tensor map: swizzle_bytes must be 0, 32, 64 or 128"},
        {good, "tensor map: a box row must not be longer than the swizzle"},
        {good, "tensor map: batches must be 1 to 2^32"},
        {good, "tensor map: the batch stride in bytes must be a multiple of 16 below 2^40"},
        {good, "tensor map: the batch stride in bytes must be a multiple of 16 below 2^40"},
        {good, "tensor map: the box must be 1 to 256 each way, its rows a multiple of 16 bytes"},
        {good, "tensor map: rows and cols must be 1 to 2^32"},
    };
    bad[0].box.data = (void *)4104;
    bad[1].box.cols = 0;
    bad[2].box.row_stride = 81;
    bad[3].box.row_stride = INT64_C(1) << 39;
    bad[4].box.box_rows = 257;
    bad[5].box.box_cols = 9;
    bad[6].box.swizzle_bytes = 16;
    bad[7].box.swizzle_bytes = 64;
    bad[8].box.batches = 0;
    bad[9].box.batch_stride = 8001;
    bad[10].box.batch_stride = INT64_C(1) << 39;
    bad[11].box.box_cols = 264, bad[11].box.swizzle_bytes = 0;
    bad[12].box.rows = (INT64_C(1) << 32) + 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        NUMBER(skr_tensor_map_3d(&call, &bad[i].box, &map), SAKER_INVALID_ARG);
        TEXT(saker_context_error(ctx), bad[i].sentence);
    }
    skr_matrix_box nibbles = good;
    nibbles.type = SKR_I4;
    NUMBER(skr_tensor_map_3d(&call, &nibbles, &map), SAKER_UNSUPPORTED);
    fake_fail("cuTensorMapEncodeTiled", 1, 1, 1);
    NUMBER(skr_tensor_map_3d(&call, &good, &map), SAKER_DEVICE);
    TEXT(saker_context_error(ctx),
         "tensor map: the driver refused it: CUDA_ERROR_INVALID_VALUE (words of the fake driver)");
    saker_context_destroy(ctx);
}

int main(int argc, char **argv)
{
    static const scenario_row rows[] = {
        SCENARIO(lifetime),
        SCENARIO(open_errors),
        SCENARIO(error_word_stays),
        SCENARIO(each_call_fails),
        SCENARIO(other_device_current),
        SCENARIO(streams),
        SCENARIO(launches),
        SCENARIO(older_gpu),
        SCENARIO(newer_gpu),
        SCENARIO(older_driver_no_overlap),
        SCENARIO(overlap_since),
        SCENARIO(minor_capability),
        SCENARIO(portable_level),
        SCENARIO(unknown_level),
        SCENARIO(load_errors),
        SCENARIO(threads_load_once),
        SCENARIO(pointers),
        SCENARIO(memory_and_time),
        SCENARIO(map_numbers),
        SCENARIO(tensor_maps),
    };
    return run_with_fake(argc, argv, rows, sizeof rows / sizeof *rows);
}
