/* gemm_random_test.c - random combinations of gemm's options: only such as saker.h allows, the same in every run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cases_test.h"

/* ---------------------------------------------------------------- draws, grouped_gemm's too */

saker_type gemm_random_type(uint64_t *r, saker_type d)
{
    saker_type type = suite_draw_float(r);
    return d == SAKER_I32 ? SAKER_I32 : type;
}

pair gemm_random_pair(uint64_t *r)
{
    static const saker_type kinds[][2] = {{SAKER_F32, SAKER_F32},   {SAKER_F16, SAKER_F16},   {SAKER_BF16, SAKER_BF16},
                                          {SAKER_E4M3, SAKER_E4M3}, {SAKER_E4M3, SAKER_E5M2}, {SAKER_E5M2, SAKER_E4M3},
                                          {SAKER_E5M2, SAKER_E5M2}, {SAKER_I8, SAKER_I8},     {SAKER_I32, SAKER_I32},
                                          {SAKER_F16, SAKER_I8},    {SAKER_F16, SAKER_I4},    {SAKER_BF16, SAKER_I8},
                                          {SAKER_BF16, SAKER_I4},   {SAKER_I8, SAKER_I4}};
    static const int64_t groups[] = {1, 8, 24, 32, 33, 64, 96, 128, 256, 514};
    int kind = suite_draw(r, 20);
    kind = kind < 14 ? kind : kind % 3; /* floats more often */
    pair p = {.a = kinds[kind][0], .b = kinds[kind][1], .d = suite_draw_float(r)};
    int scaling = suite_draw_once_in(r, 2) ? 0 : 1 + suite_draw(r, 3);
    int64_t group = groups[suite_draw(r, 10)];
    bool exact = suite_draw_once_in(r, 2);
    if (p.a == SAKER_I32 || (p.a == SAKER_I8 && p.b == SAKER_I8 && exact))
        p.d = SAKER_I32;
    else if (kind > 8)
        p.scaling = SAKER_GEMM_SCALE_GROUP, p.group = group;
    else
        p.scaling = scaling;
    return p;
}

