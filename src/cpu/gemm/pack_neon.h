/* pack_neon.h - whole panels of 8 and of 12 rows on aarch64: transposes in registers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each function packs as many k values as fill its vectors, of a panel without missing rows, and returns their number
 * (0 when the strides are not for it); the rest is left to the plain loops. Columns 8 to 11 of a panel of 12 come from
 * a load of columns 4 to 11: none reads outside of the panel. */
#ifndef SKR_CPU_PACK_NEON_H
#define SKR_CPU_PACK_NEON_H

#include "tile.h"

SKR_FN void transpose_words(const float *from, int64_t rs, float *to, int R)
{
    float32x4_t r0 = vld1q_f32(from), r1 = vld1q_f32(from + rs), r2 = vld1q_f32(from + 2 * rs),
                r3 = vld1q_f32(from + 3 * rs);
    float64x2_t x0 = vreinterpretq_f64_f32(vzip1q_f32(r0, r1)), x1 = vreinterpretq_f64_f32(vzip2q_f32(r0, r1));
    float64x2_t y0 = vreinterpretq_f64_f32(vzip1q_f32(r2, r3)), y1 = vreinterpretq_f64_f32(vzip2q_f32(r2, r3));
    vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(x0, y0)));
    vst1q_f32(to + R, vreinterpretq_f32_f64(vzip2q_f64(x0, y0)));
    vst1q_f32(to + 2 * R, vreinterpretq_f32_f64(vzip1q_f64(x1, y1)));
    vst1q_f32(to + 3 * R, vreinterpretq_f32_f64(vzip2q_f64(x1, y1)));
}

SKR_FN int64_t fast_words_of(int R, const float *from, int64_t rs, int64_t ks, int64_t k, float *to)
{
    int64_t p = 0;
    if (rs == 1) {
        for (; p < k; p++, from += ks, to += R)
            UNROLLED
        for (int r = 0; r < R; r += 4)
            vst1q_f32(to + r, vld1q_f32(from + r));
    } else if (ks == 1) {
        for (; p + 4 <= k; p += 4, from += 4, to += 4 * R)
            UNROLLED
        for (int r = 0; r < R; r += 4)
            transpose_words(from + r * rs, rs, to + r, R);
    }
    return p;
}

static int64_t fast_words(const void *from, int64_t rs, int64_t ks, int R, int64_t k, void *to)
{
    return R == 12 ? fast_words_of(12, from, rs, ks, k, to) : R == 8 ? fast_words_of(8, from, rs, ks, k, to) : 0;
}

#if defined(SKR_LEVEL_neonmm)

/* Eight columns of four k's: in pairs of columns, four k's of each. */
SKR_FN void transpose_halves(uint16x8_t a, uint16x8_t b, uint16x8_t c, uint16x8_t d, uint16x8_t out[4])
{
    uint32x4_t ab0 = vreinterpretq_u32_u16(vzip1q_u16(a, b)), ab1 = vreinterpretq_u32_u16(vzip2q_u16(a, b));
    uint32x4_t cd0 = vreinterpretq_u32_u16(vzip1q_u16(c, d)), cd1 = vreinterpretq_u32_u16(vzip2q_u16(c, d));
    out[0] = vreinterpretq_u16_u32(vzip1q_u32(ab0, cd0));
    out[1] = vreinterpretq_u16_u32(vzip2q_u32(ab0, cd0));
    out[2] = vreinterpretq_u16_u32(vzip1q_u32(ab1, cd1));
    out[3] = vreinterpretq_u16_u32(vzip2q_u32(ab1, cd1));
}

