/* moe_route_cases_test.c - cases of moe_route and moe_route_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "moe_route_test.h"
#include "suite_random.h"

static suite_list list, backward_list;

/* What a case has. LISTS: all that is sorted; FEW: counts and token alone; ALONE: no weights. */
enum {
    BIAS = 1,
    LISTS = 2,
    SIGMOID = 4,
    RENORM = 8,
    STRIDED = 16,
    COLUMNS = 32,
    FEW = 64,
    ALONE = 128,
    TOP2 = 256,
    SCALED = 512,
    BAD = 1024
};

typedef struct spec {
    saker_type x, w;
    int64_t m, n, k;
    int has;
    int64_t groups, top;
    suite_fill fill, bias_fill;
    int64_t outer; /* 0: none; else logits are [outer, m, n] */
    int use, random;
} spec;

static suite_tensor *tensor(suite_case *c, const spec *s, const char *field, suite_role role, saker_type type,
                            int64_t n)
{
    int64_t lead[] = {s->outer, s->m};
    int skip = !s->outer;
    return suite_add_rows(c, field, role, type, 2 - skip, lead + skip, n, s->has & STRIDED ? suite_gap(c) : 0);
}

/* Columns of [m, k] far apart, rows close: a transposed tensor. */
static void transpose(suite_tensor *t)
{
    int last = t->ndim - 1;
    t->stride[last - 1] = 1;
    t->stride[last] = t->shape[last - 1] + 1;
    if (last > 1)
        t->stride[0] = t->stride[last] * t->shape[last];
}

static void list_of(suite_case *c, const char *field, int64_t n)
{
    suite_add_rows(c, field, SUITE_OUT, SAKER_I32, 0, NULL, n, 0);
}

static void name_of(suite_case *c, const spec *s)
{
    static const char *const words[] = {" bias",  " lists", " sigmoid", " renormalised", " padded", " transposed",
                                        " a few", " ids",   " top2",    " scaled",       " bad"};
    suite_say_random(c, s->random);
    suite_say(c, "%s %s ", suite_type_text(s->x), suite_type_text(s->w));
    if (s->outer)
        suite_say(c, "%lldx", (long long)s->outer);
    suite_say_shape(c, 1, &s->m, s->n);
    suite_say(c, " k=%lld", (long long)s->k);
    if (s->groups)
        suite_say(c, " groups=%lld/%lld", (long long)s->top, (long long)s->groups);
    suite_say_bits(c, s->has, 11, words);
    suite_say(c, "%s", suite_fill_text(s->fill));
    if (s->has & BIAS && s->bias_fill)
        suite_say(c, " bias%s", suite_fill_text(s->bias_fill));
    suite_say(c, "%s", s->use ? " bench" : "");
}

static void add(spec s)
{
    s.w = s.w ? s.w : SAKER_F32;
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1};
    saker_moe_route_args a = {.struct_size = sizeof a,
                              .n_groups = s.groups,
                              .top_groups = s.top,
                              .scale = s.has & SCALED ? 2.5f : 0,
                              .score = s.has & SIGMOID ? SAKER_MOE_SIGMOID : SAKER_MOE_SOFTMAX,
                              .group_score = s.has & TOP2 ? SAKER_MOE_GROUP_TOP2 : SAKER_MOE_GROUP_MAX,
                              .renormalise = (s.has & RENORM) != 0};
    memcpy(c.args, &a, sizeof a);
    suite_tensor *t = tensor(&c, &s, "logits", SUITE_IN, s.x, s.n);
    t->fill = s.fill;
    t->free_shape = SUITE_ANY_WIDTH;
    if (s.has & BIAS)
        suite_add_rows(&c, "bias", SUITE_IN, SAKER_F32, 0, NULL, s.n, 0)->fill = s.bias_fill;
    tensor(&c, &s, "ids", SUITE_OUT, SAKER_I32, s.k);
    if (!(s.has & ALONE))
        tensor(&c, &s, "weights", SUITE_OUT, s.w, s.k);
    for (int i = 1; s.has & COLUMNS && i < c.n_tensors; i++)
        if (strcmp(c.tensor[i].field, "bias"))
            transpose(&c.tensor[i]);
    int64_t all = (s.outer ? s.outer : 1) * s.m * s.k;
    if (s.has & (LISTS | FEW))
        list_of(&c, "counts", s.n);
    if (s.has & LISTS) {
        list_of(&c, "offsets", s.n + 1);
        list_of(&c, "order", all);
        list_of(&c, "place", all);
    }
    if (s.has & (LISTS | FEW))
        list_of(&c, "token", all);
    c.bytes = suite_all_bytes(&c);
    name_of(&c, &s);
    suite_list_add(&list, &c);
}

