/* run_case.c - see run_case.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "run_case.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>

#include "guard.h"
#include "suite_convert.h"

static void *must(void *p)
{
    if (!p) {
        fputs("runner: out of memory\n", stderr);
        exit(2);
    }
    return p;
}

static void *room(int64_t n, size_t size)
{
    return must(malloc((size_t)n * size + 1));
}

/* ---------------------------------------------------------------- a case's data */

static void pack(const suite_tensor *t, int64_t n, const double *value, char *packed)
{
    int size = type_bytes(t->type);
    for (int64_t k = 0; k < n; k++)
        encode(t->type, value[k], packed + k * size);
}

void case_prepare(case_data *d, const suite *s, const suite_case *c, uint64_t seed)
{
    *d = (case_data){.s = s, .c = *c, .seed = seed};
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        int64_t n = d->elements[i] = suite_elements(t);
        d->value[i] = room(n, sizeof(double));
        for (int64_t k = 0; t->role == SUITE_OUT && k < n; k++)
            d->value[i][k] = 0;
        if (t->role != SUITE_OUT) {
            suite_values(c, i, seed, d->value[i]);
            d->packed[i] = room(n, (size_t)type_bytes(t->type));
            pack(t, n, d->value[i], d->packed[i]);
        }
        if (t->role != SUITE_IN)
            d->bound[i] = room(n, sizeof(double));
    }
    if (s->plain) { /* before the oracle: it reads INOUT tensors as they were */
        double *value[SUITE_MAX_TENSORS];
        for (int i = 0; i < c->n_tensors; i++) {
            value[i] = d->value[i];
            if (c->tensor[i].role != SUITE_IN) {
                value[i] = d->plain[i] = room(d->elements[i], sizeof(double));
                for (int64_t k = 0; k < d->elements[i]; k++)
                    d->plain[i][k] = c->tensor[i].role == SUITE_INOUT ? d->value[i][k] : __builtin_nan("");
            }
        }
        s->plain(c, value);
    }
    s->oracle(c, d->value, d->bound);
}

void case_prepare_row(case_data *one, const case_data *d, int64_t row, suite_slice *slice)
{
    *one = (case_data){.s = d->s};
    d->s->row(&d->c, row, &one->c, slice);
    for (int i = 0; i < d->c.n_tensors; i++) {
        const suite_tensor *t = &one->c.tensor[i];
        size_t size = (size_t)type_bytes(t->type);
        one->elements[i] = suite_elements(t);
        if (t->role == SUITE_OUT)
            continue;
        one->packed[i] = room(one->elements[i], size);
        int64_t first = slice->first[i] < 0 ? 0 : slice->first[i];
        memcpy(one->packed[i], d->packed[i] + (size_t)first * size, (size_t)one->elements[i] * size);
    }
}

void case_release(case_data *d)
{
    for (int i = 0; i < d->c.n_tensors; i++) {
        free(d->packed[i]);
        free(d->value[i]);
        free(d->bound[i]);
        free(d->plain[i]);
    }
    *d = (case_data){0};
}

/* ---------------------------------------------------------------- faults */

static sigjmp_buf jump;
static volatile sig_atomic_t armed;
static pthread_t armed_thread;

