/* activation_cases_test.c - what is tried with activation and activation_backward: correctness and bench.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"
#include "activation_test.h"

static const char *const act_names[] = {"none",      "sigmoid", "tanh",  "silu",      "gelu",
                                        "gelu_tanh", "relu",    "relu2", "swiglu_oai"};
static const char *const form_names[] = {"", " halves", " interleaved", " two"};
static suite_list forward_list, backward_list;

enum { PLAIN, HALVES, INTERLEAVED, TWO }; /* up to INTERLEAVED as saker_gated */
enum { ACTS = SAKER_ACT_SWIGLU_OAI + 1 };

/* What a case has. */
enum {
    BIAS = 1,
    NO_Y = 2,     /* only the quantised output; backward: no dx */
    IN_PLACE = 4, /* y is x; backward: dx is x (and dup is up) */
    OVER_DY = 8,  /* backward: dx is dy */
    OVER_UP = 16, /* y is up; backward: dup is dy */
    DBIAS = 32,   /* backward: dbias; without BIAS too */
    ACCUMULATE = 64,
    NO_DUP = 128,     /* backward: up is a tensor, its gradient is not wanted */
    PADDED = 256,     /* rows further apart than they need, by another gap in each tensor */
    OVERLAPPED = 512, /* a row of x begins in the middle of the one before; the fill must be the same in both */
    TURNED = 1024,    /* scales of a block lie side by side for all rows */
    PLAIN_DY = 2048,  /* backward: dy is made of ordinary numbers, whatever x is */
};

struct spec {
    int act, form, has, use, quant, n_lead, random;
    suite_layout layout;
    int64_t lead[3], n;
    saker_type x, up, y, b, q; /* 0: x's type; y also stands for dy, up for dx */
    suite_fill fill;
    int64_t low, high; /* of SUITE_RANGE */
    saker_type dup;    /* 0: x's type */
    const char *apart; /* field whose rows alone are 16 elements further apart than they need */
    float alpha, limit;
};

static void start_name(suite_case *c, const struct spec *s)
{
    suite_say_random(c, s->random);
    suite_say(c, "%s%s %s ", act_names[s->act], form_names[s->form], suite_type_text(s->x));
    suite_say_shape(c, s->n_lead, s->lead, s->n);
}

static void end_name(suite_case *c, const struct spec *s)
{
    suite_say(c, "%s", suite_layout_text(s->has & PADDED ? SUITE_PADDED : s->layout));
    if (s->has & OVERLAPPED)
        suite_say(c, " overlapped");
    if (s->apart)
        suite_say(c, " %s apart", s->apart);
    suite_say(c, "%s%s", s->has & TURNED ? " turned" : "", s->has & PLAIN_DY ? " plain dy" : "");
    if (s->fill == SUITE_RANGE)
        suite_say(c, " %lld..%lld", (long long)s->low, (long long)s->high);
    if (s->has & IN_PLACE)
        suite_say(c, " in place");
    if (s->has & OVER_DY)
        suite_say(c, " dx=dy");
    if (s->has & OVER_UP)
        suite_say(c, " over up");
    if (s->has & ACCUMULATE)
        suite_say(c, " acc");
    if (s->alpha != 0)
        suite_say(c, " alpha=%g", (double)s->alpha);
    if (s->limit != 0)
        suite_say(c, " limit=%g", (double)s->limit);
    suite_say(c, "%s", suite_fill_text(s->fill));
}

static suite_tensor *rows(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                          int64_t columns, suite_fill fill)
{
    int64_t gap = s->has & PADDED ? suite_gap(c) : s->apart && !strcmp(s->apart, field) ? 16 : 0;
    suite_tensor *t = suite_add_rows(c, field, role, type ? type : s->x, s->n_lead, s->lead, columns, gap);
    t->fill = fill;
    t->low = s->low, t->high = s->high;
    suite_lay_out(t, s->layout, suite_gap(c), columns >= 0);
    if (gap == 16 && columns < 0) /* one scale a row */
        t->stride[0] = 3;
    if (s->has & OVERLAPPED && columns > s->n && role == SUITE_IN)
        t->stride[0] = s->n, t->stride[1] = 1;
    return t;
}

