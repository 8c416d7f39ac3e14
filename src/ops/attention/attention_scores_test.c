/* attention_scores_test.c - the case's tensors, and the scores that forward and backward begin with.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "attention_test.h"

static double *room(int64_t n)
{
    return suite_room(n, sizeof(double));
}

/* ---------------------------------------------------------------- tensors */

static double half_of(saker_type type)
{
    return type == SAKER_BF16 ? 0x1p-8 : type == SAKER_F16 ? 0x1p-11 : 0;
}

#define OPTIONS(a)                                                                                                     \
    {                                                                                                                  \
        .seed = (a)->seed, .offset = (a)->offset, .window_left = (a)->window_left, .window_right = (a)->window_right,  \
        .scale = (double)(a)->scale, .softcap = (double)(a)->softcap, .dropout = (double)(a)->dropout,                 \
        .layout = (a)->layout, .causal = (a)->causal, .top_left = (a)->top_left, .has_window = (a)->has_window,        \
        .id_rule = (a)->id_rule                                                                                        \
    }

static attention_options options_of(const suite_case *c)
{
    if (suite_index(c, "d_o") >= 0) {
        const saker_attention_backward_args *a = (const saker_attention_backward_args *)c->args;
        attention_options o = OPTIONS(a);
        o.accumulate = a->accumulate;
        return o;
    }
    const saker_attention_args *a = (const saker_attention_args *)c->args;
    attention_options o = OPTIONS(a);
    o.descale_block = a->descale_block;
    o.p_scale = (double)a->p_scale;
    return o;
}

/* cu_seqlens, cut to rise within the tokens. */
static void cut(suite_column cu, int64_t batch, int64_t tokens, int64_t *at)
{
    double before = 0;
    for (int64_t i = 0; i <= batch; i++) {
        before = fmax(before, fmin(cu.v[i], (double)tokens));
        at[i] = (int64_t)before;
    }
}

/* A padded bias, mask or descale ends a sequence. */
static int64_t limit_of(suite_column x, int dim, int64_t length)
{
    int at = x.t ? dim - (4 - x.t->ndim) : -1;
    return at >= 0 && x.t->shape[at] != 1 && x.t->shape[at] < length ? x.t->shape[at] : length;
}

static int64_t limit_of_blocks(suite_column x, int64_t block, int64_t length)
{
    return x.t && x.t->ndim == 3 && x.t->shape[2] * block < length ? x.t->shape[2] * block : length;
}

static void find_ranges(attention_problem *p)
{
    p->range = suite_room(p->batch, sizeof *p->range);
    int64_t *q = suite_room(p->batch, sizeof *q), *k = suite_room(p->batch, sizeof *k);
    if (p->cu_q.t) {
        cut(p->cu_q, p->batch, p->length, q);
        cut(p->cu_k, p->batch, p->length_k, k);
    }
    for (int64_t b = 0; b < p->batch; b++) {
        attention_range r = {q[b], k[b], p->length, p->length_k};
        if (p->cu_q.t)
            r = (attention_range){q[b], k[b], q[b + 1] - q[b], k[b + 1] - k[b]};
        const suite_column of_matrix[] = {p->bias, p->mask};
        for (int i = 0; i < 2; i++) {
            r.q_len = limit_of(of_matrix[i], 2, r.q_len);
            r.k_len = limit_of(of_matrix[i], 3, r.k_len);
        }
        r.q_len = limit_of_blocks(p->q_descale, p->opt.descale_block, r.q_len);
        r.k_len = limit_of_blocks(p->k_descale, p->opt.descale_block, r.k_len);
        r.k_len = limit_of_blocks(p->v_descale, p->opt.descale_block, r.k_len);
        p->range[b] = r;
    }
    free(q);
    free(k);
}

