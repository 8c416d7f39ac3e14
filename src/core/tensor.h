/* tensor.h - from a caller's descriptor to a checked view.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_TENSOR_H
#define SKR_TENSOR_H

#include "op.h"

/* Checks one tensor argument against its field (type, rank, dims, strides, alignment, device) and resolves it.
 * device_type is the context's: SAKER_CPU or SAKER_CUDA. */
saker_status skr_view_of(skr_call *call, const saker_field *field, const saker_tensor *t, saker_device device,
                         skr_view *out);

#endif
