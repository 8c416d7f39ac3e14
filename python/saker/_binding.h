/* _binding.h - what the three parts of the extension share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * _tensor.c turns Python objects into tensors, _call.c keeps contexts and makes calls, _saker.c is the module. */
#ifndef SAKER_PYTHON_BINDING_H
#define SAKER_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "_dlpack.h"
#include "saker.h"

/* The same value since Python 3.7; the limited API shows it only from 3.10 on. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/* ---------------------------------------------------------------- the library and errors (_saker.c) */

/* The functions that are used, resolved when the library is opened. */
#define LIBRARY(X)                                                                                                 \
    X(type_name) X(status_name) X(context_create) X(context_destroy) X(context_error) X(context_kernel)            \
    X(context_set_stream) X(context_check) X(explain) X(op_count) X(op_at) X(call) X(version) X(build_info)        \
    X(level_count) X(level_at) X(thread_count) X(cuda_count) X(cuda_at)

typedef struct binding_library {
    void *handle; /* NULL until it is loaded */
#define X(name) __typeof__(&saker_##name) name;
    LIBRARY(X)
#undef X
} binding_library;
extern binding_library lib;

/* Raises saker.Error with the code, its name and a sentence formatted by PyUnicode_FromFormat. Returns false. */
bool binding_fail(saker_status status, const char *format, ...);
/* The same with the exception that is set as the cause; its text ends the sentence. KeyboardInterrupt passes. */
bool binding_fail_from(saker_status status, const char *format, ...);

/* ---------------------------------------------------------------- tensors (_tensor.c) */

/* One tensor argument while its call lasts. */
typedef struct binding_tensor {
    saker_tensor tensor;
    PyObject *owner;                 /* capsule or copy that keeps the memory; NULL when the argument itself does */
    const dlpack_exchange *exchange; /* NULL unless the tensor's type has one: it knows the current stream */
    int64_t shape[SAKER_MAX_DIMS], strides[SAKER_MAX_DIMS]; /* used for NumPy, whose strides count bytes */
} binding_tensor;

/* Reads any tensor object without a copy (only a NumPy input with negative strides is copied). op and field are for the
 * sentence. stream is the caller's CUDA stream, told to __dlpack__ of producers that have no exchange table. */
bool binding_tensor_from(binding_tensor *out, PyObject *object, const char *op, const saker_field *field, void *stream);
void binding_tensor_done(binding_tensor *t);
bool binding_tensor_start(void); /* once, at import */

/* ---------------------------------------------------------------- calls (_call.c) */

bool binding_call_start(void); /* once, when the library is loaded */
/* The builtin function of an operation; with explain, the one that says which kernel would run. */
PyObject *binding_make_op(const saker_op_info *info, bool explain);
/* Methods of the module. */
PyObject *binding_kernel(PyObject *module, PyObject *args);
PyObject *binding_check(PyObject *module, PyObject *args);
PyObject *binding_configure(PyObject *module, PyObject *args);

#endif
