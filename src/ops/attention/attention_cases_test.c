/* attention_cases_test.c - what is tried with attention's operations: correctness and bench.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "../../../tests/suite_random.h"
#include "attention_cases_test.h"

static void both(struct spec s)
{
    attention_forward(s);
    attention_backward(s);
}

/* ---------------------------------------------------------------- features, alone and in pairs */

static const struct feature {
    unsigned has;
    int bias_dims, mask_dims, layout;
    int64_t left, right, hk;
    bool other_o, gapped;
    float scale;
} features[] = {
    {.has = CAUSAL},
    {.has = CAUSAL | TOP_LEFT},
    {.has = WINDOW, .left = 5, .right = 3},
    {.has = WINDOW, .left = -1, .right = 2},
    {.has = SOFTCAP},
    {.has = SLOPES},
    {.has = SLOPES_BATCH},
    {.has = BIAS, .bias_dims = B | H | SQ | SK},
    {.has = BIAS, .bias_dims = H | SK},
    {.has = MASK, .mask_dims = B | H | SQ | SK},
    {.has = MASK, .mask_dims = SQ | SK},
    {.has = KEY_MASK},
    {.has = SINKS},
    {.has = DROPOUT},
    {.has = POSITIONS},
    {.has = Q_POSITIONS},
    {.has = IDS},
    {.has = IDS_UP_TO},
    {.has = DLSE},
    {.has = ACCUMULATE},
    {.layout = SAKER_THD},
    {.layout = SAKER_BHSD},
    {.hk = 2},
    {.other_o = true},
    {.gapped = true},
    {.scale = -0.4f},
};

static void apply(struct spec *s, const struct feature *f)
{
    s->has |= f->has;
    s->bias_dims |= f->bias_dims;
    s->mask_dims |= f->mask_dims;
    s->layout = f->layout ? f->layout : s->layout;
    s->hk = f->hk ? f->hk : s->hk;
    s->o = f->other_o ? SAKER_F32 : s->o;
    s->memory = f->gapped ? SUITE_GAPPED : s->memory;
    s->scale = f->scale != 0 ? f->scale : s->scale;
    if (f->has & WINDOW) {
        s->left = f->left;
        s->right = f->right;
    }
}

/* dlse and accumulate say nothing to forward. */
static void at_both(struct spec s)
{
    attention_backward(s);
    s.has &= ~(unsigned)(DLSE | ACCUMULATE);
    attention_forward(s);
}

static void feature_cases(void)
{
    const struct spec base = {.b = 2, .s = 21, .sk = 34, .hq = 4, .d = 10, .dv = 7};
    foreach (i, features) {
        foreach (t, floats) {
            struct spec s = base;
            s.type = floats[t];
            apply(&s, &features[i]);
            at_both(s);
            s.s = 130; /* several blocks of queries and of keys */
            s.sk = 301;
            s.b = 1;
            s.hq = s.hk ? 2 : 1;
            s.hk = s.hk ? 1 : 0;
            s.use = t == i % 3 ? SUITE_CHECK : SUITE_ALL;
            at_both(s);
        }
        for (size_t j = 0; j < i; j++) {
            struct spec s = base;
            s.type = floats[(i + j) % 3];
            s.s = 11 + (int64_t)(i + j) % 7;
            apply(&s, &features[j]);
            apply(&s, &features[i]);
            at_both(s);
        }
    }
}

/* ---------------------------------------------------------------- shapes, layouts, dims */

