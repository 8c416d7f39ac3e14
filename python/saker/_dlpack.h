/* _dlpack.h - the parts of DLPack that the binding reads, as own declarations (no header is needed to build).
 * SPDX-License-Identifier: Apache-2.0
 *
 * DLTensor itself is saker_tensor. Names differ from DLPack's, so a test can include both and compare the layouts. */
#ifndef SAKER_PYTHON_DLPACK_H
#define SAKER_PYTHON_DLPACK_H

#include "saker.h"

enum { DLPACK_MAJOR = 1 };
enum { DLPACK_READ_ONLY = 1, DLPACK_COPIED = 2, DLPACK_SUBBYTE_PADDED = 4 }; /* bits of flags */

typedef struct dlpack_version {
    uint32_t major, minor;
} dlpack_version;

/* What a "dltensor" capsule holds (DLPack before 1.0). */
typedef struct dlpack_legacy {
    saker_tensor tensor;
    void *manager;
    void (*deleter)(struct dlpack_legacy *self);
} dlpack_legacy;

/* What a "dltensor_versioned" capsule holds. Only version, manager and deleter are safe when major is not ours. */
typedef struct dlpack_versioned {
    dlpack_version version;
    void *manager;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    saker_tensor tensor;
} dlpack_versioned;

/* The C exchange table, in a capsule named "dlpack_exchange_api" that is an attribute of the tensor's type. */
typedef struct dlpack_exchange {
    dlpack_version version;
    struct dlpack_exchange *previous; /* an older table, or NULL */
    int (*allocate)(saker_tensor *prototype, dlpack_versioned **out, void *error_user,
                    void (*error)(void *user, const char *kind, const char *message));
    int (*managed_from_object)(void *object, dlpack_versioned **out);
    int (*managed_to_object)(dlpack_versioned *tensor, void **object);
    int (*view_from_object)(void *object, saker_tensor *out); /* borrowed, valid while the object is; may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dlpack_exchange;

#endif
