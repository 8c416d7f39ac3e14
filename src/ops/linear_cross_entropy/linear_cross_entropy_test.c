/* linear_cross_entropy_test.c - oracle, bounds and row slices. Cases: linear_cross_entropy_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored, without rounding anything in between. Bounds, with
 * U = 2^-24:
 *   products        of k terms: SUM(k) * U * sum|terms| as gemm_test.c has it, twice that for bf16; 2^-10 of each term
 *                   where tf32 is allowed; what is subnormal may be missing.
 *   logits          that of their product, 4 U of their parts for the bias, half an ulp of x's type: they are stored
 *                   in it. Called e_j below.
 *   softcap         8 U of |s|, as in cross_entropy_test.c; its slope at most 1 lets e_j through.
 *   exp, sums, log  as in cross_entropy_test.c. Logits that are off by e_j move lse by at most log(sum of p_j exp(e_j))
 *                   and p_j by the factor exp(e_j) times that.
 *   dlogits         its parts, a few U each; half an ulp of x's type. What it is off by goes through the products
 *                   with the magnitudes of the other factor.
 *   dweight, dbias  and U for each piece that is added to those before it, and for what they held.
 *   the output      half an ulp of its type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "linear_cross_entropy_test.h"

#define FLUSH 0x1p-126

/* A value and how far a kernel's may be off. */
typedef struct number {
    double v, e;
} number;

typedef struct problem {
    const saker_linear_cross_entropy_args *args;
    suite_column x, weight, target, bias, class_weight, grad, loss, lse, dx, dweight, dbias;
    int64_t m, v, h, pieces;
    double ignore;
    bool halves, tf32;
    number *logits;         /* [M, V]; later dlogits */
    double *weights;        /* [V] class weights */
    double all, rows, hits; /* sum of the class weights; rows that count, and the sum of their targets' weights */
} problem;

static void put(suite_column c, int64_t i, number x)
{
    if (!c.v)
        return;
    bool known = isfinite(x.v) && isfinite(x.e);
    c.v[i] = x.v;
    c.bound[i] = known ? x.e + half_ulp(c.t->type, fabs(x.v) + x.e) : 0;
}

static double online_factor(int64_t n)
{
    return 14 + sum_factor(n);
}

/* A sum of products that grows: value, what the factors are off by, magnitude, and what may be missing. */
typedef struct sum {
    double v, e, size, lost;
} sum;

static void add_product(const problem *p, sum *s, number a, double b)
{
    s->v += a.v * b;
    s->e += a.e * fabs(b);
    s->size += fabs(a.v * b);
    if (p->halves && (fabs(a.v) < FLUSH || fabs(b) < FLUSH))
        s->lost += fabs(a.v * b);
}

static number sum_of(const problem *p, const sum *s, int64_t k)
{
    double e = s->e + (s->size + s->e) * U * (sum_factor(k) * (p->halves ? 2 : 1) + 6) + s->lost;
    e += (double)k * (p->halves ? FLUSH : DENORM) + DENORM + (p->tf32 ? s->size * 0x1p-10 : 0);
    return (number){s->v, e};
}

static bool counts(const problem *p, int64_t row)
{
    double t = p->target.v[row];
    return t != p->ignore && t >= 0 && t < (double)p->v;
}

static number logit(const problem *p, int64_t row, int64_t c)
{
    sum s = {0};
    for (int64_t k = 0; k < p->h; k++)
        add_product(p, &s, (number){p->x.v[row * p->h + k], 0}, p->weight.v[c * p->h + k]);
    number r = sum_of(p, &s, p->h);
    double bias = p->bias.v ? p->bias.v[c] : 0;
    r.e += 4 * U * (fabs(r.v) + fabs(bias));
    r.v += bias;
    r.e = isfinite(r.v) ? r.e + half_ulp(p->x.t->type, fabs(r.v) + r.e) : 0;
    return r;
}

static number capped(const problem *p, number l)
{
    double cap = (double)p->args->softcap;
    if (cap == 0)
        return l;
    double s = cap * tanh(l.v / cap);
    return (number){s, l.e + fabs(s) * 8 * U + (1 + cap) * DENORM};
}

/* ds / dlogits. */
static number slope(const problem *p, number l)
{
    double cap = (double)p->args->softcap;
    if (cap == 0)
        return (number){1, 0};
    double at[3] = {l.v, l.v - l.e, l.v + l.e}, s[3];
    for (int i = 0; i < 3; i++)
        s[i] = 1 - tanh(at[i] / cap) * tanh(at[i] / cap);
    double off = fmax(fabs(s[1] - s[0]), fabs(s[2] - s[0]));
    if (fabs(l.v) < l.e) /* its top lies between */
        off = fmax(off, 1 - s[0]);
    return (number){s[0], off + 12 * U};
}

