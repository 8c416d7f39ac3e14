/* launch.c - launching one step of a plan, tensor maps, and what the driver's errors mean.
 * SPDX-License-Identifier: Apache-2.0
 *
 * skr_cuda_launch is the hot path: no allocation, no lock, no query, no text unless it fails. */
#include "device.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---------------------------------------------------------------- errors */

/* Errors after which the driver answers every call on the context with the same error. */
static bool sticks(skr_cu_result result)
{
    switch (result) {
    case SKR_CU_ILLEGAL_ADDRESS:
    case SKR_CU_LAUNCH_TIMEOUT:
    case SKR_CU_ASSERT:
    case SKR_CU_HARDWARE_STACK_ERROR:
    case SKR_CU_ILLEGAL_INSTRUCTION:
    case SKR_CU_MISALIGNED_ADDRESS:
    case SKR_CU_INVALID_ADDRESS_SPACE:
    case SKR_CU_INVALID_PC:
    case SKR_CU_LAUNCH_FAILED:
    case SKR_CU_TENSOR_MEMORY_LEAK:
    case SKR_CU_ECC_UNCORRECTABLE:
    case SKR_CU_NVLINK_UNCORRECTABLE:
    case SKR_CU_CONTAINED:
    case SKR_CU_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

saker_status skr_cuda_fail_lost(skr_call *call, const skr_cuda_device *device)
{
    char text[SKR_CU_ERROR_BYTES];
    return skr_fail(
        call, SAKER_DEVICE_LOST,
        "CUDA device %d faulted during earlier work: %s; it is lost to this process, every later call on it fails",
        device->id, skr_driver_error(atomic_load(&device->lost), text));
}

saker_status skr_cuda_fail(skr_call *call, skr_cuda_device *device, skr_cu_result result, const char *format, ...)
{
    char doing[160], text[SKR_CU_ERROR_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(doing, sizeof doing, format, list);
    va_end(list);
    if (result == SKR_CU_OUT_OF_MEMORY)
        return skr_fail(call, SAKER_OUT_OF_MEMORY, "CUDA device %d has no memory left for %s", device->id, doing);
    if (!sticks(result))
        return skr_fail(call, SAKER_DEVICE, "CUDA device %d: %s failed: %s", device->id, doing,
                        skr_driver_error(result, text));
    if (atomic_load(&device->busy) == 0)
        return skr_fail(
            call, SAKER_DEVICE,
            "CUDA device %d was already in error before this call: %s; other work in this process caused it",
            device->id, skr_driver_error(result, text));
    atomic_store(&device->lost, result);
    return skr_cuda_fail_lost(call, device);
}

/* ---------------------------------------------------------------- launch */

saker_status skr_cuda_launch(skr_call *call, skr_cuda_device *device, const skr_step *step, const void *job,
                             skr_cu_stream stream)
{
    skr_cuda_kernel *kernel = step->kernel;
    skr_cu_kernel code = atomic_load_explicit(&kernel->ready[device->id], memory_order_acquire);
    if (!code) {
        SKR_TRY(skr_cuda_load(call, device, kernel));
        code = atomic_load_explicit(&kernel->ready[device->id], memory_order_acquire);
    }
    skr_cu_launch_attribute attributes[2];
    unsigned n = 0;
    if (step->cluster > 1) {
        attributes[n].id = SKR_CU_LAUNCH_CLUSTER_DIMENSION;
        attributes[n].value.cluster.x = step->cluster;
        attributes[n].value.cluster.y = 1;
        attributes[n].value.cluster.z = 1;
        n++;
    }
    if (step->overlap && device->can_overlap) {
        attributes[n].id = SKR_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[n].value.overlap = 1;
        n++;
    }
    const skr_cu_launch_config config = {
        .grid_x = step->grid,
        .grid_y = 1,
        .grid_z = 1,
        .block_x = step->block,
        .block_y = 1,
        .block_z = 1,
        .shared_bytes = step->shared_bytes,
        .stream = stream,
        .attributes = attributes,
        .n_attributes = n,
    };
    /* The driver copies as many bytes as the kernel's parameter has; it takes a kernel handle wherever it takes a
     * function. */
    void *parameters[1] = {(void *)(uintptr_t)job};
    skr_cu_result result = skr_cu.cuLaunchKernelEx(&config, (skr_cu_function)code, parameters, NULL);
    return result ? skr_cuda_fail(call, device, result, "launching kernel %s", kernel->symbol) : SAKER_OK;
}

/* ---------------------------------------------------------------- tensor maps */

static int tensor_type(int32_t type)
{
    switch (type) {
    case SKR_F32:
        return SKR_CU_TENSOR_FLOAT32;
    case SKR_F16:
        return SKR_CU_TENSOR_FLOAT16;
    case SKR_BF16:
        return SKR_CU_TENSOR_BFLOAT16;
    case SKR_I32:
        return SKR_CU_TENSOR_INT32;
    case SKR_E4M3:
    case SKR_E5M2:
    case SKR_I8:
    case SKR_U8:
    case SKR_BOOL:
        return SKR_CU_TENSOR_UINT8;
    default:
        return -1;
    }
}

static int swizzle_mode(int32_t bytes)
{
    return bytes == 0     ? SKR_CU_TENSOR_SWIZZLE_NONE
           : bytes == 32  ? SKR_CU_TENSOR_SWIZZLE_32B
           : bytes == 64  ? SKR_CU_TENSOR_SWIZZLE_64B
           : bytes == 128 ? SKR_CU_TENSOR_SWIZZLE_128B
                          : -1;
}

/* NULL, or the rule that the box breaks. */
static const char *broken_rule(const skr_matrix_box *b)
{
    const int64_t most = INT64_C(1) << 32, size = skr_type_bytes(b->type);
    if (!b->data || (uintptr_t)b->data % 16)
        return "data must be 16-byte aligned";
    if (b->rows < 1 || b->rows > most || b->cols < 1 || b->cols > most)
        return "rows and cols must be 1 to 2^32";
    if (b->batches < 1 || b->batches > most)
        return "batches must be 1 to 2^32";
    if (b->row_stride < 1 || b->row_stride >= (INT64_C(1) << 40) / size || b->row_stride * size % 16)
        return "the row stride in bytes must be a multiple of 16 below 2^40";
    if (b->batches > 1 &&
        (b->batch_stride < 1 || b->batch_stride >= (INT64_C(1) << 40) / size || b->batch_stride * size % 16))
        return "the batch stride in bytes must be a multiple of 16 below 2^40";
    if (b->box_rows < 1 || b->box_rows > 256 || b->box_cols < 1 || b->box_cols > 256 || b->box_cols * size % 16)
        return "the box must be 1 to 256 each way, its rows a multiple of 16 bytes";
    if (swizzle_mode(b->swizzle_bytes) < 0)
        return "swizzle_bytes must be 0, 32, 64 or 128";
    if (b->swizzle_bytes && b->box_cols * size > b->swizzle_bytes)
        return "a box row must not be longer than the swizzle";
    return NULL;
}

saker_status skr_tensor_map_3d(skr_call *call, const skr_matrix_box *b, skr_cu_tensor_map *map)
{
    int type = b->tf32 && b->type == SKR_F32 ? SKR_CU_TENSOR_TFLOAT32 : tensor_type(b->type);
    if (type < 0)
        return skr_fail(call, SAKER_UNSUPPORTED, "tensor map: elements of this type cannot be moved in bulk");
    const char *rule = broken_rule(b);
    if (rule)
        return skr_fail(call, SAKER_INVALID_ARG, "tensor map: %s", rule);
    if (!skr_cu.cuTensorMapEncodeTiled)
        return skr_fail(call, SAKER_DEVICE, "tensor map: the CUDA driver has no function cuTensorMapEncodeTiled");
    const uint64_t dims[3] = {(uint64_t)b->cols, (uint64_t)b->rows, (uint64_t)b->batches};
    const uint64_t size = (uint64_t)skr_type_bytes(b->type), row = (uint64_t)b->row_stride * size;
    const uint64_t strides[2] = {row, b->batches > 1 ? (uint64_t)b->batch_stride * size : row};
    const uint32_t box[3] = {(uint32_t)b->box_cols, (uint32_t)b->box_rows, 1}, steps[3] = {1, 1, 1};
    skr_cu_result result = skr_cu.cuTensorMapEncodeTiled(
        map, (skr_cu_tensor_type)type, 3, b->data, dims, strides, box, steps, SKR_CU_TENSOR_INTERLEAVE_NONE,
        (skr_cu_tensor_swizzle)swizzle_mode(b->swizzle_bytes), SKR_CU_TENSOR_L2_256B, SKR_CU_TENSOR_FILL_NONE);
    char text[SKR_CU_ERROR_BYTES];
    return result
               ? skr_fail(call, SAKER_DEVICE, "tensor map: the driver refused it: %s", skr_driver_error(result, text))
               : SAKER_OK;
}
