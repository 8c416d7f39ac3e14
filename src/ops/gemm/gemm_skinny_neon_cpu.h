/* gemm_skinny_neon_cpu.h - few rows of a on aarch64: b is used as it lies, read once, without panels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One k block of a few rows times `cols` columns of b into out[rows][ld]. Every sum is the same chain of operations as
 * in the register tiles, so a row has the same bits whichever of them makes it: f32 takes k by k; the matrix
 * instructions take k in the same groups, with rows of zeros where a has none.
 *   rows: columns of b are neighbours in memory. Sums stay in out (L1) while a few k's pass over all columns.
 *   cols: k's are neighbours. Columns are taken in groups, each a stream of its own, transposed in registers.
 * Rows (columns) of a power-of-two width fall into the same few sets of L1, more of them than it has ways: so a line is
 * used up at once wherever it can be, and what is prefetched goes to L2. */
#ifndef SKR_GEMM_SKINNY_NEON_CPU_H
#define SKR_GEMM_SKINNY_NEON_CPU_H

#include "../../cpu/gemm/pack_neon.h"
#include "gemm_cpu.h"

enum { AHEAD = 1024 }; /* bytes that a stream is prefetched ahead */

/* ---------------------------------------------------------------- f32 */

/* n <= 8 steps of k for one row: out += a[0 ... n) * b's rows. */
SKR_FN void f32_rows_step(int n, const float *b, int64_t ks, const float *a, int cols, float *out)
{
    float32x4_t f[8];
    UNROLLED
    for (int u = 0; u < n; u++)
        f[u] = vld1q_dup_f32(a + 8 * u);
    int j = 0;
    for (; j + 16 <= cols; j += 16) {
        float32x4_t s[4];
        UNROLLED
        for (int i = 0; i < 4; i++)
            s[i] = vld1q_f32(out + j + 4 * i);
        UNROLLED
        for (int u = 0; u < n; u++) {
            if (n == 8) /* the k's that follow */
                __builtin_prefetch(b + (u + 8) * ks + j, 0, 2);
            UNROLLED
            for (int i = 0; i < 4; i++)
                s[i] = vfmaq_f32(s[i], vld1q_f32(b + u * ks + j + 4 * i), f[u]);
        }
        UNROLLED
        for (int i = 0; i < 4; i++)
            vst1q_f32(out + j + 4 * i, s[i]);
    }
    for (; j < cols; j += 4) {
        int left = cols - j < 4 ? cols - j : 4;
        float32x4_t s = v_load_n(SKR_F32, out, j, left);
        UNROLLED
        for (int u = 0; u < n; u++)
            s = vfmaq_f32(s, v_load_n(SKR_F32, b, u * ks + j, left), f[u]);
        v_store_float_n(SKR_F32, out, j, s, left);
    }
}

SKR_IN_ORDER static void f32_rows(const float *b, int64_t ks, const float *a, int rows, int64_t k, int cols, float *out,
                                  int64_t ld)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < cols; j++)
            out[r * ld + j] = 0;
    int64_t p = 0;
    for (; p + 8 <= k; p += 8)
        for (int r = 0; r < rows; r++)
            f32_rows_step(8, b + p * ks, ks, a + p * 8 + r, cols, out + r * ld);
    for (; p < k; p++)
        for (int r = 0; r < rows; r++)
            f32_rows_step(1, b + p * ks, ks, a + p * 8 + r, cols, out + r * ld);
}

