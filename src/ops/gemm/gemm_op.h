/* gemm_op.h - what the definitions of gemm's operations share: checks (gemm.c) and the CPU plan (gemm_plan.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_OP_H
#define SKR_GEMM_OP_H

#include "../../core/op.h"
#include "../../core/plan.h"
#include "gemm.h"

extern const uint32_t skr_gemm_a_types[], skr_gemm_b_types[], skr_gemm_result_types[], skr_gemm_zero_types[];

/* Arguments whose combinations mean the same in gemm and grouped_gemm. */
typedef struct skr_gemm_options {
    const skr_view *a, *b, *d, *c, *bias, *pre, *saved, *a_scale, *b_scale, *b_zero;
    int64_t group;
    float alpha, beta;
    int32_t scaling, act, gated;
} skr_gemm_options;
/* From the views v and the arguments of either, whose fields have the same names. */
#define SKR_GEMM_OPTIONS(v, args)                                                                                      \
    {                                                                                                                  \
        &v[A], &v[B], &v[D], &v[C], &v[BIAS], &v[PRE], &v[SAVED], &v[A_SCALE], &v[B_SCALE], &v[B_ZERO], (args)->group, \
            (args)->alpha, (args)->beta, (args)->scaling, (args)->act, (args)->gated                                   \
    }
saker_status skr_gemm_check_options(skr_call *call, const skr_gemm_options *o);

/* a's type, b and scaling fit together. */
saker_status skr_gemm_check_types(skr_call *call, int a_type, int b_type, int scaling, int64_t group);
/* An i4 row begins at a whole byte. */
saker_status skr_gemm_check_nibbles(skr_call *call, const skr_view *b);
/* b of u8 becomes the i4 that its bytes hold: two along K where it has not `rows` rows, else along N; rows < 0: along
 * the dimension whose elements are neighbours. packed: gemm_pack has put them elsewhere. */
saker_status skr_gemm_open_bytes(skr_call *call, int64_t rows, bool packed, skr_view *b);

/* Scales that change along k: products of groups of k are scaled apart; in f32 the operands are, while packing. */
static inline bool skr_gemm_scaled_in_k(const skr_gemm_job *job)
{
    return job->scaling == SKR_GEMM_BLOCK || job->scaling == SKR_GEMM_GROUP;
}

/* Arithmetic, register tile, k blocks and panels; returns the arithmetic's name. */
const char *skr_gemm_shape(skr_gemm_job *job, const char *level);
/* k's of a segment and blocks for job->k; after skr_gemm_shape, when k is another. */
void skr_gemm_cut_k(skr_gemm_job *job);
/* How many panels are a task of the packing step. */
int64_t skr_gemm_panels_per_task(const skr_gemm_job *job, int64_t panels, int width);
/* Bytes of all panels of one batch. width: mr or nr. */
int64_t skr_gemm_panels_bytes(const skr_gemm_job *job, int64_t panels, int width);
/* Tasks: tile_m and tile_n, for so many products of this size. */
void skr_gemm_cut_tiles(skr_gemm_job *job, int64_t products, int width);
/* Scratch memory of a worker; sets scale_bytes. */
int64_t skr_gemm_scratch(skr_gemm_job *job);
/* What begins the packed b of such a job. */
skr_gemm_tag skr_gemm_tag_of(const skr_gemm_job *job, const char *level);
/* The transposed product, where nothing forbids it. */
bool skr_gemm_may_swap(const skr_gemm_job *job);
void skr_gemm_swap(skr_gemm_job *job);
/* The plain product d [m, n] = a [m, k] x b [k, n] of a job that is all zero but for its head; other options are the
 * caller's to set. Operations that multiply matrices make parts of their plan of it. */
void skr_gemm_product(skr_gemm_job *job, int64_t m, int64_t n, int64_t k, skr_gemm_matrix a, skr_gemm_matrix b,
                      skr_gemm_matrix d);
saker_status skr_gemm_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan);
/* The same of grouped_gemm, for groups of rows, `total` in all: b and d have a stride between groups. offsets are the
 * caller's to set, with the other options. */
void skr_grouped_gemm_product(skr_grouped_gemm_job *job, int64_t groups, int64_t total, int64_t n, int64_t k,
                              skr_gemm_matrix a, skr_gemm_matrix b, skr_gemm_matrix d);
saker_status skr_grouped_gemm_plan(skr_call *call, void *job, const skr_target *target, skr_plan *plan);
/* v, where it is given, has `ndim` dimensions (up to three) of these sizes; -1: any. The sentence ends with the three
 * texts. */
saker_status skr_grouped_gemm_check_dims(skr_call *call, const skr_view *v, const char *before, const char *reason,
                                         const char *behind, int ndim, const int64_t want[3]);

#endif
