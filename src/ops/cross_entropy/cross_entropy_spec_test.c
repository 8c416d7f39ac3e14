/* cross_entropy_spec_test.c - makes cases of the cross-entropy operations from their short descriptions; the text is
 * the name. SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cross_entropy_test.h"

static struct list {
    suite_case *c;
    int n, room;
} lists[N_SUITES];

static const char *type_text(saker_type type)
{
    return saker_type_name((saker_dtype){(uint8_t)type, (uint8_t)((int)type >> 8), 1});
}

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

__attribute__((format(printf, 2, 3))) static void name(suite_case *c, const char *format, ...)
{
    size_t at = strlen(c->name);
    va_list list;
    va_start(list, format);
    vsnprintf(c->name + at, sizeof c->name - at, format, list);
    va_end(list);
}

static suite_tensor *tensor(suite_case *c, const char *field, suite_role role, saker_type type, suite_fill fill)
{
    suite_tensor *t = &c->tensor[c->n_tensors++];
    *t = (suite_tensor){.field = field, .role = role, .type = type, .fill = fill};
    return t;
}

/* [shards?, lead..., cols?], rows further apart where the layout says so. */
static suite_tensor *rows(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                          int64_t shards, int64_t cols)
{
    suite_tensor *t = tensor(c, field, role, type, s->fill);
    if (shards)
        t->shape[t->ndim++] = shards;
    for (int d = 0; d < s->n_lead; d++)
        t->shape[t->ndim++] = s->lead[d];
    if (cols >= 0)
        t->shape[t->ndim++] = cols;
    int64_t next = 1, gap = 1 + 2 * (c->n_tensors % 4);
    if (s->layout == COMPACT || t->ndim < 2 || (s->layout == EXPANDED && role != SUITE_IN))
        return t;
    for (int d = t->ndim - 1; d >= 0; d--) {
        t->stride[d] = next;
        next = next * t->shape[d] + (d == t->ndim - 1 && s->layout == PADDED ? gap : 0);
    }
    if (s->layout == EXPANDED)
        t->stride[0] = 0;
    if (s->layout == PERMUTED) {
        next = cols >= 0 ? t->shape[t->ndim - 1] : 1;
        for (int d = 0; d < t->ndim - (cols >= 0); d++) {
            t->stride[d] = next;
            next *= t->shape[d];
        }
    }
    return t;
}

static void one(suite_case *c, const char *field, suite_role role)
{
    suite_tensor *t = tensor(c, field, role, SAKER_F32, SUITE_POSITIVE);
    t->ndim = 1;
    t->shape[0] = 1;
}

static void add_target(suite_case *c, const struct spec *s, int64_t vocab)
{
    suite_tensor *t = rows(c, s, "target", SUITE_IN, s->t ? s->t : SAKER_I64, 0, -1);
    t->fill = SUITE_RANGE;
    t->low = s->low || s->high ? s->low : 0;
    t->high = s->low || s->high ? s->high : vocab - 1;
}

static void add_weight(suite_case *c, const struct spec *s, int64_t vocab)
{
    if (!(s->has & W))
        return;
    suite_tensor *t = tensor(c, "weight", SUITE_IN, s->w ? s->w : s->x, SUITE_POSITIVE);
    t->ndim = 1;
    t->shape[0] = vocab;
    name(c, " w:%s", type_text(t->type));
}

static void add_stat(suite_case *c, const struct spec *s, const char *field, suite_role role, suite_fill fill)
{
    rows(c, s, field, role, SAKER_F32, 0, -1)->fill = fill;
    name(c, " %s", field);
}

static void add_loss(suite_case *c, const struct spec *s)
{
    if (s->has & LOSS && s->reduction == SAKER_REDUCE_NONE)
        add_stat(c, s, "loss", SUITE_OUT, SUITE_ZERO);
    else if (s->has & LOSS) {
        one(c, "loss", SUITE_OUT);
        name(c, " loss");
    }
}

static void add_grad(suite_case *c, const struct spec *s)
{
    if (s->has & GRAD && s->reduction == SAKER_REDUCE_NONE)
        add_stat(c, s, "grad", SUITE_IN, SUITE_NORMAL);
    else if (s->has & (GRAD | ONE_GRAD)) {
        one(c, "grad", SUITE_IN);
        name(c, " grad1");
    }
}

static void add_dlogits(suite_case *c, const struct spec *s)
{
    if (!(s->has & DL))
        return;
    suite_tensor *t = rows(c, s, "dlogits", SUITE_OUT, s->has & IN_PLACE || !s->y ? s->x : s->y, 0, s->n);
    if (s->has & IN_PLACE) {
        t->alias = "logits";
        memcpy(t->stride, c->tensor[0].stride, sizeof t->stride);
    }
    name(c, s->has & IN_PLACE ? " in place" : " dlogits:%s", type_text(t->type));
}

static void end_name(suite_case *c, const struct spec *s)
{
    static const char *const reductions[] = {"", " mean", " sum"};
    static const char *const layouts[] = {"", " padded", " permuted", " expanded"};
    name(c, "%s%s", reductions[s->reduction], layouts[s->layout]);
    if (s->fill)
        name(c, " fill%d", s->fill);
    if (s->smoothing != 0)
        name(c, " e=%g", (double)s->smoothing);
    if (s->z != 0)
        name(c, " z=%g", (double)s->z);
    if (s->cap != 0)
        name(c, " cap=%g", (double)s->cap);
    if (s->t)
        name(c, " t:%s", type_text(s->t));
    if (s->has & IGNORE)
        name(c, " i=%lld", (long long)s->ignore);
    if (s->low || s->high)
        name(c, " t=%lld..%lld", (long long)s->low, (long long)s->high);
    if (s->vocab)
        name(c, " %lld of %lld", (long long)s->start, (long long)s->vocab);
}

