/* driver.h - the part of the CUDA driver's interface that Saker uses, in our own declarations, and the opened driver.
 * SPDX-License-Identifier: Apache-2.0
 *
 * No cuda.h: the host side compiles on a machine without the toolkit. Where the toolkit is, tests/test_cuda_abi.c holds
 * every constant, size, offset and signature below against cuda.h at compile time. */
#ifndef SKR_CUDA_DRIVER_H
#define SKR_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "../core/op.h"

typedef int skr_cu_result;
typedef int skr_cu_device;
typedef unsigned long long skr_cu_pointer;
typedef struct skr_cu_context_handle *skr_cu_context;
typedef struct skr_cu_stream_handle *skr_cu_stream;
typedef struct skr_cu_event_handle *skr_cu_event;
typedef struct skr_cu_pool_handle *skr_cu_pool;
typedef struct skr_cu_library_handle *skr_cu_library;
typedef struct skr_cu_kernel_handle *skr_cu_kernel;
typedef struct skr_cu_function_handle *skr_cu_function;

/* cuda.h's enums are unsigned int to the compilers we use. */
typedef unsigned skr_cu_device_attribute, skr_cu_function_attribute, skr_cu_pointer_attribute, skr_cu_pool_attribute;
typedef unsigned skr_cu_capture_mode, skr_cu_capture_status, skr_cu_jit_option, skr_cu_library_option, skr_cu_launch_id;
typedef unsigned skr_cu_tensor_type, skr_cu_tensor_interleave, skr_cu_tensor_swizzle, skr_cu_tensor_l2,
    skr_cu_tensor_fill;

enum {
    SKR_CU_SUCCESS = 0,
    SKR_CU_INVALID_VALUE = 1,
    SKR_CU_OUT_OF_MEMORY = 2,
    SKR_CU_NOT_INITIALIZED = 3,
    SKR_CU_STUB_LIBRARY = 34,
    SKR_CU_NO_DEVICE = 100,
    SKR_CU_INVALID_DEVICE = 101,
    SKR_CU_INVALID_CONTEXT = 201,
    SKR_CU_NO_BINARY_FOR_GPU = 209,
    SKR_CU_ECC_UNCORRECTABLE = 214,
    SKR_CU_NVLINK_UNCORRECTABLE = 220,
    SKR_CU_CONTAINED = 226,
    SKR_CU_INVALID_HANDLE = 400,
    SKR_CU_NOT_FOUND = 500,
    SKR_CU_ILLEGAL_ADDRESS = 700,
    SKR_CU_LAUNCH_TIMEOUT = 702,
    SKR_CU_ASSERT = 710,
    SKR_CU_HARDWARE_STACK_ERROR = 714,
    SKR_CU_ILLEGAL_INSTRUCTION = 715,
    SKR_CU_MISALIGNED_ADDRESS = 716,
    SKR_CU_INVALID_ADDRESS_SPACE = 717,
    SKR_CU_INVALID_PC = 718,
    SKR_CU_LAUNCH_FAILED = 719,
    SKR_CU_TENSOR_MEMORY_LEAK = 721,
    SKR_CU_SYSTEM_DRIVER_MISMATCH = 803,
    SKR_CU_STREAM_CAPTURE_UNSUPPORTED = 900,
    SKR_CU_EXTERNAL_DEVICE = 911
};

enum {
    SKR_CU_DEVICE_MULTIPROCESSOR_COUNT = 16,
    SKR_CU_DEVICE_L2_CACHE_SIZE = 38,
    SKR_CU_DEVICE_COMPUTE_CAPABILITY_MAJOR = 75,
    SKR_CU_DEVICE_COMPUTE_CAPABILITY_MINOR = 76,
    SKR_CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    SKR_CU_DEVICE_MEMORY_POOLS_SUPPORTED = 115,

    SKR_CU_FUNC_SHARED_SIZE_BYTES = 1,
    SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,

