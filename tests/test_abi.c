/* test_abi.c - layouts and numbers that compiled programs depend on, and the same as in a real DLPack header.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Built with -DDLPACK_HEADER='"path/dlpack.h"' where one was found. */
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "saker.h"

#ifdef DLPACK_HEADER
#include DLPACK_HEADER
#endif

/* ---------------------------------------------------------------- frozen facts */

#define SIZE(type, bytes)       _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

SIZE(saker_device, 8);
SIZE(saker_dtype, 4);
SIZE(saker_tensor, 48);
AT(saker_tensor, data, 0);
AT(saker_tensor, device, 8);
AT(saker_tensor, ndim, 16);
AT(saker_tensor, dtype, 20);
AT(saker_tensor, shape, 24);
AT(saker_tensor, strides, 32);
AT(saker_tensor, byte_offset, 40);

AT(saker_config, struct_size, 0);
AT(saker_config, device_type, 8);
AT(saker_config, device_id, 12);
AT(saker_config, threads, 16);
AT(saker_config, check_level, 20);
AT(saker_config, flags, 24);
AT(saker_config, isa, 32);
AT(saker_config, stream, 40);
AT(saker_config, parallel_for, 48);
AT(saker_config, parallel_user, 56);
AT(saker_config, parallel_width, 64);
AT(saker_config, reserved, 68);
SIZE(saker_config, 72);

AT(saker_rms_norm_args, x, 8);
AT(saker_rms_norm_args, weight, 16);
AT(saker_rms_norm_args, bias, 24);
AT(saker_rms_norm_args, residual, 32);
AT(saker_rms_norm_args, y, 40);
AT(saker_rms_norm_args, residual_out, 48);
AT(saker_rms_norm_args, rstd, 56);
AT(saker_rms_norm_args, y_quant, 64);
AT(saker_rms_norm_args, y_scale, 72);
AT(saker_rms_norm_args, eps, 80);
AT(saker_rms_norm_args, weight_offset, 84);
AT(saker_rms_norm_args, round_before_weight, 88);
AT(saker_rms_norm_args, quant, 92);
SIZE(saker_rms_norm_args, 96);

AT(saker_rms_norm_backward_args, dy, 8);
AT(saker_rms_norm_backward_args, x, 16);
AT(saker_rms_norm_backward_args, weight, 24);
AT(saker_rms_norm_backward_args, rstd, 32);
AT(saker_rms_norm_backward_args, dresidual_out, 40);
AT(saker_rms_norm_backward_args, dx, 48);
AT(saker_rms_norm_backward_args, dweight, 56);
AT(saker_rms_norm_backward_args, dbias, 64);
AT(saker_rms_norm_backward_args, eps, 72);
AT(saker_rms_norm_backward_args, weight_offset, 76);
AT(saker_rms_norm_backward_args, round_before_weight, 80);
AT(saker_rms_norm_backward_args, accumulate, 84);
SIZE(saker_rms_norm_backward_args, 88);
AT(saker_stream_args, checksum, 56);
SIZE(saker_stream_args, 64);
SIZE(saker_field, 56);
SIZE(saker_op_info, 32);
SIZE(saker_level_info, 24);

static void numbers(void)
{
    static const saker_status status[] = {
        SAKER_OK,          SAKER_INVALID_ARG, SAKER_UNSUPPORTED, SAKER_NULL_POINTER,  SAKER_MISALIGNED,
        SAKER_ALIAS,       SAKER_OVERFLOW,    SAKER_WORKSPACE,   SAKER_OUT_OF_MEMORY, SAKER_DEVICE,
        SAKER_DEVICE_LOST, SAKER_COMM,        SAKER_BAD_INDEX,   SAKER_VERSION};
    for (int i = 0; i < 14; i++)
        CHECK_TEXT((int)status[i] == i, "status %d is %d", i, (int)status[i]);
    CHECK(SAKER_QUANT_NONE == 0 && SAKER_QUANT_TENSOR == 1 && SAKER_QUANT_ROW == 2 && SAKER_QUANT_BLOCK == 3);
    CHECK(SAKER_FIELD_IN == 0 && SAKER_FIELD_OUT == 1 && SAKER_FIELD_INOUT == 2 && SAKER_FIELD_F32 == 3 &&
          SAKER_FIELD_BOOL == 4 && SAKER_FIELD_ENUM == 5 && SAKER_FIELD_I64 == 6 && SAKER_FIELD_F64 == 7);
    CHECK(SAKER_MAX_DIMS == 8 && SAKER_ALLOW_NONDETERMINISTIC == 1);
    /* The field table speaks of the same struct as the header does. */
    const saker_op_info *op = saker_op_find("rms_norm");
    for (int i = 0; op && i < op->n_fields; i++) {
        if (!strcmp(op->fields[i].name, "y_scale"))
            CHECK(op->fields[i].offset == offsetof(saker_rms_norm_args, y_scale));
        if (!strcmp(op->fields[i].name, "quant"))
            CHECK(op->fields[i].offset == offsetof(saker_rms_norm_args, quant));
    }
    CHECK(op && op->args_size == sizeof(saker_rms_norm_args));
}

