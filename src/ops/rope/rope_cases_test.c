/* rope_cases_test.c - what is tried with rope and rope_backward: correctness and bench.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"
#include "rope_test.h"

/* ---------------------------------------------------------------- a case in short */

enum { /* where positions come from */
       PLACE,
       OFFSETS, /* one for each sequence */
       IDS,     /* i64 [B, S] or [T] */
       IDS32,
       PACKED,         /* cu_seqlens */
       PACKED_OFFSETS, /* and offsets */
       PACKED_SHORT    /* cu_seqlens begins late and ends early: the tokens outside give zeros */
};

enum { /* what a case has; the gradient op reads them too */
       INTERLEAVED = 1,
       NORM = 2,
       WEIGHTS = 4,
       IN_PLACE = 8,
       ACCUMULATE = 16,
       NO_TRUNCATE = 32,
       /* the gradient op: outputs that are left out */
       NO_DQ = 64,
       NO_DK = 128,
       NO_DWEIGHT = 256
};

enum { COMPACT, FUSED, GAPPED, EXPANDED }; /* how heads lie; FUSED: views of one tensor with q, k and v side by side */

struct spec {
    int layout, where, has, memory, scaling, use, random;
    int64_t b, s, hq, hk, d, r;
    saker_type x, y, table, w, dy; /* table 0: computed; others 0: x */
    int64_t low, high, rows;       /* positions and offsets; rows of the tables (0: as many as positions need) */
    suite_fill fill;
    double base, factor;
    float attention, offset, eps;
    float fast, slow; /* beta_fast and beta_slow; high_freq_factor and low_freq_factor */
    int64_t length;
};

static suite_list forward_list, backward_list;

static void name_case(suite_case *c, const struct spec *s)
{
    static const char *const layouts[] = {"bshd", "bhsd", "thd"};
    static const char *const wheres[] = {"", " off", " ids", " ids32", " cu", " cu+off", " cu short"};
    static const char *const memories[] = {"", " fused", " gapped", " expanded"};
    static const char *const scalings[] = {"", " linear", " ntk", " yarn", " llama3"};
    suite_say_random(c, s->random);
    suite_say(c, "%s", suite_type_text(s->x));
    if (s->dy && s->dy != s->x)
        suite_say(c, "<%s", suite_type_text(s->dy));
    if (s->y && s->y != s->x)
        suite_say(c, ">%s", suite_type_text(s->y));
    suite_say(c, " %s ", layouts[s->layout]);
    if (s->layout != SAKER_THD)
        suite_say(c, "%lldx", (long long)s->b);
    suite_say(c, "%lldx%lld+%lldx%lld", (long long)s->s, (long long)s->hq, (long long)s->hk, (long long)s->d);
    if (s->r)
        suite_say(c, " r%lld", (long long)s->r);
    if (s->table)
        suite_say(c, " t:%s", suite_type_text(s->table));
    if (s->rows)
        suite_say(c, "/%lld", (long long)s->rows);
    suite_say(c, "%s%s%s", wheres[s->where], memories[s->memory], scalings[s->scaling]);
    if (s->high)
        suite_say(c, " to%lld", (long long)s->high);
    if (s->has & INTERLEAVED)
        suite_say(c, " il");
    if (s->has & NORM)
        suite_say(c, " norm");
    if (s->has & WEIGHTS)
        suite_say(c, " w%s%s", s->w ? ":" : "", s->w ? suite_type_text(s->w) : "");
    if (s->offset != 0)
        suite_say(c, "+%g", (double)s->offset);
    if (s->eps != 0)
        suite_say(c, " eps%g", (double)s->eps);
    if (s->attention != 0)
        suite_say(c, " att%g", (double)s->attention);
    if (s->base != 0)
        suite_say(c, " base%g", s->base);
    if (s->fast != 0)
        suite_say(c, " %g..%g", (double)s->slow, (double)s->fast);
    suite_say(c, "%s", suite_fill_text(s->fill));
    static const char *const words[] = {" inplace", " acc", " exact", " -dq", " -dk", " -dw"};
    suite_say_bits(c, s->has / IN_PLACE, 6, words);
}

