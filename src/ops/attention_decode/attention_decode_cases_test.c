/* attention_decode_cases_test.c - cases of attention_decode.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_decode_test.h"

#include "../../../tests/suite_random.h"

static suite_list list;

static void add(struct spec s)
{
    attention_decode_case(&list, s);
}

static const saker_type caches[] = {SAKER_I8, SAKER_E4M3, SAKER_I4, SAKER_U8};

/* ---------------------------------------------------------------- shapes */

static void shapes(void)
{
    static const int64_t d[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 40, 64, 65, 80, 127, 128, 129, 192, 256, 576};
    static const int64_t keys[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 63, 64, 65, 127, 129};
    static const int64_t groups[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 1},  {5, 1},  {6, 2},
                                        {7, 1}, {8, 2}, {9, 3}, {12, 4}, {16, 1}, {71, 1}};
    foreach (i, d) {
        saker_type type = floats[i % 3];
        add((struct spec){
            .type = type, .b = 2, .sq = 1, .hq = 4, .hk = 2, .d = d[i], .dv = d[(i + 7) % 19], .smax = 70});
        add((struct spec){.type = type,
                          .b = 2,
                          .sq = 2,
                          .hq = 2,
                          .hk = 1,
                          .d = d[i],
                          .smax = 20,
                          .page = 4,
                          .dv = d[i] > 512 ? 512 : 0,
                          .sn = 1});
    }
    foreach (i, keys)
        foreach (t, floats)
            add((struct spec){.type = floats[t],
                              .b = 1,
                              .sq = 1,
                              .hq = 3,
                              .hk = 1,
                              .d = 24,
                              .smax = keys[i],
                              .low = keys[i],
                              .high = keys[i]});
    foreach (i, groups)
        foreach (t, floats)
            add((struct spec){.type = floats[t],
                              .b = 2,
                              .sq = 1 + (int64_t)i % 3,
                              .hq = groups[i][0],
                              .hk = groups[i][1],
                              .d = 48,
                              .smax = 90,
                              .has = i % 2 ? CAUSAL : 0});
    for (int64_t sq = 1; sq <= 16; sq++)
        add((struct spec){
            .type = floats[sq % 3], .b = 2, .sq = sq, .sn = sq, .hq = 4, .hk = 2, .d = 32, .smax = 100, .has = CAUSAL});
    /* Nothing, or next to nothing. */
    add((struct spec){.note = "empty", .type = SAKER_F32, .b = 0, .sq = 1, .hq = 2, .d = 16, .smax = 8});
    add((struct spec){.note = "empty", .type = SAKER_F32, .b = 2, .sq = 0, .hq = 2, .d = 16, .smax = 8});
    add((struct spec){.note = "append", .type = SAKER_BF16, .b = 2, .sq = 0, .sn = 2, .hq = 2, .d = 16, .smax = 8});
    add((struct spec){.note = "nothing", .type = SAKER_F32, .b = 2, .sq = 2, .hq = 2, .d = 16, .smax = 0});
    add((struct spec){
        .note = "nothing", .type = SAKER_F16, .b = 2, .sq = 2, .hq = 2, .d = 16, .smax = 0, .has = SINKS});
    add((struct spec){.type = SAKER_BF16, .b = 3, .sq = 2, .hq = 2, .d = 16, .smax = 40, .high = 1, .has = SINKS});
    add((struct spec){.type = SAKER_BF16, .b = 3, .sq = 2, .hq = 2, .d = 16, .smax = 40, .high = 1, .page = 8});
}

/* Every tensor, and at least two of everything: wrong arguments are tried on these. */
static void small(void)
{
    struct spec s = {
        .type = SAKER_F32, .b = 2, .sq = 2, .sn = 2, .hq = 4, .hk = 2, .d = 8, .dv = 6, .smax = 16, .low = 2};
    s.has = CAUSAL | ROPE | SLOPES | SINKS;
    add(s);
    s.has = ROPE | SLOPES_BATCH | SINKS;
    s.page = 4;
    add(s);
    for (int scales = OF_HEADS; scales <= OF_GROUPS; scales++) {
        s.type = floats[scales - 1], s.cache = SAKER_I8, s.scales = scales, s.group = scales == OF_GROUPS ? 2 : 0;
        add(s);
        s.cache = SAKER_U8;
        if (scales != OF_HEADS)
            add(s);
    }
    s.has = LATENT | ROPE;
    add(s);
}

