/* rope_test.c - oracle, bounds and rows of rope and rope_backward. Cases: rope_cases_test.c.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies are written here as they were published (YaRN, Llama-3 and the others as Hugging Face's code has them),
 * and angles are formed in long double: nothing is shared with the library.
 *
 * Bounds, with U = 2^-24:
 *   cos, sin        tables: exact. Computed: one rounding to f32 (U, times the attention factor), and the angle's own
 *                   error, |angle| 2^-50 + 4e-10 (the manual's promise, and the polynomials).
 *   a c - b s       three roundings of the magnitudes, and the errors of a, b, c, s.
 *   norm            rstd as in rms_norm: half of the relative error of the mean, plus 4 U; two products.
 *   weight sums     (2 + sqrt(min(rows, 4096))) U of the sum of magnitudes, and what each term was off by.
 *   the output      half an ulp of its type; DENORM for products below the normal range. */
#include "rope_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "../../../tests/suite_list.h"

#define PI 3.14159265358979323846264338327950288L

static double rstd_error(int64_t n)
{
    return (sum_factor(n) / 2 + 4) * U;
}

/* ---------------------------------------------------------------- the case, read back */

/* The options that both argument structs have, and the tensors in one of two roles: 0 for q, 1 for k. */
typedef struct view {
    saker_rope_args a;
    bool backward, accumulate;
    suite_column in[2], x[2], out[2], weight[2], dweight[2], cos, sin, offsets, positions, cu;
    int64_t batch, length, heads[2], d, r;
} view;

static void copy_options(const saker_rope_backward_args *from, saker_rope_args *to)
{
    to->rotary_dim = from->rotary_dim;
    to->original_length = from->original_length;
    to->base = from->base;
    to->factor = from->factor;
    to->attention_factor = from->attention_factor;
    to->beta_fast = from->beta_fast;
    to->beta_slow = from->beta_slow;
    to->low_freq_factor = from->low_freq_factor;
    to->high_freq_factor = from->high_freq_factor;
    to->eps = from->eps;
    to->weight_offset = from->weight_offset;
    to->layout = from->layout;
    to->interleaved = from->interleaved;
    to->scaling = from->scaling;
    to->no_truncate = from->no_truncate;
    to->norm = from->norm;
}

static view read_case(const suite_case *c, double *const *value, double *const *bound, bool backward)
{
    static const char *const names[2][2][5] = {
        {{"q", "", "q_out", "q_weight", ""}, {"k", "", "k_out", "k_weight", ""}},
        {{"dq_out", "q", "dq", "q_weight", "dq_weight"}, {"dk_out", "k", "dk", "k_weight", "dk_weight"}}};
    view v = {.backward = backward};
    if (backward) {
        saker_rope_backward_args b;
        memcpy(&b, c->args, sizeof b);
        copy_options(&b, &v.a);
        v.accumulate = b.accumulate;
    } else {
        memcpy(&v.a, c->args, sizeof v.a);
    }
    for (int t = 0; t < 2; t++) {
        v.in[t] = suite_column_of(c, value, bound, names[backward][t][0]);
        v.x[t] = suite_column_of(c, value, bound, names[backward][t][1]);
        v.out[t] = suite_column_of(c, value, bound, names[backward][t][2]);
        v.weight[t] = suite_column_of(c, value, bound, names[backward][t][3]);
        v.dweight[t] = suite_column_of(c, value, bound, names[backward][t][4]);
    }
    v.cos = suite_column_of(c, value, bound, "cos");
    v.sin = suite_column_of(c, value, bound, "sin");
    v.offsets = suite_column_of(c, value, bound, "offsets");
    v.positions = suite_column_of(c, value, bound, "positions");
    v.cu = suite_column_of(c, value, bound, "cu_seqlens");
    const int64_t *shape = v.in[0].t->shape;
    bool packed = v.a.layout == SAKER_THD, heads_first = v.a.layout == SAKER_BHSD;
    v.batch = packed ? 1 : shape[0];
    v.length = packed ? shape[0] : shape[heads_first ? 2 : 1];
    v.heads[0] = shape[heads_first || packed ? 1 : 2];
    v.heads[1] = v.in[1].t ? v.in[1].t->shape[heads_first || packed ? 1 : 2] : 0;
    v.d = shape[packed ? 2 : 3];
    v.r = v.a.rotary_dim ? v.a.rotary_dim : v.cos.t ? 2 * v.cos.t->shape[1] : v.d;
    return v;
}

