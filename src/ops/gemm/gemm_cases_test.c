/* gemm_cases_test.c - the cases of gemm: types, layouts, odd sizes, batches, scales, epilogues; the bench's shapes.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm_test.h"

/* Layouts of a matrix [R, C]: rows, columns, rows with a gap, and with two free strides. */
enum { ROWS, COLS, GAPS, FREE };
/* Batches of (a, b): none; [3] and [3]; [3] and none; none and [3]; [2, 1] and [3]; [0]; [3] with stride 0 and [3]. */
enum { ALONE, BOTH, A_ONLY, B_ONLY, CROSS, EMPTY, EXPANDED };

typedef struct spec {
    saker_type a, b, d;
    int64_t m, n, k;
    int la, lb, ld;
    int batch;
    saker_type c, bias, pre, saved, dbias, zero; /* 0: absent */
    float alpha, beta;
    int scaling;
    int64_t group;
    int act, gated, bias_rows, accumulate, schedule;
    suite_fill fill, c_fill;
    bool in_place; /* d is c */
    bool only_a_scale;
    const char *cuda; /* text of the kernel's name */
    bool tf32;
    int use;
} spec;

static suite_list list;

static void say_type(suite_case *c, const char *word, saker_type type)
{
    if (type)
        suite_say(c, " %s%s", word, suite_type_text(type));
}

static void name_case(const spec *s, suite_case *c)
{
    static const char layouts[] = "rcgf";
    static const char *const batches[] = {"", " batch", " batch a", " batch b", " cross", " no batch", " expanded"};
    static const char *const schedules[] = {"", " whole", " persistent", " split", " stream"};
    suite_say(c, "%s %s %s %lldx%lldx%lld %c%c%c%s%s", suite_type_text(s->a), suite_type_text(s->b),
              suite_type_text(s->d), (long long)s->m, (long long)s->n, (long long)s->k, layouts[s->la], layouts[s->lb],
              layouts[s->ld], batches[s->batch], gemm_scaling_text(s->scaling));
    if (s->group)
        suite_say(c, "%lld", (long long)s->group);
    suite_say(c, "%s", s->only_a_scale ? " a" : "");
    say_type(c, "z", s->zero);
    if (s->alpha != 0)
        suite_say(c, " al%g", (double)s->alpha);
    if (s->c)
        suite_say(c, " be%g%s%s", (double)s->beta, suite_type_text(s->c), s->in_place ? "=d" : "");
    say_type(c, s->bias_rows ? "bm" : "b", s->bias);
    suite_say(c, "%s%s", gemm_act_text(s->act), gemm_gated_text(s->gated));
    say_type(c, "pre", s->pre);
    say_type(c, "saved", s->saved);
    say_type(c, s->accumulate ? "db+" : "db", s->dbias);
    suite_say(c, "%s%s%s%s", s->tf32 ? " tf32" : "", suite_fill_text(s->fill),
              s->c_fill == SUITE_ONE_NAN ? " nan in c" : "", schedules[s->schedule]);
}

/* ---------------------------------------------------------------- tensors */

suite_tensor *gemm_add(suite_case *c, const char *field, suite_role role, saker_type type, suite_fill fill)
{
    suite_tensor *t = suite_add(c, field, role, type, fill);
    if (type == SAKER_I8 || type == SAKER_I4 || type == SAKER_I32) {
        int64_t top = type == SAKER_I8 ? 127 : type == SAKER_I4 ? 7 : 2147483647;
        t->fill = SUITE_RANGE;
        t->low = -top - 1;
        t->high = top;
    }
    return t;
}

