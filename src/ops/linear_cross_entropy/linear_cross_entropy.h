/* linear_cross_entropy.h - the job of linear_cross_entropy's own kernels: dbias, and the ends of rows of logits.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   dbias[c] = sum over the rows of dlogits[row, c]
 * The rows come in pieces. A piece is cut into parts of rows, whose sums (f32, in f64 every SKR_LCE_RUN rows) are added
 * in order to what the pieces before it left in f64; the last one rounds it once.
 *   ends (CUDA): the columns of x from `columns` on, up to a vector's end, become -infinity
 * Everything else of the operation is done by the kernels of gemm and cross_entropy. */
#ifndef SKR_LINEAR_CROSS_ENTROPY_H
#define SKR_LINEAR_CROSS_ENTROPY_H

#include "../../core/job.h"

/* Columns of a task on the CPU; rows that are added in f32. */
enum { SKR_LCE_COLUMNS = 256, SKR_LCE_RUN = 64 };
/* CUDA: threads of a block, the rows that they read at once. */
enum { SKR_LCE_THREADS = 256, SKR_LCE_GROUPS = SKR_LCE_THREADS / 32 };

typedef struct skr_lce_columns_job {
    skr_job_head head;
    void *x; /* [rows, pitch], 16-byte aligned as the pitch is: logits (ends), dlogits; behind them anything */
    int64_t rows, columns, pitch;
    int32_t type, first, last; /* whether it is the first piece, the last one */
    int32_t accumulate;
    skr_param dbias; /* stride: between elements */
    double *sums;    /* [columns], from piece to piece; not used where there is one piece */
    /* CUDA plan */
    int64_t part_rows; /* of a part */
    int32_t parts;     /* whose sums lie in the workspace, f64 [parts, pitch] */
    int32_t blocks;    /* of a part */
} skr_lce_columns_job;

#endif
