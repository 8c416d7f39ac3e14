/* moe_test.c - oracle and cases of moe.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Both products are judged by the oracle of grouped_gemm. What h may be off by, its rounding to x's type included, goes
 * through the second product with the magnitudes of the weights; what z may be off by through the sum with those of the
 * routing weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"
#include "suite_list.h"
#include "suite_random.h"

static suite_list list;

/* ---------------------------------------------------------------- oracle */

typedef struct moe {
    const saker_moe_args *args;
    suite_column x, weights, offsets, token, place, y;
    int64_t t, k, h, inner, experts, rows;
} moe;

/* [E, n, k] as [E, k, n]. */
static double *turned(const suite_column *w)
{
    int64_t e = w->t->shape[0], n = w->t->shape[1], k = w->t->shape[2];
    double *to = suite_room(e * n * k, sizeof *to);
    for (int64_t i = 0; i < e * n * k; i++)
        to[i / (n * k) * n * k + i % k * n + i / k % n] = w->v[i];
    return to;
}

static void put(suite_case *c, double **value, const char *field, const suite_tensor *like, double *v, int64_t d0,
                int64_t d1, int64_t d2)
{
    suite_tensor *t = &c->tensor[c->n_tensors];
    *t = (suite_tensor){.field = field, .type = like->type, .ndim = d2 ? 3 : d1 ? 2 : 1, .shape = {d0, d1, d2}};
    value[c->n_tensors++] = v;
}

/* A product of the groups: a [any, k] x weights of `name`, into d [rows, columns] with its bound. */
static void product(const moe *m, const suite_case *c, double *const *value, bool up, suite_column a, double *d,
                    double *bound)
{
    suite_column w = suite_column_of(c, value, NULL, up ? "gate_up" : "down");
    suite_column bias = suite_column_of(c, value, NULL, up ? "gate_up_bias" : "down_bias");
    suite_column scale = suite_column_of(c, value, NULL, up ? "gate_up_scale" : "down_scale");
    suite_column zero = suite_column_of(c, value, NULL, up ? "gate_up_zero" : "down_zero");
    int64_t e = m->experts, n = w.t->shape[1], k = w.t->shape[2], columns = up ? m->inner : n;
    if (!m->rows || !columns)
        return;
    suite_case g = {.n_tensors = 0};
    saker_grouped_gemm_args args = {.struct_size = sizeof args,
                                    .group = m->args->group,
                                    .scaling = m->args->group ? SAKER_GEMM_SCALE_GROUP : SAKER_GEMM_SCALE_NONE,
                                    .act = up ? m->args->act : 0,
                                    .gated = up ? m->args->gated : 0,
                                    .allow_tf32 = m->args->allow_tf32};
    double *of[10], *bounds[10] = {NULL}, *b = turned(&w), *s = NULL, *z = NULL;
    memcpy(g.args, &args, sizeof args);
    put(&g, of, "a", a.t, a.v, a.t->shape[0], a.t->shape[1], 0);
    g.tensor[0].ndim = 2;
    put(&g, of, "b", w.t, b, e, k, n);
    g.tensor[1].ndim = 3;
    bounds[g.n_tensors] = bound;
    put(&g, of, "d", m->x.t, d, m->rows, columns, 0);
    put(&g, of, "offsets", m->offsets.t, m->offsets.v, e + 1, 0, 0);
    if (up)
        put(&g, of, "gather", m->token.t, m->token.v, m->rows, 0, 0);
    if (bias.t)
        put(&g, of, "bias", bias.t, bias.v, e, n, 0);
    if (scale.t)
        put(&g, of, "b_scale", scale.t, s = turned(&scale), e, scale.t->shape[2], n);
    if (zero.t)
        put(&g, of, "b_zero", zero.t, z = turned(&zero), e, zero.t->shape[2], n);
    skr_suite_grouped_gemm.oracle(&g, of, bounds);
    free(b), free(s), free(z);
}

static int64_t expert_of(const moe *m, int64_t r)
{
    int64_t first = 0;
    for (int64_t e = 0; e < m->experts; e++) {
        double begin = m->offsets.v[e], end = m->offsets.v[e + 1];
        first = fmax((double)first, begin) > (double)m->rows ? m->rows : (int64_t)fmax((double)first, begin);
        if (r >= first && (double)r < end)
            return e;
        first = end > (double)first ? (int64_t)fmin(end, (double)m->rows) : first;
    }
    return -1;
}

