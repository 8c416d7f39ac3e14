/* softmax_test.c - oracle, bounds and row slices of softmax and softmax_backward. Cases: softmax_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored. Bounds, with U = 2^-24 (half an ulp of f32, relative):
 *   s                  U of the product and U of the sum where there is a scale or a mask; else exact.
 *   s - m              what s and m are off, and 3 U of the difference: its own rounding, the factor log2(e) that it is
 *                      multiplied by, that product. The error of an exponent is a relative error of the exponential.
 *                      Without a mask the order of the s is that of the x: the largest has 0, and none has more.
 *   an exponential     4 U (two ulp: what a GPU's instruction promises), and 4 U more where a partial sum has a maximum
 *                      of its own and is multiplied by an exponential of the difference.
 *   sum of n terms     SUM(n) * U * sum|terms|, SUM(n) = 2 + sqrt(min(n, 4096)), as in rms_norm_test.c; and the terms'
 *                      own errors.
 *   reciprocal, products  2 U and one U each.
 *   the output         half an ulp of its type.
 *   underflow          DENORM for each value that may fall below the normal range of f32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "softmax_test.h"

/* ---------------------------------------------------------------- rows of a shape along one of its dimensions */

typedef struct walk {
    const suite_tensor *t, *mask; /* mask: NULL where there is none */
    const double *x, *m;          /* values of forward's inputs */
    int dim;
    int64_t rows, n, inner;
    bool causal;
} walk;

static walk walk_of(const suite_tensor *t, int64_t from_last, int causal)
{
    walk w = {.t = t, .dim = t->ndim - 1 - (int)from_last, .inner = 1, .causal = causal};
    w.n = t->shape[w.dim];
    for (int d = w.dim + 1; d < t->ndim; d++)
        w.inner *= t->shape[d];
    w.rows = w.n ? suite_elements(t) / w.n : 0;
    return w;
}

static int64_t element(const walk *w, int64_t row, int64_t k)
{
    return (row / w->inner * w->n + k) * w->inner + row % w->inner;
}

static bool seen(const walk *w, int64_t at)
{
    const suite_tensor *t = w->t;
    if (!w->causal)
        return true;
    int64_t q = t->shape[t->ndim - 2], k = t->shape[t->ndim - 1];
    return at % k <= at / k % q + k - q;
}

/* Where a repeated tensor holds the value for element `at` of t. */
static int64_t repeated(const suite_tensor *m, const suite_tensor *t, int64_t at)
{
    int64_t place = 0, scale = 1;
    for (int d = t->ndim - 1, k = m->ndim - 1; k >= 0; d--, k--) {
        place += (m->shape[k] > 1 ? at % t->shape[d] : 0) * scale;
        at /= t->shape[d];
        scale *= m->shape[k];
    }
    return place;
}

/* ---------------------------------------------------------------- forward */

typedef struct row_sums {
    double m, sum, error; /* error of the sum, relative */
    double em;            /* error of m */
    bool nan;
} row_sums;

/* s of one element, and how far a kernel's may be off. */
static double s_of(const walk *w, double scale, int64_t at, double *error)
{
    *error = 0;
    if (!seen(w, at))
        return -INFINITY;
    double product = scale * w->x[at], s = product;
    if (w->mask)
        s += w->m[repeated(w->mask, w->t, at)];
    if ((w->mask || scale != 1) && isfinite(s))
        *error = U * ((scale != 1 ? fabs(product) : 0) + (w->mask ? fabs(s) : 0));
    return s;
}

static double exponent_error(const walk *w, double d, double es, double em)
{
    if (!isfinite(d) || (d == 0 && !w->mask))
        return 0;
    return es + em + 3 * U * fabs(d);
}

/* exp(d), and how far it may be off when d may be off by e. */
static double exp_of(const walk *w, double d, double e, double *error)
{
    double p = exp(d), high = exp(fmin(d + e, w->mask ? e : 0)), low = exp(d - e);
    *error = fmax(high - p, p - low) + 8 * U * high + DENORM;
    if (d == -INFINITY)
        *error = 0;
    return p;
}

