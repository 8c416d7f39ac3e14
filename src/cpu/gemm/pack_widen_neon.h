/* pack_widen_neon.h - whole panels of 12 columns from i8 and i4 weights, widened to the panel's bf16 or i8.
 * SPDX-License-Identifier: Apache-2.0
 *
 * As in pack_neon.h: each function packs as many k values as fill its vectors and returns their number. Numbers are put
 * into the panel's order while they are narrow. Columns are `rs` bytes apart where k's are neighbours; k's are `ks`
 * bytes apart where columns are. */
#ifndef SKR_CPU_PACK_WIDEN_NEON_H
#define SKR_CPU_PACK_WIDEN_NEON_H

#include "widen_neon.h"

#if defined(SKR_LEVEL_neonmm)

enum { WIDEN_COLUMNS = 12 };

/* 16 bytes of a column. What follows is fetched: where a panel is used once, its columns come from memory. */
SKR_FN uint8x16_t next_bytes(const uint8_t *from)
{
    __builtin_prefetch(from + 256);
    return vld1q_u8(from);
}

SKR_FN uint8x16_t zip_words(int high, uint8x16_t x, uint8x16_t y)
{
    uint32x4_t u = vreinterpretq_u32_u8(x), v = vreinterpretq_u32_u8(y);
    return vreinterpretq_u8_u32(high ? vzip2q_u32(u, v) : vzip1q_u32(u, v));
}

SKR_FN uint8x16_t zip_halves(int high, uint8x16_t x, uint8x16_t y)
{
    uint16x8_t u = vreinterpretq_u16_u8(x), v = vreinterpretq_u16_u8(y);
    return vreinterpretq_u8_u16(high ? vzip2q_u16(u, v) : vzip1q_u16(u, v));
}

/* The nibble in the upper half of each byte, with its sign. */
SKR_FN uint8x16_t signed_nibbles(uint8x16_t v)
{
    return vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(v), 4));
}

/* ---------------------------------------------------------------- the order of k's beside i4 weights
 *
 * Two nibbles of a byte go different ways, and so do even and odd bytes. Where bf16 meets i4, panels of both have
 * every whole 16 k's of a segment in the order in which that leaves them: 0 4 8 12, 1 5 9 13, 2 6 10 14, 3 7 11 15. */

enum { TURN = 16 };

/* Each row's sixteen k's, four groups of four, transposed: whole ones among k of a panel of R rows. */
static void turn_ks(int R, int64_t k, uint16_t *panel)
{
    for (; k >= TURN; k -= TURN, panel += TURN * R)
        for (int r = 0; r < R; r += 2) { /* two rows are a vector */
            uint16_t *at = panel + r * 4;
            uint16x8_t g0 = vld1q_u16(at), g1 = vld1q_u16(at + 4 * R), g2 = vld1q_u16(at + 8 * R),
                       g3 = vld1q_u16(at + 12 * R);
            uint32x4_t x0 = vreinterpretq_u32_u16(vtrn1q_u16(g0, g1)), x1 = vreinterpretq_u32_u16(vtrn2q_u16(g0, g1));
            uint32x4_t y0 = vreinterpretq_u32_u16(vtrn1q_u16(g2, g3)), y1 = vreinterpretq_u32_u16(vtrn2q_u16(g2, g3));
            vst1q_u16(at, vreinterpretq_u16_u32(vtrn1q_u32(x0, y0)));
            vst1q_u16(at + 4 * R, vreinterpretq_u16_u32(vtrn1q_u32(x1, y1)));
            vst1q_u16(at + 8 * R, vreinterpretq_u16_u32(vtrn2q_u32(x0, y0)));
            vst1q_u16(at + 12 * R, vreinterpretq_u16_u32(vtrn2q_u32(x1, y1)));
        }
}

/* ---------------------------------------------------------------- k's are neighbours */

