/* pack.h - panels of elements that are only moved: R rows of a (or columns of b), as the register tile reads them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Panel: for each group of KU k values, for each of R rows, the KU values; rows and k values beyond the matrix are 0.
 * Where A_PLUS_128 says so all bytes of a are + 128, those that are 0 too. */
#ifndef SKR_CPU_PACK_H
#define SKR_CPU_PACK_H

#include "tile.h"
#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
#include "pack_neon.h"
#elif !defined(SKR_LEVEL_scalar)
#include "pack_x86.h"
#endif

/* KU 1, 4-byte elements. */
static void pack_words(const uint32_t *from, int64_t rs, int64_t ks, int rows, int R, int64_t k, uint32_t *to)
{
    if (rs == 1 && rows == R) {
        for (int64_t p = 0; p < k; p++, to += R)
            __builtin_memcpy(to, from + p * ks, (size_t)R * 4);
        return;
    }
    if (rows < R)
        __builtin_memset(to, 0, (size_t)(k * R) * 4);
    for (int64_t p = 0; p < k; p++, to += R)
        for (int r = 0; r < rows; r++)
            to[r] = from[r * rs + p * ks];
}

#define PACK_GROUPS(name, T)                                                                                           \
    SKR_FN void name(const T *from, int64_t rs, int64_t ks, int rows, int R, int KU, int64_t k, int64_t pad, T *to)    \
    {                                                                                                                  \
        int64_t whole = k / KU * KU;                                                                                   \
        for (int64_t p = 0; p < pad; p += KU, to += (int64_t)R * KU) {                                                 \
            int n = p < whole ? KU : p < k ? (int)(k - p) : 0;                                                         \
            for (int r = 0; r < rows; r++) {                                                                           \
                const T *f = from + r * rs + p * ks;                                                                   \
                if (ks == 1 && n == KU) {                                                                              \
                    __builtin_memcpy(to + r * KU, f, (size_t)KU * sizeof(T));                                          \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int u = 0; u < n; u++)                                                                            \
                    to[r * KU + u] = f[u * ks];                                                                        \
                for (int u = n; u < KU; u++)                                                                           \
                    to[r * KU + u] = 0;                                                                                \
            }                                                                                                          \
            for (int i = rows * KU; i < R * KU; i++)                                                                   \
                to[i] = 0;                                                                                             \
        }                                                                                                              \
    }
PACK_GROUPS(pack_halves_any, uint16_t)
PACK_GROUPS(pack_bytes_any, int8_t)
#undef PACK_GROUPS

/* The groups' size as a constant, so that a group is moved at once. */
static void pack_halves(const uint16_t *from, int64_t rs, int64_t ks, int rows, int R, int KU, int64_t k, int64_t pad,
                        uint16_t *to)
{
    if (KU == 2)
        pack_halves_any(from, rs, ks, rows, R, 2, k, pad, to);
    else if (KU == 4)
        pack_halves_any(from, rs, ks, rows, R, 4, k, pad, to);
    else
        pack_halves_any(from, rs, ks, rows, R, 32, k, pad, to);
}

static void pack_bytes(const int8_t *from, int64_t rs, int64_t ks, int rows, int R, int KU, int64_t k, int64_t pad,
                       int8_t *to)
{
    if (KU == 4)
        pack_bytes_any(from, rs, ks, rows, R, 4, k, pad, to);
    else if (KU == 8)
        pack_bytes_any(from, rs, ks, rows, R, 8, k, pad, to);
    else
        pack_bytes_any(from, rs, ks, rows, R, 64, k, pad, to);
}

/* How many k values of a whole panel the level's own transposes have packed. */
static int64_t pack_fast(int kind, const void *from, int64_t rs, int64_t ks, int R, int KU, int64_t k, void *to)
{
#if defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
    if (kind == SKR_GEMM_F32)
        return fast_words(from, rs, ks, R, k, to);
#endif
#if defined(SKR_LEVEL_neonmm)
    if (kind == SKR_GEMM_BF16)
        return fast_halves(from, rs, ks, R, k, to);
    if (kind == SKR_GEMM_I8)
        return fast_bytes(from, rs, ks, R, k, to);
#endif
#if defined(SKR_LEVEL_amx)
    if (KU * skr_kind_bytes(kind) == 64 && rs == 1 && R == 32)
        return fast_tiles(skr_kind_bytes(kind), from, ks, k, to);
#endif
#if defined(SKR_CPU_PACK_X86_H)
    if (KU * skr_kind_bytes(kind) == 4)
        return fast_panel(skr_kind_bytes(kind), from, rs, ks, R, k, to);
#endif
    (void)kind, (void)from, (void)rs, (void)ks, (void)R, (void)KU, (void)k, (void)to;
    return 0;
}

/* Bytes of a as the level's products want them. */
SKR_FN void shift_bytes(int kind, int64_t n, char *bytes)
{
    if (!A_PLUS_128 || kind != SKR_GEMM_I8)
        return;
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (char)(bytes[i] ^ 0x80);
}

/* Elements of the panel's own type. k: values there are; pad: values the segment has in the panel. */
static void pack_moved(int kind, const char *from, int64_t rs, int64_t ks, int rows, int R, int KU, int64_t k,
                       int64_t pad, char *to)
{
    int64_t done = rows == R ? pack_fast(kind, from, rs, ks, R, KU, k, to) : 0, all = pad;
    char *panel = to;
    int size = skr_kind_bytes(kind);
    from += done * ks * size;
    to += done * R * size;
    k -= done;
    pad -= done;
    if (size == 2)
        pack_halves((const uint16_t *)from, rs, ks, rows, R, KU, k, pad, (uint16_t *)to);
    else if (size == 1)
        pack_bytes((const int8_t *)from, rs, ks, rows, R, KU, k, pad, (int8_t *)to);
    else {
        pack_words((const uint32_t *)from, rs, ks, rows, R, k, (uint32_t *)to);
        __builtin_memset(to + k * R * 4, 0, (size_t)((pad - k) * R) * 4);
    }
#if A_PLUS_128
    _Static_assert((int)TILE(I8, MR) != (int)TILE(I8, NR), "panels of a are told from those of b by R");
    if (R == TILE(I8, MR)) /* of a */
        shift_bytes(kind, all * R, panel);
#endif
    (void)all, (void)panel;
}

#endif
