/* widen_neon.h - i8 and i4 as bf16 on aarch64, by bytes: sixteen numbers at a time until both bytes of each are known.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CPU_WIDEN_NEON_H
#define SKR_CPU_WIDEN_NEON_H

#include "tile.h"

#if defined(SKR_LEVEL_neonmm)

/* i4: low and high bytes by the nibble, and what is a nibble. */
static const uint8_t widen_i4[3][16] = {
    {0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0xe0, 0xc0, 0xa0, 0x80, 0x40, 0x00, 0x80},
    {0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0xc1, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xbf},
    {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15}};

/* i8: with n leading zeros among eight bits, the exponent is 134 - n. Its last bit is n's, and bit 7 of the low byte;
 * the others are in a table. n shifts the number so that its leading one, which bf16 leaves out, is in that place. 0
 * has eight leading zeros. The table, and where the sign is. */
static const uint8_t widen_i8[2][16] = {
    {0x43, 0x42, 0x42, 0x41, 0x41, 0x40, 0x40, 0x3f, 0x00},
    {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128}};

/* 16 k's of two columns, eight bytes of each: four k's of both at a time, in the order of turn_ks. */
SKR_FN void nibbles_bf16(uint8x16_t v, uint8x16_t out[4])
{
    uint8x16_t index[2] = {vandq_u8(v, vld1q_u8(widen_i4[2])), vshrq_n_u8(v, 4)}; /* even k's, odd ones */
    UNROLLED
    for (int i = 0; i < 2; i++) {
        uint8x16_t low = vqtbl1q_u8(vld1q_u8(widen_i4[0]), index[i]);
        uint8x16_t high = vqtbl1q_u8(vld1q_u8(widen_i4[1]), index[i]);
        out[i] = vtrn1q_u8(low, high);
        out[2 + i] = vtrn2q_u8(low, high);
    }
}

/* 16 bytes. */
SKR_FN void bytes_bf16(uint8x16_t v, uint8x16_t out[2])
{
    uint8x16_t size = vreinterpretq_u8_s8(vabsq_s8(vreinterpretq_s8_u8(v))), n = vclzq_u8(size);
    uint8x16_t low = vsliq_n_u8(vshlq_u8(size, vreinterpretq_s8_u8(n)), n, 7);
    uint8x16_t high = vbslq_u8(vld1q_u8(widen_i8[1]), v, vqtbl1q_u8(vld1q_u8(widen_i8[0]), n));
    out[0] = vzip1q_u8(low, high);
    out[1] = vzip2q_u8(low, high);
}

#endif

#endif
