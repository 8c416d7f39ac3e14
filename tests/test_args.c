/* test_args.c - wrong arguments, derived from the field tables: a new op is tested here without a line of its own.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each wrong call must give the right status, a sentence that names the operation and the argument, the same answer
 * from saker_explain and saker_workspace_bytes, and must not change a byte of any tensor. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fixture.h"
#include "suite_convert.h"

static saker_context *ctx;
static int wrong_calls;

/* ---------------------------------------------------------------- expecting an error */

/* word as a whole word. */
static bool mentions(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool before = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        bool after = !(isalnum((unsigned char)at[n]) || at[n] == '_');
        if (before && after)
            return true;
    }
    return false;
}

static void expect(fixture *f, saker_status want, const char *field, const char *what)
{
    char text[2048] = "";
    size_t bytes = 0;
    saker_status got = saker_call(ctx, f->op, f->args);
    const char *sentence = saker_context_error(ctx);
    wrong_calls++;
    CHECK_TEXT(got == want, "%s, %s %s ('%s'): got %s, expected %s: %s", f->op->name, field, what, f->c.name,
               saker_status_name(got), saker_status_name(want), got ? sentence : "(no error)");
    CHECK_TEXT(!got || (!strncmp(sentence, f->op->name, strlen(f->op->name)) && mentions(sentence, field)),
               "%s, %s %s: the sentence does not name the op and the argument: %s", f->op->name, field, what, sentence);
    CHECK_TEXT(fixture_untouched(f), "%s, %s %s: memory was changed by a call that failed", f->op->name, field, what);
    char first[512];
    snprintf(first, sizeof first, "%s", sentence);
    saker_status explained = saker_explain(ctx, f->op->name, f->args, text, sizeof text);
    saker_status asked = saker_workspace_bytes(ctx, f->op->name, f->args, &bytes);
    if (want != SAKER_WORKSPACE)
        CHECK_TEXT(explained == got && asked == got && (!got || strstr(text, first)),
                   "%s, %s %s: the call says %s, explain %s, workspace_bytes %s: %s", f->op->name, field, what,
                   saker_status_name(got), saker_status_name(explained), saker_status_name(asked), text);
    fixture_reset(f);
}

/* Asked only: a call would write. */
static void expect_accepted(fixture *f, const char *field, const char *what)
{
    char text[512];
    saker_status got = saker_explain(ctx, f->op->name, f->args, text, sizeof text);
    CHECK_TEXT(!got, "%s, %s %s ('%s'): got %s, expected OK: %s", f->op->name, field, what, f->c.name,
               saker_status_name(got), text);
    fixture_reset(f);
}

/* ---------------------------------------------------------------- one tensor argument */

static const saker_type all_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2, SAKER_I8,
                                       SAKER_I4,  SAKER_I32, SAKER_I64,  SAKER_U8,   SAKER_BOOL};

static void wrong_types(fixture *f, int i, const saker_field *field)
{
    saker_tensor *t = &f->tensor[i];
    for (size_t k = 0; k < sizeof all_types / sizeof *all_types; k++) {
        bool allowed = false;
        for (const uint32_t *a = field->types; *a; a++)
            allowed |= *a == (uint32_t)all_types[k];
        if (allowed)
            continue;
        t->dtype = SAKER_DTYPE(all_types[k]);
        expect(f, SAKER_UNSUPPORTED, field->name, "of a type that is not in its list");
    }
    t->dtype.code = 77;
    expect(f, SAKER_UNSUPPORTED, field->name, "of an unknown type");
    t->dtype.lanes = 2;
    expect(f, SAKER_UNSUPPORTED, field->name, "of two lanes");
    t->dtype.lanes = 0;
    expect(f, SAKER_UNSUPPORTED, field->name, "of no lanes");
    t->dtype.bits = 24;
    expect(f, SAKER_UNSUPPORTED, field->name, "of 24 bits");
}

