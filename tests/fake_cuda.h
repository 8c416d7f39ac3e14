/* fake_cuda.h - how a test steers and questions the fake driver (fake_cuda.c). The functions are found with dlsym.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>

/* Read once, at the first call into the fake:
 *   FAKE_CUDA_VERSION=12040          what cuDriverGetVersion says (13000 unless given)
 *   FAKE_CUDA_DEVICES=2              number of devices (2 unless given)
 *   FAKE_CUDA_SM=80                  compute capability (90 unless given)
 *   FAKE_CUDA_POOLS=0                no memory pools
 *   FAKE_CUDA_FAIL=cuInit=999,...    these functions fail with these errors, always
 * CUDA_VISIBLE_DEVICES set to nothing hides all devices, as with the real driver. */

typedef struct fake_launch {
    char name[64];
    int device;
    unsigned grid[3], block[3], cluster[3]; /* cluster 0: no such attribute */
    unsigned shared;
    int overlap;  /* programmatic stream serialization asked for */
    int captured; /* recorded into a graph, not run */
    void *stream;
    size_t parameter_bytes;
    unsigned char parameter[1024];
} fake_launch;

#define FAKE_CONTROLS                                                                                                  \
    /* function fails with error from its call number `from` (1: the next one) on, `times` times (-1: always) */       \
    FAKE(void, fake_fail, (const char *function, int error, int from, int times))                                      \
    FAKE(int, fake_calls, (const char *function)) /* how often it was called, also when it failed */                   \
    FAKE(void, fake_trace_start, (void))                                                                               \
    FAKE(const char *, fake_trace, (void))          /* names of the calls since, each followed by a space */           \
    FAKE(void, fake_stick, (int device, int error)) /* every call on that device's contexts answers this; 0: heals */  \
    FAKE(void *, fake_context, (int device))        /* a context that is not the primary one */                        \
    FAKE(void, fake_set_current, (void *context))   /* what the calling thread has current */                          \
    FAKE(void *, fake_current, (void))                                                                                 \
    FAKE(void *, fake_primary, (int device))                                                                           \
    FAKE(int, fake_primary_holders, (int device))                                                                      \
    FAKE(void *, fake_stream, (int device))          /* a stream in the primary context */                             \
    FAKE(void, fake_capture, (void *stream, int on)) /* global mode, as cudaStreamBeginCapture by default */           \
    FAKE(int, fake_capture_spoiled, (void))          /* calls that a real driver would have refused in a capture */    \
    /* kind: 'd'evice, 'h'ost pinned, 'e': the same, but elsewhere for the device, 'm'anaged */                        \
    FAKE(void *, fake_memory, (size_t bytes, int device, int kind))                                                    \
    FAKE(void *, fake_memory_stream, (void)) /* that the last pool memory was taken or given back on */                \
    FAKE(void, fake_memory_limit, (size_t bytes))                                                                      \
    FAKE(size_t, fake_memory_live, (void)) /* bytes allocated by the library and not freed */                          \
    FAKE(void, fake_slow_loads, (int milliseconds))                                                                    \
    FAKE(void, fake_parameter_size, (size_t bytes)) /* how much of a launch's parameter is recorded */                 \
    FAKE(int, fake_launches, (void))                                                                                   \
    FAKE(const fake_launch *, fake_launch_at, (int i))                                                                 \
    FAKE(int, fake_kernel_attribute, (const char *kernel, int which, int device)) /* -1: was not set */                \
    FAKE(int, fake_calls_after_fork, (void))

#endif
