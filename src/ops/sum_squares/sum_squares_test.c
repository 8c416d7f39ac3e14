/* sum_squares_test.c - oracle and cases of sum_squares.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"
#include "suite.h"

enum { MAX_CASES = 256 };

static suite_case *cases;
static int n_cases;

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
    bound[1][0] = half_ulp(SAKER_F32, sum) + 32 * 0x1p-24 * fabs(sum) + (double)n * 0x1p-149;
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

static void add(saker_type type, int64_t m, int64_t n, int64_t stride, suite_fill fill, bool accumulate, int use)
{
    suite_case *c = &cases[n_cases++];
    if (n_cases == MAX_CASES)
        abort();
    *c = (suite_case){.use = use, .n_tensors = 2, .reads = 1, .writes = 0};
    saker_sum_squares_args a = {.struct_size = sizeof a, .accumulate = accumulate};
    memcpy(c->args, &a, sizeof a);
    c->tensor[0] = (suite_tensor){.field = "x",
                                  .type = type,
                                  .ndim = m < 0 ? 1 : 2,
                                  .shape = {m < 0 ? n : m, n},
                                  .fill = fill,
                                  .free_shape = SUITE_ANY_SHAPE};
    if (stride) {
        c->tensor[0].stride[0] = stride;
        c->tensor[0].stride[1] = 1;
    }
    c->tensor[1] = (suite_tensor){.field = "out",
                                  .role = accumulate ? SUITE_INOUT : SUITE_OUT,
                                  .type = SAKER_F32,
                                  .ndim = 1,
                                  .shape = {1},
                                  .fill = SUITE_POSITIVE};
    c->bytes = (double)suite_elements(&c->tensor[0]) * suite_type_bytes(type);
    c->flops = 2 * (double)suite_elements(&c->tensor[0]);
    saker_dtype d = {(uint8_t)type, (uint8_t)((int)type >> 8), 1};
    snprintf(c->name, sizeof c->name, "%s %lldx%lld%s fill=%d%s%s", saker_type_name(d), (long long)m, (long long)n,
             stride ? " strided" : "", fill, accumulate ? " accumulate" : "", use == SUITE_CHECK ? "" : " bench");
}

static void build(void)
{
    static const saker_type floats[] = {SAKER_F32, SAKER_F16, SAKER_BF16};
    static const int64_t n[] = {0, 1, 2, 3, 7, 8, 15, 33, 127, 1000, 1024, 4099, 65537, 300000};
    static const suite_fill fills[] = {SUITE_LARGE, SUITE_TINY, SUITE_ZERO, SUITE_ONE_NAN, SUITE_ONE_INF};
    cases = calloc(MAX_CASES, sizeof *cases);
    if (!cases)
        abort();
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof n / sizeof *n; i++)
            add(floats[t], -1, n[i], 0, SUITE_NORMAL, i % 2, SUITE_CHECK);
        for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
            add(floats[t], 5, 77, 0, fills[i], false, SUITE_CHECK);
        add(floats[t], 17, 129, 200, SUITE_NORMAL, true, SUITE_CHECK);
        add(floats[t], 300, 4, 9, SUITE_NORMAL, false, SUITE_CHECK);
        add(floats[t], 3, 70000, 70008, SUITE_NORMAL, false, SUITE_CHECK);
        add(floats[t], 3, 0, 0, SUITE_NORMAL, false, SUITE_CHECK);
        add(floats[t], 1000, 5001, 0, SUITE_NORMAL, false, SUITE_CHECK);
        int64_t wide = (int64_t)suite_type_bytes(floats[t]);
        add(floats[t], -1, (256 << 20) / wide, 0, SUITE_NORMAL, false, SUITE_BENCH);
        add(floats[t], -1, (256 << 10) / wide, 0, SUITE_NORMAL, false, SUITE_CACHE);
        add(floats[t], -1, (1024 << 20) / wide, 0, SUITE_NORMAL, false, SUITE_BENCH_CUDA);
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

const suite skr_suite_sum_squares = {.op = "sum_squares", .at = at, .oracle = oracle, .plain = plain};
