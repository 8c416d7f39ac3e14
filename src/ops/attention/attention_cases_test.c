/* attention_cases_test.c - what is tried with attention and attention_backward: correctness and bench.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "attention_test.h"

/* ---------------------------------------------------------------- a case in short */

enum { /* options and tensors that a case has */
       CAUSAL = 1 << 0,
       TOP_LEFT = 1 << 1,
       WINDOW = 1 << 2,
       SOFTCAP = 1 << 3,
       SLOPES = 1 << 4,
       SLOPES_BATCH = 1 << 5,
       BIAS = 1 << 6,
       MASK = 1 << 7,
       KEY_MASK = 1 << 8,
       SINKS = 1 << 9,
       DROPOUT = 1 << 10,
       POSITIONS = 1 << 11,
       IDS = 1 << 12,
       IDS_UP_TO = 1 << 13,
       Q_POSITIONS = 1 << 14, /* of queries only */
       NO_LSE = 1 << 15,
       DLSE = 1 << 16,
       ACCUMULATE = 1 << 17,
       NO_CU = 1 << 18, /* thd: one sequence */
       P_SCALE = 1 << 19,
       K_I8 = 1 << 20, /* k and v i8, q float */
       NO_DQ = 1 << 21,
       NO_DK = 1 << 22,
       NO_DV = 1 << 23
};

enum { B = 8, H = 4, SQ = 2, SK = 1 }; /* dims that bias and mask have; others are 1 */
enum { CU_GOOD, CU_SHORT, CU_RANDOM, CU_COUNT };

struct spec {
    int layout, use, cu;
    unsigned has;
    saker_type type, o, bias;
    int64_t b, s, sk, hq, hk, d, dv; /* hk, dv 0: hq, d. thd: s and sk are all tokens, b sequences */
    int64_t left, right;
    int bias_dims, mask_dims;
    suite_fill q, k, v; /* fills; 0: normal */
    suite_fill bias_fill;
    suite_layout memory;
    float scale;
    int descale; /* dimensions of the descales */
    int64_t block;
    int64_t pad; /* thd: bias and mask are so much shorter than the tokens */
    const char *note;
};

static suite_list forward_list, backward_list;

/* ---------------------------------------------------------------- names */

static void say_dims(suite_case *c, const char *what, int dims)
{
    suite_say(c, " %s%s%s%s%s", what, dims & B ? "b" : "", dims & H ? "h" : "", dims & SQ ? "q" : "",
              dims & SK ? "k" : "");
}

static void name_case(suite_case *c, const struct spec *s)
{
    static const char *const layouts[] = {"bshd", "bhsd", "thd"};
    static const char *const words[] = {" causal", " topleft", " window", " cap", " alibi", " alibib", "",      "",
                                        " pad",    " sinks",   " drop",   " pos", " ids",   " upto",   " qpos", " -lse",
                                        " dlse",   " acc",     " -cu",    " pq",  " kvi8",  " -dq",    " -dk",  " -dv"};
    static const char *const cuts[] = {"", " short", " random", " ones"};
    suite_say(c, "%s%s", s->note ? s->note : "", s->note ? " " : "");
    suite_say(c, "%s", suite_type_text(s->type));
    if (s->o && s->o != s->type)
        suite_say(c, ">%s", suite_type_text(s->o));
    suite_say(c, " %s %lldx%lld", layouts[s->layout], (long long)s->b, (long long)s->s);
    if (s->sk != s->s)
        suite_say(c, ",%lld", (long long)s->sk);
    suite_say(c, "x%lld", (long long)s->hq);
    if (s->hk != s->hq)
        suite_say(c, ",%lld", (long long)s->hk);
    suite_say(c, "x%lld", (long long)s->d);
    if (s->dv != s->d)
        suite_say(c, ",%lld", (long long)s->dv);
    suite_say(c, "%s%s", cuts[s->cu], suite_layout_text(s->memory));
    suite_say_bits(c, (int)s->has, 24, words);
    if (s->has & WINDOW)
        suite_say(c, " %lld,%lld", (long long)s->left, (long long)s->right);
    if (s->has & BIAS)
        say_dims(c, suite_type_text(s->bias), s->bias_dims);
    if (s->has & MASK)
        say_dims(c, "mask", s->mask_dims);
    if (s->descale)
        suite_say(c, " ds%d/%lld", s->descale, (long long)s->block);
    if (s->pad)
        suite_say(c, " less%lld", (long long)s->pad);
    if (s->scale != 0)
        suite_say(c, " x%g", (double)s->scale);
    const suite_fill fills[] = {s->q, s->k, s->v, s->bias_fill};
    foreach (i, fills)
        if (fills[i])
            suite_say(c, " %c%s", "qkvb"[i], suite_fill_text(fills[i]));
}