/* ---------------------------------------------------------------- tensors */

static void shape_of(suite_tensor *t, int n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t all[] = {a, b, c, d};
    t->ndim = n;
    memcpy(t->shape, all, (size_t)n * sizeof *all);
}

static suite_tensor *heads(suite_case *c, const struct spec *s, const char *field, suite_role role, saker_type type,
                           int64_t h)
{
    suite_tensor *t = suite_add(c, field, role, type, s->fill);
    int64_t gap = suite_gap(c), width = (s->hq + 2 * s->hk) * s->d;
    int64_t token = width, head = s->d, batch = s->s * width;
    if (s->memory == GAPPED) {
        head = s->d + gap;
        token = h * head + gap;
        batch = s->s * token + gap;
    }
    if (s->memory == EXPANDED && role == SUITE_IN)
        token = h * s->d, batch = 0;
    bool given = s->memory && !(s->memory == EXPANDED && role != SUITE_IN);
    if (s->layout == SAKER_THD) {
        shape_of(t, 3, s->s, h, s->d, 0);
        int64_t stride[] = {token, head, 1};
        memcpy(t->stride, stride, given ? sizeof stride : 0);
    } else if (s->layout == SAKER_BHSD) { /* FUSED and GAPPED: a transposed view, as PyTorch models make them */
        shape_of(t, 4, s->b, h, s->s, s->d);
        int64_t stride[] = {batch, head, token, 1};
        memcpy(t->stride, stride, given ? sizeof stride : 0);
    } else {
        shape_of(t, 4, s->b, s->s, h, s->d);
        int64_t stride[] = {batch, token, head, 1};
        memcpy(t->stride, stride, given ? sizeof stride : 0);
    }
    return t;
}

static void out_heads(suite_case *c, const struct spec *s, const char *field, const char *same, saker_type type,
                      int64_t h)
{
    suite_tensor *t = heads(c, s, field, SUITE_OUT, type, h);
    if (s->has & IN_PLACE)
        suite_share(c, t, same);
}

/* Everything between the heads: tables, positions, weights. */
static void places(suite_case *c, const struct spec *s)
{
    int64_t b = s->layout == SAKER_THD ? 1 : s->b, r = s->r ? s->r : s->d, sequences = s->b;
    static const char *const tables[] = {"cos", "sin"};
    for (int i = 0; s->table && i < 2; i++) {
        suite_tensor *t = suite_add(c, tables[i], SUITE_IN, s->table, SUITE_UNIFORM);
        shape_of(t, 2, s->rows ? s->rows : s->s + s->high, r / 2, 0, 0);
        if (s->memory) {                                          /* half of a wider table, as Hugging Face's are */
            t->stride[0] = r + (s->memory == GAPPED ? 1 + i : 0); /* GAPPED: each its own */
            t->stride[1] = 1;
        }
    }
    if (s->where == OFFSETS || s->where == PACKED_OFFSETS) {
        suite_tensor *t = suite_add(c, "offsets", SUITE_IN, SAKER_I32, SUITE_RANGE);
        shape_of(t, 1, s->layout == SAKER_THD && s->where == OFFSETS ? 1 : sequences, 0, 0, 0);
        t->low = s->low, t->high = s->high;
        t->stride[0] = s->memory ? 2 : 0;
    }
    if (s->where == IDS || s->where == IDS32) {
        suite_tensor *t = suite_add(c, "positions", SUITE_IN, s->where == IDS ? SAKER_I64 : SAKER_I32, SUITE_RANGE);
        if (s->layout == SAKER_THD)
            shape_of(t, 1, s->s, 0, 0, 0);
        else
            shape_of(t, 2, b, s->s, 0, 0);
        t->low = s->low, t->high = s->high;
    }
    if (s->where >= PACKED) {
        suite_tensor *t = suite_add(c, "cu_seqlens", SUITE_IN, SAKER_I32, SUITE_CUTS);
        shape_of(t, 1, sequences + 1, 0, 0, 0);
        t->low = s->where == PACKED_SHORT ? 2 : 0;
        t->high = s->where == PACKED_SHORT ? s->s - 3 : s->s;
        if (sequences == s->s)
            t->fill = SUITE_COUNT;
    }
    static const char *const weights[] = {"q_weight", "k_weight"};
    for (int i = 0; s->has & WEIGHTS && i < (s->hk ? 2 : 1); i++)
        shape_of(suite_add(c, weights[i], SUITE_IN, s->w ? s->w : s->x, SUITE_UNIFORM), 1, s->d, 0, 0, 0);
}

