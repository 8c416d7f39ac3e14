/* layer_norm.c - layer_norm and layer_norm_backward: fields and checks. What rms_norm shares is in norm.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_op.h"

/* ---------------------------------------------------------------- fields */

enum {
    X,
    WEIGHT,
    BIAS,
    RESIDUAL,
    Y,
    RESIDUAL_OUT,
    MEAN,
    RSTD,
    Y_QUANT,
    Y_SCALE,
    EPS,
    WEIGHT_OFFSET,
    ROUND,
    QUANT,
    N_FIELDS
};

static const saker_field fields[N_FIELDS] = {
    [X] = SKR_IN(layer_norm, x, 1, skr_floats, "[..., N] rows to normalise"),
    [WEIGHT] = SKR_IN(layer_norm, weight, 0, skr_floats, "[N] or [H, N] scale; absent: 1"),
    [BIAS] = SKR_IN(layer_norm, bias, 0, skr_floats, "[N] or [H, N] shift; absent: 0"),
    [RESIDUAL] = SKR_IN(layer_norm, residual, 0, skr_floats, "x's shape; added to x first"),
    [Y] = SKR_OUT(layer_norm, y, 0, skr_floats, "x's shape: the result"),
    [RESIDUAL_OUT] =
        SKR_OUT(layer_norm, residual_out, 0, skr_floats, "x's shape: x + residual, rounded; what is normalised"),
    [MEAN] = SKR_OUT(layer_norm, mean, 0, skr_f32_only, "[M] or x's leading shape: mean(s), for backward"),
    [RSTD] = SKR_OUT(layer_norm, rstd, 0, skr_f32_only,
                     "[M] or x's leading shape: 1 / sqrt(mean((s - mean)^2) + eps), for backward"),
    [Y_QUANT] = SKR_OUT(layer_norm, y_quant, 0, skr_quant_types, "x's shape: the result, quantised"),
    [Y_SCALE] = SKR_INOUT(layer_norm, y_scale, 0, skr_f32_only,
                          "scales of y_quant: one (read), [M] or [M, ceil(N/128)] (written)"),
    [EPS] = SKR_OPTION_F32(layer_norm, eps, 1e-5, "added to the variance"),
    [WEIGHT_OFFSET] = SKR_OPTION_F32(layer_norm, weight_offset, 0, "added to the weight"),
    [ROUND] =
        SKR_OPTION_BOOL(layer_norm, round_before_weight, "(s - mean) * rstd is rounded to x's type before the weight"),
    [QUANT] = SKR_OPTION_ENUM(layer_norm, quant, "none|tensor|row|block", "how y_quant is scaled"),
};

enum {
    B_DY,
    B_X,
    B_WEIGHT,
    B_MEAN,
    B_RSTD,
    B_DRES,
    B_DX,
    B_DWEIGHT,
    B_DBIAS,
    B_EPS,
    B_WEIGHT_OFFSET,
    B_ROUND,
    B_ACCUMULATE,
    N_B_FIELDS
};

static const saker_field backward_fields[N_B_FIELDS] = {
    [B_DY] = SKR_IN(layer_norm_backward, dy, 1, skr_floats, "[..., N] gradient of y"),
    [B_X] = SKR_IN(layer_norm_backward, x, 1, skr_floats, "dy's shape: what forward normalised"),
    [B_WEIGHT] = SKR_IN(layer_norm_backward, weight, 0, skr_floats, "[N] or [H, N] forward's weight; absent: 1"),
    [B_MEAN] = SKR_IN(layer_norm_backward, mean, 0, skr_f32_only, "[M] or x's leading shape, from forward, with rstd"),
    [B_RSTD] = SKR_IN(layer_norm_backward, rstd, 0, skr_f32_only,
                      "[M] or x's leading shape, from forward; absent: recomputed"),
    [B_DRES] =
        SKR_IN(layer_norm_backward, dresidual_out, 0, skr_floats, "dy's shape: gradient that arrives at residual_out"),
    [B_DX] = SKR_OUT(layer_norm_backward, dx, 0, skr_floats, "dy's shape: gradient of x and of residual"),
    [B_DWEIGHT] = SKR_OUT(layer_norm_backward, dweight, 0, skr_floats, "[N] or [H, N]: gradient of weight"),
    [B_DBIAS] = SKR_OUT(layer_norm_backward, dbias, 0, skr_floats, "[N] or [H, N]: gradient of bias"),
    [B_EPS] = SKR_OPTION_F32(layer_norm_backward, eps, 1e-5, "used only without rstd"),
    [B_WEIGHT_OFFSET] = SKR_OPTION_F32(layer_norm_backward, weight_offset, 0, "as in forward"),
    [B_ROUND] = SKR_OPTION_BOOL(layer_norm_backward, round_before_weight, "as in forward"),
    [B_ACCUMULATE] =
        SKR_OPTION_BOOL(layer_norm_backward, accumulate, "dweight and dbias are added to what the tensors hold"),
};

