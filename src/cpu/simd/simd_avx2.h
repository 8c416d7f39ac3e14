/* simd_avx2.h - the vocabulary of simd.h on x86-64 with AVX2, FMA and F16C.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_SIMD_AVX2_H
#define SKR_SIMD_AVX2_H

#if !(defined(__AVX2__) && defined(__FMA__) && defined(__F16C__))
#error "simd_avx2.h: compile with -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>

enum { SKR_LANES = 8, SKR_VB_BYTES = 32 };

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;
typedef __m256i vb;
typedef struct vf2 {
    vf lo, hi;
} vf2;

/* ---------------------------------------------------------------- arithmetic */

SKR_FN vi v_bits(vf a)
{
    return _mm256_castps_si256(a);
}
SKR_FN vf v_of_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}
SKR_FN vf v_set1(float a)
{
    return _mm256_set1_ps(a);
}
SKR_FN vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
SKR_FN vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
SKR_FN vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
SKR_FN vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
SKR_FN vf v_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
SKR_FN vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SKR_FN vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
SKR_FN vf v_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
SKR_FN vf v_neg(vf a)
{
    return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a);
}
SKR_FN vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

SKR_FN vm v_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
SKR_FN vm v_le(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
SKR_FN vm v_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
SKR_FN vm v_ne(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ);
}
SKR_FN vf v_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}
SKR_FN vi vi_select(vm m, vi a, vi b)
{
    return v_bits(v_select(m, v_of_bits(a), v_of_bits(b)));
}
SKR_FN int vm_any(vm m)
{
    return _mm256_movemask_ps(m) != 0;
}
SKR_FN int vm_count(vm m)
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(m));
}
SKR_FN vm vm_or(vm a, vm b)
{
    return _mm256_or_ps(a, b);
}
SKR_FN vm v_not_le(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_NLE_UQ);
}
SKR_FN int v_pick(vm m, vf a, vi b, float *to_a, int32_t *to_b)
{
    int lanes = _mm256_movemask_ps(m), low = __builtin_popcount(lanes & 15);
    __m256i from = v_bits(a);
    __m128i first = _mm_load_si128((const __m128i *)skr_pick4[lanes & 15]);
    __m128i second = _mm_load_si128((const __m128i *)skr_pick4[lanes >> 4]);
    _mm_storeu_si128((__m128i *)to_a, _mm_shuffle_epi8(_mm256_castsi256_si128(from), first));
    _mm_storeu_si128((__m128i *)to_b, _mm_shuffle_epi8(_mm256_castsi256_si128(b), first));
    _mm_storeu_si128((__m128i *)(to_a + low), _mm_shuffle_epi8(_mm256_extracti128_si256(from, 1), second));
    _mm_storeu_si128((__m128i *)(to_b + low), _mm_shuffle_epi8(_mm256_extracti128_si256(b, 1), second));
    return __builtin_popcount(lanes);
}

/* MINPS and MAXPS return the second operand when either is NaN: put the first one's NaN back. */
SKR_FN vf v_min(vf a, vf b)
{
    return v_select(v_ne(a, a), a, _mm256_min_ps(a, b));
}
SKR_FN vf v_max(vf a, vf b)
{
    return v_select(v_ne(a, a), a, _mm256_max_ps(a, b));
}
SKR_FN vf v_at_most(vf a, vf b)
{
    return _mm256_min_ps(b, a);
}
SKR_FN vf v_at_least(vf a, vf b)
{
    return _mm256_max_ps(b, a);
}

