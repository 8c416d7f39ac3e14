/* _call.c - contexts and calls: one builtin function per operation, driven by the operation's field table.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arguments come in the table's order or by name; None leaves a field at its default. The interpreter's lock is free
 * while the library works. */
#include "_binding.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- contexts: one per thread and device, made lazily */

typedef struct slot {
    int32_t device_type, device_id;
    int64_t generation;
    saker_context *ctx;
    void *stream;
    struct slot *next;
} slot;

static _Thread_local slot *thread_slots;
static pthread_key_t thread_key; /* its destructor ends a thread's contexts */
static struct {
    saker_config config;
    int64_t generation; /* contexts of an older one are made anew */
    char isa[32];
} settings = {.config.struct_size = sizeof(saker_config)};

static void end_thread(void *slots)
{
    for (slot *s = slots, *next; s; s = next) {
        next = s->next;
        lib.context_destroy(s->ctx);
        free(s);
    }
    thread_slots = NULL;
}

bool binding_call_start(void)
{
    if (pthread_key_create(&thread_key, end_thread)) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static slot *slot_of(int32_t device_type, int32_t device_id)
{
    slot *s = thread_slots;
    while (s && (s->device_type != device_type || s->device_id != device_id))
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) {
            PyErr_NoMemory();
            return NULL;
        }
        *s = (slot){.device_type = device_type, .device_id = device_id, .next = thread_slots};
        thread_slots = s;
        pthread_setspecific(thread_key, s);
    }
    if (s->ctx && s->generation == settings.generation)
        return s;
    lib.context_destroy(s->ctx);
    s->ctx = NULL;
    s->stream = NULL;
    s->generation = settings.generation;
    saker_config config = settings.config;
    char isa[sizeof settings.isa];
    memcpy(isa, settings.isa, sizeof isa);
    config.isa = config.isa ? isa : NULL; /* configure() may run in another thread meanwhile */
    config.device_type = device_type;
    config.device_id = device_id;
    if (device_type != SAKER_CPU) {
        config.threads = 0;
        config.isa = NULL;
    }
    saker_status status;
    Py_BEGIN_ALLOW_THREADS /* the first CUDA context takes the driver a while */
    status = lib.context_create(&s->ctx, &config);
    Py_END_ALLOW_THREADS
    if (status) {
        binding_fail(status, "%s", lib.context_error(NULL));
        return NULL;
    }
    return s;
}

static bool device_args(PyObject *args, int *type, int *id)
{
    *type = SAKER_CPU;
    *id = 0;
    return PyArg_ParseTuple(args, "|ii", type, id);
}

/* kernel(device_type=1, device_id=0): what this thread's last call there ran; "" before the first. */
PyObject *binding_kernel(PyObject *module, PyObject *args)
{
    (void)module;
    int type, id;
    if (!device_args(args, &type, &id))
        return NULL;
    for (const slot *s = thread_slots; s; s = s->next)
        if (s->device_type == type && s->device_id == id && s->ctx)
            return PyUnicode_FromString(lib.context_kernel(s->ctx));
    return PyUnicode_FromString("");
}