/* What errors of h make of z: their sum with the magnitudes of the weights. */
static void pass_on(const moe *m, const suite_case *c, double *const *value, const double *h_bound, double *z_bound)
{
    suite_column w = suite_column_of(c, value, NULL, "down"), scale = suite_column_of(c, value, NULL, "down_scale");
    suite_column zero = suite_column_of(c, value, NULL, "down_zero");
    int64_t blocks = scale.t ? scale.t->shape[2] : 0;
    for (int64_t r = 0; r < m->rows; r++) {
        int64_t e = expert_of(m, r);
        for (int64_t n = 0; e >= 0 && n < m->h; n++) {
            double sum = 0;
            for (int64_t i = 0; i < m->inner; i++) {
                double f = w.v[(e * m->h + n) * m->inner + i];
                int64_t at = blocks ? (e * m->h + n) * blocks + i / m->args->group : 0;
                f = scale.t ? (f - (zero.t ? zero.v[at] : 0)) * scale.v[at] : f;
                if (h_bound[r * m->inner + i] > 0)
                    sum += fabs(f) * h_bound[r * m->inner + i];
            }
            z_bound[r * m->h + n] += isnan(sum) ? 0 : sum * (1 + 0x1p-6);
        }
    }
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    moe m = {.args = (const saker_moe_args *)c->args};
    m.x = suite_column_of(c, value, bound, "x");
    m.weights = suite_column_of(c, value, bound, "weights");
    m.offsets = suite_column_of(c, value, bound, "offsets");
    m.token = suite_column_of(c, value, bound, "token");
    m.place = suite_column_of(c, value, bound, "place");
    m.y = suite_column_of(c, value, bound, "y");
    m.t = m.x.t->shape[0], m.h = m.x.t->shape[1], m.k = m.weights.t->shape[1], m.rows = m.t * m.k;
    m.inner = c->tensor[suite_index(c, "down")].shape[2], m.experts = m.offsets.t->shape[0] - 1;
    double *h = suite_room(m.rows * m.inner, sizeof *h), *h_bound = suite_room(m.rows * m.inner, sizeof *h);
    double *z = suite_room(m.rows * m.h, sizeof *z), *z_bound = suite_room(m.rows * m.h, sizeof *z);
    suite_tensor ht = {.type = m.x.t->type, .ndim = 2, .shape = {m.rows, m.inner}};
    product(&m, c, value, true, m.x, h, h_bound);
    product(&m, c, value, false, (suite_column){&ht, h, NULL}, z, z_bound);
    pass_on(&m, c, value, h_bound, z_bound);
    for (int64_t i = 0; i < m.t * m.h; i++) {
        int64_t t = i / m.h;
        double sum = 0, size = 0, off = 0;
        for (int64_t j = 0; j < m.k; j++) {
            double r = m.place.v[t * m.k + j], w = m.weights.v[t * m.k + j];
            if (r < 0 || r >= (double)m.rows)
                continue;
            int64_t at = (int64_t)r * m.h + i % m.h;
            sum += w * z[at];
            size += fabs(w * z[at]);
            off += fabs(w) * z_bound[at];
        }
        off += ((double)m.k + 2) * U * (size + off) + DENORM;
        m.y.v[i] = sum;
        m.y.bound[i] = off + half_ulp(m.y.t->type, fabs(sum) + off);
    }
    free(h), free(h_bound), free(z), free(z_bound);
}

/* ---------------------------------------------------------------- cases */

/* What a case has. APART: rows of x, weights and y further apart than they need; LOOSE: offsets, tokens and places out
 * of range; PART: offsets that leave rows out. */
enum { BIAS = 1, WIDE_IDS = 2, APART = 4, LOOSE = 8, PART = 16, ZEROS = 32 };

typedef struct spec {
    saker_type x, w, y, routing;
    int64_t t, k, h, inner, experts, group;
    int act, gated, has, use, random;
} spec;

static suite_tensor *tensor(suite_case *c, const char *field, saker_type type, int64_t d0, int64_t d1, int64_t d2,
                            suite_fill fill)
{
    suite_tensor *t = suite_add(c, field, SUITE_IN, type, fill);
    t->ndim = d2 >= 0 ? 3 : d1 >= 0 ? 2 : 1;
    t->shape[0] = d0, t->shape[1] = d1 < 0 ? 0 : d1, t->shape[2] = d2 < 0 ? 0 : d2;
    return t;
}

