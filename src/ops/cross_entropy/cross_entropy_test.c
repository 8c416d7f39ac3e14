/* cross_entropy_test.c - oracle, bounds and row slices of the cross-entropy operations.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored. Bounds, with U = 2^-24:
 *   sum of n terms     SUM(n) * U * sum|terms|, SUM(n) = 16 + sqrt(min(n, 4096)): as in rms_norm, and a factor of 4 U
 *                      each time that an online sum is brought to a new maximum, of which few matter.
 *   exp(d)             (4 + 3 |d|) U of its value: 4 for the function itself (2 ulp), 3 for d = s - max, its rounding
 *                      and its product with log2(e). Values below 2^-126 may be 0.
 *   softcap            8 U of |s|: the quotient, tanh (4), the product; and DENORM, of the quotient times softcap.
 *   log, products      one or two U each, counted below in the longest order that a kernel may choose.
 *   underflow          DENORM for a product that may fall below f32's normal range, times what it is multiplied by.
 *   the output         half an ulp of its type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "cross_entropy_test.h"

#define FLUSH 0x1p-126

static double online_factor(int64_t n)
{
    return 14 + sum_factor(n);
}

static void put(suite_column c, int64_t i, double want, double bound)
{
    if (!c.v)
        return;
    c.v[i] = want;
    c.bound[i] = bound + half_ulp(c.t->type, fabs(want) + bound);
}

/* The options that the three argument structs share. */
typedef struct options {
    double smoothing, z, cap;
    int reduction;
    double ignore, start, vocab;
} options;

/* A number and how far a kernel's may be off. */
typedef struct number {
    double v, e;
} number;

static double target_weight(const suite_column *w, double t)
{
    return w->v ? w->v[(int64_t)t] : 1;
}

static bool valid(const options *o, double t)
{
    return t != o->ignore && t >= 0 && t < o->vocab;
}

/* Sum of the class weights times smoothing / vocab. */
static number smooth_weight(const options *o, const suite_column *w)
{
    double all = 0, k = o->smoothing / o->vocab;
    for (int64_t c = 0; w->v && c < (int64_t)o->vocab; c++)
        all += w->v[c];
    return w->v ? (number){k * all, k * all * (online_factor((int64_t)o->vocab) + 4) * U}
                : (number){o->smoothing, o->smoothing * 2 * U};
}

/* How far softcap may be off where it gives s. */
static double cap_error(const options *o, double s)
{
    return o->cap == 0 ? 0 : fabs(s) * 8 * U + (1 + o->cap) * DENORM;
}

static number capped(const options *o, double x)
{
    if (o->cap == 0)
        return (number){x, 0};
    double s = o->cap * tanh(x / o->cap);
    return (number){s, cap_error(o, s)};
}

/* What a row's exponentials come to. */
typedef struct sums {
    double max, sum, relative; /* relative error of sum */
    number lse, smooth;        /* smooth: sum of smoothing / vocab * w * s */
    double cap;                /* error of the largest s */
} sums;

static sums sum_row(const options *o, const suite_column *w, const double *x, int64_t n)
{
    sums r = {.max = -INFINITY};
    double k = o->smoothing / o->vocab, slack = 0, magnitude = 0;
    bool nan = false;
    for (int64_t j = 0; j < n; j++) {
        double s = capped(o, x[j]).v;
        nan |= isnan(s) || s == INFINITY;
        r.max = s > r.max ? s : r.max;
    }
    r.cap = isfinite(r.max) ? cap_error(o, r.max) : 0;
    for (int64_t j = 0; j < n; j++) {
        number s = capped(o, x[j]);
        double d = r.max == -INFINITY ? -INFINITY : s.v - r.max, e = exp(d);
        r.sum += e;
        if (e > 0)
            slack += e * (4 * U + 3 * U * fabs(d) + s.e + r.cap) + FLUSH;
        if (o->smoothing != 0) {
            double factor = k * (w->v ? w->v[(int64_t)o->start + j] : 1), term = factor * s.v;
            r.smooth.v += term;
            magnitude += fabs(term);
            r.smooth.e += factor * s.e + (1 + factor) * DENORM;
        }
    }
    r.smooth.e += isfinite(magnitude) ? magnitude * (online_factor(n) + 4) * U : 0;
    if (nan)
        r.max = r.sum = NAN;
    r.relative = r.sum > 0 ? slack / r.sum + online_factor(n) * U : 0;
    r.lse.v = r.max == -INFINITY ? -INFINITY : r.max + log(r.sum);
    r.lse.e = isfinite(r.lse.v) ? r.relative + 2 * U * fabs(log(r.sum)) + U * fabs(r.lse.v) + r.cap : 0;
    return r;
}