    SKR_CU_POINTER_MEMORY_TYPE = 2,
    SKR_CU_POINTER_DEVICE_POINTER = 3,
    SKR_CU_POINTER_IS_MANAGED = 8,
    SKR_CU_POINTER_DEVICE_ORDINAL = 9,
    SKR_CU_MEMORYTYPE_HOST = 1,
    SKR_CU_MEMORYTYPE_DEVICE = 2,

    SKR_CU_MEMHOSTALLOC_PORTABLE = 1,
    SKR_CU_MEMHOSTALLOC_DEVICEMAP = 2,
    SKR_CU_EVENT_DEFAULT = 0,
    SKR_CU_CAPTURE_STATUS_NONE = 0,
    SKR_CU_CAPTURE_MODE_RELAXED = 2,
    SKR_CU_POOL_RELEASE_THRESHOLD = 4,
    SKR_CU_ALLOCATION_PINNED = 1,
    SKR_CU_LOCATION_DEVICE = 1,
    SKR_CU_PROC_LEGACY_STREAM = 1,

    SKR_CU_LAUNCH_CLUSTER_DIMENSION = 4,
    SKR_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6,

    SKR_CU_TENSOR_UINT8 = 0,
    SKR_CU_TENSOR_INT32 = 3,
    SKR_CU_TENSOR_FLOAT16 = 6,
    SKR_CU_TENSOR_FLOAT32 = 7,
    SKR_CU_TENSOR_BFLOAT16 = 9,
    SKR_CU_TENSOR_TFLOAT32 = 11,
    SKR_CU_TENSOR_INTERLEAVE_NONE = 0,
    SKR_CU_TENSOR_SWIZZLE_NONE = 0,
    SKR_CU_TENSOR_SWIZZLE_32B = 1,
    SKR_CU_TENSOR_SWIZZLE_64B = 2,
    SKR_CU_TENSOR_SWIZZLE_128B = 3,
    SKR_CU_TENSOR_L2_256B = 3,
    SKR_CU_TENSOR_FILL_NONE = 0
};

typedef struct skr_cu_launch_attribute {
    skr_cu_launch_id id;
    char pad[4];
    union {
        char bytes[64];
        void *pointer; /* some attribute's value is one: it sets the alignment */
        struct {
            unsigned x, y, z;
        } cluster;
        int overlap; /* programmatic stream serialization allowed */
    } value;
} skr_cu_launch_attribute;

typedef struct skr_cu_launch_config {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    skr_cu_stream stream;
    skr_cu_launch_attribute *attributes;
    unsigned n_attributes;
} skr_cu_launch_config;

typedef struct skr_cu_pool_props {
    unsigned allocation_type;
    unsigned handle_types;
    struct {
        unsigned type;
        int id;
    } location;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
} skr_cu_pool_props;

typedef skr_tensor_map skr_cu_tensor_map;

/* ---------------------------------------------------------------- the opened driver */

typedef struct skr_driver {
#define SKR_DRIVER(name, version, symbol, need, parameters) skr_cu_result(*name) parameters;
#include "driver.def"
#undef SKR_DRIVER
    int version;   /* 13000 for 13.0 */
    int n_devices; /* at least 1 */
} skr_driver;

/* The driver, opened, initialised and with at least one device; the first call does it, from any thread. NULL: *why
 * says the reason. */
const skr_driver *skr_driver_open(const char **why);
/* The same driver for code that only runs after skr_driver_open() gave one. */
extern skr_driver skr_cu;
/* True in a child process whose parent had initialised CUDA: nothing of the driver may be called. */
bool skr_driver_forked(void);
extern const char skr_driver_forked_text[];

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)" in a buffer of SKR_CU_ERROR_BYTES. */
enum { SKR_CU_ERROR_BYTES = 160 };
const char *skr_driver_error(skr_cu_result error, char *text);

#endif
