/* attention_decode_test.c - oracle and bounds of attention_decode. Cases: attention_decode_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored. Bounds, with U = 2^-24 and SUM(n) as sum_factor says:
 *   what is rotated    4 U of its products' magnitudes, and half an ulp of the type that it is rounded to
 *   codes of it        what suite_code says of such an interval; of what is not rotated: the codes of quantize, exactly
 *   a score s_ij       |scale| (SUM(D) U sum|q k| and what q and k are off), U for each product of a code and its
 *                      scale, 8 U for each of the magnitudes added to it
 *   p_ij, relative     the score's, and 8 U (1 + |s_ij| + |lse_i| and |maximum|); absolute 2^-120
 *   sums of products   SUM(n) U sum|products|, and as many U again for what the maximum's changes rescale;
 *                      2^-149 for each
 *   the output         half an ulp of its type */
#include "attention_decode_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "../../../tests/suite_quant.h"

/* A number and how far it may be off. */
typedef struct near {
    double v, off;
} near;

/* A cache as it is read: values of all its elements, and the scales of groups of columns. */
typedef struct cache {
    suite_column t, scale;
    saker_type type; /* i4 for packed u8 */
    int64_t tokens, heads, width, group, groups;
    bool of_heads;
    near *x;
} cache;

typedef struct problem {
    const saker_attention_decode_args *a;
    suite_column q, lengths, o, lse, table, k_new, v_new, cos, sin, slopes, sinks;
    cache k, v; /* latent: v is k */
    bool latent;
    int64_t b, sq, hq, hk, d, dv, sn, capacity, page, pages;
    double scale;
} problem;

/* ---------------------------------------------------------------- caches */

/* Where the scale of an element is. */
static int64_t scale_place(const cache *c, int64_t row, int64_t column)
{
    return c->of_heads ? row % c->heads : row * c->groups + column / c->group;
}

static near code_value(double code, double off, near scale)
{
    return (near){code * scale.v, off * (scale.v + scale.off) + fabs(code) * scale.off};
}

static double code_at(const cache *c, int64_t row, int64_t column)
{
    if (c->t.t->type != SAKER_U8)
        return c->t.v[row * c->width + column];
    int byte = (int)c->t.v[row * ((c->width + 1) / 2) + column / 2], nibble = column % 2 ? byte >> 4 : byte & 15;
    return nibble < 8 ? nibble : nibble - 16;
}

static cache open_cache(suite_column t, suite_column scale, int64_t width)
{
    const int64_t *n = t.t->shape;
    cache c = {.t = t, .scale = scale, .type = t.t->type == SAKER_U8 ? SAKER_I4 : t.t->type};
    c.tokens = n[1], c.heads = n[2], c.width = width;
    c.of_heads = scale.t && scale.t->ndim == 1;
    c.groups = scale.t && scale.t->ndim == 4 ? scale.t->shape[3] : 1;
    c.group = width / c.groups;
    int64_t rows = n[0] * n[1] * n[2];
    c.x = suite_room(rows * width, sizeof *c.x);
    for (int64_t i = 0; i < rows * width; i++) {
        double by = scale.t ? scale.v[scale_place(&c, i / width, i % width)] : 1;
        c.x[i] = code_value(code_at(&c, i / width, i % width), 0, (near){by, 0});
    }
    for (int64_t i = 0; t.bound && i < suite_elements(t.t); i++)
        t.bound[i] = 0;
    for (int64_t i = 0; scale.t && scale.bound && i < suite_elements(scale.t); i++)
        scale.bound[i] = 0;
    return c;
}

/* ---------------------------------------------------------------- what is appended */

static void rotate(const problem *p, int64_t position, near *x)
{
    if (!p->cos.t)
        return;
    int64_t rows = p->cos.t->shape[0], pairs = p->cos.t->shape[1];
    position = position < 0 ? 0 : position < rows ? position : rows - 1;
    x += p->a->rotary_offset;
    for (int64_t i = 0; i < pairs; i++) {
        near *a = x + (p->a->interleaved ? 2 * i : i), *b = a + (p->a->interleaved ? 1 : pairs);
        double c = p->cos.v[position * pairs + i], s = p->sin.v[position * pairs + i], was = a->v;
        a->off = 4 * U * (fabs(was * c) + fabs(b->v * s)) + DENORM;
        a->v = was * c - b->v * s;
        b->off = 4 * U * (fabs(b->v * c) + fabs(was * s)) + DENORM;
        b->v = b->v * c + was * s;
    }
}

