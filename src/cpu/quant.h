/* quant.h - quantised rows on the CPU: scales, and f32, f16 or bf16 to i8, e4m3, e5m2 and i4. Included by kernel files
 * after simd.h; every level has its own copy.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rule (docs/NUMERICS.md): scale = amax / largest over the finite values, 1 when amax is 0; code = round(x /
 * scale), saturating. Most rows are finite and fit their scale: then no value can saturate or be NaN, and the division
 * is a product with the reciprocal and one correction, rounded as a division is. All others are divided and clamped
 * with care. i4 codes are made as bytes first, then packed. */
#ifndef SKR_CPU_QUANT_H
#define SKR_CPU_QUANT_H

#include "../core/num.h"
#include "rows.h"

enum { QUANT_SPAN = 512 }; /* elements of i4 on their way through bytes; even */

static inline float quant_largest(int qt)
{
    return qt == SKR_I8 ? 127.0f : qt == SKR_E4M3 ? 448.0f : qt == SKR_E5M2 ? 57344.0f : 7.0f;
}

static inline float quant_scale(float amax, int qt)
{
    float scale = amax / quant_largest(qt);
    return scale > 0 ? scale : 1.0f;
}

/* ---------------------------------------------------------------- amax */

/* The largest magnitude, as bits of the type: infinity and NaN are above all numbers. */
SKR_FN uint32_t top_body(int type, const void *x, int64_t n)
{
    const int bytes = type == SKR_F32 ? 4 : 2, count = SKR_VB_BYTES / bytes;
    const char *p = x;
    vb a[4] = {vb_set1(0), vb_set1(0), vb_set1(0), vb_set1(0)};
    int64_t i = 0;
    for (; i + 4 * count <= n; i += 4 * count)
        SKR_UNROLL
    for (int k = 0; k < 4; k++)
        a[k] = v_top(type, a[k], vb_load(p + i * bytes + k * SKR_VB_BYTES));
    for (; i + count <= n; i += count)
        a[0] = v_top(type, a[0], vb_load(p + i * bytes));
    a[0] = v_top(type, v_top(type, a[0], a[1]), v_top(type, a[2], a[3]));
    unsigned char lane[SKR_VB_BYTES];
    vb_store(lane, a[0]);
    uint32_t most = 0;
    for (int k = 0; k < SKR_VB_BYTES; k += bytes) {
        uint32_t b = 0;
        __builtin_memcpy(&b, lane + k, (size_t)bytes);
        most = b > most ? b : most;
    }
    for (; i < n; i++) {
        uint32_t b = 0;
        __builtin_memcpy(&b, p + i * bytes, (size_t)bytes);
        b &= type == SKR_F32 ? 0x7fffffff : 0x7fff;
        most = b > most ? b : most;
    }
    return most;
}

SKR_FN float amax_finite_body(int type, const void *x, int64_t n)
{
    vf top = v_set1(0.0f), infinity = v_set1(__builtin_inff());
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        vf a = v_abs(n - i < SKR_LANES ? v_load_n(type, x, i, (int)(n - i)) : v_load(type, x, i));
        top = v_at_least(top, v_select(v_lt(a, infinity), a, v_set1(0.0f)));
    }
    return v_hmax(top);
}

/* A row that holds infinity or NaN: rare, so short code. */
SKR_TAIL float amax_finite(int type, const void *x, int64_t n)
{
    return type == SKR_F32   ? amax_finite_body(SKR_F32, x, n)
           : type == SKR_F16 ? amax_finite_body(SKR_F16, x, n)
                             : amax_finite_body(SKR_BF16, x, n);
}

/* The largest finite magnitude of a row; finite says whether it is of all values. */
typedef struct row_top {
    float amax;
    int finite;
} row_top;

static row_top amax_of(int type, const void *x, int64_t n)
{
    uint32_t top = type == SKR_F32 ? top_body(SKR_F32, x, n) : top_body(SKR_F16, x, n); /* 16 bits: bits alone count */
    uint32_t infinity = type == SKR_F32 ? 0x7f800000 : type == SKR_F16 ? 0x7c00 : 0x7f80;
    if (top >= infinity)
        return (row_top){amax_finite(type, x, n), 0};
    float amax = type == SKR_F32   ? skr_float(top)
                 : type == SKR_F16 ? skr_f32_of_f16((uint16_t)top)
                                   : skr_f32_of_bf16((uint16_t)top);
    return (row_top){amax, 1};
}

/* ---------------------------------------------------------------- codes */