/* rows x cols after the batch dimensions, in a layout. */
static void shape_matrix(suite_tensor *t, int n_lead, const int64_t *lead, int64_t rows, int64_t cols, int layout)
{
    t->ndim = n_lead + 2;
    memcpy(t->shape, lead, (size_t)n_lead * sizeof *lead);
    t->shape[n_lead] = rows;
    t->shape[n_lead + 1] = cols;
    bool nibbles = t->type == SAKER_I4;
    if ((layout == ROWS && !(nibbles && cols % 2)) || rows * cols == 0)
        return;
    int64_t inner = layout == COLS ? rows : cols, outer = layout == COLS ? cols : rows;
    int64_t step = layout == FREE ? 2 : 1, gap = layout >= GAPS ? 4 : 0;
    int64_t pitch = inner * step + gap + (nibbles ? (inner + gap) % 2 : layout == GAPS ? 1 : 0);
    t->stride[n_lead] = layout == COLS ? step : pitch;
    t->stride[n_lead + 1] = layout == COLS ? pitch : step;
    int64_t each = outer * pitch + (layout == FREE);
    each += nibbles ? each % 2 : 0;
    for (int i = n_lead - 1; i >= 0; i--) {
        t->stride[i] = each;
        each *= t->shape[i];
    }
}

static void expand(suite_tensor *t)
{
    int64_t stride[SUITE_MAX_DIMS];
    suite_strides(t, stride);
    memcpy(t->stride, stride, sizeof stride);
    t->stride[0] = 0;
}

static void add_scales(suite_case *c, const spec *s, int n_lead, const int64_t *lead)
{
    if (!s->scaling)
        return;
    int64_t block = s->scaling == SAKER_GEMM_SCALE_GROUP ? s->group : 128, blocks = (s->k + block - 1) / block;
    suite_tensor *a = gemm_add(c, "a_scale", SUITE_IN, SAKER_F32, SUITE_POSITIVE);
    suite_tensor *b = s->only_a_scale ? NULL : gemm_add(c, "b_scale", SUITE_IN, SAKER_F32, SUITE_POSITIVE);
    if (s->scaling == SAKER_GEMM_SCALE_TENSOR) {
        a->ndim = 1;
        a->shape[0] = 1;
        if (b)
            *b = (suite_tensor){.field = "b_scale", .type = SAKER_F32, .fill = SUITE_POSITIVE};
    } else if (s->scaling == SAKER_GEMM_SCALE_BLOCK) {
        shape_matrix(a, n_lead, lead, s->m, blocks, COLS);
        if (b)
            shape_matrix(b, 0, lead, blocks, (s->n + 127) / 128, ROWS);
    } else {
        a->ndim = n_lead + 1;
        memcpy(a->shape, lead, (size_t)n_lead * sizeof *lead);
        a->shape[n_lead] = s->m;
        if (b && s->scaling == SAKER_GEMM_SCALE_ROW_COLUMN) {
            b->ndim = 1;
            b->shape[0] = s->n;
            b->stride[0] = 2;
        } else if (b) {
            shape_matrix(b, 0, lead, blocks, s->n, s->lb == COLS ? COLS : ROWS);
        }
    }
    if (s->zero) {
        suite_tensor *z = gemm_add(c, "b_zero", SUITE_IN, s->zero, SUITE_NORMAL);
        shape_matrix(z, 0, lead, blocks, s->n, ROWS);
        if (s->zero == SAKER_I8) {
            z->low = -8;
            z->high = 7;
        }
    }
}

static void add_vector(suite_case *c, const char *field, suite_role role, saker_type type, int64_t n, int64_t stride)
{
    suite_tensor *t = gemm_add(c, field, role, type, SUITE_NORMAL);
    t->ndim = 1;
    t->shape[0] = n;
    t->stride[0] = stride;
}