static suite_interval interval(near x)
{
    return (suite_interval){x.v - x.off, x.v + x.off};
}

/* The scale of n numbers, written where the cache's scales are. */
static near put_scale(cache *c, int64_t row, int64_t column, const near *x, int64_t n)
{
    int64_t at = scale_place(c, row, column);
    if (!c->scale.t)
        return (near){1, 0};
    if (c->of_heads)
        return (near){c->scale.v[at], 0};
    double amax = 0;
    bool exact = true;
    suite_interval *all = suite_room(n, sizeof *all);
    for (int64_t i = 0; i < n; i++) {
        all[i] = interval(x[i]);
        exact &= x[i].off == 0;
        if (isfinite(x[i].v))
            amax = fmax(amax, fabs(x[i].v));
    }
    suite_interval s = suite_scale(c->type, all, n);
    free(all);
    near scale = {(double)(float)(amax / quant_max(c->type)), 0};
    if (scale.v == 0)
        scale.v = 1;
    if (!exact)
        scale = (near){(s.lo + s.hi) / 2, suite_scale_bound(s)};
    c->scale.v[at] = scale.v;
    c->scale.bound[at] = scale.off;
    return scale;
}

static void put_code(cache *c, int64_t row, int64_t column, double code, double off)
{
    if (c->t.t->type != SAKER_U8) {
        c->t.v[row * c->width + column] = code;
        c->t.bound[row * c->width + column] = off;
        return;
    }
    int64_t at = row * ((c->width + 1) / 2) + column / 2;
    int byte = column % 2 ? (int)c->t.v[at] & 15 : 0; /* the spare nibble becomes 0 */
    c->t.v[at] = byte | ((int)code & 15) << (column % 2 ? 4 : 0);
    c->t.bound[at] += off > 0 ? 255 : 0; /* another code is another byte */
}

static void put_row(cache *c, int64_t row, const near *x)
{
    for (int64_t i = 0; i < c->width; i++) {
        near *to = &c->x[row * c->width + i], scale;
        if (float_format_of(c->type) && c->type != SAKER_E4M3) {
            to->v = x[i].off == 0 ? round_to(c->type, x[i].v) : x[i].v;
            to->off = x[i].off == 0 ? 0 : x[i].off + half_ulp(c->type, fabs(x[i].v) + x[i].off);
            c->t.v[row * c->width + i] = to->v;
            c->t.bound[row * c->width + i] = to->off;
            continue;
        }
        if (i % c->group == 0)
            scale = put_scale(c, row, i, x + i, c->group);
        else
            scale = (near){!c->scale.t ? 1 : c->scale.v[scale_place(c, row, i)],
                           !c->scale.t || c->of_heads ? 0 : c->scale.bound[scale_place(c, row, i)]};
        double code, off = 0;
        if (x[i].off == 0 && scale.off == 0)
            code = round_to(c->type, (double)(float)(x[i].v / scale.v));
        else
            suite_code(c->type, interval(x[i]), (suite_interval){scale.v - scale.off, scale.v + scale.off}, &code,
                       &off);
        if (off == DBL_TRUE_MIN)
            off = 0;
        put_code(c, row, i, c->t.t->type == SAKER_U8 ? rint(code) : code, off);
        *to = code_value(code, off, scale);
    }
}

/* ---------------------------------------------------------------- sequences */

static int64_t length_of(const problem *p, int64_t b)
{
    return (int64_t)fmax(0, fmin(p->lengths.v[b], (double)(p->capacity - p->sn)));
}

/* The row of token j, less the head; -1: on no page. */
static int64_t row_of(const problem *p, int64_t b, int64_t j)
{
    if (!p->table.t)
        return b * p->capacity + j;
    double page = p->table.v[b * p->table.t->shape[1] + j / p->page];
    return page < 0 || page >= (double)p->pages ? -1 : (int64_t)page * p->page + j % p->page;
}

static void append(const problem *p, cache *c, suite_column news, bool keys)
{
    near *x = suite_room(c->width, sizeof *x);
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t n = 0; n < p->sn; n++)
            for (int64_t h = 0; h < p->hk; h++) {
                int64_t place = length_of(p, b) + n, row = row_of(p, b, place);
                for (int64_t i = 0; i < c->width; i++)
                    x[i] = (near){news.v[((b * p->sn + n) * p->hk + h) * c->width + i], 0};
                if (keys)
                    rotate(p, place, x);
                if (row >= 0)
                    put_row(c, row * p->hk + h, x);
            }
    free(x);
}

