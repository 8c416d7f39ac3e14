/* hadamard.h - the job of hadamard.
 * SPDX-License-Identifier: Apache-2.0
 *
 * log2(N) stages of sums and differences: stage s combines elements whose indices differ in bit s only. The stages
 * commute, so each kernel takes them in the order that suits it. */
#ifndef SKR_HADAMARD_H
#define SKR_HADAMARD_H

#include "../../core/job.h"

enum {
    SKR_HADAMARD_REGS = 5,  /* CUDA: log2 of the elements of a thread */
    SKR_HADAMARD_LEAST = 5, /* CUDA: log2 of the narrowest and the widest row of the fast kernels */
    SKR_HADAMARD_MOST = 15,
    SKR_HADAMARD_PIECE = 14, /* and of what a block of the other kernel holds: 64 KiB, which every GPU has */
    SKR_HADAMARD_HUGE = 20,  /* and of the widest row */
    SKR_HADAMARD_ANY = 256   /* threads of the kernel that takes anything */
};

typedef struct skr_hadamard_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;
    skr_rows x, y;
    float scale;
    int32_t log_n;
    int64_t rows_per_task, scratch_bytes; /* CPU plan */
} skr_hadamard_job;

#endif
