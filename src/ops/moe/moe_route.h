/* moe_route.h - the jobs of moe_route and moe_route_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Choices are compared through keys: unsigned integers in the order of the values, NaN on top, both zeros equal. No
 * value has the key 0, which stands for an expert that cannot be chosen.
 *
 * Rows of ids are sorted by expert in tiles of neighbouring tokens: how often each expert stands in a tile is counted
 * as the tile is routed, the counts are added up, and each tile then knows where its rows go. All of it is integers, so
 * how the tokens are cut into tiles changes no bit. */
#ifndef SKR_MOE_ROUTE_H
#define SKR_MOE_ROUTE_H

#include "../../core/job.h"

enum {
    SKR_ROUTE_EXPERTS = 1024,
    SKR_ROUTE_PAD = 16,  /* CPU: a worker's rows are filled up to whole vectors of the widest level */
    SKR_ROUTE_ROWS = 10, /* CPU: of a worker: logits, scores, choices, keys, four of the groups, two of what is left */
    SKR_ROUTE_LISTS = 3, /* CPU: the keys, ids and weights of the best */
    SKR_ROUTE_WARPS = 8, /* CUDA: of a block, a token each */
    SKR_ROUTE_TILE = 32, /* CUDA: least tokens of a tile of ids that are sorted */
    SKR_ROUTE_TILES = 512, /* CUDA: most tiles */
    SKR_ROUTE_SCAN = 1024  /* CUDA: threads of the block that adds up the counts */
};
/* Values of score and group_score; the same numbers as saker_moe_score and saker_moe_group_score. */
enum { SKR_ROUTE_SOFTMAX, SKR_ROUTE_SIGMOID };
enum { SKR_ROUTE_MAX, SKR_ROUTE_TOP2 };
/* Steps. */
enum { SKR_ROUTE_CHOOSE = 0, SKR_ROUTE_ADD_UP = 1, SKR_ROUTE_PLACE = 2 };

typedef struct skr_moe_route_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n, k;                  /* experts, choices */
    skr_rows logits, ids, weights; /* ids and weights: any col_stride */
    const float *bias;             /* NULL: absent, as all below */
    int32_t *counts, *offsets, *order, *place, *token;
    int32_t n_groups, top_groups, per_group; /* n_groups 0: none */
    int32_t score, group_score, renormalise;
    float scale;
    int32_t all_scores; /* the choice takes the scores of all experts, not their logits alone */
    int32_t sorted;     /* one of counts to token is wanted */
    int32_t tiles;
    int64_t tile_rows; /* tokens of a task (CPU), of a block (CUDA) */
    /* Workspace, in bytes: counts of each tile, CPU [tiles, n], CUDA [n, tiles], which become where the rows of tile
     * and expert begin (CUDA: among the expert's); where the experts begin [n + 1]; CPU: each worker's row. */
    int64_t counts_at, starts_at, scratch_at, scratch_bytes;
    int32_t warp_words; /* CUDA: 4-byte words of shared memory of a warp that routes */
    int32_t reserved;
} skr_moe_route_job;

typedef struct skr_moe_route_backward_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n, k;
    skr_rows dweights, ids, logits, dlogits; /* dweights and ids: any col_stride */
    int32_t score, renormalise;
    float scale;
    int32_t reserved;
    int64_t rows_per_task, scratch_bytes; /* CPU plan */
} skr_moe_route_backward_job;

#endif