/* ---------------------------------------------------------------- options, pages, codes */

static void options(void)
{
    static const int64_t windows[][2] = {{0, 0}, {5, 0}, {-1, 2}, {70, -1}, {3, 4}, {1000, 1000}, {63, 0}};
    for (int a = 0; a < ALL_OPTIONS; a++) /* each alone, and all pairs */
        for (int b = a; b < ALL_OPTIONS; b++) {
            unsigned has = 1u << a | 1u << b;
            if ((has & (SLOPES | SLOPES_BATCH)) == (SLOPES | SLOPES_BATCH) || ((has & INTERLEAVED) && !(has & ROPE)))
                continue;
            int i = a * ALL_OPTIONS + b;
            struct spec s = {.has = has,
                             .type = floats[i % 3],
                             .b = 2,
                             .sq = 1 + i % 4,
                             .sn = i % 3,
                             .hq = 4,
                             .hk = 2,
                             .d = 40,
                             .dv = 24,
                             .smax = 150,
                             .low = 4,
                             .left = 20,
                             .right = 1};
            add(s);
            s.split = 64, s.page = 10;
            add(s);
        }
    foreach (i, windows)
        foreach (t, floats)
            add((struct spec){.has = WINDOW | (i % 2 ? CAUSAL : 0),
                              .type = floats[t],
                              .b = 2,
                              .sq = 5,
                              .hq = 4,
                              .hk = 2,
                              .d = 24,
                              .smax = 200,
                              .low = 100,
                              .high = 200,
                              .left = windows[i][0],
                              .right = windows[i][1],
                              .split = 100});
    static const int64_t rotary[][2] = {{2, 0}, {16, 8}, {32, 0}, {64, 0}, {10, 3}, {16, 48}};
    foreach (i, rotary)
        foreach (t, floats) {
            struct spec s = {.has = ROPE | (i % 2 ? INTERLEAVED : 0) | CAUSAL,
                             .type = floats[t],
                             .b = 2,
                             .sq = 2,
                             .hq = 2,
                             .d = 64,
                             .smax = 40,
                             .sn = t == 2 ? 0 : 2,
                             .low = 2,
                             .rotary = rotary[i][0],
                             .rotary_offset = rotary[i][1]};
            add(s);
            s.news = floats[(t + 1) % 3];
            add(s);
        }
}

static void paged(void)
{
    static const int64_t pages[] = {1, 3, 16, 64};
    foreach (i, pages)
        foreach (t, floats)
            for (int table = TABLE_MIXED; table <= TABLE_SHARED; table++) {
                struct spec s = {.type = floats[t],
                                 .b = 3,
                                 .sq = 2,
                                 .hq = 4,
                                 .hk = 2,
                                 .d = 32,
                                 .page = pages[i],
                                 .smax = 192,
                                 .table = table,
                                 .pages = 2,
                                 .has = CAUSAL,
                                 .split = t ? 50 : 0};
                s.check = table == TABLE_BAD ? SUITE_ANY_CHECK : SAKER_OK;
                add(s);
                s.has |= WINDOW;
                s.left = 30;
                add(s);
                s.sn = 2;
                s.cache = t == 1 ? SAKER_I8 : 0, s.scales = t == 1 ? OF_TOKENS : NO_SCALE;
                if (table == TABLE_MIXED)
                    add(s);
            }
    /* Lengths that are none, pages that do not exist. */
    foreach (t, floats) {
        struct spec s = {.type = floats[t], .b = 3, .sq = 2, .sn = 2, .hq = 2, .d = 24, .smax = 30};
        s.check = SAKER_BAD_INDEX;
        s.note = "beyond", s.low = 29, s.high = 2000000000;
        add(s);
        s.page = 3;
        add(s);
        s.note = "below", s.low = -2000000000, s.high = -1;
        add(s);
        s.page = 0, s.cache = SAKER_I8, s.scales = OF_TOKENS;
        add(s);
        s = (struct spec){.type = floats[t],
                          .b = 1,
                          .sq = 1,
                          .sn = 3,
                          .hq = 2,
                          .d = 24,
                          .smax = 30,
                          .page = 3,
                          .table = TABLE_BAD,
                          .check = SUITE_ANY_CHECK,
                          .note = "dropped"};
        add(s);
        add((struct spec){.note = "short tables",
                          .has = ROPE | CAUSAL,
                          .type = floats[t],
                          .b = 3,
                          .sq = 2,
                          .sn = 2,
                          .hq = 2,
                          .d = 24,
                          .smax = 40,
                          .low = 30,
                          .check = SAKER_BAD_INDEX});
    }
}

