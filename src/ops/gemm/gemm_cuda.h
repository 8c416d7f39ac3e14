/* gemm_cuda.h - what the files of gemm's CUDA plan share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_CUDA_H
#define SKR_GEMM_CUDA_H

#include "../../cuda/launch.h"
#include "gemm_op.h"

/* The names of a kernel, by schedule; at SKR_GEMM_AUTO that with groups, which have no schedule. */
#define SKR_GEMM_VARIANTS(text)                                                                                        \
    {                                                                                                                  \
        text " groups", text " data-parallel", text " persistent", text " split-K", text " stream-K"                   \
    }
enum { SKR_GEMM_N_VARIANTS = SKR_GEMM_STREAM_K + 1 };

/* How a schedule cuts tiles of so many k steps among the units that a GPU holds at once. */
skr_gemm_cut skr_gemm_cut_of(int schedule, int64_t tiles, int64_t steps, int64_t resident);
/* How many clusters of so many blocks run at once, a block on an SM. A cluster lies in one group of SMs, whose sizes
 * differ from chip to chip: 32 clusters of 4 did not fit on 132 SMs, so larger ones than 2 are given three quarters. */
int64_t skr_gemm_clusters(const skr_target *target, int cluster);
/* Whether to weigh a schedule against others: the one that was asked for; else all but data-parallel, which persistent
 * blocks do better, and those that cut without anything to cut. */
bool skr_gemm_may_cut(const skr_gemm_job *job, int schedule, const skr_gemm_cut *cut);

saker_status skr_gemm_plan_cuda(skr_call *call, skr_gemm_job *job, const skr_target *target, skr_plan *plan);

/* Adds the step of a Hopper kernel and takes its workspace at *at; false when none takes the job. Where it leaves
 * sums in the workspace, gemm_finish.cuh comes next. */
bool skr_gemm_plan_tma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at);

/* 8-bit types and f32 (tf32) with m or n along memory, which Hopper's instructions want with k along it: worth a copy
 * where there is enough to multiply. */
bool skr_gemm_may_turn(const skr_gemm_job *job);
/* Adds the step that turns a or b, and takes memory for it. Returns where. */
int64_t skr_gemm_add_turn(const skr_gemm_job *job, skr_plan *plan, bool b, int64_t *at);
/* The matrix a or b, or its copy at `at`; -1: it has none. */
skr_gemm_matrix skr_gemm_turned(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t at, bool b);

/* The same for few rows of a, or few columns of b, which is the same transposed: up to 64, with i4 or i8 weights in
 * groups (rows of a only) up to 512. It writes d itself. */
bool skr_gemm_plan_few(skr_gemm_job *job, const skr_target *target, skr_plan *plan);

/* Whether b is i4 or i8; whether Hopper's kernels take such weights (gemm_code_stages.cuh), the box of b that these
 * have, and their job's seg. */
bool skr_gemm_are_codes(const skr_gemm_job *job);
bool skr_gemm_suits_codes(const skr_gemm_job *job);
const char *skr_gemm_code_box(const skr_gemm_job *job, skr_matrix_box *out);
int64_t skr_gemm_code_groups(const skr_gemm_job *job);
/* What gemm_few_vectors writes. */
bool skr_gemm_in_vectors(const skr_gemm_job *job);
/* That, and nothing but one factor. */
bool skr_gemm_few_plain(const skr_gemm_job *job);
/* gemm_few.cuh and gemm_many.cuh, for tiles of so many rows of a. What both ask of a product, whose schedule is that or
 * left to the plan; boxes of a and b, NULL, or what stands in the way of the copy engine; the fields of job.work that
 * both have, for steps of so many k's; the plan's step, when the others are there, too. */
bool skr_gemm_suits_few(const skr_gemm_job *job, const skr_target *target, int schedule);
const char *skr_gemm_few_boxes(const skr_gemm_job *job, int tile_rows, skr_matrix_box out[2]);
void skr_gemm_few_work(skr_gemm_job *job, int tile_rows, int64_t tiles_n, int64_t step);
void skr_gemm_few_step(skr_gemm_job *job, skr_plan *plan, skr_cuda_kernel *kernel);
/* As skr_gemm_plan_few, for more rows and such weights. */
bool skr_gemm_plan_many(skr_gemm_job *job, const skr_target *target, skr_plan *plan);
/* Microseconds that it would take. */
double skr_gemm_many_us(const skr_gemm_job *job, const skr_target *target);

/* Few rows of floats with i4 or i8 weights in groups. Adds its step, which writes d itself. */
bool skr_gemm_plan_codes(skr_gemm_job *job, const skr_target *target, skr_plan *plan);

/* Every vector of `bytes` of the matrix, whose `rows` rows (of b: columns) are `pitch` elements apart, begins at a
 * multiple of them. */
bool skr_gemm_aligned(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t pitch, int64_t rows, int bytes);
/* Whether all scales (or zero points) are less than 2^31 elements apart, so that kernels may count them by 32 bits. */
bool skr_gemm_near(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t rows, int64_t cols);
/* 0: the second index runs along memory, 1: the first does, -1: neither. */
int skr_gemm_along(const skr_gemm_matrix *m, int64_t rows, int64_t cols);
/* No option but those that Hopper's kernels have themselves, and rows of d in vectors. */
bool skr_gemm_writes_itself(const skr_gemm_job *job);
/* Of skr_gemm_work.plain, by the job's options: 0 where there are others than factors, or d is not of 16 bits. */
int skr_gemm_plain_of(const skr_gemm_job *job);

/* As skr_gemm_plan_tma, for the matrix instructions that every GPU has. */
bool skr_gemm_plan_mma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at);

/* The same for true f32, on the multiply-add units. */
bool skr_gemm_plan_fma(skr_gemm_job *job, const skr_target *target, skr_plan *plan, int64_t *at);

/* What Hopper's copy engine reads or writes: the matrix [rows, cols], along its first index where `turned`, in boxes of
 * 128-byte rows. NULL, or what stands in the way. */
const char *skr_gemm_box(const skr_gemm_job *job, const skr_gemm_matrix *m, int64_t rows, int64_t cols, bool turned,
                         int box_rows, skr_matrix_box *out);

saker_status skr_grouped_gemm_plan_cuda(skr_call *call, skr_grouped_gemm_job *job, const skr_target *target,
                                        skr_plan *plan);
/* Adds the step that makes the table of groups, for tiles of job.groups.rows. */
void skr_gemm_plan_table(skr_plan *plan);
/* Table and product; false when these kernels do not take the job. */
bool skr_gemm_plan_mma_groups(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan);
/* The same for the general kernels, which take all. */
void skr_gemm_plan_any_groups(skr_grouped_gemm_job *job, const skr_target *target, skr_plan *plan);

#endif
