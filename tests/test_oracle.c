/* test_oracle.c - is the judge right? Conversions against their definition, gradients against finite differences.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The oracle of an op's gradient is a formula written by hand, as the kernels are. Here it is compared with differences
 * of the forward oracle, which is simple enough to be read. Needs no kernel. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "suite.h"
#include "suite_convert.h"

/* ---------------------------------------------------------------- conversions */

/* Every bit pattern decodes to a value that encodes to the same bits; rounding it changes nothing; the midpoint of two
 * neighbours goes to the even one, and anything off the midpoint to the nearer one. */
static void check_float_type(saker_type type)
{
    const float_format *f = float_format_of(type);
    int bits = 8 * type_bytes(type);
    uint32_t step = bits == 32 ? 65521 : 1; /* f32: a sample; the others: all */
    double before = 0;
    for (uint64_t p = 0; p < (uint64_t)1 << (bits - 1); p += step) {
        uint32_t pattern = (uint32_t)p, back = 0;
        double v = decode(type, &pattern);
        if (isnan(v)) {
            CHECK(isnan(round_to(type, v)));
            continue;
        }
        encode(type, v, &back);
        if (back != pattern || (isfinite(v) && round_to(type, v) != v)) {
            CHECK_TEXT(false, "pattern %x of %d bits does not survive", pattern, bits);
            return;
        }
        if (p && isfinite(v) && step == 1) {
            double middle = (v + before) / 2, even = p % 2 ? before : v;
            bool good = round_to(type, middle) == even && round_to(type, -middle) == -even &&
                        round_to(type, middle * (1 + 1e-12)) == v && round_to(type, middle * (1 - 1e-12)) == before &&
                        fabs(half_ulp(type, before) - (v - before) / 2) == 0;
            if (!good) {
                CHECK_TEXT(false, "rounding near pattern %x of %d bits is wrong", pattern, bits);
                return;
            }
        }
        before = v;
    }
    CHECK(round_to(type, f->max + 0.999 * half_ulp(type, f->max)) == f->max);
    CHECK(round_to(type, 2 * f->max) == (f->saturates ? f->max : INFINITY));
    CHECK(round_to(type, -INFINITY) == (f->saturates ? -f->max : -INFINITY));
    CHECK(isnan(round_to(type, NAN)));
    CHECK(signbit(round_to(type, -0.0)));
}

