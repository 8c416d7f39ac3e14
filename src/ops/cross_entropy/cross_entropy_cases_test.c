/* cross_entropy_cases_test.c - what is tried of cross_entropy, cross_entropy_backward and cross_entropy_merge.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy_test.h"

static void forward(struct spec s)
{
    cross_entropy_add(FORWARD, &s);
}

static void backward(struct spec s)
{
    cross_entropy_add(BACKWARD, &s);
}

/* Forward with and without gradient, and backward. */
static void all(struct spec s)
{
    struct spec t = s;
    int common = s.has & (W | IGNORE | BAD);
    t.has = common | LOSS | LSE;
    forward(t);
    t.has = common | LOSS | LSE | DL | (s.has & (GRAD | ONE_GRAD | IN_PLACE));
    forward(t);
    t.has = common | DL | (s.has & (GRAD | ONE_GRAD | IN_PLACE | DLSE));
    backward(t);
}

/* The first cases have every tensor: the tests of wrong arguments start from them. */
static void full(void)
{
    forward((struct spec){.x = SAKER_F32, .has = W | LOSS | LSE | DL | GRAD, ROWS(5), .n = 7});
    forward((struct spec){
        .x = SAKER_F32, .has = W | PARTIAL, ROWS(5), .n = 7, .start = 4, .vocab = 11, .smoothing = 0.25f});
    backward((struct spec){.x = SAKER_F32, .has = W | DL | GRAD | DLSE, ROWS(5), .n = 7});
}

static void widths(void)
{
    /* Around vectors, chunks and the ladders of the CUDA kernels. */
    static const int64_t n[] = {1,    2,    3,    7,    8,     9,     15,    16,    17,    31,    33,    64,   100,
                                127,  128,  129,  255,  256,   257,   500,   512,   1000,  1024,  1030,  2048, 2056,
                                4096, 4097, 5000, 8192, 10000, 16384, 16392, 32768, 32771, 50257, 65536, 65544};
    foreach (k, n)
        foreach (i, floats) {
            int64_t m = n[k] < 600 ? 9 : n[k] < 9000 ? 4 : 2;
            all((struct spec){.x = floats[i], ROWS(m), .n = n[k]});
            if (n[k] < 20000)
                all((struct spec){.x = floats[i], ROWS(m), .n = n[k], .smoothing = 0.1f, .cap = 3, .has = IN_PLACE});
        }
    static const int64_t wide[] = {131072, 131080, 262144, 262152, 300001};
    foreach (k, wide) {
        all((struct spec){.x = SAKER_BF16, ROWS(2), .n = wide[k], .has = IN_PLACE});
        all((struct spec){.x = SAKER_F32, ROWS(2), .n = wide[k], .smoothing = 0.1f});
        all((struct spec){.x = floats[k % 2], ROWS(1), .n = wide[k]});
    }
    all((struct spec){.x = SAKER_F16, ROWS(1), .n = 600000, .has = IN_PLACE});
    for (int k = 0; k < 3; k++) /* equal terms are rounded the same way in every step of a chain */
        all((struct spec){.x = SAKER_F32, ROWS(1), .n = 16380 + k, .smoothing = 1, .fill = SUITE_CONSTANT});
}

/* Options, alone and together; types of every tensor; reductions. */
static void options(void)
{
    static const struct {
        float e, z, cap;
        int has;
    } o[] = {{0, 0, 0, 0},     {0, 0, 0, W}, {0.1f, 0, 0, 0}, {0.1f, 0, 0, W},    {1, 0, 0, 0},
             {0, 1e-3f, 0, 0}, {0, 0, 2, 0}, {0, 0, 30, W},   {0.3f, 1e-2f, 5, W}};
    foreach (k, o)
        for (int reduction = 0; reduction < 3; reduction++)
            foreach (i, floats)
                for (int grad = 0; grad < 2; grad++)
                    all((struct spec){.x = floats[i],
                                      ROWS(i ? 6 : 21),
                                      .n = i ? 48 : 29,
                                      .smoothing = o[k].e,
                                      .z = o[k].z,
                                      .cap = o[k].cap,
                                      .reduction = reduction,
                                      .w = i ? 0 : floats[k % 3],
                                      .t = k % 2 ? SAKER_I32 : 0,
                                      .y = grad ? floats[(i + 1) % 3] : 0,
                                      .low = -1,
                                      .high = i ? 47 : 28,
                                      .ignore = -1,
                                      .has = o[k].has | IGNORE | (grad ? GRAD | DLSE : IN_PLACE)});
    foreach (i, floats) {
        struct spec s = {.x = floats[i], ROWS(300), .n = 40, .reduction = SAKER_REDUCE_MEAN};
        all(s);
        s.lead[0] = 5000, s.n = 16, s.z = 0.01f, s.has = W;
        all(s);
        s.reduction = SAKER_REDUCE_SUM, s.smoothing = 0.2f;
        all(s);
        s.reduction = 0, s.has = ONE_GRAD;
        all(s);
    }
    /* Any output alone. */
    forward((struct spec){.x = SAKER_BF16, ROWS(3), .n = 64, .has = LOSS});
    forward((struct spec){.x = SAKER_BF16, ROWS(3), .n = 64, .has = LSE});
    forward((struct spec){.x = SAKER_BF16, ROWS(3), .n = 64, .has = DL});
    forward((struct spec){.x = SAKER_F32, ROWS(3), .n = 65, .has = DL | IGNORE, .ignore = 0, .high = 1});
}

