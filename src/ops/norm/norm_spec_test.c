/* norm_spec_test.c - makes cases of rms_norm, layer_norm and their gradients from their short descriptions; the text is
 * the name. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "norm_test.h"

/* What SUITE_RANGE gives: squares whose sum leaves f32's range in a row of 20000, but not in one of 4096. */
static const int64_t range_value = (int64_t)1 << 57;

static suite_list forward_list[N_KINDS], backward_list[N_KINDS];

/* ---------------------------------------------------------------- tensors of a case */

static suite_tensor *add_rows(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type)
{
    suite_tensor *t = suite_add_rows(c, field, role, type ? type : s->x, s->n_lead, s->lead, s->n, 0);
    t->fill = s->fill;
    t->low = t->high = range_value;
    suite_lay_out(t, s->layout, suite_gap(c), true);
    return t;
}

/* rstd, or scales with cols values a row (0: one value and no last dimension). */
static suite_tensor *add_stat(suite_case *c, const struct spec *s, const char *field, suite_role role, int64_t cols)
{
    bool flat = s->has & FLAT || s->n_lead == 0;
    int64_t m = 1;
    for (int d = 0; d < s->n_lead; d++)
        m *= s->lead[d];
    suite_tensor *t =
        suite_add_rows(c, field, role, SAKER_F32, flat ? 1 : s->n_lead, flat ? &m : s->lead, cols ? cols : -1, 0);
    t->fill = SUITE_POSITIVE;
    if (s->layout == SUITE_PADDED || s->layout == SUITE_GAPPED) /* any stride, also in the last dimension */
        suite_lay_out(t, SUITE_GAPPED, 1, false);
    else if (s->layout == SUITE_EXPANDED)
        suite_lay_out(t, SUITE_EXPANDED, 0, true);
    return t;
}

static suite_tensor *add_param(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type)
{
    int heads = !!(s->has & HEADS);
    suite_tensor *t = suite_add_rows(c, field, role, type ? type : s->x, heads, s->lead + s->n_lead - heads, s->n, 0);
    t->fill = role == SUITE_IN ? SUITE_UNIFORM : SUITE_NORMAL;
    if (heads && (s->layout == SUITE_PADDED || s->layout == SUITE_GAPPED))
        suite_lay_out(t, SUITE_PADDED, suite_gap(c), true);
    if (s->has & SAME_HEAD)
        suite_lay_out(t, SUITE_EXPANDED, 0, true);
    return t;
}

/* ---------------------------------------------------------------- names */

static void type_word(suite_case *c, const struct spec *s, const char *word, saker_type type)
{
    suite_say(c, "%s", word);
    if (type && type != s->x)
        suite_say(c, ":%s", suite_type_text(type));
}

/* "bf16 3x17x1000": type and shape. */
static void start_name(suite_case *c, const struct spec *s)
{
    suite_say_random(c, s->random);
    suite_say(c, "%s ", suite_type_text(s->x));
    suite_say_shape(c, s->n_lead, s->lead, s->n);
}

