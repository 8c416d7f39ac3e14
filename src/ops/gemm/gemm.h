/* gemm.h - the job of gemm.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   v = alpha * scales * (a x b) + beta * c + bias;  d = act(v), act(gate) * up, or v * act'(saved)
 * Everything is addressed by strides: a batch index gives each tensor an offset, then row and column strides.
 * On the CPU: a step that packs a and b into panels, a step of tiles of d, and one that adds up dbias. gemm_pack does
 * the first for b alone. */
#ifndef SKR_GEMM_H
#define SKR_GEMM_H

#include "../../core/tile.h"

/* The same numbers as saker_gemm_scaling, saker_act and saker_gated. */
enum { SKR_GEMM_NONE, SKR_GEMM_TENSOR, SKR_GEMM_ROW_COLUMN, SKR_GEMM_BLOCK, SKR_GEMM_GROUP };
enum { SKR_GEMM_HALVES = 1, SKR_GEMM_INTERLEAVED };

/* The same numbers as saker_gemm_schedule. */
enum { SKR_GEMM_AUTO, SKR_GEMM_DATA_PARALLEL, SKR_GEMM_PERSISTENT, SKR_GEMM_SPLIT_K, SKR_GEMM_STREAM_K };

/* CPU steps. */
enum { SKR_GEMM_PACK, SKR_GEMM_PARTS, SKR_GEMM_TILES, SKR_GEMM_DBIAS };
/* Columns of dbias that a task of the last step adds up; blocks of a_scale and b_scale. */
enum { SKR_GEMM_DBIAS_PIECE = 1024, SKR_GEMM_SCALE_BLOCK = 128 };
/* Panels of b that a task with all rows has at most (gemm_columns_cpu.h). */
enum { SKR_GEMM_COLUMN_PANELS = 16 };
/* Up to so many rows of a the columns of b are not packed ahead, but used as they pass. */
enum { SKR_GEMM_SKINNY = 16 };

/* CUDA: rows and columns of the sums that a block of the general kernels writes at once. */
enum { SKR_GEMM_SIDE = 64 };
/* gemm_fma.cuh: threads of a block, k's of a step, steps in shared memory. */
enum { SKR_GEMM_FMA_THREADS = 128, SKR_GEMM_FMA_STEP = 8, SKR_GEMM_FMA_STAGES = 4 };
/* gemm_vector.cuh: threads of a block; rows of a that it takes and columns of a block, with k and with n along memory
 * in b. */
enum { SKR_GEMM_VECTOR_THREADS = 256 };
enum { SKR_GEMM_VECTOR_ROWS_K = 8, SKR_GEMM_VECTOR_COLUMNS_K = 4 };
enum { SKR_GEMM_VECTOR_ROWS_N = 4, SKR_GEMM_VECTOR_COLUMNS_N = 16 };
/* Rows of a that gemm_rows.cuh takes, and columns of b that its blocks do. */
enum { SKR_GEMM_ROWS_MOST = 16, SKR_GEMM_ROWS_COLUMNS = 32 };

/* gemm_codes.cuh: rows of a that it takes, threads of a block, chunks of codes that a warp has on their way; columns of
 * b of a block of so many rows, and its dynamic shared memory. */
enum { SKR_GEMM_CODES_MOST = 64, SKR_GEMM_CODES_THREADS = 256, SKR_GEMM_CODES_STAGES = 4 };
#define SKR_GEMM_CODES_COLUMNS(rows, fine) ((rows) == 8 || (fine) ? 16 : 32)
#define SKR_GEMM_CODES_SHARED(rows, fine)                                                                              \
    (SKR_GEMM_CODES_THREADS / 32 * SKR_GEMM_CODES_STAGES * SKR_GEMM_CODES_COLUMNS(rows, fine) * 64)