static double bytes_of(const suite_case *c)
{
    double total = 0; /* of the heads: tables, positions and weights are read by all */
    for (int i = 0; i < c->n_tensors; i++)
        if (c->tensor[i].ndim > 2)
            total += (double)suite_elements(&c->tensor[i]) * suite_type_bytes(c->tensor[i].type);
    return total;
}

/* What saker_context_check() says afterwards; a short table may or may not be left, and not by every token. */
static int check_of(const struct spec *s)
{
    return s->where == PACKED_SHORT ? SAKER_BAD_INDEX : s->rows ? SUITE_ANY_CHECK : SAKER_OK;
}

static float only_with(const struct spec *s, int scaling, float value)
{
    return s->scaling == scaling ? value : 0;
}

static void forward(struct spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1, .check = check_of(&s)};
    saker_rope_args a = {.struct_size = sizeof a,
                         .rotary_dim = s.table ? 0 : s.r,
                         .original_length = s.length,
                         .base = s.base,
                         .factor = s.factor,
                         .attention_factor = s.attention,
                         .beta_fast = only_with(&s, SAKER_ROPE_YARN, s.fast),
                         .beta_slow = only_with(&s, SAKER_ROPE_YARN, s.slow),
                         .low_freq_factor = only_with(&s, SAKER_ROPE_LLAMA3, s.slow),
                         .high_freq_factor = only_with(&s, SAKER_ROPE_LLAMA3, s.fast),
                         .eps = s.eps,
                         .weight_offset = s.offset,
                         .layout = s.layout,
                         .interleaved = !!(s.has & INTERLEAVED),
                         .scaling = s.scaling,
                         .no_truncate = !!(s.has & NO_TRUNCATE),
                         .norm = !!(s.has & NORM)};
    memcpy(c.args, &a, sizeof a);
    name_case(&c, &s);
    heads(&c, &s, "q", SUITE_IN, s.x, s.hq);
    if (s.hk)
        heads(&c, &s, "k", SUITE_IN, s.x, s.hk);
    places(&c, &s);
    out_heads(&c, &s, "q_out", "q", s.y ? s.y : s.x, s.hq);
    if (s.hk)
        out_heads(&c, &s, "k_out", "k", s.y ? s.y : s.x, s.hk);
    c.bytes = bytes_of(&c);
    c.flops = 3 * (double)(s.hq + s.hk) * (double)(s.b * s.s * s.d) * (s.has & NORM ? 2 : 1);
    c.cpu_kernel = s.has & NORM ? "norm" : "rows";
    suite_list_add(&forward_list, &c);
}

