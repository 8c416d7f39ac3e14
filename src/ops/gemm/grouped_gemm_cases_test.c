/* grouped_gemm_cases_test.c - the cases of grouped_gemm.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gemm_test.h"

typedef struct spec {
    saker_type a, b, d;
    int64_t groups, total, m, n, k; /* along k: total k's, m rows */
    int columns;                    /* b is column-major; along k: a is */
    bool turned;                    /* all other matrices are */
    int64_t gap;                    /* between the rows of matrices, or columns */
    int gather, scatter;
    saker_type bias, pre, saved, c, zero;
    float alpha, beta;
    int scaling;
    int64_t group;
    int act, gated, along_k;
    bool tf32, fast;
    bool only_a_scale, only_b_scale;
    bool in_place; /* d is c */
    bool one_b;    /* all groups have the same b: its stride over them is 0 */
    int bad;
    int use;
    int random; /* 1 and the number of a random combination; 0: none */
} spec;
/* bad: offsets and indices outside; indices only; those of scatter only, for d has no rows; sound ones, but the first
 * and the last rows are in no group. */
enum { OUTSIDE = 1, INDICES, NO_D, NO_GROUP };

static suite_list list;

/* One of the two that indices may have. */
static saker_type index_type(const spec *s)
{
    return (s->groups + s->total) % 2 ? SAKER_I32 : SAKER_I64;
}

static void name_case(const spec *s, suite_case *c)
{
    const saker_type types[] = {s->bias, s->pre, s->saved, s->c, s->zero};
    static const char *const words[] = {" b", " pre", " saved", " c", " z"};
    static const char *const bad[] = {"", " bad", " outside", " no rows of d", " rows of no group"};
    suite_say_random(c, s->random);
    suite_say(c, "%s %s %s %s %lldx%lldx%lldx%lld%s%s%s%s", suite_type_text(s->a), suite_type_text(s->b),
              suite_type_text(s->d), s->along_k ? "k" : "rows", (long long)s->groups, (long long)s->total,
              (long long)s->n, (long long)(s->along_k ? s->m : s->k), s->columns ? " columns" : "",
              s->gather ? " gather" : "", s->scatter ? " scatter" : "", gemm_scaling_text(s->scaling));
    if (s->group)
        suite_say(c, "%lld", (long long)s->group);
    suite_say(c, "%s", s->only_a_scale ? " a" : s->only_b_scale ? " b" : "");
    foreach (i, types)
        if (types[i])
            suite_say(c, "%s%s", words[i], suite_type_text(types[i]));
    if (s->alpha != 0 || s->beta != 0)
        suite_say(c, " al%g be%g", (double)s->alpha, (double)s->beta);
    suite_say(c, "%s%s%s", s->in_place ? " =d" : "", s->turned ? " turned" : "", s->fast ? " fast" : "");
    if (s->gap)
        suite_say(c, " gap%lld", (long long)s->gap);
    suite_say(c, "%s%s%s%s", gemm_act_text(s->act), gemm_gated_text(s->gated),
              s->tf32    ? " tf32"
              : s->one_b ? " one b"
                         : "",
              bad[s->bad]);
}

static suite_tensor *add_tensor(suite_case *c, const char *field, suite_role role, saker_type type, int ndim,
                                int64_t d0, int64_t d1, int64_t d2)
{
    suite_tensor *t = gemm_add(c, field, role, type, SUITE_NORMAL);
    t->ndim = ndim;
    t->shape[0] = d0, t->shape[1] = d1, t->shape[2] = d2;
    return t;
}

/* The last two dimensions change places in memory; an i4 row begins at a whole byte. */
static void lay_out(suite_tensor *t, int columns, int64_t gap)
{
    int last = t->ndim - 1;
    int64_t inner = t->shape[columns ? last - 1 : last], outer = t->shape[columns ? last : last - 1];
    int64_t pitch = inner + gap + (t->type == SAKER_I4 ? (inner + gap) % 2 : 0);
    if (!columns && pitch == inner)
        return;
    t->stride[last] = columns ? pitch : 1;
    t->stride[last - 1] = columns ? 1 : pitch;
    if (t->ndim == 3)
        t->stride[0] = outer * pitch;
}

