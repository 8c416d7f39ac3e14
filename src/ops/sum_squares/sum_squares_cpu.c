/* sum_squares_cpu.c - sums of squares. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/rows.h"
#include "sum_squares.h"

typedef skr_sum_squares_job job_t;

/* f32 over a run in eight vectors, runs added in f64. */
SKR_FN double sum_body(int type, const void *x, int64_t n)
{
    enum { STEP = 8 * SKR_LANES };
    double sum = 0;
    int64_t i = 0;
    while (i + STEP <= n) {
        int64_t end = n - i < SKR_SQUARES_RUN ? n : i + SKR_SQUARES_RUN;
        vf2 a = v2_set1(0.0f), b = a, c = a, d = a;
        for (; i + STEP <= end; i += STEP) {
            v_sumsq2(type, x, i, &a);
            v_sumsq2(type, x, i + 2 * SKR_LANES, &b);
            v_sumsq2(type, x, i + 4 * SKR_LANES, &c);
            v_sumsq2(type, x, i + 6 * SKR_LANES, &d);
        }
        vf2 all = v2_add(v2_add(a, b), v2_add(c, d));
        sum += (double)v_sum(v_add(all.lo, all.hi));
    }
    for (; i < n; i += SKR_LANES) {
        vf tail = v_load_n(type, x, i, n - i < SKR_LANES ? (int)(n - i) : SKR_LANES);
        sum += (double)v_sum(v_mul(tail, tail));
    }
    return sum;
}

static double sum_f32(const void *x, int64_t n)
{
    return sum_body(SKR_F32, x, n);
}

static double sum_f16(const void *x, int64_t n)
{
    return sum_body(SKR_F16, x, n);
}

static double sum_bf16(const void *x, int64_t n)
{
    return sum_body(SKR_BF16, x, n);
}

void SKR_KERNEL(sum_squares)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(sum_squares)(const void *job, int step, int64_t task, int worker)
{
    (void)worker;
    const job_t *j = job;
    double *part = j->head.workspace;
    if (step == SKR_SQUARES_SUM) {
        int64_t row = task / j->pieces, begin = task % j->pieces * SKR_SQUARES_PIECE, left = j->n - begin;
        int64_t n = left < SKR_SQUARES_PIECE ? left : SKR_SQUARES_PIECE;
        const char *x = row_of(&j->rows, &j->x, row) + begin * skr_type_bytes(j->x.type);
        part[task] = (j->x.type == SKR_F32 ? sum_f32 : j->x.type == SKR_F16 ? sum_f16 : sum_bf16)(x, n);
        return;
    }
    double sum = j->accumulate ? (double)*j->out : 0;
    for (int64_t i = 0; i < j->parts; i++)
        sum += part[i];
    *j->out = (float)sum;
}
