/* cross_entropy_merge_cpu.c - losses from the partial results of shards. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy_cpu.h"

typedef skr_cross_entropy_merge_job job_t;

static void row(const job_t *job, const aims *a, const skr_ce_scale *scale, int64_t at)
{
    const float *p = (const float *)row_of(&job->rows, &job->partials, at);
    int64_t step = job->partials.col_stride;
    float max = -__builtin_inff(), hit = 0.0f;
    double sum = 0, smooth = 0;
    for (int64_t k = 0; k < job->shards; k++) {
        float m = p[k * job->shard_stride];
        max = m > max || m != m ? m : max;
    }
    for (int64_t k = 0; k < job->shards; k++) {
        const float *q = p + k * job->shard_stride;
        if (q[0] != -__builtin_inff()) /* a shard of -infinity adds nothing */
            sum += (double)q[step] * (double)exp1(q[0] - max);
        hit += q[2 * step];
        smooth += (double)q[3 * step];
    }
    float lse = max == -__builtin_inff() ? max : max + log1((float)sum);
    aim t = aim_of(a, at);
    skr_ce_loss loss = {0.0f, 0.0f};
    if (t.counts)
        loss = skr_ce_loss_of(scale, job->z_loss, t.weight, lse, hit, (float)smooth);
    if (job->lse.data)
        *(float *)row_of(&job->rows, &job->lse, at) = lse;
    if (job->loss.data)
        *(float *)row_of(&job->rows, &job->loss, at) = loss.entropy + loss.z;
    if (job->room.loss_at >= 0)
        ((skr_ce_loss *)((char *)job->head.workspace + job->room.loss_at))[at] = loss;
}

void SKR_KERNEL(cross_entropy_merge)(const void *given, int step, int64_t task, int worker);
void SKR_KERNEL(cross_entropy_merge)(const void *given, int step, int64_t task, int worker)
{
    const job_t *job = given;
    aims a = {&job->rows, &job->target, &job->weight, job->ignore_index, job->vocab, job->head.error_word};
    (void)worker;
    if (step == SKR_CE_STEP_PREPARE) {
        prepare_part(&a, &job->head, &job->room, task);
    } else if (step == SKR_CE_STEP_SUM) {
        sum_part(&job->head, &job->room, job->rows.m, task);
    } else if (step == SKR_CE_STEP_FINISH) {
        finish(&job->head, &job->room, job->reduction, job->total);
    } else {
        skr_ce_scale scale =
            scale_of(&job->head, &job->room, job->reduction, job->smoothing, job->k, job->weight.data != NULL);
        int64_t end = (task + 1) * job->rows_per_task;
        end = end < job->rows.m ? end : job->rows.m;
        for (int64_t at = task * job->rows_per_task; at < end; at++)
            row(job, &a, &scale, at);
    }
}
