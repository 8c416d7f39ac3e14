/* linear_cross_entropy_cases_test.c - what is tried. Products and losses have cases of their own: these are about how
 * they are put together.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "../../../tests/suite_random.h"
#include "linear_cross_entropy_test.h"

/* What a case has beside x, weight and target. */
enum {
    BIAS = 1,
    CW = 2,
    LOSS = 4,
    LSE = 8,
    DX = 16,
    DW = 32,
    DB = 64,
    GRAD = 128,     /* one for each row, or one number where the loss is reduced */
    ONE_GRAD = 256, /* one number although the loss is not reduced */
    IGNORE = 512,   /* has_ignore_index, with ignore as it */
    BAD = 1024,     /* targets outside of the vocabulary */
    SOME_BAD = 2048,
    ACC = 4096,
    TF32 = 8192,
    TURNED = 16384, /* weight and dweight lie with V along memory */
    FLAT = 32768,   /* target and what has one value a row are [M] although x has more leading dimensions */
    RESULTS = LOSS | LSE,
    GRADIENTS = DX | DW | DB,
    ALL = RESULTS | GRADIENTS | BIAS
};

struct spec {
    int has, use, reduction, n_lead, random;
    suite_layout layout;
    int64_t lead[3], v, h, chunk;
    saker_type x, g, w, t; /* x and weight; gradients (0: x's); bias and class_weight (0: x's); target (0: i64) */
    suite_fill fill;
    float smoothing, z, cap;
    int64_t ignore, low, high; /* low, high: targets; both 0: all classes */
    const char *cuda, *portable;
};

static suite_list list;

/* ---------------------------------------------------------------- from a description to a case */

static suite_tensor *rows(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                          int64_t cols)
{
    suite_tensor *t = suite_add(c, field, role, type, SUITE_NORMAL);
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

static void matrix(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type)
{
    suite_tensor *t = suite_add_rows(c, field, role, type, 1, &s->v, s->h, 0);
    if (s->has & TURNED && s->v && s->h) {
        t->stride[0] = 1;
        t->stride[1] = s->v + suite_gap(c);
    } else if (s->layout != SUITE_EXPANDED) {
        suite_lay_out(t, s->layout == SUITE_COMPACT ? SUITE_COMPACT : SUITE_PADDED, suite_gap(c), true);
    }
}

static void vector(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type, bool dense)
{
    suite_tensor *t = suite_add_rows(c, field, role, type, 0, NULL, s->v, 0);
    if (!dense && s->layout != SUITE_COMPACT)
        t->stride[0] = 2;
}

static void value(suite_case *c, const struct spec *s, const char *field, suite_role role, bool one)
{
    suite_tensor *t =
        one ? suite_add_rows(c, field, role, SAKER_F32, 0, NULL, 1, 0) : rows(c, s, field, role, SAKER_F32, -1);
    t->fill = one ? SUITE_POSITIVE : SUITE_NORMAL;
}

static void add_tensors(suite_case *c, const struct spec *s)
{
    const saker_type w = s->w ? s->w : s->x, g = s->g ? s->g : s->x;
    const suite_role sums = s->has & ACC ? SUITE_INOUT : SUITE_OUT;
    rows(c, s, "x", SUITE_IN, s->x, s->h)->fill = s->fill;
    matrix(c, s, "weight", SUITE_IN, s->x);
    if (s->use & (SUITE_BENCH | SUITE_BENCH_CUDA)) /* logits of a model: with larger ones most gradients are subnormal,
                                                      which f32 products take long for */
        c->tensor[c->n_tensors - 1].factor = 1 / sqrt((double)s->h);
    suite_tensor *t = rows(c, s, "target", SUITE_IN, s->t ? s->t : SAKER_I64, -1);
    t->fill = SUITE_RANGE;
    t->low = s->low;
    t->high = s->low || s->high ? s->high : s->v - 1;
    if (s->has & BIAS)
        vector(c, s, "bias", SUITE_IN, w, false);
    if (s->has & CW) {
        vector(c, s, "class_weight", SUITE_IN, w, true);
        c->tensor[c->n_tensors - 1].fill = SUITE_POSITIVE;
    }
    if (s->has & (GRAD | ONE_GRAD))
        value(c, s, "grad", SUITE_IN, s->has & ONE_GRAD || s->reduction);
    if (s->has & LOSS)
        value(c, s, "loss", SUITE_OUT, s->reduction);
    if (s->has & LSE)
        value(c, s, "lse", SUITE_OUT, false);
    if (s->has & DX)
        rows(c, s, "dx", SUITE_OUT, g, s->h);
    if (s->has & DW)
        matrix(c, s, "dweight", sums, g);
    if (s->has & DB)
        vector(c, s, "dbias", sums, g, false);
}

static void name_case(suite_case *c, const struct spec *s)
{
    static const char *const word[] = {" b",  " cw", " loss", " lse", " dx", " dw",   " db",     " grad",
                                       " g1", "",    " bad",  " out", " +=", " tf32", " turned", " flat"};
    static const char *const reductions[] = {"", " mean", " sum"};
    suite_say_random(c, s->random);
    suite_say(c, "%s ", suite_type_text(s->x));
    suite_say_shape(c, s->n_lead, s->lead, s->h);
    suite_say(c, " of %lld", (long long)s->v);
    suite_say_bits(c, s->has, 16, word);
    suite_say(c, "%s%s%s", reductions[s->reduction], suite_layout_text(s->layout), suite_fill_text(s->fill));
    if (s->chunk)
        suite_say(c, " by %lld", (long long)s->chunk);
    if (s->g)
        suite_say(c, " g:%s", suite_type_text(s->g));
    if (s->w)
        suite_say(c, " w:%s", suite_type_text(s->w));
    if (s->t)
        suite_say(c, " t:%s", suite_type_text(s->t));
    if (s->smoothing != 0)
        suite_say(c, " e=%g", (double)s->smoothing);
    if (s->z != 0)
        suite_say(c, " z=%g", (double)s->z);
    if (s->cap != 0)
        suite_say(c, " cap=%g", (double)s->cap);
    if (s->has & IGNORE)
        suite_say(c, " i=%lld", (long long)s->ignore);
    if (s->low || s->high)
        suite_say(c, " t=%lld..%lld", (long long)s->low, (long long)s->high);
}

static void add(struct spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .cuda_kernel = s.cuda, .portable_kernel = s.portable};
    saker_linear_cross_entropy_args a = {.struct_size = sizeof a,
                                         .label_smoothing = s.smoothing,
                                         .z_loss = s.z,
                                         .softcap = s.cap,
                                         .reduction = s.reduction,
                                         .has_ignore_index = !!(s.has & IGNORE),
                                         .ignore_index = s.ignore,
                                         .accumulate = !!(s.has & ACC),
                                         .allow_tf32 = !!(s.has & TF32),
                                         .chunk_rows = s.chunk};
    memcpy(c.args, &a, sizeof a);
    c.check = s.has & BAD ? SAKER_BAD_INDEX : s.has & SOME_BAD ? SUITE_ANY_CHECK : SAKER_OK;
    name_case(&c, &s);
    add_tensors(&c, &s);
    double m = (double)suite_row_count(&c.tensor[0]), size = m * (double)s.v * (double)s.h;
    c.flops = 2 * size * (1 + !!(s.has & DX) + !!(s.has & DW)); /* logits, and a product for each gradient */
    c.bytes = suite_all_bytes(&c);
    c.reads = 1;
    c.writes = !!(s.has & GRADIENTS);
    suite_list_add(&list, &c);
}

