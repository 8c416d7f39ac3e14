/* load.h - runs of elements of any type and stride as f32, and back.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CPU_LOAD_H
#define SKR_CPU_LOAD_H

#include "../../core/num.h"
#include "../simd/simd.h"

SKR_FN float one_float(int type, const void *data, int64_t i)
{
    const uint8_t *bytes = data;
    switch (type) {
    case SKR_F32:
        return ((const float *)data)[i];
    case SKR_F16:
        return skr_f32_of_f16(((const uint16_t *)data)[i]);
    case SKR_BF16:
        return skr_f32_of_bf16(((const uint16_t *)data)[i]);
    case SKR_E4M3:
        return skr_f32_of_e4m3(bytes[i]);
    case SKR_E5M2:
        return skr_f32_of_e5m2(bytes[i]);
    case SKR_I4:
        return (float)((int)((uint32_t)bytes[i >> 1] << (i & 1 ? 24 : 28)) >> 28);
    case SKR_I32:
        return (float)((const int32_t *)data)[i];
    default:
        return ((const int8_t *)data)[i];
    }
}

/* n nibbles from element `at` on, each a byte. */
static void unpack_nibbles(const void *data, int64_t at, int n, int8_t *to)
{
    const uint8_t *from = (const uint8_t *)data + (at >> 1);
    int i = 0;
    if (at & 1 && n > 0)
        to[i++] = (int8_t)((int8_t)*from++ >> 4);
    for (; i + 2 <= n; i += 2, from++) {
        to[i] = (int8_t)((int8_t)(*from << 4) >> 4);
        to[i + 1] = (int8_t)((int8_t)*from >> 4);
    }
    if (i < n)
        to[i] = (int8_t)((int8_t)(*from << 4) >> 4);
}

/* n elements that are neighbours, as f32. */
static void load_neighbours(int type, const void *data, int64_t at, int n, float *to)
{
    int i = 0;
#define LOAD(T)                                                                                                        \
    case T:                                                                                                            \
        for (; i + SKR_LANES <= n; i += SKR_LANES)                                                                     \
            v_store_float(SKR_F32, to, i, v_load(T, data, at + i));                                                    \
        if (i < n)                                                                                                     \
            v_store_float_n(SKR_F32, to, i, v_load_n(T, data, at + i, n - i), n - i);                                  \
        break
#define WIDEN(T)                                                                                                       \
    case T:                                                                                                            \
        for (; i + 4 * SKR_LANES <= n; i += 4 * SKR_LANES) {                                                           \
            vf a[4];                                                                                                   \
            v_load4_codes(T, (const uint8_t *)data + at + i, a);                                                       \
            for (int k = 0; k < 4; k++)                                                                                \
                v_store_float(SKR_F32, to, i + k * SKR_LANES, a[k]);                                                   \
        }                                                                                                              \
        for (; i + SKR_LANES <= n; i += SKR_LANES)                                                                     \
            v_store_float(SKR_F32, to, i, v_of_code(T, vi_load_u8((const uint8_t *)data + at + i)));                   \
        for (; i < n; i++)                                                                                             \
            to[i] = one_float(T, data, at + i);                                                                        \
        break
    switch (type) {
        LOAD(SKR_F32);
        LOAD(SKR_F16);
        LOAD(SKR_BF16);
        WIDEN(SKR_E4M3);
        WIDEN(SKR_E5M2);
        WIDEN(SKR_I8);
    case SKR_I4:
        for (; i < n; i += 64) {
            int8_t codes[64];
            int part = n - i < 64 ? n - i : 64;
            unpack_nibbles(data, at + i, part, codes);
            for (int k = 0; k < part; k++)
                to[i + k] = codes[k];
        }
        break;
    default:
        for (; i < n; i++)
            to[i] = one_float(SKR_I32, data, at + i);
    }
#undef LOAD
#undef WIDEN
}

/* n elements, stride apart, as f32. */
static void load_run(int type, const void *data, int64_t at, int64_t stride, int n, float *to)
{
    if (stride == 1) {
        load_neighbours(type, data, at, n, to);
        return;
    }
#define CASE(T)                                                                                                        \
    case T:                                                                                                            \
        for (int i = 0; i < n; i++)                                                                                    \
            to[i] = one_float(T, data, at + i * stride);                                                               \
        break
    switch (type) {
        CASE(SKR_F32);
        CASE(SKR_F16);
        CASE(SKR_BF16);
        CASE(SKR_E4M3);
        CASE(SKR_E5M2);
        CASE(SKR_I4);
        CASE(SKR_I8);
        CASE(SKR_I32);
    }
#undef CASE
}

/* n elements, rounded to the type. */
static void store_run(int type, void *data, int64_t at, int64_t stride, int n, const float *from)
{
    int i = 0;
#define STORE(T)                                                                                                       \
    if (stride == 1) {                                                                                                 \
        for (; i + SKR_LANES <= n; i += SKR_LANES)                                                                     \
            v_store_float(T, data, at + i, v_load(SKR_F32, from, i));                                                  \
        if (i < n)                                                                                                     \
            v_store_float_n(T, data, at + i, v_load_n(SKR_F32, from, i, n - i), n - i);                                \
    } else {                                                                                                           \
        for (; i < n; i++)                                                                                             \
            v_store_float_n(T, data, at + i * stride, v_set1(from[i]), 1);                                             \
    }
    if (type == SKR_F32) {
        STORE(SKR_F32)
    } else if (type == SKR_F16) {
        STORE(SKR_F16)
    } else {
        STORE(SKR_BF16)
    }
#undef STORE
}

#endif
