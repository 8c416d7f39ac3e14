/* moe_op.h - the whole call, and what its plan shares with the CUDA half.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_MOE_OP_H
#define SKR_MOE_OP_H

#include "../gemm/gemm_op.h"
#include "moe.h"

/* One of the two products: weights [E, n, k] with what belongs to them. */
typedef struct skr_moe_layer {
    skr_gemm_matrix weight, scale, zero; /* as grouped_gemm's b: row k, column n, and a stride between experts */
    skr_param bias;                      /* stride: between elements */
    int64_t bias_stride;                 /* between experts */
    int64_t n, k;
} skr_moe_layer;

/* No kernel sees it: the parts of the plan have jobs of their own. */
typedef struct skr_moe_job {
    skr_job_head head;
    skr_moe_combine_job sum; /* z and its pitch are the plan's */
    skr_gemm_matrix x;
    skr_moe_layer up, down;
    skr_param offsets, token;
    int64_t experts, rows, group;
    int32_t act, gated, allow_tf32;
    /* Plan */
    int32_t gathers; /* the rows of x are copied first */
    int64_t x_pitch, h_pitch;
    int64_t x_at, h_at, z_at; /* rows of x, of h, of z, in x's type */
    int64_t scratch_at;       /* of the part that runs */
} skr_moe_job;

saker_status skr_moe_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan);

/* Written beside the CUDA kernels. */
saker_status skr_moe_combine_plan_cuda(skr_call *call, skr_moe_combine_job *job, const skr_target *target,
                                       skr_plan *plan);

#endif
