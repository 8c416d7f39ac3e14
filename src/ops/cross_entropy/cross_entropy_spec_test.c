/* cross_entropy_spec_test.c - makes cases of the cross-entropy operations from their short descriptions; the text is
 * the name. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cross_entropy_test.h"

static suite_list lists[N_SUITES];

/* [shards?, lead..., cols?], rows further apart where the layout says so. */
static suite_tensor *rows(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                          int64_t shards, int64_t cols)
{
    suite_tensor *t = suite_add(c, field, role, type, s->fill);
    if (shards)
        t->shape[t->ndim++] = shards;
    for (int d = 0; d < s->n_lead; d++)
        t->shape[t->ndim++] = s->lead[d];
    if (s->has & FLAT && cols < 0) {
        t->shape[0] = suite_elements(t);
        t->ndim = 1;
    }
    if (cols >= 0)
        t->shape[t->ndim++] = cols;
    suite_lay_out(t, s->layout, s->layout == SUITE_PERMUTED ? 0 : suite_gap(c), cols >= 0);
    return t;
}

static void one(suite_case *c, const char *field, suite_role role)
{
    suite_add_rows(c, field, role, SAKER_F32, 0, NULL, 1, 0)->fill = SUITE_POSITIVE;
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
    suite_tensor *t = suite_add_rows(c, "weight", SUITE_IN, s->w ? s->w : s->x, 0, NULL, vocab, 0);
    t->fill = SUITE_POSITIVE;
    suite_say(c, " w:%s", suite_type_text(t->type));
}

static void add_stat(suite_case *c, const struct spec *s, const char *field, suite_role role, suite_fill fill)
{
    rows(c, s, field, role, SAKER_F32, 0, -1)->fill = fill;
    suite_say(c, " %s", field);
}

static void add_loss(suite_case *c, const struct spec *s)
{
    if (s->has & LOSS && s->reduction == SAKER_REDUCE_NONE)
        add_stat(c, s, "loss", SUITE_OUT, SUITE_ZERO);
    else if (s->has & LOSS) {
        one(c, "loss", SUITE_OUT);
        suite_say(c, " loss");
    }
}

static void add_grad(suite_case *c, const struct spec *s)
{
    if (s->has & GRAD && s->reduction == SAKER_REDUCE_NONE)
        add_stat(c, s, "grad", SUITE_IN, SUITE_NORMAL);
    else if (s->has & (GRAD | ONE_GRAD)) {
        one(c, "grad", SUITE_IN);
        suite_say(c, " grad1");
    }
}

static void add_dlogits(suite_case *c, const struct spec *s)
{
    if (!(s->has & DL))
        return;
    suite_tensor *t = rows(c, s, "dlogits", SUITE_OUT, s->has & IN_PLACE || !s->y ? s->x : s->y, 0, s->n);
    if (s->has & IN_PLACE)
        suite_share(c, t, "logits");
    suite_say(c, s->has & IN_PLACE ? " in place" : " dlogits:%s", suite_type_text(t->type));
}

static void end_name(suite_case *c, const struct spec *s)
{
    static const char *const reductions[] = {"", " mean", " sum"};
    suite_say(c, "%s%s%s", reductions[s->reduction], suite_layout_text(s->layout), suite_fill_text(s->fill));
    if (s->has & FLAT)
        suite_say(c, " flat");
    if (s->smoothing != 0)
        suite_say(c, " e=%g", (double)s->smoothing);
    if (s->z != 0)
        suite_say(c, " z=%g", (double)s->z);
    if (s->cap != 0)
        suite_say(c, " cap=%g", (double)s->cap);
    if (s->t)
        suite_say(c, " t:%s", suite_type_text(s->t));
    if (s->has & IGNORE)
        suite_say(c, " i=%lld", (long long)s->ignore);
    if (s->low || s->high)
        suite_say(c, " t=%lld..%lld", (long long)s->low, (long long)s->high);
    if (s->vocab)
        suite_say(c, " %lld of %lld", (long long)s->start, (long long)s->vocab);
}

static void start(suite_case *c, const struct spec *s)
{
    c->use = s->use ? s->use : SUITE_CHECK;
    c->check = s->has & BAD ? SAKER_BAD_INDEX : s->has & SOME_BAD ? SUITE_ANY_CHECK : SAKER_OK;
    suite_say_random(c, s->random);
    suite_say(c, "%s ", suite_type_text(s->x));
    for (int d = 0; d < s->n_lead; d++)
        suite_say(c, "%lldx", (long long)s->lead[d]);
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
    suite_say(&c, "%lld shards", (long long)s->shards);
    /* Sums of exponentials are at least 1: SUITE_POSITIVE has numbers that could be one of each kind. */
    suite_tensor *p = rows(&c, s, "partials", SUITE_IN, SAKER_F32, s->shards, 4);
    p->fill = s->fill ? s->fill : SUITE_POSITIVE;
    add_target(&c, s, s->vocab);
    add_weight(&c, s, s->vocab);
    add_loss(&c, s);
    if (s->has & LSE)
        add_stat(&c, s, "lse", SUITE_OUT, SUITE_ZERO);
    end_name(&c, s);
    c.bytes = suite_all_bytes(&c);
    c.reads = 1;
    c.cpu_kernel = c.cuda_kernel = "merge";
    suite_list_add(&lists[MERGE], &c);
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
    suite_say(&c, "%lld", (long long)s->n);
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
            suite_say(&c, " partial");
        }
    } else {
        /* About what a row of normal numbers has; not that row's own, so that nothing cancels by chance. */
        rows(&c, s, "lse", SUITE_IN, SAKER_F32, 0, -1)->fill = s->fill == SUITE_OFFSET ? SUITE_OFFSET : SUITE_CONSTANT;
        if (s->has & DLSE)
            add_stat(&c, s, "dlse", SUITE_IN, SUITE_NORMAL);
    }
    add_dlogits(&c, s);
    end_name(&c, s);
    c.bytes = suite_all_bytes(&c);
    c.flops = 16 * (double)s->n * (double)suite_elements(&c.tensor[1]); /* one exponential and what is around it */
    c.reads = 1;
    c.writes = !!(s->has & DL);
    bool gradient = s->has & DL && suite_elements(&c.tensor[0]) > 0;
    c.cpu_kernel = which == BACKWARD ? "rows" : gradient ? "gradient" : s->has & PARTIAL ? "shard" : "rows";
    suite_list_add(&lists[which], &c);
}

bool cross_entropy_added(int which, int i, suite_case *out)
{
    return suite_list_at(&lists[which], i, out);
}
