/* attention_merge_cpu.c - two partial results of attention into one. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/gemm/load.h"
#include "../../cpu/simd/vmath.h"
#include "attention.h"

typedef skr_attention_merge_job job_t;

SKR_FN float *stat_of(const job_t *job, const skr_rows *x, int64_t row)
{
    return (float *)x->data + skr_row_offset(&job->rows, x->stride, row);
}

SKR_FN float lane0(vf x)
{
    float all[SKR_LANES];
    v_store_float(SKR_F32, all, 0, x);
    return all[0];
}

/* Shares of the two parts, 0 for one that saw nothing. */
static float shares(float a, float b, float *wa, float *wb)
{
    const float none = -__builtin_inff();
    float top = a != a || b != b ? __builtin_nanf("") : a > b ? a : b;
    *wa = *wb = 0;
    if (top == none)
        return none;
    float ea = lane0(v_exp(v_set1(a - top))), eb = lane0(v_exp(v_set1(b - top))), sum = ea + eb;
    *wa = a == none ? 0 : ea / sum;
    *wb = b == none ? 0 : eb / sum;
    return top + lane0(v_log(v_set1(sum)));
}

static void merge_row(const job_t *job, int64_t row)
{
    float wa, wb, a[64], b[64];
    float lse = shares(*stat_of(job, &job->lse_a, row), *stat_of(job, &job->lse_b, row), &wa, &wb);
    int64_t at_a = skr_row_offset(&job->rows, job->o_a.stride, row);
    int64_t at_b = skr_row_offset(&job->rows, job->o_b.stride, row);
    int64_t at = skr_row_offset(&job->rows, job->o.stride, row);
    for (int64_t c = 0; c < job->d; c += 64) {
        int n = job->d - c < 64 ? (int)(job->d - c) : 64;
        load_neighbours(job->o_a.type, job->o_a.data, at_a + c, n, a);
        load_neighbours(job->o_b.type, job->o_b.data, at_b + c, n, b);
        for (int k = 0; k < n; k++)
            a[k] = (wa == 0 ? 0 : wa * a[k]) + (wb == 0 ? 0 : wb * b[k]);
        store_run(job->o.type, job->o.data, at + c, 1, n, a);
    }
    if (job->lse.data)
        *stat_of(job, &job->lse, row) = lse;
}

void SKR_KERNEL(attention_merge)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(attention_merge)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
    int64_t end = (task + 1) * job->rows_per_task;
    (void)step, (void)worker;
    end = end < job->rows.m ? end : job->rows.m;
    for (int64_t row = task * job->rows_per_task; row < end; row++)
        merge_row(job, row);
}