static void wrong_shapes(fixture *f, int i, const char *name)
{
    saker_tensor *t = &f->tensor[i];
    static const int32_t ranks[] = {-1, SAKER_MAX_DIMS + 1, 1 << 30};
    for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
        t->ndim = ranks[k];
        expect(f, SAKER_INVALID_ARG, name, "with a rank that cannot be");
    }
    t->shape = NULL;
    expect(f, SAKER_NULL_POINTER, name, "without a shape");
    t->data = NULL;
    expect(f, SAKER_NULL_POINTER, name, "without data");
    f->shape[i][0] = -1;
    expect(f, SAKER_INVALID_ARG, name, "with a negative size");
    if (f->c.tensor[i].free_shape == SUITE_FIXED) {
        f->shape[i][t->ndim - 1]++;
        t->strides = NULL;
        expect(f, SAKER_INVALID_ARG, name, "with one element more in the last dimension");
    }
    f->shape[i][0] = f->shape[i][1] = (int64_t)1 << 40;
    t->ndim = 2;
    t->strides = NULL;
    expect(f, SAKER_OVERFLOW, name, "with 2^80 elements");
    f->shape[i][0] = INT64_MAX;
    t->ndim = 1;
    t->strides = NULL;
    if (type_bytes(f->c.tensor[i].type) > 1)
        expect(f, SAKER_OVERFLOW, name, "with more than 2^63 bytes");
    fixture_reset(f);
    if (f->c.tensor[i].free_shape == SUITE_ANY_SHAPE)
        return;
    /* One dimension more, of size 2. */
    memmove(&f->shape[i][1], &f->shape[i][0], (size_t)t->ndim * sizeof(int64_t));
    f->shape[i][0] = 2;
    t->ndim++;
    t->strides = NULL;
    expect(f, SAKER_INVALID_ARG, name, "with one dimension more");
}

static void wrong_memory(fixture *f, int i, const saker_field *field)
{
    saker_tensor *t = &f->tensor[i];
    const char *name = field->name;
    if (type_bytes(f->c.tensor[i].type) > 1) {
        t->data = (char *)t->data - 1;
        expect(f, SAKER_MISALIGNED, name, "one byte off");
        t->byte_offset = 1;
        expect(f, SAKER_MISALIGNED, name, "with byte_offset 1");
    }
    t->device.device_type = SAKER_CUDA;
    expect(f, SAKER_INVALID_ARG, name, "on another device");
    t->device.device_type = 7;
    expect(f, SAKER_INVALID_ARG, name, "on an unknown device");
    for (int d = 0; d < t->ndim; d++) {
        if (f->shape[i][d] < 2) {
            f->stride[i][d] = INT64_MAX;
            expect_accepted(f, name, "with any stride in a dimension of one");
            continue;
        }
        f->stride[i][d] = -f->stride[i][d];
        expect(f, SAKER_INVALID_ARG, name, "with a negative stride");
        f->stride[i][d] = INT64_MAX / 2;
        /* Up to three bytes may lie so far apart. */
        if (f->shape[i][d] > 3 || type_bytes(f->c.tensor[i].type) > 1)
            expect(f, SAKER_OVERFLOW, name, "with a stride beyond 63 bits");
        else
            fixture_reset(f);
        if (field->kind == SAKER_FIELD_IN)
            continue;
        f->stride[i][d] = 0;
        expect(f, SAKER_INVALID_ARG, name, "an output with stride 0");
        if (t->ndim > 1 && d == 0 && f->shape[i][1] > 1) {
            f->stride[i][0] = f->stride[i][1];
            expect(f, SAKER_ALIAS, name, "an output whose rows overlap");
        }
    }
}

/* ---------------------------------------------------------------- pairs */

