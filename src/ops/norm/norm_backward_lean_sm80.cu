/* norm_backward_lean_sm80.cu - the backward kernels of the common case, for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_backward_rows.cuh"
#include "norm_kernels.cuh"

#define SKR_BACKWARD_LEAN(norm, type, lanes, threads, vpt, stages, shared, blocks, parts)                              \
    BACKWARD(                                                                                                          \
        skr_##norm##_norm_backward_lean_##type##_##lanes##x##vpt, threads, blocks,                                     \
        norm_backward<CENTRE_##norm, TYPE_##type, block_owner<lanes, threads>, vpt, stages, shared, true>::run(job))
#include "norm_kernels.def"
