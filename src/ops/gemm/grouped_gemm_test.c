/* grouped_gemm_test.c - the oracle of grouped_gemm. That of a group is gemm's, with copies of its rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "gemm_test.h"

static suite_tensor matrix_like(const suite_tensor *t, int64_t rows, int64_t cols)
{
    return (suite_tensor){.type = t->type, .ndim = 2, .shape = {rows, cols}};
}

static double *take(int64_t n)
{
    return suite_room(n, sizeof(double));
}

/* The tensors of a case, and what was made for the group at hand. */
typedef struct grouped {
    const saker_grouped_gemm_args *args;
    saker_gemm_args one; /* the options of a group's product */
    suite_column a, b, d, offsets, gather, scatter, c, bias, a_scale, b_scale, b_zero, saved, pre;
    int64_t groups, total, k, n;
} grouped;

static int64_t within(double at, int64_t low, int64_t high)
{
    return at < (double)low ? low : at > (double)high ? high : (int64_t)at;
}

/* Rows first ... of x, or those that gather names; rows outside are zeros. */
static double *rows_of(const grouped *g, suite_column x, int64_t first, int64_t count, bool gathered)
{
    int64_t width = x.t->ndim > 1 ? x.t->shape[1] : 1;
    double *copy = take(count * width);
    for (int64_t r = 0; r < count; r++) {
        int64_t from = gathered && g->gather.t ? (int64_t)g->gather.v[first + r] : first + r;
        if (from >= 0 && from < x.t->shape[0])
            memcpy(copy + r * width, x.v + from * width, (size_t)width * sizeof *copy);
    }
    return copy;
}

/* Where group i of a tensor [G, ...] begins, as a tensor without the first dimension. */
static suite_column of_group(suite_column x, int64_t i, suite_tensor *t)
{
    if (!x.t)
        return x;
    int64_t each = 1;
    *t = *x.t;
    t->ndim--;
    memmove(t->shape, t->shape + 1, sizeof t->shape - sizeof *t->shape);
    for (int k = 0; k < t->ndim; k++)
        each *= t->shape[k];
    return (suite_column){t, x.v + i * each, x.bound ? x.bound + i * each : NULL};
}

static void group_of_rows(const grouped *g, int64_t i, int64_t first, int64_t count)
{
    int64_t columns = g->args->gated ? g->n / 2 : g->n;
    suite_tensor t[8], ta = matrix_like(g->a.t, count, g->k), td = matrix_like(g->d.t, count, columns);
    suite_tensor tn = {.type = g->pre.t ? g->pre.t->type : SAKER_F32, .ndim = 2, .shape = {count, g->n}}, ts;
    double *a = rows_of(g, g->a, first, count, true), *scale = NULL, *saved = NULL;
    double *d = take(count * columns), *bound = take(count * columns);
    gemm_product p = {.args = &g->one, .m = count, .n = g->n, .k = g->k};
    p.a = (suite_column){&ta, a, NULL};
    p.b = of_group(g->b, i, &t[0]);
    p.bias = of_group(g->bias, i, &t[1]);
    p.b_scale = g->args->scaling == SAKER_GEMM_SCALE_TENSOR ? g->b_scale : of_group(g->b_scale, i, &t[2]);
    p.b_zero = of_group(g->b_zero, i, &t[3]);
    p.a_scale = g->a_scale;
    if (g->a_scale.t && g->args->scaling != SAKER_GEMM_SCALE_TENSOR) {
        ts = *g->a_scale.t;
        ts.shape[0] = count;
        scale = rows_of(g, g->a_scale, first, count, true);
        p.a_scale = (suite_column){&ts, scale, NULL};
    }
    if (g->saved.t) {
        saved = rows_of(g, g->saved, first, count, false);
        p.saved = (suite_column){&tn, saved, NULL};
    }
    p.d = (suite_column){&td, d, bound};
    if (g->pre.t)
        p.pre = (suite_column){&tn, g->pre.v + first * g->n, g->pre.bound + first * g->n};
    gemm_product_oracle(&p);
    for (int64_t r = 0; r < count; r++) {
        int64_t to = g->scatter.t ? (int64_t)g->scatter.v[first + r] : first + r;
        if (to < 0 || to >= g->d.t->shape[0])
            continue;
        memcpy(g->d.v + to * columns, d + r * columns, (size_t)columns * sizeof *d);
        memcpy(g->d.bound + to * columns, bound + r * columns, (size_t)columns * sizeof *d);
    }
    free(a);
    free(scale);
    free(saved);
    free(d);
    free(bound);
}

static void group_of_ks(const grouped *g, int64_t i, int64_t first, int64_t count)
{
    int64_t m = g->a.t->shape[0];
    suite_tensor t[2], ta = matrix_like(g->a.t, m, count), tb = matrix_like(g->b.t, count, g->n);
    double *a = take(m * count);
    for (int64_t r = 0; r < m; r++)
        memcpy(a + r * count, g->a.v + r * g->total + first, (size_t)count * sizeof *a);
    gemm_product p = {.args = &g->one, .m = m, .n = g->n, .k = count};
    p.a = (suite_column){&ta, a, NULL};
    p.b = (suite_column){&tb, g->b.v + first * g->n, NULL};
    p.c = of_group(g->c, i, &t[0]);
    p.d = of_group(g->d, i, &t[1]);
    gemm_product_oracle(&p);
    free(a);
}

/* Zeros, unless the rows are scattered: then what was there. */
static void clear(const grouped *g, suite_column x)
{
    for (int64_t i = 0; x.t && i < suite_elements(x.t); i++) {
        if (x.t != g->d.t || !g->scatter.t)
            x.v[i] = 0;
        x.bound[i] = 0;
    }
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    grouped g = {.args = (const saker_grouped_gemm_args *)c->args};
    g.one = (saker_gemm_args){.struct_size = sizeof g.one,
                              .group = g.args->group,
                              .alpha = g.args->alpha,
                              .beta = g.args->beta,
                              .scaling = g.args->scaling,
                              .act = g.args->act,
                              .gated = g.args->gated,
                              .allow_tf32 = g.args->allow_tf32};
    struct {
        const char *name;
        suite_column *to;
    } all[] = {{"a", &g.a},
               {"b", &g.b},
               {"d", &g.d},
               {"offsets", &g.offsets},
               {"gather", &g.gather},
               {"scatter", &g.scatter},
               {"c", &g.c},
               {"bias", &g.bias},
               {"a_scale", &g.a_scale},
               {"b_scale", &g.b_scale},
               {"b_zero", &g.b_zero},
               {"saved", &g.saved},
               {"pre", &g.pre}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i].to = suite_column_of(c, value, bound, all[i].name);
    g.groups = g.offsets.t->shape[0] - 1;
    g.total = g.args->along_k ? g.a.t->shape[1] : g.gather.t ? g.gather.t->shape[0] : g.a.t->shape[0];
    g.k = g.a.t->shape[1];
    g.n = g.b.t->shape[g.b.t->ndim - 1];
    clear(&g, g.d);
    clear(&g, g.pre);
    int64_t first = within(g.offsets.v[0], 0, g.total);
    for (int64_t i = 0; i < g.groups; i++) {
        int64_t end = within(g.offsets.v[i + 1], first, g.total);
        (g.args->along_k ? group_of_ks : group_of_rows)(&g, i, first, end - first);
        first = end;
    }
}

const suite skr_suite_grouped_gemm = {.op = "grouped_gemm", .at = grouped_gemm_case_at, .oracle = oracle};
