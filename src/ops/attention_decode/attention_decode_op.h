/* attention_decode_op.h - what the definition of attention_decode is made of: checks and plans.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_DECODE_OP_H
#define SKR_ATTENTION_DECODE_OP_H

#include "../../core/op.h"
#include "../../core/plan.h"
#include "attention_decode.h"

/* Tensors, in the order of the field table. */
enum {
    SKR_DECODE_Q,
    SKR_DECODE_K_CACHE,
    SKR_DECODE_V_CACHE,
    SKR_DECODE_LENGTHS,
    SKR_DECODE_O,
    SKR_DECODE_LSE,
    SKR_DECODE_TABLE,
    SKR_DECODE_K_NEW,
    SKR_DECODE_V_NEW,
    SKR_DECODE_COS,
    SKR_DECODE_SIN,
    SKR_DECODE_K_SCALE,
    SKR_DECODE_V_SCALE,
    SKR_DECODE_SLOPES,
    SKR_DECODE_SINKS,
    SKR_DECODE_TENSORS
};

/* Fills the job from tensors and options (attention_decode_check.c). */
saker_status skr_attention_decode_check(skr_call *call, const skr_view *v, const void *args, void *job, bool *empty);
/* Keys of a part, where there shall be at least `wanted` parts of all sequences and heads. */
int64_t skr_attention_decode_split(const skr_attention_decode_job *job, int64_t wanted, int64_t least, int64_t most);
saker_status skr_attention_decode_plan_cuda(skr_call *call, skr_attention_decode_job *job, const skr_target *target,
                                            skr_plan *plan);

#endif