static void add_indices(suite_case *c, const spec *s, const char *field, int64_t n, int64_t low, int64_t high,
                        suite_fill fill)
{
    suite_tensor *t = add_tensor(c, field, SUITE_IN, index_type(s), 1, n, 0, 0);
    t->fill = fill;
    t->low = low;
    t->high = high;
}

static int64_t scale_blocks(const spec *s)
{
    int64_t size = s->group ? s->group : 128;
    return (s->k + size - 1) / size;
}

static void add_a_scale(suite_case *c, const spec *s, int64_t a_rows)
{
    int64_t rows = s->scaling == SAKER_GEMM_SCALE_TENSOR ? 1 : a_rows;
    suite_tensor *a = add_tensor(c, "a_scale", SUITE_IN, SAKER_F32, s->scaling == SAKER_GEMM_SCALE_BLOCK ? 2 : 1, rows,
                                 s->scaling == SAKER_GEMM_SCALE_BLOCK ? scale_blocks(s) : 0, 0);
    a->fill = SUITE_POSITIVE;
}

static void add_b_scale(suite_case *c, const spec *s)
{
    int64_t blocks = scale_blocks(s);
    suite_tensor *b = add_tensor(c, "b_scale", SUITE_IN, SAKER_F32, 2, s->groups, s->n, 0);
    b->fill = SUITE_POSITIVE;
    if (s->scaling == SAKER_GEMM_SCALE_TENSOR) {
        b->ndim = 0;
    } else if (s->scaling == SAKER_GEMM_SCALE_BLOCK) {
        b->ndim = 3;
        b->shape[1] = blocks;
        b->shape[2] = (s->n + 127) / 128;
    } else if (s->scaling == SAKER_GEMM_SCALE_GROUP) {
        b->ndim = 3;
        b->shape[1] = blocks;
        b->shape[2] = s->n;
    }
    if (s->zero)
        add_tensor(c, "b_zero", SUITE_IN, s->zero, 3, s->groups, blocks, s->n);
}

static void add_rows(suite_case *c, const spec *s)
{
    int64_t a_rows = s->gather && s->total ? s->total / 2 + 3 : s->total;
    int64_t d_rows = s->bad == NO_D ? 0 : s->scatter ? s->total + 3 : s->total;
    int64_t columns = s->gated ? s->n / 2 : s->n;
    int out = s->bad == OUTSIDE || s->bad == INDICES ? 2 : 0;
    lay_out(add_tensor(c, "a", SUITE_IN, s->a, 2, a_rows, s->k, 0), s->turned, s->gap);
    suite_tensor *b = add_tensor(c, "b", SUITE_IN, s->b, 3, s->groups, s->k, s->n);
    lay_out(b, s->columns, s->gap);
    if (s->one_b)
        gemm_expand(b);
    if (s->gather)
        add_indices(c, s, "gather", s->total, -out, a_rows - 1 + out, SUITE_RANGE);
    if (s->scatter)
        add_indices(c, s, "scatter", s->total, out ? -4 : 1, 0, SUITE_MIXED);
    if (s->bias)
        lay_out(add_tensor(c, "bias", SUITE_IN, s->bias, 2, s->groups, s->n, 0), false, s->gap);
    if (s->scaling && !s->only_b_scale)
        add_a_scale(c, s, a_rows);
    if (s->scaling && !s->only_a_scale)
        add_b_scale(c, s);
    if (s->saved)
        lay_out(add_tensor(c, "saved", SUITE_IN, s->saved, 2, s->total, s->n, 0), s->turned, s->gap);
    suite_role role = s->scatter ? SUITE_INOUT : SUITE_OUT;
    lay_out(add_tensor(c, "d", role, s->d, 2, d_rows, columns, 0), s->turned, s->gap);
    if (s->pre)
        lay_out(add_tensor(c, "pre", SUITE_OUT, s->pre, 2, s->total, s->n, 0), s->turned, s->gap);
}

