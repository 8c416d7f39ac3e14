/* context.h - the inside of a saker_context, for core only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CONTEXT_H
#define SKR_CONTEXT_H

#include "backend.h"

struct saker_context {
    const skr_backend_api *api;
    void *state; /* the backend's part */
    skr_target target;
    saker_device device;
    int32_t check_level;
    void *lent; /* the caller's workspace */
    size_t lent_bytes;
    /* The last kernel: recorded as two pointers, made into text only when asked for. */
    int32_t op_index; /* -1: none yet */
    const char *variant;
    char kernel[160];
    char error[SKR_ERROR_BYTES];
};

/* Clears nothing: the last error stays until the next failure replaces it. */
static inline skr_call skr_call_in(saker_context *ctx, const skr_op *op)
{
    return (skr_call){.ctx = ctx, .op = op, .error = ctx->error};
}

#endif
