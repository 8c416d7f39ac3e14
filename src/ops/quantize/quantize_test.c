/* quantize_test.c - oracle and cases of quantize and dequantize.
 * SPDX-License-Identifier: Apache-2.0
 *
 * quantize is exact: the scale is the f32 nearest to amax / largest, the code the nearest to the f32 nearest to
 * x / scale. dequantize is one product in f32, rounded to y's type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../tests/suite_convert.h"
#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"

static const saker_type codes[] = {SAKER_I8, SAKER_E4M3, SAKER_E5M2, SAKER_I4, SAKER_U8};
static suite_list quantize_list, dequantize_list;

/* ---------------------------------------------------------------- oracle */

/* Where the scale of an element is. */
typedef struct plan {
    int64_t n, m, group, groups, rows; /* columns, rows; columns of a scale, scales of a row; rows of a matrix */
    int quant;
} plan;

static plan plan_of(const suite_tensor *x, int quant, int64_t group)
{
    plan p = {.n = x->shape[x->ndim - 1], .m = suite_row_count(x), .quant = quant, .rows = 1};
    p.group = quant == SAKER_QUANT_GROUP ? group : quant >= SAKER_QUANT_BLOCK ? 128 : p.n;
    p.groups = p.n ? (p.n + p.group - 1) / p.group : 0;
    if (quant == SAKER_QUANT_BLOCK2D)
        p.rows = x->shape[x->ndim - 2];
    return p;
}

static int64_t scale_of(const plan *p, int64_t row, int64_t column)
{
    if (p->quant == SAKER_QUANT_TENSOR)
        return 0;
    if (p->quant == SAKER_QUANT_BLOCK2D)
        row = row / p->rows * ((p->rows + 127) / 128) + row % p->rows / 128;
    return row * p->groups + column / p->group;
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_quantize_args a;
    memcpy(&a, c->args, sizeof a);
    int x = suite_index(c, "x"), q = suite_index(c, "q"), scale = suite_index(c, "scale");
    plan p = plan_of(&c->tensor[x], a.quant, a.group);
    saker_type type = c->tensor[q].type == SAKER_U8 ? SAKER_I4 : c->tensor[q].type;
    int64_t scales = suite_elements(&c->tensor[scale]);
    bool given = a.quant == SAKER_QUANT_TENSOR && !a.dynamic;
    if (!given) {
        for (int64_t i = 0; i < scales; i++)
            value[scale][i] = bound[scale][i] = 0;
        for (int64_t i = 0; i < p.m * p.n; i++) {
            double *s = &value[scale][scale_of(&p, i / p.n, i % p.n)];
            if (isfinite(value[x][i]))
                *s = fmax(*s, fabs(value[x][i]));
        }
        for (int64_t i = 0; i < scales; i++) {
            value[scale][i] = (double)(float)(value[scale][i] / quant_max(type));
            if (value[scale][i] == 0)
                value[scale][i] = 1;
        }
    }
    int64_t bytes = (p.n + 1) / 2;
    for (int64_t i = 0; c->tensor[q].type == SAKER_U8 && i < p.m * bytes; i++)
        value[q][i] = bound[q][i] = 0;
    for (int64_t r = 0; r < p.m; r++)
        for (int64_t j = 0; j < p.n; j++) {
            double s = value[scale][scale_of(&p, r, j)];
            double code = round_to(type, (double)(float)(value[x][r * p.n + j] / s));
            if (c->tensor[q].type == SAKER_U8) {
                value[q][r * bytes + j / 2] += (double)(((int)code & 15) << (j % 2 ? 4 : 0));
            } else {
                value[q][r * p.n + j] = code;
                bound[q][r * p.n + j] = 0;
            }
        }
}

static void back_oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_dequantize_args a;
    memcpy(&a, c->args, sizeof a);
    int y = suite_index(c, "y"), q = suite_index(c, "q"), scale = suite_index(c, "scale");
    plan p = plan_of(&c->tensor[y], a.quant, a.group);
    for (int64_t r = 0; r < p.m; r++)
        for (int64_t j = 0; j < p.n; j++) {
            double code;
            if (c->tensor[q].type == SAKER_U8) {
                int byte = (int)value[q][r * ((p.n + 1) / 2) + j / 2], nibble = j % 2 ? byte >> 4 : byte & 15;
                code = nibble < 8 ? nibble : nibble - 16;
            } else {
                code = value[q][r * p.n + j];
            }
            double v = code * value[scale][scale_of(&p, r, j)];
            value[y][r * p.n + j] = v;
            bound[y][r * p.n + j] = half_ulp(c->tensor[y].type, v) + U * fabs(v) + DENORM;
        }
}