static void add(spec s)
{
    suite_case one = {.use = s.use ? s.use : SUITE_CHECK, .cuda_kernel = s.cuda}, *c = &one;
    c->portable_kernel = s.tf32 ? NULL : s.cuda && strstr(s.cuda, "tma") ? "mma" : s.cuda;
    name_case(&s, c);
    if (s.m <= 16)
        c->cpu_kernel = "skinny";
    saker_gemm_args args = {.struct_size = sizeof args,
                            .group = s.group,
                            .alpha = s.alpha,
                            .beta = s.beta,
                            .scaling = s.scaling,
                            .act = s.act,
                            .gated = s.gated,
                            .bias_rows = s.bias_rows,
                            .accumulate = s.accumulate,
                            .allow_tf32 = s.tf32,
                            .schedule = s.schedule};
    memcpy(c->args, &args, sizeof args);
    static const struct {
        int na, nb, nd;
        int64_t a[2], b[2], d[2];
    } batches[] = {{0, 0, 0, {0}, {0}, {0}}, {1, 1, 1, {3}, {3}, {3}},       {1, 0, 1, {3}, {0}, {3}},
                   {0, 1, 1, {0}, {3}, {3}}, {2, 1, 2, {2, 1}, {3}, {2, 3}}, {1, 1, 1, {0}, {0}, {0}},
                   {1, 1, 1, {3}, {3}, {3}}};
    bool b_first = s.n == 0; /* the runner takes the first tensor as a sign of work to do */
    if (!b_first)
        shape_matrix(gemm_add(c, "a", SUITE_IN, s.a, s.fill), batches[s.batch].na, batches[s.batch].a, s.m, s.k, s.la);
    suite_tensor *b =
        gemm_add(c, "b", SUITE_IN, s.b, s.fill == SUITE_ONE_NAN || s.fill == SUITE_ONE_INF ? SUITE_NORMAL : s.fill);
    shape_matrix(b, batches[s.batch].nb, batches[s.batch].b, s.k, s.n, s.lb);
    if (b_first)
        shape_matrix(gemm_add(c, "a", SUITE_IN, s.a, s.fill), batches[s.batch].na, batches[s.batch].a, s.m, s.k, s.la);
    if (s.batch == EXPANDED)
        expand(&c->tensor[0]);
    int nd = batches[s.batch].nd;
    const int64_t *lead = batches[s.batch].d;
    if (s.c)
        shape_matrix(gemm_add(c, "c", SUITE_IN, s.c, s.c_fill), s.in_place ? nd : 0, lead, s.m, s.n,
                     s.in_place     ? s.ld
                     : s.la == ROWS ? ROWS
                                    : COLS);
    if (s.bias)
        add_vector(c, "bias", SUITE_IN, s.bias, s.bias_rows ? s.m : s.n, s.la == FREE ? 3 : 0);
    add_scales(c, &s, batches[s.batch].na, batches[s.batch].a);
    if (s.saved)
        shape_matrix(gemm_add(c, "saved", SUITE_IN, s.saved, SUITE_NORMAL), nd, lead, s.m, s.n, s.ld);
    suite_tensor *d = gemm_add(c, "d", SUITE_OUT, s.d, SUITE_NORMAL);
    shape_matrix(d, nd, lead, s.m, s.gated ? s.n / 2 : s.n, s.ld);
    d->alias = s.in_place ? "c" : NULL;
    if (s.pre)
        shape_matrix(gemm_add(c, "pre", SUITE_OUT, s.pre, SUITE_NORMAL), nd, lead, s.m, s.n, ROWS);
    if (s.dbias)
        add_vector(c, "dbias", s.accumulate ? SUITE_INOUT : SUITE_OUT, s.dbias, s.n, 0);
    c->flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    c->bytes = suite_all_bytes(c);
    c->reads = 1;
    c->writes = s.m > 16 ? 1 : 0;
    suite_list_add(&list, c);
}

/* ---------------------------------------------------------------- lists */

typedef struct pair {
    saker_type a, b, d;
    int scaling;
    int64_t group;
} pair;