static void add_ks(suite_case *c, const spec *s)
{
    lay_out(add_tensor(c, "a", SUITE_IN, s->a, 2, s->m, s->total, 0), s->columns, s->gap);
    lay_out(add_tensor(c, "b", SUITE_IN, s->b, 2, s->total, s->n, 0), s->turned, s->gap);
    if (s->c)
        lay_out(add_tensor(c, "c", SUITE_IN, s->c, 3, s->groups, s->m, s->n), s->turned, s->gap);
    suite_tensor *d = add_tensor(c, "d", SUITE_OUT, s->d, 3, s->groups, s->m, s->n);
    lay_out(d, s->turned, s->gap);
    d->alias = s->in_place ? "c" : NULL;
}

static void add(spec s)
{
    suite_case one = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1}, *c = &one;
    bool tma = s.a == s.b && (s.a == SAKER_F16 || s.a == SAKER_BF16) && !s.gather && !s.c && !s.pre && !s.saved &&
               s.gated != SAKER_GATED_INTERLEAVED && s.groups > 0 && s.total > 0 && s.n % (s.gated ? 16 : 8) == 0 &&
               (s.along_k ? s.columns && s.m % 8 == 0 : s.k > 0 && s.k % 8 == 0);
    c->portable_kernel = (s.a == SAKER_F32 && !s.tf32) || s.a == SAKER_I32 || s.zero == SAKER_F32 ? "any" : "mma";
    c->cuda_kernel = tma ? "tma" : c->portable_kernel;
    if (s.random)
        c->cuda_kernel = c->portable_kernel = NULL;
    name_case(&s, c);
    saker_grouped_gemm_args args = {.struct_size = sizeof args,
                                    .group = s.group,
                                    .alpha = s.alpha,
                                    .beta = s.beta,
                                    .scaling = s.scaling,
                                    .act = s.act,
                                    .gated = s.gated,
                                    .along_k = s.along_k,
                                    .allow_tf32 = s.tf32,
                                    .fast_accum = s.fast};
    memcpy(c->args, &args, sizeof args);
    (s.along_k ? add_ks : add_rows)(c, &s);
    int beyond = s.bad == OUTSIDE ? 3 : s.bad == NO_GROUP ? -3 : 0;
    add_indices(c, &s, "offsets", s.groups + 1, -beyond, s.total + beyond, SUITE_CUTS);
    c->check = s.bad == OUTSIDE ? SUITE_ANY_CHECK : s.bad ? SAKER_BAD_INDEX : SAKER_OK;
    if (s.groups == 0) /* the one offset is 0, and not T */
        c->check = SUITE_ANY_CHECK;
    c->flops = 2.0 * (double)s.total * (double)s.n * (double)(s.along_k ? s.m : s.k);
    c->bytes = suite_all_bytes(c);
    suite_list_add(&list, c);
}

static const pair types[] = {{SAKER_F32, SAKER_F32, SAKER_F32, 0, 0},   {SAKER_BF16, SAKER_BF16, SAKER_BF16, 0, 0},
                             {SAKER_F16, SAKER_F16, SAKER_F32, 0, 0},   {SAKER_E4M3, SAKER_E4M3, SAKER_BF16, 3, 0},
                             {SAKER_E4M3, SAKER_E5M2, SAKER_F32, 1, 0}, {SAKER_I8, SAKER_I8, SAKER_I32, 0, 0},
                             {SAKER_I8, SAKER_I8, SAKER_BF16, 2, 0},    {SAKER_BF16, SAKER_I4, SAKER_BF16, 4, 32},
                             {SAKER_I8, SAKER_I4, SAKER_F32, 4, 64},    {SAKER_I32, SAKER_I32, SAKER_I32, 0, 0},
                             {SAKER_F32, SAKER_F32, SAKER_F16, 2, 0}};

