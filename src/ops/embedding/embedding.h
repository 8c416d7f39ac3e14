/* embedding.h - the jobs of embedding and embedding_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The gradient sorts the places of the tokens by id, keeping their order, and adds the rows of each run. Sums are made
 * in stretches of SKR_EMBED_RUN sorted places, counted from the first of all (CUDA) or of the id (CPU): so a frequent
 * id is shared by many blocks, and no chain of additions is long. */
#ifndef SKR_EMBEDDING_H
#define SKR_EMBEDDING_H

#include "../../core/job.h"

enum {
    SKR_EMBED_RUN = 64,
    SKR_EMBED_COLUMNS = 1024,   /* CPU: columns of a task of the sums */
    SKR_EMBED_TABLE_ROWS = 256, /* CPU: table rows of such a task */
    SKR_EMBED_THREADS = 256,
    SKR_EMBED_SHORT = 4,   /* CUDA: short rows of a thread */
    SKR_EMBED_TILE = 2048, /* CUDA: tokens of a block that sorts */
    SKR_EMBED_DIGIT = 9    /* CUDA: bits of a digit */
};
/* CPU steps of the gradient. */
enum { SKR_EMBED_SORT = 0, SKR_EMBED_ZERO = 1, SKR_EMBED_SUM = 2 };

typedef struct skr_embedding_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t v, d;
    skr_param table;
    skr_rows ids, out;
    int64_t rows_per_task; /* CPU plan */
    /* CUDA plan: elements of an access, accesses of a row, log2 of the threads that share one. A division in the kernel
     * costs more than a short row. */
    int32_t vec, vectors, lane_bits;
} skr_embedding_job;

typedef struct skr_embedding_backward_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t v, d;
    skr_rows dout, ids;
    skr_param dtable;
    int64_t padding; /* -1: none */
    int32_t accumulate;
    /* CUDA plan */
    int32_t vec;   /* columns of a thread */
    int32_t tiles; /* blocks that sort */
    int32_t parts; /* stretches */
    int32_t column_blocks;
    int32_t last_pass;
    int32_t pass_bits[4]; /* bits of each pass's digit */
    /* Workspace, in bytes. CPU: start of each id's places [v + 1], places [m]. CUDA: two lists of ids and places (turn
     * about), digit counts [512, tiles], partial sums of the first and the last id of each stretch [parts, 2, d]. */
    int64_t starts_at, places_at, ids_at[2], list_at[2], counts_at, sums_at;
} skr_embedding_backward_job;

#endif
