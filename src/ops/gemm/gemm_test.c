/* gemm_test.c - oracle, bounds and row slices of gemm. Cases: gemm_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored; integers exactly. Bounds, with U = 2^-24:
 *   a sum of k products  SUM(k) * U * sum|products|, SUM(k) = 2 + sqrt(min(k, 4096)): a chain of k roundings errs by
 *                        sqrt(k) * U when they are independent, and no kernel makes a chain of more than 4096. For bf16
 *                        and fp8 twice that: BFMMLA and its like round sums of products to odd, by up to a whole ulp.
 *   subnormals           bf16 instructions take subnormal inputs and results as 0: such products may be missing, and
 *                        2^-126 for each sum. f32: 2^-149 for each product.
 *   tf32                 2^-10 of each product, where it is allowed: both factors are rounded to 11 bits.
 *   short sums           of fp8 products in Hopper's tensor cores, where such a kernel ran: short_error().
 *   scales, alpha        6 U of the sum's magnitude: operands or sums are scaled, each factor rounds once.
 *   beta * c + bias      4 U of each magnitude, of the sum too.
 *   activations          the interval of v's bound carried through; 16 U of max(|x|, |result|) for the function itself
 *                        (2 or 3 ulp each, and 1 + erf or 1 + tanh lose digits for negative x).
 *   the output           half an ulp of its type. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "gemm_test.h"

/* ---------------------------------------------------------------- words of the cases' names */

const char *gemm_act_text(int act)
{
    static const char *const text[] = {"", " sigmoid", " tanh", " silu", " gelu", " gelut", " relu", " relu2", " oai"};
    return text[act];
}

const char *gemm_scaling_text(int scaling)
{
    static const char *const text[] = {"", " tensor", " rowcol", " block", " group"};
    return text[scaling];
}

const char *gemm_gated_text(int gated)
{
    static const char *const text[] = {"", " halves", " pairs"};
    return text[gated];
}

/* ---------------------------------------------------------------- tensors of a case */

/* Where the matrix of batch index z begins: leading dimensions are broadcast to those of d. tail: the matrix's own. */
static int64_t batch_start(suite_column x, const suite_tensor *d, int64_t z, int tail)
{
    int lead = x.t->ndim - tail, n = d->ndim - 2;
    int64_t each = 1, at = 0, size = 1;
    for (int i = lead; i < x.t->ndim; i++)
        each *= x.t->shape[i];
    for (int i = n - 1; i >= 0; i--) {
        int64_t index = z % d->shape[i];
        int own = i - (n - lead);
        z /= d->shape[i];
        if (own < 0)
            continue;
        at += (x.t->shape[own] == 1 ? 0 : index) * size;
        size *= x.t->shape[own];
    }
    return at * each;
}

/* ---------------------------------------------------------------- activations */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double act_of(int act, double x)
{
    switch (act) {
    case SAKER_ACT_SIGMOID:
        return sigmoid(x);
    case SAKER_ACT_TANH:
        return tanh(x);
    case SAKER_ACT_SILU:
        return x * sigmoid(x);
    case SAKER_ACT_GELU:
        return x * erfc(-x / sqrt(2)) / 2;
    case SAKER_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case SAKER_ACT_RELU:
        return x > 0 || isnan(x) ? x : 0;
    case SAKER_ACT_RELU2:
        return x > 0 || isnan(x) ? x * x : 0;
    default:
        return x;
    }
}

static double slope_of(int act, double x)
{
    double s = sigmoid(x), t;
    switch (act) {
    case SAKER_ACT_SIGMOID:
        return s * (1 - s);
    case SAKER_ACT_TANH:
        return 1 - tanh(x) * tanh(x);
    case SAKER_ACT_SILU:
        return s * (1 + x * (1 - s));
    case SAKER_ACT_GELU:
        return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case SAKER_ACT_GELU_TANH:
        t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
        return (1 + t) / 2 + x / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    case SAKER_ACT_RELU:
        return x > 0 ? 1 : isnan(x) ? x : 0;
    case SAKER_ACT_RELU2:
        return x > 0 || isnan(x) ? 2 * x : 0;
    default:
        return 1;
    }
}

static double gated_of(int act, double gate, double up)
{
    if (act != SAKER_ACT_SWIGLU_OAI)
        return act_of(act, gate) * up;
    double g = fmin(gate, 7), u = fmax(fmin(up, 7), -7);
    return isnan(gate) || isnan(up) ? NAN : g * sigmoid(1.702 * g) * (u + 1);
}

