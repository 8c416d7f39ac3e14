/* rows.h - what CPU kernels that work on rows share: where a row is, what to prefetch, conversions of whole rows,
 * parameters as f32. Included by kernel files after simd.h; every level has its own copy.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rows are worked on in chunks: the two sweeps of neighbouring rows can then take turns, and the f32 sums of the chunks
 * are added in f64, so that rows of any width keep full accuracy. Everything here is a constant of the library: a row's
 * bits depend on its contents and width alone. */
#ifndef SKR_CPU_ROWS_H
#define SKR_CPU_ROWS_H

#include "../core/job.h"
#include "simd/simd.h"

/* AHEAD: how far before its use a line is asked into L2, in bytes. */
enum { CHUNK = 4096, AHEAD = 6144, LINE = 64 };

static inline int64_t chunk_len(int64_t n, int64_t i)
{
    return n - i < CHUNK ? n - i : CHUNK;
}

/* In integers, because an absent or empty tensor has no address to count from. */
static inline char *row_of(const skr_row_space *space, const skr_rows *r, int64_t row)
{
    int64_t offset = skr_row_offset(space, r->stride, row) * skr_type_bytes(r->type);
    return (char *)((uintptr_t)r->data + (uintptr_t)offset);
}

/* Whether an output is written past the caches from p on: where the call's outputs are, and p begins a line, which
 * those stores need. Chunks are whole lines, so this holds for all of a row's. */
static inline int goes_past(const skr_job_head *head, const void *p)
{
    return SKR_PAST && skr_past(head) && (uintptr_t)p % LINE == 0;
}

/* Bytes from a cache past the caches; what does not fill a vector by plain stores. */
static void copy_past(char *to, const char *from, int64_t bytes)
{
    int64_t i = -(int64_t)(uintptr_t)to & (LINE - 1);
    i = i < bytes ? i : bytes;
    if (i)
        __builtin_memcpy(to, from, (size_t)i);
    for (; i + SKR_VB_BYTES <= bytes; i += SKR_VB_BYTES)
        vb_stream(to + i, vb_load(from + i));
    if (i < bytes)
        __builtin_memcpy(to + i, from + i, (size_t)(bytes - i));
}

/* 1 / sqrt(mean + eps), formed in double. */
static inline float rstd_of(double sum, double one_over_n, float eps)
{
    return (float)(1.0 / skr_sqrt(sum * one_over_n + (double)eps));
}

/* Where to prefetch while byte `at` of row `row` is being read for the first time: AHEAD bytes further, that is `rows`
 * rows and `bytes` bytes. */
typedef struct lead {
    int64_t row_bytes, rows, bytes;
} lead;

static inline lead lead_of(const skr_rows *r, int64_t n)
{
    int64_t row_bytes = n * skr_type_bytes(r->type);
    return (lead){row_bytes, AHEAD / row_bytes, AHEAD % row_bytes};
}

/* Rows from `end` on belong to another task and are not asked for: then it is a line that was just read. */
static inline const char *ahead_at(const lead *a, const skr_row_space *space, const skr_rows *r, int64_t row,
                                   int64_t end, int64_t at)
{
    int64_t to = at + a->bytes;
    row += a->rows + (to >= a->row_bytes);
    to -= to >= a->row_bytes ? a->row_bytes : 0;
    return row < end ? row_of(space, r, row) + to : row_of(space, r, end - 1);
}

SKR_FN void prefetch_block(const char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE)
        v_prefetch_l2(p + i);
}

/* Where a loop computes so long that a core's loads do not get far ahead of it: asks for what comes AHEAD bytes later.
 * On x86 only, which SKR_PAST tells: a Neoverse V1 needs no such help. */
SKR_FN void ask_ahead(const void *p, int64_t bytes)
{
    if (SKR_PAST)
        prefetch_block((const char *)p + AHEAD, bytes);
}

static inline const float *param_row(const skr_job_head *head, const skr_param *p, int64_t at, int64_t stride,
                                     int64_t h)
{
    const char *base = at < 0 ? p->data : (const char *)head->workspace + at;
    return (const float *)base + h * stride;
}

/* y = x + offset in f32, elements of any float type. */
SKR_FN void widen_body(int type, const void *x, float offset, float *y, int64_t n)
{
    vf2 add = v2_set1(offset);
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        v_store2(SKR_F32, y, i, v2_add(v_load2(type, x, i), add));
    if (i < n)
        v_store2_n(SKR_F32, y, i, v2_add(v_load2_n(type, x, i, (int)(n - i)), add), (int)(n - i));
}

static void widen(int type, const void *x, float offset, float *y, int64_t n)
{
    if (type == SKR_F32)
        widen_body(SKR_F32, x, offset, y, n);
    else if (type == SKR_F16)
        widen_body(SKR_F16, x, offset, y, n);
    else
        widen_body(SKR_BF16, x, offset, y, n);
}

