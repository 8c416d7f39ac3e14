/* context.c - contexts, and the memory and time helpers that act on one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

enum {
    CONFIG_V1_BYTES = offsetof(saker_config, reserved) + sizeof(int32_t),
    KNOWN_FLAGS = SAKER_ALLOW_NONDETERMINISTIC
};

static _Thread_local char create_error[SKR_ERROR_BYTES];

static saker_status read_config(skr_call *call, const saker_config *given, saker_config *c)
{
    *c = (saker_config){.struct_size = sizeof *c};
    if (given) {
        if (given->struct_size < CONFIG_V1_BYTES || given->struct_size > 4096)
            return skr_fail(call, SAKER_VERSION,
                            "saker_context_create: struct_size of the config is %llu, expected %zu",
                            (unsigned long long)given->struct_size, sizeof *c);
        for (size_t i = sizeof *c; i < given->struct_size; i++)
            if (((const char *)given)[i])
                return skr_fail(call, SAKER_UNSUPPORTED,
                                "saker_context_create: the config has fields this library (%s) does not know",
                                saker_version());
        memcpy(c, given, given->struct_size < sizeof *c ? given->struct_size : sizeof *c);
    }
    if (c->device_type == 0)
        c->device_type = SAKER_CPU;
    if (c->device_type != SAKER_CPU && c->device_type != SAKER_CUDA)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "saker_context_create: device_type is %d, expected SAKER_CPU (1) or SAKER_CUDA (2)",
                        c->device_type);
    if (c->threads < 0 || c->parallel_width < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "saker_context_create: %s is %d, expected 0 or more",
                        c->threads < 0 ? "threads" : "parallel_width", c->threads < 0 ? c->threads : c->parallel_width);
    if (c->parallel_width && !c->parallel_for)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "saker_context_create: parallel_width is %d but parallel_for is NULL, expected both",
                        c->parallel_width);
    if (c->device_type == SAKER_CPU && c->device_id)
        return skr_fail(call, SAKER_INVALID_ARG, "saker_context_create: device_id is %d, expected 0 on the CPU",
                        c->device_id);
    if (c->device_type == SAKER_CPU && c->stream)
        return skr_fail(call, SAKER_INVALID_ARG, "saker_context_create: stream is given, expected NULL on the CPU");
    if (c->check_level < 0 || c->check_level > 3)
        return skr_fail(call, SAKER_INVALID_ARG, "saker_context_create: check_level is %d, expected 0 to 3",
                        c->check_level);
    if (c->flags & ~(uint64_t)KNOWN_FLAGS)
        return skr_fail(call, SAKER_UNSUPPORTED, "saker_context_create: flags has unknown bits (0x%llx)",
                        (unsigned long long)(c->flags & ~(uint64_t)KNOWN_FLAGS));
    if (c->reserved)
        return skr_fail(call, SAKER_UNSUPPORTED, "saker_context_create: reserved is %d, expected 0", c->reserved);
    return SAKER_OK;
}

saker_status saker_context_create(saker_context **out, const saker_config *config)
{
    skr_call call = {.error = create_error};
    if (!out)
        return skr_fail(&call, SAKER_NULL_POINTER, "saker_context_create: out is NULL");
    *out = NULL;
    saker_config c;
    SKR_TRY(read_config(&call, config, &c));
    saker_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return skr_fail(&call, SAKER_OUT_OF_MEMORY, "saker_context_create: no memory for the context");
    ctx->api = c.device_type == SAKER_CUDA ? &skr_backend_cuda : &skr_backend_cpu;
    ctx->device.device_type = c.device_type;
    ctx->device.device_id = c.device_type == SAKER_CUDA ? c.device_id : 0;
    ctx->check_level = c.check_level;
    ctx->op_index = -1;
    saker_status status = ctx->api->open(&call, &c, &ctx->state, &ctx->target);
    if (status) {
        free(ctx);
        return status;
    }
    ctx->target.flags = c.flags;
    if (skr_verbose())
        skr_log("context on %s, %s", c.device_type == SAKER_CUDA ? "CUDA" : "CPU", saker_build_info());
    *out = ctx;
    return SAKER_OK;
}

void saker_context_destroy(saker_context *ctx)
{
    if (!ctx)
        return;
    ctx->api->close(ctx->state);
    free(ctx);
}

const char *saker_context_error(const saker_context *ctx)
{
    return ctx ? ctx->error : create_error;
}

const char *saker_context_kernel(saker_context *ctx)
{
    if (!ctx || ctx->op_index < 0)
        return "";
    const char *op = skr_ops[ctx->op_index]->info.name;
    if (!ctx->variant)
        snprintf(ctx->kernel, sizeof ctx->kernel, "%s/empty", op);
    else
        snprintf(ctx->kernel, sizeof ctx->kernel, "%s/%s %s", op, ctx->api->level(ctx->state, ctx->op_index),
                 ctx->variant);
    return ctx->kernel;
}

/* ---------------------------------------------------------------- functions that act on a context */

