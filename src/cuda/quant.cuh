/* quant.cuh - quantised types: conversions, scales, and division by a scale. A part of device.cuh, which includes it
 * after the float types. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CUDA_QUANT_CUH
#define SKR_CUDA_QUANT_CUH

SKR_DEVICE float quant_largest(int type)
{
    return type == SKR_E4M3 ? 448.0f : type == SKR_E5M2 ? 57344.0f : type == SKR_I8 ? 127.0f : 7.0f;
}

/* Round to nearest even with saturation, NaN stays NaN: what the conversion instruction of newer GPUs does, for those
 * without it. MANT mantissa bits, exponent bias BIAS, largest finite code MAX. */
template <int MANT, int BIAS, uint32_t MAX> SKR_DEVICE uint32_t fp8_by_hand(float f)
{
    uint32_t bits = __float_as_uint(f), sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return 0x7fu;
    uint32_t code;
    if (bits < (uint32_t)(128 - BIAS)
                   << 23) { /* subnormal there: an integer multiple of the smallest step, rounded by the adder */
        float steps = __uint_as_float(bits) * __uint_as_float((uint32_t)(127 + BIAS - 1 + MANT) << 23);
        code = __float_as_uint(__fadd_rn(steps, 8388608.0f)) & 0xffu;
    } else {
        bits += (1u << (22 - MANT)) - 1 + (bits >> (23 - MANT) & 1u);
        code = (bits >> (23 - MANT)) - ((uint32_t)(127 - BIAS) << MANT);
        code = code < MAX ? code : MAX;
    }
    return sign | code;
}

#if __CUDA_ARCH__ >= 900
#define SKR_SM90(instruction) instruction
#else
#define SKR_SM90(instruction) "// sm_90: " instruction
#endif

/* Whether the GPU has instructions for fp8. A portable file passes the front end once for all GPUs: ptxas learns it,
 * and leaves out what does not apply (tools/portable_fatbin.sh). */
SKR_DEVICE bool converts_fp8()
{
#if __CUDA_ARCH__ >= 900
    return true;
#else
    uint32_t yes;
    asm("mov.u32 %0, 0; // sm_80\n\t"
        "// sm_90: mov.u32 %0, 1;" : "=r"(yes));
    return yes != 0;
#endif
}

template <int TYPE> SKR_DEVICE uint32_t quant2(float lo, float hi)
{
    if (TYPE == SKR_I8) { /* NaN converts to 0 */
        int a, b;
        asm("cvt.rni.s32.f32 %0, %1;" : "=r"(a) : "f"(lo));
        asm("cvt.rni.s32.f32 %0, %1;" : "=r"(b) : "f"(hi));
        a = min(max(a, -127), 127), b = min(max(b, -127), 127);
        return (uint32_t)(a & 0xff) | (uint32_t)(b & 0xff) << 8;
    }
    if (converts_fp8()) {
        uint16_t two;
        if (TYPE == SKR_E4M3)
            asm(SKR_SM90("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;") : "=h"(two) : "f"(hi), "f"(lo));
        else
            asm(SKR_SM90("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;") : "=h"(two) : "f"(hi), "f"(lo));
        return two;
    }
    if (TYPE == SKR_E4M3)
        return fp8_by_hand<3, 7, 0x7e>(lo) | fp8_by_hand<3, 7, 0x7e>(hi) << 8;
    return fp8_by_hand<2, 15, 0x7b>(lo) | fp8_by_hand<2, 15, 0x7b>(hi) << 8;
}