/* Targets that are ignored, all of them, none, out of range; ignore_index 0. */
static void targets(void)
{
    for (int reduction = 0; reduction < 3; reduction++)
        for (int wide = 0; wide < 2; wide++) {
            int64_t n = wide ? 2056 : 12;
            struct spec s = {.x = SAKER_F32, ROWS(8), .n = n, .reduction = reduction};
            s.low = s.high = -100; /* all of them, by default */
            all(s);
            s.has = DLSE;
            all(s);
            s.low = -3, s.high = 3, s.has = BAD; /* some out of range below */
            all(s);
            s.low = n - 2, s.high = n + 2, s.t = SAKER_I32; /* and above */
            all(s);
            s.low = 0, s.high = 1, s.has = IGNORE, s.ignore = 0;
            all(s);
            s.x = SAKER_BF16, s.fill = SUITE_ONE_NAN; /* an ignored row may hold anything */
            all(s);
        }
}

static void contents(void)
{
    static const suite_fill fills[] = {SUITE_UNIFORM, SUITE_ZERO,   SUITE_CONSTANT,   SUITE_LARGE,   SUITE_HUGE,
                                       SUITE_TINY,    SUITE_MAX,    SUITE_OFFSET,     SUITE_ONE_NAN, SUITE_ONE_INF,
                                       SUITE_EDGES,   SUITE_MASKED, SUITE_ALTERNATING};
    foreach (k, fills)
        foreach (i, floats)
            for (int wide = 0; wide < 2; wide++) {
                struct spec s = {.x = floats[i], ROWS(4), .n = wide ? 10000 : 72, .fill = fills[k], .z = 1e-4f};
                bool far = fills[k] == SUITE_LARGE || fills[k] == SUITE_HUGE || fills[k] == SUITE_MAX;
                if (far)
                    s.z = 0; /* lse squared is beyond f32 */
                struct spec t = s;
                t.has = LOSS | LSE;
                forward(t);
                t.has |= DL | IN_PLACE;
                forward(t);
                if (!far && fills[k] != SUITE_EDGES) { /* lse is a given number there */
                    t.has = DL;
                    backward(t);
                }
                s.cap = 50;
                s.has = DL | LOSS | LSE;
                forward(s);
            }
    foreach (i, floats) /* a NaN and nothing beside it */
        all((struct spec){.x = floats[i], ROWS(3), .n = 1, .fill = SUITE_ONE_NAN});
}

static void layouts(void)
{
    foreach (i, floats) /* in vectors all the same */
        all((struct spec){.x = floats[i], ROWS(3, 4), .n = 64, .layout = SUITE_APART, .has = GRAD | DLSE});
    static const suite_layout layout[] = {SUITE_PADDED, SUITE_PERMUTED, SUITE_EXPANDED};
    foreach (k, layout)
        foreach (i, floats) {
            all((struct spec){.x = floats[i], ROWS(3, 4), .n = 33, .layout = layout[k], .has = GRAD | DLSE});
            all((struct spec){.x = floats[i],
                              ROWS(2, 3, 2),
                              .n = 256,
                              .layout = layout[k],
                              .reduction = SAKER_REDUCE_MEAN,
                              .has = W,
                              .smoothing = 0.1f});
        }
    all((struct spec){.x = SAKER_F32, .n_lead = 0, .n = 19});
    all((struct spec){.x = SAKER_BF16, ROWS(2, 2), .n = 64, .has = IN_PLACE});
}

static void empty(void)
{
    for (int reduction = 0; reduction < 3; reduction++) {
        all((struct spec){.x = SAKER_F32, ROWS(0), .n = 8, .reduction = reduction});
        /* No classes: every target that is not ignored is out of range. */
        forward((struct spec){
            .x = SAKER_F32, ROWS(3), .n = 0, .low = -100, .high = -100, .reduction = reduction, .has = LOSS | LSE});
    }
}

