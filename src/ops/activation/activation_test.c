/* activation_test.c - oracle, bounds and row slices of activation and activation_backward. Cases:
 * activation_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is in double from the inputs as stored; x + bias is one f32 addition and is rounded as such.
 *
 * Bounds, with U = 2^-24. Each function is known up to `error`, what its terms may be off by, added in magnitude:
 *   e^z, s(z), erf, tanh     6 U of the result: 2 to 3 ulp of the function, one or two roundings around it
 *   an argument that was itself computed (2u of gelu_tanh, alpha g, x^2 / 2): it is off by at most 4 U of itself, which
 *                            an exponential turns into that relative error of its value
 *   each product or sum      one U of its result
 *   the output               half an ulp of its type
 *   underflow                DENORM for what may fall below f32's normal range, times what it is multiplied by. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "../../../tests/suite_list.h"
#include "../../../tests/suite_quant.h"
#include "activation_test.h"

/* ---------------------------------------------------------------- the functions */

/* A number and how far a kernel may be from it. */
typedef struct near {
    double v, error;
} near;

typedef struct curve {
    near value, slope;
} curve;

/* s(z), and s(z) (1 - s(z)) without cancellation. */
static double sigmoid(double z, double *product)
{
    double e = exp(-fabs(z)), r = 1 / (1 + e);
    *product = e * r * r;
    return z < 0 ? e * r : r;
}

/* x s(z) with z = z(x), z' = dz: off is the relative error of z. */
static curve times_sigmoid(double x, double z, double dz, double off)
{
    double p, s = sigmoid(z, &p), q = sigmoid(-z, &p);
    double relative = (8 + off * fabs(z) * q) * U;
    curve c = {.value = {x * s, fabs(x * s) * relative + DENORM * (1 + fabs(x))}};
    double term = x * p;
    term = term == 0 ? 0 : term * dz; /* dz may be beyond double only where p is 0 */
    c.slope.v = s + (isnan(x * p) ? NAN : term);
    c.slope.error = s * relative + fabs(term) * (14 + 2 * off * fabs(z)) * U + DENORM * (1 + fabs(x)) * (1 + fabs(dz));
    return c;
}

static curve function(int act, double x, double alpha)
{
    curve c = {{x, 0}, {1, 0}};
    double p, s;
    switch (act) {
    case SAKER_ACT_SIGMOID:
        s = sigmoid(x, &p);
        return (curve){{s, 6 * U * s + DENORM}, {p, 10 * U * p + DENORM}};
    case SAKER_ACT_TANH:
        sigmoid(2 * x, &p);
        return (curve){{tanh(x), 6 * U * fabs(tanh(x)) + DENORM}, {4 * p, 40 * U * p + 4 * DENORM}};
    case SAKER_ACT_SILU:
        return times_sigmoid(x, x, 1, 0);
    case SAKER_ACT_GELU: {
        double cumulative = (1 + erf(x / sqrt(2))) / 2, pdf = exp(-x * x / 2) / sqrt(2 * M_PI);
        double sum = (1 + erf(fabs(x) / sqrt(2))) / 2;
        c.value = (near){x * cumulative, fabs(x) * sum * 6 * U + DENORM};
        c.slope = (near){cumulative + x * pdf,
                         sum * 6 * U + fabs(x * pdf) * (10 + 4 * x * x / 2) * U + DENORM * (1 + fabs(x))};
        if (isinf(x * x)) /* the bound's own terms overflow, where the density is 0 */
            c.slope.error = sum * 6 * U;
        return c;
    }
    case SAKER_ACT_GELU_TANH: {
        double k = 2 * sqrt(2 / M_PI), z = x * (k + k * 0.044715 * x * x), dz = k + 3 * k * 0.044715 * x * x;
        return times_sigmoid(x, z, dz, 4);
    }
    case SAKER_ACT_RELU:
        return (curve){{x > 0 ? x : x <= 0 ? 0 : NAN, 0}, {x > 0 ? 1 : x <= 0 ? 0 : NAN, 0}};
    case SAKER_ACT_RELU2:
        x = x > 0 ? x : x <= 0 ? 0 : NAN;
        return (curve){{x * x, x * x * U + DENORM}, {2 * x, 0}};
    case SAKER_ACT_SWIGLU_OAI:
        return times_sigmoid(x, alpha * x, alpha, 2);
    default:
        return c;
    }
}

/* ---------------------------------------------------------------- one element of a case */