/* ---------------------------------------------------------------- tensors */

static void shape(suite_tensor *t, int n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t all[] = {a, b, c, d};
    t->ndim = n;
    memcpy(t->shape, all, (size_t)n * sizeof *all);
}

static suite_tensor *heads(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                           int64_t tokens, int64_t h, int64_t d, suite_fill fill)
{
    suite_tensor *t = suite_add(c, field, role, type, fill);
    if (type == SAKER_I8)
        t->fill = SUITE_BITS;
    if (s->layout == SAKER_THD)
        shape(t, 3, tokens, h, d, 0);
    else if (s->layout == SAKER_BSHD)
        shape(t, 4, s->b, tokens, h, d);
    else
        shape(t, 4, s->b, h, tokens, d);
    suite_lay_out(t, s->memory, suite_gap(c), true);
    return t;
}

static suite_tensor *ranged(suite_case *c, const char *field, saker_type type, suite_fill fill, int64_t low,
                            int64_t high)
{
    suite_tensor *t = suite_add(c, field, SUITE_IN, type, fill);
    t->low = low;
    t->high = high;
    return t;
}

/* One for each token. */
static void tokens(suite_case *c, const struct spec *s, const char *field, saker_type type, bool keys, int64_t low,
                   int64_t high)
{
    suite_tensor *t = ranged(c, field, type, SUITE_RANGE, low, high);
    int64_t n = keys ? s->sk : s->s;
    shape(t, s->layout == SAKER_THD ? 1 : 2, s->layout == SAKER_THD ? n : s->b, n, 0, 0);
    suite_lay_out(t, s->memory, suite_gap(c), false);
}

static void stat(suite_case *c, const struct spec *s, const char *field, suite_role role, suite_fill fill)
{
    suite_tensor *t = suite_add(c, field, role, SAKER_F32, fill);
    if (s->layout == SAKER_THD)
        shape(t, 2, s->hq, s->s, 0, 0);
    else
        shape(t, 3, s->b, s->hq, s->s, 0);
    suite_lay_out(t, s->memory == SUITE_EXPANDED ? SUITE_COMPACT : s->memory, suite_gap(c), false);
}

static void matrix_shape(suite_tensor *t, const struct spec *s, int dims)
{
    shape(t, 4, dims & B ? s->b : 1, dims & H ? s->hq : 1, dims & SQ ? s->s - s->pad : 1,
          dims & SK ? s->sk - s->pad : 1);
    t->free_shape = SUITE_ANY_SHAPE; /* a smaller one is repeated; thd: a shorter one cuts off */
}

static void of_heads(suite_case *c, const struct spec *s, const char *field, suite_role role, bool each)
{
    suite_tensor *t = suite_add(c, field, role, SAKER_F32, role == SUITE_IN ? SUITE_POSITIVE : SUITE_NORMAL);
    shape(t, each ? 2 : 1, each ? s->b : s->hq, s->hq, 0, 0);
    suite_lay_out(t, s->memory == SUITE_EXPANDED ? SUITE_COMPACT : s->memory, suite_gap(c), false);
}

