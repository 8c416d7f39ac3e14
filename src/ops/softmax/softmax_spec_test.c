/* softmax_spec_test.c - makes cases of softmax and softmax_backward from their short descriptions; the text is the
 * name. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "softmax_test.h"

static suite_list forward_list, backward_list;

/* ---------------------------------------------------------------- tensors */

static suite_tensor *add_tensor(suite_case *c, const struct spec *s, const char *field, suite_role role,
                                saker_type type, suite_fill fill)
{
    suite_tensor *t = suite_add_rows(c, field, role, type ? type : s->x, s->ndim, s->shape, -1, 0);
    t->fill = fill;
    suite_lay_out(t, role == SUITE_OUT && s->has & OUT_GAPPED ? SUITE_GAPPED : s->layout, suite_gap(c), false);
    return t;
}

static void add_mask(suite_case *c, const struct spec *s)
{
    int repeats = s->mask - 1, skip = repeats & FEWER ? 1 : 0;
    suite_tensor *t = suite_add(c, "mask", SUITE_IN, s->m ? s->m : s->x, s->mask_fill);
    for (int d = skip; d < s->ndim; d++)
        t->shape[t->ndim++] = repeats >> d & 1 ? 1 : s->shape[d];
    suite_lay_out(t, s->layout == SUITE_EXPANDED ? SUITE_GAPPED : s->layout, suite_gap(c), false);
}

/* ---------------------------------------------------------------- names */

static void type_word(suite_case *c, const struct spec *s, const char *word, saker_type type)
{
    if (type && type != s->x)
        suite_say(c, "%s:%s", word, suite_type_text(type));
}

static void name(suite_case *c, const struct spec *s)
{
    suite_say_random(c, s->random);
    suite_say(c, "%s ", suite_type_text(s->x));
    suite_say_shape(c, s->ndim, s->shape, -1);
    if (s->dim)
        suite_say(c, " dim-%d", s->dim + 1);
    suite_say(c, "%s%s", s->has & LOG ? " log" : "", s->has & CAUSAL ? " causal" : "");
    suite_say(c, "%s", s->has & IN_PLACE ? " in place" : s->has & IN_PLACE_Y ? " dx=y" : "");
    suite_say(c, "%s%s%s", suite_layout_text(s->layout), s->has & OUT_GAPPED ? " to gapped" : "",
              suite_fill_text(s->fill));
    if (s->mask)
        suite_say(c, " mask/%d%s", s->mask - 1, suite_fill_text(s->mask_fill));
    type_word(c, s, " y", s->y);
    type_word(c, s, " m", s->m);
    if (s->scale != 0)
        suite_say(c, " scale=%g", (double)s->scale);
}

static void finish(suite_list *l, suite_case *c, const struct spec *s, double flops)
{
    name(c, s);
    int side_by_side = 1;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        int64_t stride[SUITE_MAX_DIMS];
        suite_strides(t, stride);
        int d = t->ndim - 1 - s->dim;
        if (strcmp(t->field, "mask") && t->shape[d] > 1 && stride[d] != 1)
            side_by_side = 0;
    }
    c->bytes = suite_all_bytes(c);
    c->flops = flops * (double)suite_elements(&c->tensor[0]);
    c->cpu_kernel = side_by_side ? "rows" : "columns";
    suite_list_add(l, c);
}

/* ---------------------------------------------------------------- one case */

void softmax_add(const struct spec *s)
{
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK, .reads = 1 + (s->mask != 0), .writes = 1};
    saker_softmax_args a = {.struct_size = sizeof a,
                            .dim_from_last = s->dim,
                            .scale = s->scale,
                            .causal = !!(s->has & CAUSAL),
                            .log = !!(s->has & LOG)};
    memcpy(c.args, &a, sizeof a);
    add_tensor(&c, s, "x", SUITE_IN, s->x, s->fill);
    if (s->mask)
        add_mask(&c, s);
    suite_tensor *y = add_tensor(&c, s, "y", SUITE_OUT, s->y, SUITE_NORMAL);
    if (s->has & (IN_PLACE | IN_PLACE_Y))
        suite_share(&c, y, "x");
    finish(&forward_list, &c, s, 5); /* maximum, difference, exponential, sum, product */
}

/* y, the result, has type x; dy type m; dx type y. */
void softmax_backward_add(const struct spec *s)
{
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK, .reads = 2, .writes = 1};
    saker_softmax_backward_args a = {.struct_size = sizeof a,
                                     .dim_from_last = s->dim,
                                     .scale = s->scale,
                                     .causal = !!(s->has & CAUSAL),
                                     .log = !!(s->has & LOG)};
    struct spec named = *s;
    named.mask = 0;
    memcpy(c.args, &a, sizeof a);
    add_tensor(&c, s, "dy", SUITE_IN, s->m, s->fill == SUITE_MASKED ? SUITE_NORMAL : s->fill);
    add_tensor(&c, s, "y", SUITE_IN, s->x, s->fill);
    suite_tensor *dx = add_tensor(&c, s, "dx", SUITE_OUT, s->y, SUITE_NORMAL);
    if (s->has & (IN_PLACE | IN_PLACE_Y))
        suite_share(&c, dx, s->has & IN_PLACE ? "dy" : "y");
    finish(&backward_list, &c, &named, 5); /* product, sum, difference, two products */
}

bool softmax_added(int i, suite_case *out)
{
    return suite_list_at(&forward_list, i, out);
}

bool softmax_backward_added(int i, suite_case *out)
{
    return suite_list_at(&backward_list, i, out);
}