static saker_status no_context(const char *function)
{
    skr_call call = {.error = create_error};
    return skr_fail(&call, SAKER_NULL_POINTER, "%s: the context is NULL", function);
}

#define NEED_CONTEXT()                                                                                                 \
    if (!ctx)                                                                                                          \
        return no_context(__func__);                                                                                   \
    skr_call call = skr_call_in(ctx, NULL)

saker_status saker_context_set_stream(saker_context *ctx, void *stream)
{
    NEED_CONTEXT();
    return ctx->api->set_stream(&call, ctx->state, stream);
}

saker_status saker_context_set_workspace(saker_context *ctx, void *memory, size_t bytes)
{
    NEED_CONTEXT();
    if ((!memory) != (!bytes))
        return skr_fail(&call, SAKER_WORKSPACE, "saker_context_set_workspace: memory is %s but bytes is %zu",
                        memory ? "not NULL" : "NULL", bytes);
    if ((uintptr_t)memory % 256)
        return skr_fail(&call, SAKER_WORKSPACE, "saker_context_set_workspace: memory is not 256-byte aligned");
    ctx->lent = memory;
    ctx->lent_bytes = bytes;
    return SAKER_OK;
}

saker_status saker_context_check(saker_context *ctx)
{
    NEED_CONTEXT();
    int32_t word = 0;
    SKR_TRY(ctx->api->read_error(&call, ctx->state, &word));
    if (word)
        return skr_fail(&call, (saker_status)word,
                        "an index tensor of an earlier call held a value out of range; it was treated as documented");
    return SAKER_OK;
}

saker_status saker_context_sync(saker_context *ctx)
{
    NEED_CONTEXT();
    return ctx->api->sync(&call, ctx->state);
}

saker_status saker_memory_alloc(saker_context *ctx, size_t bytes, void **memory)
{
    NEED_CONTEXT();
    if (!memory)
        return skr_fail(&call, SAKER_NULL_POINTER, "saker_memory_alloc: memory is NULL");
    *memory = NULL;
    return ctx->api->alloc(&call, ctx->state, bytes ? bytes : 1, memory);
}

saker_status saker_memory_free(saker_context *ctx, void *memory)
{
    NEED_CONTEXT();
    return memory ? ctx->api->free(&call, ctx->state, memory) : SAKER_OK;
}

saker_status saker_memory_copy(saker_context *ctx, void *to, const void *from, size_t bytes)
{
    NEED_CONTEXT();
    if (bytes && (!to || !from))
        return skr_fail(&call, SAKER_NULL_POINTER, "saker_memory_copy: %s is NULL", to ? "from" : "to");
    return bytes ? ctx->api->copy(&call, ctx->state, to, from, bytes) : SAKER_OK;
}

/* Times n runs of a call that has been checked by a first run. */
static saker_status time_runs(skr_call *call, const saker_op_info *op, const void *args, int32_t n, void *flush,
                              size_t flush_bytes, double *microseconds)
{
    saker_context *ctx = call->ctx;
    for (int32_t i = 0; i < n; i++) {
        if (flush)
            SKR_TRY(ctx->api->fill(call, ctx->state, flush, i, flush_bytes));
        SKR_TRY(ctx->api->time_start(call, ctx->state));
        SKR_TRY(saker_call(ctx, op, args));
        SKR_TRY(ctx->api->time_stop(call, ctx->state, &microseconds[i]));
    }
    return SAKER_OK;
}

saker_status saker_measure(saker_context *ctx, const char *name, const void *args, int32_t n, size_t flush_bytes,
                           double *microseconds)
{
    NEED_CONTEXT();
    const saker_op_info *op = name ? saker_op_find(name) : NULL;
    if (!op)
        return skr_fail(&call, SAKER_INVALID_ARG, "saker_measure: there is no operation named %s",
                        name ? name : "NULL");
    if (n > 0 && !microseconds)
        return skr_fail(&call, SAKER_NULL_POINTER, "saker_measure: microseconds is NULL");
    SKR_TRY(saker_call(ctx, op, args));
    SKR_TRY(ctx->api->sync(&call, ctx->state));
    void *flush = NULL;
    if (flush_bytes)
        SKR_TRY(ctx->api->alloc(&call, ctx->state, flush_bytes, &flush));
    saker_status status = time_runs(&call, op, args, n, flush, flush_bytes, microseconds);
    if (flush) {
        saker_status freed = ctx->api->free(&call, ctx->state, flush);
        status = status ? status : freed;
    }
    return status;
}