static void shape_cases(void)
{
    static const int64_t sizes[][2] = {{1, 1},    {2, 3},     {3, 1},     {7, 9},    {8, 8},     {16, 16},   {31, 33},
                                       {40, 40},  {64, 64},   {80, 80},   {96, 96},  {128, 128}, {192, 128}, {256, 256},
                                       {288, 72}, {320, 320}, {576, 512}, {17, 512}, {576, 1}};
    static const int64_t lengths[][2] = {{1, 1},  {1, 40}, {40, 1}, {12, 256}, {13, 257}, {96, 255},
                                         {97, 3}, {0, 5},  {5, 0},  {3, 513},  {200, 77}};
    foreach (t, floats) {
        foreach (i, sizes)
            both((struct spec){.type = floats[t],
                               .b = 1,
                               .s = 5,
                               .sk = 19,
                               .hq = 2,
                               .d = sizes[i][0],
                               .dv = sizes[i][1],
                               .use = sizes[i][0] > 64 && t != i % 3 ? SUITE_ALL : SUITE_CHECK});
        foreach (i, lengths)
            for (unsigned causal = 0; causal < 2; causal++)
                both((struct spec){.type = floats[t],
                                   .b = 2,
                                   .s = lengths[i][0],
                                   .sk = lengths[i][1],
                                   .hq = 2,
                                   .hk = 1,
                                   .d = 9,
                                   .dv = 6,
                                   .has = (causal ? CAUSAL : 0) | (i % 2 ? SINKS : 0)});
        for (int m = SUITE_PADDED; m <= SUITE_EXPANDED; m++)
            for (int layout = 0; layout < 3; layout++)
                both((struct spec){.type = floats[t],
                                   .layout = layout,
                                   .b = 2,
                                   .s = 14,
                                   .sk = 14,
                                   .hq = 4,
                                   .hk = 2,
                                   .d = 16,
                                   .has = CAUSAL,
                                   .memory = (suite_layout)m});
    }
    for (int dims = 0; dims < 16; dims++) {
        both((struct spec){.type = floats[dims % 3],
                           .b = 2,
                           .s = 17,
                           .sk = 15,
                           .hq = 4,
                           .hk = 2,
                           .d = 8,
                           .has = BIAS,
                           .bias = floats[dims / 3 % 3],
                           .bias_dims = dims});
        both((struct spec){.type = floats[dims % 3],
                           .b = 3,
                           .s = 20,
                           .sk = 21,
                           .hq = 2,
                           .d = 8,
                           .has = BIAS | MASK,
                           .bias = SAKER_BF16,
                           .bias_dims = dims,
                           .mask_dims = 15 - dims,
                           .layout = SAKER_THD});
    }
    both((struct spec){
        .type = SAKER_F32, .b = 1, .s = 20, .sk = 33, .hq = 2, .d = 136, .dv = 130, .has = BIAS, .bias_dims = SQ | SK});
    static const int64_t ratios[] = {2, 3, 5, 8, 16, 32, 71};
    foreach (i, ratios)
        both((struct spec){.type = floats[i % 3],
                           .b = 1,
                           .s = 6,
                           .sk = 9,
                           .hq = ratios[i] * (i % 2 + 1),
                           .hk = (int64_t)(i % 2) + 1,
                           .d = 8,
                           .has = CAUSAL});
}

/* ---------------------------------------------------------------- what has a name */

