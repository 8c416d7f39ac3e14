/* norm_test.c - oracle, bounds and row slices of rms_norm, layer_norm and their gradients. Cases: norm_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored. Where the contract says that a value is rounded on the
 * way (x + residual in f32, residual_out, round_before_weight, the y that is quantised), the oracle rounds too. A value
 * that a kernel knows only up to its f32 error may fall on either side of such a rounding: the oracle then carries both
 * ends of the interval through the rounding, which is monotone, and accepts what lies between.
 *
 * Bounds, with U = 2^-24 (half an ulp of f32, relative):
 *   sum of n terms     SUM(n) * U * sum|terms|, SUM(n) = 2 + sqrt(min(n, 4096)). A chain of n adds errs by sqrt(n) * U
 *                      when roundings are independent, which is far below the certain n * U. Kernels add at least four
 *                      chains side by side and add long sums in pieces (in f64 on the CPU, as a tree on the GPU), so
 *                      no piece has more than 4096 terms; a kernel that did would be seen here.
 *   rstd               half of the mean's relative error (a square root halves it), plus 4 U: mean, + eps, sqrt, 1/x.
 *   mean (layer_norm)  a first mean errs by first = SUM(n) * U * |mean|; sums around it correct it, and err by SUM(n) *
 * U times the spread and first. Or the row is summed as it is, where the mean is at most half of the spread: then the
 * magnitudes are at most 1.12 times the spread. y keeps that accuracy: what mean loses when it is rounded to f32 must
 * not show. variance           SUM(n) * U of itself, and twice the (first or own) mean times the mean's error: 2.5 in
 * all. a product or sum   one U of its result; the factors below count them in the longest order a kernel may choose.
 *   the output         half an ulp of its type.
 *   underflow          DENORM for each product that may fall below the normal range of f32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "../../../tests/suite_quant.h"
#include "norm_test.h"

/* ---------------------------------------------------------------- options */

typedef struct options {
    double eps;
    float weight_offset;
    int round_before_weight, quant, accumulate;
} options;

static options forward_options(const suite_case *c, int kind)
{
    saker_rms_norm_args r;
    saker_layer_norm_args l;
    memcpy(&r, c->args, sizeof r);
    memcpy(&l, c->args, sizeof l);
    if (kind == LAYER)
        return (options){(double)(l.eps == 0 ? 1e-5f : l.eps), l.weight_offset, l.round_before_weight, l.quant, 0};
    return (options){(double)(r.eps == 0 ? 1e-6f : r.eps), r.weight_offset, r.round_before_weight, r.quant, 0};
}

static options backward_options(const suite_case *c, int kind)
{
    saker_rms_norm_backward_args r;
    saker_layer_norm_backward_args l;
    memcpy(&r, c->args, sizeof r);
    memcpy(&l, c->args, sizeof l);
    if (kind == LAYER)
        return (options){(double)(l.eps == 0 ? 1e-5f : l.eps), l.weight_offset, l.round_before_weight, 0, l.accumulate};
    return (options){(double)(r.eps == 0 ? 1e-6f : r.eps), r.weight_offset, r.round_before_weight, 0, r.accumulate};
}

/* ---------------------------------------------------------------- statistics of a row */

typedef struct stat {
    double mean, mean_error; /* 0 in rms_norm */
    double rstd, rstd_error; /* the error is relative */
    bool beyond;             /* squares leave f32, or nearly do: rstd may be 0 */
} stat;

