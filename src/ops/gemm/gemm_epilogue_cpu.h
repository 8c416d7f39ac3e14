/* gemm_epilogue_cpu.h - from a tile of sums to d: scales, c, bias, activation, and the outputs beside d.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile is mr x nr sums in the order of rows, floats or 32-bit integers. Its columns are columns n0, n0 + step, ... of
 * the product. Gated, a second tile holds what the gate multiplies, in the same columns of d. */
#ifndef SKR_GEMM_EPILOGUE_CPU_H
#define SKR_GEMM_EPILOGUE_CPU_H

#include "../../cpu/simd/act.h"
#include "gemm_cpu.h"

enum { MAX_MR = SKR_GEMM_MAX_MR, MAX_NR = SKR_GEMM_MAX_NR };

/* What the tiles of one batch share. */
typedef struct finish_batch {
    int64_t c_at, d_at, pre_at, saved_at, a_scale_at, b_scale_at;
    int plain; /* d is the sums themselves, rounded where it is not i32 */
    int ints;  /* the sums are 32-bit integers */
} finish_batch;

/* The columns of one panel of b. */
typedef struct finish_columns {
    int64_t n0; /* column of the product */
    int step, n;
    float scale[MAX_NR], bias[MAX_NR];
    int32_t int_bias[MAX_NR];
} finish_columns;

/* Scales that are constant along k are applied here. */
SKR_FN int scaled_late(const job_t *job, int is_b)
{
    return job->scaling == SKR_GEMM_TENSOR || job->scaling == SKR_GEMM_ROW_COLUMN ||
           (job->scaling == SKR_GEMM_GROUP && !is_b);
}

static finish_batch finish_start(const job_t *job, int64_t batch)
{
    finish_batch f = {.c_at = batch_at(job, &job->c, batch),
                      .d_at = batch_at(job, &job->d, batch),
                      .pre_at = batch_at(job, &job->pre, batch),
                      .saved_at = batch_at(job, &job->saved, batch),
                      .a_scale_at = batch_at(job, &job->a_scale, batch),
                      .b_scale_at = batch_at(job, &job->b_scale, batch)};
    int late = (scaled_late(job, 0) && job->a_scale.at.data) || (scaled_late(job, 1) && job->b_scale.at.data);
    f.ints = (job->kind == SKR_GEMM_I8 && job->scaling != SKR_GEMM_BLOCK && job->scaling != SKR_GEMM_GROUP) ||
             job->kind == SKR_GEMM_INT;
    f.plain = !late && job->alpha == 1 && !job->c.at.data && !job->bias.data && !job->act && !job->gated &&
              !job->pre.at.data && !job->saved.at.data && !job->dbias.data && !job->scatter.data &&
              job->d.at.col_stride == 1;
    return f;
}

/* Scales and biases of the columns, once for all row panels. */
static void finish_take_columns(const job_t *job, const finish_batch *f, int64_t n0, int step, int n, finish_columns *c)
{
    c->n0 = n0;
    c->step = step;
    c->n = n;
    if (f->plain)
        return;
    for (int j = 0; j < n; j++) {
        int64_t at = n0 + (int64_t)j * step;
        c->scale[j] = 1;
        if (scaled_late(job, 1) && job->b_scale.at.data)
            c->scale[j] = ((const float *)job->b_scale.at.data)[f->b_scale_at + at * job->b_scale.at.col_stride];
        c->bias[j] = 0;
        c->int_bias[j] = 0;
        if (!job->bias.data || job->bias_rows)
            continue;
        if (job->exact)
            c->int_bias[j] = ((const int32_t *)job->bias.data)[at * job->bias.stride];
        else
            c->bias[j] = one_float(job->bias.type, job->bias.data, at * job->bias.stride);
    }
    for (int j = n; j < MAX_NR; j++)
        c->scale[j] = c->bias[j] = 0;
}

static float row_scale(const job_t *job, const finish_batch *f, int64_t m)
{
    if (!scaled_late(job, 0) || !job->a_scale.at.data)
        return job->alpha;
    int64_t row = row_of_a(job, m);
    return row < 0
               ? job->alpha
               : job->alpha * ((const float *)job->a_scale.at.data)[f->a_scale_at + row * job->a_scale.at.col_stride];
}