/* Losses of rows, and their reduction. */
typedef struct tally {
    double entropy, z, weight, rows;
    double e_entropy, e_z; /* errors */
    double m_entropy, m_z; /* magnitudes */
} tally;

static void add_loss(const options *o, const suite_column *w, suite_column loss, int64_t r, double t, number lse,
                     number at, number smooth, tally *sum)
{
    if (!valid(o, t)) {
        if (o->reduction == SAKER_REDUCE_NONE && loss.v)
            loss.v[r] = loss.bound[r] = 0;
        return;
    }
    double weight = target_weight(w, t), hard = (1 - o->smoothing) * weight;
    number all = smooth_weight(o, w);
    double v = hard * (lse.v - at.v), e = fabs(hard) * (lse.e + at.e) + 4 * U * fabs(v);
    if (hard == 0 && isinf(lse.v - at.v))
        v = NAN;
    if (o->smoothing != 0) {
        v += all.v * lse.v - smooth.v;
        e += all.v * lse.e + fabs(lse.v) * (all.e + 2 * U * all.v) + smooth.e + 2 * U * fabs(smooth.v) + U * fabs(v);
    }
    double z = o->z != 0 ? o->z * lse.v * lse.v : 0, ez = z * 3 * U + 2 * o->z * fabs(lse.v) * lse.e;
    sum->entropy += v, sum->z += z, sum->e_entropy += e, sum->e_z += ez;
    sum->m_entropy += fabs(v), sum->m_z += z, sum->weight += weight, sum->rows++;
    if (o->reduction == SAKER_REDUCE_NONE)
        put(loss, r, v + z, isfinite(v + z) ? e + ez + U * fabs(v + z) : 0);
}

static void finish_loss(const options *o, suite_column loss, int64_t m, const tally *sum)
{
    if (!loss.v || o->reduction == SAKER_REDUCE_NONE)
        return;
    bool mean = o->reduction == SAKER_REDUCE_MEAN;
    double by = mean ? sum->weight : 1, by_z = mean ? sum->rows : 1, rows = online_factor(m) + 4;
    double v = sum->entropy / by + (o->z != 0 ? sum->z / by_z : 0);
    double e = (sum->e_entropy + sum->m_entropy * rows * 2 * U) / by +
               (o->z != 0 ? (sum->e_z + sum->m_z * rows * U) / by_z : 0);
    put(loss, 0, v, isfinite(v) ? e + 2 * U * fabs(v) : 0);
}