/* What the manual allows: exact aliases only. */
static const struct {
    const char *op, *a, *b;
} allowed_pairs[] = {{"gemm", "c", "d"},
                     {"grouped_gemm", "c", "d"},
                     {"rms_norm", "x", "y"},
                     {"rms_norm", "residual", "residual_out"},
                     {"hadamard", "x", "y"},
                     {"rms_norm_backward", "dy", "dx"},
                     {"rms_norm_backward", "dresidual_out", "dx"},
                     {"layer_norm", "x", "y"},
                     {"layer_norm", "residual", "residual_out"},
                     {"layer_norm_backward", "dy", "dx"},
                     {"layer_norm_backward", "dresidual_out", "dx"},
                     {"softmax", "x", "y"},
                     {"softmax_backward", "dy", "dx"},
                     {"softmax_backward", "y", "dx"},
                     {"cross_entropy", "logits", "dlogits"},
                     {"cross_entropy_backward", "logits", "dlogits"},
                     {"rope", "q", "q_out"},
                     {"rope", "k", "k_out"},
                     {"rope_backward", "dq_out", "dq"},
                     {"rope_backward", "dk_out", "dk"},
                     {"activation", "x", "y"},
                     {"activation", "up", "y"},
                     {"activation_backward", "x", "dx"},
                     {"activation_backward", "dy", "dx"},
                     {"activation_backward", "up", "dup"},
                     {"activation_backward", "dy", "dup"},
                     {"attention_merge", "o_a", "o"},
                     {"attention_merge", "o_b", "o"},
                     {"attention_merge", "lse_a", "lse"},
                     {"attention_merge", "lse_b", "lse"}};

static bool pair_allowed(const char *op, const char *a, const char *b)
{
    for (size_t i = 0; i < sizeof allowed_pairs / sizeof *allowed_pairs; i++)
        if (!strcmp(op, allowed_pairs[i].op) && ((!strcmp(a, allowed_pairs[i].a) && !strcmp(b, allowed_pairs[i].b)) ||
                                                 (!strcmp(b, allowed_pairs[i].a) && !strcmp(a, allowed_pairs[i].b))))
            return true;
    return false;
}

static void aliases(fixture *f)
{
    for (int o = 0; o < f->c.n_tensors; o++)
        for (int k = 0; k < f->c.n_tensors; k++) {
            if (o == k || f->c.tensor[o].role == SUITE_IN)
                continue;
            const suite_tensor *out = &f->c.tensor[o], *other = &f->c.tensor[k];
            int64_t unit = out->align > type_bytes(out->type) ? out->align : type_bytes(out->type);
            int64_t span = suite_span_bytes(other);
            if (span >= 2 * unit) { /* the output starts inside the other tensor, past its beginning */
                f->tensor[o].data = f->memory[k].data + unit;
                expect(f, SAKER_ALIAS, out->field, "that begins inside of another tensor");
            }
            f->tensor[o].data = f->memory[k].data + (span - 1) / unit * unit;
            if ((uintptr_t)f->tensor[o].data % (uintptr_t)unit == 0)
                expect(f, SAKER_ALIAS, out->field, "that begins at the end of another tensor");
            fixture_reset(f);
            f->tensor[o].data = f->memory[k].data;
            bool exact = out->type == other->type && out->ndim == other->ndim &&
                         !memcmp(out->shape, other->shape, sizeof out->shape) &&
                         !memcmp(f->stride[o], f->stride[k], sizeof f->stride[o]);
            if ((uintptr_t)f->tensor[o].data % (uintptr_t)unit == 0 &&
                !(exact && pair_allowed(f->op->name, out->field, other->field)))
                expect(f, SAKER_ALIAS, out->field, "at another tensor's address");
            fixture_reset(f);
        }
}

/* ---------------------------------------------------------------- options and the struct */

static void options(fixture *f)
{
    for (int k = 0; k < f->op->n_fields; k++) {
        const saker_field *field = &f->op->fields[k];
        unsigned char *at = f->args + field->offset;
        static const float floats[] = {NAN, INFINITY, -INFINITY};
        for (int n = 0; field->kind == SAKER_FIELD_F32 && n < 3; n++) {
            memcpy(at, &floats[n], sizeof floats[n]);
            expect(f, SAKER_INVALID_ARG, field->name, "that is not a finite number");
        }
        for (int n = 0; field->kind == SAKER_FIELD_F64 && n < 3; n++) {
            double value = floats[n];
            memcpy(at, &value, sizeof value);
            expect(f, SAKER_INVALID_ARG, field->name, "that is not a finite number");
        }
        int32_t choices = 1;
        for (const char *c = field->kind == SAKER_FIELD_ENUM ? field->choices : ""; *c; c++)
            choices += *c == '|';
        const int32_t wrong[] = {-1, field->kind == SAKER_FIELD_BOOL ? 2 : choices, 1 << 20, INT32_MIN};
        for (int n = 0; (field->kind == SAKER_FIELD_BOOL || field->kind == SAKER_FIELD_ENUM) && n < 4; n++) {
            memcpy(at, &wrong[n], sizeof wrong[n]);
            expect(f, SAKER_UNSUPPORTED, field->name, "with an unknown value");
        }
    }
}

