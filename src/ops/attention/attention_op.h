/* attention_op.h - what the definitions of attention's operations share: checks (attention_check.c) and plans.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_OP_H
#define SKR_ATTENTION_OP_H

#include "../../core/op.h"
#include "../../core/plan.h"
#include "attention.h"

/* Options that mean the same in attention and attention_backward. */
typedef struct skr_attention_options {
    int64_t seed, offset, window_left, window_right, max_q, max_k, descale_block;
    float scale, softcap, dropout, p_scale;
    int32_t layout, causal, top_left, has_window, id_rule;
} skr_attention_options;

/* The tensors that both have. Absent ones may be NULL. */
typedef struct skr_attention_views {
    const skr_view *q, *k, *v, *o, *lse, *bias, *mask, *key_mask, *slopes, *sinks, *cu_q, *cu_k, *q_positions,
        *k_positions, *q_ids, *k_ids;
} skr_attention_views;

/* Fills the job with everything that both have; the rest is 0. */
saker_status skr_attention_check_common(skr_call *call, const skr_attention_views *v, const skr_attention_options *o,
                                        skr_attention_job *job);
/* A tensor of ref's shape in the layout, the elements of a head side by side. Absent: out is empty. */
saker_status skr_attention_check_rows(skr_call *call, const skr_view *v, const skr_view *ref, int layout,
                                      skr_attention_rows *out);
/* f32 [B, H, S], or [H, T]. */
saker_status skr_attention_check_stat(skr_call *call, const skr_view *v, const skr_attention_job *job,
                                      skr_attention_stat *out);
/* f32 [H] or [B, H] (batches: allowed). */
saker_status skr_attention_check_heads(skr_call *call, const skr_view *v, int64_t heads, int64_t batch,
                                       skr_attention_scales *out);
/* The rank of q, o and the like for a layout. */
saker_status skr_attention_check_rank(skr_call *call, const skr_view *v, int layout);
/* Which dimensions of a layout are batch (-1: none), token and head. */
typedef struct skr_attention_places {
    int batch, token, head;
} skr_attention_places;
extern const skr_attention_places skr_attention_place_of[3];

saker_status skr_attention_plan_cpu(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan);
saker_status skr_attention_plan_cuda(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan);

#endif
