/* gemm_skinny_rows_neon_cpu.h - few rows of a on aarch64, times b whose columns are neighbours in memory.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sums stay in out while four k's at a time pass over all columns, a line of each at once: rows of a power-of-two
 * width fall into the same sets of L1, and it has four ways. Lines of the next four k's are prefetched to L2; in L1
 * they would drive out each other.
 * BFDOT takes two k's of what BFMMLA takes four of, in the same order and with the same rounding; sums of bytes are
 * exact. So the dot products here have the bits of the register tiles' matrix instructions, and need fewer moves. */
#ifndef SKR_GEMM_SKINNY_ROWS_NEON_CPU_H
#define SKR_GEMM_SKINNY_ROWS_NEON_CPU_H

#include "gemm_cpu.h"

enum { ROW_LINE = 64, ROW_KS = 4, MAX_LINE_COLUMNS = 64 };

/* How b's type is multiplied, and its bytes that are taken at once: a line, or half of one where they are widened. */
SKR_FN int rows_kind(int type)
{
    return type == SKR_I8 ? SKR_GEMM_I8 : HAS_BF16 && type == SKR_BF16 ? SKR_GEMM_BF16 : SKR_GEMM_F32;
}

SKR_FN int rows_bytes(int type)
{
    return rows_kind(type) == SKR_GEMM_F32 && type != SKR_F32 ? ROW_LINE / 2 : ROW_LINE;
}

/* KS rows of b, rows_bytes of each, as what the dot products take: 4 KS vectors. */
SKR_FN void rows_line(int type, int KS, const uint8_t *b, int64_t pitch, uint8x16_t *v)
{
    int kind = rows_kind(type);
    if (kind == SKR_GEMM_F32 && type != SKR_F32) {
        UNROLLED
        for (int u = 0; u < KS; u++)
            UNROLLED
        for (int i = 0; i < 4; i++) {
            uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(b + u * pitch + i / 2 * 16));
            v[KS * i + u] = vreinterpretq_u8_f32(half_of(type, x, i % 2));
        }
        return;
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        uint8x16_t x[ROW_KS];
        UNROLLED
        for (int u = 0; u < KS; u++)
            x[u] = vld1q_u8(b + u * pitch + 16 * i);
        if (kind == SKR_GEMM_F32) {
            UNROLLED
            for (int u = 0; u < KS; u++)
                v[KS * i + u] = x[u];
        } else if (kind == SKR_GEMM_BF16) { /* two k's of four columns */
            uint16x8_t k0 = vreinterpretq_u16_u8(x[0]), k1 = vreinterpretq_u16_u8(x[1]);
            uint16x8_t k2 = vreinterpretq_u16_u8(x[2]), k3 = vreinterpretq_u16_u8(x[3]);
            v[4 * i] = vreinterpretq_u8_u16(vzip1q_u16(k0, k1));
            v[4 * i + 1] = vreinterpretq_u8_u16(vzip1q_u16(k2, k3));
            v[4 * i + 2] = vreinterpretq_u8_u16(vzip2q_u16(k0, k1));
            v[4 * i + 3] = vreinterpretq_u8_u16(vzip2q_u16(k2, k3));
        } else { /* four k's of four columns */
            uint16x8_t low01 = vreinterpretq_u16_u8(vzip1q_u8(x[0], x[1]));
            uint16x8_t low23 = vreinterpretq_u16_u8(vzip1q_u8(x[2], x[3]));
            uint16x8_t high01 = vreinterpretq_u16_u8(vzip2q_u8(x[0], x[1]));
            uint16x8_t high23 = vreinterpretq_u16_u8(vzip2q_u8(x[2], x[3]));
            v[4 * i] = vreinterpretq_u8_u16(vzip1q_u16(low01, low23));
            v[4 * i + 1] = vreinterpretq_u8_u16(vzip2q_u16(low01, low23));
            v[4 * i + 2] = vreinterpretq_u8_u16(vzip1q_u16(high01, high23));
            v[4 * i + 3] = vreinterpretq_u8_u16(vzip2q_u16(high01, high23));
        }
    }
}

/* out += one row of a times the line. a: where this row's k's are in the panel. */
SKR_FN void rows_add(int kind, int KS, const uint8_t *a, const uint8x16_t *v, float *out)
{
    if (kind == SKR_GEMM_F32) {
        float32x4_t f[ROW_KS];
        UNROLLED
        for (int u = 0; u < KS; u++)
            f[u] = vld1q_dup_f32((const float *)a + 8 * u);
        UNROLLED
        for (int i = 0; i < 4; i++) {
            float32x4_t s = vld1q_f32(out + 4 * i);
            UNROLLED
            for (int u = 0; u < KS; u++)
                s = vfmaq_f32(s, vreinterpretq_f32_u8(v[KS * i + u]), f[u]);
            vst1q_f32(out + 4 * i, s);
        }
        return;
    }
#if defined(SKR_LEVEL_neonmm)
    if (kind == SKR_GEMM_BF16) {
        bfloat16x4_t f = vreinterpret_bf16_u8(vld1_u8(a));
        UNROLLED
        for (int i = 0; i < 8; i++) {
            float32x4_t s = vld1q_f32(out + 4 * i);
            s = vbfdotq_lane_f32(s, vreinterpretq_bf16_u8(v[2 * i]), f, 0);
            vst1q_f32(out + 4 * i, vbfdotq_lane_f32(s, vreinterpretq_bf16_u8(v[2 * i + 1]), f, 1));
        }
    } else {
        int8x8_t f = vreinterpret_s8_s32(vld1_dup_s32((const int32_t *)a));
        UNROLLED
        for (int i = 0; i < 16; i++) {
            int32x4_t s = vreinterpretq_s32_f32(vld1q_f32(out + 4 * i));
            s = vdotq_lane_s32(s, vreinterpretq_s8_u8(v[i]), f, 0);
            vst1q_f32(out + 4 * i, vreinterpretq_f32_s32(s));
        }
    }
#endif
}

