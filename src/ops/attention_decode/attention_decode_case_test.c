/* attention_decode_case_test.c - a case of attention_decode from its short form: name, tensors, options.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "../../../tests/suite_random.h"
#include "attention_decode_test.h"

static void name_case(suite_case *c, const struct spec *s)
{
    static const char *const words[] = {" causal", " window", " cap",  " alibi",       " alibib",
                                        " sinks",  " -lse",   " rope", " interleaved", " latent"};
    static const char *const tables[] = {"", " bad", " shared"}, *const scales[] = {"", " sh", " st", " sg"};
    suite_say_random(c, s->random);
    suite_say(c, "%s%s%s", s->note ? s->note : "", s->note ? " " : "", suite_type_text(s->type));
    if (s->o != s->type)
        suite_say(c, ">%s", suite_type_text(s->o));
    if (s->cache != s->type)
        suite_say(c, " %s", s->cache == SAKER_U8 ? "packed" : suite_type_text(s->cache));
    suite_say(c, "%s", scales[s->scales]);
    if (s->scales == OF_GROUPS)
        suite_say(c, "%lld", (long long)s->group);
    suite_say(c, " %lldx%lld", (long long)s->b, (long long)s->sq);
    if (s->sn)
        suite_say(c, "+%lld", (long long)s->sn);
    if (s->sn && s->news != s->type)
        suite_say(c, "%s", suite_type_text(s->news));
    suite_say(c, ",%lldx%lld,%lldx%lld", (long long)s->smax, (long long)s->hq, (long long)s->hk, (long long)s->d);
    if (s->dv != s->d)
        suite_say(c, ",%lld", (long long)s->dv);
    if (s->page)
        suite_say(c, " page%lld%s", (long long)s->page, tables[s->table]);
    if (s->low || s->high != s->smax - s->sn)
        suite_say(c, " len%lld..%lld", (long long)s->low, (long long)s->high);
    suite_say_bits(c, (int)s->has, ALL_OPTIONS, words);
    if (s->has & WINDOW)
        suite_say(c, " %lld,%lld", (long long)s->left, (long long)s->right);
    if (s->has & ROPE)
        suite_say(c, " R%lld+%lld", (long long)s->rotary, (long long)s->rotary_offset);
    if (s->split)
        suite_say(c, " split%lld", (long long)s->split);
    if (s->scale != 0)
        suite_say(c, " x%g", (double)s->scale);
    suite_say(c, "%s", suite_layout_text(s->memory));
    const suite_fill fills[] = {s->q, s->k, s->v};
    foreach (i, fills)
        if (fills[i])
            suite_say(c, " %c%s", "qkv"[i], suite_fill_text(fills[i]));
}

/* ---------------------------------------------------------------- tensors */

static suite_tensor *tensor(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                            suite_fill fill, int n, int64_t d0, int64_t d1, int64_t d2, int64_t d3, bool dense)
{
    const int64_t all[] = {d0, d1, d2, d3};
    suite_tensor *t = suite_add(c, field, role, type, fill);
    t->ndim = n;
    memcpy(t->shape, all, (size_t)n * sizeof *all);
    suite_lay_out(t, s->memory, type == SAKER_I4 ? 2 : suite_gap(c), dense);
    return t;
}

static suite_tensor *ranged(suite_case *c, const struct spec *s, const char *field, suite_fill fill, int n, int64_t d0,
                            int64_t d1, int64_t low, int64_t high)
{
    suite_tensor *t = tensor(c, s, field, SUITE_IN, SAKER_I32, fill, n, d0, d1, 0, 0, false);
    t->low = low;
    t->high = high;
    return t;
}