static void full_cases(void)
{
    spec s = {.a = SAKER_F16, .b = SAKER_I4, .d = SAKER_F32, .groups = 5, .total = 9, .n = 8, .k = 12};
    s.scaling = SAKER_GEMM_SCALE_GROUP;
    s.group = 3;
    s.zero = s.bias = s.pre = s.saved = SAKER_F32;
    s.gather = s.scatter = 1;
    s.act = SAKER_ACT_SILU;
    add(s);
    add((spec){.a = SAKER_F32,
               .b = SAKER_F32,
               .d = SAKER_F32,
               .groups = 4,
               .total = 11,
               .m = 5,
               .n = 6,
               .along_k = 1,
               .c = SAKER_F32,
               .beta = 0.5f});
}

static void row_cases(void)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},       {3, 0, 5, 7},      {2, 5, 9, 13},    {4, 30, 26, 70},
                                       {7, 33, 72, 0},     {6, 300, 34, 530}, {40, 25, 14, 33}, {3, 40, 150, 1100},
                                       {3, 400, 264, 136}, {300, 70, 16, 24}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int way = 0; way < 4; way++) {
                spec s = {.a = types[i].a, .b = types[i].b, .d = types[i].d, .scaling = types[i].scaling};
                s.group = types[i].group;
                s.groups = sizes[k][0];
                s.total = sizes[k][1];
                s.n = sizes[k][2];
                s.k = sizes[k][3];
                s.columns = way & 1;
                s.gather = way >> 1;
                s.scatter = (int)(k + (size_t)way) % 3 == 0;
                add(s);
                if (s.d == SAKER_I32)
                    continue;
                s.n += s.n % 2;
                s.gated = way % 3;
                s.act = SAKER_ACT_SILU;
                s.bias = SAKER_BF16;
                s.pre = SAKER_F32;
                s.alpha = 0.5f;
                add(s);
            }
    for (int i = 0; i < 2; i++) {
        spec s = {.a = types[i].a, .b = types[i].b, .d = types[i].d, .groups = 5, .total = 20, .n = 10, .k = 24};
        s.bad = OUTSIDE;
        add(s);
        s.gather = 1;
        add(s);
        s.scatter = 1;
        add(s);
        s.pre = SAKER_F32;
        add(s);
        s.bad = NO_GROUP; /* zeros in pre, and in d where rows are not scattered */
        add(s);
        s.scatter = s.gather = 0;
        add(s);
        s.scatter = 1;
        add(s);
        s.bad = NO_D;
        add(s);
        s.pre = 0;
        add(s);
        s.scatter = 0;
        s.gather = 1;
        s.bad = INDICES;
        s.total = 60;
        s.k = 0; /* no step of k reads a, or gather */
        add(s);
        s.bias = s.pre = SAKER_F32;
        add(s);
        s.k = 24; /* a row outside is one of zeros: act(bias) */
        add(s);
        s.bias = s.pre = 0;
        s.total = 20;
        s.bad = 0;
        s.groups = 0;
        s.scatter = 0;
        add(s);
        s.groups = 3;
        s.saved = types[i].d;
        s.act = SAKER_ACT_GELU;
        add(s);
    }
}