static void weights_of(suite_case *c, const spec *s, bool up, int64_t n, int64_t k)
{
    static const char *const names[2][4] = {{"down", "down_bias", "down_scale", "down_zero"},
                                            {"gate_up", "gate_up_bias", "gate_up_scale", "gate_up_zero"}};
    const char *const *name = names[up];
    suite_tensor *w = tensor(c, name[0], s->w, s->experts, n, k, s->group ? SUITE_RANGE : SUITE_NORMAL);
    /* What an f16 between the products holds is no more than 65504. */
    int64_t most = s->x == SAKER_F16 ? 1 : s->w == SAKER_I8 ? 127 : 7;
    w->low = -most, w->high = most;
    if (s->w == SAKER_I4 && k % 2) { /* rows begin at whole bytes */
        w->stride[2] = 1, w->stride[1] = k + 1, w->stride[0] = n * (k + 1);
    }
    if (s->has & BIAS)
        tensor(c, name[1], up ? SAKER_F32 : s->x, s->experts, n, -1, SUITE_NORMAL);
    if (!s->group)
        return;
    int64_t blocks = (k + s->group - 1) / s->group;
    tensor(c, name[2], SAKER_F32, s->experts, n, blocks, SUITE_POSITIVE);
    if (s->has & ZEROS) {
        suite_tensor *z = tensor(c, name[3], SAKER_I8, s->experts, n, blocks, SUITE_RANGE);
        z->low = s->x == SAKER_F16 ? 0 : -3, z->high = s->x == SAKER_F16 ? 1 : 3;
    }
}

static void add(spec s)
{
    static const char *const words[] = {" bias", " i64", " apart", " loose", " part", " zeros"};
    static const char *const acts[] = {"", " sigmoid", " tanh", " silu", " gelu", " gelut", " relu", " relu2", " oai"};
    static const char *const gates[] = {"", " halves", " pairs"};
    s.w = s.w ? s.w : s.x;
    s.y = s.y ? s.y : s.x;
    s.routing = s.routing ? s.routing : SAKER_F32;
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1};
    saker_moe_args a = {.struct_size = sizeof a, .group = s.group, .act = s.act, .gated = s.gated};
    memcpy(c.args, &a, sizeof a);
    saker_type index = s.has & WIDE_IDS ? SAKER_I64 : SAKER_I32;
    int64_t rows = s.t * s.k, up = s.gated ? 2 * s.inner : s.inner;
    tensor(&c, "x", s.x, s.t, s.h, -1, SUITE_NORMAL);
    tensor(&c, "weights", s.routing, s.t, s.k, -1, SUITE_NORMAL);
    suite_tensor *o = tensor(&c, "offsets", index, s.experts + 1, -1, -1, SUITE_CUTS);
    o->high = s.has & PART ? rows / 2 : rows;
    suite_tensor *n = tensor(&c, "token", index, rows, -1, -1, SUITE_RANGE);
    n->high = s.t - 1;
    suite_tensor *p = tensor(&c, "place", index, rows, -1, -1, SUITE_MIXED);
    if ((s.has & PART || !s.experts) && rows > 0 && s.h > 0)
        c.check = SAKER_BAD_INDEX;
    if (s.has & LOOSE) {
        o->fill = SUITE_RANGE, o->low = -2, o->high = rows + 2;
        n->low = -1, n->high = s.t;
        p->fill = SUITE_RANGE, p->low = -1, p->high = rows;
        c.check = SUITE_ANY_CHECK;
    }
    weights_of(&c, &s, true, up, s.h);
    weights_of(&c, &s, false, s.h, s.inner);
    suite_tensor *y = tensor(&c, "y", s.y, s.t, s.h, -1, SUITE_NORMAL);
    y->role = SUITE_OUT;
    if (s.has & APART) {
        suite_lay_out(&c.tensor[0], SUITE_PADDED, 8, true);
        suite_lay_out(&c.tensor[1], SUITE_PERMUTED, 3, false);
        suite_lay_out(y, SUITE_PADDED, 5, true);
    }
    c.flops = 2.0 * (double)rows * (double)s.h * (double)(up + s.inner);
    c.bytes = suite_all_bytes(&c);
    suite_say_random(&c, s.random);
    suite_say(&c, "%s %s %s %lldx%lldx%lld k=%lld of %lld", suite_type_text(s.x), suite_type_text(s.w),
              suite_type_text(s.y), (long long)s.t, (long long)s.h, (long long)s.inner, (long long)s.k,
              (long long)s.experts);
    if (s.group)
        suite_say(&c, " group=%lld", (long long)s.group);
    suite_say(&c, " by %s%s%s", suite_type_text(s.routing), acts[s.act], gates[s.gated]);
    suite_say_bits(&c, s.has, 6, words);
    suite_say(&c, "%s", s.use ? " bench" : "");
    suite_list_add(&list, &c);
}

