/* softmax_cases_test.c - the cases of softmax and softmax_backward: what is tried, and what is measured.
 * SPDX-License-Identifier: Apache-2.0 */
#include "softmax_test.h"

#define SHAPE(...) .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .shape = {__VA_ARGS__}

static void both(struct spec s)
{
    softmax_add(&s);
    softmax_backward_add(&s);
}

static void widths(void)
{
    foreach (t, floats) {
        for (int64_t n = 1; n <= 70; n += n < 20 ? 1 : 7)
            both((struct spec){SHAPE(3, n), .x = floats[t], .has = n & 1 ? LOG : 0});
        static const int64_t n[] = {127, 128, 129, 255, 256, 257, 511, 512, 1000, 1024, 4095, 4096, 4097, 8200, 16384};
        foreach (i, n) {
            both((struct spec){SHAPE(3, n[i]), .x = floats[t]});
            both((struct spec){SHAPE(2, n[i]), .x = floats[t], .has = LOG});
        }
        both((struct spec){SHAPE(100), .x = floats[t]});
    }
}

/* Rows that a block, a small cluster or a large one shares, and one that none holds. */
static void wide_rows(void)
{
    static const int64_t n[] = {2056, 5128, 12296, 20488, 32768, 40008, 65536, 100008, 131072, 200008, 262144, 300000};
    foreach (i, n)
        foreach (t, floats) {
            both((struct spec){SHAPE(3, n[i]), .x = floats[t]});
            both((struct spec){SHAPE(2, n[i]), .x = floats[t], .has = LOG, .scale = 0.5f});
        }
    both((struct spec){SHAPE(2, 1000003), .x = SAKER_F32});
    /* More rows than clusters fit a GPU at once. */
    both((struct spec){SHAPE(40, 140008), .x = SAKER_BF16});
    both((struct spec){SHAPE(20, 140008), .x = SAKER_F32});
    for (int log = 0; log < 2; log++) {
        struct spec s = {SHAPE(3, 40008), .x = SAKER_BF16, .has = log, .mask = 1, .mask_fill = SUITE_MASKED};
        softmax_add(&s);
        s.x = SAKER_F32;
        s.layout = SUITE_PADDED;
        softmax_add(&s);
    }
}

static void heights(void)
{
    static const int64_t m[] = {0, 1, 2, 3, 5, 17, 65, 257, 1000, 5000};
    static const int64_t n[] = {33, 128};
    foreach (i, m)
        foreach (k, n)
            both((struct spec){SHAPE(m[i], n[k]), .x = k ? SAKER_BF16 : SAKER_F32});
    both((struct spec){SHAPE(3, 0, 2), .x = SAKER_F32});
    both((struct spec){SHAPE(3, 0, 2), .x = SAKER_F32, .dim = 1});
    both((struct spec){SHAPE(3, 0), .x = SAKER_F16});
    both((struct spec){SHAPE(0), .x = SAKER_BF16, .has = LOG});
    both((struct spec){SHAPE(4096, 512), .x = SAKER_BF16});
    both((struct spec){SHAPE(2048, 640), .x = SAKER_F32, .has = LOG});
    both((struct spec){SHAPE(100000, 8), .x = SAKER_F16});
    both((struct spec){SHAPE(200000, 1), .x = SAKER_F32});
}

static void types(void)
{
    foreach (x, floats)
        foreach (y, floats)
            foreach (m, floats)
                for (int log = 0; log < 2; log++) {
                    both((struct spec){SHAPE(5, 257), .x = floats[x], .y = floats[y], .m = floats[m], .mask = 1,
                                       .has = log});
                    both((struct spec){SHAPE(3, 9, 66), .x = floats[x], .y = floats[y], .m = floats[m], .mask = 1,
                                       .dim = 1, .has = log});
                    both((struct spec){SHAPE(5, 256), .x = floats[x], .y = floats[y], .m = floats[m], .has = log});
                }
}

