/* gemm_skinny_cols_neon_cpu.h - few rows of a on aarch64, times columns of b whose k's are neighbours in memory.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Columns are taken four at a time, transposed in registers; up to four such quads hide the latency of their chains of
 * sums. Each of the 16 columns at hand is the first of a range of its own, through which it goes on to the end: 16 long
 * streams, which the core's own prefetch follows better than instructions do. Columns of a power-of-two width fall into
 * the same sets of L1, which has four ways: so each quad lags behind the one before by some lines. */
#ifndef SKR_GEMM_SKINNY_COLS_NEON_CPU_H
#define SKR_GEMM_SKINNY_COLS_NEON_CPU_H

#include "gemm_cpu.h"

enum { LINE = 64, STREAMS = 4, MAX_PARTS = 8 };

/* Four columns on their way through k. */
typedef struct stream {
    float32x4_t acc[MAX_PARTS], total[MAX_PARTS]; /* sums of this k block, and of those before it */
    const char *b, *a;
    int64_t pitch;      /* bytes between columns of b */
    int64_t done, left; /* bytes of a column: in earlier blocks; still to do in this one */
    int column, apart;  /* the first, and how far it is to each next one */
} stream;

/* `parts` accumulators hold the sums of four columns. all: whole lines of `quads` streams; one: any bytes of one. */
typedef struct stream_kernel {
    void (*all)(stream *s, int64_t bytes);
    void (*one)(stream *s, int64_t bytes);
    int kind, type, parts, quads; /* type: of b */
} stream_kernel;

/* Columns of b, in bytes: column j begins at b + j * pitch. a: what order_a makes. */
typedef struct skinny_cols {
    const stream_kernel *kernel;
    const char *b, *a;
    int64_t pitch, bytes, block; /* bytes: of all k's of a column; block: of those in a k block */
    float *out;
    int64_t ld;
    int rows;
} skinny_cols;

/* ---------------------------------------------------------------- 16 bytes of four columns */

/* acc += four k's of four columns, one of them in each v, times ROWS rows; a: four k's of each. */
SKR_FN void add_four(int ROWS, float32x4_t v0, float32x4_t v1, float32x4_t v2, float32x4_t v3, const float *a,
                     float32x4_t *acc)
{
    UNROLLED
    for (int r = 0; r < ROWS; r++) {
        float32x4_t f = vld1q_f32(a + 4 * r);
        float32x4_t s = vfmaq_laneq_f32(acc[r], v0, f, 0);
        s = vfmaq_laneq_f32(s, v1, f, 1);
        s = vfmaq_laneq_f32(s, v2, f, 2);
        acc[r] = vfmaq_laneq_f32(s, v3, f, 3);
    }
}

/* Four k's of four columns of f32. */
SKR_FN void f32_four(int ROWS, const float *b, int64_t rs, const float *a, float32x4_t *acc)
{
    float32x4_t r0 = vld1q_f32(b), r1 = vld1q_f32(b + rs), r2 = vld1q_f32(b + 2 * rs), r3 = vld1q_f32(b + 3 * rs);
    float64x2_t x0 = vreinterpretq_f64_f32(vzip1q_f32(r0, r1)), x1 = vreinterpretq_f64_f32(vzip2q_f32(r0, r1));
    float64x2_t y0 = vreinterpretq_f64_f32(vzip1q_f32(r2, r3)), y1 = vreinterpretq_f64_f32(vzip2q_f32(r2, r3));
    float32x4_t v0 = vreinterpretq_f32_f64(vzip1q_f64(x0, y0)), v1 = vreinterpretq_f32_f64(vzip2q_f64(x0, y0));
    float32x4_t v2 = vreinterpretq_f32_f64(vzip1q_f64(x1, y1)), v3 = vreinterpretq_f32_f64(vzip2q_f64(x1, y1));
    add_four(ROWS, v0, v1, v2, v3, a, acc);
}

/* The lower or the higher four of eight, widened. */
SKR_FN float32x4_t half_of(int type, uint16x8_t x, int high)
{
    uint16x4_t part = high ? vget_high_u16(x) : vget_low_u16(x);
    return type == SKR_F16 ? vcvt_f32_f16(vreinterpret_f16_u16(part)) : vreinterpretq_f32_u32(vshll_n_u16(part, 16));
}