/* check(device_type=1, device_id=0): waits for this thread's work there and raises what only a kernel could see. */
PyObject *binding_check(PyObject *module, PyObject *args)
{
    (void)module;
    int type, id;
    if (!device_args(args, &type, &id))
        return NULL;
    for (const slot *s = thread_slots; s; s = s->next) {
        if (s->device_type != type || s->device_id != id || !s->ctx)
            continue;
        saker_status status;
        Py_BEGIN_ALLOW_THREADS
        status = lib.context_check(s->ctx);
        Py_END_ALLOW_THREADS
        if (status) {
            binding_fail(status, "%s", lib.context_error(s->ctx));
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* configure(threads, check_level, flags, isa or None): how contexts are made from now on, in every thread. */
PyObject *binding_configure(PyObject *module, PyObject *args)
{
    (void)module;
    int threads, check_level, flags;
    const char *isa;
    if (!PyArg_ParseTuple(args, "iiiz", &threads, &check_level, &flags, &isa))
        return NULL;
    saker_config config = settings.config;
    config.threads = threads;
    config.check_level = check_level;
    config.flags = (uint64_t)flags;
    char name[sizeof settings.isa] = "";
    if (isa && strlen(isa) >= sizeof name) {
        binding_fail(SAKER_UNSUPPORTED, "configure: isa is '%.40s...', which is no level", isa);
        return NULL;
    }
    if (isa)
        strcpy(name, isa);
    config.isa = isa ? name : NULL;
    saker_context *trial = NULL; /* so that a wrong setting is told here and not in some later call */
    saker_status status = lib.context_create(&trial, &config);
    if (status) {
        binding_fail(status, "%s", lib.context_error(NULL));
        return NULL;
    }
    lib.context_destroy(trial);
    memcpy(settings.isa, name, sizeof name);
    config.isa = isa ? settings.isa : NULL;
    settings.config = config;
    settings.generation++;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- one call */

enum { MAX_FIELDS = 48, MAX_ARGS_BYTES = 1024, EXPLAIN_BYTES = 4096 };

typedef struct op_entry {
    const saker_op_info *info;
    bool explain; /* answer which kernel would run instead of running it */
    PyMethodDef def;
    PyObject *name[MAX_FIELDS]; /* interned */
} op_entry;

typedef struct call_state {
    const op_entry *op;
    void *stream;
    bool has_stream;
    int n_tensors;
    uint64_t given; /* a bit for each field seen */
    binding_tensor tensor[MAX_FIELDS];
    _Alignas(16) unsigned char args[MAX_ARGS_BYTES];
} call_state;

static bool option_float(const char *op, const saker_field *field, PyObject *value, float *out)
{
    double v = PyFloat_AsDouble(value);
    if (v == -1.0 && PyErr_Occurred())
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s is no number", op, field->name);
    *out = (float)v;
    if (v != 0 && *out == 0)
        return binding_fail(SAKER_INVALID_ARG, "%s: %s is %R, too small for f32 (0 would mean the default)", op,
                            field->name, value);
    return true;
}

static bool option_double(const char *op, const saker_field *field, PyObject *value, double *out)
{
    *out = PyFloat_AsDouble(value);
    if (*out == -1.0 && PyErr_Occurred())
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s is no number", op, field->name);
    return true;
}

/* NumPy's bool is no integer to Python. It is known by its name (bool_ before NumPy 2): NumPy is not imported here. */
static bool is_numpy_bool(PyObject *value)
{
    PyObject *name = PyLong_Check(value) ? NULL : PyObject_Str((PyObject *)Py_TYPE(value));
    bool is = name && (PyUnicode_CompareWithASCIIString(name, "<class 'numpy.bool'>") == 0 ||
                       PyUnicode_CompareWithASCIIString(name, "<class 'numpy.bool_'>") == 0);
    Py_XDECREF(name);
    PyErr_Clear();
    return is;
}

static bool option_int(const char *op, const saker_field *field, PyObject *value, int32_t *out)
{
    const bool truth = field->kind == SAKER_FIELD_BOOL && is_numpy_bool(value);
    PyObject *index = truth ? PyBool_FromLong(PyObject_IsTrue(value) > 0) : PyNumber_Index(value);
    long v = index ? PyLong_AsLong(index) : -1;
    Py_XDECREF(index);
    if (v == -1 && PyErr_Occurred())
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s is no %s", op, field->name,
                                 field->kind == SAKER_FIELD_BOOL ? "bool" : "choice");
    if (v < INT32_MIN || v > INT32_MAX)
        return binding_fail(SAKER_INVALID_ARG, "%s: %s is %ld, which no option can be", op, field->name, v);
    *out = (int32_t)v;
    return true;
}

static bool option_i64(const char *op, const saker_field *field, PyObject *value, int64_t *out)
{
    PyObject *index = PyNumber_Index(value);
    long long v = index ? PyLong_AsLongLong(index) : -1;
    Py_XDECREF(index);
    if (v == -1 && PyErr_Occurred())
        return binding_fail_from(SAKER_INVALID_ARG, "%s: %s is no 64-bit integer", op, field->name);
    *out = v;
    return true;
}

static bool option_enum(const char *op, const saker_field *field, PyObject *value, int32_t *out)
{
    if (!PyUnicode_Check(value))
        return option_int(op, field, value, out);
    const char *p = field->choices;
    for (int32_t i = 0; *p; i++) {
        size_t n = strcspn(p, "|");
        char word[64];
        if (n < sizeof word) {
            memcpy(word, p, n);
            word[n] = 0;
            if (PyUnicode_CompareWithASCIIString(value, word) == 0) {
                *out = i;
                return true;
            }
        }
        p += n + (p[n] == '|');
    }
    return binding_fail(SAKER_UNSUPPORTED, "%s: %s is %R, expected one of %s", op, field->name, value, field->choices);
}

static bool set_field(call_state *state, int index, PyObject *value)
{
    const char *op = state->op->info->name;
    const saker_field *field = &state->op->info->fields[index];
    unsigned char *at = state->args + field->offset;
    state->given |= (uint64_t)1 << index;
    if (value == Py_None)
        return true;
    switch (field->kind) {
    case SAKER_FIELD_IN:
    case SAKER_FIELD_OUT:
    case SAKER_FIELD_INOUT: {
        binding_tensor *t = &state->tensor[state->n_tensors++];
        const saker_tensor *pointer = &t->tensor;
        memcpy(at, &pointer, sizeof pointer);
        return binding_tensor_from(t, value, op, field, state->stream);
    }
    case SAKER_FIELD_F32: return option_float(op, field, value, (float *)(void *)at);
    case SAKER_FIELD_BOOL: return option_int(op, field, value, (int32_t *)(void *)at);
    case SAKER_FIELD_ENUM: return option_enum(op, field, value, (int32_t *)(void *)at);
    case SAKER_FIELD_F64: return option_double(op, field, value, (double *)(void *)at);
    case SAKER_FIELD_I64: return option_i64(op, field, value, (int64_t *)(void *)at);
    default: return binding_fail(SAKER_UNSUPPORTED, "%s: %s is of a kind unknown to this binding", op, field->name);
    }
}

static int field_index(const op_entry *op, PyObject *name)
{
    for (int i = 0; i < op->info->n_fields; i++)
        if (op->name[i] == name)
            return i;
    for (int i = 0; i < op->info->n_fields; i++) /* not interned: compare the text */
        if (PyUnicode_Compare(op->name[i], name) == 0)
            return i;
    return -1;
}

/* stream= comes first, because __dlpack__ of the other arguments is told of it. */
static bool take_stream(call_state *state, PyObject *const *values, PyObject *names)
{
    for (Py_ssize_t i = 0, n = names ? PyTuple_Size(names) : 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (PyUnicode_CompareWithASCIIString(name, "stream") != 0 || field_index(state->op, name) >= 0)
            continue;
        if (values[i] == Py_None)
            return true;
        state->stream = PyLong_AsVoidPtr(values[i]);
        state->has_stream = true;
        if (!state->stream && PyErr_Occurred())
            return binding_fail_from(SAKER_INVALID_ARG, "%s: stream is no integer handle", state->op->info->name);
    }
    return true;
}

static bool fill(call_state *state, PyObject *const *values, Py_ssize_t n_values, PyObject *names)
{
    const saker_op_info *info = state->op->info;
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    if (n_values > info->n_fields) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", info->name, (int)info->n_fields,
                     n_values);
        return false;
    }
    if (n_names && !take_stream(state, values + n_values, names))
        return false;
    for (Py_ssize_t i = 0; i < n_values; i++)
        if (!set_field(state, (int)i, values[i]))
            return false;
    for (Py_ssize_t i = 0; i < n_names; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int index = field_index(state->op, name);
        if (index < 0 && PyUnicode_CompareWithASCIIString(name, "stream") == 0)
            continue;
        if (index < 0) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", info->name, name);
            return false;
        }
        if (state->given >> index & 1) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", info->name, name);
            return false;
        }
        if (!set_field(state, index, values[n_values + i]))
            return false;
    }
    return true;
}

