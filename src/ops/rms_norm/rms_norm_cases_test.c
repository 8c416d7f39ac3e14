/* rms_norm_cases_test.c - the cases of rms_norm and rms_norm_backward: correctness, bench and demo.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each table is built once, from a short description per case (struct spec) whose text is also its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rms_norm_test.h"

/* What a case has. The gradient op reads: W weight, R dresidual_out, RSTD, Y dx, DW dweight, DB dbias. */
enum {
    W = 1,
    B = 2,
    R = 4,
    Y = 8,
    RO = 16,
    RSTD = 32,
    HEADS = 64,   /* parameters are [H, N], H the last leading dimension */
    Y_IS_X = 128, /* in place: y is x; the gradient op: dx is dy */
    RO_IS_R = 256, /* in place: residual_out is residual; the gradient op: dx is dresidual_out */
    RBW = 512,    /* round_before_weight */
    ACC = 1024,   /* accumulate */
    DW = 2048,
    DB = 4096,
    FLAT = 8192,  /* rstd and scales are [M] although x has more leading dimensions */
    SAME_HEAD = 16384 /* the [H, N] parameters show one row to every head (stride 0) */
};

/* How row tensors lie in memory. */
enum layout {
    COMPACT,
    PADDED,   /* rows further apart than N, by another gap in each tensor */
    PERMUTED, /* leading dimensions in the opposite order: they cannot be merged */
    GAPPED,   /* a gap after each leading dimension: none can be merged */
    EXPANDED  /* inputs: the first leading dimension has stride 0 */
};
static const char *const layout_names[] = {"", " padded", " permuted", " gapped", " expanded"};

struct spec {
    int has, use, layout, quant, n_lead;
    int64_t lead[4], n;
    saker_type x, w, b, r, y, ro, q; /* 0: x's type */
    suite_fill fill;
    float eps, offset;
};

static const char *const fill_names[] = {"",     " uniform", " zero",        " constant", " large", " huge",     " tiny",
                                         " max", " alternating", " nan", " inf",      " positive", " offset",
                                         " bits", " edges"};
static const saker_type floats[] = {SAKER_F32, SAKER_F16, SAKER_BF16};
static const saker_type quants[] = {SAKER_I8, SAKER_E4M3, SAKER_E5M2};
static const char *const quant_names[] = {"", "tensor", "row", "block"};

static const char *type_text(saker_type type)
{
    saker_dtype d = {(uint8_t)type, (uint8_t)((int)type >> 8), 1};
    return saker_type_name(d);
}

/* ---------------------------------------------------------------- the lists */

struct list {
    suite_case *c;
    int n, room;
};
static struct list forward_list, backward_list;

static bool same_tensors(const suite_case *a, const suite_case *b)
{
    bool same = a->n_tensors == b->n_tensors && !memcmp(a->args, b->args, sizeof a->args);
    for (int i = 0; same && i < a->n_tensors; i++) {
        const suite_tensor *s = &a->tensor[i], *t = &b->tensor[i];
        same = !strcmp(s->field, t->field) && s->role == t->role && s->type == t->type && s->fill == t->fill &&
               s->ndim == t->ndim && !memcmp(s->shape, t->shape, sizeof s->shape) &&
               !memcmp(s->stride, t->stride, sizeof s->stride);
    }
    return same;
}

/* A case that is there already gains the other's uses. A name says everything: two cases cannot share one. */
static void add(struct list *l, const suite_case *c)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->c[i].name, c->name)) {
            if (!same_tensors(&l->c[i], c)) {
                fprintf(stderr, "two different cases are named '%s'\n", c->name);
                abort();
            }
            l->c[i].use |= c->use;
            return;
        }
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 512;
        l->c = realloc(l->c, (size_t)l->room * sizeof *l->c);
        if (!l->c)
            abort();
    }
    l->c[l->n++] = *c;
}

/* ---------------------------------------------------------------- tensors of a case */