/* Everything that forward and backward share beside q, k, v, o and lse. */
static void shared(suite_case *c, const struct spec *s)
{
    bool thd = s->layout == SAKER_THD;
    if (s->has & BIAS) {
        suite_tensor *t = suite_add(c, "bias", SUITE_IN, s->bias, s->bias_fill);
        matrix_shape(t, s, s->bias_dims);
        suite_lay_out(t, s->memory, suite_gap(c), false);
    }
    if (s->has & MASK) {
        suite_tensor *t = ranged(c, "mask", s->type == SAKER_F32 ? SAKER_BOOL : SAKER_U8, SUITE_RANGE, 0, 1);
        matrix_shape(t, s, s->mask_dims);
        suite_lay_out(t, s->memory, suite_gap(c), false);
    }
    if (s->has & KEY_MASK)
        tokens(c, s, "key_mask", SAKER_BOOL, true, 0, 1);
    if (s->has & (SLOPES | SLOPES_BATCH))
        of_heads(c, s, "slopes", SUITE_IN, s->has & SLOPES_BATCH);
    if (s->has & SINKS)
        of_heads(c, s, "sinks", SUITE_IN, false);
    if (thd && !(s->has & NO_CU)) {
        static const suite_fill fills[] = {SUITE_CUTS, SUITE_CUTS, SUITE_RANGE, SUITE_COUNT};
        int64_t off = s->cu == CU_SHORT ? 2 : s->cu == CU_RANDOM ? -5 : 0;
        suite_tensor *q = ranged(c, "cu_seqlens_q", SAKER_I32, fills[s->cu], off, s->s - off);
        shape(q, 1, s->b + 1, 0, 0, 0);
        suite_tensor *k = ranged(c, "cu_seqlens_k", SAKER_I32, fills[s->cu], off, s->sk - off);
        shape(k, 1, s->b + 1, 0, 0, 0);
        c->check = s->cu == CU_SHORT ? SAKER_BAD_INDEX : s->cu == CU_RANDOM || s->pad ? SUITE_ANY_CHECK : SAKER_OK;
        q->free_shape = k->free_shape = SUITE_ANY_SHAPE;
    }
    if (s->has & (POSITIONS | Q_POSITIONS))
        tokens(c, s, "q_positions", SAKER_I32, false, 3, s->s + 9);
    if (s->has & POSITIONS)
        tokens(c, s, "k_positions", SAKER_I32, true, -4, s->sk + 5);
    if (s->has & (IDS | IDS_UP_TO)) {
        tokens(c, s, "q_ids", SAKER_I32, false, 0, 2);
        tokens(c, s, "k_ids", SAKER_I32, true, 0, 3);
    }
}

static void descales(suite_case *c, const struct spec *s)
{
    static const char *const names[] = {"q_descale", "k_descale", "v_descale"};
    for (int i = s->has & K_I8 ? 1 : 0; s->descale && i < 3; i++) {
        suite_tensor *t = suite_add(c, names[i], SUITE_IN, SAKER_F32, SUITE_POSITIVE);
        int64_t h = i == 0 && s->type != SAKER_E4M3 ? s->hq : s->hk, n = i ? s->sk : s->s;
        if (s->descale == 1)
            shape(t, 1, h, 0, 0, 0);
        else if (s->descale == 2)
            shape(t, 2, s->b, h, 0, 0);
        else
            shape(t, 3, s->b, h, (n + s->block - 1) / s->block, 0);
    }
}

#define SET_OPTIONS(a, s)                                                                                              \
    do {                                                                                                               \
        (a)->struct_size = sizeof *(a);                                                                                \
        (a)->layout = (s)->layout;                                                                                     \
        (a)->scale = (s)->scale;                                                                                       \
        (a)->causal = ((s)->has & CAUSAL) != 0;                                                                        \
        (a)->top_left = ((s)->has & TOP_LEFT) != 0;                                                                    \
        (a)->has_window = ((s)->has & WINDOW) != 0;                                                                    \
        (a)->window_left = (s)->has & WINDOW ? (s)->left : 0;                                                          \
        (a)->window_right = (s)->has & WINDOW ? (s)->right : 0;                                                        \
        (a)->softcap = (s)->has & SOFTCAP ? 1.5f : 0;                                                                  \
        (a)->dropout = (s)->has & DROPOUT ? 0.3f : 0;                                                                  \
        (a)->seed = (s)->has & DROPOUT ? 0x123456789abcdef : 0;                                                        \
        (a)->offset = (s)->has & DROPOUT ? 0xfffffff7 : 0;                                                             \
        (a)->id_rule = (s)->has & IDS_UP_TO ? SAKER_ID_UP_TO : SAKER_ID_SAME;                                          \
    } while (0)

static void finish(suite_case *c, const struct spec *s, double products)
{
    double pairs = (double)s->b * (double)s->hq * (double)s->s * (double)s->sk;
    c->flops = pairs * products * (s->has & CAUSAL ? 0.5 : 1);
    c->bytes = suite_all_bytes(c);
    c->use = s->use ? s->use : SUITE_CHECK;
    for (int i = 0; i < c->n_tensors; i++)
        if (c->tensor[i].role == SUITE_IN)
            c->reads++;
        else
            c->writes++;
}