static void backward(struct spec s)
{
    suite_case c = {
        .use = s.use ? s.use : SUITE_CHECK, .reads = s.has & NORM ? 2 : 1, .writes = 1, .check = check_of(&s)};
    saker_rope_backward_args a = {.struct_size = sizeof a,
                                  .rotary_dim = s.table ? 0 : s.r,
                                  .original_length = s.length,
                                  .base = s.base,
                                  .factor = s.factor,
                                  .attention_factor = s.attention,
                                  .beta_fast = only_with(&s, SAKER_ROPE_YARN, s.fast),
                                  .beta_slow = only_with(&s, SAKER_ROPE_YARN, s.slow),
                                  .low_freq_factor = only_with(&s, SAKER_ROPE_LLAMA3, s.slow),
                                  .high_freq_factor = only_with(&s, SAKER_ROPE_LLAMA3, s.fast),
                                  .eps = s.eps,
                                  .weight_offset = s.offset,
                                  .layout = s.layout,
                                  .interleaved = !!(s.has & INTERLEAVED),
                                  .scaling = s.scaling,
                                  .no_truncate = !!(s.has & NO_TRUNCATE),
                                  .norm = !!(s.has & NORM),
                                  .accumulate = !!(s.has & ACCUMULATE)};
    memcpy(c.args, &a, sizeof a);
    name_case(&c, &s);
    saker_type dy = s.dy ? s.dy : s.x, sum = s.w ? s.w : s.x;
    heads(&c, &s, "dq_out", SUITE_IN, dy, s.hq);
    if (s.hk)
        heads(&c, &s, "dk_out", SUITE_IN, dy, s.hk);
    if (s.has & NORM) {
        heads(&c, &s, "q", SUITE_IN, s.x, s.hq);
        if (s.hk)
            heads(&c, &s, "k", SUITE_IN, s.x, s.hk);
    }
    places(&c, &s);
    if (!(s.has & NO_DQ))
        out_heads(&c, &s, "dq", "dq_out", s.y ? s.y : s.x, s.hq);
    if (s.hk && !(s.has & NO_DK))
        out_heads(&c, &s, "dk", "dk_out", s.y ? s.y : s.x, s.hk);
    suite_role role = s.has & ACCUMULATE ? SUITE_INOUT : SUITE_OUT;
    bool sums = s.has & WEIGHTS && !(s.has & NO_DWEIGHT);
    if (sums)
        shape_of(suite_add(&c, "dq_weight", role, sum, SUITE_NORMAL), 1, s.d, 0, 0, 0);
    if (sums && s.hk)
        shape_of(suite_add(&c, "dk_weight", role, sum, SUITE_NORMAL), 1, s.d, 0, 0, 0);
    c.bytes = bytes_of(&c);
    c.flops = 3 * (double)(s.hq + s.hk) * (double)(s.b * s.s * s.d) * (s.has & NORM ? 5 : 1);
    c.cpu_kernel = sums ? "norm sums" : s.has & NORM ? "norm" : "rows";
    suite_list_add(&backward_list, &c);
}

static void both(struct spec s)
{
    forward(s);
    backward(s);
}

/* ---------------------------------------------------------------- correctness */

#define SIZE(B, S, HQ, HK, D) .b = B, .s = S, .hq = HQ, .hk = HK, .d = D

static void heads_and_sizes(void)
{
    static const int64_t d[] = {2, 4, 6, 10, 16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 256, 320, 512, 576, 1026, 9000};
    foreach (i, d)
        foreach (t, floats)
            for (int has = 0; has < 4; has++) { /* interleaved or not, norm or not */
                int64_t s = d[i] > 1000 ? 3 : 7;
                both((struct spec){SIZE(2, s, 3, 2, d[i]), .x = floats[t], .has = has | (has & NORM ? WEIGHTS : 0),
                                   .table = (i + t) % 2 ? SAKER_F32 : 0});
            }
    foreach (t, floats) { /* part of the head rotates */
        static const int64_t r[] = {2, 6, 16, 30, 32, 48, 64, 112};
        foreach (i, r)
            for (int has = 0; has < 4; has++)
                both((struct spec){SIZE(1, 5, 4, 1, 112), .r = r[i], .x = floats[t], .has = has,
                                   .table = i % 2 ? floats[(t + i) % 3] : 0});
    }
    both((struct spec){SIZE(2, 3, 5, 0, 64), .x = SAKER_F32});
    both((struct spec){SIZE(2, 3, 5, 0, 64), .x = SAKER_BF16, .has = NORM | WEIGHTS});
    both((struct spec){SIZE(2, 3, 5, 2, 7), .r = 4, .x = SAKER_F32, .has = NORM | WEIGHTS}); /* an odd head */
    both((struct spec){SIZE(1, 1, 71, 1, 64), .x = SAKER_BF16});
    both((struct spec){SIZE(0, 3, 2, 1, 64), .x = SAKER_F32});
    both((struct spec){SIZE(2, 0, 2, 1, 64), .x = SAKER_F32, .table = SAKER_F32});
    forward((struct spec){SIZE(2, 3, 2, 1, 0), .x = SAKER_F32});
    forward((struct spec){SIZE(2, 3, 0, 2, 64), .x = SAKER_F32});
    backward((struct spec){SIZE(2, 0, 2, 1, 64), .x = SAKER_F32, .has = NORM | WEIGHTS}); /* empty sums */
    backward((struct spec){SIZE(2, 0, 2, 1, 64), .x = SAKER_F32, .has = NORM | WEIGHTS | ACCUMULATE});
    backward((struct spec){SIZE(2, 3, 0, 0, 64), .x = SAKER_F32, .has = NORM | WEIGHTS});
    /* Many equal terms in the sums for columns that do not rotate. */
    backward(
        (struct spec){SIZE(1, 64, 64, 0, 16), .r = 2, .x = SAKER_F32, .fill = SUITE_CONSTANT, .has = NORM | WEIGHTS});
}