/* Bytes from a row to the next in a's panel. */
SKR_FN int a_row_bytes(int kind)
{
    return kind == SKR_GEMM_F32 ? 4 : 8;
}

/* A line that is not all there, n bytes of ks rows: copied with zeros around it. */
SKR_FN void rows_edge(int type, int KS, const uint8_t *b, int64_t pitch, int ks, int n, const uint8_t *a, int rows,
                      float *out, int64_t ld)
{
    const int size = skr_type_bytes(type), kind = rows_kind(type);
    uint8_t copy[ROW_KS * ROW_LINE] = {0};
    for (int u = 0; u < ks; u++)
        for (int i = 0; i < n; i++)
            copy[u * ROW_LINE + i] = b[u * pitch + i];
    uint8x16_t v[4 * ROW_KS];
    rows_line(type, KS, copy, ROW_LINE, v);
    for (int r = 0; r < rows; r++) {
        float sums[MAX_LINE_COLUMNS] = {0};
        __builtin_memcpy(sums, out + r * ld, (size_t)(n / size * 4));
        rows_add(kind, KS, a + r * a_row_bytes(kind), v, sums);
        __builtin_memcpy(out + r * ld, sums, (size_t)(n / size * 4));
    }
}

/* ks <= KS k's of all columns, `bytes` bytes of them. */
SKR_FN void pass_ks(int type, int KS, int ks, const uint8_t *b, int64_t pitch, const uint8_t *a, int rows,
                    int64_t bytes, float *out, int64_t ld)
{
    const int size = skr_type_bytes(type), kind = rows_kind(type), line = rows_bytes(type);
    int64_t j = 0;
    for (; ks == KS && j + line <= bytes; j += line) {
        uint8x16_t v[4 * ROW_KS];
        UNROLLED
        for (int u = 0; u < KS; u++)
            __builtin_prefetch(b + (KS + u) * pitch + j, 0, 2);
        rows_line(type, KS, b + j, pitch, v);
        for (int r = 0; r < rows; r++)
            rows_add(kind, KS, a + r * a_row_bytes(kind), v, out + r * ld + j / size);
    }
    for (; j < bytes; j += line)
        rows_edge(type, KS, b + j, pitch, ks, bytes - j < line ? (int)(bytes - j) : line, a, rows, out + j / size, ld);
}

/* Where k is in a's panel, of 8 rows: k by k in f32, in groups of 8 bytes of each row otherwise. */
SKR_FN const uint8_t *a_panel_at(int kind, const void *a, int64_t k)
{
    return (const uint8_t *)a + (kind == SKR_GEMM_I8 ? k / 8 * 64 + k % 8 : k * 8 * skr_kind_bytes(kind));
}

/* A k block. a: the panel. */
SKR_FN void rows_block(int type, const void *b, int64_t pitch, const void *a, int rows, int64_t k, int cols, float *out,
                       int64_t ld)
{
    const int size = skr_type_bytes(type), kind = rows_kind(type);
    const uint8_t *from = b;
    for (int r = 0; r < rows; r++)
        __builtin_memset(out + r * ld, 0, (size_t)cols * 4);
    int64_t p = 0;
    for (; p + ROW_KS <= k; p += ROW_KS)
        pass_ks(type, ROW_KS, ROW_KS, from + p * pitch, pitch, a_panel_at(kind, a, p), rows, cols * size, out, ld);
    if (kind == SKR_GEMM_F32) /* zeros beside them would change a sum of -0 */
        for (; p < k; p++)
            pass_ks(type, 1, 1, from + p * pitch, pitch, a_panel_at(kind, a, p), rows, cols * size, out, ld);
    else if (p < k) /* the panel has zeros there */
        pass_ks(type, ROW_KS, (int)(k - p), from + p * pitch, pitch, a_panel_at(kind, a, p), rows, cols * size, out,
                ld);
}

#define ROWS_BLOCK(name, TYPE)                                                                                         \
    SKR_IN_ORDER static void name(const void *b, int64_t pitch, const void *a, int rows, int64_t k, int cols,          \
                                  float *out, int64_t ld)                                                              \
    {                                                                                                                  \
        rows_block(TYPE, b, pitch, a, rows, k, cols, out, ld);                                                         \
    }
ROWS_BLOCK(f32_rows_block, SKR_F32)
ROWS_BLOCK(f16_rows_block, SKR_F16)
ROWS_BLOCK(bf16_rows_block, SKR_BF16)
#if defined(SKR_LEVEL_neonmm)
ROWS_BLOCK(i8_rows_block, SKR_I8)
#endif
#undef ROWS_BLOCK

static void multiply_rows(int type, const void *b, int64_t pitch, const void *a, int rows, int64_t k, int cols,
                          float *out, int64_t ld)
{
#if defined(SKR_LEVEL_neonmm)
    if (type == SKR_I8) {
        i8_rows_block(b, pitch, a, rows, k, cols, out, ld);
        return;
    }
#endif
    (type == SKR_F32   ? f32_rows_block
     : type == SKR_F16 ? f16_rows_block
                       : bf16_rows_block)(b, pitch, a, rows, k, cols, out, ld);
}

#endif