static void shards(void)
{
    foreach (i, floats)
        for (int k = 0; k < 3; k++) {
            struct spec s = {.x = floats[i], ROWS(7), .n = 40, .start = 40 * k, .vocab = 120};
            s.has = PARTIAL;
            forward(s);
            s.smoothing = 0.1f, s.cap = 4, s.has |= W;
            forward(s);
            s.has = DL | DLSE, s.z = 0.01f;
            backward(s);
            s.n = 33, s.has |= W | IN_PLACE, s.reduction = SAKER_REDUCE_MEAN;
            backward(s);
        }
    static const suite_fill fills[] = {SUITE_MASKED, SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_LARGE, SUITE_OFFSET};
    foreach (k, fills)
        forward((struct spec){.x = SAKER_F32,
                              ROWS(4),
                              .n = k % 2 ? 5000 : 64,
                              .start = 64,
                              .vocab = 6000,
                              .has = PARTIAL,
                              .fill = fills[k]});
    forward((struct spec){.x = SAKER_BF16, ROWS(40), .n = 8, .vocab = 9, .low = -2, .high = 10, .has = PARTIAL | BAD});
}

static void merges(void)
{
    struct spec s = {.x = SAKER_F32, ROWS(5), .shards = 3, .vocab = 21, .has = W | LOSS | LSE};
    cross_entropy_add(MERGE, &s);
    for (int reduction = 0; reduction < 3; reduction++)
        for (int64_t n = 1; n <= 8; n *= 2)
            for (int k = 0; k < 2; k++) {
                s = (struct spec){.x = SAKER_F32,
                                  ROWS(3, 100),
                                  .shards = n,
                                  .vocab = 50,
                                  .reduction = reduction,
                                  .has = LOSS | LSE | IGNORE | (k ? W : 0),
                                  .w = SAKER_BF16,
                                  .ignore = 3,
                                  .layout = k ? SUITE_PADDED : SUITE_COMPACT,
                                  .smoothing = k ? 0.1f : 0,
                                  .z = k ? 0.01f : 0};
                cross_entropy_add(MERGE, &s);
                s.has |= BAD, s.high = 60;
                cross_entropy_add(MERGE, &s);
            }
    static const suite_fill fills[] = {SUITE_MASKED, SUITE_ONE_NAN};
    foreach (k, fills) {
        s = (struct spec){.x = SAKER_F32, ROWS(6), .shards = 2, .vocab = 9, .has = LOSS | LSE, .fill = fills[k]};
        cross_entropy_add(MERGE, &s);
    }
    s = (struct spec){.x = SAKER_F32, ROWS(0), .shards = 2, .vocab = 9, .has = LOSS};
    s.reduction = SAKER_REDUCE_SUM;
    cross_entropy_add(MERGE, &s);
}

/* ---------------------------------------------------------------- random combinations */

/* What all three have; `vocab` is what targets are drawn from. */
static struct spec random_spec(int number, uint64_t *r, int64_t vocab)
{
    static const float smoothings[] = {0, 0, 0.1f, 1}, zs[] = {0, 0, 1e-3f};
    struct spec s = {.random = 1 + number, .x = suite_draw_float(r)};
    s.w = suite_draw_near(r, s.x);
    s.t = suite_draw_once_in(r, 2) ? SAKER_I32 : SAKER_I64;
    s.reduction = suite_draw(r, 3);
    s.smoothing = smoothings[suite_draw(r, 4)];
    s.z = zs[suite_draw(r, 3)];
    s.layout = suite_draw_once_in(r, 2) ? (suite_layout)suite_draw(r, SUITE_EXPANDED + 1) : SUITE_COMPACT;
    s.has = suite_draw_once_in(r, 2) ? W : 0;
    s.has |= suite_draw_once_in(r, 4) ? FLAT : 0;
    if (suite_draw_once_in(r, 3)) {
        s.has |= IGNORE;
        s.ignore = suite_draw(r, 3) - 1;
    }
    switch (suite_draw(r, 4)) {
    case 0: /* some that are ignored */
        s.low = s.has & IGNORE ? s.ignore : 0;
        s.high = s.low + 1;
        s.has |= SOME_BAD;
        break;
    case 1:
        s.low = -2;
        s.high = vocab + 1;
        s.has |= SOME_BAD;
        break;
    default:
        s.low = s.high = 0;
    }
    return s;
}

