/* _tensor.c - turns Python objects into saker_tensor: the DLPack exchange table, NumPy's array struct, then __dlpack__.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nothing is copied and nothing is consumed: a capsule that we only borrow keeps its name, so dropping it runs its own
 * deleter, also for a major version that we cannot read. */
#include "_binding.h"

#include <string.h>

static PyObject *name_exchange, *name_struct, *name_dlpack, *name_device, *name_is_neg;
static PyObject *name_dtype, *name_name, *name_copy, *name_setitem;
static PyObject *no_args, *max_version_kw;

bool binding_tensor_start(void)
{
    name_exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    name_struct = PyUnicode_InternFromString("__array_struct__");
    name_dlpack = PyUnicode_InternFromString("__dlpack__");
    name_device = PyUnicode_InternFromString("__dlpack_device__");
    name_is_neg = PyUnicode_InternFromString("is_neg");
    name_dtype = PyUnicode_InternFromString("dtype");
    name_name = PyUnicode_InternFromString("name");
    name_copy = PyUnicode_InternFromString("copy");
    name_setitem = PyUnicode_InternFromString("__setitem__");
    no_args = PyTuple_New(0);
    max_version_kw = Py_BuildValue("{s(ii)}", "max_version", DLPACK_MAJOR, 0);
    return name_exchange && name_struct && name_dlpack && name_device && name_is_neg && name_dtype && name_name &&
           name_copy && name_setitem && no_args && max_version_kw;
}

/* Attribute or NULL without an exception when it is not there; *failed when the lookup itself raised. */
static PyObject *attribute(PyObject *object, PyObject *name, bool *failed)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (!value && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    else if (!value)
        *failed = true;
    return value;
}

static bool refuse(const char *op, const saker_field *field, const char *why)
{
    return binding_fail(SAKER_INVALID_ARG, "%s: %s %s", op, field->name, why);
}

static bool is_output(const saker_field *field)
{
    return field->kind != SAKER_FIELD_IN;
}

/* ---------------------------------------------------------------- the exchange table, found once per type */

typedef struct type_entry {
    PyTypeObject *type; /* owned, so that its address cannot come to mean another type */
    const dlpack_exchange *exchange;
    PyObject *is_neg; /* torch: a lazily negated view has other values than its memory; the table does not say so */
    PyCFunction is_neg_in_c; /* the same without what a call through Python costs; NULL when it is no builtin */
} type_entry;

/* The C function of a method without arguments, the same for every object of the type; NULL when it is no builtin. */
static PyCFunction function_in_c(PyObject *object, PyObject *name)
{
    PyObject *method = PyObject_GetAttr(object, name);
    PyCFunction function = method ? PyCFunction_GetFunction(method) : NULL;
    if (function && PyCFunction_GetFlags(method) != METH_NOARGS)
        function = NULL;
    Py_XDECREF(method);
    PyErr_Clear();
    return function;
}

/* By value: Python code that runs meanwhile may fill the slot with another type. */
static type_entry type_of(PyObject *object)
{
    static type_entry cache[16];
    PyTypeObject *type = Py_TYPE(object);
    uintptr_t address = (uintptr_t)type;
    type_entry *slot = &cache[(address >> 4 ^ address >> 10) % 16];
    if (slot->type == type)
        return *slot;

    const dlpack_exchange *exchange = NULL;
    PyObject *is_neg = NULL;
    PyCFunction is_neg_in_c = NULL;
    bool failed = false;
    PyObject *capsule = attribute((PyObject *)type, name_exchange, &failed);
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        while (exchange && exchange->version.major != DLPACK_MAJOR)
            exchange = exchange->previous;
        if (exchange && !exchange->view_from_object)
            exchange = NULL;
    }
    Py_XDECREF(capsule);
    if (exchange && !failed)
        is_neg = attribute((PyObject *)type, name_is_neg, &failed);
    if (is_neg && !failed)
        is_neg_in_c = function_in_c(object, name_is_neg);
    if (failed)
        PyErr_Clear(); /* a type whose attributes raise has no table */

    const type_entry old = *slot, entry = {type, exchange, is_neg, is_neg_in_c};
    Py_INCREF(type);
    *slot = entry;
    Py_XDECREF(old.type);
    Py_XDECREF(old.is_neg);
    return entry;
}

/* Inputs may be negated whatever their strides are (as_strided, _neg_view). The question costs as much as the exchange:
 * outputs, which the front has mostly just made, are asked only where no stride that matters is odd, as it is in views
 * of the imaginary part of complex numbers. */
static bool maybe_negated(const saker_tensor *t, const saker_field *field)
{
    if (field->kind != SAKER_FIELD_OUT)
        return true;
    for (int32_t i = 0; t->strides && i < t->ndim; i++)
        if (t->shape[i] > 1 && t->strides[i] & 1)
            return false;
    return true;
}