/* ---------------------------------------------------------------- the two ops */

static struct spec complete(struct spec s)
{
    s.hk = s.hk ? s.hk : s.hq;
    s.dv = s.dv ? s.dv : s.d;
    s.o = s.o ? s.o : s.type;
    s.bias = s.bias ? s.bias : SAKER_F32;
    return s;
}

static void forward(struct spec given)
{
    struct spec full = complete(given), *s = &full;
    suite_case c = {.use = 0};
    bool codes = s->type == SAKER_I8 || s->type == SAKER_E4M3;
    saker_type kv = s->has & K_I8 ? SAKER_I8 : s->type, o = codes && s->o == s->type ? SAKER_BF16 : s->o;
    saker_attention_args *a = (saker_attention_args *)c.args;
    SET_OPTIONS(a, s);
    a->p_scale = s->has & P_SCALE ? 1 / 127.0f : 0;
    a->descale_block = s->descale == 3 ? s->block : 0;
    name_case(&c, s);
    heads(&c, s, "q", SUITE_IN, s->type, s->s, s->hq, s->d, s->q);
    heads(&c, s, "k", SUITE_IN, kv, s->sk, s->hk, s->d, s->k);
    heads(&c, s, "v", SUITE_IN, kv, s->sk, s->hk, s->dv, s->v);
    heads(&c, s, "o", SUITE_OUT, o, s->s, s->hq, s->dv, SUITE_NORMAL);
    if (!(s->has & NO_LSE))
        stat(&c, s, "lse", SUITE_OUT, SUITE_NORMAL);
    shared(&c, s);
    descales(&c, s);
    finish(&c, s, 2 * (double)(s->d + s->dv));
    suite_list_add(&forward_list, &c);
}

static void backward(struct spec given)
{
    struct spec full = complete(given), *s = &full;
    suite_case c = {.use = 0};
    suite_role out = s->has & ACCUMULATE ? SUITE_INOUT : SUITE_OUT;
    saker_type g = s->o;
    saker_attention_backward_args *a = (saker_attention_backward_args *)c.args;
    SET_OPTIONS(a, s);
    a->accumulate = (s->has & ACCUMULATE) != 0;
    name_case(&c, s);
    heads(&c, s, "d_o", SUITE_IN, s->o, s->s, s->hq, s->dv, SUITE_NORMAL);
    heads(&c, s, "q", SUITE_IN, s->type, s->s, s->hq, s->d, s->q);
    heads(&c, s, "k", SUITE_IN, s->type, s->sk, s->hk, s->d, s->k);
    heads(&c, s, "v", SUITE_IN, s->type, s->sk, s->hk, s->dv, s->v);
    heads(&c, s, "o", SUITE_IN, s->o, s->s, s->hq, s->dv, SUITE_NORMAL);
    stat(&c, s, "lse", SUITE_IN, SUITE_POSITIVE);
    if (s->has & DLSE)
        stat(&c, s, "dlse", SUITE_IN, SUITE_NORMAL);
    shared(&c, s);
    if (!(s->has & NO_DQ))
        heads(&c, s, "dq", out, g, s->s, s->hq, s->d, SUITE_NORMAL);
    if (!(s->has & NO_DK))
        heads(&c, s, "dk", out, g, s->sk, s->hk, s->d, SUITE_NORMAL);
    if (!(s->has & NO_DV))
        heads(&c, s, "dv", out, g, s->sk, s->hk, s->dv, SUITE_NORMAL);
    if (s->has & BIAS) {
        suite_tensor *t = suite_add(&c, "dbias", out, s->bias, SUITE_NORMAL);
        matrix_shape(t, s, s->bias_dims);
        t->free_shape = SUITE_FIXED;
    }
    if (s->has & (SLOPES | SLOPES_BATCH))
        of_heads(&c, s, "dslopes", out, s->has & SLOPES_BATCH);
    if (s->has & SINKS)
        of_heads(&c, s, "dsinks", out, false);
    finish(&c, s, 2 * (double)(3 * s->d + 2 * s->dv));
    suite_list_add(&backward_list, &c);
}