/* Where row m of the product is in d; -1: nowhere. */
SKR_FN int64_t row_in_d(const job_t *job, const finish_batch *f, int64_t m)
{
    int64_t row = indexed_row(job, &job->scatter, job->scatter_rows, m);
    return row < 0 ? -1 : f->d_at + row * job->d.row;
}

/* Sums become floats. */
SKR_FN vf sum_at(int ints, const float *t, int j)
{
    vf v = v_load(SKR_F32, t, j);
    return ints ? v_of_int(v_bits(v)) : v;
}

/* Row m of the product: v = alpha * scales * sums + beta * c + bias, as floats in x; stored in pre where that is
 * wanted. */
static void finish_value(const job_t *job, const finish_batch *f, const finish_columns *c, int64_t m, int nr,
                         const float *sums, float *x)
{
    float factor = row_scale(job, f, m), row_bias = 0;
    if (job->bias.data && job->bias_rows)
        row_bias = one_float(job->bias.type, job->bias.data, m * job->bias.stride);
    if (job->c.at.data)
        load_run(job->c.at.type, job->c.at.data, f->c_at + m * job->c.row + c->n0 * job->c.at.col_stride,
                 c->step * job->c.at.col_stride, c->n, x);
    for (int j = 0; j < nr; j += SKR_LANES) {
        vf s = v_mul(sum_at(f->ints, sums, j), v_mul(v_set1(factor), v_load(SKR_F32, c->scale, j)));
        if (job->c.at.data)
            s = v_fma(v_set1(job->beta), v_load(SKR_F32, x, j), s);
        if (job->bias.data) /* and not + 0 without one: that would change -0 */
            s = v_add(s, job->bias_rows ? v_set1(row_bias) : v_load(SKR_F32, c->bias, j));
        v_store_float(SKR_F32, x, j, s);
    }
    if (job->pre.at.data)
        store_run(job->pre.at.type, job->pre.at.data, f->pre_at + m * job->pre.row + c->n0 * job->pre.at.col_stride,
                  c->step * job->pre.at.col_stride, c->n, x);
}

#define OAI_ALPHA 1.702f
#define OAI_LIMIT 7.0f

#define EACH_ACT(DO)                                                                                                   \
    switch (job->act) {                                                                                                \
        DO(NONE)                                                                                                       \
        DO(SIGMOID)                                                                                                    \
        DO(TANH)                                                                                                       \
        DO(SILU)                                                                                                       \
        DO(GELU)                                                                                                       \
        DO(GELU_TANH)                                                                                                  \
        DO(RELU)                                                                                                       \
        DO(RELU2)                                                                                                      \
        DO(SWIGLU_OAI)                                                                                                 \
    }
#define EACH_VECTOR(act, expression)                                                                                   \
    case SKR_ACT_##act:                                                                                                \
        for (int j = 0; j < nr; j += SKR_LANES)                                                                        \
            v_store_float(SKR_F32, x, j, expression);                                                                  \
        break;

SKR_TAIL void apply_act(const job_t *job, int nr, float *x){
#define DO(act) EACH_VECTOR(act, act_value(SKR_ACT_##act, v_load(SKR_F32, x, j), OAI_ALPHA))
    EACH_ACT(DO)
#undef DO
}

SKR_FN vf gated_value(int act, vf gate, vf up)
{
    if (act == SKR_ACT_SWIGLU_OAI) {
        vf limit = v_set1(OAI_LIMIT);
        gate = v_min(gate, limit);
        up = v_add(v_min(v_max(up, v_neg(limit)), limit), v_set1(1.0f));
    }
    return v_mul(act_value(act, gate, OAI_ALPHA), up);
}

SKR_TAIL void apply_gate(const job_t *job, int nr, float *x, const float *up){
#define DO(act) EACH_VECTOR(act, gated_value(SKR_ACT_##act, v_load(SKR_F32, x, j), v_load(SKR_F32, up, j)))
    EACH_ACT(DO)
#undef DO
}

SKR_FN vf sloped_value(int act, vf x, vf saved)
{
    vf slope;
    act_both_each(act, &saved, &slope, OAI_ALPHA, 1);
    return v_mul(x, slope);
}

SKR_TAIL void apply_slope(const job_t *job, int nr, float *x, const float *saved)
{
#define DO(act) EACH_VECTOR(act, sloped_value(SKR_ACT_##act, v_load(SKR_F32, x, j), v_load(SKR_F32, saved, j)))
    EACH_ACT(DO)
#undef DO
}
#undef EACH_ACT
#undef EACH_VECTOR

