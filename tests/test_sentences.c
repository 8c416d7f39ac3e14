/* test_sentences.c - what a user reads when an argument of a norm, of attention or of others is wrong, word for word.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The sentence is part of the interface: operation, argument, what was found, what was expected. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "saker.h"

static saker_context *ctx;
static float memory[8][4096];

static void expect(saker_status got, saker_status want, const char *sentence)
{
    CHECK_TEXT(got == want && !strcmp(saker_context_error(ctx), sentence), "%s: '%s'\n     expected %s: '%s'",
               saker_status_name(got), saker_context_error(ctx), saker_status_name(want), sentence);
}

#define FORWARD(...)  saker_rms_norm(ctx, SAKER_ARGS(rms_norm, __VA_ARGS__))
#define BACKWARD(...) saker_rms_norm_backward(ctx, SAKER_ARGS(rms_norm_backward, __VA_ARGS__))

static void forward(void)
{
    saker_tensor x = SAKER_TENSOR(memory[0], SAKER_F32, 4, 96), y = SAKER_TENSOR(memory[1], SAKER_F32, 4, 96);
    saker_tensor w = SAKER_TENSOR(memory[2], SAKER_F32, 96), bad, q = SAKER_TENSOR(memory[3], SAKER_E4M3, 4, 96);
    saker_tensor scale = SAKER_TENSOR(memory[4], SAKER_F32, 4);

    expect(FORWARD(.y = &y), SAKER_NULL_POINTER, "rms_norm: x is NULL, and it is required");
    expect(FORWARD(.x = &x), SAKER_NULL_POINTER,
           "rms_norm: y and y_quant are both NULL, expected at least one of them");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_F32, 95);
    expect(FORWARD(.x = &x, .weight = &bad, .y = &y), SAKER_INVALID_ARG,
           "rms_norm: weight has shape [95], expected [96] (last dim of x)");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_F32, 3, 96);
    expect(FORWARD(.x = &x, .bias = &bad, .y = &y), SAKER_INVALID_ARG,
           "rms_norm: bias has shape [3, 96], expected [4, 96] (last dims of x)");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_F32, 4, 96);
    expect(FORWARD(.x = &x, .weight = &bad, .bias = &w, .y = &y), SAKER_INVALID_ARG,
           "rms_norm: bias has shape [96]: the parameters must all be [N] or all be [H, N]");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_F32, 4, 95);
    expect(FORWARD(.x = &x, .y = &y, .residual = &bad), SAKER_INVALID_ARG,
           "rms_norm: residual has shape [4, 95], expected [4, 96] (the shape of x)");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_I32, 4, 96);
    expect(FORWARD(.x = &bad, .y = &y), SAKER_UNSUPPORTED, "rms_norm: x has type i32, expected one of f32, f16, bf16");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_F16, 4);
    expect(FORWARD(.x = &x, .y = &y, .rstd = &bad), SAKER_UNSUPPORTED,
           "rms_norm: rstd has type f16, expected one of f32");
    bad = (saker_tensor)SAKER_TENSOR(memory[2], SAKER_F32, 5);
    expect(FORWARD(.x = &x, .y = &y, .rstd = &bad), SAKER_INVALID_ARG,
           "rms_norm: rstd has shape [5], expected [4] (one value for each row of x)");
    bad = x;
    bad.dtype.code = 77;
    expect(FORWARD(.x = &bad, .y = &y), SAKER_UNSUPPORTED,
           "rms_norm: x has an unknown type (code 77, bits 32, lanes 1), expected one of f32, f16, bf16");
    bad = x;
    bad.device.device_type = SAKER_CUDA;
    expect(FORWARD(.x = &bad, .y = &y), SAKER_INVALID_ARG,
           "rms_norm: x is on a CUDA device (device type 2), expected the CPU (the context's device)");
    bad.device.device_type = SAKER_CUDA_HOST; /* memory that both can use */
    CHECK(FORWARD(.x = &bad, .y = &y) == SAKER_OK);
    bad.device.device_type = SAKER_CUDA_MANAGED;
    CHECK(FORWARD(.x = &bad, .y = &y) == SAKER_OK);
    bad = x;
    bad.data = (char *)bad.data + 2;
    expect(FORWARD(.x = &bad, .y = &y), SAKER_MISALIGNED,
           "rms_norm: x is at an address that is not a multiple of 4, its element's size");
    bad = y;
    bad.strides = (int64_t[]){0, 1};
    expect(FORWARD(.x = &x, .y = &bad), SAKER_INVALID_ARG,
           "rms_norm: y is an output with stride 0 in dimension 0 of size 4");
    bad.strides = (int64_t[]){50, 1};
    expect(FORWARD(.x = &x, .y = &bad), SAKER_ALIAS,
           "rms_norm: y is an output whose elements overlap: stride 50 in dimension 0");
    bad.strides = (int64_t[]){-96, 1};
    expect(FORWARD(.x = &x, .y = &bad), SAKER_INVALID_ARG, "rms_norm: y has a negative stride: dimension 0 has -96");
    bad.strides = (int64_t[]){200, 2};
    expect(FORWARD(.x = &x, .y = &bad), SAKER_INVALID_ARG,
           "rms_norm: y has stride 2 in its last dimension, expected 1");
    expect(FORWARD(.x = &x, .y = &y, .eps = -1), SAKER_INVALID_ARG,
           "rms_norm: eps is -1, expected 0 (the default, 1e-6) or more");
    expect(FORWARD(.x = &x, .y = &y, .round_before_weight = 2), SAKER_UNSUPPORTED,
           "rms_norm: round_before_weight is 2, expected 0 or 1");
    expect(FORWARD(.x = &x, .y = &y, .quant = 4), SAKER_UNSUPPORTED,
           "rms_norm: quant is 4, expected 0 to 3 (none|tensor|row|block)");
    expect(FORWARD(.x = &x, .y_quant = &q), SAKER_INVALID_ARG,
           "rms_norm: y_quant is given but quant is none, expected tensor, row or block");
    expect(FORWARD(.x = &x, .y = &y, .y_scale = &scale), SAKER_INVALID_ARG,
           "rms_norm: y_scale is given but quant is none, expected tensor, row or block");
    expect(FORWARD(.x = &x, .y = &y, .y_scale = &scale, .quant = SAKER_QUANT_ROW), SAKER_NULL_POINTER,
           "rms_norm: y_quant is NULL but quant is row, expected a tensor for the result");
    expect(FORWARD(.x = &x, .y_quant = &q, .quant = SAKER_QUANT_BLOCK), SAKER_NULL_POINTER,
           "rms_norm: y_scale is NULL but quant is block, expected a tensor of scales");
    expect(FORWARD(.x = &x, .y_quant = &q, .y_scale = &scale, .quant = SAKER_QUANT_TENSOR), SAKER_INVALID_ARG,
           "rms_norm: y_scale has shape [4], expected one element (quant is tensor)");
    expect(FORWARD(.x = &x, .y_quant = &q, .y_scale = &scale, .quant = SAKER_QUANT_BLOCK), SAKER_INVALID_ARG,
           "rms_norm: y_scale has shape [4], expected [4, 1] (1 blocks a row of x)");
    bad = (saker_tensor)SAKER_TENSOR(memory[0], SAKER_F32);
    bad.ndim = 0;
    expect(FORWARD(.x = &bad, .y = &y), SAKER_INVALID_ARG,
           "rms_norm: x has no dimensions, expected at least 1 ([..., N])");
}