/* Any values, any scale. */
SKR_FN void codes_careful_body(int type, int qt, const void *x, uint8_t *q, float scale1, int64_t n)
{
    vf scale = v_set1(scale1);
    int64_t i = 0;
    for (; i + SKR_LANES <= n; i += SKR_LANES)
        v_store(qt, q, i, v_div(v_load(type, x, i), scale));
    if (i < n)
        v_store_n(qt, q, i, v_div(v_load_n(type, x, i, (int)(n - i)), scale), (int)(n - i));
}

/* Finite values whose quotients round to numbers of the type, a scale of middling size. */
SKR_FN void codes_body(int type, int qt, const void *x, uint8_t *q, float scale1, int64_t n)
{
    enum { STEP = 4 * SKR_LANES };
    vf scale = v_set1(scale1), inverse = v_set1(1.0f / scale1);
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        vf2 two[2] = {v_load2(type, x, i), v_load2(type, x, i + 2 * SKR_LANES)};
        vf a[4] = {two[0].lo, two[0].hi, two[1].lo, two[1].hi};
        vf quotient[4]; /* keeps the sign of a zero, which the correction loses */
        vi code[4];
        SKR_UNROLL
        for (int k = 0; k < 4; k++) {
            quotient[k] = v_mul(a[k], inverse);
            a[k] = v_fma(v_fnma(quotient[k], scale, a[k]), inverse, quotient[k]);
            code[k] = qt == SKR_E4M3   ? v_fp8_byte(a[k], 3, -6)
                      : qt == SKR_E5M2 ? v_fp8_byte(a[k], 2, -14)
                                       : v_to_int(a[k]);
        }
        if (qt == SKR_E4M3 || qt == SKR_E5M2)
            v_store4_signed(q + i, code, quotient);
        else
            vi_store4_u8(q + i, code);
    }
    if (i < n)
        codes_careful_body(type, qt, (const char *)x + i * (type == SKR_F32 ? 4 : 2), q + i, scale1, n - i);
}

typedef void (*codes_fn)(const void *x, uint8_t *q, float scale, int64_t n);
#define CODES(qt, type)                                                                                                \
    static void codes_##qt##_##type(const void *x, uint8_t *q, float scale, int64_t n)                                 \
    {                                                                                                                  \
        codes_body(SKR_##type, SKR_##qt, x, q, scale, n);                                                              \
    }                                                                                                                  \
    SKR_TAIL void careful_##qt##_##type(const void *x, uint8_t *q, float scale, int64_t n)                             \
    {                                                                                                                  \
        codes_careful_body(SKR_##type, SKR_##qt, x, q, scale, n);                                                      \
    }
#define CODES_OF(qt) CODES(qt, F32) CODES(qt, F16) CODES(qt, BF16)
CODES_OF(E4M3)
CODES_OF(E5M2)
CODES_OF(I8)
CODES_OF(I4)
#define CODES_CELL(qt, type) {codes_##qt##_##type, careful_##qt##_##type},
#define CODES_ROW(qt)        {CODES_CELL(qt, F32) CODES_CELL(qt, F16) CODES_CELL(qt, BF16)},
/* [quantised type, from SKR_E4M3 on][type][careful] */
static const codes_fn codes_table[4][3][2] = {CODES_ROW(E4M3) CODES_ROW(E5M2) CODES_ROW(I8) CODES_ROW(I4)};

/* One byte for each code, i4 too. top: of these values. */
static void quant_codes(int type, int qt, const void *x, uint8_t *q, float scale, row_top top, int64_t n)
{
    float size = scale < 0 ? -scale : scale;
    /* A quotient that is larger than the largest value by less than half its last step still rounds to it. */
    int fits = top.finite && size >= 0x1p-64f && size <= 0x1p64f && top.amax <= quant_largest(qt) * size * 1.001f;
    codes_table[qt - SKR_E4M3][type][!fits](x, q, scale, n);
}

/* Two codes to a byte, low nibble first; the last of an odd number stands alone. */
static void pack_nibbles(const uint8_t *code, uint8_t *q, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i += 2)
        q[i / 2] = (uint8_t)((code[i] & 15) | code[i + 1] << 4);
    if (n % 2)
        q[n / 2] = code[n - 1] & 15;
}

/* Columns [0, n) of a row of i8, e4m3 or e5m2 with `group` columns to a scale; quant TENSOR: the one given. */
static void quant_row(int type, int qt, const char *x, uint8_t *q, int quant, float *scale, int64_t scale_stride,
                      int64_t group, int64_t n)
{
    for (int64_t i = 0; i < n; i += group, scale += scale_stride) {
        int64_t len = n - i < group ? n - i : group;
        const char *from = x + i * skr_type_bytes(type);
        row_top top = amax_of(type, from, len);
        if (quant != SKR_QUANT_TENSOR)
            *scale = quant_scale(top.amax, qt);
        quant_codes(type, qt, from, q + i, *scale, top, len);
    }
}

#endif