/* ---------------------------------------------------------------- cases */

struct spec {
    int n_lead, quant, dynamic, use, random;
    int64_t lead[3], n, group, gap;
    saker_type x, q;
    suite_fill fill;
    const char *apart; /* tensor whose rows alone lie apart, by a multiple of a vector */
};

static void name(suite_case *c, const struct spec *s)
{
    suite_say_random(c, s->random);
    suite_say(c, "%s %s %s", suite_type_text(s->x), s->q == SAKER_U8 ? "packed" : suite_type_text(s->q),
              suite_quant_text(s->quant));
    if (s->quant == SAKER_QUANT_GROUP)
        suite_say(c, "%lld", (long long)s->group);
    suite_say(c, s->dynamic ? " dynamic " : " ");
    suite_say_shape(c, s->n_lead, s->lead, s->n);
    suite_say(c, "%s%s", s->gap ? " padded" : "", suite_fill_text(s->fill));
    if (s->apart)
        suite_say(c, " %s apart", s->apart);
}

static int64_t gap_of(const struct spec *s, const char *field)
{
    return s->apart && !strcmp(s->apart, field) ? 16 : s->gap;
}

static void add_codes(suite_case *c, const struct spec *s, suite_role role)
{
    int64_t gap = s->apart ? gap_of(s, "q")
                  : s->gap ? s->gap + 1 + (s->q == SAKER_I4 ? (s->n + s->gap + 1) % 2 : 0)
                           : 0;
    suite_tensor *t =
        suite_add_rows(c, "q", role, s->q, s->n_lead, s->lead, s->q == SAKER_U8 ? (s->n + 1) / 2 : s->n, gap);
    t->fill = s->q == SAKER_I8 || s->q == SAKER_U8 ? SUITE_BITS : s->q == SAKER_I4 ? SUITE_RANGE : SUITE_LARGE;
    t->low = -7, t->high = 7;
    if (s->fill == SUITE_ONE_NAN && (s->q == SAKER_E4M3 || s->q == SAKER_E5M2)) /* a code of it */
        t->fill = SUITE_ONE_NAN;
}

static void add_scales(suite_case *c, const struct spec *s, suite_role role)
{
    struct spec t = *s;
    int64_t columns = s->quant == SAKER_QUANT_GROUP ? (s->n + s->group - 1) / s->group : (s->n + 127) / 128;
    if (s->quant == SAKER_QUANT_TENSOR)
        t.n_lead = 0, columns = 1;
    if (s->quant == SAKER_QUANT_ROW)
        columns = -1;
    if (s->quant == SAKER_QUANT_BLOCK2D)
        t.lead[t.n_lead - 1] = (t.lead[t.n_lead - 1] + 127) / 128;
    suite_tensor *scale = suite_add_rows(c, "scale", role, SAKER_F32, t.n_lead, t.lead, columns, 0);
    scale->fill = SUITE_POSITIVE;
    if (gap_of(s, "scale")) /* scales may have any stride, also in their last dimension */
        suite_lay_out(scale, SUITE_GAPPED, 1, false);
}

static double bytes_of(const suite_case *c)
{
    double total = suite_all_bytes(c);
    for (int i = 0; i < c->n_tensors; i++)
        if (c->tensor[i].type == SAKER_I4)
            total -= (double)suite_elements(&c->tensor[i]) / 2;
    return total;
}