static void dims(void)
{
    static const struct spec shapes[] = {{SHAPE(3, 7, 5)},    {SHAPE(2, 3, 9, 4)},   {SHAPE(2, 33, 130)},
                                         {SHAPE(1, 300, 64)}, {SHAPE(4, 1000, 70)},  {SHAPE(2, 2, 3, 2, 5)},
                                         {SHAPE(70, 3)},      {SHAPE(5000, 3, 2)},   {SHAPE(6, 20000, 2)},
                                         {SHAPE(3, 1, 40)},   {SHAPE(2, 5, 1, 1, 8)}};
    foreach (i, shapes)
        for (int dim = 0; dim < shapes[i].ndim; dim++)
            foreach (t, floats) {
                struct spec s = shapes[i];
                s.x = floats[t];
                s.dim = dim;
                both(s);
                s.has = LOG;
                s.scale = 0.75f;
                both(s);
            }
}

static void layouts(void)
{
    static const struct spec shapes[] = {{SHAPE(7, 131)}, {SHAPE(3, 5, 70)}, {SHAPE(2, 3, 2, 33)}, {SHAPE(3, 16, 1)}};
    for (int layout = SUITE_PADDED; layout <= SUITE_EXPANDED; layout++)
        foreach (i, shapes)
            for (int dim = 0; dim < shapes[i].ndim; dim++)
                foreach (t, floats) {
                    struct spec s = shapes[i];
                    s.layout = layout;
                    s.dim = dim;
                    s.x = floats[t];
                    s.has = dim & 1 ? LOG : 0;
                    both(s);
                    s.mask = 1 + (dim & 1);
                    s.m = floats[(t + 1) % 3];
                    softmax_add(&s);
                    s.has = layout == SUITE_EXPANDED ? 0 : IN_PLACE;
                    both(s);
                }
    /* Columns side by side on one side only. */
    foreach (t, floats) {
        struct spec s = {SHAPE(5, 40), .x = floats[t], .has = OUT_GAPPED};
        both(s);
        s.has |= LOG;
        both(s);
    }
    for (int log = 0; log < 2; log++) /* in vectors all the same */
        foreach (t, floats)
            both((struct spec){SHAPE(3, 4, 72), .x = floats[t], .has = log ? LOG : 0, .layout = SUITE_APART});
}

static void masks(void)
{
    for (int repeats = 0; repeats < 8; repeats++)
        for (int fewer = 0; fewer <= FEWER; fewer += FEWER)
            for (int dim = 0; dim < 3; dim++)
                for (int log = 0; log < 2; log++) {
                    struct spec s = {SHAPE(3, 4, 37), .x = floats[repeats % 3],    .m = floats[(repeats + dim) % 3],
                                     .dim = dim,      .mask = 1 + repeats + fewer, .mask_fill = SUITE_MASKED,
                                     .has = log};
                    softmax_add(&s);
                    s.shape[2] = 264;
                    s.scale = 0.125f;
                    softmax_add(&s);
                    s.layout = SUITE_GAPPED;
                    softmax_add(&s);
                }
    foreach (t, floats) {
        struct spec s = {SHAPE(2, 3, 65, 192), .x = floats[t], .mask = 1 + 2, .scale = 0.125f};
        softmax_add(&s);
        s.has = CAUSAL;
        softmax_add(&s);
        s.mask_fill = SUITE_ONE_NAN;
        softmax_add(&s);
        s.mask_fill = SUITE_ONE_INF;
        softmax_add(&s);
    }
}