/* Rows of a that a block of gemm_few.cuh takes, and that it is asked to with codes; columns of b of its blocks. */
enum { SKR_GEMM_FEW_MOST = 64, SKR_GEMM_FEW_CODES_MOST = 512, SKR_GEMM_FEW_COLUMNS = 128 };
/* Of gemm_few.cuh and gemm_many.cuh, for the types of a and b: 128 bytes of a row of a for each box of b; bytes of a
 * column of b in it; threads: two warpgroups, and one warp or, where its registers are wanted, one warpgroup. */
#define SKR_GEMM_CODE_BOXES(a, b)   ((a) == (b) ? 1 : 2)
#define SKR_GEMM_CODE_BYTES(b)      ((b) == SKR_I4 ? 64 : 128)
#define SKR_GEMM_CODE_THREADS(a, b) ((a) == (b) ? 288 : 384)
/* gemm_many.cuh: rows of a of a tile. */
enum { SKR_GEMM_MANY_ROWS = 128 };

/* CUDA: how the tiles are dealt out to the units (clusters of blocks), and how some are cut along k (gemm_work.cuh). */
typedef struct skr_gemm_cut {
    int32_t units;        /* that share the work */
    int32_t whole;        /* tiles that are dealt out whole */
    int32_t left, slices; /* tiles that are cut along k, and into how many equal parts */
} skr_gemm_cut;

/* CUDA: what the blocks of the tensor core kernels (gemm_tma.cuh, gemm_mma.cuh) work through. In gemm_few.cuh and
 * gemm_many.cuh b's columns are the rows of the matrix instructions: `rows` counts columns of b, `columns` rows of a.
 * The blocks of a cluster there share a tile's k (few: up to 8), or lie beside each other and share rows of a (many: up
 * to 2; tiles_n counts clusters then). */
typedef struct skr_gemm_work {
    skr_tensor_map a, b, d;        /* Hopper's copy engine reads and writes by them */
    skr_tensor_map a_rest, b_rest; /* with boxes of the last rows of a and columns of b, where those are fewer */
    int32_t rows, columns;         /* of a block's tile; rows in whole groups of 64 */
    int32_t cluster;               /* blocks below each other that share b: 1 or 2 */
    int32_t spread;                /* log2 of the blocks of a cluster that a tile's k is cut over (gemm_spread.cuh) */
    int32_t tiles_m;               /* clusters' rows of tiles */
    int32_t tiles_n, batches;
    int32_t batch_a, batch_b; /* 0: the same matrix for every batch index */
    int32_t group;            /* rows of tiles that are walked together */
    int32_t steps;            /* of k, for each tile */
    skr_gemm_cut cut;
    int32_t at, bt; /* m runs along memory in a, n does in b; else k */
    int32_t plain;  /* no option but factors (below), d as the kernel stores it best */
    int32_t store;  /* d is written in vectors: by the copy engine, and in gemm_finish.cuh where it is plain */
    int32_t once;   /* b is read once: L2 need not keep it */
    int32_t finish; /* every tile goes through the workspace */
    int64_t slots_at;
    int64_t turned_a_at, turned_b_at, turned_pitch; /* copies with k along memory (gemm_turn.cuh); -1: there is none */
} skr_gemm_work;

/* What its tensor cores' sums do: stay there, leave after every step, and are then scaled by the step's block. */
enum { SKR_GEMM_KEPT, SKR_GEMM_STEPWISE, SKR_GEMM_SCALED };
/* Whether the kernel can cut a tile's k over a cluster: sums are floats, and code and registers are left. */
#define SKR_GEMM_SPREADS(a_type, sums, columns)                                                                        \
    ((a_type) != SKR_I8 && (sums) != SKR_GEMM_SCALED && ((columns) == 64 || (columns) == 128))
/* skr_gemm_work.plain. */
enum { SKR_GEMM_ONE_FACTOR = 1, SKR_GEMM_ROWS_AND_COLUMNS, SKR_GEMM_FACTOR_AND_C };
/* The type of halves that the Hopper kernel of that type of a takes for c beside one factor; SKR_F32: none. */
#define SKR_GEMM_C_OF(a_type) ((a_type) == SKR_F16 || (a_type) == SKR_BF16 ? (a_type) : SKR_F32)

