/* topk.h - the jobs of topk and topk_backward.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Values are compared through keys: unsigned integers in the order of the values, NaN on top, both zeros equal. An
 * element is key << 32 | ~index: all are distinct, and larger means earlier. */
#ifndef SKR_TOPK_H
#define SKR_TOPK_H

#include "../../core/job.h"

enum {
    SKR_TOPK_RANK = 256,          /* CUDA: up to so many survivors are sorted by counting */
    SKR_TOPK_SHARED = 200 * 1024, /* CUDA: most shared memory for the keys of a row and the survivors */
    SKR_TOPK_LIST = 8192,         /* CUDA: most survivors in shared memory */
    SKR_TOPK_STEP = 65535         /* CUDA: at least the elements that a block has under way: 1024 threads, 4 vectors */
};

/* CUDA: key and index of a survivor have 16 bits each: blocks of up to 512 threads have rows of up to 2^15 columns
 * (topk_kernels.def). */
#define SKR_TOPK_NARROW(type, threads) (((type) == SKR_F16 || (type) == SKR_BF16) && (threads) <= 512)

/* Places that a list of n survivors takes, with padding (CUDA). */
#define SKR_TOPK_PADDED(n) ((int64_t)(n) + (n) / 8)

typedef struct skr_topk_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n, k;
    skr_rows x, values, indices; /* values and indices: any col_stride */
    int32_t softmax;
    /* CUDA plan */
    int32_t wide;   /* rows can be read in 16-byte vectors */
    int32_t cached; /* keys stay in shared memory */
    int32_t cap;    /* room for survivors: a power of two, in shared memory or in the workspace */
    /* CPU plan */
    int64_t rows_per_task;
    int64_t room;          /* survivors that a worker can hold */
    int64_t scratch_bytes; /* of a worker */
} skr_topk_job;

typedef struct skr_topk_backward_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n, k;
    skr_rows dvalues, indices, values, dx; /* values: absent without softmax */
    int64_t rows_per_task;                 /* CPU plan */
    int32_t wide;                          /* CUDA plan: dx can be written in 16-byte vectors */
    int32_t reserved;
} skr_topk_backward_job;

#endif