static void bias(suite_case *c, const struct spec *s, const char *field, suite_role role)
{
    int64_t columns = s->form == PLAIN ? s->n : 2 * s->n;
    suite_tensor *t = suite_add_rows(c, field, role, s->b ? s->b : s->x, 0, s->lead, columns, 0);
    t->fill = SUITE_UNIFORM;
    suite_say(c, " %s:%s", field, suite_type_text(t->type));
}

static int64_t x_columns(const struct spec *s)
{
    return s->form == HALVES || s->form == INTERLEAVED ? 2 * s->n : s->n;
}

static void forward(struct spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK};
    saker_activation_args a = {.struct_size = sizeof a,
                               .act = s.act,
                               .gated = s.form == TWO ? 0 : s.form,
                               .quant = s.quant,
                               .alpha = s.alpha,
                               .limit = s.limit};
    memcpy(c.args, &a, sizeof a);
    start_name(&c, &s);
    rows(&c, &s, "x", SUITE_IN, s.x, x_columns(&s), s.fill);
    if (s.form == TWO) {
        rows(&c, &s, "up", SUITE_IN, s.up, s.n, s.fill);
        if (s.up && s.up != s.x)
            suite_say(&c, " up:%s", suite_type_text(s.up));
    }
    if (s.has & BIAS)
        bias(&c, &s, "bias", SUITE_IN);
    if (!(s.has & NO_Y)) {
        suite_tensor *y = rows(&c, &s, "y", SUITE_OUT, s.y, s.n, SUITE_NORMAL);
        if (s.has & (IN_PLACE | OVER_UP))
            suite_share(&c, y, s.has & IN_PLACE ? "x" : "up");
        else if (s.y && s.y != s.x)
            suite_say(&c, " y:%s", suite_type_text(s.y));
    }
    if (s.quant) {
        rows(&c, &s, "y_quant", SUITE_OUT, s.q, s.n, SUITE_NORMAL);
        int64_t groups = s.quant == SAKER_QUANT_BLOCK ? (s.n + 127) / 128 : -1, one = 1;
        suite_tensor *t = s.quant == SAKER_QUANT_TENSOR
                              ? suite_add_rows(&c, "y_scale", SUITE_IN, SAKER_F32, 1, &one, -1, 0)
                              : rows(&c, &s, "y_scale", SUITE_OUT, SAKER_F32, groups, SUITE_NORMAL);
        t->fill = SUITE_POSITIVE;
        if (s.has & TURNED)
            t->stride[0] = 1, t->stride[1] = s.lead[0];
        suite_say(&c, " %s/%s%s", suite_type_text(s.q), suite_quant_text(s.quant), s.has & NO_Y ? " only" : "");
    }
    end_name(&c, &s);
    c.bytes = suite_all_bytes(&c);
    c.flops = 8 * (double)suite_elements(&c.tensor[0]);
    c.reads = 1 + (s.form != PLAIN);
    c.writes = !(s.has & NO_Y) + !!s.quant;
    c.cpu_kernel = s.quant ? "quantised" : s.form ? "gated" : "rows";
    suite_list_add(&forward_list, &c);
}

