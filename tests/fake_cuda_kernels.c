/* fake_cuda_kernels.c - the fake driver's kernels, its cuGetProcAddress, and the controls of fake_cuda.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "fake_cuda_state.h"

/* ---------------------------------------------------------------- fake.kernels */

CALL(cuLibraryLoadData, (skr_cu_library * out, const void *image, skr_cu_jit_option *jit, void **jit_values,
                         unsigned n_jit, skr_cu_library_option *options, void **option_values, unsigned n_options))
{
    BEGIN(cuLibraryLoadData);
    (void)jit, (void)jit_values, (void)options, (void)option_values;
    NEED(unsafe());
    NEED(image && !n_jit && !n_options ? 0 : SKR_CU_INVALID_VALUE);
    struct timespec nap = {0, fake.slow_ms * 1000000L};
    pthread_mutex_unlock(&fake.lock);
    nanosleep(&nap, NULL);
    pthread_mutex_lock(&fake.lock);
    *out = (skr_cu_library)(uintptr_t)image;
    return end(0);
}

static kernel *find_kernel(const char *name)
{
    for (int i = 0; i < fake.n_kernels; i++)
        if (!strcmp(fake.kernels[i].name, name))
            return &fake.kernels[i];
    return NULL;
}

CALL(cuLibraryGetKernel, (skr_cu_kernel * out, skr_cu_library library, const char *name))
{
    BEGIN(cuLibraryGetKernel);
    kernel *k = find_kernel(name);
    if (!k) {
        NEED(fake.n_kernels == MAX_KERNELS ? SKR_CU_OUT_OF_MEMORY : 0);
        k = &fake.kernels[fake.n_kernels++];
        snprintf(k->name, sizeof k->name, "%s", name);
        k->library = library;
        memset(k->attribute, 0xff, sizeof k->attribute);
    }
    *out = (skr_cu_kernel)k;
    return end(0);
}

CALL(cuKernelGetFunction, (skr_cu_function * out, skr_cu_kernel k))
{
    BEGIN(cuKernelGetFunction);
    NEED(in_context());
    NEED(unsafe());
    *out = (skr_cu_function)k;
    return end(0);
}

CALL(cuKernelGetAttribute, (int *value, skr_cu_function_attribute which, skr_cu_kernel k, skr_cu_device device))
{
    BEGIN(cuKernelGetAttribute);
    NEED(k && which == SKR_CU_FUNC_SHARED_SIZE_BYTES && device < fake.n_devices ? 0 : SKR_CU_INVALID_VALUE);
    *value = 1024;
    return end(0);
}

CALL(cuKernelSetAttribute, (skr_cu_function_attribute which, int value, skr_cu_kernel k, skr_cu_device device))
{
    BEGIN(cuKernelSetAttribute);
    NEED(which < 16 && device < fake.n_devices ? 0 : SKR_CU_INVALID_VALUE);
    NEED(which == SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > fake_shared_bytes(fake.sm) - 1024
             ? SKR_CU_INVALID_VALUE
             : 0);
    ((kernel *)k)->attribute[which][device] = value;
    return end(0);
}

#ifndef FAKE_PARTIAL
static int launch_limits(const skr_cu_launch_config *c, const kernel *k, const fake_launch *l)
{
    int shared = k->attribute[SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES][l->device];
    int wide = k->attribute[SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED][l->device] == 1;
    unsigned threads = c->block_x * c->block_y * c->block_z, cluster = l->cluster[0];
    if (!c->grid_x || c->grid_x > 0x7fffffffu || !c->grid_y || !c->grid_z || !threads || threads > 1024)
        return SKR_CU_INVALID_VALUE;
    if (c->shared_bytes > (unsigned)(shared > DEFAULT_SHARED ? shared : DEFAULT_SHARED))
        return SKR_CU_INVALID_VALUE;
    if (cluster && (fake.sm < 90 || c->grid_x % cluster || cluster > (wide ? 16u : 8u)))
        return SKR_CU_INVALID_VALUE;
    return 0;
}

CALL(cuLaunchKernelEx, (const skr_cu_launch_config *c, skr_cu_function f, void **parameters, void **extra_parameters))
{
    BEGIN(cuLaunchKernelEx);
    NEED(on_stream(c->stream));
    NEED(f && parameters && parameters[0] && !extra_parameters ? 0 : SKR_CU_INVALID_VALUE);
    const kernel *k = (const kernel *)f;
    fake_launch l = {.device = real(c->stream) ? real(c->stream)->in->device : current()->device,
                     .grid = {c->grid_x, c->grid_y, c->grid_z},
                     .block = {c->block_x, c->block_y, c->block_z},
                     .shared = c->shared_bytes,
                     .captured = real(c->stream) && real(c->stream)->capturing,
                     .stream = c->stream,
                     .parameter_bytes = fake.parameter_size};
    for (unsigned i = 0; i < c->n_attributes; i++) {
        const skr_cu_launch_attribute *a = &c->attributes[i];
        if (a->id == SKR_CU_LAUNCH_CLUSTER_DIMENSION)
            memcpy(l.cluster, &a->value.cluster, sizeof l.cluster);
        else if (a->id == SKR_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION)
            l.overlap = a->value.overlap;
        else
            return end(SKR_CU_INVALID_VALUE);
    }
    NEED(launch_limits(c, k, &l));
#ifdef FAKE_EMULATE
    if (emu_launch(k->name, parameters[0], c->grid_x, c->block_x, l.cluster[0], c->shared_bytes))
        return end(SKR_CU_INVALID_VALUE);
#else
    NEED(fake.n_launches < MAX_LAUNCHES ? 0 : SKR_CU_INVALID_VALUE);
    memcpy(l.name, k->name, sizeof l.name);
    memcpy(l.parameter, parameters[0], fake.parameter_size);
    fake.launches[fake.n_launches++] = l;
#endif
    return end(0);
}
#endif