static void codes(void)
{
    static const int64_t groups[] = {8, 16, 32, 64};
    foreach (i, caches)
        foreach (t, floats)
            for (int scales = NO_SCALE; scales <= OF_GROUPS; scales++) {
                bool packed = caches[i] == SAKER_I4 || caches[i] == SAKER_U8;
                if (packed && scales < OF_TOKENS)
                    continue;
                struct spec s = {.type = floats[t],
                                 .cache = caches[i],
                                 .scales = scales,
                                 .b = 2,
                                 .sq = 1,
                                 .hq = 4,
                                 .hk = 2,
                                 .d = 64,
                                 .dv = 128,
                                 .smax = 90,
                                 .group = scales == OF_TOKENS ? 0 : groups[(i + t) % 4]};
                if (scales == NO_SCALE && caches[i] == SAKER_I8)
                    s.scale = 0.01f;
                add(s);
                s.sn = 1, s.has = CAUSAL;
                add(s);
                s.sn = 3, s.sq = 3, s.page = 5, s.split = 40;
                add(s);
                s.has |= ROPE | (t == 1 ? INTERLEAVED : 0), s.low = 1;
                add(s);
                s.memory = SUITE_PADDED, s.page = 0;
                add(s);
                s.memory = SUITE_GAPPED;
                add(s);
            }
    static const int64_t odd[] = {1, 2, 6, 18, 33, 50, 100};
    foreach (i, odd)
        foreach (c, caches)
            if (caches[c] != SAKER_I4 || odd[i] % 2 == 0) /* rows of i4 start at whole bytes */
                add((struct spec){.type = floats[i % 3],
                                  .cache = caches[c],
                                  .scales = odd[i] % 3 ? OF_TOKENS : OF_GROUPS,
                                  .group = odd[i] % 3 ? 0 : 3,
                                  .b = 2,
                                  .sq = 1,
                                  .sn = 1,
                                  .hq = 2,
                                  .hk = 1,
                                  .d = odd[i],
                                  .smax = 30,
                                  .low = 1});
}

static void latent(void)
{
    static const int64_t widths[][2] = {{576, 512}, {64, 24}, {96, 64}, {17, 17}, {33, 1}};
    foreach (i, widths)
        foreach (t, floats) {
            struct spec s = {.has = LATENT | CAUSAL,
                             .type = floats[t],
                             .b = 2,
                             .sq = 2,
                             .sn = 2,
                             .hq = 6,
                             .hk = 1,
                             .low = 2,
                             .d = widths[i][0],
                             .dv = widths[i][1],
                             .smax = 70};
            add(s);
            s.has |= ROPE;
            s.rotary = widths[i][0] / 8 * 2, s.rotary_offset = widths[i][0] - s.rotary;
            s.page = 7, s.split = 30;
            add(s);
            s.scales = OF_TOKENS, s.group = 0;
            foreach (c, caches) {
                s.cache = caches[c];
                if (caches[c] != SAKER_I4 || s.d % 2 == 0)
                    add(s);
            }
        }
}

