/* simd.h - the SIMD vocabulary that row kernels are written in, once for all instruction-set levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A kernel file is compiled once per level with -DSKR_LEVEL=<level> and -DSKR_LEVEL_<level>; this header picks the
 * level's implementation of the words below. Everything is static: a helper with external linkage would let the linker
 * keep one level's copy for all of them. No word touches memory outside the elements it names, and none needs alignment
 * beyond the element's.
 *
 * - vf vi vm: SKR_LANES floats, as many 32-bit integers, a mask of as many lanes.
 * - vf2: two vectors, 2 * SKR_LANES neighbours. Main loops work on these: a 16-bit load then fills a whole register.
 * - v_load(T, p, i): SKR_LANES elements of type T (a constant: SKR_F32, SKR_F16, SKR_BF16) from element i of p, as f32.
 * - v_store(T, p, i, v): rounded to nearest even. T may also be SKR_I8, SKR_E4M3, SKR_E5M2: saturating, NaN gives 0 in
 *   i8 and NaN in fp8.
 * - v_load_n, v_store_n: only the first n <= SKR_LANES elements; missing lanes are loaded as 0.
 * - v_load2, v_store2: the same for vf2. v_load2_n, v_store2_n: only the first n <= 2 * SKR_LANES.
 * - v_out2(T, p, i, v, past): v_store2, or if past, a store past the caches where the level has one (SKR_PAST is 1).
 *   Its address must then be a multiple of the vector's size.
 * - v_load2_fast: v_load2 where the sign of a zero does not matter: it may get lost.
 * - v_round_to(T, v): the value that storing as T and loading again would give.
 * - v2_add, v2_mul and so on: lane-wise on vf2. v2_scale(a, b) multiplies both halves by one vector.
 * - v_swap(a, d): lanes i and i ^ d change places; d: a power of two below SKR_LANES, a constant.
 * - v2_swap_pairs(a): elements 0 and 1 change places, 2 and 3, and so on.
 * - v_sumsq2(T, p, i, a): a += the squares of 2 * SKR_LANES elements, one rounding each, lanes in the level's own
 * order.
 * - v_moments2(T, p, i, a, b): the same with a += the elements, b += their squares.
 * - v_dot2(T, p, q, i, w, a): a += p[i] * q[i] * w for 2 * SKR_LANES elements; w holds its elements in order, the sums
 *   are in the level's own.
 * - v_fma(a, b, c): a * b + c. v_fnma(a, b, c): c - a * b. Each rounded once.
 * - V_AGAIN(c): v_set1(c), read from memory each time. Where FMA overwrites its addend (NEON), a copy of a constant
 *   costs an arithmetic slot, and a load does not.
 * - v_min, v_max: a NaN in either operand gives NaN. v_lt and the like are false for NaN.
 * - v_not_le(a, b): not a <= b, so true where either is NaN.
 * - vm_count(m): how many lanes a mask has.
 * - v_pick(m, a, b, to_a, to_b): stores the lanes of a and of b that m has side by side, and returns how many these
 * are. Up to SKR_LANES elements are written: behind the picked ones is rubbish.
 * - v_at_most(a, b), v_at_least(a, b): the same in one instruction everywhere, where only a may be NaN (a NaN in b
 *   gives a or NaN) and it does not matter which of two zeros is taken.
 * - v_sum, v_hmax: over the lanes, in a fixed order.
 * - vi_load_u8(p): SKR_LANES bytes, widened; vi_load_i8(p) with their signs (not NEON). v_load4_codes(type, p, a): the
 * values of 4 * SKR_LANES codes. vi_store4_u8(p, v): the low bytes of four vectors. v_store4_signed(p, v, a): the same
 * with the sign bits of a in bit 7.
 * - v_top(T, acc, x): the larger magnitude, as bits, of each element of type T in two vb; 0 to begin with.
 * - vb: SKR_VB_BYTES bytes without a type, with a store past the caches.
 *
 * The rest is what the names say. */
#ifndef SKR_SIMD_H
#define SKR_SIMD_H

#include <stddef.h>
#include <stdint.h>

#include "../../core/job.h"

#define SKR_PASTE_(a, b, c) a##b##_##c
#define SKR_PASTE(a, b, c)  SKR_PASTE_(a, b, c)
/* The name of this level's kernel of an op: skr_rms_norm_neon. */
#define SKR_KERNEL(op) SKR_PASTE(skr_, op, SKR_LEVEL)