/* Two fp8 codes in the low bytes, where there is no instruction for them. */
template <int TYPE> SKR_DEVICE void fp8_values2_by_hand(uint32_t codes, float &lo, float &hi)
{
    if (TYPE == SKR_E5M2) { /* f16's own exponent */
        unpack2<SKR_F16>((codes & 0xffu) << 8 | (codes & 0xff00u) << 16, lo, hi);
        return;
    }
    /* Exponents of f16 are 8 more. */
    unpack2<SKR_F16>((codes & 0x80u) << 8 | (codes & 0x7fu) << 7 | (codes & 0x8000u) << 16 | (codes & 0x7f00u) << 15,
                     lo, hi);
    lo = (codes & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : lo * 256.0f;
    hi = (codes & 0x7f00u) == 0x7f00u ? __uint_as_float(0x7fc00000u) : hi * 256.0f;
}

/* The same as two f16, which hold every value of fp8. */
template <int TYPE> SKR_DEVICE uint32_t fp8_halves2(uint32_t codes)
{
    if (converts_fp8()) {
        uint32_t two;
        if (TYPE == SKR_E4M3)
            asm(SKR_SM90("cvt.rn.f16x2.e4m3x2 %0, %1;") : "=r"(two) : "h"((uint16_t)codes));
        else
            asm(SKR_SM90("cvt.rn.f16x2.e5m2x2 %0, %1;") : "=r"(two) : "h"((uint16_t)codes));
        return two;
    }
    float lo, hi;
    fp8_values2_by_hand<TYPE>(codes, lo, hi);
    return pack2<SKR_F16>(lo, hi);
}

template <int TYPE> SKR_DEVICE void fp8_values2(uint32_t codes, float &lo, float &hi)
{
    if (converts_fp8())
        unpack2<SKR_F16>(fp8_halves2<TYPE>(codes), lo, hi);
    else
        fp8_values2_by_hand<TYPE>(codes, lo, hi);
}

/* The value of a code, a byte; i4: a nibble in the low bits. */
template <int TYPE> SKR_DEVICE float value_of(uint32_t code)
{
    if (TYPE == SKR_I8)
        return (float)(int8_t)code;
    if (TYPE == SKR_I4)
        return (float)((int)(code << 28) >> 28);
    float lo, hi;
    fp8_values2<TYPE>(code, lo, hi);
    return lo;
}

/* Division of a row by its scale with IEEE rounding, three operations a value: a quotient by reciprocal, its residual,
 * one correction. That is correctly rounded while nothing under- or overflows on the way, which holds for a scale of
 * middling size and values that are at most 2^17 times as large: more than any quantised type can hold. Other rows are
 * brought there first (tame), which changes no result. */
struct skr_divider {
    float scale, inverse;
};

SKR_DEVICE skr_divider divide_by(float scale)
{
    skr_divider d;
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(scale));
    d.scale = scale;
    d.inverse = __fmaf_rn(__fmaf_rn(-scale, r, 1.0f), r, r);
    return d;
}

SKR_DEVICE float divide(const skr_divider &d, float f)
{
    float q = f * d.inverse;
    return __fmaf_rn(__fmaf_rn(q, d.scale, -f), -d.inverse, q); /* signs so that -0 stays -0 */
}

SKR_DEVICE bool is_tame(float scale)
{
    return scale >= 0x1p-64f && scale <= 0x1p64f;
}

/* Whether divide() is right as it is for values of up to this size. */
SKR_DEVICE bool divides(float scale, float top)
{
    return is_tame(scale) && top <= scale * 0x1p17f;
}

/* Any scale (zero, infinite, NaN, negative) and any values: changes both so that divide() gives what the division
 * would, as far as a quantised type can tell. */
struct skr_tamer {
    float factor, scale, most;
};

SKR_DEVICE skr_tamer tame(float scale)
{
    skr_tamer t;
    float size = fabsf(scale);
    t.factor = size < 0x1p-64f ? 0x1p64f : size > 0x1p64f ? 0x1p-64f : 1.0f;
    t.scale = scale * t.factor;
    if (!(size > 0.0f && size <= 3.402823466e38f)) { /* the quotient by 0, infinity or NaN is a product with the
                                                        reciprocal, which is exact */
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t.factor) : "f"(scale));
        t.scale = 1.0f;
    }
    t.most = fabsf(t.scale) * 0x1p17f;
    return t;
}

SKR_DEVICE float tamed(const skr_tamer &t, float f)
{
    f *= t.factor;
    return fabsf(f) > t.most ? copysignf(t.most, f) : f; /* NaN stays */
}

/* The scale that brings amax to the type's largest value: amax / largest, rounded as IEEE says. Where the quotient is
 * subnormal, the correction could fall on the wrong side of a tie. */
SKR_DEVICE float quant_scale(int type, float amax)
{
    float largest = quant_largest(type);
    float inverse = type == SKR_E4M3   ? 1.0f / 448.0f
                    : type == SKR_E5M2 ? 1.0f / 57344.0f
                    : type == SKR_I8   ? 1.0f / 127.0f
                                       : 1.0f / 7.0f;
    float q = amax * inverse;
    q = __fmaf_rn(__fmaf_rn(-q, largest, amax), inverse, q);
    if (q < 0x1p-125f) {
        q = __fdiv_rn(amax, largest);
        q = q > 0.0f ? q : 1.0f;
    }
    return q;
}

/* |f| where it is finite, else 0: what counts for amax. */
SKR_DEVICE float finite_size(float f)
{
    f = fabsf(f);
    return f <= 3.402823466e38f ? f : 0.0f;
}

#endif