/* ---------------------------------------------------------------- cases */

/* The first case has every tensor: the tests of wrong arguments start from it. */
static void full(void)
{
    add((struct spec){.x = SAKER_F32, .has = ALL | CW | GRAD, ROWS(5), .h = 6, .v = 7});
}

/* What is wanted, alone and together; with one piece and with several. */
static void outputs(void)
{
    static const int has[] = {LOSS, LSE,      DX, DW, DB, RESULTS, LOSS | DX, LOSS | DW | ACC, LOSS | DB | BIAS,
                              ALL,  ALL | ACC};
    foreach (i, floats)
        foreach (k, has)
            for (int64_t chunk = 0; chunk < 12; chunk += 5)
                add((struct spec){.x = floats[i], .has = has[k], ROWS(19), .h = 24, .v = 40, .chunk = chunk});
    foreach (i, floats) /* gradients and parameters of other types */
        foreach (j, floats)
            for (int64_t chunk = 0; chunk < 12; chunk += 6)
                add((struct spec){.x = floats[i],
                                  .g = floats[j],
                                  .w = floats[(j + i + 1) % 3],
                                  .has = ALL | CW | (chunk ? ACC : 0),
                                  ROWS(17),
                                  .h = 16,
                                  .v = 33,
                                  .chunk = chunk,
                                  .smoothing = 0.1f});
}

