/* suite_convert.c - see suite_convert.h. One rule for five float types, from their exponent and mantissa bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "suite_convert.h"

#include <math.h>
#include <string.h>

static const float_format f32 = {8, 23, 127, true, false, 0x1.fffffep127, 0x1p-149};
static const float_format f16 = {5, 10, 15, true, false, 65504, 0x1p-24};
static const float_format bf16 = {8, 7, 127, true, false, 0x1.fep127, 0x1p-133};
static const float_format e4m3 = {4, 3, 7, false, true, 448, 0x1p-9};
static const float_format e5m2 = {5, 2, 15, true, true, 57344, 0x1p-16};

const float_format *float_format_of(saker_type type)
{
    switch (type) {
    case SAKER_F32:
        return &f32;
    case SAKER_F16:
        return &f16;
    case SAKER_BF16:
        return &bf16;
    case SAKER_E4M3:
        return &e4m3;
    case SAKER_E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

int type_bytes(saker_type type)
{
    int bits = (int)type >> 8 & 0xff;
    return (bits + 7) / 8;
}

/* Distance between neighbours in the binade of v. */
static double step_at(const float_format *f, double v)
{
    if (v == 0 || !isfinite(v))
        return f->step_min;
    double step = ldexp(1, ilogb(v) - f->mantissa_bits);
    return step < f->step_min ? f->step_min : step;
}

static double integer_limit(saker_type type, bool upper)
{
    switch (type) {
    case SAKER_I8:
        return upper ? 127 : -127; /* symmetric, as the library quantises */
    case SAKER_I4:
        return upper ? 7 : -7;
    case SAKER_U8:
        return upper ? 255 : 0;
    case SAKER_BOOL:
        return upper ? 1 : 0;
    case SAKER_I32:
        return upper ? 2147483647. : -2147483648.;
    default:
        return upper ? 0x1p53 : -0x1p53;
    }
}

double round_to(saker_type type, double v)
{
    const float_format *f = float_format_of(type);
    if (!f) {
        if (isnan(v))
            return 0;
        return fmin(fmax(nearbyint(v), integer_limit(type, false)), integer_limit(type, true));
    }
    if (isnan(v) || v == 0)
        return v;
    double r = v;
    if (isfinite(v)) {
        double step = step_at(f, v);
        r = nearbyint(v / step) * step; /* v / step is exact: step is a power of two */
    }
    if (fabs(r) > f->max)
        r = copysign(f->saturates ? f->max : INFINITY, v);
    return r;
}

double half_ulp(saker_type type, double v)
{
    const float_format *f = float_format_of(type);
    if (!f)
        return 0;
    double a = fabs(v);
    return step_at(f, a > f->max ? f->max : a) / 2;
}

double sum_factor(int64_t n)
{
    return 2 + sqrt((double)(n < 4096 ? n : 4096));
}

double quant_max(saker_type type)
{
    return type == SAKER_I8 ? 127 : type == SAKER_I4 ? 7 : float_format_of(type)->max;
}

static double decode_float(const float_format *f, uint32_t bits)
{
    uint32_t mantissa = bits & ((1u << f->mantissa_bits) - 1);
    uint32_t top = (1u << f->exponent_bits) - 1;
    uint32_t exponent = bits >> f->mantissa_bits & top;
    double sign = bits >> (f->mantissa_bits + f->exponent_bits) & 1 ? -1 : 1;
    if (exponent == top && f->has_inf)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == top && mantissa == (1u << f->mantissa_bits) - 1)
        return NAN; /* e4m3: only this one */
    if (exponent == 0)
        return sign * (double)mantissa * f->step_min;
    return sign * ldexp(1 + ldexp(mantissa, -f->mantissa_bits), (int)exponent - f->bias);
}

static uint32_t encode_float(const float_format *f, double v)
{
    uint32_t top = (1u << f->exponent_bits) - 1, ones = (1u << f->mantissa_bits) - 1;
    uint32_t sign = (signbit(v) ? 1u : 0u) << (f->mantissa_bits + f->exponent_bits);
    double a = fabs(v);
    if (isnan(v))
        return sign | top << f->mantissa_bits | (f->has_inf ? 1u << (f->mantissa_bits - 1) : ones);
    if (isinf(v))
        return sign | top << f->mantissa_bits;
    if (a < ldexp(1, 1 - f->bias))
        return sign | (uint32_t)(a / f->step_min);
    int e = ilogb(a);
    return sign | (uint32_t)(e + f->bias) << f->mantissa_bits | (uint32_t)ldexp(ldexp(a, -e) - 1, f->mantissa_bits);
}

double decode(saker_type type, const void *p)
{
    uint32_t u32;
    uint16_t u16;
    int64_t i64;
    float f;
    switch (type) {
    case SAKER_F32:
        memcpy(&f, p, 4);
        return f; /* double holds it exactly; decode_float agrees (test_oracle.c) */
    case SAKER_I32:
        memcpy(&u32, p, 4);
        return (int32_t)u32;
    case SAKER_I64:
        memcpy(&i64, p, 8);
        return (double)i64;
    case SAKER_I8:
    case SAKER_I4: /* as a whole byte; suite_case.c takes nibbles apart */
        return *(const int8_t *)p;
    case SAKER_U8:
    case SAKER_BOOL:
        return *(const uint8_t *)p;
    case SAKER_E4M3:
    case SAKER_E5M2:
        return decode_float(float_format_of(type), *(const uint8_t *)p);
    default:
        memcpy(&u16, p, 2);
        return decode_float(float_format_of(type), u16);
    }
}

void encode(saker_type type, double v, void *p)
{
    int32_t i32 =
        (int32_t)(type == SAKER_I32 || type == SAKER_I8 || type == SAKER_I4 || type == SAKER_U8 || type == SAKER_BOOL
                      ? v
                      : 0);
    int64_t i64;
    uint16_t u16;
    float f;
    switch (type) {
    case SAKER_F32:
        f = (float)v;
        memcpy(p, &f, 4);
        break;
    case SAKER_I32:
        memcpy(p, &i32, 4);
        break;
    case SAKER_I64:
        i64 = (int64_t)v;
        memcpy(p, &i64, 8);
        break;
    case SAKER_I8:
    case SAKER_I4:
    case SAKER_U8:
    case SAKER_BOOL:
        *(uint8_t *)p = (uint8_t)i32;
        break;
    case SAKER_E4M3:
    case SAKER_E5M2:
        *(uint8_t *)p = (uint8_t)encode_float(float_format_of(type), v);
        break;
    default:
        u16 = (uint16_t)encode_float(float_format_of(type), v);
        memcpy(p, &u16, 2);
    }
}
