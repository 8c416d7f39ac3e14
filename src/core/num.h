/* num.h - scalar conversions between f32 and the narrow float types. Freestanding: kernels include it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * To a narrower type: round to nearest even, subnormals kept, NaN stays NaN. f16 and bf16 overflow to infinity; the fp8
 * types saturate (infinity becomes the largest value; only NaN is NaN). Widening is exact. */
#ifndef SKR_NUM_H
#define SKR_NUM_H

#include <stdint.h>

static inline uint32_t skr_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    return v.u;
}

static inline float skr_float(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = {bits};
    return v.f;
}

static inline float skr_f32_of_bf16(uint16_t x)
{
    return skr_float((uint32_t)x << 16);
}

static inline uint16_t skr_bf16_of_f32(float x)
{
    uint32_t u = skr_bits(x);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40); /* quiet, payload kept */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A small float with `man` mantissa bits and exponent bias `bias`, as bits without sign; x >= 0 and finite. Both cases
 * let the FPU's own rounding do the work: adding a power of two makes its last place the target's. */
static inline uint32_t skr_small_float(float x, int man, int bias)
{
    uint32_t u = skr_bits(x);
    if ((int)(u >> 23) < 127 - bias + 1) { /* subnormal in the target: one fixed last place, 2^(1 - bias - man) */
        float anchor = skr_float((uint32_t)(127 + 1 - bias - man + 23) << 23);
        return skr_bits(x + anchor) - skr_bits(anchor);
    }
    uint32_t half = 1u << (22 - man);
    u += half - 1 + (u >> (23 - man) & 1);
    return (u >> (23 - man)) - ((uint32_t)(127 - bias) << man);
}

static inline uint16_t skr_f16_of_f32(float x)
{
    uint32_t u = skr_bits(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
    if (a >= 0x477ff000) /* 65520 rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | skr_small_float(skr_float(a), 10, 15));
}

static inline float skr_f32_of_f16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, e = x >> 10 & 31, m = x & 0x3ff;
    if (e == 31)
        return skr_float(sign | 0x7f800000 | m << 13 | (m ? 0x400000u : 0));
    if (e == 0)
        return skr_float(sign | skr_bits((float)m * 0x1p-24f));
    return skr_float(sign | (e + 112) << 23 | m << 13);
}

static inline uint8_t skr_e4m3_of_f32(float x)
{
    uint32_t u = skr_bits(x), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (a >= 0x43e00000) /* 448 */
        return (uint8_t)(sign | 0x7e);
    return (uint8_t)(sign | skr_small_float(skr_float(a), 3, 7));
}

static inline float skr_f32_of_e4m3(uint8_t x)
{
    uint32_t sign = (uint32_t)(x & 0x80) << 24, e = x >> 3 & 15, m = x & 7;
    if ((x & 0x7f) == 0x7f)
        return skr_float(sign | 0x7fc00000);
    if (e == 0)
        return skr_float(sign | skr_bits((float)m * 0x1p-9f));
    return skr_float(sign | (e + 120) << 23 | m << 20);
}

static inline uint8_t skr_e5m2_of_f32(float x)
{
    uint32_t u = skr_bits(x), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (a >= 0x47600000) /* 57344 */
        return (uint8_t)(sign | 0x7b);
    return (uint8_t)(sign | skr_small_float(skr_float(a), 2, 15));
}

static inline float skr_f32_of_e5m2(uint8_t x)
{
    return skr_f32_of_f16((uint16_t)(x << 8));
}

/* Round half to even, clamped to +-127; NaN gives 0. */
static inline int8_t skr_i8_of_f32(float x)
{
    if (!(x >= -127.0f)) /* also NaN */
        return x < 0 ? -127 : 0;
    if (x > 127.0f)
        return 127;
    float rounded = x + 12582912.0f; /* 1.5 * 2^23: the last place becomes 1 */
    return (int8_t)(int32_t)(skr_bits(rounded) - 0x4b400000u);
}

#endif