/* The gradient of one row: p * a - [c = t] * b - k * w, times what softcap makes of it. p(j) comes with its error. */
static void put_gradient(const options *o, const suite_column *w, suite_column out, int64_t row, int64_t n,
                         const double *x, const number *p, bool counts, double t, number lse, double grad, double dlse,
                         const tally *sum)
{
    bool mean = o->reduction == SAKER_REDUCE_MEAN;
    double scale = mean ? 1 / sum->weight : 1, scale_z = mean ? 1 / sum->rows : 1;
    double weights = mean ? online_factor((int64_t)sum->rows) * U : 0; /* relative error of the scale */
    double g = grad * scale, k = g * o->smoothing / o->vocab;
    number a = {dlse, 0}, all = smooth_weight(o, w);
    double b = 0;
    if (counts) {
        b = g * (1 - o->smoothing) * target_weight(w, t);
        double soft = o->smoothing != 0 ? g * all.v : 0, z = o->z != 0 ? grad * scale_z * 2 * o->z * lse.v : 0;
        a.v += b + soft + z;
        a.e = (fabs(b) + fabs(soft)) * (weights + 6 * U) + fabs(g) * all.e + fabs(z) * 5 * U +
              fabs(grad * scale_z * 2 * o->z) * lse.e + 3 * U * (fabs(dlse) + fabs(z) + fabs(a.v));
    } else {
        k = 0;
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t i = row * n + j;
        if (a.v == 0 && b == 0 && k == 0) {
            put(out, i, 0, 0);
            out.bound[i] = 0;
            continue;
        }
        double wj = w->v ? w->v[(int64_t)o->start + j] : 1, hit = counts && t == o->start + (double)j ? b : 0;
        double v = p[j].v * a.v - hit - k * wj;
        double e = p[j].e * fabs(a.v) + p[j].v * a.e + (weights + 6 * U) * (fabs(hit) + fabs(k * wj)) +
                   3 * U * fabs(p[j].v * a.v) + 2 * U * (fabs(v) + fabs(hit)) + FLUSH * (1 + fabs(a.v) + fabs(b));
        if (o->cap != 0) {
            double tanh_x = tanh(x[j] / o->cap), slope = isnan(x[j]) ? NAN : 1 - tanh_x * tanh_x;
            e = e * slope + fabs(v) * 12 * U + U * fabs(v * slope);
            v *= slope;
        }
        put(out, i, v, isnan(v) ? 0 : e);
    }
}

static tally count_targets(const options *o, const suite_column *w, const suite_column *target, int64_t m)
{
    tally sum = {0};
    for (int64_t r = 0; r < m; r++)
        if (valid(o, target->v[r])) {
            sum.weight += target_weight(w, target->v[r]);
            sum.rows++;
        }
    return sum;
}

static double grad_of(suite_column grad, int64_t r)
{
    return !grad.v ? 1 : suite_elements(grad.t) == 1 ? grad.v[0] : grad.v[r];
}

static void forward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_cross_entropy_args a;
    memcpy(&a, c->args, sizeof a);
    suite_column x = suite_column_of(c, value, bound, "logits"), t = suite_column_of(c, value, bound, "target"),
                 w = suite_column_of(c, value, bound, "weight");
    suite_column grad = suite_column_of(c, value, bound, "grad"), loss = suite_column_of(c, value, bound, "loss");
    suite_column lse = suite_column_of(c, value, bound, "lse"), dx = suite_column_of(c, value, bound, "dlogits");
    suite_column partial = suite_column_of(c, value, bound, "partial");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];
    options o = {(double)a.label_smoothing,
                 (double)a.z_loss,
                 (double)a.softcap,
                 a.reduction,
                 a.has_ignore_index ? (double)a.ignore_index : -100,
                 (double)a.vocab_start,
                 a.vocab ? (double)a.vocab : (double)n};
    tally all = count_targets(&o, &w, &t, m), sum = {0};
    number *p = malloc((size_t)n * sizeof *p + 1);
    for (int64_t r = 0; r < m; r++) {
        const double *row = x.v + r * n;
        sums s = sum_row(&o, &w, row, n);
        bool counts = valid(&o, t.v[r]);
        double at = t.v[r] - o.start;
        bool here = counts && at >= 0 && at < (double)n;
        number hit = here ? capped(&o, row[(int64_t)at]) : (number){0, 0};
        if (lse.v)
            put(lse, r, s.lse.v, s.lse.e);
        if (partial.v) {
            put(partial, 4 * r, s.max, s.cap);
            put(partial, 4 * r + 1, s.sum, isnan(s.sum) ? 0 : s.sum * s.relative);
            put(partial, 4 * r + 2, hit.v, hit.e);
            put(partial, 4 * r + 3, s.smooth.v, s.smooth.e);
        }
        if (loss.v)
            add_loss(&o, &w, loss, r, t.v[r], s.lse, hit, s.smooth, &sum);
        for (int64_t j = 0; dx.v && j < n; j++) {
            number sj = capped(&o, row[j]);
            double d = sj.v - s.max;
            p[j].v = exp(d) / s.sum;
            p[j].e = p[j].v > 0 ? p[j].v * (8 * U + 3 * U * fabs(d) + s.relative + sj.e + s.cap) + FLUSH : FLUSH;
        }
        if (dx.v)
            put_gradient(&o, &w, dx, r, n, row, p, counts, t.v[r], s.lse, grad_of(grad, r), 0, &all);
    }
    free(p);
    finish_loss(&o, loss, m, &sum);
}