static stat stat_of(int kind, const double *s, int64_t n, double eps)
{
    stat a = {0};
    double square = 0, factor = sum_factor(n);
    for (int64_t j = 0; kind == LAYER && j < n; j++)
        a.mean += s[j];
    a.mean /= (double)n;
    for (int64_t j = 0; j < n; j++)
        square += (s[j] - a.mean) * (s[j] - a.mean);
    double variance = square / (double)n;
    a.rstd = 1 / sqrt(variance + eps);
    a.rstd_error = (factor / 2 + 4) * U;
    a.beyond = square > 0x1.fffffep127 * (1 - factor * U);
    if (kind == RMS && square > 0x1.fffffep127 * (1 + factor * U)) { /* it is 0 then */
        a.beyond = false;
        a.rstd = a.rstd_error = 0;
    }
    if (kind == LAYER) {
        double first = factor * U * fabs(a.mean);
        a.mean_error = 1.12 * factor * U * (sqrt(variance) + first) + DENORM;
        a.rstd_error = factor * U * (2.5 * variance + 4 * first * first) / (2 * (variance + eps)) + 4 * U;
        if (variance == 0 && a.mean == 0)
            a.mean_error = 0; /* zeros: every kernel's sums are exact */
        if (isnan(variance))
            a.mean = NAN;
    }
    return a;
}

/* ---------------------------------------------------------------- finding tensors */

/* Parameter value for (row, column): [N], or [H, N] with row r using parameter row r % H. */
static int64_t param_index(const suite_tensor *p, int64_t row, int64_t j)
{
    int64_t n = p->shape[p->ndim - 1], heads = p->ndim == 2 ? p->shape[0] : 1;
    return row % heads * n + j;
}

static void put(suite_column c, int64_t i, double want, double bound)
{
    c.v[i] = want;
    c.bound[i] = bound;
}

/* ---------------------------------------------------------------- forward */

typedef suite_interval interval;

static interval around(double v, double error)
{
    return (interval){v - error, v + error};
}

static interval rounded(saker_type type, interval a)
{
    return (interval){round_to(type, a.lo), round_to(type, a.hi)};
}

static interval scaled(interval a, double factor)
{
    interval r = {a.lo * factor, a.hi * factor};
    return factor < 0 ? (interval){r.hi, r.lo} : r;
}

/* What the quantiser may be given for one row, and what it may give. */
static void quantise(suite_column q, suite_column scale, int quant, int64_t row, int64_t n, interval *y,
                     const double *exact)
{
    int64_t group = quant == SAKER_QUANT_BLOCK ? 128 : n, groups = (n + group - 1) / group;
    for (int64_t j = 0; j < n; j++)
        if (isnan(exact[j]))
            y[j].lo = NAN;
    for (int64_t g = 0; g < groups; g++) {
        int64_t end = (g + 1) * group < n ? (g + 1) * group : n;
        interval s = {scale.v[0], scale.v[0]};
        if (quant != SAKER_QUANT_TENSOR) {
            s = suite_scale(q.t->type, y + g * group, end - g * group);
            put(scale, row * groups + g, (s.lo + s.hi) / 2, suite_scale_bound(s));
        }
        for (int64_t j = g * group; j < end; j++)
            suite_code(q.t->type, y[j], s, &q.v[row * n + j], &q.bound[row * n + j]);
    }
}

