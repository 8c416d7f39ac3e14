/* _saker.c - the extension module: opens the library, holds the exception, and describes the library to Python.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The operations come from the library's own tables, so one that is added in C is here without a new line. The library
 * is opened by path, not linked: SAKER_LIBRARY can name another build, and two versions can live in one process.
 * Limited API (abi3), Python 3.9 and newer. Single-phase initialisation on purpose: the state is one per process. */
#include "_binding.h"

#include <dlfcn.h>
#include <stdio.h>

/* ---------------------------------------------------------------- the library */

binding_library lib;
static PyObject *error_type;

static bool loaded(void)
{
    if (!lib.handle)
        PyErr_SetString(PyExc_ImportError, "saker: the library is not loaded");
    return lib.handle != NULL;
}

/* ---------------------------------------------------------------- errors */

/* Steals the sentence. */
static bool fail(saker_status status, PyObject *sentence, PyObject *cause)
{
    const char *name = lib.handle ? lib.status_name(status) : "DEVICE";
    PyObject *error = sentence ? PyObject_CallFunctionObjArgs(error_type, sentence, NULL) : NULL;
    PyObject *code = PyLong_FromLong(status), *text = PyUnicode_FromString(name);
    if (error && code && text && PyObject_SetAttrString(error, "code", code) == 0 &&
        PyObject_SetAttrString(error, "name", text) == 0 && PyObject_SetAttrString(error, "sentence", sentence) == 0) {
        if (cause) {
            Py_INCREF(cause);
            PyException_SetCause(error, cause);
        }
        PyErr_SetObject(error_type, error);
    }
    Py_XDECREF(text);
    Py_XDECREF(code);
    Py_XDECREF(error);
    Py_XDECREF(sentence);
    return false;
}

bool binding_fail(saker_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    PyObject *sentence = PyUnicode_FromFormatV(format, list);
    va_end(list);
    return fail(status, sentence, NULL);
}

/* An exception's text without what follows the first line: PyTorch appends a C++ stack there. */
static PyObject *first_line(PyObject *exception)
{
    PyObject *text = PyObject_Str(exception), *end = text ? PyUnicode_FromString("\n") : NULL;
    Py_ssize_t at = end ? PyUnicode_Find(text, end, 0, PyUnicode_GetLength(text), 1) : -2;
    PyObject *line = at >= 0 ? PyUnicode_Substring(text, 0, at) : at == -1 ? text : NULL;
    if (line == text)
        Py_XINCREF(text);
    Py_XDECREF(end);
    Py_XDECREF(text);
    return line;
}

bool binding_fail_from(saker_status status, const char *format, ...)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
        return false;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    va_list list;
    va_start(list, format);
    PyObject *sentence = PyUnicode_FromFormatV(format, list);
    va_end(list);
    PyObject *line = sentence ? first_line(value) : NULL;
    PyObject *whole = line ? PyUnicode_FromFormat("%U: %U", sentence, line) : NULL;
    Py_XDECREF(line);
    if (whole) {
        Py_DECREF(sentence);
        sentence = whole;
    } else if (sentence) {
        PyErr_Clear(); /* the cause's own str() raised: do without it */
    }
    fail(status, sentence, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return false;
}

/* ---------------------------------------------------------------- the module */

/* load(path): opens the library, once: its contexts may be in use, so a later load (a module reload) keeps it. */
static PyObject *load(PyObject *module, PyObject *path)
{
    (void)module;
    PyObject *bytes = NULL;
    if (lib.handle)
        Py_RETURN_NONE;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *name = PyBytes_AsString(bytes);
    void *handle = name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle) {
        PyErr_Format(PyExc_ImportError, "saker: %s", dlerror());
        Py_DECREF(bytes);
        return NULL;
    }
    Py_DECREF(bytes);
#define X(symbol)                                                                                                  \
    *(void **)(void *)&lib.symbol = dlsym(handle, "saker_" #symbol);                                               \
    if (!lib.symbol)                                                                                               \
        return PyErr_Format(PyExc_ImportError, "saker: the library has no saker_" #symbol);
    LIBRARY(X)
#undef X
    int major = 0, minor = 0;
    const char *version = lib.version();
    if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != SAKER_VERSION_MAJOR || minor != SAKER_VERSION_MINOR)
        return PyErr_Format(PyExc_ImportError, "saker: the library is version %s, this binding is for %d.%d", version,
                            SAKER_VERSION_MAJOR, SAKER_VERSION_MINOR);
    if (!binding_call_start())
        return NULL;
    lib.handle = handle;
    Py_RETURN_NONE;
}

static PyObject *describe_field(const saker_field *field)
{
    PyObject *types = PyList_New(0);
    for (const uint32_t *t = field->types; types && t && *t; t++) {
        PyObject *name = PyUnicode_FromString(lib.type_name(SAKER_DTYPE(*t)));
        if (!name || PyList_Append(types, name))
            Py_CLEAR(types);
        Py_XDECREF(name);
    }
    if (!types)
        return NULL;
    return Py_BuildValue("{ss,ss,si,sO,sN,sz,sd}", "name", field->name, "doc", field->doc ? field->doc : "", "kind",
                         (int)field->kind, "required", field->required ? Py_True : Py_False, "types", types, "choices",
                         field->choices, "default", field->default_value);
}

