/* attention_cuda.h - what the CUDA plans of attention's operations share. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_CUDA_H
#define SKR_ATTENTION_CUDA_H

#include "../../cuda/rows_plan.h"
#include "attention_op.h"

/* Bytes of keys and values that are read again and again at the same time: half of Hopper's L2 cache. */
#define SKR_ATTENTION_L2 (INT64_C(24) << 20)

/* Rows of t are whole chunks of 16 bytes of this type. */
bool skr_attention_aligned(const skr_attention_rows *t, int type, int64_t width);
/* Scores are q . k * scale, between limits. */
bool skr_attention_plain_scores(const skr_attention_job *job);
/* Refuses what cannot be counted in 32 bits, and adds the step that makes the table of sequences. */
saker_status skr_attention_plan_spans(skr_call *call, skr_attention_job *job, int64_t *at, skr_plan *plan);
/* A block for each piece of `size` queries, or keys, of each head. */
saker_status skr_attention_plan_grid(skr_call *call, skr_attention_job *job, bool keys, int size, skr_step *step);
saker_status skr_attention_merge_plan_cuda(skr_call *call, skr_attention_merge_job *job, const skr_target *target,
                                           skr_plan *plan);

#endif
