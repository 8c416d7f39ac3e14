/* adamw_test.c - oracle and cases of adamw.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite_convert.h"
#include "suite_list.h"
#include "suite_random.h"

static suite_list list;

/* ---------------------------------------------------------------- oracle */

typedef struct setting {
    double beta1, beta2, eps, step_size, decay, root, factor;
} setting;

static setting setting_of(const suite_case *c, double *const *value)
{
    saker_adamw_args a;
    memcpy(&a, c->args, sizeof a);
    setting s = {.beta1 = a.beta1 == 0 ? 0.9 : a.beta1, .beta2 = a.beta2 == 0 ? 0.999 : a.beta2};
    s.eps = a.eps == 0 ? 1e-8 : a.eps;
    s.step_size = a.lr / (1 - pow(s.beta1, (double)a.step));
    s.decay = 1 - a.lr * a.weight_decay;
    s.root = sqrt(1 - pow(s.beta2, (double)a.step));
    int scale = suite_index(c, "grad_scale"), squares = suite_index(c, "grad_sum_squares");
    s.factor = scale < 0 ? 1 : value[scale][0];
    if (squares >= 0) {
        double clip = a.max_norm / (fabs(s.factor) * sqrt(value[squares][0]) + 1e-6);
        s.factor *= clip > 1 ? 1 : clip;
    }
    s.factor *= a.maximize ? -1 : 1;
    return s;
}

/* Relative error of f32 arithmetic, in units of 2^-24: the factor has at most 6 roundings, g^2 twice as many and a few
 * of its own, and the root halves what stands under it. The sums m and param may cancel, so their bounds are of the
 * magnitudes added. Intermediate values may be subnormal: an absolute step. */
enum { C = 24 };

static double bound_of(saker_type type, double want, double magnitude)
{
    return half_ulp(type, want) + C * U * magnitude + 0x1p-147;
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    setting s = setting_of(c, value);
    int P = suite_index(c, "param"), G = suite_index(c, "grad"), M = suite_index(c, "exp_avg"),
        V = suite_index(c, "exp_avg_sq");
    int T = suite_index(c, "max_exp_avg_sq");
    for (int64_t i = 0; i < suite_elements(&c->tensor[P]); i++) {
        double g = value[G][i] * s.factor, old = value[P][i] * s.decay;
        double m1 = s.beta1 * value[M][i], m2 = (1 - s.beta1) * g;
        double v = s.beta2 * value[V][i] + (1 - s.beta2) * g * g, under = v;
        double m = m1 + m2, m_size = fabs(m1) + fabs(m2);
        if (T >= 0) {
            under = isnan(v) || v > value[T][i] ? v : value[T][i];
            value[T][i] = under;
            bound[T][i] = bound_of(c->tensor[T].type, under, under);
        }
        double denominator = sqrt(under) / s.root + s.eps;
        value[M][i] = m;
        bound[M][i] = bound_of(c->tensor[M].type, m, m_size);
        value[V][i] = v;
        bound[V][i] = bound_of(c->tensor[V].type, v, v);
        double p = old - s.step_size * m / denominator;
        value[P][i] = p;
        bound[P][i] = bound_of(c->tensor[P].type, p, fabs(old) + s.step_size * m_size / denominator);
    }
}

static void plain(const suite_case *c, double *const *value)
{
    setting s = setting_of(c, value);
    int P = suite_index(c, "param"), G = suite_index(c, "grad"), M = suite_index(c, "exp_avg"),
        V = suite_index(c, "exp_avg_sq");
    int T = suite_index(c, "max_exp_avg_sq");
    for (int64_t i = 0; i < suite_elements(&c->tensor[P]); i++) {
        float g = (float)value[G][i] * (float)s.factor;
        float m = (float)s.beta1 * (float)value[M][i] + (float)(1 - s.beta1) * g;
        float v = (float)s.beta2 * (float)value[V][i] + (float)(1 - s.beta2) * g * g, under = v;
        if (T >= 0)
            value[T][i] = round_to(c->tensor[T].type, (double)(under = fmaxf(v, (float)value[T][i])));
        float p = (float)value[P][i] * (float)s.decay;
        p -= (float)s.step_size * m / (sqrtf(under) / (float)s.root + (float)s.eps);
        value[M][i] = round_to(c->tensor[M].type, (double)m);
        value[V][i] = round_to(c->tensor[V].type, (double)v);
        value[P][i] = round_to(c->tensor[P].type, (double)p);
    }
}