/* A value and how far a kernel's may be off. */
typedef struct near {
    double v, error;
} near;

static near act_near(int act, near x)
{
    double f = act_of(act, x.v);
    double spread = fmax(fabs(act_of(act, x.v + x.error) - f), fabs(act_of(act, x.v - x.error) - f));
    double own = act == SAKER_ACT_NONE || act == SAKER_ACT_RELU ? 0 : 16 * U * fmax(fabs(f), fabs(x.v));
    return (near){f, spread + own};
}

static near gated_near(int act, near g, near u)
{
    double f = gated_of(act, g.v, u.v), spread = 0;
    for (int k = 0; k < 4; k++) {
        double other = gated_of(act, g.v + (k & 1 ? g.error : -g.error), u.v + (k & 2 ? u.error : -u.error));
        spread = fmax(spread, fabs(other - f));
    }
    return (near){f, spread + 16 * U * fmax(fabs(f), fabs(g.v) * (fabs(u.v) + 1))};
}

static near slope_near(int act, near x, double saved)
{
    double s = slope_of(act, saved);
    double own = act == SAKER_ACT_NONE || act == SAKER_ACT_RELU ? 0 : 24 * U * (1 + fabs(s));
    return (near){x.v * s, x.error * fabs(s) + fabs(x.v) * own + U * fabs(x.v * s)};
}

/* ---------------------------------------------------------------- the product */

static gemm_product product_of(const suite_case *c, double *const *value, double *const *bound)
{
    gemm_product p = {.args = (const saker_gemm_args *)c->args, .ran = c->ran};
    p.a = suite_column_of(c, value, bound, "a");
    p.b = suite_column_of(c, value, bound, "b");
    p.c = suite_column_of(c, value, bound, "c");
    p.bias = suite_column_of(c, value, bound, "bias");
    p.a_scale = suite_column_of(c, value, bound, "a_scale");
    p.b_scale = suite_column_of(c, value, bound, "b_scale");
    p.b_zero = suite_column_of(c, value, bound, "b_zero");
    p.saved = suite_column_of(c, value, bound, "saved");
    p.d = suite_column_of(c, value, bound, "d");
    p.pre = suite_column_of(c, value, bound, "pre");
    p.dbias = suite_column_of(c, value, bound, "dbias");
    p.m = p.a.t->shape[p.a.t->ndim - 2];
    p.k = p.a.t->shape[p.a.t->ndim - 1];
    p.n = p.b.t->shape[p.b.t->ndim - 1];
    return p;
}

static double a_factor(const gemm_product *p, int64_t z, int64_t m, int64_t k)
{
    if (!p->a_scale.t)
        return 1;
    switch (p->args->scaling) {
    case SAKER_GEMM_SCALE_TENSOR:
        return p->a_scale.v[0];
    case SAKER_GEMM_SCALE_BLOCK:
        return p->a_scale.v[batch_start(p->a_scale, p->d.t, z, 2) + m * ((p->k + 127) / 128) + k / 128];
    default:
        return p->a_scale.v[batch_start(p->a_scale, p->d.t, z, 1) + m];
    }
}

static double b_factor(const gemm_product *p, int64_t z, int64_t k, int64_t n)
{
    if (!p->b_scale.t)
        return 1;
    switch (p->args->scaling) {
    case SAKER_GEMM_SCALE_TENSOR:
        return p->b_scale.v[0];
    case SAKER_GEMM_SCALE_ROW_COLUMN:
        return p->b_scale.v[batch_start(p->b_scale, p->d.t, z, 1) + n];
    case SAKER_GEMM_SCALE_BLOCK:
        return p->b_scale.v[batch_start(p->b_scale, p->d.t, z, 2) + k / 128 * ((p->n + 127) / 128) + n / 128];
    default:
        return p->b_scale.v[batch_start(p->b_scale, p->d.t, z, 2) + k / p->args->group * p->n + n];
    }
}

static double zero_point(const gemm_product *p, int64_t z, int64_t k, int64_t n)
{
    return p->b_zero.t ? p->b_zero.v[batch_start(p->b_zero, p->d.t, z, 2) + k / p->args->group * p->n + n] : 0;
}

static bool in_bf16(saker_type type)
{
    return type == SAKER_BF16 || type == SAKER_E4M3 || type == SAKER_E5M2;
}

/* The exponent that a tensor core goes by: that of subnormals is the least. */
static int exponent_of(saker_type type, double x)
{
    int least = type == SAKER_E4M3 ? -6 : -14, e = x == 0 ? least : ilogb(x);
    return e > least ? e : least;
}

