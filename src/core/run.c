/* run.c - the one path every call takes: fields -> check -> plan -> workspace -> run -> record.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "log.h"
#include "plan.h"
#include "tensor.h"

enum { MAX_FIELDS = 48, ARGS_BYTES = 512 };

/* A call after check and plan. Lives on the stack. */
typedef struct prepared {
    _Alignas(16) unsigned char args[ARGS_BYTES];
    _Alignas(128) unsigned char job[SKR_JOB_BYTES]; /* tensor maps want 128 */
    skr_view views[MAX_FIELDS];
    skr_plan plan;
    bool empty;
} prepared;

/* ---------------------------------------------------------------- fields */

/* The caller's struct may be older (shorter) or newer (longer, with a zero tail) than ours. */
static saker_status take_args(skr_call *call, const void *given, unsigned char *args)
{
    const skr_op *op = call->op;
    if (!given)
        return skr_fail(call, SAKER_NULL_POINTER, "args is NULL");
    uint64_t size = *(const uint64_t *)given;
    if (size < op->v1_size || size > 65536)
        return skr_fail(call, SAKER_VERSION, "struct_size is %llu, expected %u (is it set? SAKER_ARGS sets it)",
                        (unsigned long long)size, op->info.args_size);
    for (uint64_t i = op->info.args_size; i < size; i++)
        if (((const unsigned char *)given)[i])
            return skr_fail(call, SAKER_UNSUPPORTED, "args has options that this library (%s) does not know",
                            saker_version());
    size_t known = size < op->info.args_size ? (size_t)size : op->info.args_size;
    memcpy(args, given, known);
    memset(args + known, 0, op->info.args_size - known);
    int32_t reserved = 0;
    if (op->reserved_at)
        memcpy(&reserved, args + op->reserved_at, sizeof reserved);
    if (reserved)
        return skr_fail(call, SAKER_UNSUPPORTED, "reserved is %d, expected 0", reserved);
    return SAKER_OK;
}

static int count_choices(const char *choices)
{
    int n = 1;
    for (; *choices; choices++)
        n += *choices == '|';
    return n;
}

static saker_status check_option(skr_call *call, const saker_field *f, const unsigned char *args)
{
    if (f->kind == SAKER_FIELD_F32) {
        float value;
        memcpy(&value, args + f->offset, sizeof value);
        if (!isfinite(value))
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %g, expected a finite number", f->name, (double)value);
        return SAKER_OK;
    }
    if (f->kind == SAKER_FIELD_F64) {
        double value;
        memcpy(&value, args + f->offset, sizeof value);
        if (!isfinite(value))
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %g, expected a finite number", f->name, value);
        return SAKER_OK;
    }
    if (f->kind == SAKER_FIELD_I64)
        return SAKER_OK;
    int32_t value;
    memcpy(&value, args + f->offset, sizeof value);
    if (f->kind == SAKER_FIELD_BOOL && (value < 0 || value > 1))
        return skr_fail(call, SAKER_UNSUPPORTED, "%s is %d, expected 0 or 1", f->name, value);
    if (f->kind == SAKER_FIELD_ENUM && (value < 0 || value >= count_choices(f->choices)))
        return skr_fail(call, SAKER_UNSUPPORTED, "%s is %d, expected 0 to %d (%s)", f->name, value,
                        count_choices(f->choices) - 1, f->choices);
    return SAKER_OK;
}

static saker_status check_pointer(skr_call *call, const skr_view *v)
{
    const char *what = "";
    saker_context *ctx = call->ctx;
    if (v->data && !ctx->api->owns(ctx->state, v->data, &what))
        return skr_fail(call, SAKER_INVALID_ARG, "%s points to %s, which the context's device cannot use", v->name,
                        what);
    return SAKER_OK;
}

static saker_status check_fields(skr_call *call, prepared *p)
{
    const saker_op_info *info = &call->op->info;
    for (int i = 0; i < info->n_fields; i++) {
        const saker_field *f = &info->fields[i];
        if (f->kind > SAKER_FIELD_INOUT) {
            p->views[i] = (skr_view){.name = f->name};
            SKR_TRY(check_option(call, f, p->args));
            continue;
        }
        const saker_tensor *t;
        memcpy(&t, p->args + f->offset, sizeof t);
        SKR_TRY(skr_view_of(call, f, t, call->ctx->device, &p->views[i]));
        if (call->ctx->check_level >= 3)
            SKR_TRY(check_pointer(call, &p->views[i]));
    }
    return SAKER_OK;
}

/* ---------------------------------------------------------------- check and plan */

/* Past the caches where they are too large to be found there by who reads them. */
void skr_write_past(skr_job_head *head, const skr_target *target, int64_t bytes, skr_plan *plan)
{
    if (!target->past_bytes || bytes < target->past_bytes)
        return;
    head->error_word[1] = 1;
    skr_why(plan, "outputs are large: written past the caches where the kernel can");
}

