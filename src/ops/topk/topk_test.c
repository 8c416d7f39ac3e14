/* topk_test.c - oracle and cases of topk and topk_backward. Values and indices are exact; softmax has a bound.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"
#include "suite_list.h"
#include "suite_random.h"

static suite_list list, backward_list;

static int64_t width_of(const suite_tensor *t)
{
    return t->shape[t->ndim - 1];
}

/* ---------------------------------------------------------------- oracle */

static const double *sorting; /* the row whose indices are being sorted */

static int by_value(const void *a, const void *b)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    double x = sorting[i], y = sorting[j];
    bool nan_x = isnan(x), nan_y = isnan(y);
    if (nan_x != nan_y)
        return nan_x ? -1 : 1;
    if (!nan_x && x != y)
        return x > y ? -1 : 1;
    return i < j ? -1 : 1;
}

/* softmax of f32: the exponential is off by at most 2 units, its argument by half a unit of a difference that matters
 * up to 104; the sum is f64 or short. */
static void softmax(saker_type type, double *v, double *bound, int64_t k)
{
    double sum = 0, top = v[0];
    for (int64_t i = 0; i < k; i++)
        sum += exp(v[i] - top);
    for (int64_t i = 0; i < k; i++) {
        double p = top == -INFINITY ? 0 : exp(v[i] - top) / sum, d = fmin(fabs(v[i] - top), 104);
        bound[i] = half_ulp(type, p) + (16 + d) * U * p + DENORM;
        v[i] = p;
    }
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_topk_args a;
    memcpy(&a, c->args, sizeof a);
    int X = 0, V = suite_index(c, "values"), I = suite_index(c, "indices");
    int64_t n = width_of(&c->tensor[X]), k = width_of(&c->tensor[V < 0 ? I : V]);
    int64_t m = k ? suite_elements(&c->tensor[V < 0 ? I : V]) / k : 0, *order = malloc((size_t)n * sizeof *order + 1);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t i = 0; i < n; i++)
            order[i] = i;
        sorting = value[X] + r * n;
        qsort(order, (size_t)n, sizeof *order, by_value);
        for (int64_t i = 0; i < k; i++) {
            if (I >= 0) {
                value[I][r * k + i] = (double)order[i];
                bound[I][r * k + i] = 0;
            }
            if (V >= 0) {
                double v = sorting[order[i]];
                value[V][r * k + i] = a.softmax ? v : round_to(c->tensor[V].type, v);
                bound[V][r * k + i] = 0;
            }
        }
        if (V >= 0 && a.softmax)
            softmax(c->tensor[V].type, value[V] + r * k, bound[V] + r * k, k);
    }
    free(order);
}

static void oracle_backward(const suite_case *c, double *const *value, double *const *bound)
{
    int G = suite_index(c, "dvalues"), I = suite_index(c, "indices"), V = suite_index(c, "values"),
        X = suite_index(c, "dx");
    int64_t n = width_of(&c->tensor[X]), k = width_of(&c->tensor[G]), m = n ? suite_elements(&c->tensor[X]) / n : 0;
    for (int64_t r = 0; r < m; r++) {
        double dot = 0, size = 0;
        for (int64_t i = 0; V >= 0 && i < k; i++) {
            dot += value[V][r * k + i] * value[G][r * k + i];
            size += fabs(value[V][r * k + i] * value[G][r * k + i]);
        }
        for (int64_t i = 0; i < n; i++)
            value[X][r * n + i] = bound[X][r * n + i] = 0;
        for (int64_t i = 0; i < k; i++) {
            int64_t at = r * n + (int64_t)value[I][r * k + i];
            if (value[I][r * k + i] < 0 || value[I][r * k + i] >= (double)n)
                continue;
            double g = value[G][r * k + i], p = V < 0 ? 1 : value[V][r * k + i];
            value[X][at] = V < 0 ? round_to(c->tensor[X].type, g) : p * (g - dot);
            bound[X][at] = V < 0 ? 0
                                 : half_ulp(c->tensor[X].type, p * (g - dot)) +
                                       (8 + (double)k / 32) * U * fabs(p) * (fabs(g) + size) + DENORM;
        }
    }
}