/* Eight k's of four columns of f16 or bf16: turned around before they are widened. a: twice four k's of each row. */
SKR_FN void halves_eight(int type, int ROWS, const uint16_t *b, int64_t rs, const float *a, float32x4_t *acc)
{
    uint16x8_t r0 = vld1q_u16(b), r1 = vld1q_u16(b + rs), r2 = vld1q_u16(b + 2 * rs), r3 = vld1q_u16(b + 3 * rs);
    UNROLLED
    for (int h = 0; h < 2; h++, a += 4 * ROWS) {
        uint32x4_t x = vreinterpretq_u32_u16(h ? vzip2q_u16(r0, r1) : vzip1q_u16(r0, r1));
        uint32x4_t y = vreinterpretq_u32_u16(h ? vzip2q_u16(r2, r3) : vzip1q_u16(r2, r3));
        uint16x8_t k01 = vreinterpretq_u16_u32(vzip1q_u32(x, y)), k23 = vreinterpretq_u16_u32(vzip2q_u32(x, y));
        add_four(ROWS, half_of(type, k01, 0), half_of(type, k01, 1), half_of(type, k23, 0), half_of(type, k23, 1), a,
                 acc);
    }
}

/* Fewer k's than these, one after the other. */
SKR_FN void f32_rest(int type, int ROWS, const void *b, int64_t rs, const float *a, int64_t k, float32x4_t *acc)
{
    for (int64_t p = 0; p < k; p++) {
        float column[4];
        for (int i = 0; i < 4; i++)
            column[i] = one_float(type, b, i * rs + p);
        float32x4_t v = vld1q_f32(column);
        UNROLLED
        for (int r = 0; r < ROWS; r++)
            acc[r] = vfmaq_n_f32(acc[r], v, a[p / 4 * 4 * ROWS + 4 * r + p % 4]);
    }
}

/* Matrix instructions: a group of k is 8 bytes of a column, and 16 bytes of a for each pair of rows. */
#if defined(SKR_LEVEL_neonmm)

SKR_FN float32x4_t mm_one(int i8, float32x4_t acc, uint8x16_t x, uint8x16_t y)
{
    if (i8)
        return vreinterpretq_f32_s32(
            vmmlaq_s32(vreinterpretq_s32_f32(acc), vreinterpretq_s8_u8(x), vreinterpretq_s8_u8(y)));
    return vbfmmlaq_f32(acc, vreinterpretq_bf16_u8(x), vreinterpretq_bf16_u8(y));
}

/* 16 bytes of two columns, pitch bytes apart, times PAIRS pairs of rows; acc is one block for each pair. */
SKR_FN void mm_sixteen(int i8, int PAIRS, const uint8_t *b, int64_t pitch, const uint8_t *a, float32x4_t *acc)
{
    uint64x2_t x = vreinterpretq_u64_u8(vld1q_u8(b)), y = vreinterpretq_u64_u8(vld1q_u8(b + pitch));
    uint8x16_t first = vreinterpretq_u8_u64(vzip1q_u64(x, y)), second = vreinterpretq_u8_u64(vzip2q_u64(x, y));
    UNROLLED
    for (int r = 0; r < PAIRS; r++) {
        acc[r] = mm_one(i8, acc[r], vld1q_u8(a + r * 16), first);
        acc[r] = mm_one(i8, acc[r], vld1q_u8(a + (PAIRS + r) * 16), second);
    }
}

/* Fewer than 16 bytes of two columns: groups of 8, the last one filled up with zeros. */
SKR_FN void mm_rest(int i8, int PAIRS, const uint8_t *b, int64_t pitch, const uint8_t *a, int64_t bytes,
                    float32x4_t *acc)
{
    for (int64_t p = 0; p < bytes; p += 8) {
        int n = bytes - p < 8 ? (int)(bytes - p) : 8;
        uint64_t w[2] = {0, 0};
        for (int i = 0; i < n; i++) {
            w[0] |= (uint64_t)b[p + i] << 8 * i;
            w[1] |= (uint64_t)b[pitch + p + i] << 8 * i;
        }
        UNROLLED
        for (int r = 0; r < PAIRS; r++)
            acc[r] = mm_one(i8, acc[r], vld1q_u8(a + p * 2 * PAIRS + r * 16), vreinterpretq_u8_u64(vld1q_u64(w)));
    }
}

