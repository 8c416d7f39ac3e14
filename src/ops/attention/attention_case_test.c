/* attention_case_test.c - a case of attention's operations from its short form: name, tensors, options.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "attention_cases_test.h"

suite_list attention_forward_list, attention_backward_list;

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
    if (s->large)
        suite_say(c, " to%lld", (long long)s->large);
    const suite_fill fills[] = {s->q, s->k, s->v, s->bias_fill, s->lse};
    foreach (i, fills)
        if (fills[i])
            suite_say(c, " %c%s", "qkvbl"[i], suite_fill_text(fills[i]));
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

static suite_tensor *stat(suite_case *c, const struct spec *s, const char *field, suite_role role, suite_fill fill)
{
    suite_tensor *t = suite_add(c, field, role, SAKER_F32, fill);
    if (s->layout == SAKER_THD)
        shape(t, 2, s->hq, s->s, 0, 0);
    else
        shape(t, 3, s->b, s->hq, s->s, 0);
    suite_lay_out(t, s->memory == SUITE_EXPANDED ? SUITE_COMPACT : s->memory, suite_gap(c), false);
    return t;
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
    t->free_shape = each || !strcmp(field, "sinks") ? SUITE_FIXED : SUITE_ANY_SHAPE; /* [Hq] may be [B, Hq] */
    suite_lay_out(t, s->memory == SUITE_EXPANDED ? SUITE_COMPACT : s->memory, suite_gap(c), false);
}

/* Everything that forward and backward share beside q, k, v, o and lse. */
static void shared(suite_case *c, const struct spec *s)
{
    bool thd = s->layout == SAKER_THD;
    if (s->has & BIAS) {
        suite_tensor *t = ranged(c, "bias", s->bias, s->large ? SUITE_RANGE : s->bias_fill, s->large - 9, s->large);
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
        if (s->descale == 1) {
            shape(t, 1, h, 0, 0, 0);
            t->free_shape = SUITE_ANY_SHAPE; /* may be [B, H] */
        }
        if (s->descale == 2)
            shape(t, 2, s->b, h, 0, 0);
        if (s->descale == 3)
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

void attention_forward(struct spec given)
{
    struct spec full = complete(given), *s = &full;
    suite_case c = {.cuda_kernel = s->kernel, .portable_kernel = s->portable};
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
    suite_list_add(&attention_forward_list, &c);
}

void attention_backward(struct spec given)
{
    struct spec full = complete(given), *s = &full;
    bool tma = s->gradient && strncmp(s->gradient, "tma ", 4) == 0;
    suite_case c = {.cuda_kernel = s->gradient, .portable_kernel = tma ? s->gradient + 4 : s->gradient};
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
    suite_tensor *lse = stat(&c, s, "lse", SUITE_IN, s->large ? SUITE_RANGE : s->lse ? s->lse : SUITE_POSITIVE);
    lse->low = lse->high = s->large;
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
    if (s->has & (SLOPES | SLOPES_BATCH) && !(s->has & NO_DSLOPES))
        of_heads(&c, s, "dslopes", out, s->has & SLOPES_BATCH);
    if (s->has & SINKS)
        of_heads(&c, s, "dsinks", out, false);
    finish(&c, s, 2 * (double)(3 * s->d + 2 * s->dv));
    suite_list_add(&attention_backward_list, &c);
}

/* ---------------------------------------------------------------- attention_merge */

void attention_merge_case(suite_list *l, int layout, saker_type type, saker_type o, suite_layout memory, bool in_place,
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