/* Where the call runs: on CUDA when a tensor is there, else on the CPU. The library refuses what does not agree. */
static slot *place(call_state *state)
{
    saker_device device = {SAKER_CPU, 0};
    const dlpack_exchange *exchange = NULL;
    for (int i = 0; i < state->n_tensors; i++) {
        const binding_tensor *t = &state->tensor[i];
        int32_t type = t->tensor.device.device_type;
        if (device.device_type == SAKER_CPU && (type == SAKER_CUDA || type == SAKER_CUDA_MANAGED)) {
            device = (saker_device){SAKER_CUDA, t->tensor.device.device_id};
            exchange = t->exchange;
        }
    }
    slot *s = slot_of(device.device_type, device.device_id);
    if (!s || device.device_type == SAKER_CPU)
        return s;
    if (!state->has_stream && exchange && exchange->current_stream(SAKER_CUDA, device.device_id, &state->stream)) {
        binding_fail_from(SAKER_DEVICE, "%s: the current stream is not known", state->op->info->name);
        return NULL;
    }
    if (s->stream != state->stream) {
        saker_status status = lib.context_set_stream(s->ctx, state->stream);
        if (status) {
            binding_fail(status, "%s", lib.context_error(s->ctx));
            return NULL;
        }
        s->stream = state->stream;
    }
    return s;
}