static void random_rows(int which, int number)
{
    static const suite_fill fills[] = {SUITE_UNIFORM, SUITE_ZERO,    SUITE_CONSTANT, SUITE_TINY,
                                       SUITE_OFFSET,  SUITE_ONE_NAN, SUITE_MASKED,   SUITE_ALTERNATING,
                                       SUITE_ONE_INF, SUITE_EDGES,   SUITE_LARGE};
    static const float caps[] = {0, 0, 3, 30};
    uint64_t r = suite_draws(number);
    int64_t n = suite_draw_width(&r), start = 0, vocab = 0;
    bool shard = suite_draw_once_in(&r, 4);
    if (shard) {
        start = suite_draw(&r, 100);
        vocab = start + n + suite_draw(&r, 100);
    }
    struct spec s = random_spec(number, &r, shard ? vocab : n);
    s.n = n;
    s.start = start;
    s.vocab = vocab;
    s.n_lead = suite_draw_lead(&r, 3, n, s.lead);
    s.cap = caps[suite_draw(&r, 4)];
    s.y = suite_draw_near(&r, s.x);
    if (suite_draw_once_in(&r, 3)) /* backward's lse is a given number: no logit may be far above it */
        s.fill = fills[suite_draw(&r, which == FORWARD ? 11 : 8)];
    if (s.fill == SUITE_LARGE)
        s.z = 0; /* lse squared is beyond f32 */
    if (which == BACKWARD) {
        s.has |= DL | (suite_draw_once_in(&r, 2) ? DLSE : 0);
    } else if (shard) {
        s.has |= PARTIAL;
    } else {
        int outputs = 1 + suite_draw(&r, 7);
        s.has |= (outputs & 1 ? LOSS : 0) | (outputs & 2 ? LSE : 0) | (outputs & 4 ? DL : 0);
    }
    if (s.has & DL && suite_draw_once_in(&r, 2))
        s.has |= suite_draw_once_in(&r, 2) ? GRAD : ONE_GRAD;
    if (s.has & DL && s.layout != SUITE_EXPANDED && suite_draw_once_in(&r, 3))
        s.has |= IN_PLACE;
    cross_entropy_add(which, &s);
}

static void random_merge(int number)
{
    uint64_t r = suite_draws(number);
    int64_t vocab = 1 + suite_draw(&r, 300);
    struct spec s = random_spec(number, &r, vocab);
    s.x = SAKER_F32;
    s.vocab = vocab;
    s.shards = 1 + suite_draw(&r, 9);
    s.n_lead = suite_draw_lead(&r, 3, 4, s.lead);
    int outputs = 1 + suite_draw(&r, 3);
    s.has |= (outputs & 1 ? LOSS : 0) | (outputs & 2 ? LSE : 0);
    cross_entropy_add(MERGE, &s);
}

static void random_cases(void)
{
    for (int i = 0; i < SUITE_RANDOM; i++) {
        random_rows(FORWARD, i);
        random_rows(BACKWARD, i);
        random_merge(i);
    }
}

/* ---------------------------------------------------------------- bench */

static void bench(void)
{
    static const saker_type types[] = {SAKER_F32, SAKER_BF16};
    foreach (i, types) {
        int64_t elements = ((int64_t)256 << 20) / (types[i] == SAKER_F32 ? 4 : 2);
        static const int64_t n[] = {1024, 4096, 32000, 50257, 131072};
        foreach (k, n) {
            int demo = n[k] == 32000 && i == 0 ? SUITE_DEMO : 0;
            struct spec s = {.x = types[i], ROWS(elements / n[k]), .n = n[k], .use = SUITE_BENCH | demo};
            s.has = LOSS | LSE;
            forward(s);
            s.has |= DL;
            s.use = SUITE_BENCH;
            forward(s);
            s.has = DL;
            backward(s);
        }
        for (int64_t w = 256; w <= 262144; w *= 2) {
            struct spec s = {.x = types[i], ROWS(((int64_t)1 << 28) / w), .n = w, .use = SUITE_BENCH_CUDA};
            if (types[i] == SAKER_F32)
                s.lead[0] /= 2;
            s.has = LOSS | LSE;
            forward(s);
            s.has |= DL;
            forward(s);
            s.has = DL;
            backward(s);
        }
        struct spec s = {.x = types[i], ROWS(8192), .n = 50257, .use = SUITE_BENCH_CUDA};
        s.has = LOSS | LSE;
        forward(s);
        s.has |= DL | IN_PLACE;
        forward(s);
        s.has = DL | IN_PLACE;
        backward(s);
        s = (struct spec){.x = types[i], ROWS(16), .n = types[i] == SAKER_F32 ? 4096 : 8192};
        s.use = SUITE_CACHE;
        s.has = LOSS | LSE;
        forward(s);
        s.has |= DL;
        forward(s);
    }
    struct spec m = {.x = SAKER_F32, ROWS(1 << 20), .shards = 8, .vocab = 131072, .has = LOSS | LSE};
    m.use = SUITE_BENCH | SUITE_BENCH_CUDA;
    cross_entropy_add(MERGE, &m);
}

bool cross_entropy_case(int which, int i, suite_case *out)
{
    static bool built;
    if (!built) {
        built = true;
        full();
        merges();
        empty();
        targets();
        options();
        contents();
        layouts();
        shards();
        widths();
        random_cases();
        bench();
    }
    return cross_entropy_added(which, i, out);
}