static void add_backward(spec s)
{
    s.w = s.w ? s.w : SAKER_F32;
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1};
    saker_moe_route_backward_args a = {.struct_size = sizeof a,
                                       .scale = s.has & SCALED ? 2.5f : 0,
                                       .score = s.has & SIGMOID ? SAKER_MOE_SIGMOID : SAKER_MOE_SOFTMAX,
                                       .renormalise = (s.has & RENORM) != 0};
    memcpy(c.args, &a, sizeof a);
    tensor(&c, &s, "dweights", SUITE_IN, s.w, s.k);
    /* Distinct in a row: a run of numbers that begins elsewhere in each row, and with BAD leaves the range. */
    suite_tensor *t = tensor(&c, &s, "ids", SUITE_IN, SAKER_I32, s.k);
    t->fill = SUITE_COUNT;
    t->low = s.has & BAD ? -2 : 0;
    int64_t all = suite_elements(t);
    if (s.n > 0 && all > 0 && (t->low < 0 || all > s.n))
        c.check = SAKER_BAD_INDEX;
    for (int i = 0; s.has & COLUMNS && i < c.n_tensors; i++)
        transpose(&c.tensor[i]);
    t = tensor(&c, &s, "logits", SUITE_IN, s.x, s.n);
    t->fill = s.fill;
    t->free_shape = SUITE_FIXED;
    tensor(&c, &s, "dlogits", SUITE_OUT, s.random % 3 == 1 ? SAKER_BF16 : s.x, s.n);
    c.bytes = suite_all_bytes(&c);
    name_of(&c, &s);
    suite_list_add(&backward_list, &c);
}

static void both(spec s)
{
    add(s);
    s.groups = s.top = 0;
    s.has &= SIGMOID | RENORM | STRIDED | COLUMNS | SCALED;
    add_backward(s);
    s.has |= BAD;
    if (s.k > 2)
        add_backward(s);
}

static void random_case(int number)
{
    static const int64_t experts[] = {1, 2, 5, 8, 16, 32, 33, 64, 100, 128, 160, 256, 320, 512, 1024};
    static const int64_t divisors[] = {1, 2, 4, 8, 16};
    static const suite_fill fills[] = {SUITE_TIES,    SUITE_ZERO,   SUITE_CONSTANT, SUITE_ONE_NAN,
                                       SUITE_ONE_INF, SUITE_MASKED, SUITE_TINY,     SUITE_LARGE};
    static const int flags[] = {BIAS, LISTS, SIGMOID, RENORM, STRIDED, COLUMNS, FEW, ALONE, SCALED};
    uint64_t r = suite_draws(number);
    spec s = {.random = 1 + number};
    s.n = experts[suite_draw(&r, 15)];
    s.m = suite_draw(&r, s.n > 200 ? 20 : 70);
    s.outer = suite_draw_once_in(&r, 4) ? 1 + suite_draw(&r, 3) : 0;
    s.k = 1 + suite_draw(&r, s.n < 9 || suite_draw_once_in(&r, 8) ? (int)s.n : 8);
    s.x = suite_draw_float(&r);
    s.w = suite_draw_near(&r, SAKER_F32);
    foreach (i, flags)
        s.has |= suite_draw_once_in(&r, 3) ? flags[i] : 0;
    int64_t groups = divisors[suite_draw(&r, 5)];
    int64_t top = 1 + suite_draw(&r, (int)groups);
    bool top2 = suite_draw_once_in(&r, 2), grouped = suite_draw_once_in(&r, 2);
    if (grouped && s.n % groups == 0 && s.k <= s.n / groups * top) {
        s.groups = groups;
        s.top = top;
        s.has |= top2 ? TOP2 : 0;
    }
    s.fill = suite_draw_once_in(&r, 2) ? fills[suite_draw(&r, 8)] : SUITE_NORMAL;
    s.bias_fill = suite_draw_once_in(&r, 2) ? SUITE_TIES : SUITE_NORMAL;
    both(s);
}