static void end_name(suite_case *c, const struct spec *s)
{
    suite_say(c, "%s%s", suite_layout_text(s->layout), suite_fill_text(s->fill));
    if (s->has & HEADS)
        suite_say(c, s->has & SAME_HEAD ? " heads0" : " heads");
    if (s->has & RBW)
        suite_say(c, " rbw");
    if (s->has & ACC)
        suite_say(c, " acc");
    if (s->has & FLAT)
        suite_say(c, " flat");
    if (s->has & DY_INF)
        suite_say(c, " dy=inf");
    if (s->has & RSTD_ZERO)
        suite_say(c, " rstd=0");
    if (s->eps != 0)
        suite_say(c, " eps=%g", (double)s->eps);
    if (s->offset != 0)
        suite_say(c, " off=%g", (double)s->offset);
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
        if (s->has & Y_IS_X)
            suite_share(&c, t, "x");
    }
    if (s->has & RO) {
        suite_tensor *t = add_rows(&c, s, "residual_out", SUITE_OUT, s->has & RO_IS_R ? s->r : s->ro);
        bench ? (void)0 : type_word(&c, s, s->has & RO_IS_R ? " ro=r" : " ro", s->ro);
        if (s->has & RO_IS_R)
            suite_share(&c, t, "residual");
    }
    if (s->has & RSTD) {
        if (kind == LAYER && !(s->has & NO_MEAN))
            add_stat(&c, s, "mean", SUITE_OUT, 0);
        if (!(s->has & NO_RSTD))
            add_stat(&c, s, "rstd", SUITE_OUT, 0);
        suite_say(&c, s->has & NO_RSTD ? " mean" : s->has & NO_MEAN ? " rstd alone" : " rstd");
    }
    if (s->quant) {
        add_rows(&c, s, "y_quant", SUITE_OUT, s->q);
        suite_say(&c, " %s/%s", suite_type_text(s->q), suite_quant_text(s->quant));
        if (s->quant == SAKER_QUANT_TENSOR)
            suite_add_rows(&c, "y_scale", SUITE_IN, SAKER_F32, 0, s->lead, 1, 0)->fill = SUITE_POSITIVE;
        else
            add_stat(&c, s, "y_scale", SUITE_OUT, s->quant == SAKER_QUANT_BLOCK ? (s->n + 127) / 128 : 0);
    }
    end_name(&c, s);
    c.bytes = suite_all_bytes(&c);
    /* square, add, two products; with a mean its sum, twice a difference */
    c.flops = (kind == LAYER ? 7 : 4) * (double)suite_elements(&c.tensor[0]);
    c.reads = 1 + !!(s->has & R);
    c.writes = !!(s->has & Y) + !!(s->has & RO) + !!s->quant;
    c.cpu_kernel = s->quant ? "quantised" : s->has & (R | RO) ? "residual" : "rows";
    suite_list_add(&forward_list[kind], &c);
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
    if (s->fill == SUITE_HUGE || s->fill == SUITE_MAX || s->fill == SUITE_RANGE || s->fill == SUITE_ZERO)
        plain.fill = SUITE_NORMAL;
    suite_tensor *dy = add_rows(&c, &plain, "dy", SUITE_IN, s->y);
    if (s->has & DY_INF)
        dy->fill = SUITE_ONE_INF;
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
        suite_tensor *rstd = add_stat(&c, s, "rstd", SUITE_IN, 0);
        if (s->has & RSTD_ZERO)
            rstd->fill = SUITE_RANGE, rstd->high = s->fill == SUITE_MAX ? 0 : 1;
        bench ? (void)0 : suite_say(&c, " rstd");
    }
    if (s->has & R) {
        add_rows(&c, &plain, "dresidual_out", SUITE_IN, s->r);
        type_word(&c, s, bench ? " residual" : " dres", s->r);
    }
    if (s->has & Y) {
        const char *same = s->has & Y_IS_X ? "dy" : s->has & RO_IS_R ? "dresidual_out" : NULL;
        suite_tensor *t = add_rows(&c, s, "dx", SUITE_OUT, s->ro);
        bench ? (void)0 : type_word(&c, s, s->has & Y_IS_X ? " dx=dy" : same ? " dx=dres" : " dx", same ? 0 : s->ro);
        if (same)
            suite_share(&c, t, same);
    }
    if (s->has & DW) {
        add_param(&c, s, "dweight", sum, s->dw ? s->dw : s->w);
        bench ? (void)0 : type_word(&c, s, " dw", s->dw ? s->dw : s->w);
    }
    if (s->has & DB) {
        add_param(&c, s, "dbias", sum, s->b);
        type_word(&c, s, " db", s->b);
    }
    end_name(&c, s);
    c.bytes = suite_all_bytes(&c);
    /* h, g, their product and sum, dx in 4, dweight in 2; with a mean the sum of g, two differences and dbias */
    c.flops = (kind == LAYER ? 15 : 11) * (double)suite_elements(&c.tensor[0]);
    c.reads = 2 + !!(s->has & R);
    c.writes = !!(s->has & Y);
    c.cpu_kernel = s->has & (DW | DB) ? "rows sums" : "rows";
    suite_list_add(&backward_list[kind], &c);
}

bool norm_added(int kind, int i, suite_case *out)
{
    return suite_list_at(&forward_list[kind], i, out);
}

bool norm_backward_added(int kind, int i, suite_case *out)
{
    return suite_list_at(&backward_list[kind], i, out);
}
