/* attention_cuda.h - what the CUDA plans of attention's operations share. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_CUDA_H
#define SKR_ATTENTION_CUDA_H

#include "../../cuda/rows_plan.h"
#include "attention_op.h"

/* Bytes of keys and values that are read again and again at the same time: half of Hopper's L2 cache. */
#define SKR_ATTENTION_L2 (INT64_C(24) << 20)

/* Bytes of shared memory that kernels declare themselves, at most. */
#define SKR_ATTENTION_OWN 1024

/* A row of attention_kernels.def. */
#define KIND_plain  SKR_ATTENTION_PLAIN
#define KIND_scored SKR_ATTENTION_SCORED
#define KIND_any    SKR_ATTENTION_ANY
#define KIND_small  SKR_ATTENTION_ANY
#define TYPE_f32    SKR_F32
#define TYPE_f16    SKR_F16
#define TYPE_bf16   SKR_BF16
#define BYTES_f32   4
#define BYTES_f16   2
#define BYTES_bf16  2
typedef struct skr_attention_shape {
    int kind, type, d, dv, rows, columns, threads, shared_bytes;
    const char *variant;
} skr_attention_shape;
#define SKR_KERNEL_OF(fatbin, symbol, shared) SKR_KERNEL(fatbin, symbol, shared, 1)

/* Scored kernels keep a tile of bias behind all else in shared memory. */
static inline int skr_attention_bias_bytes(const skr_attention_shape *s, const skr_attention_job *job)
{
    return s->kind == SKR_ATTENTION_SCORED && job->bias.data ? s->rows * s->columns * skr_type_bytes(job->bias.type)
                                                             : 0;
}

/* A kernel of a kind can do what those before it do. */
static inline bool skr_attention_can(const skr_attention_shape *s, const skr_attention_job *job, int type, int kind)
{
    return s->type == type && s->d >= job->d && s->dv >= job->d_v && s->kind >= kind;
}

/* One that needs too much shared memory leaves the work to those behind it; what the last one needs is reported. */
static inline bool skr_attention_fits(const skr_attention_shape *s, const skr_attention_job *job,
                                      const skr_target *target)
{
    return s->shared_bytes + skr_attention_bias_bytes(s, job) + SKR_ATTENTION_OWN <= target->shared_bytes;
}

/* Says that a kernel needs more shared memory than there is. */
saker_status skr_attention_refuse(skr_call *call, const skr_attention_job *job, const skr_target *target,
                                  const skr_attention_shape *s);

/* Rows of t are whole chunks of 16 bytes of this type. */
bool skr_attention_aligned(const skr_attention_rows *t, int type, int64_t width);
/* Rows of t are pairs of elements of this type. */
bool skr_attention_pairs(const skr_attention_rows *t, int type, int64_t width);
/* The least that a kernel must know for these scores, where all tensors are aligned. */
int skr_attention_kind(const skr_attention_job *job);
/* What plain and scored kernels multiply scores and options by. */
void skr_attention_units(skr_attention_job *job);
/* Refuses what cannot be counted in 32 bits, and adds the step that makes the table of sequences. */
saker_status skr_attention_plan_spans(skr_call *call, skr_attention_job *job, int64_t *at, skr_plan *plan);
/* Pieces of s->rows queries, or keys, of all heads; with cu_seqlens as many as there may be. */
int64_t skr_attention_pieces(const skr_attention_job *job, const skr_attention_shape *s, bool keys);
/* Adds a step: a block for each piece. *step is NULL where there are none. */
saker_status skr_attention_add_kernel(skr_call *call, skr_attention_job *job, const skr_target *target, bool keys,
                                      skr_cuda_kernel *kernel, const skr_attention_shape *s, skr_plan *plan,
                                      skr_step **step);
/* The kernel for Hopper that takes the job, or NULL. */
const skr_attention_shape *skr_attention_tma(skr_attention_job *job, const skr_target *target, skr_plan *plan);
/* Adds its step and the one that computes again what it marks, by a kernel of any kind with as many rows. */
saker_status skr_attention_add_tma(skr_call *call, skr_attention_job *job, const skr_target *target,
                                   const skr_attention_shape *s, skr_cuda_kernel *again,
                                   const skr_attention_shape *again_shape, int64_t *at, skr_plan *plan);
/* Adds a step of blocks that stay and take pieces, one after the other. */
saker_status skr_attention_add_staying(skr_call *call, skr_attention_job *job, const skr_target *target, bool keys,
                                       skr_cuda_kernel *kernel, const skr_attention_shape *s, skr_plan *plan);
/* The kernel for Hopper that makes dq, where it and the one of dk and dv take the job, or NULL. */
const skr_attention_shape *skr_attention_tma_gradient(skr_attention_job *job, const skr_target *target, skr_plan *plan);
/* The kernel for Hopper that makes dk, dv and the sums of dq, where skr_attention_tma_gradient() says yes, or NULL. */
const skr_attention_shape *skr_attention_tma_sums(const skr_attention_job *job, const skr_target *target);
/* What they need of the workspace. */
void skr_attention_take_tma_gradient(skr_attention_job *job, const skr_target *target, int64_t *at, skr_plan *plan);
/* Adds the step of dk and dv, with sums_at also of the sums of dq, or the step of dq. */
saker_status skr_attention_add_tma_gradient(skr_call *call, skr_attention_job *job, const skr_target *target, bool keys,
                                            skr_plan *plan);
saker_status skr_attention_backward_plan_cuda(skr_call *call, skr_attention_job *job, const skr_target *target,
                                              skr_plan *plan);
saker_status skr_attention_merge_plan_cuda(skr_call *call, skr_attention_merge_job *job, const skr_target *target,
                                           skr_plan *plan);

#endif
