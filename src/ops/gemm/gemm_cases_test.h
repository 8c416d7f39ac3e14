/* gemm_cases_test.h - a case of gemm in short, and how it becomes one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMM_CASES_TEST_H
#define GEMM_CASES_TEST_H

#include "gemm_test.h"

/* Layouts of a matrix [R, C]: rows, columns, rows with a gap, and with two free strides; rows and columns with a gap
 * that begin at multiples of 16 elements. */
enum { ROWS, COLS, GAPS, FREE, WIDE, TALL };
/* Batches of (a, b): none; [3] and [3]; [3] and none; none and [3]; [2, 1] and [3]; [0]; [3] with stride 0 and [3]. */
enum { ALONE, BOTH, A_ONLY, B_ONLY, CROSS, EMPTY, EXPANDED };

typedef struct spec {
    saker_type a, b, d;
    int64_t m, n, k;
    int la, lb, ld;
    int batch;
    saker_type c, bias, pre, saved, dbias, zero; /* 0: absent */
    float alpha, beta;
    int scaling;
    int64_t group;
    int act, gated, bias_rows, accumulate, schedule;
    suite_fill fill, c_fill;
    bool in_place; /* d is c */
    bool all_c;    /* c has the whole batch, also where it is not d; else it is one matrix */
    bool only_a_scale, only_b_scale;
    bool all_scales;  /* those of b have b's batch; else all of the batch shares them */
    const char *cuda; /* text of the kernel's name */
    bool tf32, fast;
    int use;
    int random; /* 1 and the number of a random combination; 0: none */
} spec;

/* Every pair of types, with the scaling that it needs. */
static const pair pairs[] = {{SAKER_F32, SAKER_F32, SAKER_F32, 0, 0},    {SAKER_F16, SAKER_F16, SAKER_F16, 0, 0},
                             {SAKER_BF16, SAKER_BF16, SAKER_BF16, 0, 0}, {SAKER_BF16, SAKER_BF16, SAKER_F32, 0, 0},
                             {SAKER_E4M3, SAKER_E4M3, SAKER_BF16, 1, 0}, {SAKER_E5M2, SAKER_E4M3, SAKER_F32, 2, 0},
                             {SAKER_E4M3, SAKER_E5M2, SAKER_F32, 3, 0},  {SAKER_E5M2, SAKER_E5M2, SAKER_F16, 0, 0},
                             {SAKER_I8, SAKER_I8, SAKER_I32, 0, 0},      {SAKER_I8, SAKER_I8, SAKER_BF16, 2, 0},
                             {SAKER_I8, SAKER_I8, SAKER_F32, 3, 0},      {SAKER_I32, SAKER_I32, SAKER_I32, 0, 0},
                             {SAKER_BF16, SAKER_I8, SAKER_BF16, 4, 32},  {SAKER_BF16, SAKER_I4, SAKER_F32, 4, 64},
                             {SAKER_F16, SAKER_I4, SAKER_F32, 4, 24},    {SAKER_F16, SAKER_I8, SAKER_F16, 4, 128},
                             {SAKER_I8, SAKER_I4, SAKER_F32, 4, 32}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static inline spec of_pair(int i, int64_t m, int64_t n, int64_t k)
{
    const pair *p = &pairs[i];
    return (spec){.a = p->a, .b = p->b, .d = p->d, .m = m, .n = n, .k = k, .scaling = p->scaling, .group = p->group};
}

extern suite_list gemm_list;

/* Adds the case to the list. */
void gemm_case(spec s);
/* Those that CUDA's tensor core kernels are tried with. */
void gemm_cuda_cases(void);
/* Of those, the ones about the ways in which d is written. */
void gemm_cuda_out_cases(void);
/* And about i4 and i8 weights in groups. */
void gemm_codes_cases(void);
/* Combinations that nobody thought of. */
void gemm_random_cases(void);

#endif
