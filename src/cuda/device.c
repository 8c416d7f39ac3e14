/* device.c - the GPUs of this process: their properties, their primary contexts, and making one current for a while.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything runs in a device's primary context, the one that PyTorch, JAX and the CUDA runtime use: their tensors and
 * streams are ours to use. It is held from the first saker_context on the device to the last. */
#include <pthread.h>
#include <stdatomic.h>

#include "device.h"

/* Scratch that is free is kept up to this size: without it the driver would unmap all of it at each wait and map it
 * anew for the next call. */
#define SCRATCH_KEPT (UINT64_C(64) << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static skr_cuda_device devices[SKR_CUDA_MAX_DEVICES];

/* ---------------------------------------------------------------- the current context */

skr_cu_result skr_cuda_make_current(const skr_cuda_device *device, skr_cuda_visit *v)
{
    *v = (skr_cuda_visit){.mode = SKR_CU_CAPTURE_MODE_RELAXED};
    skr_cu_context now = NULL;
    skr_cu_result result = skr_cu.cuCtxGetCurrent(&now);
    if (result || now == device->primary)
        return result;
    result = skr_cu.cuCtxPushCurrent(device->primary);
    v->pushed = !result;
    return result;
}

saker_status skr_cuda_enter(skr_call *call, skr_cuda_device *device, skr_cuda_visit *v)
{
    if (skr_driver_forked())
        return skr_fail(call, SAKER_DEVICE, "%s", skr_driver_forked_text);
    if (atomic_load_explicit(&device->lost, memory_order_relaxed))
        return skr_cuda_fail_lost(call, device);
    skr_cu_result result = skr_cuda_make_current(device, v);
    return result ? skr_cuda_fail(call, device, result, "making its context current") : SAKER_OK;
}

void skr_cuda_relax(skr_cuda_visit *v)
{
    v->relaxed = !skr_cu.cuThreadExchangeStreamCaptureMode(&v->mode);
}

void skr_cuda_leave(skr_cuda_visit *v)
{
    skr_cu_context ours;
    if (v->relaxed)
        skr_cu.cuThreadExchangeStreamCaptureMode(&v->mode);
    if (v->pushed)
        skr_cu.cuCtxPopCurrent(&ours);
}

/* ---------------------------------------------------------------- opening and closing */

static skr_cu_result make_pool(skr_cuda_device *d)
{
    int pools = 0;
    skr_cu_result result = skr_cu.cuDeviceGetAttribute(&pools, SKR_CU_DEVICE_MEMORY_POOLS_SUPPORTED, d->handle);
    if (result || !pools)
        return result;
    /* Our own pool: the device's default one belongs to the program, and so do its settings. */
    skr_cu_pool_props props = {.allocation_type = SKR_CU_ALLOCATION_PINNED,
                               .location = {.type = SKR_CU_LOCATION_DEVICE, .id = d->id}};
    uint64_t kept = SCRATCH_KEPT;
    result = skr_cu.cuMemPoolCreate(&d->pool, &props);
    return result ? result : skr_cu.cuMemPoolSetAttribute(d->pool, SKR_CU_POOL_RELEASE_THRESHOLD, &kept);
}

static void close_device(skr_cuda_device *d)
{
    skr_cuda_visit v;
    if (!skr_cuda_make_current(d, &v)) {
        skr_cuda_relax(&v);
        if (d->pool)
            skr_cu.cuMemPoolDestroy(d->pool);
        skr_cuda_leave(&v);
    }
    skr_cu.cuDevicePrimaryCtxRelease(d->handle);
    d->pool = NULL;
    d->primary = NULL;
    atomic_store(&d->lost, 0); /* busy is 0: each context has taken its own back */
}

