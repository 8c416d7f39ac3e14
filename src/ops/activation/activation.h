/* activation.h - the jobs of activation and activation_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Forward:  g = gate + bias, u = up + bias;  y = act(g), gated act(g) * u
 * Backward: dgate = dy * (u * act'(g)), dup = dy * act(g);  dbias = sums of both over the rows
 * gate is x itself where nothing is gated. Gate and up inside of one tensor are two row tensors with the same strides
 * whose elements are `step` apart. */
#ifndef SKR_ACTIVATION_H
#define SKR_ACTIVATION_H

#include "../../core/job.h"

/* CPU: the steps, the columns that a task of the first and of the last takes. */
enum { SKR_ACT_PARAMS, SKR_ACT_ROWS, SKR_ACT_SUM, SKR_ACT_PARAM_PIECE = 65536, SKR_ACT_SUM_PIECE = 2048 };

/* CUDA: vectors of a thread of the flat forward kernels. Of two the loads are under way together, and addresses and
 * switches are made once; what has several operands or four elements a vector has enough of both. */
#define SKR_ACT_VECTORS(type, form) ((type) != SKR_F32 && (form) == 0 ? 2 : 1)

/* What both directions know of a call. */
typedef struct skr_act_head {
    skr_row_space rows;
    int64_t n;         /* columns of y */
    skr_rows gate, up; /* up absent: not gated */
    skr_param bias;    /* [n], gated [2n] */
    int32_t act;
    int32_t step; /* elements between neighbours of gate and of up: 2 when they are interleaved, else 1 */
    int32_t bias_step;
    int32_t gated;
    int64_t bias_up; /* bias of column c: element c * bias_step; of up: bias_up further */
    float alpha, limit;
    skr_flat flat;
    /* f32 copy of the bias in the workspace (CPU; -1: none), and how rows are cut into tasks. */
    int64_t bias_at, rows_per_task, piece, pieces;
} skr_act_head;

typedef struct skr_activation_job {
    skr_job_head head;
    skr_act_head a;
    skr_rows y, y_quant, scale;
    int32_t quant;
    int32_t reserved;
    int64_t scratch_at, scratch_bytes; /* CPU: a row of f32 for each worker */
} skr_activation_job;

typedef struct skr_activation_backward_job {
    skr_job_head head;
    skr_act_head a;
    skr_rows dy, dgate, dup;
    skr_param dbias;
    int32_t accumulate;
    int32_t reserved;
    int64_t n_parts, rows_per_part; /* of dbias: partial rows at the start of the workspace (CPU: at sums_at) */
    int64_t sums_at;
} skr_activation_backward_job;

#endif
