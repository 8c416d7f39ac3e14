/* test_vmath.c - sweeps every function of src/cpu/simd/vmath.h against libm in double, at every level this machine can
 * run. SPDX-License-Identifier: Apache-2.0
 *
 * Arguments: every STEP-th f32 bit pattern, an odd number so that all exponents and all low bits are met, and a list of
 * special values. Error is counted in ulp of the true value rounded to f32 (the least subnormal at the bottom). Usage:
 * test_vmath [step] Needs -DSKR_LEVELS as cpu.c has it, and vmath_probe.c compiled once per level. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/job.h"
#include "../src/core/num.h"
#include "saker.h"

#define SKR_LEVEL_ROW(level)                                                                                           \
    void skr_vmath_##level(int which, const float *x, float *y, int64_t n);                                            \
    void skr_codes_##level(int type, int fast, const float *x, uint8_t *q, int64_t n);                                 \
    void skr_halves_##level(int type, const float *x, uint16_t *y, int64_t n);                                         \
    void skr_values_##level(int type, float *y);
SKR_LEVELS
#undef SKR_LEVEL_ROW

static const struct {
    const char *level;
    void (*sweep)(int which, const float *x, float *y, int64_t n);
    void (*codes)(int type, int fast, const float *x, uint8_t *q, int64_t n);
    void (*halves)(int type, const float *x, uint16_t *y, int64_t n);
    void (*values)(int type, float *y);
} levels[] = {
#define SKR_LEVEL_ROW(level) {#level, skr_vmath_##level, skr_codes_##level, skr_halves_##level, skr_values_##level},
    SKR_LEVELS
#undef SKR_LEVEL_ROW
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

/* 2^x, 0 where it would be nearer to 2^-127 than to 2^-126 in the exponent. */
static double normal_exp2(double x)
{
    return x <= -126.5 ? 0 : exp2(x);
}

static double falling(double x)
{
    return exp(-fabs(x));
}

static double sigmoid_tail(double x)
{
    return sigmoid(-fabs(x));
}

/* In the order of vmath_probe.c, with the bounds that vmath.h states. */
static const struct {
    const char *name;
    double (*truth)(double x);
    double bound;
    float most; /* largest argument; 0: any */
} functions[] = {
    {"exp", exp, 1.25, 0},
    {"exp2", exp2, 1.25, 0},
    {"log", log, 1, 0},
    {"tanh", tanh, 2, 0},
    {"erf", erf, 2, 0},
    {"sigmoid", sigmoid, 3, 0},
    {"rsqrt", rsqrt, 1.5, 0},
    {"sin", sin, 2, 0},
    {"cos", cos, 2, 0},
    {"expbelow", exp, 1.25, 70},
    {"exp2normal", normal_exp2, 1.25, 127},
    {"exp2four", normal_exp2, 2.5, 127},
    {"expfall", falling, 2.75, 0},
    {"sigtail", sigmoid_tail, 4, 0},
    {"expfour", exp, 1.25, 70},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions, BATCH = 4096 };

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Distance in ulp; 0 where both are NaN or the same infinity, infinity where only one is. */
static double ulps(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf((float)want) || isinf(got))
        return (float)want == got ? 0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    double ulp = want == 0 ? 0x1p-149 : ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)got - want) / ulp;
}

typedef struct worst {
    double error;
    float x, got;
} worst;

static void compare(int f, int level, const float *x, const double *want, int n, worst *w)
{
    float y[BATCH];
    levels[level].sweep(f, x, y, n);
    for (int i = 0; i < n; i++) {
        double e = ulps(y[i], want[i]);
        if (e > w->error)
            *w = (worst){e, x[i], y[i]};
    }
}

/* ---------------------------------------------------------------- quantised types */

static const struct {
    int type;
    const char *name;
    float largest;
} quants[] = {{SKR_E4M3, "e4m3", 448}, {SKR_E5M2, "e5m2", 57344}, {SKR_I8, "i8", 127}};

static uint8_t code_of(int type, float x)
{
    return type == SKR_E4M3 ? skr_e4m3_of_f32(x) : type == SKR_E5M2 ? skr_e5m2_of_f32(x) : (uint8_t)skr_i8_of_f32(x);
}

static float value_of(int type, uint8_t c)
{
    return type == SKR_E4M3 ? skr_f32_of_e4m3(c) : type == SKR_E5M2 ? skr_f32_of_e5m2(c) : (float)(int8_t)c;
}

static int wrong_codes(int level, int k, const float *x, int n)
{
    uint8_t q[BATCH];
    int wrong = 0;
    float near[BATCH];
    int type = quants[k].type, n_near = 0;
    levels[level].codes(type, 0, x, q, n);
    for (int i = 0; i < n; i++) {
        wrong += q[i] != code_of(type, x[i]);
        if (fabsf(x[i]) <= quants[k].largest)
            near[n_near++] = x[i];
    }
    if (type != SKR_I8) {
        levels[level].codes(type, 1, near, q, n_near);
        for (int i = 0; i < n_near; i++)
            wrong += q[i] != code_of(type, near[i]);
    }
    return wrong;
}

