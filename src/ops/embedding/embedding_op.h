/* embedding_op.h - what operations that pick rows make a part of their plan of.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_EMBEDDING_OP_H
#define SKR_EMBEDDING_OP_H

#include "../../core/op.h"
#include "embedding.h"

/* Written beside the CUDA kernels (embedding_cuda.c). The job is what check would have made. */
saker_status skr_embedding_plan_cuda(skr_call *call, skr_embedding_job *job, const skr_target *target, skr_plan *plan);

#endif
