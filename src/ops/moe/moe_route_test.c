/* moe_route_test.c - oracle of moe_route and moe_route_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whom a token goes to is exact where the logits alone decide. Elsewhere scores are rounded before they are compared: a
 * row in which two experts or groups are closer than that, without being equal, is not judged, and with it not what
 * comes of all rows. */
#include "moe_route_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"

static int64_t width_of(const suite_tensor *t)
{
    return t->shape[t->ndim - 1];
}

static double scale_of(float scale)
{
    return scale == 0 ? 1 : (double)scale;
}

/* ---------------------------------------------------------------- scores */

/* Softmax of n logits. error: differences to the largest and sums are rounded, exponentials are off by some units. */
static void softmax(const double *x, double *p, double *error, int64_t n)
{
    double top = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        nan |= isnan(x[i]) || x[i] == INFINITY;
        top = x[i] > top ? x[i] : top;
    }
    for (int64_t i = 0; i < n; i++)
        sum += p[i] = nan ? NAN : top == -INFINITY ? 0 : exp(x[i] - top);
    for (int64_t i = 0; i < n; i++) {
        p[i] = sum == 0 ? 0 : p[i] / sum;
        error[i] = (20 + fmin(fabs(x[i] - top), 120) + sum_factor(n)) * U * p[i] + 2 * DENORM;
    }
}

static void sigmoid(const double *x, double *p, double *error, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        p[i] = x[i] < 0 ? exp(x[i]) / (1 + exp(x[i])) : 1 / (1 + exp(-x[i]));
        error[i] = 12 * U * p[i] + 2 * DENORM;
    }
}

/* p / sum(p): errors of p pass on; where the sum is 0 so is the result. */
static void shares(double *p, double *error, int64_t n)
{
    double sum = 0, error_sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += p[i];
        error_sum += error[i];
    }
    for (int64_t i = 0; i < n && sum != 0; i++) {
        double share = p[i] / sum;
        error[i] = error[i] / sum + share * (error_sum / sum + (4 + sum_factor(n)) * U) + DENORM;
        p[i] = share;
    }
}

/* ---------------------------------------------------------------- the choice */

/* Something to be chosen: a value, how far off it may be, and what it was made of, by which it is known to be equal to
 * another. */
typedef struct item {
    double value, error, from[4];
    int64_t index;
} item;

