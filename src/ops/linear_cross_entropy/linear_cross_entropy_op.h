/* linear_cross_entropy_op.h - the whole call, and what its plan shares with the CUDA half.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_LINEAR_CROSS_ENTROPY_OP_H
#define SKR_LINEAR_CROSS_ENTROPY_OP_H

#include "../../core/plan.h"
#include "../cross_entropy/cross_entropy_plan.h"
#include "../gemm/gemm_op.h"
#include "linear_cross_entropy.h"

/* No kernel sees it: the parts of the plan have jobs of their own. */
typedef struct skr_linear_cross_entropy_job {
    skr_job_head head;
    skr_cross_entropy_job rows; /* the losses of all rows; logits and dlogits are those of a piece, in the workspace */
    skr_rows x, dx;
    skr_gemm_matrix weight, dweight;
    skr_param bias, dbias;
    int64_t h, chunk_rows;
    int32_t accumulate, allow_tf32;
    /* Plan. Rows are one run for each index of the outer dimensions, and a run is cut into pieces. */
    int64_t run, pieces_of_run, pieces, chunk;
    int64_t pitch;      /* elements between rows of logits */
    int64_t ends;       /* CUDA: columns behind the last that the losses take along */
    int64_t logits_at;  /* [chunk, pitch] of x's type */
    int64_t dweight_at; /* f32 [V, H] where dweight has another type and there are several pieces; else -1 */
    int64_t sums_at;    /* skr_lce_columns_job.sums, or -1 */
    int64_t scratch_at; /* of the part that runs */
} skr_linear_cross_entropy_job;

saker_status skr_linear_cross_entropy_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan);

/* Written beside the CUDA kernels. */
saker_status skr_lce_columns_plan_cuda(skr_call *call, skr_lce_columns_job *job, const skr_target *target,
                                       skr_plan *plan);
saker_status skr_lce_ends_plan_cuda(skr_call *call, skr_lce_columns_job *job, skr_plan *plan);

#endif