static void named_cases(void)
{
    foreach (t, floats) {
        saker_type type = floats[t];
        /* rows that see nothing */
        both((struct spec){.type = type, .b = 1, .s = 30, .sk = 7, .hq = 2, .d = 8, .has = CAUSAL});
        both((struct spec){.type = type, .b = 1, .s = 30, .sk = 7, .hq = 2, .d = 8, .has = CAUSAL | SINKS});
        both((struct spec){.type = type,
                           .b = 2,
                           .s = 9,
                           .sk = 40,
                           .hq = 2,
                           .d = 8,
                           .has = BIAS,
                           .bias_dims = B | H | SQ | SK,
                           .bias_fill = SUITE_MASKED});
        both((struct spec){
            .type = type, .b = 1, .s = 40, .sk = 40, .hq = 1, .d = 8, .has = WINDOW, .left = 0, .right = 0});
        both((struct spec){
            .type = type, .b = 1, .s = 40, .sk = 30, .hq = 1, .d = 8, .has = WINDOW, .left = 1000, .right = 1000});
        /* NaN and infinity, seen and behind masks */
        for (int fill = SUITE_ONE_NAN; fill <= SUITE_ONE_INF; fill++)
            for (int what = 0; what < 3; what++)
                for (int mask = 0; mask < 3; mask++) {
                    struct spec s = {.type = type,
                                     .b = 1,
                                     .s = 33,
                                     .sk = 33,
                                     .hq = 2,
                                     .d = 8,
                                     .has = mask == 0   ? CAUSAL
                                            : mask == 1 ? MASK
                                                        : KEY_MASK,
                                     .mask_dims = SQ | SK};
                    *(what == 0 ? &s.q : what == 1 ? &s.k : &s.v) = (suite_fill)fill;
                    attention_forward(s);
                    if (fill == SUITE_ONE_NAN)
                        attention_backward(s);
                    s.has |= SOFTCAP;
                    if (fill == SUITE_ONE_NAN && what < 2)
                        attention_backward(s);
                }
        /* rows that saw a NaN: no others notice (but on a GPU, in f16 and bf16) */
        static const unsigned some[] = {CAUSAL, MASK, KEY_MASK, WINDOW, CAUSAL | SOFTCAP};
        foreach (i, some)
            attention_backward((struct spec){.type = type,
                                             .b = 1,
                                             .s = 50,
                                             .sk = 40,
                                             .hq = 2,
                                             .hk = 1,
                                             .d = 8,
                                             .has = some[i],
                                             .left = 4,
                                             .right = 2,
                                             .mask_dims = SQ | SK,
                                             .lse = SUITE_ONE_NAN,
                                             .use = type == SAKER_F32 ? SUITE_CHECK : SUITE_CHECK | SUITE_CPU_ONLY});
        /* packed sequences */
        for (int cu = CU_SHORT; cu <= CU_RANDOM; cu++) {
            struct spec s = {.type = type, .layout = SAKER_THD, .b = 5, .s = 40, .sk = 50, .hq = 2, .hk = 1, .d = 8};
            s.cu = cu, s.has = CAUSAL;
            both(s);
            s.has = ACCUMULATE; /* what tokens of no sequence held stays */
            attention_backward(s);
        }
        /* without keys, a sink has its gradient from that of lse */
        attention_backward(
            (struct spec){.type = type, .b = 1, .s = 5, .sk = 0, .hq = 2, .d = 8, .has = SINKS | ACCUMULATE | DLSE});
        /* sums of many heads, side by side in the workspace */
        attention_backward(
            (struct spec){.type = type, .b = 1, .s = 5, .sk = 7, .hq = 40, .d = 8, .has = SLOPES | SINKS});
        both((struct spec){.type = type, .layout = SAKER_THD, .b = 20, .s = 30, .sk = 300, .hq = 2, .d = 8});
        both((struct spec){
            .type = type, .layout = SAKER_THD, .b = 0, .s = 3, .sk = 4, .hq = 2, .d = 8, .cu = CU_RANDOM});
        both(
            (struct spec){.type = type, .layout = SAKER_THD, .b = 1, .s = 13, .sk = 20, .hq = 2, .d = 8, .has = NO_CU});
        for (int64_t longer = 0; longer < 40; longer += 30) /* a bias that ends before the tokens is refused */
            both((struct spec){.type = type,
                               .layout = SAKER_THD,
                               .b = 1,
                               .s = 13,
                               .sk = 20,
                               .hq = 2,
                               .d = 8,
                               .pad = -longer,
                               .has = NO_CU | BIAS | MASK,
                               .bias_dims = SQ | SK,
                               .mask_dims = SQ | SK});
        /* no query heads beside some of keys */
        both((struct spec){.type = type, .b = 2, .s = 9, .sk = 12, .hq = 0, .hk = 2, .d = 8, .has = CAUSAL});
        both((struct spec){.type = type,
                           .layout = SAKER_THD,
                           .b = 2,
                           .s = 40,
                           .sk = 44,
                           .hq = 2,
                           .d = 8,
                           .pad = 18,
                           .has = BIAS | MASK,
                           .bias_dims = SQ | SK,
                           .mask_dims = B | SQ | SK});
        /* outputs that are left out */
        attention_backward(
            (struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_DQ});
        attention_backward(
            (struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_DK});
        attention_backward(
            (struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_DV | NO_DK});
        attention_forward(
            (struct spec){.type = type, .b = 2, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_LSE});
        /* large logits at each remainder of a tile */
        for (int64_t n = 250; n < 274; n++) {
            attention_forward((struct spec){.type = type,
                                            .b = 1,
                                            .s = 5,
                                            .sk = n,
                                            .hq = 1,
                                            .d = 8,
                                            .scale = n % 2 ? 40 : -3500,
                                            .has = n % 3 == 0   ? WINDOW
                                                   : n % 3 == 1 ? CAUSAL
                                                                : 0,
                                            .left = 255,
                                            .right = 1});
            attention_forward((struct spec){.type = type,
                                            .b = 1,
                                            .s = 5,
                                            .sk = n - 249,
                                            .hq = 1,
                                            .d = 8,
                                            .scale = n % 2 ? 40 : -3500,
                                            .has = n % 3 == 0 ? MASK : 0,
                                            .mask_dims = SQ | SK});
        }
        both((struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .d = 8, .q = SUITE_TINY, .k = SUITE_TINY});
    }
    attention_forward((struct spec){.type = SAKER_F16, .b = 1, .s = 9, .sk = 12, .hq = 2, .d = 8, .v = SUITE_MAX});
    attention_forward((struct spec){.type = SAKER_F32,
                                    .layout = SAKER_THD,
                                    .b = 100000,
                                    .s = 100000,
                                    .sk = 100000,
                                    .hq = 1,
                                    .d = 2,
                                    .cu = CU_COUNT,
                                    .has = CAUSAL});
    attention_backward((struct spec){.type = SAKER_BF16,
                                     .layout = SAKER_THD,
                                     .b = 100000,
                                     .s = 100000,
                                     .sk = 100000,
                                     .hq = 1,
                                     .d = 2,
                                     .cu = CU_COUNT,
                                     .use = SUITE_ALL});
}

