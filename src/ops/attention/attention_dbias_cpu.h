/* attention_dbias_cpu.h - dbias: ds summed over everything that bias repeats.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A task makes a block of dbias, and computes ds again for every batch, head, query and key that add to it, in their
 * order: no two tasks meet in a sum, and nothing the size of the scores is kept. */
#ifndef SKR_ATTENTION_DBIAS_CPU_H
#define SKR_ATTENTION_DBIAS_CPU_H

#include "attention_backward_cpu.h"

/* Indices [from, to) of one dimension: the block's own where dbias has the dimension, else all. */
typedef struct span_t {
    int64_t from, to;
} span_t;

static span_t span_of(int64_t dim, int64_t at, int64_t block, int64_t all)
{
    return dim > 1 ? (span_t){at * block, least((at + 1) * block, all)} : (span_t){0, all};
}

/* The block: sums [queries][keys], 1 where dbias repeats. */
typedef struct bias_block {
    double *sum;
    span_t q, k;
    bool by_query, by_key;
} bias_block;

static void add_ds(const panel_t *p, int64_t j0, int n, const float *ds, const bias_block *out)
{
    int64_t width = p->job->cpu.block_k;
    for (int r = 0; r < p->rows; r++) {
        int64_t i = p->i0 + r;
        double *row = out->sum + (out->by_query ? (i - out->q.from) * width : 0);
        for (int k = 0; k < n; k++)
            row[out->by_key ? j0 + k - out->k.from : 0] += (double)ds[k * p->nr + r];
    }
}

/* What one head of one sequence adds. */
static void add_head(const job_t *job, int64_t b, int64_t h, const bias_block *out, char *scratch)
{
    const skr_attention_cpu *c = &job->cpu;
    int nr = c->s_tile.nr;
    seq_t s = sequence(job, b);
    int64_t q_end = least(out->q.to, s.s.q_len), k_end = least(out->k.to, s.s.k_len);
    for (int64_t i0 = out->q.from; i0 < q_end; i0 += c->block_q) {
        int64_t n = least(c->block_q, q_end - i0);
        queries_t q = take_queries(job, b, h, s.s.q + i0, n, scratch);
        for (int64_t a = 0; a < blocks_of(n, nr); a++)
            for (int64_t j0 = out->k.from; j0 < k_end; j0 += c->block_k) {
                panel_t p = panel_of(job, &s, b, h, i0 + a * nr);
                int keys = (int)least(c->block_k, k_end - j0);
                int64_t from, to;
                panel_range(&p, &from, &to);
                if (from >= j0 + keys || to <= j0)
                    continue;
                gradient_tile(&p, &q, a, j0, keys, scratch);
                add_ds(&p, j0, keys, (const float *)(scratch + c->in_dp), out);
            }
    }
}

/* Writes what lies in the tensor. */
static void store_block(const job_t *job, int64_t b, int64_t h, const bias_block *out)
{
    const skr_attention_matrix *m = &job->dbias;
    int64_t rows = out->by_query ? out->q.to - out->q.from : 1, keys = out->by_key ? out->k.to - out->k.from : 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < keys; j++) {
            int64_t at = b * m->batch + h * m->head + (out->q.from + i) * m->query + (out->k.from + j) * m->key;
            double sum = out->sum[i * job->cpu.block_k + j];
            float x = (float)(sum + (job->accumulate ? (double)one_float(m->type, m->data, at) : 0));
            store_run(m->type, m->data, at, 1, 1, &x);
        }
}

static void dbias_task(const job_t *job, int64_t task, int worker)
{
    const skr_attention_cpu *c = &job->cpu;
    const int64_t *dim = job->bias_dims;
    int64_t kb = task % c->bias_blocks_k, rest = task / c->bias_blocks_k, qb = rest % c->bias_blocks_q;
    int64_t hb = rest / c->bias_blocks_q % dim[1], bb = rest / c->bias_blocks_q / dim[1];
    char *scratch = scratch_of(job, worker, 0);
    bias_block out = {(double *)(scratch + c->in_o), span_of(dim[2], qb, c->block_q, dim[2] > 1 ? dim[2] : job->length),
                      span_of(dim[3], kb, c->block_k, dim[3] > 1 ? dim[3] : job->length_k), dim[2] > 1, dim[3] > 1};
    span_t batches = span_of(dim[0], bb, 1, job->batch), heads = span_of(dim[1], hb, 1, job->heads);
    __builtin_memset(out.sum, 0, (size_t)(c->block_q * c->block_k) * 8);
    for (int64_t b = batches.from; b < batches.to; b++)
        for (int64_t h = heads.from; h < heads.to; h++)
            add_head(job, b, h, &out, scratch);
    store_block(job, bb, hb, &out);
}

#endif