#endif

/* ---------------------------------------------------------------- streams */

/* Bytes of a, as order_a puts it, for each byte of a column. */
SKR_FN int a_bytes(int kind, int type, int PARTS)
{
    return kind == SKR_GEMM_F32 ? PARTS * 4 / skr_type_bytes(type) : PARTS;
}

/* a's panel, of 8 rows and k's of `bytes` bytes, with the kernel's rows only and in the order in which they are used.
 * Returns where it is: as it lies where that is the order. */
static const char *order_a(const stream_kernel *kernel, const char *panel, const float *as_it_lies, int64_t bytes,
                           char *to)
{
    int parts = kernel->parts;
    if (kernel->kind != SKR_GEMM_F32) {
        for (int64_t p = 0; p < bytes; p += 8)
            __builtin_memcpy(to + p * parts, panel + p * 8, (size_t)(8 * parts));
        return to;
    }
    if (parts == 1 && as_it_lies)
        return (const char *)as_it_lies;
    for (int64_t k = 0; k < bytes / 4; k++)
        for (int r = 0; r < parts; r++)
            ((float *)to)[k / 4 * 4 * parts + 4 * r + k % 4] = ((const float *)panel)[8 * k + r];
    return to;
}

SKR_FN void stream_sixteen(int kind, int type, int PARTS, const stream *s, int64_t p, float32x4_t *acc)
{
    const char *b = s->b + p, *a = s->a + p * a_bytes(kind, type, PARTS);
    if (kind == SKR_GEMM_F32 && type != SKR_F32) {
        halves_eight(type, PARTS, (const uint16_t *)b, s->pitch / 2, (const float *)a, acc);
        return;
    }
    if (kind == SKR_GEMM_F32) {
        f32_four(PARTS, (const float *)b, s->pitch / 4, (const float *)a, acc);
        return;
    }
#if defined(SKR_LEVEL_neonmm)
    UNROLLED
    for (int i = 0; i < 2; i++)
        mm_sixteen(kind == SKR_GEMM_I8, PARTS / 2, (const uint8_t *)b + 2 * i * s->pitch, s->pitch, (const uint8_t *)a,
                   acc + i * PARTS / 2);
#endif
}

SKR_FN void stream_rest(int kind, int type, int PARTS, const stream *s, int64_t p, int64_t bytes, float32x4_t *acc)
{
    const char *b = s->b + p, *a = s->a + p * a_bytes(kind, type, PARTS);
    if (kind == SKR_GEMM_F32) {
        int size = skr_type_bytes(type);
        f32_rest(type, PARTS, b, s->pitch / size, (const float *)a, bytes / size, acc);
        return;
    }
#if defined(SKR_LEVEL_neonmm)
    UNROLLED
    for (int i = 0; i < 2; i++)
        mm_rest(kind == SKR_GEMM_I8, PARTS / 2, (const uint8_t *)b + 2 * i * s->pitch, s->pitch, (const uint8_t *)a,
                bytes, acc + i * PARTS / 2);
#endif
}

/* `bytes` more of every column; rest: they may be no whole lines. */
SKR_FN void streams_on(int kind, int type, int PARTS, int QUADS, bool rest, stream *streams, int64_t bytes)
{
    float32x4_t acc[STREAMS][MAX_PARTS];
    stream s[STREAMS]; /* in registers */
    UNROLLED
    for (int q = 0; q < QUADS; q++) {
        s[q].b = streams[q].b;
        s[q].a = streams[q].a;
        s[q].pitch = streams[0].pitch;
        UNROLLED
        for (int i = 0; i < PARTS; i++)
            acc[q][i] = streams[q].acc[i];
    }
    int64_t p = 0;
    for (; p + LINE <= bytes; p += LINE)
        UNROLLED
    for (int q = 0; q < QUADS; q++)
        UNROLLED
    for (int u = 0; u < LINE; u += 16) /* a line is used up at once */
        stream_sixteen(kind, type, PARTS, &s[q], p + u, acc[q]);
    for (; rest && p + 16 <= bytes; p += 16)
        stream_sixteen(kind, type, PARTS, &s[0], p, acc[0]);
    if (rest && p < bytes)
        stream_rest(kind, type, PARTS, &s[0], p, bytes - p, acc[0]);
    UNROLLED
    for (int q = 0; q < QUADS; q++) {
        streams[q].b += bytes;
        streams[q].a += bytes * a_bytes(kind, type, PARTS);
        streams[q].left -= bytes;
        UNROLLED
        for (int i = 0; i < PARTS; i++)
            streams[q].acc[i] = acc[q][i];
    }
}

