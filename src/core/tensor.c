/* tensor.c - descriptors to views, and the shape helpers that every check() uses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tensor.h"

#include <stdio.h>
#include <string.h>

#include "plan.h"

static const struct {
    uint32_t code; /* saker_type */
    const char *name;
    int bits;
} types[SKR_N_TYPES] = {
    [SKR_F32] = {SAKER_F32, "f32", 32},   [SKR_F16] = {SAKER_F16, "f16", 16},   [SKR_BF16] = {SAKER_BF16, "bf16", 16},
    [SKR_E4M3] = {SAKER_E4M3, "e4m3", 8}, [SKR_E5M2] = {SAKER_E5M2, "e5m2", 8}, [SKR_I8] = {SAKER_I8, "i8", 8},
    [SKR_I4] = {SAKER_I4, "i4", 4},       [SKR_I32] = {SAKER_I32, "i32", 32},   [SKR_I64] = {SAKER_I64, "i64", 64},
    [SKR_U8] = {SAKER_U8, "u8", 8},       [SKR_BOOL] = {SAKER_BOOL, "bool", 8},
};

const uint32_t skr_floats[] = {SAKER_F32, SAKER_F16, SAKER_BF16, 0};
const uint32_t skr_f32_only[] = {SAKER_F32, 0};
const uint32_t skr_i32_only[] = {SAKER_I32, 0};
const uint32_t skr_i64_only[] = {SAKER_I64, 0};
const uint32_t skr_index_types[] = {SAKER_I32, SAKER_I64, 0};
const uint32_t skr_quant_types[] = {SAKER_I8, SAKER_E4M3, SAKER_E5M2, 0};
const uint32_t skr_code_types[] = {SAKER_I8, SAKER_E4M3, SAKER_E5M2, SAKER_I4, SAKER_U8, 0};
const uint32_t skr_any_type[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2, SAKER_I8,
                                 SAKER_I32, SAKER_I64, SAKER_U8,   SAKER_BOOL, 0};

static uint32_t packed(saker_dtype t)
{
    return (uint32_t)t.code | (uint32_t)t.bits << 8 | (uint32_t)t.lanes << 16;
}

static int type_index(uint32_t code)
{
    for (int i = 0; i < SKR_N_TYPES; i++)
        if (types[i].code == code)
            return i;
    return -1;
}

const char *saker_type_name(saker_dtype type)
{
    int i = type_index(packed(type));
    return i < 0 ? NULL : types[i].name;
}

const char *skr_shape_text(const skr_view *v, char *text)
{
    char *at = text;
    *at++ = '[';
    for (int i = 0; i < v->ndim; i++)
        at += sprintf(at, i ? ", %lld" : "%lld", (long long)v->shape[i]);
    strcpy(at, "]");
    return text;
}

/* ---------------------------------------------------------------- one descriptor */

static saker_status check_type(skr_call *call, const saker_field *field, const saker_tensor *t, int *type)
{
    uint32_t code = packed(t->dtype);
    for (const uint32_t *allowed = field->types; *allowed; allowed++)
        if (*allowed == code) {
            *type = type_index(code);
            return SAKER_OK;
        }
    char list[96] = "";
    for (const uint32_t *allowed = field->types; *allowed; allowed++) {
        strcat(list, *list ? ", " : "");
        strcat(list, types[type_index(*allowed)].name);
    }
    int known = type_index(code);
    if (known >= 0)
        return skr_fail(call, SAKER_UNSUPPORTED, "%s has type %s, expected one of %s", field->name, types[known].name,
                        list);
    return skr_fail(call, SAKER_UNSUPPORTED, "%s has an unknown type (code %d, bits %d, lanes %d), expected one of %s",
                    field->name, t->dtype.code, t->dtype.bits, t->dtype.lanes, list);
}

static const char *device_name(int32_t type)
{
    return type == SAKER_CPU            ? "the CPU"
           : type == SAKER_CUDA         ? "a CUDA device"
           : type == SAKER_CUDA_HOST    ? "pinned host memory"
           : type == SAKER_CUDA_MANAGED ? "managed memory"
                                        : "a device of unknown type";
}

static saker_status check_device(skr_call *call, const saker_field *field, const saker_tensor *t, saker_device device)
{
    int32_t type = t->device.device_type;
    if (type == 0 || type == SAKER_CUDA_HOST || type == SAKER_CUDA_MANAGED)
        return SAKER_OK;
    if (type != device.device_type)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is on %s (device type %d), expected %s (the context's device)",
                        field->name, device_name(type), type, device_name(device.device_type));
    if (type == SAKER_CUDA && t->device.device_id != device.device_id)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is on CUDA device %d, expected device %d (the context's)",
                        field->name, t->device.device_id, device.device_id);
    return SAKER_OK;
}