SKR_INLINE bool skr_gemm_is_fp8(int type)
{
    return type == SKR_E4M3 || type == SKR_E5M2;
}

/* Hopper kernels (gemm_tma.cuh): rows of a block's tile, bytes of k of a step, dynamic shared memory. */
enum { SKR_GEMM_TMA_ROWS = 128, SKR_GEMM_TMA_BYTES = 128, SKR_GEMM_TMA_SHARED = 4 * 48 * 1024 + 32 * 1024 + 2048 };
/* Rows of the tile of their groups (gemm_groups_tma.cuh), at most. */
enum { SKR_GEMM_GROUP_ROWS = 256 };

/* The kernel of the warps' matrix instructions (gemm_mma.cuh): rows and columns of a block's tile, bytes of k of a
 * step, dynamic shared memory. */
enum { SKR_GEMM_MMA_SIDE = 128, SKR_GEMM_MMA_BYTES = 64, SKR_GEMM_MMA_SHARED = 4 * 64 * 72 * 4 };
/* How an operand gets to shared memory: copied as it lies, 16 bytes at a time; widened from vectors of a narrower type;
 * one element after the other. */
enum { SKR_GEMM_COPY, SKR_GEMM_VECTORS, SKR_GEMM_ELEMENTS };

/* How an operand gets to the shared memory of gemm_fma.cuh: k is along memory, one by one or in vectors of 16 bytes
 * that turn on their way through registers; the other dimension is, in vectors; in any way. */
enum { SKR_GEMM_FMA_K, SKR_GEMM_FMA_TURN, SKR_GEMM_FMA_VECTORS, SKR_GEMM_FMA_ELEMENTS, SKR_GEMM_FMA_WAYS };
typedef struct skr_gemm_fma_side {
    int64_t far, jump, next; /* bytes between the copies of a thread (gemm_fma_side.cuh) */
    int32_t way, reserved;
} skr_gemm_fma_side;

/* CUDA: the groups of grouped_gemm, which only the device knows. */
enum { SKR_GEMM_OF_ROWS = 1, SKR_GEMM_OF_KS };
typedef struct skr_gemm_groups {
    int64_t table_at; /* skr_gemm_group [count + 1] */
    int64_t bias_stride;
    int32_t count, of;     /* of: 0 without groups */
    int32_t rows, columns; /* of a tile */
    int32_t limit;         /* rows that the map of d has: where the copy engine cuts a group off */
} skr_gemm_groups;

/* A matrix of each batch: element (i, j) of batch z is at offset(z) + i * row + j * at.col_stride. */
typedef struct skr_gemm_matrix {
    skr_rows at; /* data, type, strides over the batch's dimensions; col_stride is j's */
    int64_t row; /* i's */
} skr_gemm_matrix;