/* Every pair of types, with the scaling that it needs. */
static const pair pairs[] = {{SAKER_F32, SAKER_F32, SAKER_F32, 0, 0},    {SAKER_F16, SAKER_F16, SAKER_F16, 0, 0},
                             {SAKER_BF16, SAKER_BF16, SAKER_BF16, 0, 0}, {SAKER_BF16, SAKER_BF16, SAKER_F32, 0, 0},
                             {SAKER_E4M3, SAKER_E4M3, SAKER_BF16, 1, 0}, {SAKER_E5M2, SAKER_E4M3, SAKER_F32, 2, 0},
                             {SAKER_E4M3, SAKER_E5M2, SAKER_F32, 3, 0},  {SAKER_E5M2, SAKER_E5M2, SAKER_F16, 0, 0},
                             {SAKER_I8, SAKER_I8, SAKER_I32, 0, 0},      {SAKER_I8, SAKER_I8, SAKER_BF16, 2, 0},
                             {SAKER_I8, SAKER_I8, SAKER_F32, 3, 0},      {SAKER_I32, SAKER_I32, SAKER_I32, 0, 0},
                             {SAKER_BF16, SAKER_I8, SAKER_BF16, 4, 32},  {SAKER_BF16, SAKER_I4, SAKER_F32, 4, 64},
                             {SAKER_F16, SAKER_I4, SAKER_F32, 4, 24},    {SAKER_F16, SAKER_I8, SAKER_F16, 4, 128},
                             {SAKER_I8, SAKER_I4, SAKER_F32, 4, 32}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static spec of_pair(int i, int64_t m, int64_t n, int64_t k)
{
    const pair *p = &pairs[i];
    return (spec){.a = p->a, .b = p->b, .d = p->d, .m = m, .n = n, .k = k, .scaling = p->scaling, .group = p->group};
}

/* First, what the wrong-argument tests start from: all fields, no dimension below 4. */
static void full_cases(void)
{
    spec s = {.a = SAKER_F16, .b = SAKER_I4, .d = SAKER_F32, .m = 5, .n = 8, .k = 12, .scaling = 4, .group = 3};
    s.zero = SAKER_F32;
    s.c = SAKER_F32;
    s.beta = 0.5f;
    s.bias = SAKER_F32;
    s.pre = s.saved = s.dbias = SAKER_F32;
    s.act = SAKER_ACT_SILU;
    add(s);
    s.batch = BOTH;
    s.a = SAKER_BF16;
    s.b = SAKER_I8;
    s.zero = SAKER_I8;
    s.alpha = -1.5f;
    s.accumulate = 1;
    s.dbias = SAKER_BF16;
    add(s);
    add((spec){.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 5, .n = 6, .k = 7});
}

static void size_cases(void)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {1, 1, 5},     {2, 3, 4},     {3, 1, 9},    {7, 5, 3},
                                       {8, 12, 16}, {9, 13, 17},   {16, 24, 64},  {17, 33, 65}, {1, 37, 130},
                                       {37, 1, 70}, {12, 31, 127}, {33, 34, 257}, {70, 50, 40}};
    for (int i = 0; i < N_PAIRS; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            add(of_pair(i, sizes[k][0], sizes[k][1], sizes[k][2]));
    for (int64_t n = 1; n <= 40; n++) { /* every tail of every tile */
        add((spec){.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = n, .n = 41 - n, .k = n});
        add((spec){.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_F32, .m = n, .n = n + 1, .k = 2 * n});
        add((spec){.a = SAKER_I8, .b = SAKER_I8, .d = SAKER_I32, .m = n + 2, .n = n, .k = 3 * n});
    }
    /* More than one k block, and more than one task. */
    static const int64_t long_k[] = {511, 512, 513, 1030, 2100, 4099};
    for (int i = 0; i < N_PAIRS; i++)
        for (int k = 0; k < 6; k++) {
            add(of_pair(i, 3, 14, long_k[k]));
            if (k == 3 || k == 5)
                add(of_pair(i, 35, 40, long_k[k]));
        }
    add(of_pair(0, 300, 150, 600));
    add(of_pair(2, 150, 300, 1100));
    add(of_pair(8, 140, 410, 2060));
    for (int i = 0; i < 36; i++) { /* few rows read b as it lies, here in long streams */
        spec s = of_pair((int[]){0, 3, 8}[i % 3], i < 30 ? i / 6 + 1 : 8, 539, 1030);
        s.lb = i / 3 % 2 ? COLS : ROWS;
        add(s);
    }
    for (int i = 12; i < N_PAIRS; i++)
        add(of_pair(i, 140, 410, 260));
}

