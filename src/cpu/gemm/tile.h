/* tile.h - this level's register tiles, as constants.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CPU_TILE_H
#define SKR_CPU_TILE_H

#include "../../core/tile.h"
#include "../simd/simd.h"

/* tiles.def as constants: neonmm_BF16_MR and so on; TILE(BF16, MR) is this level's. */
enum {
#define SKR_TILE(level, kind, mr, nr, ka, kb, granule, kc)                                                             \
    level##_##kind##_MR = mr, level##_##kind##_NR = nr, level##_##kind##_KA = ka, level##_##kind##_KB = kb,            \
    level##_##kind##_KC = kc,
#include "../../core/tiles.def"
#undef SKR_TILE
};
#define TILE(kind, what)     SKR_PASTE3(SKR_LEVEL, kind, what)
#define SKR_PASTE3_(a, b, c) a##_##b##_##c
#define SKR_PASTE3(a, b, c)  SKR_PASTE3_(a, b, c)

/* Kinds that this level has beside F32 and INT. */
#if defined(SKR_LEVEL_neonmm) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#define HAS_BF16 1
#else
#define HAS_BF16 0
#endif
#if defined(SKR_LEVEL_neonmm) || defined(SKR_LEVEL_avx512) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#define HAS_I8 1
#else
#define HAS_I8 0
#endif

#if defined(SKR_LEVEL_amxfp16)
#define HAS_F16 1
#else
#define HAS_F16 0
#endif

/* AVX512-BF16 and AMX: there are instructions that round to bf16, and tiles of bf16 can begin with sums (micro.h). */
#if HAS_BF16 && !defined(SKR_LEVEL_neonmm)
#define X86_BF16 1
#else
#define X86_BF16 0
#endif

/* VPDPBUSD multiplies unsigned by signed bytes: there a's bytes are packed as a + 128. */
#if HAS_I8 && (defined(SKR_LEVEL_avx512) || defined(SKR_LEVEL_avx512bf16))
#define A_PLUS_128 1
#else
#define A_PLUS_128 0
#endif

#define UNROLLED _Pragma("GCC unroll 64")

/* The type of an element in a panel. */
SKR_FN int native_type(int kind)
{
    static const int types[SKR_GEMM_KINDS] = {SKR_F32, SKR_BF16, SKR_I8, SKR_I32, SKR_F16};
    return types[kind];
}

#endif