/* Nothing is reached with the stride of a dimension of one: it may be anything, and a larger one than this is replaced
 * by a compact tensor's, so that it can be multiplied by any element's size. */
#define ANY_STRIDE ((int64_t)1 << 56)

/* Dims and strides: non-negative, and no offset that leaves 63 bits when counted in bytes. */
static saker_status resolve_dims(skr_call *call, const saker_field *field, const saker_tensor *t, int bits, skr_view *v)
{
    if (t->ndim < 0 || t->ndim > SAKER_MAX_DIMS)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has %d dimensions, expected 0 to %d", field->name, t->ndim,
                        SAKER_MAX_DIMS);
    if (t->ndim && !t->shape)
        return skr_fail(call, SAKER_NULL_POINTER, "%s has %d dimensions but shape is NULL", field->name, t->ndim);
    v->ndim = t->ndim;
    v->count = 1;
    bool empty = false;
    for (int i = 0; i < t->ndim; i++) {
        v->shape[i] = t->shape[i];
        if (v->shape[i] < 0)
            return skr_fail(call, SAKER_INVALID_ARG, "%s has a negative size: dimension %d is %lld", field->name, i,
                            (long long)v->shape[i]);
        empty |= v->shape[i] == 0;
    }
    int64_t compact = 1, last = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        int64_t dim = v->shape[i] ? v->shape[i] : 1;
        v->stride[i] = t->strides ? t->strides[i] : compact;
        if (v->stride[i] < 0)
            return skr_fail(call, SAKER_INVALID_ARG, "%s has a negative stride: dimension %d has %lld", field->name, i,
                            (long long)v->stride[i]);
        if (dim == 1 && v->stride[i] > ANY_STRIDE)
            v->stride[i] = compact;
        int64_t reach;
        if (__builtin_mul_overflow(compact, dim, &compact) || __builtin_mul_overflow(dim - 1, v->stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return skr_fail(call, SAKER_OVERFLOW, "%s is too large: its elements or strides do not fit 63 bits",
                            field->name);
    }
    int64_t span, bytes;
    if (__builtin_add_overflow(last, 1, &span) ||
        __builtin_mul_overflow(compact > span ? compact : span, (int64_t)(bits + 7) / 8, &bytes))
        return skr_fail(call, SAKER_OVERFLOW, "%s is too large: its bytes do not fit 63 bits", field->name);
    v->count = empty ? 0 : compact;
    return SAKER_OK;
}

/* Writing through a view in which two indices meet would race: an output's strides must keep elements apart. Sorted by
 * stride, each must pass the reach of the smaller ones. */
static saker_status check_output(skr_call *call, const skr_view *v)
{
    int order[SAKER_MAX_DIMS], n = 0;
    for (int i = 0; i < v->ndim; i++) {
        if (v->shape[i] < 2)
            continue;
        if (v->stride[i] == 0)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is an output with stride 0 in dimension %d of size %lld",
                            v->name, i, (long long)v->shape[i]);
        int at = n++;
        for (; at > 0 && v->stride[order[at - 1]] > v->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t reach = 0;
    for (int k = 0; k < n; k++) {
        int i = order[k];
        if (v->stride[i] <= reach)
            return skr_fail(call, SAKER_ALIAS, "%s is an output whose elements overlap: stride %lld in dimension %d",
                            v->name, (long long)v->stride[i], i);
        reach += (v->shape[i] - 1) * v->stride[i];
    }
    return SAKER_OK;
}

saker_status skr_view_of(skr_call *call, const saker_field *field, const saker_tensor *t, saker_device device,
                         skr_view *out)
{
    out->name = field->name;
    out->present = t != NULL;
    out->output = field->kind != SAKER_FIELD_IN; /* INOUT may be written */
    out->data = NULL;
    out->count = 0;
    out->ndim = 0;
    if (!t)
        return field->required ? skr_fail(call, SAKER_NULL_POINTER, "%s is NULL, and it is required", field->name)
                               : SAKER_OK;
    int type = 0;
    SKR_TRY(check_type(call, field, t, &type));
    out->type = type;
    SKR_TRY(resolve_dims(call, field, t, types[type].bits, out));
    SKR_TRY(check_device(call, field, t, device));
    if (out->count == 0)
        return SAKER_OK;
    if (!t->data)
        return skr_fail(call, SAKER_NULL_POINTER, "%s has NULL data but is not empty", field->name);
    out->data = (char *)t->data + t->byte_offset;
    int align = types[type].bits < 8 ? 1 : types[type].bits / 8;
    if ((uintptr_t)out->data % (unsigned)align)
        return skr_fail(call, SAKER_MISALIGNED, "%s is at an address that is not a multiple of %d, its element's size",
                        field->name, align);
    return out->output ? check_output(call, out) : SAKER_OK;
}

/* ---------------------------------------------------------------- shape helpers */

saker_status skr_same_shape(skr_call *call, const skr_view *v, const skr_view *ref)
{
    bool same = v->ndim == ref->ndim;
    for (int i = 0; same && i < v->ndim; i++)
        same = v->shape[i] == ref->shape[i];
    if (same)
        return SAKER_OK;
    char found[192], expected[192];
    return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected %s (the shape of %s)", v->name,
                    skr_shape_text(v, found), skr_shape_text(ref, expected), ref->name);
}