/* ---------------------------------------------------------------- a row */

typedef struct row_sums {
    double max, sum, relative, moved; /* relative error of the sum; how far lse moves with the logits */
    number lse, smooth;               /* smooth: sum of e / V * w * s */
} row_sums;

static row_sums sum_row(const problem *p, const number *logits)
{
    row_sums r = {.max = -INFINITY};
    double slack = 0, moved = 0, size = 0, k = (double)p->args->label_smoothing / (double)p->v;
    bool nan = false;
    for (int64_t c = 0; c < p->v; c++) {
        double s = capped(p, logits[c]).v;
        nan |= isnan(s) || s == INFINITY;
        r.max = s > r.max ? s : r.max;
    }
    for (int64_t c = 0; c < p->v; c++) {
        number s = capped(p, logits[c]);
        double d = s.v - r.max, e = exp(d);
        r.sum += e;
        slack += e > 0 ? e * (4 * U + 3 * U * fabs(d)) + FLUSH : 0;
        moved += e > 0 ? e * expm1(s.e) : 0;
        double factor = k * p->weights[c];
        r.smooth.v += factor * s.v;
        r.smooth.e += factor * s.e + (1 + factor) * DENORM;
        size += fabs(factor * s.v);
    }
    if (nan)
        r.max = r.sum = NAN;
    r.smooth.e += size * (online_factor(p->v) + 4) * U;
    r.relative = r.sum > 0 ? slack / r.sum + online_factor(p->v) * U : 0;
    r.moved = r.sum > 0 ? log1p(moved / r.sum) : 0;
    r.lse.v = r.max == -INFINITY ? -INFINITY : r.max + log(r.sum);
    r.lse.e = r.moved + r.relative + 2 * U * fabs(log(r.sum)) + U * (fabs(r.lse.v) + fabs(r.max));
    return r;
}

/* Sum of the class weights times smoothing / V. */
static number smooth_weight(const problem *p)
{
    double e = (double)p->args->label_smoothing;
    return p->class_weight.v
               ? (number){e / (double)p->v * p->all, e / (double)p->v * p->all * (online_factor(p->v) + 4) * U}
               : (number){e, e * 2 * U};
}

/* Entropy and z-loss of a row that counts. */
static void losses(const problem *p, const number *logits, const row_sums *r, int64_t t, number *entropy, number *z)
{
    double smoothing = (double)p->args->label_smoothing, factor = (double)p->args->z_loss, lse = r->lse.v;
    double hard = (1 - smoothing) * p->weights[t];
    number at = capped(p, logits[t]), all = smooth_weight(p);
    *entropy = (number){hard * (lse - at.v), hard * (r->lse.e + at.e) + 4 * U * fabs(hard * (lse - at.v))};
    if (smoothing != 0) {
        entropy->v += all.v * lse - r->smooth.v;
        entropy->e += all.v * r->lse.e + fabs(lse) * (all.e + 2 * U * all.v) + r->smooth.e + 2 * U * fabs(r->smooth.v) +
                      U * fabs(entropy->v);
    }
    *z = (number){factor * lse * lse, factor * (lse * lse * 3 * U + 2 * fabs(lse) * r->lse.e + r->lse.e * r->lse.e)};
}

static double grad_of(const problem *p, int64_t row)
{
    return !p->grad.v ? 1 : suite_elements(p->grad.t) == 1 ? p->grad.v[0] : p->grad.v[row];
}