static void random_case(int number)
{
    static const int64_t sizes[] = {1, 3, 8, 16, 24, 33, 64, 72};
    static const int64_t groups[] = {8, 16, 32};
    static const int flags[] = {BIAS, WIDE_IDS, APART, LOOSE, PART};
    uint64_t r = suite_draws(number);
    spec s = {.random = 1 + number};
    s.x = suite_draw_float(&r);
    s.y = suite_draw_near(&r, s.x);
    s.routing = suite_draw_near(&r, SAKER_F32);
    s.t = suite_draw(&r, 20);
    s.k = 1 + suite_draw(&r, 4);
    s.h = sizes[suite_draw(&r, 8)];
    s.inner = sizes[suite_draw(&r, 8)];
    s.experts = 1 + suite_draw(&r, 9);
    s.gated = suite_draw(&r, 3);
    s.act = suite_draw(&r, s.gated ? 9 : 8);
    foreach (i, flags)
        s.has |= suite_draw_once_in(&r, 3) ? flags[i] : 0;
    bool codes = suite_draw_once_in(&r, 3), four = suite_draw_once_in(&r, 2), zeros = suite_draw_once_in(&r, 2);
    int64_t group = groups[suite_draw(&r, 3)];
    if (codes && s.x != SAKER_F32 && !(s.x == SAKER_F16 && s.act == SAKER_ACT_RELU2)) {
        s.w = four ? SAKER_I4 : SAKER_I8;
        s.group = group;
        s.has |= zeros ? ZEROS : 0;
    }
    add(s);
}

static void build(void)
{
    add((spec){SAKER_F32, .t = 5, .k = 2, .h = 8, .inner = 12, .experts = 3, .act = SAKER_ACT_SILU,
               .gated = SAKER_GATED_HALVES, .has = BIAS});
    add((spec){SAKER_BF16, .w = SAKER_I8, .t = 5, .k = 2, .h = 16, .inner = 16, .experts = 3, .group = 8,
               .act = SAKER_ACT_SILU, .gated = SAKER_GATED_HALVES, .has = BIAS | ZEROS});
    foreach (t, floats) {
        spec s = {floats[t],
                  .t = 33,
                  .k = 3,
                  .h = 64,
                  .inner = 48,
                  .experts = 8,
                  .act = SAKER_ACT_SILU,
                  .gated = SAKER_GATED_HALVES};
        for (int has = 0; has < 32; has++) {
            s.has = has;
            add(s);
        }
        s.has = 0;
        for (s.gated = 0; s.gated < 3; s.gated++)
            for (s.act = 0; s.act < (s.gated ? 9 : 8); s.act++)
                add(s);
        s.act = SAKER_ACT_SILU, s.gated = SAKER_GATED_HALVES;
        s.y = floats[(t + 1) % 3], s.routing = floats[t];
        add(s);
        s.y = 0, s.routing = 0;
        /* One expert, none, none chosen; many of them; one token, none; nothing inside. */
        s.experts = 1;
        add(s);
        s.experts = 0;
        add(s);
        s.experts = 130;
        add(s);
        s.experts = 8, s.k = 0;
        add(s);
        s.k = 8, s.t = 1;
        add(s);
        s.t = 0;
        add(s);
        s.t = 9, s.k = 2, s.inner = 0;
        add(s);
        s.inner = 16, s.h = 0;
        add(s);
        s.h = 1;
        add(s);
        s.h = 1100, s.inner = 17, s.has = APART | BIAS; /* more columns than a sum takes at once */
        add(s);
        /* Tiles that are full, and some that are not. */
        add((spec){floats[t], .t = 300, .k = 2, .h = 136, .inner = 72, .experts = 3, .act = SAKER_ACT_GELU,
                   .gated = SAKER_GATED_INTERLEAVED});
        for (int i4 = 0; t && i4 < 2; i4++)
            for (int zeros = 0; zeros <= ZEROS; zeros += ZEROS) {
                spec q = {floats[t],
                          .w = i4 ? SAKER_I4 : SAKER_I8,
                          .t = 20,
                          .k = 2,
                          .h = 64,
                          .inner = 96,
                          .experts = 4,
                          .group = 32,
                          .act = SAKER_ACT_SILU,
                          .gated = SAKER_GATED_HALVES,
                          .has = zeros};
                add(q);
                q.h = 33, q.inner = 45, q.group = 16, q.has |= BIAS;
                add(q);
            }
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
    add((spec){SAKER_BF16, .t = 256, .k = 4, .h = 1024, .inner = 512, .experts = 16, .act = SAKER_ACT_SILU,
               .gated = SAKER_GATED_HALVES, .use = SUITE_BENCH});
    add((spec){SAKER_BF16, .t = 4096, .k = 8, .h = 2048, .inner = 768, .experts = 128, .act = SAKER_ACT_SILU,
               .gated = SAKER_GATED_HALVES, .use = SUITE_BENCH_CUDA});
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

const suite skr_suite_moe = {.op = "moe", .at = at, .oracle = oracle};