static void values(void)
{
    static const suite_fill fills[] = {SUITE_ZERO, SUITE_CONSTANT, SUITE_LARGE,  SUITE_TINY,
                                       SUITE_MAX,  SUITE_ONE_NAN,  SUITE_ONE_INF};
    static const suite_layout layouts[] = {SUITE_PADDED, SUITE_PERMUTED, SUITE_GAPPED};
    foreach (t, floats) {
        foreach (f, fills) {
            struct spec s = {.type = floats[t],
                             .b = 3,
                             .sq = 2,
                             .hq = 4,
                             .hk = 2,
                             .d = 32,
                             .smax = 100,
                             .has = CAUSAL,
                             .low = 60,
                             .high = 100};
            if (fills[f] != SUITE_MAX) {
                s.q = fills[f];
                add(s);
                s.q = 0, s.k = fills[f];
                add(s);
            }
            if (fills[f] == SUITE_MAX && floats[t] != SAKER_F16) /* sums would leave f32 */
                continue;
            s.k = 0, s.v = fills[f];
            add(s);
            /* What is not finite lies behind the end, or before the window. */
            s.note = "hidden";
            s.low = 20, s.high = 50;
            add(s);
            s.low = 70, s.high = 100, s.has |= WINDOW, s.left = 12;
            add(s);
            s.v = 0, s.k = fills[f];
            if (fills[f] != SUITE_MAX)
                add(s);
        }
        foreach (m, layouts)
            for (int64_t page = 0; page < 20; page += 10) {
                struct spec s = {.type = floats[t],
                                 .b = 3,
                                 .sq = 2,
                                 .hq = 4,
                                 .hk = 2,
                                 .d = 33,
                                 .dv = 16,
                                 .smax = 80,
                                 .page = page,
                                 .memory = layouts[m],
                                 .has = SLOPES | SINKS};
                add(s);
                s.sn = 2, s.has = SLOPES_BATCH | ROPE, s.low = 2;
                add(s);
            }
        add((struct spec){
            .note = "negative", .type = floats[t], .b = 2, .sq = 1, .hq = 2, .d = 16, .smax = 90, .scale = -0.3f});
        add((struct spec){.note = "sharp",
                          .type = floats[t],
                          .b = 2,
                          .sq = 1,
                          .hq = 2,
                          .d = 16,
                          .smax = 300,
                          .scale = 30.0f,
                          .split = 64});
        for (int o = 0; o < 3; o++)
            add((struct spec){.type = floats[t],
                              .o = floats[o],
                              .b = 2,
                              .sq = 1,
                              .hq = 8,
                              .hk = 2,
                              .d = 64,
                              .smax = 600,
                              .low = 500});
    }
}

static void splits(void)
{
    static const int64_t split[] = {0, 1, 7, 64, 100, 128, 1000, (int64_t)1 << 40};
    foreach (i, split)
        foreach (t, floats)
            add((struct spec){.type = floats[t],
                              .b = 3,
                              .sq = 2,
                              .hq = 4,
                              .hk = 1,
                              .d = 32,
                              .smax = 700,
                              .split = split[i],
                              .has = t ? CAUSAL | SINKS : 0,
                              .page = t == 1 ? 20 : 0});
    add((struct spec){.type = SAKER_BF16, .b = 1, .sq = 1, .hq = 4, .hk = 1, .d = 64, .smax = 5000, .low = 4900});
}

/* ---------------------------------------------------------------- random combinations */

static void random_case(int number)
{
    static const int64_t heads[][2] = {{1, 1}, {4, 4}, {4, 2}, {4, 1}, {8, 1}, {6, 2}, {10, 2}};
    static const int64_t pages[] = {1, 2, 3, 5, 16, 33, 64}, split[] = {0, 0, 16, 64, 77, 256};
    static const suite_layout layouts[] = {SUITE_COMPACT, SUITE_COMPACT, SUITE_PADDED, SUITE_PERMUTED, SUITE_GAPPED};
    uint64_t r = suite_draws(number);
    struct spec s = {.random = 1 + number, .b = 1 + suite_draw(&r, 4)};
    int which = suite_draw(&r, 7), width = 1 + suite_draw(&r, 160);
    s.type = suite_draw_float(&r);
    s.o = suite_draw_near(&r, s.type);
    s.news = suite_draw_near(&r, s.type);
    s.hq = heads[which][0], s.hk = heads[which][1];
    s.sq = suite_draw_once_in(&r, 2) ? 1 : 1 + suite_draw(&r, 16);
    s.sn = suite_draw_once_in(&r, 3) ? 0 : suite_draw_once_in(&r, 2) ? s.sq : 1 + suite_draw(&r, 4);
    s.d = width;
    s.dv = suite_draw_once_in(&r, 2) ? width : 1 + suite_draw(&r, 130);
    s.has = (unsigned)suite_draw(&r, 1 << ALL_OPTIONS) & (unsigned)suite_draw(&r, 1 << ALL_OPTIONS);
    if (s.has & SLOPES)
        s.has &= ~(unsigned)SLOPES_BATCH;
    if (s.has & LATENT)
        s.dv = 1 + suite_draw(&r, width);
    s.smax = 20 + suite_draw(&r, suite_draw_once_in(&r, 4) ? 600 : 120);
    if (suite_draw_once_in(&r, 2)) {
        s.page = pages[suite_draw(&r, 7)];
        s.smax = (s.smax / s.page + 1) * s.page;
        s.pages = suite_draw(&r, 3);
    }
    s.low = s.has & ROPE && s.sq > s.sn ? s.sq - s.sn : 0; /* positions below 0 are for other cases */
    if (suite_draw_once_in(&r, 2))
        s.low = s.smax / 2 > s.low ? s.smax / 2 : s.low;
    if (s.has & WINDOW) {
        s.left = suite_draw(&r, 100) - 1;
        s.right = suite_draw(&r, 5) - 1;
    }
    s.split = split[suite_draw(&r, 6)];
    s.memory = layouts[suite_draw(&r, 5)];
    if (suite_draw_once_in(&r, 2)) {
        s.cache = caches[suite_draw(&r, 4)];
        bool packed = s.cache == SAKER_I4 || s.cache == SAKER_U8;
        s.scales = packed ? OF_TOKENS + suite_draw(&r, 2) : OF_HEADS + suite_draw(&r, 3);
        if (s.cache == SAKER_I4 || s.scales == OF_GROUPS) {
            s.group = (int64_t)2 << suite_draw(&r, 5);
            s.d = (1 + suite_draw(&r, 3)) * s.group;
            s.dv = s.has & LATENT ? s.d : (1 + suite_draw(&r, 3)) * s.group;
        }
    }
    if (s.has & ROPE) {
        s.rotary = 2 * (1 + suite_draw(&r, (int)(s.d / 2 + 1)));
        s.rotary = s.rotary > s.d ? s.d / 2 * 2 : s.rotary;
        s.rotary_offset = suite_draw(&r, (int)(s.d - s.rotary + 1));
        if (s.rotary == 0)
            s.has &= ~(unsigned)ROPE;
    }
    add(s);
}