/* Codes of all values, or numbers as given. */
static void add_cache(suite_case *c, const struct spec *s, const char *field, int64_t blocks, int64_t tokens,
                      int64_t width, suite_fill fill)
{
    suite_tensor *t = tensor(c, s, field, s->sn ? SUITE_INOUT : SUITE_IN, s->cache, fill, 4, blocks, tokens, s->hk,
                             s->cache == SAKER_U8 ? (width + 1) / 2 : width, true);
    if (s->cache == SAKER_I8 || s->cache == SAKER_U8)
        t->fill = SUITE_BITS;
    if (s->cache == SAKER_I4) {
        t->fill = SUITE_RANGE;
        t->low = -7, t->high = 7;
    }
    if (s->has & LATENT)
        t->free_shape = SUITE_ANY_SHAPE; /* any number of tokens or pages */
}

static void add_scale(suite_case *c, const struct spec *s, const char *field, int64_t blocks, int64_t tokens,
                      int64_t width)
{
    suite_tensor *t;
    if (s->scales == NO_SCALE)
        return;
    if (s->scales == OF_HEADS)
        t = tensor(c, s, field, SUITE_IN, SAKER_F32, SUITE_POSITIVE, 1, s->hk, 0, 0, 0, false);
    else
        t = tensor(c, s, field, s->sn ? SUITE_INOUT : SUITE_IN, SAKER_F32, SUITE_POSITIVE,
                   s->scales == OF_GROUPS ? 4 : 3, blocks, tokens, s->hk, s->scales == OF_GROUPS ? width / s->group : 0,
                   false);
    if (s->scales == OF_GROUPS)
        t->free_shape = SUITE_ANY_WIDTH; /* other groups */
}

static void add_options(suite_case *c, const struct spec *s)
{
    saker_attention_decode_args *a = (saker_attention_decode_args *)c->args;
    a->struct_size = sizeof *a;
    a->causal = (s->has & CAUSAL) != 0;
    a->has_window = (s->has & WINDOW) != 0;
    a->window_left = s->has & WINDOW ? s->left : 0;
    a->window_right = s->has & WINDOW ? s->right : 0;
    a->softcap = s->has & SOFTCAP ? 1.5f : 0;
    a->interleaved = s->has & ROPE && s->has & INTERLEAVED;
    a->rotary_offset = s->has & ROPE ? s->rotary_offset : 0;
    a->split = s->split;
    a->scale = s->scale;
    if (s->has & (SLOPES | SLOPES_BATCH)) {
        bool each = s->has & SLOPES_BATCH;
        suite_tensor *t = tensor(c, s, "slopes", SUITE_IN, SAKER_F32, SUITE_POSITIVE, each ? 2 : 1, each ? s->b : s->hq,
                                 s->hq, 0, 0, false);
        t->free_shape = each ? SUITE_FIXED : SUITE_ANY_SHAPE; /* [Hq] may be [B, Hq] */
    }
    if (s->has & SINKS)
        tensor(c, s, "sinks", SUITE_IN, SAKER_F32, SUITE_NORMAL, 1, s->hq, 0, 0, 0, false);
}

static struct spec complete(struct spec s)
{
    s.hk = s.hk ? s.hk : s.hq;
    s.dv = s.dv ? s.dv : s.d;
    s.o = s.o ? s.o : s.type;
    s.cache = s.cache ? s.cache : s.type;
    s.news = s.news ? s.news : s.type;
    s.high = s.high ? s.high : s.smax - s.sn;
    s.group = s.group ? s.group : 32;
    s.rotary = s.rotary ? s.rotary : s.d / 2 * 2;
    if (s.cache == SAKER_I8 && s.scale == 0 && s.scales != NO_SCALE) /* codes are large numbers */
        s.scale = 0.015625f / sqrtf((float)s.d);
    return s;
}