static void conversions(void)
{
    static const saker_type all[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_E4M3, SAKER_E5M2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_float_type(all[i]);
    /* Values anybody can look up. */
    uint16_t h = 0x3c01, b = 0x3f81;
    uint8_t e4 = 0x7e, e4nan = 0x7f, e5 = 0x7b, e5inf = 0x7c;
    CHECK(decode(SAKER_F16, &h) == 1.0009765625);
    CHECK(decode(SAKER_BF16, &b) == 1.0078125);
    CHECK(decode(SAKER_E4M3, &e4) == 448);
    CHECK(isnan(decode(SAKER_E4M3, &e4nan)));
    CHECK(decode(SAKER_E5M2, &e5) == 57344);
    CHECK(isinf(decode(SAKER_E5M2, &e5inf)));
    CHECK(round_to(SAKER_F16, 65519.99) == 65504);
    CHECK(isinf(round_to(SAKER_F16, 65520)));
    CHECK(round_to(SAKER_I8, -200) == -127);
    CHECK(round_to(SAKER_I8, 2.5) == 2 && round_to(SAKER_I8, 3.5) == 4 && round_to(SAKER_I8, NAN) == 0);
    for (int i = 0; i < 100000; i++) { /* the hardware's own narrowing to f32 */
        double v = ldexp((double)rand() / RAND_MAX - 0.5, rand() % 300 - 160);
        if (round_to(SAKER_F32, v) != (double)(float)v) {
            CHECK_TEXT(false, "f32 rounding of %a", v);
            break;
        }
    }
}

/* ---------------------------------------------------------------- gradients */

enum { ROWS = 3, N = 5, HEADS = 3 };

static double x[ROWS * N], w[HEADS * N], bias[HEADS * N], dy[ROWS * N], dres[ROWS * N];
static const float offset = 0.5f, eps = 0.01f;

static bool centre; /* layer_norm, else rms_norm */

/* Forward in double without any rounding, dotted with the arriving gradients: what the backward formula differentiates.
 * residual_out is x, so that its gradient dres multiplies x. */
static double loss(void)
{
    double total = 0;
    for (int r = 0; r < ROWS; r++) {
        double mean = 0, sum = 0;
        for (int j = 0; j < N; j++)
            mean += centre ? x[r * N + j] / N : 0;
        for (int j = 0; j < N; j++)
            sum += (x[r * N + j] - mean) * (x[r * N + j] - mean);
        double rstd = 1 / sqrt(sum / N + (double)eps);
        for (int j = 0; j < N; j++) {
            int p = r % HEADS * N + j;
            double y = (x[r * N + j] - mean) * rstd * (w[p] + (double)offset) + bias[p];
            total += dy[r * N + j] * y + dres[r * N + j] * x[r * N + j];
        }
    }
    return total;
}

/* Central difference in one variable; the step balances truncation (h^2) against cancellation (2^-53 / h). */
static double difference(double *variable)
{
    const double h = 1e-5, here = *variable;
    *variable = here + h;
    double plus = loss();
    *variable = here - h;
    double minus = loss();
    *variable = here;
    return (plus - minus) / (2 * h);
}

static void gradients(bool layer)
{
    centre = layer;
    double dx[ROWS * N], dw[HEADS * N], db[HEADS * N], bound[ROWS * N];
    srand(7);
    /* Values that f32 holds, so that the oracle's own rounding of w + offset is exact. */
    for (int i = 0; i < ROWS * N; i++) {
        x[i] = rand() % 64 / 16.0 - 2;
        w[i] = rand() % 64 / 16.0 - 2;
        bias[i] = rand() % 64 / 16.0 - 2;
        dy[i] = rand() % 64 / 16.0 - 2;
        dres[i] = rand() % 64 / 16.0 - 2;
    }
    saker_rms_norm_backward_args a = {.struct_size = sizeof a, .eps = eps, .weight_offset = offset};
    saker_layer_norm_backward_args l = {.struct_size = sizeof l, .eps = eps, .weight_offset = offset};
    suite_case c = {
        .name = "gradients",
        .n_tensors = 7,
        .tensor = {{.field = "dy", .type = SAKER_F32, .ndim = 3, .shape = {1, HEADS, N}},
                   {.field = "x", .type = SAKER_F32, .ndim = 3, .shape = {1, HEADS, N}},
                   {.field = "weight", .type = SAKER_F32, .ndim = 2, .shape = {HEADS, N}},
                   {.field = "dresidual_out", .type = SAKER_F32, .ndim = 3, .shape = {1, HEADS, N}},
                   {.field = "dx", .role = SUITE_OUT, .type = SAKER_F32, .ndim = 3, .shape = {1, HEADS, N}},
                   {.field = "dweight", .role = SUITE_OUT, .type = SAKER_F32, .ndim = 2, .shape = {HEADS, N}},
                   {.field = "dbias", .role = SUITE_OUT, .type = SAKER_F32, .ndim = 2, .shape = {HEADS, N}}}};
    memcpy(c.args, layer ? (void *)&l : (void *)&a, layer ? sizeof l : sizeof a);
    double bound_w[HEADS * N], bound_b[HEADS * N];
    double *value[] = {dy, x, w, dres, dx, dw, db}, *bounds[] = {NULL, NULL, NULL, NULL, bound, bound_w, bound_b};
    (layer ? skr_suite_layer_norm_backward : skr_suite_rms_norm_backward).oracle(&c, value, bounds);
    for (int i = 0; i < ROWS * N; i++) {
        double d[3] = {difference(&x[i]), difference(&w[i]), difference(&bias[i])};
        CHECK_TEXT(fabs(d[0] - dx[i]) < 1e-7 * (1 + fabs(dx[i])), "dx[%d] is %g, differences give %g", i, dx[i], d[0]);
        CHECK_TEXT(fabs(d[1] - dw[i]) < 1e-7 * (1 + fabs(dw[i])), "dweight[%d] is %g, not %g", i, dw[i], d[1]);
        CHECK_TEXT(fabs(d[2] - db[i]) < 1e-7 * (1 + fabs(db[i])), "dbias[%d] is %g, not %g", i, db[i], d[2]);
        CHECK_TEXT(bound[i] > 0 && bound[i] < 1e-4, "the bound of dx[%d] is %g", i, bound[i]);
    }
    /* The forward oracle agrees with the plain formula above: sum dy * y + dres * x is the loss. */
    saker_rms_norm_args f = {.struct_size = sizeof f, .eps = eps, .weight_offset = offset};
    saker_layer_norm_args g = {.struct_size = sizeof g, .eps = eps, .weight_offset = offset};
    suite_case forward = {
        .name = "forward",
        .n_tensors = 4,
        .tensor = {c.tensor[1],
                   c.tensor[2],
                   {.field = "bias", .type = SAKER_F32, .ndim = 2, .shape = {HEADS, N}},
                   {.field = "y", .role = SUITE_OUT, .type = SAKER_F32, .ndim = 3, .shape = {1, HEADS, N}}}};
    memcpy(forward.args, layer ? (void *)&g : (void *)&f, layer ? sizeof g : sizeof f);
    double y[ROWS * N], total = 0;
    double *fvalue[] = {x, w, bias, y}, *fbounds[] = {NULL, NULL, NULL, bound};
    (layer ? skr_suite_layer_norm : skr_suite_rms_norm).oracle(&forward, fvalue, fbounds);
    for (int i = 0; i < ROWS * N; i++)
        total += dy[i] * y[i] + dres[i] * x[i];
    CHECK(fabs(total - loss()) < 1e-12);
}

/* ---------------------------------------------------------------- the tables themselves */

static void tables(void)
{
    static suite_case a, b;
    for (int o = 0; o < suite_count(); o++) {
        const suite *s = suite_at(o);
        int checks = 0, benches = 0;
        for (int i = 0; s->at(i, &a); i++) {
            CHECK_TEXT(strlen(a.name) < sizeof a.name - 1, "%s: a name is cut: %s", s->op, a.name);
            CHECK_TEXT(a.use != 0 && a.n_tensors > 0 && a.bytes >= 0, "%s: %s is incomplete", s->op, a.name);
            checks += !!(a.use & SUITE_CHECK);
            benches += !!(a.use & (SUITE_BENCH | SUITE_CACHE | SUITE_BENCH_CUDA));
            for (int k = i + 1; k < i + 4 && s->at(k, &b); k++)
                CHECK_TEXT(strcmp(a.name, b.name), "%s: two cases are named %s", s->op, a.name);
        }
        CHECK_TEXT(checks > 0 && benches > 0, "%s has %d cases and %d bench cases", s->op, checks, benches);
        printf("%s: %d cases, %d bench cases\n", s->op, checks, benches);
    }
}

int main(void)
{
    conversions();
    gradients(false);
    gradients(true);
    tables();
    return check_report("test_oracle");
}