/* y = x rounded to a 16-bit type. */
SKR_FN void narrow_body(int type, const float *x, void *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        v_store2(type, y, i, v_load2(SKR_F32, x, i));
    if (i < n)
        v_store2_n(type, y, i, v_load2_n(SKR_F32, x, i, (int)(n - i)), (int)(n - i));
}

static void narrow(int type, const float *x, void *y, int64_t n)
{
    if (type == SKR_F16)
        narrow_body(SKR_F16, x, y, n);
    else
        narrow_body(SKR_BF16, x, y, n);
}

/* One piece of one head's row of a parameter's f32 copy. An absent weight is 1. */
static void copy_param(const skr_job_head *head, const skr_param *p, float offset, int64_t at, int64_t stride,
                       int64_t h, int64_t begin, int64_t end)
{
    if (at < 0 || (h > 0 && stride == 0))
        return;
    float *to = (float *)((char *)head->workspace + at) + h * stride;
    if (p->data) {
        const char *from = (const char *)p->data + (h * p->stride + begin) * skr_type_bytes(p->type);
        widen(p->type, from, offset, to + begin, end - begin);
    } else {
        for (int64_t i = begin; i < end; i++)
            to[i] = 1.0f + offset;
    }
}

/* One element of a float type. */
static inline float load_element(int type, const void *p, int64_t i)
{
    float f[SKR_LANES];
    if (type == SKR_F32)
        return ((const float *)p)[i];
    v_store(SKR_F32, f, 0, type == SKR_F16 ? v_load_n(SKR_F16, p, i, 1) : v_load_n(SKR_BF16, p, i, 1));
    return f[0];
}

static inline void store_element(int type, void *p, int64_t i, float f)
{
    if (type == SKR_F32)
        ((float *)p)[i] = f;
    else if (type == SKR_F16)
        v_store_n(SKR_F16, p, i, v_set1(f), 1);
    else
        v_store_n(SKR_BF16, p, i, v_set1(f), 1);
}

/* An index tensor holds a value out of range: saker_context_check will say so. */
static inline void report_bad_index(const skr_job_head *head)
{
    __atomic_store_n(head->error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
}

/* k vectors of columns from i, or the first m columns of one. Parts are added eight by eight, then the eights: short
 * chains keep the error small. */
SKR_FN void parts_at(const float *parts, int64_t n_parts, int64_t stride, int64_t i, int k, int m, vf *sum)
{
    for (int j = 0; j < k; j++)
        sum[j] = v_set1(0.0f);
    for (int64_t p = 0; p < n_parts; p += 8) {
        int64_t end = p + 8 < n_parts ? p + 8 : n_parts;
        vf eight[4] = {v_set1(0.0f), v_set1(0.0f), v_set1(0.0f), v_set1(0.0f)};
        for (int64_t q = p; q < end; q++)
            for (int j = 0; j < k; j++)
                eight[j] = v_add(eight[j], v_load_n(SKR_F32, parts + q * stride, i + j * SKR_LANES, m));
        for (int j = 0; j < k; j++)
            sum[j] = v_add(sum[j], eight[j]);
    }
}

/* Their sum, added to what the tensor held or in its place. */
SKR_FN void parts_body(int t, int accumulate, const float *parts, int64_t n_parts, int64_t stride, void *out, int64_t n)
{
    vf sum[4];
    int64_t i = 0;
    for (; i + 4 * SKR_LANES <= n; i += 4 * SKR_LANES) {
        parts_at(parts, n_parts, stride, i, 4, SKR_LANES, sum);
        SKR_UNROLL
        for (int j = 0; j < 4; j++) {
            int64_t at = i + j * SKR_LANES;
            v_store_float(t, out, at, accumulate ? v_add(v_load(t, out, at), sum[j]) : sum[j]);
        }
    }
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        parts_at(parts, n_parts, stride, i, 1, m, sum);
        v_store_n(t, out, i, accumulate ? v_add(v_load_n(t, out, i, m), sum[0]) : sum[0], m);
    }
}

/* Columns [begin, end) of head h of a sum whose n_parts partial rows [heads, n] start at byte `at` of the workspace. */
static void sum_parts(const skr_job_head *head, const skr_param *out, int accumulate, int64_t at, int64_t n_parts,
                      int64_t heads, int64_t n, int64_t h, int64_t begin, int64_t end)
{
    if (!out->data)
        return;
    int64_t stride = skr_part_stride(heads * n), len = end - begin;
    const float *parts = (const float *)((const char *)head->workspace + at) + h * n + begin;
    char *to = (char *)out->data + (h * out->stride + begin) * skr_type_bytes(out->type);
    if (out->type == SKR_F32)
        parts_body(SKR_F32, accumulate, parts, n_parts, stride, to, len);
    else if (out->type == SKR_F16)
        parts_body(SKR_F16, accumulate, parts, n_parts, stride, to, len);
    else
        parts_body(SKR_BF16, accumulate, parts, n_parts, stride, to, len);
}

#endif