typedef struct skr_gemm_job {
    skr_job_head head;
    skr_row_space batch;
    int64_t m, n, k; /* n: columns of b */
    skr_gemm_matrix a, b, c, d, pre, saved, a_scale, b_scale, b_zero;
    skr_param bias, dbias; /* stride: between elements */
    int64_t group;
    float alpha, beta;
    int32_t scaling, act, gated, bias_rows, accumulate, exact; /* exact: d is i32 */
    int32_t schedule, allow_tf32, fast_accum, b_packed;
    int32_t turned; /* the product is the transposed one: a is the caller's b */
    int32_t d_gaps; /* what lies between rows of d, and behind the last, may be written up to 16 bytes' end */
    skr_param gather,
        scatter; /* grouped: row r of the product is row gather[r] of a, and goes to row scatter[r] of d */
    int64_t gather_rows, scatter_rows;
    /* CPU plan */
    /* skinny: tasks use b as it lies, or pack a panel as they come to it; split: k blocks are tasks of their own */
    int32_t kind, skinny, split;
    int32_t by_columns, a_lies; /* tasks have all rows of their columns, and pack these; AMX: a is used as it lies */
    int32_t whole; /* kind F32: sums of a k block are whole numbers, which is exact, and then 32-bit integers */
    skr_gemm_tile tile;
    char *packed;               /* panels of b that the caller keeps, or NULL */
    int64_t seg, segs, seg_pad; /* k values of a segment (a k block, or a scale's group), segments of a block, padded */
    int64_t n_blocks;           /* k blocks */
    int64_t m_panels, n_panels; /* panels of a and b; gated: n_panels counts gate and up */
    int64_t a_batches, b_batches, a_batch_bytes, b_batch_bytes, a_at, b_at;
    int64_t b_panel_bytes;                    /* by columns: of one panel, all k blocks */
    int64_t tile_m, tile_n, m_tiles, n_tiles; /* panels of a task, tasks of a batch */
    int64_t scratch_at, scratch_bytes;        /* for each worker */
    int64_t scale_bytes;                      /* of them, scales of a panel's columns */
    int64_t parts_at;                         /* dbias: a row for each batch and m tile */
    int64_t split_at, split_bytes;            /* split: sums of a k block, for each task */
    int64_t a_tasks, b_tasks, a_panels_per_task, b_panels_per_task;
    /* CUDA plan; m_tiles and n_tiles count sides of 64 there; seg is what shares its scales along k, segs its steps; of
     * gemm_code_stages.cuh, seg is 2^31 over how many times 32 k's share them */
    skr_gemm_work work;
    skr_gemm_groups groups;
    int32_t a_load, b_load; /* gemm_mma.cuh */
    struct {
        skr_gemm_fma_side a, b;
        float one; /* 1, which the compiler does not know: keep() there */
        int32_t reserved;
    } fma;
} skr_gemm_job;

/* What begins a packed b: everything that its panels depend on. */
typedef struct skr_gemm_tag {
    char magic[8], level[16];
    int16_t kind, type, gated, scaling;
    int32_t scales, zeros; /* b_scale and b_zero are given, and may be in the panels */
    skr_gemm_tile tile;
    int64_t n, k, group, seg, segs, seg_pad, n_blocks, n_panels;
} skr_gemm_tag;
/* The panels follow it. Where both begin must be a multiple of this. */
enum { SKR_GEMM_PACK_ALIGN = 16 };

typedef struct skr_gemm_pack_job {
    skr_gemm_job gemm; /* only b and what belongs to it; its head is the job's */
    char *out;         /* NULL: only bytes */
    int64_t out_bytes; /* of the tensor */
    int64_t *bytes;    /* NULL: not wanted */
    int64_t need;
    skr_gemm_tag tag;
} skr_gemm_pack_job;
/* Its CPU steps. */
enum { SKR_GEMM_PACK_TAG, SKR_GEMM_PACK_PANELS };

/* A group of grouped_gemm, after its offsets were made sound. */
typedef struct skr_gemm_group {
    int64_t first, count; /* rows, or k's */
    int64_t panels;       /* panels of a before it; k's: padded k's before it */
    int64_t tiles;        /* rows: tiles of rows before it */
} skr_gemm_group;

typedef struct skr_grouped_gemm_job {
    skr_gemm_job gemm; /* for one group: the batch is the group's number; m (or k) and addresses are still missing */
    skr_param offsets;
    int64_t groups, total; /* total: rows, or k's, of all groups */
    int64_t bias_stride;   /* between groups */
    int32_t along_k, reserved;
    /* CPU plan */
    int64_t table_at;  /* skr_gemm_group [groups + 1] */
    int64_t max_tiles; /* rows: tiles of rows at most */
    int64_t pack_tasks;
} skr_grouped_gemm_job;
/* Its CPU steps. */
enum { SKR_GROUPED_TABLE, SKR_GROUPED_PACK, SKR_GROUPED_TILES };

#endif
