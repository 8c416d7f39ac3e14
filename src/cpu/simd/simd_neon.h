/* simd_neon.h - the vocabulary of simd.h on aarch64 NEON, with bf16 and FMLAL instructions at level neonmm.
 * SPDX-License-Identifier: Apache-2.0
 *
 * 16-bit types stay uint16_t in memory and are reinterpreted in registers (clang 14 cannot store a scalar bf16). */
#ifndef SKR_SIMD_NEON_H
#define SKR_SIMD_NEON_H

#if !defined(__ARM_NEON)
#error "simd_neon.h: compile with -march=armv8-a or above"
#endif
#if defined(SKR_LEVEL_neonmm) &&                                                                                       \
    !(defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_MATMUL_INT8) &&                           \
      defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_FP16_FML))
#error "simd_neon.h: level neonmm needs -march=armv8.2-a+fp16+fp16fml+dotprod+bf16+i8mm"
#endif

#include <arm_neon.h>

enum { SKR_LANES = 4, SKR_VB_BYTES = 16 };

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm;
typedef uint8x16_t vb;
typedef struct vf2 {
    vf lo, hi;
} vf2;

/* ---------------------------------------------------------------- arithmetic */

SKR_FN vf v_set1(float a)
{
    return vdupq_n_f32(a);
}

/* Volatile: the compiler would keep it in a register. */
SKR_FN vf v_load_again(const float *p)
{
    vf r;
    __asm__ volatile("ldr %q0, %1" : "=w"(r) : "m"(*(const float(*)[4])p));
    return r;
}
#define V_AGAIN(c)                                                                                                     \
    (__extension__({                                                                                                   \
        static const _Alignas(16) float constant_[4] = {c, c, c, c};                                                   \
        v_load_again(constant_);                                                                                       \
    }))

SKR_FN vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
SKR_FN vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
SKR_FN vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
SKR_FN vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
SKR_FN vf v_sqrt(vf a)
{
    return vsqrtq_f32(a);
}
SKR_FN vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
SKR_FN vf v_fnma(vf a, vf b, vf c)
{
    return vfmsq_f32(c, a, b);
}
SKR_FN vf v_min(vf a, vf b)
{
    return vminq_f32(a, b);
} /* FMIN and FMAX propagate NaN; FMINNM would not */
SKR_FN vf v_max(vf a, vf b)
{
    return vmaxq_f32(a, b);
}
SKR_FN vf v_at_most(vf a, vf b)
{
    return vminq_f32(a, b);
}
SKR_FN vf v_at_least(vf a, vf b)
{
    return vmaxq_f32(a, b);
}
SKR_FN vf v_abs(vf a)
{
    return vabsq_f32(a);
}
SKR_FN vf v_neg(vf a)
{
    return vnegq_f32(a);
}
SKR_FN vf v_round(vf a)
{
    return vrndnq_f32(a);
}
SKR_FN float v_sum(vf a)
{
    return vaddvq_f32(a);
}
SKR_FN float v_hmax(vf a)
{
    return vmaxvq_f32(a);
}

SKR_FN vm v_lt(vf a, vf b)
{
    return vcltq_f32(a, b);
}
SKR_FN vm v_le(vf a, vf b)
{
    return vcleq_f32(a, b);
}
SKR_FN vm v_eq(vf a, vf b)
{
    return vceqq_f32(a, b);
}
SKR_FN vm v_ne(vf a, vf b)
{
    return vmvnq_u32(vceqq_f32(a, b));
}
SKR_FN vf v_select(vm m, vf a, vf b)
{
    return vbslq_f32(m, a, b);
}
SKR_FN vi vi_select(vm m, vi a, vi b)
{
    return vbslq_s32(m, a, b);
}
SKR_FN int vm_any(vm m)
{
    return vmaxvq_u32(m) != 0;
}
SKR_FN int vm_count(vm m)
{
    return (int)vaddvq_u32(vshrq_n_u32(m, 31));
}
SKR_FN vm vm_or(vm a, vm b)
{
    return vorrq_u32(a, b);
}
SKR_FN vm v_not_le(vf a, vf b)
{
    return vmvnq_u32(vcleq_f32(a, b));
}
SKR_FN int v_pick(vm m, vf a, vi b, float *to_a, int32_t *to_b)
{
    static const uint32_t place[4] = {1, 2, 4, 8};
    uint32_t lanes = vaddvq_u32(vandq_u32(m, vld1q_u32(place)));
    uint8x16_t from = vld1q_u8(skr_pick4[lanes]);
    vst1q_f32(to_a, vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(a), from)));
    vst1q_s32(to_b, vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(b), from)));
    return 0x4332322132212110 >> 4 * lanes & 15; /* how many bits each number of four bits has */
}

