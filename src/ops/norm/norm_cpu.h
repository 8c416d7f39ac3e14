/* norm_cpu.h - what the row kernels of the norms share: the sums of a row, and what follows from them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kernel files define CENTRE first: 0 for rms_norm, 1 for layer_norm, which also needs the sum of the elements. */
#ifndef SKR_NORM_CPU_H
#define SKR_NORM_CPU_H

#include "../../cpu/rows.h"
#include "norm.h"

static inline int64_t head_of(int64_t heads, int64_t row)
{
    return heads == 1 ? 0 : row % heads;
}

/* ---------------------------------------------------------------- sums of one chunk */

typedef struct sums {
    float sum, square; /* of the elements (only with CENTRE), of their squares */
} sums;

/* Accumulators that are filled in turn. With CENTRE there are two kinds, of half as many each: registers are scarce. */
enum { CHAINS = CENTRE ? 2 : 4 };
typedef struct chains {
    vf2 sum[CHAINS], square[CHAINS];
} chains;

SKR_FN chains chains_zero(void)
{
    chains a;
    SKR_UNROLL
    for (int k = 0; k < CHAINS; k++)
        a.sum[k] = a.square[k] = v2_set1(0.0f);
    return a;
}

/* Adds 2 * SKR_LANES elements from memory to chain k. */
SKR_FN void chains_load(int type, const void *p, int64_t i, int k, chains *a)
{
    if (CENTRE)
        v_moments2(type, p, i, &a->sum[k % CHAINS], &a->square[k % CHAINS]);
    else
        v_sumsq2(type, p, i, &a->square[k % CHAINS]);
}

SKR_FN void chains_add(vf2 s, int k, chains *a)
{
    if (CENTRE)
        a->sum[k % CHAINS] = v2_add(a->sum[k % CHAINS], s);
    a->square[k % CHAINS] = v2_fma(s, s, a->square[k % CHAINS]);
}

SKR_FN float chains_sum(const vf2 *a)
{
    vf2 sum = v2_add(a[0], a[1]);
    if (CHAINS == 4)
        sum = v2_add(sum, v2_add(a[CHAINS - 2], a[CHAINS - 1]));
    return v_sum(v_add(sum.lo, sum.hi));
}

SKR_FN sums chains_total(const chains *a)
{
    return (sums){CENTRE ? chains_sum(a->sum) : 0.0f, chains_sum(a->square)};
}

SKR_FN sums sums_add(sums a, sums b)
{
    return (sums){a.sum + b.sum, a.square + b.square};
}

/* What is left after the whole blocks; every way to sum a row ends with this. */
SKR_TAIL sums sums_tail(int type, const void *x, int64_t i, int64_t n)
{
    chains a = chains_zero();
    for (; i < n; i += 2 * SKR_LANES)
        chains_add(v_load2_n(type, x, i, n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES), 0, &a);
    return chains_total(&a);
}

/* Four pairs of vectors at once, as the forward rows do in between. */
SKR_FN sums sums_body(int type, const void *x, int64_t n)
{
    chains a = chains_zero();
    int64_t i = 0;
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES)
        SKR_UNROLL
    for (int k = 0; k < 4; k++)
        chains_load(type, x, i + 2 * k * SKR_LANES, k, &a);
    sums sum = chains_total(&a);
    return i < n ? sums_add(sum, sums_tail(type, x, i, n)) : sum;
}

/* ---------------------------------------------------------------- sums of a row */

typedef struct moments {
    double sum, square;
} moments;

SKR_FN moments moments_add(moments a, sums b)
{
    return (moments){a.sum + (double)b.sum, a.square + (double)b.square};
}

/* Sums of x - centre, and of its squares. 16-bit elements far from zero are few different numbers, whose roundings do
 * not even out: hence shorter chains than CHUNK. */
SKR_FN moments around_body(int type, const void *x, float centre, int64_t n)
{
    vf2 from = v2_set1(centre);
    float some[2 * SKR_LANES];
    v_store2(SKR_F32, some, 0, from);
    moments m = {0, 0};
    for (int64_t chunk = 0; chunk < n; chunk += CHUNK / 8) {
        int64_t i = chunk, end = n - chunk < CHUNK / 8 ? n : chunk + CHUNK / 8;
        chains a = chains_zero();
        for (; i + 4 * SKR_LANES <= end; i += 4 * SKR_LANES) {
            chains_add(v2_sub(v_load2(type, x, i), from), 0, &a);
            chains_add(v2_sub(v_load2(type, x, i + 2 * SKR_LANES), from), 1, &a);
        }
        for (; i < end; i += 2 * SKR_LANES) { /* missing lanes: 0 - 0 */
            int left = end - i < 2 * SKR_LANES ? (int)(end - i) : 2 * SKR_LANES;
            chains_add(v2_sub(v_load2_n(type, x, i, left), v_load2_n(SKR_F32, some, 0, left)), 0, &a);
        }
        m = moments_add(m, chains_total(&a));
    }
    return m;
}

static moments around(int type, const void *x, float centre, int64_t n)
{
    return type == SKR_F32   ? around_body(SKR_F32, x, centre, n)
           : type == SKR_F16 ? around_body(SKR_F16, x, centre, n)
                             : around_body(SKR_BF16, x, centre, n);
}

typedef struct centred {
    double mean;
    float rstd;
    int far; /* the mean is larger than half of the spread */
} centred;

/* Mean and rstd of a row from its sums. The variance is mean(x^2) - mean^2 while the mean is small beside the spread
 * (at most half of it: the difference then loses a third of a bit). Else the row is summed again around that mean, and
 * what is left over corrects both: so a row keeps full accuracy at any distance from zero. Once more where more was
 * left over than the row is wide: a constant row has a variance of 0, exactly. */
static centred centred_of(int type, const void *x, int64_t n, moments m, float eps)
{
    double count = (double)n, mean = 0, variance = m.square / count;
    int far = 0;
    if (!CENTRE && m.square > 0x1.fffffep127) /* CUDA adds in f32: the same rows have an rstd of 0 everywhere */
        variance = __builtin_inf();
    if (CENTRE) {
        mean = m.sum / count;
        variance -= mean * mean;
        far = !(4 * mean * mean <= variance);
        for (int again = far ? 2 : 0; again > 0; again--) {
            float centre = (float)mean;
            m = around(type, x, centre, n);
            double rest = m.sum / count;
            mean = (double)centre + rest;
            variance = m.square / count - rest * rest;
            if (rest * rest <= variance)
                break;
        }
        variance = variance < 0 ? 0 : variance;
    }
    return (centred){mean, rstd_of(variance, 1.0, eps), far};
}

#endif