/* Four k's of four columns, rs apart, times ROWS rows; a: [row][k]. */
SKR_FN void f32_four(int ROWS, const float *b, int64_t rs, const float *a, int64_t lda, float32x4_t *acc)
{
    float32x4_t r0 = vld1q_f32(b), r1 = vld1q_f32(b + rs), r2 = vld1q_f32(b + 2 * rs), r3 = vld1q_f32(b + 3 * rs);
    float64x2_t x0 = vreinterpretq_f64_f32(vzip1q_f32(r0, r1)), x1 = vreinterpretq_f64_f32(vzip2q_f32(r0, r1));
    float64x2_t y0 = vreinterpretq_f64_f32(vzip1q_f32(r2, r3)), y1 = vreinterpretq_f64_f32(vzip2q_f32(r2, r3));
    float32x4_t v0 = vreinterpretq_f32_f64(vzip1q_f64(x0, y0)), v1 = vreinterpretq_f32_f64(vzip2q_f64(x0, y0));
    float32x4_t v2 = vreinterpretq_f32_f64(vzip1q_f64(x1, y1)), v3 = vreinterpretq_f32_f64(vzip2q_f64(x1, y1));
    UNROLLED
    for (int r = 0; r < ROWS; r++) {
        float32x4_t f = vld1q_f32(a + r * lda);
        float32x4_t s = vfmaq_laneq_f32(acc[r], v0, f, 0);
        s = vfmaq_laneq_f32(s, v1, f, 1);
        s = vfmaq_laneq_f32(s, v2, f, 2);
        acc[r] = vfmaq_laneq_f32(s, v3, f, 3);
    }
}

/* QUADS times four columns of ROWS rows. A sum is one chain of FMAs: four quads hide their latency. */
SKR_FN void f32_cols_of(int ROWS, int QUADS, const float *b, int64_t rs, const float *a, int64_t lda, int64_t k,
                        float *out, int64_t ld)
{
    float32x4_t acc[4][4];
    UNROLLED
    for (int i = 0; i < QUADS * ROWS; i++)
        acc[i / ROWS][i % ROWS] = vdupq_n_f32(0);
    int64_t p = 0;
    for (; p + 16 <= k; p += 16)
        UNROLLED
    for (int q = 0; q < QUADS; q++) {
        const float *at = b + 4 * q * rs + p;
        UNROLLED
        for (int i = 0; i < 4; i++)
            __builtin_prefetch((const char *)(at + i * rs) + AHEAD, 0, 2);
        UNROLLED
        for (int u = 0; u < 16; u += 4)
            f32_four(ROWS, at + u, rs, a + p + u, lda, acc[q]);
    }
    for (; p + 4 <= k; p += 4)
        UNROLLED
    for (int q = 0; q < QUADS; q++)
        f32_four(ROWS, b + 4 * q * rs + p, rs, a + p, lda, acc[q]);
    for (; p < k; p++)
        UNROLLED
    for (int q = 0; q < QUADS; q++) {
        const float *at = b + 4 * q * rs + p;
        float32x4_t v = vdupq_n_f32(at[0]);
        v = vld1q_lane_f32(at + rs, v, 1);
        v = vld1q_lane_f32(at + 2 * rs, v, 2);
        v = vld1q_lane_f32(at + 3 * rs, v, 3);
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            acc[q][r] = vfmaq_n_f32(acc[q][r], v, a[r * lda + p]);
    }
    UNROLLED
    for (int i = 0; i < QUADS * ROWS; i++)
        vst1q_f32(out + i % ROWS * ld + i / ROWS * 4, acc[i / ROWS][i % ROWS]);
}

/* Up to three columns that are left: one after the other. */
static void f32_few(const float *b, int64_t rs, const float *a, int64_t lda, int rows, int64_t k, int cols, float *out,
                    int64_t ld)
{
    for (int j = 0; j < cols; j++)
        for (int r = 0; r < rows; r++) {
            float32x2_t s = vdup_n_f32(0);
            for (int64_t p = 0; p < k; p++)
                s = vfma_n_f32(s, vdup_n_f32(b[j * rs + p]), a[r * lda + p]);
            out[r * ld + j] = vget_lane_f32(s, 0);
        }
}

#define F32_COLS(ROWS)                                                                                                 \
    SKR_IN_ORDER static void f32_cols##ROWS(const float *b, int64_t rs, const float *a, int64_t lda, int64_t k,        \
                                            int cols, float *out, int64_t ld)                                          \
    {                                                                                                                  \
        int j = 0;                                                                                                     \
        for (; j + 16 <= cols; j += 16)                                                                                \
            f32_cols_of(ROWS, 4, b + j * rs, rs, a, lda, k, out + j, ld);                                              \
        for (; j + 4 <= cols; j += 4)                                                                                  \
            f32_cols_of(ROWS, 1, b + j * rs, rs, a, lda, k, out + j, ld);                                              \
        f32_few(b + j * rs, rs, a, lda, ROWS, k, cols - j, out + j, ld);                                               \
    }