SKR_FN vi vi_set1(int32_t a)
{
    return vdupq_n_s32(a);
}
/* Unsigned, because they may wrap: gcc writes the signed intrinsics as C additions. */
SKR_FN vi vi_add(vi a, vi b)
{
    return vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
SKR_FN vi vi_sub(vi a, vi b)
{
    return vreinterpretq_s32_u32(vsubq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
SKR_FN vi vi_and(vi a, vi b)
{
    return vandq_s32(a, b);
}
SKR_FN vi vi_or(vi a, vi b)
{
    return vorrq_s32(a, b);
}
SKR_FN vi vi_xor(vi a, vi b)
{
    return veorq_s32(a, b);
}
/* Operators of the compilers' vector types: the _n intrinsics want a literal count. */
SKR_FN vi vi_sll(vi a, int n)
{
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) << n);
}
SKR_FN vi vi_srl(vi a, int n)
{
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) >> n);
}
SKR_FN vi vi_sra(vi a, int n)
{
    return a >> n;
}
SKR_FN vi vi_max(vi a, vi b)
{
    return vmaxq_s32(a, b);
}
SKR_FN vm vi_eq(vi a, vi b)
{
    return vceqq_s32(a, b);
}
SKR_FN vi v_bits(vf a)
{
    return vreinterpretq_s32_f32(a);
}
SKR_FN vf v_of_bits(vi a)
{
    return vreinterpretq_f32_s32(a);
}
SKR_FN vi v_to_int(vf a)
{
    return vcvtnq_s32_f32(a);
}
SKR_FN vf v_of_int(vi a)
{
    return vcvtq_f32_s32(a);
}

/* ---------------------------------------------------------------- 16-bit types in registers */

SKR_FN vf v_widen_bf16(uint16x4_t a)
{
    return vreinterpretq_f32_u32(vshll_n_u16(a, 16));
}
SKR_FN vf v_widen_f16(uint16x4_t a)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(a));
}

SKR_FN uint16x4_t v_narrow_bf16(vf a)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return vreinterpret_u16_bf16(vcvt_bf16_f32(a)); /* BFCVTN: nearest even, subnormals kept, NaN quieted */
#else
    uint32x4_t b = vreinterpretq_u32_f32(a);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(vaddq_u32(b, vdupq_n_u32(0x7fff)), odd);
    r = vbslq_u32(vceqq_f32(a, a), r, vorrq_u32(b, vdupq_n_u32(0x400000)));
    return vshrn_n_u32(r, 16);
#endif
}

SKR_FN uint16x8_t v_narrow2_bf16(vf2 a)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a.lo), a.hi));
#else
    return vcombine_u16(v_narrow_bf16(a.lo), v_narrow_bf16(a.hi));
#endif
}

SKR_FN uint16x4_t v_narrow_f16(vf a)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(a));
}

SKR_FN uint16x8_t v_narrow2_f16(vf2 a)
{
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.lo), a.hi));
}

/* ZIP with zero puts each bf16 in the high half of a lane. Four a cycle on Neoverse V1, where SHLL is two. */
SKR_FN vf2 v_widen2_bf16(uint16x8_t a)
{
    uint16x8_t zero = vdupq_n_u16(0);
    return (vf2){vreinterpretq_f32_u16(vzip1q_u16(zero, a)), vreinterpretq_f32_u16(vzip2q_u16(zero, a))};
}