/* Hopper's kernel: every option it has, more steps than stages, more tiles than blocks, groups without a row. */
static void tma_cases(void)
{
    static const saker_type halves[] = {SAKER_F16, SAKER_BF16};
    for (int i = 0; i < 4; i++) {
        spec s = {.a = halves[i / 2], .b = halves[i / 2], .groups = 3, .total = 400, .n = 272, .k = 136};
        s.columns = i % 2;
        s.d = halves[1 - i / 2];
        s.bias = SAKER_F32;
        s.act = SAKER_ACT_GELU;
        add(s);
        s.scatter = 1;
        s.gated = SAKER_GATED_HALVES;
        s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
        add(s);
        s.d = SAKER_F32;
        s.k = 648;
        s.scatter = s.bias = 0;
        s.alpha = 0.5f;
        add(s);
        add((spec){.a = s.a, .b = s.b, .d = s.a, .groups = 40, .total = 300, .n = 1040, .k = 72, .columns = s.columns});
        s = (spec){.a = s.a, .b = s.b, .d = s.a, .groups = 4, .total = 270, .n = 24, .k = 72, .columns = s.columns};
        s.one_b = true;
        add(s);
        add((spec){.a = s.a, .b = s.b, .d = s.a, .groups = 50, .total = 7, .n = 24, .k = 8, .columns = s.columns});
        /* Groups of k's: most without one; ends inside and at the end of a step; more steps than stages. */
        s = (spec){.a = s.a, .b = s.b, .d = s.a, .along_k = 1, .columns = 1, .alpha = 0.5f};
        s.groups = i % 2 ? 40 : 3, s.total = i % 2 ? 25 : 1600, s.m = i % 2 ? 72 : 200, s.n = i % 2 ? 24 : 392;
        add(s);
        s.d = SAKER_F32;
        s.groups = 1, s.total = 128;
        add(s);
    }
    /* Several tiles for a block, each of more steps than stages: of rows and of k's. */
    add((spec){.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .groups = 150, .total = 300, .n = 136, .k = 520});
    spec s = {.a = SAKER_F16, .b = SAKER_F16, .d = SAKER_F16, .groups = 140, .total = 60000, .n = 136, .m = 40};
    s.along_k = s.columns = 1;
    add(s);
}

static void k_cases(void)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},      {3, 0, 5, 7},      {2, 5, 9, 13},
                                       {4, 30, 26, 70},   {6, 1300, 34, 20}, {40, 25, 14, 33},
                                       {3, 2500, 50, 40}, {2, 70, 300, 140}, {3, 400, 136, 264}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            if (types[i].scaling)
                continue;
            spec s = {.a = types[i].a, .b = types[i].b, .d = types[i].d, .along_k = 1};
            s.groups = sizes[k][0];
            s.total = sizes[k][1];
            s.n = sizes[k][2];
            s.m = sizes[k][3];
            add(s);
            s.columns = 1;
            s.bad = k % 2 == 0;
            add(s);
            s.c = s.d;
            s.beta = 1;
            s.bad = 0;
            add(s);
        }
}

static void tf32_cases(void)
{
    for (int i = 0; i < 8; i++) {
        spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .groups = 3, .total = 300, .n = 140, .tf32 = true};
        s.k = s.m = i < 4 ? 72 : 137;
        s.along_k = i & 1;
        s.columns = i >> 1 & 1;
        s.gather = s.scatter = i > 3 && !s.along_k;
        add(s);
    }
}

static void draw_rows(spec *s, uint64_t *r)
{
    s->gather = suite_draw_once_in(r, 3);
    s->scatter = suite_draw_once_in(r, 3);
    s->one_b = suite_draw_once_in(r, 10);
    s->bias = suite_draw_once_in(r, 3) ? gemm_random_type(r, s->d) : 0;
    s->pre = suite_draw_once_in(r, 4) ? gemm_random_type(r, s->d) : 0;
    if (s->scaling) {
        int which = suite_draw(r, 4);
        s->only_a_scale = which == 0;
        s->only_b_scale = which == 1;
        if (s->group && !s->only_a_scale && suite_draw_once_in(r, 2))
            s->zero = suite_draw_once_in(r, 2) ? SAKER_I8 : SAKER_F32;
    }
    if (s->d == SAKER_I32)
        return;
    s->gated = suite_draw_once_in(r, 3) ? 1 + suite_draw(r, 2) : 0;
    s->n += s->gated ? s->n % 2 : 0;
    s->act = suite_draw(r, SAKER_ACT_SWIGLU_OAI + (s->gated ? 1 : 0));
    s->saved = !s->gated && suite_draw_once_in(r, 6) ? suite_draw_float(r) : 0;
}

