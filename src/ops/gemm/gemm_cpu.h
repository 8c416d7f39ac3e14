/* gemm_cpu.h - what the parts of gemm's CPU kernel share: where a matrix's elements are.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_GEMM_CPU_H
#define SKR_GEMM_CPU_H

#include <stdbool.h>

#include "../../cpu/gemm/load.h"
#include "../../cpu/gemm/micro.h"
#include "gemm.h"

typedef skr_gemm_job job_t;

/* Whether sums of segments are scaled apart. */
SKR_FN bool scaled_apart(const job_t *job)
{
    return (job->scaling == SKR_GEMM_BLOCK || job->scaling == SKR_GEMM_GROUP) && job->kind != SKR_GEMM_F32;
}

/* Whether the sums of a tile are 32-bit integers. */
SKR_FN bool sums_are_ints(const job_t *job)
{
    return (job->kind == SKR_GEMM_I8 && !scaled_apart(job)) || job->kind == SKR_GEMM_INT || job->whole;
}

/* Element offset of a batch in a tensor. */
SKR_FN int64_t batch_at(const job_t *job, const skr_gemm_matrix *m, int64_t batch)
{
    return skr_row_offset(&job->batch, m->at.stride, batch);
}

/* An index tensor holds a value out of range: saker_context_check will say so. */
SKR_FN void bad_index(const skr_job_head *head)
{
    __atomic_store_n(head->error_word, SKR_BAD_INDEX, __ATOMIC_RELAXED);
}

/* Entry i of an index tensor. */
SKR_FN int64_t index_at(const skr_param *p, int64_t i)
{
    return p->type == SKR_I64 ? ((const int64_t *)p->data)[i * p->stride] : ((const int32_t *)p->data)[i * p->stride];
}

/* Where row r goes, or comes from: entry r of `index`, r itself without one, -1 when it is outside of the tensor. */
SKR_FN int64_t indexed_row(const job_t *job, const skr_param *index, int64_t rows, int64_t r)
{
    if (!index->data)
        return r;
    int64_t at = index_at(index, r);
    if (at >= 0 && at < rows)
        return at;
    bad_index(&job->head);
    return -1;
}

SKR_FN int64_t row_of_a(const job_t *job, int64_t r)
{
    return indexed_row(job, &job->gather, job->gather_rows, r);
}

#endif