SKR_FN vf2 v_widen2_f16(uint16x8_t a)
{
    float16x8_t h = vreinterpretq_f16_u16(a);
    return (vf2){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}

/* A zero made anew each time it is used: the core drops MOVI #0 before it reaches a pipe, where a compiler would copy a
 * zero register, which takes a slot of a pipe. (volatile: or it would be hoisted out of the loop and copied.) */
SKR_FN vf v_fresh_zero(void)
{
    vf zero;
    __asm__ volatile("movi %0.2d, #0" : "=w"(zero));
    return zero;
}

SKR_FN vf v_swap(vf a, int d)
{
    return d == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2);
}
SKR_FN vf2 v2_swap_pairs(vf2 a)
{
    return (vf2){vrev64q_f32(a.lo), vrev64q_f32(a.hi)};
}

/* ---------------------------------------------------------------- memory */

SKR_FN vf v_load(int type, const void *p, int64_t i)
{
    if (type == SKR_F32)
        return vld1q_f32((const float *)p + i);
    uint16x4_t h = vld1_u16((const uint16_t *)p + i);
    return type == SKR_F16 ? v_widen_f16(h) : v_widen_bf16(h);
}

SKR_FN vf2 v_load2(int type, const void *p, int64_t i)
{
    if (type == SKR_F32) {
        vf2 r;
        r.lo = vld1q_f32((const float *)p + i);
        r.hi = vld1q_f32((const float *)p + i + 4);
        return r;
    }
    uint16x8_t h = vld1q_u16((const uint16_t *)p + i);
    return type == SKR_F16 ? v_widen2_f16(h) : v_widen2_bf16(h);
}

/* FCVTL is one a cycle on Neoverse V1 and shares its pipe with FCVTN; FMLAL with 1.0 onto 0 widens too, four a cycle.
 */
SKR_FN vf2 v_load2_fast(int type, const void *p, int64_t i)
{
#if defined(__ARM_FEATURE_FP16_FML)
    if (type == SKR_F16) {
        float16x8_t h = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)p + i));
        float16x8_t one = vreinterpretq_f16_u16(vdupq_n_u16(0x3c00));
        return (vf2){vfmlalq_low_f16(v_fresh_zero(), h, one), vfmlalq_high_f16(v_fresh_zero(), h, one)};
    }
#endif
    return v_load2(type, p, i);
}

/* The instructions that multiply 16-bit elements into f32 need no widening. BFMLALB and T take the even and the odd
 * elements. */
SKR_FN vf2 v_product2(int type, const void *p, const void *q, int64_t i)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (type == SKR_BF16) {
        bfloat16x8_t a = vreinterpretq_bf16_u16(vld1q_u16((const uint16_t *)p + i));
        bfloat16x8_t b = vreinterpretq_bf16_u16(vld1q_u16((const uint16_t *)q + i));
        return (vf2){vbfmlalbq_f32(v_fresh_zero(), a, b), vbfmlaltq_f32(v_fresh_zero(), a, b)};
    }
#endif
#if defined(__ARM_FEATURE_FP16_FML)
    if (type == SKR_F16) {
        float16x8_t a = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)p + i));
        float16x8_t b = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)q + i));
        return (vf2){vfmlalq_low_f16(v_fresh_zero(), a, b), vfmlalq_high_f16(v_fresh_zero(), a, b)};
    }
#endif
    vf2 a = v_load2(type, p, i), b = v_load2(type, q, i);
    return (vf2){v_mul(a.lo, b.lo), v_mul(a.hi, b.hi)};
}