static void forward_oracle(const suite_case *c, double *const *value, double *const *bound, int kind)
{
    options a = forward_options(c, kind);
    suite_column x = suite_column_of(c, value, bound, "x"), w = suite_column_of(c, value, bound, "weight"),
                 b = suite_column_of(c, value, bound, "bias");
    suite_column res = suite_column_of(c, value, bound, "residual"), y = suite_column_of(c, value, bound, "y");
    suite_column res_out = suite_column_of(c, value, bound, "residual_out"),
                 mean_out = suite_column_of(c, value, bound, "mean"),
                 rstd_out = suite_column_of(c, value, bound, "rstd");
    suite_column q = suite_column_of(c, value, bound, "y_quant"), scale = suite_column_of(c, value, bound, "y_scale");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];

    double *s = malloc((size_t)n * sizeof *s), *exact = malloc((size_t)n * sizeof *exact);
    interval *near = malloc((size_t)n * sizeof *near);
    for (int64_t r = 0; r < m && n > 0; r++) {
        for (int64_t j = 0; j < n; j++) {
            /* The sum of two floats, rounded to double and then to float, is the correctly rounded float sum. */
            s[j] = res.v ? (double)(float)(x.v[r * n + j] + res.v[r * n + j]) : x.v[r * n + j];
            if (res_out.v) {
                s[j] = round_to(res_out.t->type, s[j]);
                put(res_out, r * n + j, s[j], 0);
            }
        }
        stat t = stat_of(kind, s, n, a.eps);
        double rstd = t.rstd;
        interval rs = around(rstd, rstd * t.rstd_error);
        if (t.beyond)
            rs.lo = 0;
        if (mean_out.v)
            put(mean_out, r, t.mean, t.mean_error + half_ulp(SAKER_F32, t.mean));
        if (rstd_out.v)
            put(rstd_out, r, rstd, fmax(rstd - rs.lo, rs.hi - rstd) + half_ulp(SAKER_F32, rstd));

        for (int64_t j = 0; j < n; j++) {
            /* weight + offset is one f32 addition: exact here. */
            double wv = w.v ? (double)(float)(w.v[param_index(w.t, r, j)] + (double)a.weight_offset)
                            : (double)(float)(1 + (double)a.weight_offset);
            double bv = b.v ? b.v[param_index(b.t, r, j)] : 0;
            double d = s[j] - t.mean, h = d * rstd;
            interval hi = scaled(rs, d);
            if (kind == LAYER) { /* the difference is rounded, too */
                double off = (t.mean_error + U * fabs(d)) * rs.hi;
                hi.lo -= off;
                hi.hi += off;
            }
            if (a.round_before_weight) {
                hi.lo -= fabs(hi.lo) * U + DENORM;
                hi.hi += fabs(hi.hi) * U + DENORM;
                hi = rounded(x.t->type, hi);
                h = round_to(x.t->type, h);
            }
            exact[j] = h * wv + bv;
            near[j] = scaled(hi, wv);
            /* Two products and the sum: 3 U of the product, 1 U of the bias. A product below f32's normal range errs by
             * DENORM, and is then multiplied by the weight or by rstd. */
            double error =
                3 * U * fmax(fabs(near[j].lo), fabs(near[j].hi)) + U * fabs(bv) + DENORM * (1 + fabs(wv) + rstd);
            near[j].lo += bv - error;
            near[j].hi += bv + error;
            if (rs.hi == 0 || (s[j] == 0 && t.mean == 0 && t.mean_error == 0))
                near[j] = around(bv, 0); /* exact: 0 * w + b */
            if (y.v) {
                double off = fmax(exact[j] - near[j].lo, near[j].hi - exact[j]);
                put(y, r * n + j, exact[j], off + half_ulp(y.t->type, fabs(exact[j]) + off));
                near[j] = rounded(y.t->type, near[j]); /* the rounded y is what is quantised */
            }
        }
        if (q.v)
            quantise(q, scale, a.quant, r, n, near, exact);
    }
    free(s);
    free(exact);
    free(near);
}

static void forward_plain(const suite_case *c, double *const *value, int kind)
{
    options a = forward_options(c, kind);
    suite_column x = suite_column_of(c, value, NULL, "x"), w = suite_column_of(c, value, NULL, "weight"),
                 b = suite_column_of(c, value, NULL, "bias");
    suite_column res = suite_column_of(c, value, NULL, "residual"), y = suite_column_of(c, value, NULL, "y"),
                 rs = suite_column_of(c, value, NULL, "rstd");
    suite_column res_out = suite_column_of(c, value, NULL, "residual_out"),
                 means = suite_column_of(c, value, NULL, "mean");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];
    for (int64_t r = 0; r < m && n > 0; r++) {
        float mean = 0, rstd = 0;
        for (int pass = kind == LAYER ? 0 : 1; pass < 3; pass++) {
            float sum = 0;
            for (int64_t j = 0; j < n; j++) {
                float s = (float)x.v[r * n + j] + (res.v ? (float)res.v[r * n + j] : 0);
                if (res_out.v)
                    s = (float)round_to(res_out.t->type, s);
                sum += pass == 0 ? s : (s - mean) * (s - mean);
                if (pass == 2 && y.v) {
                    float h = (s - mean) * rstd;
                    h = a.round_before_weight ? (float)round_to(x.t->type, h) : h;
                    float wv = (w.v ? (float)w.v[param_index(w.t, r, j)] : 1) + a.weight_offset;
                    float bv = b.v ? (float)b.v[param_index(b.t, r, j)] : 0;
                    y.v[r * n + j] = round_to(y.t->type, h * wv + bv);
                }
            }
            if (pass == 0)
                mean = sum / (float)n;
            else
                rstd = 1 / sqrtf(sum / (float)n + (float)a.eps);
        }
        if (means.v)
            means.v[r] = mean;
        if (rs.v)
            rs.v[r] = rstd;
    }
}