/* Around the tiles of products, the vectors of rows, the columns of a task. */
static void sizes(void)
{
    static const int64_t size[][3] = {{1, 1, 1},     {1, 64, 50},   {2, 3, 5},      {7, 1, 9},       {33, 65, 17},
                                      {64, 64, 64},  {65, 32, 255}, {66, 8, 256},   {67, 40, 257},   {16, 128, 1000},
                                      {130, 16, 31}, {300, 24, 96}, {257, 72, 513}, {129, 130, 131}, {24, 16, 4100}};
    foreach (k, size)
        foreach (i, floats) {
            struct spec s = {.x = floats[i], .has = ALL, ROWS(size[k][0]), .h = size[k][1], .v = size[k][2]};
            add(s);
            s.reduction = SAKER_REDUCE_MEAN, s.chunk = size[k][0] / 3 + 1, s.has |= CW;
            add(s);
            s.chunk = 8, s.has |= TURNED | ACC, s.reduction = SAKER_REDUCE_SUM;
            add(s);
        }
    add((struct spec){.x = SAKER_F32, .has = ALL | TF32, ROWS(200), .h = 64, .v = 136, .chunk = 128});
    /* A GPU's tiles, in several pieces; columns of few and of many blocks. */
    foreach (i, floats)
        for (int64_t v = 512; v <= 2048; v *= 4)
            add((struct spec){.x = floats[i],
                              .has = ALL,
                              ROWS(640),
                              .h = 128,
                              .v = v,
                              .chunk = 256,
                              .reduction = SAKER_REDUCE_MEAN,
                              .use = SUITE_CHECK | SUITE_GPU_SIZED,
                              .cuda = i ? "tma" : "fma",
                              .portable = i ? "mma" : "fma"});
}

static void options(void)
{
    static const struct {
        float e, z, cap;
        int has;
    } o[] = {{0, 0, 0, CW},   {0.1f, 0, 0, 0}, {0.1f, 0, 0, CW}, {1, 0, 0, 0},
             {0, 0.1f, 0, 0}, {0, 0, 2, 0},    {0, 0, 30, CW},   {0.3f, 0.05f, 5, CW}};
    foreach (k, o)
        for (int reduction = 0; reduction < 3; reduction++)
            foreach (i, floats)
                for (int grad = 0; grad < 2; grad++)
                    add((struct spec){.x = floats[i],
                                      .has = ALL | o[k].has | IGNORE | (grad ? GRAD : 0),
                                      ROWS(21),
                                      .h = 20,
                                      .v = grad ? 29 : 48,
                                      .chunk = grad ? 6 : 0,
                                      .smoothing = o[k].e,
                                      .z = o[k].z,
                                      .cap = o[k].cap,
                                      .reduction = reduction,
                                      .t = k % 2 ? SAKER_I32 : 0,
                                      .low = -1,
                                      .high = 28,
                                      .ignore = -1});
    add((struct spec){.x = SAKER_F32, .has = ALL | ONE_GRAD, ROWS(9), .h = 5, .v = 12});
}

/* Targets that are ignored, all of them, none, out of range; a NaN in one row. */
static void targets(void)
{
    for (int reduction = 0; reduction < 3; reduction++)
        foreach (i, floats) {
            struct spec s = {.x = floats[i], .has = ALL, ROWS(12), .h = 16, .v = 40, .reduction = reduction};
            s.low = s.high = -100, s.chunk = 5;
            add(s);
            s.low = -3, s.high = 3, s.has |= BAD;
            add(s);
            s.low = 38, s.high = 42, s.t = SAKER_I32;
            add(s);
            s.low = 0, s.high = 1, s.has = ALL | IGNORE;
            add(s);
            s.fill = SUITE_ONE_NAN;
            add(s);
        }
    static const suite_fill fills[] = {SUITE_UNIFORM, SUITE_ZERO,    SUITE_CONSTANT, SUITE_TINY,
                                       SUITE_OFFSET,  SUITE_ONE_NAN, SUITE_ONE_INF};
    foreach (k, fills)
        foreach (i, floats)
            add((struct spec){
                .x = floats[i], .has = ALL, ROWS(10), .h = 8, .v = 24, .chunk = 4, .fill = fills[k], .cap = 4});
}

static void layouts(void)
{
    static const suite_layout layout[] = {SUITE_PADDED, SUITE_PERMUTED, SUITE_GAPPED, SUITE_EXPANDED, SUITE_APART};
    foreach (k, layout)
        foreach (i, floats)
            for (int64_t chunk = 0; chunk < 6; chunk += 3) {
                struct spec s = {.x = floats[i], .has = ALL | CW | GRAD, ROWS(3, 4), .h = 16, .v = 33};
                s.layout = layout[k], s.chunk = chunk, s.smoothing = 0.1f;
                add(s);
                s.lead[2] = 2, s.n_lead = 3, s.reduction = SAKER_REDUCE_MEAN, s.has |= FLAT;
                add(s);
            }
    add((struct spec){.x = SAKER_F32, .has = ALL, .n_lead = 0, .h = 9, .v = 19});
    add((struct spec){.x = SAKER_BF16, .has = ALL, ROWS(2, 2), .h = 64, .v = 64});
}

