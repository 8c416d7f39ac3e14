/* moe_cpu.c - the weighted sum of what a token's experts gave. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/rows.h"
#include "moe.h"

typedef skr_moe_combine_job job_t;

SKR_FN void add_body(int type, const void *z, float weight, float *sum, int64_t n)
{
    vf w = v_set1(weight);
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES) {
        vf2 a = v_load2(type, z, i), s = v_load2(SKR_F32, sum, i);
        v_store2(SKR_F32, sum, i, (vf2){v_fma(w, a.lo, s.lo), v_fma(w, a.hi, s.hi)});
    }
    if (i < n) {
        int left = (int)(n - i);
        vf2 a = v_load2_n(type, z, i, left), s = v_load2_n(SKR_F32, sum, i, left);
        v_store2_n(SKR_F32, sum, i, (vf2){v_fma(w, a.lo, s.lo), v_fma(w, a.hi, s.hi)}, left);
    }
}

static void add_row(int type, const void *z, float weight, float *sum, int64_t n)
{
    if (type == SKR_F32)
        add_body(SKR_F32, z, weight, sum, n);
    else if (type == SKR_F16)
        add_body(SKR_F16, z, weight, sum, n);
    else
        add_body(SKR_BF16, z, weight, sum, n);
}

/* The row of z of a token's j-th expert; NULL: there is none. */
static const char *row_at(const job_t *job, int64_t t, int64_t j)
{
    int64_t i = (t * job->k + j) * job->place.stride;
    int64_t r =
        job->place.type == SKR_I32 ? ((const int32_t *)job->place.data)[i] : ((const int64_t *)job->place.data)[i];
    if (r < 0 || r >= job->t * job->k) {
        report_bad_index(&job->head);
        return NULL;
    }
    return (const char *)job->z + r * job->pitch * skr_type_bytes(job->z_type);
}

static void do_row(const job_t *job, int64_t t)
{
    float sum[SKR_MOE_COLUMNS];
    char *y = (char *)job->y.data + t * job->y.stride * skr_type_bytes(job->y.type);
    for (int64_t c = 0; c < job->h; c += SKR_MOE_COLUMNS) {
        int64_t n = job->h - c < SKR_MOE_COLUMNS ? job->h - c : SKR_MOE_COLUMNS;
        __builtin_memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t j = 0; j < job->k; j++) {
            const char *z = row_at(job, t, j);
            if (z)
                add_row(job->z_type, z + c * skr_type_bytes(job->z_type),
                        load_element(job->weights.type, job->weights.data,
                                     t * job->weights.stride + j * job->weights_column),
                        sum, n);
        }
        if (job->y.type == SKR_F32)
            __builtin_memcpy(y + c * 4, sum, (size_t)n * sizeof *sum);
        else
            narrow(job->y.type, sum, y + c * 2, n);
    }
}

void SKR_KERNEL(moe)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(moe)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *j = job;
    int64_t end = (task + 1) * j->rows_per_task;
    end = end < j->t ? end : j->t;
    for (int64_t t = task * j->rows_per_task; t < end; t++)
        do_row(j, t);
}
