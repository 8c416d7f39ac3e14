/* gemm_cuda.h - what the files of gemm's CUDA plan share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_CUDA_H
#define SKR_GEMM_CUDA_H

#include "../../cuda/launch.h"
#include "gemm_op.h"

saker_status skr_gemm_plan_cuda(skr_call *call, skr_gemm_job *job, const skr_target *target, skr_plan *plan);

/* Adds the step of a Hopper kernel and takes its workspace at *at; false when none takes the job. Where it leaves
 * sums in the workspace, gemm_finish.cuh comes next. */
bool skr_gemm_plan_tma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at);

/* The same for the matrix instructions that every GPU has. */
bool skr_gemm_plan_mma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at);

saker_status skr_grouped_gemm_plan_cuda(skr_call *call, skr_grouped_gemm_job *job, const skr_target *target,
                                        skr_plan *plan);
/* Adds the step that makes the table of groups, and that of the product; false: only the former, with tiles for the
 * general kernel. */
bool skr_gemm_plan_mma_groups(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan);

#endif
