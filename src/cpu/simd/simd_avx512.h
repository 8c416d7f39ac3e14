/* simd_avx512.h - the vocabulary of simd.h on x86-64 with AVX-512 (F, BW, DQ, VL); also what avx512bf16 and amx use.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_SIMD_AVX512_H
#define SKR_SIMD_AVX512_H

#if !(defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) &&               \
      defined(__AVX512VNNI__) && defined(__FMA__) && defined(__F16C__))
#error "simd_avx512.h: compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c"
#endif
#if defined(SKR_LEVEL_avx512bf16) && !defined(__AVX512BF16__)
#error "simd_avx512.h: level avx512bf16 needs -mavx512bf16"
#endif
#if defined(SKR_LEVEL_amx) &&                                                                                          \
    !(defined(__AVX512BF16__) && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__))
#error "simd_avx512.h: level amx needs -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8"
#endif

#include <immintrin.h>

enum { SKR_LANES = 16, SKR_VB_BYTES = 64 };

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
typedef __m512i vb;
typedef struct vf2 {
    vf lo, hi;
} vf2;

/* ---------------------------------------------------------------- arithmetic */

SKR_FN vi v_bits(vf a)
{
    return _mm512_castps_si512(a);
}
SKR_FN vf v_of_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}
SKR_FN vf v_set1(float a)
{
    return _mm512_set1_ps(a);
}
SKR_FN vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
SKR_FN vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
SKR_FN vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
SKR_FN vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
SKR_FN vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
SKR_FN vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
SKR_FN vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
SKR_FN vf v_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
SKR_FN vf v_neg(vf a)
{
    return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a);
}
SKR_FN vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

SKR_FN vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
SKR_FN vm v_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
SKR_FN vm v_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
SKR_FN vm v_ne(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ);
}
SKR_FN vf v_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
SKR_FN vi vi_select(vm m, vi a, vi b)
{
    return _mm512_mask_blend_epi32(m, b, a);
}
SKR_FN int vm_any(vm m)
{
    return m != 0;
}
SKR_FN int vm_count(vm m)
{
    return __builtin_popcount(m);
}
SKR_FN vm vm_or(vm a, vm b)
{
    return (vm)(a | b);
}
SKR_FN vm v_not_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ);
}
/* To a register and then to memory: compressing stores are slow on some cores. */
SKR_FN int v_pick(vm m, vf a, vi b, float *to_a, int32_t *to_b)
{
    _mm512_storeu_ps(to_a, _mm512_maskz_compress_ps(m, a));
    _mm512_storeu_si512(to_b, _mm512_maskz_compress_epi32(m, b));
    return __builtin_popcount(m);
}

/* MINPS and MAXPS return the second operand when either is NaN: put the first one's NaN back. */
SKR_FN vf v_min(vf a, vf b)
{
    return v_select(v_ne(a, a), a, _mm512_min_ps(a, b));
}
SKR_FN vf v_max(vf a, vf b)
{
    return v_select(v_ne(a, a), a, _mm512_max_ps(a, b));
}
SKR_FN vf v_at_most(vf a, vf b)
{
    return _mm512_min_ps(b, a);
}
SKR_FN vf v_at_least(vf a, vf b)
{
    return _mm512_max_ps(b, a);
}