static double all_bytes(const suite_case *c)
{
    double total = 0;
    for (int i = 0; i < c->n_tensors; i++)
        total += (double)suite_elements(&c->tensor[i]) * suite_type_bytes(c->tensor[i].type);
    return total;
}

static void start(suite_case *c, const struct spec *s)
{
    c->use = s->use ? s->use : SUITE_CHECK;
    c->check = s->has & BAD ? SAKER_BAD_INDEX : SAKER_OK;
    name(c, "%s ", type_text(s->x));
    for (int d = 0; d < s->n_lead; d++)
        name(c, "%lldx", (long long)s->lead[d]);
}

static void add_merge(const struct spec *s)
{
    suite_case c = {0};
    saker_cross_entropy_merge_args a = {.struct_size = sizeof a,
                                        .label_smoothing = s->smoothing,
                                        .z_loss = s->z,
                                        .reduction = s->reduction,
                                        .has_ignore_index = !!(s->has & IGNORE),
                                        .ignore_index = s->ignore,
                                        .vocab = s->vocab};
    memcpy(c.args, &a, sizeof a);
    start(&c, s);
    name(&c, "%lld shards", (long long)s->shards);
    /* Sums of exponentials are at least 1: SUITE_POSITIVE has numbers that could be one of each kind. */
    suite_tensor *p = rows(&c, s, "partials", SUITE_IN, SAKER_F32, s->shards, 4);
    p->fill = s->fill ? s->fill : SUITE_POSITIVE;
    add_target(&c, s, s->vocab);
    add_weight(&c, s, s->vocab);
    add_loss(&c, s);
    if (s->has & LSE)
        add_stat(&c, s, "lse", SUITE_OUT, SUITE_ZERO);
    end_name(&c, s);
    c.bytes = all_bytes(&c);
    c.reads = 1;
    c.cpu_kernel = c.cuda_kernel = "merge";
    add(&lists[MERGE], &c);
}

void cross_entropy_add(int which, const struct spec *s)
{
    if (which == MERGE) {
        add_merge(s);
        return;
    }
    suite_case c = {0};
    int64_t vocab = s->vocab ? s->vocab : s->n;
    saker_cross_entropy_args f = {.struct_size = sizeof f,
                                  .label_smoothing = s->smoothing,
                                  .z_loss = s->z,
                                  .softcap = s->cap,
                                  .reduction = s->reduction,
                                  .has_ignore_index = !!(s->has & IGNORE),
                                  .ignore_index = s->ignore,
                                  .vocab_start = s->start,
                                  .vocab = s->vocab};
    saker_cross_entropy_backward_args b = {.struct_size = sizeof b,
                                           .label_smoothing = s->smoothing,
                                           .z_loss = s->z,
                                           .softcap = s->cap,
                                           .reduction = s->reduction,
                                           .has_ignore_index = f.has_ignore_index,
                                           .ignore_index = s->ignore,
                                           .vocab_start = s->start,
                                           .vocab = s->vocab};
    if (which == FORWARD)
        memcpy(c.args, &f, sizeof f);
    else
        memcpy(c.args, &b, sizeof b);
    start(&c, s);
    name(&c, "%lld", (long long)s->n);
    rows(&c, s, "logits", SUITE_IN, s->x, 0, s->n);
    add_target(&c, s, vocab);
    add_weight(&c, s, vocab);
    add_grad(&c, s);
    if (which == FORWARD) {
        add_loss(&c, s);
        if (s->has & LSE)
            add_stat(&c, s, "lse", SUITE_OUT, SUITE_ZERO);
        if (s->has & PARTIAL) {
            rows(&c, s, "partial", SUITE_OUT, SAKER_F32, 0, 4);
            name(&c, " partial");
        }
    } else {
        /* About what a row of normal numbers has; not that row's own, so that nothing cancels by chance. */
        rows(&c, s, "lse", SUITE_IN, SAKER_F32, 0, -1)->fill = s->fill == SUITE_OFFSET ? SUITE_OFFSET : SUITE_CONSTANT;
        if (s->has & DLSE)
            add_stat(&c, s, "dlse", SUITE_IN, SUITE_NORMAL);
    }
    add_dlogits(&c, s);
    end_name(&c, s);
    c.bytes = all_bytes(&c);
    c.flops = 16 * (double)s->n * (double)suite_elements(&c.tensor[1]); /* one exponential and what is around it */
    c.reads = 1;
    c.writes = !!(s->has & DL);
    bool gradient = s->has & DL && suite_elements(&c.tensor[0]) > 0;
    c.cpu_kernel = which == BACKWARD ? "rows" : gradient ? "gradient" : s->has & PARTIAL ? "shard" : "rows";
    add(&lists[which], &c);
}

bool cross_entropy_added(int which, int i, suite_case *out)
{
    if (i < 0 || i >= lists[which].n)
        return false;
    *out = lists[which].c[i];
    return true;
}