static void where(void)
{
    for (int layout = SAKER_BSHD; layout <= SAKER_THD; layout++)
        for (int w = PLACE; w <= PACKED_SHORT; w++)
            foreach (t, floats) {
                struct spec s = {SIZE(3, 45, 4, 2, 64), .layout = layout, .where = w, .x = floats[t]};
                if (w >= PACKED && layout != SAKER_THD)
                    continue;
                if (w == OFFSETS || w == IDS || w == IDS32 || w == PACKED_OFFSETS)
                    s.high = 1000;
                both(s);
                s.table = floats[(t + (size_t)w) % 3];
                s.has = t == 1 ? INTERLEAVED : 0;
                both(s);
                s.has |= NORM | WEIGHTS;
                s.memory = FUSED;
                both(s);
                if (w == PLACE)
                    continue;
                s.rows = 40; /* positions beyond the table, and before it: the nearest row */
                s.memory = COMPACT;
                s.low = w == IDS || w == IDS32 || w == OFFSETS ? -20 : 0;
                both(s);
            }
    both((struct spec){SIZE(300, 300, 2, 1, 32), .layout = SAKER_THD, .where = PACKED,
                       .x = SAKER_F32}); /* of length 1 */
    both((struct spec){SIZE(40, 25, 2, 1, 32), .layout = SAKER_THD, .where = PACKED,
                       .x = SAKER_BF16}); /* with empties */
    both((struct spec){SIZE(0, 9, 2, 1, 32), .layout = SAKER_THD, .where = PACKED_SHORT,
                       .x = SAKER_F32}); /* one entry */
}

/* Angles: every scaling, positions up to a million and more. */
static void angles(void)
{
    static const int64_t high[] = {100, 131072, 1000000, INT32_MAX};
    foreach (i, high)
        for (int scaling = SAKER_ROPE_NONE; scaling <= SAKER_ROPE_LLAMA3; scaling++) {
            struct spec s = {SIZE(1, 20, 1, 1, 128), .where = i % 2 ? IDS : IDS32, .x = SAKER_F32, .scaling = scaling};
            s.low = i == 1 ? -high[i] : 0;
            s.high = high[i];
            if (scaling)
                s.factor = scaling == SAKER_ROPE_LLAMA3 ? 8 : 4;
            s.length = scaling >= SAKER_ROPE_YARN ? 8192 : 0;
            s.base = scaling == SAKER_ROPE_LLAMA3 ? 500000 : 0;
            both(s);
            s.base = 1000000;
            s.attention = 1.25f;
            s.has = INTERLEAVED | (scaling == SAKER_ROPE_YARN ? NO_TRUNCATE : 0);
            s.length = s.length ? 4096 : 0;
            forward(s);
        }
    static const int64_t r[] = {2, 4, 64, 100};
    foreach (i, r)
        for (int scaling = SAKER_ROPE_LINEAR; scaling <= SAKER_ROPE_LLAMA3; scaling++)
            forward((struct spec){SIZE(1, 30, 2, 1, 128), .r = r[i], .where = OFFSETS, .high = 60000, .x = SAKER_F32,
                                  .scaling = scaling, .factor = 1.3, .length = scaling >= SAKER_ROPE_YARN ? 2048 : 0});
    /* YaRN's blend begins before the first pair, ends behind the last, and has no length; a factor that shrinks. */
    forward(
        (struct spec){SIZE(1, 8, 1, 0, 32), .x = SAKER_F32, .scaling = SAKER_ROPE_YARN, .factor = 0.5, .length = 1000});
    forward(
        (struct spec){SIZE(1, 9, 1, 0, 32), .x = SAKER_F32, .scaling = SAKER_ROPE_YARN, .factor = 4, .length = 100});
    forward((struct spec){SIZE(1, 10, 1, 0, 32), .x = SAKER_F32, .scaling = SAKER_ROPE_YARN, .factor = 4, .base = 10,
                          .length = 4096, .fast = 600, .slow = 1});
    forward((struct spec){SIZE(1, 11, 1, 0, 32), .x = SAKER_F32, .scaling = SAKER_ROPE_YARN, .factor = 4, .length = 4});
}