static bool from_exchange(binding_tensor *out, PyObject *object, const type_entry *entry, const char *op,
                          const saker_field *field)
{
    if (entry->exchange->view_from_object(object, &out->tensor))
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s cannot be read as a tensor", op, field->name);
    out->exchange = entry->exchange;
    if (entry->is_neg && maybe_negated(&out->tensor, field)) {
        PyObject *answer = entry->is_neg_in_c ? entry->is_neg_in_c(object, NULL)
                                              : PyObject_CallFunctionObjArgs(entry->is_neg, object, NULL);
        Py_XDECREF(answer);
        if (answer == Py_True)
            return refuse(op, field, "is a lazily negated view; resolve it first (x.resolve_neg())");
        if (!answer)
            return binding_fail_from(SAKER_INVALID_ARG, "%s: %s cannot be read as a tensor", op, field->name);
    }
    return true;
}

/* ---------------------------------------------------------------- NumPy */

/* What NumPy's __array_struct__ capsule holds (the layout is part of NumPy's published array interface, version 3). */
typedef struct array_struct {
    int two;
    int nd;
    char kind;
    int itemsize;
    int flags;
    Py_ssize_t *shape;
    Py_ssize_t *strides; /* bytes */
    void *data;
    PyObject *descr;
} array_struct;

enum { ARRAY_NOT_SWAPPED = 0x200, ARRAY_WRITEABLE = 0x400 };

/* Types that NumPy itself does not know come from ml_dtypes and are told apart by name only. */
static bool named_type(PyObject *object, saker_dtype *type)
{
    static const struct {
        const char *name;
        saker_type type;
    } table[] = {{"bfloat16", SAKER_BF16}, {"float8_e4m3fn", SAKER_E4M3}, {"float8_e5m2", SAKER_E5M2}};
    bool found = false;
    PyObject *dtype = PyObject_GetAttr(object, name_dtype);
    PyObject *name = dtype ? PyObject_GetAttr(dtype, name_name) : NULL;
    if (name && PyUnicode_Check(name)) {
        for (size_t i = 0; i < sizeof table / sizeof *table && !found; i++) {
            if (PyUnicode_CompareWithASCIIString(name, table[i].name) == 0) {
                *type = SAKER_DTYPE(table[i].type);
                found = true;
            }
        }
    }
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    PyErr_Clear();
    return found;
}

static bool numpy_type(PyObject *object, const array_struct *a, saker_dtype *type)
{
    uint8_t code;
    if (a->itemsize <= 0 || a->itemsize > 16)
        return false;
    if (a->kind == 'V' || (a->kind == 'f' && a->itemsize == 1))
        return named_type(object, type);
    switch (a->kind) {
    case 'i': code = 0; break;
    case 'u': code = 1; break;
    case 'f': code = 2; break;
    case 'c': code = 5; break;
    case 'b': code = 6; break;
    default: return false;
    }
    *type = (saker_dtype){code, (uint8_t)(a->itemsize * 8), 1};
    return true;
}

static bool numpy_copy(binding_tensor *out, PyObject *object, const char *op, const saker_field *field);

/* Takes over the capsule. */
static bool from_numpy(binding_tensor *out, PyObject *object, PyObject *capsule, const char *op,
                       const saker_field *field, bool may_copy)
{
    out->owner = capsule;
    const array_struct *a = PyCapsule_CheckExact(capsule) ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (!a || a->two != 2) {
        PyErr_Clear();
        return refuse(op, field, "has an __array_struct__ that is not an array struct");
    }
    if (a->nd < 0 || a->nd > SAKER_MAX_DIMS)
        return binding_fail(SAKER_INVALID_ARG, "%s: %s has %d dimensions, at most %d are allowed", op, field->name,
                            a->nd, SAKER_MAX_DIMS);
    if (is_output(field) && (!(a->flags & ARRAY_WRITEABLE) || !PyObject_HasAttr(object, name_setitem))) /* no scalars */
        return refuse(op, field, "is read-only, expected a writable array");
    saker_dtype type;
    if (!(a->flags & ARRAY_NOT_SWAPPED) || !numpy_type(object, a, &type))
        return binding_fail(SAKER_UNSUPPORTED, "%s: %s has a type that is no native number (%c%d)", op, field->name,
                            a->kind > ' ' && a->kind < 127 ? a->kind : '?', a->itemsize);
    bool empty = false, plain = true;
    for (int i = 0; i < a->nd; i++) {
        Py_ssize_t stride = a->strides ? a->strides[i] : 0;
        empty = empty || a->shape[i] == 0;
        out->shape[i] = a->shape[i];
        out->strides[i] = stride / a->itemsize;
        plain = plain && (a->shape[i] <= 1 || (stride >= 0 && stride % a->itemsize == 0));
        if (a->shape[i] == 1)
            out->strides[i] = 1; /* never followed; NumPy lets it be anything */
    }
    if (!plain && !empty) {
        if (is_output(field))
            return refuse(op, field, "has a negative or uneven stride, which an output must not have");
        if (may_copy)
            return numpy_copy(out, object, op, field);
        return refuse(op, field, "has a negative or uneven stride even after copying");
    }
    out->tensor = (saker_tensor){.data = a->data,
                                 .device = {SAKER_CPU, 0},
                                 .ndim = a->nd,
                                 .dtype = type,
                                 .shape = out->shape,
                                 .strides = a->strides && !empty ? out->strides : NULL};
    return true;
}

