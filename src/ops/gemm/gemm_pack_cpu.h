/* gemm_pack_cpu.h - panels: R rows of a (or columns of b) of one k segment, in the order the register tile reads them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * pack.h says what a panel is. Other types are converted to the panel's while packing: all that is needed of them is
 * exact. In f32 the scales that change along k are applied here, too. */
#ifndef SKR_GEMM_PACK_CPU_H
#define SKR_GEMM_PACK_CPU_H

#include "../../cpu/gemm/pack.h"
#if defined(SKR_LEVEL_neonmm)
#include "../../cpu/gemm/pack_widen_neon.h"
#elif defined(SKR_CPU_PACK_X86_H)
#include "../../cpu/gemm/codes_x86.h"
#endif
#include "gemm_cpu.h"

/* One side of the product, of one batch: element (r, k) is at `at + r * rs + k * ks`. */
typedef struct side {
    const void *data;
    int64_t at, rs, ks, k; /* k: of the whole product */
    int type, is_b;
    int64_t scale_at, zero_at; /* offsets of the batch in its scales and zero points */
} side;

static side side_of(const job_t *job, int is_b, int64_t batch)
{
    const skr_gemm_matrix *m = is_b ? &job->b : &job->a, *scale = is_b ? &job->b_scale : &job->a_scale;
    return (side){.data = m->at.data,
                  .at = batch_at(job, m, batch),
                  .rs = is_b ? m->at.col_stride : m->row,
                  .ks = is_b ? m->row : m->at.col_stride,
                  .k = job->k,
                  .type = m->at.type,
                  .is_b = is_b,
                  .scale_at = batch_at(job, scale, batch),
                  .zero_at = batch_at(job, &job->b_zero, batch)};
}

/* ---------------------------------------------------------------- elements converted on the way */

enum { CHUNK = 64 }; /* k values converted at a time; a multiple of every granule */

/* Whether operands are scaled in the panel: f32 panels of products with scales along k. */
SKR_FN int scaled_here(const job_t *job, int is_b)
{
    return job->kind == SKR_GEMM_F32 && ((job->scaling == SKR_GEMM_GROUP && is_b) || job->scaling == SKR_GEMM_BLOCK);
}

static float scale_of(const job_t *job, const side *s, int64_t r, int64_t k)
{
    const skr_gemm_matrix *m = s->is_b ? &job->b_scale : &job->a_scale;
    if (!m->at.data)
        return 1;
    if (!s->is_b && (r = row_of_a(job, r)) < 0)
        return 1;
    int64_t at = s->scale_at;
    if (job->scaling == SKR_GEMM_GROUP)
        at += k / job->group * m->row + r * m->at.col_stride;
    else if (s->is_b)
        at += k / SKR_GEMM_SCALE_BLOCK * m->row + r / SKR_GEMM_SCALE_BLOCK * m->at.col_stride;
    else
        at += r * m->row + k / SKR_GEMM_SCALE_BLOCK * m->at.col_stride;
    return ((const float *)m->at.data)[at];
}

static float zero_of(const job_t *job, const side *s, int64_t r, int64_t k)
{
    const skr_gemm_matrix *m = &job->b_zero;
    if (!s->is_b || !m->at.data)
        return 0;
    return one_float(m->at.type, m->at.data, s->zero_at + k / job->group * m->row + r * m->at.col_stride);
}

/* n values from (r, k) on, along r: each has its own scale and zero point, which are neighbours too. */
static void adjust_across(const job_t *job, const side *s, int64_t r, int64_t k, int n, float *x)
{
    const skr_gemm_matrix *m = &job->b_scale, *z = &job->b_zero;
    int64_t group = k / job->group, at = s->scale_at + group * m->row, zero_at = s->zero_at + group * z->row;
    bool scaled = scaled_here(job, 1) && m->at.data;
    for (int i = 0; z->at.data && i < n; i++)
        x[i] -= one_float(z->at.type, z->at.data, zero_at + (r + i) * z->at.col_stride);
    for (int i = 0; scaled && i < n; i++)
        x[i] *= ((const float *)m->at.data)[at + (r + i) * m->at.col_stride];
}