int64_t gemm_random_size(uint64_t *r)
{
    static const int64_t edges[] = {7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    return suite_draw_once_in(r, 2) ? edges[suite_draw(r, 16)] : 1 + suite_draw(r, 75);
}

/* ---------------------------------------------------------------- gemm */

/* What the oracle does for all of the cases together has to be seconds. */
enum { MOST_PRODUCTS = 1 << 21 };

/* whole: m, n and k as the copy engine of a GPU wants them. */
static void draw_sizes(spec *s, uint64_t *r, bool whole)
{
    static const int64_t matrices[] = {1, 3, 3, 3, 6, 0, 3};
    bool few = suite_draw_once_in(r, 3), many = suite_draw_once_in(r, 8), few_columns = suite_draw_once_in(r, 8);
    bool no_k = suite_draw_once_in(r, 16), long_k = suite_draw_once_in(r, 4);
    s->m = few ? 1 + suite_draw(r, 16) : many ? 130 + suite_draw(r, 131) : gemm_random_size(r);
    s->n = few_columns ? 1 + suite_draw(r, 16) : gemm_random_size(r);
    s->k = no_k ? 0 : long_k ? 200 + suite_draw(r, 1301) : gemm_random_size(r);
    s->batch = suite_draw_once_in(r, 3) ? suite_draw(r, EXPANDED + 1) : ALONE;
    if (matrices[s->batch] * s->m * s->n * s->k > MOST_PRODUCTS)
        s->batch = ALONE;
    if (s->m * s->n * s->k > MOST_PRODUCTS)
        s->k %= 50;
    if (whole) {
        s->m = few ? s->m : (s->m + 15) / 16 * 16;
        s->n = (s->n + 15) / 16 * 16;
        s->k = (s->k + 15) / 16 * 16;
    }
    s->n += s->gated ? s->n % 2 : 0;
}

static int draw_layout(uint64_t *r, saker_type type, bool whole)
{
    static const int aligned[] = {ROWS, COLS, WIDE, TALL};
    int any = suite_draw(r, TALL + 1), plain = aligned[suite_draw(r, whole ? 4 : 2)];
    return whole || suite_draw_once_in(r, 2) || (any == FREE && type == SAKER_I4) ? plain : any;
}

/* The scales: those that only one side has, and the zero points that need b's. */
static void draw_scales(spec *s, uint64_t *r)
{
    int which = suite_draw(r, 4);
    saker_type zero = suite_draw_once_in(r, 2) ? SAKER_I8 : SAKER_F32;
    bool zeros = suite_draw_once_in(r, 2), all = suite_draw_once_in(r, 2);
    if (!s->scaling)
        return;
    s->only_a_scale = which == 0;
    s->only_b_scale = which == 1;
    s->zero = s->scaling == SAKER_GEMM_SCALE_GROUP && !s->only_a_scale && zeros ? zero : 0;
    s->all_scales = s->scaling != SAKER_GEMM_SCALE_TENSOR && !s->only_a_scale && s->batch && all;
}

/* c, bias and pre, which exact results have as well. */
static void draw_sides(spec *s, uint64_t *r)
{
    static const float factors[] = {1, 0.5f, -0.75f, 2};
    float alpha = factors[suite_draw(r, 4)], beta = factors[suite_draw(r, 4)];
    bool exact = s->d == SAKER_I32, unread = suite_draw_once_in(r, 4), in_place = suite_draw_once_in(r, 3);
    saker_type c = gemm_random_type(r, s->d), bias = gemm_random_type(r, s->d), pre = gemm_random_type(r, s->d);
    s->alpha = suite_draw_once_in(r, 2) ? 0 : exact ? 1 : alpha;
    if (suite_draw_once_in(r, 3)) {
        s->in_place = in_place && !s->gated;
        s->c = s->in_place ? s->d : c;
        s->beta = unread ? 0 : exact ? 1 : beta;
        s->c_fill = unread && !exact ? SUITE_ONE_NAN : SUITE_NORMAL;
        s->all_c = !s->in_place && s->batch && suite_draw_once_in(r, 2);
    }
    s->bias = suite_draw_once_in(r, 3) ? bias : 0;
    s->bias_rows = s->bias && suite_draw_once_in(r, 2);
    s->pre = suite_draw_once_in(r, 4) ? pre : 0;
}

/* The activation, or its derivative. */
static void draw_function(spec *s, uint64_t *r)
{
    saker_type saved = suite_draw_float(r), dbias = suite_draw_float(r);
    int act = suite_draw(r, SAKER_ACT_SWIGLU_OAI + (s->gated ? 1 : 0));
    s->act = s->gated || suite_draw_once_in(r, 2) ? act : 0;
    s->saved = !s->gated && suite_draw_once_in(r, 6) ? saved : 0;
    s->dbias = !s->gated && suite_draw_once_in(r, s->saved ? 2 : 12) ? dbias : 0;
    s->accumulate = s->dbias && suite_draw_once_in(r, 2);
}

static spec random_spec(int number)
{
    /* None of numbers that are all alike: their sums round alike as well, past a bound for roundings of any sign. */
    static const suite_fill fills[] = {SUITE_ZERO, SUITE_LARGE, SUITE_TINY, SUITE_ONE_NAN, SUITE_POSITIVE, SUITE_EDGES};
    uint64_t r = suite_draws(number);
    pair p = gemm_random_pair(&r);
    spec s = {.random = number + 1, .a = p.a, .b = p.b, .d = p.d, .scaling = p.scaling, .group = p.group};
    s.gated = s.d != SAKER_I32 && suite_draw_once_in(&r, 5) ? 1 + suite_draw(&r, 2) : 0;
    bool whole = suite_draw_once_in(&r, 2);
    draw_sizes(&s, &r, whole);
    s.la = draw_layout(&r, s.a, whole);
    s.lb = draw_layout(&r, s.b, whole);
    s.ld = draw_layout(&r, s.d, whole);
    if (whole && suite_draw_once_in(&r, 2)) /* what every kernel takes */
        s.la = ROWS, s.lb = COLS;
    draw_scales(&s, &r);
    draw_sides(&s, &r);
    if (s.d != SAKER_I32)
        draw_function(&s, &r);
    s.fill = suite_draw_once_in(&r, 8) ? fills[suite_draw(&r, 6)] : SUITE_NORMAL;
    if (s.m > 32 && (s.k == 0 || s.fill == SUITE_ZERO)) /* nor rows that are */
        s.dbias = s.accumulate = 0;
    s.schedule = suite_draw(&r, 5);
    s.tf32 = suite_draw_once_in(&r, 2) && s.a == SAKER_F32;
    s.fast = suite_draw_once_in(&r, 4) && (s.a == SAKER_E4M3 || s.a == SAKER_E5M2);
    return s;
}

void gemm_random_cases(void)
{
    for (int i = 0; i < 2000; i++)
        gemm_case(random_spec(i));
}