static problem open_problem(const suite_case *c, double *const *value, double *const *bound)
{
    problem p = {.a = (const saker_attention_decode_args *)c->args};
    struct {
        const char *name;
        suite_column *to;
    } all[] = {{"q", &p.q},         {"lengths", &p.lengths},  {"o", &p.o},
               {"lse", &p.lse},     {"k_new", &p.k_new},      {"v_new", &p.v_new},
               {"cos", &p.cos},     {"sin", &p.sin},          {"slopes", &p.slopes},
               {"sinks", &p.sinks}, {"block_table", &p.table}};
    foreach (i, all)
        *all[i].to = suite_column_of(c, value, bound, all[i].name);
    suite_column k = suite_column_of(c, value, bound, "k_cache"), v = suite_column_of(c, value, bound, "v_cache");
    const int64_t *n = p.q.t->shape;
    p.b = n[0], p.sq = n[1], p.hq = n[2], p.d = n[3];
    p.hk = k.t->shape[2];
    p.dv = p.o.t->shape[3];
    p.pages = k.t->shape[0];
    p.page = k.t->shape[1];
    p.capacity = p.table.t ? p.table.t->shape[1] * p.page : p.page;
    p.sn = p.k_new.t ? p.k_new.t->shape[1] : 0;
    p.latent = !v.t;
    p.scale = p.a->scale != 0 ? (double)p.a->scale : (double)(float)(1 / sqrt((double)p.d));
    p.k = open_cache(k, suite_column_of(c, value, bound, "k_scale"), p.d);
    if (p.k_new.t)
        append(&p, &p.k, p.k_new, true);
    p.v = p.k;
    if (p.latent)
        return p;
    p.v = open_cache(v, suite_column_of(c, value, bound, "v_scale"), p.dv);
    if (p.v_new.t)
        append(&p, &p.v, p.v_new, false);
    return p;
}

static void close_problem(problem *p)
{
    free(p->k.x);
    if (!p->latent)
        free(p->v.x);
}

/* ---------------------------------------------------------------- a row */

static bool sees(const problem *p, int64_t place, int64_t j)
{
    const saker_attention_decode_args *a = p->a;
    if (a->causal && j > place)
        return false;
    return !a->has_window || ((a->window_left < 0 || j >= place - a->window_left) &&
                              (a->window_right < 0 || j <= place + a->window_right));
}

/* A score and how far it may be off. */
static near score(const problem *p, const near *q, const near *k, double slope, int64_t apart)
{
    double dot = 0, size = 0, off = 0;
    bool codes = p->k.type == SAKER_I8 || p->k.type == SAKER_E4M3 || p->k.type == SAKER_I4;
    for (int64_t d = 0; d < p->d; d++) {
        dot += q[d].v * k[d].v;
        size += fabs(q[d].v * k[d].v);
        off += q[d].off * fabs(k[d].v) + fabs(q[d].v) * k[d].off + q[d].off * k[d].off;
    }
    double s = p->scale * dot, magnitude = fabs(s), cap = (double)p->a->softcap;
    double error = fabs(p->scale) * (size * (sum_factor(p->d) + codes) * U + off + (double)p->d * DENORM);
    if (cap != 0) {
        double t = tanh(s / cap);
        error = error * (1 - t * t) + error * error / cap + 8 * U * cap * fabs(t);
        s = cap * t;
        magnitude = fabs(s);
    }
    double less = p->slopes.t ? slope * (double)apart : 0;
    return (near){s - less, error + 8 * U * (magnitude + fabs(less))};
}