attention_problem attention_open(const suite_case *c, double *const *value, double *const *bound)
{
    attention_problem p = {.opt = options_of(c)};
    struct {
        const char *name;
        suite_column *to;
    } all[] = {{"q", &p.q},
               {"k", &p.k},
               {"v", &p.v},
               {"o", &p.o},
               {"lse", &p.lse},
               {"bias", &p.bias},
               {"mask", &p.mask},
               {"key_mask", &p.key_mask},
               {"slopes", &p.slopes},
               {"sinks", &p.sinks},
               {"cu_seqlens_q", &p.cu_q},
               {"cu_seqlens_k", &p.cu_k},
               {"q_positions", &p.q_pos},
               {"k_positions", &p.k_pos},
               {"q_ids", &p.q_ids},
               {"k_ids", &p.k_ids},
               {"q_descale", &p.q_descale},
               {"k_descale", &p.k_descale},
               {"v_descale", &p.v_descale},
               {"d_o", &p.d_o},
               {"dlse", &p.dlse},
               {"dq", &p.dq},
               {"dk", &p.dk},
               {"dv", &p.dv},
               {"dbias", &p.dbias},
               {"dslopes", &p.dslopes},
               {"dsinks", &p.dsinks}};
    foreach (i, all)
        *all[i].to = suite_column_of(c, value, bound, all[i].name);
    int layout = p.opt.layout, token = layout == SAKER_THD ? 0 : layout == SAKER_BSHD ? 1 : 2;
    int head = layout == SAKER_BSHD ? 2 : 1, last = p.q.t->ndim - 1;
    p.length = p.q.t->shape[token];
    p.length_k = p.k.t->shape[token];
    p.heads = p.q.t->shape[head];
    p.heads_k = p.k.t->shape[head];
    p.d = p.q.t->shape[last];
    p.d_v = p.v.t->shape[last];
    p.batch = layout != SAKER_THD ? p.q.t->shape[0] : p.cu_q.t ? p.cu_q.t->shape[0] - 1 : 1;
    p.scale = p.opt.scale != 0 ? p.opt.scale : (double)(float)(1 / sqrt((double)p.d));
    find_ranges(&p);
    saker_type q = p.q.t->type, k = p.k.t->type, half = p.v.t->type;
    if (k == SAKER_I8 || k == SAKER_E4M3) {
        half = q == SAKER_I8 || q == SAKER_E4M3 ? p.o.t->type : q;
        p.half_v = half_of(half);
        p.half_k = q == SAKER_I8 || q == SAKER_E4M3 ? 0 : half_of(half);
    }
    p.half_p = half_of(half);
    p.tiny_p = half == SAKER_F16 ? 0x1p-25 : 0;
    p.sums = half == SAKER_BF16 || q == SAKER_BF16 || q == SAKER_E4M3 ? 2 : 1;
    return p;
}

void attention_close(attention_problem *p)
{
    free(p->range);
}

int64_t attention_place(const attention_problem *p, suite_column x, int64_t b, int64_t t, int64_t h, int64_t d)
{
    const int64_t *n = x.t->shape;
    if (p->opt.layout == SAKER_THD)
        return (t * n[1] + h) * n[2] + d;
    if (p->opt.layout == SAKER_BSHD)
        return ((b * n[1] + t) * n[2] + h) * n[3] + d;
    return ((b * n[1] + h) * n[2] + t) * n[3] + d;
}

double *attention_at(const attention_problem *p, suite_column x, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return &x.v[attention_place(p, x, b, t, h, d)];
}

int64_t attention_stat(const attention_problem *p, int64_t b, int64_t t, int64_t h)
{
    return (p->opt.layout == SAKER_THD ? h : b * p->heads + h) * p->length + t;
}

/* A number for each token. */
static double token_at(const attention_problem *p, suite_column x, int64_t b, int64_t t)
{
    return x.v[p->opt.layout == SAKER_THD ? t : b * x.t->shape[1] + t];
}