/* n values from (r, k) on, along k or along r, shifted by their zero points and scaled. */
static void adjust(const job_t *job, const side *s, int64_t r, int64_t k, int r_step, int k_step, int n, float *x)
{
    int64_t group = job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK;
    bool scaled = scaled_here(job, s->is_b);
    if (!scaled && !(s->is_b && job->b_zero.at.data))
        return;
    if (job->scaling == SKR_GEMM_GROUP && r_step == 1) {
        adjust_across(job, s, r, k, n, x);
        return;
    }
    for (int i = 0; i < n;) {
        int64_t at_k = k + (int64_t)i * k_step;
        float zero = zero_of(job, s, r + (int64_t)i * r_step, at_k);
        float scale = scaled ? scale_of(job, s, r + (int64_t)i * r_step, at_k) : 1;
        int64_t same = k_step ? group - at_k % group : 1; /* along k a whole group shares its scale */
        int end = same < n - i ? i + (int)same : n;
        for (; i < end; i++)
            x[i] = (x[i] - zero) * scale;
    }
}

static void narrow_run(int kind, const float *x, int n, void *to, int64_t at)
{
    if (kind == SKR_GEMM_F32)
        __builtin_memcpy((float *)to + at, x, (size_t)n * 4);
    else if (kind == SKR_GEMM_BF16)
        for (int i = 0; i < n; i++) /* exact */
            ((uint16_t *)to)[at + i] = (uint16_t)(skr_bits(x[i]) >> 16);
    else if (kind == SKR_GEMM_F16)
        store_run(SKR_F16, to, at, 1, n, x);
    else if (kind == SKR_GEMM_I8)
        for (int i = 0; i < n; i++)
            ((int8_t *)to)[at + i] = (int8_t)x[i];
    else
        for (int i = 0; i < n; i++)
            ((int32_t *)to)[at + i] = (int32_t)x[i];
}

/* Whether the elements are only moved. */
SKR_FN bool moved(const job_t *job, const side *s)
{
    return s->type == native_type(job->kind) && !scaled_here(job, s->is_b) && !(s->is_b && job->b_zero.at.data);
}

/* n elements of the panel's own type, stride apart. */
static void move_run(int size, const void *data, int64_t at, int64_t stride, int n, void *to, int64_t to_at)
{
    const char *from = (const char *)data + at * size;
    if (stride == 1)
        __builtin_memcpy((char *)to + to_at * size, from, (size_t)n * (size_t)size);
    else
        for (int i = 0; i < n; i++)
            __builtin_memcpy((char *)to + (to_at + i) * size, from + i * stride * size, (size_t)size);
}

/* The first of n i8 or i4 codes of row r from k on, as they stand in a panel, in the level's own way: how many it did.
 */
static int take_codes(const job_t *job, const side *s, int64_t at, int64_t r, int64_t k, int n, void *to, int64_t to_at)
{
    int done = 0;
#if defined(SKR_CPU_CODES_X86_H)
    int64_t group = job->scaling == SKR_GEMM_GROUP ? job->group : SKR_GEMM_SCALE_BLOCK;
    while (done < n && (s->type == SKR_I8 || s->type == SKR_I4)) {
        int64_t same = group - (k + done) % group;
        int part = same < n - done ? (int)same : n - done;
        float scale = scaled_here(job, s->is_b) ? scale_of(job, s, r, k + done) : 1,
              zero = zero_of(job, s, r, k + done);
        code_columns c = {.data = s->data,
                          .at = at + done,
                          .type = s->type,
                          .columns = 1,
                          .n = part,
                          .zeros = zero != 0 ? &zero : NULL,
                          .scales = &scale,
                          .to = (char *)to + (to_at + done) * skr_kind_bytes(job->kind)};
        int some = convert_codes(job->kind, &c);
        done += some;
        if (some < part)
            break;
    }
#endif
    (void)job, (void)s, (void)at, (void)r, (void)k, (void)n, (void)to, (void)to_at;
    return done;
}

/* n elements of s from `at` on, stride apart, as they stand in a panel; (r, k) is the first, and they run along k or
 * along r. */
