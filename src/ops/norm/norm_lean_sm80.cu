/* norm_lean_sm80.cu - the forward kernels with a residual or a quantised output, for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_kernels.cuh"
#include "norm_lean.cuh"

#define SKR_RESIDUAL(norm, type, lanes, threads, vpt, blocks)                                                          \
    FORWARD(skr_##norm##_norm_residual_##type##_##lanes##x##vpt, threads, blocks,                                      \
            norm_residual<CENTRE_##norm, TYPE_##type, block_owner<lanes, threads>, vpt>)
#define SKR_QUANT(norm, type, lanes, threads, vpt, hold, blocks, walk)                                                 \
    FORWARD(skr_##norm##_norm_quant_##type##_##lanes##x##vpt, threads, blocks,                                         \
            norm_quant<CENTRE_##norm, TYPE_##type, block_owner<lanes, threads>, vpt, 2, hold>)
#include "norm_kernels.def"
