/* moe.h - the job of moe's own kernel: the weighted sum of what a token's experts gave.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   y[t] = sum over j of weights[t, j] * z[place[t * k + j]]
 * j in order, in f32, rounded once. A place outside of the rows adds nothing. Everything else of the operation is done
 * by the kernels of grouped_gemm and, on a GPU, of embedding. */
#ifndef SKR_MOE_H
#define SKR_MOE_H

#include "../../core/job.h"

/* CPU: columns of y that are summed at once; a GPU's threads of a block. */
enum { SKR_MOE_COLUMNS = 1024, SKR_MOE_THREADS = 256 };

typedef struct skr_moe_combine_job {
    skr_job_head head;
    const void *z; /* [t * k, pitch], 16-byte aligned as the pitch is */
    int64_t t, k, h, pitch;
    int32_t z_type, reserved;
    skr_param place;        /* stride: between elements */
    skr_param weights, y;   /* stride: between rows */
    int64_t weights_column; /* stride between a row's weights */
    int64_t rows_per_task;  /* CPU plan */
} skr_moe_combine_job;

#endif