/* table(): every operation as a dict of name, doc, fields, call and explain. */
static PyObject *table(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!loaded())
        return NULL;
    PyObject *all = PyList_New(0);
    for (int32_t i = 0; all && i < lib.op_count(); i++) {
        const saker_op_info *info = lib.op_at(i);
        PyObject *fields = PyList_New(0);
        for (int32_t k = 0; fields && k < info->n_fields; k++) {
            PyObject *field = describe_field(&info->fields[k]);
            if (!field || PyList_Append(fields, field))
                Py_CLEAR(fields);
            Py_XDECREF(field);
        }
        PyObject *call = fields ? binding_make_op(info, false) : NULL;
        PyObject *explain = call ? binding_make_op(info, true) : NULL;
        PyObject *op = NULL;
        if (explain)
            op = Py_BuildValue("{ss,ss,sO,sO,sO}", "name", info->name, "doc", info->doc ? info->doc : "", "fields",
                               fields, "call", call, "explain", explain);
        if (!op || PyList_Append(all, op))
            Py_CLEAR(all);
        Py_XDECREF(op);
        Py_XDECREF(explain);
        Py_XDECREF(call);
        Py_XDECREF(fields);
    }
    return all;
}

/* cuda(): (devices, why there are none). This one does start the driver. */
static PyObject *cuda(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!loaded())
        return NULL;
    const char *why = "";
    int32_t n = lib.cuda_count(&why);
    PyObject *devices = PyList_New(0);
    for (int32_t i = 0; devices && i < n; i++) {
        saker_cuda_info d;
        saker_status status = lib.cuda_at(i, &d);
        if (status) {
            binding_fail(status, "%s", lib.context_error(NULL));
            Py_CLEAR(devices);
            break;
        }
        PyObject *row = Py_BuildValue("{ss,s(ii),si,si,sL,sL,sL,sO}", "name", d.name, "compute", (int)d.compute_major,
                                      (int)d.compute_minor, "multiprocessors", (int)d.multiprocessors, "driver",
                                      (int)d.driver_version, "memory_bytes", (long long)d.memory_bytes, "l2_bytes",
                                      (long long)d.l2_bytes, "shared_bytes", (long long)d.shared_bytes, "has_image",
                                      d.has_image ? Py_True : Py_False);
        if (!row || PyList_Append(devices, row))
            Py_CLEAR(devices);
        Py_XDECREF(row);
    }
    return devices ? Py_BuildValue("(Ns)", devices, why ? why : "") : NULL;
}

/* cpu(): threads, levels and the build line. */
static PyObject *cpu(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!loaded())
        return NULL;
    PyObject *levels = PyList_New(0);
    for (int32_t i = 0; levels && i < lib.level_count(); i++) {
        saker_level_info level = lib.level_at(i);
        PyObject *row = Py_BuildValue("{ss,sO,ss}", "name", level.name, "usable", level.usable ? Py_True : Py_False,
                                      "why_not", level.why_not ? level.why_not : "");
        if (!row || PyList_Append(levels, row))
            Py_CLEAR(levels);
        Py_XDECREF(row);
    }
    return levels ? Py_BuildValue("{ss,ss,si,sN}", "version", lib.version(), "build", lib.build_info(), "threads",
                                  (int)lib.thread_count(), "levels", levels)
                  : NULL;
}

static PyMethodDef methods[] = {
    {"load", load, METH_O, "load(path): opens libsaker"},
    {"table", table, METH_NOARGS, "the operations with their fields and builtins"},
    {"cpu", cpu, METH_NOARGS, "version, build line, threads and levels"},
    {"cuda", cuda, METH_NOARGS, "(devices, why there are none)"},
    {"kernel", binding_kernel, METH_VARARGS, "kernel(device_type=1, device_id=0) of this thread's last call"},
    {"check", binding_check, METH_VARARGS, "check(device_type=1, device_id=0) waits and raises what a kernel saw"},
    {"configure", binding_configure, METH_VARARGS, "configure(threads, check_level, flags, isa)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_saker", .m_doc = "Binding of libsaker, driven by its field tables.",
    .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__saker(void)
{
    PyObject *module = PyModule_Create(&module_def);
    PyObject *bases = PyTuple_Pack(2, PyExc_ValueError, PyExc_RuntimeError);
    if (module && bases && binding_tensor_start()) {
        error_type = PyErr_NewExceptionWithDoc("saker.Error",
                                               "A call that the library or the binding refused.\n\n"
                                               "code: the status number; name: its name, such as INVALID_ARG;\n"
                                               "sentence: operation, argument, what was found, what was expected.",
                                               bases, NULL);
        Py_XINCREF(error_type);
        if (error_type && PyModule_AddObject(module, "Error", error_type) == 0) {
            Py_DECREF(bases);
            return module;
        }
    }
    Py_XDECREF(bases);
    Py_XDECREF(module);
    return NULL;
}