static void backward(struct spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK};
    saker_activation_backward_args a = {.struct_size = sizeof a,
                                        .act = s.act,
                                        .gated = s.form == TWO ? 0 : s.form,
                                        .alpha = s.alpha,
                                        .limit = s.limit,
                                        .accumulate = !!(s.has & ACCUMULATE)};
    memcpy(c.args, &a, sizeof a);
    start_name(&c, &s);
    /* The arriving gradient is made of ordinary numbers; x has the fill. */
    suite_fill plain =
        s.fill == SUITE_HUGE || s.fill == SUITE_MAX || s.fill == SUITE_ZERO || s.has & PLAIN_DY ? SUITE_NORMAL : s.fill;
    rows(&c, &s, "dy", SUITE_IN, s.y, s.n, plain);
    if (s.y && s.y != s.x)
        suite_say(&c, " dy:%s", suite_type_text(s.y));
    rows(&c, &s, "x", SUITE_IN, s.x, x_columns(&s), s.fill);
    if (s.form == TWO) {
        rows(&c, &s, "up", SUITE_IN, s.up, s.n, s.fill);
        if (s.up && s.up != s.x)
            suite_say(&c, " up:%s", suite_type_text(s.up));
    }
    if (s.has & BIAS)
        bias(&c, &s, "bias", SUITE_IN);
    if (!(s.has & NO_Y)) {
        suite_tensor *t = rows(&c, &s, "dx", SUITE_OUT, s.up, x_columns(&s), SUITE_NORMAL);
        if (s.has & (IN_PLACE | OVER_DY))
            suite_share(&c, t, s.has & IN_PLACE ? "x" : "dy");
        else if (s.up && s.up != s.x)
            suite_say(&c, " dx:%s", suite_type_text(s.up));
    } else {
        suite_say(&c, " no dx");
    }
    if (s.form == TWO && !(s.has & NO_DUP)) {
        suite_tensor *t = rows(&c, &s, "dup", SUITE_OUT, s.dup ? s.dup : s.x, s.n, SUITE_NORMAL);
        if (s.dup)
            suite_say(&c, " dup:%s", suite_type_text(s.dup));
        if (s.has & (IN_PLACE | OVER_UP))
            suite_share(&c, t, s.has & IN_PLACE ? "up" : "dy");
    } else if (s.form == TWO) {
        suite_say(&c, " no dup");
    }
    if (s.has & DBIAS)
        bias(&c, &s, "dbias", s.has & ACCUMULATE ? SUITE_INOUT : SUITE_OUT);
    end_name(&c, &s);
    c.bytes = suite_all_bytes(&c);
    c.flops = 16 * (double)suite_elements(&c.tensor[0]);
    c.reads = s.form != PLAIN ? 3 : 2;
    c.writes = s.form != PLAIN ? 2 : 1;
    c.cpu_kernel = s.has & DBIAS ? "rows sums" : s.form ? "gated" : "rows";
    suite_list_add(&backward_list, &c);
}

static void both(struct spec s)
{
    forward(s);
    backward(s);
}

/* ---------------------------------------------------------------- correctness */

/* Every function, form and type; both ends of its range. */
static void functions(void)
{
    static const suite_fill fills[] = {SUITE_NORMAL,  SUITE_LARGE, SUITE_TINY, SUITE_ONE_NAN,
                                       SUITE_ONE_INF, SUITE_ZERO,  SUITE_HUGE};
    for (int act = 0; act < ACTS; act++)
        for (int form = act == SAKER_ACT_SWIGLU_OAI ? HALVES : PLAIN; form <= TWO; form++)
            foreach (t, floats) {
                foreach (f, fills)
                    both((struct spec){ROWS(3), .n = 150, .act = act, .form = form, .x = floats[t], .fill = fills[f]});
                both((struct spec){ROWS(5), .n = 1024, .act = act, .form = form, .x = floats[t], .fill = SUITE_OFFSET});
                if (act !=
                    SAKER_ACT_RELU2) /* twice the largest number times less than a half is finite, but not in f32 */
                    both((struct spec){ROWS(3), .n = 64, .act = act, .form = form, .x = floats[t], .fill = SUITE_MAX});
            }
    static const float alphas[] = {1, -0.5f}, limits[] = {0.5f, 30};
    foreach (i, alphas)
        foreach (t, floats)
            both((struct spec){ROWS(3), .n = 257, .act = SAKER_ACT_SWIGLU_OAI, .form = 1 + (int)t, .x = floats[t],
                               .alpha = alphas[i], .limit = limits[i], .fill = SUITE_UNIFORM});
}