F32_COLS(1)
F32_COLS(2)
F32_COLS(4)
#undef F32_COLS

/* a: [row][k], lda apart. */
static void f32_cols(const float *b, int64_t rs, const float *a, int64_t lda, int rows, int64_t k, int cols, float *out,
                     int64_t ld)
{
    for (int r = 0; r < rows;) {
        int n = rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
        (n == 4 ? f32_cols4 : n == 2 ? f32_cols2 : f32_cols1)(b, rs, a + r * lda, lda, k, cols, out + r * ld, ld);
        r += n;
    }
}

/* ---------------------------------------------------------------- matrix instructions, in bytes
 *
 * A group of k is 8 bytes of a column; a's panel has 64 bytes for each group, 16 of them for each pair of rows. */
#if defined(SKR_LEVEL_neonmm)

SKR_FN float32x4_t mm_one(int i8, float32x4_t acc, uint8x16_t x, uint8x16_t y)
{
    if (i8)
        return vreinterpretq_f32_s32(
            vmmlaq_s32(vreinterpretq_s32_f32(acc), vreinterpretq_s8_u8(x), vreinterpretq_s8_u8(y)));
    return vbfmmlaq_f32(acc, vreinterpretq_bf16_u8(x), vreinterpretq_bf16_u8(y));
}

/* Blocks of two rows and of two pairs of columns as rows of out; n: how many of the four columns there are. */
SKR_FN void mm_put(float32x4_t left, float32x4_t right, int rows, int n, float *out, int64_t ld)
{
    float64x2_t x = vreinterpretq_f64_f32(left), y = vreinterpretq_f64_f32(right);
    v_store_float_n(SKR_F32, out, 0, vreinterpretq_f32_f64(vzip1q_f64(x, y)), n);
    if (rows > 1)
        v_store_float_n(SKR_F32, out, ld, vreinterpretq_f32_f64(vzip2q_f64(x, y)), n);
}

/* 16 bytes of two columns, pitch bytes apart, times PAIRS pairs of rows; acc is one block for each pair. */
SKR_FN void mm_sixteen(int i8, int PAIRS, const uint8_t *b, int64_t pitch, const uint8_t *a, float32x4_t *acc)
{
    uint64x2_t x = vreinterpretq_u64_u8(vld1q_u8(b)), y = vreinterpretq_u64_u8(vld1q_u8(b + pitch));
    uint8x16_t first = vreinterpretq_u8_u64(vzip1q_u64(x, y)), second = vreinterpretq_u8_u64(vzip2q_u64(x, y));
    UNROLLED
    for (int r = 0; r < PAIRS; r++) {
        acc[r] = mm_one(i8, acc[r], vld1q_u8(a + r * 16), first);
        acc[r] = mm_one(i8, acc[r], vld1q_u8(a + 64 + r * 16), second);
    }
}

/* The last groups of two columns, filled up with zeros. other: bytes from the first column to the second. */
SKR_FN void mm_rest(int i8, int PAIRS, const uint8_t *b, int64_t other, const uint8_t *a, int64_t p, int64_t bytes,
                    float32x4_t *acc)
{
    for (; p < bytes; p += 8) {
        int n = bytes - p < 8 ? (int)(bytes - p) : 8;
        uint64_t w[2] = {0, 0};
        for (int i = 0; i < n; i++) {
            w[0] |= (uint64_t)b[p + i] << 8 * i;
            w[1] |= (uint64_t)b[other + p + i] << 8 * i;
        }
        UNROLLED
        for (int r = 0; r < PAIRS; r++)
            acc[r] = mm_one(i8, acc[r], vld1q_u8(a + p * 8 + r * 16), vreinterpretq_u8_u64(vld1q_u64(w)));
    }
}