SKR_FN vf v_load_n(int type, const void *p, int64_t i, int n)
{
    if (type == SKR_F32) {
        const float *from = (const float *)p + i;
        float32x2_t zero = vdup_n_f32(0.0f), low = zero, high = zero;
        if (n >= 4)
            return vld1q_f32(from);
        if (n >= 2)
            low = vld1_f32(from);
        if (n == 3)
            high = vld1_lane_f32(from + 2, zero, 0);
        if (n == 1)
            low = vld1_lane_f32(from, zero, 0);
        return vcombine_f32(low, high);
    }
    uint16x4_t h = vcreate_u16(skr_get4((const uint16_t *)p + i, n));
    return type == SKR_F16 ? v_widen_f16(h) : v_widen_bf16(h);
}

SKR_FN void v_store_float(int type, void *p, int64_t i, vf a)
{
    if (type == SKR_F32)
        vst1q_f32((float *)p + i, a);
    else
        vst1_u16((uint16_t *)p + i, type == SKR_F16 ? v_narrow_f16(a) : v_narrow_bf16(a));
}

SKR_FN void v_store2_float(int type, void *p, int64_t i, vf2 a)
{
    if (type == SKR_F32) {
        vst1q_f32((float *)p + i, a.lo);
        vst1q_f32((float *)p + i + 4, a.hi);
    } else {
        vst1q_u16((uint16_t *)p + i, type == SKR_F16 ? v_narrow2_f16(a) : v_narrow2_bf16(a));
    }
}

SKR_FN void v_store_float_n(int type, void *p, int64_t i, vf a, int n)
{
    if (type != SKR_F32) {
        uint16x4_t h = type == SKR_F16 ? v_narrow_f16(a) : v_narrow_bf16(a);
        skr_put4((uint16_t *)p + i, vget_lane_u64(vreinterpret_u64_u16(h), 0), n);
        return;
    }
    float *to = (float *)p + i;
    if (n >= 4) {
        vst1q_f32(to, a);
    } else {
        if (n >= 2)
            vst1_f32(to, vget_low_f32(a));
        if (n == 3)
            vst1q_lane_f32(to + 2, a, 2);
        if (n == 1)
            vst1q_lane_f32(to, a, 0);
    }
}

SKR_FN uint32_t vi_low_bytes(vi a)
{
    uint16x4_t h = vmovn_u32(vreinterpretq_u32_s32(a));
    return vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(h, h))), 0);
}

SKR_FN void vi_store_u8(uint8_t *p, vi a)
{
    uint32_t w = vi_low_bytes(a);
    __builtin_memcpy(p, &w, 4);
}

SKR_FN void vi_store_u8_n(uint8_t *p, vi a, int n)
{
    uint32_t w = vi_low_bytes(a);
    for (int k = 0; k < n; k++)
        p[k] = (uint8_t)(w >> 8 * k);
}

SKR_FN vi vi_load_u8(const uint8_t *p)
{
    uint32_t w;
    __builtin_memcpy(&w, p, 4);
    uint16x8_t h = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(w)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(h)));
}

/* fp8 by way of f16: e5m2 is its upper byte. e4m3 with its exponent put where f16 has it is 2^8 too small, subnormal or
 * not; the NaN (all ones) would be a number there. */
