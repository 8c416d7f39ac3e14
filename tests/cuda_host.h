/* cuda_host.h - what the test_cuda_*.c programs share: counting, the fake driver's controls, a small kernel to launch,
 * the scenarios' runner. SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/core/context.h"
#include "../src/cuda/device.h"
#include "fake_cuda.h"

typedef struct counts {
    int passed, failed, skipped;
} counts;
static counts *total; /* shared with the children */
static const char *scenario = "";
static char fake_folder[4096];

#define FAKE(type, name, parameters) static type(*name) parameters;
FAKE_CONTROLS
#undef FAKE

/* ---------------------------------------------------------------- checks */

static void record(bool good, int line, const char *what, const char *found)
{
    if (good) {
        total->passed++;
        return;
    }
    total->failed++;
    printf("FAIL %s, line %d: %s%s%s\n", scenario, line, what, found ? "\n     found: " : "", found ? found : "");
}

static void skip(const char *why)
{
    total->skipped++;
    printf("SKIP %s: %s\n", scenario, why);
}

static void same_text(const char *found, const char *expected, int line)
{
    record(strcmp(found, expected) == 0, line, expected, found);
}

static void same_number(long long found, long long expected, int line, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%lld, expected %lld", found, expected);
    record(found == expected, line, what, text);
}

#define CHECK(condition)        record(condition, __LINE__, #condition, NULL)
#define TEXT(found, expected)   same_text(found, expected, __LINE__)
#define NUMBER(found, expected) same_number((long long)(found), (long long)(expected), __LINE__, #found)

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

/* ---------------------------------------------------------------- scenarios */

typedef struct scenario_row {
    const char *name;
    void (*run)(void);
} scenario_row;
#define SCENARIO(name)                                                                                                 \
    {                                                                                                                  \
#name, name                                                                                                    \
    }

/* The main() of each of these programs: program <folder of the fake> [scenario]. Each scenario runs in a child process
 * of its own, because a process opens the driver once. */
static int run_scenarios(int argc, char **argv, const scenario_row *rows, size_t n)
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
    setvbuf(stdout, NULL, _IOLBF, 0); /* a child that dies has said what it saw */
    total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < n; i++) {
        scenario = rows[i].name;
        if (argc > 2 && strcmp(argv[2], scenario) != 0)
            continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            rows[i].run();
            exit(0); /* through exit(): a hang there is a fault, too (D3) */
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status) {
            total->failed++;
            printf("FAIL %s: the process ended with %s %d\n", scenario, WIFSIGNALED(status) ? "signal" : "code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
    }
    printf("%d passed, %d failed, %d skipped\n", total->passed, total->failed, total->skipped);
    return total->failed != 0;
}

#endif