static void shapes(void)
{
    static const int64_t n[] = {1, 2, 3, 5, 7, 8, 15, 17, 31, 33, 63, 65, 127, 129, 255, 1000, 4096, 8191, 40000};
    foreach (i, n)
        for (int form = PLAIN; form <= TWO; form++) {
            int64_t m = n[i] <= 255 ? 17 : 3;
            saker_type x = floats[(i + (size_t)form) % 3];
            both((struct spec){ROWS(m), .n = n[i], .act = SAKER_ACT_SILU, .form = form, .x = x});
            both((struct spec){ROWS(m), .n = n[i], .act = SAKER_ACT_GELU, .form = form, .x = x, .has = BIAS | DBIAS});
        }
    static const int64_t m[] = {0, 1, 2, 40, 300, 5000};
    foreach (i, m)
        for (int form = PLAIN; form <= TWO; form++) {
            both((struct spec){ROWS(m[i]), .n = 24, .act = SAKER_ACT_SILU, .form = form, .x = SAKER_BF16});
            both((struct spec){ROWS(m[i]), .n = 24, .act = SAKER_ACT_RELU, .form = form, .x = SAKER_F32,
                               .has = BIAS | DBIAS});
            backward((struct spec){ROWS(m[i]), .n = 40, .act = SAKER_ACT_TANH, .form = form, .x = SAKER_F16,
                                   .has = DBIAS | ACCUMULATE | NO_Y | NO_DUP});
        }
    both((struct spec){ROWS(3, 0), .n = 8, .act = SAKER_ACT_SILU, .form = HALVES, .x = SAKER_F32});
    both((struct spec){ROWS(3), .n = 0, .act = SAKER_ACT_SILU, .form = HALVES, .x = SAKER_F32});
    both((struct spec){.n = 100, .act = SAKER_ACT_SILU, .form = TWO, .x = SAKER_BF16});
    both(
        (struct spec){ROWS(2, 3, 4), .n = 72, .act = SAKER_ACT_GELU_TANH, .form = TWO, .x = SAKER_BF16, .has = PADDED});
    for (int form = HALVES; form <= INTERLEAVED; form++)
        foreach (t, floats)
            both((struct spec){ROWS(3000), .n = 64, .act = SAKER_ACT_SILU, .form = form, .x = floats[t],
                               .fill = SUITE_ALTERNATING, .has = OVERLAPPED});
    both((struct spec){ROWS(2), .n = 300000, .act = SAKER_ACT_SILU, .form = HALVES, .x = SAKER_F32});
    both((struct spec){ROWS(1024), .n = 512, .act = SAKER_ACT_SILU, .x = SAKER_BF16});
}

static void types(void)
{
    foreach (x, floats)
        foreach (y, floats)
            foreach (u, floats)
                for (int form = PLAIN; form <= TWO; form++) {
                    both((struct spec){ROWS(4), .n = 136, .act = SAKER_ACT_SILU, .form = form, .x = floats[x],
                                       .y = floats[y], .up = floats[u], .b = floats[(x + y + u) % 3],
                                       .has = BIAS | DBIAS});
                    both((struct spec){ROWS(4), .n = 57, .act = SAKER_ACT_GELU_TANH, .form = form, .x = floats[x],
                                       .y = floats[y], .up = floats[u], .has = u == 1 ? PADDED : 0});
                }
}

static void places(void)
{
    foreach (t, floats)
        for (int form = PLAIN; form <= TWO; form++)
            for (int has = 0; has < 2; has++) {
                struct spec s = {ROWS(6),      .n = 200,       .act = SAKER_ACT_SILU,
                                 .form = form, .x = floats[t], .has = (has ? BIAS | DBIAS : 0) | PADDED};
                both(s);
                s.has = (has ? BIAS | DBIAS : 0) | IN_PLACE;
                backward(s);
                if (form == PLAIN || form == TWO)
                    forward(s);
                if (form == PLAIN || form == TWO) {
                    s.has = (has ? BIAS | DBIAS : 0) | OVER_DY;
                    backward(s);
                }
                if (form == TWO) {
                    s.has = (has ? BIAS | DBIAS : 0) | OVER_UP;
                    both(s);
                    s.has = (has ? BIAS | DBIAS : 0) | NO_DUP;
                    backward(s);
                    s.has = (has ? BIAS | DBIAS : 0) | NO_Y;
                    backward(s);
                }
            }
}

