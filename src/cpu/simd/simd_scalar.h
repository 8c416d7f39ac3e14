/* simd_scalar.h - the vocabulary of simd.h in plain C, one element at a time: for any machine, and to compare the
 * others with. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_SIMD_SCALAR_H
#define SKR_SIMD_SCALAR_H

enum { SKR_LANES = 1, SKR_VB_BYTES = 8 };

typedef float vf;
typedef int32_t vi;
typedef int vm;
typedef uint64_t vb;
typedef struct vf2 {
    vf lo, hi;
} vf2;

/* ---------------------------------------------------------------- arithmetic */

SKR_FN vi v_bits(vf a)
{
    vi b;
    __builtin_memcpy(&b, &a, 4);
    return b;
}

SKR_FN vf v_of_bits(vi a)
{
    vf b;
    __builtin_memcpy(&b, &a, 4);
    return b;
}

SKR_FN vf v_set1(float a)
{
    return a;
}
SKR_FN vf v_add(vf a, vf b)
{
    return a + b;
}
SKR_FN vf v_sub(vf a, vf b)
{
    return a - b;
}
SKR_FN vf v_mul(vf a, vf b)
{
    return a * b;
}
SKR_FN vf v_div(vf a, vf b)
{
    return a / b;
}
/* Correctly rounded: 53 bits are more than 2 * 24 + 2. */
SKR_FN double skr_sqrt(double a);
SKR_FN vf v_sqrt(vf a)
{
    return (float)skr_sqrt(a);
}

/* One rounding where the baseline has the instruction (aarch64). On x86-64 without FMA the sum is formed in double,
 * where the product is exact: it differs from a true FMA only when the double sum falls on a rounding boundary of f32.
 */
