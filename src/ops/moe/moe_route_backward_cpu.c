/* moe_route_backward_cpu.c - the gradient of moe_route's logits. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "moe_route_cpu.h"

typedef skr_moe_route_backward_job job_t;

/* Gradients of the chosen go to d, which holds what all experts have. left: of a sigmoid 1 - score, else NULL. */
static void chosen(const job_t *job, const char *ids, const char *dweights, const float *share, const float *left,
                   double dot, float *d)
{
    for (int64_t j = 0; j < job->k; j++) {
        int32_t id = id_at(&job->ids, ids, j);
        if (id < 0 || id >= job->n)
            continue;
        double g =
            (double)job->scale * (double)load_element(job->dweights.type, dweights, j * job->dweights.col_stride);
        d[id] = (left ? share[j] * left[j] : share[j]) * (float)(g - dot);
    }
}

static void do_row(const job_t *job, int64_t row, float *d)
{
    int64_t n = job->n, k = job->k;
    int softmax = job->score == SKR_ROUTE_SOFTMAX;
    const char *ids = row_of(&job->rows, &job->ids, row), *dweights = row_of(&job->rows, &job->dweights, row);
    float *share = d + padded(n), *left = share + padded(k);
    double total = 0, dot = 0;
    widen(job->logits.type, row_of(&job->rows, &job->logits, row), -0.0f, d, n);
    fill_up(d, n);
    if (softmax && !job->renormalise)
        softmax_of(d, d, n);
    for (int64_t j = 0; j < k; j++) {
        int32_t id = id_at(&job->ids, ids, j);
        int inside = id >= 0 && id < n;
        if (!inside)
            report_bad_index(&job->head);
        share[j] = inside ? d[id] : softmax && !job->renormalise ? 0.0f : -__builtin_inff();
        left[j] = -share[j];
    }
    fill_up(share, k);
    fill_up(left, k);
    if (softmax && job->renormalise)
        softmax_of(share, share, k);
    if (!softmax) {
        sigmoid_of(share, share, k);
        sigmoid_of(left, left, k);
    }
    for (int64_t j = 0; !softmax && job->renormalise && j < k; j++)
        total += (double)share[j];
    for (int64_t j = 0; !softmax && job->renormalise && j < k; j++)
        share[j] = total == 0 ? 0.0f : (float)((double)share[j] / total);
    for (int64_t j = 0; (softmax || job->renormalise) && j < k; j++) {
        int32_t id = id_at(&job->ids, ids, j);
        if (id >= 0 && id < n)
            dot += (double)job->scale * (double)share[j] *
                   (double)load_element(job->dweights.type, dweights, j * job->dweights.col_stride);
    }
    if (softmax && !job->renormalise)
        for (int64_t i = 0; i < n; i += SKR_LANES)
            v_store(SKR_F32, d, i, v_mul(v_load(SKR_F32, d, i), v_set1((float)-dot)));
    else
        __builtin_memset(d, 0, (size_t)n * sizeof *d);
    chosen(job, ids, dweights, share, softmax ? NULL : left, dot, d);
    char *to = row_of(&job->rows, &job->dlogits, row);
    if (job->dlogits.type == SKR_F32)
        __builtin_memcpy(to, d, (size_t)n * sizeof *d);
    else
        narrow(job->dlogits.type, d, to, n);
}

void SKR_KERNEL(moe_route_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(moe_route_backward)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    const job_t *j = job;
    float *d = (float *)((char *)j->head.workspace + worker * j->scratch_bytes);
    int64_t end = (task + 1) * j->rows_per_task;
    end = end < j->rows.m ? end : j->rows.m;
    for (int64_t row = task * j->rows_per_task; row < end; row++)
        do_row(j, row, d);
}