/* ---------------------------------------------------------------- DLPack */

#ifdef DLPACK_HEADER
SIZE(DLTensor, sizeof(saker_tensor));
AT(DLTensor, data, offsetof(saker_tensor, data));
AT(DLTensor, device, offsetof(saker_tensor, device));
AT(DLTensor, ndim, offsetof(saker_tensor, ndim));
AT(DLTensor, dtype, offsetof(saker_tensor, dtype));
AT(DLTensor, shape, offsetof(saker_tensor, shape));
AT(DLTensor, strides, offsetof(saker_tensor, strides));
AT(DLTensor, byte_offset, offsetof(saker_tensor, byte_offset));
AT(DLDevice, device_type, offsetof(saker_device, device_type));
AT(DLDevice, device_id, offsetof(saker_device, device_id));
AT(DLDataType, code, offsetof(saker_dtype, code));
AT(DLDataType, bits, offsetof(saker_dtype, bits));
AT(DLDataType, lanes, offsetof(saker_dtype, lanes));

static void same_as_dlpack(void)
{
    CHECK((int)SAKER_CPU == kDLCPU && (int)SAKER_CUDA == kDLCUDA);
    CHECK((int)SAKER_CUDA_HOST == kDLCUDAHost && (int)SAKER_CUDA_MANAGED == kDLCUDAManaged);
    CHECK(SAKER_DTYPE(SAKER_F32).code == kDLFloat && SAKER_DTYPE(SAKER_F16).code == kDLFloat);
    CHECK(SAKER_DTYPE(SAKER_BF16).code == kDLBfloat && SAKER_DTYPE(SAKER_BOOL).code == kDLBool);
    CHECK(SAKER_DTYPE(SAKER_I8).code == kDLInt && SAKER_DTYPE(SAKER_U8).code == kDLUInt);
#if DLPACK_MAJOR_VERSION > 1 || (DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION >= 1)
    CHECK(SAKER_DTYPE(SAKER_E4M3).code == kDLFloat8_e4m3fn && SAKER_DTYPE(SAKER_E5M2).code == kDLFloat8_e5m2);
#else
    CHECK_SKIP("this DLPack header (%d.%d) has no fp8 codes", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
#endif
    /* A DLTensor is passed as it is. */
    float x[2 * 3] = {3, 0, 0, 0, -4, 0}, y[2 * 3];
    int64_t shape[2] = {2, 3};
    DLTensor dx = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLTensor dy = {.data = y, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    saker_context *ctx;
    CHECK(saker_context_create(&ctx, NULL) == SAKER_OK);
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = (const saker_tensor *)&dx, .y = (const saker_tensor *)&dy)) ==
          SAKER_OK);
    CHECK(y[0] > 1.732f && y[0] < 1.7321f && y[1] == 0 && y[4] < -1.732f);
    saker_context_destroy(ctx);
    printf("DLPack %d.%d: %s\n", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPACK_HEADER);
}
#endif

int main(void)
{
    numbers();
#ifdef DLPACK_HEADER
    same_as_dlpack();
#else
    CHECK_SKIP("no dlpack.h was found (PyTorch and apache-tvm-ffi bring one): only the frozen layout was checked");
#endif
    return check_report("test_abi");
}
