/* test_cuda_gpu.c - what the CUDA backend does around the kernels, on a real GPU (FAULTS D2 D3 D4 O2 C3 C4 P7).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Results of the operations are the runner's business; here the question is what the host side does around them. What
 * the test needs beyond saker.h (a foreign context, stream and kernel, a capture) it takes from the driver itself. */
#include <dlfcn.h>
#include <time.h>

#include "saker.h"
#include "scenario.h"

enum { ROWS = 1024, COLS = 4096, BYTES = ROWS * COLS * 4 };

/* ---------------------------------------------------------------- the driver, as a program would use it */

static int (*cuInit)(unsigned), (*cuCtxCreate)(void **, unsigned, int), (*cuCtxGetCurrent)(void **),
    (*cuCtxSetCurrent)(void *);
static int (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSynchronize)(void),
    (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *), (*cuStreamCreate)(void **, unsigned);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);
static int (*cuStreamBeginCapture)(void *, int), (*cuStreamEndCapture)(void *, void **),
    (*cuGraphLaunch)(void *, void *);
static int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
static int (*cuMemAlloc)(unsigned long long *, size_t), (*cuMemFree)(unsigned long long),
    (*cuMemGetInfo)(size_t *, size_t *);

static void take_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found;
#define TAKE(function, symbol)                                                                                         \
    found = dlsym(library, symbol);                                                                                    \
    memcpy((void *)&function, &found, sizeof found);
    TAKE(cuInit, "cuInit")
    TAKE(cuCtxCreate, "cuCtxCreate_v2")
    TAKE(cuCtxGetCurrent, "cuCtxGetCurrent")
    TAKE(cuCtxSetCurrent, "cuCtxSetCurrent")
    TAKE(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")
    TAKE(cuCtxSynchronize, "cuCtxSynchronize")
    TAKE(cuModuleLoadData, "cuModuleLoadData")
    TAKE(cuModuleGetFunction, "cuModuleGetFunction")
    TAKE(cuStreamCreate, "cuStreamCreate")
    TAKE(cuLaunchKernel, "cuLaunchKernel")
    TAKE(cuStreamBeginCapture, "cuStreamBeginCapture_v2")
    TAKE(cuStreamEndCapture, "cuStreamEndCapture")
    TAKE(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")
    TAKE(cuGraphLaunch, "cuGraphLaunch")
    TAKE(cuMemAlloc, "cuMemAlloc_v2")
    TAKE(cuMemFree, "cuMemFree_v2")
    TAKE(cuMemGetInfo, "cuMemGetInfo_v2")
    NUMBER(cuInit(0), 0);
}

/* The primary context, current, as the CUDA runtime leaves it. */
static void be_a_cuda_program(void)
{
    void *primary = NULL;
    take_driver();
    NUMBER(cuDevicePrimaryCtxRetain(&primary, 0), 0);
    NUMBER(cuCtxSetCurrent(primary), 0);
}

static void launch_foreign_fault(void)
{
    static const char ptx[] =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry fault()\n{\n"
        ".reg .u64 %a;\n.reg .u32 %v;\nmov.u64 %a, 64;\nmov.u32 %v, 1;\nst.global.u32 [%a], %v;\nret;\n}\n";
    void *module = NULL, *function = NULL;
    NUMBER(cuModuleLoadData(&module, ptx), 0);
    NUMBER(cuModuleGetFunction(&function, module, "fault"), 0);
    NUMBER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
    NUMBER(cuCtxSynchronize(), 700);
}

/* ---------------------------------------------------------------- one operation */

typedef struct norm {
    saker_context *ctx;
    int64_t shape[2], columns[1];
    saker_tensor x, w, y, dx, dw;
} norm;

static saker_context *made(void *stream, int check_level)
{
    const saker_config config = {
        .struct_size = sizeof config, .device_type = SAKER_CUDA, .stream = stream, .check_level = check_level};
    saker_context *ctx = NULL;
    if (saker_context_create(&ctx, &config)) {
        record(false, __LINE__, "a context is created", saker_context_error(NULL));
        exit(0);
    }
    return ctx;
}

static saker_tensor filled(norm *n, int ndim, int64_t *shape, float value)
{
    static float host[ROWS * COLS];
    void *memory = NULL;
    size_t count = ndim == 2 ? ROWS * COLS : COLS;
    for (size_t i = 0; i < count; i++)
        host[i] = value * (float)(1 + i % 7);
    NUMBER(saker_memory_alloc(n->ctx, count * 4, &memory), SAKER_OK);
    NUMBER(saker_memory_copy(n->ctx, memory, host, count * 4), SAKER_OK);
    return saker_tensor_of(memory, SAKER_F32, ndim, shape, NULL);
}

static void make_norm(norm *n, saker_context *ctx)
{
    *n = (norm){.ctx = ctx, .shape = {ROWS, COLS}, .columns = {COLS}};
    n->x = filled(n, 2, n->shape, 1.0f);
    n->w = filled(n, 1, n->columns, 0.5f);
    n->y = filled(n, 2, n->shape, 0.0f);
    n->dx = filled(n, 2, n->shape, 0.0f);
    n->dw = filled(n, 1, n->columns, 0.0f);
}

static saker_status forward(norm *n)
{
    return saker_rms_norm(n->ctx, SAKER_ARGS(rms_norm, .x = &n->x, .weight = &n->w, .y = &n->y));
}

/* Needs scratch. */
static saker_status backward(norm *n)
{
    return saker_rms_norm_backward(n->ctx, SAKER_ARGS(rms_norm_backward, .dy = &n->x, .x = &n->x, .weight = &n->w,
                                                      .dx = &n->dx, .dweight = &n->dw));
}

static bool same(norm *n, const saker_tensor *t, size_t bytes, const void *expected)
{
    void *found = malloc(bytes);
    bool good = !saker_memory_copy(n->ctx, found, t->data, bytes) && !memcmp(found, expected, bytes);
    free(found);
    return good;
}

#define GOOD(status) record((status) == SAKER_OK, __LINE__, #status, saker_context_error(n.ctx))

/* ---------------------------------------------------------------- scenarios */

/* The kernels' handles and permissions outlive the primary context. */
static void open_and_close(void)
{
    for (int i = 0; i < 3; i++) {
        norm n;
        make_norm(&n, made(NULL, 0));
        GOOD(forward(&n));
        GOOD(backward(&n));
        GOOD(saker_context_check(n.ctx));
        saker_context_destroy(n.ctx);
    }
}

/* D4: another context is current, and stays so. */
static void foreign_context(void)
{
    void *other = NULL, *now = NULL;
    norm n;
    take_driver();
    make_norm(&n, made(NULL, 0));
    NUMBER(cuCtxGetCurrent(&now), 0);
    CHECK(now == NULL);
    NUMBER(cuCtxCreate(&other, 0, 0), 0);
    GOOD(forward(&n));
    GOOD(backward(&n));
    GOOD(saker_context_sync(n.ctx));
    saker_context_destroy(n.ctx);
    NUMBER(cuCtxGetCurrent(&now), 0);
    CHECK(now == other);
}

/* C3: the first call of all, so that the kernels are loaded during the capture; then a replay with other data. */
static void capture(void)
{
    void *stream = NULL, *graph = NULL, *replay = NULL;
    norm n;
    be_a_cuda_program();
    NUMBER(cuStreamCreate(&stream, 1), 0);
    make_norm(&n, made(stream, 0));
    NUMBER(cuStreamBeginCapture(stream, 0), 0);
    GOOD(forward(&n));
    GOOD(backward(&n));
    NUMBER(saker_context_sync(n.ctx), SAKER_DEVICE);
    TEXT(saker_context_error(n.ctx), "the stream is being captured into a graph and cannot be waited for");
    NUMBER(cuStreamEndCapture(stream, &graph), 0);
    NUMBER(cuGraphInstantiateWithFlags(&replay, graph, 0), 0);
    float *expected = malloc(BYTES), *gradient = malloc(COLS * 4);
    saker_tensor other = filled(&n, 2, n.shape, -3.0f);
    GOOD(saker_memory_copy(n.ctx, n.x.data, other.data, BYTES));
    GOOD(forward(&n));
    GOOD(backward(&n));
    GOOD(saker_memory_copy(n.ctx, expected, n.y.data, BYTES));
    GOOD(saker_memory_copy(n.ctx, gradient, n.dw.data, COLS * 4));
    saker_tensor zero = filled(&n, 2, n.shape, 0.0f);
    GOOD(saker_memory_copy(n.ctx, n.y.data, zero.data, BYTES));
    for (int i = 0; i < 3; i++)
        NUMBER(cuGraphLaunch(replay, stream), 0);
    CHECK(same(&n, &n.y, BYTES, expected));
    CHECK(same(&n, &n.dw, COLS * 4, gradient));
    saker_context_destroy(n.ctx);
}

/* D3: our kernel reads memory that is not there. */
static void device_lost(void)
{
    norm n;
    saker_context *late = NULL;
    make_norm(&n, made(NULL, 0));
    n.x.data = (void *)4096;
    GOOD(forward(&n));
    NUMBER(saker_context_sync(n.ctx), SAKER_DEVICE_LOST);
    printf("     %s\n", saker_context_error(n.ctx));
    NUMBER(forward(&n), SAKER_DEVICE_LOST);
    NUMBER(backward(&n), SAKER_DEVICE_LOST);
    NUMBER(saker_context_check(n.ctx), SAKER_DEVICE_LOST);
    const saker_config config = {.struct_size = sizeof config, .device_type = SAKER_CUDA};
    NUMBER(saker_context_create(&late, &config), SAKER_DEVICE_LOST);
    saker_context_destroy(n.ctx);
}

/* D2: somebody else's kernel did. */
static void in_error_before(void)
{
    norm n;
    be_a_cuda_program();
    make_norm(&n, made(NULL, 0));
    GOOD(forward(&n));
    GOOD(saker_context_sync(n.ctx));
    launch_foreign_fault();
    NUMBER(forward(&n), SAKER_DEVICE);
    printf("     %s\n", saker_context_error(n.ctx));
    NUMBER(forward(&n), SAKER_DEVICE);
    NUMBER(cuCtxSynchronize(), 700); /* we did not clear it */
    saker_context_destroy(n.ctx);
}

/* O2 */
static void out_of_memory(void)
{
    unsigned long long block[64];
    size_t left = 0, all = 0;
    int blocks = 0;
    norm n;
    be_a_cuda_program();
    make_norm(&n, made(NULL, 0));
    GOOD(forward(&n)); /* loaded */
    NUMBER(cuMemGetInfo(&left, &all), 0);
    for (size_t bytes = left; bytes >= 1 << 20 && blocks < 64;)
        if (cuMemAlloc(&block[blocks], bytes))
            bytes /= 2;
        else
            blocks++;
    void *memory = NULL;
    NUMBER(saker_memory_alloc(n.ctx, (size_t)1 << 30, &memory), SAKER_OUT_OF_MEMORY);
    printf("     %s\n", saker_context_error(n.ctx));
    saker_status status = backward(&n); /* 1 MiB may just be left for its scratch */
    record(status == SAKER_OUT_OF_MEMORY || status == SAKER_OK, __LINE__, "backward with no memory left",
           saker_context_error(n.ctx));
    GOOD(forward(&n));
    while (blocks)
        NUMBER(cuMemFree(block[--blocks]), 0);
    GOOD(backward(&n));
    GOOD(saker_context_sync(n.ctx));
    saker_context_destroy(n.ctx);
}

/* C4 */
static void forked_child(void)
{
    norm n;
    make_norm(&n, made(NULL, 0));
    GOOD(forward(&n));
    pid_t child = fork();
    if (child == 0) {
        const char *why = "";
        NUMBER(forward(&n), SAKER_DEVICE);
        NUMBER(saker_cuda_count(&why), 0);
        saker_context_destroy(n.ctx);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    NUMBER(status, 0);
    GOOD(forward(&n));
    GOOD(saker_context_sync(n.ctx));
    saker_context_destroy(n.ctx);
}

/* P7 */
static void wrong_memory(void)
{
    static float host[COLS];
    norm n;
    make_norm(&n, made(NULL, 3));
    GOOD(forward(&n));
    n.w.data = host;
    NUMBER(forward(&n), SAKER_INVALID_ARG);
    TEXT(saker_context_error(n.ctx),
         "rms_norm: weight points to ordinary host memory, which the context's device cannot use");
    saker_context_destroy(n.ctx);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Host time of a call with the driver's launch in it, the kernel running meanwhile. */
static void call_cost(void)
{
    enum { ROUNDS = 50, CALLS = 100 };
    norm n;
    be_a_cuda_program();
    make_norm(&n, made(NULL, 0));
    n.shape[0] = 1;
    double best = 1e30, best_backward = 1e30;
    for (int r = 0; r < ROUNDS; r++) {
        double start = now();
        for (int i = 0; i < CALLS; i++)
            forward(&n);
        double middle = now();
        for (int i = 0; i < CALLS; i++)
            backward(&n);
        double each = (middle - start) / CALLS, each_backward = (now() - middle) / CALLS;
        best = each < best ? each : best;
        best_backward = each_backward < best_backward ? each_backward : best_backward;
        GOOD(saker_context_sync(n.ctx));
    }
    printf("     host time of a call: rms_norm %.2f us, rms_norm_backward with scratch %.2f us\n", best, best_backward);
    CHECK(best < 10);
    saker_context_destroy(n.ctx);
}

/* Asked in a child: the parent of the scenarios must not touch CUDA. */
static void has_gpu(void)
{
    saker_cuda_info info;
    const char *why = "";
    if (saker_cuda_count(&why) < 1)
        skip(why);
    else if (saker_cuda_at(0, &info) || !info.has_image)
        skip("this library holds no kernels for this GPU");
    else
        printf("     %s\n", info.name);
}

int main(int argc, char **argv)
{
    static const scenario_row first[] = {SCENARIO(has_gpu)};
    static const scenario_row rows[] = {
        SCENARIO(open_and_close), SCENARIO(foreign_context), SCENARIO(capture),
        SCENARIO(device_lost),    SCENARIO(in_error_before), SCENARIO(out_of_memory),
        SCENARIO(forked_child),   SCENARIO(wrong_memory),    SCENARIO(call_cost),
    };
    int failed = run_scenarios(first, 1, NULL);
    if (failed || total->skipped)
        return failed;
    return run_scenarios(rows, sizeof rows / sizeof *rows, argc > 1 ? argv[1] : NULL);
}