/* TWOS times two columns of `bytes` bytes each. A sum is one chain: several twos hide its latency. */
SKR_FN void mm_cols_of(int i8, int PAIRS, int TWOS, const uint8_t *b, int64_t pitch, const uint8_t *a, int rows,
                       int64_t bytes, float *out, int64_t ld)
{
    float32x4_t acc[8][4];
    UNROLLED
    for (int i = 0; i < TWOS * PAIRS; i++)
        acc[i / PAIRS][i % PAIRS] = vdupq_n_f32(0);
    int64_t p = 0;
    for (; p + 64 <= bytes; p += 64)
        UNROLLED
    for (int c = 0; c < TWOS; c++) {
        const uint8_t *at = b + 2 * c * pitch + p;
        __builtin_prefetch(at + AHEAD, 0, 2);
        __builtin_prefetch(at + pitch + AHEAD, 0, 2);
        UNROLLED
        for (int u = 0; u < 64; u += 16)
            mm_sixteen(i8, PAIRS, at + u, pitch, a + (p + u) * 8, acc[c]);
    }
    for (; p + 16 <= bytes; p += 16)
        UNROLLED
    for (int c = 0; c < TWOS; c++)
        mm_sixteen(i8, PAIRS, b + 2 * c * pitch + p, pitch, a + p * 8, acc[c]);
    UNROLLED
    for (int c = 0; c < TWOS; c++)
        mm_rest(i8, PAIRS, b + 2 * c * pitch, pitch, a, p, bytes, acc[c]);
    UNROLLED
    for (int c = 0; c < TWOS; c += 2)
        UNROLLED
    for (int r = 0; r < PAIRS; r++)
        if (2 * r < rows)
            mm_put(acc[c][r], acc[c + 1][r], rows - 2 * r, 4, out + 2 * r * ld + 2 * c, ld);
}

/* Up to three columns that are left: one after the other, beside itself. */
SKR_FN void mm_few(int i8, const uint8_t *b, int64_t pitch, const uint8_t *a, int rows, int64_t bytes, int cols,
                   float *out, int64_t ld)
{
    for (int j = 0; j < cols; j++)
        for (int r = 0; r < rows; r += 2) {
            float32x4_t acc = vdupq_n_f32(0);
            mm_rest(i8, 1, b + j * pitch, 0, a + r * 8, 0, bytes, &acc);
            mm_put(acc, acc, rows - r, 1, out + r * ld + j, ld);
        }
}

#define MM_COLS(name, i8, PAIRS, TWOS)                                                                                 \
    SKR_IN_ORDER static void name(const uint8_t *b, int64_t pitch, const uint8_t *a, int rows, int64_t bytes,          \
                                  int cols, float *out, int64_t ld)                                                    \
    {                                                                                                                  \
        int j = 0;                                                                                                     \
        for (; j + 2 * TWOS <= cols; j += 2 * TWOS)                                                                    \
            mm_cols_of(i8, PAIRS, TWOS, b + j * pitch, pitch, a, rows, bytes, out + j, ld);                            \
        for (; j + 4 <= cols; j += 4)                                                                                  \
            mm_cols_of(i8, PAIRS, 2, b + j * pitch, pitch, a, rows, bytes, out + j, ld);                               \
        mm_few(i8, b + j * pitch, pitch, a, rows, bytes, cols - j, out + j, ld);                                       \
    }
MM_COLS(bf16_cols1, 0, 1, 8)
MM_COLS(bf16_cols2, 0, 2, 6)
MM_COLS(bf16_cols4, 0, 4, 4)
MM_COLS(i8_cols1, 1, 1, 8)
MM_COLS(i8_cols2, 1, 2, 6)
MM_COLS(i8_cols4, 1, 4, 4)
#undef MM_COLS

/* One group of k (4 rows of b in bf16, 8 in i8) of eight columns from b on: pairs of columns. */
SKR_FN void mm_group(int i8, const uint8_t *b, int64_t pitch, uint8x16_t out[4])
{
    if (i8) {
        transpose_bytes((const int8_t *)b, pitch, out);
    } else {
        uint16x8_t v[4];
        transpose_halves(vreinterpretq_u16_u8(vld1q_u8(b)), vreinterpretq_u16_u8(vld1q_u8(b + pitch)),
                         vreinterpretq_u16_u8(vld1q_u8(b + 2 * pitch)), vreinterpretq_u16_u8(vld1q_u8(b + 3 * pitch)),
                         v);
        UNROLLED
        for (int i = 0; i < 4; i++)
            out[i] = vreinterpretq_u8_u16(v[i]);
    }
}

