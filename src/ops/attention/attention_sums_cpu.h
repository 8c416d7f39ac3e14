/* attention_sums_cpu.h - what is left of attention_backward after its heads: sums over heads that share keys, dslopes
 * and dsinks, and tokens of no sequence. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_SUMS_CPU_H
#define SKR_ATTENTION_SUMS_CPU_H

#include "attention_backward_cpu.h"

/* dk or dv of one block of keys: the parts of the heads that share them, in their order. */
static void join_heads(const job_t *job, const skr_attention_rows *out, int64_t part_at, int64_t width, int64_t b,
                       int64_t hk, int64_t token)
{
    const float *parts = (const float *)((const char *)job->head.workspace + part_at);
    float row[SKR_ATTENTION_MAX_D];
    int64_t at = row_at(job, out, b, token, hk);
    if (job->accumulate)
        load_neighbours(out->type, out->data, at, (int)width, row);
    else
        __builtin_memset(row, 0, (size_t)width * 4);
    for (int64_t g = 0; g < job->group; g++) {
        const float *from = parts + part_row(job, b, token, hk * job->group + g) * width;
        for (int64_t d = 0; d < width; d++)
            row[d] += from[d];
    }
    store_run(out->type, out->data, at, 1, (int)width, row);
}

static void join_task(const job_t *job, int64_t task)
{
    const skr_attention_cpu *c = &job->cpu;
    int64_t hk = task % job->heads_k, block = task / job->heads_k, b = sequence_of_block(job, block, true);
    if (b < 0)
        return;
    seq_t s = sequence(job, b);
    int64_t j0 = (block - s.k_block) * c->block_k, end = least(j0 + c->block_k, s.s.k_len);
    for (int64_t j = j0; j < end; j++) {
        if (c->dk_at >= 0)
            join_heads(job, &job->dk, c->dk_at, job->d, b, hk, s.s.k + j);
        if (c->dv_at >= 0)
            join_heads(job, &job->dv, c->dv_at, job->d_v, b, hk, s.s.k + j);
    }
}

/* dslopes or dsinks from their parts: for each sequence those of its blocks of keys, or its only one. */
static void join_parts(const job_t *job, const skr_attention_scales *out, bool blocks, const double *parts)
{
    bool each = out->batch != 0;
    for (int64_t first = 0; first < (each ? job->batch : 1); first++)
        for (int64_t h = 0; h < job->heads; h++) {
            float *to = out->data + first * out->batch + h * out->head;
            double sum = job->accumulate ? (double)*to : 0;
            for (int64_t b = first; b < (each ? first + 1 : job->batch); b++) {
                seq_t s = sequence(job, b);
                int64_t at = blocks ? s.k_block : b, n = blocks ? blocks_of(s.s.k_len, job->cpu.block_k) : 1;
                for (int64_t i = at; i < at + n; i++)
                    sum += parts[i * job->heads + h];
            }
            *to = (float)sum;
        }
}

static void sum_task(const job_t *job, int64_t task)
{
    const char *parts = job->head.workspace;
    if (task) {
        join_task(job, task - 1);
        return;
    }
    if (job->dslopes.data)
        join_parts(job, &job->dslopes, true, (const double *)(parts + job->cpu.slopes_at));
    if (job->dsinks.data)
        join_parts(job, &job->dsinks, false, (const double *)(parts + job->cpu.sinks_at));
}

/* ---------------------------------------------------------------- tokens of no sequence */

static void clear(const job_t *job, const skr_attention_rows *x, int64_t heads, int64_t width, int64_t from, int64_t to)
{
    int size = skr_type_bytes(x->type);
    for (int64_t t = from; x->data && !job->accumulate && t < to; t++)
        for (int64_t h = 0; h < heads; h++)
            __builtin_memset((char *)x->data + row_at(job, x, 0, t, h) * size, 0, (size_t)(width * size));
}

static void clear_queries(const job_t *job, int64_t from, int64_t to)
{
    clear(job, &job->dq, job->heads, job->d, from, to);
}

static void clear_keys(const job_t *job, int64_t from, int64_t to)
{
    clear(job, &job->dk, job->heads_k, job->d, from, to);
    clear(job, &job->dv, job->heads_k, job->d_v, from, to);
}

#endif
