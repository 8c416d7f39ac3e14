/* gemm_epilogue_cpu.h - from a tile of sums to d: scales, c, bias, activation, and the outputs beside d.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile is mr x nr sums in the order of rows, floats or 32-bit integers. Its columns are columns n0, n0 + step, ... of
 * the product. Gated, a second tile holds what the gate multiplies, in the same columns of d. */
#ifndef SKR_GEMM_EPILOGUE_CPU_H
#define SKR_GEMM_EPILOGUE_CPU_H

#include "../../cpu/simd/act.h"
#include "gemm_cpu.h"

/* PANEL: the columns of a panel of b, but for integers: known when this is compiled, loops over them are short. */
enum { MAX_MR = SKR_GEMM_MAX_MR, MAX_NR = SKR_GEMM_MAX_NR, PANEL = TILE(F32, NR) };

/* What the tiles of one batch share. */
typedef struct finish_batch {
    int64_t c_at, d_at, pre_at, saved_at, a_scale_at, b_scale_at;
    int ints;  /* the sums are 32-bit integers */
    int alone; /* d is a function of the sums, scales and biases of columns: nothing else is read or written */
    int plain; /* d is the sums themselves: floats, or integers as they are */
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

/* An element's factor is (alpha * a_scale) * b_scale, of the caller's a and b: turned, alpha is the columns'. */
SKR_FN float alpha_of(const job_t *job, int is_b)
{
    return job->turned == is_b ? job->alpha : 1;
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
    f.ints = sums_are_ints(job);
    f.alone = !job->c.at.data && !(job->bias.data && job->bias_rows) && !job->act && !job->gated && !job->pre.at.data &&
              !job->saved.at.data && !job->dbias.data && !job->scatter.data && job->d.at.col_stride == 1;
    f.plain = f.alone && !late && job->alpha == 1 && !job->bias.data && (job->exact || !f.ints);
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
        c->scale[j] = alpha_of(job, 1);
        if (scaled_late(job, 1) && job->b_scale.at.data)
            c->scale[j] *= ((const float *)job->b_scale.at.data)[f->b_scale_at + at * job->b_scale.at.col_stride];
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
    const float alpha = alpha_of(job, 0);
    if (!scaled_late(job, 0) || !job->a_scale.at.data)
        return alpha;
    int64_t row = row_of_a(job, m);
    return row < 0 ? alpha
                   : alpha * ((const float *)job->a_scale.at.data)[f->a_scale_at + row * job->a_scale.at.col_stride];
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

/* ---------------------------------------------------------------- tiles and matrices
 *
 * x: a tile of floats, in rows of nr. Every step below passes over all of it: it stays in L1, and long loops of
 * independent vectors hide the latency of the functions. */

/* n columns of `rows` rows into a matrix of type T whose rows are `row` elements apart, from element `at` on. */
SKR_FN void put_part(int T, void *data, int64_t at, int64_t row, int rows, int nr, int n, const float *x)
{
    for (int r = 0; r < rows; r++, at += row, x += nr) {
        int j = 0;
        for (; j + SKR_LANES <= n; j += SKR_LANES)
            v_store_float(T, data, at + j, v_load(SKR_F32, x, j));
        if (j < n)
            v_store_float_n(T, data, at + j, v_load(SKR_F32, x, j), n - j);
    }
}

SKR_FN void put_type(int T, void *data, int64_t at, int64_t row, int rows, int nr, int n, const float *x)
{
    if (n == PANEL && nr == PANEL)
        put_part(T, data, at, row, rows, PANEL, PANEL, x);
    else
        put_part(T, data, at, row, rows, nr, n, x);
}

/* stride: between its columns. */
SKR_FN void put_tile(int type, void *data, int64_t at, int64_t row, int64_t stride, int rows, int nr, int n,
                     const float *x)
{
    if (stride != 1) {
        for (int r = 0; r < rows; r++)
            store_run(type, data, at + r * row, stride, n, x + r * nr);
    } else if (type == SKR_F32) {
        put_type(SKR_F32, data, at, row, rows, nr, n, x);
    } else if (type == SKR_F16) {
        put_type(SKR_F16, data, at, row, rows, nr, n, x);
    } else {
        put_type(SKR_BF16, data, at, row, rows, nr, n, x);
    }
}

/* A tile from rows m ... of a matrix whose batch begins at `base`. */
static void get_tile(const skr_gemm_matrix *from, int64_t base, const finish_columns *c, int64_t m, int rows, int nr,
                     float *x)
{
    int64_t at = base + m * from->row + c->n0 * from->at.col_stride;
    if (c->n < nr)
        __builtin_memset(x, 0, (size_t)(rows * nr) * 4);
    for (int r = 0; r < rows; r++, at += from->row)
        load_run(from->at.type, from->at.data, at, c->step * from->at.col_stride, c->n, x + r * nr);
}

/* Sums, scaled, plus a bias for each column, into a matrix of type T whose rows are `row` elements apart. Without
 * scales the factors are 1, but + 0 would change -0. */
SKR_FN void scaled_rows(int T, int ints, int biased, int nr, const float *factor, const finish_columns *c, int rows,
                        const float *sums, void *to, int64_t at, int64_t row)
{
    for (int r = 0; r < rows; r++, sums += nr, at += row)
        SKR_UNROLL
    for (int j = 0; j < nr; j += SKR_LANES) {
        vf v = v_mul(sum_at(ints, sums, j), v_mul(v_set1(factor[r]), v_load(SKR_F32, c->scale, j)));
        v_store_float(T, to, at + j, biased ? v_add(v, v_load(SKR_F32, c->bias, j)) : v);
    }
}

#define SCALED_ROWS(T, nr)                                                                                             \
    if (ints && biased)                                                                                                \
        scaled_rows(T, 1, 1, nr, factor, c, rows, sums, to, at, row);                                                  \
    else if (ints)                                                                                                     \
        scaled_rows(T, 1, 0, nr, factor, c, rows, sums, to, at, row);                                                  \
    else if (biased)                                                                                                   \
        scaled_rows(T, 0, 1, nr, factor, c, rows, sums, to, at, row);                                                  \
    else                                                                                                               \
        scaled_rows(T, 0, 0, nr, factor, c, rows, sums, to, at, row)

/* Rows m ... of the product. type: of `to`; not f32 only where rows of tiles have PANEL columns. */
static void scale_and_bias(const job_t *job, const finish_batch *f, const finish_columns *c, int64_t m, int rows,
                           int nr, bool biased, const float *sums, int type, void *to, int64_t at, int64_t row)
{
    bool ints = f->ints;
    float factor[MAX_MR];
    for (int r = 0; r < rows; r++)
        factor[r] = row_scale(job, f, m + r);
    if (nr != PANEL) {
        SCALED_ROWS(SKR_F32, nr);
    } else if (type == SKR_F32) {
        SCALED_ROWS(SKR_F32, PANEL);
    } else if (type == SKR_F16) {
        SCALED_ROWS(SKR_F16, PANEL);
    } else {
        SCALED_ROWS(SKR_BF16, PANEL);
    }
}
#undef SCALED_ROWS

/* x = alpha * scales * sums + beta * c + bias; stored in pre where that is wanted. */
static void finish_values(const job_t *job, const finish_batch *f, const finish_columns *c, int64_t m, int rows, int nr,
                          const float *sums, float *x)
{
    bool biased = job->bias.data && !job->bias_rows && !job->c.at.data;
    scale_and_bias(job, f, c, m, rows, nr, biased, sums, SKR_F32, x, 0, nr);
    if (job->c.at.data) {
        _Alignas(64) float old[MAX_MR * MAX_NR];
        get_tile(&job->c, f->c_at, c, m, rows, nr, old);
        for (int i = 0; i < rows * nr; i += SKR_LANES) {
            vf v = v_fma(v_set1(job->beta), v_load(SKR_F32, old, i), v_load(SKR_F32, x, i));
            v_store_float(SKR_F32, x, i, v);
        }
    }
    for (int r = 0; job->bias.data && !biased && r < rows; r++) {
        vf same = v_set1(job->bias_rows ? one_float(job->bias.type, job->bias.data, (m + r) * job->bias.stride) : 0);
        for (int j = 0; j < nr; j += SKR_LANES) {
            vf bias = job->bias_rows ? same : v_load(SKR_F32, c->bias, j);
            v_store_float(SKR_F32, x, r * nr + j, v_add(v_load(SKR_F32, x, r * nr + j), bias));
        }
    }
    if (job->pre.at.data)
        put_tile(job->pre.at.type, job->pre.at.data, f->pre_at + m * job->pre.row + c->n0 * job->pre.at.col_stride,
                 job->pre.row, c->step * job->pre.at.col_stride, rows, nr, c->n, x);
}

/* ---------------------------------------------------------------- activations of n values of a tile */

#define OAI_ALPHA 1.702f
#define OAI_LIMIT 7.0f

/* What becomes of n <= 4 vectors of the tile: the function of it; that times another tile's; it times the function's
 * derivative there. */
enum { ACT_ALONE, ACT_GATED, ACT_SLOPE };

SKR_FN void act_vectors(int form, int act, float *x, const float *other, int n)
{
    vf v[4], o[4], slope[4];
    for (int i = 0; i < n; i++) {
        v[i] = v_load(SKR_F32, x, i * SKR_LANES);
        o[i] = form == ACT_ALONE ? v[i] : v_load(SKR_F32, other, i * SKR_LANES);
        if (form == ACT_GATED && act == SKR_ACT_SWIGLU_OAI) {
            v[i] = v_at_most(v[i], v_set1(OAI_LIMIT));
            o[i] = swiglu_oai_up(o[i], OAI_LIMIT);
        }
    }
    if (form == ACT_SLOPE)
        act_both_each(act, o, slope, OAI_ALPHA, n);
    else
        act_value_each(act, v, OAI_ALPHA, n);
    for (int i = 0; i < n; i++) {
        vf y = form == ACT_SLOPE ? v_mul(v[i], slope[i]) : form == ACT_GATED ? v_mul(v[i], o[i]) : v[i];
        v_store_float(SKR_F32, x, i * SKR_LANES, y);
    }
}

/* Four vectors at once: the functions are long chains. */
SKR_FN void act_tile(int form, int act, int n, float *x, const float *other)
{
    int j = 0;
    for (; j + 4 * SKR_LANES <= n; j += 4 * SKR_LANES)
        act_vectors(form, act, x + j, form == ACT_ALONE ? x : other + j, 4);
    for (; j < n; j += SKR_LANES)
        act_vectors(form, act, x + j, form == ACT_ALONE ? x : other + j, 1);
}

#define ACT_CASE(form, act)                                                                                            \
    case SKR_ACT_##act:                                                                                                \
        act_tile(form, SKR_ACT_##act, n, x, other);                                                                    \
        break;
#define ALONE(act) ACT_CASE(ACT_ALONE, act)
#define GATED(act) ACT_CASE(ACT_GATED, act)
#define SLOPE(act) ACT_CASE(ACT_SLOPE, act)
#define ACT_FORM(name, each)                                                                                           \
    SKR_TAIL void name(int act, int n, float *x, const float *other)                                                   \
    {                                                                                                                  \
        switch (act) {                                                                                                 \
            EACH_ACT(each)                                                                                             \
        }                                                                                                              \
    }
ACT_FORM(apply_act, ALONE)
ACT_FORM(apply_gate, GATED)
ACT_FORM(apply_slope, SLOPE)
#undef ACT_FORM
#undef ALONE
#undef GATED
#undef SLOPE
#undef ACT_CASE

/* ---------------------------------------------------------------- a tile */

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

/* Rows m ... of the tile. up: the second tile and its columns, gated only. dbias: running sums of the panel's columns,
 * or NULL. */
static void finish(const job_t *job, const finish_batch *f, int64_t m, int rows, int nr, const finish_columns *c,
                   const float *sums, const finish_columns *up_c, const float *up_sums, float *dbias)
{
    _Alignas(64) float x[MAX_MR * MAX_NR], y[MAX_MR * MAX_NR];
    const skr_gemm_matrix *d = &job->d;
    if (f->plain) { /* as they are, integers are moved like floats */
        put_tile(job->exact ? SKR_F32 : d->at.type, d->at.data, f->d_at + m * d->row + c->n0, d->row, 1, rows, nr, c->n,
                 sums);
        return;
    }
    if (job->exact) {
        finish_exact(job, f, c, m, rows, nr, (const int32_t *)sums);
        return;
    }
    if (f->alone && c->n == PANEL && nr == PANEL) {
        scale_and_bias(job, f, c, m, rows, nr, job->bias.data, sums, d->at.type, d->at.data,
                       f->d_at + m * d->row + c->n0, d->row);
        return;
    }
    finish_values(job, f, c, m, rows, nr, sums, x);
    if (job->gated) {
        finish_values(job, f, up_c, m, rows, nr, up_sums, y);
        apply_gate(job->act, rows * nr, x, y);
    } else if (job->saved.at.data) {
        get_tile(&job->saved, f->saved_at, c, m, rows, nr, y);
        apply_slope(job->act, rows * nr, x, y);
    } else if (job->act) {
        apply_act(job->act, rows * nr, x, NULL);
    }
    for (int r = 0; dbias && r < rows; r++)
        for (int j = 0; j < c->n; j++)
            dbias[j] += x[r * nr + j];
    int64_t col = (job->gated ? c->n0 / c->step : c->n0) * d->at.col_stride;
    int at_once = job->scatter.data ? 1 : rows;
    for (int r = 0; r < rows; r += at_once) {
        int64_t at = row_in_d(job, f, m + r);
        if (at >= 0)
            put_tile(d->at.type, d->at.data, at + col, d->row, d->at.col_stride, at_once, nr, c->n, x + r * nr);
    }
}

#endif
