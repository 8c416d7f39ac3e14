/* suite_case.c - turns a case of a suite into memory and arguments: strides, fills, stores, loads, binding.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "suite_convert.h"
#include "suite.h"

static const suite *const suites[] = {
#define SKR_OP(name) &skr_suite_##name,
#include "../src/core/ops.def"
#undef SKR_OP
};

static bool has_shared_memory_of_hopper(void)
{
    static int64_t bytes = -1;
    saker_cuda_info info;
    if (bytes < 0)
        bytes = saker_cuda_at(0, &info) ? 0 : info.shared_bytes;
    return bytes >= 227 * 1024;
}

const char *suite_kernel_of(const suite_case *c, bool cuda, const char *ran)
{
    if (cuda && !has_shared_memory_of_hopper())
        return NULL;
    return !cuda ? c->cpu_kernel : strstr(ran, "/sm80 ") ? c->portable_kernel : c->cuda_kernel;
}

const char *suite_judged(const suite *s, const char *ran)
{
    return s->inexact && strstr(ran, s->inexact) ? ran : NULL;
}

int suite_count(void)
{
    return (int)(sizeof suites / sizeof *suites);
}

const suite *suite_at(int i)
{
    return i >= 0 && i < suite_count() ? suites[i] : NULL;
}

const suite *suite_find(const char *op)
{
    for (int i = 0; i < suite_count(); i++)
        if (!strcmp(suites[i]->op, op))
            return suites[i];
    return NULL;
}

/* ---------------------------------------------------------------- layout */

int64_t suite_elements(const suite_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

int suite_type_bytes(saker_type type)
{
    return type_bytes(type);
}

bool suite_compact(const suite_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->stride[d])
            return false;
    return true;
}

void suite_strides(const suite_tensor *t, int64_t *stride)
{
    bool compact = suite_compact(t);
    int64_t next = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        stride[d] = compact ? next : t->stride[d];
        next *= t->shape[d];
    }
}

int64_t suite_span_bytes(const suite_tensor *t)
{
    int64_t stride[SUITE_MAX_DIMS], last = 0;
    if (suite_elements(t) == 0)
        return 0;
    suite_strides(t, stride);
    for (int d = 0; d < t->ndim; d++)
        last += (t->shape[d] - 1) * stride[d];
    return t->type == SAKER_I4 ? last / 2 + 1 : (last + 1) * type_bytes(t->type);
}

/* Calls visit for each run of the last dimension: logical index of its first element, and its place in memory in
 * elements. */
typedef void visit_run(void *arg, int64_t logical, int64_t place, int64_t n, int64_t step);

static void each_run(const suite_tensor *t, visit_run *visit, void *arg)
{
    int64_t stride[SUITE_MAX_DIMS], index[SUITE_MAX_DIMS] = {0}, total = suite_elements(t);
    int last = t->ndim - 1;
    suite_strides(t, stride);
    int64_t n = last >= 0 ? t->shape[last] : 1, step = last >= 0 ? stride[last] : 1;
    for (int64_t logical = 0; logical < total; logical += n) {
        int64_t place = 0;
        for (int d = 0; d < last; d++)
            place += index[d] * stride[d];
        visit(arg, logical, place, n, step);
        for (int d = last - 1; d >= 0 && ++index[d] == t->shape[d]; d--)
            index[d] = 0;
    }
}

/* One transfer between memory and a packed array, of doubles (values) or of the elements' own bytes. */
struct transfer {
    saker_type type;
    char *data;
    char *packed;
    double *values;
    bool to_memory;
};

/* i4 is packed in memory, a byte each elsewhere. */
static void move_nibble(struct transfer *t, int64_t logical, int64_t place)
{
    uint8_t *p = (uint8_t *)t->data + place / 2;
    int shift = place % 2 ? 4 : 0;
    uint8_t code = (uint8_t)((int8_t)(uint8_t)(*p >> shift << 4) >> 4);
    if (t->to_memory) {
        code = t->values ? (uint8_t)(int8_t)t->values[logical] : (uint8_t)t->packed[logical];
        *p = (uint8_t)((*p & ~(15 << shift)) | (code & 15) << shift);
    } else if (t->values) {
        t->values[logical] = (int8_t)code;
    } else {
        t->packed[logical] = (char)code;
    }
}