/* ---------------------------------------------------------------- scores of large magnitude */

/* Masks are often large finite numbers, and rows that see nothing else have them as their maximum. */
static void large_cases(void)
{
    static const int64_t tops[] = {-16000000, 16000000, -1000000000, 3000000000, -70000000000, 1000000000000000000};
    static const unsigned some[] = {0, CAUSAL, WINDOW | DROPOUT, MASK, SOFTCAP, KEY_MASK | ACCUMULATE | DLSE};
    foreach (t, floats)
        foreach (i, tops)
            foreach (h, some) {
                struct spec s = {.type = floats[t],
                                 .b = 1,
                                 .s = h % 2 ? 7 : 40,
                                 .sk = h % 3 == 0 ? 403 : 20,
                                 .hq = 2,
                                 .hk = 1,
                                 .d = 8,
                                 .has = BIAS | some[h],
                                 .left = 4,
                                 .right = 2,
                                 .bias_dims = SQ | SK,
                                 .mask_dims = H | SQ | SK,
                                 .q = SUITE_ZERO,
                                 .large = tops[i],
                                 .use = SUITE_CHECK | (i < 2 ? SUITE_CPU_ONLY : 0)}; /* a GPU subtracts in base 2 */
                at_both(s);
            }
    /* without a bias: 3 times 1 or -1 from products, times scale; and the ends of the range */
    for (unsigned sinks = 0; sinks < 2; sinks++)
        for (int64_t n = 3; n < 900; n = n * 5 + 1) {
            struct spec s = {.type = SAKER_F32,
                             .b = 1,
                             .s = 9,
                             .sk = n,
                             .hq = 1,
                             .d = 3,
                             .has = sinks ? SINKS : 0,
                             .q = SUITE_CONSTANT,
                             .k = SUITE_ALTERNATING,
                             .use = SUITE_CHECK | SUITE_CPU_ONLY};
            s.scale = 1e9f;
            s.large = 3000000000;
            both(s);
            s.scale = -1e20f;
            s.large = 0;
            attention_forward(s);
            s.scale = 0;
            s.k = SUITE_NORMAL;
            s.q = SUITE_ZERO;
            s.has |= BIAS;
            s.bias_dims = SQ | SK;
            s.bias_fill = SUITE_HUGE;
            attention_forward(s);
            s.bias_fill = SUITE_MAX;
            attention_forward(s);
        }
}

/* ---------------------------------------------------------------- what the fast CUDA kernels take */

/* Rows of 16 bytes, several tiles each way, and the kernel that must take them. */
static struct spec aligned(saker_type type, int class, struct spec s)
{
    static const char *const kernels[2][3][2] = {{{"tma plain f16 64", "tma scored f16 64"},
                                                  {"tma plain f16 128", "tma scored f16 128"},
                                                  {"tma plain f16 256", "any f16 256"}},
                                                 {{"tma plain bf16 64", "tma scored bf16 64"},
                                                  {"tma plain bf16 128", "tma scored bf16 128"},
                                                  {"tma plain bf16 256", "any bf16 256"}}};
    static const char *const gradients[2][3][3] = {{{"tma plain f16 64", "tma scored f16 64", "any f16 128"},
                                                    {"tma plain f16 128", "tma scored f16 128", "any f16 128"},
                                                    {"plain f16 256", "any f16 256", "any f16 256"}},
                                                   {{"tma plain bf16 64", "tma scored bf16 64", "any bf16 128"},
                                                    {"tma plain bf16 128", "tma scored bf16 128", "any bf16 128"},
                                                    {"plain bf16 256", "any bf16 256", "any bf16 256"}}};
    bool bf16 = type == SAKER_BF16, added = s.has & (SLOPES | BIAS), scored = added || s.has & SOFTCAP;
    bool all = (s.has & SLOPES && !(s.has & NO_DSLOPES)) || (s.has & SOFTCAP && added);
    s.type = type;
    s.s = s.s ? s.s : 140;
    s.sk = s.sk ? s.sk : 136;
    s.hq = 2;
    s.hk = 1;
    s.kernel = kernels[bf16][class][scored];
    s.portable = scored ? strstr(s.kernel, class < 2 ? "scored" : "any") : s.has & SINKS ? NULL : s.kernel + 4;
    s.gradient = gradients[bf16][class][all ? 2 : scored];
    return s;
}