static row_sums sums_of(const walk *w, double scale, int64_t row)
{
    row_sums r = {.m = -INFINITY};
    double e, es;
    for (int64_t k = 0; k < w->n; k++) {
        double s = s_of(w, scale, element(w, row, k), &es);
        r.nan |= isnan(s) || s == INFINITY;
        if (s > r.m) {
            r.m = s;
            r.em = es;
        }
    }
    if (r.m == -INFINITY || r.nan)
        return r;
    double error = 0;
    for (int64_t k = 0; k < w->n; k++) {
        double d = s_of(w, scale, element(w, row, k), &es) - r.m;
        r.sum += exp_of(w, d, exponent_error(w, d, es, r.em), &e);
        error += e;
    }
    r.error = error / r.sum + sum_factor(w->n) * U;
    return r;
}

static void forward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_softmax_args a;
    memcpy(&a, c->args, sizeof a);
    int xi = suite_index(c, "x"), mi = suite_index(c, "mask"), yi = suite_index(c, "y");
    saker_type type = c->tensor[yi].type;
    double *y = value[yi], *b = bound[yi], scale = a.scale == 0 ? 1 : (double)a.scale;
    walk w = walk_of(&c->tensor[xi], a.dim_from_last, a.causal);
    w.x = value[xi];
    w.mask = mi < 0 ? NULL : &c->tensor[mi];
    w.m = mi < 0 ? NULL : value[mi];
    for (int64_t row = 0; row < w.rows; row++) {
        row_sums r = sums_of(&w, scale, row);
        for (int64_t k = 0; k < w.n; k++) {
            int64_t at = element(&w, row, k);
            double es, e, s = s_of(&w, scale, at, &es), d = s - r.m, off = exponent_error(&w, d, es, r.em);
            b[at] = 0;
            if (r.nan) {
                y[at] = NAN;
            } else if (s == -INFINITY) {
                y[at] = a.log ? -INFINITY : 0;
            } else if (a.log) {
                double ln = log(r.sum);
                y[at] = d - ln;
                off += r.error + 4 * U * fabs(ln) + U * fabs(y[at]) + 2 * U;
                b[at] = off + half_ulp(type, fabs(y[at]) + off);
            } else {
                y[at] = exp_of(&w, d, off, &e) / r.sum;
                off = e / r.sum * (1 + r.error) + y[at] * (r.error + 4 * U) + 4 * DENORM;
                b[at] = off + half_ulp(type, y[at] + off);
            }
        }
    }
}

static void forward_plain(const suite_case *c, double *const *value)
{
    saker_softmax_args a;
    memcpy(&a, c->args, sizeof a);
    int xi = suite_index(c, "x"), mi = suite_index(c, "mask"), yi = suite_index(c, "y");
    float scale = a.scale == 0 ? 1 : a.scale;
    walk w = walk_of(&c->tensor[xi], a.dim_from_last, a.causal);
    for (int64_t row = 0; row < w.rows; row++) {
        float m = -INFINITY, sum = 0;
        for (int pass = 0; pass < 3; pass++)
            for (int64_t k = 0; k < w.n; k++) {
                int64_t at = element(&w, row, k);
                float s = -INFINITY;
                if (seen(&w, at))
                    s = scale * (float)value[xi][at] +
                        (mi >= 0 ? (float)value[mi][repeated(&c->tensor[mi], w.t, at)] : 0);
                if (pass == 0)
                    m = s > m ? s : m;
                else if (pass == 1)
                    sum += expf(s - m);
                else
                    value[yi][at] =
                        round_to(c->tensor[yi].type, (double)(a.log ? s - m - logf(sum) : expf(s - m) / sum));
            }
    }
}

/* ---------------------------------------------------------------- backward */

