/* gemm_case_test.c - a case of gemm from its short form: name, tensors, options.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gemm_cases_test.h"

suite_list gemm_list;

static void say_type(suite_case *c, const char *word, saker_type type)
{
    if (type)
        suite_say(c, " %s%s", word, suite_type_text(type));
}

static void name_case(const spec *s, suite_case *c)
{
    static const char layouts[] = "rcgfwt";
    static const char *const batches[] = {"", " batch", " batch a", " batch b", " cross", " no batch", " expanded"};
    static const char *const schedules[] = {"", " whole", " persistent", " split", " stream"};
    suite_say_random(c, s->random);
    suite_say(c, "%s %s %s %lldx%lldx%lld %c%c%c%s%s", suite_type_text(s->a), suite_type_text(s->b),
              suite_type_text(s->d), (long long)s->m, (long long)s->n, (long long)s->k, layouts[s->la], layouts[s->lb],
              layouts[s->ld], batches[s->batch], gemm_scaling_text(s->scaling));
    if (s->group)
        suite_say(c, "%lld", (long long)s->group);
    suite_say(c, "%s%s", s->only_a_scale ? " a" : s->only_b_scale ? " b" : "", s->all_scales ? " each" : "");
    say_type(c, "z", s->zero);
    if (s->alpha != 0)
        suite_say(c, " al%g", (double)s->alpha);
    if (s->c)
        suite_say(c, " be%g%s%s", (double)s->beta, suite_type_text(s->c), s->in_place ? "=d" : s->all_c ? " each" : "");
    say_type(c, s->bias_rows ? "bm" : "b", s->bias);
    suite_say(c, "%s%s", gemm_act_text(s->act), gemm_gated_text(s->gated));
    say_type(c, "pre", s->pre);
    say_type(c, "saved", s->saved);
    say_type(c, s->accumulate ? "db+" : "db", s->dbias);
    suite_say(c, "%s%s%s%s%s", s->tf32 ? " tf32" : "", s->fast ? " fast" : "", suite_fill_text(s->fill),
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
    if ((layout == ROWS || rows * cols == 0) && !(nibbles && cols % 2))
        return;
    bool columns = layout == COLS || layout == TALL;
    int64_t inner = columns ? rows : cols, outer = columns ? cols : rows;
    int64_t step = layout == FREE ? 2 : 1, gap = layout >= GAPS ? 4 : 0;
    int64_t pitch = inner * step + gap + (nibbles ? (inner + gap) % 2 : layout == GAPS ? 1 : 0);
    pitch = layout >= WIDE ? (pitch + 15) / 16 * 16 : pitch;
    t->stride[n_lead] = columns ? step : pitch;
    t->stride[n_lead + 1] = columns ? pitch : step;
    int64_t each = outer * pitch + (layout == FREE);
    each += nibbles ? each % 2 : 0;
    for (int i = n_lead - 1; i >= 0; i--) {
        t->stride[i] = each;
        each *= t->shape[i];
    }
}

void gemm_expand(suite_tensor *t)
{
    int64_t stride[SUITE_MAX_DIMS];
    suite_strides(t, stride);
    memcpy(t->stride, stride, sizeof stride);
    t->stride[0] = 0;
}

/* Leading dimensions of a tensor. */
typedef struct leading {
    int n;
    const int64_t *dim;
} leading;

static int64_t scale_blocks(const spec *s)
{
    int64_t block = s->scaling == SAKER_GEMM_SCALE_GROUP ? s->group : 128;
    return (s->k + block - 1) / block;
}

static void add_a_scale(suite_case *c, const spec *s, leading lead)
{
    suite_tensor *a = gemm_add(c, "a_scale", SUITE_IN, SAKER_F32, SUITE_POSITIVE);
    if (s->scaling == SAKER_GEMM_SCALE_TENSOR) {
        a->ndim = 1;
        a->shape[0] = 1;
    } else if (s->scaling == SAKER_GEMM_SCALE_BLOCK) {
        shape_matrix(a, lead.n, lead.dim, s->m, scale_blocks(s), COLS);
    } else {
        a->ndim = lead.n + 1;
        memcpy(a->shape, lead.dim, (size_t)lead.n * sizeof *lead.dim);
        a->shape[lead.n] = s->m;
    }
}