static suite_tensor *add_tensor(suite_case *c, const char *field, suite_role role, saker_type type, suite_fill fill)
{
    suite_tensor *t = &c->tensor[c->n_tensors++];
    *t = (suite_tensor){.field = field, .role = role, .type = type, .fill = fill};
    return t;
}

/* Strides of a tensor [lead..., cols] in the case's layout; each tensor gets another gap. */
static void lay_out(suite_case *c, suite_tensor *t, int layout)
{
    int64_t gap = 1 + 2 * (c->n_tensors % 4), next = 1;
    int last = t->ndim - 1;
    if (layout == COMPACT || last < 0 || (layout == EXPANDED && t->role != SUITE_IN))
        return;
    for (int d = last; d >= 0; d--) {
        t->stride[d] = next;
        next *= t->shape[d];
        if (layout == GAPPED || (layout == PADDED && d == last))
            next += gap;
    }
    if (layout == EXPANDED)
        t->stride[0] = last > 0 ? 0 : 1;
    if (layout == PERMUTED) {
        next = t->shape[last] + gap;
        for (int d = 0; d < last; d++) {
            t->stride[d] = next;
            next *= t->shape[d];
        }
    }
}

static suite_tensor *add_rows(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type)
{
    suite_tensor *t = add_tensor(c, field, role, type ? type : s->x, s->fill);
    t->ndim = s->n_lead + 1;
    memcpy(t->shape, s->lead, sizeof s->lead);
    t->shape[s->n_lead] = s->n;
    lay_out(c, t, s->layout);
    return t;
}

/* rstd, or scales with cols values a row (0: one value and no last dimension). */
static suite_tensor *add_stat(suite_case *c, const struct spec *s, const char *field, suite_role role, int64_t cols)
{
    suite_tensor *t = add_tensor(c, field, role, SAKER_F32, SUITE_POSITIVE);
    int64_t m = 1;
    for (int d = 0; d < s->n_lead; d++)
        m *= s->lead[d];
    if (s->has & FLAT || s->n_lead == 0) {
        t->ndim = 1;
        t->shape[0] = m;
    } else {
        t->ndim = s->n_lead;
        memcpy(t->shape, s->lead, sizeof s->lead);
    }
    if (cols)
        t->shape[t->ndim++] = cols;
    if (s->layout == PADDED || s->layout == GAPPED) { /* statistics may have any stride, also in their last dimension */
        int64_t next = 2;
        for (int d = t->ndim - 1; d >= 0; d--) {
            t->stride[d] = next;
            next = next * t->shape[d] + 1;
        }
    } else if (s->layout == EXPANDED && role == SUITE_IN) {
        lay_out(c, t, EXPANDED);
    }
    return t;
}

static suite_tensor *add_param(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type)
{
    suite_tensor *t = add_tensor(c, field, role, type ? type : s->x, role == SUITE_IN ? SUITE_UNIFORM : SUITE_NORMAL);
    if (s->has & HEADS) {
        t->ndim = 2;
        t->shape[0] = s->lead[s->n_lead - 1];
        t->shape[1] = s->n;
        lay_out(c, t, s->layout == PADDED || s->layout == GAPPED ? PADDED : COMPACT);
        if (s->has & SAME_HEAD && role == SUITE_IN) {
            t->stride[0] = 0;
            t->stride[1] = 1;
        }
    } else {
        t->ndim = 1;
        t->shape[0] = s->n;
    }
    return t;
}

/* ---------------------------------------------------------------- names */

static void text(suite_case *c, const char *word, const char *value)
{
    size_t at = strlen(c->name);
    snprintf(c->name + at, sizeof c->name - at, "%s%s", word, value ? value : "");
}

static void type_word(suite_case *c, const struct spec *s, const char *word, saker_type type)
{
    text(c, word, NULL);
    if (type && type != s->x) {
        text(c, ":", NULL);
        text(c, "", type_text(type));
    }
}

static void number_word(suite_case *c, const char *word, double v)
{
    char number[32];
    snprintf(number, sizeof number, "%g", v);
    text(c, word, number);
}