static void backward(void)
{
    saker_tensor dy = SAKER_TENSOR(memory[0], SAKER_F32, 4, 96), x = SAKER_TENSOR(memory[1], SAKER_F32, 4, 96);
    saker_tensor dx = SAKER_TENSOR(memory[2], SAKER_F32, 4, 96), dw = SAKER_TENSOR(memory[3], SAKER_F32, 96), bad;
    expect(BACKWARD(.dy = &dy, .dx = &dx), SAKER_NULL_POINTER, "rms_norm_backward: x is NULL, and it is required");
    expect(BACKWARD(.dy = &dy, .x = &x), SAKER_NULL_POINTER,
           "rms_norm_backward: dx, dweight and dbias are all NULL, expected at least one of them");
    bad = (saker_tensor)SAKER_TENSOR(memory[4], SAKER_F32, 2, 96);
    expect(BACKWARD(.dy = &dy, .x = &bad, .dx = &dx), SAKER_INVALID_ARG,
           "rms_norm_backward: x has shape [2, 96], expected [4, 96] (the shape of dy)");
    expect(BACKWARD(.dy = &dy, .x = &x, .dx = &dx, .dweight = &dw, .accumulate = 3), SAKER_UNSUPPORTED,
           "rms_norm_backward: accumulate is 3, expected 0 or 1");
}

