/* grouped_gemm_cases_test.c - the cases of grouped_gemm.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gemm_test.h"

typedef struct spec {
    saker_type a, b, d;
    int64_t groups, total, m, n, k; /* along k: total k's, m rows */
    int columns;                    /* b is column-major; along k: a is */
    int gather, scatter;
    saker_type bias, pre, saved, c, zero;
    float alpha, beta;
    int scaling;
    int64_t group;
    int act, gated, along_k;
    bool tf32;
    bool one_b; /* all groups have the same b: its stride over them is 0 */
    int bad;
    int use;
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
    suite_say(c, "%s %s %s %s %lldx%lldx%lldx%lld%s%s%s%s", suite_type_text(s->a), suite_type_text(s->b),
              suite_type_text(s->d), s->along_k ? "k" : "rows", (long long)s->groups, (long long)s->total,
              (long long)s->n, (long long)(s->along_k ? s->m : s->k), s->columns ? " columns" : "",
              s->gather ? " gather" : "", s->scatter ? " scatter" : "", gemm_scaling_text(s->scaling));
    if (s->group)
        suite_say(c, "%lld", (long long)s->group);
    foreach (i, types)
        if (types[i])
            suite_say(c, "%s%s", words[i], suite_type_text(types[i]));
    if (s->alpha != 0 || s->beta != 0)
        suite_say(c, " al%g be%g", (double)s->alpha, (double)s->beta);
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
static void lay_out(suite_tensor *t, int columns)
{
    int last = t->ndim - 1;
    int64_t inner = t->shape[columns ? last - 1 : last], outer = t->shape[columns ? last : last - 1];
    int64_t pitch = inner + (t->type == SAKER_I4 ? inner % 2 : 0);
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

static void add_scales(suite_case *c, const spec *s, int64_t a_rows)
{
    int64_t size = s->group ? s->group : 128, blocks = (s->k + size - 1) / size;
    suite_tensor *a = add_tensor(c, "a_scale", SUITE_IN, SAKER_F32, 1, a_rows, 0, 0);
    suite_tensor *b = add_tensor(c, "b_scale", SUITE_IN, SAKER_F32, 2, s->groups, s->n, 0);
    a->fill = b->fill = SUITE_POSITIVE;
    if (s->scaling == SAKER_GEMM_SCALE_TENSOR) {
        a->shape[0] = 1;
        b->ndim = 0;
    } else if (s->scaling == SAKER_GEMM_SCALE_BLOCK) {
        a->ndim = 2;
        a->shape[1] = blocks;
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
    add_tensor(c, "a", SUITE_IN, s->a, 2, a_rows, s->k, 0);
    suite_tensor *b = add_tensor(c, "b", SUITE_IN, s->b, 3, s->groups, s->k, s->n);
    lay_out(b, s->columns);
    if (s->one_b)
        gemm_expand(b);
    if (s->gather)
        add_indices(c, s, "gather", s->total, -out, a_rows - 1 + out, SUITE_RANGE);
    if (s->scatter)
        add_indices(c, s, "scatter", s->total, out ? -4 : 1, 0, SUITE_MIXED);
    if (s->bias)
        add_tensor(c, "bias", SUITE_IN, s->bias, 2, s->groups, s->n, 0);
    if (s->scaling)
        add_scales(c, s, a_rows);
    if (s->saved)
        add_tensor(c, "saved", SUITE_IN, s->saved, 2, s->total, s->n, 0);
    add_tensor(c, "d", s->scatter ? SUITE_INOUT : SUITE_OUT, s->d, 2, d_rows, columns, 0);
    if (s->pre)
        add_tensor(c, "pre", SUITE_OUT, s->pre, 2, s->total, s->n, 0);
}

static void add_ks(suite_case *c, const spec *s)
{
    lay_out(add_tensor(c, "a", SUITE_IN, s->a, 2, s->m, s->total, 0), s->columns);
    add_tensor(c, "b", SUITE_IN, s->b, 2, s->total, s->n, 0);
    if (s->c)
        add_tensor(c, "c", SUITE_IN, s->c, 3, s->groups, s->m, s->n);
    add_tensor(c, "d", SUITE_OUT, s->d, 3, s->groups, s->m, s->n);
}

static void add(spec s)
{
    suite_case one = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1}, *c = &one;
    bool tma = s.a == s.b && (s.a == SAKER_F16 || s.a == SAKER_BF16) && !s.gather && !s.c && !s.pre && !s.saved &&
               s.gated != SAKER_GATED_INTERLEAVED && s.groups > 0 && s.total > 0 && s.n % (s.gated ? 16 : 8) == 0 &&
               (s.along_k ? s.columns && s.m % 8 == 0 : s.k > 0 && s.k % 8 == 0);
    c->portable_kernel = (s.a == SAKER_F32 && !s.tf32) || s.a == SAKER_I32 || s.zero == SAKER_F32 ? "any" : "mma";
    c->cuda_kernel = tma ? "tma" : c->portable_kernel;
    name_case(&s, c);
    saker_grouped_gemm_args args = {.struct_size = sizeof args,
                                    .group = s.group,
                                    .alpha = s.alpha,
                                    .beta = s.beta,
                                    .scaling = s.scaling,
                                    .act = s.act,
                                    .gated = s.gated,
                                    .along_k = s.along_k,
                                    .allow_tf32 = s.tf32};
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

static const struct {
    saker_type a, b, d;
    int scaling;
    int64_t group;
} types[] = {{SAKER_F32, SAKER_F32, SAKER_F32, 0, 0},   {SAKER_BF16, SAKER_BF16, SAKER_BF16, 0, 0},
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
        bench_cases();
    }
    return suite_list_at(&list, i, out);
}