/* ---------------------------------------------------------------- backward */

static void backward_oracle(const suite_case *c, double *const *value, double *const *bound, int kind)
{
    options a = backward_options(c, kind);
    suite_column dy = suite_column_of(c, value, bound, "dy"), x = suite_column_of(c, value, bound, "x"),
                 w = suite_column_of(c, value, bound, "weight");
    suite_column mean_in = suite_column_of(c, value, bound, "mean"), rstd_in = suite_column_of(c, value, bound, "rstd");
    suite_column dres = suite_column_of(c, value, bound, "dresidual_out"), dx = suite_column_of(c, value, bound, "dx");
    suite_column dw = suite_column_of(c, value, bound, "dweight"), db = suite_column_of(c, value, bound, "dbias");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];
    double rows = sum_factor(m);

    /* dweight and dbias: sums over rows. bound collects sum|terms| and what roundings of h add, and is finished below.
     */
    suite_column sums[2] = {dw, db};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; sums[k].v && i < suite_elements(sums[k].t); i++) {
            double held = a.accumulate ? sums[k].v[i] : 0;
            put(sums[k], i, held, U * fabs(held));
        }
    for (int64_t r = 0; r < m && n > 0; r++) {
        stat t = stat_of(kind, x.v + r * n, n, a.eps);
        double dot = 0, dot_abs = 0, sum = 0, sum_abs = 0;
        double rstd = rstd_in.v ? rstd_in.v[r] : t.rstd, er = rstd_in.v ? 0 : t.beyond ? 1 : t.rstd_error;
        /* Recomputed, the mean is rounded to f32 as forward saves it. */
        double mean = mean_in.v ? mean_in.v[r] : t.mean, em = mean_in.v ? 0 : t.mean_error + U * fabs(t.mean);
        em = kind == LAYER ? em : 0;
        for (int64_t j = 0; j < n; j++) {
            double wv = w.v ? (double)(float)(w.v[param_index(w.t, r, j)] + (double)a.weight_offset)
                            : (double)(float)(1 + (double)a.weight_offset);
            double g = dy.v[r * n + j] * wv, gh = g * (x.v[r * n + j] - mean) * rstd;
            sum += g;
            sum_abs += fabs(g);
            dot += gh;
            dot_abs += fabs(gh);
        }
        double dot_mean = dot / (double)n, dot_mean_abs = dot_abs / (double)n;
        double g_mean = kind == LAYER ? sum / (double)n : 0, g_mean_abs = kind == LAYER ? sum_abs / (double)n : 0;
        for (int64_t j = 0; j < n; j++) {
            int64_t i = r * n + j;
            double wv = w.v ? (double)(float)(w.v[param_index(w.t, r, j)] + (double)a.weight_offset)
                            : (double)(float)(1 + (double)a.weight_offset);
            double g = dy.v[i] * wv, h = (x.v[i] - mean) * rstd, extra = dres.v ? dres.v[i] : 0;
            if (dx.v) {
                double want = rstd * (g - g_mean - h * dot_mean) + extra;
                /* Products on the way: g 1, h 1, h * mean 1, difference 1, times rstd 1, mean 1: 6 U of the magnitudes,
                 * with a mean one more for each difference; rstd enters up to three times; the means' own sums; the
                 * last additions; what a mean that is off by em changes in h and in the mean of g * h. */
                double magnitude = rstd * (fabs(g) + g_mean_abs + fabs(h) * dot_mean_abs);
                double error = magnitude * ((kind == LAYER ? 8 : 6) * U + 3 * er) +
                               rstd * (fabs(h) * dot_mean_abs + g_mean_abs) * sum_factor(n) * U +
                               (kind == LAYER ? 2 : 1) * U * (fabs(want) + fabs(extra)) +
                               rstd * em * rstd * (dot_mean_abs + fabs(h) * g_mean_abs) +
                               DENORM * (1 + rstd) * (1 + rstd) * (2 + fabs(h));
                put(dx, i, want, error + half_ulp(dx.t->type, fabs(want) + error));
            }
            if (dw.v) {
                int64_t k = param_index(dw.t, r, j);
                double slack = fabs(dy.v[i]) * em * rstd, er_h = er + (kind == LAYER ? U : 0);
                if (a.round_before_weight) {
                    interval e = rounded(x.t->type, around(h, fabs(h) * (U + er_h) + em * rstd + DENORM));
                    h = round_to(x.t->type, h);
                    slack = fabs(dy.v[i]) * fmax(e.hi - h, h - e.lo);
                }
                dw.v[k] += dy.v[i] * h;
                dw.bound[k] += fabs(dy.v[i] * h) * ((rows + 2) * U + er_h) + slack + DENORM * (1 + fabs(dy.v[i]));
            }
            if (db.v) {
                int64_t k = param_index(db.t, r, j);
                db.v[k] += dy.v[i];
                db.bound[k] += fabs(dy.v[i]) * rows * U;
            }
        }
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; sums[k].v && i < suite_elements(sums[k].t); i++)
            sums[k].bound[i] += half_ulp(sums[k].t->type, fabs(sums[k].v[i]) + sums[k].bound[i]);
}

