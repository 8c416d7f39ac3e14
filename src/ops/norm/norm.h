/* norm.h - the jobs of rms_norm and layer_norm and of their gradients: one struct for both, told apart by centre.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Forward:  s = x + residual (rounded to residual_out's type where that is stored)
 *           c = s, or with centre s - mean(s);  rstd = 1 / sqrt(mean(c^2) + eps);  y = c * rstd * (w + offset) + b
 * Backward: h = x * rstd, or with centre (x - mean) * rstd;  g = dy * (w + offset)
 *           dx = rstd * (g - h * mean(g * h)) + dres, with centre also less rstd * mean(g)
 *           dw = sum_rows dy * h;  db = sum_rows dy
 * Parameters with heads: row r uses parameter row r % heads. */
#ifndef SKR_NORM_H
#define SKR_NORM_H

#include "../../core/job.h"

/* What the CPU plan adds to a job. The row kernels see parameters as f32 rows only: the tensor itself where it is that
 * already, else a copy that the first step makes in the workspace. Offsets are bytes into the workspace. */
enum { SKR_STEP_PARAMS, SKR_STEP_ROWS, SKR_STEP_SUM };
/* Elements of one head's row that a task of the first and of the last step takes. */
enum { SKR_PARAM_PIECE = 65536, SKR_SUM_PIECE = 2048 };
typedef struct skr_norm_cpu {
    int64_t weight_at, bias_at;         /* the copies; -1: none */
    int64_t weight_stride, bias_stride; /* elements from one head's row to the next */
    int64_t scratch_at, scratch_bytes;  /* rows of f32 for each worker */
    int64_t dweight_at, dbias_at;       /* partial sums [n_parts, heads, N] */
    int32_t apart;                      /* the copies and the sums are moved to other sets of L1 than x has */
    int64_t rows_per_task;
} skr_norm_cpu;

typedef struct skr_norm_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;
    int64_t heads; /* 1 when parameters are [N] */
    skr_rows x, residual, y, residual_out, y_quant;
    skr_rows mean;  /* one f32 a row; only with centre */
    skr_rows rstd;  /* one f32 a row */
    skr_rows scale; /* per row or per block: f32; QUANT_TENSOR: data points at the one given f32 */
    skr_param weight, bias;
    float eps, weight_offset;
    int32_t round_before_weight;
    int32_t quant;
    int32_t centre; /* layer_norm */
    int32_t reserved;
    skr_norm_cpu cpu;
} skr_norm_job;

/* CPU: whether a worker holds s in a row of its own, for it is read again: it is stored nowhere, or past the caches. */
SKR_INLINE int skr_norm_holds_s(const skr_norm_job *job)
{
    return job->residual_out.data ? skr_past(&job->head) : job->residual.data != 0;
}

typedef struct skr_norm_backward_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;
    int64_t heads;
    skr_rows dy, x, dres, dx;
    skr_rows mean; /* only with centre; there when rstd is */
    skr_rows rstd; /* absent: recomputed from x with eps */
    skr_param weight, dweight, dbias;
    float eps, weight_offset;
    int32_t round_before_weight;
    int32_t accumulate;
    int32_t centre; /* layer_norm_backward */
    int32_t reserved;
    /* dweight and dbias are sums of n_parts partial rows, a function of the problem only. */
    int64_t n_parts;
    int64_t rows_per_part;
    int64_t stats_at; /* CUDA, the kernels that take anything: statistics that were not saved, in the workspace */
    skr_norm_cpu cpu;
} skr_norm_backward_job;

#endif