/* What is read of the caches, at the lengths' middle, with what is written and all queries. */
static double least_bytes(const suite_case *c, const struct spec *s)
{
    double keys = fmax(0, (double)(s->low + s->high) / 2) * (double)(s->b * s->hk), bytes = 0,
           size = suite_type_bytes(s->cache);
    if (s->cache == SAKER_I4 || s->cache == SAKER_U8)
        size = 0.5;
    for (int i = 0; i < c->n_tensors; i++)
        if (!strstr(c->tensor[i].field, "_cache") && !strstr(c->tensor[i].field, "_scale"))
            bytes += (double)suite_elements(&c->tensor[i]) * suite_type_bytes(c->tensor[i].type);
    double scales = s->scales == OF_TOKENS   ? 8
                    : s->scales == OF_GROUPS ? 4 * (double)(s->d + s->dv) / (double)s->group
                                             : 0;
    return bytes + keys * (size * (double)(s->d + (s->has & LATENT ? 0 : s->dv)) + scales);
}

void attention_decode_case(suite_list *l, struct spec given)
{
    struct spec full = complete(given), *s = &full;
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK, .check = s->check, .reads = 2, .writes = 1};
    int64_t blocks = s->page ? s->b * (s->smax / s->page) + s->pages : s->b, tokens = s->page ? s->page : s->smax;
    name_case(&c, s);
    tensor(&c, s, "q", SUITE_IN, s->type, s->q, 4, s->b, s->sq, s->hq, s->d, true);
    add_cache(&c, s, "k_cache", blocks, tokens, s->d, s->k);
    if (!(s->has & LATENT))
        add_cache(&c, s, "v_cache", blocks, tokens, s->dv, s->v);
    ranged(&c, s, "lengths", SUITE_RANGE, 1, s->b, 0, s->low, s->high);
    suite_tensor *o = tensor(&c, s, "o", SUITE_OUT, s->o, SUITE_NORMAL, 4, s->b, s->sq, s->hq, s->dv, true);
    if (s->has & LATENT)
        o->free_shape = SUITE_ANY_WIDTH;
    if (!(s->has & NO_LSE))
        tensor(&c, s, "lse", SUITE_OUT, SAKER_F32, SUITE_NORMAL, 3, s->b, s->hq, s->sq, 0, false);
    if (s->page) {
        static const suite_fill fills[] = {SUITE_MIXED, SUITE_RANGE, SUITE_RANGE};
        suite_tensor *t = ranged(&c, s, "block_table", fills[s->table], 2, s->b, s->smax / s->page,
                                 s->table == TABLE_BAD ? -2 : 0, blocks - 1 + (s->table == TABLE_BAD ? 2 : 0));
        t->free_shape = SUITE_ANY_WIDTH;
    }
    if (s->sn) {
        suite_tensor *k = tensor(&c, s, "k_new", SUITE_IN, s->news, s->k == SUITE_ONE_NAN ? SUITE_NORMAL : s->k, 4,
                                 s->b, s->sn, s->hk, s->d, true);
        if (s->has & LATENT)
            k->free_shape = SUITE_ANY_SHAPE;
        else
            tensor(&c, s, "v_new", SUITE_IN, s->news, SUITE_NORMAL, 4, s->b, s->sn, s->hk, s->dv, true);
    }
    if (s->has & ROPE) {
        int64_t rows = s->smax + (s->check == SAKER_OK ? 0 : -s->smax / 2);
        tensor(&c, s, "cos", SUITE_IN, SAKER_F32, SUITE_UNIFORM, 2, rows, s->rotary / 2, 0, 0, true);
        tensor(&c, s, "sin", SUITE_IN, SAKER_F32, SUITE_UNIFORM, 2, rows, s->rotary / 2, 0, 0, true);
    }
    add_scale(&c, s, "k_scale", blocks, tokens, s->d);
    if (!(s->has & LATENT))
        add_scale(&c, s, "v_scale", blocks, tokens, s->dv);
    add_options(&c, s);
    c.bytes = least_bytes(&c, s);
    c.flops = 2 * (double)(s->b * s->sq * s->hq) * fmax(0, (double)(s->low + s->high) / 2) * (double)(s->d + s->dv);
    suite_list_add(l, &c);
}