static void struct_sizes(fixture *f)
{
    const uint64_t small[] = {0, 4, 8, f->op->args_size - 8, (uint64_t)1 << 40, UINT64_MAX};
    uint64_t *size = (uint64_t *)f->args;
    for (size_t k = 0; k < sizeof small / sizeof *small; k++) {
        *size = small[k];
        expect(f, SAKER_VERSION, "struct_size", "that no version has");
    }
    *size = f->op->args_size + 16;
    f->args[f->op->args_size + 9] = 1;
    expect(f, SAKER_UNSUPPORTED, "args", "with an option of a later version");
    _Static_assert(SUITE_ARGS_BYTES >= 160, "room for a longer struct");
    f->args[f->op->args_size + 9] = 0;
    *size = f->op->args_size + 16;
    saker_status got =
        saker_call(ctx, f->op, f->args); /* longer, with zeros: a later version that asks for nothing new */
    CHECK_TEXT(got == SAKER_OK, "%s: a longer struct with a zero tail gives %s", f->op->name, saker_context_error(ctx));
    fixture_reset(f);
}

/* What no field covers is the member `reserved`: there is no padding, whose bytes nobody sets. */
static void reserved_member(fixture *f)
{
    bool covered[SUITE_ARGS_BYTES] = {false};
    for (int k = 0; k < f->op->n_fields; k++) {
        const saker_field *field = &f->op->fields[k];
        int kind = field->kind;
        bool word = kind == SAKER_FIELD_F32 || kind == SAKER_FIELD_BOOL || kind == SAKER_FIELD_ENUM;
        memset(covered + field->offset, true, word ? 4 : 8);
    }
    for (uint32_t at = sizeof(uint64_t); at < f->op->args_size; at += 4)
        if (!covered[at]) {
            f->args[at] = 7;
            expect(f, SAKER_UNSUPPORTED, "reserved", "that is not 0");
        }
}

static void null_arguments(fixture *f)
{
    CHECK(saker_call(NULL, f->op, f->args) == SAKER_NULL_POINTER);
    CHECK(mentions(saker_context_error(NULL), f->op->name) && mentions(saker_context_error(NULL), "context"));
    CHECK(saker_call(ctx, f->op, NULL) == SAKER_NULL_POINTER);
    CHECK(mentions(saker_context_error(ctx), f->op->name) && mentions(saker_context_error(ctx), "args"));
    for (int k = 0; k < f->op->n_fields; k++) { /* before the others, which may write outputs */
        const saker_field *field = &f->op->fields[k];
        if (field->kind > SAKER_FIELD_INOUT || !field->required)
            continue;
        memset(f->args + field->offset, 0, sizeof(void *));
        expect(f, SAKER_NULL_POINTER, field->name, "that is required but NULL");
    }
    for (int k = 0; k < f->op->n_fields; k++) { /* these may succeed, and write */
        const saker_field *field = &f->op->fields[k];
        if (field->kind > SAKER_FIELD_INOUT || field->required)
            continue;
        memset(f->args + field->offset, 0, sizeof(void *));
        /* Optional: fine, or another argument needs it and the sentence says which. */
        saker_status got = saker_call(ctx, f->op, f->args);
        CHECK_TEXT(got == SAKER_OK || ((got == SAKER_NULL_POINTER || got == SAKER_INVALID_ARG) &&
                                       mentions(saker_context_error(ctx), field->name)),
                   "%s without %s: %s", f->op->name, field->name, saker_context_error(ctx));
        fixture_reset(f);
    }
}