static void types_and_memory(void)
{
    foreach (x, floats)
        foreach (y, floats)
            foreach (w, floats) {
                struct spec s = {
                    SIZE(2, 9, 4, 2, 64),         .x = floats[x],        .y = floats[y],          .w = floats[w],
                    .table = floats[(x + w) % 3], .has = NORM | WEIGHTS, .offset = w == 1 ? 1 : 0};
                s.dy = floats[(x + w) % 3];
                backward(s);
                s.dy = 0;
                forward(s);
                if (w == 0) {
                    s.has = 0;
                    s.w = s.offset = 0;
                    s.dy = 0;
                    forward(s);
                    s.dy = floats[x];
                    s.x = floats[x];
                    backward(s);
                }
            }
    for (int layout = SAKER_BSHD; layout <= SAKER_THD; layout++)
        for (int memory = COMPACT; memory <= EXPANDED; memory++)
            for (int k = 0; k < 8; k++) {
                int has = (k & 1 ? INTERLEAVED : 0) | (k & 2 ? NORM | WEIGHTS : 0) | (k & 4 ? IN_PLACE : 0);
                if (memory == EXPANDED && (k & 4 || layout == SAKER_THD))
                    continue;
                foreach (t, floats)
                    both((struct spec){SIZE(2, 37, 4, 2, t == 1 ? 20 : 128), .layout = layout, .memory = memory,
                                       .x = floats[t], .has = has, .table = k & 1 ? 0 : SAKER_BF16, .where = OFFSETS,
                                       .high = 30});
            }
}

static void norms(void)
{
    static const suite_fill fills[] = {SUITE_ZERO, SUITE_CONSTANT,    SUITE_LARGE,   SUITE_HUGE,
                                       SUITE_TINY, SUITE_ALTERNATING, SUITE_ONE_NAN, SUITE_ONE_INF};
    foreach (f, fills)
        foreach (t, floats) {
            if (fills[f] == SUITE_HUGE && floats[t] == SAKER_F16)
                continue;
            for (int has = 0; has < 4; has++)
                forward((struct spec){SIZE(2, 5, 2, 1, 64), .x = floats[t], .fill = fills[f], .has = has,
                                      .table = fills[f] == SUITE_ONE_INF ? SAKER_F32 : 0});
            if (fills[f] != SUITE_HUGE)
                backward((struct spec){SIZE(2, 5, 2, 1, 64), .x = floats[t], .fill = fills[f], .has = NORM | WEIGHTS,
                                       .table = SAKER_F32});
        }
    for (int k = 0; k < 16; k++) { /* what may be left out */
        int has = NORM | (k & 1 ? NO_DQ : 0) | (k & 2 ? NO_DK : 0) | (k & 4 ? WEIGHTS : 0) | (k & 8 ? ACCUMULATE : 0);
        if ((k & 3) == 3 && !(k & 4))
            continue;
        backward((struct spec){SIZE(2, 19, 3, 2, 64), .x = SAKER_BF16, .has = has, .w = k & 4 ? SAKER_F32 : 0});
        backward((struct spec){SIZE(2, 19, 3, 2, 64), .x = SAKER_F32, .has = has, .offset = 1, .eps = 1e-5f});
        backward((struct spec){SIZE(2, 19, 3, 2, 30), .x = SAKER_F16, .has = has | NO_DWEIGHT * !(k & 3)});
    }
    backward((struct spec){SIZE(2, 5, 2, 1, 64), .x = SAKER_F32, .has = NO_DK});
    backward((struct spec){SIZE(2, 5, 2, 1, 64), .x = SAKER_F32, .has = NO_DQ});
    /* Enough for several threads and many parts. */
    both((struct spec){SIZE(2, 700, 8, 2, 128), .x = SAKER_BF16, .has = NORM | WEIGHTS});
    both((struct spec){SIZE(3, 500, 4, 4, 64), .layout = SAKER_BHSD, .x = SAKER_F32, .has = NORM | WEIGHTS});
    both((struct spec){SIZE(3, 900, 6, 1, 128), .x = SAKER_F32, .table = SAKER_F32});
    both((struct spec){SIZE(64, 1, 8, 2, 128), .x = SAKER_BF16, .where = OFFSETS, .high = 5000}); /* decoding */
}

