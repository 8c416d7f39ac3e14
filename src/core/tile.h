/* tile.h - register tiles of the CPU's matrix products: what plans and kernels know of them (tiles.def).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_TILE_H
#define SKR_TILE_H

#include "job.h"

/* Kinds of arithmetic. */
typedef enum skr_gemm_kind {
    SKR_GEMM_F32,
    SKR_GEMM_BF16,
    SKR_GEMM_I8,
    SKR_GEMM_INT,
    SKR_GEMM_F16,
    SKR_GEMM_KINDS
} skr_gemm_kind;

/* Bytes of an element in a panel. */
SKR_INLINE int skr_kind_bytes(int kind)
{
    return kind == SKR_GEMM_BF16 || kind == SKR_GEMM_F16 ? 2 : kind == SKR_GEMM_I8 ? 1 : 4;
}

/* A line of tiles.def. */
typedef struct skr_gemm_tile {
    int32_t mr, nr, ka, kb, granule, kc;
} skr_gemm_tile;

enum { SKR_GEMM_MAX_MR = 32, SKR_GEMM_MAX_NR = 32 };

/* The tile of a level, or NULL: it has no such arithmetic (tile.c). */
const skr_gemm_tile *skr_gemm_tile_of(const char *level, int kind);

#endif