static void to_codes(struct spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1};
    saker_quantize_args a = {.struct_size = sizeof a, .group = s.group, .quant = s.quant, .dynamic = s.dynamic};
    memcpy(c.args, &a, sizeof a);
    name(&c, &s);
    suite_add_rows(&c, "x", SUITE_IN, s.x, s.n_lead, s.lead, s.n, gap_of(&s, "x"))->fill = s.fill;
    add_codes(&c, &s, SUITE_OUT);
    add_scales(&c, &s, s.quant == SAKER_QUANT_TENSOR && !s.dynamic ? SUITE_IN : SUITE_OUT);
    c.bytes = bytes_of(&c);
    c.flops = 4 * (double)suite_elements(&c.tensor[0]);
    c.cpu_kernel = s.quant == SAKER_QUANT_BLOCK2D ? "blocks" : "rows";
    suite_list_add(&quantize_list, &c);
}

static void to_values(struct spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 1, .writes = 1};
    saker_dequantize_args a = {.struct_size = sizeof a, .group = s.group, .quant = s.quant};
    memcpy(c.args, &a, sizeof a);
    s.dynamic = 0;
    name(&c, &s);
    add_codes(&c, &s, SUITE_IN);
    add_scales(&c, &s, SUITE_IN);
    suite_add_rows(&c, "y", SUITE_OUT, s.x, s.n_lead, s.lead, s.n, gap_of(&s, "x"));
    c.bytes = bytes_of(&c);
    c.flops = (double)suite_elements(&c.tensor[2]);
    c.cpu_kernel = s.quant == SAKER_QUANT_BLOCK2D ? "blocks" : "rows";
    suite_list_add(&dequantize_list, &c);
}

static bool fits(const struct spec *s)
{
    return s->q != SAKER_I4 || s->n % 2 == 0 || s->n_lead == 0 || s->gap; /* rows of i4 start at whole bytes */
}

static void both(struct spec s)
{
    if (!fits(&s))
        return;
    to_codes(s);
    to_values(s);
}

/* All modes of one shape. */
static void modes(struct spec s)
{
    static const int64_t groups[] = {32, 64, 7};
    for (s.quant = SAKER_QUANT_TENSOR; s.quant <= SAKER_QUANT_BLOCK2D; s.quant++)
        if (s.quant != SAKER_QUANT_BLOCK2D || s.n_lead > 0)
            both(s);
    s.quant = SAKER_QUANT_TENSOR;
    s.dynamic = 1;
    if (fits(&s))
        to_codes(s);
    s.dynamic = 0;
    s.quant = SAKER_QUANT_GROUP;
    foreach (g, groups) {
        s.group = groups[g];
        both(s);
    }
}

static void random_case(int number)
{
    static const int64_t groups[] = {1, 2, 3, 7, 8, 16, 32, 64, 100, 128, 256, 1000};
    static const suite_fill fills[] = {SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_TINY,  SUITE_HUGE,
                                       SUITE_MAX,     SUITE_ZERO,    SUITE_LARGE, SUITE_TIES};
    uint64_t r = suite_draws(number);
    struct spec s = {.random = 1 + number, .n = suite_draw_width(&r)};
    s.n_lead = suite_draw_lead(&r, 3, s.n, s.lead);
    s.x = suite_draw_float(&r);
    s.q = codes[suite_draw(&r, 5)];
    s.quant = 1 + suite_draw(&r, SAKER_QUANT_GROUP);
    if (s.quant == SAKER_QUANT_BLOCK2D && s.n_lead == 0)
        s.lead[s.n_lead++] = 3;
    if (s.quant == SAKER_QUANT_BLOCK2D && s.n < 300)
        s.lead[s.n_lead - 1] += 120 + suite_draw(&r, 20);
    s.group = s.quant == SAKER_QUANT_GROUP ? groups[suite_draw(&r, 12)] : 0;
    s.dynamic = s.quant == SAKER_QUANT_TENSOR && suite_draw_once_in(&r, 2);
    s.gap = suite_draw_once_in(&r, 2) ? 1 + suite_draw(&r, 9) : 0;
    if (!fits(&s))
        s.gap = 3;
    s.fill = suite_draw_once_in(&r, 3) ? fills[suite_draw(&r, 8)] : SUITE_NORMAL;
    to_codes(s);
    to_values(s);
}

