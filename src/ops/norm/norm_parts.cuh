/* norm_parts.cuh - adds the partial rows of dweight and, behind them in the workspace, of dbias.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_NORM_PARTS_CUH
#define SKR_NORM_PARTS_CUH

#include "../../cuda/parts.cuh"
#include "norm.h"

template <int C> SKR_DEVICE void norm_add_parts(const skr_norm_backward_job &job)
{
    wait_for_previous();
    let_next_start();
    const float *part = (const float *)job.head.workspace;
    int64_t parts = job.n_parts / job.heads;
    if (job.dweight.data)
        add_parts<C>(job.dweight, job.heads, job.n, job.accumulate, part, parts);
    if (job.dbias.data)
        add_parts<C>(job.dbias, job.heads, job.n, job.accumulate, part + (job.dweight.data ? job.n_parts * job.n : 0),
                     parts);
}

#endif