SKR_FN void v_load4_codes(int type, const uint8_t *p, vf *a)
{
    uint8x16_t b = vld1q_u8(p), low = vdupq_n_u8(0), high = b;
    if (type == SKR_I8) { /* 128 more than the code as the last byte of 2^23: conversions go at one a cycle */
        uint8x16_t more = veorq_u8(b, vdupq_n_u8(0x80));
        uint16x8_t first = vreinterpretq_u16_u8(vzip1q_u8(more, low));
        uint16x8_t second = vreinterpretq_u16_u8(vzip2q_u8(more, low)), top = vdupq_n_u16(0x4b00);
        a[0] = vreinterpretq_f32_u16(vzip1q_u16(first, top));
        a[1] = vreinterpretq_f32_u16(vzip2q_u16(first, top));
        a[2] = vreinterpretq_f32_u16(vzip1q_u16(second, top));
        a[3] = vreinterpretq_f32_u16(vzip2q_u16(second, top));
        for (int k = 0; k < 4; k++)
            a[k] = v_sub(a[k], v_set1(0x1p23f + 128));
        return;
    }
    if (type == SKR_E4M3) {
        uint8x16_t nan = vceqq_u8(vorrq_u8(b, vdupq_n_u8(0x80)), vdupq_n_u8(0xff));
        low = vbicq_u8(vshlq_n_u8(b, 7), nan);
        high = vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(b), 1)); /* the sign twice: bits 7 and 6 */
        high = vbslq_u8(nan, vandq_u8(b, vdupq_n_u8(0xfe)), vandq_u8(high, vdupq_n_u8(0xbf)));
    }
    float16x8_t first = vreinterpretq_f16_u8(vzip1q_u8(low, high));
    float16x8_t second = vreinterpretq_f16_u8(vzip2q_u8(low, high));
    a[0] = vcvt_f32_f16(vget_low_f16(first));
    a[1] = vcvt_high_f32_f16(first);
    a[2] = vcvt_f32_f16(vget_low_f16(second));
    a[3] = vcvt_high_f32_f16(second);
    if (type == SKR_E4M3)
        for (int k = 0; k < 4; k++)
            a[k] = v_mul(a[k], v_set1(0x1p8f));
}

SKR_FN uint8x16_t vi_pack4(const vi *v)
{
    uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_s32(v[0]), vreinterpretq_u16_s32(v[1]));
    uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_s32(v[2]), vreinterpretq_u16_s32(v[3]));
    return vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

SKR_FN void vi_store4_u8(uint8_t *p, const vi *v)
{
    vst1q_u8(p, vi_pack4(v));
}

SKR_FN void v_store4_signed(uint8_t *p, const vi *v, const vf *a)
{
    uint16x8_t low = vuzp2q_u16(vreinterpretq_u16_f32(a[0]), vreinterpretq_u16_f32(a[1]));
    uint16x8_t high = vuzp2q_u16(vreinterpretq_u16_f32(a[2]), vreinterpretq_u16_f32(a[3]));
    uint8x16_t top = vuzp2q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    vst1q_u8(p, vbslq_u8(vdupq_n_u8(0x80), top, vi_pack4(v)));
}

SKR_FN vf v_round_to(int type, vf a)
{
    if (type == SKR_F32)
        return a;
    return type == SKR_F16 ? v_widen_f16(v_narrow_f16(a)) : v_widen_bf16(v_narrow_bf16(a));
}

/* BFMLALB/T and FMLAL multiply 16-bit elements exactly and add in f32: no widening at all (BFMLAL sums even and odd
 * elements apart). */
SKR_FN void v_sumsq2(int type, const void *p, int64_t i, vf2 *acc)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (type == SKR_BF16) {
        bfloat16x8_t h = vreinterpretq_bf16_u16(vld1q_u16((const uint16_t *)p + i));
        acc->lo = vbfmlalbq_f32(acc->lo, h, h);
        acc->hi = vbfmlaltq_f32(acc->hi, h, h);
        return;
    }
#endif
#if defined(__ARM_FEATURE_FP16_FML)
    if (type == SKR_F16) {
        float16x8_t h = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)p + i));
        acc->lo = vfmlalq_low_f16(acc->lo, h, h);
        acc->hi = vfmlalq_high_f16(acc->hi, h, h);
        return;
    }
#endif
    vf2 a = v_load2(type, p, i);
    acc->lo = v_fma(a.lo, a.lo, acc->lo);
    acc->hi = v_fma(a.hi, a.hi, acc->hi);
}

/* bf16 ones. Told to make them from 0x3f80, gcc 12 writes "fmov v.8h, 1.0", which are ones of f16. */
SKR_FN uint16x8_t v_ones_bf16(void)
{
    uint16x8_t one;
    __asm__("dup %0.8h, %w1" : "=w"(one) : "r"(0x3f80));
    return one;
}