/* "bf16 3x17x1000": type and shape. */
static void start_name(suite_case *c, const struct spec *s)
{
    text(c, type_text(s->x), " ");
    for (int d = 0; d <= s->n_lead; d++) {
        char number[32];
        snprintf(number, sizeof number, "%lld%s", (long long)(d < s->n_lead ? s->lead[d] : s->n), d < s->n_lead ? "x" : "");
        text(c, number, NULL);
    }
}

static void end_name(suite_case *c, const struct spec *s)
{
    text(c, layout_names[s->layout], NULL);
    text(c, fill_names[s->fill], NULL);
    if (s->has & HEADS)
        text(c, s->has & SAME_HEAD ? " heads0" : " heads", NULL);
    if (s->has & RBW)
        text(c, " rbw", NULL);
    if (s->has & ACC)
        text(c, " acc", NULL);
    if (s->has & FLAT)
        text(c, " flat", NULL);
    if (s->eps != 0)
        number_word(c, " eps=", s->eps);
    if (s->offset != 0)
        number_word(c, " off=", s->offset);
}

static double row_bytes(const suite_case *c)
{
    double total = 0;
    for (int i = 0; i < c->n_tensors; i++)
        total += (double)suite_elements(&c->tensor[i]) * suite_type_bytes(c->tensor[i].type);
    return total;
}

/* ---------------------------------------------------------------- one case */

static void forward(const struct spec *s)
{
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK};
    int bench = c.use & (SUITE_BENCH | SUITE_CACHE | SUITE_BENCH_CUDA);
    saker_rms_norm_args a = {.struct_size = sizeof a,
                             .eps = s->eps,
                             .weight_offset = s->offset,
                             .round_before_weight = !!(s->has & RBW),
                             .quant = s->quant};
    memcpy(c.args, &a, sizeof a);
    start_name(&c, s);

    add_rows(&c, s, "x", SUITE_IN, s->x);
    if (s->has & W) {
        add_param(&c, s, "weight", SUITE_IN, s->w);
        bench ? (void)0 : type_word(&c, s, " w", s->w);
    }
    if (s->has & B) {
        add_param(&c, s, "bias", SUITE_IN, s->b);
        type_word(&c, s, " b", s->b);
    }
    if (s->has & R) {
        add_rows(&c, s, "residual", SUITE_IN, s->r);
        type_word(&c, s, bench ? " residual" : " r", s->r);
    }
    if (s->has & Y) {
        suite_tensor *t = add_rows(&c, s, "y", SUITE_OUT, s->has & Y_IS_X ? s->x : s->y);
        bench ? (void)0 : type_word(&c, s, s->has & Y_IS_X ? " y=x" : " y", s->y);
        if (s->has & Y_IS_X) {
            t->alias = "x";
            memcpy(t->stride, c.tensor[0].stride, sizeof t->stride);
        }
    }
    if (s->has & RO) {
        suite_tensor *t = add_rows(&c, s, "residual_out", SUITE_OUT, s->has & RO_IS_R ? s->r : s->ro);
        bench ? (void)0 : type_word(&c, s, s->has & RO_IS_R ? " ro=r" : " ro", s->ro);
        if (s->has & RO_IS_R) {
            t->alias = "residual";
            for (int i = 0; i < c.n_tensors; i++)
                if (!strcmp(c.tensor[i].field, "residual"))
                    memcpy(t->stride, c.tensor[i].stride, sizeof t->stride);
        }
    }
    if (s->has & RSTD) {
        add_stat(&c, s, "rstd", SUITE_OUT, 0);
        text(&c, " rstd", NULL);
    }
    if (s->quant) {
        add_rows(&c, s, "y_quant", SUITE_OUT, s->q);
        text(&c, " ", type_text(s->q));
        text(&c, "/", quant_names[s->quant]);
        if (s->quant == SAKER_QUANT_TENSOR) {
            suite_tensor *t = add_tensor(&c, "y_scale", SUITE_IN, SAKER_F32, SUITE_POSITIVE);
            t->ndim = 1;
            t->shape[0] = 1;
        } else {
            add_stat(&c, s, "y_scale", SUITE_OUT, s->quant == SAKER_QUANT_BLOCK ? (s->n + 127) / 128 : 0);
        }
    }
    end_name(&c, s);
    c.bytes = row_bytes(&c);
    c.flops = 4 * (double)suite_elements(&c.tensor[0]); /* square, add, two products */
    c.reads = 1 + !!(s->has & R);
    c.writes = !!(s->has & Y) + !!(s->has & RO) + !!s->quant;
    add(&forward_list, &c);
}