static int64_t widen_i8_bf16(const uint8_t *from, int64_t rs, int64_t k, uint8_t *to)
{
    enum { STEP = 16, GROUP = WIDEN_COLUMNS * 8 }; /* k's, bytes of four k's of a panel */
    int64_t p = 0;
    for (; p + STEP <= k; p += STEP, from += STEP, to += STEP / 4 * GROUP)
        for (int c = 0; c < WIDEN_COLUMNS; c += 2) {
            uint8x16_t x = next_bytes(from + c * rs), y = next_bytes(from + (c + 1) * rs), out[4];
            bytes_bf16(zip_words(0, x, y), out);
            bytes_bf16(zip_words(1, x, y), out + 2);
            UNROLLED
            for (int i = 0; i < 4; i++)
                vst1q_u8(to + i * GROUP + c * 8, out[i]);
        }
    return p;
}

static int64_t widen_i4_bf16(const uint8_t *from, int64_t rs, int64_t k, uint8_t *to)
{
    enum { STEP = 32, GROUP = WIDEN_COLUMNS * 8 };
    int64_t p = 0;
    for (; p + STEP <= k; p += STEP, from += STEP / 2, to += STEP / 4 * GROUP)
        for (int c = 0; c < WIDEN_COLUMNS; c += 2) {
            uint8x16_t x = next_bytes(from + c * rs), y = next_bytes(from + (c + 1) * rs), out[8];
            uint64x2_t u = vreinterpretq_u64_u8(x), v = vreinterpretq_u64_u8(y);
            nibbles_bf16(vreinterpretq_u8_u64(vzip1q_u64(u, v)), out);
            nibbles_bf16(vreinterpretq_u8_u64(vzip2q_u64(u, v)), out + 4);
            UNROLLED
            for (int i = 0; i < 8; i++)
                vst1q_u8(to + i * GROUP + c * 8, out[i]);
        }
    return p;
}

static int64_t widen_i4_i8(const uint8_t *from, int64_t rs, int64_t k, uint8_t *to)
{
    enum { STEP = 32, GROUP = WIDEN_COLUMNS * 8 }; /* bytes of eight k's of a panel */
    int64_t p = 0;
    for (; p + STEP <= k; p += STEP, from += STEP / 2, to += STEP / 8 * GROUP)
        for (int c = 0; c < WIDEN_COLUMNS; c += 2) {
            uint8x16_t x = next_bytes(from + c * rs), y = next_bytes(from + (c + 1) * rs);
            UNROLLED
            for (int i = 0; i < 2; i++) {
                uint8x16_t both = zip_words(i, x, y); /* eight k's of each, twice */
                uint8x16_t even = signed_nibbles(vshlq_n_u8(both, 4)), odd = signed_nibbles(both);
                vst1q_u8(to + 2 * i * GROUP + c * 8, vzip1q_u8(even, odd));
                vst1q_u8(to + (2 * i + 1) * GROUP + c * 8, vzip2q_u8(even, odd));
            }
        }
    return p;
}

/* ---------------------------------------------------------------- columns are neighbours */

/* Four k's of twelve columns of nibbles: in out, four columns at a time, four k's of each; as they are (0 to 15). */
SKR_FN void transpose_nibbles(const uint8_t *from, int64_t ks, uint8x16_t out[3])
{
    uint8x16_t row[4];
    UNROLLED
    for (int i = 0; i < 4; i++) {
        uint32_t word; /* of any alignment */
        uint16_t rest;
        __builtin_memcpy(&word, from + i * ks, 4);
        __builtin_memcpy(&rest, from + i * ks + 4, 2);
        row[i] = vreinterpretq_u8_u64(vsetq_lane_u64(word | (uint64_t)rest << 32, vdupq_n_u64(0), 0));
    }
    uint8x16_t k01 = vzip1q_u8(row[0], row[1]), k23 = vzip1q_u8(row[2], row[3]);
    uint8x16_t both[2] = {zip_halves(0, k01, k23), zip_halves(1, k01, k23)};
    UNROLLED
    for (int i = 0; i < 3; i++) {
        uint8x16_t even = vandq_u8(both[i / 2], vld1q_u8(widen_i4[2])), odd = vshrq_n_u8(both[i / 2], 4);
        out[i] = zip_words(i % 2, even, odd);
    }
}