/* The sum of the elements as their products with 1. */
#define SKR_OWN_MOMENTS2
SKR_FN void v_moments2(int type, const void *p, int64_t i, vf2 *sum, vf2 *square)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (type == SKR_BF16) {
        bfloat16x8_t h = vreinterpretq_bf16_u16(vld1q_u16((const uint16_t *)p + i));
        bfloat16x8_t one = vreinterpretq_bf16_u16(v_ones_bf16());
        *sum = (vf2){vbfmlalbq_f32(sum->lo, h, one), vbfmlaltq_f32(sum->hi, h, one)};
        *square = (vf2){vbfmlalbq_f32(square->lo, h, h), vbfmlaltq_f32(square->hi, h, h)};
        return;
    }
#endif
#if defined(__ARM_FEATURE_FP16_FML)
    if (type == SKR_F16) {
        float16x8_t h = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)p + i));
        float16x8_t one = vreinterpretq_f16_u16(vdupq_n_u16(0x3c00));
        *sum = (vf2){vfmlalq_low_f16(sum->lo, h, one), vfmlalq_high_f16(sum->hi, h, one)};
        *square = (vf2){vfmlalq_low_f16(square->lo, h, h), vfmlalq_high_f16(square->hi, h, h)};
        return;
    }
#endif
    vf2 a = v_load2(type, p, i);
    *sum = (vf2){v_add(sum->lo, a.lo), v_add(sum->hi, a.hi)};
    *square = (vf2){v_fma(a.lo, a.lo, square->lo), v_fma(a.hi, a.hi, square->hi)};
}

/* The products of 16-bit elements are exact in f32, so they come first. w is sorted to match their order. */
SKR_FN void v_dot2(int type, const void *p, const void *q, int64_t i, vf2 w, vf2 *acc)
{
#if defined(SKR_LEVEL_neonmm)
    if (type != SKR_F32) {
        vf2 a = v_product2(type, p, q, i);
        if (type == SKR_BF16)
            w = (vf2){vuzp1q_f32(w.lo, w.hi), vuzp2q_f32(w.lo, w.hi)};
        acc->lo = v_fma(a.lo, w.lo, acc->lo);
        acc->hi = v_fma(a.hi, w.hi, acc->hi);
        return;
    }
#endif
    vf2 a = v_load2(type, p, i), b = v_load2(type, q, i);
    acc->lo = v_fma(v_mul(a.lo, w.lo), b.lo, acc->lo);
    acc->hi = v_fma(v_mul(a.hi, w.hi), b.hi, acc->hi);
}

SKR_FN void v_prefetch_l2(const void *p)
{
    __builtin_prefetch(p, 0, 2);
}

/* ---------------------------------------------------------------- untyped bytes */

SKR_FN vb vb_load(const void *p)
{
    return vld1q_u8(p);
}
SKR_FN void vb_store(void *p, vb a)
{
    vst1q_u8(p, a);
}
SKR_FN void vb_stream(void *p, vb a)
{
    vst1q_u8(p, a);
} /* the cores stream long runs of stores by themselves */
SKR_FN vb vb_xor(vb a, vb b)
{
    return veorq_u8(a, b);
}
SKR_FN vb vb_set1(uint8_t a)
{
    return vdupq_n_u8(a);
}
SKR_FN vb v_top(int type, vb acc, vb x)
{
    if (type == SKR_F32)
        return vreinterpretq_u8_u32(
            vmaxq_u32(vreinterpretq_u32_u8(acc), vandq_u32(vreinterpretq_u32_u8(x), vdupq_n_u32(INT32_MAX))));
    return vreinterpretq_u8_u16(
        vmaxq_u16(vreinterpretq_u16_u8(acc), vandq_u16(vreinterpretq_u16_u8(x), vdupq_n_u16(INT16_MAX))));
}
SKR_FN uint64_t vb_fold(vb a)
{
    uint64x2_t w = vreinterpretq_u64_u8(a);
    return vgetq_lane_u64(w, 0) ^ vgetq_lane_u64(w, 1);
}

#endif