static void causal(void)
{
    static const struct spec shapes[] = {{SHAPE(33, 33)},       {SHAPE(2, 9, 64)},   {SHAPE(2, 64, 9)},
                                         {SHAPE(2, 3, 40, 72)}, {SHAPE(3, 1, 16)},   {SHAPE(3, 16, 1)},
                                         {SHAPE(2, 130, 264)},  {SHAPE(4, 3, 20000)}};
    foreach (i, shapes)
        for (int dim = 0; dim < shapes[i].ndim; dim++)
            foreach (t, floats)
                for (int log = 0; log < 2; log++) {
                    struct spec s = shapes[i];
                    s.x = floats[t];
                    s.dim = dim;
                    s.has = CAUSAL | log;
                    both(s);
                    s.fill = SUITE_ONE_NAN;
                    s.scale = 0.3f;
                    both(s);
                    s.layout = SUITE_PADDED;
                    s.fill = SUITE_NORMAL;
                    s.y = floats[(t + 1) % 3];
                    both(s);
                }
    /* Columns of queries side by side: the first of them are not seen, nor is their mask. */
    foreach (t, floats) {
        struct spec s = {SHAPE(40, 24), .x = floats[t], .dim = 1, .has = CAUSAL, .layout = SUITE_PERMUTED, .mask = 1};
        both(s);
    }
    /* A NaN where nothing looks: the row of -infinity only, and the corner that the first row does not see. */
    struct spec s = {SHAPE(64, 9), .x = SAKER_F32, .has = CAUSAL, .fill = SUITE_ONE_NAN};
    both(s);
    s.has |= LOG;
    both(s);
}

static void in_place(void)
{
    foreach (t, floats)
        for (int dim = 0; dim < 2; dim++) {
            struct spec s = {SHAPE(6, 4, 90), .x = floats[t], .dim = dim, .has = IN_PLACE};
            both(s);
            s.has = IN_PLACE | LOG;
            both(s);
            s.has = IN_PLACE_Y;
            softmax_backward_add(&s);
            s.has = IN_PLACE_Y | CAUSAL | LOG;
            softmax_backward_add(&s);
            s.has = IN_PLACE | CAUSAL;
            s.mask = 1;
            both(s);
        }
    both((struct spec){SHAPE(3, 70000), .x = SAKER_F32, .has = IN_PLACE});
    both((struct spec){SHAPE(2, 300000), .x = SAKER_BF16, .has = IN_PLACE});
}

static void fills(void)
{
    static const suite_fill kinds[] = {SUITE_UNIFORM, SUITE_ZERO,   SUITE_CONSTANT, SUITE_LARGE,      SUITE_HUGE,
                                       SUITE_TINY,    SUITE_MAX,    SUITE_ONE_NAN,  SUITE_ONE_INF,    SUITE_OFFSET,
                                       SUITE_EDGES,   SUITE_MASKED, SUITE_TIES,     SUITE_ALTERNATING};
    static const int64_t n[] = {17, 203, 256, 4096, 40008};
    foreach (t, floats)
        foreach (f, kinds)
            foreach (i, n)
                for (int log = 0; log < 2; log++) {
                    struct spec s = {SHAPE(3, n[i]), .x = floats[t], .fill = kinds[f], .has = log};
                    softmax_add(&s);
                    /* A gradient of logarithms beyond exp's range is not what forward gives. */
                    if (kinds[f] != SUITE_MAX && !(log && (kinds[f] == SUITE_LARGE || kinds[f] == SUITE_HUGE ||
                                                           kinds[f] == SUITE_OFFSET || kinds[f] == SUITE_EDGES)))
                        softmax_backward_add(&s);
                    s.y = floats[(t + 1) % 3];
                    s.scale = 0.5f;
                    if (kinds[f] != SUITE_HUGE)
                        softmax_add(&s);
                    s = (struct spec){SHAPE(5, n[i], 6), .x = floats[t], .fill = kinds[f], .has = log, .dim = 1};
                    if (n[i] <= 256)
                        softmax_add(&s);
                }
    static const float scales[] = {0.08838834764f, -1, 3, 1e-3f, -0.25f, 50};
    foreach (t, floats)
        foreach (k, scales)
            for (int log = 0; log < 2; log++) {
                both((struct spec){SHAPE(4, 150), .x = floats[t], .scale = scales[k], .has = log});
                both((struct spec){SHAPE(4, 2048), .x = floats[t], .scale = scales[k], .has = log});
                both((struct spec){SHAPE(4, 70000), .x = floats[t], .scale = scales[k], .has = log});
                struct spec s = {SHAPE(4, 256), .x = floats[t], .scale = scales[k], .has = log, .fill = SUITE_MASKED};
                softmax_add(&s);
                s.mask = 1;
                softmax_add(&s);
            }
}