/* Puts the gradient of a row in the place of its logits. */
static void differentiate(const problem *p, number *logits, const row_sums *r, int64_t row)
{
    const saker_linear_cross_entropy_args *o = p->args;
    const bool mean = o->reduction == SAKER_REDUCE_MEAN, valid = counts(p, row);
    double grad = grad_of(p, row), scale = mean ? 1 / p->hits : 1, scale_z = mean ? 1 / p->rows : 1;
    double divided = mean ? online_factor((int64_t)p->rows) * U : 0;
    double g = grad * scale, k = g * (double)o->label_smoothing / (double)p->v;
    int64_t t = valid ? (int64_t)p->target.v[row] : -1;
    double b = valid ? g * (1 - (double)o->label_smoothing) * p->weights[t] : 0;
    number all = smooth_weight(p), a = {0, 0};
    double soft = valid && o->label_smoothing != 0 ? g * all.v : 0;
    double factor = valid && grad != 0 ? grad * scale_z * 2 * (double)o->z_loss : 0;
    double z = factor != 0 ? factor * r->lse.v : 0;
    a.v = b + soft + z;
    a.e = (fabs(b) + fabs(soft)) * (divided + 6 * U) + fabs(g) * all.e * (soft != 0) + fabs(z) * 5 * U +
          fabs(factor) * r->lse.e + 3 * U * (fabs(z) + fabs(a.v));
    k = valid ? k : 0;
    for (int64_t c = 0; c < p->v; c++) {
        if (a.v == 0 && b == 0 && k == 0) {
            logits[c] = (number){0, 0};
            continue;
        }
        number s = capped(p, logits[c]), by = slope(p, logits[c]), y;
        double d = s.v - r->max, q = exp(d) / r->sum, hit = c == t ? b : 0, w = k * p->weights[c];
        double eq = q * (expm1(s.e + r->moved) + 8 * U + 3 * U * fabs(d) + r->relative) + FLUSH;
        y.v = q * a.v - hit - w;
        y.e = eq * fabs(a.v) + (q + eq) * a.e + (divided + 6 * U) * (fabs(hit) + fabs(w)) + 3 * U * fabs(q * a.v) +
              2 * U * (fabs(y.v) + fabs(hit)) + FLUSH * (1 + fabs(a.v) + fabs(b));
        y.e = y.e * (by.v + by.e) + fabs(y.v) * by.e + U * fabs(y.v * by.v);
        y.v *= by.v;
        y.e += isfinite(y.v) ? half_ulp(p->x.t->type, fabs(y.v) + y.e) : 0;
        logits[c] = y;
    }
}

/* ---------------------------------------------------------------- sums over rows, over columns */

static void put_dx(const problem *p)
{
    for (int64_t r = 0; p->dx.v && r < p->m; r++)
        for (int64_t k = 0; k < p->h; k++) {
            sum s = {0};
            for (int64_t c = 0; c < p->v; c++)
                add_product(p, &s, p->logits[r * p->v + c], p->weight.v[c * p->h + k]);
            put(p->dx, r * p->h + k, sum_of(p, &s, p->v));
        }
}

static number held(const problem *p, suite_column out, int64_t i, number x)
{
    double before = p->args->accumulate ? out.v[i] : 0;
    x.e += (double)p->pieces * U * (fabs(x.v) + x.e + fabs(before));
    x.e += p->args->accumulate ? U * (fabs(x.v) + fabs(before)) : 0;
    x.v += before;
    return x;
}

static void put_dweight(const problem *p)
{
    for (int64_t c = 0; p->dweight.v && c < p->v; c++)
        for (int64_t k = 0; k < p->h; k++) {
            sum s = {0};
            for (int64_t r = 0; r < p->m; r++)
                add_product(p, &s, p->logits[r * p->v + c], p->x.v[r * p->h + k]);
            number x = sum_of(p, &s, p->m);
            x.e += (double)p->pieces * U * s.size; /* partial sums may be as large */
            put(p->dweight, c * p->h + k, held(p, p->dweight, c * p->h + k, x));
        }
}

static void put_dbias(const problem *p)
{
    for (int64_t c = 0; p->dbias.v && c < p->v; c++) {
        sum s = {0};
        for (int64_t r = 0; r < p->m; r++)
            add_product(p, &s, p->logits[r * p->v + c], 1);
        put(p->dbias, c, held(p, p->dbias, c, (number){s.v, s.e + s.size * U * sum_factor(p->m) + s.lost}));
    }
}

/* ---------------------------------------------------------------- the whole */