saker_status skr_last_contiguous(skr_call *call, const skr_view *v)
{
    if (v->ndim == 0)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has no dimensions, expected at least 1", v->name);
    int64_t stride = v->stride[v->ndim - 1];
    if (v->count && v->shape[v->ndim - 1] > 1 && stride != 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has stride %lld in its last dimension, expected 1", v->name,
                        (long long)stride);
    return SAKER_OK;
}

saker_status skr_open_nibbles(skr_call *call, skr_view *v, int along, int64_t width)
{
    int64_t bytes = v->shape[along], other = bytes ? v->count / bytes : 0;
    bool fits = other < SKR_HUGE / skr_max(width, 1);
    for (int i = 0; i < v->ndim; i++) {
        fits = fits && v->stride[i] < SKR_HUGE / skr_max(v->shape[i], 1);
        v->stride[i] = skr_mul(v->stride[i], 2);
    }
    if (!fits)
        return skr_fail(call, SAKER_OVERFLOW, "%s is too large: the i4 in its bytes do not fit 60 bits", v->name);
    v->shape[along] = width;
    v->stride[along] = 1;
    v->count = other * width;
    v->type = SKR_I4;
    return SAKER_OK;
}

saker_status skr_broadcast(skr_call *call, const skr_view *v, const skr_view *ref, skr_view *out)
{
    *out = *v;
    if (!v->present)
        return SAKER_OK;
    int missing = ref->ndim - v->ndim;
    bool fits = missing >= 0;
    for (int i = 0; fits && i < v->ndim; i++)
        fits = v->shape[i] == ref->shape[missing + i] || v->shape[i] == 1;
    if (!fits) {
        char found[192], expected[192];
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s, expected one that can be repeated to %s (that of %s)", v->name,
                        skr_shape_text(v, found), skr_shape_text(ref, expected), ref->name);
    }
    out->ndim = ref->ndim;
    out->count = ref->count;
    for (int i = 0; i < ref->ndim; i++) {
        bool own = i >= missing && v->shape[i - missing] > 1;
        out->shape[i] = ref->shape[i];
        out->stride[i] = own ? v->stride[i - missing] : 0;
    }
    return SAKER_OK;
}

skr_view skr_dim_last(const skr_view *v, int dim)
{
    skr_view r = *v;
    for (int i = dim; i + 1 < v->ndim; i++) {
        r.shape[i] = v->shape[i + 1];
        r.stride[i] = v->stride[i + 1];
    }
    if (v->ndim) {
        r.shape[v->ndim - 1] = v->shape[dim];
        r.stride[v->ndim - 1] = v->stride[dim];
    }
    return r;
}

saker_status skr_param_of(skr_call *call, const skr_view *v, const skr_view *x, int64_t *heads, skr_param *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    int64_t n = x->shape[x->ndim - 1];
    char text[192];
    bool per_head = v->ndim == 2;
    if (per_head && x->ndim < 2)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld]: %s has no dimension of heads",
                        v->name, skr_shape_text(v, text), (long long)n, x->name);
    int64_t rows = per_head ? x->shape[x->ndim - 2] : 1;
    if (v->ndim < 1 || v->ndim > 2 || v->shape[v->ndim - 1] != n || (per_head && v->shape[0] != rows)) {
        if (per_head)
            return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld] (last dims of %s)",
                            v->name, skr_shape_text(v, text), (long long)rows, (long long)n, x->name);
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (last dim of %s)", v->name,
                        skr_shape_text(v, text), (long long)n, x->name);
    }
    if (*heads == 0)
        *heads = rows;
    else if (*heads != rows)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s: the parameters must all be [N] or all be [H, N]",
                        v->name, skr_shape_text(v, text));
    SKR_TRY(skr_last_contiguous(call, v));
    out->data = v->data;
    out->stride = per_head ? v->stride[0] : 0;
    out->type = v->type;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- rows */