static PyObject *finish(call_state *state)
{
    const op_entry *op = state->op;
    slot *s = place(state);
    if (!s)
        return NULL;
    saker_status status;
    if (op->explain) {
        char text[EXPLAIN_BYTES];
        status = lib.explain(s->ctx, op->info->name, state->args, text, sizeof text);
        if (!status)
            return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = lib.call(s->ctx, op->info, state->args);
        Py_END_ALLOW_THREADS
    }
    if (status) {
        binding_fail(status, "%s", lib.context_error(s->ctx));
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *op_call(PyObject *self, PyObject *const *values, Py_ssize_t n_values, PyObject *names)
{
    call_state state;
    state.op = PyCapsule_GetPointer(self, "saker.op");
    if (!state.op)
        return NULL;
    const uint64_t size = state.op->info->args_size;
    state.stream = NULL;
    state.has_stream = false;
    state.n_tensors = 0;
    state.given = 0;
    memset(state.args, 0, size);
    memcpy(state.args, &size, sizeof size);
    PyObject *result = fill(&state, values, n_values, names) ? finish(&state) : NULL;
    for (int i = 0; i < state.n_tensors; i++)
        binding_tensor_done(&state.tensor[i]);
    return result;
}

/* The builtin of one operation. It lives as long as the process, as the module does. */
PyObject *binding_make_op(const saker_op_info *info, bool explain)
{
    if (info->n_fields > MAX_FIELDS || info->args_size > MAX_ARGS_BYTES)
        return PyErr_Format(PyExc_ImportError, "saker: %s has more arguments than this binding can hold", info->name);
    op_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return PyErr_NoMemory();
    entry->info = info;
    entry->explain = explain;
    entry->def = (PyMethodDef){.ml_name = info->name,
                               .ml_meth = (PyCFunction)(void (*)(void))op_call,
                               .ml_flags = METH_FASTCALL | METH_KEYWORDS,
                               .ml_doc = info->doc};
    for (int i = 0; i < info->n_fields; i++) {
        entry->name[i] = PyUnicode_InternFromString(info->fields[i].name);
        if (!entry->name[i])
            return NULL;
    }
    PyObject *self = PyCapsule_New(entry, "saker.op", NULL);
    PyObject *function = self ? PyCFunction_NewEx(&entry->def, self, NULL) : NULL;
    Py_XDECREF(self);
    return function;
}

