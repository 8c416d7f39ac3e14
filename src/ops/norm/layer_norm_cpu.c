/* layer_norm_cpu.c - forward rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
enum { CENTRE = 1 };
#define BOTH_IN_ORDER SKR_IN_ORDER /* rms_norm is faster in gcc's own order, this one by 4 % in that of the source */

#include "norm_forward_cpu.h"

void SKR_KERNEL(layer_norm)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(layer_norm)(const void *job, int step, int64_t task, int worker)
{
    norm_forward(job, step, task, worker);
}
