/* gemm_skinny_neon_cpu.h - few rows of a on aarch64: b is used as it lies, read once, without panels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every sum is the same chain of operations as in the register tiles, so a row has the same bits whichever of them
 * makes it: f32 takes k by k; the others take k in the same groups, with rows of zeros where a has none. */
#ifndef SKR_GEMM_SKINNY_NEON_CPU_H
#define SKR_GEMM_SKINNY_NEON_CPU_H

#include "gemm_pack_cpu.h"
#include "gemm_skinny_cols_neon_cpu.h"
#include "gemm_skinny_rows_neon_cpu.h"

/* Whether there is a way for this product. */
static bool skinny_direct(const job_t *job, const side *b)
{
    bool widened = b->type == SKR_F16 || (b->type == SKR_BF16 && !HAS_BF16);
    bool own = job->kind == SKR_GEMM_F32    ? b->type == SKR_F32 || widened
               : job->kind == SKR_GEMM_BF16 ? b->type == SKR_BF16
                                            : job->kind == SKR_GEMM_I8 && b->type == SKR_I8;
    return job->skinny && own && !job->packed && job->m <= job->tile.mr && job->scaling < SKR_GEMM_BLOCK &&
           (b->rs == 1 || b->ks == 1);
}

/* Where column n0 and k block `block` of b begin. */
static const char *skinny_from(const job_t *job, const side *b, int64_t n0, int64_t block)
{
    return (const char *)b->data + (b->at + n0 * b->rs + block * job->seg * b->ks) * skr_type_bytes(b->type);
}

/* Columns are neighbours: k block `block` of columns n0 ... into out. a: the panel, of all k's. */
static void skinny_by_rows(const job_t *job, const side *b, const char *a, int64_t block, int64_t n0, int cols,
                           float *out, int64_t ld)
{
    int64_t k0 = block * job->seg, k = job->k - k0 < job->seg ? job->k - k0 : job->seg;
    multiply_rows(b->type, skinny_from(job, b, n0, block), b->ks * skr_type_bytes(b->type),
                  a + k0 * job->tile.mr * skr_kind_bytes(job->kind), (int)job->m, k, cols, out, ld);
}

/* K's are neighbours: all k's of columns n0 ... into out. a: the panel; room: for as much. */
static void skinny_by_columns(const job_t *job, const side *sa, const side *b, const char *a, int64_t n0, int cols,
                              char *room, float *out, int64_t ld)
{
    int size = skr_type_bytes(b->type);
    const stream_kernel *kernel = stream_kernel_of(b->type, (int)job->m);
    bool in_order = sa->type == SKR_F32 && sa->ks == 1 && !job->gather.data;
    const float *as_it_lies = in_order ? (const float *)sa->data + sa->at : NULL;
    skinny_cols c = {.kernel = kernel,
                     .b = skinny_from(job, b, n0, 0),
                     .a = order_a(kernel, a, as_it_lies, job->k * skr_kind_bytes(job->kind), room),
                     .pitch = b->rs * size,
                     .bytes = job->k * size,
                     .block = job->seg * size,
                     .out = out,
                     .ld = ld,
                     .rows = (int)job->m};
    multiply_columns(&c, cols);
}

#endif
