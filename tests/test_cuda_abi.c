/* test_cuda_abi.c - holds src/cuda/driver.h and driver.def against the toolkit's own cuda.h, at compile time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * That this file compiles is the test: every constant, size, offset and signature is a static assertion. What is left
 * for run time: that the exported names of driver.def exist in the toolkit's stub of libcuda. Without the toolkit
 * everything is skipped. */
#include <stdio.h>

#include "../src/cuda/driver.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#define HAVE_TOOLKIT 1
#endif
#endif

#ifdef HAVE_TOOLKIT
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

/* ---------------------------------------------------------------- constants */

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs);
#define SAME_ERROR(name)   SAME(SKR_CU_##name, CUDA_ERROR_##name)

SAME(SKR_CU_SUCCESS, CUDA_SUCCESS)
SAME_ERROR(INVALID_VALUE)
SAME_ERROR(OUT_OF_MEMORY)
SAME_ERROR(NOT_INITIALIZED)
SAME_ERROR(STUB_LIBRARY)
SAME_ERROR(NO_DEVICE)
SAME_ERROR(INVALID_DEVICE)
SAME_ERROR(INVALID_CONTEXT)
SAME_ERROR(NO_BINARY_FOR_GPU)
SAME_ERROR(ECC_UNCORRECTABLE)
SAME_ERROR(NVLINK_UNCORRECTABLE)
SAME_ERROR(INVALID_HANDLE)
SAME_ERROR(NOT_FOUND)
SAME_ERROR(ILLEGAL_ADDRESS)
SAME_ERROR(LAUNCH_TIMEOUT)
SAME_ERROR(ASSERT)
SAME_ERROR(HARDWARE_STACK_ERROR)
SAME_ERROR(ILLEGAL_INSTRUCTION)
SAME_ERROR(MISALIGNED_ADDRESS)
SAME_ERROR(INVALID_ADDRESS_SPACE)
SAME_ERROR(INVALID_PC)
SAME_ERROR(LAUNCH_FAILED)
SAME_ERROR(SYSTEM_DRIVER_MISMATCH)
SAME_ERROR(STREAM_CAPTURE_UNSUPPORTED)
SAME_ERROR(EXTERNAL_DEVICE)
#if CUDA_VERSION >= 12080 /* newer than the oldest toolkit that we build with */
SAME_ERROR(CONTAINED)
SAME_ERROR(TENSOR_MEMORY_LEAK)
#endif

#define SAME_DEVICE(name) SAME(SKR_CU_DEVICE_##name, CU_DEVICE_ATTRIBUTE_##name)
SAME_DEVICE(MULTIPROCESSOR_COUNT)
SAME_DEVICE(L2_CACHE_SIZE)
SAME_DEVICE(COMPUTE_CAPABILITY_MAJOR)
SAME_DEVICE(COMPUTE_CAPABILITY_MINOR)
SAME_DEVICE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
SAME_DEVICE(MEMORY_POOLS_SUPPORTED)

