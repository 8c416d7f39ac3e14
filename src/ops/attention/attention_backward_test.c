/* attention_backward_test.c - oracle and bounds of attention_backward. Cases: attention_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "../../../tests/suite_convert.h"
#include "attention_test.h"

/* Sums of an output before they are rounded: value, error, magnitudes. */
typedef struct sums {
    double *v, *off, *size;
    int64_t n;
} sums;

static sums start(suite_column x)
{
    int64_t n = x.t ? suite_elements(x.t) : 0;
    return (sums){suite_room(n, 8), suite_room(n, 8), suite_room(n, 8), n};
}

/* terms: how many were added to one element at most. */
static void finish(const attention_problem *p, sums *s, suite_column x, int64_t terms)
{
    for (int64_t i = 0; i < s->n; i++) {
        double old = p->opt.accumulate ? x.v[i] : 0, v = s->v[i] + old;
        double bound = s->off[i] + p->sums * 2 * sum_factor(terms) * U * s->size[i] + 2 * U * (fabs(v) + fabs(old));
        bound += half_ulp(x.t->type, fabs(v) + bound); /* the value that is rounded may be that much larger */
        x.v[i] = v;
        x.bound[i] = isfinite(bound) ? bound : 0;
    }
    free(s->v);
    free(s->off);
    free(s->size);
}

static void add(sums *s, int64_t at, double v, double off)
{
    s->v[at] += v;
    s->off[at] += off;
    s->size[at] += fabs(v);
}

typedef struct gradients {
    sums q, k, v, bias, slopes, sinks;
} gradients;

/* What of row i all its elements share. */
typedef struct row {
    double lse, delta, off, half_d_o; /* delta - dlse, and its error; d_o brought to q's type */
} row;

static row row_of(const attention_problem *p, int64_t b, int64_t h, int64_t i)
{
    const attention_range *r = &p->range[b];
    int64_t stat = attention_stat(p, b, r->q + i, h);
    row out = {.lse = p->lse.v[stat]};
    if (fabs(out.lse) >= 0x1p26) /* such rows take no part */
        out.lse = -INFINITY;
    double size = 0;
    for (int64_t c = 0; c < p->d_v; c++) {
        double x = *attention_at(p, p->d_o, b, r->q + i, h, c) * *attention_at(p, p->o, b, r->q + i, h, c);
        out.delta += x;
        size += fabs(x);
    }
    double more = p->dlse.t ? p->dlse.v[stat] : 0;
    out.delta -= more;
    out.off = (sum_factor(p->d_v) * size + 2 * fabs(more)) * U;
    out.half_d_o = p->d_o.t->type != p->q.t->type ? p->half_p : 0;
    return out;
}

static void element(const attention_problem *p, const attention_scores *s, gradients *g, int64_t b, int64_t h,
                    const row *w, int64_t i, int64_t j)
{
    const attention_range *r = &p->range[b];
    int64_t at = i * r->k_len + j, hk = h / (p->heads / p->heads_k);
    double x = s->s[at], e, z = s->z[at];
    if (x == -INFINITY || w->lse == -INFINITY)
        return;
    e = exp(x - w->lse);
    double relative = e == 0 ? 0 : expm1(s->error[at] + 8 * U * (1 + attention_size(x, w->lse, 0)));
    double dp = 0, size = 0;
    for (int64_t c = 0; c < p->d_v; c++) {
        double d_o = *attention_at(p, p->d_o, b, r->q + i, h, c);
        double y = z * d_o * *attention_at(p, p->v, b, r->k + j, hk, c);
        if (z != 0) {
            dp += y;
            size += fabs(y);
        }
        double v = e * z * d_o;
        if (g->v.n && (z != 0 || isnan(e)))
            add(&g->v, attention_place(p, p->v, b, r->k + j, hk, c), v,
                fabs(v) * (relative + p->half_p + w->half_d_o) + fabs(d_o) * (p->tiny_p + 0x1p-120));
    }
    double ds = e * (dp - w->delta);
    double off = e * (p->sums * sum_factor(p->d_v) * U * size + w->half_d_o * size + w->off +
                      4 * U * (fabs(dp) + fabs(w->delta))) +
                 fabs(ds) * relative + 0x1p-120 * (1 + fabs(dp - w->delta));
    if (g->bias.n)
        add(&g->bias, attention_bias_place(p->dbias, b, h, i, j), ds, off);
    if (g->slopes.n)
        add(&g->slopes, p->dslopes.t->ndim == 1 ? h : b * p->heads + h, -ds * s->distance[at], off * s->distance[at]);
    double du = ds * s->slope[at];
    double du_off =
        off * s->slope[at] + fabs(ds) * (p->opt.softcap != 0 ? 2 * s->error[at] / p->opt.softcap + 16 * U : 0);
    double rounded = fabs(du) * p->half_p + p->tiny_p * fmax(1, 1 / fabs(p->scale));
    for (int64_t d = 0; d < p->d; d++) {
        double k = *attention_at(p, p->k, b, r->k + j, hk, d), q = *attention_at(p, p->q, b, r->q + i, h, d);
        double scale = p->scale, each = (du_off + rounded + 2 * U * fabs(du)) * fabs(scale);
        double flushed = p->sums == 2 ? 0x1p-126 * (1 + fabs(scale) * fabs(du))
                                      : DENORM * (1 + fabs(scale)); /* bf16 subnormals count as 0 */
        if (g->q.n)
            add(&g->q, attention_place(p, p->q, b, r->q + i, h, d), scale * du * k, each * fabs(k) + flushed);
        if (g->k.n)
            add(&g->k, attention_place(p, p->k, b, r->k + j, hk, d), scale * du * q, each * fabs(q) + flushed);
    }
}

static void sink(const attention_problem *p, gradients *g, int64_t h, const row *w)
{
    double x = p->sinks.v[h];
    if (w->lse == -INFINITY || x == -INFINITY)
        return;
    double e = exp(x - w->lse), relative = expm1(8 * U * (1 + fabs(x) + fabs(w->lse)));
    add(&g->sinks, h, -e * w->delta, e * (w->off + fabs(w->delta) * relative));
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    attention_problem p = attention_open(c, value, bound);
    gradients g = {start(p.dq), start(p.dk), start(p.dv), start(p.dbias), start(p.dslopes), start(p.dsinks)};
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t h = 0; h < p.heads; h++) {
            attention_scores s = attention_scores_of(&p, b, h);
            for (int64_t i = 0; i < p.range[b].q_len; i++) {
                row w = row_of(&p, b, h, i);
                for (int64_t j = 0; j < p.range[b].k_len; j++)
                    element(&p, &s, &g, b, h, &w, i, j);
                if (g.sinks.n)
                    sink(&p, &g, h, &w);
            }
            attention_scores_free(&s);
        }
    int64_t group = p.heads_k ? p.heads / p.heads_k : 1;
    finish(&p, &g.q, p.dq, p.length_k);
    finish(&p, &g.k, p.dk, p.length * group);
    finish(&p, &g.v, p.dv, p.length * group);
    finish(&p, &g.bias, p.dbias, p.batch * p.heads * p.length * p.length_k);
    finish(&p, &g.slopes, p.dslopes, p.batch * p.length * p.length_k);
    finish(&p, &g.sinks, p.dsinks, p.batch * p.length);
    attention_close(&p);
}

const suite skr_suite_attention_backward = {
    .op = "attention_backward", .at = attention_backward_at_case, .oracle = oracle, .row = attention_row};