static void aligned_case(saker_type type, int class, struct spec s)
{
    both(aligned(type, class, s));
}

static void aligned_cases(void)
{
    static const int64_t sizes[][3] = {{64, 64, 0}, {56, 8, 0}, {128, 128, 1}, {72, 40, 1}, {192, 128, 2}};
    static const struct {
        unsigned has;
        float scale;
        suite_fill v;
        const char *note;
    } options[] = {{.has = 0},
                   {.has = CAUSAL},
                   {.has = WINDOW},
                   {.has = SOFTCAP},
                   {.has = SOFTCAP | CAUSAL, .scale = 0.025f, .note = "near"},
                   {.has = SOFTCAP | CAUSAL, .scale = 0.006f, .note = "nearest"},
                   {.has = SLOPES},
                   {.has = SLOPES | NO_DSLOPES, .note = "fixed"},
                   {.has = BIAS},
                   {.has = SINKS},
                   {.has = CAUSAL | SOFTCAP | SLOPES_BATCH | BIAS | SINKS},
                   {.has = CAUSAL | SLOPES | BIAS | NO_DSLOPES, .note = "fixed"},
                   {.has = CAUSAL | BIAS, .v = SUITE_ONE_NAN},
                   {.has = CAUSAL | SOFTCAP, .v = SUITE_ONE_INF},
                   {.has = CAUSAL, .v = SUITE_ONE_NAN}};
    for (int t = 1; t < 3; t++)
        foreach (i, sizes) {
            struct spec s = {.b = 1, .left = 70, .right = 9, .d = sizes[i][0], .dv = sizes[i][1]};
            foreach (o, options) {
                s.has = options[o].has;
                s.scale = options[o].scale;
                s.v = options[o].v;
                s.note = options[o].note;
                s.bias_dims = o % 2 ? SQ | SK : H | SQ | SK;
                s.bias = i % 2 ? SAKER_F32 : floats[t];
                s.use = ((size_t)t + i + o) % 3 ? SUITE_ALL : SUITE_CHECK;
                aligned_case(floats[t], (int)sizes[i][2], s);
            }
            /* many tiles, and keys that the later queries see nothing of */
            static const unsigned long_options[] = {WINDOW, SOFTCAP, CAUSAL | SLOPES | NO_DSLOPES, BIAS};
            foreach (o, long_options) {
                s = (struct spec){.b = 2, .s = 290, .sk = 424, .d = sizes[i][0], .dv = sizes[i][1]};
                s.has = long_options[o], s.left = 30, s.right = 9;
                s.bias_dims = SQ | SK, s.bias = floats[t];
                s.note = s.has & SLOPES ? "fixed" : NULL;
                s.use = i % 2 ? SUITE_ALL : SUITE_CHECK;
                aligned_case(floats[t], (int)sizes[i][2], s);
            }
            /* scores that rise from key to key: what the first tile holds is no measure for the last */
            static const float rises[] = {0.06f, 0.5f, 3.0f};
            foreach (r, rises) {
                float d = (float)sizes[i][0];
                attention_forward(aligned(floats[t], (int)sizes[i][2],
                                          (struct spec){.b = 1,
                                                        .sk = 424,
                                                        .d = sizes[i][0],
                                                        .dv = sizes[i][1],
                                                        .q = SUITE_CONSTANT,
                                                        .k = SUITE_COUNT,
                                                        .scale = rises[r] / (3 * d * d),
                                                        .has = r == 2  ? SINKS
                                                               : i % 2 ? CAUSAL
                                                                       : 0,
                                                        .note = "rising",
                                                        .use = i % 2 ? SUITE_ALL : SUITE_CHECK}));
            }
            s = (struct spec){.layout = SAKER_THD, .b = 3, .d = sizes[i][0], .dv = sizes[i][1]};
            s.has = CAUSAL;
            aligned_case(floats[t], (int)sizes[i][2], s);
            s.has = CAUSAL | SLOPES | (i % 2 ? NO_DSLOPES : 0);
            aligned_case(floats[t], (int)sizes[i][2], s);
            /* more pieces than a GPU has SMs, which are taken by whoever is done */
            s = (struct spec){.b = 34, .s = 140, .sk = 140, .d = sizes[i][0], .dv = sizes[i][1], .has = CAUSAL};
            s.use = (size_t)t == i ? SUITE_CHECK : SUITE_ALL;
            aligned_case(floats[t], (int)sizes[i][2], s);
            s.layout = SAKER_THD, s.b = 70, s.s = 1120, s.sk = 1100;
            aligned_case(floats[t], (int)sizes[i][2], s);
        }
}