/* An edge: fewer k's or columns than a group and eight, copied with zeros around them. */
static void mm_edge(const uint8_t *b, int64_t pitch, int ks, int bytes, uint8_t *copy)
{
    for (int i = 0; i < 8 * 16; i++)
        copy[i] = 0;
    for (int u = 0; u < ks; u++)
        for (int i = 0; i < bytes; i++)
            copy[u * 16 + i] = b[u * pitch + i];
}

/* Columns are neighbours: groups of k, four at a time, pass over all columns; blocks of sums stay in `sums`, four
 * floats for each pair of columns, for one pair of rows after the other. 32 columns at a time are a line of bf16. */
SKR_FN void mm_rows(int i8, const uint8_t *b, int64_t pitch, const uint8_t *a, int rows, int64_t k, int cols,
                    float *sums, float *out, int64_t ld)
{
    enum { WIDE = 32, DEEP = 4 };
    const int whole = i8 ? 8 : 4, size = i8 ? 1 : 2;
    int pairs = (rows + 1) / 2, eights = (cols + 7) / 8;
    for (int i = 0; i < pairs * eights * 16; i++)
        sums[i] = 0;
    for (int64_t p = 0; p < k; p += DEEP * whole) {
        int64_t deep = (k - p) / whole < DEEP ? (k - p) / whole : DEEP;
        int j = 0;
        for (; deep == DEEP && j + WIDE <= cols; j += WIDE)
            for (int r = 0; r < pairs; r++) {
                float *s = sums + (r * eights + j / 8) * 16;
                float32x4_t acc[16];
                UNROLLED
                for (int i = 0; i < 16; i++)
                    acc[i] = vld1q_f32(s + 4 * i);
                for (int u = 0; u < DEEP; u++) {
                    uint8x16_t x = vld1q_u8(a + (p / whole + u) * 64 + r * 16);
                    UNROLLED
                    for (int i = 0; i < whole; i++) /* the k's that follow */
                        __builtin_prefetch(b + (p + (u + DEEP) * whole + i) * pitch + j * size, 0, 2);
                    UNROLLED
                    for (int o = 0; o < 4; o++) {
                        uint8x16_t v[4];
                        mm_group(i8, b + (p + u * whole) * pitch + (j + 8 * o) * size, pitch, v);
                        UNROLLED
                        for (int c = 0; c < 4; c++)
                            acc[4 * o + c] = mm_one(i8, acc[4 * o + c], x, v[c]);
                    }
                }
                UNROLLED
                for (int i = 0; i < 16; i++)
                    vst1q_f32(s + 4 * i, acc[i]);
            }
        for (; j < cols; j += 8)
            for (int64_t q = p; q < k && q < p + DEEP * whole; q += whole) {
                uint8_t copy[8 * 16];
                uint8x16_t v[4];
                int ks = k - q < whole ? (int)(k - q) : whole, n = cols - j < 8 ? cols - j : 8;
                mm_edge(b + q * pitch + j * size, pitch, ks, n * size, copy);
                mm_group(i8, copy, 16, v);
                for (int r = 0; r < pairs; r++)
                    UNROLLED
                for (int c = 0; c < 4; c++) {
                    float *s = sums + (r * eights + j / 8) * 16 + 4 * c;
                    vst1q_f32(s, mm_one(i8, vld1q_f32(s), vld1q_u8(a + q / whole * 64 + r * 16), v[c]));
                }
            }
    }
    for (int r = 0; r < pairs; r++)
        for (int j = 0; j < cols; j += 4) {
            const float *s = sums + r * eights * 16 + j * 2;
            mm_put(vld1q_f32(s), vld1q_f32(s + 4), rows - 2 * r, cols - j < 4 ? cols - j : 4, out + 2 * r * ld + j, ld);
        }
}