/* Products whose rounding alone is beyond exp's range; and single ones, which are 1 whatever they are. */
static void far(void)
{
    static const suite_fill kinds[] = {SUITE_HUGE, SUITE_MAX};
    static const float scales[] = {0.3f, -0.7f};
    static const int64_t n[] = {1, 2, 17, 256, 4096};
    foreach (t, floats)
        foreach (f, kinds)
            foreach (k, scales)
                foreach (i, n)
                    for (int log = 0; log < 2; log++) {
                        struct spec s = {SHAPE(5, n[i]), .x = floats[t], .fill = kinds[f], .scale = scales[k],
                                         .has = log};
                        softmax_add(&s);
                        s.shape[2] = 3;
                        s.ndim = 3;
                        s.dim = 1;
                        if (n[i] <= 256)
                            softmax_add(&s);
                    }
}

/* Sums of one number, many times, in each column: its roundings do not even out. */
static void equal(void)
{
    static const int64_t n[] = {64, 300, 1526, 3138};
    foreach (i, n)
        foreach (t, floats)
            for (int log = 0; log < 2; log++) {
                struct spec s = {SHAPE(n[i], 9), .x = floats[t], .y = SAKER_F32,
                                 .dim = 1,       .has = log,     .layout = SUITE_EXPANDED};
                softmax_backward_add(&s);
                s.fill = SUITE_ALTERNATING;
                s.layout = SUITE_COMPACT;
                softmax_add(&s);
            }
}

/* ---------------------------------------------------------------- random combinations */

/* A shape of up to five dimensions; the one that softmax goes along is the wide one. */
static struct spec random_spec(int number, uint64_t *r)
{
    static const float scales[] = {0, 0, 0.125f, -1, 3, -0.25f};
    struct spec s = {.random = 1 + number};
    int64_t lead[SUITE_MAX_DIMS - 1], n = suite_draw_width(r);
    int n_lead = suite_draw_lead(r, SUITE_MAX_DIMS - 1, n, lead);
    s.ndim = n_lead + 1;
    s.dim = suite_draw_once_in(r, 2) ? suite_draw(r, s.ndim) : 0;
    for (int d = 0, k = 0; d < s.ndim; d++)
        s.shape[d] = d == s.ndim - 1 - s.dim ? n : lead[k++];
    s.x = suite_draw_float(r);
    s.y = suite_draw_near(r, s.x);
    s.m = suite_draw_near(r, s.x);
    s.scale = scales[suite_draw(r, 6)];
    s.layout = suite_draw_once_in(r, 2) ? (suite_layout)suite_draw(r, SUITE_EXPANDED + 1) : SUITE_COMPACT;
    s.has = suite_draw_once_in(r, 2) ? LOG : 0;
    if (s.ndim > 1 && suite_draw_once_in(r, 3))
        s.has |= CAUSAL;
    return s;
}

static void random_forward(int number)
{
    static const suite_fill fills[] = {SUITE_UNIFORM, SUITE_ZERO,    SUITE_CONSTANT, SUITE_TINY,
                                       SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_OFFSET,   SUITE_EDGES,
                                       SUITE_MASKED,  SUITE_TIES,    SUITE_LARGE,    SUITE_HUGE};
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    if (s.layout != SUITE_EXPANDED && suite_draw_once_in(&r, 4))
        s.has |= IN_PLACE;
    if (suite_draw_once_in(&r, 2)) {
        s.mask = 1 + suite_draw(&r, 1 << s.ndim);
        s.mask += s.ndim > 1 && suite_draw_once_in(&r, 4) ? FEWER : 0;
        s.mask_fill = suite_draw_once_in(&r, 2) ? SUITE_MASKED : SUITE_NORMAL;
    }
    if (suite_draw_once_in(&r, 3)) /* the sum of a mask and a product that is large is off by more than exp can take */
        s.fill = fills[suite_draw(&r, s.mask ? 10 : 12)];
    softmax_add(&s);
}

