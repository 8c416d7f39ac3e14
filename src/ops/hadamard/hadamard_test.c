/* hadamard_test.c - oracle and cases of hadamard.
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

/* Each element is a sum of all N, through log2(N) additions; the scale is rounded twice. */
static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    int64_t n = c->tensor[0].shape[c->tensor[0].ndim - 1], total = suite_elements(&c->tensor[0]);
    double root = sqrt((double)n);
    for (int64_t r = 0; r < total; r += n) {
        double *y = value[1] + r, size = 0;
        memmove(y, value[0] + r, (size_t)n * sizeof *y);
        for (int64_t i = 0; i < n; i++)
            size += fabs(y[i]);
        for (int64_t h = 1; h < n; h *= 2)
            for (int64_t i = 0; i < n; i++)
                if (!(i & h)) {
                    double a = y[i], b = y[i + h];
                    y[i] = a + b;
                    y[i + h] = a - b;
                }
        for (int64_t i = 0; i < n; i++) {
            y[i] /= root;
            bound[1][r + i] = half_ulp(c->tensor[1].type, y[i]) + (log2((double)n) + 3) * 0x1p-24 * size / root;
        }
    }
}

static void plain(const suite_case *c, double *const *value)
{
    int64_t n = c->tensor[0].shape[c->tensor[0].ndim - 1], total = suite_elements(&c->tensor[0]);
    float *y = malloc((size_t)n * sizeof *y + 1);
    for (int64_t r = 0; r < total; r += n) {
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)value[0][r + i];
        for (int64_t h = 1; h < n; h *= 2)
            for (int64_t i = 0; i < n; i++)
                if (!(i & h)) {
                    float a = y[i], b = y[i + h];
                    y[i] = a + b;
                    y[i + h] = a - b;
                }
        for (int64_t i = 0; i < n; i++)
            value[1][r + i] = round_to(c->tensor[1].type, (double)(y[i] / sqrtf((float)n)));
    }
    free(y);
}

static int64_t row(const suite_case *c, int64_t r, suite_case *one, suite_slice *slice)
{
    int64_t m = c->tensor[0].shape[0];
    if (!one)
        return m;
    *one = *c;
    for (int i = 0; i < 2; i++) {
        slice->first[i] = r * c->tensor[i].shape[1];
        one->tensor[i].shape[0] = 1;
        one->tensor[i].stride[0] = one->tensor[i].stride[1] = 0;
    }
    return m;
}

enum { STRIDED = 1, IN_PLACE = 2 };

static void add(saker_type x, saker_type y, int64_t m, int64_t n, int has, suite_fill fill, int use)
{
    suite_case *c = &cases[n_cases++];
    if (n_cases == MAX_CASES)
        abort();
    *c = (suite_case){.use = use, .n_tensors = 2, .reads = 1, .writes = 1};
    saker_hadamard_args a = {.struct_size = sizeof a};
    memcpy(c->args, &a, sizeof a);
    for (int i = 0; i < 2; i++) {
        c->tensor[i] = (suite_tensor){.field = i ? "y" : "x",
                                      .role = i ? SUITE_OUT : SUITE_IN,
                                      .type = i ? y : x,
                                      .ndim = 2,
                                      .shape = {m, n},
                                      .fill = fill};
        if (has & STRIDED) {
            c->tensor[i].stride[0] = n + 8;
            c->tensor[i].stride[1] = 1;
        }
    }
    if (has & IN_PLACE)
        c->tensor[1].alias = "x";
    c->bytes = (double)(m * n) * (suite_type_bytes(x) + suite_type_bytes(y));
    c->flops = (double)(m * n) * (log2((double)(n ? n : 1)) + 1);
    snprintf(c->name, sizeof c->name, "%s %s %lldx%lld has=%d fill=%d%s",
             saker_type_name((saker_dtype){(uint8_t)x, (uint8_t)((int)x >> 8), 1}),
             saker_type_name((saker_dtype){(uint8_t)y, (uint8_t)((int)y >> 8), 1}), (long long)m, (long long)n, has,
             fill,
             use == SUITE_CHECK   ? ""
             : use == SUITE_CACHE ? " in cache"
                                  : " bench");
}

static void build(void)
{
    static const saker_type floats[] = {SAKER_F32, SAKER_F16, SAKER_BF16};
    static const suite_fill fills[] = {SUITE_ZERO, SUITE_CONSTANT, SUITE_TINY, SUITE_ONE_NAN, SUITE_ALTERNATING};
    cases = calloc(MAX_CASES, sizeof *cases);
    if (!cases)
        abort();
    for (int t = 0; t < 3; t++) {
        saker_type x = floats[t];
        for (int64_t n = 1; n <= 65536; n *= 2) {
            add(x, x, n > 4096 ? 2 : 7, n, 0, SUITE_NORMAL, SUITE_CHECK);
            if (n >= 32)
                add(x, x, n > 1000 ? 3 : 37, n, n & 0x5555 ? IN_PLACE : STRIDED, SUITE_NORMAL, SUITE_CHECK);
        }
        add(x, x, 1, 1 << 20, 0, SUITE_NORMAL, SUITE_CHECK);
        for (int o = 0; o < 3; o++)
            add(x, floats[o], 5, 256, 0, SUITE_UNIFORM, SUITE_CHECK);
        for (size_t f = 0; f < sizeof fills / sizeof *fills; f++)
            add(x, x, 3, 512, 0, fills[f], SUITE_CHECK);
        add(x, x, 0, 64, 0, SUITE_NORMAL, SUITE_CHECK);
        add(x, x, 5, 0, 0, SUITE_NORMAL, SUITE_CHECK);
        add(x, x, 3000, 128, 0, SUITE_NORMAL, SUITE_CHECK);
        int64_t bytes = suite_type_bytes(x);
        for (int64_t n = 128; t != 1 && n <= 32768; n *= n < 4096 ? 32 : 8) {
            int64_t cpu = ((int64_t)256 << 20) / bytes / n, cuda = ((int64_t)1 << 27) / n;
            add(x, x, cpu, n, 0, SUITE_NORMAL, SUITE_BENCH | (cpu == cuda ? SUITE_BENCH_CUDA : 0));
            if (cpu != cuda)
                add(x, x, cuda, n, 0, SUITE_NORMAL, SUITE_BENCH_CUDA);
        }
        if (t != 1)
            add(x, x, (128 << 10) / bytes / 1024, 1024, 0, SUITE_NORMAL, SUITE_CACHE);
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

const suite skr_suite_hadamard = {.op = "hadamard", .at = at, .oracle = oracle, .plain = plain, .row = row};
