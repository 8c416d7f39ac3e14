/* tile.c - see tile.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tile.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *level;
    int kind;
    skr_gemm_tile tile;
} tiles[] = {
#define SKR_TILE(level, kind, mr, nr, ka, kb, granule, kc) {#level, SKR_GEMM_##kind, {mr, nr, ka, kb, granule, kc}},
#include "tiles.def"
#undef SKR_TILE
};

const skr_gemm_tile *skr_gemm_tile_of(const char *level, int kind)
{
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (tiles[i].kind == kind && !strcmp(tiles[i].level, level))
            return &tiles[i].tile;
    return NULL;
}