#define SKR_FN     static inline __attribute__((always_inline, unused))
#define SKR_UNROLL _Pragma("GCC unroll 16")
/* A row's last few elements: one function for all types, called and not inlined, so that it costs the main loops no
 * registers. */
#define SKR_TAIL static __attribute__((noinline))
/* For a function whose loop is written in the order it should run in: gcc's first scheduling pass gathers all loads at
 * the top, runs out of registers and spills. clang has no such pass. */
#if defined(__clang__)
#define SKR_IN_ORDER
#else
#define SKR_IN_ORDER __attribute__((optimize("no-schedule-insns")))
#endif

/* The first n of four 16-bit elements in one word, the rest 0; and back. Branches, and not a loop: the compiler would
 * make it a call of memcpy, around which every vector register of the caller has to be saved. */
SKR_FN uint64_t skr_get4(const uint16_t *p, int n)
{
    uint64_t word = 0;
    uint32_t pair;
    if (n >= 4) {
        __builtin_memcpy(&word, p, 8);
    } else if (n >= 2) {
        __builtin_memcpy(&pair, p, 4);
        word = n == 3 ? (uint64_t)p[2] << 32 | pair : pair;
    } else if (n == 1) {
        word = p[0];
    }
    return word;
}

SKR_FN void skr_put4(uint16_t *p, uint64_t word, int n)
{
    uint32_t pair = (uint32_t)word;
    if (n >= 4) {
        __builtin_memcpy(p, &word, 8);
    } else if (n >= 2) {
        __builtin_memcpy(p, &pair, 4);
        if (n == 3)
            p[2] = (uint16_t)(word >> 32);
    } else if (n == 1) {
        p[0] = (uint16_t)word;
    }
}

/* Which bytes of four lanes go first, for each set of lanes that v_pick() may be asked for. */
#define SKR_LANE(i) 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3
_Alignas(16) static const __attribute__((unused)) uint8_t skr_pick4[16][16] = {
    {0},
    {SKR_LANE(0)},
    {SKR_LANE(1)},
    {SKR_LANE(0), SKR_LANE(1)},
    {SKR_LANE(2)},
    {SKR_LANE(0), SKR_LANE(2)},
    {SKR_LANE(1), SKR_LANE(2)},
    {SKR_LANE(0), SKR_LANE(1), SKR_LANE(2)},
    {SKR_LANE(3)},
    {SKR_LANE(0), SKR_LANE(3)},
    {SKR_LANE(1), SKR_LANE(3)},
    {SKR_LANE(0), SKR_LANE(1), SKR_LANE(3)},
    {SKR_LANE(2), SKR_LANE(3)},
    {SKR_LANE(0), SKR_LANE(2), SKR_LANE(3)},
    {SKR_LANE(1), SKR_LANE(2), SKR_LANE(3)},
    {SKR_LANE(0), SKR_LANE(1), SKR_LANE(2), SKR_LANE(3)},
};

#if defined(SKR_LEVEL_scalar)
#include "simd_scalar.h"
#elif defined(SKR_LEVEL_neon) || defined(SKR_LEVEL_neonmm)
#include "simd_neon.h"
#elif defined(SKR_LEVEL_avx2)
#include "simd_avx2.h"
#elif defined(SKR_LEVEL_avx512) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#include "simd_avx512.h"
#else
#error "simd.h: no vocabulary for this SKR_LEVEL"
#endif

/* ---------------------------------------------------------------- what can be said once, in those words */

#if !defined(V_AGAIN)
#define V_AGAIN(c) v_set1(c)
#endif

SKR_FN vm v_is_nan(vf a)
{
    return v_ne(a, a);
}

SKR_FN vf v_copysign(vf magnitude, vf sign)
{
    vi s = vi_and(v_bits(sign), vi_set1(INT32_MIN));
    return v_of_bits(vi_or(vi_and(v_bits(magnitude), vi_set1(INT32_MAX)), s));
}