/* ---------------------------------------------------------------- rows alone */

static int64_t row(const suite_case *c, int64_t r, suite_case *one, suite_slice *slice)
{
    int64_t m = suite_row_count(&c->tensor[0]);
    if (!one)
        return m;
    *one = *c;
    one->check = SUITE_ANY_CHECK;
    for (int i = 0; i < c->n_tensors; i++) {
        slice->first[i] = r * width_of(&c->tensor[i]);
        for (int d = 0; d + 1 < one->tensor[i].ndim; d++)
            one->tensor[i].shape[d] = 1;
        memset(one->tensor[i].stride, 0, sizeof one->tensor[i].stride);
    }
    return m;
}

/* ---------------------------------------------------------------- cases */

enum { VALUES = 1, INDICES = 2, BOTH = 3, SOFTMAX = 4, STRIDED = 8, COLUMNS = 16, BAD = 32 };

typedef struct spec {
    saker_type x, v;
    int64_t m, n, k;
    int has;
    suite_fill fill;
    int use, random;
    int64_t outer; /* 0: none; else x is [outer, m, n] */
} spec;

static suite_tensor *tensor(suite_case *c, const spec *s, const char *field, suite_role role, saker_type type,
                            int64_t n)
{
    int64_t lead[] = {s->outer, s->m};
    int skip = !s->outer;
    suite_tensor *t = suite_add_rows(c, field, role, type, 2 - skip, lead + skip, n, s->has & STRIDED ? 5 : 0);
    t->fill = s->fill;
    return t;
}

/* Columns of an output [m, k] far apart, rows close: a transposed tensor. */
static void transpose(suite_tensor *t)
{
    int last = t->ndim - 1;
    t->stride[last - 1] = 1;
    t->stride[last] = t->shape[last - 1] + 1;
    if (last > 1)
        t->stride[0] = t->stride[last] * t->shape[last];
}

static void name_of(suite_case *c, const spec *s)
{
    static const char *const words[] = {" values", " indices", " softmax", " padded", " transposed", " bad"};
    suite_say_random(c, s->random);
    suite_say(c, "%s %s ", suite_type_text(s->x), suite_type_text(s->v));
    if (s->outer)
        suite_say(c, "%lldx", (long long)s->outer);
    suite_say_shape(c, 1, &s->m, s->n);
    suite_say(c, " k=%lld", (long long)s->k);
    suite_say_bits(c, s->has, 6, words);
    suite_say(c, "%s%s", suite_fill_text(s->fill), s->use ? " bench" : "");
}

static void add(spec s)
{
    s.v = s.v ? s.v : s.x;
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1};
    saker_topk_args a = {.struct_size = sizeof a, .softmax = (s.has & SOFTMAX) != 0};
    memcpy(c.args, &a, sizeof a);
    tensor(&c, &s, "x", SUITE_IN, s.x, s.n)->free_shape = SUITE_ANY_WIDTH;
    if (s.has & VALUES)
        tensor(&c, &s, "values", SUITE_OUT, s.v, s.k);
    if (s.has & INDICES)
        tensor(&c, &s, "indices", SUITE_OUT, SAKER_I32, s.k);
    for (int i = 1; s.has & COLUMNS && i < c.n_tensors; i++)
        transpose(&c.tensor[i]);
    c.bytes = suite_all_bytes(&c);
    name_of(&c, &s);
    suite_list_add(&list, &c);
}

static void add_backward(spec s)
{
    s.v = s.v ? s.v : s.x;
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .writes = 1};
    saker_topk_backward_args a = {.struct_size = sizeof a};
    memcpy(c.args, &a, sizeof a);
    tensor(&c, &s, "dvalues", SUITE_IN, s.v, s.k);
    /* Distinct in a row: a run of numbers that begins elsewhere in each row, and with BAD leaves the range. */
    suite_tensor *t = tensor(&c, &s, "indices", SUITE_IN, SAKER_I32, s.k);
    t->fill = SUITE_COUNT;
    t->low = s.has & BAD ? -2 : 0;
    if (s.m > 0 && s.n > 0 && s.k > 0 && (t->low < 0 || suite_elements(t) > s.n))
        c.check = SAKER_BAD_INDEX;
    if (s.has & SOFTMAX)
        tensor(&c, &s, "values", SUITE_IN, s.v, s.k)->fill = SUITE_POSITIVE;
    for (int i = 0; s.has & COLUMNS && i < c.n_tensors; i++)
        transpose(&c.tensor[i]);
    tensor(&c, &s, "dx", SUITE_OUT, s.x, s.n)->free_shape = SUITE_ANY_WIDTH;
    c.bytes = suite_all_bytes(&c);
    name_of(&c, &s);
    suite_list_add(&backward_list, &c);
}