/* total is that of k's: what was drawn for k is m. */
static void draw_ks(spec *s, uint64_t *r)
{
    static const float betas[] = {0, 1, 0.5f, -0.75f};
    s->along_k = 1;
    s->m = s->k ? s->k : 1;
    s->k = 0;
    if (!suite_draw_once_in(r, 2))
        return;
    s->c = gemm_random_type(r, s->d);
    s->beta = betas[suite_draw(r, s->d == SAKER_I32 ? 2 : 4)];
    s->in_place = s->c == s->d && suite_draw_once_in(r, 2);
}

/* Combinations that nobody thought of: only such as saker.h allows, the same in every run. */
static spec random_spec(int number)
{
    static const float alphas[] = {0, 1, 0.5f, -0.75f};
    uint64_t r = suite_draws(number);
    pair p = gemm_random_pair(&r);
    spec s = {.random = number + 1, .a = p.a, .b = p.b, .d = p.d, .scaling = p.scaling, .group = p.group};
    s.groups = suite_draw_once_in(&r, 8) ? 20 + suite_draw(&r, 30) : 1 + suite_draw(&r, 7);
    s.total = suite_draw(&r, suite_draw_once_in(&r, 4) ? 300 : 60);
    s.n = gemm_random_size(&r);
    s.k = suite_draw_once_in(&r, 20) ? 0 : suite_draw_once_in(&r, 8) ? 200 + suite_draw(&r, 700) : gemm_random_size(&r);
    s.gap = suite_draw_once_in(&r, 3) ? 1 + suite_draw(&r, 16) : 0;
    s.columns = suite_draw(&r, 2);
    if (suite_draw_once_in(&r, 2)) { /* as the copy engine of a GPU wants them */
        s.n = (s.n + 15) / 16 * 16;
        s.k = (s.k + 7) / 8 * 8;
        s.gap = s.gap / 8 * 8;
    } else {
        s.turned = suite_draw_once_in(&r, 4);
    }
    s.alpha = s.d == SAKER_I32 ? 0 : alphas[suite_draw(&r, 4)];
    s.tf32 = suite_draw_once_in(&r, 2) && s.a == SAKER_F32;
    s.fast = suite_draw_once_in(&r, 4) && (s.a == SAKER_E4M3 || s.a == SAKER_E5M2);
    if (s.total >= 8 && suite_draw_once_in(&r, 8))
        s.bad = suite_draw_once_in(&r, 2) ? OUTSIDE : NO_GROUP;
    (!s.scaling && suite_draw_once_in(&r, 3) ? draw_ks : draw_rows)(&s, &r);
    return s;
}

static void random_cases(void)
{
    for (int i = 0; i < 600; i++)
        add(random_spec(i));
}

static void bench_cases(void)
{
    static const saker_type fast[] = {SAKER_F32, SAKER_BF16};
    for (int i = 0; i < 2; i++) {
        spec s = {.a = fast[i], .b = fast[i], .d = fast[i], .groups = 16, .total = 2048, .n = 1024, .k = 1024};
        s.columns = 1;
        s.use = SUITE_BENCH;
        add(s);
        s.gather = 1;
        add(s);
        s.gather = 0;
        s.along_k = 1;
        s.m = 1024;
        add(s);
    }
}

bool grouped_gemm_case_at(int i, suite_case *out)
{
    if (!list.n) {
        full_cases();
        row_cases();
        tma_cases();
        k_cases();
        tf32_cases();
        random_cases();
        bench_cases();
    }
    return suite_list_at(&list, i, out);
}