static void bf16_cols(const void *b, int64_t rs, const void *a, int rows, int64_t k, int cols, float *out, int64_t ld)
{
    (rows <= 2 ? bf16_cols1 : rows <= 4 ? bf16_cols2 : bf16_cols4)(b, 2 * rs, a, rows, 2 * k, cols, out, ld);
}

static void i8_cols(const void *b, int64_t rs, const void *a, int rows, int64_t k, int cols, float *out, int64_t ld)
{
    (rows <= 2 ? i8_cols1 : rows <= 4 ? i8_cols2 : i8_cols4)(b, rs, a, rows, k, cols, out, ld);
}

SKR_IN_ORDER static void bf16_rows(const void *b, int64_t ks, const void *a, int rows, int64_t k, int cols, float *sums,
                                   float *out, int64_t ld)
{
    mm_rows(0, b, 2 * ks, a, rows, k, cols, sums, out, ld);
}

SKR_IN_ORDER static void i8_rows(const void *b, int64_t ks, const void *a, int rows, int64_t k, int cols, float *sums,
                                 float *out, int64_t ld)
{
    mm_rows(1, b, ks, a, rows, k, cols, sums, out, ld);
}

#endif

/* ---------------------------------------------------------------- which one */

/* Whether there is a way for this product. */
static bool skinny_direct(const job_t *job, const side *b)
{
    bool own = job->kind == SKR_GEMM_F32    ? b->type == SKR_F32
               : job->kind == SKR_GEMM_BF16 ? b->type == SKR_BF16
                                            : job->kind == SKR_GEMM_I8 && b->type == SKR_I8;
    return job->skinny && own && !job->packed && !job->gated && job->m <= job->tile.mr &&
           job->scaling < SKR_GEMM_BLOCK && (b->rs == 1 || b->ks == 1);
}

/* How many columns to take through all k blocks at once: a stream of k's should be long, a row of columns too. */
static int skinny_width(const side *b, int cols)
{
    return b->rs == 1 && b->ks != 1 ? cols : 16;
}

/* k block `block` of columns n0 ... of b into out. a: the panel. spare: room for 8 rows of that many columns, and of a
 * k block. */
static void skinny_block(const job_t *job, const side *sa, const side *b, const void *a, int64_t block, int64_t n0,
                         int cols, float *spare, float *out, int64_t ld)
{
    int size = kind_bytes(job->kind);
    int64_t k0 = block * job->seg, k = job->k - k0 < job->seg ? job->k - k0 : job->seg;
    const char *from = (const char *)b->data + (b->at + n0 * b->rs + k0 * b->ks) * size;
    int rows = (int)job->m, by_rows = b->rs == 1 && b->ks != 1;
    if (job->kind == SKR_GEMM_F32 && by_rows) {
        f32_rows((const float *)from, b->ks, a, rows, k, cols, out, ld);
        return;
    }
    if (job->kind == SKR_GEMM_F32) {
        const float *by_k = (const float *)sa->data + sa->at + k0;
        bool as_is = sa->type == SKR_F32 && sa->ks == 1 && !job->gather.data;
        for (int r = 0; !as_is && r < rows; r++)
            for (int64_t p = 0; p < k; p++)
                spare[r * k + p] = ((const float *)a)[p * 8 + r];
        f32_cols((const float *)from, b->rs, as_is ? by_k : spare, as_is ? sa->rs : k, rows, k, cols, out, ld);
        return;
    }
#if defined(SKR_LEVEL_neonmm)
    if (job->kind == SKR_GEMM_BF16 && by_rows)
        bf16_rows(from, b->ks, a, rows, k, cols, spare, out, ld);
    else if (job->kind == SKR_GEMM_BF16)
        bf16_cols(from, b->rs, a, rows, k, cols, out, ld);
    else if (by_rows)
        i8_rows(from, b->ks, a, rows, k, cols, spare, out, ld);
    else
        i8_cols(from, b->rs, a, rows, k, cols, out, ld);
#else
    (void)spare;
#endif
}

#endif