/* A number for each head: [H], [B, H] or [B, H, blocks]. */
static double of_head(suite_column x, int64_t b, int64_t h, int64_t block)
{
    if (!x.t)
        return 1;
    const int64_t *n = x.t->shape;
    return x.t->ndim == 1 ? x.v[h] : x.t->ndim == 2 ? x.v[b * n[1] + h] : x.v[(b * n[1] + h) * n[2] + block];
}

static double descale(const attention_problem *p, suite_column x, int64_t b, int64_t h, int64_t i)
{
    return of_head(x, b, h, p->opt.descale_block ? i / p->opt.descale_block : 0);
}

static double query(const attention_problem *p, int64_t b, const attention_range *r, int64_t i, int64_t h, int64_t d)
{
    int64_t of = p->q.t->type == SAKER_E4M3 ? h / (p->heads / p->heads_k) : h;
    return *attention_at(p, p->q, b, r->q + i, h, d) * descale(p, p->q_descale, b, of, i);
}

double attention_key(const attention_problem *p, int64_t b, const attention_range *r, int64_t j, int64_t h, int64_t d)
{
    return *attention_at(p, p->k, b, r->k + j, h, d) * descale(p, p->k_descale, b, h, j);
}

double attention_value(const attention_problem *p, int64_t b, const attention_range *r, int64_t j, int64_t h, int64_t d)
{
    return *attention_at(p, p->v, b, r->k + j, h, d) * descale(p, p->v_descale, b, h, j);
}

int64_t attention_bias_place(suite_column x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t index[] = {b, h, i, j};
    int64_t at = 0;
    for (int d = 0; d < x.t->ndim; d++)
        at = at * x.t->shape[d] + (x.t->shape[d] == 1 ? 0 : index[4 - x.t->ndim + d]);
    return at;
}

double attention_slope(const attention_problem *p, int64_t b, int64_t h)
{
    return of_head(p->slopes, b, h, 0);
}

/* ---------------------------------------------------------------- dropout */

/* Philox4x32-10, written apart from the library's. */
static uint32_t philox_word(const uint32_t counter[4], uint64_t seed, int lane)
{
    uint64_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, key[2] = {seed & 0xffffffff, seed >> 32};
    for (int round = 0; round < 10; round++) {
        uint64_t a = x[0] * 0xD2511F53u, b = x[2] * 0xCD9E8D57u;
        uint64_t next[4] = {(b >> 32) ^ x[1] ^ key[0], b & 0xffffffff, (a >> 32) ^ x[3] ^ key[1], a & 0xffffffff};
        memcpy(x, next, sizeof x);
        key[0] = (key[0] + 0x9E3779B9u) & 0xffffffff;
        key[1] = (key[1] + 0xBB67AE85u) & 0xffffffff;
    }
    return (uint32_t)x[lane];
}

static double keep(const attention_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (p->opt.dropout == 0)
        return 1;
    uint32_t counter[4] = {(uint32_t)j / 4, (uint32_t)i, (uint32_t)(b * p->heads + h), (uint32_t)p->opt.offset};
    double uniform = (double)(philox_word(counter, (uint64_t)p->opt.seed, (int)((uint32_t)j % 4)) >> 8) * 0x1p-24;
    return uniform >= p->opt.dropout ? 1 / (1 - p->opt.dropout) : 0;
}

/* ---------------------------------------------------------------- scores */

/* i + diagonal - j in the formulas; i and j become what dropout counts with. */
static double from_diagonal(const attention_problem *p, int64_t b, const attention_range *r, int64_t *i, int64_t *j)
{
    bool given = p->q_pos.t || p->k_pos.t;
    if (p->q_pos.t)
        *i = (int64_t)token_at(p, p->q_pos, b, r->q + *i);
    if (p->k_pos.t)
        *j = (int64_t)token_at(p, p->k_pos, b, r->k + *j);
    return (double)(*i - *j + (given || p->opt.top_left ? 0 : r->k_len - r->q_len));
}