/* ---------------------------------------------------------------- the bench */

static void bench(void)
{
    static const int64_t heads[] = {32, 8, 4};
    for (int use = SUITE_BENCH; use <= SUITE_BENCH_CUDA; use += SUITE_BENCH_CUDA - SUITE_BENCH) {
        struct spec s = {.use = use,
                         .type = SAKER_BF16,
                         .b = use == SUITE_BENCH ? 8 : 32,
                         .sq = 1,
                         .hq = 32,
                         .hk = 8,
                         .d = 128,
                         .smax = 4096,
                         .low = 4096,
                         .high = 4096};
        foreach (h, heads) {
            s.hk = heads[h];
            add(s);
        }
        s.hk = 8;
        s.page = 16;
        add(s);
        s.sn = 1, s.low = s.high = 4095, s.has = ROPE;
        add(s);
        s.sn = 0, s.low = s.high = 4096, s.has = 0, s.page = 0;
        s.cache = SAKER_I8, s.scales = OF_TOKENS;
        add(s);
        s.page = 16;
        add(s);
        s.page = 0;
        s.cache = SAKER_E4M3, s.scales = OF_HEADS;
        add(s);
        s.cache = SAKER_I4, s.scales = OF_GROUPS;
        add(s);
        s = (struct spec){.use = use,
                          .type = SAKER_F16,
                          .b = s.b,
                          .sq = 1,
                          .hq = 32,
                          .hk = 8,
                          .d = 128,
                          .smax = 4096,
                          .low = 4096,
                          .high = 4096};
        add(s);
        s.type = SAKER_F32;
        add(s);
        s = (struct spec){.use = use,
                          .type = SAKER_BF16,
                          .b = 1,
                          .sq = 1,
                          .hq = 32,
                          .hk = 8,
                          .d = 128,
                          .smax = 32768,
                          .low = 32768,
                          .high = 32768};
        add(s);
        s = (struct spec){.use = use,
                          .type = SAKER_BF16,
                          .b = 8,
                          .sq = 1,
                          .hq = 16,
                          .hk = 1,
                          .d = 576,
                          .dv = 512,
                          .smax = 4096,
                          .low = 4096,
                          .high = 4096,
                          .has = LATENT};
        add(s);
    }
}

bool attention_decode_at_case(int i, suite_case *out)
{
    static bool built;
    if (!built) {
        built = true;
        small();
        shapes();
        options();
        paged();
        codes();
        latent();
        values();
        splits();
        for (int n = 0; n < SUITE_RANDOM; n++)
            random_case(n);
        bench();
    }
    return suite_list_at(&list, i, out);
}