/* ---------------------------------------------------------------- quantised inputs */

static void quant_cases(void)
{
    for (int descale = 1; descale < 4; descale++)
        attention_forward((struct spec){.type = SAKER_I8,
                                        .b = 2,
                                        .s = 5,
                                        .sk = 9,
                                        .hq = 4,
                                        .hk = 2,
                                        .d = 8,
                                        .descale = descale,
                                        .block = 3,
                                        .scale = 1e-4f});
    static const unsigned masks[] = {0, CAUSAL, WINDOW | SOFTCAP, BIAS | KEY_MASK, SINKS | DROPOUT};
    foreach (m, masks)
        for (int descale = 0; descale < 4; descale++) {
            struct spec s = {.b = 2,
                             .s = 13,
                             .sk = 290,
                             .hq = 4,
                             .hk = 2,
                             .d = 24,
                             .dv = 40,
                             .has = masks[m],
                             .left = 9,
                             .right = 4,
                             .bias_dims = H | SK,
                             .descale = descale,
                             .block = m % 2 ? 128 : 7,
                             .scale = 1e-5f,
                             .o = floats[(size_t)(descale + (int)m) % 3],
                             .layout = (int)m % 3};
            s.type = SAKER_I8;
            attention_forward(s);
            s.has |= P_SCALE;
            attention_forward(s);
            s.has ^= P_SCALE | K_I8;
            s.type = s.o;
            s.scale = 4e-3f;
            attention_forward(s);
            s.has ^= K_I8;
            s.type = SAKER_E4M3;
            s.scale = 0;
            s.descale = descale == 3 ? 2 : descale;
            attention_forward(s);
        }
}

/* ---------------------------------------------------------------- random combinations */

static struct spec random_spec(int number)
{
    static const int64_t sizes[] = {1, 5, 8, 16, 24, 33, 64, 72, 128};
    uint64_t r = suite_draws(number);
    struct spec s = {.note = "random", .type = suite_draw_float(&r)};
    s.b = 1 + suite_draw(&r, 3);
    s.hk = 1 + suite_draw(&r, 2);
    s.hq = s.hk * (1 + suite_draw(&r, 3));
    bool many_q = suite_draw_once_in(&r, 8), many_k = suite_draw_once_in(&r, 8);
    s.s = 1 + suite_draw(&r, many_q ? 160 : 40);
    s.sk = 1 + suite_draw(&r, many_k ? 530 : 60);
    s.d = sizes[suite_draw(&r, 9)];
    s.dv = suite_draw(&r, 2) ? s.d : sizes[suite_draw(&r, 9)];
    s.layout = suite_draw(&r, 3);
    s.o = suite_draw(&r, 4) ? s.type : suite_draw_float(&r);
    s.bias = suite_draw_float(&r);
    s.bias_dims = suite_draw(&r, 16);
    s.mask_dims = suite_draw(&r, 16);
    s.left = suite_draw(&r, 40) - 1;
    s.right = suite_draw(&r, 20) - 1;
    s.memory = suite_draw(&r, 3) ? SUITE_COMPACT : (suite_layout)(1 + suite_draw(&r, 3));
    static const unsigned some[] = {CAUSAL, WINDOW,  SOFTCAP,   SLOPES, BIAS, MASK,      KEY_MASK,
                                    SINKS,  DROPOUT, POSITIONS, IDS,    DLSE, ACCUMULATE};
    foreach (i, some)
        s.has |= suite_draw_once_in(&r, 4) ? some[i] : 0;
    if (s.has & (CAUSAL | WINDOW) && suite_draw_once_in(&r, 4))
        s.has |= TOP_LEFT;
    if (s.has & SLOPES && suite_draw(&r, 2))
        s.has ^= SLOPES | SLOPES_BATCH;
    if (s.has & IDS && suite_draw(&r, 2))
        s.has ^= IDS | IDS_UP_TO;
    return s;
}