static void on_fault(int number)
{
    if (armed && pthread_equal(pthread_self(), armed_thread))
        siglongjmp(jump, number);
    static const char text[] = "\nFAIL: a signal in a worker thread, or outside of a call; this process ends here\n";
    ssize_t ignored = write(STDOUT_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(3);
}

void run_catch_signals(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

/* ---------------------------------------------------------------- buffers */

/* Memory of one tensor. image is what the host sees; with CUDA, device is its twin. */
typedef struct buffer {
    guarded guard;
    char *image, *before;
    size_t bytes;
    size_t offset; /* of element 0 in image */
    void *device;
} buffer;

enum { RED_ZONE = 4096, MAX_ALIGN = 256 };

static bool buffer_alloc(saker_context *ctx, bool cuda, const suite_tensor *t, int index, const run_how *how, buffer *b)
{
    size_t span = (size_t)suite_span_bytes(t), size = (size_t)type_bytes(t->type);
    /* An odd number of elements, another one for each tensor; a multiple of what the op demands. */
    size_t unit = t->align ? (size_t)t->align : size;
    bool odd = how->place == PLACE_ODD && (!how->alone || how->alone == index + 1);
    size_t shift = odd ? unit * (size_t)(1 + 2 * (index % 4)) : 0;
    *b = (buffer){0};
    if (cuda) {
        b->offset =
            RED_ZONE + (how->place == PLACE_BACK ? (MAX_ALIGN - span % MAX_ALIGN) % MAX_ALIGN / unit * unit : shift);
        b->bytes = b->offset + span + RED_ZONE;
        b->image = room((int64_t)b->bytes, 1);
        if (saker_memory_alloc(ctx, b->bytes, &b->device))
            return false;
    } else {
        if (!guard_alloc(&b->guard, span, shift, how->place == PLACE_BACK))
            return false;
        b->image = b->guard.pages;
        b->bytes = b->guard.page_bytes;
        b->offset = (size_t)(b->guard.data - b->guard.pages);
    }
    memset(b->image, how->poison, b->bytes);
    b->before = room((int64_t)b->bytes, 1);
    return true;
}

static void buffer_free(saker_context *ctx, bool cuda, buffer *b)
{
    if (cuda) {
        if (b->device)
            saker_memory_free(ctx, b->device);
        free(b->image);
    } else {
        guard_free(&b->guard);
    }
    free(b->before);
    *b = (buffer){0};
}

static int alias_of(const suite_case *c, int i)
{
    for (int k = 0; c->tensor[i].alias && k < i; k++)
        if (!strcmp(c->tensor[k].field, c->tensor[i].alias))
            return k;
    return i;
}

/* After the call: takes the outputs out, puts back what was there, and then nothing may differ. */
static void collect(const case_data *d, buffer *b, run_result *r)
{
    const suite_case *c = &d->c;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        buffer *m = &b[alias_of(c, i)];
        if (t->role == SUITE_IN)
            continue;
        size_t bytes = (size_t)d->elements[i] * (size_t)type_bytes(t->type);
        char *was = room((int64_t)bytes, 1);
        r->out[i] = room((int64_t)bytes, 1);
        suite_gather(t, m->image + m->offset, r->out[i]);
        suite_gather(t, m->before + m->offset, was);
        suite_scatter(t, was, m->image + m->offset);
        if (!suite_spare_from(t, m->before + m->offset, m->image + m->offset))
            snprintf(r->problem, sizeof r->problem, "the spare nibble of a row of %s is not 0", t->field);
        free(was);
    }
    for (int i = 0; i < c->n_tensors; i++) {
        if (alias_of(c, i) != i || !memcmp(b[i].image, b[i].before, b[i].bytes) || r->problem[0])
            continue;
        size_t k = 0;
        while (b[i].image[k] == b[i].before[k])
            k++;
        snprintf(r->problem, sizeof r->problem, "a byte outside of the outputs was written: %s, byte %lld of its %s",
                 c->tensor[i].field, (long long)k - (long long)b[i].offset,
                 c->tensor[i].role == SUITE_IN ? "data (an input)" : "memory (a gap or beyond an end)");
    }
}

/* ---------------------------------------------------------------- the call */

static void lend_workspace(saker_context *ctx, bool cuda, size_t bytes, guarded *g, void **device)
{
    static const unsigned char garbage = 0xc3;
    if (cuda) {
        char *image = room((int64_t)bytes + RED_ZONE, 1);
        memset(image, garbage, bytes + RED_ZONE);
        if (!saker_memory_alloc(ctx, bytes + RED_ZONE, device) &&
            !saker_memory_copy(ctx, *device, image, bytes + RED_ZONE))
            saker_context_set_workspace(ctx, *device, bytes);
        free(image);
        return;
    }
    /* Exactly the asked bytes before the guard page: rounded up they would hide a write past the end. The start must be
     * 256-byte aligned, so the front is used when the size is not a multiple of that. */
    if (!guard_alloc(g, bytes, 0, bytes % 256 == 0))
        must(NULL);
    memset(g->pages, garbage, g->page_bytes);
    saker_context_set_workspace(ctx, g->data, bytes);
}

static void check_tail(const char *p, const char *end, run_result *r)
{
    for (; p < end && !r->problem[0]; p++)
        if ((unsigned char)*p != 0xc3)
            snprintf(r->problem, sizeof r->problem, "the workspace was written past its end");
}

static saker_status guarded_call(saker_context *ctx, const saker_op_info *op, const void *args, int *signal_number)
{
    saker_status status = SAKER_OK;
    *signal_number = 0;
    armed_thread = pthread_self();
    int number = sigsetjmp(jump, 1);
    if (number == 0) {
        armed = 1;
        status = saker_call(ctx, op, args);
    } else {
        *signal_number = number;
    }
    armed = 0;
    return status;
}

static void call(saker_context *ctx, bool cuda, const case_data *d, const run_how *how, const void *args, run_result *r)
{
    const saker_op_info *op = saker_op_find(d->s->op);
    guarded workspace = {0};
    void *device_workspace = NULL;
    if (how->lend) {
        saker_status asked = saker_workspace_bytes(ctx, d->s->op, args, &r->workspace_bytes);
        if (asked) {
            snprintf(r->problem, sizeof r->problem, "saker_workspace_bytes: %s", saker_context_error(ctx));
            return;
        }
        if (r->workspace_bytes)
            lend_workspace(ctx, cuda, r->workspace_bytes, &workspace, &device_workspace);
    }
    unsigned long control = guard_float_control();
    int number;
    saker_status status = guarded_call(ctx, op, args, &number);
    if (!number && !status && cuda)
        status = saker_context_sync(ctx);
    if (number)
        snprintf(r->problem, sizeof r->problem, "signal: %s", strsignal(number));
    else if (status)
        snprintf(r->problem, sizeof r->problem, "%s: %.400s", saker_status_name(status), saker_context_error(ctx));
    else if (guard_float_control() != control)
        snprintf(r->problem, sizeof r->problem, "the floating-point control word was changed");
    r->ran = !number && !status;
    int seen = r->ran ? (int)saker_context_check(ctx) : 0;
    if (r->ran && !r->problem[0] && d->c.check != SUITE_ANY_CHECK && seen != d->c.check)
        snprintf(r->problem, sizeof r->problem, "saker_context_check says %s, expected %s",
                 saker_status_name((saker_status)seen), saker_status_name((saker_status)d->c.check));
    if (r->ran)
        snprintf(r->kernel, sizeof r->kernel, "%s", saker_context_kernel(ctx));
    if (how->lend && r->workspace_bytes) {
        char tail[RED_ZONE];
        if (!cuda)
            check_tail(workspace.data + r->workspace_bytes, workspace.pages + workspace.page_bytes, r);
        else if (r->ran && !saker_memory_copy(ctx, tail, (char *)device_workspace + r->workspace_bytes, sizeof tail))
            check_tail(tail, tail + sizeof tail, r);
        saker_context_set_workspace(ctx, NULL, 0);
        guard_free(&workspace);
        if (device_workspace)
            saker_memory_free(ctx, device_workspace);
    }
}

void run_case(saker_context *ctx, bool cuda, const case_data *d, const run_how *how, run_result *r)
{
    const suite_case *c = &d->c;
    buffer b[SUITE_MAX_TENSORS] = {0};
    saker_tensor tensor[SUITE_MAX_TENSORS];
    int64_t stride[SUITE_MAX_TENSORS][SUITE_MAX_DIMS];
    _Alignas(8) unsigned char args[SUITE_ARGS_BYTES];
    *r = (run_result){0};

    bool ok = true;
    for (int i = 0; ok && i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        int owner = alias_of(c, i);
        buffer *m = &b[owner];
        if (owner == i)
            ok = buffer_alloc(ctx, cuda, t, i, how, m);
        if (ok && d->packed[i])
            suite_scatter(t, d->packed[i], m->image + m->offset);
        char *base = m->device ? m->device : m->image;
        tensor[i] = suite_describe(t, base + m->offset);
        if (how->place == PLACE_ODD) {
            tensor[i].data = base;
            tensor[i].byte_offset = m->offset;
        }
        if (how->with_strides) {
            suite_strides(t, stride[i]);
            tensor[i].strides = stride[i];
            tensor[i].device.device_type = cuda ? SAKER_CUDA : SAKER_CPU;
        }
        if (d->elements[i] == 0 && how->place == PLACE_BACK)
            tensor[i].data = NULL; /* an empty tensor needs no memory */
    }
    for (int i = 0; ok && i < c->n_tensors; i++)
        if (b[i].image) {
            memcpy(b[i].before, b[i].image, b[i].bytes);
            ok = !cuda || !saker_memory_copy(ctx, b[i].device, b[i].image, b[i].bytes);
        }
    if (!ok)
        snprintf(r->problem, sizeof r->problem, "no memory for the tensors: %.300s", saker_context_error(ctx));
    else if (!suite_bind(d->s, c, tensor, args))
        snprintf(r->problem, sizeof r->problem, "the case names a field that the op does not have");
    else
        call(ctx, cuda, d, how, args, r);
    for (int i = 0; r->ran && cuda && i < c->n_tensors; i++)
        if (b[i].device && saker_memory_copy(ctx, b[i].image, b[i].device, b[i].bytes)) {
            snprintf(r->problem, sizeof r->problem, "reading back: %.300s", saker_context_error(ctx));
            r->ran = false;
        }
    if (r->ran)
        collect(d, b, r);
    for (int i = 0; i < c->n_tensors; i++)
        buffer_free(ctx, cuda, &b[i]);
}

void run_release(run_result *r)
{
    for (int i = 0; i < SUITE_MAX_TENSORS; i++) {
        free(r->out[i]);
        r->out[i] = NULL;
    }
}

const char *run_difference(const case_data *d, const run_result *a, const run_result *b, int64_t *element)
{
    for (int i = 0; i < d->c.n_tensors; i++) {
        int64_t size = type_bytes(d->c.tensor[i].type);
        if (!a->out[i] || !b->out[i] || !memcmp(a->out[i], b->out[i], (size_t)(d->elements[i] * size)))
            continue;
        for (int64_t k = 0; k < d->elements[i]; k++)
            if (memcmp(a->out[i] + k * size, b->out[i] + k * size, (size_t)size)) {
                *element = k;
                return d->c.tensor[i].field;
            }
    }
    return NULL;
}