static skr_cu_result ask_device(skr_cuda_device *d)
{
    const struct {
        skr_cu_device_attribute which;
        int32_t *value;
    } questions[] = {
        {SKR_CU_DEVICE_COMPUTE_CAPABILITY_MAJOR, &d->major},
        {SKR_CU_DEVICE_COMPUTE_CAPABILITY_MINOR, &d->minor},
        {SKR_CU_DEVICE_MULTIPROCESSOR_COUNT, &d->n_sms},
        {SKR_CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &d->shared_bytes},
    };
    skr_cu_result result = skr_cu.cuDeviceGet(&d->handle, d->id);
    for (size_t i = 0; i < sizeof questions / sizeof *questions && !result; i++)
        result = skr_cu.cuDeviceGetAttribute(questions[i].value, questions[i].which, d->handle);
    /* Graphs know programmatic launches from CUDA 12.3 on; before, capturing one would lose the ordering or fail. Newer
     * GPUs run the PTX of compute_80, in which no kernel waits for the one before it. */
    d->can_overlap = d->major == 9 && skr_cu.version >= 12030;
    return result;
}

static saker_status open_device(skr_call *call, skr_cuda_device *d)
{
    skr_cu_result result = ask_device(d);
    if (result)
        return skr_cuda_fail(call, d, result, "asking for its properties");
    if (!skr_cuda_has_image(d->major, d->minor))
        return skr_cuda_fail_image(call, d);
    result = skr_cu.cuDevicePrimaryCtxRetain(&d->primary, d->handle);
    if (result)
        return skr_cuda_fail(call, d, result, "taking its primary context");
    skr_cuda_visit v;
    result = skr_cuda_make_current(d, &v);
    if (!result) {
        skr_cuda_relax(&v);
        result = make_pool(d);
        skr_cuda_leave(&v);
    }
    saker_status status = result ? skr_cuda_fail(call, d, result, "making a memory pool") : SAKER_OK;
    if (status)
        close_device(d);
    return status;
}

saker_status skr_cuda_device_take(skr_call *call, int32_t id, skr_cuda_device **out)
{
    const char *why;
    const skr_driver *driver = skr_driver_open(&why);
    if (!driver)
        return skr_fail(call, SAKER_DEVICE, "%s", why);
    if (id < 0 || id >= driver->n_devices)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "saker_context_create: device_id is %d, expected 0 to %d (CUDA devices that the driver shows)",
                        id, driver->n_devices - 1);
    if (id >= SKR_CUDA_MAX_DEVICES)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "saker_context_create: device_id is %d, this library uses CUDA devices 0 to %d only", id,
                        SKR_CUDA_MAX_DEVICES - 1);
    skr_cuda_device *d = &devices[id];
    saker_status status = SAKER_OK;
    pthread_mutex_lock(&lock);
    if (d->contexts == 0) {
        d->id = id;
        status = open_device(call, d);
    } else if (atomic_load(&d->lost)) {
        status = skr_cuda_fail_lost(call, d);
    }
    d->contexts += status == SAKER_OK;
    pthread_mutex_unlock(&lock);
    *out = d;
    return status;
}

void skr_cuda_device_give(skr_cuda_device *d)
{
    pthread_mutex_lock(&lock);
    if (--d->contexts == 0)
        close_device(d);
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------- what the driver shows */

int32_t saker_cuda_count(const char **why)
{
    const char *reason;
    const skr_driver *driver = skr_driver_open(&reason);
    if (why)
        *why = reason;
    return driver ? driver->n_devices : 0;
}

saker_status saker_cuda_at(int32_t index, saker_cuda_info *info)
{
    if (!info)
        return SAKER_NULL_POINTER;
    *info = (saker_cuda_info){0};
    const char *why;
    const skr_driver *driver = skr_driver_open(&why);
    if (!driver)
        return SAKER_DEVICE;
    if (index < 0 || index >= driver->n_devices)
        return SAKER_INVALID_ARG;
    skr_cuda_device d = {.id = index};
    size_t memory = 0;
    int l2 = 0;
    if (ask_device(&d) || driver->cuDeviceGetName(info->name, sizeof info->name, d.handle) ||
        driver->cuDeviceTotalMem(&memory, d.handle) ||
        driver->cuDeviceGetAttribute(&l2, SKR_CU_DEVICE_L2_CACHE_SIZE, d.handle))
        return SAKER_DEVICE;
    info->compute_major = d.major;
    info->compute_minor = d.minor;
    info->multiprocessors = d.n_sms;
    info->driver_version = driver->version;
    info->memory_bytes = (int64_t)memory;
    info->l2_bytes = l2;
    info->shared_bytes = d.shared_bytes;
    info->has_image = skr_cuda_has_image(d.major, d.minor);
    return SAKER_OK;
}