static void backward_plain(const suite_case *c, double *const *value, int kind)
{
    options a = backward_options(c, kind);
    suite_column dy = suite_column_of(c, value, NULL, "dy"), x = suite_column_of(c, value, NULL, "x"),
                 w = suite_column_of(c, value, NULL, "weight");
    suite_column mean_in = suite_column_of(c, value, NULL, "mean"), rstd_in = suite_column_of(c, value, NULL, "rstd");
    suite_column dres = suite_column_of(c, value, NULL, "dresidual_out"), dx = suite_column_of(c, value, NULL, "dx");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];
    for (int64_t r = 0; dx.v && r < m && n > 0; r++) {
        float mean = 0, square = 0, sum = 0, dot = 0;
        for (int64_t j = 0; kind == LAYER && j < n; j++)
            mean += (float)x.v[r * n + j];
        mean = mean_in.v ? (float)mean_in.v[r] : mean / (float)n;
        for (int64_t j = 0; j < n; j++)
            square += ((float)x.v[r * n + j] - mean) * ((float)x.v[r * n + j] - mean);
        float rstd = rstd_in.v ? (float)rstd_in.v[r] : 1 / sqrtf(square / (float)n + (float)a.eps);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < n; j++) {
                float wv = (w.v ? (float)w.v[param_index(w.t, r, j)] : 1) + a.weight_offset;
                float g = (float)dy.v[r * n + j] * wv, h = ((float)x.v[r * n + j] - mean) * rstd;
                if (pass == 0) {
                    sum += kind == LAYER ? g : 0;
                    dot += g * h;
                } else {
                    dx.v[r * n + j] = round_to(dx.t->type, rstd * (g - sum / (float)n - h * (dot / (float)n)) +
                                                               (dres.v ? (float)dres.v[r * n + j] : 0));
                }
            }
    }
}

