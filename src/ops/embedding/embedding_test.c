/* embedding_test.c - oracle and cases of embedding and embedding_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"
#include "suite.h"

enum { MAX_CASES = 256, RUN = 64 };

static suite_case *cases, *backward_cases;
static int n_cases, n_backward;

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
        bound[2][i] = n == 0 ? 0 : half_ulp(c->tensor[2].type, value[2][i]) + chain * 0x1p-24 * size[i];
    }
    free(size);
    free(count);
}

/* ---------------------------------------------------------------- cases */

enum { WIDE_IDS = 1, STRIDED = 2, ACCUMULATE = 4, PADDING = 8, THREE = 16 };

typedef struct spec {
    saker_type table, out;
    int64_t v, d, m, low, high; /* ids from low to high; both 0: all of the table and one beyond on each side */
    int has, use;
} spec;

static const char *type_text(saker_type type)
{
    return saker_type_name((saker_dtype){(uint8_t)type, (uint8_t)((int)type >> 8), 1});
}

static suite_tensor matrix(const spec *s, const char *field, suite_role role, saker_type type, int64_t m)
{
    suite_tensor t = {.field = field, .role = role, .type = type, .ndim = 2, .shape = {m, s->d}};
    if (s->has & STRIDED) {
        t.stride[0] = s->d + 8;
        t.stride[1] = 1;
    }
    return t;
}

static void common(suite_case *c, spec *s)
{
    c->use = s->use ? s->use : SUITE_CHECK;
    c->n_tensors = 3;
    c->reads = c->writes = 1;
    if (!s->low && !s->high) {
        s->low = -1;
        s->high = s->v;
    }
    bool bad = s->low < 0 || s->high >= s->v, all_bad = s->high < 0 || s->low >= s->v;
    c->check = s->m * s->d == 0 || !bad ? SAKER_OK : all_bad ? SAKER_BAD_INDEX : SUITE_ANY_CHECK;
    c->tensor[1] = (suite_tensor){.field = "ids",
                                  .type = s->has & WIDE_IDS ? SAKER_I64 : SAKER_I32,
                                  .ndim = 1,
                                  .shape = {s->m},
                                  .fill = SUITE_RANGE,
                                  .low = s->low,
                                  .high = s->high};
    if (s->has & STRIDED)
        c->tensor[1].stride[0] = 3;
    snprintf(c->name, sizeof c->name, "%s %s %lld of %lldx%lld ids %lld..%lld has=%d%s", type_text(s->table),
             type_text(s->out), (long long)s->m, (long long)s->v, (long long)s->d, (long long)s->low,
             (long long)s->high, s->has, s->use ? " bench" : "");
}

/* [2, m/2] ids and [2, m/2, d] rows. */
static void three(suite_tensor *rows, suite_tensor *ids, const spec *s)
{
    rows->ndim = 3;
    rows->shape[0] = ids->shape[0] = 2;
    rows->shape[1] = ids->shape[1] = s->m / 2;
    rows->shape[2] = s->d;
    rows->stride[0] = rows->stride[1] = 0;
    ids->ndim = 2;
    ids->stride[0] = 0;
}

static void add(spec s)
{
    suite_case *c = &cases[n_cases++];
    if (n_cases == MAX_CASES)
        abort();
    memset(c, 0, sizeof *c);
    saker_embedding_args a = {.struct_size = sizeof a};
    memcpy(c->args, &a, sizeof a);
    common(c, &s);
    c->tensor[0] = matrix(&s, "table", SUITE_IN, s.table, s.v);
    c->tensor[2] = matrix(&s, "out", SUITE_OUT, s.out, s.m);
    if (s.has & THREE)
        three(&c->tensor[2], &c->tensor[1], &s);
    c->bytes = (double)(s.m * s.d) * (suite_type_bytes(s.table) + suite_type_bytes(s.out));
}

static void add_backward(spec s)
{
    suite_case *c = &backward_cases[n_backward++];
    if (n_backward == MAX_CASES)
        abort();
    memset(c, 0, sizeof *c);
    saker_embedding_backward_args a = {.struct_size = sizeof a, .accumulate = (s.has & ACCUMULATE) != 0};
    if (s.has & PADDING)
        a.has_padding_idx = 1, a.padding_idx = 2;
    memcpy(c->args, &a, sizeof a);
    common(c, &s);
    c->tensor[0] = matrix(&s, "dout", SUITE_IN, s.out, s.m);
    c->tensor[2] = matrix(&s, "dtable", s.has & ACCUMULATE ? SUITE_INOUT : SUITE_OUT, s.table, s.v);
    if (s.has & THREE)
        three(&c->tensor[0], &c->tensor[1], &s);
    c->bytes = (double)(s.m * s.d) * suite_type_bytes(s.out) + (double)(s.v * s.d) * suite_type_bytes(s.table);
}

static const saker_type floats[] = {SAKER_F32, SAKER_F16, SAKER_BF16};

static void both(spec s)
{
    add(s);
    add_backward(s);
}

static void build(void)
{
    cases = calloc(MAX_CASES, sizeof *cases);
    backward_cases = calloc(MAX_CASES, sizeof *backward_cases);
    if (!cases || !backward_cases)
        abort();
    static const int64_t d[] = {1, 3, 8, 17, 64, 200, 1025, 4096};
    for (int t = 0; t < 3; t++)
        for (int o = 0; o < 3; o++) {
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
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof d / sizeof *d; i++)
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
        /* Several digits. */
        both((spec){floats[t], floats[t], .v = 600, .d = 8, .m = 5000, .has = WIDE_IDS});
        both((spec){floats[t], floats[t], .v = 300000, .d = 8, .m = 9000, .has = ACCUMULATE});
    }
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
    if (!n_cases)
        build();
    if (i < 0 || i >= n_cases)
        return false;
    *out = cases[i];
    return true;
}

static bool at_backward(int i, suite_case *out)
{
    if (!n_backward)
        build();
    if (i < 0 || i >= n_backward)
        return false;
    *out = backward_cases[i];
    return true;
}

const suite skr_suite_embedding = {.op = "embedding", .at = at, .oracle = oracle};
const suite skr_suite_embedding_backward = {.op = "embedding_backward", .at = at_backward, .oracle = oracle_backward};
