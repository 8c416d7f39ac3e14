/* gemm_cpu.h - what the parts of gemm's CPU kernel share: this level's tiles, and where a matrix's elements are.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_CPU_H
#define SKR_GEMM_CPU_H

#include <stdbool.h>

#include "../../core/num.h"
#include "../../cpu/simd/simd.h"
#include "gemm.h"

typedef skr_gemm_job job_t;

/* gemm_tiles.def as constants: neonmm_BF16_MR and so on; TILE(BF16, MR) is this level's. */
enum {
#define SKR_TILE(level, kind, mr, nr, ka, kb, granule, kc)                                                             \
    level##_##kind##_MR = mr, level##_##kind##_NR = nr, level##_##kind##_KA = ka, level##_##kind##_KB = kb,
#include "gemm_tiles.def"
#undef SKR_TILE
};
#define TILE(kind, what)     SKR_PASTE3(SKR_LEVEL, kind, what)
#define SKR_PASTE3_(a, b, c) a##_##b##_##c
#define SKR_PASTE3(a, b, c)  SKR_PASTE3_(a, b, c)

/* Kinds that this level has beside F32 and INT. */
#if defined(SKR_LEVEL_neonmm) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#define HAS_BF16 1
#else
#define HAS_BF16 0
#endif
#if defined(SKR_LEVEL_neonmm) || defined(SKR_LEVEL_avx512) || defined(SKR_LEVEL_avx512bf16) || defined(SKR_LEVEL_amx)
#define HAS_I8 1
#else
#define HAS_I8 0
#endif

#define UNROLLED _Pragma("GCC unroll 64")

/* Bytes of an element in a panel. */
SKR_FN int kind_bytes(int kind)
{
    return kind == SKR_GEMM_BF16 ? 2 : kind == SKR_GEMM_I8 ? 1 : 4;
}

/* Element offset of a batch in a tensor. */
SKR_FN int64_t batch_at(const job_t *job, const skr_gemm_matrix *m, int64_t batch)
{
    return skr_row_offset(&job->batch, m->at.stride, batch);
}

/* An index tensor holds a value out of range: saker_context_check will say so. */
SKR_FN void bad_index(const skr_job_head *head)
{
    __atomic_store_n(head->error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
}

/* Entry i of an index tensor. */
SKR_FN int64_t index_at(const skr_param *p, int64_t i)
{
    return p->type == SKR_I64 ? ((const int64_t *)p->data)[i * p->stride] : ((const int32_t *)p->data)[i * p->stride];
}

/* Where row r goes, or comes from: entry r of `index`, r itself without one, -1 when it is outside of the tensor. */
SKR_FN int64_t indexed_row(const job_t *job, const skr_param *index, int64_t rows, int64_t r)
{
    if (!index->data)
        return r;
    int64_t at = index_at(index, r);
    if (at >= 0 && at < rows)
        return at;
    bad_index(&job->head);
    return -1;
}

SKR_FN int64_t row_of_a(const job_t *job, int64_t r)
{
    return indexed_row(job, &job->gather, job->gather_rows, r);
}

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