static bool sees(const attention_problem *p, int64_t b, int64_t h, const attention_range *r, int64_t i, int64_t j,
                 double before)
{
    const attention_options *o = &p->opt;
    if ((o->causal && before < 0) || (o->has_window && ((o->window_left >= 0 && before > (double)o->window_left) ||
                                                        (o->window_right >= 0 && before < (double)-o->window_right))))
        return false;
    if (p->key_mask.t && token_at(p, p->key_mask, b, r->k + j) == 0)
        return false;
    if (p->q_ids.t) {
        double a = token_at(p, p->q_ids, b, r->q + i), c = token_at(p, p->k_ids, b, r->k + j);
        if (o->id_rule == SAKER_ID_SAME ? a != c : c > a)
            return false;
    }
    return !p->mask.t || p->mask.v[attention_bias_place(p->mask, b, h, i, j)] != 0;
}

static bool is_large(double x)
{
    return isfinite(x) && fabs(x) > 0x1p20;
}

double attention_size(double x, double from, double more)
{
    return is_large(from) ? fabs(x - from) : fabs(x) + fabs(from) + fabs(more);
}

attention_scores attention_scores_of(const attention_problem *p, int64_t b, int64_t h)
{
    const attention_range *r = &p->range[b];
    int64_t n = r->q_len * r->k_len, hk = h / (p->heads / p->heads_k);
    attention_scores out = {room(n), room(n), room(n), room(n), room(n)};
    bool exact = p->q.t->type == SAKER_I8;
    for (int64_t i = 0; i < r->q_len; i++)
        for (int64_t j = 0; j < r->k_len; j++) {
            int64_t at = i * r->k_len + j, pi = i, pj = j;
            double dot = 0, size = 0, before = from_diagonal(p, b, r, &pi, &pj);
            bool whole = true;
            out.z[at] = keep(p, b, h, pi, pj);
            out.distance[at] = fabs(before);
            out.slope[at] = 1;
            out.s[at] = -INFINITY;
            if (!sees(p, b, h, r, i, j, before))
                continue;
            for (int64_t d = 0; d < p->d; d++) {
                double x = query(p, b, r, i, h, d) * attention_key(p, b, r, j, hk, d);
                dot += x;
                size += fabs(x);
                whole &= x == rint(x);
            }
            double s = p->scale * dot, magnitude = fabs(s);
            double error = fabs(p->scale) * size * ((exact ? 2 : p->sums * sum_factor(p->d)) * U + p->half_k) +
                           fabs(p->scale) * (double)p->d * DENORM;
            if (p->opt.softcap != 0) {
                double t = tanh(s / p->opt.softcap);
                error = error * (1 - t * t) + error * error / p->opt.softcap + 8 * U * p->opt.softcap * fabs(t);
                out.slope[at] = 1 - t * t;
                s = p->opt.softcap * t;
                magnitude = fabs(s);
            }
            if (p->bias.t) {
                double x = p->bias.v[attention_bias_place(p->bias, b, h, i, j)];
                s += x;
                magnitude += isfinite(x) ? fabs(x) : 0;
            }
            if (p->slopes.t) {
                double x = attention_slope(p, b, h) * out.distance[at];
                s -= x;
                magnitude += fabs(x);
            }
            out.s[at] = s;
            out.error[at] = error + 8 * U * magnitude;
            /* A sum of whole numbers is exact; so is a score where nothing else is added. */
            bool alone = size == 0 || (p->opt.softcap == 0 && !p->bias.t);
            if (is_large(s) && alone && !p->slopes.t && whole && size < 0x1p24)
                out.error[at] = 0;
        }
    return out;
}

void attention_scores_free(attention_scores *s)
{
    free(s->s);
    free(s->error);
    free(s->z);
    free(s->slope);
    free(s->distance);
}

/* ---------------------------------------------------------------- one row alone */