/* ---------------------------------------------------------------- cases */

enum { AMSGRAD = 1, SCALE = 2, CLIP = 4, MAXIMIZE = 8, DEFAULTS = 16, STRIDED = 32 };

typedef struct spec {
    saker_type p, g, m, v;
    int64_t rows, n;
    int has, use;
    suite_fill fill;
    int64_t step;
    const char *name; /* NULL: made of all the others */
    int random;
} spec;

static void tensor(suite_case *c, const spec *s, const char *field, suite_role role, saker_type type, suite_fill fill)
{
    int64_t gap = s->has & STRIDED ? 8 * (c->n_tensors + 1) : 0;
    suite_tensor *t = suite_add_rows(c, field, role, type, s->rows ? 1 : 0, &s->rows, s->n, gap);
    t->fill = fill;
    c->bytes += (double)suite_elements(t) * suite_type_bytes(type) * (role == SUITE_IN ? 1 : 2);
}

static void name_case(suite_case *c, const spec *s, int64_t step)
{
    static const char *const words[] = {" amsgrad", " scaled", " clipped", " maximize", " defaults", " padded"};
    suite_say_random(c, s->random);
    suite_say(c, "%s %s %s %s ", suite_type_text(s->p), suite_type_text(s->g), suite_type_text(s->m),
              suite_type_text(s->v));
    suite_say_shape(c, s->rows ? 1 : 0, &s->rows, s->n);
    suite_say_bits(c, s->has, 6, words);
    suite_say(c, "%s step=%lld", suite_fill_text(s->fill), (long long)step);
}

static void add(spec s)
{
    suite_case c = {.use = s.use ? s.use : SUITE_CHECK, .reads = 4, .writes = 2};
    saker_adamw_args a = {.struct_size = sizeof a, .lr = 0.01, .step = s.step ? s.step : 3};
    if (!(s.has & DEFAULTS))
        a.beta1 = 0.8, a.beta2 = 0.95, a.eps = 1e-6, a.weight_decay = 0.1;
    a.maximize = (s.has & MAXIMIZE) != 0;
    a.max_norm = s.has & CLIP ? 0.75 : 0;
    memcpy(c.args, &a, sizeof a);
    tensor(&c, &s, "param", SUITE_INOUT, s.p, SUITE_NORMAL);
    tensor(&c, &s, "grad", SUITE_IN, s.g, s.fill);
    tensor(&c, &s, "exp_avg", SUITE_INOUT, s.m, s.fill == SUITE_TINY ? SUITE_TINY : SUITE_NORMAL);
    tensor(&c, &s, "exp_avg_sq", SUITE_INOUT, s.v, SUITE_POSITIVE);
    if (s.has & AMSGRAD)
        tensor(&c, &s, "max_exp_avg_sq", SUITE_INOUT, s.v, SUITE_POSITIVE);
    for (int k = SCALE; k <= CLIP; k *= 2)
        if (s.has & k)
            suite_add_rows(&c, k == SCALE ? "grad_scale" : "grad_sum_squares", SUITE_IN, SAKER_F32, 0, NULL, 1, 0)
                ->fill = SUITE_POSITIVE;
    c.flops = 16 * (double)suite_elements(&c.tensor[0]);
    if (s.name)
        suite_say(&c, "%s", s.name);
    else
        name_case(&c, &s, a.step);
    suite_list_add(&list, &c);
}