static void random_backward(int number)
{
    static const suite_fill fills[] = {SUITE_UNIFORM, SUITE_ZERO,   SUITE_CONSTANT, SUITE_TINY,
                                       SUITE_ONE_NAN, SUITE_MASKED, SUITE_TIES,     SUITE_ALTERNATING};
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    if (s.layout != SUITE_EXPANDED && suite_draw_once_in(&r, 3))
        s.has |= suite_draw_once_in(&r, 2) ? IN_PLACE : IN_PLACE_Y;
    if (suite_draw_once_in(&r, 3))
        s.fill = fills[suite_draw(&r, 8)];
    softmax_backward_add(&s);
}

/* ---------------------------------------------------------------- bench and demo */

static void bench_pair(int64_t m, int64_t n, saker_type type, int use)
{
    both((struct spec){SHAPE(m, n), .x = type, .use = use, .fill = SUITE_NORMAL});
}

static void benches(void)
{
    /* CPU, x of 256 MiB: beyond any cache. */
    static const int64_t wide[] = {1024, 4096, 16384, 65536};
    foreach (t, floats) {
        int64_t elements = (int64_t)1 << (floats[t] == SAKER_F32 ? 26 : 27);
        foreach (i, wide) {
            int demo = wide[i] == 4096 && floats[t] != SAKER_F16 ? SUITE_DEMO : 0;
            bench_pair(elements / wide[i], wide[i], floats[t], SUITE_BENCH | demo);
        }
        struct spec s = {SHAPE(elements / 4096, 4096), .x = floats[t], .use = SUITE_BENCH, .has = LOG};
        both(s);
        both((struct spec){SHAPE(elements / (1024 * 256), 1024, 256), .x = floats[t], .use = SUITE_BENCH, .dim = 1});
        s = (struct spec){SHAPE(elements / (1024 * 1024), 1024, 1024), .x = floats[t], .use = SUITE_BENCH,
                          .has = CAUSAL, .scale = 0.125f};
        both(s);
    }
    /* CPU, 256 KiB over all streams. */
    static const int64_t narrow[] = {1024, 4096};
    foreach (t, floats)
        foreach (i, narrow) {
            int64_t row = narrow[i] * suite_type_bytes(floats[t]);
            struct spec s = {SHAPE(262144 / (2 * row), narrow[i]), .x = floats[t], .use = SUITE_CACHE};
            softmax_add(&s);
            s.shape[0] = 262144 / (3 * row);
            softmax_backward_add(&s);
        }
    suite_gpu_shapes(bench_pair);
    /* Scores of an attention layer, masks, and a dimension in the middle. */
    static const saker_type two[] = {SAKER_F32, SAKER_BF16};
    foreach (t, two) {
        struct spec s = {SHAPE(4, 8, 2048, 2048), .x = two[t], .use = SUITE_BENCH_CUDA, .has = CAUSAL, .scale = 0.125f};
        both(s);
        s.has = 0;
        s.mask = 1 + 3;
        softmax_add(&s);
        both((struct spec){SHAPE(128, 1024, 1024), .x = two[t], .use = SUITE_BENCH_CUDA, .dim = 1});
        both((struct spec){SHAPE(32768, 4096), .x = two[t], .use = SUITE_BENCH_CUDA, .has = LOG});
    }
}

static void build(void)
{
    static bool built;
    if (built)
        return;
    built = true;
    widths();
    wide_rows();
    heights();
    types();
    dims();
    layouts();
    masks();
    causal();
    in_place();
    fills();
    far();
    equal();
    for (int i = 0; i < SUITE_RANDOM; i++) {
        random_forward(i);
        random_backward(i);
    }
    benches();
}

bool softmax_case(int i, suite_case *out)
{
    build();
    return softmax_added(i, out);
}

bool softmax_backward_case(int i, suite_case *out)
{
    build();
    return softmax_backward_added(i, out);
}