/* object.copy() in C order; the copy lives as long as the interface that we hold. */
static bool numpy_copy(binding_tensor *out, PyObject *object, const char *op, const saker_field *field)
{
    PyObject *copy = PyObject_CallMethodObjArgs(object, name_copy, NULL);
    PyObject *capsule = copy ? PyObject_GetAttr(copy, name_struct) : NULL;
    Py_CLEAR(out->owner);
    if (!capsule) {
        Py_XDECREF(copy);
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s could not be copied", op, field->name);
    }
    bool ok = from_numpy(out, copy, capsule, op, field, false);
    PyObject *both = PyTuple_Pack(2, copy, capsule);
    Py_DECREF(copy);
    Py_XDECREF(out->owner);
    out->owner = both;
    return ok && both;
}

/* ---------------------------------------------------------------- __dlpack__ */

static bool from_capsule(binding_tensor *out, PyObject *capsule, const char *op, const saker_field *field)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const dlpack_versioned *t = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (t->version.major != DLPACK_MAJOR)
            return binding_fail(SAKER_UNSUPPORTED, "%s: %s speaks DLPack %u.%u, expected version %d", op, field->name,
                                (unsigned)t->version.major, (unsigned)t->version.minor, DLPACK_MAJOR);
        if (is_output(field) && t->flags & DLPACK_READ_ONLY)
            return refuse(op, field, "is read-only, expected a writable tensor");
        if (t->flags & DLPACK_SUBBYTE_PADDED && t->tensor.dtype.bits < 8)
            return refuse(op, field, "has padded elements of less than a byte, expected packed ones");
        out->tensor = t->tensor;
        return true;
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        out->tensor = ((const dlpack_legacy *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
        return true;
    }
    return refuse(op, field, "gave no usable DLPack capsule (it may have been consumed already)");
}

/* The producer orders its work before ours on the stream we name: 1 is the legacy default stream. */
static PyObject *dlpack_keywords(PyObject *object, void *stream)
{
    bool failed = false;
    long device_type = SAKER_CPU;
    PyObject *device_method = attribute(object, name_device, &failed);
    if (device_method) {
        PyObject *device = PyObject_CallObject(device_method, NULL);
        Py_DECREF(device_method);
        PyObject *first = device ? PySequence_GetItem(device, 0) : NULL;
        device_type = first ? PyLong_AsLong(first) : -1;
        Py_XDECREF(first);
        Py_XDECREF(device);
        failed = device_type == -1 && PyErr_Occurred();
    }
    if (failed)
        return NULL;
    PyObject *keywords = PyDict_Copy(max_version_kw);
    if (keywords && (device_type == SAKER_CUDA || device_type == SAKER_CUDA_MANAGED)) {
        PyObject *handle = PyLong_FromVoidPtr(stream ? stream : (void *)(uintptr_t)1);
        if (!handle || PyDict_SetItemString(keywords, "stream", handle))
            Py_CLEAR(keywords);
        Py_XDECREF(handle);
    }
    return keywords;
}

static PyObject *call_dlpack(PyObject *object, PyObject *method, void *stream)
{
    PyObject *keywords = dlpack_keywords(object, stream);
    PyObject *capsule = keywords ? PyObject_Call(method, no_args, keywords) : NULL;
    if (keywords && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* a producer from before DLPack 1.0 */
        PyErr_Clear();
        if (PyDict_DelItemString(keywords, "max_version") == 0)
            capsule = PyObject_Call(method, no_args, keywords);
    }
    Py_XDECREF(keywords);
    return capsule;
}

bool binding_tensor_from(binding_tensor *out, PyObject *object, const char *op, const saker_field *field, void *stream)
{
    out->owner = NULL;
    out->exchange = NULL;
    const type_entry entry = type_of(object);
    if (entry.exchange)
        return from_exchange(out, object, &entry, op, field);
    if (PyCapsule_CheckExact(object))
        return from_capsule(out, object, op, field);

    bool failed = false;
    PyObject *found = PyType_Check(object) ? NULL : attribute(object, name_struct, &failed);
    if (found)
        return from_numpy(out, object, found, op, field, true);
    if (!failed && !PyType_Check(object))
        found = attribute(object, name_dlpack, &failed);
    if (found) {
        out->owner = call_dlpack(object, found, stream);
        Py_DECREF(found);
        if (out->owner && !PyCapsule_CheckExact(out->owner))
            return refuse(op, field, "has a __dlpack__ that gives no capsule");
        if (out->owner)
            return from_capsule(out, out->owner, op, field);
        failed = true;
    }
    if (failed)
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s cannot be read as a tensor", op, field->name);
    PyObject *type_name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    PyErr_Clear();
    binding_fail(SAKER_INVALID_ARG, "%s: %s is of type %V, expected a NumPy array or an object with __dlpack__", op,
                 field->name, type_name && PyUnicode_Check(type_name) ? type_name : NULL, "?");
    Py_XDECREF(type_name);
    return false;
}

void binding_tensor_done(binding_tensor *t)
{
    Py_CLEAR(t->owner);
}
