/* softmax_spec_test.c - makes cases of softmax and softmax_backward from their short descriptions; the text is the
 * name. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softmax_test.h"

static const char *const layout_names[] = {"", " padded", " permuted", " gapped", " expanded"};
static const char *const fill_names[] = {
    "",     " uniform",  " zero",   " constant", " large", " huge",  " tiny",  " max",  " alternating", " nan",
    " inf", " positive", " offset", " bits",     " edges", " range", " count", " ties", " masked"};

/* ---------------------------------------------------------------- the lists */

struct list {
    suite_case *c;
    int n, room;
};
static struct list forward_list, backward_list;

/* A case that is there already gains the other's uses: its name says everything. */
static void add(struct list *l, const suite_case *c)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->c[i].name, c->name)) {
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

/* ---------------------------------------------------------------- tensors */

static void lay_out(suite_case *c, suite_tensor *t, int layout)
{
    int64_t gap = 1 + 2 * (c->n_tensors % 4), next = layout == GAPPED ? 2 : 1;
    int last = t->ndim - 1;
    if (layout == COMPACT || (layout == EXPANDED && t->role != SUITE_IN))
        return;
    for (int d = last; layout != PERMUTED && d >= 0; d--) {
        t->stride[d] = next;
        next *= t->shape[d];
        if (layout == GAPPED || (layout == PADDED && d == last))
            next += gap;
    }
    for (int d = 0; layout == PERMUTED && d <= last; d++) {
        t->stride[d] = next;
        next = next * t->shape[d] + (d == 0 ? gap : 0);
    }
    if (layout == EXPANDED)
        t->stride[0] = last > 0 ? 0 : 1;
}

static suite_tensor *add_tensor(suite_case *c, const struct spec *s, const char *field, suite_role role,
                                saker_type type, suite_fill fill)
{
    suite_tensor *t = &c->tensor[c->n_tensors++];
    *t = (suite_tensor){.field = field, .role = role, .type = type ? type : s->x, .fill = fill, .ndim = s->ndim};
    memcpy(t->shape, s->shape, sizeof s->shape);
    lay_out(c, t, s->layout);
    return t;
}

static void add_mask(suite_case *c, const struct spec *s)
{
    suite_tensor *t = &c->tensor[c->n_tensors++];
    int repeats = s->mask - 1, skip = repeats & FEWER ? 1 : 0;
    *t = (suite_tensor){.field = "mask", .type = s->m ? s->m : s->x, .fill = s->mask_fill, .ndim = s->ndim - skip};
    for (int d = 0; d < t->ndim; d++)
        t->shape[d] = repeats >> (d + skip) & 1 ? 1 : s->shape[d + skip];
    lay_out(c, t, s->layout == EXPANDED ? GAPPED : s->layout);
}

static void share(suite_case *c, suite_tensor *t, const char *field)
{
    for (int i = 0; i < c->n_tensors; i++)
        if (!strcmp(c->tensor[i].field, field)) {
            t->alias = field;
            t->type = c->tensor[i].type;
            memcpy(t->stride, c->tensor[i].stride, sizeof t->stride);
        }
}

/* ---------------------------------------------------------------- names */

static void text(suite_case *c, const char *word, const char *value)
{
    size_t at = strlen(c->name);
    snprintf(c->name + at, sizeof c->name - at, "%s%s", word, value ? value : "");
}

static const char *type_text(saker_type type)
{
    saker_dtype d = {(uint8_t)type, (uint8_t)((int)type >> 8), 1};
    return saker_type_name(d);
}

static void type_word(suite_case *c, const struct spec *s, const char *word, saker_type type)
{
    if (type && type != s->x) {
        text(c, word, ":");
        text(c, type_text(type), NULL);
    }
}

static void name(suite_case *c, const struct spec *s)
{
    char number[32];
    text(c, type_text(s->x), " ");
    for (int d = 0; d < s->ndim; d++) {
        snprintf(number, sizeof number, d ? "x%lld" : "%lld", (long long)s->shape[d]);
        text(c, number, NULL);
    }
    if (s->dim) {
        snprintf(number, sizeof number, " dim-%d", s->dim + 1);
        text(c, number, NULL);
    }
    text(c, s->has & LOG ? " log" : "", s->has & CAUSAL ? " causal" : "");
    text(c, s->has & IN_PLACE ? " in place" : s->has & IN_PLACE_Y ? " dx=y" : "", layout_names[s->layout]);
    text(c, fill_names[s->fill], NULL);
    if (s->mask) {
        snprintf(number, sizeof number, " mask/%d", s->mask - 1);
        text(c, number, fill_names[s->mask_fill]);
    }
    type_word(c, s, " y", s->y);
    if (s->mask || s->m)
        type_word(c, s, " m", s->m);
    if (s->scale != 0) {
        snprintf(number, sizeof number, " scale=%g", (double)s->scale);
        text(c, number, NULL);
    }
}

static void finish(struct list *l, suite_case *c, const struct spec *s, double flops)
{
    name(c, s);
    int side_by_side = 1;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        int64_t stride[SUITE_MAX_DIMS];
        suite_strides(t, stride);
        c->bytes += (double)suite_elements(t) * suite_type_bytes(t->type);
        int d = t->ndim - 1 - s->dim;
        if (strcmp(t->field, "mask") && t->shape[d] > 1 && stride[d] != 1)
            side_by_side = 0;
    }
    c->flops = flops * (double)suite_elements(&c->tensor[0]);
    c->cpu_kernel = side_by_side ? "rows" : "columns";
    add(l, c);
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
        share(&c, y, "x");
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
        share(&c, dx, s->has & IN_PLACE ? "dy" : "y");
    finish(&backward_list, &c, &named, 5); /* product, sum, difference, two products */
}

static bool case_of(const struct list *l, int i, suite_case *out)
{
    if (i < 0 || i >= l->n)
        return false;
    *out = l->c[i];
    return true;
}

bool softmax_added(int i, suite_case *out)
{
    return case_of(&forward_list, i, out);
}

bool softmax_backward_added(int i, suite_case *out)
{
    return case_of(&backward_list, i, out);
}