/* Logical index of a head's first element. */
static int64_t head_index(const view *v, int t, int64_t b, int64_t s, int64_t h)
{
    int64_t heads = v->heads[t];
    return (v->a.layout == SAKER_BHSD ? (b * heads + h) * v->length + s : (b * v->length + s) * heads + h) * v->d;
}

/* ---------------------------------------------------------------- angles */

static long double option(double given, double preset)
{
    return given == 0 ? (long double)preset : (long double)given;
}

static long double yarn_column(long double turns, const view *v, long double base)
{
    return (long double)v->r * logl((long double)v->a.original_length / (turns * 2 * PI)) / (2 * logl(base));
}

static long double frequency(const view *v, int64_t i)
{
    long double base = option(v->a.base, 10000), factor = option(v->a.factor, 1), r = (long double)v->r;
    if (v->a.scaling == SAKER_ROPE_NTK && v->r > 2)
        base *= powl(factor, r / (r - 2));
    long double f = powl(base, -2 * (long double)i / r);
    if (v->a.scaling == SAKER_ROPE_LINEAR)
        return f / factor;
    if (v->a.scaling == SAKER_ROPE_YARN) {
        long double low = yarn_column(option(v->a.beta_fast, 32), v, base);
        long double high = yarn_column(option(v->a.beta_slow, 1), v, base);
        if (!v->a.no_truncate)
            low = floorl(low), high = ceill(high);
        low = fmaxl(low, 0), high = fminl(high, r - 1);
        high += low == high ? 0.001L : 0;
        long double ramp = fminl(fmaxl(((long double)i - low) / (high - low), 0), 1);
        return f / factor * ramp + f * (1 - ramp);
    }
    if (v->a.scaling == SAKER_ROPE_LLAMA3) {
        long double length = (long double)v->a.original_length, wave = 2 * PI / f;
        long double low = option(v->a.low_freq_factor, 1), high = option(v->a.high_freq_factor, 4);
        if (wave > length / low)
            return f / factor;
        if (wave < length / high)
            return f;
        long double smooth = (length / wave - low) / (high - low);
        return (1 - smooth) * f / factor + smooth * f;
    }
    return f;
}

static double attention(const view *v)
{
    if (v->a.attention_factor != 0)
        return (double)v->a.attention_factor;
    double factor = (double)option(v->a.factor, 1);
    return v->a.scaling == SAKER_ROPE_YARN && factor > 1 ? (double)(float)(0.1 * log(factor) + 1) : 1;
}

/* Position of a token; false: it belongs to no sequence. */
static bool position_of(const view *v, int64_t b, int64_t s, double *position)
{
    if (v->positions.t) {
        *position = v->positions.v[b * v->length + s];
        return true;
    }
    int64_t begin = 0, sequence = b;
    if (v->cu.t) {
        int64_t n = v->cu.t->shape[0] - 1;
        for (sequence = 0; sequence < n; sequence++) {
            begin = (int64_t)v->cu.v[sequence];
            if (begin <= s && s < (int64_t)v->cu.v[sequence + 1])
                break;
        }
        if (sequence == n)
            return false;
    }
    *position = (double)(s - begin) + (v->offsets.t ? v->offsets.v[sequence] : 0);
    return true;
}

/* cos and sin of a token's pairs, and how far a kernel's may be off. */
typedef struct angles {
    long double *f;
    double *c, *s, *off;
    float *plain_c, *plain_s; /* as plain f32 code has them */
    double attention;
    bool somewhere;
} angles;

static angles angles_open(const view *v)
{
    size_t n = (size_t)v->r / 2 + 1;
    angles a = {malloc(n * sizeof *a.f),
                malloc(n * sizeof *a.c),
                malloc(n * sizeof *a.s),
                malloc(n * sizeof *a.off),
                malloc(n * sizeof *a.plain_c),
                malloc(n * sizeof *a.plain_s),
                attention(v),
                false};
    for (int64_t i = 0; i < v->r / 2; i++)
        a.f[i] = v->cos.t ? 0 : frequency(v, i);
    return a;
}