static void random_cases(void)
{
    static char notes[2000][16];
    for (int i = 0; i < 2000; i++) {
        struct spec s = random_spec(i);
        snprintf(notes[i], sizeof notes[i], "r%d", i);
        s.note = notes[i];
        s.use = i < 100 ? SUITE_CHECK : SUITE_ALL;
        at_both(s);
    }
}

/* ---------------------------------------------------------------- bench */

static void bench_cases(void)
{
    static const saker_type types[] = {SAKER_F32, SAKER_BF16};
    static const int64_t lengths[] = {512, 1024, 2048, 4096};
    foreach (t, types)
        foreach (n, lengths)
            for (int64_t d = 64; d <= 128; d += 64)
                for (unsigned causal = 0; causal < 2; causal++) {
                    int use = SUITE_BENCH | (lengths[n] == 2048 && d == 128 && !causal ? SUITE_DEMO : 0);
                    both((struct spec){.type = types[t],
                                       .b = 1,
                                       .s = lengths[n],
                                       .sk = lengths[n],
                                       .hq = 4096 / lengths[n] * 2,
                                       .d = d,
                                       .has = causal ? CAUSAL : 0,
                                       .use = use,
                                       .layout = SAKER_BHSD});
                }
    static const unsigned options[] = {BIAS, SLOPES | CAUSAL, WINDOW, SOFTCAP, SINKS};
    foreach (i, options)
        both((struct spec){.type = SAKER_BF16,
                           .b = 1,
                           .s = 2048,
                           .sk = 2048,
                           .hq = 4,
                           .d = 128,
                           .has = options[i],
                           .left = 512,
                           .right = 0,
                           .bias_dims = H | SQ | SK,
                           .bias = SAKER_BF16,
                           .use = SUITE_BENCH,
                           .layout = SAKER_BHSD});
}

static void make_lists(void)
{
    if (attention_forward_list.n)
        return;
    feature_cases();
    shape_cases();
    named_cases();
    large_cases();
    aligned_cases();
    attention_wide_cases();
    quant_cases();
    random_cases();
    bench_cases();
}

bool attention_at_case(int i, suite_case *out)
{
    make_lists();
    return suite_list_at(&attention_forward_list, i, out);
}

bool attention_backward_at_case(int i, suite_case *out)
{
    make_lists();
    return suite_list_at(&attention_backward_list, i, out);
}

bool attention_merge_at_case(int i, suite_case *out)
{
    static suite_list list;
    if (!list.n) {
        foreach (x, floats)
            foreach (y, floats)
                for (int layout = 0; layout < 3; layout++) {
                    attention_merge_case(&list, layout, floats[x], floats[y], SUITE_COMPACT, false, SUITE_NORMAL,
                                         SUITE_CHECK);
                    attention_merge_case(&list, layout, floats[x], floats[y], SUITE_COMPACT, true, SUITE_MASKED,
                                         SUITE_CHECK);
                    attention_merge_case(&list, layout, floats[x], floats[y], SUITE_GAPPED, true, SUITE_MASKED,
                                         SUITE_CHECK);
                    attention_merge_case(&list, layout, floats[x], floats[y], SUITE_PERMUTED, false, SUITE_LARGE,
                                         SUITE_CHECK);
                }
        attention_merge_case(&list, SAKER_BSHD, SAKER_BF16, SAKER_BF16, SUITE_COMPACT, false, SUITE_NORMAL,
                             SUITE_BENCH);
        attention_merge_case(&list, SAKER_BSHD, SAKER_F32, SAKER_F32, SUITE_COMPACT, false, SUITE_NORMAL, SUITE_BENCH);
    }
    return suite_list_at(&list, i, out);
}
