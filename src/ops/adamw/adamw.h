/* adamw.h - the job of adamw.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   g = grad * factor                  factor = +-grad_scale * clip, from device memory
 *   m = beta1 * m + grad1 * g          grad1 = 1 - beta1, grad2 = 1 - beta2
 *   v = beta2 * v + grad2 * g * g
 *   param = param * decay - step_size * m / (sqrt(v) * inv_root + eps)
 *
 * The constants are computed in double when the call is checked, and are f32 from there on. */
#ifndef SKR_ADAMW_H
#define SKR_ADAMW_H

#include "../../core/job.h"

enum { SKR_ADAMW_TENSORS = 5, SKR_ADAMW_THREADS = 256 };
/* CPU: elements of a task, and of a block of f32 copies of 16-bit tensors. */
enum { SKR_ADAMW_PIECE = 16384, SKR_ADAMW_BLOCK = 1024 };

typedef struct skr_adamw_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t n;
    skr_rows param, grad, exp_avg, exp_avg_sq, max_sq; /* max_sq: absent without amsgrad */
    const float *grad_scale, *sum_squares;             /* NULL: 1, no clipping */
    float beta1, grad1, beta2, grad2, decay, step_size, inv_root, eps, max_norm, sign;
    int64_t pieces; /* of a row: tasks or blocks */
} skr_adamw_job;

/* What the gradient is multiplied by. A norm that is NaN gives NaN. */
SKR_INLINE float skr_adamw_factor(const skr_adamw_job *job, float root_of_sum)
{
    float scale = job->grad_scale ? *job->grad_scale : 1.0f, clip = 1.0f;
    if (job->sum_squares) {
        float norm = root_of_sum * (scale < 0 ? -scale : scale);
        clip = job->max_norm / (norm + 1e-6f);
        clip = clip > 1.0f ? 1.0f : clip;
    }
    return job->sign * scale * clip;
}

#endif
