/* backend.h - what core asks of a backend. cpu/ and cuda/ each provide one; core knows nothing else of them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every function that can fail takes the call for skr_fail() (call->op may be NULL) and returns its status. */
#ifndef SKR_BACKEND_H
#define SKR_BACKEND_H

#include "op.h"

typedef struct skr_backend_api {
    /* Makes the backend's part of a context. Fills target. */
    saker_status (*open)(skr_call *call, const saker_config *config, void **state, skr_target *target);
    void (*close)(void *state);
    const char *(*level)(const void *state, int op_index); /* name for the kernel record: "neonmm", "sm90" */
    void (*describe)(const skr_step *step, char *text, size_t size); /* for saker_explain */
    saker_status (*set_stream)(skr_call *call, void *state, void *stream);

    /* Scratch the context owns: CPU keeps one grow-only block, CUDA allocates in stream order and frees after the
     * launches. */
    saker_status (*scratch_take)(skr_call *call, void *state, size_t bytes, void **memory);
    void (*scratch_give)(void *state, void *memory);
    /* Executes the steps. The job is complete: head.workspace and head.error_word are set. */
    saker_status (*run)(skr_call *call, void *state, int op_index, const skr_plan *plan, const void *job);

    int32_t *(*error_word)(void *state);                                    /* as kernels address it */
    saker_status (*read_error)(skr_call *call, void *state, int32_t *word); /* waits, reads and clears it */

    /* Check level 3: is this pointer memory that the device can use? what says what it is instead. */
    bool (*owns)(void *state, const void *pointer, const char **what);

    saker_status (*alloc)(skr_call *call, void *state, size_t bytes, void **memory);
    saker_status (*free)(skr_call *call, void *state, void *memory);
    saker_status (*copy)(skr_call *call, void *state, void *to, const void *from, size_t bytes);
    saker_status (*fill)(skr_call *call, void *state, void *memory, int byte, size_t bytes);
    saker_status (*sync)(skr_call *call, void *state);
    /* Microseconds between the two, on the device's own clock. start does not wait for earlier work; stop waits. */
    saker_status (*time_start)(skr_call *call, void *state);
    saker_status (*time_stop)(skr_call *call, void *state, double *microseconds);
} skr_backend_api;

extern const skr_backend_api skr_backend_cpu, skr_backend_cuda;

#endif