static void build(void)
{
    static const int64_t n[] = {1, 2, 7, 8, 32, 33, 60, 64, 128, 129, 256, 300, 512, 1024};
    static const int64_t k[] = {1, 2, 4, 6, 8, 9};
    static const suite_fill fills[] = {SUITE_TIES,        SUITE_ZERO,   SUITE_CONSTANT, SUITE_ONE_NAN, SUITE_ONE_INF,
                                       SUITE_ALTERNATING, SUITE_MASKED, SUITE_TINY,     SUITE_LARGE,   SUITE_MINUS_NAN};
    both((spec){SAKER_F32, .m = 5, .n = 8, .k = 2, .has = BIAS | LISTS, .groups = 4, .top = 2});
    foreach (i, n)
        foreach (j, k)
            if (k[j] <= n[i]) {
                int has = (i & 1 ? SIGMOID : 0) | (j & 1 ? RENORM : 0) | (j & 2 ? BIAS : 0) | (i & 2 ? SCALED : 0);
                both((spec){floats[(i + j) % 3], .m = 37, .n = n[i], .k = k[j], .has = has | LISTS});
            }
    foreach (t, floats) {
        foreach (f, fills)
            for (int has = 0; has < 4; has++) {
                int options = (has & 1 ? SIGMOID : 0) | (has & 2 ? RENORM : 0);
                both((spec){floats[t], .m = 7, .n = 40, .k = 5, .has = options | LISTS, .fill = fills[f]});
                both((spec){floats[t], .m = 6, .n = 48, .k = 5, .has = options | BIAS | FEW, .fill = fills[f]});
                both((spec){floats[t], .m = 5, .n = 48, .k = 4, .has = options | LISTS, .groups = 8, .top = 3,
                            .fill = fills[f]});
                both((spec){floats[t], .m = 5, .n = 48, .k = 4, .has = options | LISTS | TOP2, .groups = 8, .top = 3,
                            .fill = fills[f]});
                both((spec){floats[t], .m = 4, .n = 32, .k = 4, .has = options | LISTS | TOP2 | BIAS, .groups = 4,
                            .top = 2, .fill = fills[f], .bias_fill = SUITE_TIES});
            }
        both((spec){floats[t], .w = floats[(t + 1) % 3], .m = 9, .n = 64, .k = 8, .has = LISTS | STRIDED});
        both((spec){floats[t], .w = floats[(t + 2) % 3], .m = 9, .n = 64, .k = 8, .has = RENORM | COLUMNS | LISTS});
        both(
            (spec){floats[t], .w = floats[t], .m = 9, .n = 24, .k = 3, .has = SIGMOID | STRIDED | COLUMNS, .outer = 3});
        both((spec){floats[t], .m = 6, .n = 16, .k = 3, .has = ALONE | LISTS, .outer = 2});
        /* All of the experts; groups of one; groups that are all chosen; one group. */
        both((spec){floats[t], .m = 11, .n = 64, .k = 64, .has = LISTS | RENORM});
        both((spec){floats[t], .m = 3, .n = 1024, .k = 1024, .has = LISTS | BIAS});
        both((spec){floats[t], .m = 8, .n = 24, .k = 5, .has = LISTS | TOP2 | SIGMOID, .groups = 24, .top = 9});
        both((spec){floats[t], .m = 8, .n = 24, .k = 7, .has = LISTS | TOP2 | BIAS, .groups = 3, .top = 3});
        both((spec){floats[t], .m = 8, .n = 24, .k = 24, .has = LISTS, .groups = 1, .top = 1});
        /* One expert gets all, and of many experts most get nothing. */
        both((spec){floats[t], .m = 300, .n = 1, .k = 1, .has = LISTS});
        both((spec){floats[t], .m = 50, .n = 256, .k = 1, .has = LISTS, .fill = SUITE_CONSTANT});
        both((spec){floats[t], .m = 4, .n = 512, .k = 2, .has = LISTS});
        /* More equal ones at the bound than are ranked, and fewer; the most that a bound is sought for, and one more.
         */
        for (int64_t experts = 100; experts <= 1000; experts += 150)
            both(
                (spec){floats[t], .m = 5, .n = experts, .k = 15 + experts / 150 % 3, .has = LISTS, .fill = SUITE_TIES});
        /* Nothing to choose, for nobody, from nothing. */
        both((spec){floats[t], .m = 0, .n = 16, .k = 2, .has = LISTS});
        both((spec){floats[t], .m = 5, .n = 16, .k = 0, .has = LISTS});
        both((spec){floats[t], .m = 5, .n = 0, .k = 0, .has = LISTS});
        both((spec){floats[t], .m = 0, .n = 16, .k = 2, .has = 0});
        /* Many tiles of tokens, and shares of warps that end within one. */
        both((spec){floats[t], .m = 1100, .n = 16, .k = 2, .has = LISTS});
        both((spec){floats[t], .m = 3001, .n = 24, .k = 3, .has = LISTS | SIGMOID | RENORM | BIAS});
        add((spec){floats[t], .m = 20000, .n = 8, .k = 2, .has = LISTS | RENORM, .use = SUITE_CHECK | SUITE_ALL});
        /* DeepSeek-V3, gpt-oss, Qwen3, Mixtral. */
        both((spec){floats[t], .m = 40, .n = 256, .k = 8, .has = LISTS | SIGMOID | BIAS | RENORM | SCALED | TOP2,
                    .groups = 8, .top = 4});
        both((spec){floats[t], .w = floats[t], .m = 40, .n = 128, .k = 4, .has = LISTS | RENORM});
        both((spec){floats[t], .w = floats[t], .m = 40, .n = 128, .k = 8, .has = LISTS | RENORM});
        both((spec){floats[t], .w = floats[t], .m = 40, .n = 8, .k = 2, .has = LISTS | RENORM});
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
    for (int t = 0; t < 3; t += 2)
        for (int cuda = 0; cuda < 2; cuda++) {
            int use = cuda ? SUITE_BENCH_CUDA : SUITE_BENCH;
            int64_t m = cuda ? 65536 : 16384;
            both((spec){floats[t], .m = m, .n = 128, .k = 8, .has = LISTS | RENORM, .use = use});
            both((spec){floats[t], .m = m, .n = 256, .k = 8, .has = LISTS | SIGMOID | BIAS | RENORM | SCALED | TOP2,
                        .groups = 8, .top = 4, .use = use});
            both((spec){floats[t], .m = m, .n = 8, .k = 2, .has = LISTS | RENORM, .use = use});
        }
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

static bool at_backward(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&backward_list, i, out);
}

const suite skr_suite_moe_route = {.op = "moe_route", .at = at, .oracle = moe_route_oracle, .row = moe_route_row};
const suite skr_suite_moe_route_backward = {
    .op = "moe_route_backward", .at = at_backward, .oracle = moe_route_backward_oracle, .row = moe_route_row};