static spec random_spec(int number, uint64_t *r)
{
    spec s = {.random = 1 + number, .n = suite_draw_width(r)};
    int64_t lead[2] = {0, 0};
    int n_lead = suite_draw_lead(r, 2, s.n, lead);
    s.m = n_lead == 2 ? lead[1] : n_lead == 1 ? lead[0] : 1;
    s.outer = n_lead == 2 ? lead[0] : 0;
    s.k = suite_draw(r, (int)s.n + 1);
    if (suite_draw_once_in(r, 2) && s.k > 8)
        s.k = 1 + suite_draw(r, 8);
    s.x = suite_draw_float(r);
    s.v = suite_draw_near(r, s.x);
    s.has = suite_draw_once_in(r, 3) ? STRIDED : 0;
    s.has |= suite_draw_once_in(r, 4) ? COLUMNS : 0;
    return s;
}

static void random_forward(int number)
{
    static const suite_fill fills[] = {SUITE_TIES,        SUITE_ZERO,   SUITE_CONSTANT, SUITE_ONE_NAN, SUITE_ONE_INF,
                                       SUITE_ALTERNATING, SUITE_MASKED, SUITE_TINY,     SUITE_LARGE,   SUITE_COUNT};
    uint64_t r = suite_draws(number);
    spec s = random_spec(number, &r);
    s.has |= 1 + suite_draw(&r, 3);
    if (s.has & VALUES && suite_draw_once_in(&r, 3))
        s.has |= SOFTMAX;
    s.fill = suite_draw_once_in(&r, 2) ? fills[suite_draw(&r, 10)] : SUITE_NORMAL;
    add(s);
}

static void random_backward(int number)
{
    uint64_t r = suite_draws(number);
    spec s = random_spec(number, &r);
    s.has |= suite_draw_once_in(&r, 2) ? SOFTMAX : 0;
    s.has |= suite_draw_once_in(&r, 4) ? BAD : 0;
    add_backward(s);
}