static void angles_close(angles *a)
{
    free(a->f), free(a->c), free(a->s), free(a->off), free(a->plain_c), free(a->plain_s);
}

static void angles_at(const view *v, angles *a, int64_t b, int64_t s)
{
    double position = 0;
    a->somewhere = position_of(v, b, s, &position);
    for (int64_t i = 0; a->somewhere && i < v->r / 2; i++) {
        if (v->cos.t) {
            int64_t rows = v->cos.t->shape[0], row = position < 0 ? 0 : (int64_t)fmin(position, (double)(rows - 1));
            a->c[i] = v->cos.v[row * (v->r / 2) + i];
            a->s[i] = v->sin.v[row * (v->r / 2) + i];
            a->off[i] = 0;
            a->plain_c[i] = (float)a->c[i], a->plain_s[i] = (float)a->s[i];
            continue;
        }
        long double angle = (long double)position * a->f[i];
        a->c[i] = (double)cosl(angle) * a->attention;
        a->s[i] = (double)sinl(angle) * a->attention;
        a->off[i] = fabs(a->attention) * (U + (double)fabsl(angle) * 0x1p-50 + 4e-10);
        float plain = (float)position * (float)a->f[i];
        a->plain_c[i] = cosf(plain) * (float)a->attention, a->plain_s[i] = sinf(plain) * (float)a->attention;
    }
}

/* Columns of pair i. */
static void pair_of(const view *v, int64_t i, int64_t *first, int64_t *second)
{
    *first = v->a.interleaved ? 2 * i : i;
    *second = v->a.interleaved ? 2 * i + 1 : i + v->r / 2;
}

/* ---------------------------------------------------------------- one head */

static double weight_at(const view *v, int t, int64_t j)
{
    if (!v->a.norm)
        return 1;
    return (double)(float)((v->weight[t].t ? v->weight[t].v[j] : 1) + (double)v->a.weight_offset);
}

static void put(suite_column c, int64_t i, double want, double bound)
{
    c.v[i] = want;
    c.bound[i] = bound;
}

/* The norm of a head: y and its error. */
static void normalise(const view *v, int t, const double *x, double *y, double *off)
{
    double eps = v->a.eps == 0 ? (double)1e-6f : (double)v->a.eps, sum = 0;
    for (int64_t j = 0; j < v->d; j++)
        sum += x[j] * x[j];
    double rstd = 1 / sqrt(sum / (double)v->d + eps);
    for (int64_t j = 0; j < v->d; j++) {
        double w = weight_at(v, t, j);
        y[j] = v->a.norm ? x[j] * rstd * w : x[j];
        off[j] = v->a.norm ? fabs(y[j]) * (rstd_error(v->d) + 2 * U) + DENORM * (1 + fabs(w)) : 0;
    }
}

/* Rotates x (off by x_off) into y and its error; back: by minus the angle. */
static void rotate(const view *v, const angles *a, const double *x, const double *x_off, double sign, double *y,
                   double *off)
{
    for (int64_t i = 0; i < v->r / 2; i++) {
        int64_t j, k;
        pair_of(v, i, &j, &k);
        double c = a->c[i], s = sign * a->s[i];
        y[j] = x[j] * c - x[k] * s;
        y[k] = x[k] * c + x[j] * s;
        double size = fabs(x[j]) + fabs(x[k]), more = a->off[i] * size + 3 * DENORM;
        off[j] = 3 * U * (fabs(x[j] * c) + fabs(x[k] * s)) + x_off[j] * fabs(c) + x_off[k] * fabs(s) + more;
        off[k] = 3 * U * (fabs(x[k] * c) + fabs(x[j] * s)) + x_off[k] * fabs(c) + x_off[j] * fabs(s) + more;
    }
    for (int64_t j = v->r; j < v->d; j++)
        y[j] = x[j], off[j] = x_off[j];
}

