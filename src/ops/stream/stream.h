/* stream.h - the job of stream, the bandwidth probe.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each output is the exclusive-or of all inputs (0x5a bytes without inputs); checksum is the exclusive-or of all 8-byte
 * words of all inputs. */
#ifndef SKR_STREAM_H
#define SKR_STREAM_H

#include "../../core/job.h"

enum { SKR_STREAM_INPUTS = 4, SKR_STREAM_OUTPUTS = 2, SKR_STREAM_FILL = 0x5a };
/* CPU: the bytes of each tensor that one task takes, and its steps. */
enum { SKR_STREAM_PIECE = 512 * 1024, SKR_STREAM_MOVE = 0, SKR_STREAM_FOLD = 1 };

typedef struct skr_stream_job {
    skr_job_head head;
    int64_t bytes;                    /* of each tensor: a multiple of 8 */
    const void *x[SKR_STREAM_INPUTS]; /* the first n_in are there */
    void *y[SKR_STREAM_OUTPUTS];      /* the first n_out are there */
    int64_t *checksum;                /* NULL: not wanted */
    int32_t n_in, n_out;
    int64_t n_tasks; /* CPU plan: checksums of the tasks in the workspace */
} skr_stream_job;

#endif