/* Rows that vectors can be read from, though one tensor's lie apart, or all have several strides. */
static void vectors_apart(void)
{
    static const char *const in[] = {"x", "up", "y", "y_quant", "y_scale"}, *const back[] = {"dy", "x", "up", "dx",
                                                                                             "dup"};
    foreach (i, in) {
        struct spec s = {ROWS(5), .n = 256, .act = SAKER_ACT_SILU, .form = TWO, .x = SAKER_BF16, .apart = in[i]};
        s.q = SAKER_E4M3;
        s.quant = SAKER_QUANT_BLOCK;
        forward(s);
        s.quant = SAKER_QUANT_ROW;
        forward(s);
    }
    foreach (i, back)
        backward((struct spec){ROWS(5), .n = 64, .act = SAKER_ACT_SILU, .form = TWO, .x = SAKER_F16, .apart = back[i]});
    forward((struct spec){ROWS(5), .n = 384, .act = SAKER_ACT_SILU, .x = SAKER_F32, .q = SAKER_I8,
                          .quant = SAKER_QUANT_BLOCK, .has = TURNED});
    for (int form = PLAIN; form <= TWO; form++)
        both((struct spec){ROWS(3, 4), .n = 64, .act = SAKER_ACT_SILU, .form = form, .x = floats[form % 3],
                           .layout = SUITE_APART});
    backward((struct spec){ROWS(5), .n = 64, .act = SAKER_ACT_SILU, .form = TWO, .x = SAKER_BF16, .dup = SAKER_F32});
}

/* Where exponentials leave the normal numbers; results below sigmoid(0); a NaN that only x has. */
static void far_out(void)
{
    static const int act[] = {SAKER_ACT_SIGMOID, SAKER_ACT_SILU, SAKER_ACT_TANH, SAKER_ACT_SWIGLU_OAI};
    foreach (i, act)
        both((struct spec){ROWS(3), .n = 280, .act = act[i], .form = act[i] == SAKER_ACT_SWIGLU_OAI ? HALVES : PLAIN,
                           .x = SAKER_F32, .fill = SUITE_RANGE, .low = -140, .high = 140});
    for (int n = 136; n <= 137; n++)
        for (int quant = SAKER_QUANT_ROW; quant <= SAKER_QUANT_BLOCK; quant++)
            forward((struct spec){ROWS(3), .n = n, .act = SAKER_ACT_SIGMOID, .x = SAKER_F32, .q = SAKER_I8,
                                  .quant = quant, .fill = SUITE_RANGE, .low = -9, .high = -3});
    forward((struct spec){ROWS(3), .n = 257, .act = SAKER_ACT_RELU2, .x = SAKER_F32, .q = SAKER_I8,
                          .quant = SAKER_QUANT_ROW, .has = IN_PLACE});
    for (int a = 0; a < ACTS; a++)
        backward((struct spec){ROWS(3), .n = 150, .act = a, .form = a == SAKER_ACT_SWIGLU_OAI ? HALVES : PLAIN,
                               .x = SAKER_F32, .fill = SUITE_ONE_NAN, .has = PLAIN_DY});
}

