/* test_refusals.c - combinations that no field table can tell are wrong: refusals.def lists them with the sentences.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "saker.h"

enum { MOST_FIELDS = 48, ROOM = 32 * 1024, ARGS_BYTES = 512 };

/* A call in words, and its argument struct. Every field has memory of its own, for none of these calls needs much. */
typedef struct call {
    const saker_op_info *op;
    _Alignas(8) unsigned char args[ARGS_BYTES];
    saker_tensor tensor[MOST_FIELDS];
    int64_t shape[MOST_FIELDS][SAKER_MAX_DIMS], stride[MOST_FIELDS][SAKER_MAX_DIMS];
} call;

static _Alignas(256) char memory[MOST_FIELDS][ROOM];
static saker_context *ctx;

static void stop(const char *where)
{
    printf("FAIL refusals.def: cannot read '%s'\n", where);
    exit(1);
}

static int field_named(const saker_op_info *op, const char *name, size_t length)
{
    for (int i = 0; i < op->n_fields; i++)
        if (strlen(op->fields[i].name) == length && !strncmp(op->fields[i].name, name, length))
            return i;
    stop(name);
    return -1;
}

/* Numbers with commas in between. */
static int numbers(const char **at, int64_t *out)
{
    int n = 0;
    char *end;
    for (;; (*at)++) {
        int64_t value = strtoll(*at, &end, 10);
        if (end == *at)
            return n;
        out[n++] = value;
        *at = end;
        if (**at != ',')
            return n;
    }
}

static saker_dtype type_named(const char *name, size_t length)
{
    static const saker_type all[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2, SAKER_I8,
                                     SAKER_I4,  SAKER_I32, SAKER_I64,  SAKER_U8,   SAKER_BOOL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *known = saker_type_name(SAKER_DTYPE(all[i]));
        if (strlen(known) == length && !strncmp(known, name, length))
            return SAKER_DTYPE(all[i]);
    }
    stop(name);
    return SAKER_DTYPE(0);
}

static void set_tensor(call *c, int i, const char *text)
{
    saker_tensor *t = &c->tensor[i], *given = t;
    if (*text == '-') {
        given = NULL;
    } else {
        size_t length = strcspn(text, "[");
        *t = (saker_tensor){.data = memory[i], .dtype = type_named(text, length), .shape = c->shape[i]};
        text += length + 1;
        t->ndim = numbers(&text, c->shape[i]);
        if (*text++ != ']')
            stop(text);
        if (*text == '/') {
            text++;
            t->strides = c->stride[i];
            numbers(&text, c->stride[i]);
        }
        if (*text == '@') {
            length = strcspn(++text, " +");
            t->data = memory[field_named(c->op, text, length)];
            text += length;
        }
        if (*text == '+')
            t->byte_offset = strtoull(text + 1, NULL, 10);
    }
    memcpy(c->args + c->op->fields[i].offset, &given, sizeof given);
}

/* A number, or the name of a choice. */
static double number(const saker_field *field, const char *text)
{
    size_t length = strcspn(text, " ");
    int choice = 0;
    for (const char *at = field->kind == SAKER_FIELD_ENUM ? field->choices : ""; *at; choice++) {
        size_t n = strcspn(at, "|");
        if (n == length && !strncmp(at, text, n))
            return choice;
        at += n + (at[n] == '|');
    }
    return strtod(text, NULL);
}

static void set_option(call *c, const saker_field *field, const char *text)
{
    const double value = number(field, text);
    const float f32 = (float)value;
    const int64_t i64 = strtoll(text, NULL, 10);
    const int32_t i32 = (int32_t)value;
    unsigned char *at = c->args + field->offset;
    if (field->kind == SAKER_FIELD_F32)
        memcpy(at, &f32, sizeof f32);
    else if (field->kind == SAKER_FIELD_F64)
        memcpy(at, &value, sizeof value);
    else if (field->kind == SAKER_FIELD_I64)
        memcpy(at, &i64, sizeof i64);
    else
        memcpy(at, &i32, sizeof i32);
}

static void set(call *c, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "=");
        int i = field_named(c->op, text, length);
        text += length + 1;
        if (c->op->fields[i].kind <= SAKER_FIELD_INOUT)
            set_tensor(c, i, text);
        else
            set_option(c, &c->op->fields[i], text);
        text += strcspn(text, " ");
        text += *text == ' ';
    }
}

static void try_call(const char *op, const char *base, const char *change, saker_status want, const char *sentence)
{
    static call c;
    char expected[512];
    memset(&c, 0, sizeof c);
    c.op = saker_op_find(op);
    memcpy(c.args, &(uint64_t){c.op->args_size}, sizeof(uint64_t));
    set(&c, base);
    set(&c, change);
    saker_status got = saker_call(ctx, c.op, c.args);
    snprintf(expected, sizeof expected, "%s: %s", op, sentence);
    CHECK_TEXT(got == want && (!want || !strcmp(saker_context_error(ctx), expected)),
               "%s, %s %s: %s '%s'\n     expected %s '%s'", op, base, change, saker_status_name(got),
               got ? saker_context_error(ctx) : "", saker_status_name(want), want ? expected : "");
}

int main(void)
{
    const char *op = "", *base = "";
    if (saker_context_create(&ctx, NULL))
        return 1;
#define CALL(operation, text)                                                                                          \
    op = #operation, base = text;                                                                                      \
    try_call(op, base, "", SAKER_OK, "");
#define NO(status, change, sentence) try_call(op, base, change, SAKER_##status, sentence);
#include "refusals.def"
    saker_context_destroy(ctx);
    return check_report("test_refusals");
}
