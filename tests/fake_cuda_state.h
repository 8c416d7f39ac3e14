/* fake_cuda_state.h - what the files of the fake driver share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_CUDA_STATE_H
#define FAKE_CUDA_STATE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cuda/driver.h"
#include "fake_cuda.h"

#define EXPORT                       __attribute__((visibility("default")))
#define FAKE(type, name, parameters) EXPORT type name parameters;
FAKE_CONTROLS
#undef FAKE

enum {
#define SKR_DRIVER(name, version, symbol, need, parameters) ID_##name,
#include "../src/cuda/driver.def"
#undef SKR_DRIVER
    N_FUNCTIONS
};
extern const char *const names[N_FUNCTIONS];

enum {
    MAX_DEVICES = 32,
    MAX_BLOCKS = 1024,
    MAX_LAUNCHES = 256,
    MAX_KERNELS = 1024,
    MAX_STREAMS = 16,
    DEFAULT_SHARED = 48 * 1024,
    NOT_READY = 600 /* CUDA_ERROR_NOT_READY */
};

/* Bits of the bytes that the first device has. FAKE_EMULATE: launches run (emulator/machine.cpp). */
#ifdef FAKE_EMULATE
enum { FAKE_MEMORY = 34 };
int emu_launch(const char *name, const void *parameter, unsigned grid, unsigned block, unsigned cluster,
               unsigned shared);
#else
enum { FAKE_MEMORY = 30 };
#endif

typedef struct context {
    int device, holders;
} context;
typedef struct stream {
    context *in;
    int capturing;
} stream;
typedef struct block {
    char *at;
    size_t bytes;
    int device, kind, ours; /* kind: 'd', 'h', 'e', 'm'; ours: allocated through the driver interface */
} block;
typedef struct kernel {
    char name[64];
    const void *library;
    int attribute[16][MAX_DEVICES];
} kernel;
typedef struct rule {
    char function[64];
    int error, from, times;
} rule;

typedef struct fake_state {
    pthread_mutex_t lock;
    int version, n_devices, sm, pools;
    int initialised_in; /* process */
    int after_fork, spoiled, slow_ms;
    int calls[N_FUNCTIONS];
    int sticky[MAX_DEVICES];
    context primary[MAX_DEVICES], extra[MAX_DEVICES];
    int n_streams, n_capturing;
    stream streams[MAX_STREAMS];
    skr_cu_stream memory_stream;
    block blocks[MAX_BLOCKS];
    size_t limit, parameter_size;
    int n_launches, n_kernels, n_rules;
    fake_launch launches[MAX_LAUNCHES];
    kernel kernels[MAX_KERNELS];
    rule rules[N_FUNCTIONS + 1]; /* one a function */
    char trace[16384];
} fake_state;
extern fake_state fake;
/* Per block, opted in: the workstation and consumer GPUs have less than those of a data centre. */
int fake_shared_bytes(int sm);

/* Takes the lock, which end() gives back. Not 0: the call fails with it. */
int begin(int id);
int end(int result);

/* The calling thread's contexts. */
extern _Thread_local context *stack[16];
extern _Thread_local int depth;
context *current(void);
/* A context is needed, and it must not be in error. */
int in_context(void);
/* For calls that the driver forbids to a thread while a capture in global mode is on, unless it has relaxed itself. */
int unsafe(void);
/* NULL for the special handles 0, 1, 2. */
stream *real(skr_cu_stream s);
int on_stream(skr_cu_stream s);

size_t live(void);
void *take(size_t bytes, int device, int kind, int ours);

#define CALL(name, parameters)                                                                                         \
    EXPORT skr_cu_result name parameters;                                                                              \
    skr_cu_result name parameters
#define BEGIN(id)                                                                                                      \
    int result = begin(ID_##id);                                                                                       \
    if (result)                                                                                                        \
    return end(result)
#define NEED(expression)                                                                                               \
    if ((result = (expression)))                                                                                       \
    return end(result)

#endif