void skr_rows_start(skr_row_builder *b, const skr_view *x)
{
    b->x = x;
    b->n = 0;
}

static int n_lead(const skr_row_builder *b)
{
    return b->x->ndim - 1;
}

static int64_t count_rows(const skr_row_builder *b)
{
    int64_t m = 1;
    for (int i = 0; i < n_lead(b); i++)
        m *= b->x->shape[i];
    return m;
}

static void add(skr_row_builder *b, const skr_view *v, skr_rows *out, int64_t col_stride, const int64_t *lead)
{
    out->data = v->data;
    out->type = v->type;
    out->col_stride = col_stride;
    b->tensor[b->n].view = v;
    b->tensor[b->n].out = out;
    for (int i = 0; i < n_lead(b); i++)
        b->tensor[b->n].lead[i] = lead[i];
    b->n++;
}

saker_status skr_rows_add(skr_call *call, skr_row_builder *b, const skr_view *v, skr_rows *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    if (v != b->x)
        SKR_TRY(skr_same_shape(call, v, b->x));
    SKR_TRY(skr_last_contiguous(call, v));
    add(b, v, out, 1, v->stride);
    return SAKER_OK;
}

saker_status skr_rows_add_strided(skr_call *call, skr_row_builder *b, const skr_view *v, skr_rows *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    SKR_TRY(skr_same_shape(call, v, b->x));
    int last = v->ndim - 1;
    add(b, v, out, v->shape[last] > 1 ? v->stride[last] : 1, v->stride);
    return SAKER_OK;
}

/* Strides over x's leading dimensions for a tensor whose rows are given as [M] or as those dimensions; extra is what
 * may follow. */
static bool lead_strides(const skr_row_builder *b, const skr_view *v, int extra, int64_t *lead)
{
    int dims = n_lead(b);
    bool full = v->ndim == dims + extra;
    for (int i = 0; full && i < dims; i++)
        full = v->shape[i] == b->x->shape[i];
    if (full) {
        memcpy(lead, v->stride, (size_t)dims * sizeof *lead);
        return true;
    }
    if (v->ndim != 1 + extra || v->shape[0] != count_rows(b))
        return false;
    int64_t stride = v->stride[0];
    for (int i = dims - 1; i >= 0; i--) {
        lead[i] = stride;
        stride = skr_mul(stride, b->x->shape[i]);
    }
    return true;
}

saker_status skr_rows_add_stat(skr_call *call, skr_row_builder *b, const skr_view *v, skr_rows *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    int64_t lead[SAKER_MAX_DIMS];
    char text[192];
    if (!lead_strides(b, v, 0, lead))
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld] (one value for each row of %s)",
                        v->name, skr_shape_text(v, text), (long long)count_rows(b), b->x->name);
    add(b, v, out, 1, lead);
    return SAKER_OK;
}

saker_status skr_rows_add_block(skr_call *call, skr_row_builder *b, const skr_view *v, int64_t cols, skr_rows *out)
{
    memset(out, 0, sizeof *out);
    if (!v->present)
        return SAKER_OK;
    int64_t lead[SAKER_MAX_DIMS];
    char text[192];
    if (v->ndim < 1 || v->shape[v->ndim - 1] != cols || !lead_strides(b, v, 1, lead))
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld] (%lld blocks a row of %s)",
                        v->name, skr_shape_text(v, text), (long long)count_rows(b), (long long)cols, (long long)cols,
                        b->x->name);
    add(b, v, out, v->stride[v->ndim - 1], lead);
    return SAKER_OK;
}