/* The outputs' bytes; 0 in place, where a line has been read anyway: an output that shares memory with another tensor
 * begins where that does. */
static int64_t output_bytes(const skr_call *call, const prepared *p)
{
    const saker_op_info *info = &call->op->info;
    const skr_view *v = p->views;
    int64_t bytes = 0;
    for (int i = 0; i < info->n_fields; i++) {
        if (info->fields[i].kind != SAKER_FIELD_OUT || !v[i].data)
            continue;
        bytes = skr_min(bytes + skr_mul(v[i].count, skr_type_bytes(v[i].type)), SKR_HUGE);
        for (int j = 0; j < info->n_fields; j++)
            if (j != i && v[j].data == v[i].data)
                return 0;
    }
    return bytes;
}

static saker_status prepare(skr_call *call, const void *args, prepared *p, char *why)
{
    skr_job_head *head = (skr_job_head *)p->job;
    SKR_TRY(take_args(call, args, p->args));
    SKR_TRY(check_fields(call, p));
    p->empty = false;
    p->plan = (skr_plan){.why = why};
    SKR_TRY(call->op->check(call, p->views, p->args, p->job, &p->empty));
    head->error_word = call->ctx->api->error_word(call->ctx->state);
    if (call->ctx->target.past_bytes) {
        head->error_word[1] = 0;
        skr_write_past(head, &call->ctx->target, output_bytes(call, p), &p->plan);
    }
    return p->empty ? SAKER_OK : call->op->plan(call, p->job, &call->ctx->target, &p->plan);
}

void skr_why(skr_plan *plan, const char *format, ...)
{
    if (!plan->why)
        return;
    size_t used = strlen(plan->why);
    va_list list;
    va_start(list, format);
    vsnprintf(plan->why + used, SKR_WHY_BYTES - used, format, list);
    va_end(list);
    used = strlen(plan->why);
    if (used + 1 < SKR_WHY_BYTES)
        strcpy(plan->why + used, "\n");
}

skr_step *skr_plan_step(skr_plan *plan)
{
    skr_step *step = &plan->step[plan->n_steps];
    *step = (skr_step){.index = (uint32_t)plan->n_steps};
    plan->n_steps++;
    return step;
}

/* ---------------------------------------------------------------- workspace, run, record */

static saker_status take_workspace(skr_call *call, size_t bytes, void **memory)
{
    saker_context *ctx = call->ctx;
    *memory = NULL;
    if (!bytes)
        return SAKER_OK;
    if (!ctx->lent)
        return ctx->api->scratch_take(call, ctx->state, bytes, memory);
    if (ctx->lent_bytes < bytes)
        return skr_fail(call, SAKER_WORKSPACE, "the lent workspace has %zu bytes, expected at least %zu",
                        ctx->lent_bytes, bytes);
    *memory = ctx->lent;
    return SAKER_OK;
}

/* Makes part i of a plan that has them. */
static saker_status make_part(skr_call *call, const prepared *p, int64_t i, skr_part *part)
{
    memset(part, 0, sizeof *part);
    return p->plan.part(call, p->job, &call->ctx->target, i, part);
}

/* One after the other. What one leaves in the workspace the next reads, so nothing goes past the caches. */
static saker_status run_parts(skr_call *call, const prepared *p)
{
    saker_context *ctx = call->ctx;
    skr_part part;
    if (ctx->target.past_bytes)
        ((const skr_job_head *)p->job)->error_word[1] = 0;
    for (int64_t i = 0; i < p->plan.n_parts; i++) {
        SKR_TRY(make_part(call, p, i, &part));
        if (part.plan.n_steps)
            SKR_TRY(ctx->api->run(call, ctx->state, part.op_index, &part.plan, part.job));
    }
    return SAKER_OK;
}

static saker_status run(skr_call *call, int op_index, prepared *p)
{
    saker_context *ctx = call->ctx;
    skr_job_head *head = (skr_job_head *)p->job;
    SKR_TRY(take_workspace(call, p->plan.workspace_bytes, &head->workspace));
    saker_status status =
        p->plan.n_parts ? run_parts(call, p) : ctx->api->run(call, ctx->state, op_index, &p->plan, p->job);
    if (head->workspace && head->workspace != ctx->lent)
        ctx->api->scratch_give(ctx->state, head->workspace);
    return status;
}

static saker_status no_context(const saker_op_info *info)
{
    char *error = (char *)saker_context_error(NULL); /* this thread's buffer, which context.c owns */
    snprintf(error, SKR_ERROR_BYTES, "%s: the context is NULL", info->name);
    return SAKER_NULL_POINTER;
}

