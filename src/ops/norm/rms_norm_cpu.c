/* rms_norm_cpu.c - forward rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
enum { CENTRE = 0 };
#define BOTH_IN_ORDER /* in gcc's own order: see layer_norm_cpu.c */

#include "norm_forward_cpu.h"

void SKR_KERNEL(rms_norm)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(rms_norm)(const void *job, int step, int64_t task, int worker)
{
    norm_forward(job, step, task, worker);
}