static void take_run(const job_t *job, const side *s, int64_t at, int64_t stride, int64_t r, int64_t k, bool along_k,
                     int n, void *to, int64_t to_at)
{
    _Alignas(64) float run[CHUNK];
    if (moved(job, s)) {
        move_run(skr_kind_bytes(job->kind), s->data, at, stride, n, to, to_at);
        return;
    }
    int done = along_k && stride == 1 ? take_codes(job, s, at, r, k, n, to, to_at) : 0;
    if (done == n)
        return;
    at += done;
    k += done;
    n -= done;
    to_at += done;
    if (job->kind == SKR_GEMM_I8 && stride == 1) { /* i4, as it is */
        unpack_nibbles(s->data, at, n, (int8_t *)to + to_at);
    } else {
        load_run(s->type, s->data, at, stride, n, run);
        adjust(job, s, r, k, !along_k, along_k, n, run);
        narrow_run(job->kind, run, n, to, to_at);
    }
}

/* Rows that are not only moved, or are anywhere: a few k values at a time through a buffer of the panel's type. */
static void pack_converted(const job_t *job, const side *s, int64_t r0, int step, int rows, int R, int KU, int64_t k0,
                           int64_t k, int64_t pad, char *to)
{
    _Alignas(64) float converted[CHUNK * SKR_GEMM_MAX_NR];
    int kind = job->kind, size = skr_kind_bytes(kind);
    bool gathered = !s->is_b && job->gather.data, across = s->rs == 1 && s->ks != 1 && step == 1 && !gathered;
    for (int64_t p = 0; p < pad; p += CHUNK, to += (int64_t)CHUNK * R * size) {
        int n = k - p < CHUNK ? (int)(k - p) : CHUNK, padded = pad - p < CHUNK ? (int)(pad - p) : CHUNK;
        n = n < 0 ? 0 : n;
        for (int q = 0; across && q < n; q++)
            take_run(job, s, s->at + r0 + (k0 + p + q) * s->ks, 1, r0, k0 + p + q, false, rows, converted,
                     (int64_t)q * R);
        for (int r = 0; !across && r < rows; r++) {
            int64_t row = r0 + (int64_t)r * step, from = gathered ? row_of_a(job, row) : row;
            if (from < 0)
                __builtin_memset((char *)converted + r * CHUNK * size, 0, (size_t)(CHUNK * size));
            else
                take_run(job, s, s->at + from * s->rs + (k0 + p) * s->ks, s->ks, row, k0 + p, true, n, converted,
                         (int64_t)r * CHUNK);
        }
        pack_moved(kind, (const char *)converted, across ? 1 : CHUNK, across ? R : 1, rows, R, KU, n, padded, to);
    }
}

/* ---------------------------------------------------------------- a panel */

/* How many k values of segment s of block kb there are, and how many its panel has. */
SKR_FN int64_t segment_k(const job_t *job, int64_t block, int64_t segment, int64_t *padded)
{
    int64_t k0 = (block * job->segs + segment) * job->seg, k = job->k - k0;
    k = k < 0 ? 0 : k < job->seg ? k : job->seg;
    *padded = (k + job->tile.granule - 1) / job->tile.granule * job->tile.granule;
    return k;
}

/* Bytes of a panel of `rows` rows over one k block; the last block has fewer k's. */
SKR_FN int64_t panel_bytes(const job_t *job, int rows, int64_t block)
{
    int64_t k;
    if (job->segs == 1) {
        segment_k(job, block, 0, &k);
    } else {
        int64_t left = (job->k + job->seg - 1) / job->seg - block * job->segs;
        k = (left < job->segs ? left : job->segs) * job->seg_pad;
    }
    return k * rows * skr_kind_bytes(job->kind);
}