static void backward(const struct spec *s)
{
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK};
    int bench = c.use & (SUITE_BENCH | SUITE_CACHE | SUITE_BENCH_CUDA);
    saker_rms_norm_backward_args a = {.struct_size = sizeof a,
                                      .eps = s->eps,
                                      .weight_offset = s->offset,
                                      .round_before_weight = !!(s->has & RBW),
                                      .accumulate = !!(s->has & ACC)};
    suite_role sum = s->has & ACC ? SUITE_INOUT : SUITE_OUT;
    memcpy(c.args, &a, sizeof a);
    start_name(&c, s);

    struct spec plain = *s; /* dy, and the gradient that arrives at residual_out, are ordinary numbers; x has the fill */
    if (s->fill == SUITE_HUGE || s->fill == SUITE_MAX || s->fill == SUITE_ZERO)
        plain.fill = SUITE_NORMAL;
    add_rows(&c, &plain, "dy", SUITE_IN, s->y);
    add_rows(&c, s, "x", SUITE_IN, s->x);
    if (s->y && s->y != s->x)
        type_word(&c, s, " dy", s->y);
    if (s->has & W) {
        add_param(&c, s, "weight", SUITE_IN, s->w);
        bench ? (void)0 : type_word(&c, s, " w", s->w);
    }
    if (s->has & RSTD) {
        add_stat(&c, s, "rstd", SUITE_IN, 0);
        bench ? (void)0 : text(&c, " rstd", NULL);
    }
    if (s->has & R) {
        add_rows(&c, &plain, "dresidual_out", SUITE_IN, s->r);
        type_word(&c, s, bench ? " residual" : " dres", s->r);
    }
    if (s->has & Y) {
        const char *same = s->has & Y_IS_X ? "dy" : s->has & RO_IS_R ? "dresidual_out" : NULL;
        suite_tensor *t = add_rows(&c, s, "dx", SUITE_OUT, s->ro);
        bench ? (void)0 : type_word(&c, s, s->has & Y_IS_X ? " dx=dy" : same ? " dx=dres" : " dx", same ? 0 : s->ro);
        for (int i = 0; same && i < c.n_tensors; i++)
            if (!strcmp(c.tensor[i].field, same)) {
                t->alias = same;
                t->type = c.tensor[i].type;
                memcpy(t->stride, c.tensor[i].stride, sizeof t->stride);
            }
    }
    if (s->has & DW) {
        add_param(&c, s, "dweight", sum, s->w);
        bench ? (void)0 : type_word(&c, s, " dw", s->w);
    }
    if (s->has & DB) {
        add_param(&c, s, "dbias", sum, s->b);
        type_word(&c, s, " db", s->b);
    }
    end_name(&c, s);
    c.bytes = row_bytes(&c);
    c.flops = 11 * (double)suite_elements(&c.tensor[0]); /* h, g, their product and sum, dx in 4, dweight in 2 */
    c.reads = 2 + !!(s->has & R);
    c.writes = !!(s->has & Y);
    add(&backward_list, &c);
}

/* ---------------------------------------------------------------- correctness, both ops */

#define ROWS(...) .lead = {__VA_ARGS__}, .n_lead = sizeof((int[]){__VA_ARGS__}) / sizeof(int)
#define EACH(i, array) (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)