#define STREAM_KERNEL(name, KIND, TYPE, PARTS, QUADS)                                                                  \
    SKR_IN_ORDER static void name##_all(stream *s, int64_t bytes)                                                      \
    {                                                                                                                  \
        streams_on(KIND, TYPE, PARTS, QUADS, false, s, bytes);                                                         \
    }                                                                                                                  \
    SKR_IN_ORDER static void name##_one(stream *s, int64_t bytes)                                                      \
    {                                                                                                                  \
        streams_on(KIND, TYPE, PARTS, 1, true, s, bytes);                                                              \
    }                                                                                                                  \
    static const stream_kernel name = {name##_all, name##_one, KIND, TYPE, PARTS, QUADS};
#define F32_STREAM_KERNELS(name, TYPE)                                                                                 \
    STREAM_KERNEL(name##_rows1, SKR_GEMM_F32, TYPE, 1, 4)                                                              \
    STREAM_KERNEL(name##_rows2, SKR_GEMM_F32, TYPE, 2, 4)                                                              \
    STREAM_KERNEL(name##_rows4, SKR_GEMM_F32, TYPE, 4, 4)                                                              \
    STREAM_KERNEL(name##_rows8, SKR_GEMM_F32, TYPE, 8, 2)                                                              \
    static const stream_kernel *name##_kernel_of(int rows)                                                             \
    {                                                                                                                  \
        return rows == 1 ? &name##_rows1 : rows == 2 ? &name##_rows2 : rows <= 4 ? &name##_rows4 : &name##_rows8;      \
    }
F32_STREAM_KERNELS(f32, SKR_F32)
F32_STREAM_KERNELS(f16, SKR_F16)
#if defined(SKR_LEVEL_neonmm)
#define MM_STREAM_KERNELS(name, KIND, TYPE)                                                                            \
    STREAM_KERNEL(name##_rows2, KIND, TYPE, 2, 4)                                                                      \
    STREAM_KERNEL(name##_rows4, KIND, TYPE, 4, 4)                                                                      \
    STREAM_KERNEL(name##_rows8, KIND, TYPE, 8, 2)                                                                      \
    static const stream_kernel *name##_kernel_of(int rows)                                                             \
    {                                                                                                                  \
        return rows <= 2 ? &name##_rows2 : rows <= 4 ? &name##_rows4 : &name##_rows8;                                  \
    }
MM_STREAM_KERNELS(bf16, SKR_GEMM_BF16, SKR_BF16)
MM_STREAM_KERNELS(i8, SKR_GEMM_I8, SKR_I8)
#undef MM_STREAM_KERNELS
#else
F32_STREAM_KERNELS(bf16, SKR_BF16)
#endif
#undef F32_STREAM_KERNELS
#undef STREAM_KERNEL

/* By the type of b: it says the kind, too (skinny_direct). */
static const stream_kernel *stream_kernel_of(int type, int rows)
{
#if defined(SKR_LEVEL_neonmm)
    if (type == SKR_I8)
        return i8_kernel_of(rows);
#endif
    return type == SKR_F32 ? f32_kernel_of(rows) : type == SKR_F16 ? f16_kernel_of(rows) : bf16_kernel_of(rows);
}

/* ---------------------------------------------------------------- k blocks and columns */

static void begin_columns(const skinny_cols *c, stream *s, int column, int apart)
{
    s->b = c->b + column * c->pitch;
    s->a = c->a;
    s->pitch = apart * c->pitch;
    s->done = 0;
    s->left = c->bytes < c->block ? c->bytes : c->block;
    s->column = column;
    s->apart = apart;
    for (int i = 0; i < c->kernel->parts; i++)
        s->acc[i] = vdupq_n_f32(0);
}

/* The sums of a whole k block join those before it; returns whether another block follows. */
static bool end_block(const skinny_cols *c, stream *s)
{
    for (int i = 0; i < c->kernel->parts; i++) {
        float32x4_t sum = s->acc[i];
        if (s->done && c->kernel->kind == SKR_GEMM_I8)
            sum = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(s->total[i]), vreinterpretq_s32_f32(sum)));
        else if (s->done)
            sum = vaddq_f32(s->total[i], sum);
        s->total[i] = sum;
        s->acc[i] = vdupq_n_f32(0);
    }
    s->done += c->block;
    s->left = c->bytes - s->done < c->block ? c->bytes - s->done : c->block;
    return s->left > 0;
}

/* The first n of a stream's columns into out. */
static void put_columns(const skinny_cols *c, const stream *s, int n)
{
    for (int r = 0; r < c->rows; r++) {
        float32x4_t v = s->total[r];
        if (c->kernel->kind != SKR_GEMM_F32) { /* blocks of two rows and two columns */
            float64x2_t x = vreinterpretq_f64_f32(s->total[r / 2]);
            float64x2_t y = vreinterpretq_f64_f32(s->total[c->kernel->parts / 2 + r / 2]);
            v = vreinterpretq_f32_f64(r % 2 ? vzip2q_f64(x, y) : vzip1q_f64(x, y));
        }
        float sums[4], *out = c->out + r * c->ld + s->column;
        vst1q_f32(sums, v);
        for (int i = 0; i < n; i++)
            out[i * s->apart] = sums[i];
    }
}

/* Four columns that are neighbours, or one four times, by themselves. */
static void columns_alone(const skinny_cols *c, int column, int n)
{
    stream s;
    begin_columns(c, &s, column, n > 1);
    do
        c->kernel->one(&s, s.left);
    while (end_block(c, &s));
    put_columns(c, &s, n);
}

/* What is left of a k block, and its end. At the columns' end on to the next that are this stream's. */
static void finish_block(const skinny_cols *c, stream *s)
{
    if (s->left)
        c->kernel->one(s, s->left);
    if (end_block(c, s))
        return;
    put_columns(c, s, 4);
    begin_columns(c, s, s->column + 1, s->apart);
}

/* About `bytes` more of one stream: whole lines, but for the end of a block. */
static void stream_ahead(const skinny_cols *c, stream *s, int64_t bytes)
{
    for (; bytes >= s->left; finish_block(c, s))
        bytes -= s->left;
    c->kernel->one(s, bytes - bytes % LINE);
}

/* Columns 0 ... end - 1, end > 0 and a multiple of what the streams take at once. */
static void columns_together(const skinny_cols *c, int end)
{
    enum { LAG = 16 * LINE, WORTH = 512 * LINE }; /* shorter streams would be alone too long */
    int quads = c->kernel->quads, each = end / (4 * quads);
    int64_t lag = each * c->bytes >= WORTH ? LAG : 0;
    stream s[STREAMS];
    int started = 0;
    do {
        begin_columns(c, &s[started], 4 * started * each, each);
        stream_ahead(c, &s[started], (quads - 1 - started) * lag);
    } while (++started < quads);
    while (s[0].column < each) {
        int64_t n = s[0].left;
        for (int q = 1; q < quads; q++)
            n = s[q].left < n ? s[q].left : n;
        c->kernel->all(s, n - n % LINE);
        for (int q = 0; q < quads; q++)
            if (s[q].left < LINE)
                finish_block(c, &s[q]);
    }
    for (int q = 1; q < quads; q++)
        while (s[q].column < (4 * q + 1) * each)
            finish_block(c, &s[q]);
}

static void multiply_columns(const skinny_cols *c, int cols)
{
    int at_once = 4 * c->kernel->quads, j = cols - cols % at_once;
    if (j)
        columns_together(c, j);
    for (; j + 4 <= cols; j += 4)
        columns_alone(c, j, 4);
    for (; j < cols; j++)
        columns_alone(c, j, 1);
}

#endif
