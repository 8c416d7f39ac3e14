/* topk_backward_cpu.c - the gradient of topk. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/rows.h"
#include "topk.h"

typedef skr_topk_backward_job job_t;

static void do_row(const job_t *job, int64_t row)
{
    const char *dvalues = row_of(&job->rows, &job->dvalues, row), *values = NULL;
    const int32_t *indices = (const int32_t *)row_of(&job->rows, &job->indices, row);
    char *dx = row_of(&job->rows, &job->dx, row);
    double dot = 0;
    if (job->values.data) {
        values = row_of(&job->rows, &job->values, row);
        for (int64_t i = 0; i < job->k; i++)
            dot += (double)load_element(job->values.type, values, i * job->values.col_stride) *
                   (double)load_element(job->dvalues.type, dvalues, i * job->dvalues.col_stride);
    }
    __builtin_memset(dx, 0, (size_t)(job->n * skr_type_bytes(job->dx.type)));
    for (int64_t i = 0; i < job->k; i++) {
        int64_t at = indices[i * job->indices.col_stride];
        if (at < 0 || at >= job->n) {
            report_bad_index(&job->head);
            continue;
        }
        float g = load_element(job->dvalues.type, dvalues, i * job->dvalues.col_stride);
        if (values)
            g = load_element(job->values.type, values, i * job->values.col_stride) * (float)((double)g - dot);
        store_element(job->dx.type, dx, at, g);
    }
}

void SKR_KERNEL(topk_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(topk_backward)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *j = job;
    int64_t end = (task + 1) * j->rows_per_task;
    end = end < j->rows.m ? end : j->rows.m;
    for (int64_t row = task * j->rows_per_task; row < end; row++)
        do_row(j, row);
}