/* Forward and gradient of the same shape. has names what both understand. */
static void both(struct spec s)
{
    struct spec f = s, b = s;
    f.has |= Y;
    b.has |= Y | DW;
    b.has &= ~(RO | B);
    if (s.has & B)
        b.has |= DB;
    forward(&f);
    backward(&b);
}

static void widths(void)
{
    static const int64_t n[] = {1,   2,   3,   5,    7,    8,    15,  16,   17,   31,    33,    63,
                                65,  127, 128, 129,  255,  257,  1000, 1024, 4096, 8191, 65537, 1000003};
    for EACH (i, n)
        for EACH (t, floats) {
            int64_t m = n[i] <= 257 ? 17 : n[i] <= 1024 ? 5 : n[i] <= 8191 ? 3 : n[i] <= 65537 ? 2 : 1;
            both((struct spec){ROWS(m), .n = n[i], .x = floats[t], .has = W | RSTD, .fill = SUITE_EDGES});
        }
    both((struct spec){ROWS(3), .n = 1000003, .x = SAKER_BF16, .has = W | B | R | RO});
    both((struct spec){ROWS(3), .n = 65536, .x = SAKER_F32, .has = W | B | R});
    for EACH (t, floats) /* no leading dimension at all */
        both((struct spec){.n = 100, .x = floats[t], .has = W | RSTD});
}

static void heights(void)
{
    static const int64_t m[] = {0, 1, 2, 3, 4, 5, 17, 64, 65, 257, 1000, 5000};
    static const int64_t n[] = {33, 128};
    for EACH (i, m)
        for EACH (k, n)
            both((struct spec){ROWS(m[i]), .n = n[k], .x = k ? SAKER_BF16 : SAKER_F32, .has = W | B | RSTD});
    both((struct spec){ROWS(3, 0, 2), .n = 8, .x = SAKER_F32, .has = W | B | R | RO});
    both((struct spec){ROWS(3), .n = 0, .x = SAKER_F32, .has = R | RO});
    /* Enough for several threads. */
    both((struct spec){ROWS(4096), .n = 512, .x = SAKER_BF16, .has = W | B | R | RO | RSTD});
    both((struct spec){ROWS(2048), .n = 640, .x = SAKER_F32, .has = W | B});
    both((struct spec){ROWS(100000), .n = 8, .x = SAKER_F16, .has = W | RSTD});
    both((struct spec){ROWS(200000), .n = 1, .x = SAKER_F32, .has = W | B});
    both((struct spec){ROWS(4), .n = 200000, .x = SAKER_F32, .has = W | B | RSTD});
}

static void types(void)
{
    for EACH (x, floats)
        for EACH (y, floats)
            for EACH (w, floats) {
                both((struct spec){ROWS(5), .n = 257, .x = floats[x], .y = floats[y], .w = floats[w],
                                   .b = floats[(w + y) % 3], .ro = floats[(x + w) % 3], .has = W | B});
                both((struct spec){ROWS(5), .n = 130, .x = floats[x], .r = floats[y], .ro = floats[w],
                                   .w = floats[(x + y) % 3], .y = floats[(y + w) % 3], .has = W | R | RO});
            }
}

/* Every combination of what may be there or not. */
static void presence(void)
{
    for (int k = 0; k < 32; k++) {
        int has = (k & 1 ? W : 0) | (k & 2 ? B : 0) | (k & 4 ? R : 0) | (k & 8 ? RO : 0) | (k & 16 ? RSTD : 0);
        struct spec s = {ROWS(3), .n = 67, .x = SAKER_BF16, .has = has | Y};
        forward(&s);
        s.offset = 1;
        s.has |= RBW;
        forward(&s);
        s = (struct spec){ROWS(3), .n = 67, .x = SAKER_F16, .q = SAKER_E4M3, .quant = SAKER_QUANT_ROW, .has = has};
        forward(&s);
    }
    for (int k = 0; k < 8; k++)
        for (int out = 1; out < 8; out++) {
            int has = (k & 1 ? W : 0) | (k & 2 ? RSTD : 0) | (k & 4 && out & 1 ? R : 0); /* dresidual_out needs dx */
            has |= (out & 1 ? Y : 0) | (out & 2 ? DW : 0) | (out & 4 ? DB : 0);
            struct spec s = {ROWS(19), .n = 67, .x = SAKER_BF16, .has = has};
            backward(&s);
            s.x = SAKER_F32;
            s.offset = 1;
            s.has |= RBW | (out & 6 ? ACC : 0);
            backward(&s);
        }
}

