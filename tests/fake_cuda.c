/* fake_cuda.c - a libcuda.so.1 without a GPU: it keeps the driver's rules, records calls, and fails on command.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Device memory is host memory; kernels are recorded, never run. Rules that it enforces, because breaking them is what
 * the tests look for: a current context where one is needed, no wait and no unsafe call during stream capture, launch
 * limits, one initialisation per process. Variants: -DFAKE_PLAIN has no cuGetProcAddress_v2 and nothing optional;
 * -DFAKE_PARTIAL lacks cuGetProcAddress_v2 and cuLaunchKernelEx. This file has everything but the kernels and the
 * controls (fake_cuda_kernels.c). */
#include "fake_cuda_state.h"

#include <unistd.h>

fake_state fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .version = 13000, .n_devices = 2, .sm = 90, .pools = 1, .limit = (size_t)-1};
const char *const names[N_FUNCTIONS] = {
#define SKR_DRIVER(name, version, symbol, need, parameters) #name,
#include "../src/cuda/driver.def"
#undef SKR_DRIVER
};

_Thread_local context *stack[16];
_Thread_local int depth;
static _Thread_local unsigned capture_mode; /* GLOBAL, until exchanged */

/* ---------------------------------------------------------------- what every call does first */

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void read_environment(void)
{
    fake.version = number("FAKE_CUDA_VERSION", fake.version);
    fake.n_devices = number("FAKE_CUDA_DEVICES", fake.n_devices);
    fake.sm = number("FAKE_CUDA_SM", fake.sm);
    fake.pools = number("FAKE_CUDA_POOLS", fake.pools);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && !*visible)
        fake.n_devices = 0;
    for (int i = 0; i < MAX_DEVICES; i++)
        fake.primary[i].device = fake.extra[i].device = i;
    const char *list = getenv("FAKE_CUDA_FAIL");
    for (rule *r = fake.rules; list && *list && fake.n_rules < N_FUNCTIONS; r++) {
        int used = 0;
        if (sscanf(list, "%63[^=]=%d%n", r->function, &r->error, &used) < 2)
            break;
        r->from = 1;
        r->times = -1;
        fake.n_rules++;
        list += used + (list[used] == ',');
    }
}

static int injected(int id)
{
    for (int i = 0; i < fake.n_rules; i++) {
        rule *r = &fake.rules[i];
        if (strcmp(r->function, names[id]) != 0 || r->times == 0 || --r->from > 0)
            continue;
        r->from = 1;
        r->times -= r->times > 0;
        return r->error;
    }
    return 0;
}

/* Takes the fake.lock, which END or FAIL_WITH gives back. */
int begin(int id)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    pthread_mutex_lock(&fake.lock);
    fake.calls[id]++;
#ifndef FAKE_EMULATE
    size_t used = strlen(fake.trace);
    snprintf(fake.trace + used, sizeof fake.trace - used, "%s ", names[id]);
#endif
    if (fake.initialised_in && getpid() != fake.initialised_in) {
        fake.after_fork++;
        return SKR_CU_NOT_INITIALIZED;
    }
    return injected(id);
}

int end(int result)
{
    pthread_mutex_unlock(&fake.lock);
    return result;
}

context *current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

int in_context(void)
{
    context *now = current();
    return !now ? SKR_CU_INVALID_CONTEXT : fake.sticky[now->device];
}

int unsafe(void)
{
    if (!fake.n_capturing || capture_mode == SKR_CU_CAPTURE_MODE_RELAXED)
        return 0;
    fake.spoiled++;
    return SKR_CU_STREAM_CAPTURE_UNSUPPORTED;
}

stream *real(skr_cu_stream s)
{
    return (uintptr_t)s > 2 ? (stream *)s : NULL;
}

int on_stream(skr_cu_stream s)
{
    return real(s) ? fake.sticky[real(s)->in->device] : in_context();
}

static int no_wait(skr_cu_stream s)
{
    if (!real(s) || !real(s)->capturing)
        return 0;
    fake.spoiled++;
    return SKR_CU_STREAM_CAPTURE_UNSUPPORTED;
}

/* ---------------------------------------------------------------- driver, devices, contexts */

CALL(cuInit, (unsigned flags))
{
    BEGIN(cuInit);
    NEED(flags ? SKR_CU_INVALID_VALUE : fake.n_devices ? 0 : SKR_CU_NO_DEVICE);
    fake.initialised_in = getpid();
    return end(0);
}

CALL(cuDriverGetVersion, (int *out))
{
    BEGIN(cuDriverGetVersion);
    *out = fake.version;
    return end(0);
}