/* Queries of one head and sequence; s: room for the scores of all keys. */
static void oracle_row(const problem *p, int64_t b, int64_t i, int64_t h, near *q, near *s)
{
    int64_t hk = h / (p->hq / p->hk), total = length_of(p, b) + p->sn, place = total - p->sq + i, n = 0;
    double slope = !p->slopes.t ? 0 : p->slopes.v[p->slopes.t->ndim == 2 ? b * p->hq + h : h];
    double sink = p->sinks.t ? p->sinks.v[h] : -INFINITY, max = sink, sum = 0, weighted = 0;
    bool bad = isnan(sink), codes = p->v.type == SAKER_I8 || p->v.type == SAKER_E4M3 || p->v.type == SAKER_I4;
    for (int64_t d = 0; d < p->d; d++)
        q[d] = (near){p->q.v[((b * p->sq + i) * p->hq + h) * p->d + d], 0};
    rotate(p, place, q);
    for (int64_t d = 0; p->cos.t && p->q.t->type != SAKER_F32 && d < p->d; d++)
        q[d].off += q[d].off == 0 ? 0 : half_ulp(p->q.t->type, fabs(q[d].v) + q[d].off);
    for (int64_t j = 0; j < total; j++) {
        int64_t row = row_of(p, b, j);
        s[j] = (near){-INFINITY, 0};
        if (row < 0 || !sees(p, place, j))
            continue;
        s[j] = score(p, q, p->k.x + (row * p->hk + hk) * p->d, slope, llabs(place - j));
        bad |= isnan(s[j].v);
        max = fmax(max, s[j].v);
        n++;
    }
    for (int64_t j = 0; j <= total && max > -INFINITY; j++) {
        double x = j < total ? s[j].v : sink, e = x == -INFINITY ? 0 : exp(x - max);
        sum += e;
        weighted += e == 0 ? 0 : e * ((j < total ? s[j].off : 0) + 8 * U * (1 + fabs(x) + fabs(max)));
    }
    if (bad || max == INFINITY)
        max = sum = NAN;
    double relative = (sum > 0 ? weighted / sum : 0) + sum_factor(n + 1) * U + (double)n * 0x1p-120;
    double lse = sum == 0 ? -INFINITY : max + log(sum);
    if (p->lse.t) {
        int64_t to = (b * p->hq + h) * p->sq + i;
        p->lse.v[to] = lse;
        p->lse.bound[to] = isfinite(lse) ? relative + 4 * U * (1 + fabs(lse) + fabs(max)) : 0;
    }
    for (int64_t c = 0; c < p->dv; c++) {
        int64_t to = ((b * p->sq + i) * p->hq + h) * p->dv + c;
        double o = 0, size = 0, off = 0, tiny = 0;
        for (int64_t j = 0; j < total; j++) {
            if (s[j].v == -INFINITY)
                continue;
            near v = p->v.x[(row_of(p, b, j) * p->hk + hk) * p->v.width + c];
            double e = exp(s[j].v - max) / sum, error = s[j].off + 8 * U * (1 + fabs(s[j].v) + fabs(max) + fabs(lse));
            o += e * v.v;
            size += fabs(e * v.v);
            off += e == 0 ? 0 : fabs(e * v.v) * (expm1(error) + codes * U) + e * v.off * exp(error);
            tiny += fabs(v.v);
        }
        if (isnan(lse))
            o = NAN;
        double bound = off + 0x1p-120 * tiny + 2 * sum_factor(n) * U * size + relative * fabs(o) + (double)n * DENORM;
        p->o.v[to] = o;
        p->o.bound[to] = isfinite(o) ? bound + half_ulp(p->o.t->type, fabs(o) + bound) : 0;
    }
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    problem p = open_problem(c, value, bound);
    near *q = suite_room(p.d, sizeof *q), *s = suite_room(p.capacity, sizeof *s);
    for (int64_t b = 0; b < p.b; b++)
        for (int64_t i = 0; i < p.sq; i++)
            for (int64_t h = 0; h < p.hq; h++)
                oracle_row(&p, b, i, h, q, s);
    free(q);
    free(s);
    close_problem(&p);
}

/* ---------------------------------------------------------------- one sequence alone */

/* With a split, a sequence alone has the bits that it has among others. */
static int64_t one_sequence(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    const saker_attention_decode_args *a = (const saker_attention_decode_args *)c->args;
    bool apart = a->split > 0, paged = suite_index(c, "block_table") >= 0;
    for (int i = 0; i < c->n_tensors; i++)
        apart &= suite_compact(&c->tensor[i]);
    if (!apart)
        return 0;
    int64_t batch = c->tensor[suite_index(c, "q")].shape[0];
    if (!one)
        return batch;
    *one = *c;
    for (int i = 0; i < one->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        bool cached = strstr(t->field, "_cache") || (strstr(t->field, "_scale") && t->ndim > 1);
        bool table = !strcmp(t->field, "cos") || !strcmp(t->field, "sin");
        bool whole = table || (t->ndim == 1 && strcmp(t->field, "lengths") != 0) || (cached && paged);
        slice->first[i] = whole && t->role != SUITE_IN ? -1 : 0; /* others append to it, too */
        if (whole)
            continue;
        t->shape[0] = 1;
        slice->first[i] = row * suite_elements(t);
    }
    return batch;
}

const suite skr_suite_attention_decode = {
    .op = "attention_decode", .at = attention_decode_at_case, .oracle = oracle, .row = one_sequence};