static void quantised(void)
{
    static const int64_t n[] = {1, 5, 16, 100, 127, 128, 129, 255, 257, 384, 1000, 4096, 20000};
    for EACH (q, quants)
        for (int mode = SAKER_QUANT_TENSOR; mode <= SAKER_QUANT_BLOCK; mode++)
            for (int with_y = 0; with_y < 2; with_y++) {
                struct spec s = {ROWS(4), .n = 300, .q = quants[q], .quant = mode, .has = W | (with_y ? Y : 0)};
                for EACH (x, floats) {
                    s.x = floats[x];
                    s.y = floats[(x + q) % 3];
                    forward(&s);
                }
                s.has |= B | R | RO | RSTD;
                s.x = SAKER_BF16;
                s.y = SAKER_BF16;
                forward(&s);
                s.layout = PADDED;
                forward(&s);
                s.n_lead = 3;
                s.lead[0] = 2, s.lead[1] = 3, s.lead[2] = 2;
                s.layout = PERMUTED;
                forward(&s);
                s.layout = GAPPED;
                s.has |= FLAT;
                forward(&s);
                static const suite_fill fills[] = {SUITE_ZERO, SUITE_CONSTANT, SUITE_LARGE, SUITE_TINY, SUITE_ALTERNATING,
                                                   SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_HUGE};
                for EACH (f, fills) {
                    struct spec t = {ROWS(3), .n = 260, .q = quants[q], .quant = mode, .x = SAKER_F32, .has = W,
                                     .fill = fills[f]};
                    t.has |= with_y ? Y : 0;
                    forward(&t);
                    t.x = SAKER_F16;
                    t.fill = fills[f] == SUITE_HUGE ? SUITE_MAX : fills[f];
                    forward(&t);
                }
            }
    for EACH (i, n)
        for (int mode = SAKER_QUANT_TENSOR; mode <= SAKER_QUANT_BLOCK; mode++)
            for EACH (q, quants) {
                struct spec s = {ROWS(n[i] > 1000 ? 2 : 7), .n = n[i], .x = SAKER_BF16, .q = quants[q], .quant = mode,
                                 .has = W};
                forward(&s);
            }
    struct spec heads = {ROWS(3, 4), .n = 96, .x = SAKER_BF16, .q = SAKER_I8, .quant = SAKER_QUANT_ROW,
                         .has = W | B | HEADS | Y | RBW, .offset = 1};
    forward(&heads);
    struct spec inplace = {ROWS(9), .n = 257, .x = SAKER_BF16, .q = SAKER_E4M3, .quant = SAKER_QUANT_BLOCK,
                           .has = W | R | RO | Y | Y_IS_X | RO_IS_R};
    forward(&inplace);
}