/* The fp8 code of |a| in the low byte of each lane, the rest is rubbish; |a| is finite and rounds to at most the
 * largest value. mantissa: stored mantissa bits (3 or 2); min_exp: exponent of the least normal number. With t the
 * power of two at or below |a|, at least the least normal one, adding 2^(23 - mantissa) t makes the last place of the
 * sum the target's: the FPU rounds, and the low bits hold |a| / (2^-mantissa t). The code is that number plus t's
 * exponent, counted from the least normal one, shifted left by mantissa. All its terms are taken modulo 256, and the
 * constant one sits in the anchor's low bits, where it is even and so changes no tie. */
SKR_FN vi v_fp8_byte(vf a, int mantissa, int min_exp)
{
    const int drop = 23 - mantissa;
    vi t = vi_max(vi_and(v_bits(a), vi_set1(0x7f800000)), vi_set1((127 + min_exp) << 23));
    vf anchor = v_of_bits(vi_add(t, vi_set1((drop << 23) + (-((127 + min_exp) << mantissa) & 0xff))));
    return vi_add(v_bits(v_add(v_abs(a), anchor)), vi_srl(t, drop));
}

/* The fp8 code of each lane in its low byte: saturating, NaN kept. */
SKR_FN vi v_to_fp8(vf a, int mantissa, int min_exp, float largest)
{
    vi sign = vi_and(vi_srl(v_bits(a), 24), vi_set1(0x80));
    vi code = v_fp8_byte(v_at_most(v_abs(a), v_set1(largest)), mantissa, min_exp);
    code = vi_select(v_is_nan(a), vi_set1(0x7f), code);
    return vi_or(code, sign);
}

SKR_FN vi v_to_code(int type, vf a)
{
    if (type == SKR_E4M3)
        return v_to_fp8(a, 3, -6, 448.0f);
    if (type == SKR_E5M2)
        return v_to_fp8(a, 2, -14, 57344.0f);
    const float most = type == SKR_I4 ? 7.0f : 127.0f; /* i4 as whole bytes: who stores them packs them */
    vf clamped = v_at_most(v_at_least(a, v_set1(-most)), v_set1(most));
    return v_to_int(v_select(v_is_nan(a), v_set1(0.0f), clamped));
}

/* The value of each lane's code, a byte. fp8: exponent and mantissa are put in place and the bias added; numbers
 * without an implicit one get one, and lose it again by a subtraction that is exact. */
SKR_FN vf v_of_code(int type, vi c)
{
    if (type == SKR_I8)
        return v_of_int(vi_sra(vi_sll(c, 24), 24));
    const int mantissa = type == SKR_E4M3 ? 3 : 2, bias = type == SKR_E4M3 ? 7 : 15;
    vi sign = vi_sll(vi_and(c, vi_set1(0x80)), 24), m = vi_sll(vi_and(c, vi_set1(0x7f)), 23 - mantissa);
    vf least = v_of_bits(vi_set1((128 - bias) << 23));
    vf big = v_of_bits(vi_add(m, vi_set1((127 - bias) << 23)));
    vf small = v_sub(v_of_bits(vi_add(m, vi_set1((128 - bias) << 23))), least);
    vf value = v_select(v_lt(big, least), small, big);
    if (type == SKR_E4M3)
        value =
            v_of_bits(vi_select(vi_eq(m, vi_set1(0x7f << 20)), vi_set1(0x7fc00000), v_bits(value))); /* the one NaN */
    else
        value = v_select(v_le(v_set1(65536.0f), big), v_of_bits(vi_or(m, vi_set1(0x7f800000))), value);
    return v_of_bits(vi_or(v_bits(value), sign));
}

#if !defined(SKR_LEVEL_neon) && !defined(SKR_LEVEL_neonmm)
SKR_FN void v_load4_codes(int type, const uint8_t *p, vf *a)
{
    SKR_UNROLL
    for (int k = 0; k < 4; k++, p += SKR_LANES)
        a[k] = type == SKR_I8 ? v_of_int(vi_load_i8(p)) : v_of_code(type, vi_load_u8(p));
}

SKR_FN void v_store4_signed(uint8_t *p, const vi *v, const vf *a)
{
    vi all[4];
    SKR_UNROLL
    for (int k = 0; k < 4; k++)
        all[k] = vi_or(v[k], vi_and(vi_srl(v_bits(a[k]), 24), vi_set1(0x80)));
    vi_store4_u8(p, all);
}
#endif

SKR_FN int skr_is_float(int type)
{
    return type == SKR_F32 || type == SKR_F16 || type == SKR_BF16;
}