static void store(const view *v, int t, int64_t at, const double *y, const double *off)
{
    for (int64_t j = 0; v->out[t].t && j < v->d; j++) {
        saker_type type = v->out[t].t->type;
        if (j >= v->r && off[j] == 0)
            put(v->out[t], at + j, round_to(type, y[j]), 0); /* copied */
        else
            put(v->out[t], at + j, y[j], off[j] + half_ulp(type, fabs(y[j]) + off[j]));
    }
}

/* The norm's gradient from g (off by g_off): into y and off, and into the weight's sums. */
static void norm_gradient(const view *v, int t, const double *x, const double *g, const double *g_off, double rows,
                          double *y, double *off)
{
    double eps = v->a.eps == 0 ? (double)1e-6f : (double)v->a.eps, sum = 0, dot = 0, size = 0, slack = 0;
    for (int64_t j = 0; j < v->d; j++)
        sum += x[j] * x[j];
    double n = (double)v->d, rstd = 1 / sqrt(sum / n + eps), er = rstd_error(v->d), factor = sum_factor(v->d);
    for (int64_t j = 0; j < v->d; j++) {
        double w = weight_at(v, t, j), term = g[j] * w * x[j] * rstd;
        dot += term;
        size += fabs(term);
        slack += fabs(w * x[j] * rstd) * g_off[j];
    }
    for (int64_t j = 0; j < v->d; j++) {
        double w = weight_at(v, t, j), h = x[j] * rstd;
        y[j] = rstd * (g[j] * w - h * dot / n);
        double magnitude = rstd * (fabs(g[j] * w) + fabs(h) * size / n);
        off[j] = magnitude * (6 * U + 3 * er) + rstd * fabs(h) * size / n * factor * U +
                 rstd * (fabs(w) * g_off[j] + fabs(h) * slack / n) + DENORM * (1 + rstd) * (1 + rstd) * (2 + fabs(h));
        if (v->dweight[t].t) {
            v->dweight[t].v[j] += g[j] * h;
            v->dweight[t].bound[j] +=
                fabs(g[j] * h) * ((rows + 2) * U + er) + g_off[j] * fabs(h) + DENORM * (1 + fabs(g[j]));
        }
    }
}

/* ---------------------------------------------------------------- the oracles */

static void oracle(const suite_case *c, double *const *value, double *const *bound, bool backward)
{
    view v = read_case(c, value, bound, backward);
    size_t room = (size_t)v.d * sizeof(double) + 1;
    double *y = malloc(room), *off = malloc(room), *g = malloc(room), *g_off = malloc(room), *zero = calloc(room, 1);
    angles a = angles_open(&v);
    for (int t = 0; t < 2; t++)
        for (int64_t j = 0; v.dweight[t].t && j < v.d; j++) {
            double held = v.accumulate ? v.dweight[t].v[j] : 0;
            put(v.dweight[t], j, held, U * fabs(held));
        }
    for (int64_t b = 0; b < v.batch; b++)
        for (int64_t s = 0; s < v.length; s++) {
            angles_at(&v, &a, b, s);
            for (int t = 0; t < 2; t++)
                for (int64_t h = 0; h < v.heads[t]; h++) {
                    int64_t at = head_index(&v, t, b, s, h);
                    double rows = sum_factor(v.batch * v.length * v.heads[t]);
                    if (!a.somewhere) {
                        for (int64_t j = 0; v.out[t].t && j < v.d; j++)
                            put(v.out[t], at + j, 0, 0);
                        continue;
                    }
                    if (!backward) {
                        normalise(&v, t, v.in[t].v + at, g, g_off);
                        rotate(&v, &a, g, g_off, 1, y, off);
                    } else {
                        rotate(&v, &a, v.in[t].v + at, zero, -1, g, g_off);
                        if (v.a.norm)
                            norm_gradient(&v, t, v.x[t].v + at, g, g_off, rows, y, off);
                    }
                    store(&v, t, at, backward && !v.a.norm ? g : y, backward && !v.a.norm ? g_off : off);
                }
        }
    for (int t = 0; t < 2; t++)
        for (int64_t j = 0; v.dweight[t].t && j < v.d; j++)
            v.dweight[t].bound[j] += half_ulp(v.dweight[t].t->type, fabs(v.dweight[t].v[j]) + v.dweight[t].bound[j]);
    angles_close(&a);
    free(y), free(off), free(g), free(g_off), free(zero);
}