typedef struct layout {
    const suite_case *c;
    double *const *value;
    int x, up, bias;
    int64_t m, n;
    int act, gated;
    double alpha, limit;
} layout;

static layout layout_of(const suite_case *c, double *const *value, int act, int gated, float alpha, float limit)
{
    layout l = {.c = c, .value = value, .act = act, .gated = gated};
    l.x = suite_index(c, "x");
    l.up = suite_index(c, "up");
    l.bias = suite_index(c, "bias");
    const suite_tensor *x = &c->tensor[l.x];
    l.m = suite_row_count(x);
    l.n = x->shape[x->ndim - 1] / (gated ? 2 : 1);
    l.alpha = alpha == 0 ? (double)1.702f : (double)alpha;
    l.limit = limit == 0 ? 7 : (double)limit;
    return l;
}

static bool is_gated(const layout *l)
{
    return l->gated || l->up >= 0;
}

/* Places of (row, column) in x; of up in its tensor or in x; of either in a row of [2N]. */
static int64_t gate_at(const layout *l, int64_t r, int64_t j)
{
    return l->gated == SAKER_GATED_HALVES        ? r * 2 * l->n + j
           : l->gated == SAKER_GATED_INTERLEAVED ? (r * l->n + j) * 2
                                                 : r * l->n + j;
}

static int64_t up_at(const layout *l, int64_t r, int64_t j)
{
    return l->up >= 0 ? r * l->n + j : gate_at(l, r, j) + (l->gated == SAKER_GATED_HALVES ? l->n : 1);
}

static int64_t column_of(const layout *l, int64_t j, bool up)
{
    return l->gated == SAKER_GATED_INTERLEAVED ? 2 * j + up : j + (up ? l->n : 0);
}

static double add_bias(const layout *l, double v, int64_t j, bool up)
{
    return l->bias < 0 ? v : (double)(float)(v + l->value[l->bias][column_of(l, j, up)]);
}

typedef struct element {
    double g, u;         /* as the function sees them */
    curve f;             /* of g */
    bool keep_g, keep_u; /* the clamps pass gradients */
} element;

static element element_of(const layout *l, int64_t r, int64_t j)
{
    element e = {.u = 1, .keep_g = true, .keep_u = true};
    e.g = add_bias(l, l->value[l->x][gate_at(l, r, j)], j, false);
    if (is_gated(l))
        e.u = add_bias(l, l->value[l->up >= 0 ? l->up : l->x][up_at(l, r, j)], j, true);
    if (l->act == SAKER_ACT_SWIGLU_OAI) {
        e.keep_g = !(e.g > l->limit);
        e.keep_u = !(fabs(e.u) > l->limit);
        e.g = e.keep_g ? e.g : l->limit;
        e.u = (e.keep_u ? e.u : copysign(l->limit, e.u)) + 1;
    }
    e.f = function(l->act, e.g, l->alpha);
    return e;
}

/* ---------------------------------------------------------------- forward */

static near value_at(const layout *l, int64_t r, int64_t j)
{
    element e = element_of(l, r, j);
    near y = e.f.value;
    if (!is_gated(l))
        return y;
    return (near){y.v * e.u, y.error * fabs(e.u) + 2 * U * fabs(y.v * e.u) + DENORM};
}

static void forward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_activation_args a;
    memcpy(&a, c->args, sizeof a);
    layout l = layout_of(c, value, a.act, a.gated, a.alpha, a.limit);
    int y = suite_index(c, "y"), q = suite_index(c, "y_quant"), scale = suite_index(c, "y_scale");
    suite_interval *row = malloc((size_t)l.n * sizeof *row + 1);
    int64_t group = a.quant == SAKER_QUANT_BLOCK ? 128 : l.n;
    for (int64_t r = 0; r < l.m && l.n == 0 && a.quant == SAKER_QUANT_ROW; r++) /* of nothing: 1 */
        value[scale][r] = 1, bound[scale][r] = 0;
    for (int64_t r = 0; r < l.m && l.n > 0; r++) {
        for (int64_t j = 0; j < l.n; j++) {
            near v = value_at(&l, r, j);
            row[j] = (suite_interval){v.v - v.error, v.v + v.error};
            if (isinf(v.v))
                row[j] = (suite_interval){v.v, v.v};
            if (y < 0)
                continue;
            saker_type type = c->tensor[y].type;
            value[y][r * l.n + j] = v.v;
            bound[y][r * l.n + j] = v.error + half_ulp(type, fabs(v.v) + v.error);
            row[j] = (suite_interval){round_to(type, row[j].lo), round_to(type, row[j].hi)};
        }
        for (int64_t i = 0, k = 0; q >= 0 && i < l.n; i += group, k++) {
            int64_t end = i + group < l.n ? i + group : l.n, groups = (l.n + group - 1) / group;
            suite_interval s = {value[scale][0], value[scale][0]};
            if (a.quant != SAKER_QUANT_TENSOR) {
                s = suite_scale(c->tensor[q].type, row + i, end - i);
                value[scale][r * groups + k] = (s.lo + s.hi) / 2;
                bound[scale][r * groups + k] = suite_scale_bound(s);
            }
            for (int64_t j = i; j < end; j++)
                suite_code(c->tensor[q].type, row[j], s, &value[q][r * l.n + j], &bound[q][r * l.n + j]);
        }
    }
    free(row);
}