static void layout_cases(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        for (int l = 0; l < 27; l++) {
            spec s = of_pair(i, 18, 29, 37);
            s.la = l % 3;
            s.lb = l / 3 % 3;
            s.ld = l / 9;
            if (s.ld == 0 || l % 4 == 0)
                add(s);
            s.m = 5;
            s.k = 70;
            if (s.ld == 0)
                add(s);
            s.m = 40;
            s.n = 3;
            if (l % 3 == 0)
                add(s);
        }
    for (int i = 0; i < 4; i++) {
        spec s = of_pair(i, 19, 21, 23);
        s.la = s.lb = s.ld = FREE;
        s.bias = SAKER_F32;
        add(s);
    }
}

static void edge_cases(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        spec s = of_pair(i, 5, 7, 0); /* K = 0 */
        add(s);
        s.c = s.d == SAKER_I32 ? SAKER_I32 : SAKER_F32;
        s.beta = 1;
        s.bias = s.c;
        add(s);
        add(of_pair(i, 0, 7, 9));
        add(of_pair(i, 5, 0, 9));
        for (int b = BOTH; b <= EXPANDED; b++) {
            s = of_pair(i, 5, 10, 35);
            s.batch = b;
            add(s);
            s.m = 20;
            s.la = s.lb = COLS;
            add(s);
        }
    }
    static const suite_fill fills[] = {SUITE_ZERO,    SUITE_LARGE,    SUITE_TINY,  SUITE_ALTERNATING, SUITE_ONE_NAN,
                                       SUITE_ONE_INF, SUITE_POSITIVE, SUITE_EDGES, SUITE_OFFSET};
    for (int i = 0; i < 8; i++)
        for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
            if ((pairs[i].a == SAKER_E4M3 || pairs[i].b == SAKER_E4M3) && fills[f] == SUITE_ONE_INF)
                continue;
            spec s = of_pair(i, 9, 14, 133);
            s.fill = fills[f];
            s.d = SAKER_F32;
            add(s);
            s.m = 30;
            add(s);
        }
    for (int f = 0; f < 3; f++) { /* beta 0: c is not read, also when it is NaN */
        spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = 6, .n = 9, .k = 4, .c = floats[f]};
        s.c_fill = SUITE_ONE_NAN;
        add(s);
        s.beta = 2;
        add(s);
        s.c_fill = SUITE_NORMAL;
        s.in_place = true;
        add(s);
        s.m = 33;
        s.batch = BOTH;
        s.ld = GAPS;
        add(s);
    }
    add((spec){.a = SAKER_I8,
               .b = SAKER_I8,
               .d = SAKER_I32,
               .m = 6,
               .n = 9,
               .k = 40,
               .c = SAKER_I32,
               .beta = 1,
               .bias = SAKER_I32,
               .pre = SAKER_I32});
    add((spec){.a = SAKER_I32,
               .b = SAKER_I32,
               .d = SAKER_I32,
               .m = 20,
               .n = 9,
               .k = 40,
               .c = SAKER_I32,
               .beta = 1,
               .bias = SAKER_I32,
               .bias_rows = 1,
               .in_place = true});
}

