/* fuzz_args.c - arbitrary descriptors and options for every op, on real memory (F1): libFuzzer target or plain program.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The input is read as: op, a good case of it, then a list of edits of descriptor fields and options. The call itself
 * is made only when every descriptor stays inside of its real buffer, because a caller vouches for pointers and sizes;
 * the questions (saker_explain, saker_workspace_bytes) are always asked. A failed call must not change a byte.
 *
 * With -DFUZZ_MAIN: fuzz_args [count [seed]] makes its own random inputs, for machines without libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"
#include "suite_convert.h"
#include "fixture.h"

enum { BUFFER = 16384, MAX_CASES = 4, MAX_OPS = 64, MAX_WORK = 1 << 17 };

static saker_context *ctx;
static suite_case cases[MAX_OPS][MAX_CASES];
static int n_cases[MAX_OPS];
static char *buffer[SUITE_MAX_TENSORS], *before[SUITE_MAX_TENSORS];

static void die(const char *what)
{
    fprintf(stderr, "fuzz_args: %s: %s\n", what, saker_context_error(ctx));
    abort();
}

static void set_up(void)
{
    saker_config one = {.struct_size = sizeof one, .threads = 1};
    if (saker_context_create(&ctx, &one))
        die("no context");
    for (int o = 0; o < suite_count() && o < MAX_OPS; o++)
        n_cases[o] = fixture_cases(suite_at(o), cases[o], MAX_CASES);
    for (int i = 0; i < SUITE_MAX_TENSORS; i++) { /* one allocation each, so that ASan watches both ends */
        buffer[i] = aligned_alloc(64, BUFFER);
        before[i] = malloc(BUFFER);
        if (!buffer[i] || !before[i])
            die("no memory");
    }
}

/* ---------------------------------------------------------------- reading the input */

typedef struct input {
    const uint8_t *p;
    size_t n;
} input;

static uint8_t byte(input *in)
{
    return in->n ? (in->n--, *in->p++) : 0;
}

/* Numbers that matter: small ones, powers of two, their neighbours, and any 64 bits. */
static int64_t number(input *in)
{
    uint8_t kind = byte(in), v = byte(in);
    uint64_t all = 0;
    switch (kind % 6) {
    case 0:
        return v % 16;
    case 1:
        return (int8_t)v;
    case 2:
        return (int64_t)((uint64_t)1 << (v % 64));
    case 3:
        return (int64_t)(((uint64_t)1 << (v % 64)) - 1);
    case 4:
        return -(int64_t)(((uint64_t)1 << (v % 64)) >> 1);
    default:
        for (int i = 0; i < 8; i++)
            all = all << 8 | byte(in);
        return (int64_t)all;
    }
}

static const saker_type some_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2, SAKER_I8,
                                        SAKER_I4,  SAKER_I32, SAKER_I64,  SAKER_U8,   SAKER_BOOL};

typedef struct call {
    saker_tensor tensor[SUITE_MAX_TENSORS];
    int64_t shape[SUITE_MAX_TENSORS][SAKER_MAX_DIMS], stride[SUITE_MAX_TENSORS][SAKER_MAX_DIMS];
    int64_t shift[SUITE_MAX_TENSORS]; /* bytes the data is moved from where it fits exactly */
    _Alignas(8) unsigned char args[SUITE_ARGS_BYTES];
    int n;
} call;

static void edit_tensor(input *in, call *c, int i)
{
    saker_tensor *t = &c->tensor[i];
    int dim = byte(in) % SAKER_MAX_DIMS;
    switch (byte(in) % 12) {
    case 0:
        t->dtype = SAKER_DTYPE(some_types[byte(in) % (sizeof some_types / sizeof *some_types)]);
        break;
    case 1:
        t->dtype.code = byte(in);
        break;
    case 2:
        t->dtype.bits = byte(in);
        break;
    case 3:
        t->dtype.lanes = byte(in);
        break;
    case 4:
        t->ndim = byte(in) % 4 ? byte(in) % (SAKER_MAX_DIMS + 1) : (int32_t)number(in);
        break;
    case 5:
    case 6:
        c->shape[i][dim] = number(in);
        break;
    case 7:
    case 8:
        c->stride[i][dim] = number(in);
        break;
    case 9:
        t->strides = byte(in) % 2 ? NULL : c->stride[i];
        break;
    case 10:
        t->device.device_type = (int32_t)number(in);
        break;
    default:
        c->shift[i] = number(in) % 64;
        break;
    }
}

/* ---------------------------------------------------------------- may it be called? */

/* Bytes from data to the end of the last element; -1 when the descriptor makes no sense or is too much work. All
 * numbers stay small: a size or stride beyond the buffer ends it at once. */
static int64_t reach(const saker_tensor *t)
{
    int64_t last = 0, elements = 1;
    int bytes = (t->dtype.bits + 7) / 8;
    if (t->ndim < 0 || t->ndim > SAKER_MAX_DIMS || !t->shape)
        return -1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        int64_t n = t->shape[d], stride = t->strides ? t->strides[d] : elements;
        if (n == 0)
            return 0;
        if (n < 0 || n > MAX_WORK || stride < 0 || (n > 1 && stride > BUFFER))
            return -1;
        last += (n - 1) * (n > 1 ? stride : 0);
        elements *= n;
        if (last > BUFFER || elements > MAX_WORK)
            return -1;
    }
    return (last + 1) * bytes;
}