static void empty(void)
{
    for (int reduction = 0; reduction < 3; reduction++)
        for (int acc = 0; acc < 2; acc++) {
            int has = ALL | (acc ? ACC : 0);
            add((struct spec){.x = SAKER_F32, .has = has, ROWS(0), .h = 8, .v = 9, .reduction = reduction});
            add((struct spec){.x = SAKER_BF16, .has = has, ROWS(3, 0, 2), .h = 8, .v = 9, .reduction = reduction});
            add((struct spec){.x = SAKER_F16, .has = has, ROWS(6), .h = 0, .v = 9, .reduction = reduction, .chunk = 4});
            /* No classes: every target that is not ignored is out of range. */
            add((struct spec){.x = SAKER_F32,
                              .has = has,
                              ROWS(3),
                              .h = 4,
                              .v = 0,
                              .low = -100,
                              .high = -100,
                              .reduction = reduction});
        }
}

static void random_cases(void)
{
    static const float smoothings[] = {0, 0, 0.1f, 1}, zs[] = {0, 0, 0.01f}, caps[] = {0, 0, 3, 30};
    for (int i = 0; i < SUITE_RANDOM; i++) {
        uint64_t r = suite_draws(i);
        struct spec s = {.random = 1 + i, .x = suite_draw_float(&r)};
        s.g = suite_draw_near(&r, s.x);
        s.w = suite_draw_near(&r, s.x);
        s.t = suite_draw_once_in(&r, 2) ? SAKER_I32 : SAKER_I64;
        s.h = 1 + suite_draw(&r, 90);
        s.v = 1 + suite_draw(&r, suite_draw_once_in(&r, 4) ? 1100 : 90);
        s.n_lead = 1 + suite_draw(&r, 2);
        for (int d = 0; d < s.n_lead; d++)
            s.lead[d] = 1 + suite_draw(&r, d ? 5 : 40);
        s.reduction = suite_draw(&r, 3);
        s.smoothing = smoothings[suite_draw(&r, 4)];
        s.z = zs[suite_draw(&r, 3)];
        s.cap = caps[suite_draw(&r, 4)];
        s.layout = suite_draw_once_in(&r, 2) ? (suite_layout)suite_draw(&r, SUITE_EXPANDED + 1) : SUITE_COMPACT;
        s.chunk = suite_draw_once_in(&r, 2) ? 1 + suite_draw(&r, 20) : 0;
        s.has = (1 + suite_draw(&r, 31)) * LOSS;
        s.has |= suite_draw_once_in(&r, 2) ? BIAS : 0;
        s.has |= suite_draw_once_in(&r, 2) ? CW : 0;
        s.has |= suite_draw_once_in(&r, 4) ? TURNED : 0;
        s.has |= suite_draw_once_in(&r, 4) ? FLAT : 0;
        if (s.has & GRADIENTS && suite_draw_once_in(&r, 2))
            s.has |= suite_draw_once_in(&r, 2) ? GRAD : ONE_GRAD;
        if (s.has & (DW | DB) && suite_draw_once_in(&r, 2))
            s.has |= ACC;
        if (suite_draw_once_in(&r, 3)) {
            s.has |= IGNORE;
            s.ignore = suite_draw(&r, 3) - 1;
        }
        if (suite_draw_once_in(&r, 3)) {
            s.low = -2;
            s.high = s.v + 1;
            s.has |= SOME_BAD;
        }
        add(s);
    }
}

/* ---------------------------------------------------------------- bench */

static void bench(void)
{
    static const saker_type types[] = {SAKER_F32, SAKER_BF16};
    foreach (i, types) {
        struct spec s = {.x = types[i], ROWS(1024), .h = 1024, .v = 32000, .reduction = SAKER_REDUCE_MEAN};
        s.use = SUITE_BENCH;
        s.has = LOSS;
        add(s);
        s.has = LOSS | DX | DW;
        add(s);
    }
    static const int64_t size[][3] = {
        {8192, 4096, 32000}, {8192, 4096, 128256}, {16384, 4096, 128256}, {8192, 2048, 50257}, {4096, 8192, 128256}};
    foreach (k, size) {
        struct spec s = {.x = SAKER_BF16, ROWS(size[k][0]), .h = size[k][1], .v = size[k][2]};
        s.reduction = SAKER_REDUCE_MEAN, s.use = SUITE_BENCH_CUDA;
        s.has = LOSS;
        add(s);
        s.has = LOSS | DX | DW;
        add(s);
    }
}

bool linear_cross_entropy_case(int i, suite_case *out)
{
    static bool built;
    if (!built) {
        built = true;
        full();
        empty();
        outputs();
        sizes();
        options();
        targets();
        layouts();
        random_cases();
        bench();
    }
    return suite_list_at(&list, i, out);
}