static void both(struct spec s)
{
    forward(s);
    backward(s);
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
    backward(s);
    s.has &= ~(unsigned)(DLSE | ACCUMULATE);
    forward(s);
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
                    forward(s);
                    if (fill == SUITE_ONE_NAN)
                        backward(s);
                }
        /* packed sequences */
        for (int cu = CU_SHORT; cu <= CU_RANDOM; cu++)
            both((struct spec){.type = type,
                               .layout = SAKER_THD,
                               .b = 5,
                               .s = 40,
                               .sk = 50,
                               .hq = 2,
                               .hk = 1,
                               .d = 8,
                               .cu = cu,
                               .has = CAUSAL});
        both((struct spec){.type = type, .layout = SAKER_THD, .b = 20, .s = 30, .sk = 300, .hq = 2, .d = 8});
        both((struct spec){
            .type = type, .layout = SAKER_THD, .b = 0, .s = 3, .sk = 4, .hq = 2, .d = 8, .cu = CU_RANDOM});
        both(
            (struct spec){.type = type, .layout = SAKER_THD, .b = 1, .s = 13, .sk = 20, .hq = 2, .d = 8, .has = NO_CU});
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
        backward((struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_DQ});
        backward((struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_DK});
        backward((struct spec){.type = type, .b = 1, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_DV | NO_DK});
        forward((struct spec){.type = type, .b = 2, .s = 9, .sk = 12, .hq = 2, .hk = 1, .d = 8, .has = NO_LSE});
        /* large logits at each remainder of a tile */
        for (int64_t n = 250; n < 274; n++) {
            forward((struct spec){.type = type,
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
            forward((struct spec){.type = type,
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
    forward((struct spec){.type = SAKER_F16, .b = 1, .s = 9, .sk = 12, .hq = 2, .d = 8, .v = SUITE_MAX});
    forward((struct spec){.type = SAKER_F32,
                          .layout = SAKER_THD,
                          .b = 100000,
                          .s = 100000,
                          .sk = 100000,
                          .hq = 1,
                          .d = 2,
                          .cu = CU_COUNT,
                          .has = CAUSAL});
    backward((struct spec){.type = SAKER_BF16,
                           .layout = SAKER_THD,
                           .b = 100000,
                           .s = 100000,
                           .sk = 100000,
                           .hq = 1,
                           .d = 2,
                           .cu = CU_COUNT,
                           .use = SUITE_ALL});
}

/* ---------------------------------------------------------------- quantised inputs */

static void quant_cases(void)
{
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
            forward(s);
            s.has |= P_SCALE;
            forward(s);
            s.has ^= P_SCALE | K_I8;
            s.type = s.o;
            s.scale = 4e-3f;
            forward(s);
            s.has ^= K_I8;
            s.type = SAKER_E4M3;
            s.scale = 0;
            s.descale = descale == 3 ? 2 : descale;
            forward(s);
        }
}

/* ---------------------------------------------------------------- random combinations */

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static struct spec random_spec(uint64_t number)
{
    static const int64_t sizes[] = {1, 5, 8, 16, 24, 33, 64, 72, 128};
    uint64_t r = number * 0x9e3779b97f4a7c15u + 1;
    struct spec s = {.note = "random", .type = floats[next(&r) % 3]};
    s.b = 1 + (int64_t)next(&r) % 3;
    s.hk = 1 + (int64_t)next(&r) % 2;
    s.hq = s.hk * (1 + (int64_t)next(&r) % 3);
    s.s = 1 + (int64_t)(next(&r) % (next(&r) % 8 ? 40 : 160));
    s.sk = 1 + (int64_t)(next(&r) % (next(&r) % 8 ? 60 : 530));
    s.d = sizes[next(&r) % 9];
    s.dv = next(&r) % 2 ? s.d : sizes[next(&r) % 9];
    s.layout = (int)(next(&r) % 3);
    s.o = next(&r) % 4 ? s.type : floats[next(&r) % 3];
    s.bias = floats[next(&r) % 3];
    s.bias_dims = (int)(next(&r) % 16);
    s.mask_dims = (int)(next(&r) % 16);
    s.left = (int64_t)(next(&r) % 40) - 1;
    s.right = (int64_t)(next(&r) % 20) - 1;
    s.memory = next(&r) % 3 ? SUITE_COMPACT : (suite_layout)(1 + next(&r) % 3);
    static const unsigned some[] = {CAUSAL, WINDOW,  SOFTCAP,   SLOPES, BIAS, MASK,      KEY_MASK,
                                    SINKS,  DROPOUT, POSITIONS, IDS,    DLSE, ACCUMULATE};
    foreach (i, some)
        s.has |= next(&r) % 4 == 0 ? some[i] : 0;
    if (s.has & (CAUSAL | WINDOW) && next(&r) % 4 == 0)
        s.has |= TOP_LEFT;
    if (s.has & SLOPES && next(&r) % 2)
        s.has ^= SLOPES | SLOPES_BATCH;
    if (s.has & IDS && next(&r) % 2)
        s.has ^= IDS | IDS_UP_TO;
    return s;
}

static void random_cases(void)
{
    static char notes[2000][12];
    for (int i = 0; i < 2000; i++) {
        struct spec s = random_spec((uint64_t)i);
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
    if (forward_list.n)
        return;
    feature_cases();
    shape_cases();
    named_cases();
    quant_cases();
    random_cases();
    bench_cases();
}

bool attention_at_case(int i, suite_case *out)
{
    make_lists();
    return suite_list_at(&forward_list, i, out);
}

bool attention_backward_at_case(int i, suite_case *out)
{
    make_lists();
    return suite_list_at(&backward_list, i, out);
}

/* ---------------------------------------------------------------- attention_merge */

static void merge_case(suite_list *l, int layout, saker_type type, saker_type o, suite_layout memory, bool in_place,
                       suite_fill lse, int use)
{
    struct spec s = {.layout = layout, .type = type, .memory = memory, .b = 2, .s = 9, .hq = 3, .d = 21, .use = use};
    if (use & SUITE_BENCH)
        s.b = 4, s.s = 4096, s.hq = 32, s.d = 128;
    static const char *const layouts[] = {"bshd", "bhsd", "thd"};
    suite_case c = {.use = use};
    saker_attention_merge_args *a = (saker_attention_merge_args *)c.args;
    a->struct_size = sizeof *a;
    a->layout = layout;
    suite_say(&c, "%s>%s %s %lldx%lldx%lldx%lld%s%s%s", suite_type_text(type), suite_type_text(o), layouts[layout],
              (long long)s.b, (long long)s.s, (long long)s.hq, (long long)s.d, suite_layout_text(memory),
              in_place ? " inplace" : "", suite_fill_text(lse));
    heads(&c, &s, "o_a", SUITE_IN, o, s.s, s.hq, s.d, SUITE_NORMAL);
    stat(&c, &s, "lse_a", SUITE_IN, lse);
    heads(&c, &s, "o_b", SUITE_IN, type, s.s, s.hq, s.d, SUITE_NORMAL);
    stat(&c, &s, "lse_b", SUITE_IN, lse);
    suite_tensor *out = heads(&c, &s, "o", SUITE_OUT, o, s.s, s.hq, s.d, SUITE_NORMAL);
    if (in_place)
        suite_share(&c, out, "o_a");
    stat(&c, &s, "lse", SUITE_OUT, SUITE_NORMAL);
    if (in_place)
        suite_share(&c, &c.tensor[c.n_tensors - 1], "lse_a");
    c.bytes = suite_all_bytes(&c);
    c.reads = 2;
    c.writes = 1;
    suite_list_add(l, &c);
}

bool attention_merge_at_case(int i, suite_case *out)
{
    static suite_list list;
    if (!list.n) {
        foreach (x, floats)
            foreach (y, floats)
                for (int layout = 0; layout < 3; layout++) {
                    merge_case(&list, layout, floats[x], floats[y], SUITE_COMPACT, false, SUITE_NORMAL, SUITE_CHECK);
                    merge_case(&list, layout, floats[x], floats[y], SUITE_COMPACT, true, SUITE_MASKED, SUITE_CHECK);
                    merge_case(&list, layout, floats[x], floats[y], SUITE_GAPPED, true, SUITE_MASKED, SUITE_CHECK);
                    merge_case(&list, layout, floats[x], floats[y], SUITE_PERMUTED, false, SUITE_LARGE, SUITE_CHECK);
                }
        merge_case(&list, SAKER_BSHD, SAKER_BF16, SAKER_BF16, SUITE_COMPACT, false, SUITE_NORMAL, SUITE_BENCH);
        merge_case(&list, SAKER_BSHD, SAKER_F32, SAKER_F32, SUITE_COMPACT, false, SUITE_NORMAL, SUITE_BENCH);
    }
    return suite_list_at(&list, i, out);
}
