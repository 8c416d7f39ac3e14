/* explain.c - `saker explain`: arguments from the command line, and what the library would do with them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nothing is allocated: tensors get made-up addresses, far apart, which saker_explain never follows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"

enum { MAX_FIELDS = 48, ARGS_BYTES = 1024 };

typedef struct argument {
    saker_tensor tensor;
    int64_t shape[SAKER_MAX_DIMS], stride[SAKER_MAX_DIMS];
} argument;

static bool find_type(const char *name, size_t length, saker_dtype *out)
{
    static const saker_type types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2, SAKER_I8,
                                       SAKER_I4,  SAKER_I32, SAKER_I64,  SAKER_U8,   SAKER_BOOL};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        saker_dtype t = SAKER_DTYPE((uint32_t)types[i]);
        const char *known = saker_type_name(t);
        if (known && strlen(known) == length && !strncmp(known, name, length)) {
            *out = t;
            return true;
        }
    }
    return false;
}

/* A whole number, nothing in front of it but a minus; moves behind it. False: there is none, or it leaves 64 bits. */
static bool number(const char **at, int64_t *out)
{
    char *end;
    if (**at != '-' && (**at < '0' || **at > '9'))
        return false;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    bool ok = end != *at && !errno;
    *at = end;
    return ok;
}

/* Numbers separated by commas. Returns how many, -1 if one of them is none or there are too many. */
static int numbers(const char **at, int64_t *out)
{
    int n = 0;
    while (n < SAKER_MAX_DIMS && number(at, &out[n])) {
        n++;
        if (**at != ',')
            return n;
        ++*at;
    }
    return -1;
}

/* Bytes from the first element to the end of the last; 0 for what is empty or what the library refuses: negative
 * sizes and strides, and more than 63 bits. */
static int64_t extent(const argument *a)
{
    int64_t count = 1, last = 0, reach, bytes;
    for (int i = a->tensor.ndim - 1; i >= 0; i--) {
        int64_t stride = a->tensor.strides ? a->stride[i] : count;
        if (a->shape[i] < 1 || stride < 0 || __builtin_mul_overflow(a->shape[i] - 1, stride, &reach) ||
            __builtin_add_overflow(last, reach, &last) || __builtin_mul_overflow(count, a->shape[i], &count))
            return 0;
    }
    int64_t size = (a->tensor.dtype.bits + 7) / 8;
    return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, size, &bytes) ? 0 : bytes;
}

/* Gives the tensor an address behind all earlier ones, and aligned beyond what any kernel asks for. False: addresses
 * end before the tensor does. */
static bool place_tensor(argument *a, uint64_t *next)
{
    const uint64_t step = (uint64_t)1 << 42;
    uint64_t end;
    a->tensor.data = (void *)(uintptr_t)*next;
    return !__builtin_add_overflow(*next, a->tensor.byte_offset, &end) &&
           !__builtin_add_overflow(end, (uint64_t)extent(a), &end) &&
           !__builtin_add_overflow(end - end % step, step, next);
}

/* TYPE[dims], then @strides and +byte offset if wanted: bf16[4096,8192]@16384,1+2 */
static int parse_tensor(const char *name, const char *text, argument *a, uint64_t *next)
{
    *a = (argument){0};
    const char *at = strchr(text, '[');
    if (!at || !find_type(text, (size_t)(at - text), &a->tensor.dtype))
        return cli_usage("%s=%s: a tensor is written TYPE[SHAPE], for example bf16[4096,8192]", name, text);
    at++;
    a->tensor.ndim = *at == ']' ? 0 : numbers(&at, a->shape);
    if (a->tensor.ndim < 0 || *at++ != ']')
        return cli_usage("%s=%s: the shape is not a list of at most %d whole numbers below 2^63", name, text,
                         SAKER_MAX_DIMS);
    if (*at == '@') {
        at++;
        if (numbers(&at, a->stride) != a->tensor.ndim)
            return cli_usage("%s=%s: behind the @ there must be as many strides, below 2^63, as dimensions", name,
                             text);
        a->tensor.strides = a->stride;
    }
    a->tensor.shape = a->shape;
    if (*at == '+') {
        int64_t offset;
        at++;
        if (!number(&at, &offset) || offset < 0)
            return cli_usage("%s=%s: behind the + there must be a number of bytes from 0 to below 2^63", name, text);
        a->tensor.byte_offset = (uint64_t)offset;
    }
    if (*at)
        return cli_usage("%s=%s: do not understand '%s'", name, text, at);
    if (!place_tensor(a, next))
        return cli_usage("%s=%s: there is no room for it beside the other tensors in 64 bits of addresses", name, text);
    return -1;
}

static int parse_choice(const saker_field *f, const char *text, int32_t *out)
{
    const char *end = text;
    int64_t v;
    if (number(&end, &v) && !*end && v == (int32_t)v) { /* whether it is a choice the library says */
        *out = (int32_t)v;
        return -1;
    }
    int index = 0;
    for (const char *at = f->choices; at && *at; index++) {
        size_t n = strcspn(at, "|");
        if (strlen(text) == n && !strncmp(at, text, n)) {
            *out = index;
            return -1;
        }
        at += n + (at[n] == '|');
    }
    return cli_usage("%s=%s: expected one of %s", f->name, text, f->choices ? f->choices : "(none)");
}