/* How far Hopper's tensor cores may be off, by docs/NUMERICS.md: a and b are this element's row and column. An
 * instruction adds 32 products to a sum of its own, which begins anew after 128 k's, or never where that is allowed. */
static double short_error(const gemm_product *p, const double *a, const double *b, int64_t z, int64_t m, int64_t n)
{
    bool fast = strstr(p->ran, "_fast") != NULL;
    double error = 0, size = 0, scale = 1;
    for (int64_t first = 0; first < p->k; first += 32) {
        int64_t end = first + 32 < p->k ? first + 32 : p->k;
        if (first == 0 || (!fast && first % 128 == 0)) {
            scale = p->args->scaling ? fabs(a_factor(p, z, m, first) * b_factor(p, z, first, n)) : 1;
            size = 0;
        }
        int top = size > 0 ? ilogb(size) : INT_MIN;
        for (int64_t k = first; k < end; k++) {
            double x = a[k], y = b[k * p->n];
            if (!isfinite(x * y)) /* so is the sum, exactly */
                return 0;
            int e = exponent_of(p->a.t->type, x) + exponent_of(p->b.t->type, y);
            top = x * y != 0 && e > top ? e : top;
        }
        if (top == INT_MIN)
            continue;
        double cut = ldexp(1, top - 13), lost = fmin(size, cut);
        for (int64_t k = first; k < end; k++) {
            double product = fabs(a[k] * b[k * p->n]);
            lost += fmin(product, cut);
            size += product;
        }
        error += scale * (lost + size * 0x1p-13);
    }
    return error;
}

/* v of one element. */
static near value_at(const gemm_product *p, int64_t z, int64_t m, int64_t n)
{
    const double *a = p->a.v + batch_start(p->a, p->d.t, z, 2) + m * p->k;
    const double *b = p->b.v + batch_start(p->b, p->d.t, z, 2) + n;
    double sum = 0, size = 0, lost = 0, largest = 0, alpha = p->args->alpha != 0 ? p->args->alpha : 1;
    bool halves = in_bf16(p->a.t->type), scaled = p->args->scaling != 0;
    double sa = 1, sb = 1, zero = 0;
    for (int64_t k = 0; k < p->k; k++) {
        if (scaled && (k == 0 || p->args->scaling >= SAKER_GEMM_SCALE_BLOCK)) {
            sa = a_factor(p, z, m, k);
            sb = b_factor(p, z, k, n);
            zero = zero_point(p, z, k, n);
        }
        double x = a[k], y = b[k * p->n] - zero, w = x * y * sa * sb;
        sum += w;
        size += fabs(w);
        largest = fmax(largest, fabs(sa * sb));
        if (halves && (fabs(x) < 0x1p-126 || fabs(y) < 0x1p-126))
            lost += fabs(w);
    }
    double factor = (2 + sqrt((double)(p->k < 4096 ? p->k : 4096))) * (halves ? 2 : 1);
    double v = alpha * sum, error = fabs(alpha) * size * U * (factor + 6) + fabs(alpha) * lost;
    error += fabs(alpha) * largest * (double)p->k * (halves ? 0x1p-126 : 0x1p-149) + 0x1p-149;
    if (p->args->allow_tf32 && p->a.t->type == SAKER_F32)
        error += fabs(alpha) * size * 0x1p-10;
    if (p->ran)
        error += fabs(alpha) * short_error(p, a, b, z, m, n);
    double parts = fabs(v);
    if (p->args->beta != 0) {
        double c = p->args->beta * p->c.v[batch_start(p->c, p->d.t, z, 2) + m * p->n + n];
        v += c;
        parts += fabs(c);
    }
    if (p->bias.t) {
        double bias = p->bias.v[p->args->bias_rows ? m : n];
        v += bias;
        parts += fabs(bias);
    }
    return (near){v, error + 4 * U * parts};
}

/* Exactly, modulo 2^32. */
static double exact_at(const gemm_product *p, int64_t z, int64_t m, int64_t n)
{
    const double *a = p->a.v + batch_start(p->a, p->d.t, z, 2) + m * p->k;
    const double *b = p->b.v + batch_start(p->b, p->d.t, z, 2) + n;
    uint32_t sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += (uint32_t)(int32_t)a[k] * (uint32_t)(int32_t)b[k * p->n];
    if (p->args->beta != 0)
        sum += (uint32_t)(int32_t)p->c.v[batch_start(p->c, p->d.t, z, 2) + m * p->n + n];
    if (p->bias.t)
        sum += (uint32_t)(int32_t)p->bias.v[p->args->bias_rows ? m : n];
    return (int32_t)sum;
}