static void epilogue_cases(void)
{
    for (int act = 0; act <= SAKER_ACT_SWIGLU_OAI; act++)
        for (int f = 0; f < 3; f++)
            for (int m = 4; m <= 20; m += 16) {
                spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = m, .n = 26, .k = 30, .act = act};
                s.bias = floats[(f + 1) % 3];
                s.gated = act == SAKER_ACT_SWIGLU_OAI;
                s.pre = floats[f];
                add(s);
                s.bias_rows = 1;
                s.gated = 2;
                s.lb = COLS;
                add(s);
                s.gated = 1;
                s.c = SAKER_F32;
                s.beta = -0.75f;
                s.k = 1100;
                add(s);
                if (act == SAKER_ACT_SWIGLU_OAI)
                    continue;
                s.k = 30;
                s.gated = 0;
                s.pre = 0;
                s.saved = floats[f];
                s.dbias = floats[(f + 2) % 3];
                add(s);
                s.batch = CROSS;
                s.m = 150;
                s.accumulate = 1;
                s.bias = 0;
                add(s);
            }
    for (int i = 0; i < N_PAIRS; i++) { /* each kind of sums with an epilogue */
        if (pairs[i].d == SAKER_I32)
            continue;
        for (int gated = 0; gated < 3; gated++) {
            spec s = of_pair(i, 11, 28, 260);
            s.act = SAKER_ACT_GELU;
            s.gated = gated;
            s.bias = SAKER_F32;
            s.alpha = 0.5f;
            add(s);
            s.m = 21;
            s.ld = COLS;
            add(s);
        }
    }
    for (int scaling = 1; scaling <= 3; scaling++)
        for (int f = 0; f < 3; f++) {
            spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = 20, .n = 140, .k = 200, .scaling = scaling};
            add(s);
            s.only_a_scale = true;
            add(s);
            s.only_a_scale = false;
            s.batch = A_ONLY;
            s.m = 7;
            add(s);
        }
    for (int i = 12; i < N_PAIRS; i++)
        for (int zero = 0; zero < 2; zero++)
            for (int64_t group = 1; group <= 200; group = group * 5 + 2) {
                spec s = of_pair(i, 10, 22, 150);
                s.group = group;
                s.zero = zero ? SAKER_I8 : SAKER_F32;
                add(s);
                s.m = 24;
                s.lb = COLS;
                add(s);
            }
    spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 8, .n = 8, .k = 8, .schedule = SAKER_GEMM_STREAM_K};
    s.alpha = 1;
    add(s);
}

/* Few rows with weights in groups, k's neighbours: read as they lie where the groups are long. */
static void skinny_group_cases(void)
{
    static const int64_t rows[] = {1, 2, 3, 5, 8}, ks[] = {32, 96, 1056, 2112, 8256}, groups[] = {32, 64, 96, 4096};
    for (int i = 12; i < N_PAIRS; i++)
        for (int r = 0; r < 5; r++)
            for (int k = 0; k < 5; k++) {
                spec s = of_pair(i, rows[r], 9 + 7 * r, ks[k]);
                s.group = groups[(r + k) % 4];
                s.lb = COLS;
                add(s);
            }
}