static void backward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_softmax_backward_args a;
    memcpy(&a, c->args, sizeof a);
    int di = suite_index(c, "dx");
    const double *dy = value[suite_index(c, "dy")], *y = value[suite_index(c, "y")];
    double *dx = value[di], *b = bound[di], scale = a.scale == 0 ? 1 : (double)a.scale, size = fabs(scale);
    saker_type type = c->tensor[di].type;
    walk w = walk_of(&c->tensor[suite_index(c, "y")], a.dim_from_last, a.causal);
    for (int64_t row = 0; row < w.rows; row++) {
        double sum = 0, error = 0;
        for (int64_t k = 0; k < w.n; k++) {
            int64_t at = element(&w, row, k);
            double term = a.log ? dy[at] : dy[at] * y[at];
            if (seen(&w, at)) {
                sum += term;
                error += fabs(term) * (sum_factor(w.n) + 1) * U + DENORM;
            }
        }
        for (int64_t k = 0; k < w.n; k++) {
            int64_t at = element(&w, row, k);
            if (!seen(&w, at)) {
                dx[at] = b[at] = 0;
                continue;
            }
            /* y, or its exponential, which errs by two ulp and by what its argument is multiplied and rounded by */
            double p = a.log ? exp(y[at]) : y[at];
            double ep = a.log && isfinite(y[at]) ? p * (4 + 3 * fabs(y[at])) * U + DENORM : 0;
            double magnitude, off;
            if (a.log) {
                dx[at] = scale * (dy[at] - p * sum);
                magnitude = size * (fabs(dy[at]) + p * fabs(sum));
                off = size * (p * error + ep * (fabs(sum) + error)) + 4 * U * magnitude;
            } else {
                dx[at] = scale * p * (dy[at] - sum);
                magnitude = size * fabs(p) * (fabs(dy[at]) + fabs(sum));
                off = size * fabs(p) * error + 4 * U * magnitude;
            }
            off += DENORM * (2 + size) * (2 + fabs(p) + fabs(dy[at]) + fabs(sum));
            b[at] = off + half_ulp(type, fabs(dx[at]) + off);
        }
    }
}

static void backward_plain(const suite_case *c, double *const *value)
{
    saker_softmax_backward_args a;
    memcpy(&a, c->args, sizeof a);
    int dyi = suite_index(c, "dy"), yi = suite_index(c, "y"), di = suite_index(c, "dx");
    float scale = a.scale == 0 ? 1 : a.scale;
    walk w = walk_of(&c->tensor[yi], a.dim_from_last, a.causal);
    for (int64_t row = 0; row < w.rows; row++) {
        float sum = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < w.n; k++) {
                int64_t at = element(&w, row, k);
                float dy = (float)value[dyi][at], y = (float)value[yi][at], dx = 0;
                if (pass == 0 && seen(&w, at))
                    sum += a.log ? dy : dy * y;
                if (pass == 1 && seen(&w, at))
                    dx = a.log ? scale * (dy - expf(y) * sum) : scale * y * (dy - sum);
                if (pass == 1)
                    value[di][at] = round_to(c->tensor[di].type, (double)dx);
            }
    }
}

/* ---------------------------------------------------------------- one row alone */

/* Here a "row" is the smallest run of elements that needs no other: the last dimensions down to the one that the
 * softmax goes along, and down to the two of a causal mask. Taken out it is compact; 0 where other kernels are made for
 * such a layout than for the case's own, because their sums have another order. */
static int64_t one_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    bool forward = suite_index(c, "x") >= 0;
    const suite_tensor *x = &c->tensor[suite_index(c, forward ? "x" : "y")];
    saker_softmax_args a;
    saker_softmax_backward_args g;
    memcpy(&a, c->args, sizeof a);
    memcpy(&g, c->args, sizeof g);
    int dim = (int)(forward ? a.dim_from_last : g.dim_from_last), causal = forward ? a.causal : g.causal;
    int dims = causal && dim == 0 ? 2 : dim + 1;
    walk w = walk_of(x, dim, causal);
    int64_t size = 1;
    for (int d = x->ndim - dims; d < x->ndim; d++)
        size *= x->shape[d];
    if (!size || strcmp(c->cpu_kernel, w.inner == 1 || w.n == 1 ? "rows" : "columns"))
        return 0;
    if (!one)
        return suite_elements(x) / size;
    *one = *c;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        slice->first[i] = strcmp(t->field, "mask") ? row * size : repeated(t, x, row * size);
        memset(t->stride, 0, sizeof t->stride);
        int drop = t->ndim > dims ? t->ndim - dims : 0;
        t->ndim -= drop;
        memmove(t->shape, t->shape + drop, (size_t)t->ndim * sizeof *t->shape);
    }
    return suite_elements(x) / size;
}

const suite skr_suite_softmax = {
    .op = "softmax", .at = softmax_case, .oracle = forward_oracle, .plain = forward_plain, .row = one_row};
const suite skr_suite_softmax_backward = {.op = "softmax_backward",
                                          .at = softmax_backward_case,
                                          .oracle = backward_oracle,
                                          .plain = backward_plain,
                                          .row = one_row};