/* How many k values of a segment the level's own way from narrower types to the panel's has packed. */
static int64_t widen_panel(const job_t *job, const side *s, int64_t r0, int step, int rows, int64_t k0, int64_t k,
                           char *to)
{
#if defined(SKR_LEVEL_neonmm)
    bool as_it_is = s->is_b && !job->b_zero.at.data && (job->kind == SKR_GEMM_BF16 || job->kind == SKR_GEMM_I8);
    if (as_it_is && rows == WIDEN_COLUMNS)
        return pack_widened(job->kind, s->type, s->data, s->at + r0 * s->rs + k0 * s->ks, s->rs * step, s->ks, k, to);
#endif
#if defined(SKR_CPU_PACK_X86_H)
    bool halves = s->type == SKR_F16 || s->type == SKR_BF16, gathered = !s->is_b && job->gather.data;
    bool changed = scaled_here(job, s->is_b) || (s->is_b && job->b_zero.at.data);
    if (job->kind == SKR_GEMM_F32 && halves && !changed && !gathered && rows == (s->is_b ? job->tile.nr : job->tile.mr))
        return widened_panel(s->type, (const uint16_t *)s->data + s->at + r0 * s->rs + k0 * s->ks, s->rs * step, s->ks,
                             rows, k, (float *)to);
#endif
    (void)job, (void)s, (void)r0, (void)step, (void)rows, (void)k0, (void)k, (void)to;
    return 0;
}

/* The k's of a segment that is packed in their order, but for the first `done`, in that of the panels. */
static void order_ks(const job_t *job, int R, int64_t done, int64_t k, char *panel)
{
#if defined(SKR_LEVEL_neonmm)
    if (job->kind == SKR_GEMM_BF16 && job->b.at.type == SKR_I4)
        turn_ks(R, k - done, (uint16_t *)panel + done * R);
#endif
    (void)job, (void)R, (void)done, (void)k, (void)panel;
}

/* Rows r0, r0 + step, ... of k block `block`. */
static void pack_panel(const job_t *job, const side *s, int64_t r0, int step, int rows, int64_t block, char *to)
{
    int R = s->is_b ? job->tile.nr : job->tile.mr, KU = s->is_b ? job->tile.kb : job->tile.ka;
    int size = skr_kind_bytes(job->kind);
    for (int64_t g = 0; g < job->segs; g++, to += job->seg_pad * R * size) {
        int64_t k0 = (block * job->segs + g) * job->seg, pad, k = segment_k(job, block, g, &pad);
        if (!k)
            break;
        if (moved(job, s) && (s->is_b || !job->gather.data)) {
            pack_moved(job->kind, (const char *)s->data + (s->at + r0 * s->rs + k0 * s->ks) * size, s->rs * step, s->ks,
                       rows, R, KU, k, pad, to);
            order_ks(job, R, 0, k, to);
            continue;
        }
        int64_t done = widen_panel(job, s, r0, step, rows, k0, k, to);
        pack_converted(job, s, r0, step, rows, R, KU, k0 + done, k - done, pad - done, to + done * R * size);
        order_ks(job, R, done, k, to);
    }
}

/* n whole panels from row r0 on, `each` bytes apart, of a matrix whose rows are neighbours in memory. A panel's share
 * of a k is less than a line or straddles two: a few k's of all panels are taken at a time, so that a line is still in
 * L1 when the next panel wants the rest of it, even where all k's fall into a few sets of it. */
static void pack_across(const job_t *job, const side *s, int64_t r0, int64_t n, int64_t block, int64_t each, char *to)
{
    enum { STRIP = 16 };
    int R = s->is_b ? job->tile.nr : job->tile.mr, KU = s->is_b ? job->tile.kb : job->tile.ka;
    int size = skr_kind_bytes(job->kind);
    for (int64_t g = 0; g < job->segs; g++, to += job->seg_pad * R * size) {
        int64_t k0 = (block * job->segs + g) * job->seg, pad, k = segment_k(job, block, g, &pad);
        for (int64_t p = 0; p < pad; p += STRIP) {
            int64_t part = k - p < STRIP ? k - p : STRIP, padded = pad - p < STRIP ? pad - p : STRIP;
            const char *from = (const char *)s->data + (s->at + r0 * s->rs + (k0 + p) * s->ks) * size;
            for (int64_t i = 0; i < n; i++)
                pack_moved(job->kind, from + i * R * size, 1, s->ks, R, R, KU, part < 0 ? 0 : part, padded,
                           to + i * each + p * R * size);
        }
        for (int64_t i = 0; i < n; i++)
            order_ks(job, R, 0, k, to + i * each);
    }
}

#endif