static int64_t widen_across_i4_bf16(const uint8_t *from, int64_t ks, int64_t k, uint8_t *to)
{
    int64_t p = 0, turned = k / TURN * TURN;
    for (; p < turned; p += 4, to += WIDEN_COLUMNS * 8) {
        uint8x16_t index[3];
        transpose_nibbles(from + (p / TURN * TURN + p % TURN / 4) * ks, 4 * ks, index);
        UNROLLED
        for (int i = 0; i < 3; i++) {
            uint8x16_t low = vqtbl1q_u8(vld1q_u8(widen_i4[0]), index[i]);
            uint8x16_t high = vqtbl1q_u8(vld1q_u8(widen_i4[1]), index[i]);
            vst1q_u8(to + 32 * i, vzip1q_u8(low, high));
            vst1q_u8(to + 32 * i + 16, vzip2q_u8(low, high));
        }
    }
    return p;
}

static int64_t widen_across_i4_i8(const uint8_t *from, int64_t ks, int64_t k, uint8_t *to)
{
    int64_t p = 0;
    for (; p + 8 <= k; p += 8, from += 8 * ks, to += WIDEN_COLUMNS * 8) {
        uint8x16_t first[3], second[3];
        transpose_nibbles(from, ks, first);
        transpose_nibbles(from + 4 * ks, ks, second);
        UNROLLED
        for (int i = 0; i < 6; i++) {
            uint8x16_t v = zip_words(i % 2, first[i / 2], second[i / 2]);
            vst1q_u8(to + 16 * i, signed_nibbles(vshlq_n_u8(v, 4)));
        }
    }
    return p;
}

static int64_t widen_across_i8_bf16(const uint8_t *from, int64_t ks, int64_t k, uint8_t *to)
{
    int64_t p = 0;
    for (; p + 4 <= k; p += 4, from += 4 * ks, to += WIDEN_COLUMNS * 8) {
        uint8x16_t low[4], high[4], out[6]; /* columns 0 to 7, 4 to 11 */
        UNROLLED
        for (int i = 0; i < 4; i++) {
            uint8x8_t x = vld1_u8(from + i * ks), y = vld1_u8(from + i * ks + 4);
            low[i] = vcombine_u8(x, x);
            high[i] = vcombine_u8(y, y);
        }
        uint8x16_t k01 = vzip1q_u8(low[0], low[1]), k23 = vzip1q_u8(low[2], low[3]);
        bytes_bf16(zip_halves(0, k01, k23), out);
        bytes_bf16(zip_halves(1, k01, k23), out + 2);
        bytes_bf16(zip_halves(1, vzip1q_u8(high[0], high[1]), vzip1q_u8(high[2], high[3])), out + 4);
        UNROLLED
        for (int i = 0; i < 6; i++)
            vst1q_u8(to + 16 * i, out[i]);
    }
    return p;
}

/* ---------------------------------------------------------------- which one */

/* How many k values of a whole panel of `kind` from elements of `type` are packed. at: the first element; strides are
 * in elements. */
static int64_t pack_widened(int kind, int type, const void *data, int64_t at, int64_t rs, int64_t ks, int64_t k,
                            void *to)
{
    bool nibbles = type == SKR_I4, across = rs == 1;
    int64_t stride = across ? ks : rs;
    const uint8_t *from = (const uint8_t *)data + (nibbles ? at / 2 : at);
    if ((rs != 1 && ks != 1) || (nibbles && (at | stride) & 1) || !(nibbles || type == SKR_I8))
        return 0;
    stride = nibbles ? stride / 2 : stride;
    if (kind == SKR_GEMM_I8)
        return (across ? widen_across_i4_i8 : widen_i4_i8)(from, stride, k, to);
    if (nibbles)
        return (across ? widen_across_i4_bf16 : widen_i4_bf16)(from, stride, k, to);
    return (across ? widen_across_i8_bf16 : widen_i8_bf16)(from, stride, k, to);
}

#endif

#endif