static void workspace(fixture *f)
{
    size_t bytes = 0;
    CHECK(saker_workspace_bytes(ctx, f->op->name, f->args, &bytes) == SAKER_OK);
    if (!bytes)
        return;
    char *memory = aligned_alloc(256, (bytes + 511) / 256 * 256), text[32];
    CHECK(saker_context_set_workspace(ctx, memory + 1, bytes) == SAKER_WORKSPACE);
    CHECK(saker_context_set_workspace(ctx, memory + 128, bytes) == SAKER_WORKSPACE);
    CHECK(saker_context_set_workspace(ctx, memory, 0) == SAKER_WORKSPACE);
    CHECK(saker_context_set_workspace(ctx, NULL, 1) == SAKER_WORKSPACE);
    CHECK(saker_context_set_workspace(ctx, memory, bytes - 1) == SAKER_OK);
    snprintf(text, sizeof text, "%zu", bytes);
    expect(f, SAKER_WORKSPACE, text, "bytes of workspace are needed, one less is lent");
    CHECK(saker_context_set_workspace(ctx, memory, 1) == SAKER_OK);
    expect(f, SAKER_WORKSPACE, text, "bytes of workspace are needed, 1 is lent");
    CHECK(saker_context_set_workspace(ctx, NULL, 0) == SAKER_OK);
    free(memory);
}

/* ---------------------------------------------------------------- all of it */

static void check_op(const suite *s)
{
    static suite_case cases[8];
    int n = fixture_cases(s, cases, 8);
    const saker_op_info *op = saker_op_find(s->op);
    CHECK_TEXT(n > 0 && op, "%s: no case to start from", s->op);
    for (int k = 0; k < n && op; k++) {
        fixture f;
        fixture_open(&f, s, &cases[k]);
        options(&f);
        for (int i = 0; i < f.c.n_tensors; i++) {
            const saker_field *field = fixture_field(&f, f.c.tensor[i].field);
            wrong_types(&f, i, field);
            wrong_shapes(&f, i, field->name);
            wrong_memory(&f, i, field);
        }
        reserved_member(&f);
        aliases(&f);
        workspace(&f);
        /* These succeed for some arguments, so they come last: outputs may be written. */
        fixture_close(&f);
        fixture_open(&f, s, &cases[k]);
        null_arguments(&f);
        fixture_close(&f);
        fixture_open(&f, s, &cases[k]);
        struct_sizes(&f);
        CHECK_TEXT(saker_call(ctx, f.op, f.args) == SAKER_OK, "%s: the good call fails: %s", s->op,
                   saker_context_error(ctx));
        fixture_close(&f);
    }
    for (int k = 0; op && k < op->n_fields; k++) { /* the tables themselves */
        bool seen = op->fields[k].kind > SAKER_FIELD_INOUT;
        for (int c = 0; c < n; c++)
            for (int i = 0; i < cases[c].n_tensors; i++)
                seen |= !strcmp(cases[c].tensor[i].field, op->fields[k].name);
        CHECK_TEXT(seen, "%s: no case has the field %s", op->name, op->fields[k].name);
        CHECK_TEXT(op->fields[k].doc && *op->fields[k].doc, "%s: %s has no doc", op->name, op->fields[k].name);
        CHECK_TEXT(op->fields[k].offset + 4 <= op->args_size, "%s: %s lies outside", op->name, op->fields[k].name);
    }
}

int main(void)
{
    saker_config one = {.struct_size = sizeof one, .threads = 1};
    if (saker_context_create(&ctx, &one)) {
        printf("FAIL: no context: %s\n", saker_context_error(NULL));
        return 1;
    }
    for (int i = 0; i < suite_count(); i++)
        check_op(suite_at(i));
    CHECK(saker_call(ctx, NULL, NULL) == SAKER_INVALID_ARG);
    CHECK(saker_call(ctx, (const saker_op_info *)&one, NULL) == SAKER_INVALID_ARG);
    saker_context_destroy(ctx);
    printf("%d wrong calls of %d ops\n", wrong_calls, suite_count());
    return check_report("test_args");
}