static problem problem_of(const suite_case *c, double *const *value, double *const *bound)
{
    problem p = {.args = (const saker_linear_cross_entropy_args *)c->args};
    suite_column *column[] = {&p.x,    &p.weight, &p.target, &p.bias,    &p.class_weight, &p.grad,
                              &p.loss, &p.lse,    &p.dx,     &p.dweight, &p.dbias};
    static const char *const name[] = {"x",    "weight", "target", "bias",    "class_weight", "grad",
                                       "loss", "lse",    "dx",     "dweight", "dbias"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        *column[i] = suite_column_of(c, value, bound, name[i]);
    p.m = suite_row_count(p.x.t);
    p.v = p.weight.t->shape[0];
    p.h = p.weight.t->shape[1];
    p.ignore = p.args->has_ignore_index ? (double)p.args->ignore_index : -100;
    p.halves = p.x.t->type == SAKER_BF16;
    p.tf32 = p.args->allow_tf32 && p.x.t->type == SAKER_F32;
    int64_t run = p.x.t->ndim > 1 ? p.x.t->shape[p.x.t->ndim - 2] : 1, chunk = p.args->chunk_rows;
    p.pieces = p.m && run ? p.m / run * (chunk ? run / chunk + 1 : 1) : 1;
    p.weights = suite_room(p.v, sizeof *p.weights);
    for (int64_t i = 0; i < p.v; i++)
        p.all += p.weights[i] = p.class_weight.v ? p.class_weight.v[i] : 1;
    for (int64_t r = 0; r < p.m; r++)
        if (counts(&p, r))
            p.rows++, p.hits += p.weights[(int64_t)p.target.v[r]];
    p.logits = suite_room(p.m * p.v, sizeof *p.logits);
    return p;
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    problem p = problem_of(c, value, bound);
    number entropy = {0, 0}, z = {0, 0}, one, more;
    double sizes = 0, z_sizes = 0;
    for (int64_t r = 0; r < p.m; r++) {
        number *logits = p.logits + r * p.v;
        for (int64_t j = 0; j < p.v; j++)
            logits[j] = logit(&p, r, j);
        row_sums s = sum_row(&p, logits);
        put(p.lse, r, s.lse);
        one = more = (number){0, 0};
        if (counts(&p, r))
            losses(&p, logits, &s, (int64_t)p.target.v[r], &one, &more);
        entropy.v += one.v, entropy.e += one.e, sizes += fabs(one.v);
        z.v += more.v, z.e += more.e, z_sizes += more.v;
        one.v += more.v;
        one.e += more.e + U * fabs(one.v);
        if (p.args->reduction == SAKER_REDUCE_NONE)
            put(p.loss, r, one);
        differentiate(&p, logits, &s, r);
    }
    const bool mean = p.args->reduction == SAKER_REDUCE_MEAN;
    double by = mean ? p.hits : 1, by_z = mean ? p.rows : 1, factor = (online_factor(p.m) + 4) * U;
    number total = {entropy.v / by, (entropy.e + sizes * 2 * factor) / by};
    if (p.args->z_loss != 0) {
        total.v += z.v / by_z;
        total.e += (z.e + z_sizes * factor) / by_z;
    }
    total.e += 2 * U * fabs(total.v);
    if (p.args->reduction != SAKER_REDUCE_NONE)
        put(p.loss, 0, total);
    put_dx(&p);
    put_dweight(&p);
    put_dbias(&p);
    free(p.weights);
    free(p.logits);
}

/* ---------------------------------------------------------------- one row alone */

static int64_t row_of(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    const saker_linear_cross_entropy_args *a = (const saker_linear_cross_entropy_args *)c->args;
    const suite_tensor *x = &c->tensor[0];
    int64_t m = suite_row_count(x), h = x->shape[x->ndim - 1];
    if (!one)
        return m;
    *one = *c;
    one->check = c->check == SAKER_OK ? SAKER_OK : SUITE_ANY_CHECK;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        bool wide = !strcmp(t->field, "x") || !strcmp(t->field, "dx");
        bool whole = !wide && strcmp(t->field, "target") && strcmp(t->field, "lse") && strcmp(t->field, "loss") &&
                     strcmp(t->field, "grad");
        slice->first[i] = 0;
        if (whole || (!wide && suite_elements(t) == 1 && m > 1)) {
            slice->first[i] = t->role == SUITE_IN ? 0 : -1;
            continue;
        }
        memset(t->stride, 0, sizeof t->stride);
        t->ndim = wide ? 2 : 1;
        t->shape[0] = 1;
        t->shape[1] = h;
        /* What a mean divides by is another for one row. */
        slice->first[i] = !strcmp(t->field, "dx") && a->reduction == SAKER_REDUCE_MEAN ? -1 : row * (wide ? h : 1);
    }
    return m;
}

/* Products of another size are other kernels on a GPU. */
static bool rows_vary(const suite_case *c)
{
    (void)c;
    return true;
}

const suite skr_suite_linear_cross_entropy = {.op = "linear_cross_entropy",
                                              .at = linear_cross_entropy_case,
                                              .oracle = oracle,
                                              .row = row_of,
                                              .cuda_rows_vary = rows_vary};