/* Hopper's tensor cores: what the copy engine takes, in every layout, schedule and epilogue. */
static void tma_cases(void)
{
    static const char *const schedules[] = {"tma", "data-parallel", "persistent", "split-K", "stream-K"};
    static const int64_t sizes[][3] = {{1, 8, 8}, {3, 264, 72}, {64, 256, 64}, {130, 272, 200}, {260, 136, 136}};
    for (int f = 1; f < 3; f++)
        for (int l = 0; l < 4; l++)
            for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++)
                for (int i = 0; i < 5; i++) {
                    spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .la = l & 1, .lb = l >> 1};
                    s.m = l & 1 ? (sizes[i][0] + 7) / 8 * 8 : sizes[i][0];
                    s.n = sizes[i][1];
                    s.k = sizes[i][2];
                    s.schedule = schedule;
                    if (i != 3 && schedule && (schedule != SAKER_GEMM_STREAM_K || l))
                        continue;
                    s.cuda = i == 3 ? schedules[schedule] : l == 2 && i < 2 && !schedule ? "few rows" : "tma";
                    add(s);
                    if (i != 3 || schedule > 1)
                        continue;
                    s.d = SAKER_F32;
                    s.bias = SAKER_BF16;
                    s.act = SAKER_ACT_GELU;
                    add(s);
                    s.d = floats[f];
                    add(s);
                    s.d = SAKER_F32;
                    s.gated = SAKER_GATED_HALVES;
                    s.act = SAKER_ACT_SILU;
                    add(s);
                    s.d = floats[3 - f];
                    s.bias_rows = 1;
                    s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
                    add(s);
                    s.gated = SAKER_GATED_INTERLEAVED;
                    s.pre = SAKER_F32;
                    add(s);
                    s.gated = 0;
                    s.batch = BOTH;
                    s.c = SAKER_F32;
                    s.beta = 0.5f;
                    s.scaling = SAKER_GEMM_SCALE_TENSOR;
                    add(s);
                }
    for (int i = 0; i < 3; i++) { /* more tiles than a GPU holds at once: the cost model takes the largest then */
        spec s = {.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .m = 1032, .n = 4112, .k = 8, .lb = COLS};
        s.cuda = "tma bf16 kk 128x256";
        s.bias = i ? SAKER_BF16 : 0;
        s.act = i ? SAKER_ACT_RELU2 : 0;
        s.gated = i == 2 ? SAKER_GATED_HALVES : 0;
        add(s);
    }
    spec big = {.a = SAKER_F16, .b = SAKER_F16, .d = SAKER_F16, .m = 520, .n = 2056, .k = 136, .lb = COLS};
    big.cuda = "tma f16 kk 128x128";
    add(big);
    for (int i = 0; i < 3; i++) { /* tf32 */
        spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 130, .n = 272, .k = 200, .lb = COLS};
        s.tf32 = true;
        s.cuda = "tma tf32";
        s.schedule = i == 2 ? SAKER_GEMM_SPLIT_K : SAKER_GEMM_AUTO;
        s.bias = i == 1 ? SAKER_F32 : 0;
        add(s);
    }
    for (int f = 1; f < 3; f++) /* few rows, or columns */
        for (int64_t k = 8; k < 5000; k = k * 3 + 8)
            for (int m = 1; m <= 16; m += 5) {
                spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = m, .n = 43 - m, .k = k, .lb = COLS};
                s.cuda = "few rows";
                add(s);
                s.m = s.n;
                s.n = m;
                add(s);
                s.n = 70;
                s.m = m;
                s.bias = SAKER_F32;
                s.act = SAKER_ACT_SILU;
                s.gated = m % 3;
                s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
                s.batch = m % 2 ? CROSS : BOTH;
                s.pre = SAKER_F32;
                add(s);
            }
    for (int l = 0; l < 4; l++) { /* true f32 */
        spec s = {
            .a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 132, .n = 200, .k = 44, .la = l & 1, .lb = l >> 1};
        s.cuda = "fma";
        add(s);
        s.m = 36;
        s.bias = SAKER_F32;
        s.act = SAKER_ACT_GELU_TANH;
        s.gated = SAKER_GATED_INTERLEAVED;
        s.batch = CROSS;
        add(s);
        s.gated = 0;
        s.dbias = SAKER_BF16;
        s.saved = SAKER_F32;
        s.m = 72;
        add(s);
    }
    for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++)
        for (int b = ALONE; b <= EXPANDED; b++) {
            spec s = {.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .m = 72, .n = 144, .k = 200, .batch = b};
            s.schedule = schedule;
            s.lb = COLS;
            add(s);
            s.saved = SAKER_F32;
            s.dbias = SAKER_F32;
            s.act = SAKER_ACT_SILU;
            add(s);
            s = (spec){.a = SAKER_I8, .b = SAKER_I8, .d = SAKER_I32, .m = b ? 24 : 136, .n = 272, .k = 400, .batch = b};
            s.schedule = schedule;
            s.lb = COLS;
            s.cuda = b == CROSS || b == EMPTY ? NULL : "tma i8";
            add(s);
            s.d = SAKER_BF16;
            s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
            s.ld = COLS;
            add(s);
            s.ld = ROWS;
            s.bias = SAKER_F32;
            add(s);
        }
}