SKR_FN vi vi_set1(int32_t a)
{
    return _mm256_set1_epi32(a);
}
SKR_FN vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
SKR_FN vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
SKR_FN vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
SKR_FN vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}
SKR_FN vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
SKR_FN vi vi_sll(vi a, int n)
{
    return _mm256_slli_epi32(a, n);
}
SKR_FN vi vi_srl(vi a, int n)
{
    return _mm256_srli_epi32(a, n);
}
SKR_FN vi vi_sra(vi a, int n)
{
    return _mm256_srai_epi32(a, n);
}
SKR_FN vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}
SKR_FN vm vi_eq(vi a, vi b)
{
    return v_of_bits(_mm256_cmpeq_epi32(a, b));
}
SKR_FN vi v_to_int(vf a)
{
    return _mm256_cvtps_epi32(v_round(a));
} /* v_round: whatever MXCSR says */
SKR_FN vf v_of_int(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

/* Halves, then quarters, then neighbours. */
SKR_FN float v_sum(vf a)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

SKR_FN float v_hmax(vf a)
{
    a = v_max(a, _mm256_permute2f128_ps(a, a, 1));
    a = v_max(a, _mm256_permute_ps(a, 0x4e));
    a = v_max(a, _mm256_permute_ps(a, 0xb1));
    return _mm256_cvtss_f32(a);
}

/* ---------------------------------------------------------------- 16-bit types in registers */

SKR_FN vf v_widen_bf16(__m128i a)
{
    return v_of_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16));
}

/* Nearest even in integers; VCVTNEPS2BF16 would flush subnormals. NaN is made quiet, not rounded. */
SKR_FN __m128i v_narrow_bf16(vf a)
{
    vi b = v_bits(a);
    vi odd = vi_and(vi_srl(b, 16), vi_set1(1));
    vi r = vi_add(vi_add(b, vi_set1(0x7fff)), odd);
    r = vi_srl(vi_select(v_ne(a, a), vi_or(b, vi_set1(0x400000)), r), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

SKR_FN vf v_widen(int type, __m128i a)
{
    return type == SKR_F16 ? _mm256_cvtph_ps(a) : v_widen_bf16(a);
}

SKR_FN __m128i v_narrow(int type, vf a)
{
    return type == SKR_F16 ? _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) : v_narrow_bf16(a);
}

SKR_FN vf v_swap(vf a, int d)
{
    return d == 1 ? _mm256_permute_ps(a, 0xb1) : d == 2 ? _mm256_permute_ps(a, 0x4e) : _mm256_permute2f128_ps(a, a, 1);
}
SKR_FN vf2 v2_swap_pairs(vf2 a)
{
    return (vf2){_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}

/* ---------------------------------------------------------------- memory */

SKR_FN vf v_load(int type, const void *p, int64_t i)
{
    if (type == SKR_F32)
        return _mm256_loadu_ps((const float *)p + i);
    return v_widen(type, _mm_loadu_si128((const __m128i *)((const uint16_t *)p + i)));
}

SKR_FN vf2 v_load2(int type, const void *p, int64_t i)
{
    vf2 r;
    r.lo = v_load(type, p, i);
    r.hi = v_load(type, p, i + SKR_LANES);
    return r;
}

/* The first n of four f32. VMASKMOV would do it, but qemu (7.2) reads its masked lanes and faults at a page's end. */
SKR_FN __m128 v_get4(const float *p, int n)
{
    if (n >= 4)
        return _mm_loadu_ps(p);
    __m128 low = n >= 2   ? _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)p)) /* _mm_load_sd wants alignment */
                 : n == 1 ? _mm_load_ss(p)
                          : _mm_setzero_ps();
    return n == 3 ? _mm_movelh_ps(low, _mm_load_ss(p + 2)) : low;
}

SKR_FN void v_put4(float *p, __m128 a, int n)
{
    if (n >= 4) {
        _mm_storeu_ps(p, a);
        return;
    }
    if (n >= 2)
        _mm_storel_pi((__m64 *)p, a);
    if (n == 3)
        _mm_store_ss(p + 2, _mm_movehl_ps(a, a));
    if (n == 1)
        _mm_store_ss(p, a);
}

SKR_FN vf2 v_load2_fast(int type, const void *p, int64_t i)
{
    return v_load2(type, p, i);
}