static void add_b_scale(suite_case *c, const spec *s, leading lead)
{
    suite_tensor *b = gemm_add(c, "b_scale", SUITE_IN, SAKER_F32, SUITE_POSITIVE);
    if (s->scaling == SAKER_GEMM_SCALE_ROW_COLUMN) {
        b->ndim = lead.n + 1;
        memcpy(b->shape, lead.dim, (size_t)lead.n * sizeof *lead.dim);
        b->shape[lead.n] = s->n;
        b->stride[lead.n] = 2;
        b->stride[0] = lead.n ? 2 * s->n : 2; /* batches of b have one dimension */
    } else if (s->scaling == SAKER_GEMM_SCALE_BLOCK) {
        shape_matrix(b, lead.n, lead.dim, scale_blocks(s), (s->n + 127) / 128, ROWS);
    } else if (s->scaling == SAKER_GEMM_SCALE_GROUP) {
        shape_matrix(b, lead.n, lead.dim, scale_blocks(s), s->n, s->lb == COLS ? COLS : ROWS);
    }
    if (s->zero) {
        suite_tensor *z = gemm_add(c, "b_zero", SUITE_IN, s->zero, SUITE_NORMAL);
        shape_matrix(z, lead.n, lead.dim, scale_blocks(s), s->n, ROWS);
        if (s->zero == SAKER_I8 && s->b == SAKER_I4) {
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

void gemm_case(spec s)
{
    suite_case one = {.use = s.use ? s.use : SUITE_CHECK, .cuda_kernel = s.cuda}, *c = &one;
    if (s.cuda && s.m * s.n > 1 << 20)
        c->use |= SUITE_GPU_SIZED;
    const char *portable = s.tf32 ? "mma tf32" : s.scaling == SAKER_GEMM_SCALE_GROUP && s.m <= 64 ? "few rows" : "mma";
    c->portable_kernel = s.cuda && (s.tf32 || strstr(s.cuda, "tma")) ? portable : s.cuda;
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
                            .fast_accum = s.fast,
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
        gemm_expand(&c->tensor[0]);
    int nd = batches[s.batch].nd;
    const int64_t *lead = batches[s.batch].d;
    if (s.c)
        shape_matrix(gemm_add(c, "c", SUITE_IN, s.c, s.c_fill), s.in_place || s.all_c ? nd : 0, lead, s.m, s.n,
                     s.in_place     ? s.ld
                     : s.la == ROWS ? ROWS
                                    : COLS);
    if (s.bias)
        add_vector(c, "bias", SUITE_IN, s.bias, s.bias_rows ? s.m : s.n, s.la == FREE ? 3 : 0);
    if (s.scaling && !s.only_b_scale)
        add_a_scale(c, &s, (leading){batches[s.batch].na, batches[s.batch].a});
    if (s.scaling && !s.only_a_scale)
        add_b_scale(c, &s, (leading){s.all_scales ? batches[s.batch].nb : 0, batches[s.batch].b});
    if (s.saved)
        shape_matrix(gemm_add(c, "saved", SUITE_IN, s.saved, SUITE_NORMAL), nd, lead, s.m, s.n, s.ld);
    suite_tensor *d = gemm_add(c, "d", SUITE_OUT, s.d, SUITE_NORMAL);
    shape_matrix(d, nd, lead, s.m, s.gated ? s.n / 2 : s.n, s.ld);
    d->alias = s.in_place ? "c" : NULL;
    if (s.pre)
        shape_matrix(gemm_add(c, "pre", SUITE_OUT, s.pre, SUITE_NORMAL), nd, lead, s.m, s.n, ROWS);
    if (s.dbias)
        add_vector(c, "dbias", s.accumulate ? SUITE_INOUT : SUITE_OUT, s.dbias, s.n, s.la == FREE ? 2 : 0);
    c->flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    c->bytes = suite_all_bytes(c);
    c->reads = 1;
    c->writes = s.m > 16 ? 1 : 0;
    suite_list_add(&gemm_list, c);
}