static void move_run(void *arg, int64_t logical, int64_t place, int64_t n, int64_t step)
{
    struct transfer *t = arg;
    int size = type_bytes(t->type);
    for (int64_t i = 0; i < n; i++) {
        if (t->type == SAKER_I4) {
            move_nibble(t, logical + i, place + i * step);
            continue;
        }
        char *p = t->data + (place + i * step) * size;
        if (t->values && t->to_memory)
            encode(t->type, t->values[logical + i], p);
        else if (t->values)
            t->values[logical + i] = decode(t->type, p);
        else if (t->to_memory)
            memcpy(p, t->packed + (logical + i) * size, (size_t)size);
        else
            memcpy(t->packed + (logical + i) * size, p, (size_t)size);
    }
}

void suite_store(const suite_tensor *t, const double *value, void *data)
{
    struct transfer a = {t->type, data, NULL, (double *)value, true};
    each_run(t, move_run, &a);
}

void suite_load(const suite_tensor *t, const void *data, double *value)
{
    struct transfer a = {t->type, (char *)data, NULL, value, false};
    each_run(t, move_run, &a);
}

void suite_scatter(const suite_tensor *t, const void *packed, void *data)
{
    if (suite_compact(t) && t->type != SAKER_I4) {
        if (suite_elements(t))
            memcpy(data, packed, (size_t)suite_span_bytes(t));
        return;
    }
    struct transfer a = {t->type, data, (char *)packed, NULL, true};
    each_run(t, move_run, &a);
}

void suite_gather(const suite_tensor *t, const void *data, void *packed)
{
    if (suite_compact(t) && t->type != SAKER_I4) {
        if (suite_elements(t))
            memcpy(packed, data, (size_t)suite_span_bytes(t));
        return;
    }
    struct transfer a = {t->type, (char *)data, packed, NULL, false};
    each_run(t, move_run, &a);
}

struct spare {
    const uint8_t *from;
    uint8_t *data;
    bool zero;
};

static void move_spare(void *arg, int64_t logical, int64_t place, int64_t n, int64_t step)
{
    struct spare *s = arg;
    int64_t byte = (place + n) / 2;
    (void)logical;
    (void)step;
    if (n % 2 == 0)
        return;
    s->zero &= s->data[byte] >> 4 == 0;
    s->data[byte] = (uint8_t)((s->data[byte] & 15) | (s->from[byte] & 240));
}

bool suite_spare_from(const suite_tensor *t, const void *from, void *data)
{
    struct spare s = {from, data, true};
    if (t->type == SAKER_I4)
        each_run(t, move_spare, &s);
    return s.zero;
}

/* ---------------------------------------------------------------- contents */