static void backward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_cross_entropy_backward_args a;
    memcpy(&a, c->args, sizeof a);
    suite_column x = suite_column_of(c, value, bound, "logits"), t = suite_column_of(c, value, bound, "target"),
                 w = suite_column_of(c, value, bound, "weight");
    suite_column grad = suite_column_of(c, value, bound, "grad"), lse = suite_column_of(c, value, bound, "lse");
    suite_column dlse = suite_column_of(c, value, bound, "dlse"), dx = suite_column_of(c, value, bound, "dlogits");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];
    options o = {(double)a.label_smoothing,
                 (double)a.z_loss,
                 (double)a.softcap,
                 a.reduction,
                 a.has_ignore_index ? (double)a.ignore_index : -100,
                 (double)a.vocab_start,
                 a.vocab ? (double)a.vocab : (double)n};
    tally all = count_targets(&o, &w, &t, m);
    number *p = malloc((size_t)n * sizeof *p + 1);
    for (int64_t r = 0; r < m; r++) {
        const double *row = x.v + r * n;
        for (int64_t j = 0; j < n; j++) {
            number s = capped(&o, row[j]);
            double d = s.v - lse.v[r];
            p[j].v = exp(d);
            p[j].e = p[j].v > 0 && isfinite(d) ? p[j].v * (4 * U + 3 * U * fabs(d) + s.e) + FLUSH : FLUSH;
        }
        put_gradient(&o, &w, dx, r, n, row, p, valid(&o, t.v[r]), t.v[r], (number){lse.v[r], 0}, grad_of(grad, r),
                     dlse.v ? dlse.v[r] : 0, &all);
    }
    free(p);
}

static void merge_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_cross_entropy_merge_args a;
    memcpy(&a, c->args, sizeof a);
    suite_column p = suite_column_of(c, value, bound, "partials"), t = suite_column_of(c, value, bound, "target"),
                 w = suite_column_of(c, value, bound, "weight");
    suite_column loss = suite_column_of(c, value, bound, "loss"), lse = suite_column_of(c, value, bound, "lse");
    int64_t shards = p.t->shape[0], m = suite_row_count(p.t) / shards;
    options o = {(double)a.label_smoothing,
                 (double)a.z_loss,
                 0,
                 a.reduction,
                 a.has_ignore_index ? (double)a.ignore_index : -100,
                 0,
                 (double)a.vocab};
    tally sum = {0};
    for (int64_t r = 0; r < m; r++) {
        double max = -INFINITY, s = 0, error = 0;
        number l, hit = {0, 0}, smooth = {0, 0};
        for (int64_t k = 0; k < shards; k++) {
            double v = p.v[4 * (k * m + r)];
            max = isnan(v) || isnan(max) ? NAN : fmax(max, v);
        }
        for (int64_t k = 0; k < shards; k++) {
            const double *v = p.v + 4 * (k * m + r);
            double d = v[0] - max, e = v[0] == -INFINITY ? 0 : v[1] * exp(d);
            s += e;
            error +=
                v[0] == -INFINITY ? 0 : fabs(e) * (6 + 3 * fabs(d) + sqrt((double)shards)) * U + FLUSH * fabs(v[1]);
            hit.v += v[2], hit.e += fabs(v[2]) * (double)shards * U;
            smooth.v += v[3], smooth.e += fabs(v[3]) * (double)shards * U;
        }
        l.v = max == -INFINITY ? -INFINITY : max + log(s);
        l.e = isfinite(l.v) ? error / fabs(s) + 2 * U * fabs(log(s)) + U * fabs(l.v) : 0;
        if (lse.v)
            put(lse, r, l.v, l.e);
        if (loss.v)
            add_loss(&o, &w, loss, r, t.v[r], l, hit, smooth, &sum);
    }
    finish_loss(&o, loss, m, &sum);
}