static void quantised(void)
{
    static const int64_t n[] = {1, 5, 100, 128, 129, 384, 1000, 1024, 4096, 20000};
    static const suite_fill fills[] = {SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_TINY, SUITE_HUGE, SUITE_ZERO};
    foreach (q, quants)
        for (int quant = SAKER_QUANT_TENSOR; quant <= SAKER_QUANT_BLOCK; quant++)
            for (int only = 0; only < 2; only++) {
                for (int form = PLAIN; form <= TWO; form++)
                    foreach (t, floats)
                        forward((struct spec){ROWS(4), .n = 256, .act = SAKER_ACT_SILU, .form = form, .x = floats[t],
                                              .y = floats[(t + q) % 3], .q = quants[q], .quant = quant,
                                              .has = (only ? NO_Y : 0) | (form == HALVES ? BIAS : 0)});
                foreach (i, n)
                    forward((struct spec){ROWS(3), .n = n[i], .act = SAKER_ACT_GELU_TANH, .form = (int)i % 4,
                                          .x = floats[i % 3], .q = quants[q], .quant = quant,
                                          .has = (only ? NO_Y : 0) | (i % 2 ? PADDED : 0)});
                foreach (f, fills)
                    forward((struct spec){ROWS(3), .n = 512, .act = SAKER_ACT_NONE, .form = PLAIN,
                                          .x = floats[(q + f) % 3], .q = quants[q], .quant = quant, .fill = fills[f],
                                          .has = only ? NO_Y : 0});
            }
    for (int quant = SAKER_QUANT_TENSOR; quant <= SAKER_QUANT_BLOCK; quant++)
        for (int form = PLAIN; form <= TWO; form++)
            forward((struct spec){ROWS(5), .n = 0, .act = SAKER_ACT_SILU, .form = form, .x = SAKER_BF16,
                                  .q = quants[form % 3], .quant = quant,
                                  .has = (form % 2 ? NO_Y : 0) | (form == HALVES ? BIAS : 0)});
    forward((struct spec){ROWS(2, 3), .n = 0, .act = SAKER_ACT_SILU, .x = SAKER_F32, .q = SAKER_I8,
                          .quant = SAKER_QUANT_ROW, .has = PADDED});
    static const int64_t wide[] = {512, 2048, 4096, 8192, 16384};
    foreach (t, floats) /* rows of every kernel on CUDA */
        foreach (i, wide)
            forward((struct spec){ROWS(2), .n = wide[i], .act = SAKER_ACT_SILU, .form = HALVES, .x = floats[t],
                                  .q = quants[(t + i) % 3], .quant = SAKER_QUANT_ROW, .has = NO_Y});
    forward((struct spec){ROWS(3), .n = 256, .act = SAKER_ACT_RELU2, .x = SAKER_F32, .q = SAKER_I8,
                          .quant = SAKER_QUANT_ROW, .has = IN_PLACE});
}

/* ---------------------------------------------------------------- random combinations */

/* What both directions have. */
static struct spec random_spec(int number, uint64_t *r)
{
    static const suite_fill fills[] = {SUITE_UNIFORM, SUITE_LARGE,  SUITE_TINY, SUITE_ONE_NAN,
                                       SUITE_ONE_INF, SUITE_OFFSET, SUITE_ZERO};
    struct spec s = {.random = 1 + number, .n = suite_draw_width(r)};
    s.n_lead = suite_draw_lead(r, 3, s.n, s.lead);
    s.act = suite_draw(r, ACTS);
    s.form = s.act == SAKER_ACT_SWIGLU_OAI ? HALVES + suite_draw(r, 3) : suite_draw(r, TWO + 1);
    s.x = suite_draw_float(r);
    s.up = suite_draw_near(r, s.x);
    s.y = suite_draw_near(r, s.x);
    s.b = suite_draw_near(r, s.x);
    s.has = suite_draw_once_in(r, 2) ? BIAS : 0;
    s.layout = suite_draw_once_in(r, 2) ? (suite_layout)suite_draw(r, SUITE_EXPANDED + 1) : SUITE_COMPACT;
    s.fill = suite_draw_once_in(r, 3) ? fills[suite_draw(r, 7)] : SUITE_NORMAL;
    if (s.act == SAKER_ACT_SWIGLU_OAI && suite_draw_once_in(r, 2)) {
        s.alpha = suite_draw_once_in(r, 2) ? 1 : -0.5f;
        s.limit = suite_draw_once_in(r, 2) ? 0.5f : 30;
    }
    return s;
}

static void random_forward(int number)
{
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    s.quant = suite_draw_once_in(&r, 3) ? 1 + suite_draw(&r, SAKER_QUANT_BLOCK) : SAKER_QUANT_NONE;
    s.q = quants[suite_draw(&r, 3)];
    if (s.quant && suite_draw_once_in(&r, 2))
        s.has |= NO_Y;
    else if ((s.form == PLAIN || s.form == TWO) && s.layout != SUITE_EXPANDED && suite_draw_once_in(&r, 3))
        s.has |= s.form == TWO && suite_draw_once_in(&r, 2) ? OVER_UP : IN_PLACE;
    forward(s);
}