static uint64_t mix(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state) /* (0, 1) */
{
    return ((double)(mix(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    double r = sqrt(-2 * log(uniform(state)));
    return r * cos(6.283185307179586 * uniform(state));
}

static uint64_t key_of(const char *text, uint64_t h)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static double draw(suite_fill fill, const float_format *f, int64_t i, uint64_t *state)
{
    double max = f ? f->max : 127;
    switch (fill) {
    case SUITE_UNIFORM:
        return 4 * uniform(state) - 2;
    case SUITE_ZERO:
        return i % 2 ? -0.0 : 0.0;
    case SUITE_CONSTANT:
        return 3;
    case SUITE_LARGE:
        return fmin(fmax(1e4 * normal(state), -max), max);
    case SUITE_HUGE:
        return fmin(fmax(1e15 * normal(state), -max), max);
    case SUITE_TINY: {
        /* From the smallest denormal to eight times the smallest normal. */
        double sign = mix(state) & 1 ? -1 : 1, octaves = f ? f->mantissa_bits + 3 : 0;
        return sign * (f ? f->step_min : 1) * exp2(octaves * uniform(state));
    }
    case SUITE_MAX:
        return mix(state) & 1 ? -max : max;
    case SUITE_ALTERNATING:
        return i & 1 ? -1 : 1;
    case SUITE_POSITIVE:
        return 0.5 + 1.5 * uniform(state);
    case SUITE_OFFSET:
        return 1000 + normal(state);
    case SUITE_BITS:
        return (double)(mix(state) >> 12); /* cut to the type by the caller */
    default:
        return normal(state);
    }
}

/* A stride-0 dimension shows one element many times: all of them must get the value that memory will hold. */
static void make_consistent(const suite_tensor *t, double *value)
{
    int64_t stride[SUITE_MAX_DIMS], total = suite_elements(t);
    bool expanded = false;
    suite_strides(t, stride);
    for (int d = 0; d < t->ndim; d++)
        expanded |= stride[d] == 0 && t->shape[d] > 1;
    if (!expanded)
        return;
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, source = 0, scale = 1;
        for (int d = t->ndim - 1; d >= 0; d--) {
            int64_t index = rest % t->shape[d];
            rest /= t->shape[d];
            source += (stride[d] ? index : 0) * scale;
            scale *= t->shape[d];
        }
        value[i] = value[source];
    }
}

/* A number without a factor in common with n, about 0.6 n. */
static int64_t coprime(int64_t n)
{
    for (int64_t step = n * 5 / 8 + 1;; step++) {
        int64_t a = n, b = step;
        while (b) {
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

void suite_values(const suite_case *c, int i, uint64_t seed, double *value)
{
    const suite_tensor *t = &c->tensor[i];
    const float_format *f = float_format_of(t->type);
    int64_t n = suite_elements(t);
    uint64_t state = key_of(t->field, key_of(c->name, 0xcbf29ce484222325u ^ seed * 0x9e3779b97f4a7c15u));
    int64_t row = t->ndim ? t->shape[t->ndim - 1] : 1;
    for (int64_t k = 0; k < n; k++) {
        double v = draw(t->fill, f, k, &state) * (t->factor != 0 ? t->factor : 1);
        if (t->fill == SUITE_RANGE || t->fill == SUITE_CUTS)
            v = (double)(t->low + (int64_t)(mix(&state) % (uint64_t)(t->high - t->low + 1)));
        if (t->fill == SUITE_COUNT)
            v = (double)(t->low + k);
        if (t->fill == SUITE_MIXED)
            v = (double)(t->low + k * coprime(n) % n);
        if (t->fill == SUITE_TIES)
            v = (double)(mix(&state) % 9) / 4 - 1;
        if (t->fill == SUITE_MASKED && (k < row || mix(&state) % 3 == 0))
            v = -INFINITY;
        if (t->fill == SUITE_BITS)
            v = type_bytes(t->type) == 8 ? v : t->type == SAKER_I8 ? (double)(int8_t)(int64_t)v : fmod(v, 256);
        value[k] = round_to(t->type, v);
    }
    for (int64_t k = 0; t->fill == SUITE_CUTS && k < n; k++) { /* sorted into place */
        double v = k == 0 ? (double)t->low : k == n - 1 ? (double)t->high : value[k];
        int64_t at = k;
        for (; at > 0 && value[at - 1] > v; at--)
            value[at] = value[at - 1];
        value[at] = v;
    }
    for (int64_t k = 0; t->fill == SUITE_EDGES && k < n; k += row) {
        value[k] = round_to(t->type, sqrt((double)row));
        value[k + row - 1] = round_to(t->type, -sqrt((double)row));
    }
    if (n && (t->fill == SUITE_ONE_NAN || t->fill == SUITE_ONE_INF))
        value[n / row / 2 * row + row / 2] = t->fill == SUITE_ONE_NAN ? NAN : INFINITY;
    if (n && t->fill == SUITE_MINUS_NAN)
        value[n / row / 2 * row + row / 2] = copysign(NAN, -1);
    make_consistent(t, value);
}

/* ---------------------------------------------------------------- arguments */

saker_tensor suite_describe(const suite_tensor *t, void *data)
{
    int64_t *strides = suite_compact(t) ? NULL : (int64_t *)t->stride;
    return saker_tensor_of(data, t->type, t->ndim, (int64_t *)t->shape, strides);
}

bool suite_bind(const suite *s, const suite_case *c, const saker_tensor *tensors, void *args)
{
    const saker_op_info *op = saker_op_find(s->op);
    memcpy(args, c->args, SUITE_ARGS_BYTES);
    for (int i = 0; i < c->n_tensors; i++) {
        int k = 0;
        while (op && k < op->n_fields && strcmp(op->fields[k].name, c->tensor[i].field))
            k++;
        if (!op || k == op->n_fields || op->fields[k].kind > SAKER_FIELD_INOUT)
            return false;
        const saker_tensor *t = &tensors[i];
        memcpy((char *)args + op->fields[k].offset, &t, sizeof t);
    }
    return true;
}