static saker_status call_op(saker_context *ctx, int op_index, const void *args)
{
    const skr_op *op = skr_ops[op_index];
    if (!ctx)
        return no_context(&op->info);
    skr_call call = skr_call_in(ctx, op);
    prepared p;
    SKR_TRY(prepare(&call, args, &p, NULL));
    if (!p.empty)
        SKR_TRY(run(&call, op_index, &p));
    ctx->op_index = op_index;
    ctx->variant = p.empty ? NULL : p.plan.variant;
    if (skr_verbose())
        skr_log("%s", saker_context_kernel(ctx));
    return SAKER_OK;
}

/* The public functions, one per line of ops.def. */
#define SKR_OP(name)                                                                                                   \
    saker_status saker_##name(saker_context *ctx, const saker_##name##_args *args)                                     \
    {                                                                                                                  \
        return call_op(ctx, SKR_OP_##name, args);                                                                      \
    }
#include "ops.def"
#undef SKR_OP

static int index_of(const saker_op_info *info)
{
    for (int i = 0; i < SKR_N_OPS; i++)
        if (&skr_ops[i]->info == info)
            return i;
    return -1;
}

saker_status saker_call(saker_context *ctx, const saker_op_info *op, const void *args)
{
    int index = index_of(op);
    if (index < 0) {
        skr_call call = {.error = ctx ? ctx->error : (char *)saker_context_error(NULL)};
        return skr_fail(&call, SAKER_INVALID_ARG, "saker_call: op is not one of saker_op_at()");
    }
    return call_op(ctx, index, args);
}

/* ---------------------------------------------------------------- questions about a call */

static saker_status find(saker_context *ctx, const char *function, const char *name, skr_call *call)
{
    *call = (skr_call){.ctx = ctx, .error = ctx ? ctx->error : (char *)saker_context_error(NULL)};
    if (!ctx)
        return skr_fail(call, SAKER_NULL_POINTER, "%s: the context is NULL", function);
    const saker_op_info *info = name ? saker_op_find(name) : NULL;
    if (!info)
        return skr_fail(call, SAKER_INVALID_ARG, "%s: there is no operation named %s", function, name ? name : "NULL");
    call->op = skr_ops[index_of(info)];
    return SAKER_OK;
}

saker_status saker_workspace_bytes(saker_context *ctx, const char *op, const void *args, size_t *bytes)
{
    skr_call call;
    SKR_TRY(find(ctx, "saker_workspace_bytes", op, &call));
    if (!bytes)
        return skr_fail(&call, SAKER_NULL_POINTER, "saker_workspace_bytes: bytes is NULL");
    prepared p;
    SKR_TRY(prepare(&call, args, &p, NULL));
    *bytes = p.plan.workspace_bytes;
    return SAKER_OK;
}

/* Text of a plan, as far as there is room. */
typedef struct telling {
    char *text;
    int at, size, steps;
} telling;

static void tell_steps(const saker_context *ctx, const skr_plan *plan, telling *t)
{
    for (int i = 0; i < plan->n_steps && t->at < t->size; i++) {
        char step[256];
        ctx->api->describe(&plan->step[i], step, sizeof step);
        int length = snprintf(t->text + t->at, (size_t)(t->size - t->at), "step %d: %s\n", t->steps++, step);
        if (t->at + length >= t->size) /* whole lines only */
            t->text[t->at] = 0;
        t->at += length;
    }
}

static void describe(skr_call *call, const prepared *p, char *text, size_t size)
{
    const skr_plan *plan = &p->plan;
    saker_context *ctx = call->ctx;
    telling t = {.text = text, .size = size > INT32_MAX ? INT32_MAX : (int)size};
    t.at = snprintf(text, size, "%s/%s %s\nworkspace: %zu bytes\n%s", call->op->info.name,
                    ctx->api->level(ctx->state, index_of(&call->op->info)), plan->variant, plan->workspace_bytes,
                    plan->n_parts ? plan->why : "");
    tell_steps(ctx, plan, &t);
    skr_part part;
    for (int64_t i = 0; i < plan->n_parts && t.at < t.size && !make_part(call, p, i, &part); i++)
        tell_steps(ctx, &part.plan, &t);
    if (!plan->n_parts && t.at < t.size)
        snprintf(text + t.at, (size_t)(t.size - t.at), "%s", plan->why);
}

saker_status saker_explain(saker_context *ctx, const char *op, const void *args, char *text, size_t size)
{
    skr_call call;
    SKR_TRY(find(ctx, "saker_explain", op, &call));
    if (!text || !size)
        return skr_fail(&call, SAKER_NULL_POINTER, "saker_explain: text is NULL or has no room");
    prepared p;
    char why[SKR_WHY_BYTES] = "";
    saker_status status = prepare(&call, args, &p, why);
    if (status)
        snprintf(text, size, "%s: %s\n%s", saker_status_name(status), ctx->error, why);
    else if (p.empty)
        snprintf(text, size, "%s: nothing to compute, no kernel runs\n", call.op->info.name);
    else
        describe(&call, &p, text, size);
    return status;
}
