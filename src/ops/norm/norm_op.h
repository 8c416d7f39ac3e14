/* norm_op.h - the checks and plans that rms_norm and layer_norm share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_NORM_OP_H
#define SKR_NORM_OP_H

#include "../../core/plan.h"
#include "norm.h"

/* The arguments of either op. mean is NULL where the op has none, and that tells them apart. */
typedef struct skr_norm_args {
    const skr_view *x, *weight, *bias, *residual, *y, *residual_out, *mean, *rstd, *y_quant, *y_scale;
    float eps, weight_offset;
    int32_t round_before_weight, quant;
} skr_norm_args;

typedef struct skr_norm_backward_args {
    const skr_view *dy, *x, *weight, *mean, *rstd, *dres, *dx, *dweight, *dbias;
    float eps, weight_offset;
    int32_t round_before_weight, accumulate;
} skr_norm_backward_args;

/* Everything that check() decides but the overlaps, which need the op's own field numbers. */
saker_status skr_norm_check(skr_call *call, const skr_norm_args *a, skr_norm_job *job);
saker_status skr_norm_backward_check(skr_call *call, const skr_norm_backward_args *a, skr_norm_backward_job *job,
                                     bool *empty);

saker_status skr_norm_plan_cpu(skr_call *call, skr_norm_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_norm_backward_plan_cpu(skr_call *call, skr_norm_backward_job *job, const skr_target *target,
                                        skr_plan *plan);

/* norm_cuda.c, norm_backward_cuda.c */
saker_status skr_norm_plan_cuda(skr_call *call, skr_norm_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_norm_backward_plan_cuda(skr_call *call, skr_norm_backward_job *job, const skr_target *target,
                                         skr_plan *plan);

#endif