/* Points every tensor at the end of its buffer, so that one byte too many is seen. */
static int place(call *c)
{
    int inside = 1;
    for (int i = 0; i < c->n; i++) {
        saker_tensor *t = &c->tensor[i];
        int64_t bytes = reach(t);
        if (bytes < 0 || bytes > BUFFER) {
            inside = 0;
            t->data = buffer[i];
            continue;
        }
        int64_t unit = t->dtype.bits >= 8 ? t->dtype.bits / 8 : 1, at = (BUFFER - bytes) / unit * unit;
        if (c->shift[i] && at >= 64)
            at -= c->shift[i] < 0 ? -c->shift[i] : c->shift[i];
        t->data = buffer[i] + at;
    }
    return inside;
}

static void check_call(const saker_op_info *op, const call *c)
{
    for (int i = 0; i < c->n; i++)
        memcpy(before[i], buffer[i], BUFFER);
    saker_status s = saker_call(ctx, op, c->args);
    if ((unsigned)s > SAKER_VERSION)
        die("a status that does not exist");
    if (s && strncmp(saker_context_error(ctx), op->name, strlen(op->name)))
        die("a sentence that does not begin with the op");
    for (int i = 0; s && i < c->n; i++)
        if (memcmp(before[i], buffer[i], BUFFER))
            die("a failed call wrote to a tensor");
}

/* Before the first input: making the cases is not part of its time. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    set_up();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static call c;
    input in = {data, size};
    int o = byte(&in) % suite_count();
    const suite *s = suite_at(o);
    const saker_op_info *op = saker_op_find(s->op);
    const suite_case *base = &cases[o][byte(&in) % n_cases[o]];
    memset(&c, 0, sizeof c);
    c.n = base->n_tensors;
    for (int i = 0; i < c.n; i++) {
        memcpy(c.shape[i], base->tensor[i].shape, sizeof base->tensor[i].shape);
        suite_strides(&base->tensor[i], c.stride[i]);
        c.tensor[i] = saker_tensor_of(NULL, base->tensor[i].type, base->tensor[i].ndim, c.shape[i], c.stride[i]);
        memset(buffer[i], byte(&in), BUFFER);
    }
    if (!suite_bind(s, base, c.tensor, c.args))
        die("the case does not bind");
    while (in.n) {
        uint8_t what = byte(&in);
        const saker_field *f = &op->fields[byte(&in) % op->n_fields];
        if (what % 8 < 5) {
            edit_tensor(&in, &c, what % c.n);
        } else if (what % 8 < 7 && f->kind > SAKER_FIELD_INOUT) {
            int32_t v = byte(&in) % 3 ? byte(&in) % 5 : (int32_t)number(&in);
            int64_t wide = byte(&in) % 3 ? v : number(&in);
            if (f->kind == SAKER_FIELD_I64 || f->kind == SAKER_FIELD_F64)
                memcpy(c.args + f->offset, &wide, sizeof wide);
            else
                memcpy(c.args + f->offset, &v, sizeof v);
        } else if (what % 32 == 7) {
            uint64_t struct_size = (uint64_t)number(&in); /* a longer one must stay inside of the struct's room here */
            if (struct_size <= SUITE_ARGS_BYTES || struct_size > 65536)
                memcpy(c.args, &struct_size, sizeof struct_size);
        } else if (f->kind <= SAKER_FIELD_INOUT) { /* leave it out, or give it another tensor's descriptor */
            const saker_tensor *t = byte(&in) % 2 ? NULL : &c.tensor[what % c.n];
            memcpy(c.args + f->offset, &t, sizeof t);
        }
    }
    for (int i = 0; i < op->n_fields; i++) /* a packed matrix is longer than its shape says: only its writer knows */
        if (!strcmp(op->fields[i].name, "b_packed"))
            memset(c.args + op->fields[i].offset, 0, sizeof(int32_t));
    int inside = place(&c);
    char text[256];
    size_t bytes = 0;
    saker_status explained = saker_explain(ctx, op->name, c.args, text, sizeof text);
    saker_status asked = saker_workspace_bytes(ctx, op->name, c.args, &bytes);
    if (explained != asked)
        die("explain and workspace_bytes do not agree");
    if (inside && bytes < (size_t)1 << 26)
        check_call(op, &c);
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 20000;
    uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint8_t data[160];
    LLVMFuzzerInitialize(NULL, NULL);
    for (long i = 0; i < count; i++) {
        size_t n = 0;
        for (; n < sizeof data; n++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            data[n] = (uint8_t)(state >> 56);
        }
        LLVMFuzzerTestOneInput(data, 2 + data[n - 1] % (n - 2));
    }
    saker_context_destroy(ctx);
    for (int i = 0; i < SUITE_MAX_TENSORS; i++) {
        free(buffer[i]);
        free(before[i]);
    }
    printf("fuzz_args: %ld inputs, no finding\n1 passed, 0 failed, 0 skipped\n", count);
    return 0;
}
#endif