SAME(SKR_CU_FUNC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
SAME(SKR_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
SAME(SKR_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
SAME(SKR_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
SAME(SKR_CU_POINTER_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
SAME(SKR_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED)
SAME(SKR_CU_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
SAME(SKR_CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST)
SAME(SKR_CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE)
SAME(SKR_CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
SAME(SKR_CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP)
SAME(SKR_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT)
SAME(SKR_CU_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE)
SAME(SKR_CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
SAME(SKR_CU_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
SAME(SKR_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)
SAME(SKR_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)
SAME(SKR_CU_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM)
SAME(SKR_CU_LAUNCH_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
SAME(SKR_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)

SAME(SKR_CU_TENSOR_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT8)
SAME(SKR_CU_TENSOR_INT32, CU_TENSOR_MAP_DATA_TYPE_INT32)
SAME(SKR_CU_TENSOR_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
SAME(SKR_CU_TENSOR_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32)
SAME(SKR_CU_TENSOR_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
SAME(SKR_CU_TENSOR_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE)
SAME(SKR_CU_TENSOR_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE)
SAME(SKR_CU_TENSOR_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_32B)
SAME(SKR_CU_TENSOR_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_64B)
SAME(SKR_CU_TENSOR_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B)
SAME(SKR_CU_TENSOR_L2_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
SAME(SKR_CU_TENSOR_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)

/* ---------------------------------------------------------------- types */

#define SAME_SIZE(ours, theirs)                                                                                        \
    SAME(sizeof(ours), sizeof(theirs))                                                                                 \
    _Static_assert(_Alignof(ours) >= _Alignof(theirs), #ours " is aligned too little");
#define SAME_AT(ours, field, theirs, their_field)                                                                      \
    SAME(offsetof(ours, field), offsetof(theirs, their_field))                                                         \
    SAME(sizeof(((ours *)0)->field), sizeof(((theirs *)0)->their_field))

SAME_SIZE(skr_cu_result, CUresult)
SAME_SIZE(skr_cu_device, CUdevice)
SAME_SIZE(skr_cu_pointer, CUdeviceptr)
SAME_SIZE(skr_cu_device_attribute, CUdevice_attribute)
SAME_SIZE(skr_cu_function_attribute, CUfunction_attribute)
SAME_SIZE(skr_cu_pointer_attribute, CUpointer_attribute)
SAME_SIZE(skr_cu_pool_attribute, CUmemPool_attribute)
SAME_SIZE(skr_cu_capture_mode, CUstreamCaptureMode)
SAME_SIZE(skr_cu_capture_status, CUstreamCaptureStatus)
SAME_SIZE(skr_cu_jit_option, CUjit_option)
SAME_SIZE(skr_cu_library_option, CUlibraryOption)
SAME_SIZE(skr_cu_tensor_type, CUtensorMapDataType)
SAME_SIZE(skr_cu_tensor_interleave, CUtensorMapInterleave)
SAME_SIZE(skr_cu_tensor_swizzle, CUtensorMapSwizzle)
SAME_SIZE(skr_cu_tensor_l2, CUtensorMapL2promotion)
SAME_SIZE(skr_cu_tensor_fill, CUtensorMapFloatOOBfill)
SAME_SIZE(unsigned, CUmemorytype) /* what cuPointerGetAttribute(MEMORY_TYPE) stores */
SAME_SIZE(int, CUdriverProcAddressQueryResult)

SAME_SIZE(skr_cu_tensor_map, CUtensorMap)
SAME_SIZE(skr_cu_launch_attribute, CUlaunchAttribute)
SAME_AT(skr_cu_launch_attribute, id, CUlaunchAttribute, id)
SAME_AT(skr_cu_launch_attribute, value, CUlaunchAttribute, value)
SAME_AT(skr_cu_launch_attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x)
SAME_AT(skr_cu_launch_attribute, value.cluster.y, CUlaunchAttribute, value.clusterDim.y)
SAME_AT(skr_cu_launch_attribute, value.cluster.z, CUlaunchAttribute, value.clusterDim.z)
SAME_AT(skr_cu_launch_attribute, value.overlap, CUlaunchAttribute, value.programmaticStreamSerializationAllowed)

SAME_SIZE(skr_cu_launch_config, CUlaunchConfig)
SAME_AT(skr_cu_launch_config, grid_x, CUlaunchConfig, gridDimX)
SAME_AT(skr_cu_launch_config, grid_y, CUlaunchConfig, gridDimY)
SAME_AT(skr_cu_launch_config, grid_z, CUlaunchConfig, gridDimZ)
SAME_AT(skr_cu_launch_config, block_x, CUlaunchConfig, blockDimX)
SAME_AT(skr_cu_launch_config, block_y, CUlaunchConfig, blockDimY)
SAME_AT(skr_cu_launch_config, block_z, CUlaunchConfig, blockDimZ)
SAME_AT(skr_cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes)
SAME_AT(skr_cu_launch_config, stream, CUlaunchConfig, hStream)
SAME_AT(skr_cu_launch_config, attributes, CUlaunchConfig, attrs)
SAME_AT(skr_cu_launch_config, n_attributes, CUlaunchConfig, numAttrs)

SAME_SIZE(skr_cu_pool_props, CUmemPoolProps)
SAME_AT(skr_cu_pool_props, allocation_type, CUmemPoolProps, allocType)
SAME_AT(skr_cu_pool_props, handle_types, CUmemPoolProps, handleTypes)
SAME_AT(skr_cu_pool_props, location.type, CUmemPoolProps, location.type)
SAME_AT(skr_cu_pool_props, location.id, CUmemPoolProps, location.id)
SAME_AT(skr_cu_pool_props, security, CUmemPoolProps, win32SecurityAttributes)
SAME_AT(skr_cu_pool_props, max_bytes, CUmemPoolProps, maxSize)

/* ---------------------------------------------------------------- signatures
 * driver.def once more, with the toolkit's names in place of ours: each line must be exactly the toolkit's type of that
 * function at that version. */

#define skr_cu_result             CUresult
#define skr_cu_device             CUdevice
#define skr_cu_pointer            CUdeviceptr
#define skr_cu_context            CUcontext
#define skr_cu_stream             CUstream
#define skr_cu_event              CUevent
#define skr_cu_pool               CUmemoryPool
#define skr_cu_library            CUlibrary
#define skr_cu_kernel             CUkernel
#define skr_cu_function           CUfunction
#define skr_cu_device_attribute   CUdevice_attribute
#define skr_cu_function_attribute CUfunction_attribute
#define skr_cu_pointer_attribute  CUpointer_attribute
#define skr_cu_pool_attribute     CUmemPool_attribute
#define skr_cu_capture_mode       CUstreamCaptureMode
#define skr_cu_capture_status     CUstreamCaptureStatus
#define skr_cu_jit_option         CUjit_option
#define skr_cu_library_option     CUlibraryOption
#define skr_cu_launch_config      CUlaunchConfig
#define skr_cu_pool_props         CUmemPoolProps
#define skr_cu_tensor_map         CUtensorMap
#define skr_cu_tensor_type        CUtensorMapDataType
#define skr_cu_tensor_interleave  CUtensorMapInterleave
#define skr_cu_tensor_swizzle     CUtensorMapSwizzle
#define skr_cu_tensor_l2          CUtensorMapL2promotion
#define skr_cu_tensor_fill        CUtensorMapFloatOOBfill

#define SKR_DRIVER(name, version, symbol, need, parameters)                                                            \
    typedef CUresult(*ours_##name) parameters;                                                                         \
    _Static_assert(__builtin_types_compatible_p(ours_##name, PFN_##name##_v##version),                                 \
                   #name " is declared otherwise in cuda.h");
#include "../src/cuda/driver.def"
#undef SKR_DRIVER

typedef CUresult (*ours_get_proc)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
_Static_assert(__builtin_types_compatible_p(ours_get_proc, PFN_cuGetProcAddress_v12000), "cuGetProcAddress_v2");

/* ---------------------------------------------------------------- exported names */

static const char *const symbols[] = {
#define SKR_DRIVER(name, version, symbol, need, parameters) symbol,
#include "../src/cuda/driver.def"
#undef SKR_DRIVER
    "cuGetProcAddress_v2",
};

int main(void)
{
    const int n = (int)(sizeof symbols / sizeof *symbols);
    static const char *const places[] = {"/usr/local/cuda/lib64/stubs/libcuda.so", "libcuda.so"};
    void *stub = dlopen(places[0], RTLD_LAZY | RTLD_LOCAL);
    if (!stub)
        stub = dlopen(places[1], RTLD_LAZY | RTLD_LOCAL);
    int failed = 0;
    for (int i = 0; stub && i < n; i++)
        if (!dlsym(stub, symbols[i])) {
            printf("FAIL libcuda.so exports no %s\n", symbols[i]);
            failed++;
        }
    printf("constants, layouts and %d signatures agree with cuda.h %d\n", n, CUDA_VERSION);
    if (!stub)
        printf("SKIP exported names: no %s on this machine\n", places[0]);
    printf("%d passed, %d failed, %d skipped\n", 1 + (stub ? n - failed : 0), failed, stub ? 0 : n);
    return failed != 0;
}
#else
int main(void)
{
    printf("SKIP comparison with cuda.h: the CUDA toolkit's headers are not on this machine\n");
    printf("0 passed, 0 failed, 1 skipped\n");
    return 0;
}
#endif
