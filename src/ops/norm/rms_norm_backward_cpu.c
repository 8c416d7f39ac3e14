/* rms_norm_backward_cpu.c - backward rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
enum { CENTRE = 0 };

#include "norm_backward_cpu.h"

void SKR_KERNEL(rms_norm_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(rms_norm_backward)(const void *job, int step, int64_t task, int worker)
{
    (void)worker;
    norm_backward(job, step, task);
}