/* The one case with every tensor comes first: wrong arguments are tried on it. */
static void first(void)
{
    both((struct spec){SIZE(3, 4, 4, 2, 16), .layout = SAKER_THD, .where = PACKED_OFFSETS, .x = SAKER_F32, .high = 9,
                       .table = SAKER_F32, .has = NORM | WEIGHTS});
    both((struct spec){SIZE(4, 4, 4, 4, 16), .where = IDS, .x = SAKER_F32, .high = 9, .has = NORM | WEIGHTS});
}

/* ---------------------------------------------------------------- random combinations */

/* Angles from tables, or from base and scaling. */
static void random_angles(struct spec *s, uint64_t *r)
{
    static const double bases[] = {0, 500, 500000}, factors[] = {0, 1.3, 8};
    bool far = suite_draw_once_in(r, 3), placed = s->where == PLACE || s->where == PACKED || s->where == PACKED_SHORT;
    if (suite_draw_once_in(r, 2)) {
        s->table = suite_draw_float(r);
        s->high = placed ? 0 : suite_draw(r, 60);
        if (s->where != PLACE && suite_draw_once_in(r, 4)) { /* a table that ends before the positions do */
            s->rows = 1 + suite_draw(r, 40);
            s->low = s->where == OFFSETS || s->where == IDS || s->where == IDS32 ? -20 : 0;
        }
        return;
    }
    if (!placed) {
        s->high = 1 + suite_draw(r, far ? 1000000 : 1000);
        s->low = suite_draw_once_in(r, 3) ? -s->high : 0;
    }
    s->base = bases[suite_draw(r, 3)];
    s->attention = suite_draw_once_in(r, 3) ? 1.25f : 0;
    s->scaling = suite_draw_once_in(r, 2) ? 1 + suite_draw(r, SAKER_ROPE_LLAMA3) : SAKER_ROPE_NONE;
    s->factor = s->scaling ? factors[suite_draw(r, 3)] : 0;
    s->length = s->scaling >= SAKER_ROPE_YARN ? 1 + suite_draw(r, 10000) : 0;
    if (s->length && suite_draw_once_in(r, 2)) {
        s->slow = 1 + (float)suite_draw(r, 4) / 2;
        s->fast = s->slow + 1 + (float)suite_draw(r, 30);
    }
    if (s->scaling == SAKER_ROPE_YARN && suite_draw_once_in(r, 2))
        s->has |= NO_TRUNCATE;
}