SKR_FN void v_store(int type, void *p, int64_t i, vf a)
{
    if (skr_is_float(type))
        v_store_float(type, p, i, a);
    else
        vi_store_u8((uint8_t *)p + i, v_to_code(type, a));
}

SKR_FN void v_store_n(int type, void *p, int64_t i, vf a, int n)
{
    if (skr_is_float(type))
        v_store_float_n(type, p, i, a, n);
    else
        vi_store_u8_n((uint8_t *)p + i, v_to_code(type, a), n);
}

SKR_FN void v_store2(int type, void *p, int64_t i, vf2 a)
{
    if (skr_is_float(type)) {
        v_store2_float(type, p, i, a);
    } else {
        v_store(type, p, i, a.lo);
        v_store(type, p, i + SKR_LANES, a.hi);
    }
}

#if !defined(SKR_PAST)
#define SKR_PAST       0
#define v_stream_float v_store_float
#endif

SKR_FN void v_out2(int type, void *p, int64_t i, vf2 a, int past)
{
    if (SKR_PAST && past) {
        v_stream_float(type, p, i, a.lo);
        v_stream_float(type, p, i + SKR_LANES, a.hi);
    } else {
        v_store2(type, p, i, a);
    }
}

SKR_FN vf2 v2_set1(float a)
{
    return (vf2){v_set1(a), v_set1(a)};
}

SKR_FN vf2 v2_add(vf2 a, vf2 b)
{
    return (vf2){v_add(a.lo, b.lo), v_add(a.hi, b.hi)};
}

SKR_FN vf2 v2_sub(vf2 a, vf2 b)
{
    return (vf2){v_sub(a.lo, b.lo), v_sub(a.hi, b.hi)};
}

SKR_FN vf2 v2_mul(vf2 a, vf2 b)
{
    return (vf2){v_mul(a.lo, b.lo), v_mul(a.hi, b.hi)};
}

SKR_FN vf2 v2_scale(vf2 a, vf b)
{
    return (vf2){v_mul(a.lo, b), v_mul(a.hi, b)};
}

SKR_FN vf2 v2_fma(vf2 a, vf2 b, vf2 c)
{
    return (vf2){v_fma(a.lo, b.lo, c.lo), v_fma(a.hi, b.hi, c.hi)};
}

SKR_FN vf2 v2_round_to(int type, vf2 a)
{
    return (vf2){v_round_to(type, a.lo), v_round_to(type, a.hi)};
}

#if !defined(SKR_OWN_MOMENTS2)
SKR_FN void v_moments2(int type, const void *p, int64_t i, vf2 *sum, vf2 *square)
{
    vf2 a = v_load2(type, p, i);
    *sum = v2_add(*sum, a);
    *square = v2_fma(a, a, *square);
}
#endif

/* Stores, and gives back the rounded values as a later load would. */
SKR_FN vf2 v_store2_round(int type, void *p, int64_t i, vf2 a)
{
    v_store2_float(type, p, i, a);
    return v2_round_to(type, a);
}

SKR_FN vf2 v_load2_n(int type, const void *p, int64_t i, int n)
{
    vf2 r;
    if (n < SKR_LANES) {
        r.lo = v_load_n(type, p, i, n);
        r.hi = v_set1(0.0f);
    } else {
        r.lo = v_load(type, p, i);
        r.hi = v_load_n(type, p, i + SKR_LANES, n - SKR_LANES);
    }
    return r;
}

SKR_FN void v_store2_n(int type, void *p, int64_t i, vf2 a, int n)
{
    if (n < SKR_LANES) {
        v_store_n(type, p, i, a.lo, n);
    } else {
        v_store(type, p, i, a.lo);
        v_store_n(type, p, i + SKR_LANES, a.hi, n - SKR_LANES);
    }
}

/* Double square root: the instruction, not libm (which also sets errno). Baseline on both architectures. */
#if defined(__aarch64__)
#include <arm_neon.h>
SKR_FN double skr_sqrt(double a)
{
    return vget_lane_f64(vsqrt_f64(vdup_n_f64(a)), 0);
}
#else
#include <emmintrin.h>
SKR_FN double skr_sqrt(double a)
{
    return _mm_cvtsd_f64(_mm_sqrt_pd(_mm_set1_pd(a)));
}
#endif

#endif