SKR_FN vi vi_set1(int32_t a)
{
    return _mm512_set1_epi32(a);
}
SKR_FN vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
SKR_FN vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
SKR_FN vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
SKR_FN vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
SKR_FN vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
SKR_FN vi vi_sll(vi a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}
SKR_FN vi vi_srl(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}
SKR_FN vi vi_sra(vi a, int n)
{
    return _mm512_srai_epi32(a, (unsigned)n);
}
SKR_FN vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}
SKR_FN vm vi_eq(vi a, vi b)
{
    return _mm512_cmpeq_epi32_mask(a, b);
}
SKR_FN vi v_to_int(vf a)
{
    return _mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SKR_FN vf v_of_int(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

/* Halves, then quarters, then pairs, then neighbours. */
SKR_FN float v_sum(vf a)
{
    __m256 q = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

SKR_FN float v_hmax(vf a)
{
    a = v_max(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    a = v_max(a, _mm512_shuffle_f32x4(a, a, 0xb1));
    a = v_max(a, _mm512_permute_ps(a, 0x4e));
    a = v_max(a, _mm512_permute_ps(a, 0xb1));
    return _mm512_cvtss_f32(a);
}

/* ---------------------------------------------------------------- 16-bit types in registers */

SKR_FN vf v_widen_bf16(__m256i a)
{
    return v_of_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16));
}

/* Nearest even; NaN is made quiet, not rounded. VCVTNEPS2BF16 takes subnormals for 0: these, rare as they are, go the
 * way of levels that do not have it, in integers. */
SKR_FN __m256i v_narrow_bf16(vf a)
{
#if defined(__AVX512BF16__)
    enum { SUBNORMAL = 0x20 };
    if (__builtin_expect(!_mm512_fpclass_ps_mask(a, SUBNORMAL), 1))
        return (__m256i)_mm512_cvtneps_pbh(a);
#endif
    vi b = v_bits(a);
    vi odd = vi_and(vi_srl(b, 16), vi_set1(1));
    vi r = vi_add(vi_add(b, vi_set1(0x7fff)), odd);
    r = vi_select(v_ne(a, a), vi_or(b, vi_set1(0x400000)), r);
    return _mm512_cvtepi32_epi16(vi_srl(r, 16));
}

SKR_FN vf v_widen(int type, __m256i a)
{
    return type == SKR_F16 ? _mm512_cvtph_ps(a) : v_widen_bf16(a);
}

SKR_FN __m256i v_narrow(int type, vf a)
{
    return type == SKR_F16 ? _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) : v_narrow_bf16(a);
}

/* ---------------------------------------------------------------- memory: masked lanes are neither read nor written */

SKR_FN __mmask16 v_first(int n)
{
    return (__mmask16)((1u << n) - 1);
}

SKR_FN vf v_swap(vf a, int d)
{
    return d == 1   ? _mm512_permute_ps(a, 0xb1)
           : d == 2 ? _mm512_permute_ps(a, 0x4e)
           : d == 4 ? _mm512_shuffle_f32x4(a, a, 0xb1)
                    : _mm512_shuffle_f32x4(a, a, 0x4e);
}
SKR_FN vf2 v2_swap_pairs(vf2 a)
{
    return (vf2){_mm512_permute_ps(a.lo, 0xb1), _mm512_permute_ps(a.hi, 0xb1)};
}

SKR_FN vf v_load(int type, const void *p, int64_t i)
{
    if (type == SKR_F32)
        return _mm512_loadu_ps((const float *)p + i);
    return v_widen(type, _mm256_loadu_si256((const __m256i *)((const uint16_t *)p + i)));
}

SKR_FN vf2 v_load2(int type, const void *p, int64_t i)
{
    vf2 r;
    r.lo = v_load(type, p, i);
    r.hi = v_load(type, p, i + SKR_LANES);
    return r;
}

SKR_FN vf2 v_load2_fast(int type, const void *p, int64_t i)
{
    return v_load2(type, p, i);
}

SKR_FN vf v_load_n(int type, const void *p, int64_t i, int n)
{
    if (type == SKR_F32)
        return _mm512_maskz_loadu_ps(v_first(n), (const float *)p + i);
    return v_widen(type, _mm256_maskz_loadu_epi16(v_first(n), (const uint16_t *)p + i));
}

SKR_FN void v_store_float(int type, void *p, int64_t i, vf a)
{
    if (type == SKR_F32)
        _mm512_storeu_ps((float *)p + i, a);
    else
        _mm256_storeu_si256((__m256i *)((uint16_t *)p + i), v_narrow(type, a));
}

SKR_FN void v_store2_float(int type, void *p, int64_t i, vf2 a)
{
    v_store_float(type, p, i, a.lo);
    v_store_float(type, p, i + SKR_LANES, a.hi);
}

#define SKR_PAST 1
SKR_FN void v_stream_float(int type, void *p, int64_t i, vf a)
{
    if (type == SKR_F32)
        _mm512_stream_ps((float *)p + i, a);
    else
        _mm256_stream_si256((__m256i *)((uint16_t *)p + i), v_narrow(type, a));
}

SKR_FN void v_store_float_n(int type, void *p, int64_t i, vf a, int n)
{
    if (type == SKR_F32)
        _mm512_mask_storeu_ps((float *)p + i, v_first(n), a);
    else
        _mm256_mask_storeu_epi16((uint16_t *)p + i, v_first(n), v_narrow(type, a));
}

SKR_FN void vi_store_u8(uint8_t *p, vi a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}

SKR_FN void vi_store_u8_n(uint8_t *p, vi a, int n)
{
    _mm512_mask_cvtepi32_storeu_epi8(p, v_first(n), a);
}

SKR_FN vi vi_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

SKR_FN vi vi_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

SKR_FN void vi_store4_u8(uint8_t *p, const vi *v)
{
    for (int k = 0; k < 4; k++)
        vi_store_u8(p + k * SKR_LANES, v[k]);
}

SKR_FN vf v_round_to(int type, vf a)
{
    return type == SKR_F32 ? a : v_widen(type, v_narrow(type, a));
}

SKR_FN void v_sumsq2(int type, const void *p, int64_t i, vf2 *acc)
{
    vf2 a = v_load2(type, p, i);
    acc->lo = v_fma(a.lo, a.lo, acc->lo);
    acc->hi = v_fma(a.hi, a.hi, acc->hi);
}

SKR_FN void v_dot2(int type, const void *p, const void *q, int64_t i, vf2 w, vf2 *acc)
{
    vf2 a = v_load2(type, p, i), b = v_load2(type, q, i);
    acc->lo = v_fma(v_mul(a.lo, w.lo), b.lo, acc->lo);
    acc->hi = v_fma(v_mul(a.hi, w.hi), b.hi, acc->hi);
}

SKR_FN void v_prefetch_l2(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* ---------------------------------------------------------------- untyped bytes */

SKR_FN vb vb_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
SKR_FN void vb_store(void *p, vb a)
{
    _mm512_storeu_si512(p, a);
}
SKR_FN void vb_stream(void *p, vb a)
{
    _mm512_stream_si512(p, a);
} /* p must be aligned to SKR_VB_BYTES */
SKR_FN vb vb_xor(vb a, vb b)
{
    return _mm512_xor_si512(a, b);
}
SKR_FN vb vb_set1(uint8_t a)
{
    return _mm512_set1_epi8((char)a);
}
SKR_FN vb v_top(int type, vb acc, vb x)
{
    if (type == SKR_F32)
        return _mm512_max_epu32(acc, _mm512_and_si512(x, _mm512_set1_epi32(INT32_MAX)));
    return _mm512_max_epu16(acc, _mm512_and_si512(x, _mm512_set1_epi16(INT16_MAX)));
}
SKR_FN uint64_t vb_fold(vb a)
{
    __m256i q = _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i h = _mm_xor_si128(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    return (uint64_t)_mm_cvtsi128_si64(h) ^ (uint64_t)_mm_extract_epi64(h, 1);
}

#endif
