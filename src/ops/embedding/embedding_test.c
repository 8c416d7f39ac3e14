/* embedding_test.c - oracle and cases of embedding and embedding_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"
#include "suite_list.h"
#include "suite_random.h"

enum { RUN = 64 };

static suite_list list, backward_list;

/* Tensors: table, ids, out. */
static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    int64_t v = c->tensor[0].shape[0], d = c->tensor[0].shape[1], m = suite_elements(&c->tensor[1]);
    for (int64_t i = 0; i < m * d; i++) {
        double id = value[1][i / d];
        value[2][i] = id < 0 || id >= (double)v ? 0 : round_to(c->tensor[2].type, value[0][(int64_t)id * d + i % d]);
        bound[2][i] = 0;
    }
}

/* Tensors: dout, ids, dtable. A chain of additions has at most RUN members, then one for each stretch, and what dtable
 * held. */
static void oracle_backward(const suite_case *c, double *const *value, double *const *bound)
{
    saker_embedding_backward_args a;
    memcpy(&a, c->args, sizeof a);
    int64_t v = c->tensor[2].shape[0], d = c->tensor[2].shape[1], m = suite_elements(&c->tensor[1]);
    double *size = calloc((size_t)(v * d) + 1, sizeof *size), *count = calloc((size_t)v + 1, sizeof *count);
    for (int64_t i = 0; i < v * d; i++) {
        value[2][i] = a.accumulate ? value[2][i] : 0;
        size[i] = fabs(value[2][i]);
    }
    for (int64_t i = 0; i < m; i++) {
        double id = value[1][i];
        if (id < 0 || id >= (double)v || (a.has_padding_idx && id == (double)a.padding_idx))
            continue;
        count[(int64_t)id]++;
        for (int64_t k = 0; k < d; k++) {
            value[2][(int64_t)id * d + k] += value[0][i * d + k];
            size[(int64_t)id * d + k] += fabs(value[0][i * d + k]);
        }
    }
    for (int64_t i = 0; i < v * d; i++) {
        double n = count[i / d], chain = n == 0 ? 0 : fmin(n, RUN) + n / RUN + 2;
        bound[2][i] = n == 0 ? 0 : half_ulp(c->tensor[2].type, value[2][i]) + chain * U * size[i];
    }
    free(size);
    free(count);
}

/* ---------------------------------------------------------------- cases */

enum { WIDE_IDS = 1, STRIDED = 2, ACCUMULATE = 4, PADDING = 8, THREE = 16 };

typedef struct spec {
    saker_type table, out;
    int64_t v, d, m, low, high; /* ids from low to high; both 0: all of the table and one beyond on each side */
    int has, use, random;
} spec;

/* [v, d] or [m, d]; THREE: [2, m/2, d]. */
static void matrix(suite_case *c, const spec *s, const char *field, suite_role role, saker_type type, bool table)
{
    bool three = s->has & THREE && !table;
    int64_t lead[] = {three ? 2 : table ? s->v : s->m, s->m / 2};
    suite_add_rows(c, field, role, type, three ? 2 : 1, lead, s->d, s->has & STRIDED ? 8 : 0);
}

static void add_ids(suite_case *c, const spec *s)
{
    bool three = s->has & THREE;
    int64_t two = 2;
    suite_tensor *t = suite_add_rows(c, "ids", SUITE_IN, s->has & WIDE_IDS ? SAKER_I64 : SAKER_I32, three ? 1 : 0, &two,
                                     three ? s->m / 2 : s->m, 0);
    t->fill = SUITE_RANGE;
    t->low = s->low;
    t->high = s->high;
    if (s->has & STRIDED)
        t->stride[0] = 3;
}

static suite_case start(spec *s)
{
    static const char *const words[] = {" i64", " padded", "", "", " 2d"};
    suite_case c = {.use = s->use ? s->use : SUITE_CHECK, .reads = 1, .writes = 1};
    if (!s->low && !s->high) {
        s->low = -1;
        s->high = s->v;
    }
    bool bad = s->low < 0 || s->high >= s->v, all_bad = s->high < 0 || s->low >= s->v;
    c.check = s->m * s->d == 0 || !bad ? SAKER_OK : all_bad ? SAKER_BAD_INDEX : SUITE_ANY_CHECK;
    suite_say_random(&c, s->random);
    suite_say(&c, "%s %s %lld of %lldx%lld ids %lld..%lld", suite_type_text(s->table), suite_type_text(s->out),
              (long long)s->m, (long long)s->v, (long long)s->d, (long long)s->low, (long long)s->high);
    suite_say_bits(&c, s->has, 5, words);
    suite_say(&c, "%s", s->use ? " bench" : "");
    return c;
}

static void add(spec s)
{
    saker_embedding_args a = {.struct_size = sizeof a};
    suite_case c = start(&s);
    memcpy(c.args, &a, sizeof a);
    matrix(&c, &s, "table", SUITE_IN, s.table, true);
    add_ids(&c, &s);
    matrix(&c, &s, "out", SUITE_OUT, s.out, false);
    c.bytes = (double)(s.m * s.d) * (suite_type_bytes(s.table) + suite_type_bytes(s.out));
    suite_list_add(&list, &c);
}