static void random_backward(int number)
{
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    if (suite_draw_once_in(&r, 2))
        s.has |= suite_draw_once_in(&r, 2) ? DBIAS | ACCUMULATE : DBIAS;
    if (s.layout != SUITE_EXPANDED && suite_draw_once_in(&r, 3)) {
        static const int places[] = {IN_PLACE, OVER_DY, OVER_UP};
        s.has |= places[suite_draw(&r, s.form == TWO ? 3 : s.form == PLAIN ? 2 : 1)];
    }
    if (s.form == TWO && suite_draw_once_in(&r, 4))
        s.has |= NO_DUP;
    if ((s.has & DBIAS || (s.form == TWO && !(s.has & NO_DUP))) && suite_draw_once_in(&r, 4)) /* one has to be left */
        s.has |= NO_Y;
    backward(s);
}

/* ---------------------------------------------------------------- bench */

static void benches(void)
{
    /* CPU, x of 128 MiB and more: beyond any cache; and 256 KiB in all. */
    static const int64_t wide[] = {4096, 14336};
    static const int small[] = {SAKER_ACT_SILU, SAKER_ACT_GELU,    SAKER_ACT_GELU_TANH,
                                SAKER_ACT_RELU, SAKER_ACT_SIGMOID, SAKER_ACT_TANH};
    foreach (t, floats) {
        int64_t elements = (int64_t)1 << (floats[t] == SAKER_F32 ? 25 : 26), cache = floats[t] == SAKER_F32 ? 8 : 16;
        foreach (k, small) {
            both((struct spec){ROWS(elements / 4096), .n = 4096, .act = small[k], .x = floats[t], .use = SUITE_BENCH});
            forward((struct spec){ROWS(cache), .n = 4096, .act = small[k], .x = floats[t], .use = SUITE_CACHE});
        }
        foreach (i, wide)
            both((struct spec){ROWS(elements / wide[i]), .n = wide[i], .act = SAKER_ACT_SILU, .form = HALVES,
                               .x = floats[t], .use = SUITE_BENCH});
        both((struct spec){ROWS(cache / 2), .n = 4096, .act = SAKER_ACT_SILU, .form = HALVES, .x = floats[t],
                           .use = SUITE_CACHE});
        /* GPU */
        int64_t large = (int64_t)1 << 27;
        foreach (k, small)
            both(
                (struct spec){ROWS(large / 8192), .n = 8192, .act = small[k], .x = floats[t], .use = SUITE_BENCH_CUDA});
        for (int form = HALVES; form <= TWO; form++)
            both((struct spec){ROWS(large / 8192), .n = 8192, .act = SAKER_ACT_SILU, .form = form, .x = floats[t],
                               .use = SUITE_BENCH_CUDA});
        both((struct spec){ROWS(large / 14336), .n = 14336, .act = SAKER_ACT_SILU, .form = HALVES, .x = floats[t],
                           .use = SUITE_BENCH_CUDA});
        for (int quant = SAKER_QUANT_ROW; quant <= SAKER_QUANT_BLOCK; quant++)
            forward((struct spec){ROWS(large / 8192), .n = 8192, .act = SAKER_ACT_SILU, .form = HALVES, .x = floats[t],
                                  .q = SAKER_E4M3, .quant = quant, .has = NO_Y, .use = SUITE_BENCH_CUDA | SUITE_BENCH});
    }
}

static void build(void)
{
    static bool built;
    if (built)
        return;
    built = true;
    functions();
    shapes();
    types();
    places();
    quantised();
    vectors_apart();
    far_out();
    for (int i = 0; i < SUITE_RANDOM; i++) {
        random_forward(i);
        random_backward(i);
    }
    benches();
}

bool activation_case(int i, suite_case *out)
{
    build();
    return suite_list_at(&forward_list, i, out);
}

bool activation_backward_case(int i, suite_case *out)
{
    build();
    return suite_list_at(&backward_list, i, out);
}
