/* linear_cross_entropy_cpu.c - dbias: sums of the columns of dlogits. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/rows.h"
#include "linear_cross_entropy.h"

typedef skr_lce_columns_job job_t;

static void add_row(int type, const void *x, float *sum, int64_t n)
{
    int64_t i = 0;
    for (; i + SKR_LANES <= n; i += SKR_LANES) {
        vf v = type == SKR_F32   ? v_load(SKR_F32, x, i)
               : type == SKR_F16 ? v_load(SKR_F16, x, i)
                                 : v_load(SKR_BF16, x, i);
        v_store(SKR_F32, sum, i, v_add(v_load(SKR_F32, sum, i), v));
    }
    int rest = (int)(n - i);
    if (rest) {
        vf v = type == SKR_F32   ? v_load_n(SKR_F32, x, i, rest)
               : type == SKR_F16 ? v_load_n(SKR_F16, x, i, rest)
                                 : v_load_n(SKR_BF16, x, i, rest);
        v_store_n(SKR_F32, sum, i, v_add(v_load_n(SKR_F32, sum, i, rest), v), rest);
    }
}

/* One element of any float type. */
static float get(const skr_param *p, int64_t i)
{
    float y[SKR_LANES];
    i *= p->stride;
    v_store(SKR_F32, y, 0,
            p->type == SKR_F32   ? v_load_n(SKR_F32, p->data, i, 1)
            : p->type == SKR_F16 ? v_load_n(SKR_F16, p->data, i, 1)
                                 : v_load_n(SKR_BF16, p->data, i, 1));
    return y[0];
}

static void put(const skr_param *p, int64_t i, float x)
{
    i *= p->stride;
    if (p->type == SKR_F32)
        v_store_n(SKR_F32, p->data, i, v_set1(x), 1);
    else if (p->type == SKR_F16)
        v_store_n(SKR_F16, p->data, i, v_set1(x), 1);
    else
        v_store_n(SKR_BF16, p->data, i, v_set1(x), 1);
}

void SKR_KERNEL(linear_cross_entropy)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(linear_cross_entropy)(const void *given, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *job = given;
    float part[SKR_LCE_COLUMNS];
    double sum[SKR_LCE_COLUMNS];
    const int64_t begin = task * SKR_LCE_COLUMNS, left = job->columns - begin, bytes = skr_type_bytes(job->type);
    const int64_t n = left < SKR_LCE_COLUMNS ? left : SKR_LCE_COLUMNS;
    for (int64_t i = 0; i < n; i++)
        sum[i] = job->first ? 0.0 : job->sums[begin + i];
    for (int64_t row = 0; row < job->rows; row += SKR_LCE_RUN) {
        const int64_t end = job->rows - row < SKR_LCE_RUN ? job->rows : row + SKR_LCE_RUN;
        __builtin_memset(part, 0, sizeof part);
        for (int64_t r = row; r < end; r++)
            add_row(job->type, (const char *)job->x + (r * job->pitch + begin) * bytes, part, n);
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)part[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (!job->last)
            job->sums[begin + i] = sum[i];
        else
            put(&job->dbias, begin + i,
                (float)(job->accumulate ? (double)get(&job->dbias, begin + i) + sum[i] : sum[i]));
    }
}