static void forward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    oracle(c, value, bound, false);
}

static void backward_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    oracle(c, value, bound, true);
}

/* Rotation in plain f32, without a norm: with one, rms_norm's own test has the plain computation. */
static void plain(const suite_case *c, double *const *value, bool backward)
{
    view v = read_case(c, value, NULL, backward);
    if (v.a.norm)
        return;
    angles a = angles_open(&v);
    for (int64_t b = 0; b < v.batch; b++)
        for (int64_t s = 0; s < v.length; s++) {
            angles_at(&v, &a, b, s);
            for (int t = 0; t < 2; t++)
                for (int64_t h = 0; v.out[t].t && h < v.heads[t]; h++) {
                    int64_t at = head_index(&v, t, b, s, h);
                    const double *x = v.in[t].v + at;
                    for (int64_t i = 0; a.somewhere && i < v.r / 2; i++) {
                        int64_t j, k;
                        pair_of(&v, i, &j, &k);
                        float cosine = a.plain_c[i], sine = backward ? -a.plain_s[i] : a.plain_s[i];
                        v.out[t].v[at + j] = round_to(v.out[t].t->type, (float)x[j] * cosine - (float)x[k] * sine);
                        v.out[t].v[at + k] = round_to(v.out[t].t->type, (float)x[k] * cosine + (float)x[j] * sine);
                    }
                }
        }
    angles_close(&a);
}

static void forward_plain(const suite_case *c, double *const *value)
{
    plain(c, value, false);
}

static void backward_plain(const suite_case *c, double *const *value)
{
    plain(c, value, true);
}

/* ---------------------------------------------------------------- one token alone */

/* Where a token's position does not depend on where it stands (positions are given), or can be moved with it (row s of
 * the tables becomes row 0). Tokens with their heads together, so not in layout bhsd. */
static int64_t one_token(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice)
{
    const suite_tensor *q = &c->tensor[0];
    bool positions = false, tables = false, other = false;
    for (int i = 0; i < c->n_tensors; i++) {
        const char *f = c->tensor[i].field;
        positions |= !strcmp(f, "positions");
        tables |= !strcmp(f, "cos");
        other |= !strcmp(f, "offsets") || !strcmp(f, "cu_seqlens");
    }
    saker_rope_args a;
    saker_rope_backward_args back;
    memcpy(&a, c->args, sizeof a);
    memcpy(&back, c->args, sizeof back);
    int layout = q->field[0] == 'd' ? back.layout : a.layout, lead = layout == SAKER_THD ? 1 : 2;
    if (layout == SAKER_BHSD || other || !(positions || tables))
        return 0;
    int64_t length = q->shape[lead - 1], tokens = lead == 1 ? length : q->shape[0] * length;
    if (!one)
        return tokens;
    *one = *c;
    for (int i = 0; i < c->n_tensors; i++) {
        suite_tensor *t = &one->tensor[i];
        const char *f = t->field;
        bool by_token = !strcmp(f, "positions") || t->ndim > 2;
        bool by_place = !positions && (!strcmp(f, "cos") || !strcmp(f, "sin"));
        memset(t->stride, 0, sizeof t->stride);
        slice->first[i] = by_token   ? row * (suite_elements(&c->tensor[i]) / tokens)
                          : by_place ? row % length * t->shape[1]
                                     : 0;
        if (strstr(f, "weight") && t->role != SUITE_IN)
            slice->first[i] = -1;
        for (int d = 0; (by_token || by_place) && d < (by_place ? 1 : lead); d++)
            t->shape[d] = 1;
    }
    return tokens;
}

const suite skr_suite_rope = {
    .op = "rope", .at = rope_case, .oracle = forward_oracle, .plain = forward_plain, .row = one_token};
const suite skr_suite_rope_backward = {.op = "rope_backward",
                                       .at = rope_backward_case,
                                       .oracle = backward_oracle,
                                       .plain = backward_plain,
                                       .row = one_token};
