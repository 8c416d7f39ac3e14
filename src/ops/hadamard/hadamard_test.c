/* hadamard_test.c - oracle and cases of hadamard.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"
#include "suite_list.h"
#include "suite_random.h"

static suite_list list;

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
            bound[1][r + i] = half_ulp(c->tensor[1].type, y[i]) + (log2((double)n) + 3) * U * size / root;
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
    int64_t m = suite_row_count(&c->tensor[0]), n = c->tensor[0].shape[c->tensor[0].ndim - 1];
    if (!one)
        return m;
    *one = *c;
    for (int i = 0; i < 2; i++) {
        slice->first[i] = r * n;
        one->tensor[i].ndim = 2;
        one->tensor[i].shape[0] = 1, one->tensor[i].shape[1] = n;
        memset(one->tensor[i].stride, 0, sizeof one->tensor[i].stride);
    }
    return m;
}

enum { STRIDED = 1, IN_PLACE = 2, THREE = 4 }; /* THREE: [2, m/2, n], of several strides, rows aligned as vectors are */

static void add(saker_type x, saker_type y, int64_t m, int64_t n, int has, suite_fill fill, int use)
{
    static const char *const words[] = {" padded", " in place", " 3d"};
    const int64_t lead[] = {has & THREE ? 2 : m, m / 2};
    const int n_lead = has & THREE ? 2 : 1;
    suite_case c = {.use = use, .reads = 1, .writes = 1};
    saker_hadamard_args a = {.struct_size = sizeof a};
    memcpy(c.args, &a, sizeof a);
    suite_tensor *in = suite_add_rows(&c, "x", SUITE_IN, x, n_lead, lead, n, has & STRIDED ? 8 : 0);
    suite_tensor *out = suite_add_rows(&c, "y", SUITE_OUT, y, n_lead, lead, n, has & STRIDED ? 8 : 0);
    in->fill = fill;
    if (has & THREE)
        suite_lay_out(in, SUITE_GAPPED, 16, true), suite_lay_out(out, SUITE_GAPPED, 32, true);
    if (has & IN_PLACE)
        suite_share(&c, out, "x");
    c.bytes = suite_all_bytes(&c);
    c.flops = (double)(m * n) * (log2((double)(n ? n : 1)) + 1);
    suite_say(&c, "%s %s ", suite_type_text(x), suite_type_text(y));
    suite_say_shape(&c, 1, &m, n);
    suite_say_bits(&c, has, 3, words);
    suite_say(&c, "%s%s", suite_fill_text(fill), use == SUITE_CHECK ? "" : use == SUITE_CACHE ? " in cache" : " bench");
    suite_list_add(&list, &c);
}

static void random_case(int number)
{
    uint64_t r = suite_draws(number);
    saker_type x = suite_draw_float(&r), y = suite_draw_near(&r, x);
    int64_t n = (int64_t)1 << suite_draw(&r, 13), m = suite_draw(&r, n < 300 ? 140 : 8);
    int has = suite_draw(&r, 4);
    add(x, y, m, n, has, suite_draw_once_in(&r, 4) ? SUITE_EDGES : SUITE_NORMAL, SUITE_CHECK);
}

static void build(void)
{
    static const suite_fill fills[] = {SUITE_ZERO, SUITE_CONSTANT, SUITE_TINY, SUITE_ONE_NAN, SUITE_ALTERNATING};
    foreach (t, floats) {
        saker_type x = floats[t];
        for (int64_t n = 1; n <= 65536; n *= 2) {
            add(x, x, n > 4096 ? 2 : 7, n, 0, SUITE_NORMAL, SUITE_CHECK);
            if (n >= 32)
                add(x, x, n > 1000 ? 3 : 37, n, n & 0x5555 ? IN_PLACE : STRIDED, SUITE_NORMAL, SUITE_CHECK);
        }
        add(x, x, 1, 1 << 20, 0, SUITE_NORMAL, SUITE_CHECK);
        add(x, x, 1, (int64_t)1 << (17 + t), 0, SUITE_NORMAL, SUITE_CHECK); /* CUDA: other numbers of pieces */
        add(x, floats[(t + 1) % 3], 2, 32768, 0, SUITE_NORMAL, SUITE_CHECK);
        foreach (o, floats)
            add(x, floats[o], 5, 256, 0, SUITE_UNIFORM, SUITE_CHECK);
        foreach (f, fills)
            add(x, x, 3, 512, 0, fills[f], SUITE_CHECK);
        add(x, x, 0, 64, 0, SUITE_NORMAL, SUITE_CHECK);
        add(x, x, 5, 0, 0, SUITE_NORMAL, SUITE_CHECK);
        add(x, x, 3000, 128, 0, SUITE_NORMAL, SUITE_CHECK);
        add(x, x, 6, 64, THREE, SUITE_NORMAL, SUITE_CHECK);
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
    for (int i = 0; i < SUITE_RANDOM; i++)
        random_case(i);
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

const suite skr_suite_hadamard = {.op = "hadamard", .at = at, .oracle = oracle, .plain = plain, .row = row};
