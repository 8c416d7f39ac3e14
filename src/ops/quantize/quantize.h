/* quantize.h - the job of quantize and dequantize.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A unit of the job is a slab of rows: one row, or with BLOCK2D up to 128 rows of a matrix, x_step and q_step apart.
 * `group` neighbouring columns of a slab share a scale. i4 codes are bytes with two of them; strides of q are then in
 * bytes. */
#ifndef SKR_QUANTIZE_H
#define SKR_QUANTIZE_H

#include "../../core/job.h"

/* CPU: the steps. PARTS and FOLD find the scale of a whole tensor. */
enum { SKR_QUANTIZE_PARTS, SKR_QUANTIZE_FOLD, SKR_QUANTIZE_CODES };

typedef struct skr_quantize_job {
    skr_job_head head;
    skr_row_space rows; /* of slabs */
    int64_t n, group;
    skr_rows x, q, scale; /* x: the float tensor; scale of TENSOR: data points at the one f32 */
    int32_t type;         /* of the codes; SKR_I4: packed */
    int32_t quant;
    int32_t dynamic;
    int32_t slab;           /* rows of a slab: 1 or 128 */
    int64_t matrix, slabs;  /* BLOCK2D: rows of a matrix, slabs of a matrix */
    int64_t x_step, q_step; /* elements between the rows of a slab */
    /* CPU plan */
    int64_t slabs_per_task, piece, pieces, n_tasks;
    /* CUDA plan; n_parts: blocks that leave a partial maximum */
    skr_flat flat;
    int64_t n_parts;
} skr_quantize_job;

#endif
