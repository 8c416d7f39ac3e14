/* sum_squares.h - the job of sum_squares.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The tensor is cut into parts by its size alone; each part's sum is f32 over short runs, added in f64, and the parts
 * are added in order. */
#ifndef SKR_SUM_SQUARES_H
#define SKR_SUM_SQUARES_H

#include "../../core/job.h"

enum { SKR_SQUARES_PIECE = 65536, SKR_SQUARES_RUN = 2048 };                           /* CPU, elements */
enum { SKR_SQUARES_THREADS = 256, SKR_SQUARES_UNROLL = 4, SKR_SQUARES_PARTS = 2048 }; /* CUDA */
enum { SKR_SQUARES_SUM = 0, SKR_SQUARES_FOLD = 1 };                                   /* CPU steps */

typedef struct skr_sum_squares_job {
    skr_job_head head; /* workspace: double[parts] */
    skr_row_space rows;
    int64_t n;
    skr_rows x;
    float *out;
    int64_t pieces; /* of a row */
    int64_t parts;
    int32_t accumulate;
    int32_t reserved;
} skr_sum_squares_job;

#endif