/* Two neighbouring dimensions are one when in every tensor a step of the outer is a whole turn of the inner. */
saker_status skr_rows_merge(skr_call *call, skr_row_builder *b, skr_row_space *space)
{
    int64_t dim[SAKER_MAX_DIMS];
    int from[SAKER_MAX_DIMS]; /* leading dimension that gives the merged one's stride */
    int n = 0;
    for (int i = 0; i < n_lead(b); i++) {
        if (b->x->shape[i] == 1)
            continue;
        bool joins = n > 0;
        for (int t = 0; joins && t < b->n; t++)
            joins = b->tensor[t].lead[from[n - 1]] == b->tensor[t].lead[i] * b->x->shape[i];
        if (!joins)
            n++;
        dim[n - 1] = joins ? dim[n - 1] * b->x->shape[i] : b->x->shape[i];
        from[n - 1] = i;
    }
    if (n > SKR_ROW_DIMS)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "the leading dimensions form %d groups with unrelated strides, expected at most %d: copy %s to "
                        "a compact tensor first",
                        n, SKR_ROW_DIMS, b->x->name);
    memset(space, 0, sizeof *space);
    space->m = count_rows(b);
    space->n_dims = n ? n : 1;
    space->dims[0] = 1;
    for (int k = 0; k < n; k++)
        space->dims[k] = dim[k];
    for (int t = 0; t < b->n; t++)
        for (int k = 0; k < n; k++)
            b->tensor[t].out->stride[k] = b->tensor[t].lead[from[k]];
    return SAKER_OK;
}

/* ---------------------------------------------------------------- overlap */

static int64_t last_byte(const skr_view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->ndim; i++)
        last += (v->shape[i] - 1) * v->stride[i];
    int bits = types[v->type].bits;
    return bits < 8 ? (last + 2) / 2 : (last + 1) * (bits / 8);
}

static bool same_layout(const skr_view *a, const skr_view *b)
{
    if (a->data != b->data || a->type != b->type || a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

/* Splits a view at a pitch: dimensions of at least that stride must be whole multiples of it; *run is how far the
 * others reach. */
static bool within(const skr_view *v, int64_t pitch, int64_t *run)
{
    int64_t bytes = types[v->type].bits / 8, last = 0;
    for (int i = 0; i < v->ndim; i++) {
        if (v->shape[i] < 2) /* its stride may be anything */
            continue;
        int64_t stride = v->stride[i] * bytes;
        if (stride >= pitch && stride % pitch)
            return false;
        last += stride < pitch ? (v->shape[i] - 1) * stride : 0;
    }
    *run = last + bytes;
    return true;
}

/* Two windows of the same rows (q and k inside one qkv tensor) interleave without touching: both repeat at multiples of
 * one pitch, a stride of the first, and the distance modulo that pitch keeps their runs apart. */
static bool interleaved(const skr_view *a, const skr_view *b)
{
    if (types[a->type].bits < 8 || types[b->type].bits < 8)
        return false;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] < 2)
            continue;
        int64_t pitch = a->stride[i] * (types[a->type].bits / 8), run_a, run_b;
        if (pitch <= 0 || !within(a, pitch, &run_a) || !within(b, pitch, &run_b))
            continue;
        int64_t apart = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data) % pitch;
        apart = apart < 0 ? apart + pitch : apart;
        if (apart >= run_a && apart + run_b <= pitch)
            return true;
    }
    return false;
}

static bool overlap(const skr_view *a, const skr_view *b)
{
    if (!a->data || !b->data)
        return false;
    uintptr_t a0 = (uintptr_t)a->data, b0 = (uintptr_t)b->data;
    if (a0 + (uintptr_t)last_byte(a) <= b0 || b0 + (uintptr_t)last_byte(b) <= a0)
        return false;
    return !interleaved(a, b);
}

saker_status skr_check_alias(skr_call *call, const skr_view *views, int n, const skr_alias_pair *allowed, int n_allowed)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; views[i].data && views[i].output && j < n; j++) {
            if (i == j || (views[j].output && j < i) || !overlap(&views[i], &views[j]))
                continue;
            bool pair = false;
            for (int k = 0; k < n_allowed; k++)
                pair |= (allowed[k].a == i && allowed[k].b == j) || (allowed[k].a == j && allowed[k].b == i);
            if (!pair)
                return skr_fail(call, SAKER_ALIAS, "%s overlaps %s, and they must be apart", views[i].name,
                                views[j].name);
            if (!same_layout(&views[i], &views[j]))
                return skr_fail(call, SAKER_ALIAS,
                                "%s overlaps %s in part: it may share its memory only exactly (same address, type, "
                                "shape and strides)",
                                views[i].name, views[j].name);
        }
    }
    return SAKER_OK;
}
