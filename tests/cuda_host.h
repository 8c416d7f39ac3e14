/* cuda_host.h - what the programs that use the fake driver share: its controls, a small kernel to launch, main().
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <dlfcn.h>

#include "../src/core/context.h"
#include "../src/cuda/device.h"
#include "fake_cuda.h"
#include "scenario.h"

static char fake_folder[4096];

#define FAKE(type, name, parameters) static type(*name) parameters;
FAKE_CONTROLS
#undef FAKE

/* ---------------------------------------------------------------- the fake driver */

static void load_fake(const char *variant)
{
    char path[sizeof fake_folder + 32];
    snprintf(path, sizeof path, "%s/%slibcuda.so.1", fake_folder, variant);
    /* The library's dlopen("libcuda.so.1") then finds this one by its SONAME. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        record(false, __LINE__, "the fake driver opens", dlerror());
        _exit(0);
    }
    void *found;
#define FAKE(type, name, parameters)                                                                                   \
    found = dlsym(library, #name);                                                                                     \
    memcpy((void *)&name, &found, sizeof found);
    FAKE_CONTROLS
#undef FAKE
}

/* ---------------------------------------------------------------- contexts and launches */

static saker_status create(saker_context **ctx, int device, void *stream)
{
    const saker_config config = {
        .struct_size = sizeof config, .device_type = SAKER_CUDA, .device_id = device, .stream = stream};
    return saker_context_create(ctx, &config);
}

static saker_context *made(int device, void *stream)
{
    saker_context *ctx = NULL;
    if (create(&ctx, device, stream)) {
        record(false, __LINE__, "a context is created", saker_context_error(NULL));
        _exit(0);
    }
    return ctx;
}

/* What the library says that it holds, whatever it was built with. */
const char skr_cuda_images[] = "80,90,90a,ptx80";

/* A fatbin that is there, and one that is not. */
SKR_FATBIN(test_there)
SKR_FATBIN(test_absent)
const unsigned char skr_fatbin_test_there[8] = {1};
enum { PLAIN, LARGE, ABSENT };
static skr_cuda_kernel kernels[] = {
    [PLAIN] = SKR_KERNEL(test_there, "plain", 0, 1),
    [LARGE] = SKR_KERNEL(test_there, "large", 220 * 1024, 16),
    [ABSENT] = SKR_KERNEL(test_absent, "absent", 0, 1),
};

typedef struct small_job {
    skr_job_head head;
    uint64_t value[4];
} small_job;

static saker_status run_steps(saker_context *ctx, const skr_step *step, int n)
{
    skr_call call = skr_call_in(ctx, NULL);
    skr_plan plan = {.n_steps = n};
    for (int i = 0; i < n; i++)
        plan.step[i] = step[i];
    const small_job job = {.value = {1, 2, 3, 4}};
    return ctx->api->run(&call, ctx->state, 0, &plan, &job);
}

static saker_status run_kernel(saker_context *ctx, skr_cuda_kernel *kernel)
{
    return run_steps(ctx, &(skr_step){.kernel = kernel, .grid = 7, .block = 128}, 1);
}

static saker_status run_one(saker_context *ctx)
{
    return run_kernel(ctx, &kernels[PLAIN]);
}

static saker_status use_scratch(saker_context *ctx, size_t bytes)
{
    skr_call call = skr_call_in(ctx, NULL);
    void *memory = NULL;
    saker_status status = ctx->api->scratch_take(&call, ctx->state, bytes, &memory);
    if (!status)
        ctx->api->scratch_give(ctx->state, memory);
    return status;
}

/* Asking for CUDA is refused with this sentence, and the CPU is not concerned. */
static void refused(saker_status status, const char *sentence)
{
    saker_context *ctx = (saker_context *)1;
    NUMBER(create(&ctx, 0, NULL), status);
    TEXT(saker_context_error(NULL), sentence);
    CHECK(ctx == NULL);
    NUMBER(saker_context_create(&ctx, NULL), SAKER_OK);
    saker_context_destroy(ctx);
}

static void no_cuda(const char *sentence)
{
    const char *why = NULL;
    NUMBER(saker_cuda_count(&why), 0);
    TEXT(why, sentence);
    saker_cuda_info info;
    NUMBER(saker_cuda_at(0, &info), SAKER_DEVICE);
    refused(SAKER_DEVICE, sentence);
}

/* ---------------------------------------------------------------- main */

/* The main() of these programs: program <folder of the fake> [scenario]. A process opens the driver once, so each
 * scenario has its own. */
static int run_with_fake(int argc, char **argv, const scenario_row *rows, size_t n)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    if (argc < 2 && path && *path) {
        /* Started as any program would meet the fake. The scenario without a driver needs the variable gone, which
         * takes a new start. */
        char folder[sizeof fake_folder];
        snprintf(folder, sizeof folder, "%.*s", (int)strcspn(path, ":"), path);
        unsetenv("LD_LIBRARY_PATH");
        execl("/proc/self/exe", argv[0], folder, (char *)NULL);
    }
    if (argc < 2) {
        fprintf(stderr, "usage: %s <folder of the fake libcuda.so.1> [scenario]\n", argv[0]);
        return 2;
    }
    snprintf(fake_folder, sizeof fake_folder, "%s", argv[1]);
    return run_scenarios(rows, n, argc > 2 ? argv[2] : NULL);
}

#endif
