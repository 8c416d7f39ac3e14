/* norm_spec_test.c - makes cases of rms_norm, layer_norm and their gradients from their short descriptions; the text is
 * the name. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "norm_test.h"

static const char *const layout_names[] = {"", " padded", " permuted", " gapped", " expanded"};

static const char *const fill_names[] = {"",      " uniform",  " zero",   " constant",    " large",
                                         " huge", " tiny",     " max",    " alternating", " nan",
                                         " inf",  " positive", " offset", " bits",        " edges"};
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
static struct list forward_list[N_KINDS], backward_list[N_KINDS];

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
        snprintf(number, sizeof number, "%lld%s", (long long)(d < s->n_lead ? s->lead[d] : s->n),
                 d < s->n_lead ? "x" : "");
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

void norm_add(int kind, const struct spec *s)
{
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK};
    int bench = c.use & (SUITE_BENCH | SUITE_CACHE | SUITE_BENCH_CUDA);
    saker_rms_norm_args rms = {.struct_size = sizeof rms,
                               .eps = s->eps,
                               .weight_offset = s->offset,
                               .round_before_weight = !!(s->has & RBW),
                               .quant = s->quant};
    saker_layer_norm_args layer = {.struct_size = sizeof layer,
                                   .eps = s->eps,
                                   .weight_offset = s->offset,
                                   .round_before_weight = !!(s->has & RBW),
                                   .quant = s->quant};
    memcpy(c.args, kind == LAYER ? (void *)&layer : (void *)&rms, kind == LAYER ? sizeof layer : sizeof rms);
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
        if (kind == LAYER)
            add_stat(&c, s, "mean", SUITE_OUT, 0);
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
    /* square, add, two products; with a mean its sum, twice a difference */
    c.flops = (kind == LAYER ? 7 : 4) * (double)suite_elements(&c.tensor[0]);
    c.reads = 1 + !!(s->has & R);
    c.writes = !!(s->has & Y) + !!(s->has & RO) + !!s->quant;
    c.cpu_kernel = s->quant ? "quantised" : s->has & (R | RO) ? "residual" : "rows";
    add(&forward_list[kind], &c);
}

void norm_backward_add(int kind, const struct spec *s)
{
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK};
    int bench = c.use & (SUITE_BENCH | SUITE_CACHE | SUITE_BENCH_CUDA);
    saker_rms_norm_backward_args rms = {.struct_size = sizeof rms,
                                        .eps = s->eps,
                                        .weight_offset = s->offset,
                                        .round_before_weight = !!(s->has & RBW),
                                        .accumulate = !!(s->has & ACC)};
    saker_layer_norm_backward_args layer = {.struct_size = sizeof layer,
                                            .eps = s->eps,
                                            .weight_offset = s->offset,
                                            .round_before_weight = !!(s->has & RBW),
                                            .accumulate = !!(s->has & ACC)};
    memcpy(c.args, kind == LAYER ? (void *)&layer : (void *)&rms, kind == LAYER ? sizeof layer : sizeof rms);
    suite_role sum = s->has & ACC ? SUITE_INOUT : SUITE_OUT;
    start_name(&c, s);

    /* dy, and the gradient that arrives at residual_out, are ordinary numbers; x has the fill. */
    struct spec plain = *s;
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
        if (kind == LAYER)
            add_stat(&c, s, "mean", SUITE_IN, 0);
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
    /* h, g, their product and sum, dx in 4, dweight in 2; with a mean the sum of g, two differences and dbias */
    c.flops = (kind == LAYER ? 15 : 11) * (double)suite_elements(&c.tensor[0]);
    c.reads = 2 + !!(s->has & R);
    c.writes = !!(s->has & Y);
    c.cpu_kernel = s->has & (DW | DB) ? "rows sums" : "rows";
    add(&backward_list[kind], &c);
}

static bool case_of(const struct list *l, int i, suite_case *out)
{
    if (i < 0 || i >= l->n)
        return false;
    *out = l->c[i];
    return true;
}

bool norm_added(int kind, int i, suite_case *out)
{
    return case_of(&forward_list[kind], i, out);
}

bool norm_backward_added(int kind, int i, suite_case *out)
{
    return case_of(&backward_list[kind], i, out);
}
