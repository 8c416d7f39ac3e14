/* rows_plan.h - the CUDA plans of row kernels: which of an op's instances takes a row, with how many blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An op lists its instances, smallest rows first, and the plan picks the first that fits. So the shape is a function of
 * type and width alone, and with it every bit of a row. The number of blocks may depend on the number of rows: it
 * changes no bit. */
#ifndef SKR_ROWS_PLAN_H
#define SKR_ROWS_PLAN_H

#include "../core/plan.h"
#include "launch.h"

/* A kernel instance of an op's list (norm_kernels.def). */
typedef struct skr_rows_shape {
    int type, lanes, threads, vpt;
    int rows;        /* of a group of lanes at once */
    int slots;       /* of a thread in shared memory, a vector each; backward: rows on their way there */
    int least, most; /* blocks of a cluster */
    int walk;        /* forward: blocks an SM, 0: one per tile; backward: parts */
    const char *variant;
} skr_rows_shape;

enum {
    SKR_ROWS_CLUSTER = 16,        /* largest cluster */
    SKR_ROWS_MOST = 1 << 28,      /* row numbers of the vector kernels are 32-bit, with room for the rows ahead */
    SKR_ROWS_SHARED = 220 * 1024, /* dynamic shared bytes they may ask for; the rest is for the partials of a cluster */
    SKR_ROWS_STATIC = 1024,       /* shared bytes of a kernel's own, at most, in those that every GPU runs */
    SKR_ROWS_GRID = 1 << 20       /* blocks of the kernels that walk; more would only wait */
};

/* Every access of `vec` elements at a multiple of vec columns is aligned to its size (16 bytes at most). Absent tensors
 * are. */
static inline bool skr_rows_aligned(const skr_row_space *space, const skr_rows *t, int vec)
{
    if (!t->data)
        return true;
    int64_t bytes = skr_type_bytes(t->type), unit = vec * bytes < 16 ? vec * bytes : 16;
    int64_t bits = (int64_t)(uintptr_t)t->data;
    for (int k = 0; k < space->n_dims; k++)
        if (space->dims[k] > 1)
            bits |= t->stride[k] * bytes;
    return bits % unit == 0;
}

static inline bool skr_param_aligned(int64_t heads, const skr_param *p, int vec)
{
    if (!p->data)
        return true;
    int64_t bytes = skr_type_bytes(p->type), unit = vec * bytes < 16 ? vec * bytes : 16;
    return ((int64_t)(uintptr_t)p->data | (heads > 1 ? p->stride * bytes : 0)) % unit == 0;
}

/* Clusters of one block an SM that a GPU holds at once. A cluster has its SMs in one GPC, and what is left over there
 * stays idle: of 132 SMs, 66 pairs can be used, but 15 clusters of 8 and 7 of 16. One more than fit would wait for all
 * others to end. */
static inline int64_t skr_rows_resident(int64_t n_sms, int cluster)
{
    int64_t clusters = (cluster <= 2 ? n_sms : n_sms * 10 / 11) / cluster;
    return clusters > 0 ? clusters : 1;
}

/* Smallest of the shape's clusters whose blocks hold the row, whole groups of 128 columns each; 0 when none does. */
static inline int skr_rows_cluster(int64_t n, const skr_rows_shape *s, int vec)
{
    int64_t groups = skr_ceil_div(n, SKR_QUANT_GROUP), share = (int64_t)s->threads * s->vpt * vec / SKR_QUANT_GROUP;
    for (int c = s->least; c <= s->most; c *= 2)
        if (skr_ceil_div(groups, c) <= share)
            return c;
    return 0;
}

/* What a plan needs to know of the rows. */
typedef struct skr_rows_problem {
    int type, vec; /* elements of a 16-byte vector */
    int64_t m, n;
    int64_t slot_bytes; /* shared memory for one slot */
} skr_rows_problem;

/* The quotient of i < 2^31 by d is the high word of i * ceil(2^(31 + l) / d), shifted by l - 1, with l = ceil(log2 d):
 * the factor fits 32 bits, and what it is too large by times i stays below 2^(31 + l) / d. */
static inline skr_divisor skr_divisor_of(int64_t d)
{
    int l = 0;
    while (((int64_t)1 << l) < d)
        l++;
    return (skr_divisor){(uint32_t)((((uint64_t)1 << (31 + l)) + (uint64_t)d - 1) / (uint64_t)d), l - 1};
}

/* m rows of so many vectors each as one run; false when there are too many. */
static inline bool skr_flat_of(int64_t m, int64_t vectors, skr_flat *out)
{
    int64_t total = skr_mul(m, vectors);
    *out = (skr_flat){0};
    if (total > INT32_MAX)
        return false;
    out->vectors = (uint32_t)vectors;
    out->total = (uint32_t)total;
    if (m == 1 || vectors == 1)
        return true;
    skr_divisor by = skr_divisor_of(vectors);
    out->mul = by.factor;
    out->shift = (uint32_t)by.shift;
    return true;
}

#define SKR_COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* Adds a step for rows that fit a block; false when no shape takes them. */
bool skr_plan_rows_block(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                         skr_cuda_kernel *kernels, int count, skr_plan *plan);
/* The same for rows that fill more than half of a cluster of blocks. */
bool skr_plan_rows_filled_cluster(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                                  skr_cuda_kernel *kernels, int count, skr_plan *plan);
/* The same for rows that fit a cluster of blocks. */
bool skr_plan_rows_cluster(const skr_rows_problem *p, const skr_target *target, const skr_rows_shape *shapes,
                           skr_cuda_kernel *kernels, int count, skr_plan *plan);

#endif