static void layouts(void)
{
    for EACH (t, floats)
        for (int layout = PADDED; layout <= EXPANDED; layout++) {
            int all = W | B | R | RO | RSTD;
            both((struct spec){ROWS(7), .n = 131, .x = floats[t], .has = all, .layout = layout});
            both((struct spec){ROWS(3, 5), .n = 70, .x = floats[t], .has = all, .layout = layout});
            both((struct spec){ROWS(2, 3, 2, 3), .n = 33, .x = floats[t], .has = all, .layout = layout});
            both((struct spec){ROWS(3, 4, 2), .n = 24, .x = floats[t], .has = all | FLAT, .layout = layout});
            both((struct spec){ROWS(3, 5), .n = 1, .x = floats[t], .has = all, .layout = layout});
        }
    static const int64_t heads[] = {1, 2, 3, 8};
    for EACH (h, heads)
        for EACH (t, floats)
            for (int layout = COMPACT; layout <= EXPANDED; layout++) {
                both((struct spec){ROWS(5, heads[h]), .n = 65, .x = floats[t], .has = W | B | HEADS, .layout = layout});
                both((struct spec){ROWS(3, 4, heads[h]), .n = 128, .x = floats[t], .has = W | B | HEADS | RSTD,
                                   .layout = layout});
            }
    both((struct spec){ROWS(300, 6), .n = 64, .x = SAKER_BF16, .has = W | B | R | HEADS});
    both((struct spec){ROWS(5, 3), .n = 40, .x = SAKER_F32, .has = W | B | HEADS | SAME_HEAD});
    both((struct spec){ROWS(0, 3), .n = 40, .x = SAKER_F32, .has = W | B | HEADS});
}

static void in_place(void)
{
    static const int layouts_used[] = {COMPACT, PADDED, PERMUTED};
    for EACH (t, floats)
        for EACH (l, layouts_used) {
            struct spec s = {ROWS(6, 4), .n = 90, .x = floats[t], .layout = layouts_used[l]};
            static const int kinds[] = {W | Y_IS_X, W | R | RO | RO_IS_R, W | B | R | RO | RO_IS_R | Y_IS_X | RSTD};
            for EACH (k, kinds) {
                s.has = kinds[k] | Y;
                forward(&s);
            }
            s.has = W | Y | Y_IS_X | DW | DB | RSTD;
            backward(&s);
            s.has = W | R | Y | RO_IS_R | DW | DB;
            s.r = floats[(t + 1) % 3];
            backward(&s);
        }
    both((struct spec){ROWS(3), .n = 70000, .x = SAKER_F32, .has = W | Y_IS_X});
    both((struct spec){ROWS(2), .n = 300000, .x = SAKER_BF16, .has = W | Y_IS_X});
}

static void fills(void)
{
    for EACH (t, floats)
        for (suite_fill f = SUITE_UNIFORM; f <= SUITE_OFFSET; f++) {
            struct spec s = {ROWS(5), .n = 203, .x = floats[t], .has = W | RSTD, .fill = f};
            if (f != SUITE_MAX) /* with an rstd that does not belong to x, the gradient itself would overflow */
                both(s);
            s.has |= Y;
            forward(&s);
            both((struct spec){ROWS(3), .n = 77, .x = floats[t], .has = W | B, .fill = f});
            if (f != SUITE_MAX) /* x + residual would overflow */
                both((struct spec){ROWS(5), .n = 203, .x = floats[t], .has = W | R | RO, .fill = f});
        }
    struct spec nan = {ROWS(64), .n = 33, .x = SAKER_F32, .has = W | B | Y, .fill = SUITE_ONE_NAN};
    forward(&nan);
    static const float eps[] = {1e-12f, 1e-5f, 1};
    static const float offsets[] = {1, -1, 0.5f};
    for EACH (t, floats)
        for EACH (k, eps) {
            both((struct spec){ROWS(4), .n = 150, .x = floats[t], .has = W | B, .eps = eps[k], .offset = offsets[k]});
            both((struct spec){ROWS(4), .n = 150, .x = floats[t], .has = 0, .eps = eps[k], .offset = offsets[k]});
            both((struct spec){ROWS(4), .n = 150, .x = floats[t], .has = W | RBW, .y = floats[(t + k) % 3],
                               .offset = offsets[k]});
        }
    static const int64_t m[] = {0, 1, 40, 3000};
    for EACH (i, m)
        for EACH (t, floats) {
            struct spec s = {ROWS(m[i]), .n = 50, .x = floats[t], .w = floats[(t + 1) % 3], .has = W | DW | DB | ACC};
            backward(&s);
        }
}

