/* sum_squares_test.c - oracle and cases of sum_squares.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "suite_convert.h"
#include "suite_list.h"
#include "suite_random.h"

static suite_list list;

/* Tensors: x, out. Each product is rounded once (an absolute step where it is subnormal); f32 chains are at most
 * SKR_SQUARES_RUN / 8 long, or as long on CUDA as there are tiles for a block, and signs do not cancel. */
static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    saker_sum_squares_args a;
    memcpy(&a, c->args, sizeof a);
    int64_t n = suite_elements(&c->tensor[0]);
    double sum = a.accumulate ? value[1][0] : 0;
    for (int64_t i = 0; i < n; i++)
        sum += value[0][i] * value[0][i];
    value[1][0] = sum;
    bound[1][0] = half_ulp(SAKER_F32, sum) + 32 * U * fabs(sum) + (double)n * DENORM;
}

static void plain(const suite_case *c, double *const *value)
{
    saker_sum_squares_args a;
    memcpy(&a, c->args, sizeof a);
    float sum = a.accumulate ? (float)value[1][0] : 0;
    for (int64_t i = 0; i < suite_elements(&c->tensor[0]); i++)
        sum += (float)value[0][i] * (float)value[0][i];
    value[1][0] = (double)sum;
}

/* m < 0: x is [n]. */
static void add(saker_type type, int64_t m, int64_t n, int64_t gap, suite_fill fill, bool accumulate, int use)
{
    suite_case c = {.use = use, .reads = 1};
    saker_sum_squares_args a = {.struct_size = sizeof a, .accumulate = accumulate};
    memcpy(c.args, &a, sizeof a);
    suite_tensor *x = suite_add_rows(&c, "x", SUITE_IN, type, m < 0 ? 0 : 1, &m, n, gap);
    x->fill = fill;
    x->free_shape = SUITE_ANY_SHAPE;
    suite_add_rows(&c, "out", accumulate ? SUITE_INOUT : SUITE_OUT, SAKER_F32, 0, NULL, 1, 0)->fill = SUITE_POSITIVE;
    c.bytes = (double)suite_elements(x) * suite_type_bytes(type);
    c.flops = 2 * (double)suite_elements(x);
    suite_say(&c, "%s ", suite_type_text(type));
    suite_say_shape(&c, m < 0 ? 0 : 1, &m, n);
    suite_say(&c, "%s%s%s%s", gap ? " padded" : "", suite_fill_text(fill), accumulate ? " acc" : "",
              use == SUITE_CHECK ? "" : " bench");
    suite_list_add(&list, &c);
}

static void random_case(int number)
{
    uint64_t r = suite_draws(number);
    int64_t n = suite_draw_width(&r), m = suite_draw(&r, n < 300 ? 140 : 8) - 1;
    int64_t gap = m > 0 ? suite_draw(&r, 12) : 0;
    saker_type type = suite_draw_float(&r);
    bool accumulate = suite_draw_once_in(&r, 2);
    suite_fill fill = suite_draw_once_in(&r, 3) ? (suite_fill)suite_draw(&r, SUITE_LARGE + 1) : SUITE_NORMAL;
    add(type, m, n, gap, fill, accumulate, SUITE_CHECK);
}

static void build(void)
{
    static const int64_t n[] = {0, 1, 2, 3, 7, 8, 15, 33, 127, 1000, 1024, 4099, 65537, 300000};
    static const suite_fill fills[] = {SUITE_LARGE, SUITE_TINY, SUITE_ZERO, SUITE_ONE_NAN, SUITE_ONE_INF};
    foreach (t, floats) {
        foreach (i, n)
            add(floats[t], -1, n[i], 0, SUITE_NORMAL, i % 2, SUITE_CHECK);
        foreach (i, fills)
            add(floats[t], 5, 77, 0, fills[i], false, SUITE_CHECK);
        add(floats[t], 17, 129, 71, SUITE_NORMAL, true, SUITE_CHECK);
        add(floats[t], 300, 4, 5, SUITE_NORMAL, false, SUITE_CHECK);
        add(floats[t], 3, 70000, 8, SUITE_NORMAL, false, SUITE_CHECK);
        add(floats[t], 3, 0, 0, SUITE_NORMAL, false, SUITE_CHECK);
        add(floats[t], 1000, 5001, 0, SUITE_NORMAL, false, SUITE_CHECK);
        int64_t wide = (int64_t)suite_type_bytes(floats[t]);
        add(floats[t], -1, (256 << 20) / wide, 0, SUITE_NORMAL, false, SUITE_BENCH);
        add(floats[t], -1, (256 << 10) / wide, 0, SUITE_NORMAL, false, SUITE_CACHE);
        add(floats[t], -1, (1024 << 20) / wide, 0, SUITE_NORMAL, false, SUITE_BENCH_CUDA);
    }
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

const suite skr_suite_sum_squares = {.op = "sum_squares", .at = at, .oracle = oracle, .plain = plain};
