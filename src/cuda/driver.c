/* driver.c - opens libcuda.so.1 on first need and resolves the functions of driver.def.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nothing happens when the library is loaded. The first skr_driver_open() decides once for the process; a failure is
 * remembered as a sentence. The driver is never closed: it does not survive that. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 12000, OPTIONAL = 0, REQUIRED = 1 };

skr_driver skr_cu;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable; /* written by open_once() only */
static char reason[320];
static atomic_bool forked;

const char skr_driver_forked_text[] =
    "CUDA cannot be used in this process: it was forked from one that had already initialised CUDA (start the process "
    "anew, or use CUDA in the child only)";

/* A flag set by the child costs nothing per call; comparing getpid() would be a system call in each. */
static void in_child(void)
{
    atomic_store_explicit(&forked, usable, memory_order_relaxed);
}

bool skr_driver_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

/* ---------------------------------------------------------------- resolving */

typedef skr_cu_result (*get_proc)(const char *name, void **function, int version, uint64_t flags, int *status);

/* dlsym gives an object pointer; copying the bytes is the way to a function pointer that both standards allow. */
static void store(void *slot, void *address)
{
    memcpy(slot, &address, sizeof address);
}

static void *resolve(void *library, get_proc get, const char *name, int version, const char *symbol)
{
    void *found = NULL;
    int status = 0;
    if (get && get(name, &found, version, SKR_CU_PROC_LEGACY_STREAM, &status) == SKR_CU_SUCCESS && found)
        return found;
    return dlsym(library, symbol);
}

/* NULL, or the name of the first required function that the driver does not have. */
static const char *resolve_all(void *library)
{
    get_proc get;
    store(&get, dlsym(library, "cuGetProcAddress_v2"));
    void *found;
#define SKR_DRIVER(name, version, symbol, need, parameters)                                                            \
    found = resolve(library, get, #name, version, symbol);                                                             \
    if (!found && need)                                                                                                \
        return #name;                                                                                                  \
    store(&skr_cu.name, found);
#include "driver.def"
#undef SKR_DRIVER
    return NULL;
}

const char *skr_driver_error(skr_cu_result error, char *text)
{
    const char *name = NULL, *words = NULL;
    if (skr_cu.cuGetErrorName(error, &name) || !name)
        snprintf(text, SKR_CU_ERROR_BYTES, "CUDA error %d", error);
    else if (skr_cu.cuGetErrorString(error, &words) || !words)
        snprintf(text, SKR_CU_ERROR_BYTES, "%s", name);
    else
        snprintf(text, SKR_CU_ERROR_BYTES, "%s (%s)", name, words);
    return text;
}

/* ---------------------------------------------------------------- opening */

__attribute__((format(printf, 1, 2))) static bool refuse(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(reason, sizeof reason, format, list);
    va_end(list);
    return false;
}

static bool no_device(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible)
        return refuse("the CUDA driver finds no device on this machine");
    return refuse("no CUDA device is visible: CUDA_VISIBLE_DEVICES is \"%.100s\"", visible);
}

static bool initialise(void)
{
    char text[SKR_CU_ERROR_BYTES];
    skr_cu_result result = skr_cu.cuInit(0);
    if (result == SKR_CU_NO_DEVICE)
        return no_device();
    if (result == SKR_CU_NOT_INITIALIZED)
        return refuse(
            "the CUDA driver did not initialise: %s; this is its answer in a process that was forked from one "
            "that had already initialised CUDA",
            skr_driver_error(result, text));
    if (result == SKR_CU_SYSTEM_DRIVER_MISMATCH)
        return refuse("the CUDA driver did not initialise: %s; libcuda.so.1 and the kernel module are of different "
                      "versions, a restart of the machine usually helps",
                      skr_driver_error(result, text));
    if (result)
        return refuse("the CUDA driver did not initialise: %s", skr_driver_error(result, text));
    result = skr_cu.cuDeviceGetCount(&skr_cu.n_devices);
    if (result && result != SKR_CU_NO_DEVICE)
        return refuse("the CUDA driver could not count its devices: %s", skr_driver_error(result, text));
    return result || skr_cu.n_devices < 1 ? no_device() : true;
}

static bool open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return refuse("there is no CUDA driver on this machine (%.200s)", why ? why : "libcuda.so.1 does not open");
    }
    /* The version first: an old driver also lacks functions, and "too old" is the useful answer. */
    int (*version_of)(int *version);
    store(&version_of, dlsym(library, "cuDriverGetVersion"));
    if (!version_of)
        return refuse("libcuda.so.1 has no function cuDriverGetVersion: it is not a CUDA driver");
    skr_cu_result result = version_of(&skr_cu.version);
    if (result == SKR_CU_STUB_LIBRARY)
        return refuse("libcuda.so.1 is the toolkit's stub, not a CUDA driver: take its folder out of LD_LIBRARY_PATH");
    if (result)
        return refuse("the CUDA driver did not tell its version (CUDA error %d)", result);
    if (skr_cu.version < OLDEST)
        return refuse("the CUDA driver is too old: it offers CUDA %d.%d, Saker needs %d.%d or newer",
                      skr_cu.version / 1000, skr_cu.version % 1000 / 10, OLDEST / 1000, OLDEST % 1000 / 10);
    const char *missing = resolve_all(library);
    if (missing)
        return refuse("the CUDA driver (CUDA %d.%d) has no function %s", skr_cu.version / 1000,
                      skr_cu.version % 1000 / 10, missing);
    return initialise();
}

static void open_once(void)
{
    usable = open_driver();
    if (usable && pthread_atfork(NULL, NULL, in_child))
        usable = refuse("there is no memory left to register for fork()");
}

const skr_driver *skr_driver_open(const char **why)
{
    pthread_once(&once, open_once);
    bool good = usable && !skr_driver_forked();
    *why = good ? "" : usable ? skr_driver_forked_text : reason;
    return good ? &skr_cu : NULL;
}