static void build(void)
{
    static const int64_t n[] = {1, 2, 7, 33, 64, 128, 129, 256, 1000, 1024, 1025, 4096, 8193, 32768, 40001, 131072};
    static const int64_t k[] = {1, 2, 5, 8, 31, 32, 64, 65, 128, 300, 2048, 5000};
    static const suite_fill fills[] = {SUITE_TIES,        SUITE_ZERO,   SUITE_CONSTANT, SUITE_ONE_NAN, SUITE_ONE_INF,
                                       SUITE_ALTERNATING, SUITE_MASKED, SUITE_TINY,     SUITE_LARGE,   SUITE_COUNT};
    add((spec){SAKER_F32, .m = 4, .n = 9, .k = 3, .has = BOTH});
    foreach (i, n)
        foreach (j, k)
            if (k[j] <= n[i])
                add((spec){floats[(i + j) % 3], .m = n[i] > 5000 ? 2 : 5, .n = n[i], .k = k[j], .has = BOTH});
    foreach (t, floats) {
        foreach (f, fills) {
            add((spec){floats[t], .m = 3, .n = 100, .k = 9, .has = BOTH, .fill = fills[f]});
            add((spec){floats[t], .m = 3, .n = 3000, .k = 70, .has = BOTH, .fill = fills[f]});
            add((spec){floats[t], .m = 2, .n = 20000, .k = 64, .has = BOTH | STRIDED, .fill = fills[f]});
            add((spec){floats[t], .m = 2, .n = 3000, .k = 3000, .has = INDICES, .fill = fills[f]});
            add((spec){floats[t], .m = 3, .n = 257, .k = 6, .has = BOTH | SOFTMAX, .fill = fills[f]});
        }
        add((spec){floats[t], .m = 3, .n = 100, .k = 9, .has = BOTH, .fill = SUITE_MINUS_NAN});
        add((spec){floats[t], .v = floats[(t + 1) % 3], .m = 4, .n = 500, .k = 20, .has = VALUES});
        add((spec){floats[t], .v = floats[(t + 2) % 3], .m = 4, .n = 500, .k = 20, .has = BOTH | SOFTMAX});
        add((spec){floats[t], .m = 4, .n = 500, .k = 20, .has = BOTH | COLUMNS});
        add((spec){floats[t], .m = 7, .n = 67, .k = 3, .has = BOTH | STRIDED});
        add((spec){floats[t], .m = 7, .n = 64, .k = 0, .has = BOTH});
        add((spec){floats[t], .m = 0, .n = 64, .k = 4, .has = BOTH});
        add((spec){floats[t], .m = 2000, .n = 64, .k = 8, .has = BOTH | SOFTMAX});
        /* Beyond the part of a row that gives the bound. */
        add((spec){floats[t], .m = 1, .n = 150000, .k = 64, .has = BOTH, .fill = SUITE_COUNT});
        add((spec){floats[t], .m = 2, .n = 140001, .k = 1, .has = BOTH, .fill = t ? SUITE_TIES : SUITE_NORMAL});
        add((spec){floats[t], .m = 3, .n = 12000, .k = 9000, .has = BOTH | SOFTMAX});
        add((spec){floats[t], .m = 1, .n = 70000, .k = 70000, .has = BOTH, .fill = t ? SUITE_TIES : SUITE_NORMAL});
        static const int64_t wide[] = {1024, 8192, 131072}, most[] = {1, 8, 64, 2048};
        foreach (i, wide)
            foreach (j, most)
                if (t != 1 && most[j] < wide[i]) {
                    int64_t m = ((int64_t)512 << 20) / suite_type_bytes(floats[t]) / wide[i];
                    spec s = {floats[t], .m = m, .n = wide[i], .k = most[j], .has = BOTH, .use = SUITE_BENCH_CUDA};
                    add(s);
                    s.m = m / 2;
                    s.use = SUITE_BENCH;
                    if (i != 1 && (j == 1 || (i == 0 && j == 2)))
                        add(s);
                }
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_forward(i);
}

static void build_backward(void)
{
    static const int64_t n[] = {1, 5, 64, 129, 1000, 5000, 100000};
    foreach (t, floats) {
        foreach (i, n)
            for (int soft = 0; soft <= SOFTMAX; soft += SOFTMAX) {
                /* The numbers in indices count on through the rows: only in the first one all are inside. */
                add_backward((spec){floats[t], .m = 2, .n = n[i], .k = (n[i] + 1) / 2, .has = soft});
                add_backward((spec){floats[t], .v = floats[(t + 1) % 3], .m = 3, .n = n[i], .k = (n[i] + 3) / 4,
                                    .has = soft | (i % 2 ? STRIDED : COLUMNS) | BAD});
            }
        add_backward((spec){floats[t], .m = 0, .n = 10, .k = 3, .has = 0});
        add_backward((spec){floats[t], .m = 3, .n = 0, .k = 0, .has = 0});
        for (int64_t width = 1024; width <= 131072; width *= 32)
            for (int cuda = 0; cuda < 2; cuda++)
                add_backward((spec){floats[t],
                                    .m = ((int64_t)(cuda ? 512 : 256) << 20) / suite_type_bytes(floats[t]) / width,
                                    .n = width, .k = 8, .has = 0, .use = cuda ? SUITE_BENCH_CUDA : SUITE_BENCH});
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_backward(i);
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

static bool at_backward(int i, suite_case *out)
{
    if (!backward_list.n)
        build_backward();
    return suite_list_at(&backward_list, i, out);
}

const suite skr_suite_topk = {.op = "topk", .at = at, .oracle = oracle, .row = row};
const suite skr_suite_topk_backward = {.op = "topk_backward", .at = at_backward, .oracle = oracle_backward, .row = row};
