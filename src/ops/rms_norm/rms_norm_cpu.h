/* rms_norm_cpu.h - what the forward and the backward row kernels share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_RMS_NORM_CPU_H
#define SKR_RMS_NORM_CPU_H

#include "../../cpu/rows.h"
#include "rms_norm.h"

static inline int64_t head_of(int64_t heads, int64_t row)
{
    return heads == 1 ? 0 : row % heads;
}

#endif