SKR_FN vf v_fma(vf a, vf b, vf c)
{
#if defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}

SKR_FN vf v_fnma(vf a, vf b, vf c)
{
    return v_fma(-a, b, c);
}
SKR_FN vf v_min(vf a, vf b)
{
    return a != a || a < b ? a : b;
}
SKR_FN vf v_max(vf a, vf b)
{
    return a != a || a > b ? a : b;
}
SKR_FN vf v_at_most(vf a, vf b)
{
    return a > b ? b : a;
}
SKR_FN vf v_at_least(vf a, vf b)
{
    return a < b ? b : a;
}
SKR_FN vf v_abs(vf a)
{
    return v_of_bits(v_bits(a) & INT32_MAX);
}
SKR_FN vf v_neg(vf a)
{
    return -a;
}
SKR_FN float v_sum(vf a)
{
    return a;
}
SKR_FN float v_hmax(vf a)
{
    return a;
}

SKR_FN vm v_lt(vf a, vf b)
{
    return a < b;
}
SKR_FN vm v_le(vf a, vf b)
{
    return a <= b;
}
SKR_FN vm v_eq(vf a, vf b)
{
    return a == b;
}
SKR_FN vm v_ne(vf a, vf b)
{
    return a != b;
}
SKR_FN vf v_select(vm m, vf a, vf b)
{
    return m ? a : b;
}
SKR_FN vi vi_select(vm m, vi a, vi b)
{
    return m ? a : b;
}
SKR_FN int vm_any(vm m)
{
    return m;
}
SKR_FN int vm_count(vm m)
{
    return m;
}
SKR_FN vm vm_or(vm a, vm b)
{
    return a | b;
}
SKR_FN vm v_not_le(vf a, vf b)
{
    return !(a <= b);
}
SKR_FN int v_pick(vm m, vf a, vi b, float *to_a, int32_t *to_b)
{
    *to_a = a;
    *to_b = b;
    return m;
}

SKR_FN vi vi_set1(int32_t a)
{
    return a;
}
SKR_FN vi vi_add(vi a, vi b)
{
    return (vi)((uint32_t)a + (uint32_t)b);
}
SKR_FN vi vi_sub(vi a, vi b)
{
    return (vi)((uint32_t)a - (uint32_t)b);
}
SKR_FN vi vi_and(vi a, vi b)
{
    return a & b;
}
SKR_FN vi vi_or(vi a, vi b)
{
    return a | b;
}
SKR_FN vi vi_xor(vi a, vi b)
{
    return a ^ b;
}
SKR_FN vi vi_sll(vi a, int n)
{
    return (vi)((uint32_t)a << n);
}
SKR_FN vi vi_srl(vi a, int n)
{
    return (vi)((uint32_t)a >> n);
}
SKR_FN vi vi_sra(vi a, int n)
{
    return a >> n;
}
SKR_FN vi vi_max(vi a, vi b)
{
    return a > b ? a : b;
}
SKR_FN vm vi_eq(vi a, vi b)
{
    return a == b;
}
SKR_FN vf v_of_int(vi a)
{
    return (vf)a;
}

/* To nearest even: below 2^23 adding 2^23 leaves no fraction bits; from there on every number is an integer. */
SKR_FN vf v_round(vf a)
{
    vf r = (v_abs(a) + 8388608.0f) - 8388608.0f;
    r = v_of_bits(v_bits(r) | (v_bits(a) & INT32_MIN));
    return v_abs(a) < 8388608.0f ? r : a;
}
/* Beyond the integers it saturates, NaN gives 0: a plain conversion would be undefined. */
SKR_FN vi v_to_int(vf a)
{
    vf r = v_round(a);
    if (r >= -2147483648.0f && r < 2147483648.0f)
        return (vi)r;
    return r != r ? 0 : r < 0.0f ? INT32_MIN : INT32_MAX;
}

/* ---------------------------------------------------------------- 16-bit types */

SKR_FN uint16_t s_to_bf16(float a)
{
    uint32_t b = (uint32_t)v_bits(a);
    if (a != a)
        return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

SKR_FN float s_of_bf16(uint16_t h)
{
    return v_of_bits((int32_t)((uint32_t)h << 16));
}

/* f16 has 10 mantissa bits and exponents -14 to 15. Normals: round away the low 13 bits in integers. Below 2^-14 the
 * result is a multiple of 2^-24, which adding 0.5 leaves, rounded to nearest even, in the low bits. From 65520 up:
 * infinity. */
SKR_FN uint16_t s_to_f16(float a)
{
    uint32_t b = (uint32_t)v_bits(a);
    uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    b &= INT32_MAX;
    if (b > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (b >> 13 & 0x1ff));
    if (b >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    if (b < 0x38800000)
        return (uint16_t)(sign | (uint16_t)(v_bits(v_of_bits((vi)b) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (((b + 0xfff + (b >> 13 & 1)) >> 13) - (112u << 10)));
}

SKR_FN float s_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t m = (uint32_t)(h & 0x7fff) << 13;
    float a = m >= 0x0f800000 ? v_of_bits((vi)(m + 0x70000000)) /* infinity and NaN */
                              : v_of_bits((vi)m) * 0x1p112f;    /* exact, subnormals too */
    return v_of_bits((vi)((uint32_t)v_bits(a) | sign));
}

SKR_FN vf v_swap(vf a, int d) /* there is no such d */
{
    (void)d;
    return a;
}
SKR_FN vf2 v2_swap_pairs(vf2 a)
{
    return (vf2){a.hi, a.lo};
}

/* ---------------------------------------------------------------- memory */

SKR_FN vf v_load(int type, const void *p, int64_t i)
{
    if (type == SKR_F32)
        return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return type == SKR_F16 ? s_of_f16(h) : s_of_bf16(h);
}

SKR_FN vf2 v_load2(int type, const void *p, int64_t i)
{
    vf2 r;
    r.lo = v_load(type, p, i);
    r.hi = v_load(type, p, i + 1);
    return r;
}

SKR_FN vf2 v_load2_fast(int type, const void *p, int64_t i)
{
    return v_load2(type, p, i);
}

SKR_FN vf v_load_n(int type, const void *p, int64_t i, int n)
{
    return n > 0 ? v_load(type, p, i) : 0.0f;
}

SKR_FN void v_store_float(int type, void *p, int64_t i, vf a)
{
    if (type == SKR_F32)
        ((float *)p)[i] = a;
    else
        ((uint16_t *)p)[i] = type == SKR_F16 ? s_to_f16(a) : s_to_bf16(a);
}

SKR_FN void v_store2_float(int type, void *p, int64_t i, vf2 a)
{
    v_store_float(type, p, i, a.lo);
    v_store_float(type, p, i + 1, a.hi);
}

SKR_FN void v_store_float_n(int type, void *p, int64_t i, vf a, int n)
{
    if (n > 0)
        v_store_float(type, p, i, a);
}

SKR_FN void vi_store_u8(uint8_t *p, vi a)
{
    *p = (uint8_t)a;
}

SKR_FN void vi_store_u8_n(uint8_t *p, vi a, int n)
{
    if (n > 0)
        *p = (uint8_t)a;
}

SKR_FN vi vi_load_u8(const uint8_t *p)
{
    return *p;
}

SKR_FN vi vi_load_i8(const uint8_t *p)
{
    return (int8_t)*p;
}

SKR_FN void vi_store4_u8(uint8_t *p, const vi *v)
{
    for (int k = 0; k < 4; k++)
        p[k] = (uint8_t)v[k];
}

SKR_FN vf v_round_to(int type, vf a)
{
    if (type == SKR_F32)
        return a;
    return type == SKR_F16 ? s_of_f16(s_to_f16(a)) : s_of_bf16(s_to_bf16(a));
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
    __builtin_prefetch(p, 0, 2);
}

/* ---------------------------------------------------------------- untyped bytes */

SKR_FN vb vb_load(const void *p)
{
    vb a;
    __builtin_memcpy(&a, p, 8);
    return a;
}

SKR_FN void vb_store(void *p, vb a)
{
    __builtin_memcpy(p, &a, 8);
}
SKR_FN void vb_stream(void *p, vb a)
{
    vb_store(p, a);
}
SKR_FN vb vb_xor(vb a, vb b)
{
    return a ^ b;
}
SKR_FN vb vb_set1(uint8_t a)
{
    return a * 0x0101010101010101u;
}
SKR_FN vb v_top(int type, vb acc, vb x)
{
    vb r = 0;
    for (int k = 0, bits = type == SKR_F32 ? 32 : 16; k < 64; k += bits) {
        vb most = ((vb)1 << (bits - 1)) - 1, a = acc >> k & most, b = x >> k & most;
        r |= (a > b ? a : b) << k;
    }
    return r;
}
SKR_FN uint64_t vb_fold(vb a)
{
    return a;
}

#endif