/* What both directions have. */
static struct spec random_spec(int number, uint64_t *r)
{
    static const suite_fill fills[] = {SUITE_ZERO, SUITE_CONSTANT, SUITE_TINY, SUITE_ALTERNATING, SUITE_ONE_NAN};
    static const int64_t sizes[] = {2, 8, 16, 64, 72, 80, 128, 192, 256};
    struct spec s = {.random = 1 + number, .layout = suite_draw(r, 3)};
    s.x = suite_draw_float(r);
    bool packed = s.layout == SAKER_THD;
    s.where = suite_draw(r, packed ? PACKED_SHORT + 1 : IDS32 + 1);
    s.b = packed ? 1 + suite_draw(r, 4) : suite_draw_once_in(r, 16) ? 0 : 1 + suite_draw(r, 3);
    s.s = suite_draw_once_in(r, 16) && !packed ? 0 : 6 + suite_draw(r, 40); /* what PACKED_SHORT leaves is not empty */
    s.hq = 1 + suite_draw(r, 5);
    s.hk = suite_draw(r, 4);
    s.d = suite_draw_once_in(r, 2) ? sizes[suite_draw(r, 9)] : 2 + suite_draw(r, 150);
    s.r = s.d % 2 || suite_draw_once_in(r, 3) ? 2 + 2 * suite_draw(r, (int)s.d / 2) : 0;
    s.y = suite_draw_near(r, s.x);
    s.w = suite_draw_near(r, s.x);
    s.fill = suite_draw_once_in(r, 4) ? fills[suite_draw(r, 5)] : SUITE_NORMAL;
    s.has = suite_draw_once_in(r, 2) ? INTERLEAVED : 0;
    s.has |= suite_draw_once_in(r, 4) ? IN_PLACE : 0;
    random_angles(&s, r);
    if (suite_draw_once_in(r, 2)) {
        s.has |= suite_draw_once_in(r, 3) ? NORM : NORM | WEIGHTS;
        s.offset = suite_draw_once_in(r, 3) ? 1 : 0;
        s.eps = suite_draw_once_in(r, 3) ? 1e-5f : 0;
    }
    if (suite_draw_once_in(r, 2))
        s.memory = suite_draw(r, packed || s.has & IN_PLACE ? EXPANDED : EXPANDED + 1);
    return s;
}

static void random_forward(int number)
{
    uint64_t r = suite_draws(number);
    forward(random_spec(number, &r));
}

static void random_backward(int number)
{
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    s.dy = suite_draw_near(&r, s.x);
    if (s.has & WEIGHTS && suite_draw_once_in(&r, 4))
        s.has |= NO_DWEIGHT;
    else if (s.has & WEIGHTS && suite_draw_once_in(&r, 3))
        s.has |= ACCUMULATE;
    bool sums = s.has & WEIGHTS && !(s.has & NO_DWEIGHT); /* one output has to be left */
    if ((s.hk || sums) && suite_draw_once_in(&r, 4))
        s.has |= NO_DQ;
    if ((!(s.has & NO_DQ) || sums) && suite_draw_once_in(&r, 4))
        s.has |= NO_DK;
    backward(s);
}

/* ---------------------------------------------------------------- bench */

static void bench(void)
{
    static const saker_type types[] = {SAKER_F32, SAKER_BF16};
    foreach (t, types) {
        int64_t b = t ? 4 : 2;
        struct spec s = {SIZE(b, 8192, 32, 8, 128), .x = types[t], .table = SAKER_F32};
        s.use = SUITE_BENCH | SUITE_BENCH_CUDA | SUITE_DEMO;
        both(s);
        s.use = SUITE_BENCH | SUITE_BENCH_CUDA;
        s.has = NORM | WEIGHTS;
        both(s);
        s.has = INTERLEAVED;
        both(s);
        s.has = 0;
        s.table = 0;
        s.where = IDS;
        s.high = 8191;
        both(s);
        s = (struct spec){SIZE(1, t ? 12 : 6, 32, 8, 128), .x = types[t], .table = SAKER_F32, .use = SUITE_CACHE};
        both(s);
        s.has = NORM | WEIGHTS;
        both(s);
    }
}

static void make(void)
{
    if (forward_list.n)
        return;
    first();
    heads_and_sizes();
    where();
    angles();
    types_and_memory();
    norms();
    for (int i = 0; i < SUITE_RANDOM; i++) {
        random_forward(i);
        random_backward(i);
    }
    bench();
}

bool rope_case(int i, suite_case *out)
{
    make();
    return suite_list_at(&forward_list, i, out);
}

bool rope_backward_case(int i, suite_case *out)
{
    make();
    return suite_list_at(&backward_list, i, out);
}