/* ---------------------------------------------------------------- check and plan */

static saker_status check(skr_call *call, const skr_view *v, const void *args, void *job, bool *empty)
{
    static const skr_alias_pair allowed[] = {{X, Y}, {RESIDUAL, RESIDUAL_OUT}};
    const saker_layer_norm_args *a = args;
    skr_norm_args given = {.x = &v[X],
                           .weight = &v[WEIGHT],
                           .bias = &v[BIAS],
                           .residual = &v[RESIDUAL],
                           .y = &v[Y],
                           .residual_out = &v[RESIDUAL_OUT],
                           .mean = &v[MEAN],
                           .rstd = &v[RSTD],
                           .y_quant = &v[Y_QUANT],
                           .y_scale = &v[Y_SCALE],
                           .eps = a->eps,
                           .weight_offset = a->weight_offset,
                           .round_before_weight = a->round_before_weight,
                           .quant = a->quant};
    *empty = v[X].count == 0;
    SKR_TRY(skr_norm_check(call, &given, job));
    return skr_check_alias(call, v, N_FIELDS, allowed, sizeof allowed / sizeof *allowed);
}

static saker_status check_backward(skr_call *call, const skr_view *v, const void *args, void *job, bool *empty)
{
    static const skr_alias_pair allowed[] = {{B_DY, B_DX}, {B_DRES, B_DX}};
    const saker_layer_norm_backward_args *a = args;
    skr_norm_backward_args given = {.dy = &v[B_DY],
                                    .x = &v[B_X],
                                    .weight = &v[B_WEIGHT],
                                    .mean = &v[B_MEAN],
                                    .rstd = &v[B_RSTD],
                                    .dres = &v[B_DRES],
                                    .dx = &v[B_DX],
                                    .dweight = &v[B_DWEIGHT],
                                    .dbias = &v[B_DBIAS],
                                    .eps = a->eps,
                                    .weight_offset = a->weight_offset,
                                    .round_before_weight = a->round_before_weight,
                                    .accumulate = a->accumulate};
    SKR_TRY(skr_norm_backward_check(call, &given, job, empty));
    return skr_check_alias(call, v, N_B_FIELDS, allowed, sizeof allowed / sizeof *allowed);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_norm_plan_cuda(call, job, target, out);
    return skr_norm_plan_cpu(call, job, target, out);
}

static saker_status plan_backward(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_norm_backward_plan_cuda(call, job, target, out);
    return skr_norm_backward_plan_cpu(call, job, target, out);
}

const skr_op skr_op_layer_norm = {
    .info = {.name = "layer_norm",
             .doc = "normalisation of rows to mean 0 and variance 1, with residual, weight, bias and quantised output",
             .fields = fields,
             .n_fields = N_FIELDS,
             .args_size = sizeof(saker_layer_norm_args)},
    .v1_size = sizeof(saker_layer_norm_args),
    .job_size = sizeof(skr_norm_job),
    .check = check,
    .plan = plan,
};

const skr_op skr_op_layer_norm_backward = {
    .info = {.name = "layer_norm_backward",
             .doc = "gradients of layer_norm: dx (and dresidual), dweight, dbias",
             .fields = backward_fields,
             .n_fields = N_B_FIELDS,
             .args_size = sizeof(saker_layer_norm_backward_args)},
    .v1_size = sizeof(saker_layer_norm_backward_args),
    .job_size = sizeof(skr_norm_backward_job),
    .check = check_backward,
    .plan = plan_backward,
};