static int parse_field(const saker_op_info *op, const char *word, argument *arguments, uint64_t *next,
                       unsigned char *args)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    int i = 0;
    while (i < op->n_fields && (strlen(op->fields[i].name) != length || strncmp(op->fields[i].name, word, length)))
        i++;
    if (i == op->n_fields)
        return cli_usage("%s has no argument '%.*s'; `saker list %s` shows them", op->name, (int)length, word,
                         op->name);
    if (!equals)
        return cli_usage("'%s': the = and a value are missing; write %s=value", word, word);
    const saker_field *f = &op->fields[i];
    const char *text = equals + 1;
    char *end;
    if (f->kind <= SAKER_FIELD_INOUT) {
        int code = parse_tensor(f->name, text, &arguments[i], next);
        const saker_tensor *t = &arguments[i].tensor;
        memcpy(args + f->offset, &t, sizeof t);
        return code;
    }
    if (f->kind == SAKER_FIELD_F32) {
        float v = strtof(text, &end);
        memcpy(args + f->offset, &v, sizeof v);
        return end == text || *end ? cli_usage("%s=%s: expected a number", f->name, text) : -1;
    }
    if (f->kind == SAKER_FIELD_F64) {
        double v = strtod(text, &end);
        memcpy(args + f->offset, &v, sizeof v);
        return end == text || *end ? cli_usage("%s=%s: expected a number", f->name, text) : -1;
    }
    if (f->kind == SAKER_FIELD_I64) {
        int64_t v = 0;
        const char *at = text;
        bool ok = number(&at, &v) && !*at;
        memcpy(args + f->offset, &v, sizeof v);
        return ok ? -1 : cli_usage("%s=%s: expected a whole number that fits 64 bits", f->name, text);
    }
    int32_t v = 0;
    int code = -1;
    if (f->kind == SAKER_FIELD_BOOL) {
        if (strcmp(text, "0") && strcmp(text, "1") && strcmp(text, "true") && strcmp(text, "false"))
            return cli_usage("%s=%s: expected 0 or 1", f->name, text);
        v = !strcmp(text, "1") || !strcmp(text, "true");
        if (v && !strcmp(f->name, "b_packed")) /* the tensors here have no memory */
            return cli_usage("b_packed=%s: what gemm_pack wrote would be looked at; leave it out", text);
    } else {
        code = parse_choice(f, text, &v);
    }
    memcpy(args + f->offset, &v, sizeof v);
    return code;
}

int cli_explain(int argc, char **argv)
{
    cli_target target = {0};
    bool json = false;
    int words = 0;
    const cli_option table[] = {
        CLI_TARGET_OPTIONS(target),
        {"--json", CLI_FLAG, &json, NULL, "machine-readable output"},
    };
    int code = cli_parse(
        argc, argv, "explain OP name=value... [options]",
        "Says which kernel would run with these arguments, and why others would not. Tensors are TYPE[SHAPE], with\n"
        "@STRIDES (in elements) and +BYTES (offset) behind if wanted; options are numbers or names:\n"
        "  saker explain rms_norm x=bf16[4096,8192] weight=bf16[8192] y=bf16[4096,8192] eps=1e-6\n"
        "  saker explain rms_norm x=f32[64,1000]@1024,1 y_quant=i8[64,1000] y_scale=f32[64] quant=row --isa scalar",
        table, sizeof table / sizeof table[0], &words);
    if (code >= 0)
        return code;
    if (words < 1)
        return cli_usage("explain needs an operation; `saker list --names` shows them");
    const saker_op_info *op = saker_op_find(argv[1]);
    if (!op)
        return cli_usage("there is no operation '%s'; `saker list --names` shows them", argv[1]);
    if (op->n_fields > MAX_FIELDS || op->args_size > ARGS_BYTES)
        return cli_failed("%s has more arguments than this command can hold", op->name);
    argument arguments[MAX_FIELDS] = {0};
    _Alignas(8) unsigned char args[ARGS_BYTES] = {0};
    uint64_t size = op->args_size, next = (uint64_t)1 << 42;
    memcpy(args, &size, sizeof size);
    for (int w = 2; w <= words; w++)
        if ((code = parse_field(op, argv[w], arguments, &next, args)) >= 0)
            return code;
    cli_place place;
    if ((code = cli_open(&target, &place)) >= 0)
        return code;
    char text[8192];
    saker_status status = saker_explain(place.ctx, op->name, args, text, sizeof text);
    size_t length = strlen(text);
    while (length && text[length - 1] == '\n')
        text[--length] = 0;
    if (json) {
        json_out j = {.file = stdout};
        json_begin(&j, NULL, '{');
        json_text(&j, "op", op->name);
        json_text(&j, "device", place.device);
        json_text(&j, "status", saker_status_name(status));
        json_text(&j, "text", text);
        json_end(&j, '}');
    } else {
        printf("%s\n", text);
    }
    cli_close(&place);
    return status ? CLI_FAILED : CLI_OK;
}
