/* gemm.h - the job of gemm.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   v = alpha * scales * (a x b) + beta * c + bias;  d = act(v), act(gate) * up, or v * act'(saved)
 * Everything is addressed by strides: a batch index gives each tensor an offset, then row and column strides.
 * On the CPU: a step that packs a and b into panels, a step of tiles of d, and one that adds up dbias. */
#ifndef SKR_GEMM_H
#define SKR_GEMM_H

#include "../../core/job.h"

/* The same numbers as saker_gemm_scaling, saker_act and saker_gated. */
enum { SKR_GEMM_NONE, SKR_GEMM_TENSOR, SKR_GEMM_ROW_COLUMN, SKR_GEMM_BLOCK, SKR_GEMM_GROUP };

/* Arithmetic of the CPU kernels (gemm_tiles.def). */
typedef enum skr_gemm_kind { SKR_GEMM_F32, SKR_GEMM_BF16, SKR_GEMM_I8, SKR_GEMM_INT, SKR_GEMM_KINDS } skr_gemm_kind;

/* CPU steps. */
enum { SKR_GEMM_PACK, SKR_GEMM_TILES, SKR_GEMM_DBIAS };
/* Columns of dbias that a task of the last step adds up; blocks of a_scale and b_scale. */
enum { SKR_GEMM_DBIAS_PIECE = 1024, SKR_GEMM_SCALE_BLOCK = 128, SKR_GEMM_MAX_MR = 32, SKR_GEMM_MAX_NR = 32 };
/* Up to so many rows of a the columns of b are not packed ahead, but used as they pass. */
enum { SKR_GEMM_SKINNY = 16 };

/* A matrix of each batch: element (i, j) of batch z is at offset(z) + i * row + j * at.col_stride. */
typedef struct skr_gemm_matrix {
    skr_rows at; /* data, type, strides over the batch's dimensions; col_stride is j's */
    int64_t row; /* i's */
} skr_gemm_matrix;

/* One register tile: what gemm_tiles.def says. */
typedef struct skr_gemm_tile {
    int32_t mr, nr, ka, kb, granule, kc;
} skr_gemm_tile;

typedef struct skr_gemm_job {
    skr_job_head head;
    skr_row_space batch;
    int64_t m, n, k; /* n: columns of b */
    skr_gemm_matrix a, b, c, d, pre, saved, a_scale, b_scale, b_zero;
    skr_param bias, dbias; /* stride: between elements */
    int64_t group;
    float alpha, beta;
    int32_t scaling, act, gated, bias_rows, accumulate, exact; /* exact: d is i32 */
    /* CPU plan */
    int32_t kind, skinny, swapped;
    skr_gemm_tile tile;
    int64_t seg, segs, seg_pad; /* k values of a segment (a k block, or a scale's group), segments of a block, padded */
    int64_t n_blocks;           /* k blocks */
    int64_t m_panels, n_panels; /* panels of a and b; gated: n_panels counts gate and up */
    int64_t a_batches, b_batches, a_batch_bytes, b_batch_bytes, a_at, b_at;
    int64_t tile_m, tile_n, m_tiles, n_tiles; /* panels of a task, tasks of a batch */
    int64_t scratch_at, scratch_bytes;        /* for each worker */
    int64_t parts_at;                         /* dbias: a row for each batch and m tile */
    int64_t a_tasks, b_tasks, a_panels_per_task, b_panels_per_task;
} skr_gemm_job;

#endif