static bool named(const suite_tensor *t, const char *names)
{
    const char *at = strstr(names, t->field);
    size_t n = strlen(t->field);
    return at && (at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0);
}

/* bhsd, where a query's keys are neighbours in memory: all, or the first up to its own. */
static bool by_query(const suite_case *c, const attention_options *o)
{
    bool able = o->layout == SAKER_BHSD && !o->top_left && (!o->has_window || o->window_right == 0 || o->causal);
    for (int i = 0; able && i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        able = named(t, "q k v o lse d_o dlse dq dk dv sinks dsinks") ||
               (named(t, "slopes dslopes") && t->ndim == 1 && o->causal) ||
               (named(t, "bias dbias") && t->shape[0] == 1 && t->shape[1] != 1 && t->shape[2] != 1 &&
                t->shape[3] != 1 && !o->causal);
    }
    const int64_t *q = c->tensor[suite_index(c, "q")].shape, *k = c->tensor[suite_index(c, "k")].shape;
    return able && k[1] == q[1] && (k[2] == q[2] || !(o->causal || o->has_window));
}

/* Query i of head h, batch b; the keys up to it where it sees no more. */
static void one_query(const attention_options *o, int64_t row, suite_case *one, suite_slice *slice)
{
    const int64_t *q = one->tensor[suite_index(one, "q")].shape, heads = q[1], length = q[2];
    int64_t keys = one->tensor[suite_index(one, "k")].shape[2], i = row % length, head = row / length, h = head % heads;
    int64_t seen = o->causal || o->has_window ? i + 1 : keys;
    for (int t = 0; t < one->n_tensors; t++) {
        suite_tensor *x = &one->tensor[t];
        int64_t *n = x->shape;
        if (named(x, "q o d_o dq")) {
            slice->first[t] = row * n[3];
            n[0] = n[1] = n[2] = 1;
        } else if (named(x, "k v dk dv")) {
            slice->first[t] = x->role == SUITE_IN ? head * keys * n[3] : -1;
            n[0] = n[1] = 1;
            n[2] = seen;
        } else if (named(x, "lse dlse")) {
            slice->first[t] = row;
            n[0] = n[1] = n[2] = 1;
        } else if (named(x, "bias dbias")) {
            slice->first[t] = (h * length + i) * keys;
            n[1] = n[2] = 1;
        } else { /* one for each head */
            slice->first[t] = x->role == SUITE_IN ? h : -1;
            n[0] = 1;
        }
    }
}

/* Batch `row`. */
static void one_batch(int64_t row, int64_t batch, suite_case *one, suite_slice *slice)
{
    for (int i = 0; i < one->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        bool sum = named(t, "dbias dslopes dsinks");
        bool whole = named(t, "sinks dsinks") ||
                     (named(t, "slopes dslopes q_descale k_descale v_descale") && t->ndim == 1) ||
                     (named(t, "bias dbias mask") && (t->ndim < 4 || t->shape[0] == 1));
        slice->first[i] = sum ? -1 : 0;
        if (whole || t->shape[0] != batch)
            continue;
        t->shape[0] = 1;
        if (!sum)
            slice->first[i] = row * suite_elements(t);
    }
}

/* A query alone where its keys can be cut out, else a batch. Its bits are those it has among others, unless its number
 * counts (dropout). */
int64_t attention_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    attention_options o = options_of(c);
    const int64_t *q = c->tensor[suite_index(c, "q")].shape;
    bool apart = o.layout != SAKER_THD && o.dropout == 0 && !o.accumulate;
    for (int i = 0; i < c->n_tensors; i++)
        apart &= suite_compact(&c->tensor[i]);
    if (!apart)
        return 0;
    bool query_alone = by_query(c, &o);
    if (one) {
        *one = *c;
        if (query_alone)
            one_query(&o, row, one, slice);
        else
            one_batch(row, q[0], one, slice);
    }
    return query_alone ? q[0] * q[1] * q[2] : q[0];
}