static void add_backward(spec s)
{
    saker_embedding_backward_args a = {.struct_size = sizeof a, .accumulate = (s.has & ACCUMULATE) != 0};
    suite_case c = start(&s);
    if (s.v == 0) /* nothing is written, so nothing runs */
        c.check = SAKER_OK;
    if (s.has & PADDING)
        a.has_padding_idx = 1, a.padding_idx = 2;
    memcpy(c.args, &a, sizeof a);
    suite_say(&c, "%s%s", s.has & ACCUMULATE ? " acc" : "", s.has & PADDING ? " padding" : "");
    matrix(&c, &s, "dout", SUITE_IN, s.out, false);
    add_ids(&c, &s);
    matrix(&c, &s, "dtable", s.has & ACCUMULATE ? SUITE_INOUT : SUITE_OUT, s.table, true);
    c.bytes = (double)(s.m * s.d) * suite_type_bytes(s.out) + (double)(s.v * s.d) * suite_type_bytes(s.table);
    suite_list_add(&backward_list, &c);
}

static void both(spec s)
{
    add(s);
    add_backward(s);
}

static void random_case(int number)
{
    static const int flags[] = {WIDE_IDS, STRIDED, ACCUMULATE, PADDING, THREE};
    static const int64_t rows[] = {0, 1, 2, 3, 7, 33, 64, 65, 200};
    uint64_t r = suite_draws(number);
    spec s = {.random = 1 + number, .d = suite_draw_width(&r)};
    s.v = suite_draw_once_in(&r, 32) ? 0 : 1 + suite_draw(&r, s.d < 300 ? 300 : 10);
    s.m = rows[suite_draw(&r, s.d < 300 ? 9 : 6)];
    s.table = suite_draw_float(&r);
    s.out = suite_draw_near(&r, s.table);
    foreach (i, flags)
        s.has |= suite_draw_once_in(&r, 3) ? flags[i] : 0;
    if (s.has & THREE)
        s.m *= 2;
    if (suite_draw_once_in(&r, 2)) { /* a stretch of the table, or beyond */
        s.low = suite_draw(&r, (int)s.v + 1) - 1;
        s.high = s.low + suite_draw(&r, 20);
    }
    both(s);
}

static void build(void)
{
    static const int64_t d[] = {1, 3, 8, 17, 64, 200, 1025, 4096};
    foreach (t, floats)
        foreach (o, floats) {
            spec s = {floats[t], floats[o], .v = 11, .d = 72, .m = 40, .has = o & 1 ? WIDE_IDS : 0};
            both(s);
            s.has |= STRIDED;
            both(s);
            s.d = 33;
            both(s);
            s.has = ACCUMULATE | PADDING;
            add_backward(s);
            s.d = 512;
            add_backward(s);
        }
    foreach (t, floats) {
        foreach (i, d)
            both((spec){floats[t], floats[t], .v = 50, .d = d[i], .m = 70, .has = i & 1});
        both((spec){floats[t], floats[t], .v = 9, .d = 24, .m = 30, .has = THREE});
        both((spec){floats[t], floats[t], .v = 9, .d = 24, .m = 0, .has = 0});
        both((spec){floats[t], floats[t], .v = 9, .d = 0, .m = 5, .has = 0});
        add_backward((spec){floats[t], floats[t], .v = 9, .d = 24, .m = 0, .has = ACCUMULATE});
        /* Ids that fill many stretches, a few of them, one, and none at all. */
        add_backward((spec){floats[t], SAKER_F32, .v = 5, .d = 40, .m = 6000, .low = 0, .high = 3});
        add_backward((spec){floats[t], SAKER_F32, .v = 40, .d = 9, .m = 5000, .low = -5, .high = 60});
        add_backward((spec){floats[t], floats[t], .v = 7, .d = 16, .m = 3000, .low = 2, .high = 2, .has = WIDE_IDS});
        add_backward((spec){floats[t], floats[t], .v = 7, .d = 16, .m = 300, .low = 2, .high = 2, .has = PADDING});
        add_backward((spec){floats[t], floats[t], .v = 7, .d = 16, .m = 300, .low = 9, .high = 90});
        add_backward((spec){floats[t], floats[t], .v = 64, .d = 8, .m = 200}); /* rows of the table fill whole lines */
        /* Several digits. */
        both((spec){floats[t], floats[t], .v = 600, .d = 8, .m = 5000, .has = WIDE_IDS});
        both((spec){floats[t], floats[t], .v = 300000, .d = 8, .m = 9000, .has = ACCUMULATE});
        add_backward((spec){floats[t], floats[t], .v = 500, .d = 3, .m = 36000}); /* CUDA: many counts to add up */
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
    for (int t = 0; t < 3; t += 2)
        for (int cuda = 0; cuda < 2; cuda++) {
            int64_t bytes = suite_type_bytes(floats[t]), use = cuda ? SUITE_BENCH_CUDA : SUITE_BENCH;
            int64_t m = ((int64_t)(cuda ? 512 : 128) << 20) / 4096 / bytes;
            add((spec){floats[t], floats[t], .v = cuda ? 128256 : 32000, .d = 4096, .m = m, .low = 0,
                       .high = (cuda ? 128256 : 32000) - 1, .has = WIDE_IDS, .use = (int)use});
            add((spec){floats[t], floats[t], .v = 1000000, .d = 128, .m = m * 32, .low = 0, .high = 999999,
                       .has = WIDE_IDS, .use = (int)use});
            add_backward((spec){SAKER_F32, floats[t], .v = cuda ? 128256 : 32000, .d = cuda ? 4096 : 1024, .m = m,
                                .low = 0, .high = (cuda ? 128256 : 32000) - 1, .has = WIDE_IDS, .use = (int)use});
        }
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

static bool at_backward(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&backward_list, i, out);
}

const suite skr_suite_embedding = {.op = "embedding", .at = at, .oracle = oracle};
const suite skr_suite_embedding_backward = {.op = "embedding_backward", .at = at_backward, .oracle = oracle_backward};