/* Every step-th f32, and the five f32 around each boundary between two codes, against core/num.h; every code back. */
static int check_quants(uint32_t step, const bool *usable)
{
    int failed = 0;
    for (int l = 0; l < N_LEVELS; l++)
        for (int k = 0; usable[l] && k < 3; k++) {
            float x[BATCH], values[512];
            int n = 0, wrong = 0;
            for (uint64_t at = 0; at < (uint64_t)1 << 32; at += step) {
                x[n++] = of_bits((uint32_t)at);
                if (n == BATCH || at + step >= (uint64_t)1 << 32) {
                    wrong += wrong_codes(l, k, x, n);
                    n = 0;
                }
            }
            for (int c = 0; c < 255; c++) {
                float a = value_of(quants[k].type, (uint8_t)c), b = value_of(quants[k].type, (uint8_t)(c + 1));
                float middle = (a + b) / 2;
                for (int d = -2; d <= 2 && isfinite(middle); d++) {
                    x[n] = of_bits(skr_bits(middle) + (uint32_t)d);
                    x[n + 1] = -x[n];
                    n += 2;
                }
            }
            wrong += wrong_codes(l, k, x, n);
            levels[l].values(quants[k].type, values);
            for (int c = 0; c < 512; c++) { /* all of them by both ways */
                float want = value_of(quants[k].type, (uint8_t)c);
                wrong += isnan(want) ? !isnan(values[c]) : skr_bits(values[c]) != skr_bits(want);
                uint32_t quiet = isnan(want) ? 0x00400000 : 0; /* arithmetic sets it; all else of a NaN is equal, too */
                wrong += (skr_bits(values[c]) | quiet) != (skr_bits(values[c % 256]) | quiet);
            }
            printf("%s %-8s %-10s %d codes or values differ from num.h\n", wrong ? "FAIL" : "ok  ", quants[k].name,
                   levels[l].level, wrong);
            failed += wrong != 0;
        }
    return failed;
}

/* Every step-th f32 as f16 and bf16, against core/num.h. Neighbours are of one binade, so that whole vectors are
 * subnormal, and the first of each batch is of any kind, so that some are not. */
static int check_halves(uint32_t step, const bool *usable)
{
    int failed = 0;
    for (int l = 0; l < N_LEVELS; l++)
        for (int bf16 = 0; usable[l] && bf16 < 2; bf16++) {
            float x[BATCH];
            uint16_t y[BATCH];
            int n = 0, wrong = 0;
            for (uint64_t at = 0; at < (uint64_t)1 << 32; at += step) {
                x[n++] = of_bits((uint32_t)at);
                if (n < BATCH && at + step < (uint64_t)1 << 32)
                    continue;
                x[0] = of_bits((uint32_t)at * 2654435761u);
                levels[l].halves(bf16 ? SKR_BF16 : SKR_F16, x, y, n);
                for (int i = 0; i < n; i++) {
                    uint16_t want = bf16 ? skr_bf16_of_f32(x[i]) : skr_f16_of_f32(x[i]);
                    float got = bf16 ? skr_f32_of_bf16(y[i]) : skr_f32_of_f16(y[i]);
                    wrong += isnan(x[i]) ? !isnan(got) : y[i] != want;
                }
                n = 0;
            }
            printf("%s %-8s %-10s %d values differ from num.h\n", wrong ? "FAIL" : "ok  ", bf16 ? "bf16" : "f16",
                   levels[l].level, wrong);
            failed += wrong != 0;
        }
    return failed;
}

int main(int argc, char **argv)
{
    uint32_t step = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) | 1 : 1021;
    static const float special[] = {0.0f,      -0.0f,      INFINITY,  -INFINITY,  NAN,       1.0f,           -1.0f,
                                    0x1p-149f, -0x1p-149f, 0x1p-126f, 88.72283f,  88.72284f, 89.0f,          -87.33655f,
                                    -103.97f,  -104.0f,    -150.0f,   127.99999f, 128.0f,    -149.5f,        0.625f,
                                    0.921875f, 3.9f,       4.0f,      65535.99f,  65536.0f,  0x1.fffffep127f};
    bool usable[N_LEVELS] = {false};
    for (int i = 0; i < N_LEVELS; i++)
        for (int k = 0; k < saker_level_count(); k++)
            usable[i] |= !strcmp(saker_level_at(k).name, levels[i].level) && saker_level_at(k).usable;

    int failed = check_quants(step, usable) + check_halves(step, usable);
    for (int f = 0; f < N_FUNCTIONS; f++) {
        worst w[N_LEVELS] = {{0, 0, 0}};
        float x[BATCH];
        double want[BATCH];
        int n = 0;
        for (uint64_t at = 0; at < ((uint64_t)1 << 32) + step; at += step) {
            bool last = at >= (uint64_t)1 << 32;
            if (!last)
                x[n++] = of_bits((uint32_t)at);
            for (size_t k = 0; last && k < sizeof special / sizeof *special && n < BATCH; k++)
                x[n++] = special[k];
            if (n < BATCH && !last)
                continue;
            for (int i = 0; functions[f].most > 0 && i < n; i++)
                x[i] = x[i] > functions[f].most ? functions[f].most : x[i];
            for (int i = 0; i < n; i++)
                want[i] = functions[f].truth((double)x[i]);
            for (int k = 0; k < N_LEVELS; k++)
                if (usable[k])
                    compare(f, k, x, want, n, &w[k]);
            n = 0;
        }
        for (int k = 0; k < N_LEVELS; k++) {
            if (!usable[k])
                continue;
            bool ok = w[k].error <= functions[f].bound;
            printf("%s %-8s %-10s max error %.3f ulp (bound %g) at %a: got %a\n", ok ? "ok  " : "FAIL",
                   functions[f].name, levels[k].level, w[k].error, functions[f].bound, (double)w[k].x,
                   (double)w[k].got);
            failed += !ok;
        }
    }
    for (int k = 0; k < N_LEVELS; k++)
        if (!usable[k])
            printf("skip %s: not usable on this machine\n", levels[k].level);
    printf("vmath: %s\n", failed ? "FAILED" : "passed");
    return failed != 0;
}