/* The matrix instructions of a warp: types, layouts and sizes that Hopper's kernels do not take. */
static void mma_cases(void)
{
    static const char *const schedules[] = {"mma", "data-parallel", "persistent", "split-K", "stream-K"};
    for (int i = 1; i < N_PAIRS; i++) /* more than a tile, in every layout */
        for (int l = 0; l < 9; l++) {
            if (pairs[i].a == SAKER_I32)
                continue;
            spec s = of_pair(i, 136, 144, 80);
            s.la = l % 3;
            s.lb = l / 3;
            s.cuda = s.la == GAPS || s.lb == GAPS || s.scaling >= SAKER_GEMM_SCALE_BLOCK || pairs[i].a == SAKER_E4M3 ||
                             pairs[i].a == SAKER_E5M2
                         ? "mma"
                         : NULL;
            add(s);
            s.m = 33;
            s.n = 131;
            s.k = 141;
            s.cuda = pairs[i].a == SAKER_I8 && s.scaling < SAKER_GEMM_SCALE_BLOCK ? "mma i8 kk" : "wide";
            add(s);
        }
    for (int i = 4; i < N_PAIRS; i++) /* every schedule and epilogue of what is widened */
        for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++) {
            if (pairs[i].d == SAKER_I32 || (pairs[i].a == SAKER_I8 && pairs[i].b == SAKER_I8))
                continue;
            spec s = of_pair(i, 136, 136, 390);
            s.schedule = schedule;
            s.lb = COLS;
            s.cuda = schedules[schedule];
            add(s);
            if (schedule % 4)
                continue;
            s.gated = SAKER_GATED_HALVES;
            s.act = SAKER_ACT_SILU;
            s.bias = SAKER_F32;
            add(s);
            s.gated = 0;
            s.m = 70;
            s.batch = BOTH;
            s.saved = s.dbias = SAKER_F32;
            add(s);
        }
    for (int l = 0; l < 4; l++) /* weights in groups that no step fits, with zero points */
        for (int64_t group = 1; group <= 200; group = group * 5 + 2)
            for (int i = 12; i < N_PAIRS; i++) {
                spec s = of_pair(i, 36, 136, 256);
                s.group = group;
                s.la = l & 1;
                s.lb = l >> 1;
                s.zero = SAKER_I8;
                s.cuda = "wide";
                add(s);
            }
}

static void bench_cases(void)
{
    static const int64_t squares[] = {512, 1024, 2048};
    static const pair types[] = {{SAKER_F32, SAKER_F32, SAKER_F32, 0, 0},    {SAKER_F16, SAKER_F16, SAKER_F16, 0, 0},
                                 {SAKER_BF16, SAKER_BF16, SAKER_BF16, 0, 0}, {SAKER_I8, SAKER_I8, SAKER_I32, 0, 0},
                                 {SAKER_BF16, SAKER_I4, SAKER_BF16, 4, 128}, {SAKER_I8, SAKER_I4, SAKER_BF16, 4, 128},
                                 {SAKER_BF16, SAKER_I8, SAKER_BF16, 4, 128}};
    for (const pair *t = types; t < types + sizeof types / sizeof *types; t++) {
        spec s = {.a = t->a, .b = t->b, .d = t->d, .scaling = t->scaling, .group = t->group, .use = SUITE_BENCH};
        for (int k = 0; k < 3; k++) {
            s.m = s.n = s.k = squares[k];
            add(s);
        }
        s.m = 1;
        s.n = s.k = 4096;
        s.lb = COLS; /* a linear layer's weight [N, K] */
        add(s);
        s.lb = ROWS;
        add(s);
    }
}

bool gemm_case_at(int i, suite_case *out)
{
    if (!list.n) {
        full_cases();
        size_cases();
        layout_cases();
        edge_cases();
        epilogue_cases();
        skinny_group_cases();
        tma_cases();
        mma_cases();
        bench_cases();
    }
    return suite_list_at(&list, i, out);
}