SKR_FN int64_t fast_halves_of(int R, const uint16_t *from, int64_t rs, int64_t ks, int64_t k, uint16_t *to)
{
    int64_t p = 0;
    if (rs == 1) {
        for (; p + 4 <= k; p += 4, from += 4 * ks, to += 4 * R) {
            uint16x8_t out[4];
            transpose_halves(vld1q_u16(from), vld1q_u16(from + ks), vld1q_u16(from + 2 * ks), vld1q_u16(from + 3 * ks),
                             out);
            UNROLLED
            for (int i = 0; i < 4; i++)
                vst1q_u16(to + 8 * i, out[i]);
            if (R == 8)
                continue;
            const uint16_t *more = from + 4;
            transpose_halves(vld1q_u16(more), vld1q_u16(more + ks), vld1q_u16(more + 2 * ks), vld1q_u16(more + 3 * ks),
                             out);
            vst1q_u16(to + 32, out[2]);
            vst1q_u16(to + 40, out[3]);
        }
    } else if (ks == 1) {
        for (; p + 8 <= k; p += 8, from += 8, to += 8 * R)
            UNROLLED
        for (int r = 0; r < R; r += 2) {
            uint64x2_t x = vreinterpretq_u64_u16(vld1q_u16(from + r * rs));
            uint64x2_t y = vreinterpretq_u64_u16(vld1q_u16(from + (r + 1) * rs));
            vst1q_u16(to + 4 * r, vreinterpretq_u16_u64(vzip1q_u64(x, y)));
            vst1q_u16(to + 4 * R + 4 * r, vreinterpretq_u16_u64(vzip2q_u64(x, y)));
        }
    }
    return p;
}

static int64_t fast_halves(const uint16_t *from, int64_t rs, int64_t ks, int R, int64_t k, uint16_t *to)
{
    return R == 12 ? fast_halves_of(12, from, rs, ks, k, to) : fast_halves_of(8, from, rs, ks, k, to);
}

/* Eight columns of eight k's: in pairs of columns, eight k's of each. */
SKR_FN void transpose_bytes(const int8_t *from, int64_t ks, uint8x16_t out[4])
{
    uint16x8_t pair[4];
    UNROLLED
    for (int i = 0; i < 4; i++) {
        uint8x8_t x = vld1_u8((const uint8_t *)from + 2 * i * ks),
                  y = vld1_u8((const uint8_t *)from + (2 * i + 1) * ks);
        pair[i] = vreinterpretq_u16_u8(vzip1q_u8(vcombine_u8(x, x), vcombine_u8(y, y)));
    }
    uint32x4_t q0 = vreinterpretq_u32_u16(vzip1q_u16(pair[0], pair[1]));
    uint32x4_t q1 = vreinterpretq_u32_u16(vzip2q_u16(pair[0], pair[1]));
    uint32x4_t q2 = vreinterpretq_u32_u16(vzip1q_u16(pair[2], pair[3]));
    uint32x4_t q3 = vreinterpretq_u32_u16(vzip2q_u16(pair[2], pair[3]));
    out[0] = vreinterpretq_u8_u32(vzip1q_u32(q0, q2));
    out[1] = vreinterpretq_u8_u32(vzip2q_u32(q0, q2));
    out[2] = vreinterpretq_u8_u32(vzip1q_u32(q1, q3));
    out[3] = vreinterpretq_u8_u32(vzip2q_u32(q1, q3));
}

SKR_FN int64_t fast_bytes_of(int R, const int8_t *from, int64_t rs, int64_t ks, int64_t k, int8_t *to)
{
    int64_t p = 0;
    if (rs == 1) {
        for (; p + 8 <= k; p += 8, from += 8 * ks, to += 8 * R) {
            uint8x16_t out[4];
            transpose_bytes(from, ks, out);
            UNROLLED
            for (int i = 0; i < 4; i++)
                vst1q_u8((uint8_t *)to + 16 * i, out[i]);
            if (R == 8)
                continue;
            transpose_bytes(from + 4, ks, out);
            vst1q_u8((uint8_t *)to + 64, out[2]);
            vst1q_u8((uint8_t *)to + 80, out[3]);
        }
    } else if (ks == 1) {
        for (; p + 16 <= k; p += 16, from += 16, to += 16 * R)
            UNROLLED
        for (int r = 0; r < R; r += 2) {
            uint64x2_t x = vreinterpretq_u64_s8(vld1q_s8(from + r * rs));
            uint64x2_t y = vreinterpretq_u64_s8(vld1q_s8(from + (r + 1) * rs));
            vst1q_s8(to + 8 * r, vreinterpretq_s8_u64(vzip1q_u64(x, y)));
            vst1q_s8(to + 8 * R + 8 * r, vreinterpretq_s8_u64(vzip2q_u64(x, y)));
        }
    }
    return p;
}

static int64_t fast_bytes(const int8_t *from, int64_t rs, int64_t ks, int R, int64_t k, int8_t *to)
{
    return R == 12 ? fast_bytes_of(12, from, rs, ks, k, to) : fast_bytes_of(8, from, rs, ks, k, to);
}

#endif

#endif