/* ---------------------------------------------------------------- backward */

static void put(const suite_case *c, double *const *value, double *const *bound, int i, int64_t at, near v)
{
    if (i < 0)
        return;
    value[i][at] = v.v;
    bound[i][at] = v.error + half_ulp(c->tensor[i].type, fabs(v.v) + v.error);
}

static void backward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_activation_backward_args a;
    memcpy(&a, c->args, sizeof a);
    layout l = layout_of(c, value, a.act, a.gated, a.alpha, a.limit);
    int dy = suite_index(c, "dy"), dx = suite_index(c, "dx"), dup = suite_index(c, "dup");
    int db = suite_index(c, "dbias");
    int64_t columns = is_gated(&l) ? 2 * l.n : l.n;
    double rows = sum_factor(l.m);
    near *sum = calloc((size_t)columns + 1, sizeof *sum);
    for (int64_t r = 0; r < l.m; r++)
        for (int64_t j = 0; j < l.n; j++) {
            element e = element_of(&l, r, j);
            double d = value[dy][r * l.n + j], size = DENORM * (1 + fabs(d));
            near g = {d * (e.u * e.f.slope.v), 0}, u = {d * e.f.value.v, 0};
            g.error = fabs(d * e.u) * e.f.slope.error + 3 * U * fabs(g.v) + size * (1 + fabs(e.u));
            u.error = fabs(d) * e.f.value.error + U * fabs(u.v) + size;
            g = e.keep_g ? g : (near){0, 0};
            u = e.keep_u ? u : (near){0, 0};
            put(c, value, bound, dx, gate_at(&l, r, j), g);
            near both[2] = {g, u};
            for (int k = 0; k < (is_gated(&l) ? 2 : 1); k++) {
                near *s = &sum[column_of(&l, j, k)];
                s->v += both[k].v;
                s->error += both[k].error + fabs(both[k].v) * rows * U;
            }
            if (is_gated(&l))
                put(c, value, bound, l.gated ? dx : dup, up_at(&l, r, j), u);
        }
    for (int64_t k = 0; db >= 0 && k < columns; k++) {
        double held = a.accumulate ? value[db][k] : 0;
        put(c, value, bound, db, k, (near){sum[k].v + held, sum[k].error + U * fabs(held) + U * fabs(sum[k].v)});
    }
    free(sum);
}

/* ---------------------------------------------------------------- one row alone */

static int64_t one_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    const suite_tensor *x = &c->tensor[suite_index(c, "x")];
    int64_t m = suite_row_count(x);
    if (!one)
        return m;
    saker_activation_args a;
    memcpy(&a, c->args, sizeof a);
    *one = *c;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        memset(t->stride, 0, sizeof t->stride);
        if (!strcmp(t->field, "bias") || !strcmp(t->field, "dbias")) {
            slice->first[i] = t->role == SUITE_IN ? 0 : -1;
        } else if (!strcmp(t->field, "y_scale") && t->role == SUITE_IN) {
            slice->first[i] = 0; /* the one given scale */
        } else {
            int64_t columns = suite_elements(&c->tensor[i]) / m;
            slice->first[i] = row * columns;
            t->ndim = !strcmp(t->field, "y_scale") && a.quant == SAKER_QUANT_ROW ? 1 : 2;
            t->shape[0] = 1;
            t->shape[1] = columns;
        }
    }
    return m;
}

const suite skr_suite_activation = {
    .op = "activation", .at = activation_case, .oracle = forward_oracle, .row = one_row};
const suite skr_suite_activation_backward = {
    .op = "activation_backward", .at = activation_backward_case, .oracle = backward_oracle, .row = one_row};