/* ---------------------------------------------------------------- one row alone */

static int64_t one_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice, int kind)
{
    const suite_tensor *x = &c->tensor[suite_index(c, "x")];
    int64_t m = suite_row_count(x), n = x->shape[x->ndim - 1];
    if (!one)
        return m;
    *one = *c;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        const char *f = t->field;
        memset(t->stride, 0, sizeof t->stride);
        if (!strcmp(f, "weight") || !strcmp(f, "bias") || !strcmp(f, "dweight") || !strcmp(f, "dbias")) {
            slice->first[i] = f[0] == 'd' ? -1 : param_index(t, row, 0);
            t->ndim = 1;
            t->shape[0] = n;
        } else if (!strcmp(f, "y_scale") && t->role == SUITE_IN) {
            slice->first[i] = 0; /* the one given scale */
        } else {                 /* a row of N elements, of one for each block, or of one */
            int64_t cols = suite_elements(&c->tensor[i]) / m;
            slice->first[i] = row * cols;
            t->ndim = 2;
            t->shape[0] = 1;
            t->shape[1] = cols;
            /* The quant option says whether scales have a last dimension; statistics have none. */
            if (!strcmp(f, "mean") || !strcmp(f, "rstd") ||
                (!strcmp(f, "y_scale") && forward_options(c, kind).quant == SAKER_QUANT_ROW))
                t->ndim = 1;
        }
    }
    return m;
}

/* layer_norm, parameters of heads: a row alone has those of one. */
static bool has_heads(const suite_case *c)
{
    int weight = suite_index(c, "weight");
    return weight >= 0 && c->tensor[weight].ndim == 2;
}

/* ---------------------------------------------------------------- the suites */

#define SUITES(name, kind)                                                                                             \
    static bool name##_at(int i, suite_case *out)                                                                      \
    {                                                                                                                  \
        return norm_case(kind, i, out);                                                                                \
    }                                                                                                                  \
    static bool name##_backward_at(int i, suite_case *out)                                                             \
    {                                                                                                                  \
        return norm_backward_case(kind, i, out);                                                                       \
    }                                                                                                                  \
    static void name##_oracle(const suite_case *c, double *const *value, double *const *bound)                         \
    {                                                                                                                  \
        forward_oracle(c, value, bound, kind);                                                                         \
    }                                                                                                                  \
    static void name##_backward_oracle(const suite_case *c, double *const *value, double *const *bound)                \
    {                                                                                                                  \
        backward_oracle(c, value, bound, kind);                                                                        \
    }                                                                                                                  \
    static void name##_plain(const suite_case *c, double *const *value)                                                \
    {                                                                                                                  \
        forward_plain(c, value, kind);                                                                                 \
    }                                                                                                                  \
    static void name##_backward_plain(const suite_case *c, double *const *value)                                       \
    {                                                                                                                  \
        backward_plain(c, value, kind);                                                                                \
    }                                                                                                                  \
    static int64_t name##_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)                   \
    {                                                                                                                  \
        return one_row(c, row, one, slice, kind);                                                                      \
    }                                                                                                                  \
    const suite skr_suite_##name = {.op = #name,                                                                       \
                                    .at = name##_at,                                                                   \
                                    .oracle = name##_oracle,                                                           \
                                    .plain = name##_plain,                                                             \
                                    .row = name##_row,                                                                 \
                                    .cuda_rows_vary = kind == LAYER ? has_heads : NULL};                               \
    const suite skr_suite_##name##_backward = {.op = #name "_backward",                                                \
                                               .at = name##_backward_at,                                               \
                                               .oracle = name##_backward_oracle,                                       \
                                               .plain = name##_backward_plain,                                         \
                                               .row = name##_row,                                                      \
                                               .cuda_rows_vary = kind == LAYER ? has_heads : NULL};
SUITES(rms_norm, RMS)
SUITES(layer_norm, LAYER)