static int by_value(const void *a, const void *b)
{
    const item *x = a, *y = b;
    bool nan_x = isnan(x->value), nan_y = isnan(y->value);
    if (nan_x != nan_y)
        return nan_x ? -1 : 1;
    if (!nan_x && x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static bool same(const item *x, const item *y)
{
    for (int i = 0; i < 4; i++)
        if (x->from[i] != y->from[i] && !(isnan(x->from[i]) && isnan(y->from[i])))
            return false;
    return true;
}

/* Sorts n items; false: which the first k are, or their order (of groups it does not matter), cannot be told. */
static bool sort(item *a, int64_t n, int64_t k, bool ordered)
{
    qsort(a, (size_t)n, sizeof *a, by_value);
    for (int64_t i = 0; i + 1 < n && i < k; i++) {
        item *x = a + i, *y = a + i + 1;
        if (!ordered && i + 1 < k)
            continue;
        if (!same(x, y) && x->value - y->value <= x->error + y->error)
            return false;
    }
    return true;
}

typedef struct row_data {
    const saker_moe_route_args *a;
    const double *x, *bias; /* bias may be NULL */
    int64_t n, k;
    double *score, *score_error; /* [n] */
    item *expert, *group;        /* [n]; expert: sorted, the first k are chosen */
} row_data;

static item item_of(const row_data *r, int64_t e, bool scored)
{
    item i = {.value = r->x[e], .from = {r->x[e]}, .index = e};
    if (scored) {
        i.value = r->score[e];
        i.error = r->score_error[e];
    }
    if (r->bias) {
        i.value += r->bias[e];
        i.error += U * fabs(i.value) + DENORM;
        i.from[1] = r->bias[e];
    }
    return i;
}

/* The sum of two items, as the kernel forms it; their errors do not matter where their order is that of the logits. */
static item sum_of(const item *x, const item *y)
{
    item i = {.value = x->value + y->value, .from = {x->from[0], x->from[1], y->from[0], y->from[1]}};
    i.error = x->error + y->error + U * fabs(i.value);
    return i;
}

static bool choose(row_data *r)
{
    const saker_moe_route_args *a = r->a;
    int64_t groups = a->n_groups, per = groups ? r->n / groups : 0, left = 0;
    bool certain = true, top2 = a->group_score == SAKER_MOE_GROUP_TOP2;
    for (int64_t g = 0; g < groups; g++) {
        item *in = r->expert;
        for (int64_t i = 0; i < per; i++)
            in[i] = item_of(r, g * per + i, r->bias || top2);
        /* Which two are the largest need not be certain: their sum then is, to the same error. */
        sort(in, per, 2, true);
        r->group[g] = top2 && per > 1 ? sum_of(in, in + 1) : in[0];
        r->group[g].index = g;
    }
    if (groups)
        certain &= sort(r->group, groups, a->top_groups, false);
    for (int64_t e = 0; e < r->n; e++) {
        bool chosen = !groups;
        for (int64_t g = 0; g < groups && g < a->top_groups; g++)
            chosen |= r->group[g].index == e / per;
        if (chosen)
            r->expert[left++] = item_of(r, e, r->bias != NULL);
    }
    return certain & sort(r->expert, left, r->k, true);
}

/* ---------------------------------------------------------------- forward */

static void weigh(const row_data *r, saker_type type, double *w, double *bound)
{
    const saker_moe_route_args *a = r->a;
    bool softmax_of_chosen = a->score == SAKER_MOE_SOFTMAX && a->renormalise;
    double scale = scale_of(a->scale), *x = suite_room(r->k, sizeof *x);
    for (int64_t j = 0; j < r->k; j++) {
        int64_t e = r->expert[j].index;
        x[j] = r->x[e];
        w[j] = r->score[e];
        bound[j] = r->score_error[e];
    }
    if (softmax_of_chosen)
        softmax(x, w, bound, r->k);
    else if (a->renormalise)
        shares(w, bound, r->k);
    for (int64_t j = 0; j < r->k; j++) {
        bool lost = softmax_of_chosen && isnan(r->score[0]);
        w[j] = lost ? NAN : w[j] * scale;
        bound[j] = bound[j] * fabs(scale) + 2 * U * fabs(w[j]) + DENORM;
        bound[j] += half_ulp(type, fabs(w[j]) + bound[j]);
    }
    free(x);
}

/* What the sorted rows say: values of counts, offsets, order, place and token, as far as they are there. */
static void sort_rows(const suite_case *c, double *const *value, double *const *bound, const double *ids, int64_t n,
                      int64_t k, bool certain)
{
    static const char *const names[] = {"counts", "offsets", "order", "place", "token"};
    suite_column out[5];
    int64_t all = suite_elements(&c->tensor[suite_index(c, "ids")]), at = 0;
    for (int i = 0; i < 5; i++) {
        out[i] = suite_column_of(c, value, bound, names[i]);
        for (int64_t o = 0; out[i].v && o < suite_elements(out[i].t); o++) {
            out[i].v[o] = 0;
            out[i].bound[o] = certain ? 0 : INFINITY;
        }
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t first = at;
        for (int64_t i = 0; i < all; i++) {
            if (ids[i] != (double)e)
                continue;
            if (out[2].v)
                out[2].v[at] = (double)i;
            if (out[3].v)
                out[3].v[i] = (double)at;
            if (out[4].v)
                out[4].v[at] = (double)(i / k);
            at++;
        }
        if (out[0].v)
            out[0].v[e] = (double)(at - first);
        if (out[1].v)
            out[1].v[e + 1] = (double)at;
    }
}

void moe_route_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_moe_route_args a;
    memcpy(&a, c->args, sizeof a);
    int I = suite_index(c, "ids"), W = suite_index(c, "weights"), B = suite_index(c, "bias");
    row_data r = {.a = &a, .n = width_of(&c->tensor[0]), .k = width_of(&c->tensor[I])};
    int64_t m = r.k ? suite_elements(&c->tensor[I]) / r.k : 0;
    bool certain = true;
    r.bias = B < 0 ? NULL : value[B];
    r.score = suite_room(r.n, sizeof *r.score);
    r.score_error = suite_room(r.n, sizeof *r.score);
    r.expert = suite_room(r.n, sizeof *r.expert);
    r.group = suite_room(r.n, sizeof *r.group);
    double *w = suite_room(r.k, sizeof *w), *w_bound = suite_room(r.k, sizeof *w);
    for (int64_t t = 0; t < m; t++) {
        r.x = value[0] + t * r.n;
        (a.score == SAKER_MOE_SOFTMAX ? softmax : sigmoid)(r.x, r.score, r.score_error, r.n);
        bool sure = choose(&r);
        certain &= sure;
        if (W >= 0)
            weigh(&r, c->tensor[W].type, w, w_bound);
        for (int64_t j = 0; j < r.k; j++) {
            value[I][t * r.k + j] = (double)r.expert[j].index;
            bound[I][t * r.k + j] = sure ? 0 : INFINITY;
            if (W >= 0) {
                value[W][t * r.k + j] = w[j];
                bound[W][t * r.k + j] = sure ? w_bound[j] : INFINITY;
            }
        }
    }
    sort_rows(c, value, bound, value[I], r.n, r.k, certain);
    free(r.score), free(r.score_error), free(r.expert), free(r.group), free(w), free(w_bound);
}

/* ---------------------------------------------------------------- backward */

/* Tensors: dweights, ids, logits, dlogits. */
void moe_route_backward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_moe_route_backward_args a;
    memcpy(&a, c->args, sizeof a);
    int64_t n = width_of(&c->tensor[2]), k = width_of(&c->tensor[0]), m = n ? suite_elements(&c->tensor[2]) / n : 0;
    bool soft = a.score == SAKER_MOE_SOFTMAX, joined = soft || a.renormalise;
    double scale = scale_of(a.scale), *p = suite_room(n, sizeof *p), *error = suite_room(n, sizeof *p);
    double *x = suite_room(k, sizeof *x), *share = suite_room(k, sizeof *x), *off = suite_room(k, sizeof *x);
    for (int64_t t = 0; t < m; t++) {
        const double *g = value[0] + t * k, *id = value[1] + t * k, *logit = value[2] + t * n;
        double *dx = value[3] + t * n, *b = bound[3] + t * n, dot = 0, dot_error = 0;
        int64_t used = 0, *of = suite_room(k, sizeof *of);
        for (int64_t j = 0; j < k; j++)
            if (id[j] >= 0 && id[j] < (double)n) {
                x[used] = logit[(int64_t)id[j]];
                of[used++] = j;
            }
        (soft ? softmax : sigmoid)(logit, p, error, n);
        if (soft && a.renormalise)
            softmax(x, share, off, used);
        for (int64_t u = 0; u < used && !(soft && a.renormalise); u++) {
            share[u] = p[(int64_t)id[of[u]]];
            off[u] = error[(int64_t)id[of[u]]];
        }
        if (!soft && a.renormalise)
            shares(share, off, used);
        for (int64_t u = 0; u < used && joined; u++) {
            double one = fabs(scale * g[of[u]]);
            dot += share[u] * scale * g[of[u]];
            dot_error += one * off[u] + one * fabs(share[u]) * (6 + sum_factor(k)) * U + DENORM;
        }
        for (int64_t e = 0; e < n; e++) {
            bool whole = soft && !a.renormalise;
            dx[e] = whole ? p[e] * (0 - dot) : 0;
            b[e] = whole ? error[e] * (fabs(dot) + dot_error) + p[e] * dot_error + 4 * U * fabs(dx[e]) + DENORM : 0;
        }
        for (int64_t u = 0; u < used; u++) {
            int64_t e = (int64_t)id[of[u]];
            double grad = scale * g[of[u]], rest, rest_error, minus = -logit[e];
            sigmoid(&minus, &rest, &rest_error, 1);
            double f = soft ? share[u] : share[u] * rest;
            double f_error = soft ? off[u] : off[u] * (rest + rest_error) + share[u] * rest_error + U * f + DENORM;
            dx[e] = f * (grad - dot);
            b[e] = f_error * (fabs(grad) + fabs(dot) + dot_error) + f * (dot_error + 4 * U * (fabs(grad) + fabs(dot))) +
                   4 * U * fabs(dx[e]) + DENORM;
        }
        for (int64_t e = 0; e < n; e++)
            b[e] += b[e] == 0 && dx[e] == 0 ? 0 : half_ulp(c->tensor[3].type, fabs(dx[e]) + b[e]);
        free(of);
    }
    free(p), free(error), free(x), free(share), free(off);
}

/* ---------------------------------------------------------------- rows alone */

/* A token alone: its lists are others. */
int64_t moe_route_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    const suite_tensor *logits = &c->tensor[suite_index(c, "logits")];
    int64_t m = suite_row_count(logits), k = 0;
    if (!one)
        return m;
    *one = *c;
    one->check = SUITE_ANY_CHECK;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        bool rows = t->ndim == logits->ndim && strcmp(t->field, "bias") && strcmp(t->field, "counts") &&
                    strcmp(t->field, "offsets");
        memset(t->stride, 0, sizeof t->stride);
        if (!strcmp(t->field, "ids"))
            k = width_of(t);
        if (!strcmp(t->field, "order") || !strcmp(t->field, "place") || !strcmp(t->field, "token")) {
            t->shape[0] = k;
            rows = false;
        }
        slice->first[i] = rows ? row * width_of(t) : strcmp(t->field, "bias") ? -1 : 0;
        for (int d = 0; rows && d + 1 < t->ndim; d++)
            t->shape[d] = 1;
    }
    return m;
}