static void build(void)
{
    static bool built;
    static const int64_t n[] = {1, 2, 5, 16, 100, 127, 128, 130, 256, 1000, 1024, 4096, 20000};
    static const suite_fill fills[] = {SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_TINY,  SUITE_HUGE,
                                       SUITE_MAX,     SUITE_ZERO,    SUITE_LARGE, SUITE_TIES};
    if (built)
        return;
    built = true;
    static const char *const apart[] = {"x", "q", "scale"};
    foreach (q, codes) {
        foreach (k, apart)
            modes((struct spec){ROWS(5), .n = 256, .x = floats[(q + k) % 3], .q = codes[q], .apart = apart[k]});
        foreach (t, floats) {
            modes((struct spec){ROWS(5), .n = 300, .x = floats[t], .q = codes[q]});
            modes((struct spec){ROWS(3), .n = 256, .x = floats[t], .q = codes[q], .gap = 5});
            foreach (f, fills)
                modes((struct spec){ROWS(3), .n = 384, .x = floats[t], .q = codes[q], .fill = fills[f]});
        }
        foreach (i, n)
            modes((struct spec){ROWS(n[i] < 300 ? 9 : 2), .n = n[i], .x = floats[(i + q) % 3], .q = codes[q]});
        modes((struct spec){ROWS(2, 200), .n = 192, .x = SAKER_BF16, .q = codes[q]});
        modes((struct spec){ROWS(2, 2, 130), .n = 136, .x = SAKER_F32, .q = codes[q], .gap = 3});
        modes((struct spec){ROWS(600), .n = 512, .x = SAKER_BF16, .q = codes[q]});
        modes((struct spec){.n = 200, .x = SAKER_F16, .q = codes[q]});
        modes((struct spec){ROWS(0), .n = 64, .x = SAKER_F32, .q = codes[q]});
        modes((struct spec){ROWS(5), .n = 0, .x = SAKER_BF16, .q = codes[q]});
        modes((struct spec){ROWS(0), .n = 0, .x = SAKER_F16, .q = codes[q]});
    }
    /* Rows and groups of every kernel on CUDA. */
    static const int64_t wide[] = {512, 2048, 4096, 8192, 16384, 32768, 65536}, groups[] = {8, 16, 256};
    foreach (t, floats) {
        foreach (i, wide)
            to_codes((struct spec){ROWS(2), .n = wide[i], .x = floats[t], .q = codes[(t + i) % 3],
                                   .quant = SAKER_QUANT_ROW});
        foreach (g, groups)
            both((struct spec){ROWS(6), .n = 512, .x = floats[t], .q = codes[(t + g) % 3], .quant = SAKER_QUANT_GROUP,
                               .group = groups[g]});
    }
    foreach (q, codes) /* the whole range of every type, close together: each rounding boundary is passed */
        to_codes((struct spec){ROWS(40), .n = 10000, .x = SAKER_F32, .q = codes[q], .quant = SAKER_QUANT_ROW});
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
    foreach (t, floats)
        foreach (q, codes) {
            if (codes[q] == SAKER_U8)
                continue;
            int64_t elements = (int64_t)1 << (floats[t] == SAKER_F32 ? 25 : 26);
            struct spec s = {ROWS(elements / 4096), .n = 4096, .x = floats[t], .q = codes[q], .use = SUITE_BENCH};
            struct spec g = {ROWS(((int64_t)1 << 28) / 8192), .n = 8192, .x = floats[t], .q = codes[q],
                             .use = SUITE_BENCH_CUDA};
            struct spec in = {ROWS(16), .n = 4096, .x = floats[t], .q = codes[q], .use = SUITE_CACHE};
            for (int quant = SAKER_QUANT_TENSOR; quant <= SAKER_QUANT_BLOCK2D; quant++) {
                s.quant = g.quant = in.quant = quant;
                both(s), both(g);
                if (quant == SAKER_QUANT_ROW)
                    both(in);
            }
        }
}

static bool quantize_at(int i, suite_case *out)
{
    build();
    return suite_list_at(&quantize_list, i, out);
}

static bool dequantize_at(int i, suite_case *out)
{
    build();
    return suite_list_at(&dequantize_list, i, out);
}

const suite skr_suite_quantize = {.op = "quantize", .at = quantize_at, .oracle = oracle};
const suite skr_suite_dequantize = {.op = "dequantize", .at = dequantize_at, .oracle = back_oracle};