SKR_FN vf v_load_n(int type, const void *p, int64_t i, int n)
{
    int high = n > 4 ? n - 4 : 0;
    if (type == SKR_F32) {
        const float *from = (const float *)p + i;
        return _mm256_set_m128(v_get4(from + 4, high), v_get4(from, n));
    }
    const uint16_t *from = (const uint16_t *)p + i;
    return v_widen(type, _mm_set_epi64x((int64_t)skr_get4(from + 4, high), (int64_t)skr_get4(from, n)));
}

SKR_FN void v_store_float(int type, void *p, int64_t i, vf a)
{
    if (type == SKR_F32)
        _mm256_storeu_ps((float *)p + i, a);
    else
        _mm_storeu_si128((__m128i *)((uint16_t *)p + i), v_narrow(type, a));
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
        _mm256_stream_ps((float *)p + i, a);
    else
        _mm_stream_si128((__m128i *)((uint16_t *)p + i), v_narrow(type, a));
}

SKR_FN void v_store_float_n(int type, void *p, int64_t i, vf a, int n)
{
    int high = n > 4 ? n - 4 : 0;
    if (type == SKR_F32) {
        float *to = (float *)p + i;
        v_put4(to, _mm256_castps256_ps128(a), n);
        v_put4(to + 4, _mm256_extractf128_ps(a, 1), high);
    } else {
        uint16_t *to = (uint16_t *)p + i;
        __m128i h = v_narrow(type, a);
        skr_put4(to, (uint64_t)_mm_cvtsi128_si64(h), n);
        skr_put4(to + 4, (uint64_t)_mm_extract_epi64(h, 1), high);
    }
}

SKR_FN uint64_t vi_low_bytes(vi a)
{
    __m256i pick =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, /* low byte of each lane */
                         0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    a = _mm256_shuffle_epi8(a, pick);
    __m128i b = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    return (uint64_t)_mm_cvtsi128_si64(b);
}

SKR_FN void vi_store_u8(uint8_t *p, vi a)
{
    uint64_t w = vi_low_bytes(a);
    __builtin_memcpy(p, &w, 8);
}

SKR_FN void vi_store_u8_n(uint8_t *p, vi a, int n)
{
    uint64_t w = vi_low_bytes(a);
    for (int k = 0; k < n; k++)
        p[k] = (uint8_t)(w >> 8 * k);
}

SKR_FN vi vi_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

SKR_FN vi vi_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

/* The packs work within 128-bit halves: the last step puts the groups of four back in order. */
SKR_FN void vi_store4_u8(uint8_t *p, const vi *v)
{
    vi low = vi_set1(0xff);
    vi a = _mm256_packus_epi32(vi_and(v[0], low), vi_and(v[1], low));
    vi b = _mm256_packus_epi32(vi_and(v[2], low), vi_and(v[3], low));
    vi order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)p, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
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
    return _mm256_loadu_si256(p);
}
SKR_FN void vb_store(void *p, vb a)
{
    _mm256_storeu_si256(p, a);
}
SKR_FN void vb_stream(void *p, vb a)
{
    _mm256_stream_si256(p, a);
} /* p must be aligned to SKR_VB_BYTES */
SKR_FN vb vb_xor(vb a, vb b)
{
    return _mm256_xor_si256(a, b);
}
SKR_FN vb vb_set1(uint8_t a)
{
    return _mm256_set1_epi8((char)a);
}
SKR_FN vb v_top(int type, vb acc, vb x)
{
    if (type == SKR_F32)
        return _mm256_max_epu32(acc, _mm256_and_si256(x, _mm256_set1_epi32(INT32_MAX)));
    return _mm256_max_epu16(acc, _mm256_and_si256(x, _mm256_set1_epi16(INT16_MAX)));
}
SKR_FN uint64_t vb_fold(vb a)
{
    __m128i h = _mm_xor_si128(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    return (uint64_t)_mm_cvtsi128_si64(h) ^ (uint64_t)_mm_extract_epi64(h, 1);
}

#endif
