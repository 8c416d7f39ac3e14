/* gemm_skinny_ints_neon_cpu.h - few rows of i8 on aarch64 without i8mm, times columns of i8 whose k's are neighbours.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The register tile of this level has f32. Integers are exact in any order, so a column is multiplied where it lies, 16
 * bytes at a time, and its sums are added up last. */
#ifndef SKR_GEMM_SKINNY_INTS_NEON_CPU_H
#define SKR_GEMM_SKINNY_INTS_NEON_CPU_H

#include "gemm_pack_cpu.h"

enum { BYTES_AT_ONCE = 16, BYTE_COLUMNS = 4, BYTE_ROWS = 4 };

static bool skinny_bytes(const job_t *job, const side *b)
{
    return job->skinny && job->whole && b->type == SKR_I8 && b->ks == 1 && !job->packed && job->m <= BYTE_ROWS;
}

SKR_FN int32x4_t add_bytes(int32x4_t sum, int8x16_t x, int8x16_t y)
{
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
    return vpadalq_s16(sum, vmull_high_s8(x, y));
}

/* sums[column * ROWS + row]: all k's of COLUMNS columns. a: rows `padded` bytes apart, with zeros after the last k. */
SKR_FN void dots_of_bytes(int ROWS, int COLUMNS, const int8_t *a, int64_t padded, const int8_t *b, int64_t pitch,
                          int64_t k, int32_t *sums)
{
    int32x4_t acc[BYTE_ROWS * BYTE_COLUMNS];
    int64_t p = 0;
    UNROLLED
    for (int i = 0; i < ROWS * COLUMNS; i++)
        acc[i] = vdupq_n_s32(0);
    for (; p < k; p += BYTES_AT_ONCE) {
        int8x16_t row[BYTE_ROWS];
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            row[r] = vld1q_s8(a + r * padded + p);
        UNROLLED
        for (int i = 0; i < COLUMNS; i++) {
            int8_t some[BYTES_AT_ONCE] = {0};
            const int8_t *from = b + i * pitch + p;
            if (p + BYTES_AT_ONCE > k) {
                __builtin_memcpy(some, from, (size_t)(k - p));
                from = some;
            }
            int8x16_t column = vld1q_s8(from);
            UNROLLED
            for (int r = 0; r < ROWS; r++)
                acc[i * ROWS + r] = add_bytes(acc[i * ROWS + r], column, row[r]);
        }
    }
    UNROLLED
    for (int i = 0; i < ROWS * COLUMNS; i++)
        sums[i] = vaddvq_s32(acc[i]);
}

SKR_FN void columns_of_bytes(int ROWS, const int8_t *a, int64_t padded, const int8_t *b, int64_t pitch, int64_t k,
                             int rows, int cols, float *out, int64_t ld)
{
    for (int j = 0, n; j < cols; j += n, b += n * pitch) {
        int32_t sums[BYTE_ROWS * BYTE_COLUMNS];
        n = cols - j < BYTE_COLUMNS ? 1 : BYTE_COLUMNS;
        if (n == 1)
            dots_of_bytes(ROWS, 1, a, padded, b, pitch, k, sums);
        else
            dots_of_bytes(ROWS, BYTE_COLUMNS, a, padded, b, pitch, k, sums);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < rows; r++)
                out[r * ld + j + i] = skr_float((uint32_t)sums[i * ROWS + r]);
    }
}

/* All k's of columns n0 ... into out. a: its panel; room: for as much. */
static void bytes_by_columns(const job_t *job, const side *b, const char *a, int64_t n0, int cols, char *room,
                             float *out, int64_t ld)
{
    const int rows = (int)job->m;
    const int64_t k = job->k, padded = (k + BYTES_AT_ONCE - 1) / BYTES_AT_ONCE * BYTES_AT_ONCE;
    const int8_t *from = (const int8_t *)b->data + b->at + n0 * b->rs;
    int8_t *bytes = (int8_t *)room;
    for (int r = 0; r < BYTE_ROWS; r++)
        for (int64_t p = 0; p < padded; p++)
            bytes[r * padded + p] = p < k && r < rows ? (int8_t)((const float *)a)[p * TILE(F32, MR) + r] : 0;
    if (rows == 1)
        columns_of_bytes(1, bytes, padded, from, b->rs, k, rows, cols, out, ld);
    else if (rows == 2)
        columns_of_bytes(2, bytes, padded, from, b->rs, k, rows, cols, out, ld);
    else
        columns_of_bytes(BYTE_ROWS, bytes, padded, from, b->rs, k, rows, cols, out, ld);
}

#endif