static void layer_norm(void)
{
    saker_tensor x = SAKER_TENSOR(memory[0], SAKER_F32, 4, 96), y = SAKER_TENSOR(memory[1], SAKER_F32, 4, 96);
    saker_tensor dx = SAKER_TENSOR(memory[2], SAKER_F32, 4, 96), mean = SAKER_TENSOR(memory[3], SAKER_F32, 4), bad;
    expect(saker_layer_norm(ctx, SAKER_ARGS(layer_norm, .x = &x, .y = &y, .eps = -1)), SAKER_INVALID_ARG,
           "layer_norm: eps is -1, expected 0 (the default, 1e-5) or more");
    bad = (saker_tensor)SAKER_TENSOR(memory[4], SAKER_F32, 5);
    expect(saker_layer_norm(ctx, SAKER_ARGS(layer_norm, .x = &x, .y = &y, .mean = &bad)), SAKER_INVALID_ARG,
           "layer_norm: mean has shape [5], expected [4] (one value for each row of x)");
    expect(saker_layer_norm_backward(ctx, SAKER_ARGS(layer_norm_backward, .dy = &y, .x = &x, .dx = &dx, .mean = &mean)),
           SAKER_INVALID_ARG, "layer_norm_backward: mean is given but rstd is NULL, expected both of them or neither");
    expect(saker_layer_norm_backward(ctx, SAKER_ARGS(layer_norm_backward, .dy = &y, .x = &x, .dx = &dx, .rstd = &mean)),
           SAKER_INVALID_ARG, "layer_norm_backward: rstd is given but mean is NULL, expected both of them or neither");
}

/* The op's own sentence and the record of it survive until the next failure. */
static void lifetime(void)
{
    saker_tensor x = SAKER_TENSOR(memory[0], SAKER_F32, 4, 96), y = SAKER_TENSOR(memory[1], SAKER_F32, 4, 96);
    CHECK(FORWARD(.y = &y) == SAKER_NULL_POINTER);
    CHECK(FORWARD(.x = &x, .y = &y) == SAKER_OK);
    CHECK(!strcmp(saker_context_error(ctx), "rms_norm: x is NULL, and it is required"));
}

/* Packed tokens that are one sequence: how many there are is known, and what belongs to them has as many. */
static void packed_tokens(void)
{
    saker_tensor q = SAKER_TENSOR(memory[0], SAKER_F32, 8, 1, 16), o = SAKER_TENSOR(memory[1], SAKER_F32, 8, 1, 16);
    saker_tensor few = SAKER_TENSOR(memory[2], SAKER_F32, 1, 1, 5, 8),
                 codes = SAKER_TENSOR(memory[3], SAKER_I8, 8, 1, 16);
    saker_tensor descales = SAKER_TENSOR(memory[4], SAKER_F32, 1, 1, 4);
    expect(saker_attention(
               ctx, SAKER_ARGS(attention, .q = &q, .k = &q, .v = &q, .o = &o, .bias = &few, .layout = SAKER_THD)),
           SAKER_INVALID_ARG,
           "attention: bias has shape [1, 1, 5, 8], expected one that can be repeated to [1, 1, 8, 8] (B, Hq, Sq, Sk)");
    expect(saker_attention(ctx, SAKER_ARGS(attention, .q = &codes, .k = &codes, .v = &codes, .o = &o,
                                           .q_descale = &descales, .descale_block = 1, .layout = SAKER_THD)),
           SAKER_INVALID_ARG, "attention: q_descale has shape [1, 1, 4], expected [1, 1, blocks of 1 tokens]");
}

/* Options that nothing would read. */
static void unread(void)
{
    saker_tensor x = SAKER_TENSOR(memory[0], SAKER_F32, 4, 96), y = SAKER_TENSOR(memory[1], SAKER_F32, 4, 96);
    saker_tensor ids = SAKER_TENSOR(memory[2], SAKER_I32, 4), table = SAKER_TENSOR(memory[3], SAKER_F32, 7, 96);
    expect(saker_activation(ctx, SAKER_ARGS(activation, .x = &x, .y = &y, .act = SAKER_ACT_SILU, .limit = 2)),
           SAKER_INVALID_ARG, "activation: alpha is 0 and limit 2, which only act swiglu_oai has");
    expect(saker_embedding_backward(
               ctx, SAKER_ARGS(embedding_backward, .dout = &x, .ids = &ids, .dtable = &table, .padding_idx = 2)),
           SAKER_INVALID_ARG, "embedding_backward: padding_idx is 2 but has_padding_idx is 0, expected 1");
}

int main(void)
{
    if (saker_context_create(&ctx, NULL))
        return 1;
    forward();
    backward();
    layer_norm();
    packed_tokens();
    unread();
    lifetime();
    saker_context_destroy(ctx);
    return check_report("test_sentences");
}