/* ---------------------------------------------------------------- plain float */

static void forward_plain(const suite_case *c, double *const *value)
{
    saker_cross_entropy_args a;
    memcpy(&a, c->args, sizeof a);
    suite_column x = suite_column_of(c, value, NULL, "logits"), lse = suite_column_of(c, value, NULL, "lse");
    int64_t m = suite_row_count(x.t), n = x.t->shape[x.t->ndim - 1];
    for (int64_t r = 0; lse.v && a.softcap == 0 && r < m; r++) {
        float max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < n; j++)
            max = fmaxf(max, (float)x.v[r * n + j]);
        for (int64_t j = 0; j < n; j++)
            sum += expf((float)x.v[r * n + j] - max);
        lse.v[r] = max + logf(sum);
    }
}

/* ---------------------------------------------------------------- one row alone */

/* What is summed over rows cannot be compared, nor what a mean divides. */
static int64_t slice_row(const suite_case *c, int64_t row, bool mean, suite_case *one, suite_slice *slice)
{
    const suite_tensor *x = &c->tensor[0];
    int64_t m = suite_row_count(x), n = x->shape[x->ndim - 1];
    if (!one)
        return m;
    *one = *c;
    one->check = c->check == SAKER_OK ? SAKER_OK : SUITE_ANY_CHECK;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        memset(t->stride, 0, sizeof t->stride);
        slice->first[i] = 0;
        if (!strcmp(t->field, "weight") || (suite_elements(t) == 1 && m > 1)) {
            slice->first[i] = t->role == SUITE_OUT ? -1 : 0;
        } else {
            bool gradient = !strcmp(t->field, "dlogits"), wide = gradient || !strcmp(t->field, "logits");
            bool four = !strcmp(t->field, "partial");
            int64_t cols = wide ? n : four ? 4 : 1;
            t->ndim = wide || four ? 2 : 1;
            t->shape[0] = 1;
            t->shape[1] = cols;
            slice->first[i] = gradient && mean ? -1 : row * cols;
        }
    }
    return m;
}

static int64_t one_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    saker_cross_entropy_args a;
    memcpy(&a, c->args, sizeof a);
    return slice_row(c, row, a.reduction == SAKER_REDUCE_MEAN, one, slice);
}

static int64_t one_row_backward(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    saker_cross_entropy_backward_args a;
    memcpy(&a, c->args, sizeof a);
    return slice_row(c, row, a.reduction == SAKER_REDUCE_MEAN, one, slice);
}

static bool at_forward(int i, suite_case *out)
{
    return cross_entropy_case(FORWARD, i, out);
}

static bool at_backward(int i, suite_case *out)
{
    return cross_entropy_case(BACKWARD, i, out);
}

static bool at_merge(int i, suite_case *out)
{
    return cross_entropy_case(MERGE, i, out);
}

const suite skr_suite_cross_entropy = {
    .op = "cross_entropy", .at = at_forward, .oracle = forward_oracle, .plain = forward_plain, .row = one_row};
const suite skr_suite_cross_entropy_backward = {
    .op = "cross_entropy_backward", .at = at_backward, .oracle = backward_oracle, .row = one_row_backward};
const suite skr_suite_cross_entropy_merge = {.op = "cross_entropy_merge", .at = at_merge, .oracle = merge_oracle};
