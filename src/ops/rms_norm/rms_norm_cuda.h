/* rms_norm_cuda.h - what the CUDA plans of rms_norm and rms_norm_backward share: which rows the vector kernels can
 * take. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_RMS_NORM_CUDA_H
#define SKR_RMS_NORM_CUDA_H

#include "../../cuda/launch.h"
#include "rms_norm.h"

/* A kernel instance of rms_norm_kernels.def. */
typedef struct skr_norm_shape {
    int type, lanes, threads, vpt;
    int rows;        /* of a group of lanes at once */
    int stages;      /* rows on their way in shared memory */
    int least, most; /* blocks of a cluster */
    int walk;        /* forward: blocks an SM, 0: one per tile; backward: parts */
    const char *variant;
} skr_norm_shape;

enum {
    SKR_NORM_CLUSTER = 16,        /* largest cluster */
    SKR_NORM_ROWS = 1 << 28,      /* row numbers of the vector kernels are 32-bit, with room for the rows ahead */
    SKR_NORM_SHARED = 220 * 1024, /* dynamic shared bytes they may ask for; the rest is for the partials of a cluster */
    SKR_NORM_GRID = 1 << 20       /* blocks of the kernels that walk; more would only wait */
};

static inline int64_t skr_norm_divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Every access of `vec` elements at a multiple of vec columns is aligned to its size (16 bytes at most). Absent tensors
 * are. */
static inline bool skr_norm_rows_aligned(const skr_row_space *space, const skr_rows *t, int vec)
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

static inline bool skr_norm_param_aligned(int64_t heads, const skr_param *p, int vec)
{
    if (!p->data)
        return true;
    int64_t bytes = skr_type_bytes(p->type), unit = vec * bytes < 16 ? vec * bytes : 16;
    return ((int64_t)(uintptr_t)p->data | (heads > 1 ? p->stride * bytes : 0)) % unit == 0;
}

/* Clusters of one block an SM that a GPU holds at once. A cluster has its SMs in one GPC, and what is left over there
 * stays idle: of 132 SMs, 66 pairs can be used, but 15 clusters of 8 and 7 of 16. One more than fit would wait for all
 * others to end. */
static inline int64_t skr_norm_resident(int64_t n_sms, int cluster)
{
    int64_t clusters = (cluster <= 2 ? n_sms : n_sms * 10 / 11) / cluster;
    return clusters > 0 ? clusters : 1;
}

/* Smallest of the shape's clusters whose blocks hold the row, whole groups of 128 columns each; 0 when none does. */
static inline int skr_norm_cluster(int64_t n, const skr_norm_shape *s, int vec)
{
    int64_t groups = skr_norm_divide_up(n, SKR_QUANT_GROUP),
            share = (int64_t)s->threads * s->vpt * vec / SKR_QUANT_GROUP;
    for (int c = s->least; c <= s->most; c *= 2)
        if (skr_norm_divide_up(groups, c) <= share)
            return c;
    return 0;
}

#endif