static void bench(void)
{
    static const struct {
        const char *name;
        saker_type p, g, s;
        int bytes;
    } mix[] = {{"f32", SAKER_F32, SAKER_F32, SAKER_F32, 28},
               {"bf16", SAKER_BF16, SAKER_BF16, SAKER_BF16, 14},
               {"bf16 states f32", SAKER_BF16, SAKER_BF16, SAKER_F32, 22},
               {"f32 grad bf16", SAKER_F32, SAKER_BF16, SAKER_F32, 26}};
    static const struct {
        const char *name;
        int64_t bytes;
        int use;
    } size[] = {{"1 GiB moved", 1 << 30, SUITE_BENCH},
                {"256 KiB moved", 256 << 10, SUITE_CACHE},
                {"4 GiB moved", (int64_t)4 << 30, SUITE_BENCH_CUDA}};
    foreach (m, mix)
        foreach (k, size) {
            char name[64];
            snprintf(name, sizeof name, "%s, %s", mix[m].name, size[k].name);
            add((spec){mix[m].p, mix[m].g, mix[m].s, mix[m].s, 0, size[k].bytes / mix[m].bytes / 64 * 64, DEFAULTS,
                       size[k].use, .name = name});
        }
}

static void random_case(int number)
{
    static const suite_fill fills[] = {SUITE_TINY, SUITE_ZERO, SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_ALTERNATING};
    uint64_t r = suite_draws(number);
    spec s = {.random = 1 + number, .n = suite_draw_width(&r)};
    s.p = suite_draw_float(&r);
    s.rows = suite_draw(&r, s.n < 300 ? 40 : 4);
    s.g = suite_draw_near(&r, s.p);
    s.m = suite_draw_near(&r, s.p);
    s.v = suite_draw_near(&r, s.m);
    s.has = suite_draw(&r, 2 * STRIDED);
    s.step = suite_draw_once_in(&r, 2) ? 1 + suite_draw(&r, 10) : 1 + suite_draw(&r, 100000);
    s.fill = suite_draw_once_in(&r, 3) ? fills[suite_draw(&r, 5)] : SUITE_NORMAL;
    add(s);
}

static void build(void)
{
    static const int64_t n[] = {0, 1, 3, 4, 7, 8, 9, 31, 64, 100, 1023, 1025, 16385, 70001};
    static const suite_fill fills[] = {SUITE_TINY, SUITE_ZERO, SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_ALTERNATING};
    foreach (t, floats) {
        saker_type x = floats[t];
        foreach (i, n)
            add((spec){x, x, x, x, 0, n[i], .step = 1 + (int64_t)i * 100});
        foreach (i, fills) {
            add((spec){x, x, x, x, 3, 50, .fill = fills[i]});
            add((spec){x, x, SAKER_F32, SAKER_F32, 3, 50, AMSGRAD, .fill = fills[i]});
        }
        add((spec){x, x, x, x, 5, 33, .has = STRIDED});
        add((spec){x, x, x, x, 5, 64, .has = STRIDED | AMSGRAD});
        add((spec){x, x, SAKER_F32, SAKER_F32, 40, 3, .has = STRIDED | CLIP});
        add((spec){x, x, x, x, 0, 2000, DEFAULTS, .step = 1});
        add((spec){x, x, x, x, 0, 2000, DEFAULTS, .step = 1000000});
    }
    for (int k = 0; k < 81; k++)
        add((spec){floats[k % 3], floats[k / 3 % 3], floats[k / 9 % 3], floats[k / 27], 0, 1040 + k % 5, .has = 0});
    for (int has = 0; has < 32; has++) {
        add((spec){SAKER_F32, SAKER_F32, SAKER_F32, SAKER_F32, 4, 67, .has = has});
        add((spec){SAKER_BF16, SAKER_F16, SAKER_F32, SAKER_BF16, 4, 68, .has = has});
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
    bench();
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

const suite skr_suite_adamw = {.op = "adamw", .at = at, .oracle = oracle, .plain = plain};