static void finish_exact(const job_t *job, const finish_batch *f, const finish_columns *c, int64_t m, int rows, int nr,
                         const int32_t *sums)
{
    for (int r = 0; r < rows; r++, sums += nr) {
        int64_t row = m + r, d_at = row_in_d(job, f, row);
        uint32_t row_bias =
            job->bias.data && job->bias_rows ? ((const uint32_t *)job->bias.data)[row * job->bias.stride] : 0;
        for (int j = 0; j < c->n; j++) {
            int64_t col = c->n0 + (int64_t)j * c->step;
            uint32_t v = (uint32_t)sums[j] + (uint32_t)c->int_bias[j] + row_bias;
            if (job->c.at.data)
                v += ((const uint32_t *)job->c.at.data)[f->c_at + row * job->c.row + col * job->c.at.col_stride];
            if (job->pre.at.data)
                ((uint32_t *)job->pre.at.data)[f->pre_at + row * job->pre.row + col * job->pre.at.col_stride] = v;
            if (d_at >= 0)
                ((uint32_t *)job->d.at.data)[d_at + col * job->d.at.col_stride] = v;
        }
    }
}

/* d is the sums: the rows of a whole tile in one loop for each type. */
SKR_FN void finish_plain(const job_t *job, const finish_batch *f, const finish_columns *c, int64_t m, int rows, int nr,
                         const float *sums)
{
    char *d = job->d.at.data;
    int64_t at = f->d_at + m * job->d.row + c->n0;
#define ROWS(T)                                                                                                        \
    for (int r = 0; r < rows; r++, at += job->d.row, sums += nr) {                                                     \
        int j = 0;                                                                                                     \
        for (; j + SKR_LANES <= c->n; j += SKR_LANES)                                                                  \
            v_store_float(T, d, at + j, sum_at(ints, sums, j));                                                        \
        if (j < c->n)                                                                                                  \
            v_store_float_n(T, d, at + j, sum_at(ints, sums, j), c->n - j);                                            \
    }
    int ints = f->ints && !job->exact; /* as they are, they are moved like floats */
    if (job->d.at.type == SKR_F32 || job->exact) {
        ROWS(SKR_F32)
    } else if (job->d.at.type == SKR_F16) {
        ROWS(SKR_F16)
    } else {
        ROWS(SKR_BF16)
    }
#undef ROWS
}

/* Rows m ... of the tile. up: the second tile and its columns, gated only. dbias: running sums of the panel's columns,
 * or NULL. */
static void finish(const job_t *job, const finish_batch *f, int64_t m, int rows, int nr, const finish_columns *c,
                   const float *sums, const finish_columns *up_c, const float *up_sums, float *dbias)
{
    _Alignas(64) float x[MAX_NR], y[MAX_NR];
    if (f->plain) {
        finish_plain(job, f, c, m, rows, nr, sums);
        return;
    }
    if (job->exact) {
        finish_exact(job, f, c, m, rows, nr, (const int32_t *)sums);
        return;
    }
    for (int j = 0; j < MAX_NR; j++)
        x[j] = y[j] = 0;
    for (int r = 0; r < rows; r++, sums += nr) {
        int64_t row = m + r, col = c->n0;
        int64_t d_at = row_in_d(job, f, row);
        finish_value(job, f, c, row, nr, sums, x);
        if (job->gated) {
            finish_value(job, f, up_c, row, nr, up_sums, y);
            up_sums += nr;
            apply_gate(job, nr, x, y);
            col = c->n0 / c->step;
        } else if (job->saved.at.data) {
            load_run(job->saved.at.type, job->saved.at.data,
                     f->saved_at + row * job->saved.row + col * job->saved.at.col_stride, job->saved.at.col_stride,
                     c->n, y);
            apply_slope(job, nr, x, y);
        } else if (job->act) {
            apply_act(job, nr, x);
        }
        for (int j = 0; dbias && j < c->n; j++)
            dbias[j] += x[j];
        if (d_at >= 0)
            store_run(job->d.at.type, job->d.at.data, d_at + col * job->d.at.col_stride, job->d.at.col_stride, c->n, x);
    }
}

#endif