/* ---------------------------------------------------------------- bench and demo */

static void bench_pair(int64_t m, int64_t n, saker_type type, int use)
{
    struct spec s = {ROWS(m), .n = n, .x = type, .use = use, .has = W | Y};
    forward(&s);
    s.has |= RSTD | DW;
    backward(&s);
}

static void benches(void)
{
    /* CPU, x of 256 MiB: beyond any cache. */
    static const int64_t wide[] = {1024, 4096, 16384, 65536};
    for EACH (t, floats)
        for EACH (i, wide) {
            int64_t elements = (int64_t)1 << (floats[t] == SAKER_F32 ? 26 : 27);
            int demo = wide[i] == 4096 && floats[t] != SAKER_F16 ? SUITE_DEMO : 0;
            bench_pair(elements / wide[i], wide[i], floats[t], SUITE_BENCH | demo);
        }
    /* CPU, 256 KiB over all streams. */
    static const int64_t narrow[] = {1024, 4096};
    for EACH (t, floats)
        for EACH (i, narrow) {
            int64_t row = narrow[i] * suite_type_bytes(floats[t]);
            int demo = narrow[i] == 1024 && floats[t] == SAKER_F32 ? SUITE_DEMO : 0;
            struct spec s = {ROWS(262144 / (2 * row)), .n = narrow[i], .x = floats[t], .use = SUITE_CACHE | demo,
                             .has = W | Y};
            forward(&s);
            s.lead[0] = 262144 / (3 * row);
            s.has |= RSTD | DW;
            backward(&s);
        }
    /* GPU, 2^27 elements. */
    for EACH (t, floats)
        for (int64_t n = 256; n <= 262144; n *= 2) {
            int demo = n == 4096 && floats[t] != SAKER_F16 ? SUITE_DEMO : 0;
            bench_pair(((int64_t)1 << 27) / n, n, floats[t], SUITE_BENCH_CUDA | demo);
        }
    /* The shapes that QuACK publishes figures for. */
    static const int64_t shape[][2] = {{32768, 256},   {32768, 512},   {32768, 1024}, {32768, 4096},  {32768, 8192},
                                       {16384, 16384}, {8192, 32768},  {2048, 65536}, {1024, 131072}, {512, 262144}};
    static const int64_t shape32[][2] = {{32768, 1024}, {32768, 4096}, {2048, 65536}, {512, 262144}};
    for EACH (i, shape)
        bench_pair(shape[i][0], shape[i][1], SAKER_BF16, SUITE_BENCH_CUDA);
    for EACH (i, shape32)
        bench_pair(shape32[i][0], shape32[i][1], SAKER_F32, SUITE_BENCH_CUDA);
    /* With the residual stream, and with e4m3 per row instead of y. */
    static const int64_t fused[] = {1024, 4096, 8192, 16384};
    for EACH (i, fused) {
        struct spec s = {ROWS(((int64_t)1 << 27) / fused[i]), .n = fused[i], .x = SAKER_BF16};
        int demo = fused[i] == 4096 ? SUITE_DEMO : 0;
        s.use = SUITE_BENCH_CUDA | SUITE_BENCH | demo;
        s.has = W | R | RO | Y;
        forward(&s);
        struct spec q = s;
        q.has = W;
        q.q = SAKER_E4M3;
        q.quant = SAKER_QUANT_ROW;
        forward(&q);
    }
}

static void build(void)
{
    if (forward_list.n)
        return;
    widths();
    heights();
    types();
    presence();
    quantised();
    layouts();
    in_place();
    fills();
    benches();
}

static bool case_of(const struct list *l, int i, suite_case *out)
{
    build();
    if (i < 0 || i >= l->n)
        return false;
    *out = l->c[i];
    return true;
}

bool rms_norm_case(int i, suite_case *out)
{
    return case_of(&forward_list, i, out);
}

bool rms_norm_backward_case(int i, suite_case *out)
{
    return case_of(&backward_list, i, out);
}