#ifndef FAKE_PLAIN
/* The real map is opaque; this one is its arguments, so that a test can read them back. */
CALL(cuTensorMapEncodeTiled,
     (skr_cu_tensor_map * map, skr_cu_tensor_type type, uint32_t rank, void *data, const uint64_t *dims,
      const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
      skr_cu_tensor_interleave interleave, skr_cu_tensor_swizzle swizzle, skr_cu_tensor_l2 l2, skr_cu_tensor_fill fill))
{
    BEGIN(cuTensorMapEncodeTiled);
    NEED(rank != 3 || (uintptr_t)map % 64 ? SKR_CU_INVALID_VALUE : 0);
    const uint64_t fields[16] = {type,
                                 (uintptr_t)data,
                                 dims[0],
                                 dims[1],
                                 dims[2],
                                 strides[0],
                                 strides[1],
                                 box[0],
                                 box[1],
                                 element_strides[0],
                                 element_strides[1],
                                 interleave,
                                 swizzle,
                                 l2,
                                 fill};
    memcpy(map->opaque, fields, sizeof fields);
    return end(0);
}
#endif

#if !defined(FAKE_PLAIN) && !defined(FAKE_PARTIAL)
/* What each symbol of driver.def is here. */
#define SKR_DRIVER(name, version, symbol, need, parameters)                                                            \
    extern skr_cu_result exported_##name parameters __asm__(symbol);
#include "../src/cuda/driver.def"
#undef SKR_DRIVER

CALL(cuGetProcAddress_v2, (const char *name, void **function, int asked, uint64_t flags, int *status))
{
    static const struct {
        int since;
        skr_cu_result (*function)(void);
    } table[] = {
#define SKR_DRIVER(name, version, symbol, need, parameters) {version, (skr_cu_result(*)(void))(void *)exported_##name},
#include "../src/cuda/driver.def"
#undef SKR_DRIVER
    };
    *function = NULL;
    *status = 1;
    for (int i = 0; i < N_FUNCTIONS; i++)
        if (!strcmp(names[i], name) && asked >= table[i].since && flags == SKR_CU_PROC_LEGACY_STREAM) {
            memcpy(function, &table[i].function, sizeof *function);
            *status = 0;
        }
    return *function ? 0 : SKR_CU_NOT_FOUND;
}
#endif

/* ---------------------------------------------------------------- controls */

static int id_of(const char *function)
{
    for (int i = 0; i < N_FUNCTIONS; i++)
        if (!strcmp(names[i], function))
            return i;
    fprintf(stderr, "fake_cuda: no function %s\n", function);
    exit(2);
}

void fake_fail(const char *function, int error, int from, int times)
{
    rule *r = fake.rules;
    for (id_of(function); r < fake.rules + fake.n_rules && strcmp(r->function, function);)
        r++;
    fake.n_rules += r == fake.rules + fake.n_rules;
    snprintf(r->function, sizeof r->function, "%s", function);
    r->error = error;
    r->from = from;
    r->times = times;
}

int fake_calls(const char *function)
{
    return fake.calls[id_of(function)];
}

void fake_trace_start(void)
{
    fake.trace[0] = 0;
}

const char *fake_trace(void)
{
    return fake.trace;
}

void fake_stick(int device, int error)
{
    fake.sticky[device] = error;
}

void *fake_context(int device)
{
    return &fake.extra[device];
}

void fake_set_current(void *c)
{
    depth = c != NULL;
    stack[0] = c;
}

void *fake_current(void)
{
    return current();
}

void *fake_primary(int device)
{
    return &fake.primary[device];
}

int fake_primary_holders(int device)
{
    return fake.primary[device].holders;
}

void *fake_stream(int device)
{
    stream *s = &fake.streams[fake.n_streams++ % MAX_STREAMS];
    s->in = &fake.primary[device];
    return s;
}

void fake_capture(void *s, int on)
{
    fake.n_capturing += on - ((stream *)s)->capturing;
    ((stream *)s)->capturing = on;
}

int fake_capture_spoiled(void)
{
    return fake.spoiled;
}

void *fake_memory(size_t bytes, int device, int kind)
{
    return take(bytes, device, kind, 0);
}

void *fake_memory_stream(void)
{
    return fake.memory_stream;
}

void fake_memory_limit(size_t bytes)
{
    fake.limit = bytes;
}

size_t fake_memory_live(void)
{
    return live();
}

void fake_slow_loads(int milliseconds)
{
    fake.slow_ms = milliseconds;
}

void fake_parameter_size(size_t bytes)
{
    fake.parameter_size = bytes < sizeof fake.launches[0].parameter ? bytes : sizeof fake.launches[0].parameter;
}

int fake_launches(void)
{
    return fake.n_launches;
}

const fake_launch *fake_launch_at(int i)
{
    return i >= 0 && i < fake.n_launches ? &fake.launches[i] : NULL;
}

int fake_kernel_attribute(const char *name, int which, int device)
{
    const kernel *k = find_kernel(name);
    return k ? k->attribute[which][device] : -1;
}

int fake_calls_after_fork(void)
{
    return fake.after_fork;
}
