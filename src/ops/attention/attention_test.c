/* attention_test.c - oracle and bounds of attention and attention_merge. Cases: attention_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_test.h"

#include <math.h>

#include "../../../tests/suite_convert.h"

/* ---------------------------------------------------------------- attention */

/* What a row's softmax is made of. */
typedef struct row_sums {
    double max, sum, error; /* error: of ln(sum), and so of every p, relative */
} row_sums;

static row_sums sum_row(const attention_problem *p, const double *s, const double *error, int64_t n, int64_t h)
{
    row_sums r = {-INFINITY, 0, 0};
    double sink = p->sinks.t ? p->sinks.v[h] : -INFINITY, weighted = 0;
    bool bad = isnan(sink);
    for (int64_t j = 0; j < n; j++) {
        bad |= isnan(s[j]);
        r.max = fmax(r.max, s[j]);
    }
    r.max = fmax(r.max, sink);
    if (bad || r.max == INFINITY)
        return (row_sums){NAN, NAN, 0};
    for (int64_t j = 0; j <= n && r.max > -INFINITY; j++) {
        double x = j < n ? s[j] : sink, e = x == -INFINITY ? 0 : exp(x - r.max);
        r.sum += e;
        weighted += e == 0 ? 0 : e * ((j < n ? error[j] : 0) + 8 * U * (1 + attention_size(x, r.max, 0)));
    }
    r.error = (r.sum > 0 ? weighted / r.sum : 0) + sum_factor(n + 1) * U + (double)n * 0x1p-120;
    return r;
}

static void oracle_row(const attention_problem *p, const attention_scores *s, int64_t b, int64_t h, int64_t i)
{
    const attention_range *r = &p->range[b];
    int64_t at = i * r->k_len, n = r->k_len, hk = h / (p->heads / p->heads_k);
    row_sums sums = sum_row(p, s->s + at, s->error + at, n, h);
    double lse = sums.sum > 0 ? sums.max + log(sums.sum) : sums.sum == 0 ? -INFINITY : NAN;
    if (p->lse.t) {
        int64_t to = attention_stat(p, b, r->q + i, h);
        p->lse.v[to] = lse;
        p->lse.bound[to] = isfinite(lse) ? sums.error + 4 * U * (1 + fabs(lse) + fabs(sums.max)) : 0;
    }
    for (int64_t c = 0; c < p->d_v; c++) {
        int64_t to = attention_place(p, p->o, b, r->q + i, h, c);
        double o = 0, size = 0, off = 0, tiny = 0;
        for (int64_t j = 0; j < n; j++) {
            double x = s->s[at + j];
            if (x == -INFINITY || (s->z[at + j] == 0 && isfinite(lse)))
                continue;
            double v = attention_value(p, b, r, j, hk, c), e = exp(x - sums.max) / sums.sum * s->z[at + j];
            double relative = s->error[at + j] + 8 * U * (1 + attention_size(x, sums.max, lse));
            o += e * v;
            size += fabs(e * v);
            off += e == 0 ? 0 : fabs(e * v) * (expm1(relative) + p->half_p + p->half_v);
            tiny += fabs(v);
        }
        if (isnan(lse))
            o = NAN;
        p->o.v[to] = o;
        double steps = p->tiny_p + 0x1p-120 +
                       (p->opt.p_scale != 0 ? p->opt.p_scale * 0.5 / fmax(sums.sum, 1) / (1 - p->opt.dropout) : 0);
        double bound = off + steps * tiny + 2 * p->sums * sum_factor(n) * U * size + sums.error * fabs(o);
        p->o.bound[to] = bound + half_ulp(p->o.t->type, fabs(o) + bound); /* what is rounded may be that much larger */
        if (!isfinite(o))
            p->o.bound[to] = 0;
    }
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    attention_problem p = attention_open(c, value, bound);
    int64_t n = suite_elements(p.o.t), m = p.lse.t ? suite_elements(p.lse.t) : 0;
    for (int64_t k = 0; k < n; k++) /* tokens of no sequence */
        p.o.v[k] = p.o.bound[k] = 0;
    for (int64_t k = 0; k < m; k++) {
        p.lse.v[k] = -INFINITY;
        p.lse.bound[k] = 0;
    }
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++) {
            attention_scores s = attention_scores_of(&p, b, h);
            for (int64_t i = 0; i < p.range[b].q_len; i++)
                oracle_row(&p, &s, b, h, i);
            attention_scores_free(&s);
        }
    attention_close(&p);
}

const suite skr_suite_attention = {.op = "attention", .at = attention_at_case, .oracle = oracle, .row = attention_row};

/* ---------------------------------------------------------------- attention_merge */

/* Both parts' shares, 0 for one that saw nothing, and how far they may be off. */
typedef struct near_lse {
    double lse, a, b, error;
} near_lse;

static near_lse merge_lse(double x, double y)
{
    double top = fmax(x, y);
    if (isnan(x) || isnan(y))
        return (near_lse){NAN, NAN, NAN, 0};
    if (top == -INFINITY)
        return (near_lse){top, 0, 0, 0};
    double lse = top + log(exp(x - top) + exp(y - top)), a = exp(x - lse), b = exp(y - lse);
    double far = (isfinite(x) ? fabs(x) : 0) + (isfinite(y) ? fabs(y) : 0);
    return (near_lse){lse, a, b, 8 * U * (1 + far)};
}

static void merge_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    const saker_attention_merge_args *a = (const saker_attention_merge_args *)c->args;
    suite_column o_a = suite_column_of(c, value, bound, "o_a"), l_a = suite_column_of(c, value, bound, "lse_a");
    suite_column o_b = suite_column_of(c, value, bound, "o_b"), l_b = suite_column_of(c, value, bound, "lse_b");
    suite_column o = suite_column_of(c, value, bound, "o"), l = suite_column_of(c, value, bound, "lse");
    bool packed = a->layout == SAKER_THD;
    const int64_t *n = o.t->shape;
    int64_t batch = packed ? 1 : n[0], d = n[o.t->ndim - 1];
    int64_t heads = packed || a->layout == SAKER_BHSD ? n[1] : n[2];
    int64_t tokens = packed ? n[0] : a->layout == SAKER_BSHD ? n[1] : n[2];
    for (int64_t stat = 0; stat < batch * heads * tokens; stat++) {
        int64_t t = stat % tokens, b = stat / tokens / heads, h = stat / tokens % heads;
        int64_t row = a->layout == SAKER_BHSD ? stat : (b * tokens + t) * heads + h;
        near_lse m = merge_lse(l_a.v[stat], l_b.v[stat]);
        if (l.t) {
            l.v[stat] = m.lse;
            l.bound[stat] = isfinite(m.lse) ? 4 * U * (1 + fabs(m.lse)) : 0;
        }
        for (int64_t k = row * d; k < row * d + d; k++) {
            double x = m.a == 0 ? 0 : m.a * o_a.v[k], y = m.b == 0 ? 0 : m.b * o_b.v[k];
            double tiny = (m.a == 0 ? 0 : fabs(o_a.v[k])) + (m.b == 0 ? 0 : fabs(o_b.v[k]));
            o.v[k] = isnan(m.lse) ? NAN : x + y;
            o.bound[k] = m.error * (fabs(x) + fabs(y)) + 0x1p-120 * tiny + half_ulp(o.t->type, x + y);
        }
    }
}

const suite skr_suite_attention_merge = {
    .op = "attention_merge", .at = attention_merge_at_case, .oracle = merge_oracle};