/* Not counted: they may be asked at any time, also to print an error of theirs. */
CALL(cuGetErrorName, (skr_cu_result error, const char **text))
{
    static const struct {
        int error;
        const char *name;
    } known[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {3, "CUDA_ERROR_NOT_INITIALIZED"},
                 {101, "CUDA_ERROR_INVALID_DEVICE"},
                 {500, "CUDA_ERROR_NOT_FOUND"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"},
                 {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                 {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                 {999, "CUDA_ERROR_UNKNOWN"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error) {
            *text = known[i].name;
            return 0;
        }
    *text = NULL;
    return SKR_CU_INVALID_VALUE;
}

CALL(cuGetErrorString, (skr_cu_result error, const char **text))
{
    *text = error == 700 ? "an illegal memory access was encountered" : "words of the fake driver";
    return 0;
}

CALL(cuDeviceGetCount, (int *count))
{
    BEGIN(cuDeviceGetCount);
    *count = fake.n_devices;
    return end(0);
}

CALL(cuDeviceGet, (skr_cu_device * device, int ordinal))
{
    BEGIN(cuDeviceGet);
    NEED(ordinal < 0 || ordinal >= fake.n_devices ? SKR_CU_INVALID_DEVICE : 0);
    *device = ordinal;
    return end(0);
}

CALL(cuDeviceGetName, (char *name, int size, skr_cu_device device))
{
    BEGIN(cuDeviceGetName);
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return end(0);
}

int fake_shared_bytes(int sm)
{
    if (sm == 86 || sm == 89 || sm / 10 == 12)
        return 101376;
    return sm >= 90 ? 232448 : 166912;
}

CALL(cuDeviceGetAttribute, (int *value, skr_cu_device_attribute which, skr_cu_device device))
{
    BEGIN(cuDeviceGetAttribute);
    NEED(device < 0 || device >= fake.n_devices ? SKR_CU_INVALID_DEVICE : 0);
    switch (which) {
    case SKR_CU_DEVICE_MULTIPROCESSOR_COUNT:
        *value = 132;
        break;
    case SKR_CU_DEVICE_L2_CACHE_SIZE:
        *value = 50 << 20;
        break;
    case SKR_CU_DEVICE_COMPUTE_CAPABILITY_MAJOR:
        *value = fake.sm / 10;
        break;
    case SKR_CU_DEVICE_COMPUTE_CAPABILITY_MINOR:
        *value = fake.sm % 10;
        break;
    case SKR_CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = fake_shared_bytes(fake.sm);
        break;
    case SKR_CU_DEVICE_MEMORY_POOLS_SUPPORTED:
        *value = fake.pools;
        break;
    default:
        return end(SKR_CU_INVALID_VALUE);
    }
    return end(0);
}

CALL(cuDeviceTotalMem_v2, (size_t * bytes, skr_cu_device device))
{
    BEGIN(cuDeviceTotalMem);
    *bytes = (size_t)(device + 1) << FAKE_MEMORY;
    return end(0);
}

CALL(cuDevicePrimaryCtxRetain, (skr_cu_context * out, skr_cu_device device))
{
    BEGIN(cuDevicePrimaryCtxRetain);
    fake.primary[device].holders++;
    *out = (skr_cu_context)&fake.primary[device];
    return end(0);
}

CALL(cuDevicePrimaryCtxRelease_v2, (skr_cu_device device))
{
    BEGIN(cuDevicePrimaryCtxRelease);
    NEED(fake.primary[device].holders ? 0 : SKR_CU_INVALID_CONTEXT);
    fake.primary[device].holders--;
    return end(0);
}

CALL(cuCtxGetCurrent, (skr_cu_context * out))
{
    BEGIN(cuCtxGetCurrent);
    *out = (skr_cu_context)current();
    return end(0);
}

CALL(cuCtxPushCurrent_v2, (skr_cu_context in))
{
    BEGIN(cuCtxPushCurrent);
    NEED(!in || depth == 16 ? SKR_CU_INVALID_CONTEXT : 0);
    stack[depth++] = (context *)in;
    return end(0);
}

CALL(cuCtxPopCurrent_v2, (skr_cu_context * out))
{
    BEGIN(cuCtxPopCurrent);
    NEED(depth ? 0 : SKR_CU_INVALID_CONTEXT);
    *out = (skr_cu_context)stack[--depth];
    return end(0);
}

CALL(cuCtxSynchronize, (void))
{
    BEGIN(cuCtxSynchronize);
    NEED(in_context());
    NEED(unsafe());
    return end(0);
}

CALL(cuCtxGetDevice, (skr_cu_device * device))
{
    BEGIN(cuCtxGetDevice);
    NEED(current() ? 0 : SKR_CU_INVALID_CONTEXT);
    *device = current()->device;
    return end(0);
}

/* ---------------------------------------------------------------- fake.streams and events */

CALL(cuStreamGetCtx, (skr_cu_stream s, skr_cu_context *out))
{
    BEGIN(cuStreamGetCtx);
    NEED(on_stream(s));
    *out = (skr_cu_context)(real(s) ? real(s)->in : current());
    return end(0);
}

CALL(cuStreamSynchronize, (skr_cu_stream s))
{
    BEGIN(cuStreamSynchronize);
    NEED(on_stream(s));
    NEED(no_wait(s));
    return end(0);
}

CALL(cuStreamIsCapturing, (skr_cu_stream s, skr_cu_capture_status *status))
{
    BEGIN(cuStreamIsCapturing);
    NEED(on_stream(s));
    *status = real(s) && real(s)->capturing;
    return end(0);
}

CALL(cuThreadExchangeStreamCaptureMode, (skr_cu_capture_mode * mode))
{
    BEGIN(cuThreadExchangeStreamCaptureMode);
    unsigned old = capture_mode;
    capture_mode = *mode;
    *mode = old;
    return end(0);
}

typedef struct event {
    skr_cu_stream on;
    int waited; /* since it was last recorded */
} event;

CALL(cuEventCreate, (skr_cu_event * out, unsigned flags))
{
    BEGIN(cuEventCreate);
    (void)flags;
    NEED(in_context());
    static event events[MAX_STREAMS];
    static int n_events;
    *out = (skr_cu_event)&events[n_events++ % MAX_STREAMS];
    return end(0);
}

CALL(cuEventDestroy_v2, (skr_cu_event e))
{
    BEGIN(cuEventDestroy);
    return end(e ? 0 : SKR_CU_INVALID_HANDLE);
}

CALL(cuEventRecord, (skr_cu_event e, skr_cu_stream s))
{
    BEGIN(cuEventRecord);
    NEED(on_stream(s));
    *(event *)e = (event){.on = s};
    return end(0);
}

CALL(cuEventSynchronize, (skr_cu_event e))
{
    BEGIN(cuEventSynchronize);
    NEED(in_context());
    NEED(no_wait(((event *)e)->on));
    ((event *)e)->waited = 1;
    return end(0);
}

CALL(cuEventElapsedTime, (float *milliseconds, skr_cu_event start, skr_cu_event stop))
{
    BEGIN(cuEventElapsedTime);
    NEED(start && stop && start != stop ? 0 : SKR_CU_INVALID_HANDLE);
    NEED(((event *)stop)->waited ? 0 : NOT_READY);
    *milliseconds = 0.125f;
    return end(0);
}

/* ---------------------------------------------------------------- memory */

size_t live(void)
{
    size_t sum = 0;
    for (int i = 0; i < MAX_BLOCKS; i++)
        sum += fake.blocks[i].at && fake.blocks[i].ours ? fake.blocks[i].bytes : 0;
    return sum;
}

void *take(size_t bytes, int device, int kind, int ours)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (!fake.blocks[i].at && (!ours || live() + bytes <= fake.limit)) {
            fake.blocks[i] = (block){aligned_alloc(256, (bytes + 255) / 256 * 256), bytes, device, kind, ours};
            if (kind == 'h') /* what it held before */
                memset(fake.blocks[i].at, 0xa5, bytes);
            return fake.blocks[i].at;
        }
    return NULL;
}

static int give(void *at)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (at && fake.blocks[i].at == at) {
            free(at);
            fake.blocks[i].at = NULL;
            return 0;
        }
    return SKR_CU_INVALID_VALUE;
}

static int allocate(skr_cu_pointer *out, size_t bytes, int device)
{
    void *at = bytes ? take(bytes, device, 'd', 1) : NULL;
    *out = (skr_cu_pointer)(uintptr_t)at;
    return at ? 0 : bytes ? SKR_CU_OUT_OF_MEMORY : SKR_CU_INVALID_VALUE;
}

CALL(cuMemAlloc_v2, (skr_cu_pointer * out, size_t bytes))
{
    BEGIN(cuMemAlloc);
    NEED(in_context());
    NEED(unsafe());
    return end(allocate(out, bytes, current()->device));
}

CALL(cuMemFree_v2, (skr_cu_pointer at))
{
    BEGIN(cuMemFree);
    NEED(in_context());
    NEED(unsafe());
    return end(give((void *)(uintptr_t)at));
}

CALL(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))
{
    BEGIN(cuMemHostAlloc);
    NEED(in_context());
    NEED(unsafe());
    NEED(flags & SKR_CU_MEMHOSTALLOC_DEVICEMAP ? 0 : SKR_CU_INVALID_VALUE);
    *out = take(bytes, current()->device, 'h', 1);
    return end(*out ? 0 : SKR_CU_OUT_OF_MEMORY);
}

CALL(cuMemFreeHost, (void *at))
{
    BEGIN(cuMemFreeHost);
    NEED(in_context());
    NEED(unsafe());
    return end(give(at));
}

CALL(cuMemHostGetDevicePointer_v2, (skr_cu_pointer * seen, void *at, unsigned flags))
{
    BEGIN(cuMemHostGetDevicePointer);
    NEED(flags ? SKR_CU_INVALID_VALUE : in_context());
    *seen = (skr_cu_pointer)(uintptr_t)at;
    return end(0);
}

CALL(cuMemcpyAsync, (skr_cu_pointer to, skr_cu_pointer from, size_t bytes, skr_cu_stream s))
{
    BEGIN(cuMemcpyAsync);
    NEED(on_stream(s));
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return end(0);
}

CALL(cuMemsetD8Async, (skr_cu_pointer at, unsigned char byte, size_t bytes, skr_cu_stream s))
{
    BEGIN(cuMemsetD8Async);
    NEED(on_stream(s));
    memset((void *)(uintptr_t)at, byte, bytes);
    return end(0);
}

CALL(cuMemPoolCreate, (skr_cu_pool * out, const skr_cu_pool_props *props))
{
    BEGIN(cuMemPoolCreate);
    NEED(in_context());
    NEED(unsafe());
    NEED(props->allocation_type == SKR_CU_ALLOCATION_PINNED && props->location.type == SKR_CU_LOCATION_DEVICE
             ? 0
             : SKR_CU_INVALID_VALUE);
    *out = (skr_cu_pool)&fake.primary[props->location.id];
    return end(0);
}

CALL(cuMemPoolDestroy, (skr_cu_pool pool))
{
    BEGIN(cuMemPoolDestroy);
    return end(pool ? 0 : SKR_CU_INVALID_VALUE);
}

CALL(cuMemPoolSetAttribute, (skr_cu_pool pool, skr_cu_pool_attribute which, void *value))
{
    BEGIN(cuMemPoolSetAttribute);
    return end(pool && value && which == SKR_CU_POOL_RELEASE_THRESHOLD ? 0 : SKR_CU_INVALID_VALUE);
}

CALL(cuMemAllocFromPoolAsync, (skr_cu_pointer * out, size_t bytes, skr_cu_pool pool, skr_cu_stream s))
{
    BEGIN(cuMemAllocFromPoolAsync);
    NEED(on_stream(s));
    fake.memory_stream = s;
    return end(allocate(out, bytes, ((context *)pool)->device));
}

CALL(cuMemFreeAsync, (skr_cu_pointer at, skr_cu_stream s))
{
    BEGIN(cuMemFreeAsync);
    NEED(on_stream(s));
    fake.memory_stream = s;
    return end(give((void *)(uintptr_t)at));
}

CALL(cuPointerGetAttribute, (void *value, skr_cu_pointer_attribute which, skr_cu_pointer pointer))
{
    BEGIN(cuPointerGetAttribute);
    NEED(in_context());
    const char *at = (const char *)(uintptr_t)pointer;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        const block *b = &fake.blocks[i];
        if (!b->at || at < b->at || at >= b->at + b->bytes)
            continue;
        if (which == SKR_CU_POINTER_MEMORY_TYPE)
            *(unsigned *)value = b->kind == 'h' || b->kind == 'e' ? SKR_CU_MEMORYTYPE_HOST : SKR_CU_MEMORYTYPE_DEVICE;
        else if (which == SKR_CU_POINTER_IS_MANAGED)
            *(int *)value = b->kind == 'm';
        else if (which == SKR_CU_POINTER_DEVICE_ORDINAL)
            *(int *)value = b->device;
        else if (which == SKR_CU_POINTER_DEVICE_POINTER)
            *(skr_cu_pointer *)value = pointer + (b->kind == 'e' ? 1 << 20 : 0);
        else
            return end(SKR_CU_INVALID_VALUE);
        return end(0);
    }
    return end(SKR_CU_INVALID_VALUE);
}

#ifdef FAKE_EMULATE
EXPORT int fake_holds(const void *p, size_t bytes);
int fake_holds(const void *p, size_t bytes)
{
    static int last;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        int at = (last + i) % MAX_BLOCKS;
        const block *b = &fake.blocks[at];
        if (b->at && (const char *)p >= b->at && (const char *)p + bytes <= b->at + b->bytes) {
            last = at;
            return 1;
        }
    }
    return 0;
}
#endif
