/* module.c - the embedded fatbins: which GPUs they run on, and loading their kernels when first launched.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kernels are handled through the driver's context-independent libraries: a handle stays valid when the primary context
 * goes away with the last saker_context and comes back with the next. A fatbin is loaded once per process, a kernel is
 * prepared once per device. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

/* ---------------------------------------------------------------- images */

/* SKR_CUDA_IMAGES comes from the Makefile: "80,90,90a,ptx80", or "" without nvcc. Weak, so that a test can say that the
 * library holds others. */
__attribute__((weak)) const char skr_cuda_images[] = SKR_CUDA_IMAGES;

typedef struct image {
    int sm;        /* 90 for 9.0 */
    bool exact;    /* "90a": for that GPU only */
    bool portable; /* PTX: for that GPU and all newer ones */
} image;

/* Takes the next word of the list; false at its end. */
static bool next_image(const char **at, image *out)
{
    const char *p = *at + strcspn(*at, "p0123456789");
    out->portable = strncmp(p, "ptx", 3) == 0;
    p += out->portable ? 3 : 0;
    char *end;
    out->sm = (int)strtol(p, &end, 10);
    out->exact = *end == 'a';
    *at = end + out->exact;
    return end != p;
}

bool skr_cuda_has_image(int major, int minor)
{
    int sm = 10 * major + minor;
    image i;
    for (const char *at = skr_cuda_images; next_image(&at, &i);)
        if (i.sm == sm || (i.portable && sm > i.sm) || (!i.exact && sm > i.sm && sm / 10 == i.sm / 10))
            return true;
    return false;
}

saker_status skr_cuda_fail_image(skr_call *call, const skr_cuda_device *device)
{
    if (!*skr_cuda_images)
        return skr_fail(call, SAKER_DEVICE, "this library was built without CUDA kernels");
    char list[160] = "";
    size_t used = 0;
    image i;
    for (const char *at = skr_cuda_images; next_image(&at, &i) && used < sizeof list;)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s%d%s", used ? ", " : "",
                                 i.portable ? "PTX for compute_" : "sm_", i.sm, i.exact ? "a" : "");
    if (skr_cuda_has_image(device->major, device->minor))
        return skr_fail(
            call, SAKER_DEVICE,
            "the CUDA driver (CUDA %d.%d) takes no kernel image of this library for CUDA device %d (compute "
            "capability %d.%d) though it holds %s; a newer driver may",
            skr_cu.version / 1000, skr_cu.version % 1000 / 10, device->id, device->major, device->minor, list);
    return skr_fail(call, SAKER_DEVICE,
                    "no kernel image for this GPU: CUDA device %d has compute capability %d.%d, this library holds %s",
                    device->id, device->major, device->minor, list);
}

/* ---------------------------------------------------------------- loading */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static saker_status fail_load(skr_call *call, skr_cuda_device *device, const skr_cuda_kernel *kernel,
                              skr_cu_result result)
{
    if (result == SKR_CU_NO_BINARY_FOR_GPU)
        return skr_cuda_fail_image(call, device);
    return skr_cuda_fail(call, device, result, "loading kernel %s of %s", kernel->symbol, kernel->fatbin->name);
}

/* Attributes stay with the kernel on that device, whatever context is current later. */
static skr_cu_result permit(const skr_cuda_device *device, const skr_cuda_kernel *kernel, skr_cu_kernel code)
{
    int fixed = 0;
    skr_cu_result result = skr_cu.cuKernelGetAttribute(&fixed, SKR_CU_FUNC_SHARED_SIZE_BYTES, code, device->handle);
    if (result)
        return result;
    /* A smaller GPU cannot permit all that a larger one uses; plans ask for no more than the device has. */
    int most = device->shared_bytes - fixed;
    if ((int)kernel->max_shared < most)
        most = (int)kernel->max_shared;
    if (most > 0)
        result = skr_cu.cuKernelSetAttribute(SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, most, code, device->handle);
    if (!result && kernel->max_cluster > 8 && device->major >= 9)
        result = skr_cu.cuKernelSetAttribute(SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, code, device->handle);
    return result;
}

static saker_status load(skr_call *call, skr_cuda_device *device, skr_cuda_kernel *kernel)
{
    skr_fatbin *fatbin = kernel->fatbin;
    skr_cu_result result = SKR_CU_SUCCESS;
    skr_cu_kernel code = NULL;
    skr_cu_function function = NULL;
    if (!fatbin->library)
        result = skr_cu.cuLibraryLoadData(&fatbin->library, fatbin->image, NULL, NULL, 0, NULL, NULL, 0);
    if (result) {
        fatbin->library = NULL;
        return fail_load(call, device, kernel, result);
    }
    result = skr_cu.cuLibraryGetKernel(&code, fatbin->library, kernel->symbol);
    /* Asking for the function puts the code on the device now: the driver would else do it inside the first launch,
     * which may be captured. */
    if (!result)
        result = skr_cu.cuKernelGetFunction(&function, code);
    if (!result)
        result = permit(device, kernel, code);
    if (result)
        return fail_load(call, device, kernel, result);
    atomic_store_explicit(&kernel->ready[device->id], code, memory_order_release);
    return SAKER_OK;
}

saker_status skr_cuda_load(skr_call *call, skr_cuda_device *device, skr_cuda_kernel *kernel)
{
    if (!kernel->fatbin->image)
        return skr_fail(call, SAKER_DEVICE, "this library was built without CUDA kernels");
    saker_status status = SAKER_OK;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&kernel->ready[device->id], memory_order_relaxed)) {
        /* Loading is forbidden to a thread while any stream is captured in global mode, unless the thread says that it
         * knows. */
        skr_cu_capture_mode mode = SKR_CU_CAPTURE_MODE_RELAXED;
        skr_cu_result exchanged = skr_cu.cuThreadExchangeStreamCaptureMode(&mode);
        status = load(call, device, kernel);
        if (!exchanged)
            skr_cu.cuThreadExchangeStreamCaptureMode(&mode);
    }
    pthread_mutex_unlock(&lock);
    return status;
}