static void put(suite_column c, int64_t i, near x)
{
    c.v[i] = x.v;
    c.bound[i] = x.error + half_ulp(c.t->type, x.v);
}

static void exact_row(const gemm_product *p, int64_t z, int64_t m)
{
    for (int64_t n = 0; n < p->n; n++) {
        int64_t at = (z * p->m + m) * p->n + n;
        near x = {exact_at(p, z, m, n), 0};
        put(p->d, at, x);
        if (p->pre.t)
            put(p->pre, at, x);
    }
}

static void float_row(const gemm_product *p, int64_t z, int64_t m, near *row, near *sums)
{
    const saker_gemm_args *args = p->args;
    int64_t at = (z * p->m + m) * p->n, half = p->n / 2;
    for (int64_t n = 0; n < p->n; n++) {
        row[n] = value_at(p, z, m, n);
        if (p->pre.t)
            put(p->pre, at + n, row[n]);
    }
    for (int64_t j = 0; args->gated && j < half; j++) {
        bool halves = args->gated == SAKER_GATED_HALVES;
        near g = row[halves ? j : 2 * j], u = row[halves ? j + half : 2 * j + 1];
        put(p->d, at / 2 + j, gated_near(args->act, g, u));
    }
    for (int64_t n = 0; !args->gated && n < p->n; n++) {
        near x = p->saved.t
                     ? slope_near(args->act, row[n], p->saved.v[batch_start(p->saved, p->d.t, z, 2) + m * p->n + n])
                     : act_near(args->act, row[n]);
        put(p->d, at + n, x);
        sums[n].v += x.v;
        sums[n].error += x.error + 24 * U * fabs(x.v); /* chains of at most 128 rows, then double */
    }
}

void gemm_product_oracle(const gemm_product *p)
{
    int64_t batches = 1;
    for (int i = 0; i < p->d.t->ndim - 2; i++)
        batches *= p->d.t->shape[i];
    near *row = suite_room(p->n, sizeof *row), *sums = suite_room(p->n, sizeof *sums);
    for (int64_t z = 0; z < batches; z++)
        for (int64_t m = 0; m < p->m; m++) {
            if (p->d.t->type == SAKER_I32)
                exact_row(p, z, m);
            else
                float_row(p, z, m, row, sums);
        }
    for (int64_t n = 0; p->dbias.t && n < p->n; n++) {
        if (p->args->accumulate) {
            sums[n].error += U * (fabs(sums[n].v) + fabs(p->dbias.v[n]));
            sums[n].v += p->dbias.v[n];
        }
        put(p->dbias, n, sums[n]);
    }
    free(row);
    free(sums);
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    gemm_product p = product_of(c, value, bound);
    gemm_product_oracle(&p);
}

/* ---------------------------------------------------------------- one row alone */

/* Tensors that have a row for each row of a. */
static bool by_row(const suite_case *c, const char *field)
{
    const saker_gemm_args *args = (const saker_gemm_args *)c->args;
    if (!strcmp(field, "a_scale"))
        return args->scaling != SAKER_GEMM_SCALE_TENSOR;
    if (!strcmp(field, "bias"))
        return args->bias_rows;
    return !strcmp(field, "a") || !strcmp(field, "c") || !strcmp(field, "d") || !strcmp(field, "pre") ||
           !strcmp(field, "saved");
}

static int64_t row_of(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    int64_t rows = 0;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        if (!strcmp(t->field, "dbias") || t->ndim > 2)
            return 0;
        rows = !strcmp(t->field, "d") ? t->shape[0] : rows;
    }
    if (!one)
        return rows;
    *one = *c;
    one->bytes = c->bytes / (double)rows;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        bool alone = by_row(c, t->field);
        slice->first[i] = alone ? row * (t->ndim == 2 ? t->shape[1] : 1) : 0;
        if (alone) {
            t->shape[0] = 1;
            memset(t->stride, 0, sizeof t->stride);
        }
    }
    return rows;
}

static bool rows_vary(const suite_case *c)
{
    (void)c;
    return true;
}

const suite skr_suite_gemm = {.op = "gemm",
                              .at = gemm_case_at,
                              .oracle = oracle,
                              .row = row_of,
                              .cuda_rows_vary = rows_vary,
                              .inexact = GEMM_SHORT_SUMS};
